"""Stage peer: methods in rounds without a server, on a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts import write_table
from fedrepro.core.serialization import save_state
from fedrepro.core.spec import Spec
from fedrepro.planning.jobs import Job, Scenario
from fedrepro.stages.common import TrialData
from fedrepro.stages.node_evaluation import NodeEvaluator
from fedrepro.stages.rounds_job import FinishedJob, run_rounds, write_metrics
from fedrepro.training.federation.graph_nodes import GraphNodes
from fedrepro.training.graphs.build import weights_of


def run(job: Job, device: str = "cpu") -> None:
    """Run every trial to its last round; a killed run goes on from its last checkpoint.

    In a race method and training may have several settings, and some of them stop.
    `confusion.parquet` has the confusion of classes at the end, `nodes.pt` the last beliefs of
    nodes.
    """
    made = run_rounds(job, device, node_evaluator)
    kept = {result.key: result.kept["nodes"] for result in made.finished if result.kept is not None}
    save_state(Path(job.out, "nodes.pt"), {"provenance": made.source, "trials": kept})
    write_table(Path(job.out, "confusion.parquet"), _confusions(made), "confusion", made.source)
    write_metrics(job, made)


def node_evaluator(scenario: Scenario, method: Spec, data: TrialData) -> NodeEvaluator:
    """Return the measurements of a method at the nodes of a trial, whose graph is the trial's."""
    clients = data.clients(scenario, method)
    assert scenario.graph is not None
    weights = weights_of(scenario.graph, clients.count, data.rng)
    return NodeEvaluator(method, GraphNodes(**vars(clients), weights=weights))


def _confusions(made: FinishedJob) -> dict[str, list[Any]]:
    """Return a row for each trial, setting, belief, node, label and prediction."""
    rows = [
        (result.trial, result.contender.name, belief, *at, int(count))
        for result in made.finished
        if result.kept is not None
        for belief, counts in result.kept["confusion"].items()
        for at, count in np.ndenumerate(counts)
    ]
    names = ("trial", "setting", "belief", "client", "label", "predicted", "count")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}

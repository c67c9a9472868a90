"""Stage peer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import BELIEFS, Decentralised, GlobalModel, Tensors, Traffic
from fedrepro.core.artifacts import write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import Number
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import save_state, to_plain
from fedrepro.core.spec import Spec
from fedrepro.numbers.model_evaluation import (
    ALONG,
    SAMPLES,
    EvaluationSplit,
    accuracy_of_means,
    confusion,
    of_all,
    predicted,
    scored,
    size,
    spreads,
    strange,
)
from fedrepro.planning.jobs import Job
from fedrepro.planning.runs import Scenario
from fedrepro.stages.rounds_job import FinishedJob, run_rounds, write_metrics
from fedrepro.stages.trial_data import TrialData
from fedrepro.stages.trial_rounds import FinalEvaluation, Progress, RoundEvaluation, Splits
from fedrepro.training.federation.clients import GraphNodes
from fedrepro.training.graphs import second_modulus, weights_of


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


TEST = "test"
FIRST, LAST = BELIEFS  # by the first nodes are judged, with the last they go on

Scores = list[tuple[np.ndarray, np.ndarray]]  # of each node: class scores and labels


@dataclass(frozen=True)
class NodeEvaluator:
    """Measures the belief of each node, before and after it has heard its neighbours.

    On test examples, splits `before` and `after` have the numbers of either belief, of each node
    (client) and of all, and split `test` those of the belief before, as for other methods.
    """

    method: Spec
    clients: GraphNodes

    @cached_property
    def made(self) -> Decentralised:
        """Return the method with its parameters."""
        made: Decentralised = self.method.component.fn(**self.method.values)
        return made

    def evaluate_round(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> RoundEvaluation:
        """Measure both beliefs on test examples, and the accuracy before on the other splits."""
        held = self._held(state, rng)
        values: list[Number] = []
        for name, tensors in held.items():
            scores = self._predicted(tensors, splits[TEST], ALONG, rng)
            values += _told(self._numbers(tensors, scores), name)
        values += [*_headline(values), *self._others(held, splits, ALONG, rng)]
        return RoundEvaluation(values, True)

    def evaluate_rung(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> RoundEvaluation:
        """Measure the accuracy before."""
        held = self._held(state, rng)
        return RoundEvaluation(self._others(held, splits, ALONG, rng), True)

    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> FinalEvaluation:
        """Measure as `along`, with accuracies of means, sizes and traffic; keep beliefs."""
        held = self._held(run.state, rng.at(round=run.done))
        values: list[Number] = []
        confusions = {}
        for name, tensors in held.items():
            scores = self._predicted(tensors, splits[TEST], SAMPLES, rng)
            confusions[name] = np.stack([confusion(*node_scores) for node_scores in scores])
            numbers = self._numbers(tensors, scores)
            means = self._means(tensors, splits[TEST])
            values += _told([a | b for a, b in zip(numbers, means, strict=True)], name)
        values += [*_headline(values), *self._others(held, splits, SAMPLES, rng)]
        values += self._cost(run, splits[TEST])
        return FinalEvaluation(
            values, {"nodes": to_plain(dict(held[LAST])), "confusion": confusions}
        )

    def sent(self) -> Traffic:
        """Return the messages of a round: a belief along every edge."""
        return self.clients.sent()

    def _held(self, state: dict[str, Any], rng: RngKey) -> dict[str, Tensors]:
        """Return both beliefs; refuse one that is missing or not finite."""
        beliefs = self.made.beliefs(state, self.clients)
        if set(beliefs) != set(BELIEFS):
            raise FedreproError(
                f"the beliefs of method '{self.method.name}' are {', '.join(sorted(beliefs))}; "
                f"name them {' and '.join(BELIEFS)}"
            )
        for name, tensors in beliefs.items():
            fault = strange(self.clients.network, tensors)
            if fault is not None:
                node, what = fault
                raise FedreproError(
                    f"a {what} of node {node} in trial {rng.trial} is not finite after round "
                    f"{rng.round} (belief {name}); lower the learning rate (lr), or check its "
                    "inputs"
                )
        return {name: beliefs[name] for name in BELIEFS}

    def _predicted(
        self, tensors: Tensors, split: EvaluationSplit, samples: int, rng: RngKey
    ) -> Scores:
        """Return the scores of each node; both beliefs of a node have equal draws."""
        network = self.clients.network
        return [
            predicted(network, _node(tensors, at), split, samples, rng.at(client=at))
            for at in range(self.clients.count)
        ]

    def _numbers(self, tensors: Tensors, scores: Scores) -> list[dict[str, float]]:
        """Return the numbers of each node."""
        network = self.clients.network
        return [
            scored(*node_scores) | spreads(network, _node(tensors, at))
            for at, node_scores in enumerate(scores)
        ]

    def _means(self, tensors: Tensors, split: EvaluationSplit) -> list[dict[str, float]]:
        """Return the accuracy of each node's means, where weights are distributions."""
        network = self.clients.network
        if network.kind != "variational":
            return [{} for _ in range(self.clients.count)]
        return [
            {"accuracy_of_means": accuracy_of_means(network, _node(tensors, at), split)}
            for at in range(self.clients.count)
        ]

    def _others(
        self, held: Mapping[str, Tensors], splits: Splits, samples: int, rng: RngKey
    ) -> list[Number]:
        """Measure the accuracy before on splits other than test.

        It is that of each node, of all nodes, and of nodes on their own examples.
        """
        values: list[Number] = []
        for name, split in splits.items():
            if name == TEST:
                continue
            scores = self._predicted(held[FIRST], split, samples, rng)
            right = [class_scores.argmax(1) == asked for class_scores, asked in scores]
            each = [float(hits.mean()) for hits in right]
            values += [Number("accuracy", v, name, client=at) for at, v in enumerate(each)]
            values.append(Number("accuracy", float(np.mean(right)), name))
            if split.rows:
                answers = [hits.reshape(len(split.labels), -1) for hits in right]
                pairs = zip(answers, split.rows, strict=True)
                accuracies = [float(hits[rows].mean()) for hits, rows in pairs if len(rows)]
                values.append(Number("accuracy_clients", float(np.mean(accuracies)), name))
        return values

    def _cost(self, run: Progress, split: EvaluationSplit) -> list[Number]:
        """Return the size of a node's model, and the messages over the graph."""
        belief = self.made.beliefs(run.state, self.clients)[FIRST]
        model = GlobalModel(self.clients.model, {name: value[:1] for name, value in belief.items()})
        held = {number.metric: number.value for number in size(model, split, SAMPLES)}
        sent = run.traffic
        costs = {
            "rounds": run.exchanges,
            "messages": sent.messages_up,
            "bytes_up": sent.bytes_up,
            "bytes_down": sent.bytes_down,
            "edges": self.clients.edges,
            "spectral_gap": round(1 - second_modulus(self.clients.weights), 12),
            "bytes_per_edge": sent.bytes_up / max(1, sent.messages_up),
        }
        return [Number(metric, float(value)) for metric, value in (held | costs).items()]


def _node(tensors: Tensors, at: int) -> dict[str, np.ndarray]:
    return {name: value[at] for name, value in tensors.items()}


def _told(nodes: list[dict[str, float]], belief: str) -> list[Number]:
    """Return the numbers of each node, then those of all, on test examples."""
    each = [
        Number(metric, value, belief, client=at)
        for at, numbers in enumerate(nodes)
        for metric, value in numbers.items()
    ]
    return [*each, *(Number(metric, value, belief) for metric, value in of_all(nodes).items())]


def _headline(values: list[Number]) -> Iterator[Number]:
    for number in values:  # split test has the accuracies before, as of other methods
        if number.split == FIRST and number.metric in ("accuracy", "accuracy_worst"):
            yield number._replace(split=TEST)

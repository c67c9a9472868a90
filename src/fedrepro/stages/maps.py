"""Stages partition-maps and graph-maps: pictures of the partitions and graphs of exhibits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedrepro.core.artifacts import SCHEMA_VERSION, write_bytes, write_json
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import shown_name
from fedrepro.data.partition_table import read_members
from fedrepro.data.prepared import load_prepared
from fedrepro.drawings.partition_and_graph_maps import (
    GraphMap,
    PartitionMap,
    graph_map,
    partition_map,
    render_map,
)
from fedrepro.planning.plan import Plan
from fedrepro.stages.common import log

TRIAL = 0  # the one that is drawn


def run(plan: Plan, exhibits: Sequence[str], out: Path) -> None:
    """Draw each partition to `out`/<data set>--<partition>.svg, and list them in maps.json."""
    entries = []
    block = plan.blocks(TRIAL + 1)[-1]
    for (dataset, partition), keys in plan.partitions(exhibits).items():
        prepared = load_prepared(plan.jobs.dataset(dataset))
        file = plan.jobs.partition(dataset, partition, block)
        held = read_members(file, TRIAL, dataset, partition)
        drawn = partition_map(prepared, partition, held, plan.config.seed, TRIAL)
        name = f"{shown_name(dataset, partition)}.svg"
        numbers = {"skew": asdict(drawn.skew), "stand_in": prepared.stand_in}
        entries.append(_written(out / name, drawn, partition, keys) | numbers)
    head = {"kind": "partition-maps", "schema": SCHEMA_VERSION}
    write_json(out / "maps.json", {**head, "partitions": entries})
    log(f"{out}: {len(entries)} partitions")


def run_graphs(plan: Plan, exhibits: Sequence[str], out: Path) -> None:
    """Draw each graph to `out`/<graph>--<nodes>.svg, and list them in graphs.json."""
    entries = []
    for (graph, clients), keys in plan.graphs(exhibits).items():
        drawn = graph_map(graph, clients, plan.config.seed, TRIAL)
        name = f"{shown_name(graph)}--{clients}.svg"
        entries.append(
            _written(out / name, drawn, graph, keys) | {"numbers": asdict(drawn.numbers)}
        )
    head = {"kind": "graph-maps", "schema": SCHEMA_VERSION}
    write_json(out / "graphs.json", {**head, "graphs": entries})
    log(f"{out}: {len(entries)} graphs")


def _written(
    path: Path, drawn: PartitionMap | GraphMap, spec: Spec, exhibits: Sequence[str]
) -> dict[str, Any]:
    """Write a picture, and return its entry in the list of all."""
    write_bytes(path, render_map(drawn, [".svg"])[".svg"])
    return {
        "image": path.name,
        "title": drawn.title,
        "alt": drawn.alt,
        "words": drawn.words,
        "about": spec.component.doc,
        "token": spec.token,
        "exhibits": exhibits,
    }

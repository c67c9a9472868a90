"""Stage partition-maps: drawings of the partitions that exhibits are about, in one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedrepro.core.artifacts import SCHEMA_VERSION, write_bytes, write_json
from fedrepro.data.membership import read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.drawings.partition_map import map_of, render, words
from fedrepro.planning.paths import names_of
from fedrepro.planning.plan import Plan
from fedrepro.stages.common import say

TRIAL = 0  # the one that is drawn


def run(plan: Plan, exhibits: Sequence[str], out: Path) -> None:
    """Write `out`/<data set>--<partition>.svg of each, and what they are to `out`/maps.json."""
    found = []
    block = plan.blocks(TRIAL + 1)[-1]
    for (dataset, partition), keys in plan.partitions(exhibits).items():
        prepared = load_prepared(plan.paths.dataset(dataset))
        held = read_partition(plan.partition_file(dataset, partition, block), TRIAL)
        drawn = map_of(prepared, partition, held, plan.config.seed, TRIAL)
        name = f"{'--'.join(names_of((dataset, partition)))}.svg"
        write_bytes(out / name, render(drawn, [".svg"])[".svg"])
        found.append(
            {
                "image": name,
                "title": drawn.title,
                "alt": drawn.alt,
                "words": words(drawn.skew),
                "about": partition.component.doc,
                "token": partition.token,
                "exhibits": keys,
                "skew": asdict(drawn.skew),
                "stand_in": prepared.stand_in,
            }
        )
    head = {"kind": "partition-maps", "schema": SCHEMA_VERSION}
    write_json(out / "maps.json", {**head, "partitions": found})
    say(f"{out}: {len(found)} partitions")

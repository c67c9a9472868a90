"""Stage partition-maps: drawings of the partitions that exhibits are about, in one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedrepro.artifacts import SCHEMA_VERSION, write_bytes, write_json
from fedrepro.data.membership import read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.exhibits.partition_map import map_of, render, words
from fedrepro.paths import name_of
from fedrepro.plan import Plan
from fedrepro.stages.common import say

TRIAL = 0  # the one that is drawn


def run(plan: Plan, exhibits: Sequence[str], members: Sequence[Path], out: Path) -> None:
    """Write `out`/<data set>--<partition>.svg of each, and what they are to `out`/maps.json.

    `members` are the partition files in the order of `plan.partitions(exhibits)`.
    """
    found = []
    about = plan.partitions(exhibits)
    for ((dataset, partition), keys), path in zip(about.items(), members, strict=True):
        prepared = load_prepared(plan.paths.dataset(dataset))
        held = read_partition(path, TRIAL)
        drawn = map_of(prepared, partition, held, plan.config.seed, TRIAL)
        name = f"{name_of(dataset)}--{name_of(partition)}.svg"
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

"""Stage report: the page of a scale from its exhibits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedrepro.core.artifacts import write_text
from fedrepro.numbers.times import exhibit_seconds, timings_of
from fedrepro.planning.plan import Plan
from fedrepro.report.page import load, load_claims, load_graphs, load_maps, page
from fedrepro.stages.common import say


def run(
    plan: Plan,
    exhibits: Sequence[str],
    out: Path,
    maps: Path | None = None,
    claims: Sequence[Path] = (),
    graphs: Sequence[Path] = (),
) -> None:
    """Write the page; the exhibits lie beside it, and what their runs took is where they name it.

    `maps` is the folder of stage partition-maps, beside the page too; without it the page has no
    section on partitions. `graphs` is that of stage graph-maps, if there is one. `claims` are
    tables of verdicts, named <paper>/claims.csv.
    """
    shown = []
    for key in exhibits:
        plan.exhibit(key)
        found = load(out.parent, key, plan.scale)
        own = timings_of(found.about)
        known = all(path.exists() for path in own)
        shown.append(replace(found, seconds=exhibit_seconds(own) if known else {}))
    drawn = load_maps(maps) if maps else []
    on = [graph for folder in graphs for graph in load_graphs(folder)]
    write_text(out, page(plan.scale, shown, drawn, load_claims(claims), on))
    say(f"{out}: {len(shown)} exhibits")

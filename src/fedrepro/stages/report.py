"""Stage report: the page of a scale from its exhibits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedrepro.artifacts import write_text
from fedrepro.exhibits.times import exhibit_seconds
from fedrepro.plan import Plan
from fedrepro.report.page import load, load_claims, load_maps, page
from fedrepro.stages.common import say


def run(
    plan: Plan,
    exhibits: Sequence[str],
    times: Sequence[Path],
    out: Path,
    maps: Path | None = None,
    claims: Sequence[Path] = (),
) -> None:
    """Write the page; the exhibits lie beside it, and `times` are the tables of their runs.

    `maps` is the folder of stage partition-maps, beside the page too; without it the page has no
    section on partitions. `claims` are tables of verdicts, named <paper>/claims.csv.
    """
    given = {Path(path) for path in times}
    shown = []
    for key in exhibits:
        plan.exhibit(key)
        found = load(out.parent, key, plan.scale)
        own = [path for path in map(Path, found.about["timings"]) if path in given]
        shown.append(replace(found, seconds=exhibit_seconds(own)))
    drawn = load_maps(maps) if maps else []
    write_text(out, page(plan.scale, shown, drawn, load_claims(claims)))
    say(f"{out}: {len(shown)} exhibits")

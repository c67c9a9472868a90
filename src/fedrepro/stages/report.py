"""Stage report: the page of a scale from its exhibits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrepro.artifacts import read_json, write_text
from fedrepro.exhibits.times import exhibit_seconds
from fedrepro.plan import Plan
from fedrepro.report.page import load, page
from fedrepro.stages.common import say


def run(plan: Plan, exhibits: Sequence[str], times: Sequence[Path], out: Path) -> None:
    """Write the page; the exhibits lie beside it, and `times` are the tables of their runs."""
    given = {Path(path) for path in times}
    shown = []
    for key in exhibits:
        plan.exhibit(key)
        about = read_json(f"{out.parent / key}.json")
        own = [path for path in map(Path, about["timings"]) if path in given]
        shown.append(load(out.parent, key, plan.scale, exhibit_seconds(own)))
    write_text(out, page(plan.scale, shown))
    say(f"{out}: {len(shown)} exhibits")

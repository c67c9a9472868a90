"""Leaderboards: the ground on which methods are compared, which does not move under a version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fedrepro.core.errors import FedreproError
from fedrepro.core.packs import exhibits_file
from fedrepro.planning.exhibit import Exhibit
from fedrepro.planning.plan import Plan
from fedrepro.planning.runs import specs_of


def parts_of(plan: Plan, paper: str, version: str) -> list[Exhibit]:
    """The exhibits that a leaderboard is made of, in the order of their file.

    Errors: FedreproError for one with a mistake.
    """
    return [plan.exhibit(key) for key in part_keys(plan, paper, version)]


def part_keys(plan: Plan, paper: str, version: str) -> list[str]:
    """The same by their keys."""
    return [f"{paper}/{name}" for name in plan.files[paper].parts(version, plan.scale)]


def ground_of(parts: Iterable[Exhibit]) -> str:
    """A digest of what no method changes: scenarios with all parameters and versions, trials, and
    the rules by which settings are chosen.

    Methods may be added, and have new versions: the ground is the same.
    """
    lines = []
    for exhibit in parts:
        rules = sorted({m.choose.name for m in exhibit.measures if m.choose and m.chosen})
        for point in exhibit.points:
            scenario = " ".join(spec.resolved for spec in specs_of(point.scenario))
            trials = sorted(set(point.trials.values()))
            lines.append(f"{exhibit.key}: {scenario}; trials {trials}; chosen by {rules}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def require_frozen(plan: Plan, papers: Iterable[str] | None = None) -> None:
    """Errors: FedreproError for a leaderboard whose ground is another than is written, at scale
    paper.

    papers: whose leaderboards are checked, if not those of all.
    """
    checked = plan.files if papers is None else papers
    for paper, file in ((paper, plan.files[paper]) for paper in checked):
        if plan.scale != "paper":
            continue
        for version, board in file.boards.items():
            if set(part_keys(plan, paper, version)) & set(plan.broken):
                continue  # whoever asks for it is told
            digest = ground_of(parts_of(plan, paper, version))
            if board.ground and digest != board.ground:
                raise FedreproError(
                    f"{exhibits_file(paper)}: the ground of {paper}/{version} changed (its "
                    f"digest is {digest}, written is {board.ground}); results on two grounds do "
                    f"not compare: undo the change, or make it {paper}/{int(version) + 1} beside it"
                )

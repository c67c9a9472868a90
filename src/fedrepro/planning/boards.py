"""Leaderboards: the scenarios on which methods are compared, fixed for each version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fedrepro.core.errors import FedreproError
from fedrepro.core.packs import exhibits_file
from fedrepro.planning.exhibit import Exhibit
from fedrepro.planning.plan import Plan
from fedrepro.planning.runs import specs_of


def parts_of(plan: Plan, paper: str, version: str) -> list[Exhibit]:
    """List the exhibits of a leaderboard, in the order of their file.

    Raises:
        FedreproError: one of them has a mistake.
    """
    return [plan.exhibit(key) for key in part_keys(plan, paper, version)]


def part_keys(plan: Plan, paper: str, version: str) -> list[str]:
    """List the keys of a leaderboard's exhibits, in the order of their file."""
    return [f"{paper}/{name}" for name in plan.files[paper].parts(version, plan.scale)]


def ground_of(parts: Iterable[Exhibit]) -> str:
    """Return a digest of what no method changes: scenarios, trials and rules of choice.

    Scenarios enter with all parameters and versions. New methods, and new versions of methods,
    leave the digest as it is.
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
    """Refuse a leaderboard whose ground has another digest than its file records, at scale paper.

    Args:
        plan: the exhibits of a scale; at other scales than paper nothing is checked.
        papers: whose leaderboards to check; None checks all.

    Raises:
        FedreproError: the ground changed.
    """
    checked = plan.files if papers is None else papers
    for paper, file in ((paper, plan.files[paper]) for paper in checked):
        if plan.scale != "paper":
            continue
        for version, board in file.boards.items():
            if set(part_keys(plan, paper, version)) & set(plan.broken):
                continue  # `Plan.exhibit` raises its error
            digest = ground_of(parts_of(plan, paper, version))
            if board.ground and digest != board.ground:
                raise FedreproError(
                    f"{exhibits_file(paper)}: the ground of {paper}/{version} changed (its "
                    f"digest is {digest}, written is {board.ground}); results on two grounds do "
                    f"not compare: undo the change, or add it as {paper}/{int(version) + 1}"
                )

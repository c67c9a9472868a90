"""Hooks into parts of Snakemake that it does not promise to keep.

Where a part has another name nothing happens, and the workflow runs all the same, slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedrepro.cli import CONFIG
from fedrepro.core.errors import FedreproError


def waiting_jobs(workflow: Any) -> int:
    """Count the jobs that a workflow is about to run; 0 where it cannot be asked."""
    try:
        return sum(1 for _ in workflow.dag.needrun_jobs())
    except (AttributeError, TypeError):
        return 0


def lift_limit(workflow: Any) -> None:
    """Let local jobs start as fast as cores are free, not at most 100 a second.

    With the limit, each job that ended adds one look a second at all waiting jobs.
    """
    if hasattr(getattr(workflow, "scheduler", None), "job_rate_limiter"):
        workflow.scheduler.job_rate_limiter = None


def forget(workflow: Any, paths: Iterable[Path]) -> None:
    """Drop the records of files, so that their times alone say whether they are out of date."""
    try:
        from snakemake.io import IOFile

        for path in paths:
            workflow.persistence.cleanup_metadata(IOFile(str(path)))
    except (AttributeError, ImportError, TypeError):
        return


def join(workflow: Any, onstart: Any, onerror: Any) -> None:
    """Run our handlers as well as those of a workflow that uses this one as a module.

    Snakemake leaves out the handlers of a module, and jobs would be slow.

    Raises:
        FedreproError: if the jobs of the module would not find their files.
    """
    try:
        if workflow.modifier.is_main_snakefile():
            return
        moved = workflow.modifier.path_modifier.replace_prefix
        before = {name: getattr(workflow, name) for name in ("_onstart", "_onerror")}
    except AttributeError:
        return
    if any(moved(path, None) != path for path in ("results/x", "reports/x")):
        raise FedreproError(
            "the module fedrepro takes no `prefix` and no `replace_prefix`, because its jobs name "
            "files of results/ and reports/ themselves: leave them out"
        )
    if not Path(CONFIG).is_file():
        raise FedreproError(
            f"the module fedrepro reads {CONFIG}, which is missing: run `fedrepro start FOLDER` "
            "and copy its folder config here"
        )
    for ours, (name, theirs) in zip((onstart.func, onerror.func), before.items(), strict=True):
        setattr(workflow, name, lambda log, both=(theirs, ours): [run(log) for run in both])

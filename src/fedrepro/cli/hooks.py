"""What reaches into Snakemake, beside what it promises: of the series that this was tested with.

With another series, or where a part is called otherwise, nothing is reached for, and the workflow
runs all the same: jobs start by themselves, Snakemake keeps its own pace, and what was put back
after a failure keeps its record beside its old time.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedrepro.cli import CONFIG
from fedrepro.core.errors import FedreproError

TESTED = "9."  # envs/requirements.txt has the version, pyproject.toml the series


def tested() -> bool:
    """Whether the Snakemake that is installed is of the series that these hooks are for."""
    try:
        return version("snakemake").startswith(TESTED)
    except PackageNotFoundError:
        return False


def waiting_jobs(workflow: Any) -> int:
    """How many jobs a workflow is about to run; 0 where it cannot be asked."""
    try:
        return sum(1 for _ in workflow.dag.needrun_jobs()) if tested() else 0
    except (AttributeError, TypeError):
        return 0


def lift_limit(workflow: Any) -> bool:
    """Let jobs of this machine start as fast as cores are free. Returns whether it could be done.

    Snakemake starts at most 100 jobs a second, and looks again a second after each look: so every
    job that ended adds a look a second, at all jobs that wait and the sizes of their inputs. Here
    jobs wait for cores, and never for that limit.
    """
    scheduler: Any = getattr(workflow, "scheduler", None)
    if not tested() or not hasattr(scheduler, "job_rate_limiter"):
        return False
    scheduler.job_rate_limiter = None
    return True


def join(workflow: Any, onstart: Any, onerror: Any) -> None:
    """As a module of another workflow, have our handlers run beside those of that workflow.

    Snakemake leaves out the handlers of a module, and jobs would be slow. Errors: FedreproError for
    a module whose jobs would not find their files.
    """
    try:
        if not tested() or workflow.modifier.is_main_snakefile():
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


def forget(workflow: Any, paths: Iterable[Path]) -> None:
    """Take away the records of files: without them only their times say whether they are out of
    date."""
    if not tested():
        return
    try:
        from snakemake.io import IOFile

        for path in paths:
            workflow.persistence.cleanup_metadata(IOFile(str(path)))
    except (AttributeError, ImportError, TypeError):
        return

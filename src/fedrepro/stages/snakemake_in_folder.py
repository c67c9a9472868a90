"""Make a working folder (configuration and workflow), and compute figures and tables inside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from fedrepro.core import command_under_lock, source_digests
from fedrepro.core import user_component_files as component_files
from fedrepro.core.checksummed_files import temporary_folder, write_text
from fedrepro.core.diagnostics.usable_cores import usable_cores
from fedrepro.core.errors import FedreproError, installing
from fedrepro.planning.config_files import load_config

WORKFLOW, CONFIG = "workflow/Snakefile", "config/config.yaml"
LOCK = Path(".fedrepro/lock")  # the Makefile takes it too
RAISED = "FedreproError: "  # begins what planning says
SAID = "fedrepro: "  # with it lines begin that say why a job failed
ALL_ELSE = "all else is drawn"  # in the reason if only methods failed
LEFT_OUT = " is left out: "  # behind the key of a figure that cannot be planned
LAST = 20  # last lines of output that are shown if the workflow fails without a reason
LOOK = 0.5  # seconds between two calls of `watch`
# the content of a new working folder
BEGINNING = ("Snakefile", "config", "workflow", "profiles", "envs")
INSTALLED = ".folder"  # in the package of a wheel; not part of its sources


def start(folder: str | Path = ".") -> Path:
    """Make a working folder to compute figures and tables in, with configuration and workflow.

    Returns the folder's path. FedreproError is raised if `folder` already has one of these files.
    """
    target, origin = Path(folder), _origin()
    if taken := [name for name in BEGINNING if (target / name).exists()]:
        fix = "name a folder that has none, or go on in it"
        raise FedreproError(f"{target / taken[0]} is there already: {fix}")
    given = load_config(origin / CONFIG)
    target.mkdir(parents=True, exist_ok=True)
    with temporary_folder(target) as whole:  # all or nothing is copied
        for name in BEGINNING:
            if (origin / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(origin / name, whole / name, ignore=ignored)
            else:
                shutil.copy(origin / name, whole / name)
        for name in BEGINNING:
            (whole / name).rename(target / name)
    # paths of the configuration are meant from where it was
    mirror = given.mirror and os.path.join(origin, given.mirror)
    files = [os.path.join(origin, file) for file in given.components]
    moved = given.model_copy(update={"mirror": mirror, "components": files})
    if moved != given:
        write_text(target / CONFIG, moved.model_dump_json(exclude_unset=True, indent=2))
    return target


def _origin() -> Path:
    """Return the folder with this package's workflow, of its wheel or its checkout."""
    package = Path(source_digests.PACKAGE)
    for place in (package / INSTALLED, *package.parents[1:2]):
        if (place / WORKFLOW).is_file():
            return place
    said = f"this fedrepro has no workflow at {package}"
    raise FedreproError(f"{said}: install it from its wheel, or from a checkout")


@contextlib.contextmanager
def inside_folder(folder: str | Path) -> Iterator[None]:
    """Make a working folder (one with a workflow) the current folder within a `with` block."""
    if not (Path(folder) / WORKFLOW).is_file():
        fix = f"call fedrepro.start('{folder}') first, or give folder=…"
        raise FedreproError(f"{os.path.abspath(folder)} has no workflow: {fix}")
    if mirror := os.environ.get("FEDREPRO_MIRROR"):  # from here, not from the folder
        os.environ["FEDREPRO_MIRROR"] = os.path.abspath(mirror)
    component_files.set_files(map(os.path.abspath, component_files.configured_files()))
    with contextlib.chdir(folder):
        yield


def compute(
    targets: Sequence[str],
    cores: int | None = None,
    profile: str = "",
    *,
    own: bool = False,
    watch: Callable[[], None] | None = None,
) -> None:
    """Run Snakemake in the current folder to make the missing or outdated files of `targets`.

    `cores` is by default as the Snakemake `profile` says, or without a profile all usable cores.
    `own` restricts the workflow to the user's figures and tables, in config/exhibits. `watch` is
    called twice a second, such as to show progress. FedreproError is raised if jobs failed or
    another run uses the folder; a warning is given if methods failed and all else was drawn.
    """
    if find_spec("snakemake") is None:
        needed = "computing an exhibit needs Snakemake, which is not installed here"
        raise FedreproError(f"{needed}: {installing('workflow')}")
    command = [sys.executable, "-P", "-m", "snakemake", "--nolock", "--rerun-incomplete"]
    command += ["--profile", profile] if profile else []
    # by the installed workflow: that of the folder may be of another version
    if own:
        command += ["--config", "papers=own", "--snakefile", str(_origin() / BEGINNING[0])]
    command += ["--cores", str(cores or usable_cores())] if cores or not profile else []
    try:
        lock = command_under_lock.take(LOCK)
    except BlockingIOError:
        raise FedreproError(f"{os.getcwd()}: {command_under_lock.refusal(LOCK)}") from None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            process = subprocess.Popen(
                [*command, "--", *targets],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],
            )
        finally:
            os.close(lock)  # the workflow holds it from here on
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK)
                    break
                if watch:
                    watch()
        except BaseException:
            _interrupt(process.pid)
            process.wait()
            raise
        output.seek(0)
        lines = output.read().splitlines()
    if process.returncode == 0:
        return
    said = (line for line in lines if line.startswith((SAID, RAISED)))
    sentences = dict.fromkeys(line.removeprefix(SAID).removeprefix(RAISED) for line in said)
    # of other figures in the folder, unless nothing else was said
    ours = [one for one in sentences if LEFT_OUT not in one or one.split(LEFT_OUT)[0] in targets[0]]
    reason = "; ".join(ours or sentences) or " | ".join(filter(None, map(str.strip, lines[-LAST:])))
    if ALL_ELSE in reason:
        warnings.warn(f"{targets[0]}: {reason}", stacklevel=4)
        return
    raise FedreproError(f"{targets[0]} was not made: {reason}")


def _interrupt(process: int) -> None:
    """Interrupt a process and its jobs, since Snakemake alone waits for jobs and drops results."""
    import psutil  # Snakemake brings it

    first = psutil.Process(process)
    for one in (first, *first.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGINT)

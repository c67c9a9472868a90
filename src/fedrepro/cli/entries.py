"""`fedrepro submit` and `fedrepro verify`: entries of a leaderboard, and whether they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrepro.cli.printing import say
from fedrepro.core.errors import FedreproError

RUNS = 3  # that are computed again, of those that an entry has


def submit(
    key: Annotated[str, typer.Argument(help="a leaderboard, or one of its exhibits")] = "arena/1",
    method: Annotated[str, typer.Option(help="its label or name; none: the only one")] = "",
    scale: Annotated[str, typer.Option(help="tiny, quick or paper")] = "quick",
    by: Annotated[str, typer.Option(help="who sends it, in words")] = "",
    out: Annotated[Path, typer.Option(help="archive to write")] = Path("entry.zip"),
) -> None:
    """Pack a method of `also` with what was computed of it: an entry that others can verify."""
    from fedrepro.stages.submit import submit as packed

    done = packed(key, method, scale, by, out)
    entry = done.entry
    runs = sum(name.endswith("metrics.parquet") for name in entry.files)
    say(f"{out}: {entry.label} ({entry.file}), {', '.join(entry.keys)}, {runs} files of runs")
    for name, why in done.left_out.items():
        say(f"not part of it: {name} ({why})")
    say(f"hold it to its numbers before you send it: fedrepro verify {out}")


def verify(
    archive: Annotated[Path, typer.Argument(help="an entry, such as entry.zip")],
    runs: Annotated[
        str, typer.Option(help="how many runs are computed again, drawn at random; or all")
    ] = str(RUNS),
    enter: Annotated[
        Path | None,
        typer.Option(help="folder of reports, into whose leaderboard it is put: reports"),
    ] = None,
    minutes: Annotated[int, typer.Option(min=1, help="that one run may take")] = 240,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="run a method's file that nothing isolates")
    ] = False,
) -> None:
    """Check that an entry agrees with itself and compute some runs again: exit 1 if they differ."""
    from fedrepro.machine.isolated import isolation
    from fedrepro.stages.verify import Here
    from fedrepro.stages.verify import verify as verified

    if runs != "all" and not (runs.isdecimal() and len(runs) < 8):
        raise FedreproError(f"--runs is a number of at most seven digits, or all, not '{runs:.40}'")
    count = None if runs == "all" else int(runs)
    nothing = count == 0  # of the method's file is run
    isolator = "" if nothing else isolation()
    if not isolator and not unprotected and not nothing:
        raise FedreproError(
            "nothing here isolates a method's file, which is a stranger's code: that takes Linux "
            "with bubblewrap, or with namespaces for users and util-linux; --unprotected runs it "
            "all the same, with your network and your files"
        )
    if not isolator and not nothing:
        say("the method's file is not isolated: it has your network and your files")
    runner = Here(_stage, isolator, 60 * minutes)
    verdict = verified(archive, count, runner, enter)
    for sentence in verdict.differing:
        say(sentence)
    summary = f"{len(verdict.computed)} of {verdict.runs} files of runs were computed again"
    if verdict.differing:
        say(
            f"{archive} does not hold: {summary}, {len(verdict.differing)} of them came out "
            "otherwise"
        )
        raise typer.Exit(1)
    how = f"{summary}, with the same bytes" if verdict.computed else "nothing was computed again"
    say(f"{archive}: {verdict.label}, {verdict.status}: {how}")
    for path in verdict.entered:
        say(f"written: {path}")


def describe(
    file: Annotated[str, typer.Argument(help="a Python file")],
    out: Annotated[Path, typer.Argument(help="json to write")],
) -> None:
    """What the methods of a file are, as data: in a process that is isolated from others."""
    from fedrepro.stages.submit import describe as written

    written(file, out)


def _stage(arguments: tuple[str, ...]) -> int:
    from fedrepro.cli.job import run_job

    return run_job(arguments)

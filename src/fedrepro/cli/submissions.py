"""`fedrepro submit` and `fedrepro verify`: entries of a leaderboard, and whether they hold."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from fedrepro.cli.printing import say
from fedrepro.core.errors import FedreproError


def submit(
    key: Annotated[str, typer.Argument(help="a leaderboard, or one of its exhibits")] = "arena/1",
    method: Annotated[str, typer.Option(help="its label or name; none: the only one")] = "",
    scale: Annotated[str, typer.Option(help="tiny, quick or paper")] = "quick",
    by: Annotated[str, typer.Option(help="who sends it, in words")] = "",
    out: Annotated[
        Path | None, typer.Option(help="folder to write; none: its place in reports/record")
    ] = None,
) -> None:
    """Write a method of `also` and its results as an entry that others can verify."""
    from fedrepro.stages import submissions

    folder, sentences = submissions.submit(key, method, scale, by, out)
    say(f"{folder}: {', '.join(submissions.read_entry(folder).exhibits)}")
    for sentence in sentences:
        say(sentence)
    say(f"hold it to its numbers before you send it: fedrepro verify {folder}")


def verify(
    folder: Annotated[Path, typer.Argument(help="an entry, as `fedrepro submit` writes it")],
    runs: Annotated[
        str, typer.Option(help="how many files of metrics are computed again; or all")
    ] = "3",
    seed: Annotated[
        int | None, typer.Option(help="by which these are drawn; none: at random")
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="none: all of them")] = None,
    enter: Annotated[
        bool, typer.Option("--enter", help="draw the leaderboard at which it lies with it")
    ] = False,
) -> None:
    """Compute some of an entry again and compare bytes: exit 1 if they differ. Its file is run."""
    from fedrepro.stages import submissions

    if runs != "all" and not (runs.isdecimal() and len(runs) < 8):
        raise FedreproError(
            f"--runs must be a number of at most seven digits, or all, not '{runs:.40}'"
        )
    seed = secrets.randbelow(2**32) if seed is None else seed
    verdict = submissions.verify(folder, None if runs == "all" else int(runs), seed, cores)
    for sentence in verdict.differing:
        say(sentence)
    drawn = f"{len(verdict.computed)} of {verdict.runs} files of metrics were computed again"
    drawn += f" (--seed {seed})" if 0 < len(verdict.computed) < verdict.runs else ""
    if verdict.differing:
        say(f"{folder} does not hold: {drawn}")
        raise typer.Exit(1)
    say(f"{folder} holds: {drawn}{', with the same bytes' if verdict.computed else ''}")
    for path in submissions.enter(folder, verdict, seed) if enter else ():
        say(f"written: {path}")

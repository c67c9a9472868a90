"""Commands on results: list, compare, record and redraw them, recommend, submit and verify."""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import number, say, show, table_of
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from fedrepro.numbers.recommendation import Recommendation
    from fedrepro.planning.plan import Plan

Scale = Annotated[str, typer.Option(help="tiny, quick or paper")]
Record = Annotated[Path, typer.Option(help="folder of the record")]
RECORD = Path("reports/record")
FAR = 3.0  # doublings, from which on scenarios say little


def _signed(value: float) -> str:
    return f"{value:+.4f}" if abs(value) < 10 else f"{value:+.4g}"


def planned(scale: str) -> Plan:
    """Return the plan of all figures and tables, with their jobs, at scale tiny, quick or paper."""
    from fedrepro.planning.config import load_config, load_exhibits
    from fedrepro.planning.plan import Plan

    return Plan(load_config(), load_exhibits(), scale)


def record(
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="exhibits such as pfnm/figure-2a; none: all there are"),
    ] = None,
    scale: Scale = "quick",
    source: Annotated[Path, typer.Option(help="reports folder, also of another machine")] = Path(
        "reports"
    ),
    target: Record = RECORD,
) -> None:
    """Copy results to reports/record, which is kept: figures, numbers, provenance, run time."""
    from fedrepro.record.record_results import record as keep

    done = keep(scale, keys or (), source, target)
    for warning in done.warnings:
        say(f"warning: {warning}")
    for path in done.files:
        say(f"recorded: {path}")


def redraw(
    keys: Annotated[list[str], typer.Argument(help="recorded exhibits such as pfnm/figure-2a")],
    scale: Scale = "quick",
    target: Record = RECORD,
) -> None:
    """Draw recorded exhibits again from their recorded numbers, as config and code are now."""
    from fedrepro.stages.reports import redraw as again

    for path in again(scale, keys, target).files:
        say(f"recorded: {path}")


def compare(
    key: Annotated[
        str, typer.Argument(help="exhibit such as pfnm/figure-2a, or a method if two are named")
    ],
    other: Annotated[
        str | None, typer.Argument(help="the method to compare the first one with")
    ] = None,
    scale: Scale = "quick",
    reports: Annotated[Path, typer.Option(help="your reports")] = Path("reports"),
    recorded: Record = RECORD,
    all_rows: Annotated[bool, typer.Option("--all", help="also the equal numbers")] = False,
    exhibit: Annotated[str, typer.Option(help="of two methods: in this one, or paper, only")] = "",
    metric: Annotated[str, typer.Option(help="of two methods: which number")] = "accuracy",
    split: Annotated[str, typer.Option(help="of two methods: on which examples")] = "test",
) -> None:
    """Compare your numbers with the recorded ones; or two methods, as in: compare mine fedavg."""
    if other is not None:
        _compare_methods(key, other, scale, reports, metric, split, exhibit)
        return
    from fedrepro.record.compare import compare as with_record

    if "/" in key and not Path(f"{reports / scale / key}.json").exists():
        planned(scale).exhibit(key)  # an exhibit that no config has is misspelt, not missing
    comparison = with_record(scale, key, reports, recorded)
    table = table_of("where", "metric", "split", "ours", "recorded", "difference", "std errors")
    shown = ["where", "metric", "split", "ours", "recorded", "difference", "errors"]
    for *place, one, other_one, difference, errors in comparison.rows[shown].itertuples(
        index=False
    ):
        if all_rows or difference != 0:
            table.add_row(*place, *map(number, (one, other_one, difference, errors)))
    if table.row_count:
        show(table)
    for note in comparison.notes:
        say(f"note: {note}")
    say(comparison.verdict)


def _compare_methods(
    one: str, other: str, scale: str, reports: Path, metric: str, split: str, exhibit: str
) -> None:
    from fedrepro.numbers.results_table import (
        SIDES,
        paired_differences,
        paired_verdict,
        point_words,
        sides,
    )

    frame = paired_differences(scale, one, other, reports, metric, split, exhibit)
    names = sides(frame, one, other)
    table = table_of("where", *names, "difference", "95 % interval", "trials")
    for row in frame.to_dict("records"):
        ends = f"{_signed(row['low'])} to {_signed(row['high'])}" if row["trials"] > 1 else "–"
        numbers = (number(row["one"]), number(row["other"]), _signed(row["difference"]))
        more, point = len(row["also"]), point_words(row)
        place = f"{row['exhibit']} (and {more} more)" if more else row["exhibit"]
        place += f": {point}" if point else ""
        labels = tuple(row[side] for side in SIDES)
        place += "" if labels == names else f" ({labels[0]} and {labels[1]})"
        table.add_row(place, *numbers, ends, str(row["trials"]))
    show(table)
    say(paired_verdict(frame, metric, names))


def results(
    scale: Scale = "quick",
    exhibit: Annotated[str, typer.Option(help="such as pfnm/figure-2a, or pfnm")] = "",
    method: Annotated[str, typer.Option(help="its label, or its name")] = "",
    metric: Annotated[str, typer.Option(help="such as accuracy")] = "",
    split: Annotated[str, typer.Option(help="on which examples, such as test")] = "",
    sort: Annotated[str, typer.Option(help="column, such as mean; numbers from the largest")] = "",
    wide: Annotated[bool, typer.Option(help="a row per method, a column per metric")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="as csv, with every column")] = False,
    reports: Annotated[Path, typer.Option(help="folder of reports")] = Path("reports"),
) -> None:
    """List every method's final values and chosen settings in every scenario of drawn exhibits."""
    from fedrepro.numbers.exhibit_tables import csv_text
    from fedrepro.numbers.results_table import common, scenario_blocks
    from fedrepro.numbers.results_table import results as collect

    asked = {"method": method, "metric": metric, "split": split, "exhibit": exhibit, "sort": sort}
    collected = collect(scale, wide=wide, reports=reports, **asked)
    for note in collected.attrs["notes"]:
        typer.echo(f"note: {note}", err=True)
    if csv:
        typer.echo(csv_text(collected), nl=False)
        return
    for line in common(collected):
        say(line)
    for heading, piece in scenario_blocks(collected):
        say(heading)
        table = table_of(*piece.columns)
        for row in piece.itertuples(index=False):
            table.add_row(*row)
        show(table)


def recommend(
    clients: Annotated[int, typer.Option(help="how many you have")],
    skew: Annotated[
        str, typer.Option(help="alpha of Dirichlet shares, such as 0.1; iid; labels: a few each")
    ],
    exchanges: Annotated[int, typer.Option(help="how often clients can answer")] = 1,
    public: Annotated[
        str, typer.Option(help="none, or images: the server has unlabelled ones of other data")
    ] = "none",
    starts: Annotated[
        str, typer.Option(help="of your clients' training: one or different")
    ] = "one",
    only_models: Annotated[
        bool,
        typer.Option("--only-models", help="clients send models and how many examples they have"),
    ] = False,
    scale: Annotated[str, typer.Option(help="of the leaderboard")] = "paper",
    reports: Annotated[
        Path, typer.Option(help="folder of the leaderboard; none here: reports")
    ] = RECORD,
) -> None:
    """List the best methods for your clients, from the leaderboard's scenarios nearest to yours."""
    from fedrepro.numbers.recommendation import Situation
    from fedrepro.numbers.recommendation import recommend as recommended

    for name, value, known in (
        ("public", public, ("none", "images")),
        ("starts", starts, ("one", "different")),
    ):
        if value not in known:
            raise FedreproError(f"--{name} must be {known[0]} or {known[1]}, not '{value}'")
    wanted = Situation(clients, skew, exchanges, public == "images", starts == "one", only_models)
    _found(recommended(wanted, reports / scale))
    say(f"For methods that train in rounds, see {reports / scale / 'arena/rounds.csv'}.")


def _found(found: Recommendation) -> None:
    """Print a recommendation: tested conditions nearest to the user's, methods and their costs."""
    from fedrepro.numbers.leaderboard import VERIFIED

    count = len(found.scenarios)
    say("Nearest in the leaderboard:")
    for place, scenario in enumerate(found.scenarios, 1):
        say(f"  {place}  {scenario}")
    if found.doublings:
        far = ": they say little of it" if found.doublings >= FAR else ""
        say(f"Their clients and alpha are {found.doublings:.1f} doublings from your case{far}.")
    heads = [str(place) for place in range(1, count + 1)]
    table = table_of("class", "method", "score", "95 %", *heads, "sent", "asked")
    chosen = {choice.method for choice in found.choices}
    lines = [line for line in found.lines if line.method not in chosen]
    for entry in (*found.choices, *lines):
        taken, by_others = entry.method in chosen, entry.costs.get("computed") == VERIFIED
        sent, asked = entry.costs["bytes_up"], entry.costs["exchanges"]
        table.add_row(
            entry.kind if taken else "to compare",
            f"{entry.method} ({VERIFIED})" if by_others else entry.method,
            f"{entry.score:.2f}",
            f"{entry.low:.2f} to {entry.high:.2f}",
            *("–" if math.isnan(share) else f"{100 * share:.1f}" for share in entry.accuracy),
            *((f"{sent:.1f} ×", f"{asked:.0f}") if taken else ("", "")),
        )
    show(table)
    if not found.choices:
        say("No method of the leaderboard makes do with that.")
    for entry in found.choices:
        if isinstance(sent := entry.costs.get("clients_also_send"), str):
            say(f"{entry.method}: clients also send {sent}.")
        elif "client and class" in str(entry.costs.get("sees")):
            say(f"{entry.method}: clients also send how many examples of each class they have.")
    for name, run in found.partly.items():
        say(f"{name} has no place: it was run in {run} of these {count} scenarios.")
    if found.best_client_leads:
        say("The best client alone, by validation, has a higher score than every one model above.")
    for entry in found.more:
        networks = entry.costs["networks"]
        predict = "one network predicts" if networks == 1 else f"{networks:.0f} networks predict"
        say(
            f"With more exchanges {entry.method} has a score of {entry.score:.2f}. It asks "
            f"{entry.costs['exchanges']:.0f} times and takes {entry.costs['bytes_up']:.1f} times "
            f"the bytes, and {predict}."
        )
    say(
        "Score: 0 is FedAvg, 1 is pooled training; the mean over these scenarios, and its 95 % "
        "interval over trials, which says nothing of other data. Below a scenario's number: test "
        "accuracy in %. Sent: as a multiple of the models. Asked: exchanges. Several models: all "
        "of the clients' networks predict."
    )


def submit(
    key: Annotated[str, typer.Argument(help="a leaderboard, or one of its exhibits")] = "arena/1",
    method: Annotated[str, typer.Option(help="its label or name; none: the only one")] = "",
    scale: Scale = "quick",
    by: Annotated[str, typer.Option(help="who sends it, in words")] = "",
    out: Annotated[
        Path | None, typer.Option(help="folder to write; none: its place in reports/record")
    ] = None,
) -> None:
    """Write a method of yours and its results as a leaderboard entry that others can verify.

    The method must be listed under `also` in config/config.yaml.
    """
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
    """Compute part of a submitted entry again: exit 1 if bytes differ. The entry's code is run."""
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

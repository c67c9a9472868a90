"""Commands on exhibits (figures, tables): compare, submit, …; `scale` is tiny, quick or paper."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from fedrepro.cli.printing import number, say, show
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from fedrepro.planning.plan import Plan

Scale = Annotated[str, Option(help="tiny, quick or paper")]
Record = Annotated[Path, Option(help="folder of the record")]
Reports = Annotated[Path, Option(help="folder of reports")]
REPORTS, RECORD = Path("reports"), Path("reports/record")


def _signed(value: float) -> str:
    return f"{value:+.4f}" if abs(value) < 10 else f"{value:+.4g}"


def planned(scale: str) -> Plan:
    """Return all figures and tables, planned as jobs of size `scale` (tiny, quick or paper)."""
    from fedrepro.core.paper_files import OWN_EXHIBITS
    from fedrepro.planning.config_files import load_config, load_exhibits
    from fedrepro.planning.plan import Plan

    config = load_config()
    return Plan(config, load_exhibits(OWN_EXHIBITS if config.papers == "own" else None), scale)


def record(
    keys: Annotated[
        list[str] | None, Argument(help="exhibits such as pfnm/figure-2a; none: all")
    ] = None,
    scale: Scale = "quick",
    source: Annotated[Path, Option(help="reports folder, also of another machine")] = REPORTS,
    target: Record = RECORD,
) -> None:
    """Copy figures, numbers and provenance of runs of size `scale` from `source` to `target`."""
    from fedrepro.record.record_entries_and_leaderboards import record as keep

    done = keep(scale, keys or (), source, target)
    say(*(f"warning: {warning}" for warning in done.warnings))
    say(*(f"recorded: {path}" for path in done.files))


def redraw(
    keys: Annotated[list[str], Argument(help="recorded exhibits such as pfnm/figure-2a")],
    scale: Scale = "quick",
    target: Record = RECORD,
) -> None:
    """Draw figures recorded at size `scale` from their numbers, by present code and config."""
    from fedrepro.stages.figures_claims_and_pages import redraw as again

    say(*(f"recorded: {path}" for path in again(scale, keys, target).files))


def compare(
    key: Annotated[str, Argument(help="exhibit such as pfnm/figure-2a, or a method")],
    other: Annotated[str | None, Argument(help="a second method")] = None,
    scale: Scale = "quick",
    reports: Reports = REPORTS,
    recorded: Record = RECORD,
    all_rows: Annotated[bool, Option("--all", help="also the equal numbers")] = False,
    exhibit: Annotated[str, Option(help="compare two methods in this figure or paper only")] = "",
    metric: Annotated[str, Option(help="compare two methods by this number")] = "accuracy",
    split: Annotated[str, Option(help="compare two methods on these examples")] = "test",
) -> None:
    """Compare numbers of a figure or table with recorded ones, or two methods in one metric.

    Two methods are compared wherever both were run, or in `exhibit` alone: a figure, or a paper.
    `reports` is the folder of your results, `recorded` that of results kept in the repository.
    """
    if other is not None:
        _compare_methods(key, other, scale, reports, metric, split, exhibit)
        return
    from fedrepro.record.compare import compare as with_record

    if "/" in key and not Path(f"{reports / scale / key}.json").exists():
        planned(scale).exhibit(key)  # an exhibit that no config has is misspelt, not missing
    comparison = with_record(scale, key, reports, recorded)
    shown = ["where", "metric", "split", "ours", "recorded", "difference", "errors"]
    rows = [
        (*(row[name] for name in shown[:3]), *(number(row[name]) for name in shown[3:]))
        for row in comparison.rows[shown].to_dict("records")
        if all_rows or row["difference"] != 0
    ]
    if rows:
        show((*shown[:-1], "std errors"), rows)
    say(*(f"note: {note}" for note in comparison.notes), comparison.verdict)


def _compare_methods(
    one: str, other: str, scale: str, reports: Path, metric: str, split: str, exhibit: str
) -> None:
    from fedrepro.numbers import method_results_and_differences as tables

    frame = tables.paired_differences(scale, one, other, reports, metric, split, exhibit)
    rows = []
    for row in frame.to_dict("records"):
        ends = f"{_signed(row['low'])} to {_signed(row['high'])}" if row["trials"] > 1 else "–"
        numbers = (number(row["one"]), number(row["other"]), _signed(row["difference"]))
        place = ": ".join(filter(None, (row["exhibit"], tables.point_words(row))))
        labels = tuple(row[side] for side in tables.SIDES)
        place += "" if labels == (one, other) else f" ({labels[0]} and {labels[1]})"
        rows.append((place, *numbers, ends, str(row["trials"])))
    show(("where", one, other, "difference", "95 % interval", "trials"), rows)
    say(tables.paired_verdict(frame, metric, one, other))


def results(
    scale: Scale = "quick",
    exhibit: Annotated[str, Option(help="such as pfnm/figure-2a, or pfnm")] = "",
    method: Annotated[str, Option(help="its label, or its name")] = "",
    metric: Annotated[str, Option(help="such as accuracy")] = "",
    split: Annotated[str, Option(help="on which examples, such as test")] = "",
    csv: Annotated[bool, Option("--csv", help="as csv, with every column")] = False,
    reports: Reports = REPORTS,
) -> None:
    """List final metrics and tuned hyper-parameters at `scale`, of all methods or as asked for."""
    from fedrepro.numbers import method_results_and_differences as tables
    from fedrepro.numbers.tables_and_selection import csv_text

    asked = {"method": method, "metric": metric, "split": split, "exhibit": exhibit}
    collected = tables.results(scale, reports=reports, **asked)
    for note in collected.attrs["notes"]:
        typer.echo(f"note: {note}", err=True)
    if csv:
        typer.echo(csv_text(collected), nl=False)
        return
    say(*tables.common(collected))
    for heading, piece in tables.scenario_blocks(collected):
        say(heading)
        show([*piece.columns], piece.itertuples(index=False))


def recommend(
    clients: Annotated[int, Option(help="how many you have")],
    skew: Annotated[
        str, Option(help="a Dirichlet alpha such as 0.1; iid; or labels, for a few classes each")
    ],
    exchanges: Annotated[int, Option(help="how often clients can answer the server")] = 1,
    public: Annotated[
        Literal["none", "images"], Option(help="unlabelled images of other data at the server")
    ] = "none",
    starts: Annotated[
        Literal["one", "different"], Option(help="of your clients' training")
    ] = "one",
    scale: Annotated[str, Option(help="of the leaderboard")] = "paper",
    reports: Annotated[Path, Option(help="folder of the leaderboard")] = RECORD,
) -> None:
    """List the best methods for your clients, from the leaderboard's scenarios nearest to yours.

    `starts` says whether clients begin to train from one initialisation or from different ones, and
    `scale` which size of runs (tiny, quick or paper) the leaderboard compares.
    """
    from fedrepro.numbers.recommendation import LINES, Situation
    from fedrepro.numbers.recommendation import recommend as recommended

    wanted = Situation(clients, skew, exchanges, public == "images", starts == "one")
    found = recommended(wanted, reports / scale)
    say(f"Nearest in the leaderboard {found.board}:")
    say(*(f"  {place}  {scenario}" for place, scenario in enumerate(found.scenarios, 1)))
    if found.doublings:
        say(f"Their clients and alpha are {found.doublings:.1f} doublings from your case.")
    heads, rows = [str(place) for place, _ in enumerate(found.scenarios, 1)], []
    remarks = []
    if not found.methods["chosen"].any():
        remarks.append("No method of the leaderboard makes do with that.")
    for entry in found.methods.reset_index().to_dict("records"):
        name, chosen = entry["method"], entry["chosen"]
        costs = f"{entry['bytes_up']:.1f} ×", f"{entry['exchanges']:.0f}"
        shares = (f"{100 * share:.1f}" for share in entry["accuracies"])
        # FedAvg is 0 and pooled training 1 by definition: their intervals say nothing
        ends = "–" if name in LINES[1:] else f"{entry['low']:.2f} to {entry['high']:.2f}"
        score = f"{entry['score']:.2f}", ends, *shares
        kind = entry["class"] if chosen else "to compare"
        rows.append((kind, name, *score, *(costs if chosen else ("", ""))))
        if chosen and isinstance(sent := entry.get("clients_also_send"), str):
            remarks.append(f"{name}: clients also send {sent}.")
    show(("class", "method", "score", "95 %", *heads, "sent", "asked"), rows)
    say(*remarks, *filter(None, [found.remark]))
    say(
        "Score: 0 is FedAvg, 1 is pooled training; the mean over these scenarios, and its 95 % "
        "interval over trials, which says nothing of other data. Below a scenario's number: test "
        "accuracy in %. Sent: as a multiple of the models. Asked: exchanges. Several models: all "
        "of the clients' networks predict."
    )
    say(f"For methods that train in rounds, see {reports / scale / 'arena/rounds.csv'}.")


def submit(
    key: Annotated[str, Argument(help="a leaderboard, or one of its exhibits")] = "arena/1",
    scale: Scale = "quick",
    by: Annotated[str, Option(help="who sends it, in words")] = "",
) -> None:
    """Write a method of yours and its results, as a leaderboard entry to verify, to reports/record.

    The method must be listed under `also` in config/config.yaml, and have been run at size `scale`.
    """
    from fedrepro.stages import submissions

    folder, sentences = submissions.submit(key, scale, by)
    say(f"{folder}: {', '.join(submissions.read_entry(folder).exhibits)}", *sentences)
    say(f"hold it to its numbers before you send it: fedrepro verify {folder}")


def verify(
    folder: Annotated[Path, Argument(help="an entry, as `fedrepro submit` writes it")],
    runs: Annotated[str, Option(help="how many files to compute again, or all")] = "3",
    seed: Annotated[int | None, Option(help="to draw these files; none: at random")] = None,
    cores: Annotated[int | None, Option(min=1, help="how many to use; none: all")] = None,
    enter: Annotated[bool, Option("--enter", help="add it to its leaderboard if equal")] = False,
) -> None:
    """Compute result files of a submitted entry again, by the code in it; exit 1 if values differ.

    If all `runs` files, drawn by `seed`, agree, `enter` adds the entry to its leaderboard.
    """
    from fedrepro.record.record_entries_and_leaderboards import VERDICT
    from fedrepro.stages import submissions

    if runs != "all" and not (runs.isdecimal() and len(runs) < 8):
        said = "--runs must be a number of at most seven digits, or all"
        raise FedreproError(f"{said}, not '{runs:.40}'")
    seed = secrets.randbelow(2**32) if seed is None else seed
    verdict = submissions.verify(folder, None if runs == "all" else int(runs), seed, cores)
    say(*verdict.differing)
    drawn = f"{len(verdict.computed)} of {verdict.runs} files of metrics were computed again"
    drawn += f" (--seed {seed})" if 0 < len(verdict.computed) < verdict.runs else ""
    if verdict.differing:
        say(f"{folder} does not hold: {drawn}")
        if enter and (folder / VERDICT).exists():
            submissions.enter(folder, submissions.Verdict(verdict.runs, [], []), seed)
            say("it is verified no longer: take it away, or enter it again when it holds")
        raise typer.Exit(1)
    say(f"{folder} holds: {drawn}{', with the same bytes' if verdict.computed else ''}")
    for path in submissions.enter(folder, verdict, seed) if enter else ():
        say(f"written: {path}")

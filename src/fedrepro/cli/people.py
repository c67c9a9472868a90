"""Commands for people: what there is, checking, recording, comparing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from fedrepro.cli.data import data_app
from fedrepro.cli.main import STOPPED
from fedrepro.core.errors import printable
from fedrepro.core.params import LARGEST

app = typer.Typer(
    name="fedrepro",
    help="Which way of combining models trained on separate data works, and at what cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
check_app = typer.Typer(
    help="Replay recorded outputs of the papers' own code.", no_args_is_help=True
)
app.add_typer(check_app, name="check")
draw_app = typer.Typer(help="Draw what a setting means.", no_args_is_help=True)
app.add_typer(draw_app, name="draw")
app.add_typer(data_app, name="data")
console = Console(highlight=False, markup=False)
LONGEST = 10_000  # letters of a line that no terminal has to hold
MOST_NODES = 1_000  # of a graph that is drawn: its matrices are of nodes times nodes

Scale = Annotated[str, typer.Option(help="tiny, quick or paper")]


def table_of(*columns: str) -> Table:
    """An empty table; where it is too narrow, words go on in the next line and nothing is cut."""
    return Table(*(Column(name, overflow="fold") for name in columns))


def show(table: Table) -> None:
    """Print a table as wide as the terminal, or as wide as it is where that is a file or a pipe."""
    wide = Console(highlight=False, markup=False, width=LONGEST, file=console.file)
    (console if console.is_terminal else wide).print(table)


def say(words: str) -> None:
    """Print a line, which the terminal wraps itself, so that what is copied from it is whole."""
    console.print(words, soft_wrap=True)


def run_command(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(argv), prog_name="fedrepro", standalone_mode=False)
    except (typer.Exit, typer.Abort) as done:
        result = getattr(done, "exit_code", STOPPED)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # a mistake on the command line: click's own sentence
        words = " ".join(error.format_message().split())
        if words:  # none behind a page of help
            print(f"fedrepro: {printable(words)}", file=sys.stderr)
        return 2
    if result == STOPPED:  # what Ctrl-C is turned into
        raise KeyboardInterrupt
    return int(result or 0)


@app.command()
def methods() -> None:
    """Every method: its kind, what it needs to see beyond weights, its parameters."""
    from fedrepro.core.params import render
    from fedrepro.core.registry import components

    table = table_of("method", "kind", "needs beyond weights", "paper", "parameters")
    for name, item in sorted(components("method").items()):
        given = [f"{p.name}={render(p.default)}" for p in item.params.values()]
        table.add_row(
            name,
            item.meta["kind"].replace("_", "-"),
            ", ".join(sorted(item.meta["needs"])) or "–",
            item.meta["paper"] or "–",
            ", ".join(given) or "–",
        )
    show(table)


@app.command()
def exhibits(scale: Scale = "quick") -> None:
    """Every figure and table, with the command that makes it."""
    from fedrepro.numbers.about import command_of
    from fedrepro.planning.config import load_config, load_exhibits
    from fedrepro.planning.plan import Plan

    for key, exhibit in Plan(load_config(), load_exhibits(), scale).exhibits.items():
        say(f"{key}: {exhibit.settings.title}")
        say(f"    {command_of(exhibit, scale)}")


@check_app.command("pfnm")
def check_pfnm(file: Annotated[Path, typer.Argument(help="recorded case, .npz")]) -> None:
    """Replay the authors' matching: exit 0 if all agrees, 1 if not, 2 if it cannot be checked."""
    from fedrepro.cli.check import run_check

    raise typer.Exit(run_check(file, typer.echo))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="which one; none: a list of them")] = "",
) -> None:
    """Measure speed against targets: exit 1 if one is missed. `bench NAME --help` says more."""
    from fedrepro.cli.bench import overview, run_benchmark

    if name in ("", "-h", "--help"):
        typer.echo(overview())
        return
    raise typer.Exit(run_benchmark(name, context.args))


@app.command()
def doctor() -> None:
    """What this machine is and whether it computes right: exit 1 if something has to be mended."""
    from fedrepro.cli.doctor import examine

    raise typer.Exit(examine(say))


@app.command()
def plan(
    target: Annotated[str, typer.Argument(help="such as reports/paper/pfnm/figure-2a.svg")],
    cores: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="cores that will share the work")
    ] = 2,
) -> None:
    """How many jobs, hours and GiB a target still takes, from measured rates."""
    from fedrepro.planning.config import load_config, load_exhibits
    from fedrepro.planning.forecast import forecast

    found = forecast(target, load_config(), load_exhibits())
    table = table_of("stage", "jobs to run", "hours of one core")
    for stage, jobs in found.jobs.items():
        hours = found.seconds.get(stage)
        table.add_row(stage, str(jobs), "–" if hours is None else f"{hours / 3600:.2f}")
    show(table)
    total = sum(found.jobs.values())
    say(
        f"{total} jobs, {found.hours:.2f} hours of one core or {found.hours / cores:.2f} on "
        f"{cores}, and {found.bytes / 2**30:.2f} GiB of local models"
    )
    for source, jobs in found.sources.items():
        say(f"estimated from {source}: {jobs} jobs")
    for what, jobs in found.unknown.items():
        say(f"no measurement yet, counted as nothing: {what} ({jobs} jobs)")
    if found.sources:
        say("another machine, or one with other work to do, may take half or twice that")


@app.command()
def documents(
    check: Annotated[bool, typer.Option(help="only say whether they are in step")] = False,
) -> None:
    """Write config/README.md and the JSON schemas anew from the typed configuration."""
    from fedrepro.cli.documents import documents as generated
    from fedrepro.core.artifacts import write_text

    stale = [path for path, text in generated().items() if _text(path) != text]
    for path in stale:
        if not check:
            write_text(path, generated()[path])
        say(f"{'stale' if check else 'written'}: {path}")
    raise typer.Exit(int(bool(check and stale)))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@app.command()
def record(
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="exhibits such as pfnm/figure-2a; none: all there are"),
    ] = None,
    scale: Scale = "quick",
    source: Annotated[Path, typer.Option(help="reports folder, also of another machine")] = Path(
        "reports"
    ),
    target: Annotated[Path, typer.Option(help="folder of the record")] = Path("reports/record"),
) -> None:
    """Keep what was measured: figures, numbers, provenance, run time, under reports/record."""
    from fedrepro.record.keep import record as keep

    done = keep(scale, keys or (), source, target)
    for warning in done.warnings:
        say(f"warning: {warning}")
    for path in done.files:
        say(f"recorded: {path}")


@app.command()
def redraw(
    keys: Annotated[list[str], typer.Argument(help="recorded exhibits such as pfnm/figure-2a")],
    scale: Scale = "quick",
    source: Annotated[
        str | None, typer.Option(help="recorded exhibit that holds their numbers, if not their own")
    ] = None,
    target: Annotated[Path, typer.Option(help="folder of the record")] = Path("reports/record"),
) -> None:
    """Draw recorded exhibits again, as config and drawings are now, from the recorded numbers."""
    from fedrepro.stages.redraw import redraw as again

    for path in again(scale, keys, target, source).files:
        say(f"recorded: {path}")


@app.command()
def compare(
    key: Annotated[str, typer.Argument(help="exhibit such as pfnm/figure-2a")],
    scale: Scale = "quick",
    reports: Annotated[Path, typer.Option(help="your reports")] = Path("reports"),
    recorded: Annotated[Path, typer.Option(help="folder of the record")] = Path("reports/record"),
    all_rows: Annotated[bool, typer.Option("--all", help="also the equal numbers")] = False,
) -> None:
    """Your numbers beside the recorded ones, with the difference in combined standard errors."""
    from fedrepro.record.compare import compare as beside

    found = beside(scale, key, reports, recorded)
    table = table_of("where", "metric", "split", "ours", "recorded", "difference", "std errors")
    for row in found.rows:
        if all_rows or row.difference != 0:
            numbers = (row.ours, row.recorded, row.difference, row.errors)
            table.add_row(row.where, row.metric, row.split, *map(_number, numbers))
    if table.row_count:
        show(table)
    for note in found.notes:
        say(f"note: {note}")
    say(found.verdict)


@app.command()
def results(
    scale: Scale = "quick",
    wide: Annotated[bool, typer.Option(help="a row per method, a column per metric")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="as csv, with every column")] = False,
    reports: Annotated[Path, typer.Option(help="folder of reports")] = Path("reports"),
) -> None:
    """Every method in every scenario that a drawn exhibit shows: final values, chosen settings."""
    from fedrepro.numbers.results import as_csv, collect, shown

    found = collect(scale, wide=wide, reports=reports)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(as_csv(found) if csv else "\n".join(shown(found)), nl=not csv)


@app.command()
def combine(
    method: Annotated[str, typer.Argument(help="such as pfnm, or pfnm+sigma2~0.1")],
    files: Annotated[list[Path], typer.Argument(help="a state dict of each client, .pt")],
    out: Annotated[Path, typer.Option(help="file to write, .pt")],
    labels: Annotated[
        Path | None, typer.Option(help="examples of each client (row) and class (column), csv")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="a parameter of the method, name=value")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of every draw")] = 0,
    model: Annotated[
        str | None, typer.Option(help="token of the architecture, if it has convolutions")
    ] = None,
    shape: Annotated[str | None, typer.Option(help="of one example, such as 1,28,28")] = None,
    layers: Annotated[
        str | None, typer.Option(help="names of the layers in order, if the files leave it open")
    ] = None,
) -> None:
    """Models that you trained with plain PyTorch, made into one by a one-shot method."""
    from fedrepro.stages.combine import run

    found = run(method, files, out, labels, settings or (), seed, model, shape, layers)
    for note in found.notes:
        say(note)


@draw_app.callback()
def _draw() -> None:
    """Draw what a setting means."""


@draw_app.command("partition")
def draw_partition(
    token: Annotated[str, typer.Argument(help="such as dirichlet+alpha~0.5+clients~10")],
    dataset: Annotated[str, typer.Option(help="token of the data set")] = "digits",
    trial: Annotated[int, typer.Option(min=0, max=LARGEST, help="which trial")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="seed of every draw")] = 0,
    raw: Annotated[Path | None, typer.Option(help="folder of the data set's own files")] = None,
    out: Annotated[
        Path | None, typer.Option(help="svg or png; by default named after data set and partition")
    ] = None,
) -> None:
    """Who holds what: a map of clients and classes, with the skew in numbers."""
    from fedrepro.cli.draw import draw_partition as draw

    path, skew = draw(token, dataset, trial, seed, raw, out)
    table = table_of("", "least", "median or mean", "most")
    for name, keys in SKEW.items():
        table.add_row(name, *(_number(skew[key]) if key else "" for key in keys))
    show(table)
    say(f"drawn: {path}")


@draw_app.command("graph")
def draw_graph(
    token: Annotated[str, typer.Argument(help="such as ring, or star+weights~uniform")],
    clients: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="number of nodes")] = 16,
    trial: Annotated[
        int, typer.Option(min=0, max=LARGEST, help="which trial, of a graph that is drawn")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="seed of every draw")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="svg or png; by default named after graph and nodes")
    ] = None,
) -> None:
    """Who hears whom: nodes, edges and weights, with how fast beliefs spread."""
    from fedrepro.cli.draw import draw_graph as draw
    from fedrepro.drawings.graph_map import words

    path, numbers = draw(token, clients, trial, seed, out)
    say(words(numbers))
    say(f"drawn: {path}")


SKEW = {
    "examples of a client": ("size_min", "size_median", "size_max"),
    "distance from all": ("", "distance_mean", "distance_max"),
    "classes of a client": ("classes_min", "classes_median", "classes_max"),
}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"

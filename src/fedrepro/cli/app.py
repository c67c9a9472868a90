"""Commands for people: what there is, checking, recording, comparing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedrepro import __version__
from fedrepro.cli.check_method import check_method
from fedrepro.cli.data import data_app
from fedrepro.cli.main import STOPPED
from fedrepro.cli.printing import say, show, table_of
from fedrepro.cli.recommend import recommend
from fedrepro.cli.record import Scale, planned, record, redraw
from fedrepro.cli.run import list_app, methods, run
from fedrepro.cli.submissions import submit, verify
from fedrepro.cli.user_models import combine, evaluate
from fedrepro.core.errors import installing, printable, unknown
from fedrepro.core.params import LARGEST

app = typer.Typer(
    name="fedrepro",
    help="Compare ways to combine models that were trained on separate data, and check what papers "
    "printed about them.",
    epilog="--debug with any command shows where an error comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
draw_app = typer.Typer(help="Draw what a setting means.", no_args_is_help=True)
app.add_typer(draw_app, name="draw")
app.add_typer(data_app, name="data")
app.command()(run)
app.add_typer(list_app, name="list")
app.command()(methods)
app.command()(recommend)
app.command()(combine)
app.command()(evaluate)
MOST_NODES = 1_000  # of a graph that is drawn: its matrices are of nodes times nodes


def run_command(argv: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(argv), prog_name="fedrepro", standalone_mode=False)
    except (typer.Exit, typer.Abort) as done:
        result = getattr(done, "exit_code", STOPPED)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # a mistake on the command line: click's own sentence
        message = " ".join(error.format_message().split())
        if message:  # none behind a page of help
            print(f"fedrepro: {printable(message)}", file=sys.stderr)
        return 2
    if result == STOPPED:  # Ctrl-C
        raise KeyboardInterrupt
    return int(result or 0)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"fedrepro {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="say which one it is", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass


@app.command()
def start(
    folder: Annotated[Path, typer.Argument(help="folder to make, or to write into")] = Path("."),
) -> None:
    """Make a folder to compute in: the configuration and the workflow of this fedrepro."""
    from fedrepro.stages.working_folder import start as begin

    made, lacks = begin(folder), find_spec("snakemake") is None
    say(f"{made}: go on there: snakemake --cores 2 reports/quick/pfnm/figure-2a.svg")
    if lacks:
        say(f"that takes Snakemake, which is not installed here: {installing('workflow')}")


@app.command()
def exhibits(
    scale: Scale = "quick",
    yaml: Annotated[
        str, typer.Option(help="print those of this paper as a file for config/exhibits")
    ] = "",
) -> None:
    """List every figure and table, with the command that makes it."""
    from fedrepro.numbers.exhibit_metadata import command, command_of
    from fedrepro.planning.config import load_exhibits

    if yaml:
        files = load_exhibits()  # without what `also` of the configuration adds
        if yaml not in {**files, **files.unread}:
            raise unknown("paper", yaml, {**files, **files.unread})
        print(files[yaml].as_yaml(), end="")
        return
    plan = planned(scale)
    for key, exhibit in plan.exhibits.items():
        say(f"{key}: {exhibit.settings.title}")
        say(f"    {command_of(exhibit, scale)}")
    for paper, file in plan.files.items():
        for version in file.boards:
            say(f"{paper}/{version}: the leaderboard, made of all exhibits {paper}/{version}-*")
            say(f"    {command(scale, f'{paper}/{version}')}")
    for sentence in plan.mistakes:
        say(sentence)


@app.command()
def check(
    paper: Annotated[str, typer.Argument(help="paper, such as pfnm")],
    file: Annotated[Path, typer.Argument(help="recorded case, .npz")],
) -> None:
    """Replay recorded outputs of a paper's own code.

    Exit 0 if all agree, 1 if not, 2 if it cannot be checked.
    """
    from fedrepro.core.paper_files import authors_check, with_check

    if paper not in with_check():
        raise unknown("paper with a check", paper, with_check())
    raise typer.Exit(authors_check(paper)(file, typer.echo))


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
    """Describe this machine and check whether it computes right: exit 1 if anything is wrong."""
    from fedrepro.cli.doctor import examine

    raise typer.Exit(examine(say))


@app.command()
def plan(
    target: Annotated[str, typer.Argument(help="such as reports/paper/pfnm/figure-2a.svg")],
    cores: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="cores that will share the work")
    ] = 2,
    listed: Annotated[
        bool, typer.Option("--jobs", help="print its jobs, one a line, for `fedrepro job FILE`")
    ] = False,
) -> None:
    """Forecast the jobs, hours and GiB that a target still takes, from measured rates."""
    from fedrepro.numbers.verdicts.printed_verdicts import leave_out_mistaken
    from fedrepro.planning.config import load_config
    from fedrepro.planning.forecast import forecast, parse_target

    scale, key = parse_target(target, load_config().scale)
    whole = planned(scale)
    leave_out_mistaken(whole)
    if listed:
        wanted = [whole.exhibit(key)] if key else whole.selected
        for text in dict.fromkeys(job.text for one in wanted for job in whole.jobs_of(one)):
            typer.echo(text)
        return
    estimate = forecast(whole, key)
    table = table_of("stage", "jobs to run", "hours of one core")
    for stage, jobs in estimate.jobs.items():
        hours = estimate.seconds.get(stage)
        table.add_row(stage, str(jobs), "–" if hours is None else f"{hours / 3600:.2f}")
    show(table)
    total = sum(estimate.jobs.values())
    took = f"{_long(estimate.hours)} of one core or {_long(estimate.hours / cores)} on {cores}"
    if estimate.unknown:
        took = f"at least {took}" if estimate.hours else "a time that is not known"
    say(
        f"{total} jobs at scale {scale}, {took}, "
        f"and {estimate.bytes / 2**30:.2f} GiB of local models"
    )
    for source, jobs in estimate.sources.items():
        say(f"estimated from {source}: {jobs} jobs")
    for what, jobs in estimate.unknown.items():
        say(f"no measurement yet, counted as nothing: {what} ({jobs} jobs)")
    for note in estimate.notes:
        say(f"note: {note}")
    if estimate.sources:
        say("another machine, or one with other work to do, may take half or twice that")


@app.command()
def documents(
    check: Annotated[bool, typer.Option(help="only say whether they are in step")] = False,
) -> None:
    """Write config/README.md, the JSON schemas and the numbers in docs and findings again."""
    from fedrepro.cli.documents import documents as generated
    from fedrepro.core.artifacts import write_text

    stale = {path: text for path, text in generated().items() if _text(path) != text}
    for path, text in stale.items():
        if not check:
            write_text(path, text)
        say(f"{'stale' if check else 'written'}: {path}")
    raise typer.Exit(int(check and bool(stale)))


@app.command()
def site(
    reports: Annotated[Path, typer.Option(help="reports folder, or the record")] = Path(
        "reports/record"
    ),
    scale: Scale = "paper",
    out: Annotated[Path, typer.Option(help="folder to write")] = Path("site"),
) -> None:
    """Write the pages of the record, or of a scale that was drawn; nothing is computed."""
    from fedrepro.stages.reports import draw_site

    draw_site(scale, reports / scale, out)


app.command("check-method")(check_method)
for command in (record, redraw):
    app.command()(command)
app.command()(submit)
app.command()(verify)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


@app.command()
def compare(
    key: Annotated[
        str, typer.Argument(help="exhibit such as pfnm/figure-2a, or a method if two are named")
    ],
    other: Annotated[
        str | None, typer.Argument(help="the method that the first one is set beside")
    ] = None,
    scale: Scale = "quick",
    reports: Annotated[Path, typer.Option(help="your reports")] = Path("reports"),
    recorded: Annotated[Path, typer.Option(help="folder of the record")] = Path("reports/record"),
    all_rows: Annotated[bool, typer.Option("--all", help="also the equal numbers")] = False,
    exhibit: Annotated[str, typer.Option(help="of two methods: in this one, or paper, only")] = "",
    metric: Annotated[str, typer.Option(help="of two methods: which number")] = "accuracy",
    split: Annotated[str, typer.Option(help="of two methods: on which examples")] = "test",
) -> None:
    """Compare your numbers with the recorded ones; or two methods, as in: compare mine fedavg."""
    if other is not None:
        _compare_methods(key, other, scale, reports, metric, split, exhibit)
        return
    from fedrepro.record.compare import compare as beside

    if "/" in key and not Path(f"{reports / scale / key}.json").exists():
        planned(scale).exhibit(key)  # an exhibit that no config has is misspelt, not missing
    comparison = beside(scale, key, reports, recorded)
    table = table_of("where", "metric", "split", "ours", "recorded", "difference", "std errors")
    for row in comparison.rows:
        if all_rows or row.difference != 0:
            numbers = (row.ours, row.recorded, row.difference, row.errors)
            table.add_row(row.where, row.metric, row.split, *map(_number, numbers))
    if table.row_count:
        show(table)
    for note in comparison.notes:
        say(f"note: {note}")
    say(comparison.verdict)


def _compare_methods(
    one: str, other: str, scale: str, reports: Path, metric: str, split: str, exhibit: str
) -> None:
    from fedrepro.numbers.paired_differences import paired_differences, paired_verdict, sides

    rows = paired_differences(scale, one, other, reports, metric, split, exhibit)
    names = sides(rows, one, other)
    table = table_of("where", *names, "difference", "95 % interval", "trials")
    for row in rows:
        ends = f"{_signed(row.low)} to {_signed(row.high)}" if row.trials > 1 else "–"
        numbers = (_number(row.one), _number(row.other), _signed(row.difference))
        key = f"{row.exhibit} (and {len(row.also)} more)" if row.also else row.exhibit
        place = f"{key}: {row.where}" if row.where else key
        place += "" if row.labels == names else f" ({row.labels[0]} and {row.labels[1]})"
        table.add_row(place, *numbers, ends, str(row.trials))
    show(table)
    say(paired_verdict(rows, metric, names))


@app.command()
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
    """List every method in every scenario of the drawn exhibits: final values, chosen settings."""
    from fedrepro.numbers.results_table import Only, as_csv, collect, common, scenario_blocks

    only = Only(exhibit, method, metric, split, sort)
    collected = collect(scale, wide=wide, reports=reports, only=only)
    for note in collected.notes:
        typer.echo(f"note: {note}", err=True)
    if csv:
        typer.echo(as_csv(collected), nl=False)
        return
    for line in common(collected):
        say(line)
    for block in scenario_blocks(collected):
        say(block.heading)
        table = table_of(*block.columns)
        for row in block.rows:
            table.add_row(*row)
        show(table)


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
    """Draw who holds what: a map of clients and classes, with the skew in numbers."""
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
    """Draw who hears whom: nodes, edges and weights, with how fast beliefs spread."""
    from fedrepro.cli.draw import draw_graph as draw

    path, words = draw(token, clients, trial, seed, out)
    say(words)
    say(f"drawn: {path}")


SKEW = {
    "examples of a client": ("size_min", "size_median", "size_max"),
    "distance from all": ("", "distance_mean", "distance_max"),
    "classes of a client": ("classes_min", "classes_median", "classes_max"),
}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _signed(value: float) -> str:
    return f"{value:+.4f}" if abs(value) < 10 else f"{value:+.4g}"


def _long(hours: float) -> str:
    return f"{hours:.2f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"

"""Commands for people: plans, checks, pages, …; a scale is a size: tiny, quick or paper."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedrepro import __version__
from fedrepro.cli import result_and_submission_commands as of_results
from fedrepro.cli.combine_evaluate_check_method import check_method, combine, evaluate
from fedrepro.cli.data_and_draw_commands import data_app, draw_app
from fedrepro.cli.main import STOPPED
from fedrepro.cli.printing import say, show
from fedrepro.cli.run_and_list import list_app, methods, run
from fedrepro.core.errors import FedreproError, printable, unknown
from fedrepro.core.paper_files import attributes_of_papers
from fedrepro.planning.config_files import load_config, load_exhibits

app = typer.Typer(
    name="fedrepro",
    help="Compare ways to combine models that were trained on separate data, and check what papers "
    "printed about them.",
    epilog="--debug with any command shows where an error comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(draw_app, name="draw")
app.add_typer(data_app, name="data")
app.add_typer(list_app, name="list")
FIRST = (run, methods, of_results.recommend, combine, evaluate, of_results.record)
THEN = (of_results.redraw, of_results.compare, of_results.results, of_results.submit)
for command in (*FIRST, *THEN, of_results.verify, check_method):
    app.command()(command)
BENCHMARKS = Path("benchmarks")


def run_command(argv: Sequence[str]) -> int:
    """Run the words `argv` of a command, as ["compare", "pfnm/figure-2a"]; return the exit code."""
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
        bool, Option("--version", help="say which one it is", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def start(
    folder: Annotated[Path, Argument(help="folder to make, or to write into")] = Path("."),
) -> None:
    """Copy the Snakemake workflow and its configuration to `folder`, to run experiments there."""
    from fedrepro.stages.snakemake_in_folder import start as begin

    say(f"{begin(folder)}: go on there: snakemake --cores 2 reports/quick/pfnm/figure-2a.svg")


@app.command()
def exhibits(
    scale: of_results.Scale = "quick",
    yaml: Annotated[
        str, Option(help="print those of this paper as a file for config/exhibits")
    ] = "",
) -> None:
    """List papers' figures and tables, with the commands that run them at the size `scale`."""
    from fedrepro.numbers.exhibit_files import command

    if yaml:
        files = load_exhibits()  # without what `also` of the configuration adds
        if yaml not in (known := {**files, **files.unread}):
            raise unknown("paper", yaml, known)
        print(files[yaml].as_yaml(), end="")
        return
    plan = of_results.planned(scale)
    for key, exhibit in plan.exhibits.items():
        say(f"{key}: {exhibit.settings.title}")
        say(f"    {command(scale, key, exhibit.suffix)}")
    for paper, file in plan.files.items():
        for version in (board for board in file.boards if file.parts(board, scale)):
            say(f"{paper}/{version}: the leaderboard, made of all exhibits {paper}/{version}-*")
            say(f"    {command(scale, f'{paper}/{version}')}")
    say(*plan.mistakes)


@app.command()
def check(
    paper: Annotated[str, Argument(help="paper, such as pfnm")],
    file: Annotated[Path, Argument(help="inputs and outputs of its authors' code, .npz")],
) -> None:
    """Compare our code with the authors' outputs in `file`; exit 1 if unequal, 2 if untestable."""
    checks = attributes_of_papers("authors_code_comparison", "run_check")
    if paper not in checks:
        raise unknown("paper with a check", paper, checks)
    raise typer.Exit(checks[paper](file, typer.echo))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def bench(
    context: typer.Context,
    name: Annotated[str, Argument(help="which benchmark; none: list them")] = "",
) -> None:
    """Run a benchmark with its options (in `context`); exit 1 if it is slower than its target."""
    if not BENCHMARKS.is_dir():
        raise FedreproError("only a checkout has the benchmarks; start in its root")
    texts = {file.stem: file.read_text("utf-8") for file in BENCHMARKS.glob("*.py")}
    known = [stem for stem, text in texts.items() if f"fedrepro bench {stem}" in text]
    if name in ("", "-h", "--help"):
        say(f"fedrepro bench NAME [OPTIONS], such as --help; names are {', '.join(sorted(known))}")
        return
    if name not in known:
        raise unknown("benchmark", name, known)
    words = [sys.executable, str(BENCHMARKS / f"{name}.py"), *context.args]
    raise typer.Exit(subprocess.run(words).returncode)


@app.command()
def doctor() -> None:
    """Describe this machine and its libraries; exit 1 if one of these cannot be used."""
    from fedrepro.core.diagnostics.machine_facts import BROKEN, facts

    found = list(facts())
    say(*(f"{what:13}{words}" for what, words in found))
    raise typer.Exit(int(any(words.startswith(BROKEN) for _, words in found)))


@app.command()
def plan(
    target: Annotated[str, Argument(help="such as reports/paper/pfnm/figure-2a.svg")],
    listed: Annotated[
        bool, Option("--jobs", help="print its jobs, one a line, for `fedrepro job FILE`")
    ] = False,
) -> None:
    """Forecast jobs and hours that a figure or table still takes, from past jobs' speed."""
    from fedrepro.numbers.verdicts.verdicts_on_printed_values import leave_out_mistaken
    from fedrepro.planning.forecast import STAGES, forecast, parse_target

    scale, key = parse_target(target, load_config().scale)
    whole = of_results.planned(scale)
    leave_out_mistaken(whole)
    if listed:
        wanted = [whole.exhibit(key)] if key else whole.selected
        for text in dict.fromkeys(job.text for one in wanted for job in whole.jobs_of(one)):
            typer.echo(text)
        return
    estimate = forecast(whole, key)
    hours = {stage: f"{seconds / 3600:.2f}" for stage, seconds in estimate.seconds.items()}
    jobs_left = ((stage, estimate.jobs[stage]) for stage in STAGES)
    rows = [(stage, str(jobs), hours.get(stage, "–")) for stage, jobs in jobs_left]
    show(("stage", "jobs to run", "hours of one core"), rows)
    long = estimate.hours
    took = f"{long:.2f} hours of one core" if long >= 1 else f"{60 * long:.1f} minutes of one core"
    if estimate.unknown:
        took = f"at least {took}" if estimate.hours else "a time that is not known"
    say(f"{estimate.jobs.total()} jobs at scale {scale}, {took}")
    for what, jobs in estimate.unknown.items():
        say(f"no measurement yet, counted as nothing: {what} ({jobs} jobs)")
    say(*(f"note: {mistake}" for mistake in whole.mistakes if key is None))


@app.command()
def documents(
    check: Annotated[bool, Option(help="only say whether they are in step")] = False,
) -> None:
    """Rewrite outdated pages (config/README.md, numbers in docs); `check` lists them, exits 1."""
    from fedrepro.cli.generated_docs import documents as generated
    from fedrepro.core.checksummed_files import write_text

    texts = generated()
    there = {path: path.read_text(encoding="utf-8") for path in texts if path.exists()}
    stale = {path: text for path, text in texts.items() if there.get(path, "") != text}
    for path, text in stale.items():
        if not check:
            write_text(path, text)
        say(f"{'stale' if check else 'written'}: {path}")
    raise typer.Exit(int(check and bool(stale)))


@app.command()
def site(
    reports: Annotated[Path, Option(help="reports folder, or the record")] = Path("reports/record"),
    scale: of_results.Scale = "paper",
    out: Annotated[Path, Option(help="folder to write")] = Path("site"),
) -> None:
    """Write web pages of the figures and tables in `reports`/`scale`, and compute no results.

    `reports` is the folder that runs write to, or the record: results kept in the repository.
    """
    from fedrepro.stages.figures_claims_and_pages import draw_site

    draw_site(scale, reports / scale, out)

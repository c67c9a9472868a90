"""`fedrepro run` compares methods; `fedrepro list` lists the names that `fedrepro run` takes."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated

import typer
from typer import Argument, Option

from fedrepro.cli.printing import say, show
from fedrepro.core import literature_names_and_setting_tokens as literature
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import comparable_text, render
from fedrepro.core.registry import SHORT, components
from fedrepro.planning.command_line_runs import RunWords

list_app = typer.Typer(help="The names that `fedrepro run` takes.", no_args_is_help=True)
COMMAND_LINE = "COMMANDLINE"  # where click has an option from that a person gave
EVERY = 15.0  # seconds between two lines of progress where no terminal can replace one


def run(
    context: typer.Context,
    methods: Annotated[
        str, Argument(help="such as fedavg, or fedavg,fedprox,scaffold; or a YAML file")
    ],
    changes: Annotated[
        list[str] | None,
        Argument(help="parameters, such as scaffold.lr=0.1 or partition.balance=true"),
    ] = None,
    data: Annotated[str, Option(help="data set")] = RunWords.data,
    clients: Annotated[int, Option(help="number of clients")] = RunWords.clients,
    partition: Annotated[
        str, Option(help="who holds what, such as iid, dirichlet:0.1 or two-labels")
    ] = RunWords.partition,
    model: Annotated[str, Option(help="network, such as mlp, resnet20, or file.py:Class")] = (
        RunWords.model
    ),
    rounds: Annotated[int, Option(help="number of rounds, of methods in rounds")] = RunWords.rounds,
    epochs: Annotated[int, Option(help="local epochs: in each round, or in all")] = RunWords.epochs,
    fraction: Annotated[
        float, Option(help="share of the clients that train in a round")
    ] = RunWords.fraction,
    lr: Annotated[float, Option(help="step size of the clients")] = RunWords.lr,
    batch_size: Annotated[int, Option(help="examples in a client's step")] = RunWords.batch_size,
    optimiser: Annotated[str, Option(help="of the clients: sgd or adam")] = RunWords.optimiser,
    graph: Annotated[str, Option(help="of methods without a server, such as ring")] = (
        RunWords.graph
    ),
    trials: Annotated[int, Option(help="seeded repetitions")] = RunWords.trials,
    out: Annotated[
        str, Option(help="folder to compute in, made if it is not there; by default runs")
    ] = "",
    cores: Annotated[int, Option(min=0, help="0: all that this process may use")] = 0,
    profile: Annotated[
        str, Option(help="of Snakemake, such as profiles/gpu or profiles/slurm")
    ] = "",
) -> None:
    """Train clients and combine their models by methods; make a table, a picture and a csv.

    The folder `out` keeps the run as YAML. If interrupted, give the command again to continue.
    """
    from fedrepro.core.user_component_files import NAMED
    from fedrepro.stages.run_figures_or_methods import COLUMNS, CONFIDENCE, run_words
    from fedrepro.stages.snakemake_in_folder import ALL_ELSE

    options = [item.name for item in fields(RunWords) if item.name not in ("methods", "changes")]
    given: str | dict[str, object] = methods
    if methods.endswith(".yaml"):
        sources = {name: context.get_parameter_source(name) for name in options}
        named = [name for name, how in sources.items() if getattr(how, "name", "") == COMMAND_LINE]
        if changes or named:
            word = changes[0] if changes else f"--{named[0].replace('_', '-')}"
            raise FedreproError(f"{methods} says all that is run: change it there, without {word}")
    else:
        pairs = [word.partition("=") for word in changes or ()]
        wrong = next((word for word, sign, value in pairs if not (sign and value)), None)
        if wrong is not None:
            raise FedreproError(f"'{wrong}' has no value: write it as in scaffold.lr=0.1")
        changed = {key: value for key, _, value in pairs}
        if len(changed) < len(pairs):
            raise FedreproError("a parameter is given twice: leave one")
        given = {"methods": methods, "changes": changed}
        given |= {name: context.params[name] for name in options}
    own = f"{NAMED}={shlex.quote(os.environ[NAMED])} " if os.environ.get(NAMED) else ""
    with warnings.catch_warnings(record=True) as failed:
        table = run_words(given, out, cores or None, profile, _progress())
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    for warning in failed:
        print(f"fedrepro: {warning.message}", file=sys.stderr)
    parameters = [column for column in table.columns if column not in COLUMNS]
    heads = ("method", "test accuracy (%)", "trials", "megabytes", "seconds of a trial")
    rows = []
    for row in table.to_dict("records"):
        half = 100 * (row["high"] - row["accuracy"])
        spread = f" ± {half:.2f}" if math.isfinite(half) else ""
        percent = 100 * row["accuracy"]
        shown = "failed" if math.isnan(percent) else f"{percent:.2f}{spread}"
        numbers = [str(row["trials"]), *(f"{row[key]:.4g}" for key in ("megabytes", "seconds"))]
        leading = ("" if row[k] != row[k] else comparable_text(row[k]) for k in parameters)
        rows.append((*leading, row["method"], shown, *numbers))
    show((*parameters, *heads), rows)
    if (table["high"] > table["accuracy"]).any():
        say(f"± is a {100 * CONFIDENCE:.0f} % interval over trials")
    say("megabytes are sent up and down; seconds are those of one core")
    for words, name in (("picture", "file"), ("numbers", "csv"), ("exhibit", "yaml")):
        say(f"{words}: {os.path.relpath(table.attrs[name])}")
    for path, label in table.attrs["networks"].items():
        say(f"networks of {label}: {os.path.relpath(path)}")
    say(f"again: {own}{table.attrs['command']}")
    if any(ALL_ELSE in str(warning.message) for warning in failed):
        raise typer.Exit(1)


def _progress() -> Callable[[str], None]:
    """Return a function that prints a line of progress; a terminal shows it over the last one."""
    last = [-math.inf]

    def write(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - last[0] >= EVERY:
            last[0] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    return write


@list_app.command()
def models() -> None:
    """List every network, with its parameters."""
    _list("model")


@list_app.command("data")
def data_sets() -> None:
    """List every data set, with its parameters; `fedrepro data list` has its files."""
    _list("dataset")


@list_app.command()
def partitions() -> None:
    """List every way to divide data among clients, with its parameters."""
    _list("partition")


def _list(kind: str) -> None:
    rows = []
    for name, item in sorted(components(kind).items()):
        params = [
            key if param.required else f"{key}={render(param.default)}"
            for key, param in item.own_params.items()
        ]
        rows.append((name.replace("_", "-"), item.doc, ", ".join(params) or "–"))
    for name, (of, values) in SHORT[kind].items():
        rows.append((name, of.replace("_", "-"), ", ".join(f"{k}={v}" for k, v in values.items())))
    show(("name", "what it is", "parameters"), rows)


@list_app.command()
def methods(
    word: Annotated[str, Argument(help="only those with this in a name or label")] = "",
) -> None:
    """List every method: its kind, the information beyond weights that it needs, its parameters."""
    known, shown = components("method"), list[tuple[str, ...]]()
    for name, item in sorted(known.items()):
        also = [other for other in literature.names_of_field(known) if other.method == name]
        names = [name, item.meta["label"], *(other.name for other in also)]
        if not any(literature.simple(word) in literature.simple(one) for one in names):
            continue
        parameters = ", ".join(f"{p.name}={render(p.default)}" for p in item.params.values())
        kind = item.meta["kind"].replace("_", "-")
        needs = ", ".join(sorted(item.meta["needs"])) or "–"
        paper = item.meta["paper"] or "–"
        shown.append((name, item.meta["label"], kind, needs, paper, parameters or "–"))
        more = [(other.name, f"{other.token}: {other.words}") for other in also]
        shown += [(other, "", kind, needs, "–", says) for other, says in more]
    if not shown:
        literature.method_called(word, known)  # which says what is like it
    show(("method", "label", "kind", "needs beyond weights", "paper", "parameters"), shown)

"""Commands for models and methods of one's own: combine, measure and check them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import say, show, table_of
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from fedrepro.stages.user_models.check_method import CheckedMethod
    from fedrepro.stages.user_models.user_inputs import ModelFiles

ALL = "all"

Model = Annotated[
    str | None, typer.Option(help="such as resnet20+norm~batch, lenet5, or file.py:Class")
]
ShapeText = Annotated[str | None, typer.Option(help="of one example, such as 1,28,28")]
Layers = Annotated[
    str | None, typer.Option(help="names of the layers in order, where files have another")
]
LabelColumn = Annotated[str, typer.Option(help="column of a csv that holds the class")]
Divide = Annotated[
    float, typer.Option(help="what inputs are divided by, such as 255 for stored pixels")
]
Channels = Annotated[
    str, typer.Option(help="which axis of images in an npz has their channels: first or last")
]


def combine(
    words: Annotated[
        list[str],
        typer.Argument(
            help="a method, such as pfnm or pfnm+sigma2~0.1, unless --method names it; then a "
            "state dict of each client: .pt, .pth, .safetensors or .npz",
            metavar="[METHOD] FILES...",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="file to write, in the form of its name; of all methods a new folder"),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="the method; all: every one that can be applied, in a table")
    ] = None,
    evaluate: Annotated[
        Path | None, typer.Option(help="examples to measure on and for nothing else, npz or csv")
    ] = None,
    validation: Annotated[
        list[str] | None,
        typer.Option(help="examples that methods may choose by; one file, or one of each client"),
    ] = None,
    clients_data: Annotated[
        str | None,
        typer.Option(
            help="training examples of each client, in files named like the models: with commas "
            "between, or a pattern in quotation marks"
        ),
    ] = None,
    public: Annotated[
        Path | None, typer.Option(help="examples whose inputs the server has, without labels")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="state dict that all clients started from, .pt")
    ] = None,
    same_start: Annotated[
        bool, typer.Option("--same-start", help="the models trained from one start")
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(help="examples of each client (row) and class (column), or in all, csv"),
    ] = None,
    in_order: Annotated[
        bool,
        typer.Option("--in-order", help="files and rows of other names are in the models' order"),
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="a parameter of the method, name=value")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of every draw")] = 0,
    training: Annotated[
        str, typer.Option(help="token of the procedure by which methods train that do")
    ] = "adam",
    model: Model = None,
    shape: ShapeText = None,
    layers: Layers = None,
    label_column: LabelColumn = "label",
    divide: Divide = 1.0,
    channels: Channels = "",
) -> None:
    """Combine models that you trained with plain PyTorch into one, or compare all ways to do so."""
    from fedrepro.stages.user_models.user_files import SUFFIXES
    from fedrepro.stages.user_models.user_inputs import ModelFiles

    if not method and (
        words[0].endswith(SUFFIXES) or (Path(words[0]).suffix and Path(words[0]).is_file())
    ):
        raise FedreproError(
            f"{words[0]} is a file: name the method before it, such as average, or --method all"
        )
    name, files = (method, words) if method else (words[0], words[1:])
    inputs = ModelFiles(
        models=_fitting("models", files),
        model=model,
        shape=shape,
        layers=layers,
        labels=labels,
        data=_fitting("--clients-data", [clients_data] if clients_data else []),
        validation=_fitting("--validation", validation or []),
        public=public,
        evaluate=evaluate,
        start=start,
        one_start=same_start,
        label=label_column,
        divide=divide,
        channels=channels,
        training=training,
        in_order=in_order,
    )
    if name == ALL:
        if settings:
            raise FedreproError(
                "--set changes one method, and --method all runs all of them: leave it out"
            )
        _all(inputs, out, seed)
        return
    if out is None:
        raise FedreproError("say by --out which file to write, such as --out global.pt")
    from fedrepro.stages.user_models.combine import run

    for note in run(name, inputs, out, settings or (), seed):
        say(note)
    if evaluate is not None:
        _evaluated([out], inputs)


def _fitting(what: str, texts: Sequence[str]) -> list[Path]:
    """Return the files that `texts` name: paths, lists with commas, or patterns such as *.pt.

    `what` is the command's option, for errors. A text that is the name of an existing file means
    that file, so that names may have brackets.
    """
    paths: list[Path] = []
    for text in texts:
        for part in [text] if Path(text).exists() else text.split(","):
            path = Path(part)
            if path.exists() or not any(c in part for c in "*?["):
                paths.append(path)
                continue
            folder = next(folder for folder in path.parents if folder.is_dir())
            fits = sorted(glob(str(path.relative_to(folder)), root_dir=folder))
            if not fits:
                raise FedreproError(f"{what}: no file fits '{part}'")
            paths += [folder / fit for fit in fits]
    return paths


def _all(files: ModelFiles, out: Path | None, seed: int) -> None:
    from rich.box import SIMPLE_HEAD

    from fedrepro.core.method_kinds import METHOD_KINDS
    from fedrepro.core.registry import components
    from fedrepro.numbers.cost_words import times
    from fedrepro.stages.user_models.combine import run_all

    entries, notes = run_all(files, out, seed)
    for note in notes:
        say(note)
    table = table_of("method", "accuracy", "MB sent", "×", "rounds", "passes", "s", "weights")
    for column in table.columns[1:]:
        column.no_wrap = True  # words of methods go on in the next line, not numbers
    table.box = SIMPLE_HEAD
    seen: dict[str, list[str]] = {}
    for entry in (entry for entry in entries if not entry.why):
        numbers, sent = entry.numbers, entry.numbers["bytes_up"]
        called = f"{entry.label}, control" if entry.kind == "control" else entry.label
        seen.setdefault(entry.sees, []).append(called)
        # a control does not exchange models, so its traffic says nothing
        costs = ["–"] * 3
        if entry.kind != "control":
            models = (
                times(sent, sent / numbers["times_the_models"]).removesuffix(" ×") if sent else ""
            )
            costs = [f"{sent / 1e6:.3g}", models, f"{numbers['rounds']:.0f}"]
        costs += [f"{numbers.get('passes', 0):.3g}", f"{numbers['seconds']:.2f}"]
        networks = int(numbers["forward_passes"])
        size = f"{numbers['parameters']:,.0f}" + (f" in {networks}" if networks > 1 else "")
        accuracy = f"{100 * numbers['accuracy']:.1f} %"
        table.add_row(called, accuracy, *costs, size)
    show(table)
    say(
        "MB sent: by all clients; ×: how often all their models once; rounds: exchanges with the "
        "server; passes: of clients over their examples, beside training; s: of server and "
        "clients, over all settings tried"
    )
    for sees, names in seen.items():
        say(f"sees {sees}: {', '.join(names)}")
    for entry in (entry for entry in entries if entry.why):
        say(f"not applied: {entry.item.name} {entry.why}")
    further = [
        name
        for name, item in sorted(components("method").items())
        if METHOD_KINDS[item.meta["kind"]].stage != "aggregate"
    ]
    say(
        f"{len(further)} further methods combine no trained models, but train in rounds or are "
        f"simulations: {', '.join(further)}"
    )
    if out is not None:
        say(f"{out}: the model of each method, and {out}/table.csv with every column")


def evaluate(
    models: Annotated[
        list[str], typer.Argument(help="state dicts of plain PyTorch, or what combine wrote")
    ],
    data: Annotated[Path, typer.Option(help="labelled examples, npz or csv")],
    model: Model = None,
    shape: ShapeText = None,
    layers: Layers = None,
    label_column: LabelColumn = "label",
    divide: Divide = 1.0,
    channels: Channels = "",
) -> None:
    """Measure accuracy, loss and each class of models of your own, on data of your own."""
    from fedrepro.stages.user_models.user_inputs import ModelFiles

    paths = _fitting("models", models)
    inputs = ModelFiles(paths, model, shape, layers, evaluate=data, label=label_column)
    inputs = replace(inputs, divide=divide, channels=channels)
    _evaluated(paths, inputs)


def _evaluated(models: list[Path], files: ModelFiles) -> None:
    from fedrepro.stages.user_models.evaluate import evaluations

    results, notes = evaluations(models, files)
    for note in notes:
        say(note)
    table = table_of("model", "accuracy", "loss", "worst class", "weights")
    for evaluation in results:
        label = evaluation.worst
        worst = f"{100 * evaluation.right[label]:.1f} % of class {label}"
        loss = "–" if evaluation.loss is None else f"{evaluation.loss:.4f}"
        size = f"{evaluation.parameters:,}" + (
            f" in {evaluation.networks}" if evaluation.networks > 1 else ""
        )
        table.add_row(evaluation.name, f"{100 * evaluation.accuracy:.2f} %", loss, worst, size)
    show(table)
    count = int(results[0].held.sum())
    say(
        f"on {count:,} examples, so that an accuracy is known to ± {100 / count**0.5:.1f} points "
        "at most (95 %); loss in nats an example"
    )
    for evaluation in results:
        rights = zip(evaluation.held, evaluation.right, strict=True)
        parts = (f"{k}: {100 * share:.1f} %" for k, (held, share) in enumerate(rights) if held)
        say(f"{evaluation.name}, right of each class: {', '.join(parts)}")


def check_method(
    method: Annotated[str, typer.Argument(help="a file, such as mine.py, or a method's name")],
    model: Annotated[
        str, typer.Option(help="network, such as resnet8+norm~batch or nets.py:Net")
    ] = "",
) -> None:
    """Check a method by the tests that every method passes, on digits: exit 1 if it fails one."""
    from fedrepro.stages.user_models import check_method as stage

    failed = 0
    for item in stage.methods_of(method):
        checked = stage.check_method(item, model)
        table = table_of("", f"{item.name}: {item.doc}")
        for name, text in _rows(checked):
            table.add_row(name, text)
        show(table)
        checks = table_of("check", "", "why not")
        for text, why in checked.findings:
            checks.add_row(text, "FAILS" if why else "passes", why)
        show(checks)
        broken = sum(1 for _, why in checked.findings if why)
        result = f"fails {broken} of" if broken else "passes all"
        low = f", but its accuracy on digits is {checked.at_chance}" if checked.at_chance else ""
        say(f"{item.name}: {result} {len(checked.findings)} checks{low}")
        failed += not checked.passes
    raise typer.Exit(int(bool(failed)))


def _rows(checked: CheckedMethod) -> list[tuple[str, str]]:
    """Return what to print on a checked method, as (property, text): kind, needs, accuracy, …."""
    from fedrepro.api import NEEDS
    from fedrepro.core.method_kinds import METHOD_KINDS
    from fedrepro.numbers.cost_words import megabytes, times
    from fedrepro.stages.user_models.method_contract import DIGITS

    meta, numbers = checked.item.meta, checked.numbers
    needs = [f"{NEEDS[need]} ({need})" for need in sorted(meta["needs"]) if need in NEEDS]
    kind = METHOD_KINDS[meta["kind"]]
    inputs = ["the clients' weights"] if kind.with_data else ["no data: it draws its own"]
    rows = [("kind", kind.words), ("sees", "; ".join([*inputs, *needs]))]
    if meta["merges"]:
        words = "averages running statistics with the weights, by its parameter batchnorm otherwise"
        rows.append(("BatchNorm", words))
    if meta["one_start"]:
        rows.append(("asks for", "models that trained from one start"))
    if not numbers:
        return rows
    up, down, models = numbers["bytes_up"], numbers["bytes_down"], numbers["models"]
    sent = f"{megabytes(up)} up, {times(up, models) or 'nothing'} the clients' models once"
    what = f"; beside models: {meta['sends']}" if meta["sends"] else ""
    count = f"{numbers['rounds']:.0f}"
    exchanges = f"; {count} exchange{'' if count == '1' else 's'}"
    rows.append(("sends", f"{sent}; {megabytes(down)} down{exchanges}{what}"))
    if numbers.get("passes"):
        rows.append(("reads", f"{numbers['passes']:.1f} times a client's examples beside training"))
    server, clients = numbers["seconds"], numbers["client_seconds"]
    rows.append(("takes", f"{server:.3f} s at the server, {clients:.3f} s at all clients"))
    networks = f" in {numbers['forward_passes']:.0f} networks or draws"
    more = networks if numbers["forward_passes"] > 1 else ""
    rows.append(("makes", f"{numbers['parameters']:,.0f} weights{more}"))
    after = f" after {checked.rounds} rounds" if checked.rounds else ""
    low = f"{checked.at_chance}; " if checked.at_chance else ""
    alone = f"clients alone {100 * numbers['alone']:.1f} %"
    rows.append(("accuracy", f"{low}{100 * numbers['accuracy']:.1f} %{after}; {alone} ({DIGITS})"))
    return rows

"""Commands for models and methods of one's own: combine, measure and check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrepro.cli.printing import say, show
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from fedrepro.stages.user_models.method_contract import CheckedMethod
    from fedrepro.stages.user_models.user_files import ModelFiles


def _option(words: str, *names: str, least: int | None = None) -> Any:
    return typer.Option(*names, help=words, min=least)


File = Path | None
Text = str | None
Model = Annotated[Text, _option("such as resnet20+norm~batch, lenet5, or file.py:Class")]
ShapeText = Annotated[Text, _option("of one example, such as 1,28,28")]
Layers = Annotated[Text, _option("names of the layers in order, where files have another")]
LabelColumn = Annotated[str, _option("column of a csv that holds the class")]
Divide = Annotated[float, _option("what inputs are divided by, such as 255 for stored pixels")]
Channels = Annotated[str, _option("which axis of images in an npz has channels: first or last")]


def combine(
    words: Annotated[
        list[str],
        typer.Argument(
            help="a method, such as pfnm or pfnm+sigma2~0.1, unless --method names it; then a "
            "state dict of each client: .pt, .pth, .safetensors or .npz",
            metavar="[METHOD] FILES...",
        ),
    ],
    out: Annotated[File, _option("file to write; of all methods a new folder")] = None,
    method: Annotated[Text, _option("the method; all: every one that can be applied")] = None,
    evaluate: Annotated[File, _option("examples to measure on and for nothing else")] = None,
    validation: Annotated[
        list[str] | None,
        _option("examples that methods may choose by; one file, or one of each client"),
    ] = None,
    clients_data: Annotated[
        Text,
        _option(
            "training examples of each client, in files named like the models: with commas "
            "between, or a pattern in quotation marks"
        ),
    ] = None,
    public: Annotated[File, _option("inputs of other data that the server has")] = None,
    start: Annotated[File, _option("state dict that all clients started from")] = None,
    same_start: Annotated[
        bool, _option("the models trained from one start", "--same-start")
    ] = False,
    labels: Annotated[
        File, _option("examples of each client (row) and class (column), or in all, csv")
    ] = None,
    in_order: Annotated[
        bool, _option("files and rows of other names are in the models' order", "--in-order")
    ] = False,
    settings: Annotated[
        list[str] | None, _option("a parameter of the method, name=value", "--set")
    ] = None,
    seed: Annotated[int, _option("seed of every draw", least=0)] = 0,
    training: Annotated[str, _option("token by which methods train that do")] = "adam",
    model: Model = None,
    shape: ShapeText = None,
    layers: Layers = None,
    label_column: LabelColumn = "label",
    divide: Divide = 1.0,
    channels: Channels = "",
) -> None:
    """Combine PyTorch models by one method or all; some train further, by optimiser `training`."""
    from fedrepro.stages.user_models.user_files import SUFFIXES

    if not method and (
        words[0].endswith(SUFFIXES) or (Path(words[0]).suffix and Path(words[0]).is_file())
    ):
        raise FedreproError(
            f"{words[0]} is a file: name the method before it, such as average, or --method all"
        )
    name, files = (method, words) if method else (words[0], words[1:])
    clients = _fitting("--clients-data", [clients_data] if clients_data else [])
    checks = _fitting("--validation", validation or [])
    paths = _fitting("models", files)
    inputs = _files(locals(), models=paths, data=clients, validation=checks)
    if name == "all":
        if settings:
            raise FedreproError("--set changes one method, and --method all runs all of them")
        _all(inputs, out, seed)
        return
    if out is None:
        raise FedreproError("say by --out which file to write, such as --out global.pt")
    from fedrepro.stages.user_models.combine import run

    say(*run(name, inputs, out, settings or (), seed))
    if evaluate is not None:
        _evaluated([out], inputs)


def _fitting(argument: str, texts: Sequence[str]) -> list[Path]:
    """Return the files that `texts` name: each text is a path, paths a,b,c or a pattern *.pt.

    The name of an existing file means that file, so names may have brackets. An error says for
    which command-line `argument` the texts were given.
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
                raise FedreproError(f"{argument}: no file fits '{part}'")
            paths += [folder / fit for fit in fits]
    return paths


def _all(files: ModelFiles, out: Path | None, seed: int) -> None:
    from fedrepro.numbers.cost_words import times
    from fedrepro.stages.user_models.combine import run_all

    entries, notes = run_all(files, out, seed)
    say(*notes)
    rows, seen = [], dict[str, list[str]]()
    for entry in (entry for entry in entries if not entry.why):
        called, numbers, sent = entry.label, entry.numbers, entry.numbers["bytes_up"]
        models = times(sent, sent / numbers["times_the_models"])[:-2] if sent else ""
        costs = [f"{sent / 1e6:.3g}", models, f"{numbers['rounds']:.0f}"]
        if entry.kind == "control":  # it exchanges no models, so its traffic says nothing
            called, costs = f"{called}, control", ["–"] * 3
        seen.setdefault(entry.sees, []).append(called)
        costs += [f"{numbers.get('passes', 0):.3g}", f"{numbers['seconds']:.2f}"]
        size = _size(numbers["parameters"], numbers["forward_passes"])
        rows.append((called, f"{100 * numbers['accuracy']:.1f} %", *costs, size))
    heads = ("method", "accuracy", "MB sent", "×", "rounds", "passes", "s", "weights")
    show(heads, rows, narrow=True)
    say(
        "MB sent: by all clients; ×: how often all their models once; rounds: exchanges with the "
        "server; passes: of clients over their examples, beside training; s: of server and "
        "clients, over all settings tried"
    )
    say(*(f"sees {sees}: {'; '.join(names)}" for sees, names in seen.items()))
    say(*(f"not applied: {entry.item.name} {entry.why}" for entry in entries if entry.why))
    if out is not None:
        say(f"{out}: the model of each method, and {out}/table.csv with every column")


def _size(parameters: float, networks: float) -> str:
    return f"{parameters:,.0f}" + (f" in {networks:.0f}" if networks > 1 else "")


def evaluate(
    models: Annotated[
        list[str], typer.Argument(help="state dicts of plain PyTorch, or what combine wrote")
    ],
    data: Annotated[Path, _option("labelled examples, npz or csv")],
    model: Model = None,
    shape: ShapeText = None,
    layers: Layers = None,
    label_column: LabelColumn = "label",
    divide: Divide = 1.0,
    channels: Channels = "",
) -> None:
    """Measure accuracy, loss and each class of models of your own, on data of your own.

    Each input has `shape` and is divided by `divide`; `channels` (first or last) is the axis of an
    image's channels. `layers` are the names of layers in order, if files have another order.
    """
    paths = _fitting("models", models)
    _evaluated(paths, _files(locals(), models=paths, evaluate=data, data=()))


def _files(options: Mapping[str, Any], **more: Any) -> ModelFiles:
    """Return those `options` of a command that are fields of ModelFiles, and `more`."""
    from fedrepro.stages.user_models.user_files import ModelFiles

    known = [item.name for item in fields(ModelFiles)]
    return ModelFiles(**{k: v for k, v in options.items() if k in known} | more)


def _evaluated(models: list[Path], files: ModelFiles) -> None:
    from fedrepro.stages.user_models.combine import evaluations

    results, notes = evaluations(models, files)
    say(*notes)
    rows, lines = [], []
    for found in results:
        name, recall = found["name"], found["recall"]
        label = min(recall, key=recall.__getitem__)
        worst = f"{100 * recall[label]:.1f} % of class {label}"
        loss = "–" if found["loss"] is None else f"{found['loss']:.4f}"
        size = _size(found["parameters"], found["networks"])
        rows.append((name, f"{100 * found['accuracy']:.2f} %", loss, worst, size))
        parts = (f"{k}: {100 * share:.1f} %" for k, share in recall.items())
        lines.append(f"{name}, right of each class: {', '.join(parts)}")
    show(("model", "accuracy", "loss", "worst class", "weights"), rows)
    count = results[0]["examples"]
    say(
        f"on {count:,} examples, so that an accuracy is known to ± {100 / count**0.5:.1f} points "
        "at most (95 %); loss in nats an example",
        *lines,
    )


def check_method(
    method: Annotated[str, typer.Argument(help="a file, such as mine.py, or a method's name")],
    model: Annotated[str, _option("network, such as resnet8+norm~batch or nets.py:Net")] = "",
) -> None:
    """Check a method by the tests that every method passes, on digits: exit 1 if it fails one."""
    from fedrepro.stages.user_models import method_contract as stage

    failed = 0
    for item in stage.methods_of(method):
        checked = stage.check_method(item, model)
        show(("", f"{item.name}: {item.doc}"), _rows(checked))
        checks = [(text, "FAILS" if why else "passes", why) for text, why in checked.findings]
        show(("check", "", "why not"), checks)
        broken = sum(1 for _, why in checked.findings if why)
        result = f"fails {broken} of" if broken else "passes all"
        low = f", but its accuracy on digits is {checked.at_chance}" if checked.at_chance else ""
        say(f"{item.name}: {result} {len(checked.findings)} checks{low}")
        failed += not checked.passes
    raise typer.Exit(int(bool(failed)))


def _rows(checked: CheckedMethod) -> list[tuple[str, str]]:
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
    up, down, count = numbers["bytes_up"], numbers["bytes_down"], f"{numbers['rounds']:.0f}"
    sent = f"{megabytes(up)} up, {times(up, numbers['models']) or 'nothing'} the clients' models"
    what = f"; beside models: {meta['sends']}" if meta["sends"] else ""
    exchanges = f"{count} exchange{'' if count == '1' else 's'}"
    rows.append(("sends", f"{sent} once; {megabytes(down)} down; {exchanges}{what}"))
    if numbers.get("passes"):
        rows.append(("reads", f"{numbers['passes']:.1f} times a client's examples beside training"))
    server, clients, networks = (
        numbers[k] for k in ("seconds", "client_seconds", "forward_passes")
    )
    more = f" in {networks:.0f} networks or draws" if networks > 1 else ""
    after = f" after {checked.rounds} rounds" if checked.rounds else ""
    low = f"{checked.at_chance}; " if checked.at_chance else ""
    accuracy, alone = (f"{100 * numbers[k]:.1f} %" for k in ("accuracy", "alone"))
    return [
        *rows,
        ("takes", f"{server:.3f} s at the server, {clients:.3f} s at all clients"),
        ("makes", f"{numbers['parameters']:,.0f} weights{more}"),
        ("accuracy", f"{low}{accuracy}{after}; clients alone {alone} ({DIGITS})"),
    ]

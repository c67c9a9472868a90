"""Commands for own methods and models; `model` names the network, `shape` is of one example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from fedrepro.cli.printing import say, show
from fedrepro.core.errors import FedreproError

File = Path | None
Text = str | None
Model = Annotated[Text, Option(help="network, as resnet20+norm~batch or file.py:Class")]
ShapeText = Annotated[Text, Option(help="of one example, such as 1,28,28")]


def combine(
    method: Annotated[
        str, Argument(help="such as pfnm or pfnm+sigma2~0.1; all: every one that applies")
    ],
    models: Annotated[
        list[str], Argument(help="a state dict of each client: .pt, .pth or .safetensors")
    ],
    out: Annotated[File, Option(help="file to write; of all methods a new folder")] = None,
    evaluate: Annotated[File, Option(help="examples to measure all methods on")] = None,
    validation: Annotated[File, Option(help="labelled examples for methods to select by")] = None,
    clients_data: Annotated[
        list[str] | None,
        Option(help="each client's training examples, in files named as its model; quote patterns"),
    ] = None,
    public: Annotated[File, Option(help="inputs of other data that the server has")] = None,
    start: Annotated[File, Option(help="state dict that all clients started from")] = None,
    labels: Annotated[
        File, Option(help="examples of each client (row) and class (column), or in all, csv")
    ] = None,
    seed: Annotated[int, Option(min=0, help="seed of every draw")] = 0,
    training: Annotated[str, Option(help="optimiser (token) of methods that train")] = "adam",
    model: Model = None,
    shape: ShapeText = None,
) -> None:
    """Combine PyTorch models by a method or all; write the results to `out`, print measurements."""
    from fedrepro.stages.user_models.combine import run
    from fedrepro.stages.user_models.model_and_data_files import ModelFiles

    clients, data = _fitting(models), _fitting(clients_data or ())
    given = (labels, data, validation, public, evaluate, start, training)
    files = ModelFiles(clients, model, shape, *given)
    if method == "all":
        _all(files, out, seed)
    elif out is None:
        raise FedreproError("say by --out which file to write, such as --out global.pt")
    else:
        say(*run(method, files, out, seed))


def _fitting(texts: Sequence[str]) -> list[Path]:
    return [Path(path) for text in texts for path in sorted(glob(text)) or [text]]


def _all(files: Any, out: Path | None, seed: int) -> None:
    from fedrepro.stages.user_models.combine import run_all

    found, notes = run_all(files, out, seed)
    say(*notes)
    rows, seen = [], dict[str, list[str]]()
    labels = Counter(row["label"] for row in found)
    for row in (row for row in found if not row["not_applied"]):
        called, sent = row["label"], row["bytes_up"]
        if labels[called] > 1:  # of variants of a method
            called = f"{called} ({row['method']})"
        costs = [f"{sent / 1e6:.3g}", f"{row['rounds']:.0f}"]
        if row["kind"] == "control":  # it exchanges no models, so its traffic says nothing
            called, costs = f"{called}, control", ["–"] * 2
        seen.setdefault(row["sees"], []).append(called)
        costs += [f"{row['passes']:.3g}", f"{row['seconds']:.2f}"]
        size = _size(row["parameters"], row["forward_passes"])
        rows.append((called, f"{100 * row['accuracy']:.1f} %", *costs, size))
    show(("method", "accuracy", "MB sent", "rounds", "passes", "s", "weights"), rows, narrow=True)
    say(*(f"sees {sees}: {'; '.join(names)}" for sees, names in seen.items()))
    failed = (row for row in found if row["not_applied"])
    say(*(f"not applied: {row['method']} {row['not_applied']}" for row in failed))
    if out is not None:
        say(f"{out}: the model of each method, and {out}/table.csv with every column")


def _size(parameters: float, networks: float) -> str:
    return f"{parameters:,.0f}" + (f" in {networks:.0f}" if networks > 1 else "")


def evaluate(
    models: Annotated[
        list[str], Argument(help="state dicts of plain PyTorch, or what combine wrote")
    ],
    data: Annotated[Path, Option(help="labelled examples, npz or csv")],
    model: Model = None,
    shape: ShapeText = None,
) -> None:
    """Print accuracy (in all and by class), loss and size of your own models on examples `data`."""
    from fedrepro.stages.user_models.combine import evaluations
    from fedrepro.stages.user_models.model_and_data_files import ModelFiles

    results = [*evaluations(ModelFiles(_fitting(models), model, shape, evaluate=data))]
    rows, lines = [], []
    for found in results:
        name, loss = found["name"], found["loss"]
        size = _size(found["parameters"], found["networks"])
        accuracy = f"{100 * found['accuracy']:.2f} %"
        rows.append((name, accuracy, "–" if loss is None else f"{loss:.4f}", size))
        parts = (f"{k}: {100 * share:.1f} %" for k, share in found["recall"].items())
        lines.append(f"{name}, right of each class: {', '.join(parts)}")
    show(("model", "accuracy", "loss", "weights"), rows)
    say(f"on {results[0]['examples']:,} examples; loss in nats an example", *lines)


def check_method(
    method: Annotated[str, Argument(help="a file, such as mine.py, or a method's name")],
    model: Annotated[str, Option(help="network, such as resnet8+norm~batch or nets.py:Net")] = "",
) -> None:
    """Check a method by the tests that every method passes, on digits: exit 1 if it fails one."""
    from fedrepro.stages.user_models.method_contract import check_method, methods_of

    failed = 0
    for item in methods_of(method):
        findings = check_method(item, model)
        checks = [(text, "FAILS" if why else "passes", why) for text, why in findings.items()]
        show((item.name, "", "why not"), checks)
        broken = sum(map(bool, findings.values()))
        say(f"{item.name}: {f'fails {broken} of' if broken else 'passes all'} {len(checks)} checks")
        failed += broken
    raise Exit(int(failed > 0))

"""Read a user's files and check them: models, examples and label counts; who can combine them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrepro.api import NEEDS, ClientInfo, LocalModels, takes
from fedrepro.core.artifacts import one_line, require_file
from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.method_kinds import MIXED, MODULE
from fedrepro.core.registry import components, parse_token
from fedrepro.core.spec import Component, Spec
from fedrepro.data.user_data import (
    PIXEL,
    WHOLE,
    OwnExamples,
    csv_lines,
    looks_like_pixels,
    read_csv_examples,
    read_npz,
)
from fedrepro.networks.predict import network_of
from fedrepro.networks.state_dicts import checked_counts
from fedrepro.planning.figure_interface import is_number
from fedrepro.stages.aggregate import recalibrates
from fedrepro.stages.trial_data import AT_CLIENTS, declared_part
from fedrepro.training.examples import Examples, tensor_of
from fedrepro.training.federation.client_queries import CostCounter
from fedrepro.training.federation.clients import ClientData, Clients
from fedrepro.training.training_settings import settings_of

PYTORCH = (".pt", ".pth")
SUFFIXES = (*PYTORCH, ".safetensors", ".npz")  # the latter hold named tensors and nothing else
SHAPE = re.compile(r" *0*[1-9][0-9]{0,6} *(, *0*[1-9][0-9]{0,6} *)*")
COUNTED = (
    "label counts (--labels, a row per client and a column per class, or --clients-data; in "
    "Python label_counts)"
)
VALIDATING = ("client_validation", "client_validation_examples", "server_validation")
# of information that a method may need: the field of ClientInfo that is there with it, and how
# users give it; other information cannot be given
WAYS = {
    **{need: (need, COUNTED) for need in ("example_counts", "label_counts")},
    **dict.fromkeys(
        ("pooled_inputs", "pooled_labels", *AT_CLIENTS),
        ("pooled_inputs", "data of the clients (--clients-data)"),
    ),
    **dict.fromkeys(VALIDATING, ("validation_inputs", "validation examples (--validation)")),
    "public_inputs": ("public_inputs", "inputs of other data (--public)"),
    "start": ("start", "the common start (--start)"),
}
EQUAL = (
    "note: how many examples each client has is not known, so all weigh the same: --labels, with a "
    "column of their numbers or one for each class, says otherwise; in Python, label_counts"
)
OF_ONE_START = (
    "combines units in their places: models that did not train from one start often become one "
    "that is worse than each of them"
)
ASSUMED = (
    "assumed: weights of fully connected layers are (out, in), as PyTorch keeps them, and ReLU "
    "stands between layers"
)


def read_state(path: Path) -> Any:
    """Read a state dict (.pt, .safetensors, .npz) without running code from its file."""
    require_file(path)
    if not path.exists():
        raise FedreproError(f"{path} is missing; name the state dict of each client")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            # the file sorts names as text: here numbers in them count by value, 0, 2, 10
            state = load_file(path)
            parts = {name: re.split("([0-9]+)", name) for name in state}
            by_value = {k: [int(p) if p.isdecimal() else p for p in v] for k, v in parts.items()}
            return {name: state[name] for name in sorted(state, key=by_value.__getitem__)}
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # unpickling can raise anything
        code = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it holds {code[1]}, and no code of a file is run" if code else one_line(error)
        inside = isinstance(error, OSError) and error.filename is None
        if inside or isinstance(error, EOFError | KeyError) or "zip archive" in why:
            why = "it is cut short, or no file of PyTorch"
        said = f"{path} cannot be read as a state dict ({why})"
        raise FedreproError(f"{said}; save one with torch.save(net.state_dict(), …)") from error


# --------------------------------------------------------------------------------------- examples


@dataclass(frozen=True)
class DataForm:
    """How a user's files of examples are read, so that examples fit the inputs of networks.

    shape, classes: of the networks. label: the column of a csv that has the class. divide: the
    number that inputs are divided by. channels: "first" or "last", the axis of colours in an npz.
    """

    shape: tuple[int, ...]
    classes: int
    label: str = "label"
    divide: float = 1.0
    channels: str = ""

    def read(self, path: Path, labelled: bool = True) -> OwnExamples:
        """Read one file of examples (.csv or .npz), with labels or without."""
        kind = path.suffix.lower()
        if kind not in (".csv", ".npz"):
            raise FedreproError(
                f"{path} is neither .csv nor .npz, with a column of classes or the arrays x and y"
            )
        require_file(path)
        if kind == ".csv":
            return read_csv_examples(path, self.label, least=1, labelled=labelled)
        return read_npz(path, least=1, labelled=labelled, channels=self.channels)

    def fitted(self, path: Path, data: OwnExamples, outputs: Mapping[str, int]) -> Examples:
        """Return data of a file as inputs (N, D), divided, and indices of networks' `outputs`."""
        shape, wanted = data.x.shape[1:], self.shape
        sides = [[size for size in each if size > 1] for each in (shape, wanted)]
        flat = len(shape) == 1 or len(wanted) == 1
        if math.prod(shape) != math.prod(wanted) or not (flat or sides[0] == sides[1]):
            found, due = ("×".join(map(str, each)) for each in (shape, wanted))
            raise FedreproError(
                f"{path} has examples of shape {found}, and the networks take {due}"
            )
        inputs = data.x.reshape(len(data.x), -1).astype(np.float32) / np.float32(self.divide)
        number = np.array([outputs[name] for name in data.classes], np.int64)
        return Examples(tensor_of(inputs), tensor_of(number[data.y]))


def read_files(
    files: Mapping[str, Sequence[Path]], form: DataForm
) -> tuple[dict[str, list[Examples]], list[str]]:
    """Read a user's files of examples, and return examples by purpose and notes on assumptions.

    `files` has the paths by purpose, such as validation. Inputs become float32 (N, D), and labels
    int64 (N,), indices of the networks' outputs. Classes that are whole numbers are indices, from
    0; classes named by words are numbered in alphabetic order, over all files.
    """
    if not (math.isfinite(form.divide) and form.divide > 0):
        raise FedreproError(f"--divide {form.divide:g} must be a number above 0")
    read = {path: form.read(path) for paths in files.values() for path in paths}
    outputs, notes = _outputs(read, form.classes)
    notes += [note for data in read.values() for note in data.notes]
    stored = [path for path, data in read.items() if looks_like_pixels(data.x)]
    if stored and form.divide == 1:
        notes.append(
            f"{stored[0]} has numbers up to {read[stored[0]].x.max():g}, which are taken as they "
            f"are: if the networks were trained on them divided by {PIXEL}, say --divide {PIXEL}"
        )
    examples = {path: form.fitted(path, data, outputs) for path, data in read.items()}
    return {what: [examples[path] for path in paths] for what, paths in files.items()}, notes


def read_inputs(path: Path, form: DataForm) -> Examples:
    """Read a file of inputs in the way that `form` describes; labels in it are ignored."""
    data = form.read(path, labelled=False)
    return form.fitted(path, data, dict.fromkeys(data.classes, 0))


def _outputs(read: Mapping[Path, OwnExamples], classes: int) -> tuple[Mapping[str, int], list[str]]:
    """Return ({class name: index of the networks' output}, notes); `classes` counts outputs."""
    where = {name: path for path, data in read.items() for name in data.classes}
    if not all(WHOLE.fullmatch(name) for name in where):
        names = sorted(where)
        if len(names) != classes:
            raise FedreproError(
                f"the data have {len(names)} classes that are named by words ({_some(names)}), and "
                f"the networks have {classes} outputs: number classes as outputs are, from 0"
            )
        note = f"classes are taken in the order of their names: {', '.join(names)}"
        return {name: output for output, name in enumerate(names)}, [note]
    numbers = {name: int(name) for name in where}
    for name, number in numbers.items():
        if not 0 <= number < classes:
            raise FedreproError(
                f"{where[name]} has the class {shown(name)}: number classes as the networks' "
                f"outputs are, from 0 to {classes - 1}"
            )
    lacking = sorted({*range(classes)} - {*numbers.values()}) if numbers else []
    note = (
        f"no example has the label {_some(lacking)}: label 0 is the networks' first output, so "
        "labels that count from 1 have to be lowered by 1"
    )
    return numbers, [note] if lacking else []


def _some(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "")


# ---------------------------------------------------------------------- which client a file is of

CLIENT = "client"  # the column of a table of label counts that names files
MOST_PAIRS = 20  # pairs that a sentence lists at most


def paired_files(
    option: str, files: Sequence[Path], models: Sequence[Path], in_order: bool
) -> tuple[list[Path], list[str]]:
    """Sort a user's files in the order of the models that they belong to, by their names.

    client0.npz belongs to client0.pt, and a/data.npz to a/model.pt. If there is not one file for
    each model, files stay as they are. Returns (files, notes).

    Raises:
        FedreproError: names do not pair up, and the user did not say that files are `in_order`.
    """
    if not len(files) == len(models) > 1:
        return list(files), []
    for part in ("stem", "parent"):
        given, wanted = ([Path(getattr(p, part)).name for p in paths] for paths in (files, models))
        if sorted(given) == sorted(wanted) and len(set(given)) == len(given):
            named = dict(zip(given, files, strict=True))
            return [named[name] for name in wanted], [f"{option}: paired with the models by name"]
    ambiguous = (
        f"the names of {option} do not say which file belongs to which model: name both alike, "
        "such as client0.npz and client0.pt"
    )
    return list(files), [_in_order(option, files, models, in_order, ambiguous)]


def _in_order(
    what: str, parts: Sequence[object], models: Sequence[Path], in_order: bool, ambiguous: str
) -> str:
    """Write which `what` in `parts` is which model's; raise FedreproError if not `in_order`."""
    pairs = [f"{part} of {model}" for part, model in zip(parts, models, strict=True)]
    more = len(pairs) - MOST_PAIRS
    listed = ", ".join(pairs[:MOST_PAIRS]) + (f" and {more} more" if more > 0 else "")
    if not in_order:
        raise FedreproError(f"{ambiguous}, or add --in-order if this is right: {listed}")
    return f"{what}: {listed}"


def read_counts(path: Path, files: Sequence[Path], in_order: bool) -> tuple[np.ndarray, list[str]]:
    """Read label counts, int64 (J, K), from a csv; return them with notes on assumptions.

    A row is of a client, a column of a class; a single column counts examples of all classes. A
    first row without numbers is a header. A first column called `client` names the models' `files`;
    otherwise rows belong to them in order, which the user has to confirm by `in_order` unless all
    rows are equal.
    """
    require_file(path)
    head, lines = csv_lines(path)
    rows = [head, *([cell.strip() for cell in fields] for _, fields in lines)]
    by_name = head[0].lower() == CLIENT
    body = rows[1:] if by_name or not any(map(is_number, head)) else rows
    if len(body) != len(files):
        raise FedreproError(
            f"{path} has {len(body)} rows of counts for {len(files)} models; one for each, and "
            "names of classes that are no numbers if there is a header"
        )
    if by_name:
        named, body = body, []
        for file in files:
            body += (own := [r[1:] for r in named if r[0] in (str(file), file.name, file.stem)])
            if len(own) != 1:
                raise FedreproError(f"{path} has {len(own)} rows, not one, of client '{file.stem}'")
    whole = all(re.fullmatch("[0-9]{1,13}", cell) for row in body for cell in row)
    if len({len(row) for row in body}) > 1 or not whole:
        said = f"{path} must hold whole numbers of at most 13 digits, as many in each row"
        raise FedreproError(said)
    notes = []
    if not by_name and any(row != body[0] for row in body):
        ambiguous = (
            f"{path} does not say which client a row is of: name the models in a first column "
            f"'{CLIENT}'"
        )
        numbered = [f"row {place}" for place in range(1, len(body) + 1)]
        notes = [_in_order("label counts", numbered, files, in_order, ambiguous)]
    return np.array(body, np.int64), notes


# ------------------------------------------------------------------------------ models in context


@dataclass(frozen=True)
class ModelContext:
    """A user's models, and all that is known of the clients who trained them.

    one_start: whether all models trained from equal initial weights. counted: whether the clients'
    numbers of examples are known; otherwise all clients have equal weights.
    """

    models: LocalModels
    known: ClientInfo
    one_start: bool = True
    counted: bool = True

    @staticmethod
    def of(
        models: LocalModels, sizes: np.ndarray | None = None, one_start: bool = True, **known: Any
    ) -> ModelContext:
        """Build a context; `known` are fields of ClientInfo.

        `sizes` are clients' numbers of examples, if `models` have no label counts to add up.
        """
        counts = models.label_counts
        sizes = sizes if counts is None else counts.sum(1)
        known.setdefault("training", components("training")["adam"].spec())
        even = np.ones(models.clients, np.int64) if sizes is None else sizes
        info = ClientInfo(example_counts=even, label_counts=counts, **known)
        return ModelContext(models, info, one_start, sizes is not None)

    def lacking(self, item: Component) -> str:
        """Return why the method `item` cannot be applied (the end of a sentence), or ""."""
        meta, models, model = item.meta, self.models, self.models.model
        if meta["kind"] not in ("one_shot", "control"):
            return (
                f"is {meta['kind']}: only one-shot methods combine models that are trained already"
            )
        if meta["scenario"]:
            return "has its clients trained in a way of its own, so it combines other models"
        if models.widths and not meta["any_width"]:
            return f"combines models of one width, and these have {_widths(models.widths)}"
        if model.name == MIXED and not meta["any_width"]:
            return (
                "combines networks of one architecture, and these are "
                f"{model.component.meta['title']}: take an ensemble, or one that distils"
            )
        if not takes(item, model):
            return f"combines {', '.join(sorted(meta['models']))} models, not '{model.token}'"
        ways = [
            WAYS[need][1] if need in WAYS else f"{NEEDS[need]}, which no file here holds"
            for need in sorted(meta["needs"])
            if need not in WAYS or getattr(self.known, WAYS[need][0]) is None
        ]
        return f"needs {'; '.join(dict.fromkeys(ways))}" if ways else ""

    def doubts(self, item: Component) -> list[str]:
        """Return warnings if the method `item` relies on unknown example counts or equal starts."""
        alike = "example_counts" in item.meta["needs"] and not self.counted
        places = item.meta["one_start"] or item.meta["better_of_one_start"]
        doubt = f"note: '{item.name}' {OF_ONE_START}"
        return [EQUAL] * alike + [doubt] * (places and not self.one_start)

    def info(self, method: Spec) -> ClientInfo:
        """Return what the method declares to need, and any inputs to measure BatchNorm on again."""
        more = ["public_inputs"] if recalibrates(method) else []
        more += ["clients"] if more and self.known.pooled_inputs is not None else []
        item = method.component
        info = declared_part(self.known, item, *more)
        new = {"method": item.name, "needs": item.meta["needs"], "ledger": CostCounter()}
        return replace(info, clients=info.clients and replace(info.clients, **new))


def _widths(widths: Sequence[Sequence[int]]) -> str:
    kinds = dict.fromkeys("-".join(map(str, own)) for own in widths)
    return f"hidden layers of {' and '.join(list(kinds)[:3])} units"


@dataclass(frozen=True)
class ModelFiles:
    """The files and options of `fedrepro combine` and `fedrepro evaluate`.

    model, shape, layers: architectures, shape of an input, and names of layers in order, with
    commas between. data, validation: clients' examples. evaluate: examples to measure on.
    label_column, divide, channels: as in `DataForm`. same_start: models trained from equal weights.
    in_order: files and rows without a client's name have the order of the models.
    """

    models: Sequence[Path]
    model: str | None = None
    shape: str | None = None
    layers: str | None = None
    labels: Path | None = None
    data: Sequence[Path] = ()
    validation: Sequence[Path] = ()
    public: Path | None = None
    evaluate: Path | None = None
    start: Path | None = None
    label_column: str = "label"
    same_start: bool = False
    divide: float = 1.0
    channels: str = ""
    training: str = "adam"
    in_order: bool = False

    @property
    def all(self) -> list[Path]:
        single = (self.labels, self.public, self.evaluate, self.start)
        return [*self.models, *self.data, *self.validation, *filter(None, single)]

    @property
    def words(self) -> list[str]:
        return self.model.split(",") if self.model else []

    def form(self, models: LocalModels) -> DataForm:
        sizes = models.shape, models.classes
        return DataForm(*sizes, self.label_column, self.divide, self.channels)

    def read(
        self, states: Sequence[Any], names: Sequence[str], models: Sequence[str]
    ) -> LocalModels:
        """Return state dicts as local models of architectures `models`; errors use `names`."""
        if self.shape and not SHAPE.fullmatch(self.shape):
            raise FedreproError(f"--shape '{self.shape}' is not of the form 28,28 or 3,32,32")
        shape = [int(part) for part in self.shape.split(",")] if self.shape else None
        layers = self.layers.split(",") if self.layers else None
        return LocalModels.from_state_dicts(
            states, model=list(models), shape=shape, layers=layers, names=names
        )


def read_context(files: ModelFiles) -> tuple[ModelContext, Examples | None, tuple[str, ...]]:
    """Read a command's files; return (models with context, examples to measure on, notes)."""
    names = [str(path) for path in files.models]
    if len(set(names)) < len(names):
        raise FedreproError("a file of a model is given twice; give each client's once")
    training, counts, said = parse_token("training", files.training), None, list[str]()
    if files.labels:
        counts, said = read_counts(files.labels, files.models, files.in_order)
    every = [*files.models, *([files.start] if files.start else [])]
    read = files.read([read_state(path) for path in every], [*map(str, every)], files.words)
    if files.start and read.widths:
        both = f"{files.start} and the models have {_widths(read.widths)}"
        raise FedreproError(f"{both}, and only networks of one architecture train from one start")
    paired = {"evaluate": [files.evaluate] if files.evaluate else []}
    for option, paths in (("--clients-data", files.data), ("--validation", files.validation)):
        paired[option], pairs = paired_files(option, paths, files.models, files.in_order)
        said += pairs
    examples, notes = read_files(paired, form := files.form(read))
    measured, own, validation = examples.values()
    for what, also in (("--clients-data", ""), ("--validation", "one for all, or ")):
        if (held := len(paired[what])) not in (0, len(names), bool(also)):
            raise FedreproError(
                f"{what} names {held} files for {len(names)} models: give {also}one of each"
            )
    if counts is not None:
        counts = checked_counts(counts, len(names), read.classes if counts.shape[1] > 1 else 1)
    if own:
        found = np.stack([np.bincount(part.targets, minlength=read.classes) for part in own])
        if counts is not None:
            due = found if counts.shape[1] > 1 else found.sum(1, keepdims=True)
            for at in np.flatnonzero((counts != due).any(axis=1)):
                raise FedreproError(
                    f"--labels gives {names[at]} {counts[at].sum()} examples and --clients-data "
                    f"{due[at].sum()}, or other ones of a class: leave out --labels"
                )
        counts = found
    whole = counts is not None and counts.shape[1] == 1  # examples of all classes together
    models = replace(
        read,
        tensors={k: v[: len(names)] for k, v in read.tensors.items()},
        label_counts=None if whole else counts,
        widths=read.widths and read.widths[: len(names)],
    )
    start = {k: v[-1:] for k, v in read.tensors.items()} if files.start else None
    known: dict[str, Any] = {"training": training, "start": start}
    public = [read_inputs(files.public, form)] if files.public else []
    given = {"pooled": own, "validation": validation, "public": public}
    joined = {name: _joined(parts) for name, parts in given.items() if parts}
    for name, part in joined.items():
        known[f"{name}_inputs"] = part.inputs.numpy()
        known[f"{name}_labels"] = part.targets.numpy()
    if own or validation:
        rows = _rows(validation)
        data = ClientData(
            examples=joined["pooled" if own else "validation"],
            rows=_rows(own) or [np.empty(0, np.int64)] * len(names),
            validation=rows * len(names) if len(rows) == 1 else rows,  # one is for every client
            validation_examples=joined.get("validation"),
        )
        network, settings = network_of(read.model, read.shape, read.classes), settings_of(training)
        known["clients"] = Clients(read.model, network, settings, data, own=models.tensors)
    sizes = counts[:, 0] if whole and counts is not None else None
    context = ModelContext.of(models, sizes, files.same_start or start is not None, **known)
    about = (
        f"read as {models.model.token} on examples of shape {'×'.join(map(str, models.shape))} "
        f"with {models.classes} classes, {models.clients} clients"
    )
    layers = f"{about}; layers in order: {', '.join(models.layers or ())}"
    module = models.model.component.meta.get(MODULE)
    notes = [*((about,) if module else (layers, ASSUMED)), *said, *notes]
    return context, measured[0] if measured else None, tuple(notes)


def _rows(parts: Sequence[Examples]) -> list[np.ndarray]:
    ends = np.cumsum([len(part.targets) for part in parts])
    return np.split(np.arange(ends[-1]), ends[:-1]) if parts else []


def _joined(parts: Sequence[Examples]) -> Examples:
    inputs, targets = zip(*((part.inputs, part.targets) for part in parts), strict=True)
    return Examples(torch.cat(inputs), torch.cat(targets))

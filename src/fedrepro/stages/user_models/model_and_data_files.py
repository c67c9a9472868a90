"""Read a user's files and check them: models, examples and label counts; who can combine them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrepro.api import NEEDS, ClientInfo, LocalModels, takes
from fedrepro.core.checksummed_files import one_line, require_file
from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.method_kinds import MIXED
from fedrepro.core.registry import components, parse_token
from fedrepro.core.spec import Component, Spec
from fedrepro.data.user_data import WHOLE, csv_lines, read_csv_examples, read_npz
from fedrepro.networks.layers import Shape
from fedrepro.networks.predict import network_of
from fedrepro.networks.state_dict_conversion import checked_counts
from fedrepro.stages.aggregate import recalibrates
from fedrepro.stages.trial_data import AT_CLIENTS, declared_part
from fedrepro.training.federation.client_queries_and_costs import CostCounter
from fedrepro.training.federation.clients import ClientData, Clients
from fedrepro.training.training_examples import Examples, tensor_of
from fedrepro.training.training_settings_and_procedures import settings_of

SUFFIXES = (".pt", ".pth", ".safetensors")  # of state dicts
CLIENT = "client"  # the column of a table of label counts that names files
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


def read_state(path: Path) -> Any:
    """Read a state dict (.pt, .safetensors) without running code from its file."""
    require_file(path)
    try:
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
        said = f"{path} cannot be read as a state dict ({why})"
        raise FedreproError(f"{said}; save one with torch.save(net.state_dict(), …)") from error


def read_examples(path: Path, shape: Shape, classes: int, labelled: bool = True) -> Examples:
    """Read examples (.csv or .npz) for networks that take inputs of `shape`.

    Returns inputs as they are in the file, float32 (N, D), and labels, int64 (N,), indices of the
    networks' outputs: 0 to `classes` - 1. If not `labelled`, labels are not read, and are 0.
    """
    require_file(path)
    if path.suffix == ".csv":
        data = read_csv_examples(path, "label", labelled)
    elif path.suffix == ".npz":
        data = read_npz(path, labelled, channels="first")
    else:
        raise FedreproError(f"{path} is neither .csv, with a column label, nor .npz, with x and y")
    each = data.x.shape[1:]
    sides = [[size for size in sizes if size > 1] for sizes in (each, shape)]
    flat = min(len(each), len(shape)) == 1
    if math.prod(each) != math.prod(shape) or not (flat or sides[0] == sides[1]):
        found, due = ("×".join(map(str, sizes)) for sizes in (each, shape))
        raise FedreproError(f"{path} has examples of shape {found}, and the networks take {due}")
    numbers = [int(name) if WHOLE.fullmatch(name) else -1 for name in data.classes]
    for name, number in zip(data.classes, numbers, strict=True):
        if not 0 <= number < classes:
            said = f"{path} has the class {shown(name)}: number classes as the networks' outputs"
            raise FedreproError(f"{said} are, from 0 to {classes - 1}")
    inputs = data.x.reshape(len(data.x), -1).astype(np.float32)
    return Examples(tensor_of(inputs), tensor_of(np.array(numbers, np.int64)[data.y]))


def paired(files: Sequence[Path], models: Sequence[Path]) -> Sequence[Path]:
    """Sort `files` as `models` are: client0.npz belongs to client0.pt, a/data.npz to a/model.pt."""
    if len(files) != len(models):
        said = f"--clients-data names {len(files)} files for {len(models)} models"
        raise FedreproError(f"{said}: give one of each")
    for part in ("stem", "parent"):
        given, wanted = ([Path(getattr(p, part)).name for p in paths] for paths in (files, models))
        if sorted(given) == sorted(wanted) and len(set(given)) == len(given):
            return [files[given.index(name)] for name in wanted]
    if len(models) == 1:
        return files
    said = "the names of --clients-data do not say which file belongs to which model"
    raise FedreproError(f"{said}: name both alike, such as client0.npz and client0.pt")


def read_counts(path: Path, files: Sequence[Path]) -> np.ndarray:
    """Read label counts, int64 (clients, classes), from a csv with a header.

    The first column, `client`, names the models' `files`. Each other column is of a class, by its
    number or in order; one alone counts examples of all classes: the result is (clients, 1).
    """
    require_file(path)
    head, lines = csv_lines(path)
    if head[0].lower() != CLIENT:
        fix = f"name the models in a first column '{CLIENT}'"
        raise FedreproError(f"{path} does not say which client a row is of: {fix}")
    rows, found = [[cell.strip() for cell in fields] for _, fields in lines], list[list[str]]()
    for file in files:
        own = [row[1:] for row in rows if row[0] in (str(file), file.name, file.stem)]
        if len(own) != 1:
            raise FedreproError(f"{path} has {len(own)} rows, not one, of client '{file.stem}'")
        found += own
    whole = all(re.fullmatch("[0-9]{1,13}", cell) for row in found for cell in row)
    if len({len(row) for row in found}) > 1 or not whole:
        said = f"{path} must hold whole numbers of at most 13 digits, as many in each row"
        raise FedreproError(said)
    table, names = np.array(found, np.int64), head[1:]
    classes = [str(number) for number in range(table.shape[1])]
    numbered = sorted(names) == sorted(classes)  # in any order, such as 0, 1, 10, 2
    return table[:, [names.index(name) for name in classes]] if numbered else table


@dataclass(frozen=True)
class ModelContext:
    """A user's models, and all that is `known` of the clients who trained them."""

    models: LocalModels
    known: ClientInfo

    @staticmethod
    def of(models: LocalModels, **known: Any) -> ModelContext:
        """Build a context; `known` are fields of ClientInfo, besides label counts of `models`.

        If no numbers of examples are known, all clients have equal weights.
        """
        if (counts := models.label_counts) is not None:
            known |= {"example_counts": counts.sum(1), "label_counts": counts}
        known.setdefault("example_counts", np.ones(models.clients, np.int64))
        known.setdefault("training", components("training")["adam"].spec())
        return ModelContext(replace(models, label_counts=None), ClientInfo(**known))

    def lacking(self, item: Component) -> str:
        """Return why `item` cannot combine these models, as "needs the common start", or ""."""
        meta, models, model = item.meta, self.models, self.models.model
        if meta["scenario"]:
            return "has its clients trained in a way of its own, so it combines other models"
        if models.widths and not meta["any_width"]:
            return f"combines models of one width, and these have {_widths(models.widths)}"
        if model.name == MIXED and not meta["any_width"]:
            said = "combines networks of one architecture, and these are"
            return f"{said} {model.component.meta['title']}: take an ensemble, or one that distils"
        if (ways := meta["trainings"]) and self.known.training.name not in ways:
            said = f"is for clients that trained by {' or '.join(sorted(ways))}: say their steps by"
            return f"{said} --training, as sgd+batch_size~64+epochs~5"
        if not takes(item, model):
            return f"combines {', '.join(sorted(meta['models']))} models, not '{model.token}'"
        ways = [
            WAYS[need][1] if need in WAYS else f"{NEEDS[need]}, which no file here holds"
            for need in sorted(meta["needs"])
            if need not in WAYS or getattr(self.known, WAYS[need][0]) is None
        ]
        return f"needs {'; '.join(dict.fromkeys(ways))}" if ways else ""

    def info(self, method: Spec) -> ClientInfo:
        """Return what `method` declares to need, and known inputs if it recalibrates BatchNorm."""
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

    model: architectures, with commas between. shape: of an input, such as "3,32,32". labels: a csv
    of label counts. data: clients' examples. validation: examples that all clients have. public:
    examples whose inputs the server has. evaluate: examples to measure on. start: the weights that
    all clients started from. training: an optimiser, such as "adam".
    """

    models: Sequence[Path]
    model: str | None = None
    shape: str | None = None
    labels: Path | None = None
    data: Sequence[Path] = ()
    validation: Path | None = None
    public: Path | None = None
    evaluate: Path | None = None
    start: Path | None = None
    training: str = "adam"

    @property
    def all(self) -> list[Path]:
        single = (self.labels, self.validation, self.public, self.evaluate, self.start)
        return [*self.models, *self.data, *filter(None, single)]

    @property
    def words(self) -> list[str]:
        return self.model.split(",") if self.model else []

    def read(
        self, states: Sequence[Any], names: Sequence[str], models: Sequence[str]
    ) -> LocalModels:
        """Return state dicts as local models of architectures `models`; errors cite `names`."""
        if self.shape and not SHAPE.fullmatch(self.shape):
            raise FedreproError(f"--shape '{self.shape}' is not of the form 28,28 or 3,32,32")
        shape = [int(part) for part in self.shape.split(",")] if self.shape else None
        return LocalModels.from_state_dicts(states, model=list(models), shape=shape, names=names)


def read_context(files: ModelFiles) -> tuple[ModelContext, Examples | None, tuple[str, ...]]:
    """Read a command's files; return (models with context, examples to measure on, notes)."""
    count = len(files.models)
    if len(set(files.models)) < count:
        raise FedreproError("a file of a model is given twice; give each client's once")
    if files.labels and files.data:
        raise FedreproError("--clients-data gives the counts of --labels: leave out --labels")
    every = [*files.models, *([files.start] if files.start else [])]
    words = files.words + (files.words[:1] if files.start and len(files.words) > 1 else [])
    read = files.read([read_state(path) for path in every], [*map(str, every)], words)
    if files.start and read.widths:
        both = f"{files.start} and the models have {_widths(read.widths)}"
        raise FedreproError(f"{both}, and only networks of one architecture train from one start")

    def examples(path: Path | None) -> Examples | None:
        return read_examples(path, read.shape, read.classes) if path else None

    measured, validation = examples(files.evaluate), examples(files.validation)
    pooled, rows = None, [np.empty(0, np.int64)] * count
    counts = read_counts(files.labels, files.models) if files.labels else None
    if files.data:
        paths = paired(files.data, files.models)
        own = [read_examples(path, read.shape, read.classes) for path in paths]
        counts = np.stack([np.bincount(part.targets, minlength=read.classes) for part in own])
        inputs, targets = zip(*((part.inputs, part.targets) for part in own), strict=True)
        pooled, ends = Examples(torch.cat(inputs), torch.cat(targets)), np.cumsum(counts.sum(1))
        rows = np.split(np.arange(ends[-1]), ends[:-1])
    whole = counts is not None and counts.shape[1] == 1  # examples of all classes together
    counts = checked_counts(counts, count, 1 if whole else read.classes)
    tensors = {k: v[:count] for k, v in read.tensors.items()}
    models = replace(read, tensors=tensors, widths=read.widths and read.widths[:count])
    known: dict[str, Any] = {"training": parse_token("training", files.training)}
    if counts is not None:
        known |= {"example_counts": counts.sum(1)} | ({} if whole else {"label_counts": counts})
    if files.start:
        known["start"] = {k: v[-1:] for k, v in read.tensors.items()}
    if files.public:
        public = read_examples(files.public, read.shape, read.classes, labelled=False)
        known["public_inputs"] = public.inputs.numpy()
    for name, part in {"pooled": pooled, "validation": validation}.items():
        if part is not None:
            known[f"{name}_inputs"] = part.inputs.numpy()
            known[f"{name}_labels"] = part.targets.numpy()
    if (first := pooled or validation) is not None:
        held = [] if validation is None else [np.arange(len(validation.targets))] * count
        client_data = ClientData(first, rows, held, validation)
        network = network_of(read.model, read.shape, read.classes)
        settings = settings_of(known["training"])
        known["clients"] = Clients(read.model, network, settings, client_data, own=tensors)
    said = f"read as {models.model.token} on examples of shape {'×'.join(map(str, models.shape))}"
    about = f"{said} with {models.classes} classes, {models.clients} clients"
    if models.layers:
        about += f", layers in the order {', '.join(models.layers)}, ReLU between them"
    notes = (about, EQUAL) if counts is None else (about,)
    return ModelContext.of(models, **known), measured, notes

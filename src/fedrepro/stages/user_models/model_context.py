"""Read a user's models and data from files, and say which methods can be applied to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import NEEDS, ClientInfo, LocalModels, takes
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MIXED, MODULE
from fedrepro.core.registry import components, read_token
from fedrepro.core.spec import Component, Spec
from fedrepro.networks.predict import network_of
from fedrepro.networks.state_dicts import checked_counts
from fedrepro.stages.aggregate import recalibrates
from fedrepro.stages.trial_data import declared_part
from fedrepro.stages.user_models.user_files import (
    DataForm,
    paired_files,
    read_counts,
    read_files,
    read_inputs,
    read_state,
)
from fedrepro.training.examples import Examples
from fedrepro.training.federation.client_queries import CostCounter
from fedrepro.training.federation.clients import ClientData, Clients
from fedrepro.training.training_settings import settings_of

SHAPE = re.compile(r" *0*[1-9][0-9]{0,6} *(, *0*[1-9][0-9]{0,6} *)*")
OF_CLIENTS = (
    "pooled_inputs", "pooled_labels", "client_training", "client_evaluation", "client_inputs",
    "client_labels", "client_answers",
)  # fmt: skip
VALIDATING = ("client_validation", "client_validation_examples", "server_validation")
COUNTED = (
    "label counts (--labels, a row per client and a column per class, or --clients-data; in "
    "Python label_counts)"
)
# of information that a method may need: the field of ClientInfo that is there with it, and how
# users give it; other information cannot be given
WAYS = {
    **{need: (need, COUNTED) for need in ("example_counts", "label_counts")},
    **dict.fromkeys(OF_CLIENTS, ("pooled_inputs", "data of the clients (--clients-data)")),
    **dict.fromkeys(VALIDATING, ("validation_inputs", "validation examples (--validation)")),
    "public_inputs": ("public_inputs", "inputs of other data (--public)"),
    "start": ("start", "the common start (--start)"),
}
ALSO = "one for all, or "
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
        """Build a context; `sizes` are clients' numbers of examples, `known` fields of ClientInfo.

        If `models` have label counts, each client's sum is used in place of `sizes`.
        """
        counts = models.label_counts
        sizes = sizes if counts is None else counts.sum(1)
        known.setdefault("training", components("training")["adam"].spec())
        even = np.ones(models.clients, np.int64) if sizes is None else sizes
        info = ClientInfo(example_counts=even, label_counts=counts, **known)
        return ModelContext(models, info, one_start, sizes is not None)

    def lacking(self, item: Component) -> str:
        """Return why the method `item` cannot be applied (the end of a sentence), or ""."""
        meta, models = item.meta, self.models
        if meta["kind"] not in ("one_shot", "control"):
            return (
                f"is {meta['kind']}: only one-shot methods combine models that are trained already"
            )
        if meta["scenario"]:
            return "has its clients trained in a way of its own, so it combines other models"
        if models.widths and not meta["any_width"]:
            return f"combines models of one width, and these have {_widths(models.widths)}"
        if models.model.name == MIXED and not meta["any_width"]:
            return (
                "combines networks of one architecture, and these are "
                f"{models.model.component.meta['title']}: take an ensemble, or one that distils"
            )
        if not takes(item, models.model):
            return (
                f"combines {', '.join(sorted(meta['models']))} models, not '{models.model.token}'"
            )
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
    commas between. labels: counts of labels. data, validation: clients' examples. public: inputs of
    other data. evaluate: examples to measure on. label, divide, channels: how examples are read, as
    in `DataForm`. one_start: whether models trained from equal weights. in_order: files and rows
    without a client's name have the order of the models.
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
    label: str = "label"
    one_start: bool = False
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
        return DataForm(models.shape, models.classes, self.label, self.divide, self.channels)

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
    """Read a command's files; return (models with context, examples to measure on, notes).

    The context is what is known of clients; notes are on assumptions.

    Raises:
        FedreproError: files cannot be read, or do not fit each other.
    """
    names = [str(path) for path in files.models]
    if len(set(names)) < len(names):
        raise FedreproError("a file of a model is given twice; give each client's once")
    training, counts, said = read_token("training", files.training), None, list[str]()
    if files.labels:
        counts, said = read_counts(files.labels, files.models, files.in_order)
    every = [*files.models, *([files.start] if files.start else [])]
    read = files.read([read_state(path) for path in every], [*map(str, every)], files.words)
    if files.start and read.widths:
        raise FedreproError(
            f"{files.start} and the models have {_widths(read.widths)}, and only networks of one "
            "architecture train from one start"
        )
    paired = {"evaluate": [files.evaluate] if files.evaluate else []}
    for option, paths in (("--clients-data", files.data), ("--validation", files.validation)):
        paired[option], pairs = paired_files(option, paths, files.models, files.in_order)
        said += pairs
    examples, notes = read_files(paired, form := files.form(read))
    own, validation = examples["--clients-data"], examples["--validation"]
    held = _client_data(own, validation, len(names))
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
    if held:
        network = network_of(models.model, models.shape, models.classes)
        settings = settings_of(training)
        known["clients"] = Clients(models.model, network, settings, held, own=models.tensors)
    public = [read_inputs(files.public, form)] if files.public else []
    for name, parts in (("pooled", own), ("validation", validation), ("public", public)):
        if parts:
            joined = _joined(parts)
            known[f"{name}_inputs"] = joined.scaled(slice(None)).numpy()
            known[f"{name}_labels"] = joined.targets.numpy()
    sizes = counts[:, 0] if whole and counts is not None else None
    context = ModelContext.of(models, sizes, files.one_start or start is not None, **known)
    measured = examples["evaluate"][0] if files.evaluate else None
    form_of, module = "×".join(map(str, models.shape)), models.model.component.meta.get(MODULE)
    about = (
        f"read as {models.model.token} on examples of shape {form_of} with {models.classes} "
        f"classes, {models.clients} clients"
    )
    layers = f"{about}; layers in order: {', '.join(models.layers or ())}"
    return context, measured, (*((about,) if module else (layers, ASSUMED)), *said, *notes)


def _client_data(
    own: Sequence[Examples], validation: Sequence[Examples], count: int
) -> ClientData | None:
    """Return examples of `count` clients; one validation file alone is for every client."""
    for what, files, also in (("--clients-data", own, ""), ("--validation", validation, ALSO)):
        if len(files) not in (0, count, bool(also)):
            raise FedreproError(
                f"{what} names {len(files)} files for {count} models: give {also}one of each"
            )
    if not own and not validation:
        return None
    rows, at = _rows(own), _rows(validation)
    return ClientData(
        examples=_joined(own or validation),
        rows=rows or [np.empty(0, np.int64)] * count,
        validation=at * count if len(at) == 1 else at,
        validation_examples=_joined(validation) if validation else None,
    )


def _rows(parts: Sequence[Examples]) -> list[np.ndarray]:
    ends = np.cumsum([len(part.targets) for part in parts])
    return np.split(np.arange(ends[-1]), ends[:-1]) if parts else []


def _joined(parts: Sequence[Examples]) -> Examples:
    import torch

    inputs, targets = zip(*((part.inputs, part.targets) for part in parts), strict=True)
    return Examples(torch.cat(inputs), torch.cat(targets))

"""Own models with data that are known of them, from files: which methods apply, and why not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
from fedrepro.stages.trial_data import AT_CLIENTS
from fedrepro.stages.user_models.user_files import (
    DataForm,
    paired_files,
    read_counts,
    read_files,
    read_inputs,
    read_state,
)
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import ClientData, Clients
from fedrepro.training.training_settings import settings_of

DIGITS = re.compile("[0-9]{1,7}")
COUNTS = ("example_counts", "label_counts")
VALIDATING = ("client_validation", "client_validation_examples", "server_validation")
OF_CLIENTS = (
    "pooled_inputs", "pooled_labels", "client_training", "client_evaluation", "client_inputs",
    "client_labels", "client_answers",
)  # fmt: skip
COUNTED = (
    "label counts (--labels, a row per client and a column per class, or --clients-data; in "
    "Python label_counts)"
)
# what a method needs, and how it is given; needs that are not here cannot be
WAYS = {
    **dict.fromkeys(COUNTS, COUNTED),
    **dict.fromkeys(OF_CLIENTS, "data of the clients (--clients-data)"),
    **dict.fromkeys(VALIDATING, "validation examples (--validation)"),
    "public_inputs": "inputs of other data (--public)",
    "start": "the common start (--start)",
}
EQUAL = (
    "note: how many examples each client has is not known, so all weigh the same: --labels, with a "
    "column of their numbers or one for each class, says otherwise; in Python, label_counts"
)
OF_ONE_START = (
    "combines units in their places: models that did not train from one start often become one "
    "that is worse than each of them"
)


@dataclass(frozen=True)
class ModelContext:
    """Own models, and what is known of them: input of every method.

    Attributes:
        training: The procedure of methods that train.
        sizes: Training examples of each client, if their classes are not known.
        start: Tensors (1, *shape) that all models started from.
        one_start: Whether the user says that all started from one.
        held: The clients' data, if known.
        validation: Examples at the server.
        public: Examples at the server, whose labels are ignored.
    """

    models: LocalModels
    training: Spec
    sizes: np.ndarray | None = None
    start: Mapping[str, np.ndarray] | None = None
    one_start: bool = True
    held: ClientData | None = None
    validation: Examples | None = None
    public: Examples | None = None

    @staticmethod
    def of(models: LocalModels) -> ModelContext:
        """Make one of the models alone."""
        return ModelContext(models, components("training")["adam"].spec())

    @property
    def trained_on(self) -> bool:
        """Whether the clients' training examples are there."""
        return self.held is not None and any(len(rows) for rows in self.held.rows)

    def lacking(self, item: Component) -> str:
        """Say why a method cannot be applied, in words that follow its name; empty if it can."""
        meta, models = item.meta, self.models
        if meta["kind"] not in ("one_shot", "control"):
            return (
                f"is {meta['kind'].replace('_', '-')}: only one-shot methods combine models that "
                "are trained already; `fedrepro list methods` has them"
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
        given = {
            "example_counts": True,  # without them all clients weigh the same
            "label_counts": models.label_counts is not None,
            "start": self.start is not None,
            "public_inputs": self.public is not None,
            **dict.fromkeys(VALIDATING, self.validation is not None),
            **dict.fromkeys(OF_CLIENTS, self.trained_on),
        }
        lacks = [need for need in sorted(meta["needs"]) if not given.get(need)]
        ways = dict.fromkeys(WAYS.get(n, f"{NEEDS[n]}, which no file here holds") for n in lacks)
        return f"needs {'; '.join(ways)}" if ways else ""

    def doubts(self, item: Component) -> list[str]:
        """List reasons against a method that can be applied."""
        alike = "example_counts" in item.meta["needs"] and self._counts is None
        places = item.meta["one_start"] or item.meta["better_of_one_start"]
        doubt = f"note: '{item.name}' {OF_ONE_START}"
        return [EQUAL] * alike + [doubt] * (places and not self.one_start)

    @property
    def _counts(self) -> np.ndarray | None:
        """Training examples of each client, if they are known."""
        counts = self.models.label_counts
        return self.sizes if counts is None else counts.sum(1)

    def info(self, method: Spec) -> ClientInfo:
        """Collect what a method declared, and what its rule of BatchNorm reads."""
        needs, again, models = method.component.meta["needs"], recalibrates(method), self.models
        clients = None
        if needs & AT_CLIENTS or (again and self.trained_on):
            assert self.held is not None
            clients = Clients(
                model=models.model,
                network=network_of(models.model, models.shape, models.classes),
                settings=settings_of(self.training),
                data=self.held,
                method=method.name,
                needs=needs,
                own=models.tensors,
            )
        pooled = self.held.examples if self.held else None
        parts = {
            "example_counts": np.ones(models.clients, np.int64)
            if self._counts is None
            else self._counts,
            "label_counts": models.label_counts,
            "pooled_inputs": _inputs(pooled),
            "pooled_labels": pooled and pooled.targets.numpy(),
            "public_inputs": _inputs(self.public),
            "start": self.start,
        }
        kept: dict[str, Any] = {
            name: value
            for name, value in parts.items()
            if name in needs or (again and name == "public_inputs")
        }
        if "server_validation" in needs and self.validation:
            kept |= {"validation_inputs": _inputs(self.validation)}
            kept |= {"validation_labels": self.validation.targets.numpy()}
        return ClientInfo(self.training, clients=clients, **kept)


def _widths(widths: Sequence[Sequence[int]]) -> str:
    """Name the hidden units of some models, in words."""
    kinds = dict.fromkeys("-".join(map(str, own)) for own in widths)
    return f"hidden layers of {' and '.join(list(kinds)[:3])} units"


def _inputs(examples: Examples | None) -> np.ndarray | None:
    return None if examples is None else examples.scaled(slice(None)).numpy()


@dataclass(frozen=True)
class ModelFiles:
    """Files and options of a command.

    `models` are a state dict of each client; `model`, `shape` and `layers` are lists with commas
    between, as of `LocalModels.from_state_dicts`; `label`, `divide`, `channels` as of `DataForm`.
    `in_order` says that files and rows without a client's name have the order of the models.
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
        """Every file that is read."""
        single = (self.labels, self.public, self.evaluate, self.start)
        return [*self.models, *self.data, *self.validation, *filter(None, single)]

    def form(self, models: LocalModels) -> DataForm:
        """Return how examples are read for these models."""
        return DataForm(models.shape, models.classes, self.label, self.divide, self.channels)

    def read(
        self, states: Sequence[Any], names: Sequence[str], models: Sequence[str]
    ) -> LocalModels:
        """Stack state dicts as these options say; `models` name the network of all or each."""
        shape = None
        if self.shape:
            parts = self.shape.split(",")
            if not all(DIGITS.fullmatch(part.strip()) and int(part) for part in parts):
                raise FedreproError(f"--shape '{self.shape}' is not of the form 28,28 or 3,32,32")
            shape = tuple(map(int, parts))
        layers = self.layers.split(",") if self.layers else None
        return LocalModels.from_state_dicts(
            states, model=list(models), shape=shape, layers=layers, names=names
        )


def read_context(files: ModelFiles) -> tuple[ModelContext, Examples | None, tuple[str, ...]]:
    """Read all files; return them for methods, examples to measure on, and assumptions in words.

    Raises:
        FedreproError: For files that cannot be read, or do not fit each other.
    """
    names = [str(path) for path in files.models]
    if len(set(names)) < len(names):
        raise FedreproError("a file of a model is given twice; give each client's once")
    training = read_token("training", files.training)
    counts, assumptions = None, tuple[str, ...]()
    if files.labels:
        counts, assumptions = read_counts(files.labels, files.models, files.in_order)
    beyond = [files.start] if files.start else []
    read = files.read(
        [read_state(path) for path in (*files.models, *beyond)],
        [*names, *map(str, beyond)],
        files.model.split(",") if files.model else (),
    )
    if beyond and read.widths:
        raise FedreproError(
            f"{files.start} and the models have {_widths(read.widths)}: only networks of one "
            "architecture train from one start, so leave out --start or give theirs"
        )
    start = {k: v[-1:] for k, v in read.tensors.items()} if beyond else None
    form, pairs, of_each = files.form(read), [], {}
    for what, option, paths in (
        ("data", "--clients-data", files.data),
        ("validation", "--validation", files.validation),
    ):
        of_each[what], note = paired_files(option, paths, files.models, files.in_order)
        pairs += note
    evaluated = [files.evaluate] if files.evaluate else []
    examples, notes = read_files({**of_each, "evaluate": evaluated}, form)
    held = client_data(examples["data"], examples["validation"], names)
    if counts is not None:
        counts = checked_counts(counts, len(names), read.classes if counts.shape[1] > 1 else 1)
    if files.data:
        own = [part.targets.numpy() for part in examples["data"]]
        found = np.stack([np.bincount(labels, minlength=read.classes) for labels in own])
        stated = found if counts is None else counts
        due = found if stated.shape[1] > 1 else found.sum(1, keepdims=True)
        if not np.array_equal(stated, due):
            at = int(np.flatnonzero((stated != due).any(axis=1))[0])
            raise FedreproError(
                f"--labels gives {names[at]} {stated[at].sum()} examples and --clients-data "
                f"{due[at].sum()}, or other ones of a class: leave out --labels, which follow from "
                "the data"
            )
        counts = found
    sizes = None
    if counts is not None and counts.shape[1] == 1:  # of each client, of all classes together
        sizes, counts = counts[:, 0], None
    models = replace(
        read,
        tensors={k: v[: len(names)] for k, v in read.tensors.items()},
        label_counts=counts,
        widths=read.widths and read.widths[: len(names)],
    )
    ground = ModelContext(
        models,
        training,
        sizes=sizes,
        start=start,
        one_start=files.one_start or start is not None,
        held=held,
        validation=_joined(examples["validation"]) if files.validation else None,
        public=read_inputs(files.public, form) if files.public else None,
    )
    measured = examples["evaluate"][0] if evaluated else None
    return ground, measured, (*assumed(models), *assumptions, *pairs, *notes)


ASSUMED = (
    "assumed: weights of fully connected layers are (out, in), as PyTorch keeps them, and ReLU "
    "stands between layers"
)


def assumed(models: LocalModels) -> tuple[str, ...]:
    """Say how models were read, and what a state dict leaves open."""
    shape, module = "×".join(map(str, models.shape)), models.model.component.meta.get(MODULE)
    layers = "" if module else f"; layers in order: {', '.join(models.layers or ())}"
    read = (
        f"read as {models.model.token} on examples of shape {shape} with {models.classes} "
        f"classes, {models.clients} clients{layers}"
    )
    return (read,) if module else (read, ASSUMED)


def client_data(
    own: Sequence[Examples], validation: Sequence[Examples], names: Sequence[str]
) -> ClientData | None:
    """Collect the clients' data: a file for each, or none; to validate one for all, or one each."""
    count = len(names)
    for what, files, also in (
        ("--clients-data", own, ""),
        ("--validation", validation, "one for all, or "),
    ):
        if len(files) not in (0, count, bool(also)):
            raise FedreproError(
                f"{what} names {len(files)} files for {count} models: give {also}one of each "
                "client, in the order of the models"
            )
    if not own and not validation:
        return None
    at = _rows_of(validation)
    return ClientData(
        examples=_joined(own or validation),
        rows=_rows_of(own) or [np.empty(0, np.int64)] * count,
        validation=at * count if len(at) == 1 else at,
        validation_examples=_joined(validation) if validation else None,
    )


def _joined(parts: Sequence[Examples]) -> Examples:
    """Concatenate examples of several files."""
    import torch

    return Examples(
        torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    )


def _rows_of(parts: Sequence[Examples]) -> list[np.ndarray]:
    """Return the rows of each file among the concatenated ones."""
    ends = np.cumsum([0, *(len(part.targets) for part in parts)])
    return [np.arange(a, b) for a, b in pairwise(ends)]

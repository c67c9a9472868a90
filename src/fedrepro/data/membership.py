"""From a partition component to `partition.parquet` and back: who holds which examples.

A component sees the training labels only and gives every example an owner. Here every client is
checked to hold something, validation examples follow the training ones, and all trials become one
table. A trial's rows depend on the seed and the trial alone, not on which trials are made with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.artifacts import damaged, read_provenance, read_table, write_table
from fedrepro.data.prepared import Prepared
from fedrepro.data.stratify import apportion
from fedrepro.errors import FedreproError
from fedrepro.rng import Rng
from fedrepro.spec import Spec

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "partition"
SPLITS = ("train", "validation")


@dataclass(frozen=True)
class Split:
    """What a partition component returns.

    owner: int32 (N,), the client of each training example. redraws: draws that were discarded.
    """

    owner: np.ndarray
    clients: int
    redraws: int = 0


@dataclass(frozen=True)
class Membership:
    """The examples of each client of one trial: sorted int64 indices into the data set's splits."""

    train: list[np.ndarray]
    validation: list[np.ndarray]

    @property
    def clients(self) -> int:
        return len(self.train)

    def label_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Training examples of each client and class: int64 (J, K); labels int64 (N,)."""
        counts = [np.bincount(labels[rows], minlength=classes) for rows in self.train]
        return np.array(counts, np.int64).reshape(self.clients, classes)


def require_examples(labels: np.ndarray, clients: int, each: int = 1) -> None:
    """An error if the training examples cannot give every client `each` of them."""
    if clients > labels.size:
        raise FedreproError(
            f"{clients} clients are more than the {labels.size} training examples: "
            "lower `clients`, or choose a larger data set"
        )
    if clients * each > labels.size:
        raise FedreproError(
            f"{labels.size} training examples cannot give each of {clients} clients {each}: "
            "lower `clients` or `min_examples`, or choose a larger data set"
        )


def shuffled_by_class(labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Example indices ordered by class, in random order within each class: int64 (N,)."""
    order = generator.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


def build_partition(spec: Spec, prepared: Prepared, trials: range, seed: int) -> pa.Table:
    """The partition of these trials: columns trial, client, split, index, sorted in that order.

    Types: int32, int32, string (train or validation), int32. Validation examples go to the
    clients in proportion to their training examples, class by class. Draws discarded per trial
    are in the table's provenance (`redraws`), which `write_partition` keeps.
    Errors: FedreproError for more clients than examples, a client without training examples,
    or a class without any.
    """
    import pyarrow as pa

    labels = np.asarray(prepared.labels("train"))
    others = np.asarray(prepared.labels("validation"))
    _require_classes(labels, prepared)
    parts, redraws = [], []
    for trial in trials:
        rng = Rng(seed, trial=trial)
        split = spec.component.fn(labels, len(prepared.classes), rng, **spec.values)
        _require_full_clients(split, spec, trial)
        followers = _follow(labels, split, others, len(prepared.classes), rng)
        parts.append(_rows(trial, split.owner, followers))
        redraws.append(split.redraws)
    trial_, client, code, index = np.concatenate(parts, axis=1) if parts else np.empty((4, 0), int)
    names = pa.DictionaryArray.from_arrays(pa.array(code, pa.int8()), list(SPLITS))
    table = pa.table(
        {
            "trial": pa.array(trial_, pa.int32()),
            "client": pa.array(client, pa.int32()),
            "split": names.cast(pa.string()),
            "index": pa.array(index, pa.int32()),
        }
    )
    found = {"trials": list(trials), "redraws": redraws}
    return table.replace_schema_metadata({"fedrepro.provenance": json.dumps(found)})


def write_partition(path: Path | str, table: pa.Table, provenance: Mapping[str, Any]) -> None:
    """Write a table of `build_partition`, its own provenance added to the one given."""
    write_table(path, table, KIND, {**provenance, **read_provenance(table)})


def read_partition(path: Path | str, trial: int) -> Membership:
    """Who holds what in one trial. Errors: FedreproError for a damaged file or an absent trial."""
    import pyarrow.compute as pc

    table = read_table(path, KIND)
    table = table.filter(pc.equal(table["trial"], trial))
    if not table.num_rows:
        raise FedreproError(f"{path} has no trial {trial}: it was made for other trials")
    client = table["client"].to_numpy()
    index = table["index"].to_numpy().astype(np.int64)
    is_train = pc.equal(table["split"], "train").to_numpy()
    clients = int(client.max()) + 1
    train = _by_client(client[is_train], index[is_train], clients)
    if min(map(len, train)) == 0:
        raise damaged(path, f"a client of trial {trial} has no training examples")
    return Membership(train, _by_client(client[~is_train], index[~is_train], clients))


def _by_client(client: np.ndarray, index: np.ndarray, clients: int) -> list[np.ndarray]:
    # rows are sorted by client, so each client's are together
    return np.split(index, np.cumsum(np.bincount(client, minlength=clients))[:-1])


def _require_classes(labels: np.ndarray, prepared: Prepared) -> None:
    present = np.bincount(labels, minlength=len(prepared.classes)) > 0
    missing = [name for name, here in zip(prepared.classes, present, strict=True) if not here]
    if missing:
        raise FedreproError(
            f"data set '{prepared.token}' has no training example of class {', '.join(missing)}, "
            "so no client could learn it: set fewer examples aside, or choose other data"
        )


def _require_full_clients(split: Split, spec: Spec, trial: int) -> None:
    sizes = np.bincount(split.owner, minlength=split.clients)
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        raise FedreproError(
            f"partition '{spec.token}', trial {trial}: client {empty[0]} has no training examples "
            f"({empty.size} of {split.clients} clients are empty): lower `clients`, "
            "or choose a partition that spreads the examples more evenly"
        )


def _follow(
    labels: np.ndarray, split: Split, others: np.ndarray, classes: int, rng: Rng
) -> np.ndarray:
    """Owner of each validation example, per class in proportion to training ones: int32 (M,)."""
    generator = rng.stream("partition-validation")
    owner = np.empty(others.size, np.int32)
    for label in range(classes):
        rows = generator.permutation(np.flatnonzero(others == label))
        held = np.bincount(split.owner[labels == label], minlength=split.clients)
        shares = apportion(rows.size, held, generator)
        owner[rows] = np.repeat(np.arange(split.clients, dtype=np.int32), shares)
    return owner


def _rows(trial: int, train: np.ndarray, validation: np.ndarray) -> np.ndarray:
    """Rows of one trial, sorted: int64 (4, n) with trial, client, code of the split, index."""
    client = np.concatenate([train, validation]).astype(np.int64)
    code = np.repeat([0, 1], [train.size, validation.size])
    index = np.concatenate([np.arange(train.size), np.arange(validation.size)])
    # indices ascend within each split already, and a stable sort keeps them so
    order = np.argsort(client, kind="stable")
    return np.stack([np.full(client.size, trial), client[order], code[order], index[order]])

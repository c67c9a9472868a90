"""Inputs and results of partition components, and ways to deal examples out to clients.

A partition component is a function `fn(examples, rng, **parameters) -> Assignment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.stratified_samples_and_splits import apportion

Clients = Annotated[int, Arg("number of clients", unit="clients", least=1)]
Alpha = Annotated[
    float, Arg("concentration: the smaller, the more clients differ", above=0, most=1e6)
]
MinExamples = Annotated[
    int,
    Arg("a draw that leaves a client with fewer examples is repeated", unit="examples", least=1),
]
MaxRedraws = Annotated[int, Arg("repeated draws after which an error is raised", least=0)]

UNASSIGNED = -1  # the owner of an example that no client holds


@dataclass(frozen=True)
class TrainingLabels:
    """The labels and natural groups of training examples, by which a partition deals them out.

    labels: int64 (N,), 0 .. classes-1; regression targets count as one class. groups: int32 (N,),
    an index into group_names for each example (its writer, speaker, …), -1 if it has none.
    """

    labels: np.ndarray
    classes: int
    groups: np.ndarray
    group_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.labels.size)

    def taken(self, rows: np.ndarray) -> TrainingLabels:
        """Return the labels and groups of only the examples with indices `rows`, int64 (n,)."""
        return replace(self, labels=self.labels[rows], groups=self.groups[rows])


@dataclass(frozen=True)
class Assignment:
    """The client that owns each training example: the result of a partition's function.

    owner: int32 (N,), 0 .. clients-1, or -1 (UNASSIGNED). clients: their number. redraws: how often
    the division was drawn again. groups: int32 (clients,), each client's natural group, if clients
    are groups. noise: float64 (clients,), variance of noise added to inputs, if any.
    """

    owner: np.ndarray
    clients: int
    redraws: int = 0
    groups: np.ndarray | None = None
    noise: np.ndarray | None = None

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of training examples of each client: int64 (clients,)."""
        return np.bincount(self.owner[self.owner != UNASSIGNED], minlength=self.clients)


def require_examples(examples: TrainingLabels, clients: int, each: int = 1) -> None:
    """Raise FedreproError if there are fewer than `each` training examples per client."""
    if clients * each > len(examples):
        said = f"{len(examples)} training examples cannot give each of {clients} clients {each}"
        raise FedreproError(f"{said}: lower `clients` or `min_examples`, or take a larger data set")


def shuffled_by_class(labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return example indices ordered by class, in random order within each class: int64 (N,)."""
    order = generator.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


def never_full(
    name: str, draws: int, rng: RngKey, clients: int, least: int, examples: int, alpha: float
) -> FedreproError:
    """Return an error: each of `draws` random divisions left a client under `least` examples.

    It names partition `name`, rng.trial and the number of all `examples`, and proposes fewer
    `clients` or a larger `alpha`.
    """
    said = f"{draws} draws of trial {rng.trial} all left one of {clients} clients with fewer than"
    fix = f"lower `clients` or `min_examples`, or raise `alpha` ({alpha:g})"
    return FedreproError(f"partition '{name}': {said} {least} of {examples} examples: {fix}")


def deal_counts(examples: TrainingLabels, counts: np.ndarray, rng: RngKey) -> np.ndarray:
    """Deal out all examples at random, counts[k, j] of class k to client j: owners, int32 (N,)."""
    owner = np.empty(len(examples), np.int32)
    holders = np.tile(np.arange(counts.shape[1], dtype=np.int32), len(counts))
    order = shuffled_by_class(examples.labels, rng.stream("partition"))
    owner[order] = np.repeat(holders, counts.reshape(-1))
    return owner


def deal_sizes(sizes: np.ndarray, rng: RngKey) -> np.ndarray:
    """Deal out N = sum(sizes) examples at random, sizes[j] to client j: owners, int32 (N,)."""
    owner = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
    return rng.stream("partition").permutation(owner)


def deal_classes(
    examples: TrainingLabels, held: Sequence[Sequence[int]], rng: RngKey
) -> np.ndarray:
    """Give the examples of the classes in held[j] to client j; return the owners, int32 (N,).

    A class of several clients is divided among them at random, in parts that differ by one example
    at most; examples of a class of no client are UNASSIGNED.
    """
    generator = rng.stream("partition")
    owner = np.full(len(examples), UNASSIGNED, np.int32)
    for label in range(examples.classes):
        holders = np.array([j for j, classes in enumerate(held) if label in classes], np.int32)
        rows = generator.permutation(np.flatnonzero(examples.labels == label))
        if holders.size:
            parts = apportion(rows.size, np.ones(holders.size, np.int64), generator)
            owner[rows] = np.repeat(holders, parts)
    return owner


def distances(counts: np.ndarray) -> np.ndarray:
    """Return each client's total variation TV_j = 1/2 sum_k |n_jk / n_j - n_k / n|: float64 (J,).

    `counts`, int64 (J, K), are examples n_jk of client j and class k; n_j, n_k and n are sums.
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    return np.asarray(np.abs(shares - counts.sum(axis=0) / counts.sum()).sum(axis=1) / 2)


def skew_of(counts: np.ndarray) -> dict[str, float]:
    """Return measures of how clients differ, from `counts` by client and class, int64 (J, K).

    clients: J. size_min, size_median, size_max: examples of a client. classes_min, classes_max:
    classes of a client. distance_mean, distance_max: total variation (`distances`), 0 to 1.
    """
    sizes, distance, classes = counts.sum(axis=1), distances(counts), (counts > 0).sum(axis=1)
    return {
        "clients": len(counts),
        "size_min": int(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": int(sizes.max()),
        # rounded, so that a sum in another order gives the same number
        "distance_mean": round(float(distance.mean()), 9),
        "distance_max": round(float(distance.max()), 9),
        "classes_min": int(classes.min()),
        "classes_max": int(classes.max()),
    }

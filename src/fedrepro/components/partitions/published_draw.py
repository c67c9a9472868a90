"""Dirichlet partitions image by image as published code draws them, by its generator and seeds.

Q. Li et al. Federated Learning on Non-IID Data Silos: An Experimental Study. ICDE 2022 (NIID-Bench,
whose sampler DENSE and FedLPA took over); D. Jhunjhunwala, S. Wang, G. Joshi. FedFisher. AISTATS
2024.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.assignment import (
    Alpha,
    Assignment,
    Clients,
    MaxRedraws,
    MinExamples,
    TrainingLabels,
    never_full,
    require_examples,
)


@register("partition", "published_draw", version=1, title="Dirichlet, as published")
def published_draw(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    alpha: Alpha = 0.5,
    code: Annotated[
        Literal["niid_bench", "fedfisher"],
        Arg(
            "niid_bench: for each class shares of the clients, none for one that holds its even "
            "part; fedfisher: for each client shares of the classes"
        ),
    ] = "niid_bench",
    first_seed: Annotated[int, Arg("of trial 0, the next ones follow", least=0, most=2**31)] = 0,
    one_draw: Annotated[bool, Arg("all trials have that of trial 0")] = False,
    min_examples: MinExamples = 10,
    max_redraws: MaxRedraws = 10_000,
) -> Assignment:
    """`dirichlet` with balance, or `dirichlet_clients`, from NumPy's generator of before 1.17.

    That generator's numbers never change, so that of a publisher's data in their order each client
    holds the very images of the papers. Trial t has the seed `first_seed` + t, and where a run has
    another seed than 0 a million more for each. Source: the code of both. Repeated draws go on in
    the stream, and are counted.
    """
    require_examples(examples, clients, min_examples)
    seed = first_seed + (0 if one_draw else rng.trial) + 1_000_000 * rng.seed
    generator = np.random.RandomState(seed % 2**32)
    dealt = {"niid_bench": _over_clients, "fedfisher": _over_classes}[code]
    for redraws in range(max_redraws + 1):
        owner = dealt(examples, clients, alpha, generator)
        if owner is not None and np.bincount(owner, minlength=clients).min() >= min_examples:
            return Assignment(owner, clients, redraws=redraws)
    raise never_full(
        "published_draw", max_redraws + 1, rng, clients, min_examples, len(examples), alpha
    )


def _over_clients(
    examples: TrainingLabels, clients: int, alpha: float, generator: np.random.RandomState
) -> np.ndarray | None:
    """Deal owners int32 (N,), or None if all shares of a class came out as nothing."""
    owner = np.empty(len(examples), np.int32)
    held = np.zeros(clients)
    for label in range(examples.classes):
        rows = np.flatnonzero(examples.labels == label)
        generator.shuffle(rows)
        share = generator.dirichlet(np.repeat(alpha, clients))
        share = share * (held < len(examples) / clients)
        if not share.sum() > 0:
            return None
        held += _deal(owner, rows, share / share.sum())
    return owner


def _over_classes(
    examples: TrainingLabels, clients: int, alpha: float, generator: np.random.RandomState
) -> np.ndarray | None:
    """Deal owners int32 (N,), or None if all shares of a class came out as nothing."""
    draw = partial(generator.dirichlet, np.repeat(alpha, examples.classes))
    shares = np.array([draw() for _ in range(clients)])
    if not (shares.sum(axis=0) > 0).all():
        return None
    owner = np.empty(len(examples), np.int32)
    for label, share in enumerate((shares / shares.sum(axis=0)).T):
        rows = np.flatnonzero(examples.labels == label)
        generator.shuffle(rows)
        _deal(owner, rows, share)
    return owner


def _deal(owner: np.ndarray, rows: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Write who owns these rows, cut in order by shares (clients,): how many each gets, int64."""
    cuts = (np.cumsum(share) * rows.size).astype(int)
    cuts[-1] = rows.size
    counts = np.diff(cuts, prepend=0)
    owner[rows] = np.repeat(np.arange(share.size, dtype=np.int32), counts)
    return counts

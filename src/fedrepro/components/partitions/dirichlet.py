"""Partitions by Dirichlet shares, drawn per class or per client, also by the papers' own code.

Sources: PFNM (M. Yurochkin et al., ICML 2019, section 4), FedFisher (D. Jhunjhunwala et al.,
AISTATS 2024, by its code), NIID-Bench (Q. Li et al., ICDE 2022); DENSE and FedLPA use its sampler.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data import client_assignment_and_skew as skew

BLOCK = 1 << 18  # numbers drawn at a time when many draws are needed: a few MB


@register("partition", "dirichlet", version=1, title="Dirichlet")
def dirichlet(
    examples: skew.TrainingLabels,
    rng: RngKey,
    *,
    clients: skew.Clients,
    alpha: skew.Alpha = 0.2,
    min_examples: skew.MinExamples = 10,
    balance: Annotated[
        bool, Arg("a client with N / clients examples gets none of later classes")
    ] = False,
    max_redraws: skew.MaxRedraws = 10_000,
) -> skew.Assignment:
    """Split each class k over the J clients by shares p_k ~ Dir_J(alpha).

    Draws that leave a client with fewer than `min_examples` are repeated. Source: PFNM, section 4,
    with alpha = 0.2. The paper mentions neither a least number of examples nor balance; the
    authors' code repeats until every client has 10 examples, balances, and has alpha = 0.5.
    """
    skew.require_examples(examples, clients, min_examples)
    available = np.bincount(examples.labels, minlength=examples.classes)
    streams = rng.stream("partition-gamma"), rng.stream("partition-uniform")
    attempts, most = 0, max(1, BLOCK // (available.size * clients))
    while attempts <= max_redraws:
        # few at first, since few are usually needed
        count = min(most, max(8, attempts), max_redraws + 1 - attempts)
        block = _drawn_counts(count, available, clients, alpha, balance, *streams)
        good = np.flatnonzero(block.sum(axis=1).min(axis=1) >= min_examples)
        if good.size:
            owner = skew.deal_counts(examples, block[good[0]], rng)
            return skew.Assignment(owner, clients, redraws=attempts + int(good[0]))
        attempts += len(block)
    raise skew.never_full(
        "dirichlet", max_redraws + 1, rng, clients, min_examples, len(examples), alpha
    )


def _drawn_counts(
    count: int,
    available: np.ndarray,
    clients: int,
    alpha: float,
    balance: bool,
    gamma: np.random.Generator,
    uniform: np.random.Generator,
) -> np.ndarray:
    """Draw `count` times numbers of examples by class and client: int64 (count, K, J)."""
    shape = count, available.size, clients
    grown = gamma.standard_gamma(alpha + 1, shape)
    scores = alpha * np.log(grown) + np.log1p(-uniform.random(shape))
    counts = np.empty(shape, np.int64)
    held = np.zeros((count, clients), np.int64)
    for label, examples in enumerate(available):
        score = scores[:, label]
        if balance:
            score = np.where(held < available.sum() / clients, score, -np.inf)
        with np.errstate(over="ignore"):
            weight = np.exp((score - score.max(axis=1, keepdims=True)) / alpha)
        share = weight / weight.sum(axis=1, keepdims=True)  # a Dirichlet draw over the clients
        bounds = np.rint(examples * np.cumsum(share, axis=1)).astype(np.int64)
        bounds[:, -1] = examples
        counts[:, label] = np.diff(bounds, axis=1, prepend=0)
        held += counts[:, label]
    return counts


@register("partition", "dirichlet_clients", version=1, title="Dirichlet, per client")
def dirichlet_clients(
    examples: skew.TrainingLabels,
    rng: RngKey,
    *,
    clients: skew.Clients,
    alpha: skew.Alpha = 0.1,
    min_examples: skew.MinExamples = 10,
    max_redraws: skew.MaxRedraws = 10_000,
) -> skew.Assignment:
    """Draw q_i ~ Dir_K(alpha) over classes per client i, who gets q_ik / sum_i q_ik of class k.

    K is the number of classes. Partition `dirichlet` draws over clients for each class instead;
    papers call both "Dirichlet alpha". Source: the code of FedFisher, which requires no least
    number of examples. Draws that leave a client with fewer than `min_examples` are repeated.
    """
    skew.require_examples(examples, clients, min_examples)
    available = np.bincount(examples.labels, minlength=examples.classes)
    gamma, uniform = rng.stream("partition-gamma"), rng.stream("partition-uniform")
    for redraws in range(max_redraws + 1):
        shape = (clients, examples.classes)
        # log g with g ~ Gamma(alpha), which itself underflows where alpha is small
        grown = np.log(gamma.standard_gamma(alpha + 1, shape))
        scores = grown + np.log1p(-uniform.random(shape)) / alpha
        for axis in (1, 0):  # shares of each client over classes, then of each class over clients
            top = scores.max(axis=axis, keepdims=True)
            scores = scores - top - np.log(np.exp(scores - top).sum(axis=axis, keepdims=True))
        shares = np.exp(scores)
        bounds = np.rint(available * np.cumsum(shares, axis=0)).astype(np.int64)
        bounds[-1] = available
        counts = np.diff(bounds, axis=0, prepend=0)
        if counts.sum(axis=1).min() >= min_examples:
            owner = skew.deal_counts(examples, counts.T, rng)
            return skew.Assignment(owner, clients, redraws=redraws)
    raise skew.never_full(
        "dirichlet_clients", max_redraws + 1, rng, clients, min_examples, len(examples), alpha
    )


@register("partition", "published_draw", version=1, title="Dirichlet, as published")
def published_draw(
    examples: skew.TrainingLabels,
    rng: RngKey,
    *,
    clients: skew.Clients,
    alpha: skew.Alpha = 0.5,
    code: Annotated[
        Literal["niid_bench", "fedfisher"],
        Arg(
            "whose code draws. niid_bench: for each class, shares of the clients, and none for a "
            "client that already holds N / clients examples; fedfisher: for each client, shares "
            "of the classes"
        ),
    ] = "niid_bench",
    first_seed: Annotated[
        int, Arg("seed of trial 0; the next ones follow", least=0, most=2**31)
    ] = 0,
    one_draw: Annotated[bool, Arg("all trials have the partition of trial 0")] = False,
    min_examples: skew.MinExamples = 10,
    max_redraws: skew.MaxRedraws = 10_000,
) -> skew.Assignment:
    """Partition by Dirichlet shares with the random draws of NIID-Bench's or FedFisher's own code.

    Draws come from NumPy's old generator (before 1.17), whose numbers never change. So if the data
    set is in its publisher's order, each client gets the same images as in the papers. Trial t has
    the seed `first_seed` + t, plus a million times the seed of the run. Draws that leave a client
    with fewer than `min_examples` are repeated.
    """
    skew.require_examples(examples, clients, min_examples)
    seed = first_seed + (0 if one_draw else rng.trial) + 1_000_000 * rng.seed
    generator = np.random.RandomState(seed % 2**32)
    dealt = {"niid_bench": _over_clients, "fedfisher": _over_classes}[code]
    for redraws in range(max_redraws + 1):
        owner = dealt(examples, clients, alpha, generator)
        if owner is not None and np.bincount(owner, minlength=clients).min() >= min_examples:
            return skew.Assignment(owner, clients, redraws=redraws)
    raise skew.never_full(
        "published_draw", max_redraws + 1, rng, clients, min_examples, len(examples), alpha
    )


def _over_clients(
    examples: skew.TrainingLabels, clients: int, alpha: float, generator: np.random.RandomState
) -> np.ndarray | None:
    """Draw shares of each class over clients; return each example's client int32 (N,)."""
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
    examples: skew.TrainingLabels, clients: int, alpha: float, generator: np.random.RandomState
) -> np.ndarray | None:
    """Draw shares of each client over classes; return each example's client int32 (N,)."""
    concentration = np.repeat(alpha, examples.classes)
    shares = np.array([generator.dirichlet(concentration) for _ in range(clients)])
    if not (shares.sum(axis=0) > 0).all():
        return None
    owner = np.empty(len(examples), np.int32)
    for label, share in enumerate((shares / shares.sum(axis=0)).T):
        rows = np.flatnonzero(examples.labels == label)
        generator.shuffle(rows)
        _deal(owner, rows, share)
    return owner


def _deal(owner: np.ndarray, rows: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Write into `owner[rows]` clients in order, by their `share` (J,); return clients' counts."""
    cuts = (np.cumsum(share) * rows.size).astype(int)
    cuts[-1] = rows.size
    counts = np.diff(cuts, prepend=0)
    owner[rows] = np.repeat(np.arange(share.size, dtype=np.int32), counts)
    return counts

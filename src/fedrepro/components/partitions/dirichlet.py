"""Clients with unlike shares of each class, drawn from a symmetric Dirichlet distribution.

M. Yurochkin et al. Bayesian Nonparametric Federated Learning of Neural Networks. ICML 2019,
section 4 (the heterogeneous partition).
"""

from __future__ import annotations

from typing import Annotated

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
    deal_counts,
    never_full,
    require_examples,
)

BLOCK = 1 << 18  # numbers drawn at a time when many draws are needed: a few MB


@register("partition", "dirichlet", version=1, title="Dirichlet")
def dirichlet(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    alpha: Alpha = 0.2,
    min_examples: MinExamples = 10,
    balance: Annotated[
        bool, Arg("a client that holds its even part (N / clients) gets nothing of later classes")
    ] = False,
    max_redraws: MaxRedraws = 10_000,
) -> Assignment:
    """For each class k, shares p_k ~ Dir_J(alpha) of its examples go to the J clients.

    Source: PFNM, section 4, with alpha = 0.2. The text neither asks for a least number of examples
    nor for balance; the authors' code repeats draws until every client has 10, has alpha = 0.5 by
    default, and balances. Repeated draws are counted in the result.
    """
    require_examples(examples, clients, min_examples)
    available = np.bincount(examples.labels, minlength=examples.classes)
    draw = _Counts(available, clients, alpha, balance, rng)
    attempts = 0
    while attempts <= max_redraws:
        block = draw.next(min(draw.block(attempts), max_redraws + 1 - attempts))
        good = np.flatnonzero(block.sum(axis=1).min(axis=1) >= min_examples)
        if good.size:
            owner = deal_counts(examples, block[good[0]], rng)
            return Assignment(owner, clients, redraws=attempts + int(good[0]))
        attempts += len(block)
    raise never_full("dirichlet", max_redraws + 1, rng, clients, min_examples, len(examples), alpha)


class _Counts:
    """Draws of how many examples of each class each client gets.

    The two streams are used in order, so that the n-th draw is the same however many are made
    at a time.
    """

    def __init__(
        self, available: np.ndarray, clients: int, alpha: float, balance: bool, rng: RngKey
    ) -> None:
        self.available, self.clients, self.alpha, self.balance = available, clients, alpha, balance
        self.gamma = rng.stream("partition-gamma")
        self.uniform = rng.stream("partition-uniform")

    def block(self, attempts: int) -> int:
        """How many to draw at once: few at first, since most settings need few."""
        most = max(1, BLOCK // (self.available.size * self.clients))
        return min(most, max(8, attempts))

    def next(self, count: int) -> np.ndarray:
        """Make the next draws: int64 (count, classes, clients), which sum to what there is."""
        scores = self._scores((count, self.available.size, self.clients))
        counts = np.empty(scores.shape, np.int64)
        held = np.zeros((count, self.clients), np.int64)
        even = self.available.sum() / self.clients
        for label, examples in enumerate(self.available):
            score = scores[:, label]
            if self.balance:
                score = np.where(held < even, score, -np.inf)
            bounds = np.rint(examples * np.cumsum(self._shares(score), axis=1)).astype(np.int64)
            bounds[:, -1] = examples
            counts[:, label] = np.diff(bounds, axis=1, prepend=0)
            held += counts[:, label]
        return counts

    def _scores(self, shape: tuple[int, ...]) -> np.ndarray:
        """alpha · log g with g ~ Gamma(alpha), as alpha · log Gamma(alpha + 1) + log U.

        A small alpha makes g itself underflow, often for all clients at once (0 / 0).
        """
        grown = self.gamma.standard_gamma(self.alpha + 1, shape)
        return self.alpha * np.log(grown) + np.log1p(-self.uniform.random(shape))

    def _shares(self, score: np.ndarray) -> np.ndarray:
        """p = g / sum of g over the clients (the last axis): a Dirichlet draw."""
        with np.errstate(over="ignore"):
            weight = np.exp((score - score.max(axis=1, keepdims=True)) / self.alpha)
        share: np.ndarray = weight / weight.sum(axis=1, keepdims=True)
        return share

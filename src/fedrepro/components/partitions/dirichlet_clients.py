"""Clients whose own shares of the classes are drawn from a symmetric Dirichlet distribution.

D. Jhunjhunwala, S. Wang, G. Joshi. FedFisher: Leveraging Fisher Information for One-Shot Federated
Learning. AISTATS 2024, by the authors' code.
"""

from __future__ import annotations

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
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


@register("partition", "dirichlet_clients", version=1, title="Dirichlet, per client")
def dirichlet_clients(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    alpha: Alpha = 0.1,
    min_examples: MinExamples = 10,
    max_redraws: MaxRedraws = 10_000,
) -> Assignment:
    """Each client i draws q_i ~ Dir_K(alpha) over classes; of class k it gets q_ik / sum_i q_ik.

    `dirichlet` draws over clients for each class instead; papers call either "Dirichlet alpha".
    Source: the code of FedFisher, which asks for no least number of examples. Repeated draws are
    counted in the result.
    """
    require_examples(examples, clients, min_examples)
    available = np.bincount(examples.labels, minlength=examples.classes)
    gamma, uniform = rng.stream("partition-gamma"), rng.stream("partition-uniform")
    for redraws in range(max_redraws + 1):
        shape = (clients, examples.classes)
        # log g with g ~ Gamma(alpha), which itself underflows where alpha is small
        grown = np.log(gamma.standard_gamma(alpha + 1, shape))
        scores = grown + np.log1p(-uniform.random(shape)) / alpha
        shares = _shares(_shares(scores, axis=1, logs=True), axis=0)
        bounds = np.rint(available * np.cumsum(shares, axis=0)).astype(np.int64)
        bounds[-1] = available
        counts = np.diff(bounds, axis=0, prepend=0)
        if counts.sum(axis=1).min() >= min_examples:
            owner = deal_counts(examples, counts.T, rng)
            return Assignment(owner, clients, redraws=redraws)
    raise never_full(
        "dirichlet_clients", max_redraws + 1, rng, clients, min_examples, len(examples), alpha
    )


def _shares(scores: np.ndarray, axis: int, logs: bool = False) -> np.ndarray:
    """exp(scores) divided by its sum along an axis, or the logarithm of it."""
    top = scores.max(axis=axis, keepdims=True)
    log_shares: np.ndarray = (
        scores - top - np.log(np.exp(scores - top).sum(axis=axis, keepdims=True))
    )
    return log_shares if logs else np.exp(log_shares)

"""Clients of one size, with shares of the classes from a symmetric Dirichlet distribution.

D. A. E. Acar, Y. Zhao, R. Matas, M. Mattina, P. Whatmough, V. Saligrama. Federated Learning Based
on Dynamic Regularization. ICLR 2021. By the code of Co-Boosting (ICLR 2024), which has it from
there.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.data.split import Owners, TrainingLabels, require_examples, shuffled_by_class


@register("partition", "dirichlet_equal", version=1, title="Dirichlet, clients of one size")
def dirichlet_equal(
    examples: TrainingLabels,
    rng: Rng,
    *,
    clients: Annotated[int, Arg("holders of data", unit="clients", least=1)],
    alpha: Annotated[
        float, Arg("concentration: the smaller, the more unlike the clients", above=0, most=1e6)
    ] = 0.1,
) -> Owners:
    """N / clients examples each; client i draws q_i ~ Dir_K(alpha) and by it the class of each.

    Clients take turns at random until all are full. A class that is used up is drawn no more, so
    those who come late get what is left, which counts where alpha is small. Where N / clients is no
    whole number, the first clients have one more (the code leaves those out). Errors: FedreproError
    for more clients than examples.
    """
    require_examples(examples, clients)
    left = np.bincount(examples.labels, minlength=examples.classes)
    gamma, uniform = rng.stream("partition-gamma"), rng.stream("partition-uniform")
    shape = (clients, examples.classes)
    # log g with g ~ Gamma(alpha), which itself underflows where alpha is small
    scores = np.log(gamma.standard_gamma(alpha + 1, shape))
    scores += np.log1p(-uniform.random(shape)) / alpha
    shares = _within(scores, left > 0)
    sizes = np.full(clients, len(examples) // clients)
    sizes[: len(examples) % clients] += 1
    counts = np.zeros(shape, np.int64)
    waiting = list(range(clients))
    turns = rng.stream("partition-turns").random(len(examples))
    draws = rng.stream("partition-classes").random(len(examples))
    for turn, draw in zip(turns, draws, strict=True):
        client = waiting[int(turn * len(waiting))]
        label = int(np.searchsorted(shares[client], draw, side="right"))
        counts[client, label] += 1
        left[label] -= 1
        if counts[client].sum() == sizes[client]:
            waiting.remove(client)
        if not left[label] and left.any():
            shares = _within(scores, left > 0)
    owner = np.empty(len(examples), np.int32)
    holders = np.tile(np.arange(clients, dtype=np.int32), examples.classes)
    order = shuffled_by_class(examples.labels, rng.stream("partition"))
    owner[order] = np.repeat(holders, counts.T.reshape(-1))
    return Owners(owner, clients)


def _within(scores: np.ndarray, some_left: np.ndarray) -> np.ndarray:
    """Cumulative shares of the classes that are not used up: float64 (clients, classes), up to 1.

    Where a client's own classes are all used up, the likeliest of the others is all it gets.
    """
    scores = np.where(some_left, scores, -np.inf)
    bounds: np.ndarray = np.cumsum(np.exp(scores - scores.max(axis=1, keepdims=True)), axis=1)
    bounds /= bounds[:, -1:]
    # what rounding leaves below 1 belongs to the last class of which something is left
    bounds[:, np.flatnonzero(some_left)[-1] :] = 1.0
    return bounds

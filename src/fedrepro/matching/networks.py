"""Matching whole networks: from the clients' weights to the weights of one global network.

A network is a tuple of arrays (weight0, bias0, weight1, bias1), weights as inputs x outputs. One
hidden layer for now; more are matched from the top down, each with the layer above re-indexed to
its atoms (Propositions 3 and 4), which is why matchings and orders come as one per layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrepro.errors import FedreproError
from fedrepro.matching.assign import Matching, Rule, match
from fedrepro.matching.rewards import Array, Ints, posterior_mean
from fedrepro.matching.sums import Layer, Prior

Network = tuple[Array, ...]


@dataclass(frozen=True)
class Variances:
    """Of the noise of local units (sigma2) and of the prior (sigma02); the prior mean of biases."""

    sigma2: float = 1.0
    sigma02: float = 10.0
    bias: float = 0.1


def networks_of(tensors: Mapping[str, np.ndarray]) -> list[Network]:
    """The networks of J clients, float64, from stacked tensors weight0 (J, D, L), bias0, ..."""
    names = [f"{kind}{layer}" for layer in range(len(tensors) // 2) for kind in ("weight", "bias")]
    stacked = [np.asarray(tensors[name], dtype=np.float64) for name in names]
    return list(zip(*stacked, strict=True))


def class_shares(label_counts: np.ndarray) -> Array:
    """Each client's share of all examples of each class; float64 (J, K), columns sum to one.

    label_counts: (J, K). Where nobody has examples of a class nobody knows more of it than
    another, so all shares are 1 / J.
    """
    counts = np.asarray(label_counts, dtype=np.float64)
    totals = counts.sum(axis=0)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), 1.0 / len(counts))


def match_networks(
    networks: Sequence[Network],
    shares: Array,
    variances: Variances,
    rule: Rule,
    orders: Sequence[Ints],
) -> tuple[Network, tuple[Matching, ...]]:
    """One global network from those of J clients, and the matching of each hidden layer.

    networks: float64, widths may differ; shares: (J, K), the precision of a client's weights to
    a class in units of 1 / sigma2; orders: (passes, J) for each hidden layer. Raises
    FedreproError for more than one hidden layer.
    """
    require_one_hidden_layer(len(networks[0]) // 2 - 1, "matching")
    matching = match(_hidden_layer(networks, shares, variances), rule, orders[0])
    uniform, outgoing = matching.atoms.uniform_mean, matching.atoms.classed_mean
    biases = np.stack([network[3] for network in networks])
    network = (uniform[:, :-1].T, uniform[:, -1], outgoing, output_bias(biases, shares, variances))
    return network, (matching,)


def require_one_hidden_layer(layers: int, what: str) -> None:
    """An error that says what to do, unless there is just one."""
    if layers != 1:
        raise FedreproError(
            f"{what} works on networks with one hidden layer so far, and these have {layers}; "
            "choose a model with one, such as mlp"
        )


def output_bias(biases: Array, shares: Array, variances: Variances) -> Array:
    """Posterior mean of the output bias, which needs no matching: (K,) from (J, K).

    The text is silent; as in the authors' code the prior is that of hidden biases and the
    precisions are the class shares over sigma2.
    """
    natural = variances.bias / variances.sigma02 + (shares * biases).sum(axis=0) / variances.sigma2
    precision = 1.0 / variances.sigma02 + shares.sum(axis=0) / variances.sigma2
    return posterior_mean(natural, precision)


def _hidden_layer(networks: Sequence[Network], shares: Array, variances: Variances) -> Layer:
    """Units of the only hidden layer: incoming weights and bias, then weights to the classes."""
    incoming = tuple(np.vstack([weight0, bias0]).T for weight0, bias0, _, _ in networks)
    outgoing = tuple(weight1 for _, _, weight1, _ in networks)
    mean = np.zeros(incoming[0].shape[1])
    mean[-1] = variances.bias
    prior = Prior(mean, np.zeros(outgoing[0].shape[1]), variances.sigma02)
    return Layer(incoming, outgoing, variances.sigma2, shares / variances.sigma2, prior)

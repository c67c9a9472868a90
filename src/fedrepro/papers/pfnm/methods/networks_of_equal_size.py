"""Networks of one size: PFNM with sigma2 solved for it, and controls that merge less or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Protocol

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import Units, has_enough_units, target_widths
from fedrepro.methods.matching.network_arrays import (
    class_shares,
    hidden_layers,
    networks_of,
    pruned,
    side_by_side,
    tensors_of,
)
from fedrepro.methods.matching.sequential_matching import Variances, alone, output_bias
from fedrepro.methods.matching.unit_fusion import merge_similar_units
from fedrepro.methods.pfnm import (
    BiasPrior,
    ClassWeights,
    Gamma0,
    Sigma02,
    Sigma2,
    Sigma2Layers,
    joined,
    pfnm,
)
from fedrepro.networks.network import widths

LEAST, MOST = 1e-9, 1e6  # of sigma2
STEP = 8.0  # between two sigma2 that may hold the size between them
NEAR = 1.01  # factor within which the smallest sigma2 of a size is looked for
ALIKE = 1.002  # factor within which bisection looks for a size that it has not met
ORDERS = 10  # of the clients, tried one after another until bisection meets the size


class Matched(Protocol):
    def __call__(self, sigma2: float, order: int = 0) -> tuple[int, GlobalModel]:
        """Return the number of hidden units, and the network, at this sigma2.

        `order` numbers the random orders in which clients may be visited.
        """


@method(
    "pfnm_sized",
    kind="one_shot",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="PFNM",
    metrics={"solved_sigma2": Metric("sigma2 that gives the size", "variance", 0, None, 0)},
)
def pfnm_sized(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    sigma02: Sigma02 = 10.0,
    gamma0: Gamma0 = 1.0,
) -> GlobalModel | None:
    """Match clients by PFNM at the smallest sigma2 found whose network has `units` units per layer.

    The size is a mean over layers. It falls as sigma2 rises, though not at every step, so log
    sigma2 is bisected between a larger network and one that is not. Where that jumps over the size,
    it is repeated with the clients in another random order, which moves sizes by a few units.
    Returns None where no network has the size, or all clients together have fewer units. All else
    is as in `pfnm`.
    """
    if not has_enough_units(clients, units):
        return None

    def at(sigma2: float, order: int = 0) -> tuple[int, GlobalModel]:
        place = rng.at(call=order)
        model = pfnm(clients, info, rng=place, sigma2=sigma2, sigma02=sigma02, gamma0=gamma0)
        named = replace(model, diagnostics={**model.diagnostics, "solved_sigma2": sigma2})
        return sum(widths(model.tensors)), named

    return network_of_size(at, sum(target_widths(clients, units)))


def network_of_size(at: Matched, size: int) -> GlobalModel | None:
    """Find the network with `size` hidden units at the smallest sigma2 that gives it, or None.

    `at` matches clients at a sigma2 and a visiting order; several orders are tried.
    """
    low, high = _ends(at, size)
    if high > MOST:
        return None
    orders = range(ORDERS) if high > low else range(1)
    models = (_bisected(at, size, low, high, order) for order in orders)
    return next((model for model in models if model is not None), None)


def _bisected(at: Matched, size: int, low: float, high: float, order: int) -> GlobalModel | None:
    """Bisect sigma2 between `low` and `high` for the network of `size` hidden units, or None.

    Found is the smallest sigma2 with that size; clients are visited in the order number `order`.
    """
    units, model = at(high, order)
    fitting = model if units == size else None
    while high > low * (NEAR if fitting is not None else ALIKE):
        middle = (low * high) ** 0.5
        units, model = at(middle, order)
        if units > size:
            low = middle
        else:
            high = middle
            fitting = model if units == size else fitting
    return fitting


def _ends(at: Matched, size: int) -> tuple[float, float]:
    """Find sigma2 to bisect between: one whose network is larger than `size`, and one not.

    The second one is beyond MOST where all networks are larger. Where none is, as for the size of
    all clients together, both are the smallest sigma2.
    """
    sigma2 = 1.0
    if at(sigma2)[0] > size:
        while sigma2 <= MOST and at(sigma2 * STEP)[0] > size:
            sigma2 *= STEP
        return sigma2, sigma2 * STEP
    while sigma2 >= LEAST and at(sigma2 / STEP)[0] <= size:
        sigma2 /= STEP
    return (sigma2, sigma2) if sigma2 < LEAST else (sigma2 / STEP, sigma2)


@method(
    "kmeans_units",
    kind="one_shot",
    needs={"label_counts"},
    models={"mlp"},
    label="k-means of units",
)
def kmeans_units(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: ClassWeights = True,
    restarts: Annotated[int, Arg("starts of k-means, of which the best is kept", least=1)] = 10,
) -> GlobalModel | None:
    """Merge all clients' hidden units by k-means into `units` a layer; None if there are fewer.

    A ReLU unit with weights v in (and bias) and u out equals one with v/|v| in and |v| u out.
    Directions v/|v| are clustered by k-means; a cluster becomes one unit with their mean in, and
    the sum of |v| u out. Layers are clustered from the lowest up, so units of a higher one have
    inputs from clusters.
    """
    assert info.label_counts is not None
    if not has_enough_units(clients, units):
        return None
    whole = joined(clients, info.label_counts, class_weights)
    draws = rng.stream("kmeans-units")
    network = merge_similar_units(whole, target_widths(clients, units), restarts, draws)
    return GlobalModel(clients.model, tensors_of(network))


@method(
    "whole_clients", kind="control", needs={"label_counts"}, models={"mlp"}, label="whole clients"
)
def whole_clients(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: ClassWeights = True,
) -> GlobalModel | None:
    """Draw m clients at random and join them in one network of `units` units: m = units / L.

    L is a client's width. The network's logits are exactly the mean of theirs, or with class
    weights sum_j f_jk (logit of client j), f_jk being the share of client j of the examples of
    class k that the m have. One client is itself. Returns None where `units` is not a multiple of
    L, or the clients are too few.
    """
    order = rng.stream("whole-clients").permutation(clients.clients)
    return _beside(clients, info, order, units, class_weights)


@method(
    "best_clients",
    kind="control",
    needs={"label_counts", "client_evaluation"},
    models={"mlp"},
    label="best clients",
)
def best_clients(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: ClassWeights = True,
) -> GlobalModel | None:
    """Join the m most accurate clients in one network of `units` units, without matching.

    m is `units` divided by a client's width. Accuracy is on a client's own training data; ties go
    to the first. With few classes that is easy, so where clients differ it does not measure
    accuracy on everybody's data. The network is made as in `whole_clients`.
    """
    assert info.clients is not None
    evaluations = [
        info.clients.evaluate({name: value[[j]] for name, value in clients.tensors.items()}, [j])
        for j in range(clients.clients)
    ]
    order = np.argsort(
        [-float(evaluation.accuracy[0, 0]) for evaluation in evaluations], kind="stable"
    )
    return _beside(clients, info, order, units, class_weights)


def _beside(
    clients: LocalModels,
    info: ClientInfo,
    order: np.ndarray,
    units: int | None,
    class_weights: bool,
) -> GlobalModel | None:
    """Join the first clients of `order` side by side in one network of `units` a hidden layer.

    Nothing is matched; None if whole clients cannot fill the size exactly. With `class_weights`
    logits count by a client's share of a class.
    """
    assert info.label_counts is not None
    pairs = zip(target_widths(clients, units), widths(clients.tensors), strict=True)
    counts = {divmod(wanted, width) for wanted, width in pairs}
    count, rest = counts.pop()
    if counts or rest or count > clients.clients:
        return None
    chosen = np.sort(order[:count])
    tensors = {name: value[chosen] for name, value in clients.tensors.items()}
    models = LocalModels(clients.model, clients.shape, clients.classes, tensors)
    whole = joined(models, info.label_counts[chosen], class_weights)
    return GlobalModel(clients.model, tensors_of(whole))


@method(
    "pruned_concatenation",
    kind="control",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="pruned concatenation",
)
def pruned_concatenation(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Annotated[int, Arg("units kept in each hidden layer", "units", least=1)] = 50,
    class_weights: ClassWeights = True,
    exact: Annotated[
        bool, Arg("give nothing where there are fewer units, in place of all of them")
    ] = False,
) -> GlobalModel | None:
    """Keep the strongest hidden units of all clients' networks side by side; nothing is matched.

    In each hidden layer of the concatenation the `units` with the largest product of the norms of
    incoming weights and bias, and of outgoing weights, are kept, all where there are fewer.
    """
    assert info.label_counts is not None
    if exact and not has_enough_units(clients, units):
        return None
    whole = joined(clients, info.label_counts, class_weights)
    return GlobalModel(clients.model, tensors_of(pruned(whole, units)))


@method(
    "unmatched",
    kind="control",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="PFNM unmatched",
)
def unmatched(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    sigma2: Sigma2 = 0.01,
    sigma2_layers: Sigma2Layers = (1.0,),
    sigma02: Sigma02 = 10.0,
    bias_prior: BiasPrior = 0.1,
) -> GlobalModel:
    """Return the network of PFNM at that sigma2 as if it merged nothing: a control.

    Every hidden unit is a global unit of its own. Its weights are their posterior means, (v p) /
    (1/sigma02 + p) with p = 1/sigma2, or f_jk/sigma2 towards class k. So a client weighs fully on
    every class that it has examples for, where `concatenation` scales it by its share f_jk. Weights
    between hidden layers are block-diagonal: to other clients' units a unit has the observation 0
    and the prior mean 0. Source: PFNM, Propositions 1 and 4 with one member per atom.
    """
    assert info.label_counts is not None
    shares = class_shares(info.label_counts)
    variances = Variances(sigma2, sigma02, bias_prior, sigma2_layers)
    networks = networks_of(clients.tensors)
    biases = np.stack([network[-1] for network in networks])
    bias = output_bias(biases, shares, variances, hidden_layers(networks[0]))
    by_client = [alone(n, share, variances) for n, share in zip(networks, shares, strict=True)]
    return GlobalModel(clients.model, tensors_of(side_by_side(by_client, bias)))

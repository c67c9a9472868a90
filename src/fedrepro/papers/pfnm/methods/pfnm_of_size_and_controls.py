"""Global networks of a given size: by PFNM with sigma2 solved for it, and by controls.

Each hidden layer gets `units` units, or by default as many as a client has. With `class_weights`, a
client's weights to a class count by its share of the class's examples, else equally.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import pfnm_and_concatenation as merged
from fedrepro.methods._merging import Units, has_enough_units, target_widths
from fedrepro.methods.matching import network_arrays_and_tracing as arrays
from fedrepro.methods.matching.pfnm_sequential_matching import Variances, alone, output_bias
from fedrepro.methods.matching.unit_fusion_and_clustering import merge_similar_units
from fedrepro.networks.network import widths

LEAST, MOST = 1e-9, 1e6  # bounds of sigma2
STEP = 8.0  # factor between two sigma2 in the search for an interval
NEAR = 1.01  # factor between ends at which bisection stops if the size was found
ALIKE = 1.002  # factor between ends at which bisection stops if the size was not found
ORDERS = 10  # of the clients, tried one after another until bisection meets the size


# (sigma2, number of the random order of clients) -> hidden units and network that PFNM matches
Matched = Callable[[float, int], tuple[int, GlobalModel]]


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
    sigma02: merged.Sigma02 = 10.0,
    gamma0: merged.Gamma0 = 1.0,
) -> GlobalModel | None:
    """Match clients by PFNM at the smallest sigma2 found whose network has `units` units per layer.

    `units` is a mean over hidden layers. The size falls as sigma2 rises, though not at every step.
    So log sigma2 is bisected between a value whose network is too large and one whose network is
    not. If bisection jumps over the size, it is repeated with the clients in another random order,
    which changes sizes by a few units. Other parameters have the defaults of method `pfnm`. Returns
    None if no network has the size, or all clients together have fewer units.
    """
    if not has_enough_units(clients, units):
        return None

    def at(sigma2: float, order: int) -> tuple[int, GlobalModel]:
        place = rng.at(call=order)
        model = merged.pfnm(clients, info, rng=place, sigma2=sigma2, sigma02=sigma02, gamma0=gamma0)
        named = replace(model, diagnostics={**model.diagnostics, "solved_sigma2": sigma2})
        return sum(widths(model.tensors)), named

    return network_of_size(at, sum(target_widths(clients, units)))


def network_of_size(at: Matched, size: int) -> GlobalModel | None:
    """Find PFNM's network of `size` hidden units at the smallest sigma2 found; None without any.

    at(sigma2, order) returns (units, network); `order` = 0, 1, … numbers random orders of clients.
    """
    low, high = _ends(at, size)
    if high > MOST:
        return None
    orders = range(ORDERS) if high > low else range(1)
    models = (_bisected(at, size, low, high, order) for order in orders)
    return next((model for model in models if model is not None), None)


def _bisected(at: Matched, size: int, low: float, high: float, order: int) -> GlobalModel | None:
    """Bisect sigma2 from `low` to `high` for the least with a network of `size` units; or None."""
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
    """Find two sigma2 to bisect between: one whose network has more than `size` units, one not."""
    sigma2 = 1.0
    if at(sigma2, 0)[0] > size:
        while sigma2 <= MOST and at(sigma2 * STEP, 0)[0] > size:
            sigma2 *= STEP
        return sigma2, sigma2 * STEP
    while sigma2 >= LEAST and at(sigma2 / STEP, 0)[0] <= size:
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
    class_weights: merged.ClassWeights = True,
    restarts: Annotated[int, Arg("starts of k-means; the best is kept", least=1)] = 10,
) -> GlobalModel | None:
    """Merge all clients' hidden units by k-means into `units` per layer; None if there are fewer.

    A ReLU unit with incoming weights (and bias) v and outgoing weights u equals one with v/|v| and
    |v| u. Directions v/|v| are clustered by k-means; a cluster becomes one unit, with the mean of
    its v/|v| and the sum of its |v| u. Layers are clustered from the lowest up, so units of a
    higher layer have clusters as inputs.
    """
    assert info.label_counts is not None
    if not has_enough_units(clients, units):
        return None
    whole = merged.joined(clients, info.label_counts, class_weights)
    draws = rng.stream("kmeans-units")
    network = merge_similar_units(whole, target_widths(clients, units), restarts, draws)
    return GlobalModel(clients.model, arrays.tensors_of(network))


@method(
    "whole_clients", kind="control", needs={"label_counts"}, models={"mlp"}, label="whole clients"
)
def whole_clients(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: merged.ClassWeights = True,
) -> GlobalModel | None:
    """Draw m = `units` / L clients at random, and put their networks side by side in one network.

    L is a client's hidden width. The network's logits are the mean of the m clients' logits, or
    with class weights sum_j f_jk (logit k of client j), where f_jk is client j's share of the m
    clients' examples of class k. Returns None if m is not whole, or above the number of clients.
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
    class_weights: merged.ClassWeights = True,
) -> GlobalModel | None:
    """Put the m most accurate clients' networks side by side in one network of `units` units.

    m is `units` divided by a client's hidden width; the result is None if m is not whole, or too
    large. Accuracy is on a client's own training data, so clients with few classes do well,
    whatever their accuracy on all data. Of equally accurate clients the first is taken. The
    network's logits are the mean of the m clients' logits. With `class_weights`, client j's logit
    of class k counts by its share of their examples of class k.
    """
    assert info.clients is not None
    evaluations = [
        info.clients.evaluate({name: value[[j]] for name, value in clients.tensors.items()}, [j])
        for j in range(clients.clients)
    ]
    accuracies = [float(evaluation.accuracy[0, 0]) for evaluation in evaluations]
    order = np.argsort(np.negative(accuracies), kind="stable")
    return _beside(clients, info, order, units, class_weights)


def _beside(
    clients: LocalModels,
    info: ClientInfo,
    order: np.ndarray,
    units: int | None,
    class_weights: bool,
) -> GlobalModel | None:
    """Put networks of the first clients in `order` side by side, `units` units per hidden layer."""
    assert info.label_counts is not None
    pairs = zip(target_widths(clients, units), widths(clients.tensors), strict=True)
    counts = {divmod(wanted, width) for wanted, width in pairs}
    count, rest = counts.pop()
    if counts or rest or count > clients.clients:
        return None
    chosen = np.sort(order[:count])
    tensors = {name: value[chosen] for name, value in clients.tensors.items()}
    models = LocalModels(clients.model, clients.shape, clients.classes, tensors)
    whole = merged.joined(models, info.label_counts[chosen], class_weights)
    return GlobalModel(clients.model, arrays.tensors_of(whole))


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
    class_weights: merged.ClassWeights = True,
    exact: Annotated[
        bool,
        Arg("give no model where clients have fewer units together, in place of keeping all units"),
    ] = False,
) -> GlobalModel | None:
    """Put all clients' networks side by side, and keep the strongest hidden units of each layer.

    These are the `units` units with the largest product of two norms: of incoming weights with
    bias, and of outgoing weights. All units are kept if there are fewer. Nothing is matched.
    """
    assert info.label_counts is not None
    if exact and not has_enough_units(clients, units):
        return None
    whole = merged.joined(clients, info.label_counts, class_weights)
    return GlobalModel(clients.model, arrays.tensors_of(arrays.pruned(whole, units)))


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
    sigma2: merged.Sigma2 = 0.01,
    sigma2_layers: merged.Sigma2Layers = (1.0,),
    sigma02: merged.Sigma02 = 10.0,
    bias_prior: merged.BiasPrior = 0.1,
) -> GlobalModel:
    """Return the network that PFNM would make if it merged no hidden units: a control.

    Each unit of each client becomes a unit of the network. A weight v becomes its posterior mean, v
    p / (p + 1/sigma02). Its precision p is 1/sigma2, or f_jk/sigma2 for weights to class k, with
    f_jk client j's share of the examples of class k. So a client counts almost fully for every
    class that it has, whereas `concatenation` scales its logits by f_jk. Weights between units of
    different clients are 0. Source: PFNM, Propositions 1 and 4 with one member per global unit.
    """
    assert info.label_counts is not None
    shares = arrays.class_shares(info.label_counts)
    variances = Variances(sigma2, sigma02, bias_prior, sigma2_layers)
    networks = arrays.networks_of(clients.tensors)
    biases = np.stack([network[-1] for network in networks])
    bias = output_bias(biases, shares, variances, arrays.hidden_layers(networks[0]))
    by_client = [alone(n, share, variances) for n, share in zip(networks, shares, strict=True)]
    return GlobalModel(clients.model, arrays.tensors_of(arrays.side_by_side(by_client, bias)))

"""Probabilistic federated neural matching: hidden units of all clients, matched and averaged.

Source: "Probabilistic Federated Neural Matching", under review at ICLR 2019. Where its text is
silent the defaults are those of the authors' code: precision by class share, a cap on counts, five
passes, a prior mean of 0.1 for biases. Concatenation keeps all units and matches none. Variances
are sigma2 of clients' units around a global unit, times sigma2_layers by layer, and sigma02 of
global units around the prior. More gamma0 gives more units; beyond width_cap, clients add one each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods.matching import network_arrays_and_tracing as arrays
from fedrepro.methods.matching import pfnm_sequential_matching as sequential
from fedrepro.networks.network import widths

ClassWeights = Annotated[
    bool,
    Arg("weigh a client's weights of the output layer by its share of each class, not equally"),
]


@method(
    "concatenation",
    kind="control",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="concatenation",
)
def concatenation(
    clients: LocalModels, info: ClientInfo, *, rng: RngKey, class_weights: ClassWeights = True
) -> GlobalModel:
    """Put all hidden units of all clients side by side in a single network.

    The logit of class k is sum_j f_jk (logit of client j). With `class_weights` f_jk is client j's
    share of the class's examples, else 1 / J. Weights between hidden layers are block-diagonal.
    """
    assert info.label_counts is not None
    whole = joined(clients, info.label_counts, class_weights)
    return GlobalModel(clients.model, arrays.tensors_of(whole))


def joined(
    clients: LocalModels, label_counts: np.ndarray, class_weights: bool
) -> arrays.UnitArrays:
    """Join the clients' networks side by side into arrays (weight0, bias0, …) of one network.

    Its output sums the clients' outputs by their class shares, which are computed from
    `label_counts` (J, K); without `class_weights` they are 1 / J.
    """
    shares = arrays.class_shares(label_counts)
    if not class_weights:
        shares = np.full_like(shares, 1.0 / len(shares))
    networks = arrays.networks_of(clients.tensors)
    scaled = [
        (*network[:-2], network[-2] * share)
        for network, share in zip(networks, shares, strict=True)
    ]
    bias = (shares * np.stack([network[-1] for network in networks])).sum(axis=0)
    return arrays.side_by_side([(*network, bias) for network in scaled], bias)


Sigma2 = Annotated[float, Arg("variance of a local unit around its global unit", above=0)]
Sigma2Layers = Annotated[
    tuple[float, ...],
    Arg(
        "factor on sigma2 for each hidden layer, the lowest first; or one for all; or two, for all "
        "below the top one and for the top one",
        above=0,
    ),
]
Sigma02 = Annotated[float, Arg("variance of global units around their prior", above=0)]
Gamma0 = Annotated[float, Arg("mass of the Beta process: more mass, more units", above=0)]
WidthCap = Annotated[
    int,
    Arg("beyond this many global units a client may add only one unit at a time", "units", least=1),
]
BiasPrior = Annotated[float, Arg("prior mean of biases")]
Order = Annotated[
    Literal["random", "fixed"], Arg("order of the clients: random in each pass, or by number")
]


@method(
    "pfnm",
    kind="one_shot",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="PFNM",
    evaluate=("train", "test"),
    any_width=True,
)
def pfnm(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    sigma2: Sigma2 = 1.0,
    sigma2_layers: Sigma2Layers = (1.0,),
    sigma02: Sigma02 = 10.0,
    gamma0: Gamma0 = 1.0,
    passes: Annotated[int, Arg("times a client's units are matched", "passes", least=0)] = 5,
    popularity: Annotated[
        float, Arg("factor on the popularity term: 1 as published, 2 as derived", least=0)
    ] = 1.0,
    count_cap: Annotated[
        int | None, Arg("most clients that popularity counts, none for no cap", "clients", least=1)
    ] = 10,
    class_weights: Annotated[
        bool, Arg("weigh a client's weights of the output layer by its share of each class")
    ] = True,
    width_cap: WidthCap = 700,
    bias_prior: BiasPrior = 0.1,
    order: Order = "random",
    posterior_sigma2: Annotated[
        float | None,
        Arg(
            "sigma2 for the posterior means of matched units, none for the sigma2 by which they "
            "are matched",
            above=0,
            later=True,
        ),
    ] = None,
) -> GlobalModel:
    """Match hidden units across clients by MAP inference and average the matched units.

    Several hidden layers are matched from the top down. The paper uses one sigma2 for matching and
    for the posterior means; `posterior_sigma2` sets another for the means. Source: PFNM, section 3,
    equations (5) and (9); supplement, Algorithm 1.
    """
    assert info.label_counts is not None
    shares = arrays.class_shares(info.label_counts)
    depth = len(widths(clients.tensors))
    variances = sequential.Variances(sigma2, sigma02, bias_prior, sigma2_layers)
    network, matchings = sequential.match_networks(
        arrays.networks_of(clients.tensors, clients.widths),
        shares if class_weights else np.ones_like(shares),
        variances,
        sequential.Rule(gamma0, popularity, count_cap, width_cap),
        visiting_orders(clients.clients, depth, passes, order, rng),
        replace(variances, sigma2=posterior_sigma2) if posterior_sigma2 else None,
    )
    diagnostics = {"matched_share": matched_share(matchings)}
    return GlobalModel(clients.model, arrays.tensors_of(network), diagnostics=diagnostics)


def visiting_orders(
    clients: int, depth: int, passes: int, order: str, rng: RngKey
) -> list[np.ndarray]:
    """Draw the order of clients in PFNM's passes: an int64 (passes, J) per hidden layer, top first.

    With `order` "fixed" every pass is 0, 1, …; `depth` is the number of hidden layers.
    """
    visits = np.tile(np.arange(clients), (depth, passes, 1))
    if order == "random":
        rng.stream("pfnm-order").permuted(visits, axis=2, out=visits)
    return list(visits)


def matched_share(matchings: Sequence[sequential.Matching]) -> float:
    """Return the share of clients' hidden units that were matched to another client's unit."""
    units = sum(len(atoms) for matching in matchings for atoms in matching.assignments)
    return float(sum(m.counts[m.counts > 1].sum() for m in matchings) / units)

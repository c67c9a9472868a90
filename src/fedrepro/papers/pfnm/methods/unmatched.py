"""PFNM's posterior with nothing matched: what is left of PFNM when matching is taken away."""

from __future__ import annotations

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.sequential_matching import Variances, alone, output_bias
from fedrepro.methods.matching.unit_arrays import (
    class_shares,
    hidden_layers,
    networks_of,
    side_by_side,
    tensors_of,
)
from fedrepro.methods.pfnm import BiasPrior, Sigma02, Sigma2, Sigma2Layers


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
    """Every hidden unit is a global unit of its own: PFNM at that sigma2, if it merged nothing.

    Its weights are their posterior means, (v p) / (1/sigma02 + p) with p = 1/sigma2, or
    f_jk/sigma2 towards class k. So a client keeps its whole say on every class that it has
    examples of, where `concatenation` scales it by the share f_jk. In several hidden layers a unit
    has no weights to units of other clients: there it has the observation 0 and the prior mean 0,
    so the posterior mean is 0 too, and the weights between hidden layers are block-diagonal.
    Source: PFNM, Propositions 1 and 4 with one member per atom.
    """
    assert info.label_counts is not None
    shares = class_shares(info.label_counts)
    variances = Variances(sigma2, sigma02, bias_prior, sigma2_layers)
    networks = networks_of(clients.tensors)
    biases = np.stack([network[-1] for network in networks])
    bias = output_bias(biases, shares, variances, hidden_layers(networks[0]))
    by_client = [alone(n, share, variances) for n, share in zip(networks, shares, strict=True)]
    return GlobalModel(clients.model, tensors_of(side_by_side(by_client, bias)))

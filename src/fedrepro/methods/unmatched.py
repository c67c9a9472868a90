"""PFNM's posterior with nothing matched: what is left of PFNM when matching is taken away."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.matching.networks import (
    Variances,
    class_shares,
    output_bias,
    require_one_hidden_layer,
)
from fedrepro.matching.rewards import posterior_mean
from fedrepro.networks.dense import widths
from fedrepro.rng import Rng
from fedrepro.spec import Arg


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
    rng: Rng,
    sigma2: Annotated[
        float, Arg("variance of a local unit around its global unit", above=0)
    ] = 0.01,
    sigma02: Annotated[float, Arg("variance of global units around their prior", above=0)] = 10.0,
    bias_prior: Annotated[float, Arg("prior mean of biases")] = 0.1,
) -> GlobalModel:
    """Every hidden unit is a global unit of its own, as PFNM has it at small sigma2.

    Its weights are their posterior means, (v p) / (1/sigma02 + p) with p = 1/sigma2, or
    f_jk/sigma2 towards class k. So a client keeps its whole say on every class that it has
    examples of, where `concatenation` scales it by the share f_jk.
    Source: PFNM, Proposition 1, eq. (5), with one member per atom.
    """
    assert info.label_counts is not None
    require_one_hidden_layer(len(widths(clients.tensors)), "unmatched")
    local = {name: np.asarray(value, np.float64) for name, value in clients.tensors.items()}
    shares, variances = class_shares(info.label_counts), Variances(sigma2, sigma02, bias_prior)

    def alone(value: np.ndarray, precision: np.ndarray, prior: float = 0.0) -> np.ndarray:
        return posterior_mean(precision * value + prior / sigma02, precision + 1 / sigma02)

    whole = np.full(1, 1 / sigma2)
    tensors = {
        "weight0": np.concatenate(list(alone(local["weight0"], whole)), axis=1),
        "bias0": alone(local["bias0"], whole, bias_prior).ravel(),
        "weight1": np.concatenate(list(alone(local["weight1"], shares[:, None, :] / sigma2))),
        "bias1": output_bias(local["bias1"], shares, variances),
    }
    return GlobalModel(clients.model, {k: v[None].astype(np.float32) for k, v in tensors.items()})

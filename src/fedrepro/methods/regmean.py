"""RegMean: layer by layer, the weights that best give what each client's own give on its inputs.

X. Jin, X. Ren, D. Preotiuc-Pietro, P. Cheng. Dataless Knowledge Fusion by Merging Weights of
Language Models. ICLR 2023.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import (
    MODELS,
    as_model,
    asking,
    merge_layers,
    network_like,
    shares_of,
    stacked,
)
from fedrepro.training.federation.client_queries import Reply

Alpha = Annotated[float, Arg("what moments of two different inputs are times", least=0, most=1)]
Ridge = Annotated[
    float, Arg("towards the parameter average, as a share of the mean moment", least=0)
]


moments = asking("input_moments")


@method(
    "regmean",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="second moments of layer inputs",
    models=MODELS,
    one_start=True,
    merges=True,
    label="RegMean",
    prepare=moments,
    grid={"alpha": (0.1, 0.5, 0.9, 1.0), "ridge": (1e-6, 0.01)},
)
def regmean(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    alpha: Alpha = 0.9,
    ridge: Ridge = 1e-6,
    convolutions: Annotated[
        Literal["regress", "average"],
        Arg("regress on their patches, or the plain mean of them, as public code has it"),
    ] = "regress",
) -> GlobalModel:
    """W = (sum_i p_i Â_i)⁻¹ sum_i p_i Â_i W_i, with Â = α A + (1 - α) diag(A), A = E[a aᵀ].

    a is a layer's input, with a 1 for the bias, in the client's own network; a convolution's are
    its patches. p_i = n_i / n, by which all else is averaged. Source: RegMean, section 3, for
    linear layers.
    """
    from fedrepro.methods.merging.kronecker import regression_mean
    from fedrepro.networks.layer_matrices import layer_matrices

    network = network_like(clients)
    kernels = {layer.key for layer in layer_matrices(network) if layer.kernel}
    share = shares_of(info)

    def layer(name: str, weights: np.ndarray) -> np.ndarray:
        plain = convolutions == "average" and name in kernels
        if plain:
            mean: np.ndarray = weights.mean(axis=0)
            return mean
        return regression_mean(
            weights, shrink_off_diagonal(stacked(prepared, name), alpha), share, ridge
        )

    return as_model(clients, merge_layers(clients, share, layer))


def shrink_off_diagonal(moments: np.ndarray, alpha: float) -> np.ndarray:
    """α A + (1 - α) diag(A) of each client: (J, D, D)."""
    kept = alpha + (1 - alpha) * np.eye(moments.shape[-1])
    shrunk: np.ndarray = moments * kept
    return shrunk

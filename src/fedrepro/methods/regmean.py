"""RegMean and RegMean++: merged weights reproduce the outputs of each client's layers best.

RegMean: X. Jin, X. Ren, D. Preotiuc-Pietro, P. Cheng. Dataless Knowledge Fusion by Merging Weights
of Language Models. ICLR 2023. RegMean++, whose moments are those behind the merged layers:
T.-H. Nguyen, D. Huu-Tien, T. Suzuki, L.-M. Nguyen. RegMean++: Enhancing Effectiveness and
Generalization of Regression Mean for Model Merging. arXiv:2508.03121, 2025.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import _merging as merging
from fedrepro.networks.layer_matrices import layer_matrices, tensors_of_matrices
from fedrepro.training.federation.client_queries_and_costs import Reply
from fedrepro.training.federation.fisher_and_input_moments import input_moments

Alpha = Annotated[float, Arg("factor on off-diagonal moments", least=0, most=1)]
Ridge = Annotated[float, Arg("strength of the ridge, as a share of the mean moment", least=0)]


moments = merging.asking("input_moments")
GRID = {"alpha": (0.1, 0.5, 0.9, 1.0), "ridge": (1e-6, 0.01)}


@method(
    "regmean",
    **merging.ANSWERED,
    sends="second moments of layer inputs",
    label="RegMean",
    prepare=moments,
    grid=GRID,
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
        Arg("by regression on patches, or by plain averages, as public code does"),
    ] = "regress",
) -> GlobalModel:
    """Merge layers by regression on their inputs: W = (sum_i p_i Â_i)⁻¹ sum_i p_i Â_i W_i.

    Â = α A + (1 - α) diag(A), α being `alpha`, A = E[a aᵀ] over inputs a of the layer in the
    client's network (with a 1 for the bias; patches for a convolution), from `prepared`. p_i is
    client i's share of examples; other tensors are averaged by p_i. A `ridge`, times the mean
    moment, draws W to the average. Source: RegMean, section 3, for linear layers.
    """
    network = merging.network_like(clients)
    kernels = {layer.key for layer in layer_matrices(network) if layer.kernel}
    share = merging.shares_of(info)

    def layer(name: str, weights: np.ndarray) -> np.ndarray:
        if convolutions == "average" and name in kernels:
            return np.asarray(weights.mean(axis=0))
        a = shrink_off_diagonal(merging.stacked(prepared, name), alpha)
        return merging.regression_mean(weights, a, share, ridge)

    return merging.as_model(clients, merging.merge_layers(clients, share, layer))


def shrink_off_diagonal(moments: np.ndarray, alpha: float) -> np.ndarray:
    """Shrink `moments` A (J, D, D) to their diagonals: α A + (1 - α) diag(A), α being `alpha`."""
    return np.asarray(moments * (alpha + (1 - alpha) * np.eye(moments.shape[-1])))


def lowest(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> list[Reply]:
    """Ask clients for the second moments of inputs of the lowest layer, for RegMean++."""
    assert info.clients is not None
    layers = layer_matrices(merging.network_like(clients))
    lowest = [layer.key for layer in layers if layer.weight == layers[0].weight]
    return info.clients.query(partial(input_moments, only=lowest))


@method(
    "regmean_plus",
    **merging.ANSWERED,
    sends="second moments of layer inputs behind the merged layers, a layer in each exchange",
    label="RegMean++",
    prepare=lowest,
    grid=GRID,
)
def regmean_plus(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    alpha: Alpha = 0.9,
    ridge: Ridge = 1e-6,
) -> GlobalModel:
    """Merge layers as RegMean does, by moments of the outputs of the merged layers below.

    W = (sum_i p_i Â_i)⁻¹ sum_i p_i Â_i W_i, with p_i client i's share of examples. Â_i are moments
    of a layer's inputs (`prepared`: the lowest's, used if all tensors are of layers), times `alpha`
    off the diagonal; a `ridge` draws W to the average. Layers are merged from the lowest up. Each
    is sent to the clients before they compute moments for the next, in as many exchanges as layers.
    Other tensors are averaged and sent first, in one exchange more.
    """
    assert info.clients is not None
    share = merging.shares_of(info)
    network = merging.network_like(clients)
    matrices = layer_matrices(network)
    of_layers = {name for m in matrices for name in (m.weight, m.bias)}
    mean = merging.mean_of_rest(clients, share, {})
    made = {name: value for name, value in mean.items() if name not in of_layers}
    for weight in dict.fromkeys(layer.weight for layer in matrices):
        layers = [layer for layer in matrices if layer.weight == weight]
        question = partial(input_moments, only=[layer.key for layer in layers])
        first = weight == matrices[0].weight
        answers = prepared if first and not made else info.clients.query(question, made)
        solved = {
            layer.key: merging.regression_mean(
                layer.of(clients.tensors),
                shrink_off_diagonal(merging.stacked(answers, layer.key), alpha),
                share,
                ridge,
            )
            for layer in layers
        }
        made |= {
            name: np.ascontiguousarray(value[None], np.float32)
            for name, value in tensors_of_matrices(layers, solved).items()
        }
    return merging.as_model(clients, {name: made[name] for name in network.shapes})

"""RegMean++: RegMean whose moments are those behind the merged layers, one layer after another.

T.-H. Nguyen, D. Huu-Tien, T. Suzuki, L.-M. Nguyen. RegMean++: Enhancing Effectiveness and
Generalization of Regression Mean for Model Merging. arXiv:2508.03121, 2025.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.methods._merging import (
    MODELS,
    as_model,
    mean_of_rest,
    network_like,
    shares_of,
    stacked,
)
from fedrepro.methods.regmean import Alpha, Ridge, shrink_off_diagonal
from fedrepro.training.federation.client_queries import Reply


def lowest(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> list[Reply]:
    """Ask for the second moments of the lowest layer's inputs, the same for each setting."""
    from fedrepro.networks.layer_matrices import layer_matrices
    from fedrepro.training.federation.moments import input_moments

    assert info.clients is not None
    layers = layer_matrices(network_like(clients))
    lowest = [layer.key for layer in layers if layer.weight == layers[0].weight]
    return info.clients.query(partial(input_moments, only=lowest))


@method(
    "regmean_plus",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="second moments of layer inputs behind the merged layers, a layer in each exchange",
    models=MODELS,
    one_start=True,
    merges=True,
    label="RegMean++",
    prepare=lowest,
    grid={"alpha": (0.1, 0.5, 0.9, 1.0), "ridge": (1e-6, 0.01)},
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
    """W = (sum_i p_i Â_i)⁻¹ sum_i p_i Â_i W_i, A_i of inputs in the network merged so far.

    Layers are merged from the lowest up, and each goes to the clients before they answer for the
    next: as many exchanges as layers. The lowest layer is that of RegMean. Â_i, p_i as there; all
    else is averaged, and goes to the clients at first.
    """
    from fedrepro.methods.merging.kronecker import regression_mean
    from fedrepro.networks.layer_matrices import layer_matrices, tensors_of_matrices
    from fedrepro.training.federation.moments import input_moments

    assert info.clients is not None
    share = shares_of(info)
    network = network_like(clients)
    matrices = layer_matrices(network)
    of_layers = {name for m in matrices for name in (m.weight, m.bias)}
    mean = mean_of_rest(clients, share, {})
    made = {name: value for name, value in mean.items() if name not in of_layers}
    for weight in dict.fromkeys(layer.weight for layer in matrices):
        layers = [layer for layer in matrices if layer.weight == weight]
        question = partial(input_moments, only=[layer.key for layer in layers])
        first = weight == matrices[0].weight
        answers = prepared if first else info.clients.query(question, made)
        solved = {
            layer.key: regression_mean(
                layer.of(clients.tensors),
                shrink_off_diagonal(stacked(answers, layer.key), alpha),
                share,
                ridge,
            )
            for layer in layers
        }
        made |= {
            name: np.ascontiguousarray(value[None], np.float32)
            for name, value in tensors_of_matrices(layers, solved).items()
        }
    return as_model(clients, {name: made[name] for name in network.shapes})

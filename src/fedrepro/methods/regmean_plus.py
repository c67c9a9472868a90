"""RegMean++: RegMean whose moments are those behind the merged layers, one layer after another.

T.-H. Nguyen, D. Huu-Tien, T. Suzuki, L.-M. Nguyen. RegMean++: Enhancing Effectiveness and
Generalization of Regression Mean for Model Merging. arXiv:2508.03121, 2025.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import Rng
from fedrepro.federation.asking import Answers
from fedrepro.methods._merging import MODELS, as_model, shares_of, stacked
from fedrepro.methods.regmean import Alpha, Ridge, damped


def lowest(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> list[Answers]:
    """The second moments of the lowest layer's inputs, which are the same for each setting."""
    from fedrepro.networks.matrices import layer_matrices
    from fedrepro.networks.predict import network_of
    from fedrepro.training.moments import input_moments

    assert info.clients is not None
    layers = layer_matrices(network_of(clients.model, clients.shape, clients.classes))
    return info.clients.ask(partial(input_moments, only=[layers[0].weight]))


@method(
    "regmean_plus",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="second moments of layer inputs behind the merged layers, a layer in each exchange",
    models=MODELS,
    one_start=True,
    label="RegMean++",
    prepare=lowest,
    grid={"alpha": (0.1, 0.5, 0.9, 1.0), "ridge": (1e-6, 0.01)},
)
def regmean_plus(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: Rng,
    prepared: list[Answers],
    alpha: Alpha = 0.9,
    ridge: Ridge = 1e-6,
) -> GlobalModel:
    """W = (sum_i p_i Â_i)⁻¹ sum_i p_i Â_i W_i, A_i of inputs in the network merged so far.

    Layers are merged from the lowest up, and each goes to the clients before they answer for the
    next: as many exchanges as layers. The lowest layer is that of RegMean. Â_i, p_i as there.
    """
    from fedrepro.merging.kronecker import regression_mean
    from fedrepro.networks.matrices import layer_matrices
    from fedrepro.networks.predict import network_of
    from fedrepro.training.moments import input_moments

    assert info.clients is not None
    share = shares_of(info)
    made: dict[str, np.ndarray] = {}
    network = network_of(clients.model, clients.shape, clients.classes)
    for layer in layer_matrices(network):
        question = partial(input_moments, only=[layer.weight])
        answers = info.clients.ask(question, made) if made else prepared
        moments = damped(stacked(answers, layer.weight), alpha)
        matrix = regression_mean(layer.of(clients.tensors), moments, share, ridge)
        made |= {
            name: np.ascontiguousarray(value[None], np.float32)
            for name, value in layer.tensors(matrix).items()
        }
    return as_model(clients, {name: made[name] for name in network.shapes})

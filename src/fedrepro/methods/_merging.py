"""What methods share that merge networks layer by layer, by what clients answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels

MODELS = {"cnn", "logistic", "mlp"}  # whose layers are matrices


def shares_of(info: ClientInfo) -> np.ndarray:
    """Each client's share p_i of all examples, float64 (J,)."""
    assert info.example_counts is not None
    shares: np.ndarray = info.example_counts / info.example_counts.sum()
    return shares


def merged(
    clients: LocalModels, layer: Callable[[str, np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """One network, float32 (1, *shape): layer(weight, matrices) of each layer's (J, D, K)."""
    from fedrepro.networks.matrices import layer_matrices
    from fedrepro.networks.predict import network_of

    tensors: dict[str, np.ndarray] = {}
    network = network_of(clients.model, clients.shape, clients.classes)
    for layer_matrix in layer_matrices(network):
        matrix = layer(layer_matrix.weight, layer_matrix.of(clients.tensors))
        tensors |= {name: value[None] for name, value in layer_matrix.tensors(matrix).items()}
    return {name: np.ascontiguousarray(tensors[name], np.float32) for name in network.shapes}


def stacked(answers: Sequence[Mapping[str, np.ndarray]], name: str) -> np.ndarray:
    """One answer of all clients: (J, …)."""
    return np.stack([answer[name] for answer in answers])


def as_model(
    clients: LocalModels, tensors: Mapping[str, np.ndarray], left: float | None = None
) -> GlobalModel:
    """One network like those of the clients; left: of the residual, where a system was solved."""
    diagnostics = {} if left is None else {"residual_left": left}
    return GlobalModel(clients.model, tensors, diagnostics=diagnostics)

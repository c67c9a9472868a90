"""Functions for methods that merge networks, layer by layer or as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels
from fedrepro.core.method_kinds import MIXED, MODULE, WHICH
from fedrepro.core.rng import RngKey
from fedrepro.training.federation.client_queries import Reply

if TYPE_CHECKING:
    from fedrepro.networks.network import Network

MODELS = {"cnn", "logistic", "mlp", MODULE}  # whose layers have matrices
UNITS = {"cnn", "mlp", MODULE}  # whose units may change places


def network_like(clients: LocalModels) -> Network:
    """Build the network of the clients."""
    from fedrepro.networks.predict import network_of

    return network_of(clients.model, clients.shape, clients.classes)


def asking(question: str, **options: Any) -> Callable[..., list[Reply]]:
    """Make a `prepare` that puts a question of `federation.moments` to each client's own model."""

    def prepare(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> list[Reply]:
        from fedrepro.training.federation import moments

        assert info.clients is not None
        return info.clients.query(partial(getattr(moments, question), **options))

    return prepare


def shares_of(info: ClientInfo) -> np.ndarray:
    """Compute each client's share p_i of all examples, float64 (J,)."""
    assert info.example_counts is not None
    shares: np.ndarray = info.example_counts / info.example_counts.sum()
    return shares


def merge_layers(
    clients: LocalModels, share: np.ndarray, layer: Callable[[str, np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """Merge networks into one, float32 (1, *shape): layer(key, matrices (J, D, K)) of each layer.

    All else, as weights of normalisation, is the mean by these shares.
    """
    from fedrepro.networks.layer_matrices import layer_matrices, tensors_of_matrices

    network = network_like(clients)
    layers = layer_matrices(network)
    made = tensors_of_matrices(layers, {m.key: layer(m.key, m.of(clients.tensors)) for m in layers})
    tensors = {name: value[None] for name, value in made.items()}
    return mean_of_rest(clients, share, tensors)


def mean_of_rest(
    clients: LocalModels, share: np.ndarray, made: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Complete a network, float32 (1, *shape): tensors that are made, and means of the rest."""
    from fedrepro.methods.merging.kronecker import mean_of
    from fedrepro.training.federation.norm_statistics import mean_buffers

    network = network_like(clients)
    tensors = dict(made)
    for name in network.shapes:
        if name not in tensors and name not in network.buffers:
            tensors[name] = mean_of(clients.tensors[name], share)[None]
    tensors |= mean_buffers(network, clients.tensors, share)
    return {name: np.ascontiguousarray(tensors[name], np.float32) for name in network.shapes}


def with_mean_buffers(clients: LocalModels, share: np.ndarray, made: GlobalModel) -> GlobalModel:
    """Give a model that is made of all tensors alike its buffers as of `mean_buffers`."""
    from fedrepro.training.federation.norm_statistics import mean_buffers

    if MODULE not in clients.model.component.meta:
        return made
    network = network_like(clients)
    return replace(made, tensors={**made.tensors, **mean_buffers(network, clients.tensors, share)})


def of_one_form(clients: LocalModels, info: ClientInfo) -> tuple[LocalModels, ClientInfo]:
    """Keep the clients with the form of network that most have, the first of equals."""
    if clients.model.name == MIXED:
        kind = clients.tensors[WHICH].argmax(axis=1)
        k = int(np.bincount(kind).argmax())
        spec = clients.model.component.meta["specs"][k]
        members = np.flatnonzero(kind == k)
        mark = f"{k}."
        own = {n.removeprefix(mark): v for n, v in clients.tensors.items() if n.startswith(mark)}
    elif clients.widths:
        widths = max(clients.widths, key=clients.widths.count)
        members = np.flatnonzero([own == widths for own in clients.widths])
        spec, ends = (
            clients.model.component.spec({**clients.model.values, "hidden": widths}),
            ((None, *widths, None)),
        )
        own = {
            name: value[:, : ends[int(name[-1])], : ends[int(name[-1]) + 1]]
            if name.startswith("weight")
            else value[:, : ends[int(name[-1]) + 1]]
            for name, value in clients.tensors.items()
        }
    else:
        return clients, info
    counts = info.example_counts
    some = replace(info, example_counts=None if counts is None else counts[members])
    tensors = {name: value[members] for name, value in own.items()}
    return replace(clients, model=spec, tensors=tensors, widths=None), some


def stacked(answers: Sequence[Mapping[str, np.ndarray]], name: str) -> np.ndarray:
    """Stack one answer of all clients: (J, …)."""
    return np.stack([answer[name] for answer in answers])


def as_model(
    clients: LocalModels, tensors: Mapping[str, np.ndarray], left: float | None = None
) -> GlobalModel:
    """Make one network like those of the clients, with the residual `left` of a solved system."""
    diagnostics = {} if left is None else {"residual_left": left}
    return GlobalModel(clients.model, tensors, diagnostics=diagnostics)

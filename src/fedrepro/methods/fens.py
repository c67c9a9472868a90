"""FENS: all clients' models, and a small gate over their logits that the clients train together.

Y. Allouah, A. Dhasade, R. Guerraoui, N. Gupta, A.-M. Kermarrec, R. Pinot, R. Pires, R. Sharma.
Revisiting Ensembling in One-Shot Federated Learning. NeurIPS 2024. A gate is a network of one or
two layers, a dict of weight0, bias0, …, from the logits of m networks (n, m · K) to K logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Traffic, method
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import network_like, shares_of
from fedrepro.networks.predict import joint_logits
from fedrepro.training.training_examples import Examples, tensor_of

Array = np.ndarray
Gate = dict[str, Array]

MOMENTUM, SQUARES, SMALL = 0.9, 0.99, 1e-3  # of FedAdam


def class_weights(networks: int, classes: int, weights: Array) -> Gate:
    """Return a one-layer gate, sum_i w_ik z_ik: `weights` w (m `networks`, K `classes`)."""
    blocks = [np.diag(row) for row in weights]
    assert len(blocks) == networks
    return {"weight0": np.concatenate(blocks), "bias0": np.zeros(classes)}


def gradients(gate: Gate, logits: Array, labels: Array) -> Gate:
    """Return gradients, by name, of a gate's mean cross-entropy on `logits` and `labels` (n,)."""
    deep = "weight1" in gate
    below = logits @ gate["weight0"] + gate["bias0"]
    hidden = np.maximum(below, 0)
    out = hidden @ gate["weight1"] + gate["bias1"] if deep else below
    error = np.exp(out - out.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    upper: Gate = {}
    if deep:
        upper |= {"weight1": hidden.T @ error, "bias1": error.sum(axis=0)}
        error = (error @ gate["weight1"].T) * (below > 0)
    return {"weight0": logits.T @ error, "bias0": error.sum(axis=0)} | upper


class GateServer:
    """The server of FENS: trains the gate network by FedAdam on the clients' mean update Δ.

    m = β₁ m + (1 - β₁) Δ, v = β₂ v + (1 - β₂) Δ², x = x + η m / (√v + τ), η `rate`, without bias
    correction. Source: Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm 2.
    """

    def __init__(self, start: Gate, rate: float) -> None:
        self.gate, self.rate = start, rate
        self.mean = {name: np.zeros_like(value) for name, value in start.items()}
        self.squares = {name: np.zeros_like(value) for name, value in start.items()}

    def step(self, moves: Sequence[Gate], share: Array, only: Gate | None = None) -> None:
        """Update self.gate by one round of clients' updates `moves`: weights after minus before.

        Updates are averaged by `share` (J,). Weights where the mask `only` is 0 stay fixed.
        """
        for name, value in self.gate.items():
            move = sum(p * client_move[name] for p, client_move in zip(share, moves, strict=True))
            move = move * only[name] if only else move
            self.mean[name] = MOMENTUM * self.mean[name] + (1 - MOMENTUM) * move
            self.squares[name] = SQUARES * self.squares[name] + (1 - SQUARES) * move**2
            root = np.sqrt(self.squares[name]) + SMALL
            self.gate[name] = value + self.rate * self.mean[name] / root


@method(
    "fens",
    kind="one_shot",
    needs={"example_counts", "client_validation_examples"},
    label="FENS",
    grid={"gate": ("network", "class_weights"), "rate": (0.001, 0.01)},
    any_width=True,
)
def fens(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    gate: Annotated[
        Literal["network", "class_weights"],
        Arg("two layers over all logits, or a weight for each client and class"),
    ] = "network",
    rounds: Annotated[int, Arg("rounds of training the gate", "rounds", least=1)] = 500,
    rate: Annotated[float, Arg("learning rate of the server", above=0)] = 0.001,
    client_rate: Annotated[float, Arg("learning rate of a client", above=0)] = 1.0,
    batch_size: Annotated[int, Arg("minibatch size of a client", "examples", least=1)] = 128,
    leave: Annotated[
        bool, Arg("train on every second validation example, select on the others", later=True)
    ] = False,
) -> GlobalModel:
    """Predict by a small gate network over all clients' logits z_j, which clients train together.

    The gate f(z_1, …, z_J) has one hidden ReLU layer of J·K units and K outputs, or with `gate`
    "class_weights" is sum_j w_jk z_jk per class. Every client receives all models. In each round
    every client takes one step on a minibatch of its validation examples (every second one with
    `leave`). The server takes one step of FedAdam (β 0.9, 0.99, τ 0.001) along the clients'
    updates, averaged by their numbers of training examples. The gate's width and FedAdam's
    constants are those of public code, or the nearest known. Source: FENS, by the authors' code.
    """
    assert info.clients is not None
    network = network_like(clients)
    count, classes = clients.clients, clients.classes
    known, unseen = [], []
    for j in range(count):
        validation = info.clients.validation(j)
        unseen.append(np.arange(len(validation[1]))[1::2])
        x, labels = (part[:: 1 + leave] for part in validation)
        examples = Examples(tensor_of(x).to(info.device), tensor_of(labels).to(info.device))
        logits = joint_logits(network, clients.tensors, examples).astype(np.float64)
        known.append((logits, network.asked(examples.inputs, examples.targets).cpu().numpy()))
    only = None
    if gate == "class_weights":
        start = class_weights(count, classes, np.full((count, classes), 1 / count))
        only = {"weight0": (start["weight0"] != 0).astype(float), "bias0": np.zeros(classes)}
    else:
        start, stream, width = {}, rng.stream("fens-gate"), count * classes
        limit = 1 / np.sqrt(width)
        for place, out in enumerate((width, classes)):
            start[f"weight{place}"] = stream.uniform(-limit, limit, (width, out))
            start[f"bias{place}"] = stream.uniform(-limit, limit, out)
    server, share = GateServer(start, rate), shares_of(info)
    for done in range(rounds):
        moves = []
        for j, (logits, labels) in enumerate(known):
            stream = rng.at(client=j, round=done).stream("fens-minibatch")
            rows = stream.permutation(len(labels))[:batch_size]
            gradient = gradients(server.gate, logits[rows], labels[rows])
            moves.append({name: -client_rate * value for name, value in gradient.items()})
        server.step(moves, share, only)
    made = {name: value.astype(np.float32) for name, value in server.gate.items()}
    # every model once up, and down to every client; the gate down and up in every round
    models, messages = FLOAT_BYTES * clients.numbers, count * (1 + rounds)
    small = FLOAT_BYTES * sum(value.size for value in made.values()) * count * rounds
    return GlobalModel(
        clients.model,
        clients.tensors,
        gate=made,
        widths=clients.widths,
        traffic=Traffic(messages, messages, models + small, count * models + small),
        exchanges=rounds + 1,
        unseen=unseen if leave else None,
    )

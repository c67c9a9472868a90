"""Gates over several networks, trained by clients in many small rounds (FENS)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray
Gate = dict[str, Array]

MOMENTUM, SQUARES, SMALL = 0.9, 0.99, 1e-3  # of FedAdam


def class_weights(networks: int, classes: int, weights: Array) -> Gate:
    """Make the gate of one layer that gives sum_i w_ik z_ik from weights w (m, K)."""
    blocks = [np.diag(row) for row in weights]
    assert len(blocks) == networks
    return {"weight0": np.concatenate(blocks), "bias0": np.zeros(classes)}


def gradients(gate: Gate, logits: Array, labels: Array) -> Gate:
    """Compute gradients of a gate's mean cross-entropy: one or two layers; (n, m · K), (n,)."""
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
    """FedAdam: m = β₁ m + (1 - β₁) Δ, v = β₂ v + (1 - β₂) Δ², x = x + η m / (√v + τ).

    It corrects no bias. Source: Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm
    2.
    """

    def __init__(self, start: Gate, rate: float) -> None:
        self.gate, self.rate = start, rate
        self.mean = {name: np.zeros_like(value) for name, value in start.items()}
        self.squares = {name: np.zeros_like(value) for name, value in start.items()}

    def step(self, moves: Sequence[Gate], share: Array, only: Gate | None = None) -> None:
        """Apply one round of the clients' weighted moves; weights where `only` is 0 do not move."""
        for name, value in self.gate.items():
            move = sum(p * client_move[name] for p, client_move in zip(share, moves, strict=True))
            move = move * only[name] if only else move
            self.mean[name] = MOMENTUM * self.mean[name] + (1 - MOMENTUM) * move
            self.squares[name] = SQUARES * self.squares[name] + (1 - SQUARES) * move**2
            self.gate[name] = value + self.rate * self.mean[name] / (
                np.sqrt(self.squares[name]) + SMALL
            )

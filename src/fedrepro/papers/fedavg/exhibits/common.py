"""Shared parts of exhibits: data, clients, and FedAvg until it reaches a target."""

from __future__ import annotations

from typing import Any

from fedrepro.planning.exhibit_settings import Entry, component, text, with_changes

MNIST = component("mnist")
CENTRED = with_changes(MNIST, features="centred")  # pixels from −0.5 to 0.5
IID = component("iid", clients=100, validation=500)
SHARDS = with_changes(IID, name="shards")

QUICK_CLIENTS = {"clients": 20, "validation": 100}
QUICK_SHARDS = with_changes(SHARDS, **QUICK_CLIENTS)
TINY_CLIENTS = {"clients": 8, "validation": 100}
TINY_SHARDS = with_changes(SHARDS, **TINY_CLIENTS)

WHOLE = {"batch_size": None}  # B = ∞: a minibatch is all that a client has
RATES = [0.05, 0.1, 0.2]

# how a learning rate is chosen where none is stopped early
SECOND_HALF = {"metric": "accuracy", "split": "server_validation", "over": "half"}

SMALL_CNN = {"channels": [4, 8], "kernel": 3, "hidden": [32]}
SMALL_RATES = [0.1, 0.2]  # at the small scales

ENDS = text("""A run ends where test accuracy reaches the target: that is what is measured. Accuracy
    is measured after every round up to 50, then every 2 %, and is linear between. What is not
    reached in 1.5 times the printed rounds is more than that.""")
WEIGHTS = "Weights start uniform within one over the root of a layer's inputs."


def case(label: str, **changes: Any) -> dict[str, Any]:
    """Return a case of an exhibit with its label and changes."""
    return {"label": label, **changes}


TWO_RANGES = {
    "as-stored": case("pixels 0 to 1"),
    "centred": case("pixels −0.5 to 0.5", dataset=CENTRED),
}


def minibatches(size: int | None, lr: list[float] = RATES) -> dict[str, Any]:
    """Training on minibatches of this size (None: B = ∞) with one of these learning rates."""
    return {"batch_size": size, "lr": lr}


def fedavg_until(target: float, label: str, **parameters: Any) -> Entry:
    """FedAvg until test accuracy reaches the target; its learning rates race."""
    return component(
        "fedavg", label, **parameters, choose="race", measure_every="auto", until=target
    )


def fedavg_by_fraction(
    target: float, rounds: dict[float, int], lr: list[float] = RATES, **parameters: Any
) -> Entry:
    """Return FedAvg for each share C of clients, each run with the most rounds of its C."""
    settings = [{"fraction": share, "rounds": last} for share, last in rounds.items()]
    return fedavg_until(
        target, "FedAvg", settings=settings, training={"lr": lr}, show=["fraction"], **parameters
    )


def rounds_table(rows: str, columns: str) -> Entry:
    """Return a table of the rounds until the target is reached."""
    return component(
        "table",
        rows=[rows],
        columns=[columns],
        metric="rounds_to_target",
        split="",
        sizes=False,
        best="none",
    )

"""Which way gradients are computed, per kind of network and device.

`paths.json` is the table; `fedrepro bench paths` measures it anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Literal, cast, get_args

from fedrepro.core.errors import FedreproError
from fedrepro.networks.network import Network
from fedrepro.training.hand import by_hand

# hand: written-out gradients of dense networks and of some terms. grouped: stacked forward pass,
# with grouped convolutions. loop: models one after another.
StepPath = Literal["hand", "grouped", "loop"]
PATHS: tuple[StepPath, ...] = get_args(StepPath)


@cache
def table() -> dict[str, dict[str, StepPath]]:
    """The measured choice: device type, kind of network, path."""
    text = resources.files("fedrepro.training").joinpath("paths.json").read_text("utf-8")
    return cast(dict[str, dict[str, StepPath]], json.loads(text))


def choose(network: Network, device: str, terms: Sequence[object]) -> StepPath:
    """The path for this network; what is not written out is differentiated automatically."""
    path = table()["cuda" if device == "cuda" else "cpu"][network.kind]
    if path == "hand" and not by_hand(network, terms):
        return "grouped"
    return path


def possible(network: Network, terms: Sequence[object]) -> tuple[StepPath, ...]:
    """The paths that can train this network."""
    found: list[StepPath] = ["grouped", "loop"]
    if by_hand(network, terms):
        found.append("hand")
    return tuple(path for path in PATHS if path in found)


def require(path: StepPath, network: Network, terms: Sequence[object]) -> StepPath:
    """The path itself, or an error if it cannot train this network."""
    if path not in possible(network, terms):
        raise FedreproError(
            f"path '{path}' cannot train this {network.kind} network; "
            f"use {', '.join(possible(network, terms))}"
        )
    return path

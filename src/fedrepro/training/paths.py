"""Which way gradients are computed, per kind of network and device.

`paths.json` is the table; `fedrepro bench paths` measures it anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import Literal, cast, get_args

from fedrepro.core.errors import FedreproError
from fedrepro.networks.network import Network
from fedrepro.training.hand import by_hand

# hand: written-out gradients of dense networks and of some terms; of variational ones on the CPU,
# where Numba is installed.
# grouped: stacked forward pass, with grouped convolutions. loop: models one after another.
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
    return path if path in possible(network, terms, device) else "grouped"


def possible(
    network: Network, terms: Sequence[object], device: str = "cpu"
) -> tuple[StepPath, ...]:
    """The paths that can train this network there."""
    found: list[StepPath] = ["grouped", "loop"]
    drawn_there = device == "cpu" and find_spec("numba") is not None
    if by_hand(network, terms) and (drawn_there or not network.all_drawn):
        found.append("hand")
    return tuple(path for path in PATHS if path in found)


def require(path: StepPath, network: Network, terms: Sequence[object], device: str) -> StepPath:
    """The path itself, or an error if it cannot train this network."""
    able = possible(network, terms, device)
    if path not in able:
        raise FedreproError(
            f"path '{path}' cannot train this {network.kind} network; use {', '.join(able)}"
        )
    return path

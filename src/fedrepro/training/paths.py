"""Which way gradients are computed, per kind of network and device.

`paths.json` is the table; `fedrepro bench paths` measures it anew.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Literal, cast, get_args

from fedrepro.core.errors import FedreproError
from fedrepro.training.compiled import written_out
from fedrepro.training.procedure import Procedure

# compiled: dense and variational networks and some terms on the CPU, one model after another,
# where Numba is installed.
# grouped: stacked forward pass, with grouped convolutions. loop: models one after another.
StepPath = Literal["compiled", "grouped", "loop"]
PATHS: tuple[StepPath, ...] = get_args(StepPath)


@cache
def table() -> dict[str, dict[str, StepPath]]:
    """The measured choice: device type, kind of network, path."""
    text = resources.files("fedrepro.training").joinpath("paths.json").read_text("utf-8")
    return cast(dict[str, dict[str, StepPath]], json.loads(text))


def choose(procedure: Procedure, device: str) -> StepPath:
    """The path for this training; what is not written out is differentiated automatically."""
    path = table()["cuda" if device == "cuda" else "cpu"][procedure.network.kind]
    if path in possible(procedure, device):
        return path
    return "grouped" if device == "cuda" else "loop"


def possible(procedure: Procedure, device: str = "cpu") -> tuple[StepPath, ...]:
    """The paths that can train so there."""
    paths = ["grouped", "loop"]
    if written_out(procedure.network, procedure.losses) and device == "cpu":
        paths.append("compiled")
    return tuple(path for path in PATHS if path in paths)


def require(path: StepPath, procedure: Procedure, device: str) -> StepPath:
    """The path itself, or an error if it cannot train so."""
    able = possible(procedure, device)
    if path not in able:
        raise FedreproError(
            f"path '{path}' cannot train this {procedure.network.kind} network; "
            f"use {', '.join(able)}"
        )
    return path

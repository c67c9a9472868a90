"""Ways to compute gradients, by network and device."""

from __future__ import annotations

from typing import Literal, get_args

from fedrepro.core.errors import FedreproError
from fedrepro.training.compiled_trainer import written_out
from fedrepro.training.procedure import Procedure

# compiled: on the CPU, networks and terms whose gradients are written out, one model after another.
# Other networks and terms are differentiated automatically, on the CPU one model after another
# (loop), on a GPU in a stacked forward pass (grouped).
StepPath = Literal["compiled", "grouped", "loop"]
PATHS: tuple[StepPath, ...] = get_args(StepPath)


def choose_path(procedure: Procedure, device: str) -> StepPath:
    """Choose the path of a training: compiled steps wherever they can be taken."""
    if device == "cuda":
        return "grouped"
    return "compiled" if "compiled" in possible(procedure, device) else "loop"


def possible(procedure: Procedure, device: str = "cpu") -> tuple[StepPath, ...]:
    """List the paths that can train by this procedure on a device."""
    paths = ["grouped", "loop"]
    known = not procedure.perturbations and written_out(procedure.network, procedure.losses)
    if known and device == "cpu":
        paths.append("compiled")
    return tuple(path for path in PATHS if path in paths)


def require(path: StepPath, procedure: Procedure, device: str) -> StepPath:
    """Return the path, or raise FedreproError if it cannot train so."""
    able = possible(procedure, device)
    if path not in able:
        raise FedreproError(
            f"path '{path}' cannot train this {procedure.network.kind} network; "
            f"use {', '.join(able)}"
        )
    return path

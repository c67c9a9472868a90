"""Contents of PyTorch's files: state dicts in checkpoints, prefixes of wrappers, tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrepro.core.artifacts import one_line
from fedrepro.core.errors import FedreproError

StateDict = Mapping[str, Any]  # names to torch tensors or NumPy arrays
CHECKPOINT = ("state_dict", "model_state_dict")  # keys under which checkpoints keep a state dict
WRAPPER = re.compile(r"(?:module|_orig_mod)\.")  # of DataParallel and torch.compile


def unwrapped(state_dicts: Sequence[Any]) -> list[Any]:
    """Take state dicts out of checkpoints that keep them under a usual key."""

    def inner(state: Any) -> Any:
        if not isinstance(state, Mapping):
            return state
        return next((state[k] for k in CHECKPOINT if isinstance(state.get(k), Mapping)), state)

    return [inner(state) for state in state_dicts]


def unprefixed(state: StateDict) -> list[tuple[str, StateDict]]:
    """Return the state dict as it is, and without each prefix that a wrapper put before keys."""
    found: list[tuple[str, StateDict]] = [("", state)]
    while True:
        prefix, inner = found[-1]
        marks = {(WRAPPER.match(str(key)) or [""])[0] for key in inner}
        mark = marks.pop() if len(marks) == 1 else ""
        if not mark:
            return found
        found.append((prefix + mark, {str(k)[len(mark) :]: v for k, v in inner.items()}))


def without_prefix(state_dicts: Sequence[StateDict]) -> list[StateDict]:
    """Remove the prefixes of wrappers from state dicts if these differ."""
    cut = [unprefixed(state)[-1] for state in state_dicts]
    same = len({prefix for prefix, _ in cut}) == 1
    return list(state_dicts) if same else [inner for _, inner in cut]


def array_of(value: Any, key: str, where: str) -> np.ndarray:
    """Convert a tensor or array to float32.

    Raises:
        FedreproError: If it has no finite numbers.
    """
    if hasattr(value, "detach"):
        try:
            value = value.detach().cpu()
            value = value.float().numpy() if value.is_floating_point() else value.numpy()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise FedreproError(
                f"{where}: '{key}' is not a plain tensor ({one_line(error)}); store one that is "
                "dense, not quantised, and has its numbers"
            ) from None
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        raise FedreproError(f"{where}: '{key}' holds no floating-point numbers")
    with np.errstate(over="ignore"):  # what is too large for single precision is refused below
        array = value.astype(np.float32)
    if not np.isfinite(array).all():
        raise FedreproError(f"{where}: '{key}' has a number that is not finite; leave it out")
    return array

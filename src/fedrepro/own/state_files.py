"""Files of state dicts, in the form that their names say: PyTorch, safetensors or NumPy."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts import one_line, require_file, write_bytes
from fedrepro.core.errors import FedreproError
from fedrepro.core.states import save_state

PYTORCH = (".pt", ".pth")
NAMED = (".safetensors", ".npz")  # these hold named tensors and nothing else
SUFFIXES = (*PYTORCH, *NAMED)
DIGITS = re.compile("([0-9]+)")


def read_state(path: Path) -> Any:
    """Read a state dict without running code from its file; PyTorch's form by default.

    Raises:
        FedreproError: For a file that is missing or cannot be read.
    """
    require_file(path)
    if not path.exists():
        raise FedreproError(f"{path} is missing; name the state dict of each client")
    readers: dict[str, Callable[[Path], Any]] = {
        ".safetensors": _read_safetensors,
        ".npz": _read_npz,
    }
    try:
        return readers.get(path.suffix, _read_pytorch)(path)
    except Exception as error:  # unpickling can raise anything
        code = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it holds {code[1]}, and no code of a file is run" if code else one_line(error)
        raise FedreproError(
            f"{path} cannot be read as a state dict ({why}); save one with "
            "torch.save(network.state_dict(), …)"
        ) from error


def _read_pytorch(path: Path) -> Any:
    import torch

    return torch.load(path, weights_only=True, map_location="cpu")


def _read_safetensors(path: Path) -> dict[str, Any]:
    """Sort names, which the file sorts as text, with numbers by value: 0, 2, 10."""
    from safetensors.torch import load_file

    def by_value(name: str) -> list[Any]:
        return [int(part) if part.isdecimal() else part for part in DIGITS.split(name)]

    state = load_file(path)
    return {name: state[name] for name in sorted(state, key=by_value)}


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    arrays = np.load(path, allow_pickle=False)
    if not isinstance(arrays, np.lib.npyio.NpzFile):
        raise ValueError("it is a single array")
    with arrays:
        return {name: arrays[name] for name in arrays.files}


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state dict, or a mixture of several, in the form that the name of the file says.

    Raises:
        FedreproError: For a mixture in a form that holds named tensors alone.
    """
    if path.suffix in PYTORCH:
        save_state(path, state)
        return
    if "state_dicts" in state:
        raise FedreproError(
            f"cannot write {path}: several networks with their weights go into one .pt file only; "
            "name it so"
        )
    write_bytes(path, _safetensors(state) if path.suffix == ".safetensors" else _npz(state))


def _safetensors(state: Mapping[str, Any]) -> bytes:
    from safetensors.torch import save

    return save({name: tensor.contiguous() for name, tensor in state.items()})


def _npz(state: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: tensor.numpy() for name, tensor in state.items()})  # dated 1980
    return buffer.getvalue()

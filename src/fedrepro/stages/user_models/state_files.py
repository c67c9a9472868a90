"""Files of state dicts, in the form that their names say: PyTorch, safetensors or NumPy."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts import one_line, require_file, write_bytes
from fedrepro.core.errors import FedreproError
from fedrepro.core.serialization import save_state

PYTORCH = (".pt", ".pth")
SUFFIXES = (*PYTORCH, ".safetensors", ".npz")  # the latter hold named tensors and nothing else
DIGITS = re.compile("([0-9]+)")


def read_state(path: Path) -> Any:
    """Read a state dict without running code from its file; PyTorch's form by default.

    Raises:
        FedreproError: For a file that is missing or cannot be read.
    """
    require_file(path)
    if not path.exists():
        raise FedreproError(f"{path} is missing; name the state dict of each client")
    try:
        if path.suffix == ".npz":
            arrays = np.load(path, allow_pickle=False)
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array")
            with arrays:
                return dict(arrays)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            # the file sorts names as text: here numbers in them count by value, 0, 2, 10
            state = load_file(path)
            parts = {name: DIGITS.split(name) for name in state}
            by_value = {k: [int(p) if p.isdecimal() else p for p in v] for k, v in parts.items()}
            return {name: state[name] for name in sorted(state, key=by_value.__getitem__)}
        import torch

        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # unpickling can raise anything
        code = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it holds {code[1]}, and no code of a file is run" if code else one_line(error)
        raise FedreproError(
            f"{path} cannot be read as a state dict ({why}); save one with "
            "torch.save(network.state_dict(), …)"
        ) from error


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
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **{k: v.numpy() for k, v in state.items()})  # dated 1980
        write_bytes(path, buffer.getvalue())
    else:
        from safetensors.torch import save

        write_bytes(path, save({name: tensor.contiguous() for name, tensor in state.items()}))

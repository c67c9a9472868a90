"""States of methods in rounds as plain data, which every reader of `.pt` files returns.

NumPy arrays and sets are written in a form of their own. A state that cannot be kept is refused
when it would be written. `settled` returns a state as its checkpoint would restore it, so a run
that goes on from a checkpoint cannot differ from one that was not stopped.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts import (
    LENGTH,
    UNKNOWN,
    Name,
    atomic,
    corrupt_file_error,
    fill_in,
    names_checksum,
    place_of,
    require_place,
)
from fedrepro.core.errors import FedreproError

PLAIN = (type(None), bool, int, float, str)
# a dict with this key stands for an object that is not plain data
MARK = "fedrepro.kept"
ALLOWED = (
    "numbers, texts, lists, tuples, dicts, sets, NumPy arrays of numbers, and tensors on the CPU "
    "that need no gradient"
)


def normalized(state: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the state in new objects, with contiguous arrays and tensors.

    Args:
        state: plain data, arrays and tensors.
        before: the settled state before it; unchanged entries are shared with it, because a round
            changes little of the state of a million clients.

    Raises:
        FedreproError: an entry cannot be kept; it is named.
    """
    known = {} if before is None or before is state else before
    entries: dict[str, Any] = _settled(state, known, "state")
    return entries


def _settled(value: Any, before: Any, place: str) -> Any:
    if type(value) is not dict or MARK in value or type(before) is not dict:
        return from_plain(to_plain(value, place))
    entries = {}
    for key, item in value.items():
        old = before.get(key)
        if item is old and type(item) not in PLAIN:
            entries[key] = item
        else:
            _name(key, f"the key {key!r} of {place}")
            entries[key] = _settled(item, old, f"{place}[{key!r}]")
    return entries


def to_plain(value: Any, place: str = "state") -> Any:
    """Return plain data and tensors that stand for a state; `place` is its name in errors.

    Tensors share the memory of its arrays where they can, since a state may be large.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict and MARK not in value and _alike(value):
        keys = [_name(key, f"the key {key!r} of {place}") for key in value]
        tensors = {
            name: _tensor(
                np.stack([arrays[name] for arrays in value.values()]), f"{place}[…][{name!r}]"
            )
            for name in value[keys[0]]
        }
        return {MARK: "alike", "keys": keys, "each": tensors}
    if kind is dict and MARK not in value:
        keys = [_name(key, f"the key {key!r} of {place}") for key in value]
        return {key: to_plain(value[key], f"{place}[{key!r}]") for key in keys}
    if kind in (list, tuple):
        return kind(to_plain(item, f"{place}[{i}]") for i, item in enumerate(value))
    if kind in (set, frozenset):
        items = [_name(item, f"{item!r} in {place}") for item in value]
        return {MARK: kind.__name__, "items": sorted(items, key=repr)}
    if kind is np.ndarray or isinstance(value, np.generic):
        return {MARK: "array" if kind is np.ndarray else "number", "value": _tensor(value, place)}
    if not _is_tensor(value):
        raise _refused(place, f"a {kind.__name__}")
    return _contiguous(value, place)


def from_plain(data: Any) -> Any:
    """Restore a packed state, in new arrays and tensors that share no memory with other states."""
    if isinstance(data, dict):
        if MARK in data:
            return FORMS[data[MARK]](data)
        return {key: from_plain(item) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(from_plain(item) for item in data)
    return data if type(data) in PLAIN else data.clone()


FORMS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "array": lambda data: data["value"].numpy().copy(),
    "alike": lambda data: _apart(data["keys"], data["each"]),
    "number": lambda data: data["value"].numpy()[()],
    "set": lambda data: set(data["items"]),
    "frozenset": lambda data: frozenset(data["items"]),
}


def _alike(value: Mapping[Any, Any]) -> bool:
    """Whether these are several dicts of arrays with equal names, types and shapes.

    Clients keep such dicts. A file has one array per name of them, instead of one per client and
    name.
    """
    forms = [
        {name: (array.dtype, array.shape) for name, array in arrays.items()}
        for arrays in value.values()
        if type(arrays) is dict
        and all(type(name) is str and type(array) is np.ndarray for name, array in arrays.items())
    ]
    return 1 < len(forms) == len(value) and forms[0] != {} and forms.count(forms[0]) == len(forms)


def _apart(keys: list[Any], each: Mapping[str, Any]) -> dict[Any, dict[str, np.ndarray]]:
    return {
        key: {name: value[at].numpy().copy() for name, value in each.items()}
        for at, key in enumerate(keys)
    }


def _name(value: Any, place: str) -> Any:
    """Check a key of a dict or an item of a set: plain, or a tuple of plain values."""
    parts = value if type(value) is tuple else (value,)
    if not all(type(part) in PLAIN for part in parts):
        raise _refused(place, f"a {type(value).__name__}")
    return value


def _tensor(value: Any, place: str) -> Any:
    """Convert an array or a number of NumPy to a tensor."""
    import torch

    try:
        # a read-only array is copied, or torch would warn of it
        return torch.from_numpy(np.require(value, requirements=("C", "W")))
    except (TypeError, ValueError):
        raise _refused(place, f"an array of {value.dtype}") from None


def _is_tensor(value: Any) -> bool:
    import torch

    return type(value) is torch.Tensor


def _contiguous(value: Any, place: str) -> Any:
    import torch

    if value.device.type != "cpu" or value.layout != torch.strided:
        raise _refused(place, f"a tensor on {value.device}, {value.layout}")
    if value.requires_grad:
        raise _refused(place, "a tensor that needs a gradient")
    return value.contiguous()


def _refused(place: str, what: str) -> FedreproError:
    return FedreproError(
        f"the state of a method in rounds cannot be kept: {place} is {what}; it may hold {ALLOWED}"
    )


# --------------------------------------------------------------------------------------- files

# the record that ends a zip archive: how it begins, and its length without the comment
END_RECORD, END_LENGTH = b"PK\x05\x06", 22


def save_state(path: Name, state: Any) -> None:
    """Write plain data and tensors as `.pt`, a zip archive; equal states give equal bytes.

    The archive's comment is its place and its checksum, and any program can still read it.
    """
    import torch

    # torch.save writes the file's own name into the archive, so it goes through a buffer
    buffer = io.BytesIO()
    torch.save(_canonical(state, {}), buffer)
    comment = f"{place_of(path)} {UNKNOWN}".encode()
    buffer.seek(-2, io.SEEK_END)  # the length of the comment, in two bytes
    buffer.write(len(comment).to_bytes(2, "little") + comment)
    with atomic(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())
        fill_in(temporary)


def _canonical(value: Any, texts: dict[str, str]) -> Any:
    """Return equal data in new objects, in which equal texts are one object.

    Pickle writes an object that it has met before as a reference, so that otherwise the bytes of a
    state just computed would differ from those of one read back.
    """
    if isinstance(value, str):
        return texts.setdefault(value, value)
    if isinstance(value, dict):
        return {_canonical(k, texts): _canonical(v, texts) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_canonical(item, texts) for item in value)
    return value.detach().clone() if hasattr(value, "detach") else value


def load_state(path: Name) -> Any:
    """Read a file of `save_state`; tensors on the CPU.

    Raises:
        FedreproError: the file is missing, damaged, or was written for another place.
    """
    import torch

    try:
        if not names_checksum(path):
            raise corrupt_file_error(path, "its checksum is missing")
        data = Path(path).read_bytes()
        require_place(path, data[data.rfind(END_RECORD) + END_LENGTH : -LENGTH].decode().strip())
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except FedreproError:
        raise
    except Exception as error:  # unpickling can raise anything
        raise corrupt_file_error(path, error) from error

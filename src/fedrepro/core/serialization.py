"""Files of the states of methods in rounds (`.pt`), and of local models (parquet).

A state is plain data with tensors, NumPy arrays and sets; other data are refused. `normalized`
returns a state as its checkpoint would restore it, so that a run that goes on from a checkpoint
cannot differ from a run that was not stopped.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.artifacts import (
    LENGTH,
    UNKNOWN,
    Name,
    Source,
    atomic,
    corrupt_file_error,
    fill_in,
    names_checksum,
    opened,
    place_of,
    require_place,
    require_source,
    write_table,
)
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    import pyarrow as pa

PLAIN = (type(None), bool, int, float, str)
# a dict with this key stands for an object that is not plain data
MARK = "fedrepro.kept"
ALLOWED = (
    "numbers, texts, lists, tuples, dicts, sets, NumPy arrays of numbers, and tensors on the CPU "
    "that need no gradient"
)


def normalized(state: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a copy of a method's state as its checkpoint would restore it, arrays contiguous.

    So a resumed run cannot differ from an uninterrupted one. Values that did not change are shared
    with `before`, the normalized state of the previous round.
    """

    def settled(value: Any, before: Any, place: str) -> Any:
        if type(value) is not dict or MARK in value or type(before) is not dict:
            return from_plain(to_plain(value, place))
        entries = {}
        for key, item in value.items():
            old = before.get(key)
            if item is old and type(item) not in PLAIN:
                entries[key] = item
            else:
                _name(key, f"the key {key!r} of {place}")
                entries[key] = settled(item, old, f"{place}[{key!r}]")
        return entries

    entries: dict[str, Any] = settled(state, {} if before is state else before or {}, "state")
    return entries


def to_plain(value: Any, place: str = "state") -> Any:
    """Return a method's state as plain data and tensors, which a `.pt` file can hold.

    Tensors share the memory of the state's arrays where possible. `place` is the state's name in
    errors. Raises FedreproError for values that no file can hold.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict and MARK not in value:
        keys = [_name(key, f"the key {key!r} of {place}") for key in value]
        if not _alike(value):
            return {key: to_plain(value[key], f"{place}[{key!r}]") for key in keys}
        stacked = {name: np.stack([one[name] for one in value.values()]) for name in value[keys[0]]}
        each = {name: _tensor(array, f"{place}[…][{name!r}]") for name, array in stacked.items()}
        return {MARK: "alike", "keys": keys, "each": each}
    if kind in (list, tuple):
        return kind(to_plain(item, f"{place}[{i}]") for i, item in enumerate(value))
    if kind in (set, frozenset):
        items = [_name(item, f"{item!r} in {place}") for item in value]
        return {MARK: kind.__name__, "items": sorted(items, key=repr)}
    if kind is np.ndarray or isinstance(value, np.generic):
        return {MARK: "array" if kind is np.ndarray else "number", "value": _tensor(value, place)}
    import torch

    if kind is not torch.Tensor:
        raise _refused(place, f"a {kind.__name__}")
    if value.device.type != "cpu" or value.layout != torch.strided:
        raise _refused(place, f"a tensor on {value.device}, {value.layout}")
    if value.requires_grad:
        raise _refused(place, "a tensor that needs a gradient")
    return value.contiguous()


def from_plain(data: Any) -> Any:
    """Return the state from which `to_plain` made `data`, in new arrays and tensors."""
    if isinstance(data, dict):
        if MARK in data:
            return FORMS[data[MARK]](data)
        return {key: from_plain(item) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(from_plain(item) for item in data)
    return data if type(data) in PLAIN else data.clone()


FORMS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "array": lambda data: data["value"].numpy().copy(),
    "alike": lambda data: {
        key: {name: value[at].numpy().copy() for name, value in data["each"].items()}
        for at, key in enumerate(data["keys"])
    },
    "number": lambda data: data["value"].numpy()[()],
    "set": lambda data: set(data["items"]),
    "frozenset": lambda data: frozenset(data["items"]),
}


def _alike(value: Mapping[Any, Any]) -> bool:
    """Return whether all values of a dict are dicts of arrays with equal names, types and shapes.

    Clients' states are of this form; a file can then stack the arrays of each name in one array.
    """
    forms = [
        {name: (array.dtype, array.shape) for name, array in arrays.items()}
        for arrays in value.values()
        if type(arrays) is dict
        and all(type(name) is str and type(array) is np.ndarray for name, array in arrays.items())
    ]
    return 1 < len(forms) == len(value) and forms[0] != {} and forms.count(forms[0]) == len(forms)


def _name(value: Any, place: str) -> Any:
    """Return `value`, a dict's key or a set's item; raise FedreproError if it cannot be stored.

    It may be a number, text, truth value or None, or a tuple of these. `place` names it in errors.
    """
    parts = value if type(value) is tuple else (value,)
    if not all(type(part) in PLAIN for part in parts):
        raise _refused(place, f"a {type(value).__name__}")
    return value


def _tensor(value: Any, place: str) -> Any:
    """Convert a NumPy array or number to a tensor; raise FedreproError for types torch lacks."""
    import torch

    try:
        # a read-only array is copied, or torch would warn of it
        return torch.from_numpy(np.require(value, requirements=("C", "W")))
    except (TypeError, ValueError):
        raise _refused(place, f"an array of {value.dtype}") from None


def _refused(place: str, what: str) -> FedreproError:
    return FedreproError(
        f"the state of a method in rounds cannot be kept: {place} is {what}; it may hold {ALLOWED}"
    )


# --------------------------------------------------------------------------------------- files

# the record that ends a zip archive: how it begins, and its length without the comment
END_RECORD, END_LENGTH = b"PK\x05\x06", 22


def save_state(path: Name, state: Any) -> None:
    """Write a method's state, from `to_plain`, as a `.pt` file; equal states give equal bytes.

    `.pt` files are zip archives; the file's relative path and checksum are written into the
    archive's comment, which other programs skip.
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
    """Return a copy of `value` in which equal texts are one object, so that pickles are equal.

    Pickle writes an object that it has met before as a reference. So without this copy a new state
    and one read from a file would differ in bytes. `texts` collects the texts met so far.
    """
    if isinstance(value, str):
        return texts.setdefault(value, value)
    if isinstance(value, dict):
        return {_canonical(k, texts): _canonical(v, texts) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_canonical(item, texts) for item in value)
    return value.detach().clone() if hasattr(value, "detach") else value


def load_state(path: Name) -> Any:
    """Read a state that `save_state` wrote to this path (tensors on the CPU); raise if damaged."""
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


KIND = "local_models"
# of a row group, which is one page of parquet, and a page has at most 2 GiB
GROUP_CLIENTS = 64
GROUP_BYTES = 2**28
NUMBERS = ("trial", "client", "examples")
EPOCHS = "epochs"  # a column where training stops early

Tensors = dict[str, np.ndarray]


def write_models(path: Name, rows: Iterator[pa.Table], provenance: Source) -> None:
    """Write clients' local models (tables from `model_rows`) with provenance to a parquet file.

    Weights are not compressed, which would save a seventh of the bytes and triple the reading time.
    """
    write_table(path, rows, KIND, provenance)


def model_rows(
    trials: Sequence[int],
    clients: Sequence[int],
    examples: Sequence[int],
    tensors: Tensors,
    epochs: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield tables of some local models each, to write to a file: a row per model and tensor.

    Args:
        trials: the trial of each model.
        clients: the client of each model.
        examples: the number of training examples of each model.
        tensors: float32 (models, *shape) by name.
        epochs: the number of epochs that each model was trained, where training stops early.
    """
    import pyarrow as pa

    shapes = [value.shape[1:] for value in tensors.values()]
    sizes = [4 * math.prod(shape) for shape in shapes]
    most = max(1, min(GROUP_CLIENTS, GROUP_BYTES // max(1, sum(sizes))))
    for first in range(0, len(trials), most):
        own = slice(first, first + most)
        numbers = {"trial": trials[own], "client": clients[own], "examples": examples[own]}
        numbers |= {} if epochs is None else {EPOCHS: epochs[own]}
        count = len(trials[own])
        flat = np.concatenate(
            [value[own].reshape(count, -1) for value in tensors.values()], axis=1, dtype="<f4"
        )
        buffers = [None, pa.py_buffer(np.cumsum([0, *sizes * count])), pa.py_buffer(flat)]
        yield pa.table(
            {
                **{k: pa.array(np.repeat(v, len(sizes)), pa.int32()) for k, v in numbers.items()},
                "tensor": pa.array([*tensors] * count, pa.string()),
                "shape": pa.array([list(s) for s in shapes] * count, pa.list_(pa.int32())),
                # float32; as lists they take nearly three times as long to read
                "values": pa.Array.from_buffers(pa.large_binary(), count * len(sizes), buffers),
            }
        )


@dataclass(frozen=True)
class TrialModels:
    """The local models of one trial, stacked in the order of clients.

    examples: each client's number of training examples, int64 (clients,). tensors: weights by name,
    float32 (clients, *shape). epochs: int64 (clients,), or None if training does not stop early.
    """

    examples: np.ndarray
    tensors: Tensors
    epochs: np.ndarray | None = None


def read_models(
    paths: Sequence[Name], trials: Sequence[int], made: Mapping[str, str] | None = None
) -> dict[int, TrialModels]:
    """Read the local models of some trials from files that each hold some of the clients.

    Args:
        paths: the files, which together must hold all clients.
        trials: the trials to return.
        made: keys and values that the provenance of each file must not contradict.

    Returns:
        The models by trial.
    """
    listed = []  # trial, client, examples and perhaps epochs of each row
    for path in paths:
        require_source(path, made or {})
        with opened(path, KIND) as file:
            known = [key for key in (*NUMBERS, EPOCHS) if key in file.schema_arrow.names]
            numbers = file.read(columns=known)
            listed.append(np.stack([numbers[key].to_numpy() for key in known]).astype(np.int64))
    every, models = np.concatenate(listed, axis=1), dict[int, TrialModels]()
    for trial in trials:
        own = every[1:, every[0] == trial]
        clients, at = np.unique(own[0], return_index=True)
        if clients.size and np.array_equal(clients, np.arange(clients.size)):
            models[trial] = TrialModels(own[1, at], {}, *own[2:, at])
    filled = dict.fromkeys(trials, 0)
    for path in paths:
        with opened(path, KIND) as file:
            for number in range(file.num_row_groups):
                _fill(models, file.read_row_group(number), filled)
    for trial in trials:
        found = models.get(trial)
        if found is None or filled[trial] != found.examples.size * len(found.tensors):
            raise FedreproError(
                f"local models of some clients of trial {trial} are missing in "
                f"{', '.join(map(str, paths))}; delete these files and start again"
            )
    return models


def _fill(models: Mapping[int, TrialModels], group: pa.Table, filled: dict[int, int]) -> None:
    """Copy weights from table `group` into `models`; count the copied rows by trial in `filled`."""
    values = group["values"].combine_chunks()
    _, offsets, numbers = values.buffers()
    starts = np.frombuffer(offsets, np.int64)[values.offset :] // 4
    flat = np.frombuffer(numbers, "<f4", starts[len(values)])
    columns = (group[key].to_pylist() for key in ("trial", "client", "tensor", "shape"))
    for i, (trial, client, tensor, shape) in enumerate(zip(*columns, strict=True)):
        if trial in models:
            count, tensors = models[trial].examples.size, models[trial].tensors
            if tensor not in tensors:
                tensors[tensor] = np.empty((count, *shape), np.float32)
            tensors[tensor].reshape(count, -1)[client] = flat[starts[i] : starts[i + 1]]
            filled[trial] += 1

"""Files of states of methods in rounds (`.pt`), and of models that clients trained (parquet).

A state is plain data with tensors and NumPy arrays; other data raise FedreproError.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core import checksummed_files as artifacts
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    import pyarrow as pa

PLAIN = (type(None), bool, int, float, str)
MARK = "fedrepro.kept"  # a dict with this key stands for an object that is not plain data


def normalized(
    state: Mapping[Any, Any], before: Mapping[Any, Any] | None = None, place: str = "state"
) -> dict[str, Any]:
    """Return a method's state as saving and loading it would give it: copied, arrays contiguous.

    Objects also in `before`, the state a round ago, are not copied; `place` is as in `to_plain`.
    """
    if type(state) is not dict or type(before) is not dict or before is state or MARK in state:
        copy: dict[str, Any] = from_plain(to_plain(state, place))
        return copy
    copy = {}
    for key, item in state.items():
        if item is before.get(key) and type(item) not in PLAIN:
            copy[key] = item
        else:
            _name(key, f"the key {key!r} of {place}")
            copy[key] = normalized(item, before.get(key), f"{place}[{key!r}]")
    return copy


def to_plain(value: Any, place: str = "state") -> Any:
    """Return a state as plain data and tensors, for a `.pt` file; `place` is its name in errors."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict and MARK not in value:
        keys = [_name(key, f"the key {key!r} of {place}") for key in value]
        if not _alike(value):
            return {key: to_plain(value[key], f"{place}[{key!r}]") for key in keys}
        stacked = {name: np.stack([one[name] for one in value.values()]) for name in value[keys[0]]}
        each = {name: to_plain(array, f"{place}[…][{name!r}]") for name, array in stacked.items()}
        return {MARK: "alike", "keys": keys, "each": {k: v["value"] for k, v in each.items()}}
    if kind in (list, tuple):
        return kind(to_plain(item, f"{place}[{i}]") for i, item in enumerate(value))
    import torch

    if kind is np.ndarray or isinstance(value, np.generic):
        try:  # a read-only array is copied, or torch would warn of it
            tensor = torch.from_numpy(np.require(value, requirements=("C", "W")))
        except (TypeError, ValueError):
            raise _refused(place, f"an array of {value.dtype}") from None
        return {MARK: "array" if kind is np.ndarray else "number", "value": tensor}
    if kind is not torch.Tensor:
        raise _refused(place, f"a {kind.__name__}")
    if value.device.type == "cpu" and value.layout == torch.strided and not value.requires_grad:
        return value.contiguous()
    needs = " that needs a gradient" if value.requires_grad else ""
    raise _refused(place, f"a tensor{needs} on {value.device}, {value.layout}")


def from_plain(data: Any) -> Any:
    """Return the state from which `to_plain` made `data`, in new arrays and tensors."""
    if isinstance(data, list | tuple):
        return type(data)(from_plain(item) for item in data)
    if not isinstance(data, dict):
        return data if type(data) in PLAIN else data.clone()
    kind = data.get(MARK)
    if kind in ("array", "number"):
        array = data["value"].numpy().copy()
        return array[()] if kind == "number" else array
    if kind == "alike":
        each = {name: value.numpy() for name, value in data["each"].items()}
        return {
            key: {name: np.array(value[at]) for name, value in each.items()}
            for at, key in enumerate(data["keys"])
        }
    return {key: from_plain(item) for key, item in data.items()}


def _alike(value: Mapping[Any, Any]) -> bool:
    """Return whether all values (clients' states) are dicts of arrays of equal types and shapes."""
    forms = [
        {name: (array.dtype, array.shape) for name, array in arrays.items()}
        for arrays in value.values()
        if type(arrays) is dict
        and all(type(name) is str and type(array) is np.ndarray for name, array in arrays.items())
    ]
    return 1 < len(forms) == len(value) and forms[0] != {} and forms.count(forms[0]) == len(forms)


def _name(value: Any, place: str) -> Any:
    """Return `value`, a dict's key; raise, naming its `place`, if no file can keep it."""
    if all(type(part) in PLAIN for part in (value if type(value) is tuple else (value,))):
        return value
    raise _refused(place, f"a {type(value).__name__}")


def _refused(place: str, what: str) -> FedreproError:
    known = "numbers, texts, lists, tuples, dicts, arrays, and tensors on the CPU without gradients"
    said = f"the state of a method in rounds cannot be kept: {place} is {what}"
    return FedreproError(f"{said}; it may hold {known}")


# the record that ends a zip archive: how it begins, and its length without the comment
END_RECORD, END_LENGTH = b"PK\x05\x06", 22


def save_state(path: artifacts.Name, state: Any) -> None:
    """Write a method's state, as `to_plain` returns it, to a `.pt` file of reproducible bytes."""
    import torch

    # torch.save writes the file's own name into the archive, so it goes through a buffer
    buffer = io.BytesIO()
    torch.save(_canonical(state), buffer)
    comment = f"{artifacts.place_of(path)} {artifacts.UNKNOWN}".encode()
    buffer.seek(-2, io.SEEK_END)  # the length of the comment, in two bytes
    buffer.write(len(comment).to_bytes(2, "little") + comment)
    with artifacts.atomic(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())
        artifacts.fill_in(temporary)


def _canonical(value: Any) -> Any:
    """Return a copy in which equal texts are one object, which pickle writes only once."""
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, dict):
        return {_canonical(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_canonical(item) for item in value)
    return value.detach().clone() if hasattr(value, "detach") else value


def load_state(path: artifacts.Name) -> Any:
    """Return plain data that `save_state` wrote to a path, tensors on the CPU; raise if damaged."""
    import torch

    try:
        named, data = artifacts.names_checksum(path), Path(path).read_bytes()
        if not named:
            raise artifacts.corrupt_file_error(path, "its checksum is missing")
        artifacts.require_place(
            path, data[data.rfind(END_RECORD) + END_LENGTH : -artifacts.LENGTH].decode().strip()
        )
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except FedreproError:
        raise
    except Exception as error:  # unpickling can raise anything
        raise artifacts.corrupt_file_error(path, error) from error


KIND = "local_models"
# of a row group, which is one page of parquet, and a page has at most 2 GiB
GROUP_CLIENTS = 64
GROUP_BYTES = 2**28
EPOCHS = "epochs"  # a column where training stops early

Tensors = dict[str, np.ndarray]


def model_rows(
    trials: Sequence[int],
    clients: Sequence[int],
    examples: Sequence[int],
    tensors: Tensors,
    epochs: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield the tables of a file of local models, some models in each: a row per model and tensor.

    `tensors` are weights, float32 (models, *shape), by name. All other arguments have an item per
    model: the numbers of its trial and client, and how many training `examples` the client has.
    `epochs`, for how many the model was trained, are given if training stops early.
    """
    import pyarrow as pa

    numbers = {"trial": trials, "client": clients, "examples": examples}
    numbers |= {} if epochs is None else {EPOCHS: epochs}
    size = sum(4 * math.prod(value.shape[1:]) for value in tensors.values())
    most = max(1, min(GROUP_CLIENTS, GROUP_BYTES // max(1, size)))
    for first in range(0, len(trials), most):
        models = range(first, min(first + most, len(trials)))
        rows = [(model, name, tensors[name][model]) for model in models for name in tensors]
        columns = {k: pa.array([of[m] for m, *_ in rows], pa.int32()) for k, of in numbers.items()}
        # float32; as lists they take nearly three times as long to read
        values = [np.ascontiguousarray(x, "<f4").data.cast("B") for *_, x in rows]
        yield pa.table(
            {
                **columns,
                "tensor": pa.array([name for _, name, _ in rows], pa.string()),
                "shape": pa.array([list(x.shape) for *_, x in rows], pa.list_(pa.int32())),
                "values": pa.array(values, pa.large_binary()),
            }
        )


@dataclass(frozen=True)
class TrialModels:
    """The local models of one trial: weights `tensors`, float32 (clients, *shape), by name.

    examples: how many each client trained on, int64 (clients,). epochs: how many it trained for,
    likewise; None if training does not stop early.
    """

    examples: np.ndarray
    tensors: Tensors
    epochs: np.ndarray | None = None


def read_models(
    paths: Sequence[artifacts.Name], trials: Sequence[int], made: Mapping[str, str] | None = None
) -> dict[int, TrialModels]:
    """Read the local models of some trials, by trial, from files that together hold all clients.

    Raise FedreproError if a client is missing, or if the provenance of a file (seed, inputs, …) has
    another value for a key of `made`.
    """
    rows: dict[int, dict[int, dict[str, Any]]] = {trial: {} for trial in trials}
    for path in paths:
        artifacts.require_source(path, made or {})
        with artifacts.opened(path, KIND) as file:
            for number in range(file.num_row_groups):
                group = file.read_row_group(number)
                values = group["values"].combine_chunks()
                for at, row in enumerate(group.drop_columns("values").to_pylist()):
                    if row["trial"] in rows:
                        row["values"] = values[at].as_buffer()
                        rows[row["trial"]].setdefault(row["client"], {})[row["tensor"]] = row
    models = {}
    for trial in trials:
        found = rows.pop(trial)
        clients = [found[client] for client in sorted(found)]
        if sorted(found) != [*range(len(found))] or len({(*own,) for own in clients}) != 1:
            said = f"local models of some clients of trial {trial} are missing in"
            where = ", ".join(map(str, paths))
            raise FedreproError(f"{said} {where}; delete these files and start again")
        tensors = {}
        for name, row in clients[0].items():
            flat = bytearray().join(own[name]["values"] for own in clients)
            tensors[name] = np.frombuffer(flat, "<f4").reshape(len(clients), *row["shape"])
        about = [next(iter(own.values())) for own in clients]
        columns = (np.array([row[k] for row in about]) for k in ("examples", EPOCHS) if k in row)
        examples, *epochs = columns
        models[trial] = TrialModels(examples, tensors, *epochs)
    return models

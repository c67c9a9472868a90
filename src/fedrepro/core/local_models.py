"""Local models as parquet: a row per (trial, client, tensor), written and read in groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.artifacts import Name, Source, opened, require_source, write_table
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "local_models"
# of a row group, which is one page of parquet, and a page has at most 2 GiB
GROUP_CLIENTS = 64
GROUP_BYTES = 2**28
NUMBERS = ("trial", "client", "examples")
EPOCHS = "epochs"  # a column where training stops early

Tensors = dict[str, np.ndarray]


def write_models(path: Name, rows: Iterator[pa.Table], provenance: Source) -> None:
    """Write groups of `model_rows`, which together may exceed the memory.

    Weights are not compressed: they would be a seventh smaller, but take twice as long to write and
    three times as long to read.
    """
    write_table(path, rows, KIND, provenance)


def model_rows(
    trials: Sequence[int],
    clients: Sequence[int],
    examples: Sequence[int],
    tensors: Tensors,
    epochs: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield a row for each tensor of each model, a group of models at a time.

    Args:
        trials: of each model.
        clients: of each model.
        examples: number of training examples of each model.
        tensors: float32 (models, *shape) by name.
        epochs: of each model, where training stops early.
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
    """Local models of one trial, ordered by client.

    examples: int64 (clients,); tensors[name]: float32 (clients, *shape). epochs: int64 (clients,),
    None where training does not stop early.
    """

    examples: np.ndarray
    tensors: Tensors
    epochs: np.ndarray | None = None


def read_models(
    paths: Sequence[Name], trials: Sequence[int], made: Mapping[str, str] | None = None
) -> dict[int, TrialModels]:
    """Read the local models of some trials; all clients must be there.

    Each number is read once, into its final array, a row group at a time.

    Args:
        paths: files with blocks of trials and clients.
        trials: to read.
        made: required values of provenance, where a file has the key.

    Raises:
        FedreproError: a model is missing, or a file is damaged or of another origin.
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
    """Copy the values of every row of a group into its array, and count them by trial."""
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

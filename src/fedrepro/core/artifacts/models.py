"""Local models as parquet: a row for each (trial, client, tensor), written and read in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.core.artifacts.tables import check_table, opened, parquet, require_source
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "local_models"
# of a row group, which is one page of parquet's, and such a page has at most 2 GiB
ROW_GROUP_CLIENTS = 64
ROW_GROUP_BYTES = 2**28
EPOCHS = "epochs"  # a column where models stopped by themselves

Tensors = dict[str, np.ndarray]


@contextlib.contextmanager
def model_writer(
    path: Path | str, provenance: Mapping[str, Any], stopped: bool = False
) -> Iterator[ModelWriter]:
    """Write local models some at a time, so that a file may hold more than fits the memory.

    stopped: whether models stopped by themselves, so that it is written after how many epochs.
    """
    import pyarrow as pa

    numbers = dict.fromkeys(["trial", "client", "examples", *([EPOCHS] if stopped else [])])
    schema = pa.schema(
        {
            **dict.fromkeys(numbers, pa.int32()),
            "tensor": pa.string(),
            "shape": pa.list_(pa.int32()),
            # float32; as lists they take nearly three times as long to read
            "values": pa.large_binary(),
        }
    )
    # weights would be a seventh smaller, but take twice as long to write and three times to read
    with parquet(path, schema, KIND, provenance, compressed=False) as add:
        writer = ModelWriter(schema, add)
        yield writer
        writer.flush()


class ModelWriter:
    """One row per (trial, client, tensor), in groups of equal size however they are handed in."""

    def __init__(self, schema: pa.Schema, add: Callable[[pa.Table], None]) -> None:
        self.schema, self.add = schema, add
        self.waiting: list[tuple[tuple[int, ...], Tensors]] = []

    def write(
        self,
        trials: Sequence[int],
        clients: Sequence[int],
        examples: Sequence[int],
        tensors: Tensors,
        epochs: Sequence[int] | None = None,
    ) -> None:
        """Models in their order; `tensors[name]` has the shape (models, *shape)."""
        columns = [trials, clients, examples, *([] if epochs is None else [epochs])]
        for i, place in enumerate(zip(*columns, strict=True)):
            model = {name: value[i] for name, value in tensors.items()}
            self.waiting.append((place, model))
            most = ROW_GROUP_BYTES // max(1, sum(4 * value.size for value in model.values()))
            if len(self.waiting) >= min(ROW_GROUP_CLIENTS, most):
                self.flush()

    def flush(self) -> None:
        """Write what waits as a row group."""
        import pyarrow as pa

        rows = [
            (*place, name, value) for place, model in self.waiting for name, value in model.items()
        ]
        self.waiting = []
        if not rows:
            return
        *numbers, names, values = zip(*rows, strict=True)
        flat = np.concatenate([value.reshape(-1) for value in values], dtype="<f4")
        offsets = np.cumsum([0, *(4 * value.size for value in values)])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(flat)]
        columns = [pa.array(column, pa.int32()) for column in numbers]
        columns += [
            pa.array(names, pa.string()),
            pa.array([list(value.shape) for value in values], pa.list_(pa.int32())),
            pa.Array.from_buffers(pa.large_binary(), len(values), buffers),
        ]
        self.add(pa.Table.from_arrays(columns, schema=self.schema))


def write_models(
    path: Path | str,
    trials: Sequence[int],
    clients: Sequence[int],
    examples: Sequence[int],
    tensors: Tensors,
    provenance: Mapping[str, Any],
) -> None:
    """All local models at once; `trials`, `clients` and `examples` have one entry per model."""
    with model_writer(path, provenance) as writer:
        writer.write(trials, clients, examples, tensors)


@dataclass(frozen=True)
class TrialModels:
    """Local models of one trial, ordered by client.

    examples: int64 (clients,); tensors[name]: float32 (clients, *shape). epochs: int64 (clients,),
    after how many each stopped, or None if all took as many as they were to.
    """

    examples: np.ndarray
    tensors: Tensors
    epochs: np.ndarray | None = None


def read_models(
    paths: Sequence[Path | str], trials: Sequence[int], made: Mapping[str, str] | None = None
) -> dict[int, TrialModels]:
    """The local models of these trials from one or more blocks; every client must be there.

    Each number is read once, into the array that it stays in: a row group at a time. made: what
    their provenance says, where it says anything of it.
    """
    for path in paths:
        require_source(path, made or {})
    # examples and epochs by client
    sizes: dict[int, dict[int, tuple[int, int | None]]] = {trial: {} for trial in trials}
    shapes: dict[int, dict[str, tuple[int, ...]]] = {trial: {} for trial in trials}
    for group in _groups(paths, ["trial", "client", "examples", EPOCHS, "tensor", "shape"]):
        for row in group.to_pylist():
            if row["trial"] in sizes:
                sizes[row["trial"]][row["client"]] = row["examples"], row.get(EPOCHS)
                shapes[row["trial"]].setdefault(row["tensor"], tuple(row["shape"]))
    models = {}
    for trial in trials:
        if not sizes[trial] or sorted(sizes[trial]) != list(range(len(sizes[trial]))):
            raise _missing(trial, paths)
        by_client = [sizes[trial][client] for client in range(len(sizes[trial]))]
        counts = np.array([examples for examples, _ in by_client], np.int64)
        epochs = [done for _, done in by_client if done is not None]
        tensors = {
            name: np.empty((len(counts), *shape), np.float32)
            for name, shape in shapes[trial].items()
        }
        stopped = np.array(epochs, np.int64) if len(epochs) == len(by_client) else None
        models[trial] = TrialModels(counts, tensors, stopped)
    _fill(models, paths)
    return models


def _fill(found: Mapping[int, TrialModels], paths: Sequence[Path | str]) -> None:
    """Copy the values of every row into its place; every place must get one."""
    filled = dict.fromkeys(found, 0)
    for group in _groups(paths, ["trial", "client", "tensor", "values"]):
        flat, offsets = _numbers(group["values"].combine_chunks())
        places = zip(
            *(group[name].to_pylist() for name in ("trial", "client", "tensor")), strict=True
        )
        for i, (trial, client, tensor) in enumerate(places):
            if trial in found:
                value = found[trial].tensors[tensor]
                value[client] = flat[offsets[i] : offsets[i + 1]].reshape(value.shape[1:])
                filled[trial] += 1
    for trial, models in found.items():
        if filled[trial] != len(models.examples) * len(models.tensors):
            raise _missing(trial, paths)


def _numbers(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """float32 (N,), the numbers of all rows, and int64 (rows + 1,), where each row begins."""
    import pyarrow as pa

    if pa.types.is_list(values.type):  # as models were stored before
        return values.values.to_numpy(), values.offsets.to_numpy()
    _, offsets, numbers = values.buffers()
    starts = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(numbers, "<f4", starts[-1] // 4), starts // 4


def _groups(paths: Sequence[Path | str], columns: list[str]) -> Iterator[pa.Table]:
    """The row groups of files of local models, with some of the columns where they have them."""
    import pyarrow.parquet as pq

    for path in paths:
        with opened(path), pq.ParquetFile(path) as file:
            check_table(path, file.schema_arrow.metadata, KIND)
            known = [name for name in columns if name in file.schema_arrow.names]
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, columns=known)


def _missing(trial: int, paths: Sequence[Path | str]) -> FedreproError:
    return FedreproError(
        f"local models of some clients of trial {trial} are missing in "
        f"{', '.join(map(str, paths))}; delete these files and start again"
    )

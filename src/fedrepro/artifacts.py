"""Reading and writing files: whole or not at all, versioned, equal bytes for equal inputs.

Tables are parquet (zstd, byte-stream-split for numbers), states are `.pt`. Every table carries
its kind, the schema version and its provenance in the file's metadata; nothing in it depends on
the time of day. Measured times have tables of their own.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.errors import FedreproError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
ROW_GROUP_CLIENTS = 64


@contextlib.contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it at the end; nothing stays if the body fails.

    Temporary files that a killed process left for the same target are removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_orphans(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FedreproError(
                f"the disk is full: cannot write {path}; free some space and start again"
            ) from error
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _remove_orphans(path: Path) -> None:
    for orphan in path.parent.glob(f".{path.name}.*.tmp"):
        pid = orphan.name.split(".")[-2]
        if not pid.isdigit() or not _alive(int(pid)):
            with contextlib.suppress(FileNotFoundError):
                orphan.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def write_bytes(path: Path | str, data: bytes) -> None:
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path | str, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path | str, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path | str) -> Any:
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


def damaged(path: Path | str, why: object) -> FedreproError:
    return FedreproError(
        f"{path} cannot be read ({why}): it is missing or damaged; "
        "delete it and start again, and it will be made anew"
    )


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:160]


def write_array(path: Path | str, array: np.ndarray) -> None:
    """An `.npy` file, which jobs map into memory instead of loading."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)


def map_array(path: Path | str) -> np.ndarray:
    """The array of an `.npy` file, mapped read-only: only the pages that are used are read."""
    try:
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, error) from error
    return mapped


def write_table(
    path: Path | str,
    table: pa.Table | Mapping[str, Any],
    kind: str,
    provenance: Mapping[str, Any],
) -> None:
    """A table of this kind as parquet, with schema version and provenance in its metadata."""
    import pyarrow as pa

    table = table if isinstance(table, pa.Table) else pa.table(dict(table))
    with _parquet(path, table.schema, kind, provenance) as add:
        add(table)


@contextlib.contextmanager
def _parquet(
    path: Path | str, schema: pa.Schema, kind: str, provenance: Mapping[str, Any]
) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends tables of this schema to a file, each as row groups of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {
        "fedrepro.kind": kind,
        "fedrepro.schema": str(SCHEMA_VERSION),
        "fedrepro.provenance": json.dumps(provenance, sort_keys=True),
    }
    schema = schema.with_metadata(metadata)
    with (
        atomic(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            use_dictionary=_columns(schema, pa.types.is_string),
            use_byte_stream_split=_columns(schema, pa.types.is_floating),
        ) as writer,
    ):
        yield lambda table: writer.write_table(table.replace_schema_metadata(metadata))


def _columns(schema: pa.Schema, test: Any) -> list[str]:
    """Parquet paths of the leaf columns whose type passes `test`."""
    import pyarrow as pa

    names = []
    for item in schema:
        if test(item.type):
            names.append(item.name)
        elif pa.types.is_list(item.type) and test(item.type.value_type):
            names.append(f"{item.name}.list.element")
    return names


def read_table(path: Path | str, kind: str) -> pa.Table:
    """A table of this kind; refuses damaged files, other kinds and other schema versions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # partitioning=None: the folder names are not columns of the file
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, _one_line(error)) from error
    _check_kind(path, table.schema.metadata, kind)
    return table


def _check_kind(path: Path | str, metadata: Mapping[bytes, bytes] | None, kind: str) -> None:
    metadata = metadata or {}
    found = metadata.get(b"fedrepro.kind", b"no fedrepro table").decode()
    if found != kind:
        raise FedreproError(f"{path} holds {found}, but {kind} was expected")
    version = metadata.get(b"fedrepro.schema", b"none").decode()
    if version != str(SCHEMA_VERSION):
        raise FedreproError(
            f"{path} was written with schema version {version}, this fedrepro reads "
            f"{SCHEMA_VERSION}; delete the file and start again, and it will be made anew"
        )


def read_provenance(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema.metadata[b"fedrepro.provenance"])
    return found


# ------------------------------------------------------------------------------ local models

Tensors = dict[str, np.ndarray]


@contextlib.contextmanager
def model_writer(path: Path | str, provenance: Mapping[str, Any]) -> Iterator[ModelWriter]:
    """Write local models some at a time, so that a file may hold more than fits the memory."""
    import pyarrow as pa

    schema = pa.schema(
        {
            "trial": pa.int32(),
            "client": pa.int32(),
            "examples": pa.int32(),
            "tensor": pa.string(),
            "shape": pa.list_(pa.int32()),
            "values": pa.list_(pa.float32()),
        }
    )
    with _parquet(path, schema, "local_models", provenance) as add:
        writer = ModelWriter(schema, add)
        yield writer
        writer.flush()


class ModelWriter:
    """One row per (trial, client, tensor), in groups of equal size however they are handed in."""

    def __init__(self, schema: pa.Schema, add: Callable[[pa.Table], None]) -> None:
        self.schema, self.add = schema, add
        self.waiting: list[tuple[int, int, int, Tensors]] = []

    def write(
        self,
        trials: Sequence[int],
        clients: Sequence[int],
        examples: Sequence[int],
        tensors: Tensors,
    ) -> None:
        """Models in their order; `tensors[name]` has the shape (models, *shape)."""
        for i, place in enumerate(zip(trials, clients, examples, strict=True)):
            self.waiting.append((*place, {name: value[i] for name, value in tensors.items()}))
            if len(self.waiting) == ROW_GROUP_CLIENTS:
                self.flush()

    def flush(self) -> None:
        """Write what waits as a row group."""
        import pyarrow as pa

        rows = [
            (*place, name, value) for *place, held in self.waiting for name, value in held.items()
        ]
        self.waiting = []
        if not rows:
            return
        trials, clients, examples, names, values = zip(*rows, strict=True)
        flat = [np.ascontiguousarray(value, dtype=np.float32).reshape(-1) for value in values]
        offsets = np.concatenate([[0], np.cumsum([value.size for value in flat])])
        columns = [pa.array(column, pa.int32()) for column in (trials, clients, examples)]
        columns += [
            pa.array(names, pa.string()),
            pa.array([list(value.shape) for value in values], pa.list_(pa.int32())),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), np.concatenate(flat)),
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

    examples: int64 (clients,); tensors[name]: float32 (clients, *shape).
    """

    examples: np.ndarray
    tensors: Tensors


def read_models(paths: Sequence[Path | str], trials: Sequence[int]) -> dict[int, TrialModels]:
    """The local models of these trials from one or more blocks; every client must be there.

    Each number is read once, into the array that it stays in: a row group at a time.
    """
    sizes: dict[int, dict[int, int]] = {trial: {} for trial in trials}  # examples by client
    shapes: dict[int, dict[str, tuple[int, ...]]] = {trial: {} for trial in trials}
    for group in _groups(paths, ["trial", "client", "examples", "tensor", "shape"]):
        for row in group.to_pylist():
            if row["trial"] in sizes:
                sizes[row["trial"]][row["client"]] = row["examples"]
                shapes[row["trial"]].setdefault(row["tensor"], tuple(row["shape"]))
    found = {}
    for trial in trials:
        if not sizes[trial] or sorted(sizes[trial]) != list(range(len(sizes[trial]))):
            raise _missing(trial, paths)
        counts = np.array([sizes[trial][client] for client in range(len(sizes[trial]))], np.int64)
        tensors = {
            name: np.empty((len(counts), *shape), np.float32)
            for name, shape in shapes[trial].items()
        }
        found[trial] = TrialModels(counts, tensors)
    _fill(found, paths)
    return found


def _fill(found: Mapping[int, TrialModels], paths: Sequence[Path | str]) -> None:
    """Copy the values of every row into its place; every place must get one."""
    filled = dict.fromkeys(found, 0)
    for group in _groups(paths, ["trial", "client", "tensor", "values"]):
        values = group["values"].combine_chunks()
        flat, offsets = values.values.to_numpy(), values.offsets.to_numpy()
        places = zip(
            *(group[name].to_pylist() for name in ("trial", "client", "tensor")), strict=True
        )
        for i, (trial, client, tensor) in enumerate(places):
            if trial in found:
                place = found[trial].tensors[tensor][client]
                place[...] = flat[offsets[i] : offsets[i + 1]].reshape(place.shape)
                filled[trial] += 1
    for trial, models in found.items():
        if filled[trial] != len(models.examples) * len(models.tensors):
            raise _missing(trial, paths)


def _groups(paths: Sequence[Path | str], columns: list[str]) -> Iterator[pa.Table]:
    """The row groups of files of local models, with some of the columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                _check_kind(path, file.schema_arrow.metadata, "local_models")
                for number in range(file.num_row_groups):
                    yield file.read_row_group(number, columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, _one_line(error)) from error


def _missing(trial: int, paths: Sequence[Path | str]) -> FedreproError:
    return FedreproError(
        f"local models of some clients of trial {trial} are missing in "
        f"{', '.join(map(str, paths))}; delete these files and start again"
    )


# -------------------------------------------------------------------- states and checkpoints


def save_state(path: Path | str, state: Any) -> None:
    """Plain data and tensors as `.pt`; equal states give equal bytes."""
    import torch

    # torch.save writes the file's own name into the archive, so it goes through a buffer
    buffer = io.BytesIO()
    torch.save(_canonical(state, {}), buffer)
    write_bytes(path, buffer.getvalue())


def _canonical(value: Any, texts: dict[str, str]) -> Any:
    """The same data in new objects, except that equal texts are one object.

    Pickle writes an object that it has met before as a reference, so that without this the bytes
    would tell apart a state just computed from the same state read back.
    """
    if isinstance(value, str):
        return texts.setdefault(value, value)
    if isinstance(value, dict):
        return {_canonical(k, texts): _canonical(v, texts) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_canonical(item, texts) for item in value)
    return value.detach().clone() if hasattr(value, "detach") else value


def load_state(path: Path | str) -> Any:
    import torch

    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # unpickling a damaged file can raise anything
        raise damaged(path, _one_line(error)) from error

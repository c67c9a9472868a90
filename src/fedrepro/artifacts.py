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
from collections.abc import Iterator, Mapping, Sequence
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
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
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
    row_group_size: int | None = None,
) -> None:
    """A table of this kind as parquet, with schema version and provenance in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = table if isinstance(table, pa.Table) else pa.table(dict(table))
    metadata = {
        "fedrepro.kind": kind,
        "fedrepro.schema": str(SCHEMA_VERSION),
        "fedrepro.provenance": json.dumps(provenance, sort_keys=True),
    }
    table = table.replace_schema_metadata(metadata)
    with atomic(path) as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            use_dictionary=_columns(table, pa.types.is_string),
            use_byte_stream_split=_columns(table, _is_float),
            row_group_size=row_group_size,
        )


def _is_float(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind))


def _columns(table: pa.Table, test: Any) -> list[str]:
    """Parquet paths of the leaf columns whose type passes `test`."""
    import pyarrow as pa

    names = []
    for item in table.schema:
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
    metadata = table.schema.metadata or {}
    found = metadata.get(b"fedrepro.kind", b"no fedrepro table").decode()
    if found != kind:
        raise FedreproError(f"{path} holds {found}, but {kind} was expected")
    version = metadata.get(b"fedrepro.schema", b"none").decode()
    if version != str(SCHEMA_VERSION):
        raise FedreproError(
            f"{path} was written with schema version {version}, this fedrepro reads "
            f"{SCHEMA_VERSION}; delete the file and start again, and it will be made anew"
        )
    return table


def read_provenance(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema.metadata[b"fedrepro.provenance"])
    return found


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:160]


# ------------------------------------------------------------------------------ local models

Tensors = dict[str, np.ndarray]


def write_models(
    path: Path | str,
    trials: Sequence[int],
    clients: Sequence[int],
    examples: Sequence[int],
    tensors: Tensors,
    provenance: Mapping[str, Any],
) -> None:
    """Local models, one row per (trial, client, tensor).

    `tensors` maps a name to an array of shape (models, *shape), float32; `trials`, `clients` and
    `examples` have one entry per model.
    """
    import pyarrow as pa

    names = list(tensors)
    values = [
        np.ascontiguousarray(tensors[n][i], dtype=np.float32).reshape(-1)
        for i in range(len(trials))
        for n in names
    ]
    offsets = np.concatenate([[0], np.cumsum([v.size for v in values])])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise FedreproError(
            f"{path} would hold {offsets[-1]} numbers, more than one file can; "
            "lower clients_per_job or trials_per_job in config/config.yaml"
        )
    flat = np.concatenate(values) if values else np.empty(0, np.float32)
    shapes = [list(tensors[n].shape[1:]) for n in names] * len(trials)
    table = pa.table(
        {
            "trial": np.repeat(np.asarray(trials, np.int32), len(names)),
            "client": np.repeat(np.asarray(clients, np.int32), len(names)),
            "examples": np.repeat(np.asarray(examples, np.int32), len(names)),
            "tensor": pa.array(names * len(trials), pa.string()),
            "shape": pa.array(shapes, pa.list_(pa.int32())),
            "values": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat),
        }
    )
    groups = max(1, ROW_GROUP_CLIENTS * len(names))
    write_table(path, table, "local_models", provenance, row_group_size=groups)


@dataclass(frozen=True)
class TrialModels:
    """Local models of one trial, ordered by client.

    examples: int64 (clients,); tensors[name]: float32 (clients, *shape).
    """

    examples: np.ndarray
    tensors: Tensors


def read_models(paths: Sequence[Path | str], trials: Sequence[int]) -> dict[int, TrialModels]:
    """The local models of these trials from one or more blocks; every client must be there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.concat_tables([read_table(path, "local_models") for path in paths])
    table = table.filter(pc.is_in(table["trial"], pa.array(list(trials), pa.int32())))
    found: dict[int, TrialModels] = {}
    for trial in trials:
        rows = table.filter(pc.equal(table["trial"], pa.scalar(trial, pa.int32())))
        found[trial] = _trial_models(rows, trial, paths)
    return found


def _trial_models(rows: pa.Table, trial: int, paths: Sequence[Path | str]) -> TrialModels:
    import pyarrow as pa
    import pyarrow.compute as pc

    tensors: Tensors = {}
    examples = np.empty(0, np.int64)
    for name in pc.unique(rows["tensor"]).to_pylist():
        part = rows.filter(pc.equal(rows["tensor"], pa.scalar(name))).sort_by("client")
        clients = part["client"].to_numpy()
        if not np.array_equal(clients, np.arange(len(clients))):
            break
        shape = part["shape"][0].as_py()
        values = part["values"].combine_chunks().flatten().to_numpy()
        # copied, because Arrow's memory is read-only and torch wants to share it
        tensors[name] = values.reshape(len(clients), *shape).copy()
        examples = part["examples"].to_numpy().astype(np.int64)
    if not tensors or any(len(value) != len(examples) for value in tensors.values()):
        raise FedreproError(
            f"local models of some clients of trial {trial} are missing in "
            f"{', '.join(map(str, paths))}; delete these files and start again"
        )
    return TrialModels(examples, tensors)


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

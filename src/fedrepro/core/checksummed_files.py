"""Read and write result files: whole or not at all, with a checksum, equal bytes for equal inputs.

A table (parquet) or a state of a method (.pt) holds the checksum of all its other bytes, since
Parquet's own checksums leave out the footer. A JSON file holds the checksum of its keys and values.
Checksums of arrays and csv files are in a JSON file. Damaged or refused files raise FedreproError.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from fedrepro.core.errors import FedreproError, disk_error, printable
from fedrepro.core.method_kinds import STAGES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Name = Path | str
Source = Mapping[str, Any]  # provenance
Keys = Mapping[str, type | tuple[type, ...]]

# Raised whenever files are written in another way. Tables of version 1 have no checksums.
SCHEMA_VERSION = 2
TREES = frozenset({"prepare", "partition", *STAGES})  # the folders of the stages

UNKNOWN = f"xxh3:{0:016x}"  # as long as any, where one is filled in afterwards
LENGTH = len(UNKNOWN)
SEAL = re.compile(rb"xxh3:[0-9a-f]{16}")
TAIL = 1 << 20  # bytes at the end, in which the last checksum is that of a table or a state


def checksum_of(data: bytes | memoryview) -> str:
    """Return the checksum of `data` as text: "xxh3:" and 16 hexadecimal digits."""
    return f"xxh3:{xxhash.xxh3_64_hexdigest(data)}"


def checksum_of_file(path: Name, hole: int | None = None) -> str:
    """Return the checksum of a file's bytes; skip the checksum stored in it at offset `hole`."""
    hasher, buffer = xxhash.xxh3_64(), memoryview(bytearray(1 << 18))  # fits the cache of a core
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for start, stop in [(0, size)] if hole is None else [(0, hole), (hole + LENGTH, size)]:
            at = file.seek(start)
            while at < stop and (got := file.readinto(buffer[: stop - at])):
                hasher.update(buffer[:got])
                at += got
    return f"xxh3:{hasher.hexdigest()}"


def has_checksum(path: Name, checksum: str, hole: int | None = None) -> bool:
    """Return whether a file has `checksum`; skip the checksum stored in it at offset `hole`."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        stamp = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        return _compared(os.fspath(path), hole, stamp) == checksum
    return False


@cache
def _compared(path: str, hole: int | None, stamp: tuple[int, ...]) -> str:
    return checksum_of_file(path, hole)


forget = _compared.cache_clear  # to compare every file again, as another process does


def _own_checksum(path: Name) -> tuple[int, str] | None:
    """Return (offset, text) of the checksum stored in a parquet or .pt file; None without one."""
    with open(path, "rb") as file:
        start = file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        seals = list(SEAL.finditer(file.read()))
    return (start + seals[-1].start(), seals[-1][0].decode()) if seals else None


def fill_in(path: Path) -> None:
    """Replace the placeholder UNKNOWN in a new parquet or .pt file with the file's checksum."""
    found = _own_checksum(path)
    assert found is not None
    with path.open("r+b") as file:
        file.seek(found[0])
        file.write(checksum_of_file(path, found[0]).encode())


def names_checksum(path: Name) -> bool:
    """Return whether a parquet or .pt file stores a checksum of its bytes; raise if it is wrong."""
    found = _own_checksum(path)
    if found is not None and not has_checksum(path, found[1], found[0]):
        raise corrupt_file_error(path, "its checksum is not that of its bytes")
    return found is not None


def place_of(path: Name) -> str:
    """Return the end of `path` from a pipeline stage's folder on, as train/x; "" if it has none."""
    parts = Path(path).parts
    at = max((i for i, part in enumerate(parts[:-1]) if part in TREES), default=len(parts))
    return "/".join(parts[at:])


def require_place(path: Name, written: str) -> None:
    """Raise FedreproError if a file was moved to `path` from `written`, a result of `place_of`."""
    if written and place_of(path) not in ("", written):
        raise corrupt_file_error(path, f"it was made as {written}")


def corrupt_file_error(path: Name, why: object, remove: Name | None = None) -> FedreproError:
    """Return an error: `path` is unreadable (`why`), delete it (or `remove`, a folder)."""
    fix = f"delete {f'the folder {remove}' if remove else 'it'} and start again"
    said = f"{path} cannot be read ({one_line(why)}): it is missing or damaged; {fix}"
    return FedreproError(f"{said}, and it will be made again")


def version_error(path: Name, found: object, remove: str) -> FedreproError:
    """Return an error: `path` has schema version `found`; delete the <remove>, such as "file"."""
    said = f"{path} was written with schema version {found}, this fedrepro reads {SCHEMA_VERSION}"
    return FedreproError(f"{said}; delete the {remove} and start again")


def one_line(error: object) -> str:
    """Return an error's message (of an OSError, its reason) on one line of at most 160 letters."""
    text = getattr(error, "strerror", None) or str(error)
    return printable(" ".join(text.split()))[:160] or type(error).__name__


@contextlib.contextmanager
def atomic(path: Name) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` when the `with` body has succeeded.

    Links are followed. Temporary files that killed processes left for this path are removed.
    """
    path = target_of(path)
    folder, temporary = path.parent, path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for orphan in folder.glob(f".{path.name}.*.tmp"):
            orphan.unlink(missing_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as error:
        # a failed write has no name; a file elsewhere was being read
        at = Path(error.filename or folder)
        near = at.is_relative_to(folder) or folder.is_relative_to(at)
        if near and (failure := disk_error(error, path)):
            raise failure from error
        raise


@contextlib.contextmanager
def temporary_folder(place: Path | None = None) -> Iterator[Path]:
    """Yield a new temporary folder, in `place` or the system's; remove it after the `with` body."""
    made = tempfile.TemporaryDirectory(None, "fedrepro.tmp-", place, ignore_cleanup_errors=True)
    with made as folder:
        yield Path(folder)


def target_of(path: Name) -> Path:
    """Return `path` with links resolved; raise if it leads to a folder, pipe or device."""
    target = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    require_file(target, f"write {path}")
    return target


def require_target(path: Name, suffixes: Sequence[str], read: Iterable[Name] = ()) -> None:
    """Raise if output `path` is a folder, device or input (`read`), or has none of `suffixes`."""
    target_of(path)
    if Path(path).suffix not in suffixes:
        raise FedreproError(f"cannot write {path}: its name must end in {' or '.join(suffixes)}")
    for other in read:
        with contextlib.suppress(OSError, ValueError):  # a missing file cannot be lost
            if os.path.samefile(path, other):
                why = f"this command reads it as {other}, and would overwrite it; name another"
                raise FedreproError(f"cannot write {path}: {why}")


def require_file(path: Name, what: str = "") -> None:
    """Raise "cannot <what>" (default: "cannot read") if `path` is a folder, device or pipe."""
    with contextlib.suppress(OSError):  # opening it reports a missing file
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
            raise FedreproError(f"cannot {what or f'read {path}'}: it is {kind}; name a file")


def write_bytes(path: Name, data: bytes | memoryview) -> None:
    """Write bytes to a file, whole or not at all; raise FedreproError if the disk refuses."""
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Name, text: str) -> None:
    """Write a text in UTF-8 to a file, whole or not at all; raise if the disk refuses."""
    write_bytes(path, text.encode())


def read_checked(path: Name, checksum: str, named_in: Name) -> bytes:
    """Read a file; raise unless its bytes have `checksum`, which the file `named_in` states."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise corrupt_file_error(path, error) from error
    if checksum_of(data) != checksum:
        raise corrupt_file_error(path, f"it is not the file that {named_in} names")
    return data


def write_array(path: Name, array: np.ndarray) -> str:
    """Write an array as an `.npy` file that can be mapped into memory; return its checksum."""
    form, array = np.lib.format, np.ascontiguousarray(array)
    with atomic(path) as temporary:
        with temporary.open("wb") as file:  # np.save would hide why a write failed
            form.write_array_header_1_0(file, form.header_data_from_array_1_0(array))
            file.write(array.reshape(-1).view(np.uint8).data)
        return checksum_of_file(temporary)


def write_json(path: Name, value: Mapping[str, Any]) -> None:
    """Write the dict `value` as JSON, with a checksum of its items under the key `checksum`."""
    # as it is read back: keys are texts then, tuples lists
    plain = json.loads(json.dumps(value))
    whole = plain | {"checksum": _of_value(plain)}
    write_text(path, json.dumps(whole, indent=2, sort_keys=True) + "\n")


def read_json(path: Name, keys: Keys | None = None, remove: Name | None = None) -> Any:
    """Read a JSON file, check its checksum, and return it as a dict without the key `checksum`.

    `keys` maps each key that the dict must have to the type of its value, or types. Errors ask to
    delete the file, or the folder `remove`.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise corrupt_file_error(path, error, remove) from error
    if not isinstance(value, dict) or value.pop("checksum", None) != _of_value(value):
        raise corrupt_file_error(path, "its checksum is not that of what it holds", remove)
    for key, kind in (keys or {}).items():
        if not isinstance(value.get(key), kind):
            raise corrupt_file_error(path, f"it is another file: '{key}' is missing or odd", remove)
    return value


def _of_value(value: Any) -> str:
    return checksum_of(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def write_table(
    path: Name,
    table: pa.Table | Mapping[str, Any] | Iterator[pa.Table],
    kind: str,
    provenance: Source,
    compact: bool = False,
) -> None:
    """Write a table as parquet, with `kind`, such as metrics, and dict `provenance` as metadata.

    `table` is a table, a dict of columns, or an iterator of tables of one schema, which become row
    groups of an uncompressed file, perhaps larger than the memory. `compact` compresses more.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {
        "fedrepro.kind": kind,
        "fedrepro.schema": str(SCHEMA_VERSION),
        "fedrepro.provenance": json.dumps(provenance, sort_keys=True),
        "fedrepro.place": place_of(path),
    }
    many = isinstance(table, Iterator)
    whole = pa.table(dict(table)) if isinstance(table, Mapping) else table
    tables = whole if isinstance(whole, Iterator) else iter([whole])
    with atomic(path) as temporary:
        first = next(tables)
        texts = [item.name for item in first.schema if pa.types.is_string(item.type)]
        floats = [item.name for item in first.schema if pa.types.is_floating(item.type)]
        with pq.ParquetWriter(
            temporary,
            first.schema.with_metadata(metadata),
            compression="none" if many else "zstd",
            compression_level=19 if compact else None,
            use_dictionary=compact or texts,
            use_byte_stream_split=not many and not compact and floats,
        ) as writer:
            for rows in itertools.chain([first], tables):
                writer.write_table(rows.replace_schema_metadata(metadata))
            writer.add_key_value_metadata({"fedrepro.checksum": UNKNOWN})
        fill_in(temporary)


@contextlib.contextmanager
def opened(path: Name, kind: str | None) -> Iterator[pq.ParquetFile]:
    """Yield an open table file; raise if it is damaged or not of `kind`, as metrics (None: any)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        named = names_checksum(path)
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            stored, version, place = (
                metadata.get(f"fedrepro.{key}".encode(), b"").decode(errors="replace")
                for key in ("kind", "schema", "place")
            )
            if kind not in (None, stored):
                stored = stored or "a table of other software"
                raise FedreproError(f"{path} holds {stored}, but {kind} was expected")
            if version not in (str(SCHEMA_VERSION), "1"):
                raise version_error(path, version or "none", "file")
            if version == str(SCHEMA_VERSION) and not named:
                raise corrupt_file_error(path, "its checksum is missing")
            require_place(path, place)
            yield file
    except (OSError, ValueError, pa.ArrowException) as error:
        raise corrupt_file_error(path, error) from error


def read_table(path: Name, kind: str) -> pa.Table:
    """Read a table of this `kind`, such as metrics; raise for any other, or for damage."""
    with opened(path, kind) as file:
        return file.read()


def read_source(path: Name) -> dict[str, Any]:
    """Return a table file's provenance (code, versions, seed, inputs); raise if it is damaged."""
    with opened(path, None) as file:
        return read_provenance(file.schema_arrow.empty_table())


def require_source(path: Name, made: Mapping[str, Any]) -> None:
    """Raise if a key of `made`, such as seed, has another value in a table file's provenance."""
    found = read_source(path)
    if wrong := [key for key, wanted in made.items() if found.get(key, wanted) != wanted]:
        why = f"it was made with {wrong[0]} {found[wrong[0]]}, not {made[wrong[0]]}"
        raise corrupt_file_error(path, why)


def read_provenance(table: pa.Table) -> dict[str, Any]:
    """Return a table's provenance (code, versions, seed, inputs)."""
    found: dict[str, Any] = json.loads(table.schema.metadata[b"fedrepro.provenance"])
    return found

"""Tables as parquet: zstd but for weights, byte-stream-split, with checksums that are compared.

Every table carries its kind, the schema version, its place in the tree of results and its
provenance in the file's metadata, and there too a checksum of all other bytes of the file: pages,
footer and metadata alike, where parquet's own would be of pages only and cost five times as much.
Nothing in it depends on the time of day; measured times have tables of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts.checksums import LENGTH, UNKNOWN, checksum_of_file, once
from fedrepro.core.artifacts.files import (
    BEFORE_CHECKSUMS,
    SCHEMA_VERSION,
    atomic,
    damaged,
    one_line,
    place_of,
    require_place,
)
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    import pyarrow as pa

KEY = "fedrepro.checksum"
# the key and its value as they stand in a footer, with a letter or two of its format between them
SEAL = re.compile(KEY.encode() + rb".{1,4}?(xxh3:[0-9a-f]{16})", re.DOTALL)
END = 8  # bytes after the footer: its length, and PAR1
LARGEST_FOOTER = 1 << 26  # a length beyond it is damage


def write_table(
    path: Path | str,
    table: pa.Table | Mapping[str, Any],
    kind: str,
    provenance: Mapping[str, Any],
    kept: bool = False,
) -> None:
    """A table of this kind as parquet, with schema version and provenance in its metadata.

    kept: it goes into a repository; a quarter of the bytes where values repeat, and slower.
    """
    import pyarrow as pa

    table = table if isinstance(table, pa.Table) else pa.table(dict(table))
    with parquet(path, table.schema, kind, provenance, kept=kept) as add:
        add(table)


@contextlib.contextmanager
def parquet(
    path: Path | str,
    schema: pa.Schema,
    kind: str,
    provenance: Mapping[str, Any],
    compressed: bool = True,
    kept: bool = False,
) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends tables of this schema to a file, each as row groups of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {
        "fedrepro.kind": kind,
        "fedrepro.schema": str(SCHEMA_VERSION),
        "fedrepro.provenance": json.dumps(provenance, sort_keys=True),
        "fedrepro.place": place_of(path),
    }
    schema = schema.with_metadata(metadata)
    with atomic(path) as temporary:
        with pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd" if compressed else "none",
            compression_level=19 if kept else None,
            use_dictionary=kept or _columns(schema, pa.types.is_string),
            use_byte_stream_split=compressed
            and not kept
            and _columns(schema, pa.types.is_floating),
        ) as writer:
            yield lambda table: writer.write_table(table.replace_schema_metadata(metadata))
            writer.add_key_value_metadata({KEY: UNKNOWN})
        _seal(temporary)


def _columns(schema: pa.Schema, test: Any) -> list[str]:
    """Columns whose type passes `test`."""
    return [item.name for item in schema if test(item.type)]


def read_table(path: Path | str, kind: str) -> pa.Table:
    """A table of this kind; refuses damaged files, other kinds and other schema versions."""
    import pyarrow.parquet as pq

    with opened(path):
        # partitioning=None: the folder names are not columns of the file
        table = pq.read_table(path, partitioning=None)
    check_table(path, table.schema.metadata, kind)
    return table


def read_batches(path: Path | str, kind: str, rows: int) -> Iterator[pa.RecordBatch]:
    """The same so many rows at a time, so that memory does not grow with the table."""
    import pyarrow.parquet as pq

    with opened(path), pq.ParquetFile(path) as file:
        check_table(path, file.schema_arrow.metadata, kind)
        yield from file.iter_batches(rows)


@contextlib.contextmanager
def opened(path: Path | str) -> Iterator[None]:
    """For reading a table: its checksum comes first, and what is wrong becomes a sentence."""
    import pyarrow as pa

    try:
        if _sealed(path) is False:
            raise damaged(path, "its checksum is not that of its bytes")
        yield
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, one_line(error)) from error


def check_table(path: Path | str, metadata: Mapping[bytes, bytes] | None, kind: str) -> None:
    """Refuse a table of another kind, version or place, and one of now without a checksum."""
    stored = (metadata or {}).get(b"fedrepro.kind", b"no fedrepro table").decode(errors="replace")
    if stored != kind:
        raise FedreproError(f"{path} holds {stored}, but {kind} was expected")
    _check_version(path, metadata or {})


def _check_version(path: Path | str, metadata: Mapping[bytes, bytes]) -> None:
    version = metadata.get(b"fedrepro.schema", b"none").decode(errors="replace")
    if version not in (str(SCHEMA_VERSION), str(BEFORE_CHECKSUMS)):
        raise FedreproError(
            f"{path} was written with schema version {version}, this fedrepro reads "
            f"{SCHEMA_VERSION}; delete the file and start again, and it will be made anew"
        )
    if version == str(SCHEMA_VERSION) and not _sealed(path):
        raise damaged(path, "its checksum is missing")
    require_place(path, metadata.get(b"fedrepro.place", b"").decode())


def read_source(path: Path | str, kind: str | None = None) -> dict[str, Any]:
    """The provenance of a table of this or of any kind, without its content."""
    import pyarrow.parquet as pq

    with opened(path):
        metadata: Mapping[bytes, bytes] = pq.read_schema(path).metadata or {}
    if kind is None:
        _check_version(path, metadata)
    else:
        check_table(path, metadata, kind)
    try:
        provenance: dict[str, Any] = json.loads(metadata[b"fedrepro.provenance"])
    except (KeyError, ValueError) as error:
        raise damaged(path, "it does not say where it comes from") from error
    return provenance


def require_source(path: Path | str, made: Mapping[str, str]) -> None:
    """Refuse a table whose provenance says another thing of any of these keys; it may be silent."""
    provenance = read_source(path)
    for key, wanted in made.items():
        if provenance.get(key, wanted) != wanted:
            raise damaged(path, f"it was made with {key} {provenance[key]}, not {wanted}")


def read_provenance(table: pa.Table) -> dict[str, Any]:
    """Errors: FedreproError for a table that does not say where it comes from."""
    try:
        provenance: dict[str, Any] = json.loads(
            (table.schema.metadata or {})[b"fedrepro.provenance"]
        )
    except (KeyError, ValueError) as error:
        raise FedreproError(
            "a table does not say where it comes from: it was made by another version, so delete "
            "what it belongs to and start again"
        ) from error
    return provenance


# ----------------------------------------------------------------------- checksum of the whole


def _seal(path: Path) -> None:
    """Fill in the checksum of all bytes of a new file but those that it takes itself."""
    at = _seal_at(path)
    assert at is not None
    checksum = checksum_of_file(path, at)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(checksum.encode())


def _sealed(path: Path | str) -> bool | None:
    """Whether a file has the checksum that it names; None if it names none."""
    at = _seal_at(path)
    if at is None:
        return None

    def compare() -> bool:
        with open(path, "rb") as file:
            file.seek(at)
            return file.read(LENGTH).decode() == checksum_of_file(path, at)

    return once(path, f"seal at {at}", compare)


def _seal_at(path: Path | str) -> int | None:
    """Where in a parquet file its checksum stands, if there is one in its footer."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - END))
        footer = min(int.from_bytes(file.read(4), "little"), LARGEST_FOOTER)
        start = max(0, size - END - footer)
        file.seek(start)
        seals = list(SEAL.finditer(file.read(footer)))
    return start + seals[-1].start(1) if seals else None

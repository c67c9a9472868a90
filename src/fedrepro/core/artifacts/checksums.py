"""Checksums of files: a fast hash of every byte, compared when a file is read.

They find damage (a flipped bit, a cut file, one file in the place of another), not intent. The
hash is xxh3 of 64 bits, which is computed as fast as a file is read. A process compares a file
once, and again if the file changed since.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import xxhash

CHUNK = 1 << 18  # bytes; fits the cache of a core
PREFIX = "xxh3:"
UNKNOWN = f"{PREFIX}{0:016x}"  # as long as any, where one is filled in later
LENGTH = len(UNKNOWN)

Stamp = tuple[int, ...]

_compared: dict[tuple[str, str], tuple[Stamp, bool]] = {}


def checksum_of(data: bytes | memoryview) -> str:
    """The checksum of these bytes: `xxh3:` and 16 hexadecimal digits."""
    return f"{PREFIX}{xxhash.xxh3_64_hexdigest(data)}"


def checksum_of_file(path: Path | str, hole: int | None = None) -> str:
    """The checksum of a file's bytes; those of a checksum within it, at `hole`, are left out."""
    hasher = xxhash.xxh3_64()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        parts = [(0, size)] if hole is None else [(0, hole), (hole + LENGTH, size)]
        for start, stop in parts:
            file.seek(start)
            left = stop - start
            while left > 0 and (got := file.readinto(view[: min(left, CHUNK)])):
                hasher.update(view[:got])
                left -= got
    return f"{PREFIX}{hasher.hexdigest()}"


def once(path: Path | str, what: str, compare: Callable[[], bool]) -> bool:
    """What `compare` says of a file; it is asked once per process, `what` and state of the file.

    So a data set that a job looks at a hundred times is hashed once.
    """
    key, stamp = (os.fspath(path), what), _stamp(path)
    known = _compared.get(key)
    if known is None or known[0] != stamp:
        known = _compared[key] = stamp, compare()
    return known[1]


def forget() -> None:
    """Compare every file anew, as another process would."""
    _compared.clear()


def _stamp(path: Path | str) -> Stamp:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

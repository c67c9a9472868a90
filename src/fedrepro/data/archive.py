"""Unpack publishers' archives and compressed files, up to the size in the table of raw files.

FedreproError is raised if a file is damaged, or unpacks to more than config/datasets.csv allows.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from fedrepro.core.checksummed_files import corrupt_file_error, temporary_folder
from fedrepro.core.errors import FedreproError, disk_error
from fedrepro.data.raw_files import largest_unpacked

# how a packed file begins, and what reads it
PACKINGS: Any = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


@contextlib.contextmanager
def unpack_archive(
    name: str, path: Path, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[Path]:
    """Yield a temporary folder with the unpacked tar or zip archive at `path` of data set `name`.

    Only files whose names in the archive are `wanted` are unpacked. Raises FedreproError also if
    one is a device, or a link out of the folder.
    """
    most = largest_unpacked(name, path)
    with temporary_folder() as folder:
        with _saying_damage(path):
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as packed:
                    files = [member for member in packed.infolist() if wanted(member.filename)]
                    # no member gives more than the size that is written for it
                    _require_small(path, sum(member.file_size for member in files), most)
                    packed.extractall(folder, files)  # which keeps all paths inside
            else:
                with decompress_file(name, path) as plain, tarfile.open(fileobj=plain) as archive:
                    members = [member for member in archive if wanted(member.name)]
                    _require_small(path, sum(member.size for member in members), most)
                    archive.extractall(folder, members, filter="data")
        yield folder


@contextlib.contextmanager
def decompress_file(name: str, path: Path) -> Iterator[IO[bytes]]:
    """Yield the decompressed file at `path` (gz, bz2, xz or plain) of data set `name`, opened."""
    most = largest_unpacked(name, path)
    with temporary_folder() as folder, _saying_damage(path):
        with path.open("rb") as file:
            start = file.read(8)
        opener = next((o for magic, o in PACKINGS.items() if start.startswith(magic)), open)
        with opener(path, "rb") as packed, (folder / path.stem).open("wb") as plain:
            while chunk := packed.read(1 << 16):
                plain.write(chunk)
                _require_small(path, plain.tell(), most)
        with open(plain.name, "rb") as file:
            yield file


@contextlib.contextmanager
def _saying_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except FedreproError:
        raise
    except Exception as error:  # the readers of damaged archives can raise anything
        damage = corrupt_file_error(path, error)
        if isinstance(error, OSError) and not error.filename:  # a failed write has no name
            damage = disk_error(error, f"what {path} holds") or damage
        raise damage from error


def _require_small(path: Path, size: int, most: int) -> None:
    if size > most:
        said = f"{path} unpacks to more than {most:,} bytes, the most that config/datasets.csv"
        fix = "delete it and start again, or correct the column 'unpacked'"
        raise FedreproError(f"{said} allows: {fix}")

"""Unpack publishers' archives and compressed files, up to the size in the table of raw files."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from fedrepro.core.artifacts import corrupt_file_error, temporary_folder
from fedrepro.core.errors import FedreproError, disk_error
from fedrepro.data.raw_files import largest_unpacked

# how a packed file begins, and what reads it
PACKINGS: Any = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
# what macOS adds to an archive: resource forks, and how the Finder shows a folder
OF_MACOS = re.compile(r"(.*/)?(__MACOSX(/.*)?|\._[^/]*|\.DS_Store)")


@contextlib.contextmanager
def unpack_archive(
    name: str, path: Path, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[Path]:
    """Yield a temporary folder with the unpacked tar or zip archive at `path` of data set `name`.

    `wanted` chooses archived files by name. Raises FedreproError if the archive is damaged, unpacks
    to more bytes than config/datasets.csv allows, or has a path, link or device outside the folder.
    """

    def unpack(sizes: dict[str, int], read: Callable[[str], IO[bytes] | None]) -> None:
        kept = [member for member in sizes if wanted(member) and not OF_MACOS.fullmatch(member)]
        _require_small(path, sum(sizes[member] for member in kept), most)
        for member in kept:
            target, content = (folder / member).resolve(), read(member)
            if content is None or not target.is_relative_to(folder.resolve()):
                raise ValueError(f"its member '{member}' is a link or is outside the destination")
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)

    most = largest_unpacked(name, path)
    with temporary_folder() as folder:
        with _saying_damage(path):
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as packed:
                    members = (member for member in packed.infolist() if not member.is_dir())
                    # no member gives more than the size that is written for it
                    unpack({member.filename: member.file_size for member in members}, packed.open)
            else:
                with decompress_file(name, path) as plain, tarfile.open(fileobj=plain) as archive:
                    of = {item.name: item for item in archive if not item.isdir()}
                    sizes = {member: item.size for member, item in of.items()}
                    unpack(sizes, lambda m: archive.extractfile(of[m]) if of[m].isfile() else None)
        yield folder


@contextlib.contextmanager
def decompress_file(name: str, path: Path) -> Iterator[IO[bytes]]:
    """Yield an open file with the decompressed content of a gz, bz2 or xz file of data set `name`.

    Other files are opened as they are. Raises FedreproError for a damaged file, and for more bytes
    than config/datasets.csv allows.
    """
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
        raise FedreproError(
            f"{path} unpacks to more than {most:,} bytes, the most that column 'unpacked' of "
            "config/datasets.csv allows: it is not the file it should be; delete it and start "
            "again, or correct the column if its publisher has a larger one now"
        )

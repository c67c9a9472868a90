"""Unpack publishers' archives and compressed files, up to the size in the table of raw files.

An archive is unpacked into a temporary folder; members with paths outside the folder are refused.
"""

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

from fedrepro.core.artifacts import corrupt_file_error, one_line, saying_disk_errors
from fedrepro.core.errors import FedreproError
from fedrepro.core.temporary_folders import temporary_folder
from fedrepro.data.raw_files import largest_unpacked

# how a packed file begins, and what reads it
PACKINGS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
# what macOS adds to an archive: resource forks, and how the Finder shows a folder
OF_MACOS = re.compile(r"(.*/)?(__MACOSX(/.*)?|\._[^/]*|\.DS_Store)")


@contextlib.contextmanager
def unpack_archive(
    name: str, path: Path, wanted: Callable[[str], bool] | None = None
) -> Iterator[Path]:
    """Yield a temporary folder with the unpacked tar or zip archive at `path` of data set `name`.

    `wanted` is a function that chooses archived files by name; by default all are unpacked.

    Raises:
        FedreproError: the archive is missing or damaged, unpacks to more bytes than
            config/datasets.csv allows, or has a path, link or device outside the folder; or the
            disk is full.
    """
    left = most = largest_unpacked(name, path)

    def kept(member: str) -> bool:
        return not OF_MACOS.fullmatch(member) and (wanted is None or wanted(member))

    with temporary_folder() as folder:
        with _damage_is_said(path, folder):
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as packed:
                    members = [member for member in packed.infolist() if kept(member.filename)]
                    # no member gives more than the size that is written for it
                    if sum(member.file_size for member in members) > most:
                        raise _too_large(path, most)
                    for member in members:
                        # zipfile would quietly rename a member that leaves the folder
                        _inside(folder, member.filename)
                        packed.extract(member, folder)
            else:
                with decompress_file(name, path) as plain, tarfile.open(fileobj=plain) as archive:
                    for item in archive:
                        # a sparse member is larger than what the archive holds of it
                        left -= item.size
                        if left < 0:
                            raise _too_large(path, most)
                        if kept(item.name):
                            _extract(archive, item, folder)
        yield folder


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        archive.extract(member, folder, filter="data")
    elif not member.isdir():  # Python 3.11.0 to 3.11.3, as in Debian 12: files alone
        content = archive.extractfile(member)
        place = _inside(folder, member.name.lstrip("/"))
        if content is None or not member.isfile():
            raise tarfile.ReadError(f"its member '{member.name}' is not a file")
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            shutil.copyfileobj(content, file)


@contextlib.contextmanager
def decompress_file(name: str, path: Path) -> Iterator[IO[bytes]]:
    """Yield an open file with the decompressed content of a gz, bz2 or xz file of data set `name`.

    A file that is not compressed is opened as it is.

    Raises:
        FedreproError: the file is missing or damaged, or has more bytes, decompressed, than
            config/datasets.csv allows; or the disk is full.
    """
    left = most = largest_unpacked(name, path)
    with temporary_folder() as folder, _damage_is_said(path, folder):
        with path.open("rb") as file:
            start = file.read(8)
        opener = next((o for magic, o in PACKINGS.items() if start.startswith(magic)), None)
        plain = path if opener is None else folder / path.stem
        if opener is not None:
            with opener(path, "rb") as packed, plain.open("wb") as file:
                while left >= 0 and (chunk := packed.read(1 << 16)):
                    left -= len(chunk)
                    file.write(chunk)
        if plain.stat().st_size > most:
            raise _too_large(path, most)
        with plain.open("rb") as file:
            yield file


@contextlib.contextmanager
def _damage_is_said(path: Path, folder: Path) -> Iterator[None]:
    try:
        with saying_disk_errors(folder / path.name):
            yield
    except FedreproError:
        raise
    except Exception as error:  # the readers of damaged archives can raise anything
        raise corrupt_file_error(path, one_line(error)) from error


def _inside(folder: Path, name: str) -> Path:
    """Return the path to which to unpack member `name`; ValueError if it is outside `folder`."""
    place = (folder / name).resolve()
    if not place.is_relative_to(folder.resolve()):
        raise ValueError(f"its member '{name}' is outside the destination")
    return place


def _too_large(path: Path, most: int) -> FedreproError:
    return FedreproError(
        f"{path} unpacks to more than {most:,} bytes, the most that column 'unpacked' of "
        "config/datasets.csv allows: it is not the file it should be; delete it and start again, "
        "or correct the column if its publisher has a larger one now"
    )

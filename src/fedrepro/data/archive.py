"""Archives and compressed files of publishers: unpacked as far as the table of raw files says.

An archive goes into a folder that is gone afterwards, and never outside it. Nothing is unpacked
beyond the bytes that `config/datasets.csv` states for a file, so that 150 kB cannot fill a disk or
the memory.
"""

from __future__ import annotations

import bz2
import contextlib
import copy
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from fedrepro.core.artifacts import damaged, one_line, saying_disk_errors
from fedrepro.core.errors import FedreproError
from fedrepro.core.temporary import temporary_folder
from fedrepro.data.table import largest_unpacked

Wanted = Callable[[str], bool]

# how a packed file begins, and what reads it
PACKINGS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}

ENCRYPTED = 1  # bit of a member of a zip
# what macOS adds to an archive: resource forks, and how the Finder shows a folder
OF_MACOS = re.compile(r"(.*/)?(__MACOSX(/.*)?|\._[^/]*|\.DS_Store)")


@contextlib.contextmanager
def unpacked(name: str, path: Path, wanted: Wanted | None = None) -> Iterator[Path]:
    """A temporary folder with the files of an archive of data set `name`, or the `wanted` ones.

    Errors: FedreproError for an archive that is missing or damaged, is larger than the table says,
    or holds a path, link or device which does not belong into the folder; for a full disk. Nothing
    stays of it.
    """
    most = largest_unpacked(name, path)
    with temporary_folder() as folder:
        extract(path, folder, most, wanted)
        yield folder


def extract(path: Path, folder: Path, most: int, wanted: Wanted | None = None) -> None:
    """Unpack a tar (plain, gz, bz2, xz) or zip archive of at most so many bytes into `folder`.

    It is told apart by content; the bytes are those of all that a tar holds, wanted or not. What
    macOS adds is left out.
    """

    def kept(name: str) -> bool:
        return not OF_MACOS.fullmatch(name) and (wanted is None or wanted(name))

    with _damage_is_said(path), saying_disk_errors(folder / path.name):
        if zipfile.is_zipfile(path):
            _extract_zip(path, folder, most, kept)
        else:
            _extract_tar(path, folder, most, kept)


@contextlib.contextmanager
def _damage_is_said(path: Path) -> Iterator[None]:
    try:
        yield
    except FedreproError:
        raise
    except Exception as error:  # the readers of damaged archives can raise anything
        raise damaged(path, one_line(error)) from error


@contextlib.contextmanager
def decompressed(name: str, path: Path) -> Iterator[IO[bytes]]:
    """What a gz, bz2 or xz file of data set `name` holds, or a plain file, as a stream.

    Errors: FedreproError, also while it is read, as for `unpacked`.
    """
    most = largest_unpacked(name, path)
    with _damage_is_said(path), _stream(path, most) as stream:
        yield stream


class _Limited(io.RawIOBase):
    """A stream of at most so many bytes. Errors: FedreproError if it has more."""

    def __init__(self, stream: IO[bytes], most: int, path: Path) -> None:
        self.stream, self.left, self.most, self.path = stream, most, most, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # a byte more than is left tells whether there is one
        chunk = self.stream.read(min(len(buffer), self.left + 1))
        if len(chunk) > self.left:
            raise _too_large(self.path, self.most)
        self.left -= len(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)


@contextlib.contextmanager
def _stream(path: Path, most: int) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        start = file.read(8)
    opener = next((o for magic, o in PACKINGS.items() if start.startswith(magic)), None)
    with opener(path) if opener else path.open("rb") as packed:
        yield io.BufferedReader(_Limited(packed, most, path), 1 << 16)


def _extract_tar(path: Path, folder: Path, most: int, wanted: Wanted) -> None:
    left = most
    # stream mode reads a compressed archive once from front to back
    with _stream(path, most) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            # a sparse member is larger than what the archive holds of it
            left -= member.size
            if left < 0:
                raise _too_large(path, most)
            if wanted(member.name):
                _extract_member(archive, member, folder)


def _extract_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Within the folder, or not at all."""
    if hasattr(tarfile, "data_filter"):
        archive.extract(member, folder, filter="data")
        return
    # Python 3.11.0 to 3.11.3, which Debian 12 has, know no filters: nothing but files and folders
    name = member.name.lstrip("/")
    if not (member.isfile() or member.isdir()):
        raise tarfile.ReadError(f"its member '{member.name}' is neither a file nor a folder")
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise tarfile.ReadError(f"its member '{member.name}' is outside the destination")
    placed = copy.copy(member)
    placed.name = name
    archive.extract(placed, folder, set_attrs=False)


def _extract_zip(path: Path, folder: Path, most: int, wanted: Wanted) -> None:
    home = folder.resolve()
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if wanted(member.filename)]
        # no member gives more than the size that is written for it
        if sum(member.file_size for member in members) > most:
            raise _too_large(path, most)
        for name in archive.namelist():
            # zipfile would quietly rename such a member instead of refusing the archive
            if not (home / name).resolve().is_relative_to(home):
                raise zipfile.BadZipFile(f"its member '{name}' lies outside of it")
        for member in members:
            if member.flag_bits & ENCRYPTED:
                raise zipfile.BadZipFile(f"its member '{member.filename}' is encrypted")
            archive.extract(member, folder)


def _too_large(path: Path, most: int) -> FedreproError:
    return FedreproError(
        f"{path} unpacks to more than {most:,} bytes, the most that column 'unpacked' of "
        "config/datasets.csv allows: it is not the file it should be; delete it and start again, "
        "or correct the column if its publisher has a larger one now"
    )

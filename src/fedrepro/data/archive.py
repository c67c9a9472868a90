"""Archives of publishers: unpacked into a folder that goes away again, and never outside it."""

from __future__ import annotations

import contextlib
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fedrepro.artifacts import damaged

Wanted = Callable[[str], bool]

UNREADABLE = (
    OSError,
    EOFError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,  # a zip packed in a way that Python does not know
)


@contextlib.contextmanager
def unpacked(path: Path, wanted: Wanted | None = None) -> Iterator[Path]:
    """A temporary folder with the archive's files, or with those that `wanted` names.

    Errors: FedreproError for an archive that is missing or damaged, or that holds a path, link or
    device which does not belong into the folder; nothing stays of it.
    """
    with tempfile.TemporaryDirectory(prefix="fedrepro-") as folder:
        extract(path, Path(folder), wanted)
        yield Path(folder)


def extract(path: Path, folder: Path, wanted: Wanted | None = None) -> None:
    """Unpack a tar (plain, gz, bz2, xz) or zip archive, told apart by content, into `folder`."""
    try:
        if zipfile.is_zipfile(path):
            _extract_zip(path, folder, wanted)
        else:
            _extract_tar(path, folder, wanted)
    except UNREADABLE as error:
        raise damaged(path, " ".join(str(error).split()) or type(error).__name__) from error


def _extract_tar(path: Path, folder: Path, wanted: Wanted | None) -> None:
    # stream mode reads a compressed archive once from front to back
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            if wanted is None or wanted(member.name):
                archive.extract(member, folder, filter="data")


def _extract_zip(path: Path, folder: Path, wanted: Wanted | None) -> None:
    home = folder.resolve()
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            # zipfile would quietly rename such a member instead of refusing the archive
            if not (home / name).resolve().is_relative_to(home):
                raise zipfile.BadZipFile(f"its member '{name}' lies outside of it")
            if wanted is None or wanted(name):
                archive.extract(name, folder)

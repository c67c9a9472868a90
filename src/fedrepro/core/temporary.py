"""Temporary folders of which nothing stays: one that a killed process left goes at a next start.

A folder is locked by the process that works in it, and a lock ends with its process, however that
ends. So a folder without a lock is nobody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedrepro.core.artifacts import one_line
from fedrepro.core.errors import FedreproError

PREFIX = "fedrepro.tmp-"


@contextlib.contextmanager
def temporary_folder(place: Path | None = None) -> Iterator[Path]:
    """A folder that is gone afterwards, in this one or where the system has them.

    Errors: FedreproError if there is no place for one.
    """
    try:
        remove_left(place)
        folder, lock = _locked_folder(place)
    except OSError as error:
        raise FedreproError(
            f"no temporary folder can be made ({one_line(error)}): free some space there, or set "
            "TMPDIR to a folder on another disk, and start again"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left(place: Path | None = None) -> None:
    """Remove the folders there of processes of this user that were killed."""
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another process is as fast, or works in it
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked_folder(place: Path | None) -> tuple[Path, int]:
    """A new folder, and the descriptor that locks it."""
    while True:  # until no other process takes it for one that was left, before it is locked
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)

"""Create temporary folders, and remove first the folders that killed processes left.

A process locks its folder, and the lock ends with the process: an unlocked folder can be removed.
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
    """Yield a new temporary folder, in `place` or the system's; remove it after the `with` body."""
    try:
        remove_left(place)
        folder, lock = Path(), -1
        while lock < 0:  # another process may remove it before it is locked
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                lock = _locked(folder)
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
    """Remove temporary folders that killed processes left in `place`, or in the system's folder."""
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another process is as fast, or works in it
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            lock = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path) -> int:
    lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)  # it may have gone meanwhile
    except OSError:
        os.close(lock)
        raise
    return lock

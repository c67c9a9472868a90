"""What several tests need and is costly to make: made once in a run of the tests.

The workers of a run share a folder. Whoever comes first makes a thing, the others wait for it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

VARIABLE = "FEDREPRO_TESTS_FOLDER"
Value = TypeVar("Value")


def begin() -> str | None:
    """Make the folder of this run and tell its workers; None if this is one of them."""
    if VARIABLE in os.environ:
        return None
    os.environ[VARIABLE] = tempfile.mkdtemp(prefix="fedrepro-tests-")
    return os.environ[VARIABLE]


def end(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ[VARIABLE]


@contextmanager
def held(name: str) -> Iterator[Path]:
    """The place of a thing, for one process at a time."""
    if VARIABLE not in os.environ:  # outside pytest
        atexit.register(end, begin())
    path = Path(os.environ[VARIABLE]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def folder(name: str, fill: Callable[[Path], object]) -> Path:
    """A folder as `fill` left it; read only, because others read it too."""
    with held(name) as path:
        whole = path.with_name(f"{path.name}.whole")
        if not whole.exists():
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            fill(path)
            whole.touch()
    return path


def value(name: str, make: Callable[[], Value]) -> Value:
    def fill(path: Path) -> None:
        (path / "value").write_bytes(pickle.dumps(make(), pickle.HIGHEST_PROTOCOL))

    return pickle.loads((folder(name, fill) / "value").read_bytes())  # type: ignore[no-any-return]


# for a process of its own: `peak()`, its most memory in bytes; getrusage counts its parent's too
PEAK = """
import resource, sys

def peak():
    try:
        with open("/proc/self/status") as file:
            return next(int(x.split()[1]) * 1024 for x in file if x.startswith("VmHWM"))
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
"""

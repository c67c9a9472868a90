"""Cache of compiled code: in the user's folder, by the content of its source.

Numba caches by the path of the source, so that each copy of the package would compile again. Code
of an old source is never read again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import xxhash
from numba.core.caching import UserProvidedCacheLocator


def compiled_folder() -> Path:
    """Return Numba's folder for compiled code: NUMBA_CACHE_DIR, or one in the user's cache folder.

    Raises:
        RuntimeError: no variable names a cache folder, and the user has no home folder.
    """
    config: Any = numba.config
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "fedrepro", "compiled")


class ByContent(UserProvidedCacheLocator):
    """The rule by which Numba caches a function: in a folder named after a hash of its source file.

    The folder lies in `compiled_folder`. Numba's own rule names it after the source file's path, so
    that each copy of the package would compile again.
    """

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno
        content = xxhash.xxh3_64_hexdigest(Path(py_file).read_bytes())
        self._cache_path = str(compiled_folder() / f"{Path(py_file).stem}-{content}")

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> ByContent | None:
        """Return the cache rule of a function in `py_file`; None if its folder is unwritable."""
        try:
            locator = cls(py_func, py_file)
            locator.ensure_cache_path()  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError):  # no home
            return None
        return locator


@contextmanager
def kept_by_content() -> Iterator[None]:
    """Let all copies of the package share the code that Numba compiles in the `with` body.

    Numba then finds cached code by the content of a source file (`ByContent`), not by its path. If
    the folder for this cannot be written, compiled code is stored next to the source file.
    """
    config: Any = numba.config
    before = config.CACHE_LOCATOR_CLASSES
    ours = f"{ByContent.__module__}.{ByContent.__name__}"
    config.CACHE_LOCATOR_CLASSES = before or f"{ours},InTreeCacheLocator"
    try:
        yield
    finally:
        config.CACHE_LOCATOR_CLASSES = before


@contextmanager
def one_process(what: str) -> Iterator[None]:
    """Run the `with` body in one process at a time, so that code is compiled once and then cached.

    The lock file is named after a hash of `what`, any name of the code. Other processes wait and
    then read the cache. Where no lock file can be written, each process compiles by itself.
    """
    try:
        path = compiled_folder() / f"{xxhash.xxh3_64_hexdigest(what.encode())}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except (OSError, RuntimeError):
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def compiled_once(function: Any) -> None:
    """Change a Numba function in place: one process compiles it, all others read the cache."""
    compile_now, name = function.compile, function.py_func.__qualname__

    def compile_or_wait(kinds: Any) -> Any:
        with one_process(f"{name}{kinds}"):
            return compile_now(kinds)

    function.compile = compile_or_wait

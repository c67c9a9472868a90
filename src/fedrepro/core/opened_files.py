"""Watch which files are opened for reading: a result depends on them, as on its parameters."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fedrepro.core.source_digests import PACKAGE

# opened by Python, its packages and the system
THEIRS = (sys.prefix, sys.base_prefix, PACKAGE, "/proc", "/sys", "/dev", "/etc", "/usr")
CODE = (".py", ".pyc", ".so", ".nbi", ".nbc")

_watched: list[dict[str, None]] = []
_hooked: list[bool] = []


@contextmanager
def opened_files() -> Iterator[dict[str, None]]:
    """Yield a dict of the files opened inside, by absolute path, without code and system files."""
    if not _hooked:
        _hooked.append(True)  # a hook cannot be taken out again
        sys.addaudithook(_hook)
    found: dict[str, None] = {}
    _watched.append(found)
    try:
        yield found
    finally:
        _watched.remove(found)


def _hook(event: str, args: tuple[object, ...]) -> None:
    if not _watched or event != "open" or not isinstance(args[0], str | bytes | os.PathLike):
        return
    if isinstance(args[2], int) and args[2] & os.O_WRONLY:
        return
    path = os.path.abspath(os.fsdecode(args[0]))
    hidden = f"{os.sep}." in path
    if not (hidden or path.endswith(CODE) or opened_within(path, *THEIRS) or os.path.isdir(path)):
        for found in _watched:
            found[path] = None


def opened_within(path: str, *folders: str) -> bool:
    """Whether an absolute path lies in one of these folders."""
    return any(path.startswith(os.path.join(os.path.abspath(folder), "")) for folder in folders)

"""The package's own files, and hashes of them, by which a change of code is noticed.

Imports little, since a hash is computed for every job of a workflow before the job is submitted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

try:  # hashlib loads OpenSSL as well, which takes longer than reading the files
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUFFIXES = (".py", ".json", ".css", ".js", ".html", ".md", ".yaml")
HIDDEN = (".", "__pycache__")


def on_disk(package: str = PACKAGE) -> dict[str, bytes]:
    """Return the contents of files in folder `package` that results depend on, by relative path."""
    contents = {}
    for folder, inner, names in os.walk(package):
        inner[:] = [name for name in inner if not name.startswith(HIDDEN)]
        # only the code of a paper: its pages compute nothing
        suffixes = ".py" if f"{folder}/".startswith(f"{package}/papers/") else SUFFIXES
        for path in (f"{folder}/{name}" for name in names if not name.startswith(HIDDEN)):
            with suppress(FileNotFoundError):  # just being replaced
                if path.endswith(suffixes):
                    contents[path[len(package) + 1 :]] = _content(path)
    return dict(sorted(contents.items()))


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def digest(files: Mapping[str, bytes]) -> str:
    """Return a hash of `files`, contents by name: 128 bits, as 32 hexadecimal digits."""
    hasher = blake2b(digest_size=16)
    for name, content in files.items():
        hasher.update(b"%s\0%d\0" % (os.fsencode(name), len(content)))
        hasher.update(content)
    return hasher.hexdigest()


def digest_of(content: bytes) -> str:
    """Return a hash of one file's content: 64 bits, as 16 hexadecimal digits."""
    return blake2b(content, digest_size=8).hexdigest()


def digest_of_file(path: str) -> str:
    """Return `digest_of` a file as it is on disk; empty if it is missing."""
    with suppress(FileNotFoundError):
        return digest_of(_content(path))
    return ""

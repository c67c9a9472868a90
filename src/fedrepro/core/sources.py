"""The package's own files, told apart by digests: what a process loaded and what is on disk.

Imports as little as it can, since every job of a workflow asks before it is handed over.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

try:  # hashlib loads OpenSSL as well, which takes longer than reading the files
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUFFIXES = (".py", ".json", ".css", ".js")
HIDDEN = (".", "__pycache__")

# What does not compute: a result that is there already cannot depend on it. All else computes, so
# a new file does, unless it lies in one of these rooms. A test holds both tables to what the
# computing stages import.
OTHER = {
    "__main__.py": "parses commands",
    "cli/": "parses commands",
    "core/yaml_text.py": "reads settings",
    "data/own.py": "reads data of one's own",
    "machine/": "describes the machine",
    "networks/module_states.py": "reads and writes own modules",
    "networks/starts.py": "compares models of one's own",
    "networks/state_dicts.py": "reads and writes models of one's own",
    "networks/stored.py": "reads files of models of one's own",
    "own/": "combines and checks what is one's own",
    "planning/": "plans",
    "numbers/": "makes tables of results",
    "drawings/": "draws",
    "record/": "reports",
    "site/": "reports",
    "stages/board.py": "judges",
    "stages/chosen.py": "keeps models that are made in the same way elsewhere",
    "stages/claims.py": "judges",
    "stages/computing.py": "runs the workflow",
    "stages/entries.py": "packs entries, and compares",
    "stages/exhibit.py": "draws",
    "stages/maps.py": "draws",
    "stages/notebook.py": "runs the workflow",
    "stages/redraw.py": "draws",
    "stages/running.py": "runs the workflow",
    "stages/site.py": "reports",
    "verdicts/": "judges",
}
PAPERS = "papers/"
# which paper it is, what it shows, and replaying its authors' code
OF_PAPERS = ("__init__.py", "exhibits.py", "exhibits/", "check.py")
# What lies there and computes all the same.
COMPUTING = {
    "numbers/__init__.py": "is loaded with those below",
    "numbers/beliefs.py": "measures beliefs",
    "numbers/measure.py": "measures models",
    "planning/__init__.py": "is loaded with the one below",
    "planning/paths.py": "names scenarios and trials",
}


def computes(name: str) -> bool:
    """Whether results depend on this file, named from the package: stages/train.py.

    The folder of a paper has rooms of the same names, and beside them what only plans.
    """
    if name.startswith(PAPERS):
        name = name[len(PAPERS) :].partition("/")[2] or "__init__.py"
        return not name.startswith((*OF_PAPERS, *OTHER))
    return name in COMPUTING or not name.startswith(tuple(OTHER))


def on_disk(package: str = PACKAGE) -> dict[str, bytes]:
    """The package's files as they are now, by name, in the order of names."""
    contents = {}
    for folder, inner, names in os.walk(package):
        inner[:] = [name for name in inner if not name.startswith(HIDDEN)]
        for name in names:
            if name.endswith(SUFFIXES) and not name.startswith(HIDDEN):
                path = f"{folder}/{name}"
                contents[path[len(package) + 1 :]] = _content(path)
    return {name: content for name, content in sorted(contents.items()) if content is not None}


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:  # it is just being replaced
        return None


def digest(files: Mapping[str, bytes]) -> str:
    """128 bits of the names and contents of these files, as 32 hexadecimal digits."""
    hasher = blake2b(digest_size=16)
    for name, content in files.items():
        hasher.update(b"%s\0%d\0" % (os.fsencode(name), len(content)))
        hasher.update(content)
    return hasher.hexdigest()


def digest_of(content: bytes) -> str:
    """64 bits of one file's content, as 16 hexadecimal digits."""
    return blake2b(content, digest_size=8).hexdigest()


def digest_of_file(path: str) -> str:
    """The same of a file as it is on disk now; empty if it is not there."""
    content = _content(path) if path else None
    return "" if content is None else digest_of(content)

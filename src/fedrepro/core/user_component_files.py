"""Load components outside the package, from Python files that the configuration names.

Decorators in a file register its components (`core/registry.py`). Files that it opens are noted,
since results depend on them. This module has to load fast, so that it imports little.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from fedrepro.core.errors import FedreproError, type_and_message, unknown
from fedrepro.core.source_digests import PACKAGE, digest_of, digest_of_file

# opened by Python, its packages and the system
THEIRS = (sys.prefix, sys.base_prefix, PACKAGE, "/proc", "/sys", "/dev", "/etc", "/usr")
CODE = (".py", ".pyc", ".so", ".nbi", ".nbc", ".smk", "Snakefile")
_watched: list[dict[str, None]] = []

NAMED = "FEDREPRO_COMPONENTS"  # files, joined as in PATH
MODULES = "fedrepro_outside"  # begins the names that such files have as modules
OF_CLASS = re.compile(r"(?<=\.py):(?=[A-Za-z_]\w*$)")  # nets.py:Net, a class of a file
TAKE_OUT = "take it out where it is named: `components` in config/config.yaml, or your command"
BETWEEN = re.compile(r":(?:(?<!\.py:)|(?![A-Za-z_]\w*(?::|$)))")  # such files, joined as in PATH

loaded_files: set[str] = set()  # of users, by absolute paths
_hook = cache(sys.addaudithook)  # once, since a hook cannot be taken out again


@contextmanager
def opened_files() -> Iterator[dict[str, None]]:
    """Yield a dict whose keys become paths of the files that the `with` body reads, except code."""
    _hook(_note_opened)
    _watched.append({})
    try:
        yield _watched[-1]
    finally:
        _watched.pop()


def _note_opened(event: str, args: tuple[object, ...]) -> None:
    if not _watched or event != "open" or not isinstance(args[0], str | bytes | os.PathLike):
        return
    path = os.path.abspath(os.fsdecode(args[0]))
    written = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_EXCL)
    ignored = written or f"{os.sep}." in path or path.endswith(CODE) or os.path.isdir(path)
    if not ignored and not opened_within(path, *THEIRS):
        for found in _watched:
            found[path] = None


def opened_within(path: str, *folders: str) -> bool:
    """Return whether the absolute `path` lies in one of `folders`, at any depth."""
    return any(path.startswith(os.path.join(os.path.abspath(folder), "")) for folder in folders)


def configured_files() -> tuple[str, ...]:
    """Return the user's Python files to load, those listed in the variable FEDREPRO_COMPONENTS."""
    return tuple(filter(None, BETWEEN.split(os.environ.get(NAMED, ""))))


def set_files(files: Iterable[str]) -> None:
    """Let this process and its children load exactly these Python files with components."""
    os.environ[NAMED] = os.pathsep.join(files)


def add_files(files: Iterable[str]) -> None:
    """Let this process and its children also load these Python files with components, each once."""
    listed = configured_files()
    there = {*map(os.path.abspath, listed)}
    set_files([*listed, *(file for file in files if os.path.abspath(file) not in there)])


@contextmanager
def restored_files() -> Iterator[None]:
    """Restore, after the `with` body, the list of files to load, which the body may change."""
    before = os.environ.get(NAMED)
    try:
        yield
    finally:
        os.environ.pop(NAMED, None)
        os.environ.update({} if before is None else {NAMED: before})


def load_file(file: str) -> Any:
    """Run a user's Python file; return class Net for nets.py:Net, else None; raise if it fails."""
    file, *asked = OF_CLASS.split(file)
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        raise FedreproError(f"{file} is missing: write it, or {TAKE_OUT}")
    loaded_files.add(path)
    name, folder = module_of(path), os.path.dirname(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FedreproError(f"{file} is not a Python file: components are in files that end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # components ask there for their file
    sys.path.append(folder)  # files in it may be imported, as where it is run as a script
    try:
        spec.loader.exec_module(module)
    except FedreproError as error:
        raise FedreproError(f"{file}: {error}") from error
    except Exception as error:
        what = own_fault(error) or type_and_message(error)
        raise FedreproError(f"{file} cannot be loaded: {what}; fix it, or {TAKE_OUT}") from error
    finally:
        sys.path.remove(folder)
    made = getattr(module, asked[0], None) if asked else None
    if asked and not (callable(made) and hasattr(made, "__name__")):  # an object has no name
        known = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise unknown("class", asked[0], known, file)
    return made


def module_of(file: str) -> str:
    """Return the name under which a user's file is loaded, made from a hash of its path."""
    path = os.path.abspath(OF_CLASS.split(file)[0])
    return f"{MODULES}_{digest_of(os.fsencode(path))}"


def digest_with_imports(path: str) -> str:
    """Return a hash of a user's Python file and of the modules in its folder that it imports.

    The hash is empty if the file is missing, as for a cell of a notebook. FedreproError is raised
    if Python has another module of the same name, as of another user's folder or a package.
    """
    files = [os.path.abspath(path)] if os.path.isfile(path) else []
    for file in files:  # which grows
        for folder, *names in _imports(file, os.path.dirname(files[0])):
            bases = (os.path.join(folder, *names[:end]) for end in range(1, len(names) + 1))
            for one in (base + end for base in bases for end in (".py", f"{os.sep}__init__.py")):
                if os.path.isfile(one) and one not in files:
                    files.append(one)
    digests = [digest_of_file(file) for file in files]
    for file, digest in zip(files[1:], digests[1:], strict=True):
        place = os.path.relpath(file, os.path.dirname(path)).removesuffix(".py")
        name = place.removesuffix(f"{os.sep}__init__").replace(os.sep, ".")
        found = name in sys.modules or "." not in name  # else this would import its package
        spec = importlib.util.find_spec(name) if found else None
        if spec and digest_of_file(spec.origin or "") != digest:
            raise FedreproError(f"import {name} gives {spec.origin}, not {file}: rename the latter")
    return digest_of("".join(digests).encode()) if len(digests) > 1 else "".join(digests)


def _imports(file: str, folder: str) -> Iterator[list[str]]:
    # [folder, package, …, module] of what `file` imports, from `folder` or near itself
    with open(file, "rb") as opened, suppress(SyntaxError):  # an import of it says so
        for node in ast.walk(ast.parse(opened.read())):
            if isinstance(node, ast.Import):
                yield from ([folder, *alias.name.split(".")] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                near = [os.path.dirname(file), *[os.pardir] * (node.level - 1)]
                at = os.path.abspath(os.path.join(*near)) if node.level else folder
                within = node.module.split(".") if node.module else []
                yield from ([at, *within, alias.name] for alias in node.names)


def own_fault(error: BaseException) -> str:
    """Return file, line and message of `error` raised in a folder of loaded user files, or ""."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    folders = {*map(os.path.dirname, loaded_files)}
    named = (frame for frame in frames if not frame.filename.startswith("<"))
    own = [f for f in named if os.path.dirname(os.path.abspath(f.filename)) in folders]
    for frame in own[-1:]:
        near = os.path.relpath(frame.filename)
        name = frame.filename if near.startswith("..") else near
        return f"{name}, line {frame.lineno}, `{frame.line}`: {type_and_message(error)}"
    return ""

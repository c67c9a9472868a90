"""Components outside the package: files that the configuration names, and installed packages.

Jobs are told of files through their environment, which hands over what the configuration names.
Importing such a file runs it, and its decorators register what is in it (`core/registry.py`).
Jobs that are handed over import this module too, so what few calls need is imported by them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from fedrepro.core.errors import TOLD, FedreproError, printable, unknown
from fedrepro.core.sources import digest_of, digest_of_file

NAMED = "FEDREPRO_COMPONENTS"  # files, joined as in PATH
GROUP = "fedrepro.components"  # entry points of packages, each of which names a module
MODULES = "fedrepro_outside"  # begins the names that such files have as modules
OF_CLASS = re.compile(r"(?<=\.py):(?=[A-Za-z_]\w*$)")  # nets.py:Net, a class of a file
IN_PATH = "#"  # stands for that colon where files are joined as in PATH

# digests of files when they were loaded, which is what computes, whatever is on disk by then
loaded_digests: dict[str, str] = {}
_folders: set[str] = set()  # of these files, and of the modules that installed packages declare


def named() -> tuple[str, ...]:
    """The files that this process was told of, as they were written; of some a class alone."""
    parts = os.environ.get(NAMED, "").split(os.pathsep)
    return tuple(part.replace(f".py{IN_PATH}", ".py:") for part in parts if part)


def name_files(files: Iterable[str]) -> None:
    """Tell this process and those that it starts of these files, and of no others."""
    os.environ[NAMED] = os.pathsep.join(OF_CLASS.sub(IN_PATH, file) for file in files)


def name_also(files: Iterable[str]) -> None:
    """Tell this process of these files too, each once, however it is written."""
    told = {os.path.abspath(file) for file in named()}
    name_files((*named(), *(file for file in files if os.path.abspath(file) not in told)))


def load_file(file: str) -> Any:
    """Run a file, and give the class of it that is asked for, if one is.

    Errors: FedreproError for a file that is missing or wrong, with the line, and for a class that
    it has not.
    """
    file, *asked = OF_CLASS.split(file)
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        raise FedreproError(
            f"{file} is missing: write it, or take it out of `components` in config/config.yaml, "
            "if that names it"
        )
    loaded_digests[path] = digest_of_file(path)
    _folders.add(os.path.dirname(path))
    name = module_of(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FedreproError(f"{file} is no Python file: components are in files that end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # components ask there for their file
    # files beside it may be imported by their names, as where it is run as a script
    folder = os.path.dirname(path)
    sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except FedreproError as error:
        raise FedreproError(f"{file}: {error}") from error
    except Exception as error:
        raise FedreproError(
            f"{file} cannot be loaded: {_told(error)}; mend it, or take it out of "
            "`components` in config/config.yaml"
        ) from error
    finally:
        sys.path.remove(folder)
    if not asked:
        return None
    if not callable(getattr(module, asked[0], None)):
        known = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise unknown("class", asked[0], known, file)
    return getattr(module, asked[0])


def module_of(file: str) -> str:
    """The name that a file has as a module once it is loaded."""
    path = os.path.abspath(OF_CLASS.split(file)[0])
    return f"{MODULES}_{digest_of(os.fsencode(path))}"


def load_installed() -> None:
    """Import what installed packages declare. Errors: FedreproError that names the package."""
    from importlib import metadata

    for point in metadata.entry_points(group=GROUP):
        owner = point.dist.name if point.dist else "a package"
        try:
            point.load()
            _folders.add(os.path.dirname(sys.modules[point.module].__file__ or ""))
        except Exception as error:
            raise FedreproError(
                f"{owner} declares components in {point.value}, which cannot be loaded "
                f"({type(error).__name__}: {error}): mend or uninstall it"
            ) from error


def _told(error: Exception) -> str:
    """Say what went wrong, and in which line of the file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno} is no Python ({error.msg})"
    return own_fault(error) or f"{type(error).__name__}: {error}"


def own_fault(error: BaseException) -> str:
    """Name file, line and source line where an own file went wrong, and how; empty if none did.

    A file beside an own one counts as well, since an own file may import it.
    """
    import traceback

    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.dirname(os.path.abspath(frame.filename)) in _folders
    ]
    if not frames:
        return ""
    name, line, code = frames[-1].filename, frames[-1].lineno, frames[-1].line
    message = printable(" ".join(str(error).split()))[:TOLD]
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    near = os.path.relpath(name)
    return f"{name if near.startswith('..') else near}, line {line}, `{code}`: {what}"

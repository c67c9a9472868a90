"""Files as such: written whole or not at all; bytes, text, JSON and arrays; what went wrong."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts.checksums import checksum_of, checksum_of_file, once
from fedrepro.core.errors import FedreproError, disk_error, printable
from fedrepro.core.kinds import STAGES

# Raised whenever files are written in another way. Files of version 1 have no checksums.
SCHEMA_VERSION = 2
BEFORE_CHECKSUMS = 1
CHECKSUM = "checksum"
TREES = frozenset({"prepare", "partition", *STAGES})  # the folders of the stages


@contextlib.contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it at the end; nothing stays if the body fails.

    Links are followed. Temporary files that a killed process left for the same target are removed.
    Errors: FedreproError for a disk that is full or must not be written to, and for what is there
    and is no file.
    """
    path = target_of(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with saying_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(path)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def target_of(path: Path | str) -> Path:
    """The file that is written under this name: itself, or where a link leads.

    Errors: FedreproError for what is there and is no regular file, which renaming would replace.
    """
    target = Path(path)
    try:
        if target.is_symlink():
            target = Path(os.path.realpath(target))
        mode = os.stat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):  # nothing yet; making its folder says the rest
        return target
    except OSError as error:
        why = one_line(error.strerror).lower()
        raise FedreproError(f"cannot write {path} ({why}); name a file") from error
    if not stat.S_ISREG(mode):
        raise FedreproError(f"cannot write {path}: it is {_kind(mode)} and no file; name another")
    return target


def require_target(
    path: Path | str, suffixes: Sequence[str] = (), read: Iterable[Path | str] = ()
) -> None:
    """Refuse what a command must not write, before anything is computed.

    suffixes: by which it says in what form it can write; none: any. read: the files that it reads,
    which must not be lost. Errors: FedreproError; see also `target_of` and `require_unread`.
    """
    target_of(path)
    if suffixes and Path(path).suffix not in suffixes:
        *others, last = suffixes
        ends = f"{', '.join(others)} or {last}" if others else last
        raise FedreproError(f"cannot write {path}: its name must end in {ends}")
    require_unread(path, read)


def require_unread(path: Path | str, read: Iterable[Path | str]) -> None:
    """Refuse to write a file or folder that the same command reads, by whatever name."""
    for other in read:
        with contextlib.suppress(OSError, ValueError):  # what is not there cannot be lost
            if os.path.samefile(path, other):
                same = "" if Path(path) == Path(other) else f", which is {other},"
                raise FedreproError(
                    f"cannot write {path}: this command reads it{same} and it would be lost; "
                    "name another"
                )


def require_file(path: Path | str) -> None:
    """Refuse what is there and is no regular file: a pipe would let its reader wait for ever."""
    with contextlib.suppress(OSError):  # what is not there is said by who opens it
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise FedreproError(f"cannot read {path}: it is {_kind(mode)} and no file")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


@contextlib.contextmanager
def saying_disk_errors(path: Path | str) -> Iterator[None]:
    """A disk that is full, or must not be written to, becomes a sentence about `path`."""
    try:
        yield
    except OSError as error:
        # what was read meanwhile lies elsewhere; a failed write has no name
        failure = disk_error(error, path) if _is_near(error.filename, Path(path).parent) else None
        if failure is None:
            raise
        raise failure from error


def _is_near(name: str | None, folder: Path) -> bool:
    """Whether a name is in a folder, or is one that the folder lies in; none counts as in it."""
    if name is None:
        return True
    path = Path(name)
    return folder in (path, *path.parents) or path in folder.parents


def _remove_orphans(path: Path) -> None:
    for orphan in path.parent.glob(f".{path.name}.*.tmp"):
        pid = orphan.name.split(".")[-2]
        if not pid.isdigit() or not _alive(int(pid)):
            with contextlib.suppress(FileNotFoundError):
                orphan.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def damaged(path: Path | str, why: object, remove: Path | str | None = None) -> FedreproError:
    """The error for a file that cannot be used; `remove` is what to delete, if not the file."""
    what = "it" if remove is None else f"the folder {remove}"
    return FedreproError(
        f"{path} cannot be read ({one_line(why)}): it is missing or damaged; "
        f"delete {what} and start again, and it will be made anew"
    )


def one_line(error: object) -> str:
    """An error's text without line breaks, cut short; of the system's, what went wrong alone."""
    text = getattr(error, "strerror", None) or str(error)
    return printable(" ".join(text.split()))[:160] or type(error).__name__


def place_of(path: Path | str) -> str:
    """Where a file lies in a tree of results: its path from the name of its stage on.

    Empty for a file that lies in no such tree.
    """
    parts = Path(path).parts
    first = next((i for i, part in enumerate(parts[:-1]) if part in TREES), len(parts))
    return "/".join(parts[first:])


def require_place(path: Path | str, written: str) -> None:
    """Refuse a file that was written at another place of a tree than where it lies."""
    place = place_of(path)
    if place and written and place != written:
        raise damaged(path, f"it was made as {written}")


# ------------------------------------------------------------------------------ bytes and text


def write_bytes(path: Path | str, data: bytes | memoryview) -> None:
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path | str, text: str) -> None:
    write_bytes(path, text.encode())


def read_checked(path: Path | str, checksum: str, named_in: Path | str) -> bytes:
    """All bytes of a file whose checksum another one names.

    Errors: FedreproError for a file that is missing, or that has other bytes.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise damaged(path, one_line(error)) from error
    if checksum_of(data) != checksum:
        raise damaged(path, f"it is not the file that {named_in} names")
    return data


# ---------------------------------------------------------------------------------------- JSON


def write_json(path: Path | str, value: Mapping[str, Any]) -> None:
    """Keys and values as JSON, with a checksum of them beside them, under a key of its own."""
    write_text(path, json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """What `write_json` writes."""
    # as it is read back: keys are texts then, tuples lists
    plain = json.loads(json.dumps(value))
    whole = plain | {CHECKSUM: _checksum_of_value(plain)}
    return json.dumps(whole, indent=2, sort_keys=True) + "\n"


def read_json(path: Path | str, remove: Path | str | None = None) -> Any:
    """What `write_json` wrote, or any other JSON. remove: see `damaged`.

    Errors: FedreproError for a file that is missing, is no JSON, or does not have the checksum
    that it names; and for one of this schema version that names none.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, one_line(error), remove) from error
    if not isinstance(value, dict):
        return value
    checksum = value.pop(CHECKSUM, None)
    if checksum is None and value.get("schema", BEFORE_CHECKSUMS) == BEFORE_CHECKSUMS:
        return value
    if checksum != _checksum_of_value(value):
        raise damaged(path, "its checksum is not that of what it holds", remove)
    return value


def read_json_of(
    path: Path | str,
    keys: Mapping[str, type | tuple[type, ...]],
    remove: Path | str | None = None,
) -> dict[str, Any]:
    """A JSON object that has these keys, with values of these types, and perhaps others."""
    value = read_json(path, remove)
    if not isinstance(value, dict):
        raise damaged(path, "it does not hold keys and values", remove)
    odd = [key for key, kind in keys.items() if not isinstance(value.get(key), kind)]
    if odd:
        raise damaged(path, f"it is another file: it has no '{odd[0]}', or an odd one", remove)
    return value


def _checksum_of_value(value: Any) -> str:
    return checksum_of(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


# -------------------------------------------------------------------------------------- arrays


def write_array(path: Path | str, array: np.ndarray) -> str:
    """An `.npy` file, which jobs map into memory instead of loading; returns its checksum."""
    form = np.lib.format
    array = np.ascontiguousarray(array)
    with atomic(path) as temporary:
        with temporary.open("wb") as file:
            form.write_array_header_1_0(file, form.header_data_from_array_1_0(array))
            # np.save would not say why it could not write all of it
            file.write(array.reshape(-1).view(np.uint8).data)
        return checksum_of_file(temporary)


def map_array(path: Path | str, remove: Path | str | None = None) -> np.ndarray:
    """The array of an `.npy` file, mapped read-only: only the pages that are used are read.

    remove: see `damaged`. Its checksum is compared by `has_checksum`, when it is used.
    """
    try:
        mapped: np.ndarray = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy reads the header as Python, which can raise anything
        raise damaged(path, one_line(error), remove) from error
    return mapped


def has_checksum(path: Path | str, checksum: str) -> bool:
    """Whether the bytes of a file have this checksum; compared once per process."""
    try:
        return once(path, checksum, lambda: checksum_of_file(path) == checksum)
    except OSError:
        return False

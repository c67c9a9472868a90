"""Fetching raw files: mirror first, then urls; resumed, verified before use, whole or not at all.

A file is received under a temporary name and renamed only when its size and checksum are those of
the table (`table.py`). What was cut off stays as `.<file>.<digest>.part`, which belongs to one
url and one checksum, and is continued next time; bytes that turn out wrong are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import fedrepro
from fedrepro.core.artifacts import atomic, saying_disk_errors, target_of
from fedrepro.core.errors import FedreproError
from fedrepro.data.table import DatasetTable, FileRow

Progress = Callable[[int, int], None]

TIMEOUT = 30.0  # seconds without a single byte
RESUMES = 10  # how often one url may break off in one go, as long as each time brings bytes
CHUNK = 1 << 16

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Where a raw file came from: a path, a url, or "present" if it was there already."""

    file: str
    form: str
    bytes: int
    origin: str
    verified: bool


class _Failed(Exception):
    """A source that did not give the file; the text says why."""


class _CutOff(_Failed):
    """The transfer ended early; what came so far may be continued."""


def fetch(
    name: str,
    file: str,
    target: Path,
    mirror: Path | None,
    table: DatasetTable,
    *,
    progress: Progress | None = None,
    timeout: float = TIMEOUT,
) -> Source:
    """Bring `file` of data set `name` to `target`: from the mirror folder, then from its urls.

    progress(bytes, total) is called as bytes arrive. A second process that wants the same target
    waits, and finds the file there. Errors: FedreproError that lists what was tried and why each
    failed; a file that the table does not know; a full disk.
    """
    forms = table.forms(name, file)
    report = progress or (lambda _bytes, _total: None)
    target_of(target)  # a link stays one unless what it leads to is not the file
    with saying_disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target):
        row = _already_there(target, forms)
        if row is not None:
            return _source(row, target, "present")
        tried = []
        for origin, bring in _attempts(target, mirror, forms, report, timeout):
            try:
                row = bring()
            except _Failed as failure:
                tried.append(f"{origin} {failure}")
                log.warning("%s/%s: %s %s", name, file, origin, failure)
            else:
                _remove_parts(target)
                return _source(row, target, origin)
    if mirror is None:
        tried.insert(0, "no mirror is set")
    if not any(row.urls for row in forms):
        tried.append("no url is known")
    raise FedreproError(
        f"cannot get {file} of data set '{name}': {'; '.join(tried)}. Set `mirror` in "
        f"config/config.yaml or FEDREPRO_MIRROR to a folder that holds {_places(forms)}, "
        "or go online, and start again"
    )


def raw_sources(
    name: str, files: Sequence[str], raw: Path, table: DatasetTable
) -> list[dict[str, Any]]:
    """What `dataset.json` says of the raw files in `raw`.

    Errors: FedreproError for a file that is missing or has other bytes than the table says.
    """
    records = []
    for file in files:
        try:
            row = _matching(raw / file, table.forms(name, file))
        except (OSError, _Failed) as error:
            raise FedreproError(
                f"raw file {raw / file} of data set '{name}' cannot be used ({error}); "
                "delete it and start again, and it will be fetched anew"
            ) from error
        record = {
            "file": row.file,
            "form": row.form,
            "version": row.version,
            "bytes": _size(raw / file),
            "sha256": _digest(raw / file, "sha256"),
            "verified": bool(row.checksum),
            "urls": list(row.urls),
        }
        records.append(record)
    return records


def _places(forms: Sequence[FileRow]) -> str:
    return " or ".join(dict.fromkeys(row.place for row in forms))


def _source(row: FileRow, target: Path, origin: str) -> Source:
    return Source(row.file, row.form, target.stat().st_size, origin, bool(row.checksum))


def _already_there(target: Path, forms: Sequence[FileRow]) -> FileRow | None:
    if not target.exists():
        return None
    try:
        return _matching(target, forms)
    except _Failed as failure:
        log.warning("%s %s: removed, and fetched anew", target, failure)
        target.unlink()
        return None


def _attempts(
    target: Path,
    mirror: Path | None,
    forms: Sequence[FileRow],
    report: Progress,
    timeout: float,
) -> Iterator[tuple[str, Callable[[], FileRow]]]:
    """Every source in order: how to call it, and how to get the file from it."""
    if mirror is not None:
        yield f"mirror {mirror}", partial(_from_mirror, mirror, target, forms, report)
    for row in forms:
        for url in row.urls:
            yield url, partial(_download, url, target, row, report, timeout)


def _matching(path: Path, forms: Sequence[FileRow]) -> FileRow:
    """The form whose size and checksum the file has; one without a checksum only if no other."""
    size = path.stat().st_size
    sized = [row for row in forms if row.bytes in (None, size)]
    if not sized:
        expected = " or ".join(f"{row.bytes:,}" for row in forms)
        raise _Failed(f"has {size:,} bytes instead of {expected}")
    known = [row for row in sized if row.checksum]
    digests = {name: _digest(path, name) for name in dict.fromkeys(row.algorithm for row in known)}
    for row in known:
        if row.digest == digests[row.algorithm]:
            return row
    for row in sized:
        if not row.checksum:
            log.warning("%s/%s: no checksum is known, taken on trust", row.name, row.file)
            return row
    have = " and ".join(f"{name} {digest[:12]}…" for name, digest in digests.items())
    expected = " or ".join(f"{row.digest[:12]}…" for row in known)
    raise _Failed(f"has {have} instead of {expected}")


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


# ------------------------------------------------------------------------------------ mirror


def _from_mirror(mirror: Path, target: Path, forms: Sequence[FileRow], report: Progress) -> FileRow:
    """The first good form that the mirror holds."""
    if not mirror.is_dir():
        raise _Failed("is not there: this folder does not exist")
    places = list(dict.fromkeys(row.place for row in forms))
    present = [place for place in places if (mirror / place).is_file()]
    failures = [] if present else [f"does not hold {' or '.join(places)}"]
    for place in present:
        try:
            return _copy(mirror / place, target, forms, report)
        except _Failed as failure:
            failures.append(f"holds a bad {place}: it {failure}")
        except OSError as error:
            failures.append(f"holds a {place} that cannot be copied ({error})")
    raise _Failed("; ".join(failures))


def _copy(source: Path, target: Path, forms: Sequence[FileRow], report: Progress) -> FileRow:
    total = source.stat().st_size
    with atomic(target) as temporary:
        with source.open("rb") as reader, temporary.open("wb") as writer:
            while chunk := reader.read(CHUNK):
                writer.write(chunk)
                report(writer.tell(), total)
        return _matching(temporary, forms)


# -------------------------------------------------------------------------------------- urls


def _part(target: Path, url: str, row: FileRow) -> Path:
    digest = hashlib.blake2b(f"{url} {row.checksum}".encode(), digest_size=6).hexdigest()
    return target.with_name(f".{target.name}.{digest}.part")


def _remove_parts(target: Path) -> None:
    for part in target.parent.glob(f".{target.name}.*.part"):
        part.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _download(url: str, target: Path, row: FileRow, report: Progress, timeout: float) -> FileRow:
    """The whole file from one url, continuing what is there; verified, then renamed."""
    part = _part(target, url, row)
    broke_off = _CutOff("broke off")
    for _ in range(RESUMES):
        before = _size(part)
        try:
            _receive(url, part, row, report, timeout)
            _matching(part, [row])
        except _CutOff as failure:
            if _size(part) <= before:
                if not _size(part):
                    part.unlink(missing_ok=True)
                raise
            broke_off = failure
        except _Failed as failure:
            part.unlink(missing_ok=True)
            # an old part may have been the bad half: then the whole file gets a chance
            if not before:
                raise _Failed(f"{failure}: removed") from failure
        else:
            os.replace(part, target)
            return row
    raise broke_off


def _receive(url: str, part: Path, row: FileRow, report: Progress, timeout: float) -> None:
    """Append to `part` what the url still has to give."""
    have = _size(part)
    if row.bytes is not None and have >= row.bytes:
        return
    headers = {"User-Agent": f"fedrepro/{fedrepro.__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
    except urllib.error.HTTPError as error:
        error.close()
        kind = _Failed if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE else _NoAnswer
        raise kind(f"answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _NoAnswer(f"gave no answer ({_reason(error, timeout)})") from error
    with response:
        # servers may send the whole file although a part was asked for
        start = have if response.status == http.client.PARTIAL_CONTENT else 0
        promised = _promised(response, start)
        if None not in (promised, row.bytes) and promised != row.bytes:
            raise _Failed(f"offers {promised:,} bytes instead of {row.bytes:,}")
        total = promised if row.bytes is None else row.bytes
        with saying_disk_errors(part), part.open("r+b" if start else "wb") as file:
            file.seek(start)
            _pour(response, file, total, report, timeout)
            if promised is not None and total is not None and file.tell() < total:
                raise _CutOff(f"broke off after {file.tell():,} of {total:,} bytes")


class _NoAnswer(_CutOff):
    """Nothing came at all: what came earlier from this url stays good."""


def _promised(response: Any, start: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isdecimal() else None


def _pour(
    response: Any, file: IO[bytes], total: int | None, report: Progress, timeout: float
) -> None:
    of_all = "" if total is None else f" of {total:,}"
    while True:
        try:
            chunk = response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _CutOff(
                f"broke off after {file.tell():,}{of_all} bytes ({_reason(error, timeout)})"
            ) from error
        if not chunk:
            return
        file.write(chunk)
        report(file.tell(), total or 0)
        if total is not None and file.tell() > total:
            raise _Failed(f"sends more than {total:,} bytes")


def _reason(error: Exception, timeout: float) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"nothing came for {timeout:g} s"
    return " ".join(str(cause).split()) or type(cause).__name__


# --------------------------------------------------------------------------------------- lock


@contextlib.contextmanager
def _lock(target: Path) -> Iterator[None]:
    """One process at a time for a target; the lock file goes with its last holder."""
    path = target.with_name(f".{target.name}.lock")
    while True:
        with saying_disk_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # while we waited, the holder may have removed the file that we hold now
        if _is_at(descriptor, path):
            break
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False

"""Fetching raw files, from a mirror folder, then from urls: verified, and whole or not at all.

Two jobs that want one file may both fetch it: each gives it its name when it has the size and
checksum of the table (`raw_files_table.py`).
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fedrepro
from fedrepro.core.artifacts import atomic, one_line, target_of
from fedrepro.core.errors import FedreproError
from fedrepro.data.raw_files_table import DatasetTable, FileRow

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


def fetch(
    name: str,
    file: str,
    target: Path,
    mirror: Path | None,
    table: DatasetTable,
    *,
    progress: Progress = lambda _done, _total: None,
    timeout: float = 30,
) -> tuple[str, FileRow]:
    """Bring `file` of data set `name` to `target`; returns its url, "" if it was there, and form.

    A source fails after `timeout` seconds without a single byte.

    Raises:
        FedreproError: With every source and why it failed; for a file that the table does not know;
            for a full disk.
    """
    forms = table.forms(name, file)
    if target_of(target).exists():
        try:
            return "", _matching(target, forms)
        except ValueError as error:
            log.warning("%s %s: fetched again", target, error)
    places = list(dict.fromkeys(row.place for row in forms))
    sources: list[tuple[str, Sequence[FileRow]]]
    sources = [(url, [row]) for row in forms for url in row.urls]
    tried = [] if sources else ["no url is known"]
    if mirror is None:
        tried.append("no mirror is set")
    else:
        sources = [((mirror / place).absolute().as_uri(), forms) for place in places] + sources
    for url, accepted in sources:
        try:
            with atomic(target) as temporary:
                _receive(url, temporary, accepted, progress, timeout)
                return url, _matching(temporary, accepted)
        except (OSError, ValueError, http.client.HTTPException) as error:
            tried.append(f"{url} {one_line(error)}")
            log.warning("%s/%s: %s", name, file, tried[-1])
    raise FedreproError(
        f"cannot get {file} of data set '{name}': {'; '.join(tried)}. Set `mirror` in "
        f"config/config.yaml or FEDREPRO_MIRROR to a folder that holds {' or '.join(places)}, "
        "or go online, and start again"
    )


def raw_sources(
    name: str, files: Sequence[str], raw: Path, table: DatasetTable
) -> list[dict[str, Any]]:
    """List what `dataset.json` says of the raw files in `raw`.

    Raises:
        FedreproError: For a file that is missing or has other bytes than the table says.
    """
    records = []
    for file in files:
        try:
            row = _matching(raw / file, table.forms(name, file))
            about = {"bytes": (raw / file).stat().st_size, "sha256": _digest(raw / file, "sha256")}
        except (OSError, ValueError) as error:
            raise FedreproError(
                f"raw file {raw / file} of data set '{name}' cannot be used ({error}); "
                "delete it and start again, and it will be fetched again"
            ) from error
        about |= {"file": file, "form": row.form, "version": row.version, "urls": list(row.urls)}
        records.append(about | {"verified": bool(row.checksum)})
    return records


def _receive(
    url: str, path: Path, forms: Sequence[FileRow], progress: Progress, timeout: float
) -> None:
    most = max(row.bytes or 0 for row in forms)
    agent = {"User-Agent": f"fedrepro/{fedrepro.__version__}"}
    request = urllib.request.Request(url, headers=agent)
    with urllib.request.urlopen(request, timeout=timeout) as response, path.open("wb") as file:
        total = int(response.headers.get("Content-Length") or 0)
        while chunk := response.read(1 << 16):
            file.write(chunk)
            progress(file.tell(), total or most)
            if most and file.tell() > most:
                raise ValueError(f"sends more than {most:,} bytes")
        if file.tell() < total:
            raise ValueError(f"broke off after {file.tell():,} of {total:,} bytes")


def _matching(path: Path, forms: Sequence[FileRow]) -> FileRow:
    """Find the form whose size and checksum a file has; one without a checksum comes last."""
    size = path.stat().st_size
    sized = [row for row in forms if row.bytes in (None, size)]
    for row in sorted(sized, key=lambda row: not row.checksum):
        algorithm, _, digest = row.checksum.partition(":")
        if not digest:
            log.warning("%s/%s: no checksum is known, taken on trust", row.name, row.file)
        if not digest or _digest(path, algorithm) == digest:
            return row
    if sized:
        raise ValueError(f"has another checksum than {' or '.join(r.checksum for r in sized)}")
    raise ValueError(f"has {size:,} bytes instead of {' or '.join(f'{r.bytes:,}' for r in forms)}")


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()

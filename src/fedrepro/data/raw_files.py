"""Raw files of data sets: their table, `config/datasets.csv`, and how they are downloaded.

The table has one row per form of a file. `file` is the name that components and the workflow use
(`resources/<name>/<file>`); `form` is whose bytes the row describes (`publisher`, or a word for a
mirror's own packing); any form of a file is accepted. `mirror` is the form's path inside a mirror
folder, by default `<name>/<file>`. `urls` are separated by spaces and tried in order. `unpacked` is
the most bytes to which an archive or a compressed file may unpack. If a publisher states neither
checksum nor size, both columns are empty, and the file is accepted with a warning.

A file is copied from a mirror folder or else downloaded. It gets its final name once its size and
checksum are those of the table, so two jobs may download one file at the same time.
"""

from __future__ import annotations

import csv
import hashlib
import http.client
import logging
import re
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import fedrepro
from fedrepro.core.artifacts import atomic, one_line, target_of
from fedrepro.core.errors import BEGIN, FedreproError, shown, unknown
from fedrepro.core.spec import Spec

DEFAULT_PATH = Path("config/datasets.csv")
WORDS = "(?s).+", "must not be empty"
INSIDE = r"(?!/|(.*/)?\.\.(/|$)).*", "must stay inside its folder"
NUMBER = "[0-9]{0,18}", "must be a whole number"
CHECKSUM = "(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})?", "must be sha256: or md5: and its digits"
RULES = (
    ("name", WORDS), ("file", WORDS), ("file", INSIDE), ("form", WORDS), ("mirror", INSIDE),
    ("checksum", CHECKSUM), ("bytes", NUMBER), ("unpacked", NUMBER),
)  # fmt: skip


@dataclass(frozen=True)
class FileRow:
    """A row of config/datasets.csv: a file to download, as one publisher or mirror offers it.

    form: `publisher`, or a name for a mirror's own packing. checksum: `algorithm:digest`, empty if
    unknown. bytes: the size, None if unknown. unpacked: the most bytes to which the file may
    unpack; None for a file that is used as it is.
    """

    name: str
    version: str
    file: str
    form: str
    urls: tuple[str, ...]
    checksum: str
    bytes: int | None
    licence: str
    citation: str
    mirror: str = ""
    unpacked: int | None = None

    @property
    def place(self) -> str:
        """Return the path of the file inside a folder of mirrored files."""
        return self.mirror or f"{self.name}/{self.file}"


COLUMNS = tuple(field.name for field in fields(FileRow))


@dataclass(frozen=True)
class DatasetTable:
    """The table of raw files of data sets, config/datasets.csv: all rows, in the file's order."""

    rows: tuple[FileRow, ...]
    path: Path

    def files(self, name: str) -> tuple[str, ...]:
        """Return the names of a data set's raw files, each once; empty if the table has none."""
        return tuple(dict.fromkeys(row.file for row in self.rows if row.name == name))

    def forms(self, name: str, file: str) -> tuple[FileRow, ...]:
        """Return the rows of a data set's raw `file`, one per version offered; raise if unknown."""
        rows = tuple(row for row in self.rows if (row.name, row.file) == (name, file))
        known = self.files(name)
        if not known:
            raise unknown("data set", name, {row.name for row in self.rows}, str(self.path))
        if not rows:
            raise unknown("file", file, known, f"data set '{name}' of {self.path}")
        return rows


def raw_files(dataset: Spec) -> tuple[str, ...]:
    """Return the names of a data set's raw files, which its parameter `source`, if any, decides."""
    files = dataset.component.meta["files"]
    names: tuple[str, ...] = files[dataset["source"]] if isinstance(files, Mapping) else files
    return names


def largest_unpacked(name: str, path: Path) -> int:
    """Return the most bytes to which the raw file at `path` may unpack, to stop a wrong one early.

    The row of config/datasets.csv with the file's size decides; without such a row, the largest
    limit of data set `name`.
    """
    table = read_dataset_table()
    forms = table.forms(name, path.name)
    size = path.stat().st_size if path.exists() else None
    candidates = [row for row in forms if row.bytes == size] or forms
    most = max(row.unpacked or 0 for row in candidates)
    if not most:
        raise FedreproError(
            f"{table.path} does not state how large {path.name} of data set '{name}' may get: "
            "fill in its column 'unpacked', in bytes"
        )
    return most


def read_dataset_table(path: Path | None = None) -> DatasetTable:
    """Read the table of raw files at `path`, by default config/datasets.csv.

    Raises:
        FedreproError: If the table is absent, lacks a column, or has a row that makes no sense.
    """
    path = DEFAULT_PATH if path is None else path
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            header, lines = reader.fieldnames or [], list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise FedreproError(
            f"the table of data files {path} cannot be read ({one_line(error)}); {BEGIN}, or give "
            "the table's path"
        ) from error
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise FedreproError(f"{path} lacks the columns {', '.join(missing)}")
    rows = tuple(_row(line, f"{path}, row {i}") for i, line in enumerate(lines, start=2))
    return DatasetTable(rows, path)


def _row(line: Mapping[str, str | None], where: str) -> FileRow:
    text: dict[str, Any] = {column: (line[column] or "").strip() for column in COLUMNS}
    for column, (pattern, rule) in RULES:
        if not re.fullmatch(pattern, text[column]):
            raise FedreproError(f"{where}: {column} {rule}, not {shown(text[column])}")
    numbers = {key: int(text[key]) if text[key] else None for key in ("bytes", "unpacked")}
    return FileRow(**text | numbers | {"urls": tuple(text["urls"].split())})


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
    """Download `file` of data set `name` to `target`, unless it exists; return its url and row.

    The folder `mirror` is tried first, then the urls of the table. A source fails after `timeout`
    seconds without a single byte. `progress` is called with (bytes done, bytes in all).

    Raises:
        FedreproError: no source worked (with every reason), the file is unknown, or the disk is
            full.
    """
    forms = table.forms(name, file)
    if target_of(target).exists():
        try:
            return "", _matching(target, forms)
        except ValueError as error:
            log.warning("%s %s: fetched again", target, error)
    places = list(dict.fromkeys(row.place for row in forms))
    urls: list[tuple[str, Sequence[FileRow]]] = [(u, [row]) for row in forms for u in row.urls]
    tried = ([] if urls else ["no url is known"]) + ([] if mirror else ["no mirror is set"])
    copies = [(mirror / place).absolute().as_uri() for place in places] if mirror else []
    for url, accepted in [*((copy, forms) for copy in copies), *urls]:
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
    """Return, for each raw file in folder `raw`, a dict of its size, SHA-256, version and urls.

    Raises FedreproError if no row of `table` matches a file.
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
    """Return the row of `forms` whose size and checksum the file at `path` has; else ValueError.

    A row without a checksum is tried last, and accepted with a warning.
    """
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

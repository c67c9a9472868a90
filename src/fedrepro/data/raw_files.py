"""Raw files of data sets: their table, `config/datasets.csv`, and how they are downloaded.

The table has a row for each form of a file, such as its publisher's or a mirror's own packing; any
form is accepted. A file gets its final name once its size and checksum are those of the table.
"""

from __future__ import annotations

import csv
import hashlib
import http.client
import logging
import re
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedrepro.core.checksummed_files import atomic, one_line, target_of
from fedrepro.core.errors import BEGIN, FedreproError, shown, unknown
from fedrepro.core.spec import Spec

log = logging.getLogger(__name__)

DEFAULT_PATH = Path("config/datasets.csv")
RULES = {
    **dict.fromkeys(("name", "file", "form"), (".+", "must not be empty")),
    "checksum": ("(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})?", "must be sha256: or md5: and digits"),
    **dict.fromkeys(("bytes", "unpacked"), ("[0-9]{0,18}", "must be a whole number")),
}


@dataclass(frozen=True)
class FileRow:
    """A row of config/datasets.csv: a file to download, as one publisher or mirror offers it.

    name: the data set. file: its name here, `resources/<name>/<file>`. form: `publisher`, or a word
    for a mirror's variant, such as `subset`. checksum: `algorithm:digest`, empty if unknown. bytes:
    its size, None if unknown. mirror: its path inside a mirror folder, if not `<name>/<file>`.
    unpacked: the most bytes to which it may unpack; None for a file that is used as it is.
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


def raw_files(dataset: Spec) -> tuple[str, ...]:
    """Return the names of a data set's raw files, which its parameter `source`, if any, decides."""
    files = dataset.component.meta["files"]
    names: tuple[str, ...] = files[dataset["source"]] if isinstance(files, Mapping) else files
    return names


def read_dataset_table(path: Path = DEFAULT_PATH) -> tuple[FileRow, ...]:
    """Read the table of raw files at `path`; raise FedreproError if unreadable or invalid."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            header, lines = reader.fieldnames or [], list(reader)
    except (OSError, ValueError, csv.Error) as error:
        said = f"the table of data files {path} cannot be read ({one_line(error)})"
        raise FedreproError(f"{said}; {BEGIN}") from error
    if missing := [column for column in COLUMNS if column not in header]:
        raise FedreproError(f"{path} lacks the columns {', '.join(missing)}")
    rows = []
    for number, line in enumerate(lines, start=2):
        text: dict[str, Any] = {column: (line[column] or "").strip() for column in COLUMNS}
        for column, (pattern, rule) in RULES.items():
            if not re.fullmatch(pattern, text[column]):
                where = f"{path}, row {number}: {column}"
                raise FedreproError(f"{where} {rule}, not {shown(text[column])}")
        sizes = {key: int(text[key]) if text[key] else None for key in ("bytes", "unpacked")}
        rows.append(FileRow(**text | sizes | {"urls": tuple(text["urls"].split())}))
    return tuple(rows)


def forms(name: str, file: str, path: Path = DEFAULT_PATH) -> tuple[FileRow, ...]:
    """Return the rows of a data set's raw file in the table at `path`; FedreproError if none."""
    table = read_dataset_table(path)
    if found := tuple(row for row in table if (row.name, row.file) == (name, file)):
        return found
    raise unknown("file", f"{name}/{file}", {f"{row.name}/{row.file}" for row in table}, str(path))


def largest_unpacked(name: str, path: Path) -> int:
    """Return the most bytes to which the raw file at `path`, of data set `name`, may unpack."""
    if most := max(row.unpacked or 0 for row in forms(name, path.name)):
        return most
    raise FedreproError(f"fill in the column 'unpacked' of {name}/{path.name} in {DEFAULT_PATH}")


def fetch(
    rows: Sequence[FileRow], target: Path, mirror: Path | None, timeout: float = 30
) -> tuple[str, FileRow]:
    """Download a raw file, in any of its forms `rows`, to `target`; return its url and its row.

    If `target` exists and matches a row, it stays, and the url is "". The folder `mirror` is tried
    before the rows' urls. An attempt ends after `timeout` seconds without a byte. Raises
    FedreproError if all attempts fail.
    """
    if target_of(target).exists():
        try:
            return "", _matching(target, rows)
        except ValueError as error:
            log.warning("%s %s: fetched again", target, error)
    places = list(dict.fromkeys(row.place for row in rows))
    copies = [(mirror / place).absolute().as_uri() for place in places] if mirror else []
    urls = [(url, [row]) for row in rows for url in row.urls]
    tried = [] if urls else ["no url is known"]
    for url, accepted in [*((copy, [*rows]) for copy in copies), *urls]:
        most = max(row.bytes or 0 for row in accepted)
        request = urllib.request.Request(url, headers={"User-Agent": "fedrepro"})
        try:
            with atomic(target) as temporary:
                source = urllib.request.urlopen(request, timeout=timeout)
                with source as response, temporary.open("wb") as file:
                    total = int(response.headers.get("Content-Length") or most)
                    while chunk := response.read(1 << 16):
                        file.write(chunk)
                    if file.tell() < total:
                        raise ValueError(f"broke off after {file.tell():,} of {total:,} bytes")
                return url, _matching(temporary, accepted)
        except (OSError, ValueError, http.client.HTTPException) as error:
            tried.append(f"{url} {one_line(error)}")
            log.warning("%s: %s", target, tried[-1])
    fix = f"FEDREPRO_MIRROR to a folder that holds {' or '.join(places)}, or go online"
    said = f"cannot get {rows[0].file} of data set '{rows[0].name}': {'; '.join(tried)}"
    raise FedreproError(f"{said}. Set `mirror` in config/config.yaml or {fix}, and start again")


def raw_source(path: Path, rows: Sequence[FileRow]) -> dict[str, Any]:
    """Return a dict about the raw file at `path`: size, SHA-256, version, urls and so on.

    `rows` are the forms of the file in config/datasets.csv; FedreproError is raised if none fits.
    """
    try:
        row, size, digest = _matching(path, rows), path.stat().st_size, _digest(path, "sha256")
    except (OSError, ValueError) as error:
        said = f"raw file {path} of data set '{rows[0].name}' cannot be used ({error})"
        fetch_it = f"get it by: fedrepro data fetch {rows[0].name}"
        fix = "delete it and start again" if path.exists() else fetch_it
        raise FedreproError(f"{said}; {fix}") from error
    about = {"bytes": size, "sha256": digest, "file": row.file, "form": row.form}
    return about | {"version": row.version, "urls": [*row.urls], "verified": bool(row.checksum)}


def _matching(path: Path, rows: Sequence[FileRow]) -> FileRow:
    """Return the row whose size and checksum, if any, the file at `path` has; else ValueError."""
    size = path.stat().st_size
    sized = [row for row in rows if row.bytes in (None, size)]
    for row in sorted(sized, key=lambda row: not row.checksum):
        algorithm, _, digest = row.checksum.partition(":")
        if not digest:
            log.warning("%s/%s: no checksum is known, taken on trust", row.name, row.file)
        if not digest or _digest(path, algorithm) == digest:
            return row
    if sized:
        raise ValueError(f"has another checksum than {' or '.join(r.checksum for r in sized)}")
    raise ValueError(f"has {size:,} bytes instead of {' or '.join(f'{r.bytes:,}' for r in rows)}")


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()

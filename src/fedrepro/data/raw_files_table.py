"""The table of raw files, `config/datasets.csv`: their names, urls, sizes and checksums.

One row per form of a file. `file` is the name that components and the workflow use
(`resources/<name>/<file>`), `form` says whose bytes these are (`publisher`, or a word for a
mirror's own packing); any form of a file is accepted. `mirror` is the form's path inside a mirror
folder, `<name>/<file>` where it is empty. `urls` are separated by spaces and tried in order.
`unpacked` is the most bytes that an archive or a compressed file may come to. Where a publisher
gives neither checksum nor size, both columns are empty: the file is taken on trust, with a warning.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedrepro.core.artifacts import one_line
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
    """One form of one raw file. `version` is the publisher's, not the component's.

    checksum: `algorithm:digest`, empty if none is known. bytes: None if not known. unpacked: the
    most bytes that it may unpack to; None for a file that is used as it is.
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
        """Path inside a mirror folder."""
        return self.mirror or f"{self.name}/{self.file}"


COLUMNS = tuple(field.name for field in fields(FileRow))


@dataclass(frozen=True)
class DatasetTable:
    """All rows, in the order of the file."""

    rows: tuple[FileRow, ...]
    path: Path

    def files(self, name: str) -> tuple[str, ...]:
        """List the raw files of a data set, each once; none if the table has none."""
        return tuple(dict.fromkeys(row.file for row in self.rows if row.name == name))

    def forms(self, name: str, file: str) -> tuple[FileRow, ...]:
        """List every form of a file.

        Raises:
            FedreproError: That names the nearest file.
        """
        rows = tuple(row for row in self.rows if (row.name, row.file) == (name, file))
        known = self.files(name)
        if not known:
            raise unknown("data set", name, {row.name for row in self.rows}, str(self.path))
        if not rows:
            raise unknown("file", file, known, f"data set '{name}' of {self.path}")
        return rows


def raw_files(dataset: Spec) -> tuple[str, ...]:
    """List the raw files a data set is made from; where it has several sources, its own."""
    files = dataset.component.meta["files"]
    names: tuple[str, ...] = files[dataset["source"]] if isinstance(files, Mapping) else files
    return names


def largest_unpacked(name: str, path: Path) -> int:
    """Look up the most bytes that a raw file of a data set may unpack to.

    The form with the file's size decides; of a size that no form has, the largest of all.

    Raises:
        FedreproError: If the table states none.
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
    """Read the table at `path`, or at `config/datasets.csv` of the working folder.

    Raises:
        FedreproError: If it is absent, lacks a column, or has a row that makes no sense.
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

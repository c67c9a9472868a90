"""The table of raw files, `config/datasets.csv`: their names, urls, sizes and checksums.

One row per form of a file. `file` is its path inside the data set's folder, the same in a mirror
(`<mirror>/<name>/<file>`) and in `resources/<name>/<file>`. `form` says whose bytes these are
(`publisher`, or a word for a mirror's own packing); a file may have several forms with different
checksums, and any of them is accepted. `urls` are separated by spaces and tried in order; a form
that only mirrors hold has none. A data set that comes with a library (digits) has no row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedrepro.errors import FedreproError, unknown

DEFAULT_PATH = Path("config/datasets.csv")
COLUMNS = (
    "name",
    "version",
    "file",
    "form",
    "urls",
    "sha256",
    "bytes",
    "licence",
    "citation",
)


@dataclass(frozen=True)
class FileRow:
    """One form of one raw file. `version` is the publisher's, not the component's."""

    name: str
    version: str
    file: str
    form: str
    urls: tuple[str, ...]
    sha256: str
    bytes: int
    licence: str
    citation: str


@dataclass(frozen=True)
class DatasetTable:
    """All rows, in the order of the file."""

    rows: tuple[FileRow, ...]
    path: Path

    def files(self, name: str) -> tuple[str, ...]:
        """The raw files of a data set, each once; empty if the table has none."""
        return tuple(dict.fromkeys(row.file for row in self.rows if row.name == name))

    def forms(self, name: str, file: str) -> tuple[FileRow, ...]:
        """Every form of a file; an error that names the nearest if there is none."""
        found = tuple(row for row in self.rows if (row.name, row.file) == (name, file))
        if found:
            return found
        known = self.files(name)
        if not known:
            raise unknown("data set", name, {row.name for row in self.rows}, str(self.path))
        raise unknown("file", file, known, f"data set '{name}' of {self.path}")


def read_dataset_table(path: Path | None = None) -> DatasetTable:
    """The table at `path`, or at `config/datasets.csv` of the working folder.

    Errors: FedreproError if it is absent, lacks a column, or has a row that makes no sense.
    """
    path = DEFAULT_PATH if path is None else path
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            lines = list(reader)
            header = reader.fieldnames or []
    except OSError as error:
        raise FedreproError(
            f"the table of data files {path} cannot be read ({error.strerror}); "
            "start from the folder that holds config/, or give the table's path"
        ) from error
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise FedreproError(f"{path} lacks the columns {', '.join(missing)}")
    rows = tuple(_row(line, f"{path}, row {i}") for i, line in enumerate(lines, start=2))
    return DatasetTable(rows, path)


def _row(line: Mapping[str, str | None], where: str) -> FileRow:
    text = {column: (line[column] or "").strip() for column in COLUMNS}
    for column in ("name", "file", "form"):
        if not text[column]:
            raise FedreproError(f"{where}: column '{column}' is empty")
    path = PurePosixPath(text["file"])
    if path.is_absolute() or ".." in path.parts:
        raise FedreproError(f"{where}: file '{path}' must stay inside its data set's folder")
    if not re.fullmatch(r"[0-9a-f]{64}", text["sha256"]):
        raise FedreproError(f"{where}: sha256 must be 64 hexadecimal digits in lower case")
    if not text["bytes"].isdecimal():
        raise FedreproError(f"{where}: bytes must be a whole number, not '{text['bytes']}'")
    return FileRow(
        name=text["name"],
        version=text["version"],
        file=text["file"],
        form=text["form"],
        urls=tuple(text["urls"].split()),
        sha256=text["sha256"],
        bytes=int(text["bytes"]),
        licence=text["licence"],
        citation=text["citation"],
    )

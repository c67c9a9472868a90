"""The table of raw files, `config/datasets.csv`: their names, urls, sizes and checksums.

One row per form of a file. `file` is what components and the workflow call it
(`resources/<name>/<file>`), `form` says whose bytes these are (`publisher`, or a word for a
mirror's own packing). A file may have several forms with different checksums, and any of them is
accepted. `mirror` is the form's path inside a mirror folder, `<name>/<file>` where it is empty;
so CIFAR-10 is one file here, which its publisher packs as .tar.gz and a mirror as .tar.xz.
`urls` are separated by spaces and tried in order; a form that only mirrors hold has none.
`unpacked` is the most bytes that an archive or a compressed file may come to: of a tar the whole of
it, of a zip its members. It is refused beyond that. `checksum` names its algorithm, `sha256:…` or
`md5:…`. Where a publisher gives neither a checksum nor a size, both columns are empty: such a file
is taken on trust, with a warning, and the SHA-256 that was found is written into `dataset.json`. A
data set that comes with a library, or is generated, has no row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedrepro.core.errors import BEGIN, FedreproError, shown, unknown
from fedrepro.core.spec import Spec

BYTES = re.compile(r"[0-9]{1,18}")
CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}")
DEFAULT_PATH = Path("config/datasets.csv")
COLUMNS = (
    "name",
    "version",
    "file",
    "form",
    "mirror",
    "urls",
    "checksum",
    "bytes",
    "unpacked",
    "licence",
    "citation",
)


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

    @property
    def algorithm(self) -> str:
        return self.checksum.partition(":")[0]

    @property
    def digest(self) -> str:
        return self.checksum.partition(":")[2]


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
        rows = tuple(row for row in self.rows if (row.name, row.file) == (name, file))
        if rows:
            return rows
        known = self.files(name)
        if not known:
            raise unknown("data set", name, {row.name for row in self.rows}, str(self.path))
        raise unknown("file", file, known, f"data set '{name}' of {self.path}")


def raw_files(dataset: Spec) -> tuple[str, ...]:
    """The raw files a data set is made from; where it has several sources, those of its own."""
    files = dataset.component.meta["files"]
    names: tuple[str, ...] = files[dataset["source"]] if isinstance(files, Mapping) else files
    return names


def largest_unpacked(name: str, path: Path) -> int:
    """The most bytes that a raw file of a data set may unpack to, by the table.

    That of the form that has the file's size; of a size that no form has, the largest of all.
    Errors: FedreproError if the table states none.
    """
    table = read_dataset_table()
    forms = table.forms(name, path.name)
    size = path.stat().st_size if path.exists() else None
    candidates = [row for row in forms if row.bytes == size] or forms
    stated = [row.unpacked for row in candidates if row.unpacked is not None]
    if not stated:
        raise FedreproError(
            f"{table.path} does not state how large {path.name} of data set '{name}' may get: "
            "fill in its column 'unpacked', in bytes"
        )
    return max(stated)


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
            f"{BEGIN}, or give the table's path"
        ) from error
    except (ValueError, csv.Error) as error:
        raise FedreproError(
            f"the table of data files {path} cannot be read ({error}); restore it from git, or "
            "mend it"
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
    for column in ("file", "mirror"):
        path = PurePosixPath(text[column])
        if path.is_absolute() or ".." in path.parts:
            raise FedreproError(
                f"{where}: {column} {shown(text[column])} must stay inside its folder"
            )
    if text["checksum"] and not CHECKSUM.fullmatch(text["checksum"]):
        raise FedreproError(
            f"{where}: checksum must be sha256: or md5: and its hexadecimal digits in lower case"
        )
    for column in ("bytes", "unpacked"):
        if text[column] and not BYTES.fullmatch(text[column]):
            raise FedreproError(
                f"{where}: {column} must be a whole number, not {shown(text[column])}"
            )
    return FileRow(
        name=text["name"],
        version=text["version"],
        file=text["file"],
        form=text["form"],
        urls=tuple(text["urls"].split()),
        checksum=text["checksum"],
        bytes=int(text["bytes"]) if text["bytes"] else None,
        licence=text["licence"],
        citation=text["citation"],
        mirror=text["mirror"],
        unpacked=int(text["unpacked"]) if text["unpacked"] else None,
    )

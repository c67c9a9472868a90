"""Read and write the files of a figure or table, which belong together by checksums.

`<name>.json` has checksums of all the files and of itself, so that csv files stay plain. The record
in the repository keeps the numbers and one picture; its json also says under `run` where and how
long they were computed, and under `blank` which tables have a heading and no row.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts import (
    SCHEMA_VERSION,
    checksum_of,
    checksum_of_file,
    corrupt_file_error,
    read_checked,
    read_json,
    write_bytes,
    write_json,
)
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_metadata import command
from fedrepro.numbers.exhibit_tables import read_csv

if TYPE_CHECKING:
    import pandas as pd

TIMES = ".times.csv"  # of a table of measured times: what does not repeat to the byte
KEPT = (".svg", ".csv", ".choice.csv", ".printed.csv", TIMES, ".metrics.parquet")  # of a record
SUFFIXES = (".png", ".html", *KEPT, ".json")
KEY = re.compile("[a-z0-9]+/[a-z0-9-]+")
KEYS: dict[str, type | tuple[type, ...]] = {"key": str, "scale": str, "schema": int}


@dataclass(frozen=True)
class ExhibitFiles:
    """The files of one figure or table, with their checksums.

    base: their common path without suffix. about: the content of its json. run: where and how long
    it was computed, if they are kept in the repository (reports/record), or empty.
    """

    base: str
    about: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """List the suffixes of all files of this figure or table, such as .csv, in fixed order."""
        names = {*self.about["files"], ".json"}
        return tuple(suffix for suffix in SUFFIXES if suffix in names)

    @property
    def is_table(self) -> bool:
        return ".svg" not in self.about["files"]

    def read(self, suffix: str) -> bytes:
        """Return the bytes of a file after verifying its checksum.

        Raises:
            FedreproError: the file is missing, or its checksum is not the one in the json.
        """
        path = f"{self.base}{suffix}"
        if suffix in self.about.get("blank", {}):
            return str(self.about["blank"][suffix]).encode()
        try:
            if not Path(path).exists():
                raise _missing(path, self.about["scale"], self.about["key"])
            if suffix == ".json":
                return Path(path).read_bytes()
            return read_checked(path, self.about["files"].get(suffix, ""), f"{self.base}.json")
        except FedreproError as error:
            raise (_altered(path, self.base) if self.run else error) from error

    def table(self, suffix: str) -> pd.DataFrame:
        """Read a csv: .csv has the numbers shown, .choice.csv all settings that were tried."""
        try:
            return read_csv(self.read(suffix).decode())
        except ValueError as error:
            raise corrupt_file_error(f"{self.base}{suffix}", error) from error

    @property
    def numbers(self) -> pd.DataFrame:
        """Read the results of the figure or table, with measured times as further rows, if any."""
        import pandas as pd

        numbers = self.table(".csv")
        if TIMES not in self.suffixes:
            return numbers
        return pd.concat([numbers, self.table(TIMES)], ignore_index=True)

    @property
    def metrics(self) -> pd.DataFrame:
        """Return all measurements, a row each, with columns for trial, method, round and value."""
        import pandas as pd

        return pd.read_parquet(io.BytesIO(self.read(".metrics.parquet")))


def write_files(
    base: str, about: Mapping[str, Any], contents: Mapping[str, bytes], *there: str
) -> list[Path]:
    """Write `contents`, by suffix, to `base` + suffix, then a json; return all paths.

    The json has `about`, and checksums of these files and of existing ones with suffixes `there`.
    """
    checksums = {suffix: checksum_of(data) for suffix, data in contents.items()}
    checksums |= {suffix: checksum_of_file(f"{base}{suffix}") for suffix in there}
    for suffix, data in contents.items():
        write_bytes(f"{base}{suffix}", data)
    write_json(f"{base}.json", {**about, "files": checksums})
    return [Path(f"{base}{suffix}") for suffix in (*contents, ".json")]


def open_exhibit(folder: Path, key: str, scale: str) -> ExhibitFiles:
    """Open the files of the figure or table `key` in `folder`, the results of one `scale`.

    Raises:
        FedreproError: the json is missing, damaged, of an older version or of another figure.
    """
    path = f"{folder / _named(key)}.json"
    if not Path(path).exists():
        raise _missing(path, scale, key)
    about = read_json(path, KEYS)
    if (about.get("scale"), about.get("key")) != (scale, key):
        raise FedreproError(
            f"{path} describes {about.get('key')} at scale {about.get('scale')}, "
            f"not {key} at scale {scale}; make it again with: {command(scale, key)}"
        )
    run = about.get("run", {})
    if not run and (about["schema"] != SCHEMA_VERSION or not isinstance(about.get("files"), dict)):
        raise FedreproError(
            f"{path} is of another version of fedrepro, and names no checksums; delete it, and "
            "make the figure again from the results that are there"
        )
    return ExhibitFiles(f"{folder / key}", about, run)


def whole_exhibits(folder: Path, keys: Iterable[str], scale: str) -> list[str]:
    """List the figures and tables among `keys` (paper/name) that have all files in `folder`."""
    whole = []
    for key in keys:
        with contextlib.suppress(FedreproError):
            suffixes = open_exhibit(folder, key, scale).suffixes
            if all(Path(f"{folder / key}{suffix}").exists() for suffix in suffixes):
                whole.append(key)
    return whole


def open_recorded(folder: Path, key: str, scale: str) -> ExhibitFiles:
    """Open the figure or table `key` of the record, the results kept in the repository.

    Raises:
        FedreproError: a file of the figure or table is missing or was changed.
    """
    base = f"{folder / _named(key)}"
    try:
        files = open_exhibit(folder, key, scale)
    except FedreproError as error:
        raise _altered(f"{base}.json", base) from error
    if not files.run:
        raise _altered(f"{base}.json", base)
    return files


def _named(key: str) -> str:
    """Return `key` if its form is paper/name, as it becomes part of a path; raise otherwise."""
    if not KEY.fullmatch(key):
        raise FedreproError(f"'{key}' is not an exhibit; name one such as pfnm/figure-2a")
    return key


def _missing(path: str, scale: str, key: str) -> FedreproError:
    suffix = path.rpartition(key)[2]  # the file itself: another that is there needs no job
    return FedreproError(f"{path} is missing; make it with: {command(scale, key, suffix)}")


def _altered(path: Path | str, base: str) -> FedreproError:
    return FedreproError(
        f"the record of {Path(base).name} is incomplete or was altered: {path} is not as it was "
        "written; restore its files from git, or record it again"
    )


# -------------------------------------------------------------------------------------- claims


def write_claims(path: Path, text: str) -> list[Path]:
    """Write verdicts on claims (csv text) to `path`, a checksum to a json; return both paths."""
    about = {"kind": "claims", "schema": SCHEMA_VERSION, "paper": path.parent.name}
    return write_files(str(path.with_suffix("")), about, {".csv": text.encode()})


def read_claims(path: Path) -> str:
    """Read the csv text with the verdicts on a paper's claims from the file `path`.

    Raises:
        FedreproError: the file's checksum is not the one in the json next to it.
    """
    json_path = path.with_suffix(".json")
    about = read_json(json_path, {"files": dict})
    if about.get("paper") != path.parent.name:
        raise corrupt_file_error(
            json_path, f"it does not describe the claims of {path.parent.name}"
        )
    return read_checked(path, str(about["files"].get(".csv")), json_path).decode()

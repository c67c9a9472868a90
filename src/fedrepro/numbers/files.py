"""The files of an exhibit, read as those that were written together.

`<name>.json` names the checksums of the others and has one of its own, so that csv files stay
plain. In the record `<name>.run.json` names the SHA-256 of all of them, also of those that were
recorded before there were checksums.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts import (
    SCHEMA_VERSION,
    checksum_of,
    checksum_of_file,
    damaged,
    read_checked,
    read_json,
    read_json_of,
    write_bytes,
    write_json,
)
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.about import command
from fedrepro.numbers.summary import read_csv

if TYPE_CHECKING:
    import pandas as pd

ALL = (".csv", ".choice.csv", ".json", ".metrics.parquet")
FIGURE, TABLE = (".svg", ".png", *ALL), (".html", ".md", ".tex", ".printed.csv", *ALL)
TIMES = ".times.csv"  # of a table of measured times: what does not repeat to the byte
RUN = ".run.json"
KEY = re.compile("[a-z0-9]+/[a-z0-9-]+")
KEYS: dict[str, type | tuple[type, ...]] = {"key": str, "scale": str, "schema": int}


@dataclass(frozen=True)
class ExhibitFiles:
    """An exhibit on disk. about: its json; run: its run.json, empty if it is not recorded."""

    base: str
    about: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Of all its files: those that were written together, in one order."""
        names = set(self.run["files"]) if self.run else {*self.about["files"], ".json"}
        if ".svg" in names:
            return FIGURE
        return (*TABLE, TIMES) if TIMES in names else TABLE

    def read(self, suffix: str) -> bytes:
        """The bytes of one of its files. Errors: FedreproError for a missing or a strange one."""
        path = f"{self.base}{suffix}"
        if not Path(path).exists():
            raise _missing(path, self.about["scale"], self.about["key"])
        if self.run:
            return _recorded(self.base, suffix, self.run)
        if suffix == ".json":
            return Path(path).read_bytes()
        return read_checked(path, self.about["files"].get(suffix, ""), f"{self.base}.json")

    def table(self, suffix: str) -> pd.DataFrame:
        """Its numbers (.csv) or its choices (.choice.csv)."""
        try:
            return read_csv(self.read(suffix).decode())
        except ValueError as error:
            raise damaged(f"{self.base}{suffix}", error) from error

    @property
    def numbers(self) -> pd.DataFrame:
        """All its numbers, with measured times where it is a table of such."""
        import pandas as pd

        numbers = self.table(".csv")
        if TIMES not in self.suffixes:
            return numbers
        return pd.concat([numbers, self.table(TIMES)], ignore_index=True)

    @property
    def metrics(self) -> pd.DataFrame:
        """All that was measured of it, of all settings."""
        import pandas as pd

        return pd.read_parquet(io.BytesIO(self.read(".metrics.parquet")))


def write_exhibit(base: str, about: Mapping[str, Any], contents: Mapping[str, bytes]) -> None:
    """Write the files of an exhibit beside its .metrics.parquet; the json comes last.

    contents: suffix -> bytes.
    """
    checksums = {suffix: checksum_of(data) for suffix, data in contents.items()}
    checksums[".metrics.parquet"] = checksum_of_file(f"{base}.metrics.parquet")
    for suffix, data in contents.items():
        write_bytes(f"{base}{suffix}", data)
    write_json(f"{base}.json", {**about, "files": checksums})


def open_exhibit(folder: Path, key: str, scale: str) -> ExhibitFiles:
    """The exhibit `key` of a folder of reports, drawn or recorded.

    Errors: FedreproError for a json that is missing, damaged, of an older version or of another
    exhibit.
    """
    if Path(f"{folder / _named(key)}{RUN}").exists():
        return open_recorded(folder, key, scale)
    path = f"{folder / key}.json"
    if not Path(path).exists():
        raise _missing(path, scale, key)
    about = read_json_of(path, KEYS)
    _require_own(path, about, key, scale)
    if about["schema"] != SCHEMA_VERSION or not isinstance(about.get("files"), dict):
        raise FedreproError(
            f"{path} is of another version of fedrepro, and names no checksums; delete it, and "
            "make the figure again from the results that are there"
        )
    return ExhibitFiles(f"{folder / key}", about)


def whole_exhibits(folder: Path, keys: Iterable[str], scale: str) -> list[str]:
    """Which of these exhibits a folder of reports has whole."""
    whole = []
    for key in keys:
        with contextlib.suppress(FedreproError):
            suffixes = open_exhibit(folder, key, scale).suffixes
            if all(Path(f"{folder / key}{suffix}").exists() for suffix in suffixes):
                whole.append(key)
    return whole


def open_recorded(folder: Path, key: str, scale: str) -> ExhibitFiles:
    """A recorded exhibit: its files are those that its run.json names."""
    base = f"{folder / _named(key)}"
    if not Path(f"{base}{RUN}").exists():
        raise _altered(f"{base}.json", base)
    try:
        run = read_json_of(f"{base}{RUN}", {"files": dict})
    except FedreproError as error:
        raise _altered(f"{base}{RUN}", base) from error
    try:
        about = json.loads(_recorded(base, ".json", run))
        about.pop("checksum", None)
    except ValueError as error:
        raise damaged(f"{base}.json", error) from error
    _require_own(f"{base}.json", about, key, scale)
    return ExhibitFiles(base, about, run)


def _named(key: str) -> str:
    """The key, if it has the form of one: it becomes part of a path."""
    if not KEY.fullmatch(key):
        raise FedreproError(f"'{key}' is no exhibit; name one such as pfnm/figure-2a")
    return key


def sha256_of(data: bytes) -> str:
    """As run.json names files."""
    return hashlib.sha256(data).hexdigest()


def _recorded(base: str, suffix: str, run: Mapping[str, Any]) -> bytes:
    path = Path(f"{base}{suffix}")
    data = path.read_bytes() if path.exists() else b""
    if sha256_of(data) != run["files"].get(suffix):
        raise _altered(path, base)
    return data


def _require_own(path: str, about: Mapping[str, Any], key: str, scale: str) -> None:
    if (about.get("scale"), about.get("key")) != (scale, key):
        raise FedreproError(
            f"{path} describes {about.get('key')} at scale {about.get('scale')}, "
            f"not {key} at scale {scale}; make it anew with: {command(scale, key)}"
        )


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
    """Write <paper>/claims.csv, and beside it the json that names its checksum."""
    json_path = path.with_suffix(".json")
    about = {
        "kind": "claims",
        "schema": SCHEMA_VERSION,
        "paper": path.parent.name,
        "files": {".csv": checksum_of(text.encode())},
    }
    write_bytes(path, text.encode())
    write_json(json_path, about)
    return [path, json_path]


def read_claims(path: Path) -> str:
    """The text of <paper>/claims.csv. Errors: FedreproError if it is not the one of its json."""
    json_path = path.with_suffix(".json")
    about = read_json(json_path)
    files = about.get("files") if isinstance(about, dict) else None
    if not isinstance(files, dict) or about.get("paper") != path.parent.name:
        raise damaged(json_path, f"it does not describe the claims of {path.parent.name}")
    return read_checked(path, str(files.get(".csv")), json_path).decode()

"""An entry of a leaderboard as one archive: its numbers, where they come from, the method's file,
and the settings that it tries.

Archives come from strangers. A name in one has to be one of those that an entry has, so none leads
out of the folder that it is unpacked into; sizes are limited; each file has the SHA-256 that
`entry.json` names, and there is no other. Nothing in it is Python's own pickle, and its Python file
is not run here.
"""

from __future__ import annotations

import hashlib
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from fedrepro.core.artifacts import (
    SCHEMA_VERSION,
    atomic,
    json_text,
    one_line,
    read_json,
    require_file,
)
from fedrepro.core.errors import FedreproError, shown
from fedrepro.data.archive import OF_MACOS
from fedrepro.planning.config import Config, ExhibitName
from fedrepro.planning.described import ToldMethod, Words
from fedrepro.planning.drawing import Strict
from fedrepro.planning.entries import Scale

MANIFEST = "entry.json"
# all names that a file of an entry may have: no part of one begins with a dot
NAME = re.compile(
    r"[a-z_][a-z0-9_]{0,60}\.py"
    r"|results(/(?!\.)[A-Za-z0-9_.+~@=,-]{1,255}){2,12}/(metrics|timings)\.parquet"
)
LARGEST, LARGEST_FILE, MOST_FILES = 2**28, 2**26, 20_000  # bytes, bytes, files
Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class Submission(Strict):
    """entry.json: what is entered, where, and the files that say what it reached.

    says: the method as an exhibit names it, with the settings that it tries. origin: where its
    metrics come from, as these say themselves. by: who sends it, in words.
    """

    kind: Literal["entry"]
    schema_: Literal[SCHEMA_VERSION] = Field(alias="schema")  # type: ignore[valid-type]
    paper: Annotated[str, StringConstraints(pattern="^[a-z0-9]{1,40}$")]
    scale: Scale
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    trials_per_job: Annotated[int, Field(ge=1, le=1000)]
    exhibits: Annotated[list[ExhibitName], Field(min_length=1, max_length=100)]
    method: ToldMethod
    says: dict[str, Any]
    origin: list[dict[str, Any]]
    by: Words
    files: Annotated[dict[str, Sha256], Field(max_length=MOST_FILES)]

    @property
    def label(self) -> str:
        """What it is called on the leaderboard."""
        return str(self.says.get("label") or self.method.label)

    @property
    def file(self) -> str:
        """The method's file."""
        (file,) = (name for name in self.files if name.endswith(".py"))
        return file

    @property
    def keys(self) -> list[str]:
        """Its exhibits, as paper/name."""
        return [f"{self.paper}/{name}" for name in self.exhibits]

    @property
    def job(self) -> Config:
        """The configuration by which its files are named."""
        size = {"trials_per_job": self.trials_per_job}
        return Config.model_validate({"seed": self.seed, "granularity": size})


@dataclass(frozen=True)
class Submitted:
    """An entry that was unpacked. folder: where its files lie, by their names; sha256: of the
    archive."""

    entry: Submission
    folder: Path
    sha256: str

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def pack(entry: Mapping[str, Any], files: Mapping[str, bytes], out: Path) -> Submission:
    """Write an archive: equal entries give equal bytes. `entry` has all keys but `files`."""
    digests = {name: _sha256(data) for name, data in sorted(files.items())}
    submission = Submission.model_validate({**entry, "files": digests})
    text = json_text(submission.model_dump(mode="json", by_alias=True))
    with atomic(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in ((MANIFEST, text.encode()), *sorted(files.items())):
            member = zipfile.ZipInfo(name)  # of 1980: nothing in it depends on the time of day
            member.external_attr = 0o644 << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    return submission


def unpack(path: Path, folder: Path) -> Submitted:
    """Check an archive and unpack it into an empty folder.

    Errors: FedreproError, before anything of it is used, for an archive that is none of an entry,
    is too large, holds a name that an entry has not, lacks a file, or holds one that is another.
    """
    require_file(path)
    if not path.exists():
        raise FedreproError(f"{path} is missing")
    try:
        if path.stat().st_size > LARGEST:
            raise _refused(path, f"it is larger than {LARGEST:,} bytes")
        with zipfile.ZipFile(path) as archive:
            contents = dict(_members(path, archive))
        digest = _sha256(path.read_bytes())
    except FedreproError:
        raise
    except Exception as error:  # the reader of a damaged archive can raise anything
        raise _refused(path, f"it is no zip archive, or damaged ({one_line(error)})") from error
    if MANIFEST not in contents:
        raise _refused(path, f"it has no {MANIFEST}")
    (folder / MANIFEST).write_bytes(contents.pop(MANIFEST))
    entry = _entry(path, folder / MANIFEST)
    for name in (*entry.files, *contents):
        if name not in contents:
            raise _refused(path, f"{name} is missing, which {MANIFEST} names")
        if name not in entry.files:
            raise _refused(path, f"it has {name}, which {MANIFEST} does not name")
        if _sha256(contents[name]) != entry.files[name]:
            raise _refused(path, f"{name} is not the file that {MANIFEST} names: it was altered")
    if sum(name.endswith(".py") for name in contents) != 1:
        raise _refused(path, "an entry has one Python file, with its method")
    for name, data in contents.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return Submitted(entry, folder, digest)


def _members(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """The files of an archive by name, as far as an entry may have them; not those of macOS."""
    members = archive.infolist()
    if len(members) > MOST_FILES or sum(info.file_size for info in members) > LARGEST:
        raise _refused(path, f"it holds more than {MOST_FILES:,} files or {LARGEST:,} bytes")
    seen: set[str] = set()
    for member in members:
        name = member.filename
        if OF_MACOS.fullmatch(name) or (member.is_dir() and not member.file_size):
            continue
        if name != MANIFEST and not NAME.fullmatch(name):
            raise _refused(path, f"it holds {shown(name)}, a name that no file of an entry has")
        if name in seen:
            raise _refused(path, f"it holds {name} twice")
        seen.add(name)
        mode = member.external_attr >> 16
        if member.is_dir() or (mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode)):
            raise _refused(path, f"{name} is no plain file")
        if member.file_size > LARGEST_FILE:
            raise _refused(path, f"{name} is larger than {LARGEST_FILE:,} bytes")
        if member.flag_bits & 1 or member.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise _refused(path, f"{name} is encrypted, or packed in an unusual way")
        yield name, archive.read(member)


def _entry(path: Path, manifest: Path) -> Submission:
    try:
        return Submission.model_validate(read_json(manifest))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise _refused(path, f"{MANIFEST}, {place}: {first['msg'].lower()}") from None
    except FedreproError:
        raise _refused(path, f"{MANIFEST} is damaged, or was altered") from None


def _refused(path: Path, why: str) -> FedreproError:
    return FedreproError(f"{path} is not taken: {why}")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

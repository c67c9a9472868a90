"""The record: what we measured, kept under reports/record/, and how a user's numbers compare.

`record` copies an exhibit's files out of a reports folder, of this machine or of another, and
adds measured seconds and the machines that the files name. `compare` sets a user's csv beside the
recorded one. Neither prints: they return data.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts import SCHEMA_VERSION, atomic, json_text, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.about import drawn_of
from fedrepro.numbers.files import (
    RUN,
    SUFFIXES,
    ExhibitFiles,
    open_exhibit,
    open_recorded,
    sha256_of,
    write_claims,
)
from fedrepro.numbers.times import exhibit_seconds, spent, timings_of

if TYPE_CHECKING:
    import pandas as pd

REPORTS = Path("reports")
RECORD = REPORTS / "record"
CLAIMS = "claims.csv"
SAME = ("mean", "sd", "trials", "setting")


@dataclass(frozen=True)
class Recorded:
    """What `record` wrote, and sentences about what a reader should know of it."""

    files: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def exhibits_in(source: Path, scale: str) -> list[str]:
    """The exhibits of a scale that a reports folder holds, as paper/name."""
    found = sorted((source / scale).glob("*/*.metrics.parquet"))
    return [f"{path.parent.name}/{path.name.removesuffix('.metrics.parquet')}" for path in found]


def record(
    scale: str, keys: Sequence[str] = (), source: Path = REPORTS, target: Path = RECORD
) -> Recorded:
    """Copy exhibits from `<source>/<scale>` to `<target>/<scale>`; all of them if none is named.

    Everything is read and checked before anything is written, so that nothing is recorded if one
    exhibit is refused. A source that has run times and a machine of its own keeps them: it is a
    record itself. Errors: FedreproError for a missing or damaged file.
    """
    keys = list(keys) or exhibits_in(source, scale)
    if not keys:
        raise FedreproError(
            f"there is no exhibit in {source / scale}; "
            f"make them with: snakemake --cores 2 reports/{scale}/index.html"
        )
    done = Recorded()
    read = {key: _read(scale, key, source, done.warnings) for key in keys}
    for key, contents in read.items():
        done.files.extend(_write(target / scale / key, contents))
    papers = dict.fromkeys(key.partition("/")[0] for key in keys)
    done.files.extend(path for paper in papers for path in _judge(scale, paper, target))
    return done


def _judge(scale: str, paper: str, target: Path) -> list[Path]:
    """The verdicts of a paper's claims, by all of its exhibits that are recorded now."""
    from fedrepro.numbers.claims.table import verdicts
    from fedrepro.numbers.summary import csv_text

    published = Path(f"config/published/{paper}.yaml")
    if not published.exists():
        return []
    own = [key for key in exhibits_in(target, scale) if key.startswith(f"{paper}/")]
    text = csv_text(verdicts(published, own, target / scale))
    return write_claims(target / scale / paper / CLAIMS, text)


def _read(scale: str, key: str, source: Path, warnings: list[str]) -> dict[str, bytes]:
    """The files of one exhibit by suffix, checked, with the run's record at the end."""
    files = open_exhibit(source / scale, key, scale)
    contents = {suffix: files.read(suffix) for suffix in SUFFIXES}
    read_table(f"{files.base}.metrics.parquet", "metrics")
    warnings.extend(_doubts(files.about))
    run = _run(files, warnings)
    run["files"] = {suffix: sha256_of(data) for suffix, data in contents.items()}
    contents[RUN] = json_text({"schema": SCHEMA_VERSION, **run}).encode()
    return contents


def _doubts(about: Mapping[str, Any]) -> list[str]:
    """Sentences about sources that nobody can go back to."""
    name = f"{about['key']} at scale {about['scale']}"
    made = [("drawn", drawn_of(about)), *(("computed", one) for one in about["computed"])]
    lost = [
        f"{name} was {what} at git revision {one['revision']}, which cannot be checked out again; "
        "commit first and make it anew, so that others can repeat it"
        for what, one in made
        if one["revision"] == "unknown" or one["revision"].endswith("-dirty")
    ]
    changed = [
        f"the sources changed while {name} was computed, from {one['digest'][:12]} to "
        f"{one['changed_to'][:12]}, so that it may be of both; make it anew"
        for one in about["computed"]
        if "changed_to" in one
    ]
    return lost + changed


def _run(files: ExhibitFiles, warnings: list[str]) -> dict[str, Any]:
    """Seconds and memory by stage, and the machines: the source's if it has them, else measured."""
    if files.run:
        kept = ("seconds", "cpu_seconds", "peak_bytes", "machine", "machines")
        return {key: files.run[key] for key in kept if key in files.run}
    about = files.about
    root = _root(Path(files.base), about["key"])
    timings = [root / path for path in timings_of(about)]
    missing = [path for path in timings if not path.exists()]
    seconds = {} if missing else exhibit_seconds(timings)
    whole = {} if missing else spent(timings)
    if missing:
        warnings.append(f"the run time of {about['key']} is not recorded: {missing[0]} is missing")
    elif "aggregate" in seconds and "train" not in seconds:
        warnings.append(
            f"the training time of {about['key']} is not recorded: timings of its local models "
            "are missing"
        )
    return {"seconds": seconds, **whole, "machines": _machines(about, warnings)}


def _machines(about: Mapping[str, Any], warnings: list[str]) -> list[dict[str, Any]]:
    """The machines and devices that computed an exhibit, as its files say."""
    known = [one for one in about["computed"] if "machine" in one]
    if len(known) < len(about["computed"]):
        warnings.append(
            f"the machine of {about['key']} is not recorded in full: some of its results are of "
            "before they said where they were computed"
        )
    texts = {json.dumps({"device": one["device"], **one["machine"]}) for one in known}
    return [json.loads(text) for text in sorted(texts)]


def _root(base: Path, key: str) -> Path:
    """The working folder that <reports>/<scale>/<paper>/<name> belongs to."""
    return base.parents[len(Path(key).parts) + 1]


def _write(base: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """All files of one exhibit, or none: they are renamed only when all have been written.

    The run's file goes first and comes back last, so what a kill in between leaves has none and
    does not pass for recorded.
    """
    paths = [Path(f"{base}{suffix}") for suffix in contents]
    with contextlib.ExitStack() as stack:
        # `atomic` renames when it is left, in reverse order: the run's file is entered first
        for path, data in reversed(list(zip(paths, contents.values(), strict=True))):
            temporary = stack.enter_context(atomic(path))
            temporary.write_bytes(data)
        Path(f"{base}{RUN}").unlink(missing_ok=True)
    return paths


# ------------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class CsvDifference:
    """One number, ours beside the recorded one; None where a side does not have it.

    errors: the difference in combined standard errors, None if either side has no sd.
    """

    point: Mapping[str, Any]
    method: str
    metric: str
    split: str
    ours: float | None
    recorded: float | None
    setting: str
    recorded_setting: str
    difference: float | None
    errors: float | None

    @property
    def where(self) -> str:
        at = ", ".join(f"{key} {value}" for key, value in self.point.items() if value != "")
        return f"{self.method}, {at}" if at else self.method


@dataclass(frozen=True)
class Comparison:
    """Every number of an exhibit beside the record, and what it comes to in a sentence."""

    rows: list[CsvDifference]
    verdict: str
    same_bytes: bool
    notes: list[str]


def compare(scale: str, key: str, reports: Path = REPORTS, recorded: Path = RECORD) -> Comparison:
    """The numbers of an exhibit beside the recorded ones.

    Errors: FedreproError if either is missing, or if the record is incomplete or was altered.
    """
    mine = open_exhibit(reports / scale, key, scale)
    kept = _kept(scale, key, recorded)
    ours, theirs = mine.read(".csv"), kept.read(".csv")
    rows = _differences(mine.table(".csv"), kept.table(".csv"))
    notes = _notes(mine.about, kept.about) + _other_settings(rows)
    return Comparison(rows, _verdict(key, rows, ours == theirs), ours == theirs, notes)


def _kept(scale: str, key: str, recorded: Path) -> ExhibitFiles:
    if key not in exhibits_in(recorded, scale):
        known = ", ".join(exhibits_in(recorded, scale)) or "none"
        raise FedreproError(
            f"{key} is not recorded at scale {scale} ({recorded / scale / key}.csv is missing); "
            f"recorded are {known}"
        )
    return open_recorded(recorded / scale, key, scale)


def _differences(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[CsvDifference]:
    from fedrepro.numbers.summary import leading_columns

    frames = [ours, theirs]
    sides = [_by_key(frame) for frame in frames]
    keys = dict.fromkeys([*sides[1], *sides[0]])
    swept = [leading_columns(frame) for frame in frames]
    if swept[0] != swept[1]:
        raise FedreproError(
            f"the two tables have other points: ours vary {', '.join(swept[0])}, the recorded "
            f"ones {', '.join(swept[1])}"
        )
    return [_difference(swept[0], key, sides[0].get(key), sides[1].get(key)) for key in keys]


def _by_key(frame: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    from fedrepro.numbers.summary import leading_columns

    names = [*leading_columns(frame), "method", "metric", "split"]
    # a method without a shown parameter has no value of it; an empty text equals itself
    leading = frame[names].astype(object)
    rows = frame.assign(**leading.where(leading.notna(), "")).to_dict("records")
    return {tuple(row[name] for name in names): {k: row[k] for k in SAME} for row in rows}


def _difference(
    swept: Sequence[str],
    key: tuple[Any, ...],
    ours: Mapping[str, Any] | None,
    theirs: Mapping[str, Any] | None,
) -> CsvDifference:
    method, metric, split = key[len(swept) :]
    both = ours is not None and theirs is not None
    return CsvDifference(
        point=dict(zip(swept, key, strict=False)),
        method=method,
        metric=metric,
        split=split,
        ours=ours["mean"] if ours else None,
        recorded=theirs["mean"] if theirs else None,
        setting=ours["setting"] if ours else "",
        recorded_setting=theirs["setting"] if theirs else "",
        difference=ours["mean"] - theirs["mean"] if both and ours and theirs else None,
        errors=_errors(ours, theirs) if ours and theirs else None,
    )


def _errors(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float | None:
    """|difference| / sqrt(sd1²/n1 + sd2²/n2); 0 for equal means, None without an sd."""
    if ours["mean"] == theirs["mean"]:
        return 0.0
    variance = sum(side["sd"] ** 2 / side["trials"] for side in (ours, theirs))
    if math.isnan(variance) or variance == 0:
        return None
    return float(abs(ours["mean"] - theirs["mean"]) / math.sqrt(variance))


def _verdict(key: str, rows: Sequence[CsvDifference], same_bytes: bool) -> str:
    if same_bytes:
        return f"{key}: the same bytes as the record, {len(rows)} numbers"
    missing = [row for row in rows if row.difference is None]
    other = [row for row in rows if row.difference]
    lone = f"; {len(missing)} numbers are on one side only" if missing else ""
    if not other:
        return f"{key}: every number that both have is equal{lone}"
    accuracy = [row for row in other if (row.metric, row.split) == ("accuracy", "test")]
    worst = max(accuracy or other, key=lambda row: abs(row.difference or 0.0))
    what = "test accuracy" if accuracy else worst.metric
    errors = "" if worst.errors is None else f", {worst.errors:.1f} combined standard errors"
    return (
        f"{key}: {len(other)} of {len(rows)} numbers differ{lone}; {what} by at most "
        f"{abs(worst.difference or 0.0):.4g} ({worst.where}: {worst.ours:.4g} here, "
        f"{worst.recorded:.4g} recorded{errors})"
    )


def _other_settings(rows: Sequence[CsvDifference]) -> list[str]:
    """Where another setting of a sweep was chosen than in the record."""
    found = {
        row.where: f"{row.setting} was chosen for {row.where}, {row.recorded_setting} in the record"
        for row in rows
        if row.setting and row.recorded_setting and row.setting != row.recorded_setting
    }
    return list(found.values())


def _notes(mine: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """What besides chance may make two sides differ: other data, parameters or versions."""
    notes = []
    sums = [[data["sha256"] for data in about["data"]] for about in (mine, kept)]
    if sums[0] != sums[1]:
        notes.append("the data differ: their checksums are not the recorded ones")
    for what in ("seed", "trials", "components"):
        if mine[what] != kept[what]:
            notes.append(f"not as in the record: {what}")
    for what, found in (("device", _devices), ("measure_every", _intervals)):
        if found(mine) != found(kept):
            notes.append(f"not as in the record: {what} ({found(mine)}, recorded {found(kept)})")
    now, then = _versions(mine), _versions(kept)
    changed = [
        f"{name} {now.get(name)} (recorded with {version})"
        for name, version in then.items()
        if now.get(name) != version
    ]
    return notes + ([f"other versions: {', '.join(changed)}"] if changed else [])


def _devices(about: Mapping[str, Any]) -> str:
    """Where the runs computed; descriptions of before this was written down are of the CPU."""
    return " and ".join(sorted({made.get("device", "cpu") for made in about["computed"]}))


def _intervals(about: Mapping[str, Any]) -> str:
    """How often methods in rounds were measured, where not in every round."""
    rounds = ((m["name"], m.get("measure_every", 1)) for m in about["settings"]["methods"])
    return ", ".join(f"{name} {every}" for name, every in rounds if every > 1) or "every round"


def _versions(about: Mapping[str, Any]) -> dict[str, str]:
    """Versions of the packages that computed and drew an exhibit, by name."""
    found: dict[str, set[str]] = {}
    for made in (*about["computed"], drawn_of(about)):
        for name, version in made["versions"].items():
            found.setdefault(name, set()).add(version)
    return {name: " and ".join(sorted(each)) for name, each in found.items()}

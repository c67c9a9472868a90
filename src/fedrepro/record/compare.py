"""Comparison of a user's numbers with the recorded ones, csv by csv."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.cpu_kernels import PORTABLE
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import ExhibitFiles, open_exhibit, open_recorded
from fedrepro.numbers.exhibit_metadata import drawn_of
from fedrepro.record.record_results import RECORD, REPORTS, drawn_keys

if TYPE_CHECKING:
    import pandas as pd

SAME = ("mean", "sd", "trials", "setting")
ERRORS = 2  # combined standard errors that two runs of the same differ by at most, 19 times of 20


@dataclass(frozen=True)
class CsvDifference:
    """A number of ours and the recorded one; None where a side does not have it.

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
        point = ", ".join(f"{key} {value}" for key, value in self.point.items() if value != "")
        return f"{self.method}, {point}" if point else self.method


@dataclass(frozen=True)
class Comparison:
    """Every number of an exhibit with the recorded one, and a sentence that sums up."""

    rows: list[CsvDifference]
    verdict: str
    same_bytes: bool
    notes: list[str]


def compare(scale: str, key: str, reports: Path = REPORTS, recorded: Path = RECORD) -> Comparison:
    """Compare the numbers of an exhibit with the recorded ones.

    Raises:
        FedreproError: if either is missing, or if the record is incomplete or was altered.
    """
    mine = open_exhibit(reports / scale, key, scale)
    kept = _kept(scale, key, recorded)
    ours, theirs = mine.read(".csv"), kept.read(".csv")
    rows = _differences(mine.table(".csv"), kept.table(".csv"))
    notes = _notes(mine.about, kept.about) + _other_settings(rows)
    verdict = _verdict(key, rows, ours == theirs)
    if any(row.difference for row in rows):
        verdict += _judged(rows, _arithmetic(mine.about), _arithmetic(kept.about))
    return Comparison(rows, verdict, ours == theirs, notes)


def _kept(scale: str, key: str, recorded: Path) -> ExhibitFiles:
    if key not in drawn_keys(recorded, scale):
        known = ", ".join(drawn_keys(recorded, scale)) or "none"
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
    """Return |difference| / sqrt(sd1²/n1 + sd2²/n2); 0 for equal means, None without an sd."""
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
    differing = [row for row in rows if row.difference]
    lone = f"; {len(missing)} numbers are on one side only" if missing else ""
    if not differing:
        return f"{key}: every number that both have is equal{lone}"
    accuracy = [row for row in differing if (row.metric, row.split) == ("accuracy", "test")]
    worst = max(accuracy or differing, key=lambda row: abs(row.difference or 0.0))
    metric = "test accuracy" if accuracy else worst.metric
    errors = "" if worst.errors is None else f", {worst.errors:.1f} combined standard errors"
    return (
        f"{key}: {len(differing)} of {len(rows)} numbers differ{lone}; {metric} by at most "
        f"{abs(worst.difference or 0.0):.4g} ({worst.where}: {worst.ours:.4g} here, "
        f"{worst.recorded:.4g} recorded{errors})"
    )


def _judged(rows: Sequence[CsvDifference], mine: str, kept: str) -> str:
    """Judge a difference: by bytes where libraries were pinned, else by the spread."""
    if mine == kept == PORTABLE:
        return "; libraries of both were pinned, and then equal sources and data give equal bytes"
    known = [row.errors for row in rows if row.errors is not None]
    within = sum(errors <= ERRORS for errors in known)
    return f"; {within} of {len(known)} are within {ERRORS} combined standard errors"


def _other_settings(rows: Sequence[CsvDifference]) -> list[str]:
    """Say where another setting of a sweep was chosen than in the record."""
    sentences = {
        row.where: f"{row.setting} was chosen for {row.where}, {row.recorded_setting} in the record"
        for row in rows
        if row.setting and row.recorded_setting and row.setting != row.recorded_setting
    }
    return list(sentences.values())


def _notes(mine: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """List causes of a difference other than chance: data, parameters or versions."""
    notes = []
    sums = [[data["sha256"] for data in about["data"]] for about in (mine, kept)]
    if sums[0] != sums[1]:
        notes.append("the data differ: their checksums are not the recorded ones")
    for key in ("seed", "trials", "components"):
        if mine[key] != kept[key]:
            notes.append(f"not as in the record: {key}")
    properties = (("device", _devices), ("arithmetic", _arithmetic), ("measure_every", _intervals))
    for key, value_of in properties:
        if value_of(mine) != value_of(kept):
            notes.append(
                f"not as in the record: {key} ({value_of(mine)}, recorded {value_of(kept)})"
            )
    now, then = _versions(mine), _versions(kept)
    changed = [
        f"{name} {now.get(name)} (recorded with {version})"
        for name, version in then.items()
        if now.get(name) != version
    ]
    return notes + ([f"other versions: {', '.join(changed)}"] if changed else [])


def _devices(about: Mapping[str, Any]) -> str:
    return " and ".join(sorted({made.get("device", "cpu") for made in about["computed"]}))


def _arithmetic(about: Mapping[str, Any]) -> str:
    """Name the arithmetic of the runs; older files lack it, which used MKL's products."""
    names = {made.get("arithmetic", "before it was named") for made in about["computed"]}
    return " and ".join(sorted(names))


def _intervals(about: Mapping[str, Any]) -> str:
    """Say how often methods in rounds were measured, where not in every round."""
    usual = about["settings"].get("measure_every", 1)
    methods = about["settings"]["methods"]
    rounds = ((m["name"], m.get("measure_every") or usual) for m in methods)
    return ", ".join(f"{name} {every}" for name, every in rounds if every != 1) or "every round"


def _versions(about: Mapping[str, Any]) -> dict[str, str]:
    """Return versions of the packages that computed and drew an exhibit, by name."""
    by_name: dict[str, set[str]] = {}
    for made in (*about["computed"], drawn_of(about)):
        for name, version in made["versions"].items():
            by_name.setdefault(name, set()).add(version)
    return {name: " and ".join(sorted(versions)) for name, versions in by_name.items()}

"""Comparison of a user's numbers with the recorded ones, csv by csv."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.cpu_kernels import PORTABLE
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import open_exhibit, open_recorded
from fedrepro.numbers.exhibit_metadata import drawn_of
from fedrepro.record.record_results import RECORD, REPORTS, drawn_keys

if TYPE_CHECKING:
    import pandas as pd

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
    mine, known = open_exhibit(reports / scale, key, scale), drawn_keys(recorded, scale)
    if key not in known:
        raise FedreproError(
            f"{key} is not recorded at scale {scale} ({recorded / scale / key}.csv is missing); "
            f"recorded are {', '.join(known) or 'none'}"
        )
    kept = open_recorded(recorded / scale, key, scale)
    same_bytes = mine.read(".csv") == kept.read(".csv")
    rows = _differences(mine.table(".csv"), kept.table(".csv"))
    others = {  # another setting of a sweep
        row.where: f"{row.setting} was chosen for {row.where}, {row.recorded_setting} in the record"
        for row in rows
        if row.setting and row.recorded_setting and row.setting != row.recorded_setting
    }
    verdict = _verdict(key, rows, same_bytes)
    if any(row.difference for row in rows):
        verdict += _judged(rows, _arithmetic(mine.about), _arithmetic(kept.about))
    notes = [*_notes(mine.about, kept.about), *others.values()]
    return Comparison(rows, verdict, same_bytes, notes)


def _differences(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[CsvDifference]:
    from fedrepro.numbers.exhibit_tables import leading_columns

    swept, others = leading_columns(ours), leading_columns(theirs)
    if swept != others:
        raise FedreproError(
            f"the two tables have other points: ours vary {', '.join(swept)}, the recorded "
            f"ones {', '.join(others)}"
        )
    names = [*swept, "method", "metric", "split"]
    sides: list[dict[tuple[Any, ...], Any]] = []
    for frame in (ours, theirs):
        # a method without a shown parameter has no value of it; an empty text equals itself
        leading = frame[names].astype(object)
        rows = frame.assign(**leading.where(leading.notna(), "")).to_dict("records")
        sides.append({tuple(row[name] for name in names): row for row in rows})
    found = []
    for key in dict.fromkeys([*sides[1], *sides[0]]):
        mine, kept = (side.get(key, {"mean": None, "setting": ""}) for side in sides)
        method, metric, split = key[-3:]
        both = mine["mean"] is not None and kept["mean"] is not None
        found.append(
            CsvDifference(
                dict(zip(swept, key[:-3], strict=True)),
                method,
                metric,
                split,
                ours=mine["mean"],
                recorded=kept["mean"],
                setting=mine["setting"],
                recorded_setting=kept["setting"],
                difference=mine["mean"] - kept["mean"] if both else None,
                errors=_errors(mine, kept) if both else None,
            )
        )
    return found


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
    missing = sum(row.difference is None for row in rows)
    differing = [row for row in rows if row.difference]
    lone = f"; {missing} numbers are on one side only" if missing else ""
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


def _notes(mine: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """List causes of a difference other than chance: data, parameters or versions."""
    notes = []
    sums = [[data["sha256"] for data in about["data"]] for about in (mine, kept)]
    if sums[0] != sums[1]:
        notes.append("the data differ: their checksums are not the recorded ones")
    for key in ("seed", "trials", "components"):
        if mine[key] != kept[key]:
            notes.append(f"not as in the record: {key}")
    properties = {"device": _devices, "arithmetic": _arithmetic, "measure_every": _intervals}
    for key, of in properties.items():
        if of(mine) != of(kept):
            notes.append(f"not as in the record: {key} ({of(mine)}, recorded {of(kept)})")
    now, then = _versions(mine), _versions(kept)
    changed = [
        f"{name} {now.get(name)} (recorded with {version})"
        for name, version in then.items()
        if now.get(name) != version
    ]
    return notes + ([f"other versions: {', '.join(changed)}"] if changed else [])


def _together(names: Iterable[str]) -> str:
    return " and ".join(sorted(set(names)))


def _devices(about: Mapping[str, Any]) -> str:
    return _together(made.get("device", "cpu") for made in about["computed"])


def _arithmetic(about: Mapping[str, Any]) -> str:
    # older files lack it, which used MKL's products
    return _together(made.get("arithmetic", "before it was named") for made in about["computed"])


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
    return {name: _together(versions) for name, versions in by_name.items()}

"""Compare a user's numbers of a figure or table with those kept in the repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.core.params import comparable_text
from fedrepro.numbers.exhibit_files import open_exhibit, open_recorded
from fedrepro.numbers.tables_and_selection import leading_columns
from fedrepro.record.record_entries_and_leaderboards import RECORD, REPORTS, drawn_keys

ERRORS = 2  # combined standard errors that two runs of the same differ by at most, 19 times of 20


@dataclass(frozen=True)
class Comparison:
    """A user's numbers of a figure or table next to the repository's, and a verdict in words.

    rows: a table with a row for each number. Its columns are the swept parameters, method, metric
    and split; `ours` and `recorded`, two means over trials; `setting` and `recorded_setting`, the
    selected parameter values; `difference` of the means; `errors`, its size in combined standard
    errors; `where`, method and swept parameters in words. A missing or unknown number is nan.
    same_bytes: whether the csv files are equal. notes: sentences on causes other than chance.
    """

    rows: pd.DataFrame
    verdict: str
    same_bytes: bool
    notes: list[str]


def compare(scale: str, key: str, reports: Path = REPORTS, recorded: Path = RECORD) -> Comparison:
    """Compare a user's numbers of the figure or table `key` (paper/name) with the recorded ones.

    `scale` is the size of its experiments: tiny, quick or paper. `reports` is the folder of the
    user's results, `recorded` that of kept ones. FedreproError is raised if one of the folders
    lacks the key, or its files are incomplete or were altered.
    """
    mine, known = open_exhibit(reports / scale, key, scale), drawn_keys(recorded, scale)
    if key not in known:
        said = f"{key} is not recorded at scale {scale} ({recorded / scale / key}.csv is missing)"
        raise FedreproError(f"{said}; recorded are {', '.join(known) or 'none'}")
    kept = open_recorded(recorded / scale, key, scale)
    same_bytes = mine.read(".csv") == kept.read(".csv")
    rows = _differences(mine.table(".csv"), kept.table(".csv"))
    verdict = _verdict(key, rows, same_bytes)
    return Comparison(rows, verdict, same_bytes, _notes(mine.about, kept.about))


def _differences(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return the `rows` of a Comparison of two csv tables; raise if they vary unlike parameters."""
    swept, others = leading_columns(ours), leading_columns(theirs)
    if swept != others:
        said = f"the two tables have other points: ours vary {', '.join(swept)},"
        raise FedreproError(f"{said} the recorded ones {', '.join(others)}")
    names = [*swept, "method", "metric", "split"]
    # a method without a shown parameter has no value of it; an empty text equals itself
    keyed = (frame.astype(dict.fromkeys(names, object)) for frame in (theirs, ours))
    texts = ((f, f[names].fillna("").map(comparable_text)) for f in keyed)
    kept, mine = (f.assign(**text).set_index(names) for f, text in texts)
    every = kept.index.append(mine.index).unique()
    kept, mine = kept.reindex(every), mine.reindex(every)
    equal = mine["mean"] == kept["mean"]
    failed = mine["mean"].isna() & kept["mean"].isna()  # on both sides, if each has the row
    equal |= failed & (mine["setting"] == kept["setting"])
    difference = (mine["mean"] - kept["mean"]).mask(equal, 0.0)
    ours_sd, kept_sd = (side["sd"].astype(float) / side["trials"] ** 0.5 for side in (mine, kept))
    spread = (ours_sd**2 + kept_sd**2) ** 0.5
    columns = {
        "ours": mine["mean"],
        "recorded": kept["mean"],
        "setting": mine["setting"].fillna(""),
        "recorded_setting": kept["setting"].fillna(""),
        "difference": difference,
        "errors": (difference.abs() / spread.where(spread > 0)).mask(equal, 0.0),
    }
    rows = pd.DataFrame(columns, index=every).reset_index()
    rows["where"] = [
        ", ".join([row["method"], *(f"{k} {row[k]}" for k in swept if row[k] != "")])
        for row in rows.to_dict("records")
    ]
    return rows


def _verdict(key: str, rows: pd.DataFrame, same_bytes: bool) -> str:
    if same_bytes:
        return f"{key}: the same bytes as the record, {len(rows)} numbers"
    missing = int(rows["difference"].isna().sum())
    differing = rows[rows["difference"].fillna(0) != 0]
    lone = f"; {missing} numbers are on one side only or not finite" if missing else ""
    if differing.empty:
        return f"{key}: every number that both have is equal{lone}"
    accuracy = differing[(differing["metric"] == "accuracy") & (differing["split"] == "test")]
    among = differing if accuracy.empty else accuracy
    place: Any = among["difference"].abs().idxmax()
    worst: Any = among.loc[place]
    metric = worst["metric"] if accuracy.empty else "test accuracy"
    within, known = int((rows["errors"] <= ERRORS).sum()), int(rows["errors"].notna().sum())
    return (
        f"{key}: {len(differing)} of {len(rows)} numbers differ{lone}; {metric} by at most "
        f"{abs(worst['difference']):.4g} ({worst['where']}: {worst['ours']:.4g} here, "
        f"{worst['recorded']:.4g} recorded); {within} of {known} are within {ERRORS} combined "
        "standard errors"
    )


def _notes(mine: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Return causes of differences other than chance, from our json and the recorded one."""
    ours, theirs = ([data["sha256"] for data in about["data"]] for about in (mine, kept))
    notes = [] if ours == theirs else ["the data differ: their checksums are not the recorded ones"]
    keys, made = ("seed", "trials"), (mine["components"], kept["components"])
    lacking = {"feature"} if any("feature" not in one for one in made) else set()  # of old records
    notes += [f"not as in the record: {key}" for key in keys if mine[key] != kept[key]]
    if any(made[0].get(k) != made[1].get(k) for k in {*made[0], *made[1]} - lacking):
        notes.append("not as in the record: components")
    origins = ((*about["computed"], about.get("drawn", about)) for about in (mine, kept))
    now, then = (
        {f"{name} {version}" for made in side for name, version in made["versions"].items()}
        for side in origins
    )
    others = ", ".join(sorted(now - then))
    return notes + ([f"other versions than recorded: {others}"] if others else [])

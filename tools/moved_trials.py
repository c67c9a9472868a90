"""Measure how much each trial of recorded figures and tables changes when it is computed again.

    .venv/bin/python tools/moved_trials.py rm/figure-3 gems/table-2-mnist     # compute, and compare
    .venv/bin/python tools/moved_trials.py --reports reports rm/figure-3      # compare alone

Computes the figures and tables at the paper's scale in a temporary folder, and compares each trial
with the recorded one. Prints, for each metric at the end of a run, the largest and the mean
|difference| of a trial, and for comparison the mean standard deviation between trials of one
method. FEDREPRO_MIRROR names the folder with the data. Exit status 1 if a figure or table does not
exist or has none of the recorded trials.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "reports/record"
BY_ROUND = ("round",)  # phases of a curve, whose last values are measured at the end as well


def main(words: list[str]) -> int:
    """Compute figures and tables, and compare with their records; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exhibits", nargs="+", help="such as pfnm/figure-2a")
    parser.add_argument("--reports", type=Path, help="reports of a finished run; none: compute")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--scale", default="paper")
    given = parser.parse_args(words)
    if given.reports:
        return told(given.exhibits, given.reports / given.scale, given.scale)
    with tempfile.TemporaryDirectory(prefix="fedrepro-moved-") as place:
        computed(given.exhibits, Path(place), given.scale, given.cores)
        return told(given.exhibits, Path(place, "reports", given.scale), given.scale)


def computed(exhibits: list[str], folder: Path, scale: str, cores: int) -> None:
    """Copy the repository's tracked files to `folder`, and compute figures and tables there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "reports/")):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    targets = [f"reports/{scale}/{key}.csv" for key in exhibits]
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", str(cores), *targets]
    subprocess.run(command, cwd=folder)


def told(exhibits: list[str], reports: Path, scale: str) -> int:
    """Print how much trials of each figure or table changed; return 1 if one is missing, else 0."""
    missing = 0
    print("| exhibit | metric | trials | largest difference | mean | sd of trials |")
    print("| --- | --- | --- | --- | --- | --- |")
    for key in exhibits:
        files = [folder / f"{key}.metrics.parquet" for folder in (reports, RECORD / scale)]
        if not all(path.exists() for path in files):
            print(f"| {key} | not there | – | – | – | – |")
            missing += 1
            continue
        found = moved(*map(pd.read_parquet, files))
        missing += found.empty
        for row in found.itertuples():
            print(
                f"| {key} | {row.metric}, {row.split} | {row.trials} | {row.largest:.2g} "
                f"| {row.mean:.2g} | {row.sd:.2g} |"
            )
    return int(missing > 0)


def moved(ours: pd.DataFrame, recorded: pd.DataFrame) -> pd.DataFrame:
    """Compare two tables of metrics, trial by trial; return a row for each metric and split.

    Columns: number of compared `trials`, `largest` and `mean` |difference|, `sd` between trials.
    """
    # without the setting as text: other columns have its values, and old records wrote it otherwise
    left = ("value", "setting")
    same = [name for name in recorded.columns if name in ours.columns and name not in left]
    ends = [frame[~frame["phase"].isin(BY_ROUND)] if "phase" in frame else frame
            for frame in (ours, recorded)]  # fmt: skip
    # as texts, since missing values are equal only as texts
    sides = [frame[same].astype(object).fillna("").astype(str) for frame in ends]
    sides = [s.assign(value=frame["value"]) for s, frame in zip(sides, ends, strict=True)]
    run = [name for name in same if name not in ("client", "round", "phase", "split", "metric")]
    for side in list(sides):  # runs that a race stopped ended at another round than others
        stopped = pd.MultiIndex.from_frame(side.loc[side["metric"] == "stopped_at", run])
        sides = [s[~pd.MultiIndex.from_frame(s[run]).isin(stopped)] for s in sides]
    both = sides[0].merge(sides[1], on=same, suffixes=("", "_recorded"))
    both["away"] = (both["value"] - both["value_recorded"]).abs()
    among = [name for name in same if name not in ("trial", "client")]
    spread = both.groupby(among)["value_recorded"].std().groupby(["metric", "split"]).mean()
    grouped = both.groupby(["metric", "split"])
    found = grouped.agg(trials=("trial", "nunique"), largest=("away", "max"), mean=("away", "mean"))
    return found.assign(sd=spread).reset_index()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

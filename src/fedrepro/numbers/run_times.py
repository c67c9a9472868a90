"""Read measured seconds and memory of the runs behind a figure, by stage of the pipeline."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts import read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import STAGES, TRAIN
from fedrepro.core.params import comparable_text
from fedrepro.numbers.trial_statistics import over_trials
from fedrepro.planning.exhibit import Exhibit, Run
from fedrepro.planning.jobs import TIMINGS, folders_of

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = "round_seconds"  # of the timings of a method in rounds
FIRST = 1  # rounds that are left out of times: they also prepare memory


def timings_of(about: Mapping[str, Any], root: Path = Path()) -> list[Path]:
    """Return paths, below `root`, of the run time tables behind a figure with the json `about`."""
    return [root / folder / TIMINGS for text in about["timings"] for folder in folders_of(text)]


def of_methods(timings: Iterable[Path]) -> list[Path]:
    """Return those paths of run time tables that are on methods, not on local training."""
    return [path for path in dict.fromkeys(timings) if _stage(path) != TRAIN]


def _by_stage(timings: Iterable[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {stage: [] for stage in STAGES}
    for path in dict.fromkeys(timings):
        found.setdefault(_stage(path), []).append(path)
    if not all(path.exists() for path in found[TRAIN]):
        del found[TRAIN]
    return {stage: own for stage, own in found.items() if own}


def exhibit_seconds(timings: Sequence[Path]) -> dict[str, float]:
    """Sum measured seconds over trials, by stage; without training if a table of it is missing."""
    return {
        stage: sum(sum(read_table(path, "timings")["seconds"].to_pylist()) for path in paths)
        for stage, paths in _by_stage(timings).items()
    }


def seconds_by_setting(timings: Iterable[Path]) -> dict[str, list[float]]:
    """Return {method with parameter values as text: mean seconds of a trial in each table}."""
    means: dict[str, list[float]] = {}
    for path in of_methods(timings):
        frame = read_table(path, "timings").select(["method", "seconds"]).to_pandas()
        for token, seconds in frame.groupby("method", sort=False)["seconds"]:
            means.setdefault(str(token), []).append(statistics.mean(seconds.tolist()))
    return means


def memory_and_seconds(timings: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Return {"cpu_seconds": {stage: sum}, "peak_bytes": {stage: most}} of jobs, where measured."""
    found: dict[str, dict[str, float]] = {"cpu_seconds": {}, "peak_bytes": {}}
    for stage, paths in _by_stage(timings).items():
        jobs = [read_provenance(read_table(path, "timings")) for path in paths]
        if all("cpu_seconds" in job for job in jobs):
            found["cpu_seconds"][stage] = sum(job["cpu_seconds"] for job in jobs)
            found["peak_bytes"][stage] = max(job["peak_bytes"] for job in jobs)
    return found


def times_of(
    exhibit: Exhibit, files: Mapping[Run, Sequence[str]], columns: Sequence[str]
) -> pd.DataFrame:
    """Return measured seconds per round of the methods in a figure, as csv rows of `columns`.

    `overhead` is how much longer rounds take than those of the figure's first method, in percent.
    `files` are the metrics of each run.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for point in exhibit.points:
        plain: float | None = None
        for measure in point.measures:
            setting = measure.settings[0]
            paths, trials = files[point.runs[measure.label, setting]], point.trials[measure.label]
            own = (row[ROUNDS] for row in _timings(paths, ROUNDS) if row["trial"] < trials)
            seconds = [second for each in own for second in each[FIRST:]]
            if not seconds:
                raise FedreproError(f"{paths[0]}: times of single rounds need two rounds at least")
            plain = statistics.mean(seconds) if plain is None else plain
            more = 100 * (statistics.mean(seconds) / plain - 1)
            place = {**point.values, "method": measure.label, "split": "", "setting": setting.token}
            for metric, values in (("seconds", seconds), ("overhead", [more])):
                rows.append({**place, "metric": metric, **over_trials(values)})
    return pd.DataFrame(rows, columns=list(columns))


def method_times(
    exhibit: Exhibit, files: Mapping[Run, Sequence[str]], numbers: pd.DataFrame
) -> pd.DataFrame:
    """Return server and client seconds by trial, as csv rows, for settings in `numbers` (a csv)."""
    import pandas as pd

    chosen = {
        (*(comparable_text(row[key]) for key in exhibit.swept), row["method"]): row["setting"]
        for row in numbers.to_dict("records")
    }
    tables = {run: sorted(_timings(f), key=lambda row: row["trial"]) for run, f in files.items()}
    rows: list[dict[str, Any]] = []
    for point in exhibit.points:
        for measure in point.measures:
            token = chosen.get((*map(comparable_text, point.values.values()), measure.label))
            setting = next((s for s in measure.settings if s.token == token), None)
            if setting is None:
                continue
            run, trials = point.runs[measure.label, setting], point.trials[measure.label]
            own = [row for row in tables[run] if row["method"] == run.rows_of(setting)][:trials]
            place = {**point.values, "method": measure.label, "split": "", "setting": token}
            for metric in ("server_seconds", "client_seconds"):
                seconds = [row[metric] for row in own if metric in row]
                if len(seconds) == trials:
                    rows.append({**place, "metric": metric, **over_trials(seconds)})
    return pd.DataFrame(rows, columns=list(numbers.columns))


def _timings(metrics: Sequence[str], needed: str = "seconds") -> list[dict[str, Any]]:
    """Read run times next to files of `metrics`, a dict per row; require the column `needed`."""
    rows = []
    for path in metrics:
        timings = Path(path).with_name(TIMINGS)
        table = read_table(timings, "timings")
        if needed not in table.column_names:
            raise FedreproError(
                f"{timings} has no times of single rounds; delete its folder and start again"
            )
        rows += table.to_pylist()
    return rows


def _stage(path: Path) -> str:
    return path.parts[-3] if len(path.parts) > 2 else ""

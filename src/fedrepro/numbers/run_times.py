"""Read measured seconds and memory of the runs behind a figure, by stage of the pipeline."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.checksummed_files import read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import STAGES, TRAIN
from fedrepro.core.params import comparable_text
from fedrepro.numbers.trial_statistics import over_trials
from fedrepro.planning.exhibit import Exhibit, Run
from fedrepro.planning.scenarios_runs_and_jobs import TIMINGS, folders_of

ROUNDS = "round_seconds"  # of the timings of a method in rounds
Files = Mapping[Run, Sequence[str]]  # paths of metrics
FIRST = 1  # rounds that are left out of times: they also prepare memory


def timings_of(about: Mapping[str, Any], root: Path = Path()) -> list[Path]:
    """Return paths, below `root`, of the run time tables behind a figure with the json `about`."""
    return [root / folder / TIMINGS for text in about["timings"] for folder in folders_of(text)]


def spent_by_stage(timings: Iterable[Path]) -> dict[str, dict[str, float]]:
    """Return {"seconds": {stage: sum}, "cpu_seconds": {stage: sum}, "peak_bytes": {stage: most}}.

    `timings` are paths from `timings_of`. Seconds are summed over trials, CPU seconds over jobs
    (processes); peak bytes are the most of a job. A stage has the last two if all its jobs have.
    If a file of training is missing, training is left out; if another file is, the result is {}.
    """
    by_stage: dict[str, list[Path]] = {stage: [] for stage in STAGES}
    for path in dict.fromkeys(timings):
        by_stage.setdefault(path.parts[-3] if len(path.parts) > 2 else "", []).append(path)
    if not all(path.exists() for path in by_stage[TRAIN]):
        by_stage[TRAIN] = []
    if not all(path.exists() for paths in by_stage.values() for path in paths):
        return {}
    found: dict[str, dict[str, float]] = {"seconds": {}, "cpu_seconds": {}, "peak_bytes": {}}
    for stage, paths in by_stage.items():
        tables = [read_table(path, "timings") for path in paths]
        jobs = [read_provenance(table) for table in tables]
        if tables:
            found["seconds"][stage] = sum(sum(table["seconds"].to_pylist()) for table in tables)
        if tables and all("cpu_seconds" in job for job in jobs):
            found["cpu_seconds"][stage] = sum(job["cpu_seconds"] for job in jobs)
            found["peak_bytes"][stage] = max(job["peak_bytes"] for job in jobs)
    return found


def seconds_by_setting(timings: Iterable[Path]) -> dict[str, list[float]]:
    """Return {method with parameters as text: [mean seconds of a file's trials]}; skip training."""
    means: dict[str, list[float]] = {}
    for path in (path for path in timings if TRAIN not in path.parts[-3:-2]):
        frame = read_table(path, "timings").select(["method", "seconds"]).to_pandas()
        for token, seconds in frame.groupby("method", sort=False)["seconds"]:
            means.setdefault(str(token), []).append(statistics.mean(seconds.tolist()))
    return means


def times_of(exhibit: Exhibit, files: Files, columns: Sequence[str]) -> pd.DataFrame:
    """Return measured seconds per round of a figure's methods, as rows of its csv's `columns`.

    Each trial's first round is left out. Rows of the metric `overhead` say how many percent longer
    rounds take than the first method's. `files` has metrics' paths by run (method and data set).
    """
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


def method_times(exhibit: Exhibit, files: Files, numbers: pd.DataFrame) -> pd.DataFrame:
    """Return measured seconds of server and clients by trial, as csv rows, for a figure's methods.

    `numbers` is the figure's csv, whose column "setting" says which setting of a method is shown;
    `files` has the paths of runs' metrics.
    """
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
    """Read run times next to files `metrics`, a dict per row; raise without column `needed`."""
    rows = []
    for path in metrics:
        timings = Path(path).with_name(TIMINGS)
        table = read_table(timings, "timings")
        if needed not in table.column_names:
            said = f"{timings} has no times of single rounds"
            raise FedreproError(f"{said}; delete its folder and start again")
        rows += table.to_pylist()
    return rows

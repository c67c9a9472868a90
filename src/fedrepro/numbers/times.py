"""Measured seconds and memory of the runs behind an exhibit, by stage."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core.artifacts import read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import STAGES, TRAIN
from fedrepro.core.params import comparable_text
from fedrepro.numbers.series import mean, sd
from fedrepro.planning.exhibit import Exhibit, Run
from fedrepro.planning.jobs import TIMINGS, folders_of

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = "round_seconds"  # of the timings of a method in rounds

FIRST = 1  # rounds that are left out of times: they also prepare memory


def timings_of(about: Mapping[str, Any], root: Path = Path()) -> list[Path]:
    """List the tables of times of the runs behind an exhibit, as its json names them."""
    return [root / folder / TIMINGS for text in about["timings"] for folder in folders_of(text)]


def of_methods(timings: Iterable[Path]) -> list[Path]:
    """Keep the tables that are not of local models, each once."""
    return [path for path in dict.fromkeys(timings) if _stage(path) != TRAIN]


def exhibit_seconds(timings: Sequence[Path]) -> dict[str, float]:
    """Seconds of each stage in these tables, of local models where all of theirs are there."""
    return {
        stage: sum(sum(read_table(path, "timings")["seconds"].to_pylist()) for path in paths)
        for stage, paths in _by_stage(timings).items()
    }


def _by_stage(timings: Iterable[Path]) -> dict[str, list[Path]]:
    """Stage -> its tables, each once; without those of local models if one of these is missing."""
    found: dict[str, list[Path]] = {stage: [] for stage in STAGES}
    for path in dict.fromkeys(timings):
        found.setdefault(_stage(path), []).append(path)
    if not all(path.exists() for path in found[TRAIN]):
        found[TRAIN] = []
    return {stage: paths for stage, paths in found.items() if paths}


def seconds_by_setting(timings: Iterable[Path]) -> dict[str, list[float]]:
    """Mean seconds of a trial in each of these tables, by the token of what was run."""
    means: dict[str, list[float]] = {}
    for path in of_methods(timings):
        table = read_table(path, "timings")
        by_token: dict[str, list[float]] = {}
        for row in table.to_pylist():
            by_token.setdefault(row["method"], []).append(row["seconds"])
        for token, seconds in by_token.items():
            means.setdefault(token, []).append(statistics.mean(seconds))
    return means


def memory_and_seconds(timings: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Sum the cost of whole jobs by stage, local models' jobs, measuring and reading included.

    `cpu_seconds` are summed over jobs, `peak_bytes` are those of the hungriest job. A stage with a
    job that did not write down what it took is left out.
    """
    jobs = {
        stage: [read_provenance(read_table(path, "timings")) for path in paths]
        for stage, paths in _by_stage(timings).items()
    }
    known = [stage for stage in jobs if all("cpu_seconds" in job for job in jobs[stage])]
    return {
        "cpu_seconds": {stage: sum(j["cpu_seconds"] for j in jobs[stage]) for stage in known},
        "peak_bytes": {stage: max(j["peak_bytes"] for j in jobs[stage]) for stage in known},
    }


def times_of(
    exhibit: Exhibit, files: Mapping[Run, Sequence[str]], columns: Sequence[str]
) -> pd.DataFrame:
    """Return measured times of methods in rounds, in the columns of the exhibit's numbers.

    `seconds` of a round, its trials being the rounds of all trials except the FIRST of each;
    `overhead`, how much longer they are on average than those of the exhibit's first method. The
    timings lie in the folders of the metrics of each run, `files`.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for point in exhibit.points:
        plain: float | None = None
        for measure in point.measures:
            setting = measure.settings[0]
            paths = files[point.runs[measure.label, setting]]
            seconds = round_seconds(paths, point.trials[measure.label])
            plain = statistics.mean(seconds) if plain is None else plain
            more = 100 * (statistics.mean(seconds) / plain - 1)
            place = {**point.values, "method": measure.label, "split": "", "setting": setting.token}
            rows += [
                place | _series("seconds", seconds),
                place | _series("overhead", [more]),
            ]
    return pd.DataFrame(rows, columns=list(columns))


def method_times(
    exhibit: Exhibit, files: Mapping[Run, Sequence[str]], numbers: pd.DataFrame
) -> pd.DataFrame:
    """Return measured times of the settings that stand in an exhibit's numbers, in its columns.

    `server_seconds` and `client_seconds` of each trial, of methods whose timings have them. The
    timings lie in the folders of the metrics of each run, `files`.
    """
    import pandas as pd

    chosen = {
        (*(comparable_text(row[key]) for key in exhibit.swept), row["method"]): row["setting"]
        for row in numbers.to_dict("records")
    }
    tables = {run: _timings(paths) for run, paths in files.items()}
    rows: list[dict[str, Any]] = []
    for point in exhibit.points:
        for measure in point.measures:
            token = chosen.get((*map(comparable_text, point.values.values()), measure.label))
            setting = next((s for s in measure.settings if s.token == token), None)
            if setting is None:
                continue
            run, trials = point.runs[measure.label, setting], point.trials[measure.label]
            trial_rows = tables[run].get(run.rows_of(setting), [])[:trials]
            place = {**point.values, "method": measure.label, "split": "", "setting": token}
            for metric in ("server_seconds", "client_seconds"):
                seconds = [row[metric] for row in trial_rows if metric in row]
                if len(seconds) == trials:
                    rows.append(place | _series(metric, seconds))
    return pd.DataFrame(rows, columns=list(numbers.columns))


def _timings(metrics: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each setting in the timings of these metrics, by trial."""
    by_setting: dict[str, list[dict[str, Any]]] = {}
    for path in metrics:
        for row in read_table(Path(path).with_name(TIMINGS), "timings").to_pylist():
            by_setting.setdefault(row["method"], []).append(row)
    return {token: sorted(rows, key=lambda row: row["trial"]) for token, rows in by_setting.items()}


def round_seconds(metrics: Sequence[str], trials: int) -> list[float]:
    """Seconds of single rounds, trial by trial, without the FIRST of each."""
    seconds: list[float] = []
    for path in metrics:
        timings = Path(path).with_name(TIMINGS)
        table = read_table(timings, "timings")
        if ROUNDS not in table.column_names:
            raise FedreproError(
                f"{timings} has no times of single rounds; delete its folder and start again"
            )
        for row in table.to_pylist():
            if row["trial"] < trials:
                seconds += row[ROUNDS][FIRST:]
    if not seconds:
        raise FedreproError(f"{metrics[0]}: times of single rounds need two rounds at least")
    return seconds


def _series(metric: str, values: Sequence[float]) -> dict[str, Any]:
    return {
        "metric": metric,
        "mean": mean(values),
        "sd": sd(values),
        "trials": len(values),
        "by_trial": " ".join(f"{value:.10g}" for value in values),
    }


def _stage(path: Path) -> str:
    return path.parts[-3] if len(path.parts) > 2 else ""

"""Tables of measured times: from the timings of rounds, apart from what repeats to the byte."""

from __future__ import annotations

import pytest
from small_exhibits import small

from fedrepro.core.artifacts import write_table
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_tables import NUMBERS, csv_text, read_csv
from fedrepro.numbers.run_times import times_of

METHODS = [
    {"name": "fedavg", "label": "FA", "rounds": 3},
    {"name": "fedadam", "label": "other", "rounds": 3},
]
TIMED = {"drawing": {"metric": "seconds", "split": ""}, "sweep": {"partition.clients": [2]}}


def timings(folder, *trials, **columns):
    """Seconds of each round of each trial in a run's folder; the path of its metrics."""
    given = {"trial": list(range(len(trials))), "round_seconds": list(trials)}
    write_table(folder / "timings.parquet", columns or given, "timings", {})
    return str(folder / "metrics.parquet")


def test_rounds_are_the_trials_of_times_and_overhead_is_over_the_first_method(tmp_path):
    exhibit = small(methods=METHODS, trials=2, **TIMED)
    assert exhibit.timed
    # the first round of a trial, and further trials, are left out
    seconds = {"fedavg": [[9.0, 1.0, 3.0], [9.0, 2.0, 2.0]], "fedadam": [[9.0, 2.0, 3.0]] * 3}
    names = [run.method.name for run in exhibit.runs]
    paths = [[timings(tmp_path / name, *seconds[name])] for name in names]
    files = dict(zip(exhibit.runs, paths, strict=True))
    found = read_csv(csv_text(times_of(exhibit, files, ["clients", *NUMBERS])))
    by_label = found.set_index(["method", "metric"])
    other = by_label.loc[("other", "seconds")]
    assert (other["by_trial"], other["trials"]) == ("2 3 2 3", 4)
    assert by_label.loc[("FA", "overhead"), "mean"] == 0
    assert by_label.loc[("other", "overhead"), "mean"] == pytest.approx(25)


def test_timings_without_rounds_are_a_sentence(tmp_path):
    exhibit = small(methods=METHODS[:1], trials=1, **TIMED)
    path = timings(tmp_path, trial=[0], seconds=[1.0])
    with pytest.raises(FedreproError, match="has no times of single rounds; delete its folder"):
        times_of(exhibit, {run: [path] for run in exhibit.runs}, ["clients", *NUMBERS])

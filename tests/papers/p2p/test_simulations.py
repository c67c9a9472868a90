"""Simulations: what theirs give, their stage, and exhibits that have neither data nor a model."""

from __future__ import annotations

import math
from pathlib import Path

import jobs
import numpy as np
import pandas as pd
import pytest
from small_exhibits import file_of, small

from fedrepro.core.artifacts import read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.drawings.canvas import figure, render, rules
from fedrepro.numbers.summary import csv_text, read_csv, summarise
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.exhibit import exhibit_of
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[3]
NOTHING = {"dataset": None, "partition": None, "model": None, "training": None, "sweep": {}}
ALONE = {"name": "regression_beliefs", "cooperation": "alone"}
SHORT = {"steps": 4, "every": 2, "repeats": 3}
NODES = [{**ALONE, **SHORT, "label": f"node {i}", "node": i} for i in (1, 2)]


def simulated(token: str, trial: int = 0):
    spec = parse_token("method", token)
    return spec.component.fn(rng=RngKey(0, trial), **spec.values)


# ---------------------------------------------------------------------------- what they compute


@pytest.mark.parametrize(
    ("cooperation", "errors"),
    [("alone", [1.126, 0.730]), ("graph", [0.650, 0.650]), ("central", [0.650])],
)
def test_errors_of_the_regression_after_200_samples(cooperation, errors):
    """By an independent simulation, each within 0.003."""
    spec = components("method")["regression_beliefs"].spec(
        {"cooperation": cooperation, "steps": 200, "every": 200, "repeats": 1000}
    )
    found = spec.component.fn(rng=RngKey(0), **spec.values).rounds[200]
    assert found["squared_error"] == pytest.approx(errors, abs=0.003)


def test_a_node_alone_believes_the_prior_of_what_it_does_not_see():
    found = simulated("regression_beliefs+cooperation~alone+repeats~5").rounds[500]
    # 0.64 of noise, and the prior's 0.5 times the mean square of the other coordinate
    floors = [0.64 + 0.5 * 0.75, 0.64 + 0.5 / 3]
    assert all(found["believed_variance"] > floors)
    assert found["believed_variance"] == pytest.approx(floors, abs=0.02)
    assert found["parameter_error"] == pytest.approx([0.64, 0.25], abs=0.05)


def test_the_theorem_on_the_matrix_of_case_a():
    found = simulated("finite_beliefs+steps~60").ended
    assert found["bound_printed"] == pytest.approx(1597, abs=1)
    assert found["bound_corrected"] == pytest.approx(4060, abs=1)
    assert found["samples_needed"] == pytest.approx(21, abs=2)
    assert found["modulus"] == pytest.approx(0.5)


def test_errors_stand_at_the_bounds_that_are_reached():
    ended = simulated("finite_beliefs+repeats~2+steps~1600").ended
    assert "error_at_printed" in ended
    assert "error_at_corrected" not in ended
    whole = simulated("finite_beliefs+repeats~2")
    assert max(whole.rounds) == math.ceil(whole.ended["bound_corrected"])
    assert {"error_at_printed", "error_at_corrected"} <= whole.ended.keys()


def test_on_a_complete_graph_more_nodes_need_fewer_samples_and_too_few_never_are_enough():
    few, many = (
        simulated(f"finite_beliefs+graph~complete+nodes~{n}+repeats~200+steps~60").ended
        for n in (4, 16)
    )
    assert many["samples_needed"] < few["samples_needed"]
    assert simulated("finite_beliefs+repeats~50+steps~3").ended["samples_needed"] == math.inf


# ------------------------------------------------------------------------------------ the stage


def stage(out: Path, method: str, trials: str = "0-1") -> int:
    words = ["--method", method, "--trials", trials, "--seed", "7"]
    files = ["--out", out / "metrics.parquet", "--timings", out / "timings.parquet"]
    return jobs.stage("simulate", *words, *map(str, files))


TOKEN = "regression_beliefs+every~2+repeats~3+steps~4"


def test_a_block_of_trials_has_a_row_for_each_node_and_step_and_the_same_bytes_twice(tmp_path):
    for name in ("a", "b"):
        assert stage(tmp_path / name, TOKEN) == 0
    path, other = (tmp_path / name / "metrics.parquet" for name in ("a", "b"))
    assert path.read_bytes() == other.read_bytes()
    rows = read_table(path, "metrics").to_pandas()
    assert set(rows["trial"]) == set(rows["client"]) == {0, 1}
    assert sorted(rows["round"].dropna().unique()) == [1, 2, 4]
    last = rows[rows["round"] == 4].reset_index(drop=True)
    final = rows[rows["phase"] == "final"].reset_index(drop=True)
    assert last["value"].tolist() == final["value"].tolist()
    timings = read_table(tmp_path / "a/timings.parquet", "timings").to_pandas()
    assert timings["trial"].tolist() == [0, 1]
    source = read_provenance(read_table(path, "metrics"))
    assert (source["seed"], source["path"]) == (7, TOKEN)
    # trials are the same however they are cut into jobs
    assert stage(tmp_path / "one", TOKEN, "1") == 0
    one = read_table(tmp_path / "one/metrics.parquet", "metrics").to_pandas()
    pd.testing.assert_frame_equal(rows[rows["trial"] == 1].reset_index(drop=True), one)


def test_what_is_no_simulation_is_a_sentence(tmp_path, capsys):
    assert stage(tmp_path, "average") == 2
    said = "'average' is computed at once: its stage is aggregate, not simulate"
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------------------------- an exhibit


PANELS = {"name": "numbers-against-steps", "metrics": ["squared_error"]}


def steps(**settings):
    given = {"drawing": PANELS, "methods": NODES}
    return {"defaults": NOTHING} | given | settings


def test_nodes_of_one_run_are_shown_by_several_entries():
    exhibit = small(**steps())
    assert len(exhibit.runs) == 1
    assert exhibit.points[0].scenario is None
    table = Table(())
    (run,) = exhibit.runs
    for setting in run.method.expand():
        for trial, node in np.ndindex(2, 2):
            value = 10 * trial + node
            table.add([MetricRow(trial, setting, "squared_error", value, client=node)])
            table.add([MetricRow(trial, setting, "squared_error", value, client=node, round=2)])
    numbers = summarise(exhibit, {run: table.arrow()}).numbers
    final = numbers[numbers["round"].isna()]
    assert dict(zip(final["method"], final["by_trial"], strict=True)) == {
        "node 1": "0 10",
        "node 2": "1 11",
    }


def test_its_files_lie_in_folders_of_their_own_and_need_no_data():
    plan = Plan(Config(), {"small": file_of(**steps())}, "tiny")
    (exhibit,) = plan.exhibits.values()
    (path,) = plan.metrics_files(exhibit)
    assert path.startswith("results/tiny/simulate/regression_beliefs-")
    assert plan.partitions([exhibit.key]) == {}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dataset": {"name": "digits"}}, "the key 'partition' is missing"),
        (
            {"methods": [{"name": "average"}], "drawing": "table"},
            "which only simulations do without",
        ),
        ({"drawing": PANELS | {"metrics": []}}, "'metrics' is .*at least 1 item"),
        ({"drawing": PANELS | {"metrics": ["error"]}}, "none of its methods reports error"),
        ({"methods": [{**ALONE, "training": {"lr": 1}}]}, "changes the training, which is not"),
        ({"drawing": "errors-and-bounds"}, "tells neither errors nor bounds"),
    ],
)
def test_a_mistake_is_a_sentence(settings, sentence):
    with pytest.raises(FedreproError, match=sentence):
        small(**steps(**settings))


def test_a_simulation_beside_data_is_a_sentence():
    with pytest.raises(FedreproError, match="is a simulation, which has neither data nor a model"):
        small(methods=NODES, sweep={})


# ------------------------------------------------------------------------------------- drawings


def of_paper(name: str):
    return exhibit_of(load_exhibits()["p2p"], name, "tiny")


def test_a_panel_has_a_line_for_each_node_with_what_the_csv_has():
    exhibit = of_paper("figure-1a")
    labels = [measure.label for measure in exhibit.measures]
    rows = [
        {"round": n, "method": label, "metric": metric, "split": "", "mean": at + n, "sd": 0.1}
        for at, label in enumerate(labels)
        for metric in exhibit.settings.drawing.metrics
        for n in (1, 2, 4)
    ]
    numbers = read_csv(csv_text(pd.DataFrame(rows)))
    with rules():
        drawn = figure(exhibit, numbers)
    for axes in drawn.axes:
        lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
        assert [list(line.get_ydata()) for line in lines] == [
            [at + n for n in (1, 2, 4)] for at in range(len(labels))
        ]
    assert render(exhibit, numbers) == render(exhibit, numbers)


def test_bounds_stand_where_the_csv_has_them():
    exhibit = of_paper("theorem-1")
    rows = []
    for at, point in enumerate(exhibit.points):
        (measure,) = point.measures
        for setting in measure.settings:
            head = {"case": point.values["case"], "nodes": setting["nodes"], "split": "", "sd": 0}
            head |= {"method": measure.label, "round": None}
            rows += [
                head | {"metric": "bound_printed", "mean": 100 + at},
                head | {"metric": "bound_corrected", "mean": 200 + at},
                head | {"metric": "samples_needed", "mean": 7 + setting["nodes"]},
            ]
            rows += [head | {"metric": "error", "round": n, "mean": 1 / n} for n in (1, 10)]
    with rules():
        left, right = figure(exhibit, pd.DataFrame(rows)).axes
    upright = {
        line.get_xdata()[0] for line in left.lines if len(set(map(float, line.get_xdata()))) == 1
    }
    assert upright == {100, 101, 102, 200, 201, 202}
    assert len(right.lines) == 5
    assert list(right.lines[0].get_ydata()) == [11, 16]

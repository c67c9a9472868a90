"""Exhibits whose methods are tuned: their points and runs, and which numbers they show."""

from __future__ import annotations

import math
from dataclasses import replace

import jobs
import numpy as np
import pandas as pd
import pytest
from small_exhibits import file_of, small

from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import describe
from fedrepro.numbers.exhibit_tables import read_metrics, summarise, tidy
from fedrepro.numbers.trial_statistics import as_shown
from fedrepro.numbers.verdicts.printed_verdicts import PrintedValue, printed_rows
from fedrepro.planning.config import Config
from fedrepro.planning.jobs import TrialBlock
from fedrepro.planning.plan import Plan

DATA = {"name": "digits", "validation": 200}
RAW = {"name": "raw", "label": "raw", "tune": {"epochs": 9, "patience": 3}}
PLAIN = {"name": "average", "label": "A"}
TUNED = {"name": "average", "label": "A tuned", "tune": {"repetitions": 2}}
LINE = {"name": "local", "label": "L", "tune": {"lr": 0.001}}
SIZES = [50, 100]
ONCE = {"partition.clients": [3]}
SWEEP = {**ONCE, "tune.examples": SIZES}


def exhibit(**settings):
    given = {"dataset": DATA, "partition": {"name": "by_label"}, "sweep": SWEEP}
    return small(**{**given, "methods": [PLAIN, TUNED, LINE, RAW], **settings})


def test_a_size_is_a_point_and_a_job_tunes_at_all_of_them():
    found = exhibit()
    assert [point.values["examples"] for point in found.points] == SIZES
    assert len(found.runs) == 3
    for point, size in zip(found.points, SIZES, strict=True):
        for (label, setting), run in point.runs.items():
            assert run.tune["examples"] == (50, 100)
            assert setting.tune is None if label == "A" else setting.tune["examples"] == size


def test_what_is_shown_as_it_comes_and_tuned_is_computed_once():
    (first, _) = exhibit().points
    runs = {label: run for (label, _), run in first.runs.items()}
    assert runs["A"] is runs["A tuned"]
    (alone,) = exhibit(methods=[PLAIN], sweep=ONCE).points
    assert all(run.tune is None for run in alone.runs.values())
    needs = {measure.label: "public_sample" in measure.needs for measure in exhibit().measures}
    assert (needs["A"], needs["A tuned"]) == (False, True)


def test_tuned_runs_have_folders_of_their_own():
    file = file_of(dataset=DATA, partition={"name": "by_label"}, sweep=SWEEP, methods=[TUNED])
    plan = Plan(Config(), {"small": file}, "quick")
    (run,) = plan.splits
    folder = plan.jobs.run(run, TrialBlock(0, 1))
    job = plan.jobs.job(folder)
    assert job.tune.token == "tune+examples~50@100+repetitions~2"
    assert job.evaluate == ("test",)
    assert folder != plan.jobs.run(replace(run, tune=None), TrialBlock(0, 1))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": [{"name": "raw"}]}, "'raw' works on the public sample alone: give it one by"),
        ({"methods": [PLAIN]}, "it sweeps tune.examples, but none of its methods has a tune"),
        ({"methods": [{**TUNED, "tune": {"examples": 5}}]}, "sets the tuning's examples, which"),
        ({"methods": [{**TUNED, "tune": {"lr": [0.1, 0.01]}}]}, "several values of lr; say how"),
        ({"sweep": {**ONCE, "tune.examples": [50, 201]}}, "'A tuned': a public sample of 201 exa"),
        ({"dataset": {"name": "digits"}}, "'A tuned' works on validation examples of clients, and"),
        ({"methods": [{"name": "downpour_sgd", "tune": {}}]}, "rounds, and only one-shot models"),
        (
            {"methods": [{**TUNED, "training": {"lr": [0.1, 1.0]}, "tune": {"lr": [0.1, 0.2]}}]},
            "parameter 'lr' of its own, so that it would be hard to tell from that of its tuning",
        ),
    ],
)
def test_what_cannot_be_tuned_is_a_sentence(change, sentence):
    with pytest.raises(FedreproError, match=sentence):
        exhibit(**change)


def test_files_of_exhibits_without_tuning_do_not_speak_of_it():
    methods = [PLAIN, {**TUNED, "tune": {"repetitions": 2, "examples": 80}}]
    file = file_of(dataset=DATA, partition={"name": "iid"}, methods=methods)
    plan = Plan(Config(), {"small": file}, "quick")
    plain, with_tune = describe(plan.exhibit("small/x"), plan, file)["methods"]
    assert "tune" not in plain
    assert with_tune["tune"].startswith("tune;v1;epochs~5+examples~80")


# ------------------------------------------------------------------------------- the numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits among three clients in two trials, and their models."""
    found = tmp_path_factory.mktemp("exhibits")
    jobs.divided(found, "by_label+clients~3", dataset="digits+validation~200")
    assert compute("train", found, "local", "--clients", "0-2") == 0
    return found


def compute(stage, folder, out, *words):
    given = ["--dataset", "digits+validation~200", "--partition", "by_label+clients~3"]
    given += ["--model", "mlp+hidden~10", "--training", "adam+epochs~2"]
    given += ["--data", folder / "data", "--members", folder / "members", "--trials", "0-1"]
    given += ["--out", folder / out, "--timings", folder / f"{out}.times", *words]
    return jobs.stage(stage, *given)


def computed(made, folder):
    """The rows of every run, by its job."""
    found = {}
    for place, run in enumerate(made.runs):
        words = ["--local", folder / "local", "--method", run.method.token]
        words += ["--tune", run.tune.token] if run.tune else []
        words += ["--evaluate", *sorted({split for one in made.measures for split in one.evaluate})]
        assert compute("aggregate", folder, f"{place}.m", *words) == 0
        found[run] = read_metrics([folder / f"{place}.m"]).rows
    return found


SMALL = {"model": {"name": "mlp", "hidden": [10]}, "training": {"name": "adam", "epochs": 2}}
SMALL["trials"] = 2


def value(frame, method, examples, metric="accuracy", split="test"):
    own = frame[(frame["method"] == method) & (frame["examples"] == examples)]
    (row,) = own[(own["metric"] == metric) & (own["split"] == split)].to_dict("records")
    return row


def test_a_number_is_the_mean_over_the_samples_of_a_size(folder):
    made = exhibit(**SMALL)
    tables = computed(made, folder)
    frame = summarise(made, tables).numbers
    (run,) = {run for (label, _), run in made.points[0].runs.items() if label == "A tuned"}
    rows = tables[run].to_pandas().query("metric == 'accuracy' and split == 'test'")
    for size in SIZES:
        shown = value(frame, "A tuned", size)
        own = rows[(rows["phase"] == "tuned") & (rows["tune_examples"] == size)]
        assert len(own) == 4
        by_trial = own.groupby("trial")["value"].mean()
        assert [float(v) for v in shown["by_trial"].split()] == pytest.approx(list(by_trial))
        assert shown["mean"] == pytest.approx(by_trial.mean())
        assert shown["setting"] == f"average;tune+examples~{size}+repetitions~2"
        final = rows[rows["phase"] == "final"]["value"].mean()
        assert value(frame, "A", size)["mean"] == pytest.approx(final)
    assert value(frame, "raw", 100)["mean"] > 0.3
    kept = tidy(made, tables).to_pandas()
    assert set(kept["phase"]) == {"final", "tuned"}
    assert kept["repetition"].max() == 1


def test_one_way_of_tuning_is_chosen_like_any_setting(folder):
    entry = {**TUNED, "tune": {"lr": [1e-06, 0.01], "examples": 100}, "choose": "pooled_train"}
    made = exhibit(methods=[entry], sweep=ONCE, **SMALL)
    assert made.measures[0].chosen == ("lr",)
    found = summarise(made, computed(made, folder))
    assert found.choice[found.choice["chosen"] == "true"]["value"].tolist() == ["0.01"]
    assert set(found.numbers["setting"]) == {"average;tune+examples~100"}


def test_ways_of_tuning_can_be_shown_side_by_side(folder):
    entry = {**TUNED, "tune": {"layers": ["all", "last"], "examples": 100}, "show": ["layers"]}
    table = {"rows": ["layers"], "columns": ["clients"]}
    made = exhibit(methods=[entry], sweep=ONCE, drawing=table, **SMALL)
    frame = summarise(made, computed(made, folder)).numbers
    found = frame[(frame["metric"] == "accuracy") & (frame["split"] == "test")]
    assert found["layers"].tolist() == ["all", "last"]
    assert found["mean"].nunique() == 2


def test_a_spread_may_be_over_clients(folder):
    """The sample sd over clients of their means over trials; of the others all is as ever."""
    tuned = {**LINE, "spread": "clients", "tune": {"examples": 50, "repetitions": 2}}
    local = {"name": "local", "label": "Local", "spread": "clients"}
    made = exhibit(methods=[local, tuned, PLAIN], sweep=ONCE, **SMALL)
    tables = computed(made, folder)
    frame = summarise(made, tables).numbers
    accuracy = frame[(frame["metric"] == "accuracy") & (frame["split"] == "test")]
    found = accuracy.set_index("method")
    (run,) = [run for run in made.runs if run.method.name == "local"]
    rows = tables[run].to_pandas()
    own = rows[rows["client"].notna() & (rows["metric"] == "accuracy")]
    for label, phase in (("Local", "final"), ("L", "tuned")):
        means = own[own["phase"] == phase].groupby("client")["value"].mean()
        assert found.loc[label, "clients_sd"] == pytest.approx(means.std(ddof=1))
        assert found.loc[label, "sd"] != found.loc[label, "clients_sd"]
    assert np.isnan(found.loc["A", "clients_sd"])
    shown = as_shown(accuracy).set_index("method")["sd"]
    assert shown["Local"] == found.loc["Local", "clients_sd"]
    assert shown["A"] == found.loc["A", "sd"]
    assert made.caption.endswith("The spread of Local and L is over clients.")


def test_a_printed_spread_over_clients_is_no_error_of_a_mean():
    """Beside its like it is shown; by it a verdict would be milder than the trials allow."""
    made = small(methods=[{"name": "local", "label": "L", "spread": "clients"}], sweep=ONCE)
    row = {"clients": 3, "method": "L", "metric": "accuracy", "split": "test", "mean": 0.25}
    given = PrintedValue("x", {}, "L", "accuracy", "test", 0.2, 0.1, 5, "", 0.01, "here")
    for spread, verdict, shown in ((0.2, "better", 0.2), (math.nan, "reproduced", 0.001)):
        ours = pd.DataFrame([{**row, "sd": 0.001, "trials": 5, "clients_sd": spread}])
        (found,) = printed_rows(made, [given], ours, {}).to_dict("records")
        assert (found["verdict"], found["sd"]) == (verdict, shown)


def test_spread_over_clients_and_tuning_leave_no_trace_where_none_is_asked_for(folder):
    made = exhibit(methods=[PLAIN, {"name": "local"}], sweep=ONCE, **SMALL)
    tables = computed(made, folder)
    assert "clients_sd" not in summarise(made, tables).numbers
    assert made.caption == "a caption"
    names = {name for one in tables.values() for name in one.column_names}
    assert not {name for name in names if "tune" in name or name == "repetition"}
    made = exhibit(methods=[{**PLAIN, "spread": "clients"}], sweep=ONCE, **SMALL)
    with pytest.raises(FedreproError, match="average has no numbers of single clients, so it has"):
        summarise(made, computed(made, folder))

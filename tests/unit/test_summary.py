"""The tables behind a figure: means, sample sds, and how a setting of a sweep is chosen."""

from __future__ import annotations

import math
import os
import statistics
from pathlib import Path

import pyarrow as pa
import pytest
from small_exhibits import file_of
from synthetic import KEY, SOURCE, plan, plausible, tables_of, workplace, write_runs

from fedrepro.core.artifacts import read_table, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import LEADING, METRICS
from fedrepro.numbers.exhibit_tables import (
    cell_value,
    csv_text,
    read_csv,
    read_metrics,
    summarise,
    tidy,
)
from fedrepro.planning.config import Config, ExhibitFile, load_exhibits
from fedrepro.planning.plan import Plan

__all__ = ["workplace"]
pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The tables of plausible metrics, once for tests that only look at them."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("usual"))
    try:
        return summary()
    finally:
        os.chdir(before)


def summary(made=None, values=plausible, key=KEY):
    made = made or plan()
    exhibit = made.exhibit(key)
    return summarise(exhibit, tables_of(made, key, values))


def choosing(choose: str) -> Plan:
    """The tiny plan with another rule of choice."""
    file = load_exhibits()["pfnm"]
    methods = [dict(method) for method in file.defaults["methods"]]
    methods[0]["choose"] = choose
    defaults = {**file.defaults, "methods": methods}
    changed = ExhibitFile.model_validate({**file.model_dump(), "defaults": defaults})
    return Plan(Config(), {"pfnm": changed}, "tiny")


def chosen(found) -> list[str]:
    rows = found.choice[found.choice["chosen"] == "true"]
    return rows["setting"].tolist()


def replacing(metric: str, split: str, change):
    """Plausible values, with one metric on one split replaced by change(token, trial)."""

    def values(token, clients, trial, found_metric, found_split):
        if (found_metric, found_split) == (metric, split):
            return change(token, trial)
        return plausible(token, clients, trial, found_metric, found_split)

    return values


def test_columns_are_the_swept_parameter_and_then_the_numbers(usual):
    assert list(usual.numbers.columns) == [
        *("clients", "method", "metric", "split", "mean", "sd", "trials", "by_trial"),
        *("setting", "paired_mean", "paired_with"),
    ]
    assert next(iter(usual.choice.columns)) == "clients"


def test_mean_and_sample_sd_are_those_over_trials(usual):
    numbers = usual.numbers
    wanted = (numbers["method"] == "U-Ens") & (numbers["split"] == "test")
    row = numbers[wanted & (numbers["clients"] == 4)].iloc[0]
    values = [plausible("uniform_ensemble", 4, t, "accuracy", "test") for t in range(2)]
    assert row["mean"] == statistics.mean(values)
    assert row["sd"] == statistics.stdev(values)
    assert row["trials"] == 2
    assert [float(value) for value in row["by_trial"].split()] == pytest.approx(values)


def test_a_single_trial_has_an_empty_sd(usual):
    numbers = usual.numbers
    distilled = numbers[numbers["method"] == "KD"]
    assert set(distilled["trials"]) == {1}
    assert distilled["sd"].isna().all()
    read = read_csv(csv_text(distilled))  # a lone value stays a text
    assert read["by_trial"].tolist() == distilled["by_trial"].tolist()
    line = next(x for x in csv_text(numbers).splitlines() if ",KD,accuracy,test," in x)
    assert line.split(",")[5] == ""


def test_equal_values_have_an_sd_of_exactly_zero():
    values = replacing("accuracy", "test", lambda token, trial: 0.1 + 0.2)
    numbers = summary(values=values).numbers
    rows = numbers[(numbers["metric"] == "accuracy") & (numbers["split"] == "test")]
    assert set(rows["sd"].dropna()) == {0.0}


def test_of_a_setting_left_out_in_some_trial_nothing_is_kept_but_in_which():
    values = replacing("left_out", "", lambda token, trial: token == "average" and trial == 1)
    numbers = summary(values=values).numbers
    own = numbers[numbers["method"] == "parameter average"]
    assert own["metric"].tolist() == ["left_out"] * 2
    assert own["by_trial"].tolist() == ["0 1"] * 2
    assert own["mean"].tolist() == [0.5] * 2


def test_order_is_point_method_metric_split(usual):
    numbers = usual.numbers
    labels = [measure.label for measure in plan().exhibit(KEY).measures]
    metrics = list(METRICS)
    places = [
        (row.clients, labels.index(row.method), metrics.index(row.metric), row.split)
        for row in numbers.itertuples()
    ]
    assert places == sorted(places)


def test_a_method_of_another_scenario_appears_at_every_point(usual):
    numbers = usual.numbers
    pooled = numbers[numbers["method"] == "pooled training"]
    two, four = (
        pooled[pooled["clients"] == j].drop(columns=["clients", "paired_mean"]) for j in (2, 4)
    )
    assert len(two)
    assert two.to_dict("records") == four.to_dict("records")


@pytest.mark.parametrize(
    ("rule", "metric", "wanted"),
    [
        ("pooled_train", "accuracy", "pfnm+sigma2~0.1"),
        ("client_train", "accuracy_clients", "pfnm+sigma2~0.05"),
    ],
)
def test_the_setting_with_the_best_training_accuracy_is_chosen_for_each_point(rule, metric, wanted):
    values = replacing(metric, "train", lambda token, trial: float(token == wanted))
    found = summary(choosing(rule), values)
    assert chosen(found) == [wanted] * 2
    assert set(found.numbers[found.numbers["method"] == "PFNM"]["setting"]) == {wanted}


SCORES = {"pfnm+sigma2~0.05": (1.0, 0.1), "pfnm+sigma2~0.5": (0.6, 0.7)}


@pytest.mark.parametrize(
    ("of_training", "wanted"),
    [
        # each trial prefers another setting; the mean decides
        (lambda token, trial: SCORES.get(token, (0.0, 0.0))[trial], "pfnm+sigma2~0.5"),
        # of equal ones that which is written first, also where they differ by rounding
        (lambda token, trial: 0.5, "pfnm+sigma2~0.01"),
        (lambda token, trial: 0.3 if token == "pfnm" else 0.1 + 0.2 - 2**-53, "pfnm+sigma2~0.01"),
    ],
)
def test_one_setting_is_chosen_over_all_trials(of_training, wanted):
    assert chosen(summary(values=replacing("accuracy", "train", of_training))) == [wanted] * 2


@pytest.mark.parametrize("choose", ["pooled_train", "client_train"])
def test_the_choice_does_not_read_the_test_split(choose):
    made = choosing(choose)
    before = chosen(summary(made))
    for change in (lambda token, trial: 0.0, lambda token, trial: float("sigma2" not in token)):
        assert chosen(summary(made, replacing("accuracy", "test", change))) == before


def test_every_setting_at_every_point_is_in_the_choice_table(usual):
    found = usual.choice
    assert len(found) == 2 * 8
    assert found["parameter"].unique().tolist() == ["sigma2"]
    assert found["value"].tolist()[:5] == ["0.01", "0.05", "0.1", "0.5", "1"]
    assert found[found["chosen"] == "true"]["clients"].tolist() == [2, 4]
    row = found.iloc[0]
    train = [plausible("pfnm+sigma2~0.01", 2, t, "accuracy", "train") for t in range(2)]
    assert row["criterion_mean"] == statistics.mean(train)
    assert row["hidden_units"] == 80.5
    assert found["hidden_units"].notna().all()
    assert "parameters" in found


def test_csv_has_unix_lines_and_reads_back_to_the_same_numbers(usual):
    text = csv_text(usual.numbers)
    assert "\r" not in text
    assert csv_text(read_csv(text)) == text
    assert usual.numbers["mean"].tolist() == pytest.approx(list(read_csv(text)["mean"]), rel=1e-9)


def test_numbers_and_tidy_metrics_do_not_depend_on_how_jobs_were_cut():
    exports = []
    for size in (1, 5):
        made = plan(granularity={"trials_per_job": size})
        given = made.exhibit(KEY), tables_of(made)
        exports.append((csv_text(summarise(*given).numbers), tidy(*given).to_pylist()))
    assert exports[0] == exports[1]


def test_tidy_metrics_hold_every_row_of_every_run_once():
    made = plan()
    exhibit, tables = made.exhibit(KEY), tables_of(made)
    whole = tidy(exhibit, tables)
    # distillation has fewer trials than its file
    asked = [
        sum(trial < exhibit.trials[run] for trial in table["trial"].to_pylist())
        for run, table in tables.items()
    ]
    assert whole.num_rows == sum(asked) < sum(table.num_rows for table in tables.values())
    assert tuple(whole.column_names[: len(LEADING)]) == LEADING


def test_trials_of_before_and_after_a_parameter_was_added_are_read_together():
    """In either order: an older file has no column for it."""
    made = plan()
    run = next(r for r, n in made.exhibit(KEY).trials.items() if r.method.name == "pfnm" and n == 2)
    write_runs(made)
    (path,) = made.run_files(run, 2)
    rows = read_table(Path(path), "metrics")
    added = pa.array([0.5] * len(rows))
    write_table(Path("newer.parquet"), rows.append_column("method_added", added), "metrics", SOURCE)
    found = read_metrics([path, "newer.parquet"]).rows
    assert found["method_added"].to_pylist() == [None] * len(rows) + added.to_pylist()
    assert sorted(read_metrics(["newer.parquet", path]).rows.column_names) == sorted(
        found.column_names
    )


def without(metric, table):
    return table.filter([name != metric for name in table["metric"].to_pylist()])


@pytest.mark.parametrize(
    ("rule", "cut", "sentence"),
    [
        ("pooled_train", lambda table: table.slice(0, 40), "clients 2: pfnm.* in each of 2 trials"),
        ("pooled_train", lambda table: table.slice(0, 0), "the metrics hold nothing of pfnm"),
        (
            "client_train",
            lambda table: without("accuracy_clients", table),
            "chosen by accuracy_clients on the train split",
        ),
    ],
)
def test_rows_that_are_missing_are_named(rule, cut, sentence):
    made = choosing(rule)
    tables = {r: cut(t) if r.method.name == "pfnm" else t for r, t in tables_of(made).items()}
    with pytest.raises(FedreproError, match=sentence):
        summarise(made.exhibit(KEY), tables)


def test_a_missing_file_of_a_run_is_a_sentence():
    with pytest.raises(FedreproError, match="missing or damaged"):
        read_metrics(plan().metrics_files(plan().exhibit(KEY))[:1])


@pytest.mark.parametrize("first", [True, False])
def test_a_criterion_that_is_not_a_number_is_never_chosen(first):
    lost = "pfnm+sigma2~0.01" if first else "pfnm+sigma2~10"
    values = replacing("accuracy", "train", lambda token, trial: math.nan if token == lost else 0.5)
    assert lost not in chosen(summary(values=values))


def test_no_setting_with_a_criterion_is_a_sentence():
    values = replacing("accuracy", "train", lambda token, trial: math.nan)
    with pytest.raises(FedreproError, match="is not a number for any of them"):
        summary(values=values)


@pytest.mark.parametrize("kept", [False, True])
def test_a_table_keeps_single_rounds_only_where_it_is_asked_to(kept):
    methods = [{"name": "fedavg", "label": "FedAvg"}]
    file = file_of(methods=methods, by_rounds=kept)
    numbers = summary(Plan(Config(), {"small": file}, "quick"), key="small/x").numbers
    assert ("round" in numbers) == kept
    ended = numbers[numbers["round"].isna()] if kept else numbers
    assert not ended.duplicated(["clients", "method", "metric", "split"]).any()
    if kept:
        assert set(numbers["round"].dropna()) == {1, 2, 3}


def test_shown_values_are_numbers_as_they_are_and_anything_else_as_text():
    found = [cell_value(value) for value in (2, 0.5, True, False, "x", (1, 2), None)]
    assert found[:2] == [2, 0.5]
    assert found[2:5] == ["true", "false", "x"]
    assert all(isinstance(value, str) for value in found[2:])

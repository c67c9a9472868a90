"""Rules of choice, and the tables behind a figure: means, sample sds, the setting of a sweep."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from small_exhibits import file_of, small
from synthetic import KEY, ROOT, SOURCE, plan, plausible, tables_of, workplace, write_runs

from fedrepro.api import DISCLOSED
from fedrepro.core.checksummed_files import read_table, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule_and_successive_halving import SELECTION_RULES, SelectionRule
from fedrepro.core.metrics import LEADING, METRICS, MetricRow, Table
from fedrepro.core.registry import components
from fedrepro.numbers.tables_and_selection import (
    Candidate,
    candidates,
    criterion_of,
    csv_text,
    of_settings,
    read_csv,
    read_metrics,
    select_setting,
    summarise,
    tidy,
)
from fedrepro.numbers.trial_statistics import last_series
from fedrepro.planning.config_files import Config, ExhibitFile, load_exhibits
from fedrepro.planning.exhibit_methods import ExhibitMethod, Setting
from fedrepro.planning.plan import Plan

FEDERATED = {"name": "downpour_sgd", "label": "D", "rounds": [2, 3]}
CURVE = {"metric": "accuracy", "split": "server_validation"}


def rule(**changes) -> SelectionRule:
    return SelectionRule(**{**vars(SELECTION_RULES["server"]), **changes})


def curves(metric: str, split: str, *each: dict[int, float]) -> pd.DataFrame:
    """The rows of one setting: a curve, round -> value, for each trial."""
    rows = [
        (trial, done, "final" if done is None else "round", metric, split, value)
        for trial, curve in enumerate(each)
        for done, value in curve.items()
    ]
    return pd.DataFrame(rows, columns=["trial", "round", "phase", "metric", "split", "value"])


def rows_of(measure, *each):
    """Curves of settings on the server's examples, for each trial, and what they ended with."""
    found = {}
    for setting, lines in zip(measure.settings, each, strict=True):
        rows = curves("accuracy", "server_validation", *lines)
        ends = [line[max(line)] if line else math.nan for line in lines]
        end = curves("accuracy", "server_validation", *({None: value} for value in ends))
        reached = ({None: 1.0 if 0.9 in line.values() else math.inf} for line in lines)
        parts = [rows, end, curves("rounds_to_target", "", *reached)]
        found[setting] = pd.concat(parts).assign(client=None, setting=setting.token)
    return found


def read(rows: pd.DataFrame, choice: SelectionRule, trials: int, series=None):
    setting = Setting(components("method")["downpour_sgd"].spec())
    return criterion_of(rows, series or {}, choice, setting, trials, "here")


def exhibit(**entry):
    return small(methods=[{**FEDERATED, **entry}])


def test_every_rule_reads_a_directed_metric_and_says_what_choosing_discloses():
    for name, choice in SELECTION_RULES.items():
        assert (choice.name, choice.split == "test") == (name, False)
        assert METRICS[choice.metric].better
        assert choice.need in DISCLOSED
        assert choice.words
    (measure,) = exhibit(choose=CURVE | {"over": "half"}).measures
    assert measure.needs == {"rounds"}
    assert measure.rule.need == "server_validation"
    assert measure.evaluate == ("test", "server_validation")
    assert measure.choose.name == "accuracy on server_validation, half"
    # nothing is disclosed where nothing is chosen
    (measure,) = exhibit(rounds=2, choose="server").measures
    assert (measure.rule, measure.evaluate) == (None, ("test",))
    (measure,) = exhibit(choose={"metric": "accuracy", "split": "train"}).measures
    assert measure.choose is SELECTION_RULES["pooled_train"]


def test_settings_that_end_early_are_compared_in_the_second_half_of_the_rounds_that_all_ran():
    """A setting that diverged shortens nothing, and is lost."""
    entry = {"until": 0.9, "rounds": 9, "training": {"lr": [0.1, 0.2, 9.0, 99.0]}}
    (measure,) = exhibit(choose=CURVE | {"over": "half"}, **entry).measures
    lines = (
        {1: 0.0, 2: 0.7, 3: 0.9, 4: 0.9},
        {1: 0.9, 2: 0.8, 3: 0.8, 4: 0.8, 5: 1.0, 6: 1.0},
        {1: 0.9, 2: math.nan},
        {1: 0.1, 2: 0.99, 3: 0.99},  # no client's update was finite, so the run ended
    )
    found = candidates(rows_of(measure, *([line] for line in lines)), measure, 1, "here")
    criteria = [found[setting].criterion[0] for setting in measure.settings]
    assert criteria == pytest.approx([0.85, 0.8, math.nan, math.nan], nan_ok=True)
    assert select_setting(found, measure, "here") is measure.settings[0]


@pytest.mark.parametrize("choose", [CURVE | {"over": "half"}, "race"])
@pytest.mark.parametrize("line", [{1: 0.9, 2: math.nan}, {}])
def test_where_every_setting_diverged_that_is_a_sentence(choose, line):
    """After a round or before the first that is measured; no round was run by all of them."""
    (measure,) = exhibit(choose=choose, training={"lr": [0.1, 9.0]}, rounds=9).measures
    found = candidates(rows_of(measure, *[[line, line]] * 2), measure, 2, "here")
    with pytest.raises(FedreproError, match="they have all diverged"):
        select_setting(found, measure, "here")
    assert select_setting(found, measure, "here", allow_all_failed=True) is measure.settings[0]


def test_a_setting_that_failed_in_a_trial_shortens_nothing_and_a_trial_without_number_stays():
    entry = {"until": 0.9, "rounds": 9, "training": {"lr": [0.1, 0.2, 9.0]}}
    (measure,) = exhibit(choose=CURVE | {"over": "half"}, **entry).measures
    line, early = {1: 0.0, 4: 0.6, 9: 0.8}, {1: 0.9}
    rows = rows_of(measure, [line] * 2, [line] * 2, [early] * 2)
    last = rows[measure.settings[2]]
    ends = last.query("phase == 'final' and metric == 'accuracy'").assign(split="test")
    failed = ends.query("trial == 0").assign(metric="failed", split="")
    rows[measure.settings[2]] = pd.concat([failed, *(x.query("trial == 1") for x in (ends, last))])
    found = candidates(rows, measure, 2, "here")
    assert found[measure.settings[0]].criterion == [0.8, 0.8]
    ends = ends.assign(value=[0.5, math.nan], dataset_name="d")
    assert [len(values) for values in of_settings(ends)[0].values()] == [2]


def test_a_setting_without_a_curve_has_not_diverged():
    (measure,) = exhibit(choose=CURVE | {"over": "half"}).measures
    rows = rows_of(measure, [{1: 0.1, 2: 0.5}], [{1: 0.8, 3: 0.9}])
    rows[measure.settings[1]] = rows[measure.settings[1]].query("phase == 'final'")
    with pytest.raises(FedreproError, match="in single rounds, which its metrics lack"):
        candidates(rows, measure, 1, "here")


def test_a_setting_that_stops_before_the_first_rung_of_a_trial_is_out_of_the_race():
    (measure,) = exhibit(choose="race", training={"lr": [0.1, 9.0]}, rounds=200).measures
    whole, stopped = {25: 0.5, 50: 0.6, 100: 0.7}, {20: 0.1}
    for lines in ([stopped, stopped], [whole, stopped]):
        found = candidates(rows_of(measure, [whole, whole], lines), measure, 2, "here")
        assert np.isnan(found[measure.settings[1]].criterion).all()
        assert select_setting(found, measure, "here") is measure.settings[0]


# a straight line has the mean of its ends, however densely it is measured
SPARSE, DENSE = {1: 0.1, 11: 0.6}, {done: 0.1 + 0.05 * (done - 1) for done in (1, 2, 3, 7, 11)}


@pytest.mark.parametrize(
    ("changes", "lines", "wanted"),
    [
        ({}, [{1: 0.9}, {1: 0.9}], [0.3, 0.4]),  # of the final model
        ({"over": "race"}, [{1: 0.2, 2: 0.6, 3: 0.5}, {1: 0.1, 2: 0.3}], [0.5, 0.3]),
        ({"over": "half"}, [SPARSE, DENSE, {4: 0.7}], [0.35, 0.35, 0.7]),
    ],
)
def test_a_rule_reads_a_number_of_each_trial(changes, lines, wanted):
    choice = rule(**changes)
    series = {(choice.metric, choice.split): [0.3, 0.4, 0.5][: len(lines)]}
    rows = curves(choice.metric, choice.split, *lines)
    assert read(rows, choice, len(lines), series) == pytest.approx(wanted)


def test_a_curve_is_lost_where_a_round_or_its_end_is_no_number():
    rows, choice = curves("accuracy", "server_validation", {1: 0.9, 2: 0.8}), rule(over="half")
    for end, lost in ((math.inf, True), (math.nan, True), (0.0, False)):
        (found,) = read(rows, choice, 1, {(choice.metric, choice.split): [end]})
        assert math.isnan(found) == lost, end
    rows = curves("accuracy", "server_validation", {1: 0.9, 2: math.nan, 3: 0.8})
    assert math.isnan(read(rows, choice, 1)[0])
    with pytest.raises(FedreproError, match="server_validation split in single rounds"):
        read(rows, choice, 2)  # a trial without the curve


def chosen(choice: SelectionRule, *means: float, lost_stay: bool = False, series=None) -> int:
    """Which of as many settings, with these criteria, is chosen."""
    spec = components("method")["downpour_sgd"].spec({"rounds": list(range(1, 1 + len(means)))})
    settings = [Setting(one) for one in spec.expand()]
    measure = ExhibitMethod(spec, "D", None, choice, reference=False, settings=tuple(settings))
    found = {s: Candidate(series or {}, [mean]) for s, mean in zip(settings, means, strict=True)}
    return settings.index(select_setting(found, measure, "here", allow_all_failed=lost_stay))


def test_more_is_better_or_less_and_a_setting_that_failed_is_not_chosen():
    assert chosen(rule(), 0.1, 0.7, 0.4) == 1
    assert chosen(rule(metric="bytes_up"), 3.0, 7.0, 2.0) == 2
    assert chosen(rule(metric="rounds"), math.inf, 7.0, 9.0) == 1  # never reached is not chosen
    assert chosen(rule(), math.nan, 0.4, 0.7, lost_stay=True) == 2


__all__ = ["workplace"]
pytestmark = pytest.mark.usefixtures("workplace")


def summary(made=None, values=plausible, key=KEY):
    made = made or plan()
    return summarise(made.exhibit(key), tables_of(made, key, values))


@cache
def choosing(choose: str) -> Plan:
    """The tiny plan with another rule of choice."""
    file = load_exhibits()["pfnm"]
    first, *others = file.defaults["methods"]
    defaults = file.defaults | {"methods": [first | {"choose": choose}, *others]}
    changed = ExhibitFile.model_validate(file.model_dump() | {"defaults": defaults})
    return Plan(Config(), {"pfnm": changed}, "tiny")


def chosen_settings(found) -> list[str]:
    return found.choice[found.choice["chosen"] == "true"]["setting"].tolist()


def replacing(metric: str, split: str, change):
    """Plausible values, with one metric on one split replaced by change(token, trial)."""

    def values(token, clients, trial, *found):
        if found == (metric, split):
            return change(token, trial)
        return plausible(token, clients, trial, *found)

    return values


RECORD = ROOT / "reports/record/paper"
SUMMARISED = (
    *("arena/1-starts", "fedavg/table-1-cnn", "gems/table-1-mnist", "gems/table-7"),
    *("p2p/table-accuracy", "pfnm/equal-size", "pfnm/figure-2a", "rm/table-2-one-class"),
)


@pytest.mark.parametrize("key", SUMMARISED)
def test_tables_of_the_record_come_out_of_its_metrics_again(key):
    """With means, sds, single trials, what was left out, and every setting that was tried."""
    exhibit, metrics = plan("paper").exhibit(key), pq.read_table(RECORD / f"{key}.metrics.parquet")
    if "phase" not in metrics.column_names:  # an older record
        phases = pc.if_else(pc.is_null(metrics["round"]), "final", "round").cast(pa.string())
        metrics = metrics.append_column("setting", metrics["method"])
        metrics = metrics.append_column("phase", phases)
    found = summarise(exhibit, {run: rows_of_run(run, metrics) for run in exhibit.trials})
    text = (RECORD / f"{key}.csv").read_text()
    assert csv_text(found.numbers) == text
    assert csv_text(read_csv(text)) == text
    if (path := RECORD / f"{key}.choice.csv").exists():
        choice = path.read_text()  # an older one has fewer costs
        assert csv_text(found.choice[choice.split("\n")[0].split(",")]) == choice


def rows_of_run(run, table):
    """Rows of a run, of any of its settings, among those of an exhibit."""
    training = run.scenario.training
    row = MetricRow(0, next(run.method.expand()), "accuracy", 0.0, training=next(training.expand()))
    (given,) = Table(run.scenario.specs, [row]).arrow().to_pylist()
    kinds = tuple(f"{spec.kind}_" for spec in run.scenario.specs)
    swept = {f"training_{key}" for key in training.swept}
    for name in given.keys() & set(table.column_names) - swept:
        if name.startswith(kinds):
            own, value = pc.field(name), given[name]
            table = table.filter(own.is_null() if value is None else own == value)
    return table


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
    found = summary(values=replacing("accuracy", "train", of_training))
    assert chosen_settings(found) == [wanted] * 2


@pytest.mark.parametrize("choose", ["pooled_train", "client_train"])
def test_the_choice_does_not_read_the_test_split(choose):
    made = choosing(choose)
    before = chosen_settings(summary(made))
    for change in (lambda token, trial: 0.0, lambda token, trial: float("sigma2" not in token)):
        assert chosen_settings(summary(made, replacing("accuracy", "test", change))) == before


def test_numbers_do_not_depend_on_how_jobs_were_cut_and_tidy_metrics_hold_every_row_once():
    exports = []
    for size in (1, 5):
        made = plan(granularity={"trials_per_job": size})
        given = made.exhibit(KEY), tables_of(made)
        exports.append((csv_text(summarise(*given).numbers), tidy(*given).to_pylist()))
    assert exports[0] == exports[1]
    exhibit, tables = plan().exhibit(KEY), tables_of(plan())
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
    made, newer = plan(), "newer.parquet"
    run = next(r for r, n in made.exhibit(KEY).trials.items() if r.method.name == "pfnm" and n == 2)
    write_runs(made)
    (path,) = made.run_files(run, 2)
    rows = read_table(Path(path), "metrics")
    added = pa.array([0.5] * len(rows))
    write_table(Path(newer), rows.append_column("method_added", added), "metrics", SOURCE)
    found, other = (read_metrics(paths)[0] for paths in ([path, newer], [newer, path]))
    assert found["method_added"].to_pylist() == [None] * len(rows) + added.to_pylist()
    assert sorted(other.column_names) == sorted(found.column_names)


@pytest.mark.parametrize(
    ("rule", "cut", "sentence"),
    [
        ("pooled_train", lambda table: table.slice(0, 40), "clients 2: pfnm.* in each of 2 trials"),
        ("pooled_train", lambda table: table.slice(0, 0), "the metrics hold nothing of pfnm"),
        ("client_train", lambda table: table.filter(pc.field("metric") != "accuracy_clients"),
         "chosen by accuracy_clients on the train split"),
    ],
)  # fmt: skip
def test_rows_that_are_missing_are_named(rule, cut, sentence):
    made = choosing(rule)
    tables = {r: cut(t) if r.method.name == "pfnm" else t for r, t in tables_of(made).items()}
    with pytest.raises(FedreproError, match=sentence):
        summarise(made.exhibit(KEY), tables)


def test_rounds_that_a_trial_did_not_come_to_are_no_rows():
    """It diverged, or reached its target; a mean over last rounds that it lacks is no number."""
    file = file_of(methods=[{"name": "fedavg", "label": "FedAvg"}], by_rounds=True)
    made = Plan(Config(), {"small": file}, "quick")
    frames = {run: table.to_pandas() for run, table in tables_of(made, "small/x").items()}
    left = {r: f[(f["round"] != 3) | (f["trial"] != 1)] for r, f in frames.items()}
    tables = {r: pa.Table.from_pandas(f, preserve_index=False) for r, f in left.items()}
    assert set(summarise(made.exhibit("small/x"), tables).numbers["round"].dropna()) == {1, 2}
    rows = curves("accuracy", "test", {1: 0.5, 2: 0.6, 3: 0.7}, {1: 0.5, 2: math.nan}, {2: 0.4})
    own = curves("entropy", "", {1: 1.0, 2: 1.0, 3: 1.0}, {1: 2.0, 2: 2.0}, {2: 3.0})
    found = last_series(pd.concat([rows, own]).assign(client=None), 3, 3, "here")
    assert found["accuracy", "test"] == pytest.approx([0.6, math.nan, 0.4], nan_ok=True)
    assert found["entropy", ""] == pytest.approx([1.0, math.nan, 3.0], nan_ok=True)


def test_a_setting_that_is_left_out_does_not_compete_and_all_of_them_stay_left_out():
    undefined = {("left_out", ""): [1.0, 0.0]}
    rows = curves("accuracy", "server_validation", {None: 0.9}, {None: 0.9})
    assert np.isnan(read(rows, rule(), 2, undefined)).all()
    assert chosen(rule(), math.nan, math.nan, series=undefined) == 0


@pytest.mark.parametrize("kept", [False, True])
def test_a_table_keeps_single_rounds_only_where_it_is_asked_to(kept):
    file = file_of(methods=[{"name": "fedavg", "label": "FedAvg"}], by_rounds=kept)
    numbers = summary(Plan(Config(), {"small": file}, "quick"), key="small/x").numbers
    assert ("round" in numbers) == kept
    ended = numbers[numbers["round"].isna()] if kept else numbers
    assert not ended.duplicated(["clients", "method", "metric", "split"]).any()
    assert not kept or set(numbers["round"].dropna()) == {1, 2, 3}

"""The rules of choice: one table of them, and how each reads its number from the metrics."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from small_exhibits import small

from fedrepro.api import DISCLOSED
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import METRICS
from fedrepro.core.registry import components
from fedrepro.core.selection_rules import SELECTION_RULES, SelectionRule
from fedrepro.numbers.setting_selection import Candidate, candidates, criterion_of, select_setting
from fedrepro.planning.exhibit_methods import ExhibitMethod, Setting

FEDERATED = {"name": "downpour_sgd", "label": "D", "rounds": [2, 3]}
CURVE = {"metric": "accuracy", "split": "server_validation"}


def rule(**changes) -> SelectionRule:
    base = SELECTION_RULES["server"]
    return SelectionRule(**{**vars(base), **changes})


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
        found[setting] = pd.concat([rows, end]).assign(client=None, setting=setting.token)
    return found


def read(rows: pd.DataFrame, choice: SelectionRule, trials: int, series=None):
    setting = Setting(components("method")["downpour_sgd"].spec())
    return criterion_of(rows, series or {}, choice, setting, trials, "here")


def exhibit(**entry):
    return small(methods=[{**FEDERATED, **entry}])


def test_every_rule_reads_a_directed_metric_off_test_data_and_says_what_it_discloses():
    for name, choice in SELECTION_RULES.items():
        assert (choice.name, choice.split == "test") == (name, False)
        assert METRICS[choice.metric].better
        assert choice.need in DISCLOSED
        assert choice.words


def test_settings_that_end_early_are_compared_in_the_second_half_of_the_rounds_that_all_ran():
    """What the second setting reaches after the first has ended does not count, nor does what
    either was before half of those rounds; one that diverged shortens nothing, and is lost."""
    entry = {"until": 0.9, "rounds": 9, "training": {"lr": [0.1, 0.2, 9.0]}}
    (measure,) = exhibit(choose=CURVE | {"over": "half"}, **entry).measures
    lines = (
        {1: 0.0, 2: 0.7, 3: 0.9, 4: 0.9},
        {1: 0.9, 2: 0.8, 3: 0.8, 4: 0.8, 5: 1.0, 6: 1.0},
        {1: 0.9, 2: math.nan},
    )
    found = candidates(rows_of(measure, *([line] for line in lines)), measure, 1, "here")
    criteria = [found[setting].criterion[0] for setting in measure.settings]
    assert criteria == pytest.approx([0.85, 0.8, math.nan], nan_ok=True)
    assert select_setting(found, measure, "here") is measure.settings[0]


@pytest.mark.parametrize("rule_of", ["half", "race"])
@pytest.mark.parametrize("line", [{1: 0.9, 2: math.nan}, {}])
def test_where_every_setting_diverged_that_is_a_sentence(rule_of, line):
    """After a round or before the first that is measured; no round was run by all of them."""
    entry = {"training": {"lr": [0.1, 9.0]}, "rounds": 9}
    (measure,) = exhibit(choose=CURVE | {"over": rule_of}, **entry).measures
    found = candidates(rows_of(measure, *[[line, line]] * 2), measure, 2, "here")
    with pytest.raises(FedreproError, match="they have all diverged"):
        select_setting(found, measure, "here")
    assert select_setting(found, measure, "here", allow_all_failed=True) is measure.settings[0]


# a straight line has the mean of its ends, however densely it is measured
SPARSE, DENSE = {1: 0.1, 11: 0.6}, {done: 0.1 + 0.05 * (done - 1) for done in (1, 2, 3, 7, 11)}


@pytest.mark.parametrize(
    ("changes", "lines", "wanted"),
    [
        ({}, [{1: 0.9}, {1: 0.9}], [0.3, 0.4]),  # of the final model
        ({"over": "best"}, [{1: 0.2, 2: 0.6, 3: 0.5}, {1: 0.1, 2: 0.3}], [0.6, 0.3]),
        ({"over": "best", "metric": "bytes_up"}, [{1: 5.0, 2: 2.0, 3: 3.0}], [2.0]),
        ({"over": "area"}, [SPARSE, DENSE, {4: 0.7}], [0.35, 0.35, 0.7]),
    ],
)
def test_a_rule_reads_a_number_of_each_trial(changes, lines, wanted):
    choice = rule(**changes)
    series = {(choice.metric, choice.split): [0.3, 0.4, 0.5][: len(lines)]}
    rows = curves(choice.metric, choice.split, *lines)
    assert read(rows, choice, len(lines), series) == pytest.approx(wanted)


@pytest.mark.parametrize("over", ["best", "area"])
def test_a_round_that_is_not_a_number_spoils_the_curve(over):
    rows = curves("accuracy", "server_validation", {1: 0.9, 2: math.nan, 3: 0.8})
    assert math.isnan(read(rows, rule(over=over), 1)[0])
    with pytest.raises(FedreproError, match="server_validation split in single rounds"):
        read(rows, rule(over=over), 2)  # a trial without the curve


@pytest.mark.parametrize(("end", "lost"), [(math.inf, True), (math.nan, True), (0.0, False)])
def test_a_curve_is_lost_where_its_end_is_no_number(end, lost):
    rows = curves("accuracy", "server_validation", {1: 0.9, 2: 0.8})
    choice = rule(over="half")
    (found,) = read(rows, choice, 1, {(choice.metric, choice.split): [end]})
    assert math.isnan(found) == lost


def chosen(choice: SelectionRule, *means: float, lost_stay: bool = False) -> int:
    """Which of as many settings, with these criteria, is chosen."""
    spec = components("method")["downpour_sgd"].spec({"rounds": list(range(1, 1 + len(means)))})
    settings = [Setting(one) for one in spec.expand()]
    measure = ExhibitMethod(spec, "D", None, choice, reference=False, settings=tuple(settings))
    found = {s: Candidate({}, [mean]) for s, mean in zip(settings, means, strict=True)}
    return settings.index(select_setting(found, measure, "here", allow_all_failed=lost_stay))


def test_a_setting_that_diverged_before_the_first_measured_round_is_lost():
    choice = rule(over="area")
    rows = curves(choice.metric, choice.split, {})
    ends = {(choice.metric, choice.split): [math.nan]}
    assert math.isnan(read(rows, choice, 1, ends)[0])


def test_more_is_better_or_less_as_the_metric_says():
    assert chosen(rule(), 0.1, 0.7, 0.4) == 1
    assert chosen(rule(metric="bytes_up"), 3.0, 7.0, 2.0) == 2
    assert chosen(rule(metric="rounds"), math.inf, 7.0, 9.0) == 1  # never reached is not chosen


def test_where_all_failed_the_first_may_stand_for_them_and_only_then():
    assert chosen(rule(), math.nan, 0.4, 0.7, lost_stay=True) == 2
    assert chosen(rule(), math.nan, math.nan, lost_stay=True) == 0
    with pytest.raises(FedreproError, match="they have all diverged"):
        chosen(rule(), math.nan, math.nan)


def test_a_rule_in_full_that_has_a_name_is_the_named_one():
    (measure,) = exhibit(choose={"metric": "accuracy", "split": "train"}).measures
    assert measure.choose is SELECTION_RULES["pooled_train"]


def test_what_is_handed_and_what_choosing_reads_are_two_things():
    (measure,) = exhibit(choose=CURVE | {"over": "area"}).measures
    assert measure.needs == {"rounds"}
    assert measure.discloses == {"server_validation"}
    assert measure.evaluate == ("test", "server_validation")
    assert measure.choose.name == "accuracy on server_validation, area"
    # nothing is disclosed where nothing is chosen
    (measure,) = exhibit(rounds=2, choose="server").measures
    assert (measure.discloses, measure.evaluate) == (frozenset(), ("test",))


@pytest.mark.parametrize(
    ("choose", "partition", "wanted"),
    [
        ("server", {"validation": 0}, "give it validation, a number, with validation_at: server"),
        ("public", {"validation": 20}, "give it public, a number$"),
        ("client_validation", {"validation": 20}, "a number, with validation_at: clients"),
    ],
)
def test_what_is_chosen_by_has_to_be_set_aside(choose, partition, wanted):
    with pytest.raises(FedreproError, match=rf"'D' reads the examples of .*{wanted}"):
        small(methods=[{**FEDERATED, "choose": choose}], partition={"name": "iid", **partition})


OFF_TRAIN = {"metric": "accuracy", "split": "train"}


@pytest.mark.parametrize(
    ("choose", "sentence"),
    [
        ("best", "the rules of choice are pooled_train, client_train, server"),
        ({"metric": "accuracy", "split": "test"}, "no other split may be"),
        ({"metric": "matched_share", "split": "train"}, "a setting is chosen by one of accuracy"),
        ({"metric": "accuracy"}, "split"),
        (OFF_TRAIN | {"over": "mean"}, "'end', 'best', 'area', 'half' or 'race'"),
        (None, "say how one is chosen .choose: pooled_train or client_train or server"),
    ],
)
def test_a_rule_that_is_none_is_a_sentence(choose, sentence):
    with pytest.raises(FedreproError, match=sentence):
        exhibit(choose=choose)


def test_rounds_are_for_methods_that_have_them():
    method = {"name": "pfnm", "sigma2": [0.1, 1.0], "choose": OFF_TRAIN | {"over": "best"}}
    with pytest.raises(FedreproError, match="'pfnm' has no rounds"):
        small(methods=[method])

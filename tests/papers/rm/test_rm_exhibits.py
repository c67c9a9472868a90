"""What config says of representation matching, its findings, and its drawing."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest
from findings import RECORD, asked, told
from small_exhibits import small
from synthetic import plan

from fedrepro.core.errors import FedreproError
from fedrepro.drawings.lines_and_layout import figure, rules

TWO = [{"name": "fedavg", "label": "A", "fraction": 0.5}, {"name": "average", "label": "B"}]
CASES = {"one": {"label": "one"}, "two": {"label": "two", "parameters": {"rounds": 4, "epochs": 2}}}


def parameters(**settings):
    """Of method A at each point: rounds, epochs, fraction."""
    exhibit = small(sweep={"partition.clients": [2]}, **{"methods": TWO, **settings})
    specs = [point.measures[0].spec for point in exhibit.points]
    return [tuple(spec[key] for key in ("rounds", "epochs", "fraction")) for spec in specs]


def test_a_parameter_is_for_all_methods_but_where_a_case_a_method_or_its_settings_say_otherwise():
    assert parameters(parameters={"rounds": 7, "fraction": 1.0}) == [(7, 1, 0.5)]
    assert parameters(parameters={"rounds": 7}, cases=CASES) == [(7, 1, 0.5), (4, 2, 0.5)]
    listed = {"settings": [{"rounds": 2}, {"rounds": 3}], "choose": "server"}
    assert parameters(methods=[TWO[0] | listed], parameters={"rounds": 7, "epochs": 3}) == [
        ((2, 3), 3, 0.5)
    ]
    with pytest.raises(FedreproError, match="unknown parameter 'round' in `parameters`"):
        parameters(parameters={"round": 7})


HYPER_PARAMETERS = plan().exhibit("rm/figure-3").settings.drawing
ADAPTIVE = [{"name": "adaptive_fedavg", "label": "AH"}]
DRAWN_CASES = {"one": {"label": "one"}, "two": {"label": "two"}}
SETTINGS = {
    "drawing": HYPER_PARAMETERS.model_dump(),
    "sweep": {"partition.clients": [2]},
    "cases": DRAWN_CASES,
}


def rows():
    """Two cases, three rounds, two trials; every number is another one."""
    names = ("mean_lr", "mean_steps", "sampled_lr", "sampled_steps", "reward")
    for at, (case, done, metric) in enumerate(product(DRAWN_CASES, (1, 2, 3), names)):
        one, two = (2 * at + 1) / 1000, (2 * at + 2) / 1000
        where = {"case": case, "round": done, "method": "AH", "metric": metric, "split": ""}
        yield where | {"mean": (one + two) / 2, "sd": 0.01, "by_trial": f"{one} {two}"}


def test_lines_are_means_and_dots_are_what_trials_drew():
    numbers = pd.DataFrame(rows())
    with rules():
        drawn = figure(small(methods=ADAPTIVE, **SETTINGS), numbers)
    for axes, followed in zip(drawn.axes, HYPER_PARAMETERS.panels, strict=True):
        own = numbers[numbers["metric"] == followed.metric]
        assert [y for line in axes.lines for y in line.get_ydata()] == list(own["mean"])
        drew = numbers.loc[numbers["metric"] == followed.dots, "by_trial"]
        clouds = [dots.get_offsets() for dots in axes.collections]
        dots = [y for cloud in clouds if len(cloud) == 6 for y in cloud[:, 1]]
        assert dots == [float(value) for text in drew for value in text.split()]


FLAT = told("rm")


def test_what_is_said_of_table_1_is_in_the_record():
    table = pd.read_csv(RECORD / "paper/rm/table-1.printed.csv").query("metric == 'accuracy'")
    good = table[table["verdict"] == "reproduced"]
    assert good["apart"].isna().sum() == 10
    assert sorted(good["method"][good["apart"].notna()]) == ["FA", *["FA+WD"] * 3]
    few = table[(table["verdict"] == "few trials") & table["method"].isin(["FA+RM", "FA+WD"])]
    assert few["case"].tolist() == ["C = 0.5, one class each"] * 2
    left = table.drop(index=[*good.index, *few.index])
    assert (len(left), (left["verdict"] == "worse").sum()) == (4, 2)
    assert set(left["case"]) == {"C = 1.0, one class each", "C = 0.5, one class each"}
    assert set(left["method"]) == {"FA+AH", "FA+RM+AH"}
    fa = 100 * table[table["method"] == "FA"]["difference"].abs().max()
    assert f"FA in all four cells, by {fa:.1f} at most" in FLAT
    apart = asked("rm/table-1", "range FA minus FA+WD", 2)
    assert f"with our λ is FA to {max(map(abs, apart)):.2f} points" in FLAT
    fixed = table[table["method"].isin(["FA", "FA+WD", "FA+RM"])]
    assert f"all {len(fixed)} accuracies are within 0.5 points of the printed ones" in FLAT
    assert fixed["difference"].abs().max() < 0.005


def test_no_setting_reaches_the_fixed_schedule_and_accuracy_falls_along_each():
    rows = pd.read_csv(RECORD / "paper/rm/sensitivity.csv").query("metric == 'accuracy'")
    of = rows[rows["split"] == "test"].groupby("method")["mean"].apply(list)
    assert all(values == sorted(values, reverse=True) for values in of)
    tried = [*of["FA+AH, hyper learning rate"], *of["FA+AH, window"]]
    assert len(tried) - 1 == 8  # one is that of table 1, in both
    assert 100 * max(tried) < asked("rm/sensitivity", "FA, least entropy at least_entropy=2")[0]
    assert "In none of the eight settings does it reach the fixed schedule" in FLAT

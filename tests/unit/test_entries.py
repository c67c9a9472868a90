"""What exhibits may say of their methods and cases, and what comes of it."""

from __future__ import annotations

import dataclasses

import pytest
from small_exhibits import file_of, small

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import SCENARIO
from fedrepro.planning.config import Config
from fedrepro.planning.entries import Case, ExhibitSettings
from fedrepro.planning.paths import Scenario
from fedrepro.planning.plan import Plan

TWO = [{"name": "average", "label": "A"}, {"name": "local", "label": "B", "trials": 5}]
CASES = {"one": {"label": "one"}, "two": {"label": "two"}}


def test_the_kinds_of_a_scenario_are_one_list():
    assert tuple(field.name for field in dataclasses.fields(Scenario)) == SCENARIO
    for entry in (Case, ExhibitSettings):
        assert [key for key in entry.model_fields if key in SCENARIO] == list(SCENARIO)


def trials(scale="quick", **settings) -> list[dict[str, int]]:
    """Trials of each method, by label, at each point."""
    found = small(scale, **{"sweep": {"partition.clients": [2]}, "methods": TWO, **settings})
    return [dict(point.trials) for point in found.points]


def test_a_method_has_the_trials_of_the_exhibit_or_its_own():
    assert trials() == [{"A": 2, "B": 5}]


def test_trials_of_a_method_differ_by_scale_without_repeating_the_methods():
    at = {"paper": {"trials": 9, "trials_of": {"B": 3}}}
    assert trials("paper", at=at) == [{"A": 9, "B": 3}]
    assert trials("quick", at=at) == [{"A": 2, "B": 5}]


def test_trials_of_a_method_differ_by_case():
    cases = {"one": {"label": "one", "trials": 4}, "two": {"label": "two", "trials_of": {"A": 7}}}
    assert trials(cases=cases) == [{"A": 4, "B": 5}, {"A": 7, "B": 5}]


def test_trials_of_a_method_that_is_nowhere_are_a_sentence():
    file = file_of(methods=TWO, trials_of={"b": 3})
    with pytest.raises(
        FedreproError, match=r"unknown method 'b' in trials_of of small/x.* known are A, B"
    ):
        Plan(Config(), {"small": file}, "quick")

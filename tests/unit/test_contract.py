"""What holds for every method, whichever there are: a new file is held to it by itself.

That it learns is not asked of every method: learns.yaml lists those of which it is.
"""

from __future__ import annotations

import numpy as np
import pytest
from contract import (
    FEDERATED,
    METHODS,
    ONE_SHOT,
    PEERS,
    as_split,
    models_of,
    problem_for,
    quick,
    suited,
)
from exact import read_kept
from problems import problem

from fedrepro.numbers.model_evaluation import correct
from fedrepro.stages.user_models import method_contract as held

LEARNS = read_kept("learns.yaml")
DEEP = [name for name, how in LEARNS.items() if "deep" in how]


@pytest.fixture(scope="module")
def given():
    return problem()


@pytest.fixture
def fitting(name):
    """A problem with a model that this method combines."""
    return problem_for(name)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_is(name):
    held.says_what_it_is(METHODS[name])


@pytest.mark.parametrize("name", [name for name, item in METHODS.items() if item.meta["grid"]])
def test_the_settings_that_a_comparison_tries_are_settings(name):
    held.tries_settings(METHODS[name])


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_method_does_with_what_it_declares_changes_nothing_and_repeats_itself(name, given):
    held.predicts(quick(name), suited(name, given))
    held.repeats(quick(name), suited(name, given))


@pytest.mark.parametrize("name", FEDERATED)
def test_a_round_works_with_what_is_declared_and_reports_what_is_known(name, given):
    held.reports(METHODS[name], given)


@pytest.mark.parametrize("name", PEERS)
def test_a_round_of_peers_works_with_what_is_declared_and_gives_both_beliefs(name, fitting):
    held.believes(METHODS[name], fitting)


@pytest.mark.parametrize("name", [*FEDERATED, *PEERS])
def test_a_method_in_rounds_is_pure_and_goes_on_from_a_saved_state(name, fitting):
    held.goes_on(METHODS[name], fitting)


@pytest.mark.parametrize("name", LEARNS)
def test_it_beats_chance_on_an_easy_problem(name):
    assert name in METHODS
    how = LEARNS[name]
    own = problem_for(name, shared_init=how.get("shared_start", False))
    models = models_of(name, own, how.get("values", {}))
    assert np.mean([correct(model, as_split(own)).mean() for model in models]) > 0.5


@pytest.mark.parametrize("name", DEEP)
def test_it_beats_chance_on_several_hidden_layers(name):
    deep = problem(hidden=(8, 7), shared_init=LEARNS[name].get("shared_start", False))
    models = models_of(name, deep, LEARNS[name]["deep"])
    assert np.mean([correct(model, as_split(deep)).mean() for model in models]) > 0.5

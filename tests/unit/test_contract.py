"""What holds for every method, whichever there are: a new file is held to it by itself.

That it learns is not asked of every method: learns.yaml lists those of which it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from contract import (
    FEDERATED,
    METHODS,
    ONE_SHOT,
    PEERS,
    allowed,
    as_split,
    asked_by,
    call,
    each,
    models_of,
    problem_for,
    scores_of,
)
from problems import CLASSES, problem

from fedrepro.api import BELIEFS, BUDGET, NEEDS
from fedrepro.core.artifacts import load_state, save_state
from fedrepro.core.metrics import metrics_of
from fedrepro.core.rng import Rng
from fedrepro.core.states import packed, unpacked
from fedrepro.numbers.measure import correct

LEARNS = yaml.safe_load((Path(__file__).parent / "learns.yaml").read_text())
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
    meta = METHODS[name].meta
    assert meta["needs"] <= set(NEEDS)
    assert meta["label"]
    assert METHODS[name].doc
    assert "test" in meta["evaluate"]


@pytest.mark.parametrize("name", [name for name, item in METHODS.items() if item.meta["grid"]])
def test_the_settings_that_a_comparison_tries_are_settings(name):
    grid = METHODS[name].meta["grid"]
    settings = list(
        METHODS[name].spec({key: list(values) for key, values in grid.items()}).expand()
    )
    assert 1 < len(settings) <= BUDGET
    assert METHODS[name].spec() in settings  # the default is one of them


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_method_works_with_what_it_declares_and_predicts(name, given):
    for model in each(call(name, given)):
        scores = scores_of(model, given)
        assert scores.shape == (len(given.inputs), CLASSES)
        assert torch.isfinite(scores).all()
        if model.weights is not None:
            assert model.weights.shape == (model.networks, CLASSES)
            assert np.allclose(model.weights.sum(0), 1)
        assert set(model.diagnostics) <= set(metrics_of(METHODS[name].spec()))


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_method_changes_nothing_and_repeats_itself(name, given):
    before = {k: v.copy() for k, v in given.models.tensors.items()}
    first, second = each(call(name, given)), each(call(name, given))
    for one, two in zip(first, second, strict=True):
        assert all(np.array_equal(one.tensors[k], two.tensors[k]) for k in one.tensors)
    assert all(np.array_equal(before[k], v) for k, v in given.models.tensors.items())


@pytest.mark.parametrize("name", FEDERATED)
def test_a_round_works_with_what_is_declared_and_reports_what_is_known(name, given):
    made = METHODS[name].fn()
    clients, info = asked_by(made, given.clients), allowed(given.info, METHODS[name])
    state, report = made.round(made.init(clients, info, Rng(0)), clients, info, Rng(0).at(round=0))
    known = set(metrics_of(METHODS[name].spec()))
    assert {*report.metrics, *report.clients} <= known
    assert all(np.shape(values) == (clients.count,) for values in report.clients.values())
    model = made.model(state, clients)
    assert torch.isfinite(scores_of(model, given)).all()


@pytest.mark.parametrize("name", PEERS)
def test_a_round_of_peers_works_with_what_is_declared_and_gives_both_beliefs(name, fitting):
    made = METHODS[name].fn()
    peers, info = asked_by(made, fitting.clients), allowed(fitting.info, METHODS[name])
    state, report = made.round(made.init(peers, info, Rng(0)), peers, info, Rng(0).at(round=0))
    known = set(metrics_of(METHODS[name].spec()))
    assert {*report.metrics, *report.clients} <= known
    for found in (made.beliefs(made.init(peers, info, Rng(0)), peers), made.beliefs(state, peers)):
        assert set(found) == set(BELIEFS)
        for tensors in found.values():
            shapes = {key: (peers.count, *shape) for key, shape in peers.network.shapes.items()}
            assert {key: value.shape for key, value in tensors.items()} == shapes
            assert all(np.isfinite(value).all() for value in tensors.values())
            assert {value.dtype for value in tensors.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("name", [*FEDERATED, *PEERS])
def test_a_method_in_rounds_is_pure_and_goes_on_from_a_saved_state(name, fitting, tmp_path):
    made = METHODS[name].fn()
    clients, info = asked_by(made, fitting.clients), allowed(fitting.info, METHODS[name])

    def kept(state, name):
        save_state(tmp_path / name, packed(state))
        return (tmp_path / name).read_bytes()

    state = made.init(clients, info, Rng(0))
    for done in range(2):
        before = kept(state, "state.pt")
        after, _ = made.round(state, clients, info, Rng(0).at(round=done))
        read = unpacked(load_state(tmp_path / "state.pt"))
        again, _ = made.round(read, clients, info, Rng(0).at(round=done))
        assert kept(after, "one.pt") == kept(again, "two.pt")
        assert kept(state, "same.pt") == before
        state = after


def test_only_methods_that_are_there_are_held_to_learn():
    assert set(LEARNS) <= set(METHODS)


@pytest.mark.parametrize("name", LEARNS)
def test_it_beats_chance_on_an_easy_problem(name):
    how = LEARNS[name]
    own = problem_for(name, shared_init=how.get("shared_start", False))
    models = models_of(name, own, how.get("values", {}))
    assert np.mean([correct(model, as_split(own)).mean() for model in models]) > 0.5


@pytest.mark.parametrize("name", DEEP)
def test_it_beats_chance_on_several_hidden_layers(name):
    deep = problem(hidden=(8, 7), shared_init=LEARNS[name].get("shared_start", False))
    models = models_of(name, deep, LEARNS[name]["deep"])
    assert np.mean([correct(model, as_split(deep)).mean() for model in models]) > 0.5

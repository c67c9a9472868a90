"""A component that returns the wrong thing, or forgets its `return`, is told so in a sentence."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
import torch
from problems import problem

from fedrepro.api import GlobalModel, Report
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.data.feature_extraction import represent
from fedrepro.networks.predict import network_of
from fedrepro.stages.aggregate import SharedPreparation, require_models, run_setting
from fedrepro.stages.data import prepare
from fedrepro.stages.rounds_job import TrialRounds
from fedrepro.training.mixing_matrices import weights_of


def returning(kind, name, made):
    """A component of this name whose function returns that, with the parameters it has."""
    found = components(kind)[name].spec()
    fn = wraps(found.component.fn)(lambda *_, **__: made)
    return replace(found, component=replace(found.component, fn=fn))


@pytest.mark.parametrize(("made", "told"), [(None, "nothing"), ({}, "a dict")])
def test_a_data_set_leaves_nothing_half_made(tmp_path, made, told):
    with pytest.raises(FedreproError, match=f"dataset 'digits' returns {told}: let it"):
        prepare(returning("dataset", "digits", made), tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_and_a_graph():
    with pytest.raises(FedreproError, match="model 'mlp' returns nothing: let it return Network"):
        network_of(returning("model", "mlp", None), (4,), 3)
    with pytest.raises(FedreproError, match="graph 'ring' returns a NoneType: let it return W"):
        weights_of(returning("graph", "ring", None), 1, RngKey(0))


def test_features(monkeypatch):
    spec = returning("feature", "centred", None)
    monkeypatch.setattr("fedrepro.data.feature_extraction.feature_spec", lambda text: spec)
    with pytest.raises(FedreproError, match="feature 'centred' returns nothing: let it"):
        represent(None, "centred")


@pytest.mark.parametrize("made", [{}, [], [None], "model", np.zeros(2)])
def test_a_one_shot_method(made):
    with pytest.raises(FedreproError, match=r"'average' returns a .* GlobalModel"):
        require_models(made, components("method")["average"].spec(), problem().models)


def test_a_one_shot_method_may_leave_a_setting_out():
    average, local = components("method")["average"].spec(), problem().models
    model = GlobalModel(local.model, local.tensors)
    for made in (None, model, [model, model]):
        require_models(made, average, local)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda own: own[0], r"'weight0' of shape \(\d+, \d+\): let it be \(m, \d+, \d+\)"),
        (lambda own: own[:, :, None], r"'weight0' of shape \(\d+, \d+, 1, \d+\)"),
        (lambda own: None, "no 'weight0'"),
        (torch.from_numpy, "'weight0' as a Tensor: let it be a NumPy array"),
        (lambda own: own.tolist(), "'weight0' as a list: let it be a NumPy array"),
    ],
)
def test_tensors_of_another_form(change, told):
    local = problem().models
    tensors = {k: v for k, v in local.tensors.items() if k != "weight0"}
    if (made := change(local.tensors["weight0"])) is not None:
        tensors["weight0"] = made
    model, average = GlobalModel(local.model, tensors), components("method")["average"].spec()
    with pytest.raises(FedreproError, match=f"method 'average' returns {told}"):
        require_models(model, average, local)


def test_tensors_of_other_names_or_numbers_of_networks():
    local, average = problem().models, components("method")["average"].spec()
    with pytest.raises(FedreproError, match="returns 'scale', which its model lacks"):
        require_models(
            GlobalModel(local.model, {**local.tensors, "scale": np.ones(1)}), average, local
        )
    none = {name: value[:0] for name, value in local.tensors.items()}
    with pytest.raises(FedreproError, match=r"returns no network \(m = 0\)"):
        require_models(GlobalModel(local.model, none), average, local)
    fewer = {**local.tensors, "bias0": local.tensors["bias0"][:1]}
    with pytest.raises(FedreproError, match=r"returns 'bias0' of shape \(1, \d+\)"):
        require_models(GlobalModel(local.model, fewer), average, local)


def worked_with(error):
    """What an average that raises this comes to."""

    def fails(*_, **__):
        raise error

    setting, own = components("method")["average"].spec(), problem()
    fn = wraps(setting.component.fn)(fails)
    setting = replace(setting, component=replace(setting.component, fn=fn))
    costly = SharedPreparation(None, own.models, own.info, RngKey(0))
    return run_setting(setting, costly)


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("Singular matrix"), OverflowError("34")])
def test_arithmetic_that_fails_is_a_row_that_failed(error, capsys):
    done = worked_with(error)
    assert not done.made.finite
    assert f"average failed: {type(error).__name__}, {error}" in capsys.readouterr().err
    assert {number.metric: number.value for number in done.cost}["rounds"] == 1


def test_a_mistake_in_a_method_stops():
    with pytest.raises(KeyError, match="weight9"):
        worked_with(KeyError("weight9"))


@pytest.mark.parametrize(
    ("begun", "done", "told"),
    [
        (None, None, "`init` of method 'fedavg' returns nothing: let it return a dict"),
        ({}, None, "`round` of method 'fedavg' returns nothing: let it return a state"),
        ({}, ({}, None), "`round` of method 'fedavg' returns a tuple"),
        ({}, (None, Report()), "`round` of method 'fedavg' returns nothing: let it return a dict"),
    ],
)
def test_a_method_in_rounds(begun, done, told):
    class Forgetful:
        rounds = 2

        def init(self, clients, info, rng):
            return begun

        def round(self, state, clients, info, rng):
            return done

    given = problem()

    class Judge:
        clients = given.clients
        made = Forgetful()

    class Keeper:
        def load(self):
            return None

    method = components("method")["fedavg"].spec()
    trial = TrialRounds(method, Judge(), given.info, None, {})
    with pytest.raises(FedreproError, match=told):
        trial.run(RngKey(0), Keeper())

"""A component that returns the wrong thing, or forgets its `return`, is told so in a sentence."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from unittest.mock import Mock

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
from fedrepro.stages.trial_rounds import TrialRounds
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


def test_a_model_a_graph_and_features(monkeypatch):
    with pytest.raises(FedreproError, match="model 'mlp' returns nothing: let it return Network"):
        network_of(returning("model", "mlp", None), (4,), 3)
    with pytest.raises(FedreproError, match="graph 'ring' returns a NoneType: let it return W"):
        weights_of(returning("graph", "ring", None), 1, RngKey(0))
    spec = returning("feature", "centred", None)
    monkeypatch.setattr("fedrepro.data.feature_extraction.feature_spec", lambda text: spec)
    with pytest.raises(FedreproError, match="feature 'centred' returns nothing: let it"):
        represent(None, "centred")


AVERAGE = components("method")["average"].spec()


def test_a_one_shot_method_returns_models_or_leaves_a_setting_out():
    local = problem().models
    for made in ({}, [], [None], "model", np.zeros(2)):
        with pytest.raises(FedreproError, match=r"'average' returns a .* GlobalModel"):
            require_models(made, AVERAGE, local)
    model = GlobalModel(local.model, local.tensors)
    for made in (None, model, [model, model]):
        require_models(made, AVERAGE, local)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: {"weight0": w[0]}, r"'weight0' of shape \(\d+, \d+\): let it be \(m, \d+, \d+"),
        (lambda w: {"weight0": w[:, :, None]}, r"'weight0' of shape \(\d+, \d+, 1, \d+\)"),
        (lambda w: {"weight0": None}, "no 'weight0'"),
        (lambda w: {"weight0": torch.from_numpy(w)}, "'weight0' as a Tensor: let it be a NumPy ar"),
        (lambda w: {"weight0": w.tolist()}, "'weight0' as a list: let it be a NumPy array"),
        (lambda w: {"scale": np.ones(1)}, "'scale', which its model lacks"),
        (lambda w: {"weight0": w[:0]}, r"no network \(m = 0\)"),
        (lambda w: {"bias0": w[:1, 0]}, r"'bias0' of shape \(1, \d+\)"),
    ],
)
def test_tensors_of_another_form(change, told):
    local = problem().models
    tensors = local.tensors | change(local.tensors["weight0"])
    tensors = {name: value for name, value in tensors.items() if value is not None}
    with pytest.raises(FedreproError, match=f"method 'average' returns {told}"):
        require_models(GlobalModel(local.model, tensors), AVERAGE, local)


def worked_with(error):
    """What an average that raises this comes to."""

    def fails(*_, **__):
        raise error

    own, fn = problem(), wraps(AVERAGE.component.fn)(fails)
    setting = replace(AVERAGE, component=replace(AVERAGE.component, fn=fn))
    return run_setting(setting, SharedPreparation(own.models, own.info, RngKey(0)))


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
    given, forgetful, keeper = problem(), Mock(rounds=2), Mock()
    forgetful.init.return_value, forgetful.round.return_value = begun, done
    keeper.load.return_value = None
    spec = components("method")["fedavg"].spec()
    judge = SimpleNamespace(method=spec, clients=given.clients, made=forgetful)
    trial = TrialRounds(judge, given.info, None, {})
    with pytest.raises(FedreproError, match=told):
        trial.run(RngKey(0), keeper)

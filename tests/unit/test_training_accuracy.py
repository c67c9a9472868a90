"""Training accuracy is that on the inputs that clients hold, whatever stage measures it."""

from __future__ import annotations

import dataclasses

import jobs
import numpy as np
import torch

from fedrepro.api import GlobalModel, Report
from fedrepro.core.artifacts import read_table
from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.training.engine import train
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches import Task


class OneRound:
    """The uniform ensemble of networks that are trained as local training trains them."""

    rounds = 1

    def init(self, clients, info, rng):
        return {}

    def round(self, state, clients, info, rng):
        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        starts = initial_weights(clients.network, clients.settings, places)
        tasks = [Task(rows, place) for rows, place in zip(clients.data.rows, places, strict=True)]
        trained = train(clients.network, clients.data.examples, tasks, clients.settings, starts)
        sent = Report(traffic=clients.models(up=clients.count, down=0))
        return {name: torch.from_numpy(value) for name, value in trained.tensors.items()}, sent

    def model(self, state, clients):
        tensors = {name: value.numpy() for name, value in state.items()}
        share = np.full((clients.count, clients.network.classes), 1.0 / clients.count)
        return GlobalModel(clients.model, tensors, share)


def test_one_network_has_one_training_accuracy(tmp_path, monkeypatch):
    """With noise on what clients hold, .60 and .44 were measured for the same network."""
    known = components("method")
    ensemble = known["uniform_ensemble"]
    meta = {**ensemble.meta, "evaluate": ("train", "test")}
    in_rounds = Component("method", "one_round", 1, OneRound, {**meta, "kind": "federated"})
    monkeypatch.setitem(known, "one_round", in_rounds)
    monkeypatch.setitem(known, "uniform_ensemble", dataclasses.replace(ensemble, meta=meta))
    made = jobs.divided(tmp_path, "feature_noise+clients~3+sigma~5")
    made += ["--model", "mlp+hidden~10", "--training", "adam+epochs~2", "--timings", tmp_path / "t"]

    def stage(*words):
        assert jobs.stage(*words) == 0

    stage("train", *made, "--clients", "0-2", "--out", tmp_path / "local")
    words = ["--method", "uniform_ensemble", "--local", tmp_path / "local"]
    stage("aggregate", *made, *words, "--out", tmp_path / "one")
    words = ["--method", "one_round", "--global-model", tmp_path / "global"]
    stage("federate", *made, *words, "--out", tmp_path / "two")

    def accuracy(name):
        rows = read_table(tmp_path / name, "metrics").to_pandas()
        rows = rows[rows["metric"].str.startswith("accuracy") & rows["round"].isna()]
        return rows.set_index(["trial", "split", "metric"])["value"].to_dict()

    assert accuracy("one") == accuracy("two")
    assert (1, "train", "accuracy") in accuracy("one")

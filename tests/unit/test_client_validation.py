"""Validation examples that clients work on by themselves: whose they are, and who has none."""

from __future__ import annotations

from dataclasses import replace

import jobs
import numpy as np
import pytest
from problems import problem
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.data.partition_table import read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.planning.runs import Scenario
from fedrepro.stages.trial_data import TrialData

NEEDS = frozenset({"client_validation_examples"})


def clients_of(folder, dataset, partition):
    """The clients of trial 0, as a method that declares the need is handed them."""
    out = folder / "partition.parquet"
    words = ["--partition", partition, "--data", folder / dataset]
    assert jobs.stage("partition", *words, "--trials", "0", "--out", out) == 0
    tokens = {"dataset": dataset, "partition": partition, "model": "logistic", "training": "adam"}
    scenario = Scenario(**{kind: parse_token(kind, token) for kind, token in tokens.items()})
    members = read_partition(out, 0)
    own = TrialData(load_prepared(folder / dataset), members, RngKey(0, 0), "cpu")
    made = own.clients(scenario, components("method")["average"].spec())
    return replace(made, method="mine", needs=NEEDS), members, own.prepared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("data")
    for token in ("digits", "digits+validation~200"):
        assert jobs.stage("prepare", "--dataset", token, "--out", found / token) == 0
    return found


def test_a_client_has_its_part_of_the_data_sets_validation_split(folder):
    clients, members, prepared = clients_of(folder, "digits+validation~200", "by_label+clients~5")
    seen = 0
    for j in range(5):
        inputs, labels = clients.validation(j)
        assert inputs.dtype == np.float32
        assert np.array_equal(inputs, prepared.inputs("validation", members.validation[j]))
        assert np.array_equal(labels, prepared.labels("validation")[members.validation[j]])
        held = prepared.labels("train")[members.train[j]]
        assert set(labels) <= set(held)
        seen += len(labels)
    assert seen == 200


def test_what_the_partition_sets_aside_comes_first(folder):
    partition = "iid+clients~3+validation~60+validation_at~clients"
    clients, members, prepared = clients_of(folder, "digits+validation~200", partition)
    for j in range(3):
        inputs, labels = clients.validation(j)
        assert np.array_equal(inputs, prepared.inputs("train", members.client_validation[j]))
        assert np.array_equal(labels, prepared.labels("train")[members.client_validation[j]])


def test_clients_evaluate_candidates_on_the_same_examples(folder):
    clients, *_ = clients_of(folder, "digits+validation~200", "iid+clients~3")
    both = replace(clients, needs=NEEDS | {"client_validation"})
    weights = {"weight0": np.eye(64, 10, dtype=np.float32)[None], "bias0": np.zeros((1, 10))}
    found = both.evaluate(weights, on="validation").accuracy[0]
    for j in range(3):
        inputs, labels = both.validation(j)
        assert found[j] == pytest.approx(np.mean(inputs[:, :10].argmax(1) == labels))


def test_noisy_inputs_are_as_the_client_holds_them(folder):
    clients, members, prepared = clients_of(
        folder, "digits+validation~200", "feature_noise+clients~3"
    )
    plain = prepared.inputs("validation", members.validation[2])
    inputs, _ = clients.validation(2)
    assert not np.array_equal(inputs, plain)
    spread = float(np.sqrt(members.noise[2]))
    assert np.std(inputs - plain) == pytest.approx(spread, rel=0.1)


def test_a_client_without_any_is_named_with_how_to_mend_it(folder):
    clients, *_ = clients_of(folder, "digits", "iid+clients~3")
    with pytest.raises(FedreproError, match="client 1 has none: give the data set validation"):
        clients.validation(1)
    given = problem().clients
    data = replace(given.data, validation=[given.data.validation[0], *[np.empty(0, int)] * 3])
    with pytest.raises(FedreproError, match="client 2 has none"):
        replace(given, data=data).validation(2)


def test_what_surely_has_none_is_refused_before_anything_is_computed(monkeypatch):
    meta = components("method")["average"].meta
    monkeypatch.setitem(meta, "needs", NEEDS)
    methods = [{"name": "average"}]
    with pytest.raises(FedreproError, match="'parameter average' works on validation examples of"):
        small(methods=methods, partition={"name": "iid"})
    small(methods=methods, partition={"name": "iid"}, dataset={"name": "digits", "validation": 50})
    aside = {"name": "iid", "validation": 20, "validation_at": "clients"}
    small(methods=methods, partition=aside)
    with pytest.raises(FedreproError, match="with validation_at: clients"):
        small(methods=methods, partition={"name": "iid", "validation": 20})

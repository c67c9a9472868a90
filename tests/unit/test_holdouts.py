"""Examples that no client trains with: at the server, at clients, or of another data set."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jobs
import numpy as np
import pytest
from contract import call
from partitioned import NAMES, fitting, grouped
from problems import problem
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.data.partition_files import (
    PartitionIndices,
    build_partition,
    draw_holdout,
    read_partition,
    write_partition,
)
from fedrepro.data.prepared import load_prepared, unlabelled
from fedrepro.planning.jobs import Scenario, public_data_of
from fedrepro.stages.trial_data import TrialData

LABELS = np.tile(np.arange(4), 50)


def with_aside(name, **values):
    """A partition of LABELS among at most three clients, with examples set aside."""
    spec = fitting(name, LABELS, 3)
    return spec.component.spec({**spec.values, **values})


def members(tmp_path, spec, trial=0):
    table = build_partition(spec, grouped(LABELS, LABELS[:40]), range(2), 0)
    write_partition(tmp_path / "p", table, {"seed": 0})
    return read_partition(tmp_path / "p", trial)


@pytest.mark.parametrize("at", ["server", "clients"])
@pytest.mark.parametrize("name", NAMES)
def test_every_training_example_has_one_place(tmp_path, name, at):
    spec = with_aside(name, public=12, validation=20, validation_at=at)
    found = members(tmp_path, spec)
    given = [found.public, found.server_validation, *found.client_validation]
    kept = np.concatenate([*found.train, *given])
    assert len(np.unique(kept)) == kept.size
    assert found.public.size == 12
    assert found.server_validation.size == (20 if at == "server" else 0)
    assert sum(map(len, found.client_validation)) == (0 if at == "server" else 20)
    assert kept.size == LABELS.size
    assert all(np.array_equal(rows, np.sort(rows)) for rows in given)


@pytest.mark.parametrize("name", NAMES)
def test_all_partitions_of_a_trial_set_the_same_examples_aside(tmp_path, name):
    """Whose public sample does not depend on how many validate."""
    values = {"public": 12, "validation": 20}
    one, two = (members(tmp_path, with_aside(each, **values)) for each in (name, "pooled"))
    assert np.array_equal(one.public, two.public)
    assert np.array_equal(one.server_validation, two.server_validation)
    assert np.array_equal(one.public, members(tmp_path, with_aside(name, public=12)).public)
    other = members(tmp_path, with_aside(name, **values), trial=1)
    assert not np.array_equal(one.public, other.public)


def test_nothing_set_aside_leaves_the_partition_as_it_was_and_all_cannot_be(tmp_path):
    same = with_aside("dirichlet", public=0, validation=0)
    assert same.token == fitting("dirichlet", LABELS, 3).token
    aside, rest = draw_holdout(LABELS.size, same, RngKey(0, 0))
    assert not aside
    assert np.array_equal(rest, np.arange(LABELS.size))
    with pytest.raises(FedreproError, match="sets 200 of 200 training examples aside"):
        members(tmp_path, with_aside("iid", public=150, validation=50))


def test_clients_validate_on_the_classes_that_they_hold_with_the_noise_that_they_have(tmp_path):
    spec = with_aside("one_class", validation=40, validation_at="clients")
    found = members(tmp_path, spec)
    for rows, own in zip(found.train, found.client_validation, strict=True):
        assert set(LABELS[own]) <= set(LABELS[rows])
    found = members(tmp_path, with_aside("feature_noise", validation=20, validation_at="clients"))
    without = PartitionIndices(found.train, found.validation, found.noise)
    inputs = np.zeros((LABELS.size, 3), np.float32)
    noisy, plain = (one.with_feature_noise(inputs, RngKey(0, 0)) for one in (found, without))
    last, train = found.client_validation[-1], found.train[-1]
    assert last.size
    assert noisy[last].any()
    assert not plain[last].any()
    assert np.array_equal(plain[train], noisy[train])


FEDDF = components("method")["feddf"]


def inputs_of(count, shape, trial=0):
    """The unlabelled inputs of networks that take (2,), of so many examples of a data set."""
    x = np.arange(count, dtype=np.float32)[:, None]
    pictures = SimpleNamespace(
        token="pictures",
        shape=shape,
        labels=lambda split: x[:, 0],
        inputs=lambda split, rows: x[rows],
    )
    return unlabelled(pictures, (2,), "x", RngKey(0, trial))


def test_at_most_ten_thousand_inputs_are_drawn_and_the_same_again():
    found, again, other = (inputs_of(10_500, (2,), trial) for trial in (1, 1, 2))
    assert found.shape == (10_000, 1)
    assert len(np.unique(found)) == 10_000
    assert np.array_equal(found, again)
    assert not np.array_equal(found, other)
    with pytest.raises(FedreproError, match="have the shape 8 × 8, and the networks take 2"):
        inputs_of(5, (8, 8))


def test_a_method_names_the_data_set_and_no_other_method_has_one():
    assert public_data_of(FEDDF.spec({"public_data": "digits"})).token == "digits"
    assert public_data_of(components("method")["average"].spec()) is None
    for name in ("nowhere", ["mnist", "digits"]):
        with pytest.raises(FedreproError, match=r"not the name of one data set: known are .*digit"):
            public_data_of(FEDDF.spec({"public_data": name}))


def test_of_equal_clients_feddf_starts_where_it_ends():
    """The average already gives the ensemble's shares: gradients are 0, and Adam stays close."""
    given = problem()
    same = {k: np.repeat(v[:1], 4, axis=0) for k, v in given.models.tensors.items()}
    own = replace(given, models=replace(given.models, tensors=same))
    made = call("feddf", own, epochs=3, lr=1e-5)
    for name, value in made.tensors.items():
        assert np.allclose(value, same[name][:1], atol=1e-3)


NEEDS = frozenset({"client_validation_examples"})


def clients_of(folder, partition, dataset="digits+validation~200"):
    """The clients of trial 0, as a method that declares the need is handed them."""
    out = folder / "partition.parquet"
    words = ["--partition", partition, "--data", folder / dataset]
    assert jobs.stage("partition", *words, "--trials", "0", "--out", out) == 0
    tokens = {"dataset": dataset, "partition": partition, "model": "logistic", "training": "adam"}
    scenario = Scenario(**{kind: parse_token(kind, token) for kind, token in tokens.items()})
    own = TrialData(load_prepared(folder / dataset), read_partition(out, 0), RngKey(0, 0), "cpu")
    made = own.clients(scenario, components("method")["average"].spec())
    return replace(made, method="mine", needs=NEEDS), own.members, own.prepared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("data")
    for token in ("digits", "digits+validation~200"):
        assert jobs.stage("prepare", "--dataset", token, "--out", found / token) == 0
    return found


def test_a_client_has_its_part_of_the_data_sets_validation_split(folder):
    clients, members, prepared = clients_of(folder, "by_label+clients~5")
    assert sum(len(clients.validation(j)[1]) for j in range(5)) == 200
    for j in range(5):
        inputs, labels = clients.validation(j)
        assert inputs.dtype == np.float32
        assert np.array_equal(inputs, prepared.inputs("validation", members.validation[j]))
        assert np.array_equal(labels, prepared.labels("validation")[members.validation[j]])
        assert set(labels) <= set(prepared.labels("train")[members.train[j]])


def test_what_the_partition_sets_aside_comes_first(folder):
    aside = "iid+clients~3+validation~60+validation_at~clients"
    clients, members, prepared = clients_of(folder, aside)
    for j in range(3):
        inputs, labels = clients.validation(j)
        assert np.array_equal(inputs, prepared.inputs("train", members.client_validation[j]))
        assert np.array_equal(labels, prepared.labels("train")[members.client_validation[j]])


def test_clients_evaluate_candidates_on_the_same_examples_with_their_noise(folder):
    clients, *_ = clients_of(folder, "iid+clients~3")
    both = replace(clients, needs=NEEDS | {"client_validation"})
    weights = {"weight0": np.eye(64, 10, dtype=np.float32)[None], "bias0": np.zeros((1, 10))}
    found = both.evaluate(weights, on="validation").accuracy[0]
    for j in range(3):
        inputs, labels = both.validation(j)
        assert found[j] == pytest.approx(np.mean(inputs[:, :10].argmax(1) == labels))
    clients, members, prepared = clients_of(folder, "feature_noise+clients~3")
    added = clients.validation(2)[0] - prepared.inputs("validation", members.validation[2])
    assert np.std(added) == pytest.approx(float(np.sqrt(members.noise[2])), rel=0.1)


def test_a_client_without_any_is_named_with_how_to_mend_it(folder):
    clients, *_ = clients_of(folder, "iid+clients~3", "digits")
    with pytest.raises(FedreproError, match="client 1 has none: give the data set validation"):
        clients.validation(1)
    given = problem().clients
    data = replace(given.data, validation=[given.data.validation[0], *[np.empty(0, int)] * 3])
    with pytest.raises(FedreproError, match="client 2 has none"):
        replace(given, data=data).validation(2)


def test_what_surely_has_none_is_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setitem(components("method")["average"].meta, "needs", NEEDS)
    given = {"methods": [{"name": "average"}], "partition": {"name": "iid"}}
    aside = {"name": "iid", "validation": 20}
    with pytest.raises(FedreproError, match="'parameter average' works on validation examples of"):
        small(**given)
    with pytest.raises(FedreproError, match="with validation_at: clients"):
        small(**given | {"partition": aside})
    small(**given, dataset={"name": "digits", "validation": 50})
    small(**given | {"partition": aside | {"validation_at": "clients"}})

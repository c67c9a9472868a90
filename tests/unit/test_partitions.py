"""True of every partition: owners, sizes, draws, what is set aside, a file, and its page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jobs
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from partitioned import NAMES, data_of, examples_of, fitting, grouped, rows_of, spec_of
from small_exhibits import small

from fedrepro.core.checksummed_files import read_provenance, read_table, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component
from fedrepro.data import partitions_populations_and_holdouts as parts
from fedrepro.data.client_assignment_and_skew import Assignment, distances, skew_of
from fedrepro.data.prepared import load_prepared, unlabelled
from fedrepro.planning.scenarios_runs_and_jobs import Scenario, public_data_of
from fedrepro.stages.trial_data import TrialData


def held_by(spec):
    return Scenario(spec, spec, spec, spec).clients


# which draw nothing: every example's owner follows from its label or group
FIXED = {"pooled", "natural", "label_lists", "by_label", "one_class"}


@st.composite
def problems(draw):
    """Training labels with every class, validation labels, and a number of clients."""
    classes = draw(st.integers(1, 6))
    extra = draw(st.lists(st.integers(0, classes - 1), min_size=30, max_size=120))
    train = np.array(draw(st.permutations([*range(classes), *extra])))
    validation = np.array(draw(st.lists(st.integers(0, classes - 1), max_size=40)), np.int64)
    return train, validation, draw(st.integers(1, 6))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(problem=problems(), seed=st.integers(0, 3))
def test_every_example_has_exactly_one_owner_and_validation_follows_training(name, problem, seed):
    train, validation, clients = problem
    spec = fitting(name, train, clients)
    if name == "labels_each":  # elsewhere it is refused
        assume(np.bincount(train).min() >= held_by(spec))
    table = parts.build_partition(spec, grouped(train, validation), range(1, 3), seed)
    labels = {"train": train, "validation": validation}
    for trial in (1, 2):
        rows = rows_of(table, trial)
        assert rows == sorted(rows)
        for split, own in labels.items():
            assert sorted(i for _, s, i in rows if s == split) == list(range(own.size))
        assert {client for client, s, _ in rows if s == "train"} == set(range(held_by(spec)))
    if name != "natural":  # class by class
        counts = {split: np.zeros((held_by(spec), train.max() + 1)) for split in labels}
        for client, split, index in rows:
            counts[split][client, labels[split][index]] += 1
        exact = counts["train"] / counts["train"].sum(0) * counts["validation"].sum(0)
        assert np.abs(counts["validation"] - exact).max() < 1


@pytest.mark.parametrize("name", NAMES)
def test_a_trial_depends_on_seed_and_trial_alone(name):
    data = grouped(np.arange(300) % 10, np.arange(50) % 10)
    spec = fitting(name, np.arange(300) % 10, 5)
    several, one = (parts.build_partition(spec, data, r, 4) for r in (range(4), range(2, 3)))
    assert rows_of(several, 2) == rows_of(one, 2)
    assert several.equals(parts.build_partition(spec, data, range(4), 4))
    if name not in FIXED:
        other_seed = parts.build_partition(spec, data, range(2, 3), 5)
        assert rows_of(one, 2) != rows_of(other_seed, 2)
        assert rows_of(several, 1) != rows_of(several, 2)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in FIXED])
def test_which_examples_of_a_class_a_client_holds_is_drawn(name):
    shards = name == "shards"
    labels = np.repeat([0, 1], [600, 400] if shards else 500)
    spec = spec_of(name, 2, **({"each": 1} if shards else {}))
    owner = spec.component.fn(examples_of(labels), RngKey(0), **spec.own).owner
    index = np.flatnonzero(labels == 0)
    first, second = (index[owner[index] == client] for client in (0, 1))
    assert first.min() < second.max()
    assert second.min() < first.max()


@pytest.mark.parametrize("name", NAMES)
def test_a_written_partition_is_read_back(name, tmp_path):
    train, validation = np.arange(200) % 4, np.arange(30) % 4
    spec = fitting(name, train, 3)
    table = parts.build_partition(spec, grouped(train, validation), range(5, 7), 0)
    path = tmp_path / "partition.parquet"
    parts.write_partition(path, table, {"seed": 0})
    source = read_provenance(read_table(path, "partition"))
    assert (source["seed"], len(source["noise"])) == (0, 2)
    members = parts.read_partition(path, 6)
    rows = rows_of(table, 6)
    for split, found in (("train", members.train), ("validation", members.validation)):
        own = [[i for j, s, i in rows if (j, s) == (k, split)] for k in range(len(members.train))]
        assert [held.tolist() for held in found] == own
    counts = members.label_counts(train, 4)
    assert counts.tolist() == [
        np.bincount(train[own], minlength=4).tolist() for own in members.train
    ]
    assert (members.noise is not None) == (name == "feature_noise")
    with pytest.raises(FedreproError, match="has no trial 4"):
        parts.read_partition(path, 4)


def test_more_clients_than_examples_is_said():
    for name in (n for n in NAMES if "clients" in components("partition")[n].params):
        with pytest.raises(FedreproError, match=r"30 training examples cannot|not say whose"):
            parts.build_partition(spec_of(name, 31), data_of(np.arange(30) % 3), range(1), 0)


def test_skew_of_equal_clients_is_zero_and_distance_is_the_largest_difference_over_sets():
    equal, single = skew_of(np.full((5, 4), 7)), skew_of(np.eye(4, dtype=int) * 9)
    assert (equal["distance_mean"], equal["distance_max"]) == (0, 0)
    assert (equal["size_min"], equal["size_median"], equal["size_max"]) == (28, 28, 28)
    assert (single["distance_mean"], single["distance_max"]) == (0.75, 0.75)
    assert (single["classes_min"], single["classes_max"]) == (1, 1)
    counts = np.array([[8, 1, 1], [2, 5, 3]])
    own, whole = counts / 10, counts.sum(0) / 20
    subsets = [[i for i in range(3) if bits >> i & 1] for bits in range(8)]
    for client, far in enumerate(distances(counts)):
        most = max(own[client, s].sum() - whole[s].sum() for s in subsets)
        assert far == pytest.approx(most)
    assert skew_of(counts) == skew_of(counts[::-1]) == skew_of(counts[:, ::-1])


def test_a_partition_that_leaves_a_client_empty_is_refused(tmp_path):
    def lopsided(examples, rng):
        return Assignment((np.arange(len(examples)) % 2).astype(np.int32), clients=4)

    spec = Component("partition", "lopsided", 1, lopsided, {"clients": lambda values: 4}).spec()
    told = r"partition 'lopsided', trial 3: client 2 has no training examples \(2 of 4"
    with pytest.raises(FedreproError, match=told):
        parts.build_partition(spec, data_of(np.arange(20) % 2), range(3, 4), 0)
    path = tmp_path / "partition.parquet"
    rows = {"trial": [0, 0], "client": [0, 2], "split": ["train", "train"], "index": [0, 1]}
    write_table(path, rows, "partition", {"trials": [0], "noise": [None]})
    with pytest.raises(FedreproError, match="a client of trial 0 has no training examples"):
        parts.read_partition(path, 0)


DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "partitions.md").read_text()


def test_every_partition_is_on_the_page_with_a_drawing_and_tokens_in_canonical_form():
    for name in NAMES:
        section = re.split(r"\n##+ ", PAGE.split(f"\n### {name}\n")[1])[0]
        figure = re.search(r"!\[.+\]\((figures/[\w.-]+)\)", section)
        assert 0 < (DOCS / figure[1]).stat().st_size < 200_000
        assert parse_token("partition", section.split("`")[-2]).name == name
    for token in re.findall(r"`(\w+\+[\w+~@.-]+)`", PAGE):
        assert parse_token("partition", token).token == token


LABELS = np.tile(np.arange(4), 50)


def with_aside(name, **values):
    spec = fitting(name, LABELS, 3)
    return spec.component.spec({**spec.values, **values})


def members(tmp_path, spec, trial=0):
    table = parts.build_partition(spec, grouped(LABELS, LABELS[:40]), range(2), 0)
    parts.write_partition(tmp_path / "p", table, {"seed": 0})
    return parts.read_partition(tmp_path / "p", trial)


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
    aside, rest = parts.draw_holdout(LABELS.size, same, RngKey(0, 0))
    assert not sum(map(len, aside.values()))
    assert np.array_equal(rest, np.arange(LABELS.size))
    with pytest.raises(FedreproError, match="sets 200 of 200 training examples aside"):
        members(tmp_path, with_aside("iid", public=150, validation=50))


def test_clients_validate_on_the_classes_that_they_hold_with_the_noise_that_they_have(tmp_path):
    spec = with_aside("one_class", validation=40, validation_at="clients")
    found = members(tmp_path, spec)
    for rows, own in zip(found.train, found.client_validation, strict=True):
        assert set(LABELS[own]) <= set(LABELS[rows])
    found = members(tmp_path, with_aside("feature_noise", validation=20, validation_at="clients"))
    without = parts.PartitionIndices(found.train, found.validation, found.noise)
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


def test_at_most_ten_thousand_inputs_are_drawn_of_a_data_set_that_one_method_names():
    found, again, other = (inputs_of(10_500, (2,), trial) for trial in (1, 1, 2))
    assert found.shape == (10_000, 1)
    assert len(np.unique(found)) == 10_000
    assert np.array_equal(found, again)
    assert not np.array_equal(found, other)
    with pytest.raises(FedreproError, match="have the shape 8 × 8, and the networks take 2"):
        inputs_of(5, (8, 8))
    assert public_data_of(FEDDF.spec({"public_data": "digits"})).token == "digits"
    assert public_data_of(components("method")["average"].spec()) is None
    for name in ("nowhere", ["mnist", "digits"]):
        with pytest.raises(FedreproError, match="unknown dataset"):
            public_data_of(FEDDF.spec({"public_data": name}))


NEEDS = frozenset({"client_validation_examples"})


def clients_of(folder, partition, dataset="digits+validation~200"):
    out = folder / "partition.parquet"
    words = ["--partition", partition, "--data", folder / dataset]
    assert jobs.stage("partition", *words, "--trials", "0", "--out", out) == 0
    tokens = {"dataset": dataset, "partition": partition, "model": "logistic", "training": "adam"}
    scenario = Scenario(**{kind: parse_token(kind, token) for kind, token in tokens.items()})
    own = TrialData(
        load_prepared(folder / dataset), parts.read_partition(out, 0), RngKey(0, 0), "cpu"
    )
    made = own.clients(scenario, components("method")["average"].spec())
    return replace(made, method="mine", needs=NEEDS), own.members, own.prepared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("data")
    for token in ("digits", "digits+validation~200"):
        assert jobs.stage("prepare", "--dataset", token, "--out", found / token) == 0
    return found


def test_a_client_has_its_part_of_the_validation_split_or_what_was_set_aside(folder):
    clients, members, prepared = clients_of(folder, "by_label+clients~5")
    assert sum(len(clients.validation(j)[1]) for j in range(5)) == 200
    for j in range(5):
        inputs, labels = clients.validation(j)
        assert inputs.dtype == np.float32
        assert np.array_equal(inputs, prepared.inputs("validation", members.validation[j]))
        assert np.array_equal(labels, prepared.labels("validation")[members.validation[j]])
        assert set(labels) <= set(prepared.labels("train")[members.train[j]])
    aside = "iid+clients~3+validation~60+validation_at~clients"
    clients, members, prepared = clients_of(folder, aside)
    for j in range(3):
        inputs, labels = clients.validation(j)
        assert np.array_equal(inputs, prepared.inputs("train", members.client_validation[j]))
        assert np.array_equal(labels, prepared.labels("train")[members.client_validation[j]])


def test_clients_evaluate_on_the_same_examples_with_their_noise_and_who_has_none_is_named(folder):
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
    clients, *_ = clients_of(folder, "iid+clients~3", "digits")
    with pytest.raises(FedreproError, match="client 1 has none: give the data set validation"):
        clients.validation(1)


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

"""True of every partition: owners, sizes, draws that repeat, sentences, a file, and its page."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from partitioned import NAMES, data_of, examples_of, fitting, grouped, rows_of, spec_of

from fedrepro.core import registry
from fedrepro.core.artifacts import read_provenance, read_table, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component
from fedrepro.data.assignment import Assignment, distances, skew_of
from fedrepro.data.partition_files import build_partition, read_partition, write_partition
from fedrepro.planning.jobs import Scenario


def held_by(spec):
    return Scenario(spec, spec, spec, spec).clients


def assume_enough(name, train, spec):
    """Each of a label's clients gets an example of it: elsewhere `labels_each` is refused."""
    if name == "labels_each":
        assume(np.bincount(train).min() >= held_by(spec))


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
def test_every_example_has_exactly_one_owner_and_every_client_has_examples(name, problem, seed):
    train, validation, clients = problem
    spec = fitting(name, train, clients)
    assume_enough(name, train, spec)
    table = build_partition(spec, grouped(train, validation), range(1, 3), seed)
    for trial in (1, 2):
        rows = rows_of(table, trial)
        assert rows == sorted(rows)
        for split, labels in (("train", train), ("validation", validation)):
            assert sorted(i for _, s, i in rows if s == split) == list(range(labels.size))
        assert {client for client, s, _ in rows if s == "train"} == set(range(held_by(spec)))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "natural"])
@settings(max_examples=15, deadline=None)
@given(problem=problems(), seed=st.integers(0, 3))
def test_validation_examples_follow_the_training_ones_class_by_class(name, problem, seed):
    train, validation, clients = problem
    spec = fitting(name, train, clients)
    assume_enough(name, train, spec)
    table = build_partition(spec, data_of(train, validation), range(1), seed)
    labels = {"train": train, "validation": validation}
    counts = {split: np.zeros((held_by(spec), train.max() + 1)) for split in labels}
    for client, split, index in rows_of(table, 0):
        counts[split][client, labels[split][index]] += 1
    exact = counts["train"] / counts["train"].sum(0) * counts["validation"].sum(0)
    assert np.abs(counts["validation"] - exact).max() < 1


@pytest.mark.parametrize("name", NAMES)
def test_a_trial_depends_on_seed_and_trial_alone(name):
    data = grouped(np.arange(300) % 10, np.arange(50) % 10)
    spec = fitting(name, np.arange(300) % 10, 5)
    several, one = (build_partition(spec, data, r, 4) for r in (range(4), range(2, 3)))
    assert rows_of(several, 2) == rows_of(one, 2)
    assert several.equals(build_partition(spec, data, range(4), 4))
    if name not in FIXED:
        other_seed = build_partition(spec, data, range(2, 3), 5)
        assert rows_of(one, 2) != rows_of(other_seed, 2)
        assert rows_of(several, 1) != rows_of(several, 2)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in FIXED])
def test_which_examples_of_a_class_a_client_holds_is_drawn(name):
    """Not the first ones of the file for the first client."""
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
    table = build_partition(spec, grouped(train, validation), range(5, 7), 0)
    path = tmp_path / "partition.parquet"
    write_partition(path, table, {"seed": 0})
    source = read_provenance(read_table(path, "partition"))
    assert (source["seed"], len(source["redraws"])) == (0, 2)
    members = read_partition(path, 6)
    rows = rows_of(table, 6)
    for split, found in (("train", members.train), ("validation", members.validation)):
        own = [[i for j, s, i in rows if (j, s) == (k, split)] for k in range(members.clients)]
        assert [held.tolist() for held in found] == own
    counts = members.label_counts(train, 4)
    assert counts.tolist() == [
        np.bincount(train[own], minlength=4).tolist() for own in members.train
    ]
    assert source["skew"][1] == skew_of(counts)
    assert (members.noise is not None) == (name == "feature_noise")
    with pytest.raises(FedreproError, match="has no trial 4"):
        read_partition(path, 4)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if "clients" in components("partition")[n].params and n != "natural"]
)
def test_more_clients_than_examples_is_said(name):
    with pytest.raises(FedreproError, match="31 clients are more than the 30 training examples"):
        build_partition(spec_of(name, 31), data_of(np.arange(30) % 3), range(1), 0)


def test_a_class_that_no_client_could_learn_is_named():
    data = data_of(np.repeat([0, 2], 20), classes=4)
    with pytest.raises(FedreproError, match="no training example of class 1, 3"):
        build_partition(spec_of("iid", 2), data, range(1), 0)


# ------------------------------------------------------------------------------------- skew


def test_skew_of_equal_clients_is_zero_and_of_single_classes_is_the_most_there_is():
    equal, single = skew_of(np.full((5, 4), 7)), skew_of(np.eye(4, dtype=int) * 9)
    assert (equal["distance_mean"], equal["distance_max"]) == (0, 0)
    assert (equal["size_min"], equal["size_median"], equal["size_max"]) == (28, 28, 28)
    assert (single["distance_mean"], single["distance_max"]) == (0.75, 0.75)
    assert (single["classes_min"], single["classes_max"]) == (1, 1)


@given(st.lists(st.lists(st.integers(1, 50), min_size=3, max_size=3), min_size=1, max_size=9))
def test_skew_does_not_depend_on_the_order_of_clients_or_classes(rows):
    counts = np.array(rows)
    assert skew_of(counts) == skew_of(counts[::-1]) == skew_of(counts[:, ::-1])
    far = distances(counts)
    assert far.shape == (len(rows),)
    assert (far >= 0).all()
    assert (far < 1).all()


def test_distance_is_the_largest_difference_over_sets_of_classes():
    counts = np.array([[8, 1, 1], [2, 5, 3]])
    own, whole = counts / 10, counts.sum(0) / 20
    subsets = [[i for i in range(3) if bits >> i & 1] for bits in range(8)]
    for client, far in enumerate(distances(counts)):
        most = max(own[client, s].sum() - whole[s].sum() for s in subsets)
        assert far == pytest.approx(most)


# ----------------------------------------------------------------------------- what is refused


def test_a_partition_that_leaves_a_client_empty_is_refused():
    def lopsided(examples, rng):
        return Assignment((np.arange(len(examples)) % 2).astype(np.int32), clients=4)

    spec = Component("partition", "lopsided", 1, lopsided, {"clients": lambda values: 4}).spec()
    told = r"partition 'lopsided', trial 3: client 2 has no training examples \(2 of 4"
    with pytest.raises(FedreproError, match=told):
        build_partition(spec, data_of(np.arange(20) % 2), range(3, 4), 0)


def test_a_file_with_a_client_without_examples_is_damaged(tmp_path):
    path = tmp_path / "partition.parquet"
    rows = {"trial": [0, 0], "client": [0, 2], "split": ["train", "train"], "index": [0, 1]}
    write_table(path, rows, "partition", {"trials": [0], "noise": [None]})
    with pytest.raises(FedreproError, match="a client of trial 0 has no training examples"):
        read_partition(path, 0)


# ------------------------------------------------------------------------- docs/partitions.md

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "partitions.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_partition_is_on_the_page_with_a_drawing_and_a_token(name):
    section = re.split(r"\n##+ ", PAGE.split(f"\n### {name}\n")[1])[0]
    figure = re.search(r"!\[.+\]\((figures/[\w.-]+)\)", section)
    assert figure
    assert 0 < (DOCS / figure[1]).stat().st_size < 200_000
    assert parse_token("partition", section.split("`")[-2]).name == name


def test_tokens_on_the_page_are_canonical():
    for token in re.findall(r"`(\w+\+[\w+~@.-]+)`", PAGE):
        assert parse_token("partition", token).token == token


def test_the_partition_that_the_page_adds_works():
    code = PAGE.split("a-file-of-ones-own):\n\n")[1].split("\n- `examples`")[0]
    components("partition")
    labels = np.arange(2000) % 10
    try:
        exec(textwrap.dedent(code), {"__name__": __name__})
        spec = parse_token("partition", "main_class+clients~5+share~0.8")
        table = build_partition(spec, data_of(labels, labels[:100]), range(2), 0)
    finally:
        del registry._found["partition"]["main_class"]
    for trial in (0, 1):
        rows = [(client, i) for client, split, i in rows_of(table, trial) if split == "train"]
        assert sorted(i for _, i in rows) == list(range(2000))
        own = np.mean([labels[i] % 5 == client for client, i in rows])
        assert own == pytest.approx(0.8 + 0.2 / 5, abs=0.03)

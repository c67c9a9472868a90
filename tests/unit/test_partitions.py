"""Partitions: every example has one owner, every client has examples, draws can be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedrepro.partitions.dirichlet as dirichlet_module
from fedrepro.artifacts import read_provenance, read_table, write_table
from fedrepro.data.membership import (
    Split,
    build_partition,
    read_partition,
    require_examples,
    write_partition,
)
from fedrepro.data.prepared import Prepared
from fedrepro.errors import FedreproError
from fedrepro.registry import components
from fedrepro.rng import Rng
from fedrepro.spec import Component, Spec

NAMES = sorted(components("partition"))


def data_of(train: Any, validation: Any = (), classes: int = 0) -> Prepared:
    y = {"train": np.asarray(train, np.int64), "validation": np.asarray(validation, np.int64)}
    names = [str(k) for k in range(classes or int(y["train"].max()) + 1)]
    return Prepared(Path(), {"name": "small", "token": "small", "classes": names}, {}, y)


def spec_of(name: str, clients: int, **values: Any) -> Spec:
    component = components("partition")[name]
    settings = {"clients": clients, "min_examples": 1, **values}
    return component.spec({k: v for k, v in settings.items() if k in component.params})


def split_of(name: str, labels: np.ndarray, clients: int, rng: Rng, **values: Any) -> Split:
    spec = spec_of(name, clients, **values)
    split: Split = spec.component.fn(labels, int(labels.max()) + 1, rng, **spec.values)
    return split


def rows_of(table: Any, trial: int) -> list[tuple[int, str, int]]:
    lines = table.to_pylist()
    return [(r["client"], r["split"], r["index"]) for r in lines if r["trial"] == trial]


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Training labels with every class, validation labels, and a number of clients."""
    classes = draw(st.integers(1, 6))
    extra = draw(st.lists(st.integers(0, classes - 1), min_size=30, max_size=120))
    train = np.array(draw(st.permutations([*range(classes), *extra])))
    validation = np.array(draw(st.lists(st.integers(0, classes - 1), max_size=40)), np.int64)
    return train, validation, draw(st.integers(1, 6))


# ------------------------------------------------------------------ true of every partition


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(problem=problems(), seed=st.integers(0, 3))
def test_every_example_has_exactly_one_owner_and_every_client_has_examples(
    name: str, problem: tuple[np.ndarray, np.ndarray, int], seed: int
) -> None:
    train, validation, clients = problem
    table = build_partition(spec_of(name, clients), data_of(train, validation), range(1, 3), seed)
    for trial in (1, 2):
        rows = rows_of(table, trial)
        assert rows == sorted(rows)
        owned = {split: [i for _, s, i in rows if s == split] for split in ("train", "validation")}
        assert sorted(owned["train"]) == list(range(train.size))
        assert sorted(owned["validation"]) == list(range(validation.size))
        expected = 1 if name == "pooled" else clients
        assert {client for client, s, _ in rows if s == "train"} == set(range(expected))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(problem=problems(), seed=st.integers(0, 3))
def test_validation_examples_follow_the_training_ones_class_by_class(
    name: str, problem: tuple[np.ndarray, np.ndarray, int], seed: int
) -> None:
    train, validation, clients = problem
    table = build_partition(spec_of(name, clients), data_of(train, validation), range(1), seed)
    counts = {split: np.zeros((clients, train.max() + 1)) for split in ("train", "validation")}
    for client, split, index in rows_of(table, 0):
        label = (train if split == "train" else validation)[index]
        counts[split][client, label] += 1
    exact = counts["train"] / counts["train"].sum(0) * counts["validation"].sum(0)
    assert np.abs(counts["validation"] - exact).max() < 1


@pytest.mark.parametrize("name", NAMES)
def test_a_trial_depends_on_seed_and_trial_alone(name: str) -> None:
    data = data_of(np.arange(300) % 10, np.arange(50) % 10)
    spec = spec_of(name, 5)
    several, one = (build_partition(spec, data, r, 4) for r in (range(4), range(2, 3)))
    assert rows_of(several, 2) == rows_of(one, 2)
    assert several.equals(build_partition(spec, data, range(4), 4))
    if name != "pooled":
        other_seed = build_partition(spec, data, range(2, 3), 5)
        assert rows_of(one, 2) != rows_of(other_seed, 2)
        assert rows_of(several, 1) != rows_of(several, 2)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "pooled"])
def test_which_examples_of_a_class_a_client_holds_is_drawn(name: str) -> None:
    """Not the first ones of the file for the first client."""
    labels = np.repeat([0, 1], 500)
    owner = split_of(name, labels, 2, Rng(0)).owner
    index = np.flatnonzero(labels == 0)
    first, second = (index[owner[index] == client] for client in (0, 1))
    assert first.min() < second.max()
    assert second.min() < first.max()


@pytest.mark.parametrize("name", NAMES)
def test_a_written_partition_is_read_back(name: str, tmp_path: Path) -> None:
    train, validation = np.arange(200) % 4, np.arange(30) % 4
    table = build_partition(spec_of(name, 3), data_of(train, validation), range(5, 7), 0)
    path = tmp_path / "partition.parquet"
    write_partition(path, table, {"seed": 0})
    stored = read_table(path, "partition")
    assert [(f.name, str(f.type)) for f in stored.schema] == [
        ("trial", "int32"),
        ("client", "int32"),
        ("split", "string"),
        ("index", "int32"),
    ]
    assert read_provenance(stored)["seed"] == 0
    assert len(read_provenance(stored)["redraws"]) == 2
    members = read_partition(path, 6)
    expected: dict[str, list[list[int]]] = {
        split: [[] for _ in range(members.clients)] for split in ("train", "validation")
    }
    for client, split, index in rows_of(table, 6):
        expected[split][client].append(index)
    assert [rows.tolist() for rows in members.train] == expected["train"]
    assert [rows.tolist() for rows in members.validation] == expected["validation"]
    counts = members.label_counts(train, 4)
    assert counts.shape == (members.clients, 4)
    assert counts.tolist() == [
        [sum(train[i] == k for i in rows) for k in range(4)] for rows in expected["train"]
    ]
    with pytest.raises(FedreproError, match="has no trial 4"):
        read_partition(path, 4)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "pooled"])
def test_more_clients_than_examples_is_said(name: str) -> None:
    with pytest.raises(FedreproError, match="31 clients are more than the 30 training examples"):
        build_partition(spec_of(name, 31), data_of(np.arange(30) % 3), range(1), 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_that_no_client_could_learn_is_named(name: str) -> None:
    data = data_of(np.repeat([0, 2], 20), classes=4)
    with pytest.raises(FedreproError, match="no training example of class 1, 3"):
        build_partition(spec_of(name, 2), data, range(1), 0)


# -------------------------------------------------------------------------- single partitions


@settings(max_examples=60, deadline=None)
@given(problem=problems(), seed=st.integers(0, 3))
def test_homogeneous_parts_differ_by_one_example_at_most(
    problem: tuple[np.ndarray, np.ndarray, int], seed: int
) -> None:
    labels, _, clients = problem
    owner = split_of("homogeneous", labels, clients, Rng(seed)).owner
    for rows in (owner, *(owner[labels == k] for k in range(labels.max() + 1))):
        sizes = np.bincount(rows, minlength=clients)
        assert sizes.max() - sizes.min() <= 1


def test_homogeneous_draws_who_gets_the_remainder() -> None:
    luckiest = {
        int(np.bincount(split_of("homogeneous", np.zeros(10, int), 3, Rng(s)).owner).argmax())
        for s in range(30)
    }
    assert luckiest == {0, 1, 2}


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(1, 8),
    least=st.integers(1, 20),
    alpha=st.floats(0.1, 10),
    balance=st.booleans(),
    seed=st.integers(0, 99),
)
def test_dirichlet_leaves_no_client_with_less_than_asked(
    clients: int, least: int, alpha: float, balance: bool, seed: int
) -> None:
    labels = np.arange(600) % 10
    values = {"alpha": alpha, "min_examples": least, "balance": balance}
    owner = split_of("dirichlet", labels, clients, Rng(seed), **values).owner
    assert np.bincount(owner, minlength=clients).min() >= least


def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution() -> None:
    """Dir_J(alpha): mean 1/J, variance (J-1) / (J² (J alpha + 1)), of each client and class."""
    clients, alpha, classes, examples = 4, 0.5, 10, 1000
    labels = np.repeat(np.arange(classes), examples)
    shares = []
    for trial in range(300):
        split = split_of("dirichlet", labels, clients, Rng(0, trial=trial), alpha=alpha)
        assert split.redraws == 0
        flat = np.bincount(labels * clients + split.owner, minlength=classes * clients)
        shares.append(flat.reshape(classes, clients) / examples)
    found = np.array(shares)
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert found.mean((0, 1)) == pytest.approx(np.full(clients, 1 / clients), abs=0.02)
    assert found.var((0, 1)) == pytest.approx(np.full(clients, variance), rel=0.1)


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 1e-3])
def test_a_tiny_alpha_gives_each_class_to_one_client(alpha: float) -> None:
    labels = np.arange(900) % 30
    owner = split_of("dirichlet", labels, 3, Rng(0), alpha=alpha).owner
    holders = np.array([np.unique(owner[labels == k]).size for k in range(30)])
    assert holders.mean() < 1.1
    assert np.bincount(owner).size == 3


def test_a_large_alpha_gives_equal_shares() -> None:
    labels = np.repeat(np.arange(3), 1000)
    owner = split_of("dirichlet", labels, 4, Rng(0), alpha=1e6).owner
    counts = np.array([np.bincount(owner[labels == k]) for k in range(3)])
    assert np.abs(counts - 250).max() <= 3


def test_balance_stops_a_client_that_holds_its_even_part() -> None:
    """A client gets nothing of the classes after the one that filled its even part."""
    labels = np.repeat(np.arange(10), 100)
    differ = False
    for seed in range(20):
        plain, even = (
            split_of("dirichlet", labels, 4, Rng(seed), balance=balance).owner
            for balance in (False, True)
        )
        counts = np.array([np.bincount(even[labels == k], minlength=4) for k in range(10)])
        before = np.cumsum(counts, axis=0) - counts
        assert not counts[before >= 250].any()
        differ |= not np.array_equal(plain, even)
    assert differ


def test_redraws_are_counted_and_do_not_depend_on_how_many_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = np.arange(1437) % 10
    values = {"clients": 30, "min_examples": 10}
    before = [split_of("dirichlet", labels, rng=Rng(0, trial=t), **values) for t in range(20)]
    assert max(split.redraws for split in before) > 3
    monkeypatch.setattr(dirichlet_module, "BLOCK", 1)
    for trial, split in enumerate(before):
        again = split_of("dirichlet", labels, rng=Rng(0, trial=trial), **values)
        assert again.redraws == split.redraws
        assert np.array_equal(again.owner, split.owner)


def test_the_draw_that_is_taken_is_the_first_good_one() -> None:
    """With n redraws, a limit of n is enough and a limit of n - 1 is not."""
    labels = np.arange(1437) % 10
    values = {"clients": 30, "min_examples": 10}
    redraws = {t: split_of("dirichlet", labels, rng=Rng(0, trial=t), **values) for t in range(20)}
    trial, split = max(redraws.items(), key=lambda item: item[1].redraws)
    rng = Rng(0, trial=trial)
    kept = split_of("dirichlet", labels, rng=rng, max_redraws=split.redraws, **values)
    assert np.array_equal(kept.owner, split.owner)
    with pytest.raises(FedreproError) as failure:
        split_of("dirichlet", labels, rng=rng, max_redraws=split.redraws - 1, **values)
    sentence = str(failure.value)
    assert f"{split.redraws} draws of trial {trial}" in sentence
    assert "lower `clients` or `min_examples`, or raise `alpha` (0.2)" in sentence


def test_what_no_draw_can_give_is_said_at_once() -> None:
    with pytest.raises(FedreproError, match="cannot give each of 4 clients 10: lower `clients`"):
        split_of("dirichlet", np.arange(39) % 3, 4, Rng(0), min_examples=10)
    require_examples(np.zeros(40), 4, 10)


# ----------------------------------------------------------------------------- what is refused


def test_a_partition_that_leaves_a_client_empty_is_refused() -> None:
    def lopsided(labels: np.ndarray, classes: int, rng: Rng) -> Split:
        return Split((np.arange(labels.size) % 2).astype(np.int32), clients=4)

    spec = Component("partition", "lopsided", 1, lopsided).spec()
    with pytest.raises(
        FedreproError,
        match=r"partition 'lopsided', trial 3: client 2 has no training examples \(2 of 4",
    ):
        build_partition(spec, data_of(np.arange(20) % 2), range(3, 4), 0)


def test_a_file_with_a_client_without_examples_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "partition.parquet"
    rows = {"trial": [0, 0], "client": [0, 2], "split": ["train", "train"], "index": [0, 1]}
    write_table(path, rows, "partition", {})
    with pytest.raises(FedreproError, match="a client of trial 0 has no training examples"):
        read_partition(path, 0)
    write_table(path, rows, "metrics", {})
    with pytest.raises(FedreproError, match="holds metrics, but partition was expected"):
        read_partition(path, 0)

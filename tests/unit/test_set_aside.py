"""Examples that no client trains with: a public sample, validation at the server or at clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from partitioned import NAMES, fitting, grouped

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.partition_table import (
    PartitionIndices,
    build_partition,
    draw_holdout,
    read_partition,
    write_partition,
)

LABELS = np.tile(np.arange(4), 50)


def with_aside(name: str, **values: object) -> Spec:
    """A partition of LABELS among at most three clients, with examples set aside."""
    spec = fitting(name, LABELS, 3)
    return spec.component.spec({**spec.values, **values})


def members(
    tmp_path: Path, spec: Spec, trials: range = range(2), trial: int = 0
) -> PartitionIndices:
    table = build_partition(spec, grouped(LABELS, LABELS[:40]), trials, 0)
    write_partition(tmp_path / "p", table, {"seed": 0})
    return read_partition(tmp_path / "p", trial)


@pytest.mark.parametrize("at", ["server", "clients"])
@pytest.mark.parametrize("name", NAMES)
def test_every_training_example_has_one_place(tmp_path: Path, name: str, at: str) -> None:
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
def test_all_partitions_of_a_trial_set_the_same_examples_aside(tmp_path: Path, name: str) -> None:
    values = {"public": 12, "validation": 20}
    one = members(tmp_path, with_aside(name, **values))
    two = members(tmp_path, with_aside("pooled", **values))
    assert np.array_equal(one.public, two.public)
    assert np.array_equal(one.server_validation, two.server_validation)
    other = members(tmp_path, with_aside(name, **values), trial=1)
    assert not np.array_equal(one.public, other.public)


def test_the_public_sample_does_not_depend_on_how_many_validate(tmp_path: Path) -> None:
    few, many = (with_aside("iid", public=12, validation=n) for n in (0, 60))
    assert np.array_equal(members(tmp_path, few).public, members(tmp_path, many).public)


def test_nothing_set_aside_leaves_the_partition_and_its_name_as_they_were() -> None:
    plain = fitting("dirichlet", LABELS, 3)
    same = with_aside("dirichlet", public=0, validation=0)
    assert same.token == plain.token
    aside, rest = draw_holdout(LABELS.size, same, RngKey(0, 0))
    assert not aside
    assert np.array_equal(rest, np.arange(LABELS.size))


def test_clients_validate_on_the_classes_that_they_hold(tmp_path: Path) -> None:
    spec = with_aside("one_class", validation=40, validation_at="clients")
    found = members(tmp_path, spec)
    for rows, own in zip(found.train, found.client_validation, strict=True):
        assert set(LABELS[own]) <= set(LABELS[rows])


def test_noise_is_on_what_clients_validate_with_too(tmp_path: Path) -> None:
    spec = with_aside("feature_noise", validation=20, validation_at="clients")
    found = members(tmp_path, spec)
    inputs = np.zeros((LABELS.size, 3), np.float32)
    noisy = found.with_feature_noise(inputs, RngKey(0, 0))
    last = found.client_validation[-1]
    assert last.size
    assert noisy[last].any()
    alone = PartitionIndices(found.train, found.validation, found.noise)
    assert not alone.with_feature_noise(inputs, RngKey(0, 0))[last].any()
    train = found.train[-1]
    assert np.array_equal(alone.with_feature_noise(inputs, RngKey(0, 0))[train], noisy[train])


def test_more_than_there_is_cannot_be_set_aside(tmp_path: Path) -> None:
    with pytest.raises(FedreproError, match="sets 200 of 200 training examples aside"):
        members(tmp_path, with_aside("iid", public=150, validation=50))

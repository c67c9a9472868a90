"""Clients of a method in rounds: what they train on in which round, epoch and call."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from problems import problem

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.training.clients import own_starts


@pytest.fixture(scope="module")
def clients():
    return problem().clients


@pytest.fixture(scope="module")
def start(clients):
    return own_starts(clients.network, clients.settings, [Rng(0)])


def trained(clients, start, rng, **options):
    found = clients.train(start, rng, **{"epochs": 1, **options})
    return np.concatenate([value.ravel() for value in found.tensors.values()])


def test_a_method_that_names_its_round_has_other_minibatches_in_each(clients, start):
    """From the same weights, so only the order of the examples can make a difference."""
    rounds = [trained(clients, start, Rng(0).at(round=r), epochs=2) for r in range(4)]
    assert not any(np.array_equal(one, two) for one, two in combinations(rounds, 2))
    assert np.array_equal(rounds[2], trained(clients, start, Rng(0).at(round=2), epochs=2))


def test_another_call_in_the_same_round_has_other_minibatches(clients, start):
    here = Rng(0).at(round=3)
    first, again, other = (trained(clients, start, rng) for rng in (here, here, here.at(call=1)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_clients_do_not_train_outside_a_round(clients, start):
    for work in (clients.train, lambda *a, **k: clients.average(*a, [0.25] * 4, **k)):
        with pytest.raises(FedreproError, match="clients train in a round"):
            work(start, Rng(0), epochs=1)
        work(start, Rng(0).at(round=0, call=1), epochs=1)


def test_a_client_trains_the_same_in_any_company(clients, start):
    here = Rng(0).at(round=1)
    whole = clients.train(start, here, epochs=1)
    some = clients.train(start, here, epochs=1, chosen=[2, 0])
    fewer = replace(clients, data=replace(clients.data, rows=clients.data.rows[:1])).train(
        start, here, epochs=1
    )
    for name, value in whole.tensors.items():
        assert np.array_equal(value[[2, 0]], some.tensors[name])
        assert np.array_equal(value[:1], fewer.tensors[name])

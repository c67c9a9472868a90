"""Clients of a method in rounds: what they train on in which round, epoch and call."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from problems import problem

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.training.engine import train
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.federation.cost_counter import models_sent
from fedrepro.training.minibatches import Task


@pytest.fixture(scope="module")
def clients():
    return problem().clients


@pytest.fixture(scope="module")
def start(clients):
    return initial_weights(clients.network, clients.settings, [RngKey(0)])


def trained(clients, start, rng, **options):
    found = clients.train(start, rng, **{"epochs": 1, **options})
    return np.concatenate([value.ravel() for value in found.tensors.values()])


def test_a_method_that_names_its_round_has_other_minibatches_in_each(clients, start):
    """From the same weights, so only the order of the examples can make a difference."""
    rounds = [trained(clients, start, RngKey(0).at(round=r), epochs=2) for r in range(4)]
    assert not any(np.array_equal(one, two) for one, two in combinations(rounds, 2))
    assert np.array_equal(rounds[2], trained(clients, start, RngKey(0).at(round=2), epochs=2))


def test_another_call_in_the_same_round_has_other_minibatches(clients, start):
    here = RngKey(0).at(round=3)
    first, again, other = (trained(clients, start, rng) for rng in (here, here, here.at(call=1)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_clients_do_not_train_outside_a_round(clients, start):
    for work in (clients.train, lambda *a, **k: clients.average(*a, [0.25] * 4, **k)):
        with pytest.raises(FedreproError, match="clients train in a round"):
            work(start, RngKey(0), epochs=1)
        work(start, RngKey(0).at(round=0, call=1), epochs=1)


def test_a_client_trains_the_same_in_any_company(clients, start):
    here = RngKey(0).at(round=1)
    whole = clients.train(start, here, epochs=1)
    some = clients.train(start, here, epochs=1, chosen=[2, 0])
    fewer = replace(clients, data=replace(clients.data, rows=clients.data.rows[:1])).train(
        start, here, epochs=1
    )
    for name, value in whole.tensors.items():
        assert np.array_equal(value[[2, 0]], some.tensors[name])
        assert np.array_equal(value[:1], fewer.tensors[name])


def test_a_gradient_costs_a_model_each_way(clients, start):
    """What the harness writes down as traffic of methods in which clients take one step."""
    clients, ledger = clients.with_subset(lambda j, n: np.arange(5)), clients.ledger
    weights = {name: value[:1] for name, value in start.items()}
    ledger.begin()
    found = clients.gradients(weights, [0, 2])
    assert {len(value) for value in found.values()} == {2}
    assert ledger.traffic == models_sent(clients.network, up=2, down=2)
    ledger.begin()
    clients.gradients(weights)
    assert ledger.traffic == models_sent(clients.network, up=clients.count, down=clients.count)


def test_what_goes_on_where_rounds_left_off_takes_the_examples_as_local_training_does(clients):
    """Minibatch by minibatch, in any rounds, it is one training without rounds."""
    clients = clients.with_subset(lambda j, n: np.arange(16))  # two minibatches of 8
    rngs = [RngKey(0).at(client=j) for j in range(clients.count)]
    begin = initial_weights(clients.network, clients.settings, rngs)
    tasks = [Task(rows, rng) for rows, rng in zip(clients.data.rows, rngs, strict=True)]
    whole = train(
        clients.network, clients.data.examples, tasks, replace(clients.settings, epochs=1), begin
    ).tensors
    here = RngKey(0).at(round=4)
    found = clients.train(begin, here, epochs=1, done=0, steps=2).tensors
    for name, value in whole.items():
        assert np.array_equal(found[name], value)
    second = clients.train(begin, here, epochs=1, done=2, steps=2).tensors
    assert any(not np.array_equal(second[name], value) for name, value in whole.items())


def test_gradients_together_need_equally_many_examples(clients, start):
    weights = {name: value[:1] for name, value in start.items()}
    unlike = clients.with_subset(lambda j, n: np.arange(5 + (j == 1)))
    with pytest.raises(FedreproError, match="on equally many examples each"):
        unlike.gradients(weights, [0, 1])
    assert unlike.gradients(weights, [0, 2])

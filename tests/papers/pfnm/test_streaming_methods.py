"""Methods whose data arrive in steps: what each step sees, and that one step is no stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract import METHODS, as_split, asked_by, call, states
from problems import problem

from fedrepro.api import ClientInfo
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.numbers.model_evaluation import correct
from fedrepro.papers.pfnm.streaming import arriving
from fedrepro.training.federation.clients import initial_weights

NOTHING = ClientInfo(training=None)


@pytest.fixture(scope="module")
def given():
    return problem()


def test_all_data_of_a_client_arrive_once_in_parts_as_equal_as_can_be(given):
    parts = [
        arriving(given.clients, step, 7, RngKey(0).at(round=step)).data.rows for step in range(7)
    ]
    for client, rows in enumerate(given.rows):
        own = [part[client] for part in parts]
        assert np.array_equal(np.sort(np.concatenate(own)), np.sort(rows))
        sizes = [len(part) for part in own]
        assert max(sizes) - min(sizes) <= 1
    again = arriving(given.clients, 3, 7, RngKey(0).at(round=99)).data.rows
    assert all(map(np.array_equal, again, parts[3]))


def test_a_stream_of_more_steps_than_examples_is_refused(given):
    few = replace(
        given.clients, data=replace(given.clients.data, rows=[given.rows[0], given.rows[1][:3]])
    )
    with pytest.raises(FedreproError, match="client 1 has 3 examples, too few for a stream of 4"):
        arriving(few, 0, 4, RngKey(0))


def trained_in_a_round(given):
    """The same problem with local models trained as in the first round of a method."""
    clients = given.clients
    starts = initial_weights(
        clients.network, clients.settings, [RngKey(0, client=j) for j in range(clients.count)]
    )
    found = clients.train(starts, RngKey(0, round=0), epochs=clients.settings.epochs)
    return replace(given, models=replace(given.models, tensors=found.tensors))


def test_one_step_of_pfnm_streaming_is_pfnm(given):
    """All data at once, trained as the local models were."""
    given = trained_in_a_round(given)
    values = {"sigma2": 0.1, "order": "fixed"}
    made = METHODS["pfnm_streaming"].fn(steps=1, **values)
    *_, state = states(made, given.clients)
    ours, plain = made.model(state, given.clients), call("pfnm", given, **values)
    for name, value in plain.tensors.items():
        assert np.allclose(ours.tensors[name], value, atol=1e-4)


@pytest.mark.parametrize("hidden", [(8,), (6, 5)])
def test_pfnm_streaming_reports_its_size_at_every_step(hidden):
    given = problem(hidden=hidden)
    made = METHODS["pfnm_streaming"].fn(steps=3, sigma2=0.1)
    state, sizes = made.init(given.clients, given.info, RngKey(0)), []
    for done in range(3):
        state, numbers = made.round(state, given.clients, given.info, RngKey(0).at(round=done))
        model = made.model(state, given.clients)
        assert numbers.metrics["hidden_units"] == sum(v.shape[1] for v in biases_of(model)[:-1])
        sizes.append(numbers.metrics["hidden_units"])
    assert sizes == sorted(sizes)
    assert correct(model, as_split(given)).mean() > 0.5


def biases_of(model):
    return [value for name, value in model.tensors.items() if name.startswith("bias")]


def test_streaming_ensembles_train_on_and_keep_all_or_the_latest(given):
    latest, everyone = (
        METHODS["uniform_ensemble_streaming"].fn(steps=3, members=members)
        for members in ("latest", "all")
    )
    new, old = states(latest, given.clients), states(everyone, given.clients)
    assert [latest.model(s, given.clients).networks for s in new] == [4, 4, 4, 4]
    assert [everyone.model(s, given.clients).networks for s in old] == [4, 4, 8, 12]
    for name, value in new[-1]["networks"].items():
        assert np.array_equal(value, old[-1]["networks"][name][-4:])
        assert np.array_equal(new[1]["networks"][name], old[-1]["networks"][name][:4])


def test_the_uniform_streaming_ensemble_never_counts_labels(given):
    """It does not declare that it sees them, and clients tell nobody else."""
    made = METHODS["uniform_ensemble_streaming"].fn(steps=2)
    clients = asked_by(made, given.clients)
    with pytest.raises(FedreproError, match="add 'label_counts' to its needs"):
        _ = clients.label_counts
    *_, last = states(made, given.clients)
    assert made.model(last, given.clients).networks == 4


def test_a_streaming_ensemble_of_one_step_is_the_ensemble(given):
    given = trained_in_a_round(given)
    for name in ("uniform_ensemble", "weighted_ensemble"):
        made = METHODS[f"{name}_streaming"].fn(steps=1)
        *_, state = states(made, given.clients)
        ours, plain = made.model(state, given.clients), call(name, given)
        assert np.allclose(ours.weights, plain.weights)
        assert all(np.allclose(ours.tensors[k], v, atol=1e-4) for k, v in plain.tensors.items())


def test_downpour_streaming_of_one_step_is_downpour(given):
    stream = METHODS["downpour_streaming"].fn(steps=1, rounds=3)
    plain = METHODS["downpour_sgd"].fn(rounds=3)
    one, two = states(stream, given.clients)[-1], states(plain, given.clients)[-1]
    assert torch.allclose(one["flat"], two["flat"], atol=1e-5)
    given.clients.ledger.begin()
    first = stream.init(given.clients, NOTHING, RngKey(0))
    _, report = stream.round(first, given.clients, NOTHING, RngKey(0).at(round=0))
    assert (report.exchanges, given.clients.ledger.traffic.messages_up) == (3, 3 * 4)

"""Hidden layers that stay as they are, and output layers that clients train on what they give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plain
import pytest
import torch
from problems import CLASSES, FEATURES, problem

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense, hidden_layers, split
from fedrepro.networks.predict import network_of
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches import Task

HERE = RngKey(0).at(round=0, call=1)
BODY = {
    "weight0": np.random.default_rng(0).standard_normal((1, FEATURES, 11)),
    "bias0": np.random.default_rng(1).standard_normal((1, 11)),
    "weight1": np.random.default_rng(2).standard_normal((1, 11, 5)),
    "bias1": np.random.default_rng(3).standard_normal((1, 5)),
}


def clients_of(dtype=torch.float32, needs=("client_training",), **training):
    given = problem(**training)
    data = given.clients.data
    examples = Examples(data.examples.inputs.to(dtype), data.examples.targets)
    held = replace(data, examples=examples)
    return replace(given.clients, data=held, method="mine", needs=frozenset(needs))


def hidden_by_numpy(inputs):
    for place in range(2):
        inputs = np.maximum(inputs @ BODY[f"weight{place}"][0] + BODY[f"bias{place}"][0], 0)
    return inputs


@pytest.mark.parametrize("patience", [0, 2])
def test_every_client_trains_an_output_layer_as_a_plain_loop_would(patience):
    clients = clients_of(torch.float64, amsgrad=False)
    heads = clients.train_heads(BODY, HERE, epochs=9, patience=patience, lr=0.02)
    weights, biases = heads["weight0"], heads["bias0"]
    assert weights.shape == (4, 5, CLASSES)
    assert biases.shape == (4, CLASSES)
    made = torch.from_numpy(hidden_by_numpy(clients.data.examples.inputs.numpy()))
    own, given = Examples(made, clients.data.examples.targets), clients.settings
    given = replace(given, epochs=9, patience=patience, lr=0.02)
    for j, rows in enumerate(clients.data.rows):
        task = Task(rows, HERE.at(client=j))
        start = initial_weights(dense((5, CLASSES)), given, [task.rng])
        found = plain.loop(
            lambda w, x, noise: plain.mlp(w, x, noise, 1),
            own,
            task,
            given,
            {k: v[0].astype(np.float64) for k, v in start.items()},
        )
        # starts and results are in single precision
        assert np.abs(weights[j] - found["weight0"]).max() < 1e-6
        assert np.abs(biases[j] - found["bias0"]).max() < 1e-6


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_further_hidden_layers_are_trained_with_the_networks_dropout(rate):
    """As the network would be that is these layers alone, on what the body gives."""
    clients = clients_of()
    model = components("model")["mlp"]
    network = model.fn((FEATURES,), CLASSES, hidden=(8,), dropout=rate)
    clients = replace(clients, network=network)
    found = clients.train_heads(BODY, HERE, hidden=(4,), epochs=3)
    made = hidden_by_numpy(clients.data.examples.inputs.numpy())
    above = model.fn((5,), CLASSES, hidden=(4,), dropout=rate)
    examples = Examples(torch.from_numpy(made), clients.data.examples.targets)
    given = replace(clients.settings, epochs=3)
    tasks = [Task(rows, HERE.at(client=j)) for j, rows in enumerate(clients.data.rows)]
    starts = initial_weights(above, given, [task.rng for task in tasks])
    plainly = train(above, examples, tasks, given, starts).tensors
    assert set(found) == {"weight0", "bias0", "weight1", "bias1"}
    assert all(np.allclose(found[name], plainly[name], atol=1e-5) for name in found)


def test_heads_may_start_otherwise_than_networks_do():
    """Tenfold weights to start from are still there after a step of almost nothing."""
    clients = clients_of()
    one, ten = (
        clients.train_heads(BODY, HERE, epochs=1, lr=1e-9, weight_sd=sd) for sd in (0.05, 0.5)
    )
    assert np.allclose(10 * one["weight0"], ten["weight0"], atol=1e-5)
    assert np.abs(one["bias0"]).max() < 1e-6


def test_the_body_goes_down_and_output_layers_come_up():
    clients = clients_of()
    before = {name: value.copy() for name, value in BODY.items()}
    clients.train_heads(BODY, HERE, epochs=1)
    sent = clients.ledger.traffic
    assert (sent.messages_down, sent.messages_up) == (4, 4)
    assert sent.bytes_down == 4 * 4 * (FEATURES * 11 + 11 + 11 * 5 + 5)
    assert sent.bytes_up == 4 * 4 * (5 * CLASSES + CLASSES)
    assert clients.ledger.selected == 4  # who train, with what they lost
    assert all(0 < loss < 10 for (loss,) in clients.ledger.losses.values())
    assert all(np.array_equal(before[name], value) for name, value in BODY.items())


def test_clients_train_heads_only_for_who_declares_it_and_in_a_round():
    with pytest.raises(FedreproError, match="'mine' wants to let clients train"):
        clients_of(needs=()).train_heads(BODY, HERE, epochs=1)
    with pytest.raises(FedreproError, match="clients train in a round"):
        clients_of().train_heads(BODY, RngKey(0), epochs=1)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"weight0": BODY["weight0"][0], "bias0": BODY["bias0"][0]},
        {"weight0": BODY["weight1"], "bias0": BODY["bias1"]},
        {**BODY, "bias1": BODY["bias0"]},
    ],
)
def test_what_are_no_hidden_layers_is_said(body):
    with pytest.raises(FedreproError, match="are not fully connected layers of one network on 6"):
        clients_of().train_heads(body, HERE, epochs=1)


@pytest.mark.parametrize(
    "token", ["logistic", "mlp+dropout~0.5+hidden~9", "mlp+hidden~9@7", "cnn+channels~4+hidden~9"]
)
def test_a_network_is_its_hidden_layers_and_its_output_layer(token):
    shape = (8, 8)
    network = network_of(parse_token("model", token), shape, CLASSES)
    inputs = torch.rand(13, 64, generator=torch.Generator().manual_seed(0))
    own = {name: value[None] for name, value in network.initial(RngKey(0), 0.3, 0.1).items()}
    hidden, head = split(network)
    assert head.dropout == network.dropout
    last = max(int(name[6:]) for name in own if name.startswith("weight"))
    made = Examples(inputs, torch.zeros(13, dtype=torch.int64)).above(hidden, own).inputs
    top = {f"{part}0": torch.tensor(own[f"{part}{last}"][0]) for part in ("weight", "bias")}
    whole = network.logits({k: torch.tensor(v[0]) for k, v in own.items()}, inputs)
    assert torch.allclose(head.logits(top, made), whole, atol=1e-6)


@pytest.mark.parametrize("token", ["char_lstm+predict~all+units~4", "variational_mlp+hidden~4"])
def test_a_network_without_such_an_output_layer_is_refused(token):
    with pytest.raises(FedreproError, match="cannot be trained alone; train all layers"):
        split(network_of(parse_token("model", token), (8,), CLASSES))


def test_hidden_layers_are_as_wide_as_their_tensors():
    assert hidden_layers(FEATURES, BODY).shapes == {k: v.shape[1:] for k, v in BODY.items()}

"""Clients: training, questions, heads, private tensors, and what is counted of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import plain
import pytest
import torch
from problems import CLASSES, FEATURES, problem
from torch.nn import functional

from fedrepro.api import GlobalModel, Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense
from fedrepro.networks.network import split as split_network
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import EvaluationSplit, correct, measure
from fedrepro.training.engine import train
from fedrepro.training.federation import client_queries_and_costs as queries
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Examples


@pytest.fixture(scope="module")
def clients():
    return problem().clients


@pytest.fixture(scope="module")
def start(clients):
    return initial_weights(clients.network, clients.settings, [RngKey(0)])


def trained(clients, start, rng, **options):
    return clients.train(start, rng, **{"epochs": 1, **options}).tensors


def same(one, two):
    return all(np.array_equal(value, two[name]) for name, value in one.items())


def test_each_call_in_each_round_has_minibatches_of_its_own(clients, start):
    """From the same weights, so only the order of the examples can make a difference."""
    places = [RngKey(0).at(round=r) for r in range(4)]
    places.append(places[3].at(call=1))
    found = [trained(clients, start, place, epochs=2) for place in places]
    assert not any(same(one, two) for one, two in combinations(found, 2))
    assert same(found[2], trained(clients, start, places[2], epochs=2))


def test_a_gradient_costs_a_model_each_way_and_needs_equally_many_examples(clients, start):
    """What the harness writes down as traffic of methods in which clients take one step."""
    weights, ledger = {name: value[:1] for name, value in start.items()}, clients.ledger
    unlike = clients.with_subset(lambda j, n: np.arange(5 + (j == 1)))
    alike = clients.with_subset(lambda j, n: np.arange(5))
    for own, chosen, count in ((unlike, [0, 2], 2), (alike, None, clients.count)):
        ledger.begin()
        assert {len(value) for value in own.gradients(weights, chosen).values()} == {count}
        assert ledger.traffic == queries.models_sent(clients.network, up=count, down=count)
    with pytest.raises(FedreproError, match="on equally many examples each"):
        unlike.gradients(weights, [0, 1])


def test_what_goes_on_where_rounds_left_off_takes_the_examples_as_local_training_does(clients):
    """Minibatch by minibatch, in any rounds, it is one training without rounds."""
    clients = clients.with_subset(lambda j, n: np.arange(16))  # two minibatches of 8
    rngs = [RngKey(0).at(client=j) for j in range(clients.count)]
    begin = initial_weights(clients.network, clients.settings, rngs)
    tasks = [Task(rows, rng) for rows, rng in zip(clients.data.rows, rngs, strict=True)]
    settings = replace(clients.settings, epochs=1)
    whole = train(clients.network, clients.data.examples, tasks, settings, begin).tensors
    here = RngKey(0).at(round=4)
    assert same(trained(clients, begin, here, done=0, steps=2), whole)
    assert not same(trained(clients, begin, here, done=2, steps=2), whole)


WEIGHTS = 4 * (FEATURES * 8 + 8)  # bytes of the first layer of a perceptron of 8 units


@pytest.fixture
def given():
    return problem()


def sums(network, tensors, examples):
    """The number of examples, the sum of inputs, and a matrix that equals its transpose."""
    x = examples.scaled(slice(None)).numpy()
    return {"count": np.array([len(x)]), "sum": x.sum(0), "gram": np.ones((5, 5), np.float32)}


def mean_weight(network, tensors, examples):
    return {"mean": tensors["weight0"].mean().numpy()[None]}


def test_each_client_answers_on_its_own_examples_in_the_order_asked(given):
    """And by default for its own model."""
    found = given.clients.query(sums, chosen=[2, 0])
    for answer, j in zip(found, [2, 0], strict=True):
        own = given.inputs[given.rows[j]]
        assert answer["count"] == len(own)
        assert np.allclose(answer["sum"], own.sum(0), atol=1e-4)
    found = given.clients.query(mean_weight)
    own = given.models.tensors["weight0"].mean(axis=(1, 2))
    assert np.allclose([answer["mean"][0] for answer in found], own, atol=1e-6)


def test_answers_about_own_models_go_with_them_and_half_of_a_symmetric_matrix_is_sent(given):
    """No message of their own, and no second exchange; half of a symmetric matrix is counted."""
    given.clients.query(sums)
    spent = given.clients.ledger.spent
    assert spent.traffic == Traffic(bytes_up=4 * (8 + 4 * FEATURES + 4 * 15))
    assert (spent.exchanges, spent.passes, spent.seconds > 0) == (0, 1, True)
    for shape, numbers in {(3,): 3, (4, 4): 10, (2, 3): 6, (2, 2, 2): 8}.items():
        assert queries.size_of(np.ones(shape)) == 8 * numbers
    assert queries.size_of(np.arange(9.0).reshape(3, 3)) == 8 * 9


def test_weights_that_are_sent_for_it_are_counted_once(given):
    """Layers that all clients have from the question before do not go down again."""
    one = {k: v[:1] for k, v in given.models.tensors.items()}
    first = {name: one[name] for name in ("weight0", "bias0")}
    rest = 4 * (8 * CLASSES + CLASSES)
    for asked, chosen, times, down in (
        (first, [1], 1, WEIGHTS),
        (first, None, 5, 5 * WEIGHTS),  # what one of them has is sent again to all
        (one, None, 9, 5 * WEIGHTS + 4 * rest),
    ):
        given.clients.query(mean_weight, asked, chosen)
        assert given.clients.ledger.spent.traffic == Traffic(times, times, times * 4, down)
    assert given.clients.ledger.spent.exchanges == 3


@pytest.mark.parametrize(
    ("changes", "question", "words"),
    [
        ({"needs": {"client_evaluation"}}, sums, "add 'client_answers' to its needs"),
        ({"own": None}, sums, "they trained none"),
        ({}, lambda *_: np.ones(3), "return a dict of NumPy arrays"),
        ({}, lambda *_: {"a": 1.0}, "return a dict of NumPy arrays"),
    ],
)
def test_what_is_not_declared_or_not_there_is_a_sentence(given, changes, question, words):
    with pytest.raises(FedreproError, match=words):
        replace(given.clients, **changes).query(question)


def test_weights_of_all_clients_are_not_those_of_the_chosen(given):
    each = {k: np.repeat(v[:1], 5, axis=0) for k, v in given.models.tensors.items()}
    with pytest.raises(FedreproError, match="2 clients are asked, and weights are those of 5"):
        given.clients.query(sums, each, [1, 2])
    with pytest.raises(FedreproError, match="2 clients train, and weights are those of 5"):
        given.clients.train(each, HERE, epochs=1, chosen=[1, 2])


@pytest.mark.parametrize("values", [{"needs": {"client_answers"}}, {"sends": "a number"}])
def test_a_method_that_asks_says_what_is_sent(values):
    with pytest.raises(FedreproError, match="must say in a phrase what clients answer"):
        method("x", kind="one_shot", **values)


HERE = RngKey(0).at(round=0, call=1)
DRAWN = np.random.default_rng(0).standard_normal
BODY = {
    "weight0": DRAWN((1, FEATURES, 11)),
    "bias0": DRAWN((1, 11)),
    "weight1": DRAWN((1, 11, 5)),
    "bias1": DRAWN((1, 5)),
}


def clients_of(dtype=torch.float32, **training):
    given = problem(**training)
    data = given.clients.data
    examples = Examples(data.examples.inputs.to(dtype), data.examples.targets)
    return replace(given.clients, data=replace(data, examples=examples))


def on_the_body(clients):
    """The examples of all clients as the body gives them to the layers above."""
    inputs = clients.data.examples.inputs.numpy()
    for place in range(2):
        inputs = np.maximum(inputs @ BODY[f"weight{place}"][0] + BODY[f"bias{place}"][0], 0)
    return Examples(torch.from_numpy(inputs), clients.data.examples.targets)


@pytest.mark.parametrize("patience", [0, 2])
def test_every_client_trains_an_output_layer_as_a_plain_loop_would(patience):
    clients, how = clients_of(torch.float64, amsgrad=False), {"patience": patience, "lr": 0.02}
    heads = clients.train_heads(BODY, HERE, epochs=9, **how)
    assert heads["weight0"].shape == (4, 5, CLASSES)
    own, given = on_the_body(clients), replace(clients.settings, epochs=9, **how)
    for j, rows in enumerate(clients.data.rows):
        task = Task(rows, HERE.at(client=j))
        start = initial_weights(dense((5, CLASSES)), given, [task.rng])
        start = {k: v[0].astype(np.float64) for k, v in start.items()}
        found = plain.loop(lambda w, x, noise: plain.mlp(w, x, noise, 1), own, task, given, start)
        assert heads.keys() == found.keys()
        for name, value in heads.items():  # starts and results are in single precision
            assert np.abs(value[j] - found[name]).max() < 1e-6


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_further_hidden_layers_are_trained_with_the_networks_dropout(rate):
    """As the network would be that is these layers alone, on what the body gives."""
    mlp = components("model")["mlp"].fn
    network, above = (
        mlp((inputs,), CLASSES, hidden=(hidden,), dropout=rate)
        for inputs, hidden in ((FEATURES, 8), (5, 4))
    )
    clients = replace(clients_of(), network=network)
    found = clients.train_heads(BODY, HERE, hidden=(4,), epochs=3)
    given = replace(clients.settings, epochs=3)
    tasks = [Task(rows, HERE.at(client=j)) for j, rows in enumerate(clients.data.rows)]
    starts = initial_weights(above, given, [task.rng for task in tasks])
    plainly = train(above, on_the_body(clients), tasks, given, starts).tensors
    assert found.keys() == plainly.keys()
    assert all(np.allclose(found[name], plainly[name], atol=1e-5) for name in found)


def test_heads_may_start_otherwise():
    """Tenfold weights to start from are still there after a step of almost nothing."""
    given = {"epochs": 1, "lr": 1e-9}
    one, ten = (clients_of().train_heads(BODY, HERE, weight_sd=sd, **given) for sd in (0.05, 0.5))
    assert np.allclose(10 * one["weight0"], ten["weight0"], atol=1e-5)
    assert np.abs(one["bias0"]).max() < 1e-6


def test_the_body_goes_down_and_output_layers_come_up():
    clients, before = clients_of(), {name: value.copy() for name, value in BODY.items()}
    clients.train_heads(BODY, HERE, epochs=1)
    down, up = FEATURES * 11 + 11 + 11 * 5 + 5, 5 * CLASSES + CLASSES
    assert clients.ledger.traffic == Traffic(4, 4, 4 * 4 * up, 4 * 4 * down)
    assert clients.ledger.selected == 4  # who train, with what they lost
    assert all(0 < loss < 10 for (loss,) in clients.ledger.losses.values())
    assert same(before, BODY)


def test_clients_train_in_a_round_alone(clients, start):
    for work, given in (
        (clients.train, start),
        (lambda *a, **k: clients.average(*a, [0.25] * 4, **k), start),
        (clients_of().train_heads, BODY),
    ):
        with pytest.raises(FedreproError, match="clients train in a round"):
            work(given, RngKey(0), epochs=1)
        work(given, HERE, epochs=1)


@pytest.mark.parametrize(
    "token", ["logistic", "mlp+dropout~0.5+hidden~9", "mlp+hidden~9@7", "cnn+channels~4+hidden~9"]
)
def test_a_network_is_its_hidden_layers_and_its_output_layer(token):
    shape = (8, 8)
    network = network_of(parse_token("model", token), shape, CLASSES)
    inputs = torch.rand(13, 64, generator=torch.Generator().manual_seed(0))
    own = {name: value[None] for name, value in network.initial(RngKey(0), 0.3, 0.1).items()}
    hidden, head = split_network(network)
    assert head.dropout == network.dropout
    last = max(int(name[6:]) for name in own if name.startswith("weight"))
    made = Examples(inputs, torch.zeros(13, dtype=torch.int64)).above(hidden, own).inputs
    top = {f"{part}0": torch.tensor(own[f"{part}{last}"][0]) for part in ("weight", "bias")}
    whole = network.logits({k: torch.tensor(v[0]) for k, v in own.items()}, inputs)
    assert torch.allclose(head.logits(top, made), whole, atol=1e-6)


@pytest.mark.parametrize("token", ["char_lstm+predict~all+units~4", "variational_mlp+hidden~4"])
def test_a_network_without_such_an_output_layer_is_refused(token):
    with pytest.raises(FedreproError, match="cannot be trained alone; train all layers"):
        split_network(network_of(parse_token("model", token), (8,), CLASSES))


ROUND = RngKey(0).at(round=2)


class Offset:
    """coefficient · |shift - mean weight|²: a private number that is drawn to the network's."""

    additive = True

    def shapes(self, network):
        return {"shift": (3,)}

    def loss(self, look):
        weight = look.tensors["weight0"].flatten(1).mean(1, keepdim=True)
        return 5 * ((look.tensors["shift"] - weight) ** 2).sum(1)


def shifts(clients):
    return {"shift": np.random.default_rng(0).random((clients.count, 3), np.float32)}


def moved(clients, start, private, rng=ROUND, **given):
    """Trained with private shifts."""
    return clients.train(start, rng, private=private, **{"epochs": 1, "terms": [Offset()], **given})


def test_private_tensors_stand_beside_a_shared_start(clients, start):
    """The same as with a copy of the start for each client."""
    private = shifts(clients)
    copies = {name: np.repeat(value, clients.count, 0) for name, value in start.items()}
    shared, copied = (moved(clients, one, private, epochs=2) for one in (start, copies))
    assert (set(shared.tensors), set(shared.private)) == (set(start), {"shift"})
    assert shared.private["shift"].shape == (clients.count, 3)
    assert not same(shared.private, private)
    assert same(shared.private, copied.private)
    assert same(shared.tensors, copied.tensors)


def test_private_tensors_go_on_are_not_averaged_and_stay_where_a_client_fails(clients, start):
    private, weights = shifts(clients), [0.1, 0.2, 0.3, 0.4]
    each = moved(clients, start, private)
    mean = clients.average(start, ROUND, weights, epochs=1, terms=[Offset()], private=private)
    assert same(mean.private, each.private)
    assert set(mean.tensors) == set(start)
    for name, value in mean.tensors.items():
        assert np.allclose(value[0], np.tensordot(weights, each.tensors[name], 1), atol=1e-6)
    # What a client keeps between rounds does not depend on who else is chosen.
    alone = moved(clients, start, {"shift": private["shift"][[2]]}, chosen=[2])
    assert np.array_equal(alone.private["shift"], each.private["shift"][[2]])
    assert not same(moved(clients, start, each.private).private, each.private)
    well = each.private["shift"]
    private["shift"][1] = 3e38
    found = moved(clients, start, private)
    assert found.finite.tolist() == [True, False, True, True]
    well[1] = private["shift"][1]
    assert np.array_equal(found.private["shift"], well)


WINDOW, CODES, COUNT = 6, 5, 24
MODEL = components("model")["char_lstm"].spec({"embedding": 3, "units": 4, "predict": "all"})
NETWORK = network_of(MODEL, (WINDOW,), CODES)


@pytest.fixture
def split():
    rng = np.random.default_rng(2)
    inputs = rng.integers(0, CODES, (COUNT, WINDOW)).astype(np.uint8)
    labels = rng.integers(0, CODES, COUNT)
    examples = Examples(torch.from_numpy(inputs), torch.from_numpy(labels))
    rows = [np.arange(0, 5), np.arange(5, COUNT)]
    return EvaluationSplit(examples, labels, (WINDOW,), CODES, rows)


@pytest.fixture
def weights():
    found = NETWORK.initial(RngKey(1), 0.1, 0.1, "fan_in")
    return {name: 3 * value[None] for name, value in found.items()}


def literal(weights, split):
    """Logits (N, K, T) of the equations, and the character that follows at each position."""
    alone = {k: torch.from_numpy(v[0]) for k, v in weights.items()}
    x = split.examples.inputs
    after = [[*row[1:], label] for row, label in zip(x.tolist(), split.labels, strict=True)]
    return plain.lstm(alone, x, 2, all_positions=True), torch.tensor(after)


def test_clients_evaluate_and_differentiate_over_all_characters_and_so_is_accuracy(split, weights):
    logits, after = literal(weights, split)
    right = (logits.argmax(1) == after).numpy()
    model = GlobalModel(MODEL, weights)
    assert np.array_equal(correct(model, split), right)
    numbers = {(n.metric, n.split): n.value for n in measure(model, {"train": split})}
    assert numbers["accuracy", "train"] == right.mean()
    clients = [right[rows].mean() for rows in split.rows]
    assert numbers["accuracy_clients", "train"] == pytest.approx(np.mean(clients))
    each = functional.cross_entropy(logits, after, reduction="none").mean(1)
    right = (logits.argmax(1) == after).double().mean(1)
    found = queries.evaluated(NETWORK, split.examples, split.rows, weights)
    for client, rows in enumerate(split.rows):
        assert found.accuracy[0, client] == pytest.approx(float(right[rows].mean()), abs=1e-6)
        assert found.loss[0, client] == pytest.approx(float(each[rows].mean()), abs=1e-6)
    halves = np.split(np.arange(COUNT), 2)
    _, losses = queries.gradients_at(NETWORK, split.examples, halves, weights)
    assert losses == pytest.approx([float(each[rows].mean()) for rows in halves], abs=1e-6)

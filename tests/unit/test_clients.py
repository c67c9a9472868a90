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
from fedrepro.networks.layers import Pass
from fedrepro.networks.network import dense
from fedrepro.networks.network import split as split_network
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import EvaluationSplit, correct, measure
from fedrepro.stages.aggregate import SharedPreparation
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.client_queries import (
    evaluated,
    gradients_at,
    models_sent,
    size_of,
)
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.loss_terms import Proximal
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


def test_each_call_in_each_round_has_minibatches_of_its_own(clients, start):
    """From the same weights, so only the order of the examples can make a difference."""
    places = [RngKey(0).at(round=r) for r in range(4)]
    places.append(places[3].at(call=1))
    found = [trained(clients, start, place, epochs=2) for place in places]
    assert not any(np.array_equal(one, two) for one, two in combinations(found, 2))
    assert np.array_equal(found[2], trained(clients, start, places[2], epochs=2))


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


SIZES = {(3,): 3, (4, 4): 10, (2, 3): 6, (2, 2, 2): 8}
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
    found = given.clients.query(sums, chosen=[2, 0])
    for answer, j in zip(found, [2, 0], strict=True):
        own = given.inputs[given.rows[j]]
        assert answer["count"] == len(own)
        assert np.allclose(answer["sum"], own.sum(0), atol=1e-4)


def test_by_default_each_client_answers_for_its_own_model(given):
    found = given.clients.query(mean_weight)
    own = given.models.tensors["weight0"].mean(axis=(1, 2))
    assert np.allclose([answer["mean"][0] for answer in found], own, atol=1e-6)


def test_answers_about_own_models_go_with_them(given):
    """No message of their own, and no second exchange; half of a symmetric matrix is counted."""
    given.clients.query(sums)
    spent = given.clients.ledger.spent
    assert spent.traffic == Traffic(bytes_up=4 * (8 + 4 * FEATURES + 4 * 15))
    assert spent.exchanges == 0
    assert spent.passes == 1
    assert spent.seconds > 0


def test_weights_that_are_sent_for_it_are_counted_once(given):
    """Layers that all clients have from the question before do not go down again."""
    one = {k: v[:1] for k, v in given.models.tensors.items()}
    first = {name: one[name] for name in ("weight0", "bias0")}
    given.clients.query(mean_weight, first)
    assert given.clients.ledger.spent.traffic == Traffic(4, 4, 4 * 4, 4 * WEIGHTS)
    given.clients.query(mean_weight, one)
    rest = 4 * (8 * CLASSES + CLASSES)
    assert given.clients.ledger.spent.traffic == Traffic(8, 8, 8 * 4, 4 * (WEIGHTS + rest))
    assert given.clients.ledger.spent.exchanges == 2


def test_what_some_clients_have_is_sent_again_to_all(given):
    one = {k: v[:1] for k, v in given.models.tensors.items() if k in ("weight0", "bias0")}
    given.clients.query(mean_weight, one, chosen=[1])
    given.clients.query(mean_weight, one)
    assert given.clients.ledger.spent.traffic.bytes_down == (1 + 4) * WEIGHTS


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        *((np.ones(shape), count) for shape, count in SIZES.items()),
        (np.arange(9.0).reshape(3, 3), 9),
    ],
)
def test_of_a_symmetric_matrix_half_is_sent(value, numbers):
    assert size_of(value) == 8 * numbers


def test_validation_examples_are_a_need_of_their_own(given):
    found = given.clients.query(sums, on="validation")
    assert [int(answer["count"][0]) for answer in found] == [len(r[::2]) for r in given.rows]
    some = replace(given.clients, needs={"client_answers"})
    with pytest.raises(FedreproError, match="add 'client_validation_examples' to its needs"):
        some.query(sums, on="validation")


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


@pytest.mark.parametrize("values", [{"needs": {"client_answers"}}, {"sends": "a number"}])
def test_a_method_that_asks_says_what_is_sent(values):
    with pytest.raises(FedreproError, match="must say in a phrase what clients answer"):
        method("x", kind="one_shot", **values)


def test_what_is_prepared_from_answers_is_asked_once_for_a_sweep(given):
    calls = []

    def prepared(clients, info, *, rng, alpha):
        calls.append(alpha)
        return info.clients.query(sums)

    costly = SharedPreparation(prepared, given.models, given.info, RngKey(0))
    item = components("method")["regmean"]
    settings = [item.spec({"alpha": 0.9, "ridge": r}) for r in (0.1, 0.2)]
    one, other = map(costly, settings)
    assert one[0]["prepared"] is other[0]["prepared"]
    assert calls == [0.9]
    assert one[1] == other[1]
    assert one[1].passes == 1


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


def test_clients_train_only_for_who_declares_it_and_in_a_round(clients, start):
    with pytest.raises(FedreproError, match="'mine' wants to let clients train"):
        clients_of(needs=()).train_heads(BODY, HERE, epochs=1)
    for work, given in (
        (clients.train, start),
        (lambda *a, **k: clients.average(*a, [0.25] * 4, **k), start),
        (clients_of().train_heads, BODY),
    ):
        with pytest.raises(FedreproError, match="clients train in a round"):
            work(given, RngKey(0), epochs=1)
        work(given, HERE, epochs=1)


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


def shifts(clients, seed=0):
    values = np.random.default_rng(seed).random((clients.count, 3), np.float32)
    return {"shift": values}


def test_a_shared_start_has_private_tensors_beside_it(clients, start):
    """The same as with a copy of the start for each client."""
    private = shifts(clients)
    shared = clients.train(start, ROUND, epochs=2, terms=[Offset()], private=private)
    copies = {name: np.repeat(value, clients.count, 0) for name, value in start.items()}
    copied = clients.train(copies, ROUND, epochs=2, terms=[Offset()], private=private)
    assert set(shared.tensors) == set(start)
    assert set(shared.private) == {"shift"}
    assert shared.private["shift"].shape == (clients.count, 3)
    assert not np.array_equal(shared.private["shift"], private["shift"])
    assert np.array_equal(shared.private["shift"], copied.private["shift"])
    assert all(np.array_equal(shared.tensors[name], copied.tensors[name]) for name in start)


def test_private_tensors_are_not_averaged(clients, start):
    private, weights = shifts(clients), [0.1, 0.2, 0.3, 0.4]
    each = clients.train(start, ROUND, epochs=1, terms=[Offset()], private=private)
    mean = clients.average(start, ROUND, weights, epochs=1, terms=[Offset()], private=private)
    assert np.array_equal(mean.private["shift"], each.private["shift"])
    assert set(mean.tensors) == set(start)
    for name, value in mean.tensors.items():
        wanted = np.tensordot(weights, each.tensors[name], 1)
        assert np.allclose(value[0], wanted, atol=1e-6)


def test_private_tensors_that_come_back_go_on_from_where_they_were(clients, start):
    """What a client keeps between rounds does not depend on who else is chosen."""
    private, term = shifts(clients), Offset()
    first = clients.train(start, ROUND, epochs=1, terms=[term], private=private)
    kept = private["shift"].copy()
    alone = clients.train(
        start, ROUND, epochs=1, chosen=[2], terms=[term], private={"shift": kept[[2]]}
    )
    kept[[2]] = alone.private["shift"]
    assert np.array_equal(kept[2], first.private["shift"][2])
    assert np.array_equal(kept[[0, 1, 3]], private["shift"][[0, 1, 3]])
    later = RngKey(0).at(round=3)
    second = clients.train(start, later, epochs=1, terms=[term], private=first.private)
    assert not np.array_equal(second.private["shift"], first.private["shift"])


def test_private_tensors_of_a_failed_client_are_those_it_had(clients, start):
    private = shifts(clients)
    well = clients.train(start, ROUND, epochs=1, terms=[Offset()], private=private)
    private["shift"][1] = 3e38
    found = clients.train(start, ROUND, epochs=1, terms=[Offset()], private=private)
    assert found.finite.tolist() == [True, False, True, True]
    assert found.private["shift"][1].tolist() == private["shift"][1].tolist()
    assert np.array_equal(found.private["shift"][[0, 2, 3]], well.private["shift"][[0, 2, 3]])


def test_the_pull_to_the_received_weights_leaves_private_tensors_alone(clients, start):
    class Apart(Offset):
        """One that the network has no part in, so that it moves as if there were none."""

        def loss(self, look):
            return 5 * ((look.tensors["shift"] - 2) ** 2).sum(1)

    private = shifts(clients)
    one = clients.train(start, ROUND, epochs=1, terms=[Apart()], private=private)
    two = clients.train(start, ROUND, epochs=1, terms=[Apart(), Proximal(0.5)], private=private)
    assert (one.private["shift"] > private["shift"]).all()
    assert np.array_equal(one.private["shift"], two.private["shift"])
    assert not np.array_equal(one.tensors["weight0"], two.tensors["weight0"])


def test_terms_see_what_was_received(clients, start):
    seen, now = [], []

    class Look(Offset):
        def loss(self, look):
            seen.append({name: value.clone() for name, value in look.start.items()})
            now.append({name: value.detach().clone() for name, value in look.tensors.items()})
            assert isinstance(look.run, Pass)
            return super().loss(look)

    private = shifts(clients)
    clients.train(start, ROUND, epochs=1, chosen=[1], terms=[Look()],
                  private={"shift": private["shift"][[1]]})  # fmt: skip
    for received in seen:
        assert torch.equal(received["shift"][0], torch.from_numpy(private["shift"][1]))
        assert torch.equal(received["weight0"][0], torch.from_numpy(start["weight0"][0]))
    for name in ("shift", "weight0"):  # which are the same as they are now in the first step alone
        same = [torch.equal(one[name], two[name]) for one, two in zip(seen, now, strict=True)]
        assert same == [True] + [False] * (len(seen) - 1)
    assert len(seen) > 1


def test_private_tensors_are_asked_for_by_name_and_shape(clients, start):
    for private, words in (
        (None, r"have private tensors \['shift'\], but \[\] were"),
        ({**shifts(clients), "other": np.zeros((4, 1))}, r"\['other', 'shift'\] were handed over"),
        ({"shift": np.zeros((1, 3))}, r"'shift' must have shape \(4, 3\), .* not \(1, 3\)"),
    ):
        with pytest.raises(FedreproError, match=words):
            clients.train(start, ROUND, epochs=1, terms=[Offset()], private=private)


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


def test_accuracy_is_over_all_characters(split, weights):
    logits, after = literal(weights, split)
    right = (logits.argmax(1) == after).numpy()
    model = GlobalModel(MODEL, weights)
    assert np.array_equal(correct(model, split), right)
    numbers = {(n.metric, n.split): n.value for n in measure(model, {"train": split})}
    assert numbers["accuracy", "train"] == right.mean()
    clients = [right[rows].mean() for rows in split.rows]
    assert numbers["accuracy_clients", "train"] == pytest.approx(np.mean(clients))


def test_clients_evaluate_and_differentiate_over_all_characters(split, weights):
    logits, after = literal(weights, split)
    each = functional.cross_entropy(logits, after, reduction="none").mean(1)
    right = (logits.argmax(1) == after).double().mean(1)
    found = evaluated(NETWORK, split.examples, split.rows, weights)
    for client, rows in enumerate(split.rows):
        assert found.accuracy[0, client] == pytest.approx(float(right[rows].mean()), abs=1e-6)
        assert found.loss[0, client] == pytest.approx(float(each[rows].mean()), abs=1e-6)
    halves = np.split(np.arange(COUNT), 2)
    _, losses = gradients_at(NETWORK, split.examples, halves, weights)
    assert losses == pytest.approx([float(each[rows].mean()) for rows in halves], abs=1e-6)

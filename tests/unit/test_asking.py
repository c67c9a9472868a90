"""Questions to clients: what they answer, what is counted, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import CLASSES, FEATURES, problem

from fedrepro.api import Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.stages.aggregate import SharedPreparation
from fedrepro.training.federation.client_queries import size_of

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
    ("shape", "numbers"), [((3,), 3), ((4, 4), 10), ((2, 3), 6), ((2, 2, 2), 8)]
)
def test_of_a_symmetric_matrix_half_is_sent(shape, numbers):
    assert size_of(np.ones(shape, np.float32)) == 4 * numbers


def test_a_matrix_that_is_not_symmetric_is_sent_whole():
    assert size_of(np.arange(9.0).reshape(3, 3)) == 72


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
    assert costly(settings[0])["prepared"] is costly(settings[1])["prepared"]
    assert calls == [0.9]
    assert costly.spent(settings[0]) == costly.spent(settings[1])
    assert costly.spent(settings[0]).passes == 1

"""Methods that merge by what clients measured: their limits, their costs, and who is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract import CLASSES, FEATURES, METHODS, as_split, call
from problems import problem
from small_exhibits import small

from fedrepro.api import BUDGET, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.numbers.model_evaluation import EvaluationSplit, correct, measure
from fedrepro.stages.aggregate import _sent
from fedrepro.training.federation.clients import initial_weights

MERGING = [
    "fisher_merge",
    "regmean",
    "regmean_plus",
    "fedfisher_diagonal",
    "fedfisher_kfac",
    "fedlpa",
    "matched_regmean",
    "matched_kfac",
    "task_arithmetic",
    "c2m3",
    "weight_matching",
]
ONE_START = [name for name in METHODS if METHODS[name].meta["one_start"]]


@pytest.fixture(scope="module")
def given():
    return problem(shared_init=True)


def equal(given):
    """The problem with the model of the first client at all of them."""
    same = {k: np.repeat(v[:1], len(v), axis=0) for k, v in given.models.tensors.items()}
    clients = replace(given.clients, own=same)
    models = replace(given.models, tensors=same)
    return replace(given, models=models, clients=clients, info=replace(given.info, clients=clients))


def close(one, other, tolerance):
    return all(np.allclose(one[name], value, atol=tolerance) for name, value in other.items())


@pytest.mark.parametrize("name", MERGING)
def test_of_equal_models_it_makes_the_same_again(name, given):
    own = equal(given)
    first = {k: v[:1] for k, v in own.models.tensors.items()}
    assert close(call(name, own).tensors, first, 1e-4)


@pytest.mark.parametrize(
    ("name", "values"),
    [("fedlpa", {"damping": 1e12}), ("regmean", {"ridge": 1e9}), ("fedfisher_kfac", {})],
)
def test_at_its_limit_it_is_the_parameter_average(name, values, given):
    """Of K-FAC that is where all factors are nothing: a dead network has no opinion."""
    if name == "fedfisher_kfac":
        dead = {k: np.zeros_like(v) for k, v in given.models.tensors.items()}
        dead["bias0"] = dead["bias0"] - 1 - np.arange(4, dtype=np.float32)[:, None]
        clients = replace(given.clients, own=dead)
        models, info = replace(given.models, tensors=dead), replace(given.info, clients=clients)
        given = replace(given, models=models, clients=clients, info=info)
        found = call(name, given, **values).tensors["bias0"]
        assert np.allclose(found, call("average", given).tensors["bias0"], atol=1e-6)
        return
    assert close(call(name, given, **values).tensors, call("average", given).tensors, 1e-4)


def test_fedlpa_as_published_goes_down_from_its_expectation(given):
    """The mean squared residual falls with every step; factors that all share need none."""
    first, some, more = (
        call("fedlpa", given, solver=solver, steps=steps).diagnostics["residual_left"]
        for solver, steps in (("expectation", 1), ("published", 5), ("published", 500))
    )
    assert first > some > more > 0
    alike = equal(given)
    alike.models.tensors["weight0"][0] += 1  # another model, and the answers of all as before
    prepared = METHODS["fedlpa"].meta["prepare"](alike.models, alike.info, rng=RngKey(0))
    info = replace(alike.info, example_counts=np.full(4, 10))
    found = METHODS["fedlpa"].fn(
        alike.models, info, rng=RngKey(0), prepared=prepared[1:2] * 4, solver="expectation"
    )
    mean = {k: v.mean(axis=0, keepdims=True) for k, v in alike.models.tensors.items()}
    assert close(found.tensors, mean, 1e-4)


def test_regmean_without_entries_off_the_diagonal_is_a_mean_of_each_input(given):
    """Of a dense layer, input by input: sum_i p_i A_kk w_k / sum_i p_i A_kk."""
    from fedrepro.training.federation.moments import input_moments

    found = call("regmean", given, alpha=0, ridge=0).tensors["weight0"][0]
    answers = given.clients.query(input_moments)
    share = given.info.example_counts / given.info.example_counts.sum()
    each = np.stack([np.diag(a["weight0"])[:-1] for a in answers]) * share[:, None]
    weights = given.models.tensors["weight0"]
    expected = (each[:, :, None] * weights).sum(0) / each.sum(0)[:, None]
    assert np.allclose(found, expected, atol=1e-4)


def test_regmean_plus_is_regmean_in_the_lowest_layer_and_sends_each_layer_down_once(given):
    plus, plain = call("regmean_plus", given), call("regmean", given)
    assert np.allclose(plus.tensors["weight0"], plain.tensors["weight0"], atol=1e-5)
    assert not np.allclose(plus.tensors["weight1"], plain.tensors["weight1"], atol=1e-3)
    ledger = given.clients.ledger
    ledger.begin()
    info = replace(given.info, clients=given.clients)
    method = METHODS["regmean_plus"]
    prepared = method.meta["prepare"](given.models, info, rng=RngKey(0))
    method.fn(given.models, info, rng=RngKey(0), prepared=prepared)
    below = sum(given.models.tensors[name][0].nbytes for name in ("weight0", "bias0"))
    assert ledger.spent.traffic.bytes_down == 4 * below
    exchanges, sent = _sent("one_shot", given.models, plus, ledger.spent)
    assert exchanges == 2  # one for each layer
    assert sent.messages_up == 2 * sent.messages_down == 8


def test_answers_about_their_own_models_take_no_further_exchange(given):
    ledger = given.clients.ledger
    ledger.begin()
    found = METHODS["regmean"].meta["prepare"](given.models, given.info, rng=RngKey(0))
    exchanges, sent = _sent("one_shot", given.models, None, ledger.spent)
    assert exchanges == 1
    assert sent.messages_up == 4
    numbers = [len(value) * (len(value) + 1) // 2 for one in found for value in one.values()]
    models = sum(value.nbytes for value in given.models.tensors.values())
    assert sent.bytes_up == models + 4 * sum(numbers)


def test_task_arithmetic_at_one_is_the_plain_mean_and_at_nothing_the_start(given):
    plain = call("average", given, weighted=False).tensors
    assert close(call("task_arithmetic", given).tensors, plain, 1e-5)
    assert close(call("task_arithmetic", given, scale=1e-9).tensors, given.info.start, 1e-6)


def test_ties_of_one_client_that_keeps_all_is_its_model():
    alone = problem(count=1, shared_init=True)
    assert close(call("ties", alone, keep=1.0).tensors, alone.models.tensors, 1e-5)


def test_the_start_is_that_of_the_clients_training(given):
    """Whoever asks, a client or the server, draws the common start of a trial."""
    clients = given.clients
    settings = replace(clients.settings, shared_init=True)
    one, two = (
        initial_weights(clients.network, settings, [RngKey(0, 3, client=c)]) for c in (-1, 2)
    )
    assert close(one, two, 0)


def test_the_best_client_is_the_best_on_everybodys_validation_examples(given):
    made = call("best_client", given)
    each = [correct(model, as_split(given)).mean() for model in call("local", given)]
    found = correct(made, as_split(given)).mean()
    assert found >= np.sort(each)[-2]
    held = given.models.tensors["weight0"]
    assert any(np.array_equal(made.tensors["weight0"][0], one) for one in held)
    assert 0 < made.diagnostics["chosen_by"] <= 1


def test_a_gate_learns_what_even_weights_do_not_know(given):
    gated = correct(call("fens", given, rate=0.03), as_split(given)).mean()
    even = correct(call("uniform_ensemble", given), as_split(given)).mean()
    assert gated > even


def test_an_untrained_gate_of_class_weights_is_the_mean_of_logits(given):
    made = call("fens", given, gate="class_weights", rounds=1, rate=1e-12)
    weights = made.gate["weight0"]
    assert np.allclose(weights.sum(axis=0), 1, atol=1e-6)
    assert np.allclose(weights[weights != 0], 0.25, atol=1e-6)


def test_a_gate_that_leaves_examples_is_fitted_to_the_others_and_chosen_by_these(given):
    data = given.clients.data
    made = call("fens", given, leave=True)
    assert [left.tolist() for left in made.unseen] == [
        list(range(1, len(rows), 2)) for rows in data.validation
    ]
    # the labels of what it leaves are nothing to it
    spoiled = data.validated.targets.clone()
    for rows in data.validation:
        spoiled[rows[1::2]] = 0
    examples = replace(data.validated, targets=spoiled)
    clients = replace(given.clients, data=replace(data, validation_examples=examples))
    other = replace(given, clients=clients, info=replace(given.info, clients=clients))
    assert close(call("fens", other, leave=True).gate, made.gate, 0)
    assert not close(call("fens", other).gate, call("fens", given).gate, 0)
    # and its accuracy at the clients counts these alone
    rows = list(data.validation)
    split = EvaluationSplit(
        data.validated, data.validated.targets.numpy(), (FEATURES,), CLASSES, rows
    )
    counted = [row[1::2] for row in rows]
    right = correct(made, split)[np.concatenate(counted)].mean()
    found = {n.metric: n.value for n in measure(made, {"client_validation": split})}
    assert found["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("name", ONE_START)
def test_models_of_different_starts_are_refused(name):
    training = {"name": min(METHODS[name].meta["trainings"], default="adam")}
    with pytest.raises(FedreproError, match="each client draws its own: set shared_init"):
        small(methods=[{"name": name}], training=training)
    training["shared_init"] = True
    small(methods=[{"name": name}], training=training)


def test_a_grid_is_no_larger_than_the_budget():
    with pytest.raises(FedreproError, match=f"9 settings, and comparisons try {BUDGET}"):
        method("x", kind="one_shot", grid={"a": (1, 2, 3), "b": (1, 2, 3)})

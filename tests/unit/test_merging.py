"""Networks merged by what clients measured, and DENSE: closed forms, and what must hold."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from contract import METHODS, as_split, call
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st
from problems import CLASSES, FEATURES, problem, problem_on

from fedrepro.api import BUDGET, Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods import _merging as merging
from fedrepro.methods.distillation import BETAS, _Generator, _mean_logits, adam, divergence
from fedrepro.methods.fens import GateServer, class_weights, gradients
from fedrepro.methods.task_vectors import ties_merge
from fedrepro.networks.predict import gated_logits, network_of, probabilities
from fedrepro.numbers.model_evaluation import EvaluationSplit, correct, measure
from fedrepro.stages.aggregate import _sent
from fedrepro.training.federation import fisher_and_input_moments as asked
from fedrepro.training.training_examples import Examples

IN, OUT, CLIENTS = 5, 4, 3
SEEDS = st.integers(0, 10_000)


def kronecker_mean(weights, inputs, errors, share, steps=1000, tolerance=1e-10):
    """The equation of the module, solved from the average; also the share of its residual left."""
    start, applied = merging.mean_of(weights, share), merging.applied_of(inputs, errors, share)
    each = zip(share, inputs.astype(float), weights, errors.astype(float), strict=True)
    residual = np.sum([p * (a @ (w - start) @ g) for p, a, w, g in each], axis=0)
    return merging.conjugate_gradients(applied, start, residual, steps, tolerance)


def spd(rng, n):
    q = rng.normal(size=(n, n + 3))
    return q @ q.T / n


def drawn(seed):
    """Weights, factors and shares of some clients."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(CLIENTS, IN, OUT))
    inputs = np.stack([spd(rng, IN) for _ in range(CLIENTS)])
    errors = np.stack([spd(rng, OUT) for _ in range(CLIENTS)])
    return weights, inputs, errors, rng.dirichlet(np.ones(CLIENTS) * 5)


def exact(weights, inputs, errors, share):
    """The equation as one dense system of D · K unknowns, rows of W one after another."""
    system = sum(p * np.kron(a, g) for p, a, g in zip(share, inputs, errors, strict=True))
    wanted = sum(p * a @ w @ g for p, a, w, g in zip(share, inputs, weights, errors, strict=True))
    return np.linalg.solve(system, wanted.reshape(-1)).reshape(IN, OUT)


def same(value, count=CLIENTS):
    return np.stack([value] * count)


@hypothesis_given(SEEDS)
def test_conjugate_gradients_solve_the_whole_system(seed):
    weights, inputs, errors, share = drawn(seed)
    found, left = kronecker_mean(weights, inputs, errors, share)
    assert left < 1e-9
    assert np.allclose(found, exact(weights, inputs, errors, share), atol=1e-6)


@hypothesis_given(SEEDS)
def test_special_factors_give_averages_that_are_known(seed):
    """Equal ones the plain one, unit errors RegMean, diagonal ones that weighted by Fisher's."""
    weights, inputs, errors, share = drawn(seed)
    average, alike = merging.mean_of(weights, share), same(inputs[0])
    found, _ = kronecker_mean(weights, alike, same(errors[0]), share)
    assert np.allclose(found, average, atol=1e-8)
    assert np.allclose(merging.regression_mean(weights, alike, share), average, atol=1e-8)
    found, _ = kronecker_mean(weights, inputs, same(np.eye(OUT)), share)
    assert np.allclose(found, merging.regression_mean(weights, inputs, share), atol=1e-6)
    a, g = (np.stack([np.diag(np.diag(one)) for one in each]) for each in (inputs, errors))
    fisher = np.stack([np.outer(np.diag(x), np.diag(y)) for x, y in zip(a, g, strict=True)])
    whole = share[:, None, None] * fisher
    found, _ = kronecker_mean(weights, a, g, share)
    assert np.allclose(found, (whole * weights).sum(0) / whole.sum(0), atol=1e-6)


@hypothesis_given(SEEDS)
def test_with_one_factor_alike_the_expectation_is_exact_and_descent_stays_there(seed):
    weights, inputs, errors, share = drawn(seed)
    for a, g in ((same(inputs[0]), errors), (inputs, same(errors[0]))):
        pull = sum(p * x @ w @ y for p, x, w, y in zip(share, a, weights, g, strict=True))
        found = merging.expectation_mean(a, g, pull, share)
        assert np.allclose(found, exact(weights, a, g, share), atol=1e-6)
        stays = merging.plain_descent(merging.applied_of(a, g, share), found, pull, 3)
        assert np.allclose(stays, found, atol=1e-6)


@hypothesis_given(SEEDS, st.sampled_from([1, 7, 400]))
def test_the_plain_descent_is_its_steps_one_by_one(seed, steps):
    weights, inputs, errors, share = drawn(seed)
    inputs = inputs / 20  # so that steps lead down
    applied = merging.applied_of(inputs, errors, share)
    pull = sum(p * a @ w @ g for p, a, w, g in zip(share, inputs, weights, errors, strict=True))
    start = merging.expectation_mean(inputs, errors, pull, share)
    x = start.copy()
    for _ in range(steps):
        x -= 2 / x.size * applied(applied(x) - pull)
    assert np.allclose(merging.plain_descent(applied, start, pull, steps), x, rtol=1e-6, atol=1e-7)
    assert not np.isfinite(
        merging.plain_descent(lambda w: 100 * applied(w), start, pull, 10_000)
    ).any()


@hypothesis_given(SEEDS)
def test_regmean_of_least_squares_solutions_is_the_pooled_one(seed):
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(n, IN)) * rng.uniform(0.2, 3, IN) for n in (30, 50, 20)]
    y = [rng.normal(size=(len(own), OUT)) for own in x]
    each = [np.linalg.lstsq(*pair, rcond=None)[0] for pair in zip(x, y, strict=True)]
    pooled = np.linalg.lstsq(np.vstack(x), np.vstack(y), rcond=None)[0]
    moments = np.stack([own.T @ own / len(own) for own in x])
    found = merging.regression_mean(np.stack(each), moments, np.array([0.3, 0.5, 0.2]))
    assert np.allclose(found, pooled, atol=1e-8)


def test_what_no_client_has_an_opinion_on_stays_at_the_average():
    """Dead inputs and unseen outputs: rows and columns of zeros in every factor."""
    weights, inputs, errors, share = drawn(3)
    inputs[:, 2], inputs[:, :, 2] = 0, 0
    errors[:, 1], errors[:, :, 1] = 0, 0
    found, left = kronecker_mean(weights, inputs, errors, share)
    average = merging.mean_of(weights, share)
    assert left < 1e-9
    assert np.allclose(found[2], average[2])
    assert np.allclose(found[:, 1], average[:, 1])
    assert np.allclose(merging.regression_mean(weights, inputs, share)[2], average[2])


def test_a_weight_that_one_client_alone_knows_is_its_own_and_a_flat_one_stays():
    weights = np.array([[1.0, 2.0], [5.0, -4.0]])
    found = merging.fisher_mean(weights, np.array([[3.0, 0.0], [0.0, 0.0]]), np.array([0.5, 0.5]))
    assert found.tolist() == [1.0, -1.0]
    # Curved ones are at the minimiser after 2000 steps, one of 1e-8 is not.
    fisher = np.array([[1e-8, 1, 0.5], [3e-8, 0.2, 2]])
    weights, share = np.array([[1.0] * 3, [-1.0] * 3]), np.array([0.5, 0.5])
    curve, pull = merging.mean_of(fisher, share), merging.mean_of(fisher * weights, share)
    found = merging.fisher_descent(
        lambda w: curve * w - pull, merging.mean_of(weights, share), 2000, 0.01, False
    )
    exact = merging.fisher_mean(weights, fisher, share)
    assert abs(found[0]) < 1e-3
    assert abs(exact[0]) > 0.4
    assert np.abs(found[1:] - exact[1:]).max() < 0.02


def test_a_gate_of_even_weights_is_the_mean_of_logits_and_adams_first_step_a_sign():
    logits = np.random.default_rng(0).normal(size=(5, 4, 3))  # examples, networks, classes
    gate = class_weights(4, 3, np.full((4, 3), 0.25))
    assert np.allclose(gated_logits(gate, logits.reshape(5, 12)), logits.mean(axis=1))
    server = GateServer({"weight0": np.zeros(4)}, 1.0)
    move = np.array([5.0, -7.0, 3e3, -40.0])
    server.step([{"weight0": move}], np.ones(1))
    assert np.allclose(server.gate["weight0"], np.sign(move), rtol=5e-3)


@pytest.mark.parametrize("deep", [False, True])
def test_gradients_of_a_gate_are_differences_of_its_loss(deep):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(8, 6)), rng.integers(0, 3, 8)
    units = 4 if deep else 3
    gate = {"weight0": rng.normal(size=(6, units)), "bias0": rng.normal(size=units)}
    if deep:
        gate |= {"weight1": rng.normal(size=(4, 3)), "bias1": rng.normal(size=3)}

    def loss(gate):
        out = gated_logits(gate, logits)
        return np.mean(np.log(np.exp(out).sum(1)) - out[np.arange(8), labels])

    for name, value in gradients(gate, logits, labels).items():
        for at in np.ndindex(value.shape):
            moved = [{**gate, name: gate[name].copy()} for _ in range(2)]
            moved[0][name][at] += 1e-5
            moved[1][name][at] -= 1e-5
            assert value[at] == pytest.approx((loss(moved[0]) - loss(moved[1])) / 2e-5, abs=1e-6)


def test_of_task_vectors_the_largest_entries_and_the_larger_of_two_count():
    vector = np.random.default_rng(0).normal(size=9)
    assert np.allclose(ties_merge(np.stack([vector, -0.5 * vector]), 1.0), vector)
    found = ties_merge(np.array([[1.0, -4, 2, 0.5, 3], [0, 0, 6, 0, -0.1]]), 0.4)
    # two of each are kept; 3 outweighs -0.1, so it gives the sign and is alone in the mean
    assert found.tolist() == [0, -4, 6, 0, 3]


@pytest.fixture(scope="module")
def given():
    return problem(shared_init=True)


def with_models(given, tensors):
    clients = replace(given.clients, own=tensors)
    info = replace(given.info, clients=clients)
    return replace(given, models=replace(given.models, tensors=tensors), clients=clients, info=info)


def equal(given):
    """The problem with the model of the first client at all of them."""
    return with_models(given, {k: np.repeat(v[:1], 4, 0) for k, v in given.models.tensors.items()})


def close(one, other, tolerance):
    return all(np.allclose(one[name], value, atol=tolerance) for name, value in other.items())


@pytest.mark.parametrize(
    ("name", "values"), [("fedlpa", {"damping": 1e12}), ("regmean", {"ridge": 1e9})]
)
def test_at_its_limit_it_is_the_parameter_average(name, values, given):
    assert close(call(name, given, **values).tensors, call("average", given).tensors, 1e-4)


def test_fedlpa_as_published_goes_down_from_its_expectation(given):
    """The mean squared residual falls with every step; factors that all share need none."""
    first, some, more = (
        call("fedlpa", given, solver=solver, steps=steps).diagnostics["residual_left"]
        for solver, steps in (("expectation", 1), ("published", 5), ("published", 500))
    )
    assert first > some > more > 0
    alike = equal(given)
    for solver in ("published", "conjugate_gradients"):
        for name in ("fedlpa", "fedfisher_kfac"):  # what is left is rounding, no share of a pull
            assert call(name, alike, solver=solver).diagnostics["residual_left"] < 1
    alike.models.tensors["weight0"][0] += 1  # another model, and the answers of all as before
    prepared = METHODS["fedlpa"].meta["prepare"](alike.models, alike.info, rng=RngKey(0))
    info = replace(alike.info, example_counts=np.full(4, 10))
    more = {"prepared": prepared[1:2] * 4, "solver": "expectation"}
    found = METHODS["fedlpa"].fn(alike.models, info, rng=RngKey(0), **more)
    mean = {k: v.mean(axis=0, keepdims=True) for k, v in alike.models.tensors.items()}
    assert close(found.tensors, mean, 1e-4)


def test_regmean_without_entries_off_the_diagonal_is_a_mean_of_each_input(given):
    """Of a dense layer, input by input: sum_i p_i A_kk w_k / sum_i p_i A_kk."""
    found = call("regmean", given, alpha=0, ridge=0).tensors["weight0"][0]
    answers = given.clients.query(asked.input_moments)
    share = given.info.example_counts / given.info.example_counts.sum()
    each = np.stack([np.diag(a["weight0"])[:-1] for a in answers]) * share[:, None]
    weights = given.models.tensors["weight0"]
    expected = (each[:, :, None] * weights).sum(0) / each.sum(0)[:, None]
    assert np.allclose(found, expected, atol=1e-4)


def test_fisher_merge_by_examples_and_fedfisher_by_its_published_descent(given):
    """Elementwise; and step by step, as the authors' code goes."""
    share = given.info.example_counts / given.info.example_counts.sum()
    weights = given.models.tensors["weight0"].astype(float)
    fisher = np.stack([a["weight0"] for a in given.clients.query(asked.diagonal_fisher)])
    found = call("fisher_merge", given, normalise=False, floor=0.0, clients_by="examples")
    parts = share[:, None, None] * fisher
    expected = (parts * weights).sum(0) / parts.sum(0)
    assert np.allclose(found.tensors["weight0"][0], expected, atol=1e-4)
    answers = given.clients.query(asked.kronecker_factors)
    a, g = (np.stack([one[k] for one in answers]) for k in ("weight0", asked.errors_of("weight0")))
    each = np.concatenate([weights, given.models.tensors["bias0"][:, None]], axis=1)
    applied = merging.applied_of(a, g, share)
    w, m, s = merging.mean_of(each, share), 0, 0
    pull = sum(p * x @ own @ y for p, x, own, y in zip(share, a, each, g, strict=True))
    for _ in range(5):
        v = applied(w) - pull
        m, s = v + 0.9 * m, v * v + 0.99 * s
        w = w - 0.01 * m / np.sqrt(s + 0.01)
    found = call("fedfisher_kfac", given, solver="published", steps=5)
    assert np.allclose(found.tensors["weight0"][0], w[:-1], atol=1e-6)
    assert np.allclose(found.tensors["bias0"][0], w[-1], atol=1e-6)


def test_regmean_plus_is_regmean_in_the_lowest_layer_and_sends_each_layer_down_once(given):
    plus, plain = call("regmean_plus", given), call("regmean", given)
    assert np.allclose(plus.tensors["weight0"], plain.tensors["weight0"], atol=1e-5)
    assert not np.allclose(plus.tensors["weight1"], plain.tensors["weight1"], atol=1e-3)
    ledger = given.clients.ledger
    ledger.begin()
    how = {"info": replace(given.info, clients=given.clients), "rng": RngKey(0)}
    method = METHODS["regmean_plus"]
    method.fn(given.models, **how, prepared=method.meta["prepare"](given.models, **how))
    below = sum(given.models.tensors[name][0].nbytes for name in ("weight0", "bias0"))
    assert ledger.spent.traffic.bytes_down == 4 * below
    exchanges, sent = _sent(method.spec({}), given.models, plus, ledger.spent)
    assert exchanges == 2  # one for each layer
    assert sent.messages_up == 2 * sent.messages_down == 8


def test_task_arithmetic_and_the_best_client_at_what_is_known(given):
    plain = call("average", given, weighted=False).tensors
    assert close(call("task_arithmetic", given).tensors, plain, 1e-5)
    assert close(call("task_arithmetic", given, scale=1e-9).tensors, given.info.start, 1e-6)
    one, two = (call("ties", given, scale=scale).tensors for scale in (1.0, 2.0))
    doubled = {k: 2 * v - given.info.start[k] for k, v in one.items()}
    assert close(two, doubled, 1e-5)
    made = call("best_client", given)
    each = [correct(model, as_split(given)).mean() for model in call("local", given)]
    found = correct(made, as_split(given)).mean()
    assert found >= np.sort(each)[-2]
    held = given.models.tensors["weight0"]
    assert any(np.array_equal(made.tensors["weight0"][0], one) for one in held)
    assert 0 < made.diagnostics["chosen_by"] <= 1
    hits = np.array([[14, 9, 8, 18, 19], [17, 10, 9, 14, 18]]) / 20  # 68 each
    told = SimpleNamespace(evaluate=lambda *_, **__: SimpleNamespace(accuracy=hits))
    info = SimpleNamespace(clients=told, example_counts=np.full(5, 100))
    made = components("method")["best_client"].fn(given.models, info, rng=RngKey(0))
    assert np.array_equal(made.tensors["weight0"][0], held[0])  # whatever rounding says


def test_a_gate_learns_what_even_weights_do_not_know_and_untrained_is_the_mean_of_logits(given):
    gated = correct(call("fens", given, rate=0.03), as_split(given)).mean()
    even = correct(call("uniform_ensemble", given), as_split(given)).mean()
    assert gated > even
    made = call("fens", given, gate="class_weights", rounds=1, rate=1e-12)
    models, gate = 4 * given.models.numbers, 4 * 4 * sum(v.size for v in made.gate.values())
    assert made.traffic == Traffic(8, 8, models + gate, 4 * models + gate)
    weights = made.gate["weight0"]
    assert np.allclose(weights.sum(axis=0), 1, atol=1e-6)
    assert np.allclose(weights[weights != 0], 0.25, atol=1e-6)


def test_a_gate_of_texts_learns_every_character():
    codes = (np.arange(60)[:, None] + np.arange(6)) % 3
    values = {"embedding": 3, "units": 4, "predict": "all"}
    model = components("model")["char_lstm"].spec(values)
    training = components("training")["adam"].spec({"epochs": 20, "batch_size": 8, "lr": 0.05})
    texts = problem_on(codes.astype(np.uint8), np.arange(60) % 3, 3, model, training, 3)
    assert correct(call("fens", texts, rate=0.01, rounds=100), as_split(texts)).mean() > 0.9


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
    labels, rows = data.validated.targets.numpy(), list(data.validation)
    split = EvaluationSplit(data.validated, labels, (FEATURES,), CLASSES, rows)
    right = correct(made, split)[np.concatenate([row[1::2] for row in rows])].mean()
    found = {n.metric: n.value for n in measure(made, {"client_validation": split})}
    assert found["accuracy"] == pytest.approx(right)


FEW = {"epochs": 2, "generator_steps": 3, "batch_size": 16, "latent": 8, "generator_units": 8}


def test_a_student_that_is_the_ensemble_stays_and_no_grid_is_above_the_budget(given):
    """Of equal clients the average predicts what all together do: nothing is left to learn."""
    own = equal(given)
    made, first = call("dense", own, **FEW), {k: v[:1] for k, v in own.models.tensors.items()}
    assert close(made.tensors, first, 1e-4)
    assert close(call("feddf", own, epochs=3, lr=1e-5).tensors, first, 1e-3)  # Adam stays close
    assert made.diagnostics["student_gap"] == pytest.approx(0, abs=1e-9)
    with pytest.raises(FedreproError, match=f"9 settings, and comparisons try {BUDGET}"):
        method("x", kind="one_shot", grid={"a": (1, 2, 3), "b": (1, 2, 3)})


def test_the_divergence_is_that_of_its_definition_and_the_ensemble_the_mean_of_logits(given):
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 5, CLASSES, generator=generator)
    for temperature in (1.0, 20.0):
        p, q = (torch.softmax(z / temperature, 1).double() for z in (one, other))
        wanted = float((p * (p / q).log()).sum(1).mean())
        found = float(divergence(one, other, temperature))
        assert found == pytest.approx(wanted, rel=1e-3)
        assert found > 0
    assert float(divergence(one, one + 3.0)) == pytest.approx(0, abs=1e-6)
    network = network_of(given.models.model, (FEATURES,), CLASSES)
    x, tensors = torch.from_numpy(given.inputs[:7]), given.models.tensors
    each = [
        network.logits({k: torch.from_numpy(v[j]) for k, v in tensors.items()}, x) for j in range(4)
    ]
    found = _mean_logits(network, tensors, "cpu")(x)
    assert torch.allclose(found, torch.stack(each).mean(0), atol=1e-5)


def test_made_inputs_are_of_their_classes_to_the_ensemble_and_lie_between_0_and_1(given):
    """The more steps, the lower the cross-entropy of what is kept."""
    network = network_of(given.models.model, (FEATURES,), CLASSES)
    ensemble = _mean_logits(network, given.models.tensors, "cpu")
    losses = []
    for steps in (1, 100):
        own = _Generator(network, 16, 16, 32, RngKey(0).at(round=0), "cpu")
        made, loss = own.made(ensemble, ensemble, steps, 0.01, 0.0)
        assert made.shape == (32, FEATURES)
        assert 0 <= float(made.min()) <= float(made.max()) <= 1
        entropy = torch.nn.functional.cross_entropy(ensemble(made), own.labels)
        assert float(entropy) == pytest.approx(loss, abs=1e-5)
        losses.append(loss)
    assert losses[1] < losses[0] / 2


def test_of_a_single_client_the_student_learns_that_client(given):
    """Distillation without data: from a fresh start it comes to predict what one model does."""
    own = with_models(given, {k: v[:1] for k, v in given.models.tensors.items()})
    own = replace(own, info=replace(own.info, example_counts=own.info.example_counts[:1]))
    inputs = torch.from_numpy(np.random.default_rng(0).random((200, FEATURES), np.float32))
    network = network_of(own.models.model, (FEATURES,), CLASSES)

    def scores(tensors):
        return probabilities(network, tensors, None, Examples(inputs, torch.zeros(len(inputs))))

    values = {"start": "fresh", "lr": 0.1, "temperature": 1.0, "generator_lr": 0.02}
    values = FEW | values | {"generator_steps": 20, "batch_size": 64}
    short, long = (call("dense", own, **(values | {"epochs": epochs})) for epochs in (1, 20))
    far, near = (
        (scores(made.tensors) - scores(own.models.tensors)).abs().mean() for made in (short, long)
    )
    assert near < far / 2
    assert long.diagnostics["student_gap"] < short.diagnostics["student_gap"] / 2


def test_the_steps_of_the_generator_are_those_of_adam():
    place, kept = torch.zeros(7, requires_grad=True), (torch.zeros(7), torch.zeros(7))
    theirs, ours = torch.optim.Adam([place], lr=1.0, betas=BETAS), torch.zeros(7)
    for t in range(1, 6):
        place.grad = torch.randn(7, generator=torch.Generator().manual_seed(t))
        ours -= adam(*kept, place.grad, t)
        theirs.step()
    assert torch.allclose(ours, place, atol=1e-4)

"""Contract of every registered method, and what each of them computes."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from problems import CLASSES, FEATURES, problem

from fedrepro.api import NEEDS, GlobalModel, method
from fedrepro.evaluation.measure import Split, correct, measure, measure_alone
from fedrepro.evaluation.metrics import METRICS
from fedrepro.networks.predict import network_of, probabilities
from fedrepro.registry import components
from fedrepro.rng import Rng

METHODS = components("method")
ONE_SHOT = [n for n, m in METHODS.items() if m.meta["kind"] in ("one_shot", "control")]
FEDERATED = [n for n, m in METHODS.items() if m.meta["kind"] == "federated"]


@pytest.fixture(scope="module")
def given():
    return problem()


def allowed(info, item):
    """Only what the method declared, as the harness hands it over."""
    keep = item.meta["needs"] | {"training", "device"}
    gone = {f.name: None for f in fields(info) if f.name not in keep}
    return replace(info, **gone)


def call(name, given, **values):
    item = METHODS[name]
    if "partition" in item.meta["scenario"]:  # pooled training is a scenario of one client
        given = problem(count=1)
    spec = item.spec(values)
    return item.fn(given.models, allowed(given.info, item), rng=Rng(0), **spec.values)


def each(made):
    return [made] if isinstance(made, GlobalModel) else list(made)


def as_split(given):
    return Split(given.clients.examples, given.labels, (FEATURES,), CLASSES, given.rows)


def scores_of(model, given):
    network = network_of(model.model, (FEATURES,), CLASSES)
    return probabilities(network, model.tensors, model.weights, given.clients.examples)


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_method_works_with_what_it_declares_and_predicts(name, given):
    models = each(call(name, given))
    for model in models:
        scores = scores_of(model, given)
        assert scores.shape == (len(given.inputs), CLASSES)
        assert torch.isfinite(scores).all()
        if model.weights is not None:
            assert model.weights.shape == (model.networks, CLASSES)
            assert np.allclose(model.weights.sum(0), 1)
        assert set(model.diagnostics) <= set(METRICS)


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_method_changes_nothing_and_repeats_itself(name, given):
    before = {k: v.copy() for k, v in given.models.tensors.items()}
    first, second = each(call(name, given)), each(call(name, given))
    for one, two in zip(first, second, strict=True):
        assert all(np.array_equal(one.tensors[k], two.tensors[k]) for k in one.tensors)
    assert all(np.array_equal(before[k], v) for k, v in given.models.tensors.items())


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_says_what_it_is(name):
    meta = METHODS[name].meta
    assert meta["needs"] <= set(NEEDS)
    assert meta["label"]
    assert METHODS[name].doc
    assert "test" in meta["evaluate"]


@pytest.mark.parametrize("name", [n for n in METHODS if n != "majority"])
def test_every_method_beats_chance_on_an_easy_problem(name, given):
    if name in FEDERATED:
        made = METHODS[name].fn(rounds=40)
        state = made.init(given.clients, Rng(0))
        for done in range(made.rounds):
            state, _ = made.round(state, given.clients, Rng(0).at(round=done))
        models = [made.model(state, given.clients)]
    elif name == "average":
        models = each(call(name, problem(shared_init=True)))
    else:
        models = each(call(name, given))
    assert np.mean([correct(m, as_split(given)).mean() for m in models]) > 0.5


def test_the_average_weighs_clients_by_their_examples(given):
    counts = given.info.example_counts
    made = call("average", given)
    for key, value in given.models.tensors.items():
        expected = sum(n * v for n, v in zip(counts, value, strict=True)) / counts.sum()
        assert np.allclose(made.tensors[key][0], expected, atol=1e-6)
    plain = call("average", given, weighted=False)
    assert np.allclose(plain.tensors["bias0"][0], given.models.tensors["bias0"].mean(0), atol=1e-6)


def test_ensembles_average_probabilities(given):
    own = [
        scores_of(
            GlobalModel(given.models.model, {k: v[[j]] for k, v in given.models.tensors.items()}),
            given,
        ).numpy()
        for j in range(4)
    ]
    uniform, weighted = call("uniform_ensemble", given), call("weighted_ensemble", given)
    found = scores_of(uniform, given).numpy()
    assert np.allclose(found, np.mean(own, 0), atol=1e-6)
    counts = given.info.label_counts
    share = counts / counts.sum(0)
    found = scores_of(weighted, given).numpy()
    assert np.allclose(found, sum(s * p for s, p in zip(share, own, strict=True)), atol=1e-6)


def test_a_class_that_no_client_has_does_not_break_the_weighted_ensemble(given):
    info = replace(given.info, label_counts=np.array([[3, 0, 1]] * 4))
    made = METHODS["weighted_ensemble"].fn(given.models, info, rng=Rng(0))
    assert np.allclose(made.weights[:, 1], 0.25)


def test_majority_is_the_share_of_the_largest_class(given):
    counts = given.info.label_counts.sum(0)
    made = call("majority", given)
    assert correct(made, as_split(given)).mean() == pytest.approx(counts.max() / counts.sum())


def test_distillation_has_its_own_width_and_follows_the_ensemble(given):
    made = call("distillation", given, units=20)
    assert made.tensors["weight0"].shape == (1, FEATURES, 20)
    teacher = scores_of(call("uniform_ensemble", given), given).argmax(1)
    student = scores_of(made, given).argmax(1)
    assert (teacher == student).float().mean() > 0.9


def test_distillation_has_as_many_layers_as_the_clients():
    deep = problem(hidden=(5, 4))
    made = call("distillation", deep, units=7)
    assert [v.shape for v in made.tensors.values()] == [
        (1, FEATURES, 7), (1, 7), (1, 7, 7), (1, 7), (1, 7, CLASSES), (1, CLASSES),
    ]  # fmt: skip


@pytest.mark.parametrize("name", FEDERATED)
def test_a_federated_method_is_pure_and_goes_on_from_a_saved_state(name, given, tmp_path):
    from fedrepro.artifacts import load_state, save_state

    made = METHODS[name].fn()
    state = made.init(given.clients, Rng(0))
    for done in range(2):
        save_state(tmp_path / "state.pt", state)
        nxt, _ = made.round(state, given.clients, Rng(0).at(round=done))
        again, _ = made.round(
            load_state(tmp_path / "state.pt"), given.clients, Rng(0).at(round=done)
        )
        save_state(tmp_path / "one.pt", nxt)
        save_state(tmp_path / "two.pt", again)
        assert (tmp_path / "one.pt").read_bytes() == (tmp_path / "two.pt").read_bytes()
        save_state(tmp_path / "same.pt", state)
        assert (tmp_path / "same.pt").read_bytes() == (tmp_path / "state.pt").read_bytes()
        state = nxt


def test_downpour_takes_a_step_per_message_or_one_a_round(given):
    made = {m: METHODS["downpour_sgd"].fn(messages=m) for m in ("sequential", "averaged")}
    for name, steps in (("sequential", 4), ("averaged", 1)):
        state = made[name].init(given.clients, Rng(0))
        state, _ = made[name].round(state, given.clients, Rng(0).at(round=0))
        assert float(state["optimiser"]["steps"]) == steps
        assert made[name].messages(4) == (4, 4)


def test_downpours_messages_are_the_clients_mean_gradients(given):
    """One client with one minibatch: the master takes an Adam step on its gradient."""
    clients = replace(given.clients, rows=given.rows[:1], settings=replace(
        given.clients.settings, batch_size=1000, l2=0.0))  # fmt: skip
    made = METHODS["downpour_sgd"].fn()
    state = made.init(clients, Rng(0))
    start = {
        k: torch.from_numpy(v[0]).requires_grad_()
        for k, v in made.model(state, clients).tensors.items()
    }
    x, y = (part[given.rows[0]] for part in (clients.examples.inputs, clients.examples.targets))
    out = torch.relu(x @ start["weight0"] + start["bias0"]) @ start["weight1"] + start["bias1"]
    torch.nn.functional.cross_entropy(out, y).backward()
    torch.optim.Adam(start.values(), lr=clients.settings.lr, amsgrad=True).step()
    state, _ = made.round(state, clients, Rng(0).at(round=0))
    for key, value in made.model(state, clients).tensors.items():
        assert np.allclose(value[0], start[key].detach().numpy(), atol=1e-5)


def test_measures_of_one_model_and_of_clients_alone(given):
    numbers = measure(call("uniform_ensemble", given), {"train": as_split(given)})
    found = {(m, s): v for m, s, v in numbers}
    assert found["hidden_units", None] == 4 * 8
    assert found["forward_passes", None] == 4
    assert found["parameters", None] == 4 * (FEATURES * 8 + 8 + 8 * CLASSES + CLASSES)
    right = correct(call("uniform_ensemble", given), as_split(given))
    assert found["accuracy", "train"] == right.mean()
    assert found["accuracy_clients", "train"] == np.mean([right[r].mean() for r in given.rows])
    numbers, alone = measure_alone(call("local", given), {"test": as_split(given)})
    found = {(m, s): v for m, s, v in numbers}
    assert len(alone) == 4
    assert found["accuracy", "test"] == pytest.approx(np.mean(alone))
    assert found["accuracy_worst", "test"] == min(alone)


def test_a_need_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="needs something unknown"):
        method("x", kind="one_shot", needs={"everything"})


def test_pfnm_at_a_small_variance_is_the_same_with_nothing_matched(given):
    """The control that tells what matching does: same posterior, every unit on its own."""
    small = {"sigma2": 1e-4}
    matched, control = call("pfnm", given, **small), call("unmatched", given, **small)
    assert matched.tensors["weight0"].shape == control.tensors["weight0"].shape
    assert matched.diagnostics["matched_share"] == 0
    one, two = (scores_of(m, given) for m in (matched, control))
    assert (one - two).abs().max() < 1e-4


def test_unmatched_units_keep_their_say_where_concatenation_scales_it(given):
    kept, scaled = call("unmatched", given, sigma2=1e-9), call("concatenation", given)
    shares = given.info.label_counts / given.info.label_counts.sum(0)
    whole = kept.tensors["weight1"][0].reshape(4, 8, CLASSES)
    part = scaled.tensors["weight1"][0].reshape(4, 8, CLASSES)
    assert np.allclose(whole * shares[:, None, :], part, atol=1e-5)
    assert np.allclose(kept.tensors["bias1"], scaled.tensors["bias1"], atol=1e-5)

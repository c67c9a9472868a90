"""What single methods compute; what holds for all of them is in test_contract.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract import METHODS, as_split, call, probabilities_of
from problems import CLASSES, FEATURES, problem, unwell

from fedrepro.api import ClientInfo, GlobalModel, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.methods.downpour_sgd import next_minibatches
from fedrepro.numbers.model_evaluation import correct, measure, measure_alone
from fedrepro.stages.user_models.combine import as_state

NOTHING = ClientInfo(training=None)


def holders(clients, rows, **changes):
    """Clients who hold other rows of the same examples."""
    return replace(clients, data=replace(clients.data, rows=rows), **changes)


def test_the_average_weighs_clients_by_examples_and_ensembles_average_probabilities(given):
    counts = given.info.example_counts
    made = call("average", given)
    for key, value in given.models.tensors.items():
        expected = sum(n * v for n, v in zip(counts, value, strict=True)) / counts.sum()
        assert np.allclose(made.tensors[key][0], expected, atol=1e-6)
    plain = call("average", given, weighted=False)
    assert np.allclose(plain.tensors["bias0"][0], given.models.tensors["bias0"].mean(0), atol=1e-6)
    model, tensors = given.models.model, given.models.tensors
    own = [
        probabilities_of(GlobalModel(model, {k: v[[j]] for k, v in tensors.items()}), given).numpy()
        for j in range(4)
    ]
    uniform, weighted = call("uniform_ensemble", given), call("weighted_ensemble", given)
    assert np.allclose(probabilities_of(uniform, given).numpy(), np.mean(own, 0), atol=1e-6)
    share = given.info.label_counts / given.info.label_counts.sum(0)
    wanted = sum(s * p for s, p in zip(share, own, strict=True))
    assert np.allclose(probabilities_of(weighted, given).numpy(), wanted, atol=1e-6)


def right_of(model, given, networks=slice(None)):
    own = {name: value[networks] for name, value in model.tensors.items()}
    return correct(replace(model, tensors=own, weights=None), as_split(given))[:, 0]


def test_a_vote_is_won_by_the_class_of_most_clients_and_ties_fall_at_random(given):
    made = call("voting_ensemble", given)
    alone = right_of(replace(made, ties=None), given, [0])
    assert np.array_equal(right_of(made, given, [0, 0, 3]), alone)
    assert made.weights.shape == (4, CLASSES)
    assert right_of(made, given).mean() > 0.5
    assert as_state(call("voting_ensemble", given), CLASSES)["vote"] == made.ties.seed
    assert as_state(replace(made, ties=RngKey(3)), CLASSES)["vote"] == 3
    assert "vote" not in as_state(call("uniform_ensemble", given), CLASSES)
    assert "weights" in as_state(replace(given.models.alone(0), weights=np.eye(1, 3)), CLASSES)
    # Two clients that never agree: an example is right half of the time if one of them is.
    tensors = {k: np.zeros_like(v[:2]) for k, v in given.models.tensors.items()}
    tensors["bias1"][0, 0] = tensors["bias1"][1, 1] = 1
    made = GlobalModel(given.models.model, tensors)
    found = [right_of(replace(made, ties=RngKey(0, trial)), given) for trial in (0, 0, 1)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    for label, share in enumerate((0.5, 0.5, 0.0)):
        own = np.concatenate([part[given.labels == label] for part in found[1:]])
        assert own.mean() == pytest.approx(share, abs=0.15)


@pytest.mark.parametrize(
    ("share", "counts", "weights"),
    [
        ("class", [[8, 2, 0], [1, 0, 1], [0, 0, 0]],
         np.array([[8 / 9, 1, 0], [1 / 9, 0, 1], [0, 0, 0]])),
        ("client", [[8, 2, 0], [1, 0, 1], [0, 0, 0]],
         np.array([[0.8, 0.2, 0], [0.5, 0, 0.5], [0, 0, 0]]) / 3),
        # nobody has the second class
        ("class", [[3, 0, 1]] * 4, np.full((4, 3), 0.25)),
    ],
)  # fmt: skip
def test_the_weighted_ensemble_weighs_by_classes_or_by_a_clients_own_examples(
    given, share, counts, weights
):
    info = replace(given.info, label_counts=np.array(counts))
    made = METHODS["weighted_ensemble"].fn(given.models, info, rng=RngKey(0), share=share)
    assert np.allclose(made.weights, weights)


def test_majority_is_the_share_of_the_largest_class_and_distillation_follows_the_ensemble(given):
    counts = given.info.label_counts.sum(0)
    made = call("majority", given)
    assert correct(made, as_split(given)).mean() == pytest.approx(counts.max() / counts.sum())
    made = call("distillation", given, units=20)
    assert made.tensors["weight0"].shape == (1, FEATURES, 20)
    teacher = probabilities_of(call("uniform_ensemble", given), given).argmax(1)
    assert (teacher == probabilities_of(made, given).argmax(1)).float().mean() > 0.9
    deep = problem(hidden=(5, 4))
    for units, values in ((7, {"units": 7}), (500, {})):
        assert [v.shape for v in call("distillation", deep, **values).tensors.values()] == [
            (1, FEATURES, units), (1, units), (1, units, units), (1, units), (1, units, CLASSES),
            (1, CLASSES),
        ]  # fmt: skip


def first_round(clients, **values):
    """Downpour SGD, and its state before and after a round."""
    made = METHODS["downpour_sgd"].fn(**values)
    clients.ledger.begin()
    before = made.init(clients, NOTHING, RngKey(0))
    after, _ = made.round(before, clients, NOTHING, RngKey(0).at(round=0))
    return made, before, after


@pytest.mark.parametrize(("messages", "steps"), [("sequential", 4), ("averaged", 1)])
def test_downpour_takes_a_step_per_message_or_one_a_round(given, messages, steps):
    _, _, state = first_round(given.clients, messages=messages)
    assert float(state["optimiser"]["steps"]) == steps
    sent = given.clients.ledger.traffic
    assert (sent.messages_up, sent.messages_down) == (4, 4)


@pytest.mark.parametrize("minibatches", [None, 1, 2])
@pytest.mark.parametrize("messages", ["sequential", "averaged"])
def test_the_master_does_not_follow_a_client_that_diverges(given, messages, minibatches):
    """Its update is counted as rejected, and those of the others are taken."""
    ill = unwell(given, given.rows[1]).clients
    made, before, after = first_round(ill, messages=messages, minibatches=minibatches)
    assert made.model(after, ill).finite
    assert not torch.equal(after["flat"], before["flat"])
    assert (ill.ledger.rejected, ill.ledger.selected) == (1, 4)
    assert np.isfinite(ill.ledger.train_loss)


def test_downpour_with_minibatches_goes_through_all_examples_in_turn(given):
    batch = given.clients.settings.batch_size
    seen = [[] for _ in given.rows]
    for done in range(60):
        here = next_minibatches(given.clients, 1, RngKey(0).at(round=done))
        for own, rows in zip(seen, here.data.rows, strict=True):
            assert len(rows) == batch
            own.extend(rows)
    for own, rows in zip(seen, given.rows, strict=True):
        times = np.bincount(own, minlength=len(given.inputs))[rows]
        assert times.sum() == 60 * batch
        assert times.max() - times.min() <= 1


def test_a_minibatch_of_every_client_is_a_gradient_at_the_masters_weights(given):
    """The mean of messages of equal minibatches is the gradient of one large minibatch."""
    _, _, state = first_round(given.clients, minibatches=1, messages="averaged")
    rows = np.concatenate(next_minibatches(given.clients, 1, RngKey(0).at(round=0)).data.rows)
    settings = replace(given.clients.settings, batch_size=len(rows))
    _, _, pooled = first_round(holders(given.clients, [rows], settings=settings))
    assert torch.allclose(state["flat"], pooled["flat"], atol=1e-5)
    none = holders(given.clients, [given.rows[0], given.rows[0][:0]])
    with pytest.raises(FedreproError, match="client 1 of trial 0 has no training examples"):
        first_round(none, minibatches=1)


def test_downpours_messages_are_the_clients_mean_gradients(given):
    """One client with one minibatch: the master takes an Adam step on its gradient."""
    settings = replace(given.clients.settings, batch_size=1000, l2=0.0)
    clients = holders(given.clients, given.rows[:1], settings=settings)
    made, before, after = first_round(clients)
    first = made.model(before, clients).tensors
    start = {k: torch.from_numpy(v[0]).requires_grad_() for k, v in first.items()}
    examples = clients.data.examples
    x, y = examples.inputs[given.rows[0]], examples.targets[given.rows[0]]
    out = torch.relu(x @ start["weight0"] + start["bias0"]) @ start["weight1"] + start["bias1"]
    torch.nn.functional.cross_entropy(out, y).backward()
    torch.optim.Adam(start.values(), lr=clients.settings.lr, amsgrad=True).step()
    for key, value in made.model(after, clients).tensors.items():
        assert np.allclose(value[0], start[key].detach().numpy(), atol=1e-5)


def test_measures_of_one_model_and_of_clients_alone(given):
    numbers = measure(call("uniform_ensemble", given), {"train": as_split(given)})
    found = {(n.metric, n.split): n.value for n in numbers}
    assert found["hidden_units", None] == 4 * 8
    assert found["forward_passes", None] == 4
    assert found["parameters", None] == 4 * (FEATURES * 8 + 8 + 8 * CLASSES + CLASSES)
    right = correct(call("uniform_ensemble", given), as_split(given))
    assert found["accuracy", "train"] == right.mean()
    assert found["accuracy_clients", "train"] == np.mean([right[r].mean() for r in given.rows])
    # a client that holds none of the examples has no accuracy on them
    short = replace(as_split(given), rows=[given.rows[0], *[given.rows[1][:0]] * 3])
    numbers = measure(call("uniform_ensemble", given), {"train": short})
    found = {(n.metric, n.split): n.value for n in numbers}
    assert found["accuracy_clients", "train"] == right[given.rows[0]].mean()
    local, splits = call("local", given), {"test": as_split(given), "train": short}
    numbers, alone = measure_alone(local, splits)
    found = {(n.metric, n.split): n.value for n in numbers}
    assert found["accuracy_worst", "train"] == min(alone)
    right = correct(local[0], short)[given.rows[0]].mean()
    assert found["accuracy_clients", "train"] == right != found["accuracy", "train"]
    assert len(alone) == 4
    assert found["accuracy", "test"] == pytest.approx(np.mean(alone))
    assert found["accuracy_worst", "test"] == min(alone)


def test_a_kind_that_there_is_not_is_a_sentence():
    with pytest.raises(FedreproError, match="did you mean 'one_shot'"):
        method("x", kind="one-shot")


def test_unmatched_units_keep_their_say_where_concatenation_scales_it(given):
    kept, scaled = call("unmatched", given, sigma2=1e-9), call("concatenation", given)
    shares = given.info.label_counts / given.info.label_counts.sum(0)
    whole = kept.tensors["weight1"][0].reshape(4, 8, CLASSES)
    part = scaled.tensors["weight1"][0].reshape(4, 8, CLASSES)
    assert np.allclose(whole * shares[:, None, :], part, atol=1e-5)
    assert np.allclose(kept.tensors["bias1"], scaled.tensors["bias1"], atol=1e-5)

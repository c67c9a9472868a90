"""The engine equals a plain loop per client, and bytes do not depend on how its work is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plain
import pytest
import torch
from hypothesis import given as drawn_by
from hypothesis import strategies as st
from plain import clients_of, starts, train

from fedrepro.core.errors import FedreproError
from fedrepro.core.portable_ops.padding_and_alignment import PAD
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.layers import Affine
from fedrepro.networks.network import Network
from fedrepro.networks.network import dense as network_of_sizes
from fedrepro.networks.predict import network_of
from fedrepro.training import compiled_trainer
from fedrepro.training.compiled_trainer import CompiledTrainer
from fedrepro.training.engine import train_and_average
from fedrepro.training.flat_models_and_optimiser_steps import Layout
from fedrepro.training.loss_terms import Entropy, GaussianPrior
from fedrepro.training.minibatches_and_augmentation import Task, epoch_order, schedule
from fedrepro.training.training_examples import Examples
from fedrepro.training.training_settings_and_procedures import Procedure, Settings, settings_of

SIZES = [40, 9, 24, 1, 16, 33]
FEATURES, CLASSES = 64, 4
MODELS = {
    "logistic": "logistic",
    "dense": "mlp+hidden~6",
    "deep": "mlp+hidden~8@3@6",
    "dropout": "mlp+dropout~0.5+hidden~6",
    "convolutional": "cnn+channels~2+hidden~5+kernel~3",
    "variational": "variational_mlp+hidden~5",
}
OPTIMISERS = {
    "plain": ("sgd", {"lr": 0.1}),
    "sgd": ("sgd", {"l2": 0.01}),
    "momentum": ("sgd", {"lr": 0.05, "momentum": 0.9, "l2": 0.01}),
    "adam": ("adam", {"amsgrad": False, "l2": 0.01}),
    "amsgrad": ("adam", {"lr": 0.01}),
    "betas": ("adam", {"lr": 0.01, "beta1": 0.5, "beta2": 0.9, "eps": 0.01}),
}


def procedure(name="plain", **values):
    token, own = OPTIMISERS[name]
    given = {"epochs": 2, "batch_size": 8, "init": "fan_in", **own, **values}
    return settings_of(components("training")[token].spec(given))


@dataclass(frozen=True)
class Training:
    """Clients who train a network from a start of their own each."""

    net: Network
    given: Settings
    examples: Examples
    tasks: list[Task]
    start: dict[str, np.ndarray]

    def run(self, **more: Any):
        return train(self.net, self.examples, self.tasks, self.given, self.start, **more)

    def average(self, weights, **more: Any):
        return train_and_average(
            self.net, self.examples, self.tasks, self.given, self.start, weights, **more
        )

    def only(self, *chosen):
        start = {name: value[list(chosen)] for name, value in self.start.items()}
        return replace(self, tasks=[self.tasks[j] for j in chosen], start=start)

    def each(self, **values):
        """With fields of the tasks: a list for each."""
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        tasks = [replace(task, **row) for task, row in zip(self.tasks, rows, strict=True)]
        return replace(self, tasks=tasks)


def training(kind="dense", given=None, dtype=torch.float32, spread=None):
    """Random examples; or blobs of a spread, on which running accuracy rises and then wavers."""
    given = given or procedure()
    examples, tasks = clients_of(SIZES, FEATURES, CLASSES, dtype)
    if spread is not None:
        noise = np.random.default_rng(1).standard_normal((sum(SIZES), FEATURES))
        inputs = np.eye(CLASSES, FEATURES)[examples.targets.numpy()] + spread * noise
        examples = replace(examples, inputs=torch.tensor(inputs, dtype=dtype))
    net = network_of(parse_token("model", MODELS[kind]), (8, 8), CLASSES)
    return Training(net, given, examples, tasks, starts(net, given, tasks, dtype))


def require_same(one, two, rows=slice(None)):
    """Models of `one` have the bytes of these models of `two`."""
    assert np.array_equal(one.loss, two.loss[rows], equal_nan=True)
    assert np.array_equal(one.steps, two.steps[rows])
    for name, value in one.tensors.items():
        assert np.array_equal(value, two.tensors[name][rows], equal_nan=True), name
        if one.gradients is not None and two.gradients is not None:
            assert np.array_equal(one.gradients[name], two.gradients[name][rows], equal_nan=True)


def require_near(one, two, tolerance=1e-10):
    for name, value in one.items():
        assert np.abs(value - two[name]).max() < tolerance, name


def require_plain(own, found, tolerance=1e-10):
    """Each client has the weights that it has after a plain loop."""
    layers, rate = sum(isinstance(one, Affine) for one in own.net.layers), own.net.dropout
    for j, task in enumerate(own.tasks):
        wanted = plain.loop(
            lambda w, x, noise: plain.mlp(w, x.flatten(1), noise, layers, rate),
            *(own.examples, task, own.given),
            {name: value[j] for name, value in own.start.items()},
            random=rate > 0,
        )
        require_near(wanted, {k: v[j] for k, v in found.tensors.items()}, tolerance)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr("fedrepro.training.training_settings_and_procedures.PIECE_ROWS", 7)


@pytest.mark.parametrize("kind", ["logistic", "dense", "deep"])
@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_training_equals_a_plain_loop_per_client(kind, name, dtype, tolerance):
    own = training(kind, procedure(name), dtype)
    within, along = own.run(), own.run(keep_gradients=True)
    require_plain(own, within, tolerance)
    # the gradient is written down only for those who ask for it, and changes nothing
    assert within.gradients is None
    assert np.abs(within.loss - along.loss).max() < tolerance
    require_near(within.tensors, along.tensors, tolerance)


def test_the_summed_gradient_is_that_of_the_data_loss():
    given = procedure("sgd", lr=1e-9, l2=0.5, epochs=1, batch_size=1000)
    own = training("logistic", given, torch.float64).only(0)
    found = own.run(keep_gradients=True)
    weight = torch.tensor(own.start["weight0"][0], requires_grad=True)
    rows = torch.tensor(own.tasks[0].rows)
    out = own.examples.inputs[rows] @ weight + torch.tensor(own.start["bias0"][0])
    torch.nn.functional.cross_entropy(out, own.examples.targets[rows]).backward()
    assert np.abs(found.gradients["weight0"][0] - weight.grad.numpy()).max() < 1e-12
    assert found.steps.tolist() == [1]


@pytest.mark.parametrize("terms", [(), (Entropy(),)])
@pytest.mark.parametrize("kind", ["dense", "convolutional"])
@pytest.mark.parametrize("soft", [False, True])
def test_the_loss_is_the_mean_cross_entropy_of_the_minibatches(kind, terms, soft):
    """With a rate of nearly zero the weights stay, so it is that of the start."""
    own = training(kind, procedure(lr=1e-30), torch.float64)
    if soft:
        shares = torch.softmax(torch.rand(sum(SIZES), CLASSES, dtype=torch.float64), 1)
        own = replace(own, examples=replace(own.examples, targets=shares))
    found = own.run(terms=terms)
    assert found.loss.dtype == np.float64
    for j, task in enumerate(own.tasks):
        tensors = {name: torch.from_numpy(value[j]) for name, value in own.start.items()}
        losses = []
        for epoch in range(own.given.epochs):
            for rows in torch.from_numpy(epoch_order(task, epoch)).split(8):
                logits = own.net.logits(tensors, own.examples.inputs[rows])
                wanted = own.examples.targets[rows]
                losses.append(torch.nn.functional.cross_entropy(logits, wanted))
        assert abs(found.loss[j] - float(torch.stack(losses).mean())) < 1e-12


def test_soft_targets_are_cross_entropy_and_stored_bytes_are_their_scaled_floats():
    own = training(given=procedure("amsgrad"), dtype=torch.float64)
    shares = 2 * torch.nn.functional.one_hot(own.examples.targets, CLASSES).double()
    own = replace(own, examples=replace(own.examples, targets=torch.softmax(shares, 1)))
    require_plain(own, own.run())
    own = training()
    stored = (own.examples.inputs * 255).to(torch.uint8)
    one = replace(own, examples=Examples(stored, own.examples.targets, 255.0))
    two = replace(own, examples=replace(own.examples, inputs=stored.float() / 255))
    require_same(one.run(), two.run())


def test_a_loss_beyond_the_smallest_probability_is_finite():
    """exp(-200) is zero in single precision; the loss of 200 is not infinite."""
    examples = Examples(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64))
    start = {"weight0": np.array([[[0.0, 200.0]]], np.float32),
             "bias0": np.zeros((1, 2), np.float32)}  # fmt: skip
    task = Task(np.array([0]), RngKey(0, 0, 0))
    found = train(network_of_sizes((1, 2)), examples, [task], procedure(epochs=1), start)
    assert found.loss.tolist() == [200.0]
    assert found.finite.all()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", ["dense", "dropout", "convolutional", "variational"])
@pytest.mark.parametrize("optimiser", ["plain", "momentum", "amsgrad"])
@pytest.mark.parametrize("batch", [8, None])
def test_bytes_do_not_depend_on_the_company(kind, optimiser, batch):
    """Clients with other numbers of examples and steps change nothing."""
    steps = [1, 6, 4, 2, 13, 5]
    own = training(kind, procedure(optimiser, batch_size=batch)).each(steps=steps)
    how = {"terms": [Entropy(1.3)] if batch else [], "keep_gradients": True}
    whole = own.run(**how)
    assert whole.steps.tolist() == steps
    for chosen in ([1, 2], *([j] for j in range(len(steps)))):
        require_same(own.only(*chosen).run(**how), whole, chosen)


@pytest.mark.parametrize("kind", ["dense", "dropout", "convolutional", "variational"])
@pytest.mark.parametrize("optimiser", ["plain", "momentum", "amsgrad"])
def test_bytes_do_not_depend_on_the_round_before(kind, optimiser):
    """Rounds share a trainer's buffers; whatever another rate left in them changes nothing."""
    own = training(kind, procedure(optimiser))
    alone = own.run()
    latest = compiled_trainer._latest[0]
    bad = replace(own, given=replace(own.given, lr=1e30, epochs=3))
    assert not bad.run().finite.any()
    assert compiled_trainer._latest == [latest]
    require_same(own.run(), alone)
    assert own.run(keep_gradients=True).gradients
    assert compiled_trainer._latest != [latest]


@pytest.mark.parametrize("patience", [0, 2])
def test_chunks_may_end_anywhere(monkeypatch, patience):
    own = training(given=procedure("amsgrad", epochs=25, patience=patience), spread=0.6)
    whole = own.run()
    monkeypatch.setattr(
        "fedrepro.training.minibatches_and_augmentation.CHUNK_BYTES", 8 * len(SIZES) * 8 * 5
    )
    monkeypatch.setattr("fedrepro.training.minibatches_and_augmentation.VISITED_ROWS", 50)
    require_same(own.run(), whole)


def test_every_epoch_of_every_round_has_an_order_of_its_own():
    task = training().tasks[0]
    rounds = [replace(task, rng=task.rng.at(round=r)) for r in range(4)]
    assert len({epoch_order(one, epoch).tobytes() for one in rounds for epoch in range(4)}) == 16
    assert len({epoch_order(task, epoch).tobytes() for epoch in range(16)}) == 16
    (chunk,) = schedule([replace(task, steps=15)], 8, epochs=1)  # five minibatches an epoch
    for epoch, rows in enumerate(chunk.index[:, 0].reshape(3, 40)):
        assert np.array_equal(rows, epoch_order(task, epoch))
    assert chunk.epoch[:, 0].tolist() == [0] * 5 + [1] * 5 + [2] * 5


@drawn_by(
    st.lists(st.integers(1, 90), min_size=1, max_size=6), st.integers(1, 40), st.integers(1, 3)
)
def test_a_schedule_visits_every_example_once_an_epoch(sizes, batch, epochs):
    sizes = sorted(sizes, reverse=True)
    tasks = [Task(np.arange(n) + 100 * j, RngKey(0, 0, j)) for j, n in enumerate(sizes)]
    chunks = list(schedule(tasks, batch, epochs))
    index, size, active = (
        np.concatenate([getattr(chunk, name) for chunk in chunks])
        for name in ("index", "size", "active")
    )
    counts = np.arange(batch) < size[..., None]
    for j, n in enumerate(sizes):
        own = index[:, j][counts[:, j]]
        assert sorted(own.tolist()) == sorted((np.arange(n) + 100 * j).tolist() * epochs)
        steps = -(-n // batch) * epochs
        assert size[:steps, j].all()
        assert not size[steps:, j].any()
    assert active[0] == len(sizes)
    assert (np.diff(active) <= 0).all()


@drawn_by(st.lists(st.integers(1, 20), min_size=2, max_size=4), st.integers(1, 3))
def test_packing_is_the_inverse_of_unpacking(sizes, models):
    layout = Layout(network_of_sizes(tuple(sizes)).shapes)
    rng = np.random.default_rng(0)
    tensors = {k: rng.random((models, *s), np.float32) for k, s in layout.shapes.items()}
    flat = layout.pack(tensors)
    assert flat.shape == (models, layout.size)
    assert layout.size % 16 == 0
    back, views = layout.unpack(flat), layout.views(torch.from_numpy(flat))
    for key, value in tensors.items():
        assert np.array_equal(back[key], value)
        assert np.array_equal(views[key].numpy(), value)
    assert layout.numbers == sum(v[0].size for v in tensors.values())


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_that_remembers_goes_on_as_if_nothing_had_been(name):
    own = training(given=procedure(name))
    whole = own.each(steps=[9] * 6).run(memory={})
    early = [4 + j % 2 for j in range(6)]  # some stop sooner than others
    first = own.each(steps=early).run(memory={})
    assert first.memory["steps"].tolist() == early
    late = replace(own, start=first.tensors).each(steps=[9 - n for n in early], done=early)
    second = late.run(memory=first.memory)
    assert whole.memory.keys() == second.memory.keys()
    for one, other in ((whole.tensors, second.tensors), (whole.memory, second.memory)):
        assert all(np.array_equal(value, other[key]) for key, value in one.items())
    assert own.only(0).run().memory is None
    with pytest.raises(FedreproError, match="between rounds in compiled steps alone"):
        own.run(memory={}, path="loop")


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", ["dense", "convolutional"])
@pytest.mark.parametrize("optimiser", ["plain", "momentum", "amsgrad", "betas"])
@pytest.mark.parametrize("terms", [(), (Entropy(1.3, 0.7),)])
def test_a_step_is_one_on_the_gradient_of_all_examples(kind, optimiser, terms):
    """As a minibatch of all of them is; terms over examples are summed over pieces."""
    own = training(kind, procedure(optimiser, batch_size=None, epochs=3), torch.float64)
    how = {"keep_gradients": True, "terms": terms}
    found = own.run(**how)
    assert found.steps.tolist() == [3] * len(SIZES)
    for j, size in enumerate(SIZES):
        large = replace(own.only(j), given=replace(own.given, batch_size=size)).run(**how)
        assert abs(large.loss[0] - found.loss[j]) < 1e-12
        for name in own.start:
            assert np.abs(large.tensors[name] - found.tensors[name][j]).max() < 1e-10
            assert np.abs(large.gradients[name] - found.gradients[name][j]).max() < 1e-10
    automatic = own.run(**how, path="grouped", block=4)
    for one, other in ((automatic.tensors, found.tensors), (automatic.gradients, found.gradients)):
        require_near(one, other)


def test_a_term_that_looks_at_a_whole_minibatch_is_refused():
    own = training("variational", procedure(batch_size=None))
    with pytest.raises(FedreproError, match=r"looks at a minibatch as a whole; give a batch_size"):
        own.run(terms=[GaussianPrior(0.1)])


def test_memory_of_a_step_does_not_grow_with_the_examples():
    """No more rows are gathered at once than a piece has, however many a client holds."""
    own = training(given=procedure(batch_size=None, epochs=1))
    trainer = CompiledTrainer(Procedure(own.net, own.given), own.examples, False)
    assert len(trainer.room.x) == 128 * FEATURES + PAD


@pytest.mark.parametrize(
    ("changes", "more", "sentence"),
    [
        ({"rows": np.empty(0, np.int64)}, {}, "client 1 of trial 0 has no training examples"),
        ({"done": 1}, {"patience": 2}, "cannot stop early; leave `patience`"),
        ({}, {"patience": 2, "memory": {}}, "cannot stop early; leave `patience`"),
        ({}, {"reference": {"bias9": np.zeros(1)}}, "the network has no 'bias0': give it"),
    ],
)
def test_a_task_that_cannot_be_trained_is_a_sentence(changes, more, sentence):
    own = training(given=procedure(patience=more.pop("patience", 0)))
    own.tasks[1] = replace(own.tasks[1], **changes)
    with pytest.raises(FedreproError, match=sentence):
        own.run(**more)


def stopping(kind="dense", name="amsgrad", dtype=torch.float32, **values):
    given = procedure(name, **{"epochs": 25, "patience": 2, **values})
    return training(kind, given, dtype, spread=0.6)


@pytest.mark.parametrize("kind", ["logistic", "dense", "dropout"])
@pytest.mark.parametrize("name", ["amsgrad", "plain"])
@pytest.mark.parametrize("patience", [1, 3])
def test_early_stopping_equals_a_plain_loop(kind, name, patience):
    own = stopping(kind, name, torch.float64, patience=patience)
    require_plain(own, own.run())


@pytest.mark.parametrize("path", ["compiled", "loop"])
@pytest.mark.parametrize("batch", [8, None])
def test_a_model_that_stopped_is_one_that_was_to_take_its_steps(path, batch):
    """Of its tensors, its mean loss and its summed gradients alike."""
    own = stopping(batch_size=batch)
    found = own.run(keep_gradients=True, path=path)
    planned = [task.total(batch, 25) for task in own.tasks]
    assert (found.steps < planned).any()
    counted = replace(own.each(steps=found.steps.tolist()), given=replace(own.given, patience=0))
    require_same(counted.run(keep_gradients=True, path=path), found)
    assert replace(own, given=counted.given).run().steps.tolist() == planned


def test_an_average_is_of_models_as_they_stopped_and_leaves_out_what_is_not_finite():
    own = stopping()
    each, found = own.run().tensors, own.average([1 / 6] * 6).tensors
    for key, value in each.items():
        assert np.allclose(found[key][0], value.mean(0), atol=1e-6)
    own, weights = training(), [0.1, 0.2, 0.3, 0.15, 0.2, 0.05]
    well = own.run()
    own.examples.inputs[own.tasks[2].rows] = float("nan")
    found = own.average(weights)
    assert (found.finite.sum(), found.weight) == (5, pytest.approx(0.7))
    for name, value in found.tensors.items():
        wanted = sum(weights[j] * well.tensors[name][j] for j in (0, 1, 3, 4, 5))
        assert np.allclose(value[0], wanted, atol=1e-6)
    own.examples.inputs.fill_(float("nan"))
    found = own.average(weights)
    assert (found.weight, found.finite.sum()) == (0.0, 0)
    assert not any(value.any() for value in found.tensors.values())


@pytest.mark.parametrize("kind", ["dense", "convolutional", "variational"])
@pytest.mark.parametrize("optimiser", ["plain", "amsgrad"])
@pytest.mark.parametrize("patience", [0, 2])
def test_the_others_finish_with_the_same_bytes(kind, optimiser, patience):
    own = training(kind, procedure(optimiser, lr=0.01, patience=patience))
    well = own.run(keep_gradients=True)
    assert well.checked() is well
    own.examples.inputs[own.tasks[2].rows[5]] = float("nan")
    found, others = own.run(keep_gradients=True), [0, 1, 3, 4, 5]
    assert np.flatnonzero(~found.finite).tolist() == [2]
    with pytest.raises(FedreproError, match="client 2 in trial 0 is not finite; lower"):
        found.checked()
    assert np.isnan(found.loss[2])
    for name, value in found.tensors.items():
        assert np.array_equal(value[others], well.tensors[name][others])
        assert np.array_equal(found.gradients[name][others], well.gradients[name][others])
        assert np.isnan(value[2]).all()
    require_same(own.only(2).run(), found, [2])


def test_weights_that_leave_the_numbers_in_the_last_step_or_by_a_term_are_not_finite():
    own = training(given=procedure(lr=1e38, epochs=1, batch_size=40)).only(0)
    own.examples.inputs.mul_(1e4)
    found = own.run()
    assert found.finite.tolist() == [False]
    own = training(given=procedure(epochs=1, batch_size=64))
    found = own.run(terms=[Poison()])
    firsts = [own.examples.inputs[epoch_order(task, 0)[0], 0] for task in own.tasks]
    assert found.finite.tolist() == [bool(first >= 0.5) for first in firsts]


class Poison:
    """A loss that is not a number for models whose first input is below one half."""

    additive = True

    def shapes(self, network):
        return {}

    def loss(self, look):
        return torch.where(look.x[:, 0, 0] < 0.5, float("nan"), 0.0) * look.x.sum((1, 2))

"""Any torch.nn.Module as a model: refused with a sentence, and in the place of a network of layers
wherever methods allow it. That it trains as a plain loop does is in test_networks.py."""

from __future__ import annotations

import re
from pathlib import Path

import jobs
import numpy as np
import pytest
import torch
from contract import quick
from plain import clients_of, starts, train
from problems import model_of, peers_of, problem_on
from torch import nn

from fedrepro.api import GlobalModel, takes
from fedrepro.core import user_component_files as component_files
from fedrepro.core.checkpoint_and_model_files import read_models
from fedrepro.core.checksummed_files import read_source
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import network_of
from fedrepro.stages.user_models import method_contract as held
from fedrepro.training.autograd_trainer_and_noise import activations
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_settings_and_procedures import Procedure, settings_of

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text()
(RESNET,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "@module" in code)
SHAPE, CLASSES = (6, 6), 4
SIZES = [21, 3, 16, 8, 1]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """The model of the page, from a file that is named."""
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(RESNET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(component_files.NAMED, str(path))
        yield components("model")["small_resnet"]
        patch.setenv(component_files.NAMED, "")
        assert "small_resnet" not in components("model")


def perceptron(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, classes))


def given_of(optimiser="sgd", **values):
    own = {"lr": 0.05, "epochs": 2, "batch_size": 8, **values}
    return settings_of(components("training")[optimiser].spec(own))


def doubled(shape, classes):
    """A module with a buffer of NumPy's numbers, which training leaves alone."""
    made = perceptron(shape, classes)
    made.register_buffer("mean", torch.tensor(np.array([0.1])))
    return made


def test_a_module_takes_and_holds_what_it_says():
    """Of an example: 36 inputs laid flat, 5 hidden units before and behind the ReLU, 4 scores."""
    network = network_of(model_of(perceptron), SHAPE, CLASSES)
    start = network.initial(RngKey(0), 0.1, 0.0)
    assert (network.products, network.classes) == (36 * 5 + 5 * 4, CLASSES)
    assert network.hidden_units(start) is None
    assert network_of(model_of(doubled), SHAPE, CLASSES).moving == ()
    assert activations(Procedure(network, given_of()), 8) >= 8 * (5 + 5 + 4)


@pytest.mark.parametrize("flat", [torch.flatten, lambda x, _: x.view(len(x), -1)])
def test_colour_images_come_in_channels_last_if_the_module_takes_them_so(flat):
    class Net(nn.Sequential):
        def forward(self, x):
            seen.append(x.is_contiguous())
            return self[1](flat(self[0](x), 1))

    seen, made = [], lambda *_: Net(nn.Conv2d(3, 4, 3), nn.Linear(16, 3))
    network = network_of(model_of(made), (3, 4, 4), 3)
    network.of_one(network.tensors, torch.rand(5, 3, 4, 4))
    assert network.channels_last is (flat is torch.flatten) is not seen[-1]


def clients():
    return clients_of(SIZES, 36, CLASSES)


def test_bytes_do_not_depend_on_other_clients_nor_on_what_was_drawn_before(resnet):
    network = network_of(resnet.spec({"dropout": 0.5}), SHAPE, CLASSES)
    given, (examples, tasks) = given_of("adam"), clients()
    assert network.draws
    state = torch.get_rng_state()
    start = starts(network, given, tasks)
    whole = train(network, examples, tasks, given, start)
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(7)
    other = train(network, examples, tasks, given, start)
    assert all(np.array_equal(whole.tensors[k], other.tensors[k]) for k in start)
    alone = train(network, examples, tasks[2:3], given, {k: v[2:3] for k, v in start.items()})
    assert all(np.array_equal(whole.tensors[k][2:3], alone.tensors[k]) for k in start)


def test_it_starts_as_its_own_code_draws_and_dropout_anew_in_every_step(resnet):
    network = network_of(resnet.spec(), SHAPE, CLASSES)
    places = [RngKey(0, 0, j) for j in range(2)]
    own, other = (initial_weights(network, given_of(), places) for _ in "ab")
    assert all(np.array_equal(own[name], other[name]) for name in own)
    assert not np.array_equal(own["stem.weight"][0], own["stem.weight"][1])
    assert (own["blocks.0.body.1.weight"] == 1).all()  # of GroupNorm
    shared = initial_weights(network, given_of(shared_init=True), places)
    assert np.array_equal(shared["stem.weight"][0], shared["stem.weight"][1])
    # One example and no rate to move by: only what is left out tells the losses apart.
    network = network_of(resnet.spec({"dropout": 0.5}), SHAPE, CLASSES)
    given, (examples, _) = given_of(lr=1e-30), clients()
    start = initial_weights(network, given, [RngKey(0)])
    tasks = [[Task(np.arange(1), RngKey(0, 0, 0), steps=1, done=n)] for n in range(6)]
    losses = {float(train(network, examples, own, given, start).loss[0]) for own in tasks}
    assert len(losses) == 6
    one = {name: torch.from_numpy(value[0]) for name, value in start.items()}
    scores = [network.logits(one, examples.inputs[:5]) for _ in range(2)]
    assert torch.equal(*scores)


class Seen(nn.Module):
    def __init__(self, shape, classes, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(36, classes)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return self.head(self.body(x).flatten(1))


def frozen(shape, classes):
    made = perceptron(shape, classes)
    made[1].bias.requires_grad_(False)
    return made


def with_norm(norm):
    return lambda shape, classes: nn.Sequential(norm, nn.Flatten(), nn.Linear(36, classes))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (with_norm(nn.BatchNorm2d(1, track_running_stats=False)), "other scores among others"),
        (with_norm(nn.ReLU(inplace=True)), "writes into its input: let it work"),
        (lambda shape, classes: Seen(shape, classes, nn.Identity()), "assigns mean another tensor"),
        (frozen, r"1\.bias is frozen \(requires_grad=False\), and here all"),
        (lambda shape, classes: nn.LazyLinear(classes), "weight has no shape yet, give its size"),
        (lambda shape, classes: "a net", "gives a str: let it give a torch.nn.Module"),
        (lambda shape, classes: perceptron(shape, 7), r"gives shape \(3, 7\) for 3 examples of 4"),
        (with_norm(nn.LSTM(6, 6)), "ValueError, LSTM: Expected input to be 2D or 3D"),
        (lambda shape, classes: nn.Linear(5, 4), r"fails on examples of shape \(1, 6, 6\): Runti"),
        (lambda shape, classes: 1 / 0, "ZeroDivisionError, division by zero"),
        (lambda shape, classes: nn.Sequential(*perceptron(shape, classes), nn.Softmax(1)),
         "gives probabilities: leave out its last softmax"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_averaged_and_measured_is_refused(make, told):
    with pytest.raises(FedreproError, match=told):
        network_of(model_of(make), SHAPE, CLASSES)


@pytest.mark.parametrize(
    "norm", [pytest.param(nn.LayerNorm, marks=pytest.mark.nightly), nn.BatchNorm1d]
)
def test_every_method_that_takes_modules_takes_it(norm):
    """What all are held to, on a problem of which the models are a module's."""
    labels = np.arange(80) % 3
    x = (np.random.default_rng(0).random((80, 4)) + 2 * np.eye(4)[labels]).astype(np.float32)

    def small(shape, classes):
        return nn.Sequential(nn.Linear(4, 5), norm(5), nn.Tanh(), nn.Linear(5, classes))

    training = components("training")["sgd"].spec({"epochs": 2, "shared_init": True})
    given = problem_on(x, labels, 3, model_of(small), training, 3)
    passed = set()
    for name, item in components("method").items():
        if item.meta["kind"] == "simulation" or "partition" in item.meta["scenario"]:
            continue
        if takes(item, given.models.model):
            for rule in list(held.rules_of(item))[1:]:
                rule(quick(name), given)
            passed.add(name)
    assert {"average", "fedavg", "scaffold", "uniform_ensemble", "ties", "gossip_sgd"} <= passed
    assert {"regmean_plus", "fedlpa", "fisher_merge", "c2m3", "ot_fusion", "feddf"} <= passed
    numbers = 4 * 5 + 5 + 2 * 5 + 5 * 3 + 3 + (2 * 5 + 1) * (norm is nn.BatchNorm1d)
    assert peers_of(given.clients).numbers == numbers


def test_through_the_stages_and_back_as_a_state_dict(resnet, tmp_path):
    made = jobs.divided(tmp_path, "iid+clients~2", trials="0")
    made += ["--model", "small_resnet+width~4", "--training", "sgd+epochs~1+shared_init~true"]
    made += ["--timings", tmp_path / "t"]
    local, average = tmp_path / "m", tmp_path / "a"
    assert jobs.stage("train", *made, "--clients", "0-1", "--out", local) == 0
    words = ["--method", "average", "--local", local]
    assert jobs.stage("aggregate", *made, *words, "--out", average) == 0
    for file in (local, average):
        told = read_source(file)["arithmetic"]
        assert told.endswith("portable but for the products of a torch.nn.Module"), told
    tensors = read_models([local], [0])[0].tensors
    (_, state) = GlobalModel(resnet.spec({"width": 4}), tensors).state_dicts()
    resnet.fn((1, 8, 8), 10, width=4).load_state_dict(state)

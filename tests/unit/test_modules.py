"""Any torch.nn.Module as a model: trained as a plain loop does, refused with a sentence, and in the
place of a network of layers wherever methods allow it."""

from __future__ import annotations

import re
from pathlib import Path

import jobs
import numpy as np
import plain
import pytest
import torch
from plain import train
from problems import model_of, peers_of, problem_on
from torch import nn

import fedrepro
from fedrepro.api import GlobalModel, LocalModels, takes
from fedrepro.core import plugins
from fedrepro.core.artifacts import read_source
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.state_and_model_files import read_models
from fedrepro.networks.predict import network_of
from fedrepro.stages.user_models import method_contract as held
from fedrepro.training.autograd_trainer import activations
from fedrepro.training.engine import is_compiled
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.loss_terms import Entropy, Proximal
from fedrepro.training.minibatches import Task
from fedrepro.training.training_settings import Procedure, settings_of

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
        patch.setenv(plugins.NAMED, str(path))
        yield components("model")["small_resnet"]
        patch.setenv(plugins.NAMED, "")
        assert "small_resnet" not in components("model")


def perceptron(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, classes))


def given_of(optimiser="sgd", **values):
    lr = {"sgd": 0.05, "adam": 1e-3}[optimiser]
    own = {"lr": lr, "epochs": 2, "batch_size": 8, **values}
    return settings_of(components("training")[optimiser].spec(own))


def test_all_parts_of_a_module_hold_activations():
    """Of an example: 36 inputs laid flat, 5 hidden units before and behind the ReLU, 4 scores."""
    procedure = Procedure(network_of(model_of(perceptron), (6, 6), 4), given_of(batch_size=8))
    assert activations(procedure) >= 8 * (5 + 5 + 4)


def tasks_and_examples(dtype=torch.float32):
    rng = np.random.default_rng(3)
    x, y = rng.random((sum(SIZES), 36)), rng.integers(0, CLASSES, sum(SIZES))
    rows = np.split(rng.permutation(sum(SIZES)), np.cumsum(SIZES)[:-1])
    examples = Examples(torch.tensor(x, dtype=dtype), torch.tensor(y))
    return [Task(own, RngKey(0, 0, j)) for j, own in enumerate(rows)], examples


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_every_path_equals_a_plain_loop_per_client(resnet, optimiser, dtype, tolerance):
    network, given = network_of(resnet.spec(), SHAPE, CLASSES), given_of(optimiser)
    body = resnet.fn((1, 6, 6), CLASSES).to(dtype)
    tasks, examples = tasks_and_examples(dtype)
    start = initial_weights(network, given, [task.rng for task in tasks])
    start = {name: value.astype(str(dtype)[6:]) for name, value in start.items()}

    def predict(weights, x, noise):
        return torch.func.functional_call(body, weights, (x.view(-1, 1, 6, 6),))

    assert not is_compiled(Procedure(network, given), "cpu")
    for path in ("grouped", "loop"):
        found = train(network, examples, tasks, given, start, path=path, block=3)
        for j, task in enumerate(tasks):
            own = {name: value[j] for name, value in start.items()}
            for name, value in plain.loop(predict, examples, task, given, own).items():
                assert np.abs(found.tensors[name][j] - value).max() < tolerance, (path, name, j)


def test_it_is_the_network_of_layers_with_the_same_weights():
    own, layers = network_of(model_of(perceptron), SHAPE, CLASSES), components("model")["mlp"]
    other = network_of(layers.spec({"hidden": [5]}), SHAPE, CLASSES)
    given, (tasks, examples) = given_of(), tasks_and_examples(torch.float64)
    start = initial_weights(own, given, [task.rng for task in tasks])
    start = {name: value.astype(float) for name, value in start.items()}
    turned = {f"{part}{at}": start[f"{place}.{part}"].swapaxes(1, -1)
              for at, place in enumerate((1, 3)) for part in ("weight", "bias")}  # fmt: skip
    terms = [Proximal(0.1), Entropy(1.0, 0.2)]
    found = train(own, examples, tasks, given, start, terms=terms)
    expected = train(other, examples, tasks, given, turned, terms=terms)
    for at, place in enumerate((1, 3)):
        for part in ("weight", "bias"):
            mine = found.tensors[f"{place}.{part}"].swapaxes(1, -1)
            assert np.abs(mine - expected.tensors[f"{part}{at}"]).max() < 1e-10
    assert (own.products, own.classes, own.hidden_units(start)) == (36 * 5 + 5 * 4, CLASSES, None)


def test_bytes_do_not_depend_on_other_clients_nor_on_what_was_drawn_before(resnet):
    network = network_of(resnet.spec({"dropout": 0.5}), SHAPE, CLASSES)
    given, (tasks, examples) = given_of("adam"), tasks_and_examples()
    assert network.draws
    state = torch.get_rng_state()
    start = initial_weights(network, given, [task.rng for task in tasks])
    whole = train(network, examples, tasks, given, start)
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(7)
    other = train(network, examples, tasks, given, start)
    assert all(np.array_equal(whole.tensors[k], other.tensors[k]) for k in start)
    alone = train(network, examples, tasks[2:3], given, {k: v[2:3] for k, v in start.items()})
    assert all(np.array_equal(whole.tensors[k][2:3], alone.tensors[k]) for k in start)


def test_dropout_draws_anew_in_every_step_and_none_in_prediction(resnet):
    """One example and no rate to move by: only what is left out tells the losses apart."""
    network = network_of(resnet.spec({"dropout": 0.5}), SHAPE, CLASSES)
    given, (_, examples) = given_of(lr=1e-30), tasks_and_examples()
    start = initial_weights(network, given, [RngKey(0)])
    losses = [
        train(
            network, examples, [Task(np.arange(1), RngKey(0, 0, 0), steps=1, done=n)], given, start
        )
        for n in range(6)
    ]
    assert len({float(found.loss[0]) for found in losses}) == 6
    one = {name: torch.from_numpy(value[0]) for name, value in start.items()}
    scores = [network.logits(one, examples.inputs[:5]) for _ in range(2)]
    assert torch.equal(*scores)


def test_it_starts_as_its_own_code_draws(resnet):
    network = network_of(resnet.spec(), SHAPE, CLASSES)
    own, other = (
        initial_weights(network, given_of(), [RngKey(0, 0, j) for j in range(2)]) for _ in "ab"
    )
    assert all(np.array_equal(own[name], other[name]) for name in own)
    assert not np.array_equal(own["stem.weight"][0], own["stem.weight"][1])
    assert (own["blocks.0.body.1.weight"] == 1).all()  # of GroupNorm
    shared = initial_weights(
        network, given_of(shared_init=True), [RngKey(0, 0, j) for j in range(2)]
    )
    assert np.array_equal(shared["stem.weight"][0], shared["stem.weight"][1])


class Recurrent(nn.Module):
    """Reads codes of characters; torch.vmap does not know its layer."""

    def __init__(self, shape, classes):
        super().__init__()
        self.table, self.cell = nn.Embedding(classes, 3), nn.LSTM(3, 5, batch_first=True)
        self.head = nn.Linear(5, classes)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.head(self.cell(self.table(x.long()))[0][:, -1]) * self.scale


def test_what_vmap_does_not_know_goes_one_after_another():
    network = network_of(model_of(Recurrent), (5,), CLASSES)
    assert list(network.shapes) == [name for name, _ in Recurrent((5,), 4).named_parameters()]
    tasks, examples = tasks_and_examples()
    codes = Examples((examples.inputs[:, :5] * CLASSES).floor(), examples.targets)
    start = initial_weights(network, given_of(), [task.rng for task in tasks])
    found = [
        train(network, codes, tasks, given_of(), start, path=path).tensors
        for path in ("grouped", "loop")
    ]
    assert all(np.allclose(found[0][k], found[1][k], atol=1e-6) for k in start)


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


def of_complex_numbers(shape, classes):
    made = perceptron(shape, classes)
    made[1].bias = nn.Parameter(made[1].bias.detach().to(torch.cfloat))
    return made


def of_random_width(shape, classes):
    width = int(torch.randint(1, 10**6, ()))
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 1 + width % 97), nn.Linear(1 + width % 97, 4))


def with_norm(norm):
    return lambda shape, classes: nn.Sequential(norm, nn.Flatten(), nn.Linear(36, classes))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (with_norm(nn.BatchNorm2d(1, track_running_stats=False)), "other scores among others"),
        (with_norm(nn.ReLU(inplace=True)), "writes into its input, so that others would see"),
        (lambda shape, classes: Seen(shape, classes, nn.Identity()), "assigns mean another tensor"),
        (frozen, r"1\.bias is frozen \(requires_grad=False\), and here all"),
        (lambda shape, classes: nn.Flatten(), "has no parameters, so that nothing can be"),
        (lambda shape, classes: nn.LazyLinear(classes), "weight has no shape yet, give its size"),
        (of_complex_numbers, "holds no floating-point"),
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


def test_a_module_of_other_shapes_each_time_is_refused_when_it_starts():
    network = network_of(model_of(of_random_width), SHAPE, CLASSES)
    with pytest.raises(FedreproError, match="has other parameters each time"):
        _ = [network.initial(RngKey(0, place), 0.1, 0.0) for place in range(3)]


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
                rule(item, given)
            passed.add(name)
    assert {"average", "fedavg", "scaffold", "uniform_ensemble", "ties", "gossip_sgd"} <= passed
    assert {"regmean_plus", "fedlpa", "fisher_merge", "c2m3", "ot_fusion", "feddf"} <= passed
    numbers = 4 * 5 + 5 + 2 * 5 + 5 * 3 + 3 + (2 * 5 + 1) * (norm is nn.BatchNorm1d)
    assert peers_of(given.clients).numbers == numbers


def test_through_the_stages_and_back_as_a_state_dict(resnet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = ["--dataset", "digits", "--partition", "iid+clients~2", "--model", "small_resnet+width~4",
           "--training", "sgd+epochs~1+shared_init~true"]  # fmt: skip
    made = [*own, "--data", "d", "--members", "p", "--trials", "0", "--timings", "t"]
    for words in (
        ["prepare", "--dataset", "digits", "--out", "d"],
        ["partition", *own[2:4], "--data", "d", "--trials", "0", "--out", "p"],
        ["train", *made, "--clients", "0-1", "--out", "m"],
        ["aggregate", *made, "--method", "average", "--local", "m", "--out", "a"],
    ):
        assert jobs.stage(*words) == 0
    for file in "ma":
        told = read_source(file)["arithmetic"]
        assert told.endswith("portable but for the products of a torch.nn.Module"), told
    tensors = read_models(["m"], [0])[0].tensors
    states = GlobalModel(resnet.spec({"width": 4}), tensors).state_dicts()
    plain_module = resnet.fn((1, 8, 8), 10, width=4)
    plain_module.load_state_dict(states[1])
    model = {"model": "small_resnet+width~4", "shape": (1, 8, 8)}
    counts = np.ones((2, 10), int)
    local = LocalModels.from_state_dicts(states, label_counts=counts, **model)
    assert (local.clients, local.classes) == (2, 10)
    found = fedrepro.combine(local, "average").state_dict()
    assert list(found) == list(states[0])
    mean = (states[0]["stem.weight"] + states[1]["stem.weight"]) / 2
    assert torch.allclose(found["stem.weight"], mean, atol=1e-6)
    lacking = {name: value for name, value in states[0].items() if name != "stem.bias"}
    for given, shape, told in (
        ([states[0], lacking], (1, 8, 8), r"state dict 1 has no 'stem\.bias' of shape \(4,\)"),
        (states, None, "needs the shape of one example"),
        ([{}], (1, 8, 8), "is not a state dict, or holds no tensors"),
    ):
        with pytest.raises(FedreproError, match=told):
            LocalModels.from_state_dicts(given, model="small_resnet+width~4", shape=shape)

"""State dicts of one's own modules, however odd: what comes out loads into what went in."""

from __future__ import annotations

import functools
import re
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from test_side_by_side import shortened
from torch import nn

import fedrepro
from fedrepro.api import ClientInfo, LocalModels
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.methods._merging import of_one_form
from fedrepro.networks.predict import network_of
from fedrepro.networks.user_torch_modules import module
from fedrepro.numbers.model_evaluation import class_scores
from fedrepro.stages.user_models.combine import run_all
from fedrepro.stages.user_models.model_and_data_files import ModelFiles
from fedrepro.training.training_examples import Examples

SHAPE, CLASSES, CLIENTS = (8,), 3, 3


class HeadFirst(nn.Module):
    """The head is made first; buffers are input statistics, a mask, a counter and one not saved."""

    def __init__(self, shape, classes):
        super().__init__()
        self.head = nn.Linear(6, classes)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("step", torch.tensor(0))
        self.register_buffer("mask", torch.ones(6, dtype=torch.bool))
        self.register_buffer("made", torch.arange(6.0), persistent=False)
        self.body = nn.Linear(8, 6)

    def forward(self, x):
        if self.training:
            self.made.add_(1)
        return self.head(torch.tanh(self.body(x - self.mean)) * self.mask + self.made)


class Tied(nn.Module):
    """Its last layer has the weight of its table, whose rows are characters and classes."""

    def __init__(self, shape, classes):
        super().__init__()
        self.table = nn.Embedding(classes, 5)
        self.middle = nn.Linear(5, 5)
        self.head = nn.Linear(5, classes, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(torch.tanh(self.middle(self.table(x.long() % CLASSES).mean(1))))


class Nested(nn.Module):
    """Parts of parts, norms, a weight the other way round, and a part that is called module."""

    def __init__(self, shape, classes):
        super().__init__()
        self.module = nn.Sequential(
            nn.Unflatten(1, (2, 2, 2)),
            nn.Sequential(nn.Conv2d(2, 4, 1, bias=False), nn.GroupNorm(2, 4), nn.GELU()),
            nn.Flatten(), nn.LayerNorm(16),
        )  # fmt: skip
        self.last = nn.Parameter(torch.randn(16, classes))

    def forward(self, x):
        return self.module(x) @ self.last


class Wrapping(nn.Module):
    """All that it has is in a part that is called module."""

    def __init__(self, shape, classes):
        super().__init__()
        self.module = nn.Linear(8, classes)

    def forward(self, x):
        return self.module(x)


def batch_norm(shape, classes):
    """A network with running statistics."""
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, classes))


ODD = {
    "head_first": HeadFirst, "tied": Tied, "nested": Nested, "wrapping": Wrapping,
    "batch_norm": batch_norm,
}  # fmt: skip


@contextmanager
def registered_as(name, make):
    """The model that this function gives, under a name for a while."""
    module(name, version="dev")(make)
    yield components("model")[name].spec()
    components("model").pop(name)


@pytest.fixture(autouse=True)
def registered():
    with ExitStack() as stack:
        for name, make in ODD.items():
            stack.enter_context(registered_as(name, make))
        yield


def clients(make):
    """Modules with parameters and buffers of their own, as training leaves them."""
    torch.manual_seed(0)
    made = [make(SHAPE, CLASSES).eval() for _ in range(CLIENTS)]
    for place, one in enumerate(made):
        for name, buffer in one.named_buffers():
            if name == "mask":
                buffer[1] = False
            elif name != "made":
                buffer += torch.rand(buffer.shape) if buffer.is_floating_point() else 10 - place
        for parameter in one.parameters():
            parameter.data += 0.5 * torch.rand(parameter.shape)
    return made


def read(states, name):
    return LocalModels.from_state_dicts(states, model=name, shape=SHAPE, label_counts=COUNTS)


def examples():
    x = torch.from_numpy(np.random.default_rng(1).integers(0, 5, (20, 8)).astype(np.float32))
    return x, Examples(x, torch.zeros(20, dtype=torch.long))


def scores(made):
    return class_scores(network_of(made.model, SHAPE, CLASSES), made, examples()[1], None)


def plain(one):
    with torch.no_grad():
        return torch.softmax(one.eval()(examples()[0]), 1)


WRAPPERS = {
    "plain": lambda state: state,
    "data parallel": lambda state: {f"module.{key}": value for key, value in state.items()},
    "compiled": lambda state: {f"_orig_mod.{key}": value for key, value in state.items()},
    "checkpoint": lambda state: {"epoch": 3, "state_dict": state, "optimiser": {"lr": 0.1}},
    "both": lambda state: {"model_state_dict": {f"module.{k}": v for k, v in state.items()}},
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ODD)
def test_what_comes_out_loads_into_what_went_in_and_predicts_as_pytorch_does(name, wrapper):
    made = clients(ODD[name])
    given = [WRAPPERS[wrapper](one.state_dict()) for one in made]
    local = read(given, name)
    inner = made[0].state_dict()
    ensemble = fedrepro.combine(local, "uniform_ensemble")
    for one, state in zip(made, ensemble.state_dicts(), strict=True):
        assert list(state) == list(inner)
        for (key, value), found in zip(one.state_dict().items(), state.values(), strict=True):
            assert torch.equal(found, value), key
            assert found.dtype == value.dtype
    assert torch.allclose(scores(ensemble), sum(map(plain, made)) / CLIENTS, atol=1e-5)
    average = fedrepro.combine(local, "average")
    state = average.state_dict()
    assert list(state) == list(inner)
    whole = ODD[name](SHAPE, CLASSES)
    whole.load_state_dict(state, strict=True)
    assert torch.allclose(scores(average), plain(whole), atol=1e-5)
    for key, value in state.items():
        each = [one.state_dict()[key] for one in made]
        if value.is_floating_point():
            mean = sum(n * v for n, v in zip((10, 20, 10), each, strict=True)) / 40
            assert torch.allclose(value, mean, atol=1e-6), key
        else:
            assert torch.equal(value, functools.reduce(torch.maximum, each)), key


def test_a_prefix_of_some_clients_alone_is_taken_off_theirs():
    made = clients(HeadFirst)
    wrappers = ("plain", "both", "compiled")
    given = [WRAPPERS[w](m.state_dict()) for w, m in zip(wrappers, made, strict=True)]
    with pytest.raises(FedreproError, match=r"its network, as in --model nets\.py:Net"):
        LocalModels.from_state_dicts(given[:1])
    state = fedrepro.combine(read(given, "head_first"), "average").state_dict()
    made[0].load_state_dict(state, strict=True)
    dense = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)).state_dict()
    tied = clients(Tied)[0].state_dict()
    one = {k: v for k, v in tied.items() if k != "head.weight"}  # as safetensors keeps it
    assert read([tied, one, one], "tied").classes == CLASSES
    alike = LocalModels.from_state_dicts([WRAPPERS["data parallel"](dense)] * 2)
    assert alike.layers == ("module.0", "module.2")


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("head_first", lambda s: s | {"old.weight": torch.ones(2)},
         "state dict 1 has 'old.weight', which the model has not: a file must hold what"),
        ("head_first", lambda s: {}, "state dict 1 is not a state dict, or holds no tensors"),
        ("head_first", lambda s: {k: v for k, v in s.items() if k != "mean"},
         "state dict 1 has no 'mean' of shape (8,)"),
        ("head_first", lambda s: s | {"mean": torch.full((8,), torch.nan)}, "is not finite"),
    ],
)  # fmt: skip
def test_a_state_dict_that_the_module_would_not_load_is_refused(name, change, told):
    given = [one.state_dict() for one in clients(ODD[name])]
    with pytest.raises(FedreproError, match="needs the shape of one example"):
        LocalModels.from_state_dicts(given, model=name)
    given[1] = change(dict(given[1]))
    with pytest.raises(FedreproError, match=re.escape(told)):
        read(given, name)


def odd(forward, kind=torch.float):
    """A Linear layer of another `forward`, with a parameter of this kind."""

    def made(shape, classes):
        own = type("Odd", (nn.Linear,), {"forward": forward})(8, classes)
        own.spare = nn.Parameter(torch.zeros(2, dtype=kind))
        return own

    return made


def linear(own, x):
    return nn.functional.linear(x, own.weight, own.bias)


def counting(shape, classes):
    made = odd(lambda own, x: own.turned.add_(1j) is None or linear(own, x))(shape, classes)
    made.register_buffer("turned", torch.zeros(2, dtype=torch.cfloat))
    return made


MADE = {
    "training changes turned, which is complex": counting,
    "spare is complex, make it two real ones": odd(linear, torch.cfloat),
    "gives shape .* for 1 examples": odd(lambda own, x: linear(own, x).squeeze()),
    "in training gives a tuple": odd(
        lambda own, x: (linear(own, x), x) if own.training else linear(own, x)
    ),
    "deepcopy": lambda shape, classes: nn.utils.weight_norm(nn.Linear(8, classes)),
    "take out its get_extra": type("Extra", (Wrapping,), {"get_extra_state": lambda own: {}}),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("told", MADE)
def test_a_module_that_cannot_be_copied_or_loaded_is_a_sentence(told):
    made = MADE[told](SHAPE, CLASSES)
    made(torch.zeros(2, 8))
    with registered_as("odd", MADE[told]), pytest.raises(FedreproError, match=told):
        read([made.state_dict()], "odd")


def test_masks_may_be_infinite_and_drawn_buffers_are_the_same_in_every_job():
    class Masked(HeadFirst):
        def __init__(self, shape, classes):
            super().__init__(shape, classes)
            self.register_buffer("far", torch.full((2,), -torch.inf))
            self.register_buffer("drawn", torch.rand(4))

    drawn = []
    for _ in range(2):
        with registered_as("masked", Masked) as spec:
            drawn.append(network_of(spec, SHAPE, CLASSES).module.drawn)
    assert torch.equal(*drawn)
    with registered_as("masked", Masked):
        made = clients(Masked)
        state = fedrepro.combine(read([m.state_dict() for m in made], "masked"), "average")
        made[0].load_state_dict(state.state_dict(), strict=True)


COUNTS = np.array([[5, 1, 4], [10, 5, 5], [1, 1, 8]])


def perceptrons(*units):
    torch.manual_seed(1)
    return [nn.Sequential(nn.Linear(8, a), nn.ReLU(), nn.Linear(a, b), nn.ReLU(), nn.Linear(b, 3))
            for a, b in units]  # fmt: skip


def local_of(made):
    states = [one.state_dict() for one in made]
    return LocalModels.from_state_dicts(states, label_counts=COUNTS[: len(made)])


@pytest.mark.parametrize("method", ["uniform_ensemble", "voting_ensemble", "weighted_ensemble"])
def test_ensembles_take_perceptrons_of_different_widths(method):
    made = perceptrons((4, 7), (6, 5), (6, 6))
    ensemble = fedrepro.combine(local_of(made), method)
    for one, state in zip(made, ensemble.state_dicts(), strict=True):
        one.load_state_dict(state, strict=True)
        assert all(torch.equal(value, state[key]) for key, value in one.state_dict().items())
    assert ensemble.trained() == sum(p.numel() for one in made for p in one.parameters())
    if method == "uniform_ensemble":
        assert torch.allclose(scores(ensemble), sum(map(plain, made)) / 3, atol=1e-6)


def test_most_clients_may_have_no_examples():
    info = ClientInfo(components("training")["sgd"].spec(), example_counts=np.array([0, 0, 9]))
    models, info = of_one_form(local_of(perceptrons((4, 7), (4, 7), (6, 5))), info)
    assert (models.clients, *info.example_counts) == (2, 1, 1)


def test_pfnm_matches_the_units_that_there_are():
    """A padded unit would be one more global unit: with a huge mass every local unit is its own."""
    local = local_of(perceptrons((4, 5), (6, 7)))
    state = fedrepro.combine(local, "pfnm", gamma0=1e6, sigma2=0.01).state_dict()
    assert [len(state[f"{k}.bias"]) for k in (0, 2, 4)] == [10, 12, 3]
    with pytest.raises(FedreproError, match="hidden layers of 4-5 and 6-7 units"):
        fedrepro.combine(local, "average")


def test_all_methods_on_different_widths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedrepro.stages.user_models.combine.components", shortened)
    made, x = perceptrons((4, 7), (6, 5)), examples()[0]
    for name in ("test", "0", "1"):
        np.savez(f"{name}.npz", x=x.numpy(), y=made[1](x).argmax(1).numpy())
    for place, one in enumerate(made):
        torch.save(one.state_dict(), f"{place}.pt")
    test = Path("test.npz")
    own = {"data": [Path("0.npz"), Path("1.npz")], "evaluate": test, "validation": test}
    found, _ = run_all(ModelFiles([Path("0.pt"), Path("1.pt")], **own), Path("out"))
    rows = {row["method"]: row for row in found}
    for name in ("uniform_ensemble", "weighted_ensemble", "best_client", "fens", "local", "pfnm"):
        assert not rows[name]["not_applied"]
    assert rows["best_client"]["accuracy"] == 1
    assert rows["pfnm"]["accuracy_worst"] is None  # of one model
    made[1].load_state_dict(torch.load("out/best_client.pt", weights_only=True), strict=True)
    numbers = sum(p.numel() for one in made for p in one.parameters())
    assert rows["uniform_ensemble"]["bytes_up"] == 4 * numbers

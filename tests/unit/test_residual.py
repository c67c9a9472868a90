"""Residual networks and BatchNorm: trained, merged by every method that takes them, given back."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import allowed, made_of, states
from plain import clients_of, starts
from problems import Ascent, model_of, problem, problem_on
from safetensors.torch import load_file
from torch import nn

import fedrepro
from fedrepro.api import GlobalModel, LocalModels
from fedrepro.cli.main import main
from fedrepro.core import user_component_files as component_files
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, model_in, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.methods._merging import expectation_mean
from fedrepro.methods.fedavg_variants_and_base_classes import sample_clients
from fedrepro.methods.matching.network_arrays_and_tracing import units_of
from fedrepro.networks.layer_matrices import layer_matrices
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.stages.aggregate import SharedPreparation, run_setting
from fedrepro.stages.federate_and_peer import GlobalEvaluator
from fedrepro.training.engine import train, train_and_average
from fedrepro.training.federation import norm_statistics
from fedrepro.training.federation.fisher_and_input_moments import errors_of, kronecker_factors
from fedrepro.training.minibatches_and_augmentation import Task, epoch_order
from fedrepro.training.training_examples import Examples
from fedrepro.training.training_settings_and_procedures import settings_of

SHAPE, CLASSES, CLIENTS = (1, 8, 8), 3, 3
MERGING = {
    "average": {}, "regmean": {}, "regmean_plus": {},
    "fisher_merge": {}, "fedfisher_diagonal": {"steps": 20}, "fedfisher_kfac": {}, "fedlpa": {},
    "task_arithmetic": {}, "ties": {"keep": 1.0}, "weight_matching": {}, "c2m3": {},
    "ot_fusion": {}, "matched_regmean": {}, "matched_kfac": {},
}  # fmt: skip


SPEC = components("model")["resnet8"].spec({"norm": "batch", "width": 2})
NETWORK = network_of(SPEC, SHAPE, CLASSES)


def scores(tensors, x):
    """Of the first network of tensors (m, *shape)."""
    with torch.no_grad():
        return NETWORK.logits({k: torch.tensor(v[0]) for k, v in tensors.items()}, x)


@pytest.fixture(scope="module")
def given():
    """Three clients of a small residual network with BatchNorm, trained from one start."""
    labels = np.arange(90) % CLASSES
    bright = np.repeat(np.eye(8)[labels], 8, axis=1)
    x = (np.random.default_rng(0).random((90, 64)) + bright).astype(np.float32)
    how = {"epochs": 2, "batch_size": 7, "lr": 0.05, "shared_init": True}
    training = components("training")["sgd"].spec(how)
    return problem_on(x.reshape(90, *SHAPE), labels, CLIENTS, SPEC, training, CLASSES)


def merged(given, name, models=None, **values):
    item, models = components("method")[name], models or given.models
    info = allowed(given.info, item)
    if info.clients is not None:
        info = replace(info, clients=replace(info.clients, own=models.tensors))
    return made_of(item, models, info, {**MERGING.get(name, {}), **values})


def worked_by(name, given, rule, **changes):
    """What a method with this rule of BatchNorm makes, its clients told other things."""
    spec = components("method")[name].spec({"batchnorm": rule})
    info = replace(allowed(given.info, spec.component), **changes)
    return run_setting(spec, SharedPreparation(given.models, info, RngKey(0)))


def is_client(given, name, made, tensors):
    """Whether the first client was made: its tensors, or its predictions with units reordered."""
    if "match" in name or name in ("c2m3", "ot_fusion"):
        x = torch.from_numpy(given.inputs[:20])
        return torch.allclose(scores(made.tensors, x), scores(tensors, x), atol=1e-4)
    return all(np.abs(v[0] - tensors[k][0]).max() <= 2e-5 for k, v in made.tensors.items())


def test_batch_norm_trains_as_a_plain_loop_does():
    """Running statistics too, with the short last minibatch as it is."""
    how = {"epochs": 2, "batch_size": 8, "l2": 0.1, "lr": 0.05}
    settings = settings_of(components("training")["sgd"].spec(how))
    examples, tasks = clients_of([21, 22], 64, CLASSES, torch.float64)
    start = starts(NETWORK, settings, tasks, torch.float64)
    found = train(NETWORK, examples, tasks, settings, start)
    for j, task in enumerate(tasks):
        body = SPEC.component.fn(SHAPE, CLASSES, norm="batch", width=2).double().train()
        body.load_state_dict({k: torch.from_numpy(np.asarray(v[j])) for k, v in start.items()})
        optimiser = torch.optim.SGD(body.parameters(), lr=0.05, weight_decay=0.1)
        for step in range(6):
            rows = epoch_order(task, step // 3)[step % 3 * 8 :][:8]
            optimiser.zero_grad()
            logits = body(examples.inputs[rows].view(-1, *SHAPE))
            nn.functional.cross_entropy(logits, examples.targets[rows]).backward()
            optimiser.step()
        for name, value in body.state_dict().items():
            assert np.abs(found.tensors[name][j] - value.numpy()).max() < 1e-10, name
    assert (found.tensors["norm.num_batches_tracked"] == 6).all()
    mean = train_and_average(NETWORK, examples, tasks, settings, start, [0.25, 0.75])
    wanted = np.tensordot([0.25, 0.75], found.tensors["norm.running_var"], 1)
    assert np.abs(mean.tensors["norm.running_var"][0] - wanted).max() < 1e-12
    assert mean.tensors["norm.num_batches_tracked"] == 6


@pytest.mark.parametrize("name", MERGING)
def test_equal_clients_and_one_alone_give_back_the_client_which_loads_strictly(given, name):
    equal = {k: np.repeat(v[:1], CLIENTS, axis=0) for k, v in given.models.tensors.items()}
    made = merged(given, name, replace(given.models, tensors=equal))
    assert is_client(given, name, made, equal)
    alone = {k: v[:1] for k, v in given.models.tensors.items()}
    data = replace(given.clients.data, rows=given.rows[:1])
    clients = replace(given.clients, data=data, own=alone)
    counts = given.info.label_counts[:1]
    info = replace(given.info, clients=clients, label_counts=counts, example_counts=counts.sum(1))
    item, models = components("method")[name], replace(given.models, tensors=alone)
    made = made_of(item, models, allowed(info, item), MERGING[name])
    assert is_client(given, name, made, alone)
    module = SPEC.component.fn(SHAPE, CLASSES, norm="batch", width=2)
    module.load_state_dict(made.state_dict(), strict=True)


@pytest.mark.parametrize("name", MERGING)
def test_what_different_clients_make_predicts_and_averages_statistics(given, name):
    made = merged(given, name, **({"scale": 2.0} if name == "task_arithmetic" else {}))
    assert torch.isfinite(scores(made.tensors, torch.from_numpy(given.inputs[:5]))).all()
    counts = made.tensors["norm.num_batches_tracked"]
    assert counts == given.models.tensors["norm.num_batches_tracked"].max()
    if "match" not in name and name not in ("c2m3", "ot_fusion"):
        mean = given.models.tensors["norm.running_var"].mean(axis=0)
        assert np.allclose(made.tensors["norm.running_var"][0], mean, atol=1e-6)


def test_convolutions_are_averaged_or_their_factors_scaled_as_in_published_code(given):
    (stem, *_) = [layer for layer in layer_matrices(NETWORK) if layer.kernel]
    weights = stem.of(given.models.tensors)
    made = merged(given, "regmean", convolutions="average")
    assert np.allclose(stem.of(made.tensors)[0], weights.mean(0), atol=1e-6)
    made = merged(given, "fedlpa", solver="expectation", damping=0.01)
    answers = given.clients.query(partial(kronecker_factors, labels="data"))
    a, g = (np.stack([one[k] for one in answers]) for k in (stem.key, errors_of(stem.key)))
    a = a / stem.places + 0.1 * np.eye(a.shape[-1])
    g = g * stem.places + 0.1 * np.eye(g.shape[-1])
    share = np.full(CLIENTS, 1 / CLIENTS)
    wanted = expectation_mean(a, g, np.mean(a @ weights @ g, axis=0), share)
    assert np.allclose(stem.of(made.tensors)[0], wanted, atol=1e-5)


def between(layer, kind=nn.Sequential):
    return kind(nn.Conv2d(1, 4, 3), layer, nn.Flatten(), nn.Linear(4 * 36, CLASSES))


class Branching(nn.Sequential):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else x.clone())  # either way the same


class Cut(nn.Sequential):
    def forward(self, x):
        out = self[0](x)
        return self[3](self[2](torch.cat([out[:, :2], out[:, 2:]], 1)))


class Gated(nn.Sequential):
    def forward(self, x):
        one, other = self[0](x).chunk(2, 1)
        return self[3](self[2](torch.cat([one * other, other], 1)))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (between(nn.GroupNorm(2, 4)), r"layer '1' \(GroupNorm\) has 2 groups"),
        (between(nn.Conv2d(4, 4, 1, groups=2)), r"layer '1' \(Conv2d\) is a convolution of"),
        (between(nn.Softmax2d()), r"layer '1' \(Softmax2d\) is of an unknown kind"),
        (between(nn.Identity(), Cut), "the call of getitem does not keep units apart"),
        (between(nn.Identity(), Gated), "'chunk' gives several tensors"),
        (between(nn.Flatten(1, 2)), r"layer '1' \(Flatten\) is of an unknown kind"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "no hidden units that may change places"),
        (between(nn.Identity(), Branching), "cannot be traced, so nobody knows which layers share"),
    ],
)
def test_what_stops_a_match_is_named(body, told):
    with pytest.raises(FedreproError, match=told):
        units_of(model_of(lambda *_: body), SHAPE, CLASSES)


def test_statistics_are_measured_again_on_the_data_that_there_are(given):
    done = worked_by("average", given, "recalibrate", clients=given.clients)
    one = {k: torch.tensor(v[0]) for k, v in done.made.tensors.items()}
    x = torch.from_numpy(given.inputs)
    with torch.no_grad():
        maps = torch.conv2d(x.view(-1, *SHAPE), one["stem.weight"], padding=1)
    assert torch.allclose(one["norm.running_mean"], maps.mean((0, 2, 3)), atol=1e-5)
    each = torch.stack([maps[rows].var((0, 2, 3)) for rows in given.rows])
    means = torch.stack([maps[rows].mean((0, 2, 3)) for rows in given.rows])
    wanted = each.mean(0) + means.var(0, correction=0)
    assert torch.allclose(one["norm.running_var"], wanted, atol=1e-4)
    assert {number.metric: number.value for number in done.cost}["rounds"] == 2
    with pytest.raises(FedreproError, match="has no data to measure running statistics on"):
        worked_by("average", given, "recalibrate", clients=None)
    own = {"clients": None, "public_inputs": given.inputs}
    made = worked_by("average", given, "recalibrate", **own).made
    wanted = norm_statistics.running_statistics(NETWORK, one, Examples(x, x))
    assert np.allclose(made.tensors["norm.running_var"][0], wanted["norm.running_var"])


def test_statistics_of_unequal_clients_count_by_their_examples():
    x = np.random.default_rng(0).normal(size=(40, 3))
    answers = [
        {"n.running_mean": part.mean(0), "n.running_var": part.var(0), "examples": [[len(part)]]}
        for part in (x[:10], x[10:])
    ]
    answers = [{k: np.ravel(v) for k, v in one.items()} for one in answers]
    found = norm_statistics.pooled_statistics(answers)
    assert np.allclose(found["n.running_mean"][0], x.mean(0), atol=1e-6)
    assert np.allclose(found["n.running_var"][0], x.var(0), atol=1e-6)
    held = {k: np.stack([np.full(s, 1.0), np.full(s, 5.0)]) for k, s in NETWORK.shapes.items()}
    for name, value in norm_statistics.mean_buffers(NETWORK, held, np.array([0.25, 0.75])).items():
        assert (value == (5 if name in NETWORK.counts else 4)).all()


def test_batch_norm_alone_is_measured_again_where_it_can_be():
    norms = nn.BatchNorm2d(1), nn.InstanceNorm2d(1, track_running_stats=True)
    flat, head = nn.Flatten(), nn.Linear(64, CLASSES)

    def measured(count, *layers):
        network = network_of(model_of(lambda *_: nn.Sequential(*layers, head)), SHAPE, CLASSES)
        held = {name: torch.full_like(value, 0.5) for name, value in network.tensors.items()}
        x = torch.rand(count, 64)
        return x.mean(), norm_statistics.running_statistics(network, held, Examples(x, x))

    mean, found = measured(20, *norms, flat)
    assert found["0.running_mean"] == pytest.approx(float(mean))
    assert found["1.running_mean"] == found["1.running_var"] == 0.5
    with pytest.raises(FedreproError, match="this network has no BatchNorm"):
        measured(20, norms[1], flat)
    with pytest.raises(FedreproError, match="cannot be measured on 1 examples"):
        measured(1, flat, nn.BatchNorm1d(64))


def test_statistics_and_norms_stay_with_each_client(given):
    each, done = merged(given, "average"), worked_by("average", given, "local")
    made, kept = done.made, sum(given.models.tensors[name].size for name in NETWORK.norms)
    assert len(made) == CLIENTS
    sent = {number.metric: number.value for number in done.cost}["bytes_up"]
    assert sent == 4 * (given.models.numbers - kept) < 4 * given.models.numbers
    for j, model in enumerate(made):
        for name, value in model.tensors.items():
            own = given.models.tensors[name][j] if "norm" in name or "shortcut.1" in name else None
            assert np.array_equal(value[0], each.tensors[name][0] if own is None else own), name
    with pytest.raises(FedreproError, match="units in another order than clients have"):
        worked_by("weight_matching", given, "local")
    with pytest.raises(FedreproError, match="keeps none: leave the rule out"):
        worked_by("average", problem(), "local")


@pytest.mark.parametrize("rule", ["average", "local", "recalibrate"])
@pytest.mark.parametrize("name", ["fedavg", "adaptive_fedavg"])
def test_rounds_have_the_rules(given, name, rule):
    item = components("method")[name]
    spec = item.spec({"batchnorm": rule, "fraction": 0.7, "rounds": 2})
    if (name, rule) == ("adaptive_fedavg", "local"):
        with pytest.raises(FedreproError, match="no BatchNorm layers to measure rewards with"):
            spec.component.fn(**spec.values)
        return
    clients = replace(given.clients, method="fedavg", needs=item.meta["needs"])
    judge, info = GlobalEvaluator(spec, clients), allowed(given.info, item)
    state = begun = judge.made.init(clients, info, RngKey(0))
    for done in range(2):
        clients.ledger.begin()  # as the harness does
        state, report = judge.made.round(state, clients, info, RngKey(0).at(round=done))
    assert report.exchanges == 1 + (rule == "recalibrate")
    models = judge.models(state)
    assert len(models) == (CLIENTS if rule == "local" else 1)
    if rule == "local":
        network = clients.network
        sent = [s for name, s in network.shapes.items() if name not in network.norms]
        size = 2 * 4 * sum(int(np.prod(s)) for s in sent)
        assert report.traffic.bytes_up == report.traffic.bytes_down == size
        for layer in network.norms:  # which no client sends
            assert np.array_equal(state["weights"][layer], begun["weights"][layer])
        one, two, *_ = (models[int(j)].tensors for j in state["kept"])
        assert not np.array_equal(one["norm.running_var"], two["norm.running_var"])
        assert all(np.array_equal(one["stem.weight"], m.tensors["stem.weight"]) for m in models)
    else:
        before, after = (of["weights"]["norm.running_var"] for of in (begun, state))
        assert not np.array_equal(before, after)
    if rule == "recalibrate":
        chosen = sample_clients(CLIENTS, 0.7, RngKey(0).at(round=1))
        for layer, value in clients.statistics(state["weights"], chosen).items():
            assert np.allclose(state["weights"][layer], value, atol=1e-6), layer
        kept = (inputs := clients.data.examples.inputs).clone()
        inputs[clients.data.rows[int(chosen[0])]] *= 1e25  # it diverges
        after = judge.made.round(begun, clients, info, RngKey(0).at(round=1))[0]["weights"]
        inputs[:] = kept
        assert all(np.isfinite(value).all() for value in after.values())
        return
    split = EvaluationSplit(given.clients.data.examples, given.labels, SHAPE, CLASSES, given.rows)
    look = judge.evaluate_round(state, {"test": split}, RngKey(0))
    assert look.finite
    wanted = {"accuracy", "accuracy_clients", *(["accuracy_worst"] if rule == "local" else [])}
    assert {number.metric for number in look.values if number.split == "test"} == wanted
    assert len(look.values) == len(wanted)


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fednova", "fedadam"])
def test_servers_step_along_weights_and_average_statistics(given, name):
    made = components("method")[name].fn(fraction=1.0, rounds=1)
    weights = states(made, given.clients, given.info)[-1]["weights"]
    assert (weights["norm.running_var"] > 0).all()
    assert weights["norm.num_batches_tracked"] == 5  # of 30 examples by 7


def test_sam_moves_by_the_gradient_at_the_perturbed_weights():
    network = network_of(components("model")["logistic"].spec(), (4,), 3)
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.random((6, 4))), torch.arange(6) % 3
    start = {"weight0": rng.random((1, 4, 3)), "bias0": rng.random((1, 3))}
    training = components("training")["sgd"].spec({"epochs": 1, "batch_size": 6, "lr": 0.5})
    settings, tasks = settings_of(training), [Task(np.arange(6), RngKey(0, 0, 0))]

    def slope(w, b):
        leaves = [w.clone().requires_grad_(), b.clone().requires_grad_()]
        loss = nn.functional.cross_entropy(x @ leaves[0] + leaves[1], y)
        return torch.autograd.grad(loss, leaves)

    w, b = (torch.from_numpy(start[name][0]) for name in ("weight0", "bias0"))
    g = slope(w, b)
    length = torch.sqrt(sum((part**2).sum() for part in g))
    ahead = slope(*(v + 0.3 * part / length for v, part in zip((w, b), g, strict=True)))
    for share in (1.0, 0.25):
        found = train(network, Examples(x, y), tasks, settings, start, terms=[Ascent(0.3, share)])
        for name, value, one, other in zip(("weight0", "bias0"), (w, b), g, ahead, strict=True):
            wanted = value - 0.5 * ((1 - share) * one + share * other)
            assert np.abs(found.tensors[name][0] - wanted.numpy()).max() < 1e-10


NETS = """
from torch import nn

class Net(nn.Module):
    '''A small network.'''

    def __init__(self, in_channels, num_classes, width=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, width, 3), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))

class Odd(nn.Module):
    def __init__(self, thing):
        super().__init__()

made = Net(1, 3)
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """The module of a file, `nets.py:Net`; and data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(component_files.NAMED, "")
    (tmp_path / "nets.py").write_text(NETS)
    space: dict[str, type] = {}
    exec(NETS, space)
    x = np.random.default_rng(0).random((30, 1, 8, 8)).astype(np.float32)
    np.savez("data.npz", x=x, y=np.arange(30) % 3)
    torch.manual_seed(0)
    yield lambda: space["Net"](1, 3)
    component_files.set_files(())
    components("model")


READS = """import json
from pathlib import Path

from torch import nn

from fedrepro.networks.user_torch_modules import module
from fedrepro.data.user_data import input_checksum

SIZES = Path(__file__).with_name("sizes.json")


@module("sized"READS)
def sized(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(json.loads(SIZES.read_text()), classes))


class Cnn(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, classes))
"""


def test_a_name_may_be_taken_and_a_file_that_is_read_is_declared(nets):
    reads = ", reads=lambda values: input_checksum(SIZES)"
    Path("sizes.json").write_text("64")
    for file, name in (("own.py", "own_cnn"), ("again.py", "own_cnn2")):
        Path(file).write_text(READS.replace("READS", reads))
        assert model_in(f"{file}:Cnn") == name
    component_files.set_files(["own.py"])
    assert network_of(parse_token("model", "sized"), (1, 8, 8), 3).classes == 3
    Path("other.py").write_text(READS.replace("READS", ""))
    component_files.set_files(["other.py"])
    with pytest.raises(FedreproError, match=r"@module reads=.*_file__\)\.with_name\(.sizes.json"):
        network_of(parse_token("model", "sized"), (1, 8, 8), 3)


def test_a_class_of_a_file_is_a_model(nets, capsys):
    word = ["--model", "nets.py:Net", "--shape", "1,8,8"]
    for j in range(2):
        made = nets()
        made(torch.from_numpy(np.load("data.npz")["x"]))
        state = {f"module.{key}": value for key, value in made.state_dict().items()}
        torch.save({"epoch": 1, "state_dict": state}, f"{j}.pt")
        np.savez(f"{j}.npz", **np.load("data.npz"))
    files = ["0.pt", "1.pt", *word, "--clients-data", "[01].npz"]
    for method in ("average", "regmean", "weight_matching", "average+batchnorm~recalibrate"):
        assert main(["combine", method, *files, "--out", "m.safetensors"]) == 0, method
        nets().load_state_dict(load_file("m.safetensors"), strict=True)
        assert main(["evaluate", "m.safetensors", "--data", "data.npz", *word]) == 0
    assert "ReLU" not in "".join(capsys.readouterr())  # which is said of layers without a network
    assert main(["combine", "average+batchnorm~local", *files, "--out", "a.pt"]) == 2
    assert "makes a network for each client, and not one of all" in capsys.readouterr().err
    assert main(["combine", "all", *files, "--evaluate", "data.npz", "--out", "all"]) == 0
    both = [f"all/{name}.pt" for name in ("majority", "average")]  # the first has a layer alone
    assert main(["evaluate", *both, "--data", "data.npz", *word]) == 0
    Path("own.py").write_text(READS.replace("READS", ""))
    of_class = "0.pt has no '1.weight' of shape (3, 64): a file must hold what 'own_cnn' (Cnn of"
    for wrong, told in (
        ("own.py:Cnn", f"{of_class} own.py) saves"),
        ("nets.py:Nat", "did you mean 'Net'"),
        ("nets.py:made", "unknown class 'made' in nets.py: known are Net, Odd"),
        ("nets.py:Odd", "Odd takes 'thing', whose value is unknown"),
        ("gone.py:Net", "gone.py is missing"),
    ):
        given = ["0.pt", "--model", wrong, "--shape", "1,8,8", "--out", "a.pt"]
        assert main(["combine", "average", *given]) == 2
        assert told in capsys.readouterr().err
        assert not Path("a.pt").exists()
        component_files.set_files(())


def test_a_method_is_checked_with_a_network_that_is_named(nets, capsys):
    assert main(["check-method", "average", "--model", "nets.py:Net"]) == 0
    assert "passes all" in capsys.readouterr().out
    assert main(["check-method", "pfnm", "--model", "resnet8"]) == 2
    assert "combines mlp, not 'resnet8'" in capsys.readouterr().err


def test_networks_of_different_architectures_are_taken_as_they_are_or_distilled(nets, capsys):
    parts = {"fc1": nn.Linear(64, 5), "act": nn.ReLU(), "fc2": nn.Linear(5, 3)}
    mlp = nn.Sequential(OrderedDict(parts))
    modules = [nets().eval(), mlp, nets().eval()]
    for j, made in enumerate(modules):
        torch.save(made.state_dict(), f"{j}.pt")
    names = "nets.py:Net,mlp+hidden~5,nets.py:Net"
    shared = ["--model", names, "--shape", "1,8,8"]
    files = ["0.pt", "1.pt", "2.pt", *shared]
    assert main(["combine", "uniform_ensemble", *files, "--out", "all.pt"]) == 0
    kept = torch.load("all.pt", weights_only=True)
    for made, state in zip(modules, kept["state_dicts"], strict=True):
        made.load_state_dict(state, strict=True)
    assert main(["evaluate", "all.pt", "--data", "data.npz", *shared]) == 0
    numbers = sum(p.numel() for made in modules for p in made.parameters())
    assert f"{numbers:,} in 3" in (said := capsys.readouterr().out)
    assert "layers in the order" not in said
    local = LocalModels.from_state_dicts(
        [made.state_dict() for made in modules], model=names.split(","), shape=(1, 8, 8),
        label_counts=np.ones((3, 3), int),
    )  # fmt: skip
    assert local.numbers == numbers + 2 * (3 + 3 + 1)  # running statistics are sent as well
    assert isinstance(fedrepro.combine(local, "weighted_ensemble"), GlobalModel)
    with pytest.raises(FedreproError, match="combines networks of one architecture, and these"):
        fedrepro.combine(local, "average")
    words = ["0.pt", "2.pt", "--start", "2.pt", "--model", "nets.py:Net,nets.py:Net", *shared[2:]]
    assert main(["combine", "task_arithmetic", *words, "--out", "one.pt"]) == 0
    for method in ("feddf+epochs~1", "dense+epochs~1"):
        words = ["combine", method, *files, "--public", "data.npz", "--out", "student.pt"]
        assert main(words) == 0, capsys.readouterr()
        state = torch.load("student.pt", weights_only=True)
        nets().load_state_dict(state, strict=True)

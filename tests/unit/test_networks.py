"""Every model trains through the engine as a plain loop per client does, on every path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plain
import pytest
import torch
from plain import clients_of, starts, train
from torch.nn import functional

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.compiled_layout_and_buffers import parts_of
from fedrepro.networks.layers import Affine, Dropout, Relu
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of, probabilities
from fedrepro.training.autograd_trainer_and_noise import right_predictions
from fedrepro.training.engine import is_compiled, train_and_average
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.flat_models_and_optimiser_steps import Layout
from fedrepro.training.loss_terms import Correction, Entropy, GaussianPrior, Proximal
from fedrepro.training.training_settings_and_procedures import Procedure, settings_of

CLASSES = 4
SIZES = [21, 3, 16, 8, 1]  # whole minibatches of 8, short ones, less than one
TOLERANCES = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def dense(*layers):
    return lambda w, x, n: plain.mlp(w, x, n, *layers)


def conv(*layout):
    return lambda w, x, n: plain.cnn(w, x, *layout)


def beliefs(layers):
    return lambda w, x, n: plain.variational(w, x, n, layers)


def residual(w, x, noise):
    body = components("model")["resnet8"].fn((1, 8, 8), CLASSES, width=2).to(x.dtype)
    return torch.func.functional_call(body, w, (x.view(-1, 1, 8, 8),))


LENET, KEYWORD = {"channels": [3, 5]}, {"channels": [2, 3, 2, 3], "kernel": 3, "pool_every": 2}
VALID = {"channels": [3, 4], "kernel": 3, "padding": "valid", "pool_every": 2, "hidden": [6]}
LSTM, DEEP = {"embedding": 3, "units": 6}, {"hidden": [5, 3], "spread": 0.015}

# name: model, its parameters, shape of an example, the plain network
MODELS = {
    "logistic": ("logistic", {}, (6,), dense(1)),
    "mlp": ("mlp", {"hidden": [7, 5]}, (6,), dense(3)),
    "mlp-dropout": ("mlp", {"hidden": [9, 6], "dropout": 0.5}, (6,), dense(3, 0.5)),
    "fedavg-cnn": ("cnn", LENET | {"hidden": [11]}, (8, 8), conv((1, 8, 8), 2, 2, 1, 2)),
    "keyword-cnn": ("cnn", KEYWORD | {"hidden": [6]}, (8, 8), conv((1, 8, 8), 4, 1, 2, 2)),
    "valid-cnn": ("cnn", VALID, (3, 9, 9), conv((3, 9, 9), 2, 0, 2, 2)),
    "mlp-bias-free": ("mlp", {"hidden": [7, 5], "bias": False}, (6,), dense(3)),
    "cnn-bias-free": (
        *("cnn", LENET | {"hidden": [6], "bias": False}, (8, 8)),
        conv((1, 8, 8), 2, 2, 1, 2),
    ),
    "char-lstm": ("char_lstm", LSTM, (5,), lambda w, x, n: plain.lstm(w, x, 2)),
    "char-lstm-all": (
        *("char_lstm", LSTM | {"predict": "all"}, (5,)),
        lambda w, x, n: plain.lstm(w, x, 2, all_positions=True),
    ),
    "variational": ("variational_mlp", {"hidden": [5]}, (6,), beliefs(2)),
    "variational-deep": ("variational_mlp", DEEP, (6,), beliefs(3)),
    "module": ("resnet8", {"width": 2}, (8, 8), residual),
}


def procedure(training="sgd", **values):
    given = {"epochs": 1, "batch_size": 8, "init": "fan_in", **values}
    return settings_of(components("training")[training].spec(given))


def network(name):
    model, values, shape, _ = MODELS[name]
    return network_of(components("model")[model].spec(values), shape, CLASSES)


def problem(name, dtype):
    examples, tasks = clients_of(SIZES, int(np.prod(MODELS[name][2])), CLASSES, dtype)
    if name.startswith("char-lstm"):
        examples.inputs.mul_(CLASSES).floor_()
    return examples, tasks


def ready(name, dtype=torch.float64, **values):
    """A network, examples, a task of each client, how they train and what from."""
    net, given = network(name), procedure(**values)
    examples, tasks = problem(name, dtype)
    return net, examples, tasks, given, starts(net, given, tasks, dtype)


def looped(name, examples, tasks, given, start, extra=None):
    """The weights of each client after a plain loop."""
    firsts = [{k: v[j] for k, v in start.items()} for j in range(len(tasks))]
    how = MODELS[name][3], examples
    return [
        plain.loop(*how, task, given, first, extra, network(name).draws)
        for task, first in zip(tasks, firsts, strict=True)
    ]


def agree(found, expected, tolerance):
    for j, own in enumerate(expected):
        for key, value in own.items():
            trained = {**found.tensors, **found.private}[key][j]
            assert np.abs(trained - value).max() < tolerance, (key, j)


def check(name, examples, tasks, given, start, found, tolerance, extra=None):
    agree(found, looped(name, examples, tasks, given, start, extra), tolerance)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_every_path_equals_a_plain_loop_per_client(name, dtype, tolerance, optimiser):
    # Adam divides by the root of tiny second moments; 1e-3 keeps rounding from being magnified
    lr = 0.05 if optimiser == "sgd" else 1e-3
    net, examples, tasks, given, start = ready(name, dtype, training=optimiser, lr=lr)
    expected = looped(name, examples, tasks, given, start)
    for path in ways(net):
        for block in (2, 5) if path == "grouped" else (1,):
            found = train(net, examples, tasks, given, start, path=path, block=block)
            agree(found, expected, tolerance)


@pytest.mark.parametrize("name", ["mlp-dropout", "variational"])
def test_training_goes_on_within_an_epoch(name):
    """Plain descent remembers nothing, so that two runs are one that is cut in the middle."""
    net, examples, tasks, given, start = ready(name, torch.float32, epochs=3)
    tasks = [replace(task, steps=7) for task in tasks]
    whole = train(net, examples, tasks, given, start)
    first = train(net, examples, [replace(task, steps=4) for task in tasks], given, start)
    rest = [replace(task, steps=3, done=4) for task in tasks]
    found = train(net, examples, rest, given, first.tensors)
    assert found.steps.tolist() == [3] * 5
    assert all(np.array_equal(whole.tensors[k], found.tensors[k]) for k in start)


def proximal(weights, start, x):
    return 0.3 * sum(((weights[k] - start[k]) ** 2).sum() for k in start)


def corrected(weights, start, x):
    return sum((0.3 * start[k] * weights[k]).sum() for k in start)


def uncertain(layers):
    def extra(weights, start, x):
        p = torch.softmax(plain.mlp(weights, x, None, layers), 1)
        entropy = -(p * p.log()).sum(1)
        return 0.7 * torch.relu(1.3 - entropy).mean() + proximal(weights, start, x)

    return extra


ADAM = {"training": "adam", "lr": 1e-3}


@pytest.mark.parametrize(
    ("name", "values", "terms", "extra"),
    [
        *((name, {}, [Proximal(0.3)], proximal) for name in ("mlp", "valid-cnn", "module")),
        *((name, values, [Correction()], corrected)
          for name in ("mlp", "char-lstm") for values in ({}, ADAM)),
        *((name, {"momentum": momentum}, [Entropy(1.3, 0.7), Proximal(0.3)], uncertain(layers))
          for name, layers in (("mlp", 3), ("logistic", 1)) for momentum in (0.0, 0.5)),
    ],
)  # fmt: skip
def test_terms_of_the_loss_are_their_formulas(name, values, terms, extra):
    """Moved in the product or by an optimiser; a correction is another for each client."""
    net, examples, tasks, given, start = ready(name, epochs=3, **{"lr": 0.05} | values)
    correction = extra is corrected
    how = {"reference": {k: 0.3 * v for k, v in start.items()}} if correction else {}
    for path in ways(net):
        found = train(net, examples, tasks, given, start, terms=terms, block=2, path=path, **how)
        check(name, examples, tasks, given, start, found, 1e-10, extra)
    if correction:
        with pytest.raises(FedreproError, match="a correction of every step needs `reference`"):
            train_and_average(net, examples, tasks, given, start, [1.0] * len(tasks), terms=terms)
        for other in (Proximal(0.3), GaussianPrior()):
            with pytest.raises(FedreproError, match="use one of the two"):
                train(net, examples, tasks, given, start, terms=[*terms, other], **how)


def over_run(task):
    return 1 / (task.total(8, 2) * min(8, len(task.rows)))


PRIORS = {
    "received, run": (GaussianPrior(0.7), False, lambda task: 0.7 * over_run(task)),
    "received, client": (GaussianPrior(over="client"), False, lambda task: 1 / len(task.rows)),
    "fixed": (GaussianPrior(2.0, sd=0.4), False, lambda task: 2 * over_run(task)),
    "handed over": (GaussianPrior(), True, over_run),
}


@pytest.mark.parametrize("case", PRIORS)
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("name", ["variational", "variational-deep"])
def test_the_prior_of_variational_weights_is_the_divergence_of_normal_distributions(
    name, optimiser, case
):
    """As the sum over examples has it; a minibatch's loss is a mean."""
    net, examples, tasks, given, start = ready(name, training=optimiser, epochs=2, lr=1e-3)
    term, handed, share = PRIORS[case]
    rng = np.random.default_rng(1)
    other = {k: rng.normal(size=v.shape) for k, v in start.items()} if handed else None
    means = [key for key in start if "spread" not in key]

    def extra(task, prior):
        def loss(weights, first, x):
            total = 0.0
            for part in means:
                spread = functional.softplus(weights[f"{part}_spread"])
                if term.sd is None:
                    theirs = prior or first
                    held = theirs[part], functional.softplus(theirs[f"{part}_spread"])
                else:
                    held = torch.zeros_like(spread), torch.full_like(spread, term.sd)
                now = torch.distributions.Normal(weights[part], spread)
                there = torch.distributions.Normal(*held)
                total = total + torch.distributions.kl_divergence(now, there).sum()
            return share(task) * total

        return loss

    found = train(net, examples, tasks, given, start, terms=[term], reference=other)
    for j, task in enumerate(tasks):
        prior = other and {k: torch.tensor(v[j]) for k, v in other.items()}
        one = replace(found, tensors={k: v[[j]] for k, v in found.tensors.items()})
        own = {k: v[[j]] for k, v in start.items()}
        check(name, examples, [task], given, own, one, 1e-10, extra(task, prior))


def test_at_the_prior_the_divergence_has_no_gradient():
    """Not even by rounding, however much it weighs: then the data alone move the weights."""
    net, examples, tasks, given, start = ready("variational", torch.float32, lr=0.1)
    tasks = [replace(task, steps=1) for task in tasks]
    runs = [
        train(net, examples, tasks, given, start, terms=terms).tensors
        for terms in ([], [GaussianPrior(1e6)])
    ]
    assert all(np.array_equal(value, runs[1][key]) for key, value in runs[0].items())


@pytest.mark.parametrize(
    ("token", "shape", "count"),
    [
        # FedFisher's LeNet: 25·6 + 150·16 + 256·120 + 120·84 + 84·10
        ("bias~false+channels~6@16+hidden~120@84+padding~valid", (28, 28), 44_190),
        # DENSE's code on CIFAR-10: 28·128 + 2 (1152 + 1) 128 + (4·4·128 + 1) 10
        ("channels~128@128@128+hidden~none+kernel~3+padding~valid+pools~2", (3, 32, 32), 319_242),
    ],
)
def test_networks_have_the_papers_numbers_of_parameters(token, shape, count):
    """Those that docs/models.md does not name."""
    found = network_of(parse_token("model", f"cnn+{token}"), shape, 10)
    assert Layout(found.shapes).numbers == count


def chosen(net, device, terms, **values):
    return is_compiled(Procedure(net, procedure("sgd", **values), terms), device)


def ways(net):
    if net.kind == "variational":
        return ("compiled",)
    automatic = ("loop",) if net.dropout else ("grouped", "loop")
    return automatic if net.kind == "module" else ("compiled", *automatic)


class Weighed(Entropy):
    """A term of a method's own."""


@pytest.mark.parametrize(
    ("name", "terms", "device"),
    [("mlp", (Entropy(), Weighed()), "cpu"), ("mlp", (), "cuda"), ("module", (), "cpu")],
)
def test_what_no_compiled_step_knows_is_differentiated_automatically(name, terms, device):
    assert not chosen(network(name), device, terms)


def test_layers_of_ones_own_and_several_rates_are_differentiated_automatically():
    own, maps = type("Leaky", (Relu,), {})(), (Affine(4), Affine(3), Affine(2))
    for rates, relu, compiled in (((0.1, 0.1), Relu(), True), ((0.1, 0.8), Relu(), False),
                                  ((0.1, 0.1), own, False)):  # fmt: skip
        first, second = map(Dropout, rates)
        layers = (maps[0], Relu(), first, maps[1], relu, second, maps[2])
        assert chosen(Network((5,), layers, "mlp"), "cpu", []) == compiled
    assert Network((5,), (maps[0], own), "mlp").draws  # perhaps
    odd = type("Odd", (Affine,), {"parameters": lambda own, shape: {"W": shape}})
    with pytest.raises(FedreproError, match="two layers have a tensor 'W'"):
        _ = Network((5,), (odd(4), odd(3)), "mlp").places
    assert not chosen(network("mlp"), "cpu", [], augment="crop_flip")
    letters, *recurrent, top = (lstm := network("char-lstm")).layers
    assert parts_of(replace(lstm, layers=(letters, recurrent[0]))) is None
    uneven = (letters, replace(recurrent[0], units=3), *recurrent[1:], top)
    assert parts_of(replace(lstm, layers=uneven)) is None
    one = network_of(
        components("model")["char_lstm"].spec(LSTM | {"predict": "all"}), (1,), CLASSES
    )
    start = {k: torch.from_numpy(v) for k, v in one.initial(RngKey(0), 0.1, 0.0).items()}
    assert one.logits(start, torch.ones(7, 1)).shape == (7, CLASSES)


def test_bayesian_networks_train_in_compiled_steps_alone():
    net, examples, tasks, given, start = ready("variational")
    assert chosen(net, "cuda", [GaussianPrior()])
    mixed = replace(net, layers=(*net.layers[:-1], network("mlp").layers[-1]))
    for of, terms in ((net, [GaussianPrior(), GaussianPrior()]), (mixed, [])):
        with pytest.raises(FedreproError, match="train only in networks of these and ReLU"):
            train(of, examples, tasks, given, start, terms=terms)


@pytest.mark.parametrize(
    ("model", "values", "shape", "told"),
    [
        *(("char_lstm", {"predict": predict}, (8, 8), "reads windows of characters, not inputs of")
          for predict in ("last", "all")),
        ("cnn", {}, (64,), "model 'cnn' works on images, not on inputs of shape"),
        ("cnn", {"channels": [2] * 4, "kernel": 3}, (8, 8), "leaves nothing of images of 8×8 pix"),
        ("cnn", {"kernel": 4}, (8, 8), "keeps the size of images with odd kernels alone"),
    ],
)  # fmt: skip
def test_inputs_that_a_network_cannot_read_are_asked_for_by_name(model, values, shape, told):
    with pytest.raises(FedreproError, match=told):
        network_of(components("model")[model].spec(values), shape, CLASSES)


@pytest.mark.parametrize("name", MODELS)
def test_prediction_draws_nothing_and_does_not_depend_on_the_rows_taken_at_once(name, monkeypatch):
    net, examples, _, _, start = ready(name)
    one = probabilities(net, start, None, examples)
    monkeypatch.setattr("fedrepro.networks.network.PREDICTION_ROWS", 4)
    assert (one - probabilities(net, start, None, examples)).abs().max() < 1e-12
    assert (one.sum(1) - 1).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("token", "units"),
    [
        ("logistic", 0),
        ("mlp+hidden~30@20", 50),
        ("variational_mlp+hidden~7", 7),
        ("cnn", None),
        ("char_lstm", None),
    ],
)
def test_hidden_units_are_counted_in_tensors_where_that_means_something(token, units):
    shape = (80,) if token == "char_lstm" else (28, 28)
    network = network_of(parse_token("model", token), shape, 10)
    tensors = {name: np.zeros((3, *form)) for name, form in network.shapes.items()}
    assert network.hidden_units(tensors) == (None if units is None else units * 3)
    if units == 50:  # of a merged network, which has more than its spec says
        shapes = {"weight0": (784, 181), "weight1": (181, 20), "weight2": (20, 10)}
        shapes |= {f"bias{at}": shapes[f"weight{at}"][1:] for at in range(3)}
        assert network.hidden_units({k: np.zeros((1, *v)) for k, v in shapes.items()}) == 201


def test_products_are_weights_times_the_places_they_are_laid_on():
    perceptron, image = "mlp+hidden~5", "cnn+channels~2+hidden~3+kernel~3"
    found = network_of(parse_token("model", perceptron), (6,), CLASSES).products
    assert found == 7 * 5 + 6 * CLASSES
    # a kernel of one channel at 4 × 4 places, then 2 · 2 · 2 pooled numbers to 3 units
    found = network_of(parse_token("model", image), (4, 4), CLASSES).products
    assert found == 16 * (9 + 1) * 2 + 9 * 3 + 4 * CLASSES


@pytest.mark.parametrize("name", ["spread", "prior_sd"])
def test_a_standard_deviation_is_taken_where_its_squares_are_numbers(name):
    with pytest.raises(FedreproError, match=f"'{name}' must be"):
        components("model")["variational_mlp"].spec({name: 1e-300})


def test_of_shares_the_largest_is_the_right_class():
    """Two models, three examples of which the last is filled, four classes."""
    right = torch.tensor([[0, 3, 1], [2, 2, 1]])
    shares = 0.1 + 0.6 * torch.nn.functional.one_hot(right, 4)
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 3, 1], [2, 0, 1]]), 4).float()
    weight = torch.tensor([[0.5, 0.5, 0.0]]).expand(2, 3)
    for y in (right, shares):
        assert right_predictions(logits, y, weight).tolist() == [2, 1]


def test_starts_are_each_clients_own_unless_shared_and_glorots_have_the_spread_of_their_fans():
    net, given = network("mlp"), procedure("adam", init="normal")
    places = [RngKey(0, 0, 0), RngKey(0, 0, 1), RngKey(0, 1, 0), RngKey(0, 0, -1)]
    own = initial_weights(net, given, places)["weight0"]
    assert not np.array_equal(own[0], own[1])
    assert np.allclose(own.std(), given.weight_sd, rtol=0.1)
    shared = initial_weights(net, replace(given, shared_init=True), places)["weight0"]
    assert not np.array_equal(shared[0], shared[2])
    # whoever asks draws that of the trial, the server too
    assert all(np.array_equal(shared[0], shared[k]) for k in (1, 3))
    made = network_of(components("model")["mlp"].spec({"hidden": [200]}), (400,), 10)
    drawn = made.initial(RngKey(0), 0.1, 0.0, "glorot")
    limit = np.sqrt(6 / 600)
    assert np.abs(drawn["weight0"]).max() <= limit
    assert drawn["weight0"].std() == pytest.approx(limit / np.sqrt(3), rel=0.02)
    assert not drawn["bias0"].any()
    spec = components("model")["cnn"].spec({"channels": [16], "hidden": [8]})
    image = network_of(spec, (3, 8, 8), 10)
    kernels = image.initial(RngKey(0), 0.1, 0.0, "glorot")["weight0"]
    reference = torch.empty(kernels.shape)
    torch.nn.init.xavier_uniform_(reference, generator=torch.Generator().manual_seed(0))
    assert np.abs(kernels).max() == pytest.approx(float(reference.abs().max()), rel=0.01)

"""What clients say of their data in terms of their networks, against one example at a time."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from problems import model_of
from torch import nn

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.layer_matrices import layer_matrices, tensors_of_matrices
from fedrepro.networks.predict import network_of
from fedrepro.training.federation.fisher_and_input_moments import (
    diagonal_fisher,
    errors_of,
    input_moments,
    kronecker_factors,
)
from fedrepro.training.training_examples import Examples

CLASSES, COUNT = 3, 7


class Odd(nn.Module):
    """A strided and a dilated convolution, a layer that is called twice, and ReLU in place."""

    def __init__(self, shape, classes):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding="same", padding_mode="circular")
        self.strided = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.dilated = nn.Conv2d(4, 4, 3, dilation=2, padding=2, bias=False)
        self.head, self.act = nn.Linear(4, classes), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.act(self.strided(self.act(self.first(x))))
        return self.head(self.dilated(self.act(self.dilated(x))).mean((2, 3)))


BARE = {"padding": "valid", "bias": False}  # its hidden layers are the usual ones
NETWORKS = {
    "mlp": ("mlp", {"hidden": [5, 4]}, (6,)),
    "mlp-bias-free": ("mlp", {"hidden": [5], "bias": False}, (6,)),
    "logistic": ("logistic", {}, (6,)),
    "cnn": ("cnn", {"channels": [2, 3], "kernel": 3, "hidden": [5]}, (8, 8)),
    "cnn-valid": ("cnn", {"channels": [2, 3], "kernel": 3, **BARE}, (2, 10, 10)),
    "module": (Odd, {}, (8, 8)),
}


@cache
def made(name):
    """A network, its tensors (*shape) and some examples, in double precision."""
    model, values, shape = NETWORKS[name]
    spec = model_of(model) if model is Odd else components("model")[model].spec(values)
    network = network_of(spec, shape, CLASSES)
    rng = np.random.default_rng(1)
    tensors = {
        key: torch.from_numpy(value.astype(np.float64))
        for key, value in network.initial(RngKey(0), 0.5, 0.1).items()
    }
    x = torch.from_numpy(rng.normal(size=(COUNT, int(np.prod(shape)))))
    return network, tensors, Examples(x, torch.from_numpy(rng.integers(0, CLASSES, COUNT)))


def of_one(network, tensors, x, label):
    """d log p(label | x) / d w of one example, by tensor, and the label's probability."""
    leaves = {k: v.clone().requires_grad_() for k, v in tensors.items()}
    share = torch.log_softmax(network.logits(leaves, x[None]), 1)[0, label]
    found = torch.autograd.grad(share, list(leaves.values()))
    return dict(zip(leaves, found, strict=True)), share.detach().exp()


def fisher(name, labels):
    """The diagonal by its definition."""
    network, tensors, examples = made(name)
    total = {k: torch.zeros_like(v) for k, v in tensors.items()}
    for x, y in zip(examples.inputs, examples.targets, strict=True):
        for label in range(CLASSES) if labels == "model" else [int(y)]:
            found, share = of_one(network, tensors, x, label)
            for key, value in found.items():
                total[key] += (share if labels == "model" else 1) * value**2 / COUNT
    return {k: v.numpy() for k, v in total.items()}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("labels", ["model", "data"])
def test_diagonal_fisher_is_the_mean_of_squared_gradients_of_single_examples(name, labels):
    found, expected = diagonal_fisher(*made(name), labels), fisher(name, labels)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key].shape == value.shape
        assert np.allclose(found[key], value, rtol=1e-4, atol=1e-7), key


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("labels", ["model", "data"])
def test_factors_of_one_example_of_a_dense_layer_are_its_whole_fisher_information(name, labels):
    """A ⊗ G is exact for one example: on the diagonal it is `diagonal_fisher`."""
    network, tensors, examples = made(name)
    one = Examples(examples.inputs[:1], examples.targets[:1])
    found = kronecker_factors(network, tensors, one, labels)
    exact = diagonal_fisher(network, tensors, one, labels)
    for layer in layer_matrices(network):
        a, g = found[layer.key], found[errors_of(layer.key)]
        assert np.array_equal(a, a.T)
        assert np.array_equal(g, g.T)
        diagonal = np.outer(np.diag(a), np.diag(g))
        if layer.kernel is None:
            expected = layer.of({k: v.astype(np.float64) for k, v in exact.items()})
            assert np.allclose(diagonal, expected, rtol=1e-4, atol=1e-9)


def test_factors_of_a_convolution_with_one_place_are_those_of_a_dense_layer():
    """A kernel as large as the image is a fully connected layer."""
    spec = components("model")["cnn"].spec(
        {"channels": [4], "kernel": 3, "padding": "valid", "pool_every": 2, "hidden": [5]}
    )
    network = network_of(spec, (2, 3, 3), CLASSES)
    dense = network_of(components("model")["mlp"].spec({"hidden": [4, 5]}), (18,), CLASSES)
    tensors = {k: torch.from_numpy(v) for k, v in network.initial(RngKey(0), 0.5, 0.1).items()}
    same = tensors | {"weight0": tensors["weight0"].reshape(4, 18).T.contiguous()}
    rng = np.random.default_rng(0)
    examples = Examples(
        torch.from_numpy(rng.normal(size=(COUNT, 18)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, CLASSES, COUNT)),
    )
    one = kronecker_factors(network, tensors, examples)
    two = kronecker_factors(dense, same, examples)
    for key, value in two.items():
        assert np.allclose(one[key], value, rtol=1e-4, atol=1e-6), key


@pytest.mark.parametrize("name", NETWORKS)
def test_input_moments_are_those_of_kronecker_factors_and_are_given_of_single_layers(name):
    network, tensors, examples = made(name)
    found, factors = input_moments(network, tensors, examples), kronecker_factors(*made(name))
    for key, value in found.items():
        assert np.allclose(value, factors[key], rtol=1e-5, atol=1e-6)
        alone = input_moments(network, tensors, examples, only=[key])
        assert list(alone) == [key]
        # of a layer that is called twice it is seen where it is called first
        assert np.array_equal(alone[key], value) or key == "dilated.weight"


class Residual(nn.Module):
    """Adds in place, calls a layer again behind the last, and has a head tied to an embedding."""

    def __init__(self, shape, classes):
        super().__init__()
        self.a, self.b, self.look = nn.Linear(6, 6), nn.Linear(6, 6), nn.Embedding(classes, 6)
        self.head = nn.Linear(6, classes, bias=False)
        self.head.weight = self.look.weight

    def forward(self, x):
        x = x + 0
        x += torch.relu(self.a(x))
        return self.head(self.a(torch.relu(self.b(x))) + self.look.weight[0])


def test_moments_are_of_inputs_as_a_layer_got_them_and_of_all_its_calls():
    network = network_of(model_of(Residual), (6,), CLASSES)
    tensors = {k: torch.from_numpy(v) for k, v in network.initial(RngKey(0), 0.5, 0.1).items()}
    x = torch.rand(COUNT, 6, generator=torch.Generator().manual_seed(0))
    found = input_moments(network, tensors, Examples(x, torch.zeros(COUNT)))
    inner = x + torch.relu(x @ tensors["a.weight"].T + tensors["a.bias"])
    again = torch.relu(inner @ tensors["b.weight"].T + tensors["b.bias"])
    wanted = {"a.weight": torch.cat([x, again]), "b.weight": inner}
    assert found.keys() == wanted.keys()  # no moments are of a weight that is looked up too
    for key, seen in wanted.items():
        seen = torch.cat([seen, torch.ones(len(seen), 1)], 1)
        assert np.allclose(found[key], (seen.T @ seen / len(seen)).numpy(), atol=1e-5), key


def test_moments_have_a_bias_of_one_and_of_matrices_alone():
    network, tensors, examples = made("mlp")
    whole, x = input_moments(network, tensors, examples), examples.inputs.numpy()
    below = {name: tensors[name] for name in ("weight0", "bias0")}
    found = input_moments(network, below, examples, only=["weight1"])
    assert np.array_equal(found["weight1"], whole["weight1"])
    found = whole["weight0"]
    assert found[-1, -1] == 1
    assert np.allclose(found[-1, :-1], x.mean(0), atol=1e-6)
    assert np.allclose(found[:-1, :-1], x.T @ x / COUNT, atol=1e-5)
    network, tensors, examples = made("module")
    found = input_moments(network, tensors, examples)
    assert {"strided.weight", "dilated.weight"} <= set(found)
    assert found["first.weight"][-1, -1] == pytest.approx(1)  # of the bias
    pixel = float((examples.inputs**2).mean())  # the middle of a patch is one
    assert found["first.weight"][4, 4] == pytest.approx(pixel, rel=1e-5)
    grouped = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.AvgPool2d(4))
    grouped = nn.Sequential(grouped, nn.Flatten(), nn.Linear(4, CLASSES))
    layers = layer_matrices(network_of(model_of(lambda *_: grouped), (8, 8), CLASSES))
    assert [layer.key for layer in layers] == ["0.0.weight", "2.weight"]
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, CLASSES))
    tied[2].weight = tied[0].weight
    with pytest.raises(FedreproError, match="have biases of their own"):
        layer_matrices(network_of(model_of(lambda *_: tied), (4,), CLASSES))
    spec = components("model")["char_lstm"].spec({"embedding": 3, "units": 4})
    with pytest.raises(FedreproError, match="choose mlp, logistic or cnn"):
        layer_matrices(network_of(spec, (5,), CLASSES))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_layer_is_a_matrix_and_back(name):
    network, tensors, _ = made(name)
    each = [{k: v.numpy() + j for k, v in tensors.items()} for j in range(2)]
    stacked = {k: np.stack([own[k] for own in each]) for k in tensors}
    layers = layer_matrices(network)
    for j, own in enumerate(each):
        found = tensors_of_matrices(layers, {layer.key: layer.of(stacked)[j] for layer in layers})
        assert found.keys() == own.keys()
        assert all(np.array_equal(value, own[key]) for key, value in found.items())


class Called(nn.Module):
    """One convolution, that `forward` calls in a way of its own."""

    def __init__(self, classes, way, layer):
        super().__init__()
        self.conv, self.head, self.way = layer(1, 3, 3, padding=1), nn.Linear(3, classes), way

    def forward(self, x):
        return self.head(self.way(self.conv, x).mean((2, 3)))


def called(way, layer=nn.Conv2d):
    network = network_of(model_of(lambda *_: Called(CLASSES, way, layer)), (8, 8), CLASSES)
    tensors = {k: torch.from_numpy(v) for k, v in network.initial(RngKey(0), 0.5, 0.1).items()}
    images = torch.rand(COUNT, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images[:, :, :, 1:] = 0  # a pixel that is zero in all images has a moment of zero, no noise
    found = input_moments(network, tensors, Examples(images.flatten(1), torch.zeros(COUNT)))
    return images, found["conv.weight"]


def test_moments_of_a_convolution_are_those_of_patches():
    images, found = called(lambda conv, x: conv(x))
    patches = torch.nn.functional.unfold(images.double(), 3, padding=1).transpose(1, 2)
    patches = torch.cat([patches.flatten(0, 1), torch.ones(COUNT * 64, 1)], dim=1)
    wanted = (patches.T @ patches / (COUNT * 64)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert (found[wanted == 0] == 0).all()


class Standardised(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.weight / self.weight.std(), self.bias)


class Pads(nn.Conv2d):
    def forward(self, x):
        return super().forward(nn.functional.pad(x, (1, 1, 1, 1)))


@pytest.mark.parametrize(
    ("layer", "way", "why"),
    [
        (nn.Conv2d, lambda conv, x: conv(x.repeat(2, 1, 1, 1))[: len(x)], "first axis count"),
        (nn.Conv2d, lambda conv, x: torch.stack([conv(one) for one in x]), "first axis count"),
        (nn.Conv2d, lambda conv, x: conv(input=x), "by position"),
        (Pads, lambda conv, x: conv(x), "say how it pads"),
        (Standardised, lambda conv, x: conv(x), "input, weight and padding give"),
    ],
)
def test_calls_whose_inputs_are_not_seen_are_refused(layer, way, why):
    with pytest.raises(FedreproError, match=f"layer 'conv.weight' .*{why}"):
        called(way, layer)

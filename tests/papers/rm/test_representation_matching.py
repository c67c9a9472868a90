"""Representation matching in the engine: the printed loss, differentiated and in compiled steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import step_digests
import torch
from plain import train
from test_networks import check, chosen, network, problem, procedure, starts
from test_steps import NAMED
from torch.nn import functional

from fedrepro.core.registry import parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import network_of
from fedrepro.papers.rm.methods.representation_matching import RepresentationMatching
from fedrepro.training.loss_terms import Entropy, Proximal
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Examples


def loss_of(net, convolutions, every, pads, coefficient, reduction="sum", source="above"):
    """Equation 1, literally; of so many convolutions, with a pooling after every so many."""
    same = source == "same"

    def activations(w, x):
        found, places = [x.view(len(x), *net.shape)], [None]
        last = sum(key.startswith("weight") for key in w) - 1
        for i in range(last + 1):
            x, where = found[-1], None
            if i < convolutions:
                x = functional.conv2d(x, w[f"weight{i}"], w[f"bias{i}"], padding=pads).relu()
                if (i + 1) % every == 0:
                    x, where = functional.max_pool2d(x, 2, return_indices=True)
            else:
                x = x.flatten(1) @ w[f"weight{i}"] + w[f"bias{i}"]
                x = x.relu() if i < last else x
            found.append(x)
            places.append(where)
        return found, places

    def extra(weights, first, x):
        (mine, places), (theirs, _) = activations(weights, x), activations(first, x)
        total = 0.0
        for j, (back, where) in enumerate(zip(mine[1:], places[1:], strict=True)):
            goal, w, b = theirs[j + same], weights[f"match{j}_weight"], weights[f"match{j}_bias"]
            if back.dim() == 4:
                if where is not None and not same:
                    size = theirs[j].shape[-1] - w.shape[-1] + 1 + 2 * pads
                    back = functional.max_unpool2d(back, where, 2, output_size=(size, size))
                back = functional.conv2d(back, w, b, padding=w.shape[-1] // 2)
                gap = goal.shape[-1] - back.shape[-1]
                back = functional.pad(back, (gap // 2, gap - gap // 2) * 2)
            else:
                back = back @ w + b
            linear = j == (len(mine) - 2 if same else 0)
            apart = ((back if linear else back.relu()).flatten(1) - goal.flatten(1)) ** 2
            total = total + (apart.sum(1) if reduction == "sum" else apart.mean(1)).mean()
        return coefficient * total

    return extra


FORMS = {"mlp": (0, 1, 0), "fedavg-cnn": (2, 1, 2), "valid-cnn": (2, 2, 0)}


@pytest.mark.parametrize(
    ("name", "path", "values"),
    [
        ("mlp", None, {}),
        ("mlp", None, {"reduction": "mean"}),
        ("mlp", None, {"source": "same"}),
        ("fedavg-cnn", None, {"source": "same"}),
        *((name, path, {}) for name in ("fedavg-cnn", "valid-cnn") for path in ("grouped", "loop")),
    ],
)
def test_clients_descend_on_the_loss_of_equation_1(name, path, values):
    term, net = RepresentationMatching(0.3, **values), network(name)
    given = procedure(lr=0.005, epochs=2)
    examples, tasks = problem(name, torch.float64)
    start = starts(net, given, tasks, torch.float64)
    drawn = [term.initial(net, task.rng) for task in tasks]
    private = {k: np.stack([o[k] for o in drawn]).astype(np.float64) for k in drawn[0]}
    how = {"terms": [term], "private": private, "block": 2, "path": path}
    found = train(net, examples, tasks, given, start, **how)
    extra = loss_of(net, *FORMS[name], 0.3, **values)
    check(name, examples, tasks, given, start | private, found, 1e-10, extra)


CLASSES, EXAMPLES = 7, 23
# the networks of RM, smaller; and sides, kernels and poolings that do not divide
NETWORKS = {
    "cifar": ("cnn+channels~8@16+hidden~33", (3, 16, 16)),
    "keywords": ("cnn+channels~16@16@16@16+hidden~20+kernel~3+pool_every~2", (1, 11, 14)),
    "lenet": ("cnn+bias~false+channels~6@16+hidden~12@9+padding~valid", (1, 28, 28)),
    "no dense": ("cnn+channels~5@7@9+hidden~none+kernel~3+padding~valid+pools~2", (3, 22, 25)),
    "even kernel": ("cnn+channels~5@9+hidden~20+kernel~4+padding~valid", (2, 17, 13)),
    "wide": ("cnn+channels~40@12+hidden~20", (1, 10, 10)),
    "mlp": ("mlp+hidden~7@5", (6,)),
    "logistic": ("logistic", (6,)),
}
USUAL = ("keywords", "lenet", "mlp", "logistic")
TERMS = {
    "above": RepresentationMatching(0.1),
    "same": RepresentationMatching(0.5, "mean", source="same"),
}


def gap(name, terms, dtype=torch.float64, training="sgd", **values):
    """The largest difference of tensors, between the compiled steps and automatic gradients."""
    token, shape = NETWORKS[name]
    net = network_of(parse_token("model", token), shape, CLASSES)
    rng, kind = np.random.default_rng(0), str(dtype).removeprefix("torch.")
    inputs = torch.from_numpy(rng.random((EXAMPLES, int(np.prod(shape))))).to(dtype)
    examples = Examples(inputs, torch.from_numpy(rng.integers(0, CLASSES, EXAMPLES)))
    given = procedure(training, **{"lr": 0.02, "batch_size": 7, "epochs": 2} | values)
    drawn = net.initial(RngKey(0), 0.1, 0.1, "fan_in")
    start = {key: (v + rng.normal(0, 0.02, v.shape))[None] for key, v in drawn.items()}
    private = {
        key: value[None]
        for term in terms
        for key, value in (term.initial(net, RngKey(0)) if hasattr(term, "initial") else {}).items()
    }
    start, own = ({k: v.astype(kind) for k, v in some.items()} for some in (start, private))
    tasks = [Task(np.arange(EXAMPLES), RngKey(0, 0, 0))]
    ours, automatic = (
        train(net, examples, tasks, given, start, terms=terms, private=own, path=path)
        for path in ("compiled", "loop")
    )
    assert all((ours.private[key] != own[key]).any() for key in own)
    assert np.abs(ours.loss - automatic.loss).max() < (1e-12 if kind == "float64" else 1e-5)
    tensors = automatic.tensors | automatic.private
    found = ours.tensors | ours.private
    return max(float(np.abs(found[key] - value).max()) for key, value in tensors.items())


# each network with the term that is used, each term on two networks; all of both at night
EACH = [
    pytest.param(name, term, marks=() if term == "above" or name in USUAL else pytest.mark.nightly)
    for name in NETWORKS
    for term in TERMS
]


@pytest.mark.parametrize(("name", "term"), EACH)
def test_it_is_as_differentiated_automatically(name, term):
    assert gap(name, [TERMS[term]]) < 1e-12
    if term == "above":
        assert gap(name, [TERMS[term]], torch.float32) < 3e-5


@pytest.mark.parametrize(
    "values",
    [
        {"training": "adam", "lr": 1e-3, "l2": 0.01},
        {"momentum": 0.5},
        {"batch_size": None, "epochs": 3},
        {"batch_size": 1, "epochs": 1},
    ],
)
@pytest.mark.parametrize("name", ["keywords", "lenet", "mlp"])
def test_with_other_terms_and_descents(name, values):
    assert gap(name, [Entropy(1.3), TERMS["above"], Proximal(0.2)], **values) < 1e-11


@pytest.mark.parametrize(
    ("token", "shape"), [NETWORKS["cifar"], ("mlp+hidden~6", (9,))], ids=["images", "vectors"]
)
def test_networks_are_matched_by_compiled_steps(token, shape):
    net, dropped = (
        network_of(parse_token("model", one), shape, CLASSES)
        for one in (token, token.replace("+hidden", "+dropout~0.5+hidden"))
    )
    matching = TERMS["above"]
    assert chosen(net, "cpu", (Entropy(), matching))
    assert not chosen(net, "cuda", (matching,))
    assert not chosen(dropped, "cpu", (matching,))
    assert not chosen(net, "cpu", (matching, matching))


def digests():
    """Of both dtypes; kernels are laid down in rows of one vector, and in rows of many."""
    token, shape = NETWORKS["wide"]
    usual, terms, found = step_digests.INPUTS, (Entropy(), RepresentationMatching(0.5, "mean")), {}
    for name, net, inputs, batch in (
        ("matching", step_digests.dense((usual, 20, 10)), usual, step_digests.PLAIN.batch_size),
        ("matched images", network_of(parse_token("model", token), shape, 10), 100, 7),
    ):
        case = net, replace(step_digests.PLAIN, batch_size=batch), terms
        cases = patch.dict(step_digests.CASES, {name: case})
        with cases, patch.object(step_digests, "INPUTS", inputs):
            found |= step_digests.digests([name])
    return found


STORED = {
    "matching, float32": "5c8427bb0bf7bb6d",
    "matching, float64": "c0a8ea5d3b2d5d1d",
    "matched images, float32": "c226df1db5cb08a9",
    "matched images, float64": "6338c069e0674d7f",
}


def test_its_steps_are_those_of_every_processor():
    assert digests() == STORED


@pytest.mark.nightly
@pytest.mark.long
def test_narrow_vectors_give_the_same_bytes():
    env = os.environ | NAMED | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, __file__]
    found = subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE, text=True)
    assert json.loads(found.stdout) == STORED


if __name__ == "__main__":
    print(json.dumps(digests()))

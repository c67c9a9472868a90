"""Representation matching in the engine: the printed loss, by hand and differentiated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import step_digests
import torch
from test_networks import (
    check,
    chosen,
    compared,
    network,
    problem,
    procedure,
    starts,
    the_same_in_any_company,
)  # fmt: skip
from torch.nn import functional

from fedrepro.papers.rm.methods.representation_matching import RepresentationMatching, _centred
from fedrepro.training.engine import train
from fedrepro.training.loss_terms import Entropy, Proximal


def descends(name, term, extra, given=None, path=None):
    """Check that clients descend on a loss that has something more."""
    net, given = network(name), given or procedure(lr=0.005, epochs=2)
    examples, tasks = problem(name, torch.float64)
    start = starts(net, given, tasks, torch.float64)
    drawn = [term.initial(net, task.rng) for task in tasks]
    private = {k: np.stack([o[k] for o in drawn]).astype(np.float64) for k in drawn[0]}
    how = {"terms": [term], "private": private, "block": 2, "path": path}
    found = train(net, examples, tasks, given, start, **how)
    check(name, examples, tasks, given, start | private, found, 1e-10, extra)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_representation_matching_of_a_perceptron_is_equation_1(reduction):

    def activations(w, x):
        found = [x]
        for i in range(3):
            x = x @ w[f"weight{i}"] + w[f"bias{i}"]
            x = torch.relu(x) if i < 2 else x
            found.append(x)
        return found

    def extra(weights, first, x):
        mine, theirs = activations(weights, x), activations(first, x)
        total = 0.0
        for j in range(3):
            back = mine[j + 1] @ weights[f"match{j}_weight"] + weights[f"match{j}_bias"]
            gap = ((torch.relu(back) if j else back) - theirs[j]) ** 2
            total = total + (gap.sum(1) if reduction == "sum" else gap.mean(1)).mean()
        return 0.5 * total

    term = RepresentationMatching(0.5, reduction)
    descends("mlp", term, extra, procedure(lr=0.01, epochs=3))


@pytest.mark.parametrize("name", ["mlp", "fedavg-cnn"])
def test_representation_matching_from_the_same_layer(name):
    net = network(name)
    convolutions = 2 if name == "fedavg-cnn" else 0

    def activations(w, x):
        found, x = [], x.view(len(x), *net.shape)
        layers = sum(key.startswith("weight") for key in w)
        for i in range(layers):
            if i < convolutions:
                x = functional.conv2d(x, w[f"weight{i}"], w[f"bias{i}"], padding=2)
                x = functional.max_pool2d(x.relu(), 2)
            else:
                x = x.flatten(1) @ w[f"weight{i}"] + w[f"bias{i}"]
                x = x.relu() if i < layers - 1 else x
            found.append(x)
        return found

    def extra(weights, first, x):
        mine, theirs = activations(weights, x), activations(first, x)
        total = 0.0
        for j, (own, received) in enumerate(zip(mine, theirs, strict=True)):
            w, b = weights[f"match{j}_weight"], weights[f"match{j}_bias"]
            back = (
                functional.conv2d(own, w, b, padding=w.shape[-1] // 2)
                if own.dim() == 4
                else own @ w + b
            )
            back = back.relu() if j < len(mine) - 1 else back
            total = total + ((back - received) ** 2).flatten(1).sum(1).mean()
        return 0.3 * total

    descends(name, RepresentationMatching(0.3, source="same"), extra)


@pytest.mark.parametrize("path", ["grouped", "loop"])
@pytest.mark.parametrize("name", ["fedavg-cnn", "valid-cnn"])
def test_representation_matching_of_images_unpools_and_convolves(name, path):
    net = network(name)
    pads, every = (2, 1) if name == "fedavg-cnn" else (0, 2)

    def activations(w, x):
        found, argmax = [x.view(len(x), *net.shape)], [None]
        x = found[0]
        for i in range(2):
            x = torch.relu(functional.conv2d(x, w[f"weight{i}"], w[f"bias{i}"], padding=pads))
            places = None
            if (i + 1) % every == 0:
                x, places = functional.max_pool2d(x, 2, return_indices=True)
            found.append(x)
            argmax.append(places)
        x = torch.relu(x.flatten(1) @ w["weight2"] + w["bias2"])
        found += [x, x @ w["weight3"] + w["bias3"]]
        return found, [*argmax, None, None]

    def extra(weights, first, x):
        mine, argmax = activations(weights, x)
        theirs, _ = activations(first, x)
        total = 0.0
        for j in range(4):
            given_, w, b = mine[j + 1], weights[f"match{j}_weight"], weights[f"match{j}_bias"]
            if given_.dim() == 4:
                if argmax[j + 1] is not None:
                    given_ = functional.max_unpool2d(
                        given_, argmax[j + 1], 2, output_size=(5, 5) if every == 2 else None
                    )
                back = functional.conv2d(given_, w, b, padding=w.shape[-1] // 2)
                gap = theirs[j].shape[-1] - back.shape[-1]
                back = functional.pad(back, (gap // 2, gap - gap // 2) * 2)
            else:
                back = given_ @ w + b
            back = torch.relu(back) if j else back
            total = total + ((back.flatten(1) - theirs[j].flatten(1)) ** 2).sum(1).mean()
        return 0.1 * total

    descends(name, RepresentationMatching(0.1), extra, path=path)


def test_on_dense_networks_it_is_written_out():
    net, matching = network("mlp"), RepresentationMatching()
    assert chosen(net, "cpu", (Entropy(), matching)) == "compiled"
    assert chosen(net, "cpu", (matching, matching)) == "loop"
    assert chosen(network("mlp-dropout"), "cpu", (matching,)) == "loop"


WRITTEN_OUT = {
    "above": [RepresentationMatching(0.4, "mean")],
    "same": [RepresentationMatching(0.1, source="same")],
    "all": [Entropy(1.3), RepresentationMatching(0.4, "mean"), Proximal(0.2)],
}


@pytest.mark.parametrize("terms", WRITTEN_OUT)
@pytest.mark.parametrize("name", ["mlp", "logistic"])
@pytest.mark.parametrize("moved", [True, False])
def test_written_out_it_is_as_differentiated_automatically(moved, name, terms):
    compared(moved, name, WRITTEN_OUT[terms])


def test_its_bytes_do_not_depend_on_the_block():
    the_same_in_any_company([RepresentationMatching(0.1)])


@pytest.mark.parametrize("size", [(2, 3), (3, 2), (4, 3), (3, 4), (5, 1), (1, 5), (3, 3)])
def test_images_are_cut_or_filled_around_their_middle(size):
    """To 3 rows and columns: what is cut or filled is the same on both sides, or one more after."""
    value = torch.arange(1, 1 + math.prod(size), dtype=torch.float64).reshape(1, 1, *size)
    found = _centred(value, (1, 3, 3))[0, 0].numpy()
    wanted = np.zeros((3, 3))
    for i, j in np.ndindex(*size):
        row, column = i + (3 - size[0]) // 2, j + (3 - size[1]) // 2
        if 0 <= row < 3 and 0 <= column < 3:
            wanted[row, column] = value[0, 0, i, j]
    assert (found == wanted).all()


def test_its_steps_are_those_of_every_processor(monkeypatch):
    terms = Entropy(), RepresentationMatching(0.5, "mean")
    case = step_digests.dense((step_digests.INPUTS, 20, 10)), step_digests.PLAIN, terms
    monkeypatch.setitem(step_digests.CASES, "matching", case)
    assert step_digests.digests(["matching"]) == {
        "matching, float32": "5c8427bb0bf7bb6d",
        "matching, float64": "c0a8ea5d3b2d5d1d",
    }

"""Representation matching in rounds: what stays with the clients, and what it is refused for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract import METHODS, allowed, asked_by, states
from problems import problem
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.fedavg import sample_clients
from fedrepro.networks.layers import Affine, Convolution2d, MaxPool, Relu
from fedrepro.networks.network import Network, dense
from fedrepro.networks.predict import network_of
from fedrepro.papers.rm.methods.representation_matching import (
    RepresentationMatching,
    require_matchable,
)
from fedrepro.training.engine import check_tasks
from fedrepro.training.training_settings import InitialTensors, Procedure, Settings

NAMES = ("representation_matching", "adaptive_matching")
GRID = {"lrs": (0.005, 0.01), "step_counts": (2, 4)}
SMALL = {"adaptive_matching": GRID, "adaptive_fedavg": GRID}


@pytest.fixture(scope="module")
def given():
    return problem()


def run(name, given, **values):
    made = METHODS[name].fn(**{"rounds": 6, "fraction": 0.5, **SMALL.get(name, {}), **values})
    return made, states(made, given.clients, given.info)


@pytest.mark.parametrize("name", NAMES)
def test_private_tensors_of_clients_that_are_not_drawn_keep_their_bytes(name, given):
    _, found = run(name, given)
    for done in range(6):
        chosen = sample_clients(4, 0.5, RngKey(0).at(round=done))
        before, after = found[done]["private"], found[done + 1]["private"]
        assert set(after) == set(before) | set(map(str, chosen))
        for client, tensors in before.items():
            same = [v.tobytes() == after[client][k].tobytes() for k, v in tensors.items()]
            assert all(same) if int(client) not in chosen else not all(same)


@pytest.mark.parametrize("name", NAMES)
def test_every_client_begins_with_tensors_of_its_own_whenever_it_is_drawn(name, given):
    made, (first, *_, last) = run(name, given)
    assert first["private"] == {}
    assert set(made.model(last, given.clients).tensors) == set(given.clients.network.shapes)
    term = RepresentationMatching(1.0, "mean")
    for done in range(3):
        rng = RngKey(0).at(round=done)
        private = made.private_tensors(first, np.array([2, 0]), given.clients, rng)
        for at, client in enumerate((2, 0)):
            wanted = term.initial(given.clients.network, RngKey(0).at(client=client))
            for key, value in wanted.items():
                assert private[key][at].tobytes() == value.tobytes()
        assert not np.array_equal(*private["match0_weight"])


def test_without_a_coefficient_it_is_fedavg(given):
    _, matched = run("representation_matching", given, matching=0.0)
    _, plain = run("fedavg", given)
    for key, value in plain[-1]["weights"].items():
        assert np.allclose(matched[-1]["weights"][key], value, atol=1e-4)
    _, other = run("representation_matching", given, matching=1.0)
    assert not np.allclose(other[-1]["weights"]["weight0"], plain[-1]["weights"]["weight0"])


def test_the_parameters_are_those_of_the_loss(given):
    made = METHODS["representation_matching"].fn(
        matching=0.3, reduction="sum", source="same", entropy=1.0, divergence=0.1
    )
    (term, *others) = made.terms()
    assert (term.coefficient, term.reduction, term.source) == (0.3, "sum", "same")
    assert {type(other).__name__ for other in others} == {"Proximal", "Entropy"}


def test_a_step_on_all_examples_can_be_taken_in_pieces():
    whole = Settings("sgd", 0.05, 0.0, None, 1, 0.1, 0.1, False)
    procedure = Procedure(dense((4, 3, 2)), whole, [RepresentationMatching()])
    private = {name: np.empty((0, *shape)) for name, shape in procedure.private.items()}
    check_tasks(procedure, [], InitialTensors({}, private), False)


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("model", "shape", "layer"),
    [("char_lstm", (5,), "Embedding"), ("variational_mlp", (6,), "Variational")],
)
def test_networks_that_cannot_be_matched_are_refused_when_planned_and_before_training(
    model, shape, layer, given
):
    for name in NAMES:
        other = replace(
            given.clients, network=network_of(components("model")[model].spec(), shape, 3)
        )
        made = METHODS[name].fn()
        with pytest.raises(FedreproError, match=f"cannot give back what a layer {layer}"):
            made.init(asked_by(made, other), allowed(given.info, METHODS[name]), RngKey(0))
        with pytest.raises(FedreproError, match=f"cnn, logistic, mlp models, not '{model}'"):
            planned({"name": name}, model={"name": model})


def test_only_poolings_that_can_be_undone_can_be_matched():
    first, pool = Convolution2d(2, 3, 1), MaxPool()
    for layers in (
        (pool, first, Relu(), Affine(3)),
        (first, pool, Relu(), Affine(3)),
        (first, Relu(), pool, pool, Affine(3)),
    ):
        with pytest.raises(FedreproError, match="undoes a pooling that follows a ReLU"):
            require_matchable(Network((1, 8, 8), layers, "convolutional"))
    for model in ("mlp", "cnn", "logistic"):
        require_matchable(network_of(components("model")[model].spec(), (8, 8), 3))


def planned(entry, **settings):
    entry = {"label": "M", **entry}
    return small(methods=[entry], sweep={"partition.clients": [2]}, **settings)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"name": "fedavg", "fraction": 1.5}, "'fraction' must be at most 1, not 1.5"),
        ({"name": "adaptive_fedavg", "lrs": [0.1]}, "'M': 'lrs' is an axis of a grid with the"),
    ],
)
def test_what_parameters_alone_tell_is_refused_when_planned(entry, sentence):
    with pytest.raises(FedreproError, match=sentence):
        planned(entry)


def test_rewards_need_examples_at_the_server():
    for at in ({"validation": 0}, {"validation_at": "clients"}):
        with pytest.raises(FedreproError, match=r"'M' reads the examples of 'server_validation'"):
            planned({"name": "adaptive_fedavg"}, partition={"name": "iid", **at})
    assert planned({"name": "adaptive_fedavg"}).runs


@pytest.mark.parametrize(
    ("name", "plain", "more"),
    [
        ("representation_matching", "fedavg", 0),
        ("adaptive_fedavg", "fedavg", 8),  # two numbers of four bytes
        ("adaptive_matching", "representation_matching", 8),
    ],
)
def test_what_matching_and_adapting_send_beside_models(name, plain, more, given):
    """Source: RM, section 4, overhead."""

    def sent(method):
        given.clients.ledger.begin()
        run(method, given, rounds=1)
        return given.clients.ledger.traffic

    ours, theirs = sent(name), sent(plain)
    assert ours.bytes_up == theirs.bytes_up
    assert ours.bytes_down - theirs.bytes_down == more * 2  # clients

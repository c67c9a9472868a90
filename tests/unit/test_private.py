"""Private tensors of clients: trained beside a shared network, handed back, never averaged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import problem

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.networks.layers import Pass
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.loss_terms import Proximal

HERE = RngKey(0).at(round=2)


class Offset:
    """coefficient · |shift - mean weight|²: a private number that is drawn to the network's."""

    additive = True

    def shapes(self, network):
        return {"shift": (3,)}

    def loss(self, look):
        weight = look.tensors["weight0"].flatten(1).mean(1, keepdim=True)
        return 5 * ((look.tensors["shift"] - weight) ** 2).sum(1)


@pytest.fixture(scope="module")
def clients():
    return problem().clients


@pytest.fixture(scope="module")
def start(clients):
    return initial_weights(clients.network, clients.settings, [RngKey(0)])


def shifts(clients, seed=0):
    values = np.random.default_rng(seed).random((clients.count, 3), np.float32)
    return {"shift": values}


def test_a_shared_start_has_private_tensors_beside_it(clients, start):
    """The same as with a copy of the start for each client."""
    private = shifts(clients)
    shared = clients.train(start, HERE, epochs=2, terms=[Offset()], private=private)
    copies = {name: np.repeat(value, clients.count, 0) for name, value in start.items()}
    copied = clients.train(copies, HERE, epochs=2, terms=[Offset()], private=private)
    assert set(shared.tensors) == set(start)
    assert set(shared.private) == {"shift"}
    assert shared.private["shift"].shape == (clients.count, 3)
    assert not np.array_equal(shared.private["shift"], private["shift"])
    assert np.array_equal(shared.private["shift"], copied.private["shift"])
    assert all(np.array_equal(shared.tensors[name], copied.tensors[name]) for name in start)


def test_private_tensors_are_not_averaged(clients, start):
    private, weights = shifts(clients), [0.1, 0.2, 0.3, 0.4]
    each = clients.train(start, HERE, epochs=1, terms=[Offset()], private=private)
    mean = clients.average(start, HERE, weights, epochs=1, terms=[Offset()], private=private)
    assert np.array_equal(mean.private["shift"], each.private["shift"])
    assert set(mean.tensors) == set(start)
    for name, value in mean.tensors.items():
        wanted = np.tensordot(weights, each.tensors[name], 1)
        assert np.allclose(value[0], wanted, atol=1e-6)


def test_private_tensors_that_come_back_go_on_from_where_they_were(clients, start):
    """What a client keeps between rounds does not depend on who else is chosen."""
    private, term = shifts(clients), Offset()
    first = clients.train(start, HERE, epochs=1, terms=[term], private=private)
    kept = private["shift"].copy()
    alone = clients.train(
        start, HERE, epochs=1, chosen=[2], terms=[term], private={"shift": kept[[2]]}
    )
    kept[[2]] = alone.private["shift"]
    assert np.array_equal(kept[2], first.private["shift"][2])
    assert np.array_equal(kept[[0, 1, 3]], private["shift"][[0, 1, 3]])
    later = RngKey(0).at(round=3)
    second = clients.train(start, later, epochs=1, terms=[term], private=first.private)
    assert not np.array_equal(second.private["shift"], first.private["shift"])


def test_private_tensors_of_a_failed_client_are_those_it_had(clients, start):
    private = shifts(clients)
    well = clients.train(start, HERE, epochs=1, terms=[Offset()], private=private)
    private["shift"][1] = 3e38
    found = clients.train(start, HERE, epochs=1, terms=[Offset()], private=private)
    assert found.finite.tolist() == [True, False, True, True]
    assert found.private["shift"][1].tolist() == private["shift"][1].tolist()
    assert np.array_equal(found.private["shift"][[0, 2, 3]], well.private["shift"][[0, 2, 3]])


def test_the_pull_to_the_received_weights_leaves_private_tensors_alone(clients, start):
    class Apart(Offset):
        """One that the network has no part in, so that it moves as if there were none."""

        def loss(self, look):
            return 5 * ((look.tensors["shift"] - 2) ** 2).sum(1)

    private = shifts(clients)
    one = clients.train(start, HERE, epochs=1, terms=[Apart()], private=private)
    two = clients.train(start, HERE, epochs=1, terms=[Apart(), Proximal(0.5)], private=private)
    assert (one.private["shift"] > private["shift"]).all()
    assert np.array_equal(one.private["shift"], two.private["shift"])
    assert not np.array_equal(one.tensors["weight0"], two.tensors["weight0"])


def test_terms_see_what_was_received(clients, start):
    seen, now = [], []

    class Look(Offset):
        def loss(self, look):
            seen.append({name: value.clone() for name, value in look.start.items()})
            now.append({name: value.detach().clone() for name, value in look.tensors.items()})
            assert isinstance(look.run, Pass)
            return super().loss(look)

    private = shifts(clients)
    clients.train(start, HERE, epochs=1, chosen=[1], terms=[Look()],
                  private={"shift": private["shift"][[1]]})  # fmt: skip
    for received in seen:
        assert torch.equal(received["shift"][0], torch.from_numpy(private["shift"][1]))
        assert torch.equal(received["weight0"][0], torch.from_numpy(start["weight0"][0]))
    for name in ("shift", "weight0"):  # which are the same as they are now in the first step alone
        same = [torch.equal(one[name], two[name]) for one, two in zip(seen, now, strict=True)]
        assert same == [True] + [False] * (len(seen) - 1)
    assert len(seen) > 1


def test_private_tensors_are_asked_for_by_name_and_shape(clients, start):
    def train(private):
        clients.train(start, HERE, epochs=1, terms=[Offset()], private=private)

    with pytest.raises(FedreproError, match=r"have private tensors \['shift'\], but \[\] were"):
        train(None)
    with pytest.raises(FedreproError, match=r"\['other', 'shift'\] were handed over"):
        train({**shifts(clients), "other": np.zeros((4, 1))})
    with pytest.raises(FedreproError, match=r"'shift' must have shape \(4, 3\), .* not \(1, 3\)"):
        train({"shift": np.zeros((1, 3), np.float32)})

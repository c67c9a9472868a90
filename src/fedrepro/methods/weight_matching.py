"""Weight matching: each client's hidden units in the order that fits the others best, averaged."""

from __future__ import annotations

from typing import Annotated

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import UNITS
from fedrepro.methods.concatenation import ClassWeights
from fedrepro.methods.matching.networks import shares_towards


@method(
    "weight_matching",
    kind="one_shot",
    needs={"label_counts"},
    models=UNITS,
    merges="matched",
    label="weight matching",
    grid={"class_weights": (False, True)},
)
def weight_matching(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    class_weights: ClassWeights = False,
    sweeps: Annotated[int, Arg("times that every client is matched, at most", least=1)] = 100,
) -> GlobalModel:
    """sum_j (n_j / n) P_j w_j, P_j the permutation of units that fits the mean of the others.

    Clients are matched in turn, in random order, until none moves. The network is as wide as a
    client's; channels of convolutions are units. With class weights the weights to class k count by
    the clients' shares of it. Units of a module are found by tracing it. Source: Ainsworth, Hayase,
    Srinivasa, "Git Re-Basin", ICLR 2023, algorithm 3 (many models).
    """
    from fedrepro.methods.matching.convolutional_units import units_of
    from fedrepro.methods.matching.unit_permutations import align_units

    assert info.label_counts is not None
    share, towards = shares_towards(info.label_counts, class_weights)
    arrays, stream = units_of(clients.model, clients.shape, clients.classes), "weight-matching"
    networks = arrays.networks(clients.tensors)
    matched = align_units(networks, sweeps, rng.stream(stream), arrays.units)
    return GlobalModel(clients.model, arrays.tensors(arrays.mean(matched, share, towards)))

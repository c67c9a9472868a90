"""Optimal-transport fusion: the clients' units carried onto one set of units, and averaged."""

from __future__ import annotations

from typing import Annotated

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import UNITS
from fedrepro.methods._widths import Units, has_enough_units, target_widths
from fedrepro.methods.concatenation import ClassWeights
from fedrepro.methods.matching.networks import shares_towards
from fedrepro.methods.matching.optimal_transport import fused


@method(
    "ot_fusion",
    kind="one_shot",
    needs={"label_counts"},
    models=UNITS,
    merges="matched",
    label="OT fusion",
    grid={"class_weights": (False, True), "sweeps": (1, 10)},
)
def ot_fusion(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: ClassWeights = False,
    sweeps: Annotated[
        int, Arg("times the units are carried and averaged again; 1 as published", least=1)
    ] = 10,
) -> GlobalModel | None:
    """Units of each client carried by an optimal transport T_j onto `units` common ones.

    A common unit is sum_j (n_j / n) of what T_j brings it; it starts from clients drawn at random.
    Weights out of it are averaged alike, over class k by the clients' shares of it if class weights
    are on. Layers are fused from the lowest up; classes are never carried. Nothing is given where
    all clients together have fewer units. Source: Singh and Jaggi, "Model fusion via optimal
    transport", NeurIPS 2020, by weights.
    """
    from fedrepro.methods.matching.convolutional_units import Blocks, units_of, widths_of

    assert info.label_counts is not None
    if units is not None and clients.model.name != "mlp":
        raise FedreproError(
            "method 'ot_fusion' makes networks with convolutions, and modules, as wide as the "
            "clients' only: leave out units"
        )
    if units is not None and not has_enough_units(clients, units):
        return None
    order = rng.stream("ot-fusion").permutation(clients.clients)
    share, towards = shares_towards(info.label_counts, class_weights)
    blocks = units_of(clients.model, clients.shape, clients.classes)
    networks = blocks.networks(clients.tensors)
    if not isinstance(blocks, Blocks):
        made = blocks.fused(networks, share, towards, order, sweeps)
        return GlobalModel(clients.model, blocks.tensors(made))
    widths = widths_of(networks[0]) if units is None else target_widths(clients, units)
    made = fused(networks, widths, share, towards, order, sweeps)
    return GlobalModel(clients.model, blocks.tensors(made))

"""k-means of units: the clients' hidden units by direction, what lies together made one."""

from __future__ import annotations

from typing import Annotated

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import Units, has_enough_units, target_widths
from fedrepro.methods.matching.unit_arrays import tensors_of
from fedrepro.methods.matching.unit_fusion import merge_similar_units
from fedrepro.methods.pfnm import ClassWeights, joined


@method(
    "kmeans_units",
    kind="one_shot",
    needs={"label_counts"},
    models={"mlp"},
    label="k-means of units",
)
def kmeans_units(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    class_weights: ClassWeights = True,
    restarts: Annotated[int, Arg("starts of k-means, of which the best is kept", least=1)] = 10,
) -> GlobalModel | None:
    """Cluster each hidden layer's units of the concatenation into `units` clusters, each one unit.

    A ReLU unit with weights v in (and bias) and u out is the unit v/|v| with |v| u out. Directions
    v/|v| are clustered by k-means; a cluster has their mean in, and the sum of |v| u out. Layers
    are clustered from the lowest up, so that units of a higher one are compared over clusters.
    Nothing is given where all clients together have fewer units.
    """
    assert info.label_counts is not None
    if not has_enough_units(clients, units):
        return None
    whole = joined(clients, info.label_counts, class_weights)
    draws = rng.stream("kmeans-units")
    network = merge_similar_units(whole, target_widths(clients, units), restarts, draws)
    return GlobalModel(clients.model, tensors_of(network))

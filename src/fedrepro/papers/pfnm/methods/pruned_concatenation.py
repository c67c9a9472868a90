"""Pruned concatenation: a network of a chosen size from the clients' units, none matched."""

from __future__ import annotations

from typing import Annotated

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import has_enough_units
from fedrepro.methods.matching.unit_arrays import pruned, tensors_of
from fedrepro.methods.pfnm import ClassWeights, joined


@method(
    "pruned_concatenation",
    kind="control",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="pruned concatenation",
)
def pruned_concatenation(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Annotated[int, Arg("units kept in each hidden layer", "units", least=1)] = 50,
    class_weights: ClassWeights = True,
    exact: Annotated[
        bool, Arg("give nothing where there are fewer units, in place of all of them")
    ] = False,
) -> GlobalModel | None:
    """Keep the strongest hidden units of the concatenation: its size chosen, still nothing matched.

    In each hidden layer of the concatenation the `units` with the largest product of the norms of
    incoming weights and bias, and of outgoing weights, are kept, all where there are fewer.
    """
    assert info.label_counts is not None
    if exact and not has_enough_units(clients, units):
        return None
    whole = joined(clients, info.label_counts, class_weights)
    return GlobalModel(clients.model, tensors_of(pruned(whole, units)))

"""Cycle-consistent matching: all clients' hidden units brought into one order at once, averaged.

D. Crisostomi, M. Fumero, D. Baieri, F. Bernard, E. Rodolà. C²M³: Cycle-Consistent Multi-Model
Merging. NeurIPS 2024.
"""

from __future__ import annotations

from typing import Annotated

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import UNITS, shares_of


@method(
    "c2m3",
    kind="one_shot",
    needs={"example_counts"},
    models=UNITS,
    merges="matched",
    label="cycle-consistent matching",
)
def c2m3(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    steps: Annotated[int, Arg("of the search, at most", "steps", least=1)] = 100,
    gain: Annotated[float, Arg("least rise of a step, as a share", least=0)] = 1e-6,
) -> GlobalModel:
    """sum_j (n_j / n) P_j w_j, P_j permutations to common units: max sum_{i<j} <P_i w_i, P_j w_j>.

    All P_j are searched for together, by Frank-Wolfe over doubly stochastic matrices from the
    units' own order, and rounded to permutations at the end. Written from the paper's objective;
    it averages equally, and then renormalises activations: `batchnorm` recalibrate does so where
    there is BatchNorm.
    """
    from fedrepro.methods.matching.convolutional_units import units_of
    from fedrepro.methods.matching.cycle_consistent import in_common_order

    arrays = units_of(clients.model, clients.shape, clients.classes)
    matched = in_common_order(arrays.networks(clients.tensors), steps, gain, arrays.units)
    return GlobalModel(clients.model, arrays.tensors(arrays.mean(matched, shares_of(info))))

"""Methods that permute all clients' hidden units into one order, then average or merge otherwise.

Weight matching; cycle-consistent matching (D. Crisostomi, M. Fumero, D. Baieri, F. Bernard, E.
Rodolà. C²M³: Cycle-Consistent Multi-Model Merging. NeurIPS 2024); optimal-transport fusion; and
RegMean and FedFisher of matched networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import _merging as merging
from fedrepro.methods.fisher_fedfisher_fedlpa import LEFT, Steps, factors, solved
from fedrepro.methods.matching.network_arrays_and_tracing import (
    Blocks,
    shares_towards,
    units_of,
    widths_of,
)
from fedrepro.methods.matching.unit_fusion_and_clustering import fused, fused_sets
from fedrepro.methods.matching.unit_permutations import UnitSets, Use, align_units, in_common_order
from fedrepro.methods.pfnm_and_concatenation import ClassWeights
from fedrepro.methods.regmean import GRID, Alpha, Ridge, moments, regmean
from fedrepro.networks.layer_matrices import layer_matrices
from fedrepro.training.federation.client_queries_and_costs import Reply
from fedrepro.training.federation.fisher_and_input_moments import errors_of

MATCHED: dict[str, Any] = {"kind": "one_shot", "models": merging.UNITS, "merges": "matched"}
Sweeps = Annotated[int, Arg("most times that each client is matched again", least=1)]


@method(
    "weight_matching",
    **MATCHED,
    needs={"label_counts"},
    label="weight matching",
    grid={"class_weights": (False, True)},
)
def weight_matching(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    class_weights: ClassWeights = False,
    sweeps: Sweeps = 100,
) -> GlobalModel:
    """Average clients' weights after permuting hidden units to agree, sum_j (n_j / n) P_j w_j.

    P_j is the permutation of units that fits the mean of the other clients best, n_j / n client j's
    share of examples. Clients are matched in turn, in random order, until none changes or `sweeps`
    times. Channels of convolutions are units; units of a torch module are found by tracing it. With
    `class_weights`, those to class k count by the clients' shares of its examples. Source:
    Ainsworth, Hayase, Srinivasa, "Git Re-Basin", ICLR 2023, algorithm 3 (many models).
    """
    assert info.label_counts is not None
    share, towards = shares_towards(info.label_counts, class_weights)
    arrays, stream = units_of(clients.model, clients.shape, clients.classes), "weight-matching"
    networks = arrays.networks(clients.tensors)
    matched = align_units(networks, sweeps, rng.stream(stream), arrays.units)
    return GlobalModel(clients.model, arrays.tensors(arrays.units.mean(matched, share, towards)))


@method("c2m3", **MATCHED, needs={"example_counts"}, label="cycle-consistent matching")
def c2m3(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    steps: Annotated[int, Arg("most steps of the search", "steps", least=1)] = 100,
    gain: Annotated[float, Arg("least gain of a step, as a share", least=0)] = 1e-6,
) -> GlobalModel:
    """Average the clients' weights after permuting all hidden units to one common order at once.

    sum_j (n_j / n) P_j w_j, with P_j that maximise sum_{i<j} <P_i w_i, P_j w_j>, n_j / n client j's
    share of examples. All P_j are found together, by Frank-Wolfe over doubly stochastic matrices
    from the identity, and rounded at the end. Written from the paper's objective. The paper
    averages equally, then renormalises activations (here: `batchnorm` recalibrate).
    """
    arrays = units_of(clients.model, clients.shape, clients.classes)
    matched = in_common_order(arrays.networks(clients.tensors), steps, gain, arrays.units)
    return GlobalModel(
        clients.model, arrays.tensors(arrays.units.mean(matched, merging.shares_of(info)))
    )


@method(
    "ot_fusion",
    **MATCHED,
    needs={"label_counts"},
    label="OT fusion",
    grid={"class_weights": (False, True), "sweeps": (1, 10)},
)
def ot_fusion(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: merging.Units = None,
    class_weights: ClassWeights = False,
    sweeps: Annotated[
        int, Arg("times that units are transported and averaged; 1 as published", least=1)
    ] = 10,
) -> GlobalModel | None:
    """Fuse the clients' networks by optimal transport T_j of their units to `units` common units.

    A common unit is the sum over clients j of client j's share of examples times the units that T_j
    moves to it; it starts as a unit of a client drawn at random. Outgoing weights are averaged
    alike; with `class_weights`, those to class k by the clients' shares of its examples. Layers are
    fused from the lowest up. Returns None if all clients together have fewer than `units`. Source:
    Singh and Jaggi, "Model fusion via optimal transport", NeurIPS 2020, by weights.
    """
    assert info.label_counts is not None
    if units is not None and clients.model.name != "mlp":
        raise FedreproError(
            "method 'ot_fusion' makes networks with convolutions, and modules, as wide as the "
            "clients' only: leave out units"
        )
    if units is not None and not merging.has_enough_units(clients, units):
        return None
    order = rng.stream("ot-fusion").permutation(clients.clients)
    share, towards = shares_towards(info.label_counts, class_weights)
    blocks = units_of(clients.model, clients.shape, clients.classes)
    networks = blocks.networks(clients.tensors)
    if not isinstance(blocks, Blocks):
        made = fused_sets(networks, blocks.units, share, towards, order, sweeps)
    else:
        widths = widths_of(networks[0]) if units is None else merging.target_widths(clients, units)
        made = fused(networks, widths, share, towards, order, sweeps)
    return GlobalModel(clients.model, blocks.tensors(made))


@method(
    "matched_regmean",
    **MATCHED,
    needs={"example_counts", "client_answers"},
    sends="second moments of layer inputs",
    label="matching, then RegMean",
    prepare=moments,
    grid=GRID,
)
def matched_regmean(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    alpha: Alpha = 0.9,
    ridge: Ridge = 1e-6,
    sweeps: Sweeps = 100,
) -> GlobalModel:
    """Permute the clients' hidden units into one order, then merge by RegMean.

    Units are matched by weights (Git Re-Basin) in up to `sweeps` passes, and moments `prepared` are
    permuted. As in `regmean`, `alpha` scales them off the diagonal, `ridge` pulls to the mean.
    """
    matched, answers = in_one_order(clients, prepared, rng, sweeps)
    return regmean(matched, info, rng=rng, prepared=answers, alpha=alpha, ridge=ridge)


@method(
    "matched_kfac",
    **MATCHED,
    needs={"example_counts", "client_answers"},
    sends="Kronecker factors of the Fisher information",
    label="matching, then FedFisher (K-FAC)",
    prepare=factors,
    grid={"steps": (5, 10, 20, 50, 100, 200, 500, 2000)},
    metrics={"residual_left": LEFT},
)
def matched_kfac(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    steps: Steps = 500,
    sweeps: Sweeps = 100,
) -> GlobalModel:
    """Permute the clients' hidden units into one order, then merge by FedFisher (K-FAC).

    Units are matched by weights (Git Re-Basin), in at most `sweeps` passes; Kronecker factors
    (`prepared`) are permuted too. FedFisher's equation is solved by at most `steps` conjugate
    gradient steps from the mean of the permuted networks.
    """
    matched, answers = in_one_order(clients, prepared, rng, sweeps)
    made, left = solved(matched, info, answers, "conjugate_gradients", steps, damping=0.0)
    return merging.as_model(clients, made, left)


def in_one_order(
    clients: LocalModels, answers: Sequence[Reply], rng: RngKey, sweeps: int
) -> tuple[LocalModels, list[Reply]]:
    """Permute the hidden units of clients' models into one order, and the clients' answers too.

    `answers` are second moments of each layer's inputs and output gradients; the server permutes
    them by the same order, so clients send nothing more. Units are matched by weights. Clients come
    in random order (`rng`), each matched to the mean of those before it. Up to `sweeps` passes, in
    other orders, then match each to the mean of the others.
    """
    arrays = units_of(clients.model, clients.shape, clients.classes)
    networks, sets = arrays.networks(clients.tensors), arrays.units.uses
    widths = [arrays.units.width(networks[0], k) for k in range(len(sets))]
    count, groups = len(networks[0]), dict[str, list[str]]()
    for layer in layer_matrices(merging.network_like(clients)):
        groups.setdefault(layer.weight, []).append(layer.key)
    names: list[list[str]] = []  # keys of each array of moments, (groups, D, D)
    moments: list[list[Use]] = [[] for _ in sets]  # axes of these that list the units of a set
    for weight, keys in groups.items():
        several = len(keys) > 1
        for gives, own in ((False, keys), (True, [errors_of(key) for key in keys])):
            if own[0] not in answers[0]:
                continue
            for k, uses in enumerate(sets):
                listed = (arrays.place(weight), gives or several)
                if listed in [(use.at, use.gives) for use in uses]:
                    size = len(keys) if several else len(answers[0][own[0]])
                    axes = (0,) if several else (1, 2)
                    moments[k] += [Use(len(names), axis, size // widths[k]) for axis in axes]
            names.append(own)
    # a network's last arrays number the units of each set, and so become their orders
    numbers = [np.arange(width, dtype=np.float64) for width in widths]
    numbered = ((*own, Use(count + k, 0, counted=False)) for k, own in enumerate(sets))
    units = replace(arrays.units, uses=tuple(numbered))
    whole = [(*network, *numbers) for network in networks]
    matched = align_units(whole, sweeps, rng.stream("weight-matching"), units)
    each = [arrays.tensors(network[:count]) for network in matched]
    tensors = {name: np.concatenate([model[name] for model in each]) for name in clients.tensors}
    permuted, listed_by = list[Reply](), UnitSets(tuple(map(tuple, moments)))
    for network, answer in zip(matched, answers, strict=True):
        made = tuple(np.stack([answer[key] for key in own]) for own in names)
        for k, order in enumerate(network[count:]):
            made = listed_by.permuted(made, k, order.astype(np.int64))
        pairs = zip(names, made, strict=True)
        permuted.append({key: v for own, value in pairs for key, v in zip(own, value, strict=True)})
    return replace(clients, tensors=tensors), permuted

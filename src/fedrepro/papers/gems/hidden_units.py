"""Balls around hidden units, and merging of units whose balls meet (GEMS, section 3.2).

All weight vectors in a unit's ball give nearly equal outputs. Along a direction the change of
outputs only grows, so a direction that is good enough at a radius is so at all smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedrepro.api import Traffic
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES, Metric
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.unit_fusion_and_clustering import k_means
from fedrepro.papers.gems import softmax_spaces as softmax
from fedrepro.papers.gems.common_points_and_certificates import Array, Spaces, certified

Deviation = Literal["outside", "inside"]
Ints = npt.NDArray[np.int64]

RESTARTS = 10  # of k-means, as in the library that the authors' code calls
UNIT_METRICS = {
    "merged_units": Metric("hidden units that stand for several", "units", 0, None, 0),
    "leftover_units": Metric("hidden units as one client has them", "units", 0, None, 0),
    "refused_sets": Metric("sets of units that meet in pairs only", "sets", 0, None, 0),
    "hidden_radius": Metric("radius of a hidden unit's ball, mean over units", "L2", 0, None, 0),
    "capped_units": Metric("hidden units whose radius reached the largest", "units", 0, None, -1),
}


class HiddenUnits(NamedTuple):
    """A client's hidden layer: inputs (n, D), and weights with bias of its L units, (D + 1, L)."""

    inputs: softmax.Floats
    units: softmax.Floats


def moves(layer: HiddenUnits, rng: np.random.Generator, points: int) -> softmax.Floats:
    """Draw `points` weight changes of length 1; return those of sums at n inputs, (points, n)."""
    normals = rng.standard_normal((points, len(layer.units)), np.float32)
    normals /= np.sqrt(np.einsum("pd,pd->p", normals, normals))[:, None]
    return np.asarray(normals @ softmax.with_ones(layer.inputs).T)


def deviations(start: softmax.Floats, moved: softmax.Floats, radius: float) -> softmax.Floats:
    """Compute how far a unit's outputs move along each direction: |relu(a + R t) - relu(a)|, (p,).

    `start` is a, (n,), the unit's pre-activations, `moved` is t, (p, n), and `radius` is R.
    """
    apart = np.maximum(start + np.float32(radius) * moved, 0)
    apart -= np.maximum(start, 0)
    return np.asarray(np.sqrt(np.einsum("pn,pn->p", apart, apart)))


@dataclass(frozen=True)
class Units:
    """All clients' units of a layer: `centres` (N, d), weights and bias; `owners` (N,), clients."""

    centres: Array
    owners: Ints

    @cached_property
    def distances(self) -> Array:
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(self.centres, self.centres))


def sets_of(
    members: Sequence[int], meet: npt.NDArray[np.bool_], owners: Ints, grouping: str
) -> list[list[int]]:
    """Form sets of the units `members` of a cluster, such that balls of a set intersect in pairs.

    `meet` (N, N) says which balls intersect. A set starts with the first unit left, and takes each
    unit whose ball meets all balls in it. With `grouping` "greedy" the units outside of the first
    set stay single, as in the authors' code. With "tuples" there are more sets, each with at most
    one unit of a client (`owners`, (N,)). Source: GEMS, section 3.2, step 3.
    """
    left, sets = list(members), list[list[int]]()
    tuples = grouping == "tuples"
    while left:
        together: list[int] = []
        for unit in left if tuples or not sets else left[:1]:
            if not (tuples and owners[unit] in owners[together]) and meet[unit, together].all():
                together.append(unit)
        left = [unit for unit in left if unit not in together]
        sets.append(together)
    return sets


class Merged(NamedTuple):
    """The units of a layer that all clients share: (A, d), cluster after cluster.

    merged: how many replace several. leftover: how many are a client's own. refused: sets whose
    balls meet in pairs, not in one point; their units stay, as leftover, and no subset is tried.
    """

    units: Array
    merged: int
    leftover: int
    refused: int


@dataclass
class LayerSpaces:
    """The hidden units of J clients in one layer; their balls and clusters are computed once.

    rngs: the clients' random keys. draws: "shared" directions for every radius, or "fresh" ones.
    deviation: a change on n examples is divided by n ("outside") or sqrt(n). layer: number from 0.
    search: how radii are found. known, grouped: caches of radii by epsilon, clusters by count.
    """

    clients: Sequence[HiddenUnits]
    rngs: Sequence[RngKey]
    search: softmax.Bisection
    draws: str
    deviation: Deviation
    layer: int = 0
    known: dict[float, list[softmax.Radius]] = field(default_factory=dict)
    grouped: dict[int, list[Ints]] = field(default_factory=dict)

    @cached_property
    def units(self) -> Units:
        layers = [client.units for client in self.clients]
        owners = np.repeat(np.arange(len(layers)), [units.shape[1] for units in layers])
        return Units(np.hstack(layers).T.astype(np.float64), owners)

    def radii(self, epsilon: float) -> list[softmax.Radius]:
        """Return the radii of balls, client by client, in which outputs change by <= `epsilon`."""
        if epsilon not in self.known:
            clients = range(len(self.clients))
            self.known[epsilon] = [radius for j in clients for radius in self._searched(j, epsilon)]
        return self.known[epsilon]

    def _searched(self, client: int, epsilon: float) -> list[softmax.Radius]:
        layer, points = self.clients[client], self.search.points
        examples = len(layer.inputs)
        most = epsilon * (examples if self.deviation == "outside" else examples**0.5)
        rng = self.rngs[client].stream(f"gems-unit-directions-{self.layer}")
        directions = moves(layer, rng, points) if self.draws == "shared" else None

        def radius_of(start: softmax.Floats) -> softmax.Radius:
            left = directions

            def good_enough(radius: float) -> bool:
                nonlocal left
                moved = moves(layer, rng, points) if left is None else left
                far = deviations(start, moved, radius) > most
                if left is not None and far.any() and not far.all():
                    left = left[far]  # the others cannot fail below this radius
                return not far.any()

            return softmax.bisected(good_enough, self.search)

        return list(map(radius_of, (softmax.with_ones(layer.inputs) @ layer.units).T))

    def clusters(self, count: int, rng: RngKey) -> list[Ints]:
        """Cluster all units by k-means into `count` clusters; return the units' indices in each."""
        units = len(self.units.centres)
        if count > units:
            raise FedreproError(
                f"gems_neural: {count} clusters are more than the {units} units that all clients "
                f"together have in hidden layer {self.layer + 1}; lower clusters"
            )
        if count not in self.grouped:
            generator = rng.stream(f"gems-clusters-{self.layer}")
            labels = k_means(self.units.centres, count, RESTARTS, generator)
            self.grouped[count] = [np.flatnonzero(labels == k) for k in range(count)]
        return self.grouped[count]


@dataclass(frozen=True)
class Merging:
    """The settings by which units of a layer are merged, within each of `clusters` clusters.

    epsilon: how far a unit's outputs may change in its ball. grouping: "tuples" if merged units are
    of different clients, else "greedy". search: how a point in all balls is found.
    """

    epsilon: float
    clusters: int
    grouping: str
    search: softmax.Intersecting

    def joined(self, balls: Spaces) -> Array | None:
        """Find a point (d,) in all `balls`, a unit to replace several; None if there is none.

        If search.as_published, the point is where gradient descent ends, in all balls or not. If
        search.point is "descent", it is that end if in all balls. Else it is the deepest in them.
        """
        if self.search.as_published or self.search.point == "descent":
            point, _ = self.search.descend(balls)
            if self.search.as_published or self.search.printed(balls).value(point) == 0:
                return point
        proof = certified(balls)
        return proof.point if proof.meet else None

    def merged(self, units: Units, radii: Array, clusters: Sequence[Ints]) -> Merged:
        """Replace units whose balls meet by one unit, at a common point of the balls.

        `radii` (N,) are of the balls. Units outside of all `clusters` (indices) are left out.
        """
        meet = units.distances <= radii[:, None] + radii
        parts: list[Array] = []
        common = refused = 0
        for members in clusters:
            for together in sets_of(members.tolist(), meet, units.owners, self.grouping):
                centres, several = units.centres[together], len(together) > 1
                point = self.joined(Spaces(centres, radii[together])) if several else None
                parts.append(centres if point is None else point[None])
                common += point is not None
                refused += point is None and several
        layer = np.concatenate(parts)
        return Merged(layer, common, len(layer) - common, refused)


class CommonLayers(NamedTuple):
    """The hidden layers that all clients share after merging: `tensors` (1, *shape) by name.

    inputs: each client's outputs of the top hidden layer on validation examples, (n, A). heads:
    each client's output layer, (A + 1, K), biases last. diagnostics: metrics. sent: all messages.
    """

    tensors: dict[str, np.ndarray]
    inputs: list[softmax.Floats]
    heads: list[softmax.Floats]
    diagnostics: dict[str, float]
    sent: Traffic


def common_layers(
    lowest: LayerSpaces,
    depth: int,
    merging: Merging,
    trained: Callable[[Mapping[str, np.ndarray], int], Mapping[str, np.ndarray]],
    rng: RngKey,
    instead: Callable[[LayerSpaces, Merged], Merged] | None = None,
) -> CommonLayers:
    """Merge the clients' `depth` hidden layers one by one from the `lowest`.

    `trained` has clients train the layers above: it maps (the merged layers' tensors, number of the
    top merged layer) to these layers, (J, *shape), from weight0 on. `instead`, for controls, maps
    (clients' units, merged layer) to a replacement. Source: GEMS, section 3.2, steps 2 to 4. Raises
    FedreproError if clusters exceed units, or search.as_published drops the only cluster.
    """
    tensors: dict[str, np.ndarray] = {}
    inputs = [client.inputs for client in lowest.clients]
    layers, radii, sent, spaces = list[Merged](), list[softmax.Radius](), Traffic(), lowest
    for layer in range(depth):
        clusters = spaces.clusters(merging.clusters, rng)
        if merging.search.as_published:
            clusters = clusters[1:]  # the authors' code loses the units of the first cluster
        if not sum(map(len, clusters)):
            raise FedreproError(
                f"gems_neural: as_published leaves out the first cluster of units, and nothing is "
                f"left of {merging.clusters}; set clusters to 2 or more, or as_published to false"
            )
        own_radii = spaces.radii(merging.epsilon)
        values = np.array([radius.value for radius in own_radii])
        common = merging.merged(spaces.units, values, clusters)
        if instead is not None:
            common = instead(spaces, common)
        layers.append(common)
        radii += own_radii
        # each client sends its units and a radius for each, and receives the common layer
        up = sum(client.units.size + client.units.shape[1] for client in spaces.clients)
        clients, down = len(spaces.clients), len(spaces.clients) * common.units.size
        sent += Traffic(clients, clients, up * FLOAT_BYTES, down * FLOAT_BYTES)
        tensors |= tensors_of_layer(common.units.T, layer)
        weights = common.units.astype(np.float32)
        inputs = [np.maximum(x @ weights[:, :-1].T + weights[:, -1], 0) for x in inputs]
        above = lowest_layers(trained(tensors, layer))
        own = list(map(HiddenUnits, inputs, above))
        spaces = replace(spaces, clients=own, layer=layer + 1, known={}, grouped={})
    numbers = {
        "merged_units": float(sum(common.merged for common in layers)),
        "leftover_units": float(sum(common.leftover for common in layers)),
        "refused_sets": float(sum(common.refused for common in layers)),
        "hidden_radius": float(np.mean([radius.value for radius in radii])),
        "capped_units": float(sum(radius.capped for radius in radii)),
    }
    return CommonLayers(tensors, inputs, above, numbers, sent)


def lowest_layers(tensors: Mapping[str, np.ndarray]) -> list[softmax.Floats]:
    """Return each client's lowest layer in `tensors` (J, *shape), (D + 1, K) with biases last."""
    if "bias0" not in tensors:
        said = "GEMS merges units with their biases, and these networks have no biases: train them"
        raise FedreproError(f"{said} with bias: true, or take weight_matching, ot_fusion or c2m3")
    pairs = zip(tensors["weight0"], tensors["bias0"], strict=True)
    return [np.vstack(pair).astype(np.float32) for pair in pairs]


def tensors_of_layer(values: Array, layer: int) -> dict[str, np.ndarray]:
    """Split `values` (D + 1, K) of layer number `layer` into its weight and bias, by name."""
    whole = values.astype(np.float32)
    return {f"weight{layer}": whole[None, :-1], f"bias{layer}": whole[None, -1]}

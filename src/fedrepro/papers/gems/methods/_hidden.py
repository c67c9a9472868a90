"""Hidden layers of GEMS: the balls of all clients' units, found once, and the units merged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fedrepro.api import Traffic
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES, Metric
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching.unit_fusion import k_means
from fedrepro.papers.gems.methods._spaces import Intersecting, lowest_layers, tensors_of_layer
from fedrepro.papers.gems.spaces.hidden_units import (
    Deviation,
    HiddenUnits,
    Ints,
    Joined,
    Merged,
    Units,
    allowed,
    balls,
    balls_of_fresh_draws,
    deepest,
    merged,
    moves,
    proven,
    values,
)
from fedrepro.papers.gems.spaces.intersections import Array
from fedrepro.papers.gems.spaces.softmax_models import Bisection, Floats, Radius

log = logging.getLogger(__name__)

RESTARTS = 10  # of k-means, as in the library that the authors' code calls

UNIT_METRICS = {
    "merged_units": Metric("hidden units that stand for several", "units", 0, None, 0),
    "leftover_units": Metric("hidden units as one client has them", "units", 0, None, 0),
    "refused_sets": Metric("sets of units that meet in pairs only", "sets", 0, None, 0),
    "hidden_radius": Metric("radius of a hidden unit's ball, mean over units", "L2", 0, None, 0),
    "capped_units": Metric("hidden units whose radius reached the largest", "units", 0, None, -1),
}


@dataclass
class LayerSpaces:
    """The hidden units of J clients in one layer; balls and clusters are found once for each wish.

    own: each client's units and what they are given. places: where each client draws.
    """

    own: Sequence[HiddenUnits]
    places: Sequence[RngKey]
    search: Bisection
    draws: str
    deviation: Deviation
    layer: int = 0
    known: dict[float, list[Radius]] = field(default_factory=dict)
    grouped: dict[int, list[Ints]] = field(default_factory=dict)

    @cached_property
    def units(self) -> Units:
        """All clients' units, one after another."""
        owners = np.repeat(np.arange(len(self.own)), [client.units.shape[1] for client in self.own])
        return Units(np.hstack([client.units for client in self.own]).T.astype(np.float64), owners)

    @cached_property
    def moved(self) -> list[Floats]:
        """Along each client's shared directions."""
        pairs = zip(self.own, self.places, strict=True)
        return [moves(client, self._draws(place), self.search.points) for client, place in pairs]

    def radii(self, epsilon: float) -> list[Radius]:
        """Of the balls around all units."""
        if epsilon not in self.known:
            radii = [radius for j in range(len(self.own)) for radius in self._balls(j, epsilon)]
            self.known[epsilon] = radii
            capped = sum(radius.capped for radius in radii)
            if capped:
                log.warning(
                    "%d balls of units of hidden layer %d reach r_max, %g, at epsilon_hidden %g: "
                    "every unit that was tried is good enough, so their radii say nothing",
                    *(capped, self.layer + 1, self.search.r_max, epsilon),
                )
        return self.known[epsilon]

    def _balls(self, client: int, epsilon: float) -> list[Radius]:
        client_units = self.own[client]
        most = allowed(epsilon, len(client_units.inputs), self.deviation)
        if self.draws == "shared":
            return balls(client_units, self.moved[client], most, self.search)
        return balls_of_fresh_draws(
            client_units, self._draws(self.places[client]), most, self.search
        )

    def _draws(self, rng: RngKey) -> np.random.Generator:
        return rng.stream(f"gems-unit-directions-{self.layer}")

    def clusters(self, count: int, rng: RngKey) -> list[Ints]:
        """Cluster the units that may be merged by k-means of weights and bias.

        Raises:
            FedreproError: for more clusters than units.
        """
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

    def following(self, units: Sequence[HiddenUnits]) -> LayerSpaces:
        """Return the spaces of the layer above, with these units."""
        return replace(self, own=units, layer=self.layer + 1, known={}, grouped={})


@dataclass(frozen=True)
class Merging:
    """How the units of a layer are merged. grouping: a key of spaces.merging.GROUPINGS."""

    epsilon: float
    clusters: int
    grouping: str
    search: Intersecting

    @property
    def joined(self) -> Joined:
        """The unit that stands for several; the authors' code asks for no proof that it may."""
        if self.search.as_published:
            return lambda spaces: self.search.descend(spaces).point
        return proven(self.search.descend) if self.search.point == "descent" else deepest

    def of(self, spaces: LayerSpaces, rng: RngKey) -> Merged:
        """Merge the units of a layer.

        Raises:
            FedreproError: for too many clusters, or too few.
        """
        clusters = spaces.clusters(self.clusters, rng)
        if self.search.as_published:
            clusters = clusters[1:]  # the authors' code passes over the first, whose units are lost
        if not sum(map(len, clusters)):
            raise FedreproError(
                f"gems_neural: as_published leaves out the first cluster of units, and nothing is "
                f"left of {self.clusters}; set clusters to 2 or more, or as_published to false"
            )
        radii = values(spaces.radii(self.epsilon))
        return merged(spaces.units, radii, clusters, self.grouping, self.joined)


@dataclass(frozen=True)
class CommonLayers:
    """The common model once all hidden layers are merged, and numbers by the names of UNIT_METRICS.

    Attributes:
        tensors: the hidden layers of one network, (1, *shape).
        inputs: their outputs on each client's validation examples, (n, A).
        heads: each client's output layer, (A + 1, K), trained on these.
        sent: traffic so far.
    """

    tensors: dict[str, np.ndarray]
    inputs: list[Floats]
    heads: list[Floats]
    diagnostics: dict[str, float]
    sent: Traffic


Trained = Callable[[Mapping[str, np.ndarray], int], Mapping[str, np.ndarray]]
# units that stand in the place of as many that merging gave
Instead = Callable[[LayerSpaces, Merged], Merged]


def common_layers(
    lowest: LayerSpaces,
    depth: int,
    merging: Merging,
    trained: Trained,
    rng: RngKey,
    instead: Instead | None = None,
) -> CommonLayers:
    """Merge layer after layer from the lowest, and train the layers above each again.

    trained(tensors, layer) returns every client's layers above those of the tensors, (J, *shape),
    named from weight0 on. Source: GEMS, section 3.2, steps 2 to 4.
    """
    tensors: dict[str, np.ndarray] = {}
    inputs = [client.inputs for client in lowest.own]
    merged_layers, radii, sent, spaces = [], list[Radius](), Traffic(), lowest
    for layer in range(depth):
        common = merging.of(spaces, rng)
        if instead is not None:
            common = instead(spaces, common)
        merged_layers.append(common)
        radii += spaces.radii(merging.epsilon)
        sent += exchanged(spaces, common)
        tensors |= tensors_of_layer(common.units.T, layer)
        inputs = [outputs(client_inputs, common.units) for client_inputs in inputs]
        above = lowest_layers(trained(tensors, layer))
        if layer + 1 < depth:
            spaces = spaces.following(list(map(HiddenUnits, inputs, above)))
    return CommonLayers(tensors, inputs, above, _told(merged_layers, radii), sent)


def _told(layers: Sequence[Merged], radii: Sequence[Radius]) -> dict[str, float]:
    return {
        "merged_units": float(sum(layer.merged for layer in layers)),
        "leftover_units": float(sum(layer.leftover for layer in layers)),
        "refused_sets": float(sum(layer.refused for layer in layers)),
        "hidden_radius": float(values(radii).mean()),
        "capped_units": float(sum(radius.capped for radius in radii)),
    }


def exchanged(spaces: LayerSpaces, merged: Merged) -> Traffic:
    """Each client sends its units and a radius for each, and receives the common layer."""
    up = sum(client.units.size + client.units.shape[1] for client in spaces.own)
    clients = len(spaces.own)
    down = clients * merged.units.size
    return Traffic(clients, clients, up * FLOAT_BYTES, down * FLOAT_BYTES)


def outputs(inputs: Floats, layer: Array) -> Floats:
    """Of ReLU units (A, D + 1), biases last, on inputs (n, D): float32 (n, A)."""
    weights = layer.astype(np.float32)
    activations: Floats = np.maximum(inputs @ weights[:, :-1].T + weights[:, -1], 0)
    return activations

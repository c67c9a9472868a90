"""Shared parts of the methods of GEMS: options, spaces that are computed once, common points."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.papers.gems.spaces.intersections import (
    Array,
    Descent,
    Hinges,
    Spaces,
    certified,
    descended,
    of_balls,
    of_ellipsoids,
    weighed_by_centres,
)
from fedrepro.papers.gems.spaces.softmax_models import (
    Bisection,
    Floats,
    Radius,
    RightWithin,
    Softmax,
    ball,
    ball_of_fresh_draws,
    proven_ball,
    right_within,
)

log = logging.getLogger(__name__)

# accuracies of the model at single clients, of the first ten
OF_CLIENTS = tuple(f"accuracy_client_{j}" for j in range(1, 11))

Draws = Annotated[
    Literal["shared", "fresh"],
    Arg("directions that points are drawn along: the same for every radius, or new ones for each"),
]
Proof = Annotated[
    Literal["drawn", "proven"],
    Arg(
        "how a radius is found: the largest at which no drawn point failed, or one within which "
        "every model is good enough"
    ),
]
Points = Annotated[
    int, Arg("points drawn from the surface of each radius", "points", least=1, most=20_000)
]
Largest = Annotated[float, Arg("largest radius that is searched", above=0)]
Delta = Annotated[float, Arg("how far a radius is searched to", above=0)]
Point = Annotated[
    Literal["descent", "deepest"],
    Arg(
        "what is taken: where descent from the mean of the centres ends, or the point whose "
        "largest distance from a centre, in radii, is least (the mean if a space is empty)"
    ),
]
AsPublished = Annotated[
    bool,
    Arg(
        "as the authors' code: distances weighed by the centres in the objective of balls, and the "
        "units of the first cluster lost"
    ),
]

RADII = tuple(name.replace("accuracy", "radius") for name in OF_CLIENTS)
METRICS = (
    {
        "common_point": Metric(
            "common point: 1 there is one, 0 there is none (proven)", "", 0, 1, 0
        ),
        "empty_spaces": Metric(
            "clients whose own model is not good enough", "clients", 0, None, -1
        ),
        "capped_spaces": Metric("clients whose radius reached the largest", "clients", 0, None, -1),
        "objective": Metric("what the point lacks of lying in all spaces", "radius", 0, None, -1),
        "descent_steps": Metric("steps of the descent to a common point", "steps", 0, None, 0),
        "start_inside": Metric("1 if the mean of the models lies in all spaces", "", 0, 1, 0),
        "radius": Metric("radius of a client's space, mean over clients", "L2", 0, None, 0),
        "reach": Metric("least factor on all radii at which the spaces meet", "factor", 0, None, 0),
        "clients_met": Metric("clients at which the point is good enough", "clients", 0, None, 1),
    }
    | {
        name: Metric(f"accuracy at client {j} of the point", "share of its examples", 0, 1, 1)
        for j, name in enumerate(OF_CLIENTS, start=1)
    }
    | {
        name: Metric(f"radius of the space of client {j}", "L2", 0, None, 0)
        for j, name in enumerate(RADII, start=1)
    }
)

BALL = np.ones((1, 1), np.float32)  # relative radii that are all alike

# learning rate and steps of the authors' code
DESCENTS = {"ball": (0.01, 1000), "ellipsoid": (0.001, 100_000)}


@dataclass(frozen=True)
class Intersecting:
    """How a common point is looked for. kind: of the spaces, a key of DESCENTS."""

    kind: str
    point: str
    as_published: bool
    delta: float

    def descend(self, spaces: Spaces) -> Descent:
        """From the mean of the centres, by the objective that is asked for."""
        weighed = self.as_published and self.kind == "ball"
        hinges = weighed_by_centres(spaces) if weighed else self.plain(spaces)
        return descended(hinges, spaces.mean, *DESCENTS[self.kind])

    def plain(self, spaces: Spaces) -> Hinges:
        """Return the printed objective."""
        if self.kind == "ball":
            return of_balls(spaces)
        return of_ellipsoids(spaces, self.delta)

    def point_of(self, spaces: Spaces) -> tuple[Array, dict[str, float]]:
        """Return the common point, (d,), and its numbers by the names of METRICS.

        If there is none, it is the last point of the descent.
        """
        descent, proof = self.descend(spaces), certified(spaces)
        point = descent.point if self.point == "descent" else proof.point
        diagnostics = {
            "common_point": np.nan if proof.meet is None else proof.meet,
            "empty_spaces": spaces.empty.sum(),
            "objective": self.plain(spaces).value(point),
            "descent_steps": descent.steps,
            "start_inside": spaces.holds(spaces.mean),
            "radius": spaces.radii.mean(),
            "reach": proof.largest,
        }
        return point, {key: float(value) for key, value in diagnostics.items()}


@dataclass
class GoodEnough:
    """The spaces of J softmax models, each computed once for each accuracy that is asked for.

    places: where each client's directions are drawn.
    """

    models: Sequence[Softmax]
    places: Sequence[RngKey]
    search: Bisection
    draws: str
    radii: str = "drawn"
    known: dict[tuple[int, float], Radius] = field(default_factory=dict)

    @cached_property
    def kept(self) -> list[RightWithin]:
        """Along each client's shared directions."""
        return [
            right_within(model, self._directions(j), self.search.points)
            for j, model in enumerate(self.models)
        ]

    def _directions(self, client: int) -> np.random.Generator:
        return self.places[client].stream("gems-directions")

    def radius(self, client: int, accuracy: float) -> Radius:
        """Of the space of a client's models with this accuracy."""
        key = client, accuracy
        if key not in self.known:
            self.known[key] = self._searched(client, accuracy)
            if self.known[key].capped:
                log.warning(
                    "the space of client %d with accuracy %g reaches r_max, %g: every model that "
                    "was tried is good enough, so its radius says nothing",
                    *key,
                    self.search.r_max,
                )
        return self.known[key]

    def _searched(self, client: int, accuracy: float) -> Radius:
        model = self.models[client]
        if self.radii == "proven":
            return proven_ball(model, accuracy)
        if self.draws == "shared":
            return ball(self.kept[client], model, accuracy, self.search)
        return ball_of_fresh_draws(model, self._directions(client), accuracy, self.search)

    def common(
        self, accuracies: Sequence[float], search: Intersecting
    ) -> tuple[Array, dict[str, float]]:
        """Find a model (D + 1, K) in all spaces, with its numbers; one accuracy a client."""
        radii = [self.radius(j, accuracy) for j, accuracy in enumerate(accuracies)]
        spaces = Spaces(
            np.stack([model.centre.reshape(-1) for model in self.models]).astype(np.float64),
            np.array([radius.value for radius in radii]),
            np.stack([model.shape.reshape(-1) for model in self.models]).astype(np.float64),
            np.array([radius.empty for radius in radii]),
        )
        point, diagnostics = search.point_of(spaces)
        diagnostics["capped_spaces"] = float(sum(radius.capped for radius in radii))
        common_model = point.reshape(self.models[0].centre.shape)
        reached = [model.accuracy_at(common_model) for model in self.models]
        met = np.greater_equal(reached, accuracies)
        diagnostics["clients_met"] = float(met.sum())
        diagnostics |= dict(zip(OF_CLIENTS, reached, strict=False))
        diagnostics |= dict(zip(RADII, spaces.radii.tolist(), strict=False))
        return common_model, diagnostics


def lowest_layers(tensors: Mapping[str, np.ndarray]) -> list[Floats]:
    """Return each client's lowest layer, weights and as a last row biases: float32 (D + 1, K) each.

    Raises:
        FedreproError: for networks without biases.
    """
    if "bias0" not in tensors:
        raise FedreproError(
            "GEMS merges units with their biases, and these networks have no biases: train them "
            "with bias: true, or take weight_matching, ot_fusion or c2m3"
        )
    pairs = zip(tensors["weight0"], tensors["bias0"], strict=True)
    return [np.vstack(pair).astype(np.float32) for pair in pairs]


def tensors_of_layer(values: Array, layer: int) -> dict[str, np.ndarray]:
    """Split a layer (D + 1, K) into tensors of one network: weight (1, D, K), bias (1, K)."""
    whole = values.astype(np.float32)
    return {f"weight{layer}": whole[None, :-1], f"bias{layer}": whole[None, -1]}

"""Good-enough spaces of softmax models: balls or ellipsoids of models with a required accuracy.

A model is (D + 1, K), weights and, in the last row, biases. It is moved away from its centre along
random directions. Its logits are linear in the distance, so an example is predicted right between
two distances, which serve every radius and accuracy that is asked for. Ellipsoids have relative
radii from Fisher information. Source: GEMS, algorithm 2 and appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.papers.gems.common_points_and_certificates import Array, Hinges, Spaces, certified

Floats = npt.NDArray[np.float32]

BLOCK_FLOATS = 2**23  # numbers in memory at a time, of directions or of logits
FLOOR = 1e-5  # added to Fisher information, as in the authors' code: inputs of 0 have none
DIRECTIONS = "gems-directions"  # name of a client's random stream
FIRST = 50  # fresh directions drawn at a time: most radii that fail, fail in the first
DESCENTS = {"ball": (0.01, 1000), "ellipsoid": (0.001, 100_000)}  # step size, steps: authors' code
BALL = np.ones((1, 1), np.float32)  # relative radii, all equal

# metrics of the first ten clients: accuracy of the model, radius of the space
OF_CLIENTS = tuple(f"accuracy_client_{j}" for j in range(1, 11))
RADII = tuple(name.replace("accuracy", "radius") for name in OF_CLIENTS)
METRICS = {
    "common_point": Metric("common point: 1 there is one, 0 there is none (proven)", "", 0, 1, 0),
    "empty_spaces": Metric("clients whose own model is not good enough", "clients", 0, None, -1),
    "capped_spaces": Metric("clients whose radius reached the largest", "clients", 0, None, -1),
    "objective": Metric("what the point lacks of lying in all spaces", "radius", 0, None, -1),
    "descent_steps": Metric("steps of the descent to a common point", "steps", 0, None, 0),
    "start_inside": Metric("1 if the mean of the models lies in all spaces", "", 0, 1, 0),
    "radius": Metric("radius of a client's space, mean over clients", "L2", 0, None, 0),
    "reach": Metric("least factor on all radii at which the spaces meet", "factor", 0, None, 0),
    "clients_met": Metric("clients at which the point is good enough", "clients", 0, None, 1),
}
for number, name in enumerate(OF_CLIENTS, start=1):
    what = f"accuracy at client {number} of the point"
    METRICS[name] = Metric(what, "share of its examples", 0, 1, 1)
for number, name in enumerate(RADII, start=1):
    METRICS[name] = Metric(f"radius of the space of client {number}", "L2", 0, None, 0)


class Bisection(NamedTuple):
    """Settings of a radius search: largest radius, precision, number of models drawn per radius."""

    r_max: float = 4000.0
    delta: float = 0.01
    points: int = 500


class Radius(NamedTuple):
    """A radius; empty: the centre is not good enough; capped: all tested radii are good enough."""

    value: float
    empty: bool = False
    capped: bool = False


def bisected(good_enough: Callable[[float], bool], search: Bisection) -> Radius:
    """Find by bisection up to search.r_max the largest R with good_enough(R): GEMS, Algorithm 2."""
    low, high = 0.0, search.r_max
    while high - low > search.delta:
        middle = (low + high) / 2
        if not low < middle < high:  # no number lies between them
            break
        if good_enough(middle):
            low = middle
        else:
            high = middle
    return Radius(low, capped=high == search.r_max)


def with_ones(inputs: Floats) -> Floats:
    """Append to `inputs` (n, D) a column of ones, which the biases multiply: (n, D + 1)."""
    return np.pad(inputs.astype(np.float32, copy=False), ((0, 0), (0, 1)), constant_values=1)


class RightWithin(NamedTuple):
    """Distances between which a model, moved in p directions, predicts n examples right: (n, p)."""

    least: Floats
    most: Floats

    def accuracies(self, distance: float) -> np.ndarray:
        """Compute the accuracy of the model moved by `distance` along each direction: (p,)."""
        right = (self.least <= distance) & (distance <= self.most)
        return np.asarray(right.mean(axis=0))


@dataclass(frozen=True)
class Softmax:
    """A client's softmax model, its space's `centre` (D + 1, K), and examples to evaluate it on.

    inputs: (n, D). labels: int64 (n,). shape: relative radii, (D + 1, K), or (1, 1) of a ball.
    """

    inputs: Floats
    labels: np.ndarray
    centre: Floats
    shape: Floats

    @cached_property
    def with_ones(self) -> Floats:
        return with_ones(self.inputs)

    @cached_property
    def logits(self) -> Floats:
        return np.asarray(self.with_ones @ self.centre)

    def accuracy_of(self, model: np.ndarray) -> float:
        """Compute the accuracy of `model` (D + 1, K), of weights and biases, on these examples."""
        logits = self.with_ones @ model.astype(np.float32)
        return float((logits.argmax(axis=1) == self.labels).mean())

    def right_within(self, rng: np.random.Generator, points: int) -> RightWithin:
        """Draw `points` directions; find between which distances examples are predicted right."""
        parts = self.blocks(rng, points, points)
        return RightWithin(*(np.hstack(ends) for ends in zip(*parts, strict=True)))

    def blocks(self, rng: np.random.Generator, points: int, most: int) -> Iterator[RightWithin]:
        """Draw `points` directions, at most `most` at once; yield ranges where examples are right.

        Directions are shape * g / |g| with g standard normal. A step of length 1 adds d to the
        logits z. At distance R an example of class y is right if z_k + R d_k <= z_y + R d_y for all
        classes k. Source: GEMS, Algorithm 2, line 6, and appendix A.
        """
        rows, classes = self.centre.shape
        block = max(1, min(most, BLOCK_FLOATS // max(self.centre.size, self.logits.size)))
        examples = np.arange(len(self.labels))
        margins = self.logits[examples, self.labels][:, None] - self.logits
        for start in range(0, points, block):
            count = min(block, points - start)
            normals = rng.standard_normal((classes, rows, count), np.float32)
            lengths = np.sqrt(np.einsum("krp,krp->p", normals, normals))
            normals *= self.shape.T[:, :, None]
            moved: Floats = self.with_ones @ normals  # (K, n, count)
            moved /= lengths
            true_moves = moved[self.labels, examples]
            low = np.full(true_moves.shape, -np.inf, np.float32)
            high = np.full(true_moves.shape, np.inf, np.float32)
            for k, other in enumerate(moved):
                slope = other - true_moves
                with np.errstate(divide="ignore", invalid="ignore"):
                    ends = margins[:, k, None] / slope
                # fmin and fmax ignore 0 / 0, which the true class has
                np.fmin(high, np.where(slope >= 0, ends, np.inf), out=high)
                np.fmax(low, np.where(slope < 0, ends, -np.inf), out=low)
            yield RightWithin(low, high)

    def proven_radius(self, accuracy: float) -> float:
        """Compute a radius within which every model provably has this `accuracy`.

        A move of length R changes the gap of two logits by at most R |x|, x being inputs times both
        classes' relative radii. The result is the largest R at which enough examples stay right.
        """
        shape = np.broadcast_to(self.shape.astype(np.float64), self.centre.shape)
        moved = self.with_ones.astype(np.float64) ** 2 @ shape**2  # of each logit: (n, K)
        true_class = np.arange(len(self.labels)), self.labels
        logits = self.logits.astype(np.float64)
        with np.errstate(invalid="ignore"):
            gaps = logits[true_class][:, None] - logits
            reach = gaps / np.sqrt(moved[true_class][:, None] + moved)
        reach[true_class] = np.inf
        nearest = np.sort(reach.min(axis=1))[::-1]
        needed = max(1, int(np.ceil(accuracy * len(nearest) - 1e-9)))
        return max(0.0, float(nearest[needed - 1]))


def information(inputs: Floats, centre: Floats, rng: np.random.Generator) -> np.ndarray:
    """Compute the Fisher information of each weight of a softmax model, for ellipsoids' radii.

    It is F_i = mean over `inputs` x (n, D) of (d log p(y | x) / d w_i)^2, with y drawn from the
    model `centre` (D + 1, K) once for each, as in the authors' code. Source: GEMS, appendix A.
    """
    x = with_ones(inputs).astype(np.float64)
    logits = x @ centre
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = (probabilities.cumsum(axis=1) < rng.random((len(x), 1))).sum(axis=1)
    errors = np.eye(centre.shape[1])[np.minimum(labels, centre.shape[1] - 1)] - probabilities
    return np.asarray((x**2).T @ errors**2 / len(x))


def relative_radii(fisher: np.ndarray, least: float) -> Floats:
    """Compute ellipsoid radii max(min F / F_i, least) from Fisher information F: GEMS, eq. (5)."""
    raised = fisher + FLOOR
    return np.asarray(np.maximum(raised.min() / raised, least).astype(np.float32))


@dataclass(frozen=True)
class Intersecting:
    """The search for a common point of the clients' spaces, whose kind is "ball" or "ellipsoid".

    point: where a "descent" ends, or the "deepest", whose largest distance from a centre in radii
    is least. as_published: with mistakes of the authors' code. delta: least radius of an ellipsoid.
    """

    kind: str
    point: str
    as_published: bool
    delta: float

    def printed(self, spaces: Spaces) -> Hinges:
        """Return the objective that the paper prints, which is 0 where all `spaces` meet.

        Of balls it is sum_k max(0, |w - c_k| - r_k), and of ellipsoids sum_k max(0, |(w - c_k) /
        r_k| - 1) with a radius, at least `delta`, for each axis. Source: GEMS, eq. (2) and (4).
        """
        if self.kind == "ball":
            return Hinges(spaces.centres, np.ones((1, 1)), spaces.radii)
        radii = np.maximum(spaces.radii, self.delta)[:, None] * spaces.shapes
        return Hinges(spaces.centres, 1 / radii, np.ones(len(radii)))

    def descend(self, spaces: Spaces) -> tuple[Array, int]:
        """Minimise the distance outside `spaces` from the mean of centres: (last point, steps)."""
        hinges = self.printed(spaces)
        if self.as_published and self.kind == "ball":
            # a mistake that equation (2) does not have: sum_k max(0, |c_k (w - c_k)| - r_k)
            hinges = hinges._replace(scales=np.abs(spaces.centres))
        return hinges.descended(spaces.mean, *DESCENTS[self.kind])


@dataclass
class GoodEnough:
    """The spaces around J clients' models: balls where models[j].shape is (1, 1), else ellipsoids.

    rngs: the clients' random keys. search: how radii are searched. draws: "shared" directions for
    every radius, or "fresh" ones. radii: "drawn", tested on random models, or "proven" by margins
    of logits. known: a cache, empty at first, by client, accuracy.
    """

    models: Sequence[Softmax]
    rngs: Sequence[RngKey]
    search: Bisection
    draws: str
    radii: str = "drawn"
    known: dict[tuple[int, float], Radius] = field(default_factory=dict)

    @cached_property
    def shared(self) -> list[RightWithin]:
        """Find at which distances each client's examples are right, in directions drawn once."""
        return [
            model.right_within(rng.stream(DIRECTIONS), self.search.points)
            for model, rng in zip(self.models, self.rngs, strict=True)
        ]

    def radius(self, client: int, accuracy: float) -> Radius:
        key = client, accuracy
        if key not in self.known:
            self.known[key] = self._searched(client, accuracy)
        return self.known[key]

    def _searched(self, client: int, accuracy: float) -> Radius:
        model, rng = self.models[client], self.rngs[client].stream(DIRECTIONS)
        if model.accuracy_of(model.centre) < accuracy:
            return Radius(0.0, empty=True)
        if self.radii == "proven":
            return Radius(model.proven_radius(accuracy))

        def good_enough(radius: float) -> bool:
            shared, points = self.draws == "shared", self.search.points
            # fresh directions are drawn until one fails
            parts = [self.shared[client]] if shared else model.blocks(rng, points, FIRST)
            return all((part.accuracies(radius) >= accuracy).all() for part in parts)

        return bisected(good_enough, self.search)

    def common(
        self, accuracies: Sequence[float], search: Intersecting
    ) -> tuple[Array, dict[str, float]]:
        """Search for a model (D + 1, K) with accuracies[j] at client j; return it and its METRICS.

        The result is the point where `search` ends (see `Intersecting`), even outside of some
        space. Metric "common_point" is 1 if the spaces meet, 0 if they do not, NaN if unproven.
        """
        radii = [self.radius(j, accuracy) for j, accuracy in enumerate(accuracies)]
        spaces = Spaces(
            np.stack([model.centre.reshape(-1) for model in self.models]).astype(np.float64),
            np.array([radius.value for radius in radii]),
            np.stack([model.shape.reshape(-1) for model in self.models]).astype(np.float64),
            np.array([radius.empty for radius in radii]),
        )
        (reached, steps), proof = search.descend(spaces), certified(spaces)
        point = reached if search.point == "descent" else proof.point
        common_model = point.reshape(self.models[0].centre.shape)
        own = [model.accuracy_of(common_model) for model in self.models]
        diagnostics = {
            "common_point": np.nan if proof.meet is None else float(proof.meet),
            "empty_spaces": float(spaces.empty.sum()),
            "objective": search.printed(spaces).value(point),
            "descent_steps": float(steps),
            "start_inside": float(spaces.holds(spaces.mean)),
            "radius": float(spaces.radii.mean()),
            "reach": proof.largest,
            "capped_spaces": float(sum(radius.capped for radius in radii)),
            "clients_met": float(np.greater_equal(own, accuracies).sum()),
        }
        diagnostics |= dict(zip(OF_CLIENTS, own, strict=False))
        diagnostics |= dict(zip(RADII, spaces.radii.tolist(), strict=False))
        return common_model, diagnostics

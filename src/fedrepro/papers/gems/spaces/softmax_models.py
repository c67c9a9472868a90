"""Good-enough spaces of softmax models: every model in one predicts a number of examples right.

A model is moved from its centre along a direction; its logits are linear in how far. So an example
is predicted right between two distances, which are found once and serve every radius and every
accuracy that is asked for; radii are found by bisection. A model is (D + 1, K), weights and, in the
last row, biases. Ellipsoids have relative radii from Fisher information. Source: Model Aggregation
via Good-Enough Model Spaces (GEMS), algorithm 2 and appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Bisection:
    """Options of a search: radii up to r_max, to within delta, by `points` on each surface."""

    r_max: float = 4000.0
    delta: float = 0.01
    points: int = 500


@dataclass(frozen=True)
class Radius:
    """Result of a search: the tested side of the last interval.

    `empty`: the centre itself is not good enough, so no space exists. `capped`: every surface up to
    r_max was good enough, so the true radius is not smaller.
    """

    value: float
    empty: bool = False
    capped: bool = False


EMPTY = Radius(0.0, empty=True)


def bisected(good_enough: Callable[[float], bool], search: Bisection) -> Radius:
    """Find the largest radius that was tested and found good enough. Source: GEMS, Algorithm 2.

    good_enough(R) says whether all points drawn from the surface of radius R pass Q. The text does
    not say which end of the last interval it returns; this is the lower one, which passed.
    """
    low, high = 0.0, search.r_max
    while high - low > search.delta:
        middle = (low + high) / 2
        if not low < middle < high:  # closer than numbers are
            break
        if good_enough(middle):
            low = middle
        else:
            high = middle
    return Radius(low, capped=high == search.r_max)


BLOCK_FLOATS = 2**23  # of directions, or of logits, at a time
FLOOR = 1e-5  # added to Fisher information, as in the authors' code: inputs of 0 have none
FIRST = 50  # directions of a fresh draw before the next: most surfaces that fail, fail by these


@dataclass(frozen=True)
class Softmax:
    """A model and the examples that it is judged by.

    inputs: float32 (n, D); labels: int64 (n,); centre: float32 (D + 1, K). shape: float32
    (D + 1, K), relative radii of an ellipsoid, or (1, 1), ones for a ball.
    """

    inputs: Floats
    labels: np.ndarray
    centre: Floats
    shape: Floats

    @cached_property
    def with_ones(self) -> Floats:
        """Inputs with a last column of ones for the biases: (n, D + 1)."""
        ones = np.ones((len(self.inputs), 1), np.float32)
        return np.hstack([self.inputs, ones]).astype(np.float32, copy=False)

    @cached_property
    def logits(self) -> Floats:
        """Of the centre: (n, K)."""
        logits: Floats = self.with_ones @ self.centre
        return logits

    @property
    def accuracy(self) -> float:
        """Of the centre."""
        return float((self.logits.argmax(axis=1) == self.labels).mean())

    def accuracy_at(self, point: np.ndarray) -> float:
        """Return the accuracy of another model, (D + 1, K), on these examples."""
        logits = self.with_ones @ point.astype(np.float32)
        return float((logits.argmax(axis=1) == self.labels).mean())


@dataclass(frozen=True)
class RightWithin:
    """Distances between which an example is predicted right along a direction: float32 (n, p)."""

    least: Floats
    most: Floats

    def accuracies(self, distance: float) -> np.ndarray:
        """Of the model so far along each direction: float64 (p,)."""
        right = (self.least <= distance) & (distance <= self.most)
        accuracies: np.ndarray = right.mean(axis=0)
        return accuracies


def right_within(model: Softmax, rng: np.random.Generator, points: int) -> RightWithin:
    """Along directions drawn from the surface of radius 1. Source: GEMS, Algorithm 2, line 6.

    On an ellipsoid a point is shape * g / |g|, with g standard normal (appendix A).
    """
    parts = list(_blocks(model, rng, points, points))
    least, most = (np.hstack([getattr(part, end) for part in parts]) for end in ("least", "most"))
    return RightWithin(least, most)


def ball(kept: RightWithin, model: Softmax, accuracy: float, search: Bisection) -> Radius:
    """Search the space of this accuracy, every radius along the same directions."""
    if model.accuracy < accuracy:
        return EMPTY
    return bisected(lambda r: bool((kept.accuracies(r) >= accuracy).all()), search)


def proven_ball(model: Softmax, accuracy: float) -> Radius:
    """Compute a radius within which every model has this accuracy, without draws.

    By Cauchy and Schwarz a model at distance R moves no logit further from another than R times |x|
    over both classes' radii, so an example stays right up to a distance of its own; the radius is
    that of the last example that has to. It is at most the true one, which may be larger
    because one model does not move all examples at once.
    """
    if model.accuracy < accuracy:
        return EMPTY
    squares = model.with_ones.astype(np.float64) ** 2
    shape = np.broadcast_to(model.shape.astype(np.float64), model.centre.shape)
    moved = squares @ shape**2  # of each logit: (n, K)
    true_class = np.arange(len(model.labels)), model.labels
    logits = model.logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        reach = (logits[true_class][:, None] - logits) / np.sqrt(moved[true_class][:, None] + moved)
    reach[true_class] = np.inf
    nearest = np.sort(reach.min(axis=1))[::-1]
    needed = max(1, int(np.ceil(accuracy * len(nearest) - 1e-9)))
    return Radius(max(0.0, float(nearest[needed - 1])))


def ball_of_fresh_draws(
    model: Softmax, rng: np.random.Generator, accuracy: float, search: Bisection
) -> Radius:
    """Search the space of this accuracy, each radius along new directions until one fails."""
    if model.accuracy < accuracy:
        return EMPTY

    def good_enough(radius: float) -> bool:
        blocks = _blocks(model, rng, search.points, FIRST)
        return all((block.accuracies(radius) >= accuracy).all() for block in blocks)

    return bisected(good_enough, search)


def _blocks(
    model: Softmax, rng: np.random.Generator, points: int, most: int
) -> Iterator[RightWithin]:
    """Draw directions in blocks of at most `most`."""
    widest = max(model.centre.size, model.logits.size)
    block = max(1, min(most, BLOCK_FLOATS // widest))
    for start in range(0, points, block):
        yield _right_within(model, _moved(model, rng, min(block, points - start)))


def _moved(model: Softmax, rng: np.random.Generator, points: int) -> Floats:
    """Return what a step of length 1 along new directions adds to the logits: (K, n, points)."""
    rows, classes = model.centre.shape
    normals = rng.standard_normal((classes, rows, points), np.float32)
    lengths = np.sqrt(np.einsum("krp,krp->p", normals, normals))
    normals *= model.shape.T[:, :, None]
    moved: Floats = model.with_ones @ normals
    moved /= lengths
    return moved


def _right_within(model: Softmax, moved: Floats) -> RightWithin:
    """Right is where no other class has a larger logit: z_k + R d_k <= z_y + R d_y for all k."""
    true_moves = moved[model.labels, np.arange(len(model.labels))]
    least = np.full(true_moves.shape, -np.inf, np.float32)
    most = np.full(true_moves.shape, np.inf, np.float32)
    margins = model.logits[np.arange(len(true_moves)), model.labels][:, None] - model.logits
    for k, other in enumerate(moved):
        slope = other - true_moves
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = margins[:, k, None] / slope
        # of a class's distance to itself, 0 / 0, fmin and fmax take no notice
        np.fmin(most, np.where(slope >= 0, ends, np.inf), out=most)
        np.fmax(least, np.where(slope < 0, ends, -np.inf), out=least)
    return RightWithin(least, most)


def information(inputs: Floats, centre: Floats, rng: np.random.Generator) -> np.ndarray:
    """Compute F_i = mean over examples of (d log p(y | x) / d w_i)^2, with y drawn from the model.

    Source: GEMS, appendix A; that y is the model's own, drawn once for each example, is the
    authors' code.

    Args:
        inputs: float32 (n, D).
        centre: float32 (D + 1, K), biases last.
        rng: draws y.

    Returns:
        float64 (D + 1, K).
    """
    x = np.hstack([inputs, np.ones((len(inputs), 1))]).astype(np.float64)
    logits = x @ centre
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = (probabilities.cumsum(axis=1) < rng.random((len(x), 1))).sum(axis=1)
    errors = np.eye(centre.shape[1])[np.minimum(labels, centre.shape[1] - 1)] - probabilities
    fisher: np.ndarray = (x**2).T @ errors**2 / len(x)
    return fisher


def relative_radii(fisher: np.ndarray, least: float) -> Floats:
    """max(min_j F_j / F_i, least): 1 for the weight that matters least. Source: GEMS, eq. (5)."""
    raised = fisher + FLOOR
    radii: Floats = np.maximum(raised.min() / raised, least).astype(np.float32)
    return radii

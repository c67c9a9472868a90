"""Find a point that lies in all good-enough spaces: by gradient descent, or with a proof (GEMS).

A space is a ball or ellipsoid of good enough models around a client's model. The spaces
{w: |(w - c_k) / s_k| <= r_k} meet if and only if the least t with

    t^2 = min_w max_k q_k(w),   q_k(w) = |(w - c_k) / (s_k r_k)|^2

is at most 1: t is the factor on all radii with which the spaces just meet. For x on the simplex

    g(x) = min_w sum_k x_k q_k(w) <= t^2,   with   w_i = sum_k x_k a_ki c_ki / sum_k x_k a_ki

where a_ki = 1 / (s_ki r_k)^2. So any w with max_k q_k <= 1 proves that the spaces meet, and any x
with g(x) > 1 that they do not. Both bounds converge to t^2; an interior point method finds x.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

GAP = 1e-10  # allowed between the bounds of t^2, relative to the larger of t^2 and 1
TOUCHING = 1e-8  # by how much of its radius a point may be outside a space that it touches
STEPS = 500  # of Newton's method at most; some dozens are usual
CENTRED = 1e-3  # a Newton decrement, in units of the barrier, at which the barrier shrinks
SHRINK = 0.1


class Spaces(NamedTuple):
    """K sets of models {w: |(w - c_k) / s_k| <= r_k}: balls, or ellipsoids along the axes.

    centres: c, (K, d). radii: r, (K,). shapes: s, (K, d), or (1, 1) for balls. empty: (K,), which
    sets contain no point at all.
    """

    centres: Array
    radii: Array
    shapes: Array = np.ones((1, 1))
    empty: npt.NDArray[np.bool_] = np.zeros(1, bool)

    @property
    def mean(self) -> Array:  # of the centres, where gradient descent starts: (d,)
        return np.asarray(self.centres.mean(axis=0))

    def distances(self, point: Array) -> Array:
        """Compute |(w - c_k) / s_k| for `point` w (d,): (K,)."""
        return np.asarray(np.linalg.norm((point - self.centres) / self.shapes, axis=1))

    def holds(self, point: Array) -> bool:
        """Return whether `point` (d,) lies in all spaces."""
        return bool((self.distances(point) <= self.radii).all() and not self.empty.any())


class Hinges(NamedTuple):
    """The objective sum_k max(0, |scale_k (w - c_k)| - margin_k), 0 where K spaces meet.

    centres: c, (K, d); scales: (K, d) or (1, 1); margins: (K,).
    """

    centres: Array
    scales: Array
    margins: Array

    def value(self, point: Array) -> float:
        lengths = np.linalg.norm(self.scales * (point - self.centres), axis=1)
        return float(np.maximum(lengths - self.margins, 0).sum())

    def descended(self, start: Array, lr: float, steps: int) -> tuple[Array, int]:
        """Descend from `start` (d,) with step size `lr` until all terms are 0.

        Returns (last point, steps taken: at most `steps`). Source: GEMS, section 3.1.
        """
        point = np.array(start, np.float64)
        for done in range(steps):
            apart = self.scales * (point - self.centres)
            lengths = np.sqrt(np.einsum("kd,kd->k", apart, apart))
            outside = lengths > self.margins
            if not outside.any():
                return point, done
            weights = np.divide(outside, lengths, out=np.zeros_like(lengths), where=lengths > 0)
            apart *= self.scales
            point -= lr * (weights @ apart)
        return point, steps


class Certificate(NamedTuple):
    """The proof that K spaces have a common point, or have none.

    meet: whether they have one; None if unproven. point: (d,), whose largest distance from a
    centre, in radii, is least; it is in all spaces if they meet. largest, smallest: bounds on t. If
    all radii are multiplied by t, the spaces just meet. weights: (K,), one for each space, summing
    to one, from which the bound `smallest` follows.
    """

    meet: bool | None
    point: Array
    largest: float
    smallest: float
    weights: Array


def certified(spaces: Spaces) -> Certificate:
    """Prove whether K spaces have a common point; find the point nearest to all centres, in radii.

    If a space has radius 0, only its centre can be the common point. Else spaces just meet if their
    radii are multiplied by some t. Newton's method finds weights x, of sum 1. They maximise a lower
    bound on t² plus tau sum_k log x_k, for ever smaller tau, until t² is known to about 1e-10.
    """
    single = np.eye(len(spaces.radii))
    if spaces.empty.any():
        return Certificate(False, spaces.mean, np.inf, np.inf, single[spaces.empty.argmax()])
    if not spaces.radii.all():
        index = int((spaces.radii == 0).argmax())
        distances = spaces.distances(spaces.centres[index])
        with np.errstate(divide="ignore", invalid="ignore"):
            t = float(np.where(distances > 0, distances / spaces.radii, 0.0).max())
        return Certificate(t <= 1 + TOUCHING, spaces.centres[index], t, t, single[index])
    squares = (1 / (spaces.radii[:, None] * spaces.shapes)) ** 2

    def at(x: Array) -> _Bounds:
        share = x[:, None] * squares
        point = (share * spaces.centres).sum(axis=0) / share.sum(axis=0)
        apart = point - spaces.centres
        values = (squares * apart**2).sum(axis=1)
        return _Bounds(x, point, apart, values, float(values.max()), float(x @ values))

    best = current = at(np.full(len(single), 1 / len(single)))
    tau = max(float(np.ptp(current.values)), GAP)
    for _ in range(STEPS):
        if current.high < best.high:
            best = current
        if current.high - current.low <= GAP * max(1.0, current.high):
            break
        ahead, gain = _newton(current, squares, tau)
        if gain < CENTRED * tau:
            tau *= SHRINK
            continue
        # halve the step until it gains what a Newton step should
        inward = float((-ahead / current.weights).max())
        step = min(1.0, 0.99 / inward) if inward > 0 else 1.0
        before = current.low + tau * np.log(current.weights).sum()
        slack = 1e-14 * abs(current.low)  # rounding
        while True:
            x = current.weights + step * ahead
            after = at(x / x.sum())
            reached = after.low + tau * np.log(after.weights).sum()
            if reached >= before + 0.1 * step * gain - slack or step < 1e-12:
                break
            step /= 2
        current = after
    high = best.high
    low = min(current.low, high)  # of equal bounds, rounding may make the lower one larger
    meet = True if high <= (1 + TOUCHING) ** 2 else False if low > 1 else None
    return Certificate(meet, best.point, high**0.5, max(low, 0.0) ** 0.5, current.weights)


class _Bounds(NamedTuple):
    """Bounds, high and low, on t², t the factor on all radii at which K spaces meet."""

    weights: Array
    point: Array
    apart: Array
    values: Array
    high: float
    low: float


def _newton(at: _Bounds, squares: Array, tau: float) -> tuple[Array, float]:
    """Compute a Newton step (K,) of the weights within the simplex, and the slope along it."""
    count = len(at.weights)
    pulls = squares * at.apart / np.sqrt((at.weights[:, None] * squares).sum(axis=0))
    system = np.zeros((count + 1, count + 1))
    system[:count, :count] = 2 * pulls @ pulls.T + np.diag(tau / at.weights**2)
    system[:count, count] = system[count, :count] = 1.0
    slope = at.values + tau / at.weights
    ahead = np.linalg.solve(system, np.append(slope, 0.0))[:count]
    return ahead, float(slope @ ahead)

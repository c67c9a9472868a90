"""Weights averaged in each client's own metric: one equation for several methods.

For each layer, with weights W_i (D, K) of client i, share p_i, symmetric A_i (D, D), G_i (K, K):

    sum_i p_i A_i W G_i = sum_i p_i A_i W_i G_i.

A_i = G_i = I is the parameter average, G_i = I is RegMean, diagonal factors are a Fisher-weighted
average, and Kronecker factors of the Fisher information FedFisher (K-FAC) and FedLPA.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

Array = np.ndarray
EXHAUSTED = 1e-12  # of what the first vector becomes: nothing new in the next one


def mean_of(weights: Array, share: Array) -> Array:
    """Compute sum_i p_i W_i: (J, …) and (J,) to (…), float64."""
    mean: Array = np.tensordot(share, weights.astype(np.float64), 1)
    return mean


def regression_mean(weights: Array, inputs: Array, share: Array, ridge: float = 0.0) -> Array:
    """Solve W = (sum_i p_i A_i + λ I)⁻¹ (sum_i p_i A_i W_i + λ W̄), W̄ = sum_i p_i W_i: (D, K).

    If each W_i is the least-squares solution of client i, p_i its share of examples and A_i its
    mean of x xᵀ, this is the pooled one; if the sum is singular, the solution nearest to W̄.
    `weights` is (J, D, K), `inputs` A_i (J, D, D), λ is `ridge` times the diagonal's mean. float64.
    """
    start = mean_of(weights, share)
    whole = mean_of(inputs, share)
    apart = [p * a @ (w - start) for p, a, w in zip(share, _double(inputs), weights, strict=True)]
    whole[np.diag_indices_from(whole)] += ridge * np.trace(whole) / len(whole)
    solution: Array = start + _solved(whole, np.sum(apart, axis=0))
    return solution


def _solved(matrix: Array, wanted: Array) -> Array:
    """Solve a symmetric system; return the shortest of several solutions."""
    if not (np.isfinite(matrix).all() and np.isfinite(wanted).all()):
        return np.full_like(wanted, np.nan)
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True)
        solution: Array = scipy.linalg.cho_solve(factor, wanted)
    except np.linalg.LinAlgError:
        solution = np.linalg.pinv(matrix, hermitian=True) @ wanted
    return solution


def kronecker_mean(
    weights: Array,
    inputs: Array,
    errors: Array,
    share: Array,
    steps: int = 1000,
    tolerance: float = 1e-10,
) -> tuple[Array, float]:
    """Solve this module's equation for W by conjugate gradients from W̄: float64 (D, K).

    Returns W and the final residual as a share of the first one, which ends below `tolerance` or
    after `steps`. The sum's null space stays at W̄. `weights` is (J, D, K), `inputs` A_i (J, D, D),
    `errors` G_i (J, K, K).
    """
    start, a, g = mean_of(weights, share), _double(inputs), _double(errors)
    residual = sum(
        p * (left @ (w - start) @ right)
        for p, w, left, right in zip(share, weights, a, g, strict=True)
    )
    applied = applied_of(a, g, share)
    return conjugate_gradients(applied, start, np.asarray(residual), steps, tolerance)


def expectation_mean(inputs: Array, errors: Array, pull: Array, share: Array) -> Array:
    """Compute (sum_i p_i A_i)⁻¹ pull (sum_i p_i G_i)⁻¹ from pull = sum_i p_i A_i W_i G_i: (D, K).

    It solves this module's equation if either factor is equal for all clients. Shapes are those of
    `kronecker_mean`; float64.
    """
    left = _solved(mean_of(inputs, share), pull)
    solution: Array = _solved(mean_of(errors, share), left.T).T
    return solution


def plain_descent(
    applied: Callable[[Array], Array], start: Array, pull: Array, steps: int, basis: int = 400
) -> Array:
    """Take steps of length 1 down the mean squared entry of applied(W) - pull, applied symmetric.

    All at once: of the residual r at the start and c = 2 / entries they add φ(applied) r, with
    φ(λ) = (1 - (1 - c λ²)^steps) / λ, which is taken in the space of r, applied(r), … by Lanczos'
    method with `basis` vectors at most. Where c λ² is above 2 for some λ, steps lead away.
    """
    residual = pull - applied(start)
    length = float(np.linalg.norm(residual))
    if not (steps and length):
        return start.copy()
    space = np.empty((min(basis, start.size) + 1, start.size))
    space[0], diagonal, off_diagonal = residual.reshape(-1) / length, [], []
    for index, vector in enumerate(space[:-1]):
        turned = applied(vector.reshape(start.shape)).reshape(-1)
        diagonal.append(float(turned @ vector))
        for _ in range(2):  # once is not enough for rounding
            turned -= (space[: index + 1] @ turned) @ space[: index + 1]
        off_diagonal.append(float(np.linalg.norm(turned)))
        if not off_diagonal[-1] > EXHAUSTED * abs(diagonal[0]):
            break
        space[index + 1] = turned / off_diagonal[-1]
    if not np.isfinite([*diagonal, *off_diagonal]).all():
        return np.full_like(start, np.nan)
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal[: len(diagonal) - 1])
    values = np.maximum(values, EXHAUSTED * abs(diagonal[0]))
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (1 - (1 - 2 / start.size * values**2) ** steps) / values
        along = vectors @ (moved * vectors[0]) * length
        weights: Array = start + (along @ space[: len(along)]).reshape(start.shape)
    return weights


def applied_of(inputs: Array, errors: Array, share: Array) -> Callable[[Array], Array]:
    """Return the function that maps W to sum_i p_i A_i W G_i; shapes as of `kronecker_mean`."""
    a, g = _double(inputs), _double(errors)

    def applied(value: Array) -> Array:
        parts = (p * (left @ value @ right) for p, left, right in zip(share, a, g, strict=True))
        return np.asarray(sum(parts))

    return applied


def conjugate_gradients(
    applied: Callable[[Array], Array],
    start: Array,
    residual: Array,
    steps: int,
    tolerance: float,
) -> tuple[Array, float]:
    """Solve a symmetric semi-definite system, applied(x) = its right side, from `start`.

    Returns the solution and the final residual's length as a share of the first one's. `residual`
    is that of the start, of any shape.
    """
    x, direction = start.copy(), residual.copy()
    first = square = float((residual * residual).sum())
    for _ in range(steps):
        if not square > tolerance**2 * first:
            break
        turned = applied(direction)
        along = float((direction * turned).sum())
        if not along > 0:  # a direction that nobody has an opinion on, up to rounding
            break
        x += square / along * direction
        residual = residual - square / along * turned
        before, square = square, float((residual * residual).sum())
        direction = residual + square / before * direction
    return x, float(np.sqrt(square / first)) if first > 0 else 0.0


def _double(values: Array) -> Array:
    return values.astype(np.float64)

"""Weights averaged in a metric that each client has of its own: one equation for several methods.

Of each layer, with weights W_i (D, K) of client i, share p_i, and symmetric A_i (D, D), G_i (K, K):

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
    """sum_i p_i W_i: (J, …) and (J,) to (…), float64."""
    mean: Array = np.tensordot(share, weights.astype(np.float64), 1)
    return mean


def regression_mean(weights: Array, inputs: Array, share: Array, ridge: float = 0.0) -> Array:
    """W = (sum_i p_i A_i + λ I)⁻¹ (sum_i p_i A_i W_i + λ W̄), W̄ = sum_i p_i W_i: float64 (D, K).

    weights: (J, D, K); inputs: A_i (J, D, D); λ = ridge times the mean of the diagonal. Where the
    sum is singular even so, the solution that is nearest to W̄. The pooled least-squares solution,
    where each W_i is that of client i, p_i its share of examples and A_i the mean of x xᵀ.
    """
    start = mean_of(weights, share)
    whole = mean_of(inputs, share)
    apart = [p * a @ (w - start) for p, a, w in zip(share, _double(inputs), weights, strict=True)]
    whole[np.diag_indices_from(whole)] += ridge * np.trace(whole) / len(whole)
    solution: Array = start + _solved(whole, np.sum(apart, axis=0))
    return solution


def _solved(matrix: Array, wanted: Array) -> Array:
    """The solution of a symmetric system, or its shortest one where there are several."""
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
    """The W of this module's equation by conjugate gradients from W̄: float64 (D, K).

    weights: (J, D, K); inputs: A_i (J, D, D); errors: G_i (J, K, K). Ends after so many steps, or
    when the residual is below `tolerance` of what it was; what is left of it is told. What no
    client has an opinion on, the null space of the sum, stays at W̄.
    """
    start, a, g = mean_of(weights, share), _double(inputs), _double(errors)
    residual = sum(
        p * (left @ (w - start) @ right)
        for p, w, left, right in zip(share, weights, a, g, strict=True)
    )
    applied = applied_of(a, g, share)
    return conjugate_gradients(applied, start, np.asarray(residual), steps, tolerance)


def expectation_mean(inputs: Array, errors: Array, pull: Array, share: Array) -> Array:
    """(sum_i p_i A_i)⁻¹ (sum_i p_i A_i W_i G_i) (sum_i p_i G_i)⁻¹: float64 (D, K).

    pull: the sum in the middle; shapes as of `kronecker_mean`. It solves this module's equation
    where either factor is that of all clients.
    """
    left = _solved(mean_of(inputs, share), pull)
    solution: Array = _solved(mean_of(errors, share), left.T).T
    return solution


def plain_descent(
    applied: Callable[[Array], Array], start: Array, pull: Array, steps: int, basis: int = 400
) -> Array:
    """Steps of length 1 down the mean squared entry of applied(W) - pull, applied symmetric.

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
    """The function W to sum_i p_i A_i W G_i; shapes as of `kronecker_mean`."""
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
    """The solution of a symmetric semi-definite system from a start, and what of it is not solved.

    applied(x): the system times x; residual: of the start, of any shape. The second is the length
    of the residual as a share of what it was.
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

"""Relative radii of an ellipsoid from Fisher information (GEMS, appendix A)."""

from __future__ import annotations

import numpy as np

from fedrepro.papers.gems.spaces.search import Floats

FLOOR = 1e-5  # added to all, as in the authors' code: inputs that are always 0 have none


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

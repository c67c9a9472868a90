"""Inputs of another data set, without labels."""

from __future__ import annotations

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.data.prepared import Prepared

MOST = 10_000  # that are handed over


def unlabelled(other: Prepared, shape: tuple[int, ...], who: str, rng: RngKey) -> np.ndarray:
    """Draw training inputs of a data set, float32 (n, D), once a trial: at most 10,000.

    Raises:
        FedreproError: For inputs of another shape than networks take.
    """
    if other.shape != shape:
        raise FedreproError(
            f"{who}: examples of '{other.token}' have the shape {_text(other.shape)}, and the "
            f"networks take {_text(shape)}: name a data set of that shape as public_data"
        )
    count = len(other.labels("train"))
    rows = rng.stream("public-inputs").permutation(count)[:MOST]
    return other.inputs("train", np.sort(rows))


def _text(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))

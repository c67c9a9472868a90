"""Task vectors: what training added to a start that all share."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def ties_merge(vectors: Array, keep: float) -> Array:
    """Average task vectors (J, n) over those that agree with the elected sign: (n,).

    Of each vector the largest `keep` of its entries count, by magnitude, and at least one. The sign
    of a coordinate is that of the sum of what is kept; 0 where nobody keeps it. Source: TIES,
    section 4 (trim, elect sign, disjoint merge).
    """
    count = max(1, round(keep * vectors.shape[1]))
    sizes = np.abs(vectors)
    threshold = np.partition(sizes, -count, axis=1)[:, -count, None]
    kept = np.where(sizes >= threshold, vectors, 0.0)
    agree = (np.sign(kept) == np.sign(kept.sum(axis=0))) & (kept != 0)
    mean: Array = (kept * agree).sum(axis=0) / np.maximum(agree.sum(axis=0), 1)
    return mean

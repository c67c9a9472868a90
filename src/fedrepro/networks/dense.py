"""Fully connected networks as plain arrays; tensors have a leading dimension of networks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedrepro.core.registry import components
from fedrepro.core.spec import Spec


def dense_spec(hidden: tuple[int, ...]) -> Spec:
    """Return the spec of a fully connected network with these hidden widths (none: logistic)."""
    if not hidden:
        return components("model")["logistic"].spec()
    return components("model")["mlp"].spec({"hidden": list(hidden)})


def widths(tensors: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """Return hidden widths, from the tensors (leading dimension: networks)."""
    layers = sum(name.startswith("weight") for name in tensors)
    return tuple(tensors[f"weight{layer}"].shape[2] for layer in range(layers - 1))

"""Weights as they are given."""

from __future__ import annotations

from typing import Annotated

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg


@register("graph", "matrix", version=1, title="given")
def matrix(
    clients: int,
    rng: RngKey,
    *,
    rows: Annotated[
        tuple[str, ...],
        Arg("for each node what it makes of every node, joined by _, such as 0.25_0.75"),
    ],
) -> list[list[float]]:
    """Row i says how much node i makes of what it hears from each node. Source: P2P, section 5."""
    return [_row(text) for text in rows]


def _row(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split("_")]
    except ValueError:
        raise FedreproError(
            f"graph 'matrix': the row '{text}' is not of the form 0.25_0.75: numbers joined by _"
        ) from None

"""Graphs whose mixing weights the user gives, in the configuration (P2P, section 5) or a file.

Entry (i, j) of the weights, (N, N) for N nodes, is the weight of what node i receives from node j.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.mixing_matrices import checksum_of_graph, read_graph


@register("graph", "matrix", version=1, title="given")
def matrix(
    clients: int,
    rng: RngKey,
    *,
    rows: Annotated[
        tuple[str, ...],
        Arg("for each node its weights of all nodes, joined by _, such as 0.25_0.75"),
    ],
) -> list[list[float]]:
    """Return mixing weights (N, N) from texts `rows`, one for each node; nothing is drawn."""
    return [_row(text) for text in rows]


def _row(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split("_")]
    except ValueError:
        raise FedreproError(
            f"graph 'matrix': the row '{text}' is not of the form 0.25_0.75: numbers joined by _"
        ) from None


FOLDER = Path("config/graphs")


@register(
    "graph",
    "file",
    version=1,
    title="given",
    reads=lambda values: checksum_of_graph(FOLDER / f"{values['csv']}.csv"),
)
def file(
    clients: int,
    rng: RngKey,
    *,
    csv: Annotated[str, Arg("name of the file in config/graphs, without .csv")],
) -> list[list[float]]:
    """Read mixing weights (N, N) from `config/graphs/<csv>.csv`: a comma-separated line per node.

    After a change of the file, results are computed again.
    """
    return read_graph(FOLDER / f"{csv}.csv")

"""Weights from a file of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.graphs import checksum_of_graph, read_graph

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
    """Read the matrix of `config/graphs/<csv>.csv`: a line for each node, joined by commas.

    A run depends on the content of the file.
    """
    return read_graph(FOLDER / f"{csv}.csv")

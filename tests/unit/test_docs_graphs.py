"""docs/graphs.md: its numbers are those of the graphs, and its example works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fedrepro.core import registry
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.training.graphs import mixing_sum, second_modulus, weights_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "graphs.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| .*? \| (\d+) \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.M)


def test_every_graph_is_on_the_page():
    named = {token.partition("+")[0] for token in re.findall(r"`([\w+~@.-]+)`", PAGE)}
    assert set(components("graph")) <= named


@pytest.mark.parametrize(("token", "edges", "modulus", "total"), ROWS)
def test_numbers_of_the_page_are_those_of_the_graphs(token, edges, modulus, total):
    weights = weights_of(parse_token("graph", token), 16, RngKey(0))
    assert int((weights > 0).sum()) - 16 == int(edges)
    assert second_modulus(weights) == pytest.approx(float(modulus), abs=5e-5)
    assert mixing_sum(weights) == pytest.approx(float(total), rel=5e-4, abs=1e-9)


def test_the_drawings_of_the_page_are_there():
    shown = re.findall(r"!\[.+\]\((figures/graph-[\w.-]+)\)", PAGE)
    assert len(shown) == 3
    assert all(0 < (DOCS / name).stat().st_size < 200_000 for name in shown)


def test_the_graph_that_the_page_adds_works():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    components("graph")
    try:
        exec(code, {"__name__": __name__})
        weights = weights_of(parse_token("graph", "wheel"), 6, RngKey(0))
    finally:
        del registry._found["graph"]["wheel"]
    assert np.allclose(weights.sum(1), 1)
    assert ((weights > 0).sum(1) - 1).tolist() == [5, 3, 3, 3, 3, 3]

"""Graphs: what every one has to be, what is known of some, what is refused, and their page."""

from __future__ import annotations

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.core import registry
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.training import mixing_matrices as mixing

GRAPHS = components("graph")
SHAPES = [name for name in GRAPHS if "weights" in GRAPHS[name].params]
GIVEN = {
    "matrix": {"rows": ["0.9_0.1_0", "0_0.5_0.5", "0.25_0.25_0.5"]},
    "file": {"csv": "one-way"},
}
SIZES = {"matrix": [3], "file": [4]}
PAPER = {
    "0.9_0.1@0.6_0.4": ([6 / 7, 1 / 7], 0.3, 72 / 98),
    "0.25_0.75@0.75_0.25": ([0.5, 0.5], 0.5, 1.0),
    "0.45_0.55@0.70_0.30": ([0.56, 0.44], 0.25, 1.12 / 3),
}


def made(token: str, clients: int, trial: int = 0) -> np.ndarray:
    return mixing.weights_of(parse_token("graph", token), clients, RngKey(0, trial))


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_is_stochastic_connected_aperiodic_and_repeats_itself(name):
    spec = GRAPHS[name].spec(GIVEN.get(name, {}))
    for clients in SIZES.get(name, [1, 2, 3, 5, 8, 16, 30]):
        weights, again = (mixing.weights_of(spec, clients, RngKey(0)) for _ in "ab")
        assert (weights.shape, weights.dtype) == ((clients, clients), np.float64)
        assert (weights >= 0).all()
        assert np.allclose(weights.sum(1), 1, atol=1e-15)
        graph = nx.from_numpy_array(weights, create_using=nx.DiGraph)
        assert nx.is_strongly_connected(graph)
        assert nx.is_aperiodic(graph)
        assert np.array_equal(weights, again)
    if GRAPHS[name].meta.get("random"):
        assert not np.array_equal(made(name, 16, trial=0), made(name, 16, trial=1))


@pytest.mark.parametrize("name", SHAPES)
def test_metropolis_weights_count_all_nodes_alike_and_uniform_ones_by_how_many_they_hear(name):
    """In the long run."""
    for weights in (made(name, clients) for clients in (2, 9, 16)):
        assert np.allclose(weights, weights.T)
        assert np.allclose(mixing.stationary(weights), 1 / len(weights))
    weights = made(f"{name}+weights~uniform", 12)
    heard = (weights > 0).sum(1)
    assert np.allclose(weights[weights > 0], (1 / heard).repeat(heard))
    assert np.allclose(mixing.stationary(weights), heard / heard.sum())


@pytest.mark.parametrize("rows", PAPER)
def test_the_papers_matrices_have_the_values_of_the_spec(rows):
    """Second moduli by hand, and S_W 0.73, 1.00 and 0.37."""
    limit, modulus, total = PAPER[rows]
    weights = made(f"matrix+rows~{rows}", 2)
    assert np.allclose(mixing.stationary(weights), limit, atol=1e-15)
    assert mixing.second_modulus(weights) == pytest.approx(modulus, abs=1e-12)
    assert mixing.mixing_sum(weights) == pytest.approx(total, rel=1e-9)


def test_complete_graphs_long_rings_and_biased_walks_mix_as_is_known():
    """The modulus of a ring is 1/3 + 2/3 cos(2 pi / N)."""
    weights = made("complete", 16)
    assert np.allclose(weights, 1 / 16)
    assert max(mixing.second_modulus(weights), mixing.mixing_sum(weights)) < 1e-12
    weights = made("ring", 64)
    assert mixing.second_modulus(weights) == pytest.approx(
        (1 + 2 * np.cos(2 * np.pi / 64)) / 3, rel=1e-12
    )
    assert np.allclose(mixing.stationary(weights), 1 / 64, atol=1e-13)
    ratio = mixing.mixing_sum(made("ring", 80)) / mixing.mixing_sum(made("ring", 40))
    assert ratio == pytest.approx(4, rel=1e-2)
    # N = 64, .9 / .1: S_W is 153, and 4 log N / (1 - modulus) far below.
    weights = np.diag(np.full(63, 0.1), -1) + np.diag(np.full(63, 0.9), 1)
    weights[0, 0], weights[63, 63] = 0.1, 0.9
    assert mixing.mixing_sum(weights) == pytest.approx(153, abs=0.5)
    assert mixing.second_modulus(weights) == pytest.approx(0.6 * np.cos(np.pi / 64), rel=1e-3)


def test_shapes_are_those_of_their_names():
    def degrees(token):
        return ((made(token, 9) > 0).sum(1) - 1).tolist()

    assert degrees("complete") == [8] * 9
    assert degrees("ring") == [2] * 9
    assert degrees("star") == [8] + [1] * 8
    assert degrees("grid") == [2, 3, 2, 3, 4, 3, 2, 3, 2]
    assert degrees("grid+torus~true") == [4] * 9
    assert sum(degrees("small_world")) == 9 * 4
    assert (made("grid", 8)[0] > 0).nonzero()[0].tolist() == [0, 1, 4]


@st.composite
def matrices(draw):
    """Stochastic matrices, of any connectivity and period."""
    size = draw(st.integers(1, 7))
    whole = st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any)
    rows = np.array([draw(whole) for _ in range(size)], float)
    return rows / rows.sum(1, keepdims=True)


@given(matrices())
def test_checks_agree_with_networkx_and_the_mixing_sum_is_what_powers_add_up_to(weights):
    graph = nx.from_numpy_array(weights, create_using=nx.DiGraph)
    connected = nx.is_strongly_connected(graph)
    if not (connected and nx.is_aperiodic(graph)):
        with pytest.raises(FedreproError, match="periodic" if connected else "not strongly"):
            mixing.checked_weights(weights, "W", len(weights))
        return
    found = mixing.checked_weights(weights, "W", len(weights))
    limit = mixing.stationary(found)
    assert np.allclose(limit @ found, limit)
    assert (limit > -1e-12).all()
    assert mixing.second_modulus(found) < 1
    assert np.allclose(np.linalg.matrix_power(found, 4096), limit, atol=1e-6)
    if mixing.second_modulus(found) < 0.98:
        power, total = found, np.abs(found - limit).sum(1)
        for _ in range(2000):
            power = power @ found
            total += np.abs(power - limit).sum(1)
        assert mixing.mixing_sum(found) == pytest.approx(total.max(), rel=1e-6, abs=1e-9)


def test_sums_over_neighbours_are_those_of_the_matrix():
    values = (
        np.random.default_rng(0).standard_normal((4, 3, mixing.COLUMNS // 2 + 1)).astype(np.float32)
    )
    weights = made("file+csv~one-way", 4)
    found = mixing.mixed(weights, values)
    assert found.dtype == np.float32
    assert np.allclose(found, np.einsum("ij,jab->iab", weights, values.astype(float)), atol=1e-6)
    same = np.broadcast_to(values[:1], values.shape)
    assert np.array_equal(mixing.mixed(weights, same), same)


@pytest.mark.parametrize(
    ("token", "clients", "sentence"),
    [
        ("matrix+rows~0.5_0.5@1", 2, "not square: it has 2 rows, and that of node 1 has 1 numbers"),
        ("matrix+rows~1.5_-0.5@0.5_0.5", 2, r"weight -0.5 in the row of node 0, column 1"),
        ("matrix+rows~nan_0.5@0.5_0.5", 2, "weight nan in the row of node 0"),
        ("matrix+rows~0.5_0.4@0.5_0.5", 2, "the row of node 0 sums to 0.9, and rows sum to 1"),
        ("matrix+rows~0.5_0.5@0_1", 2, "not strongly connected: nothing of node 0 reaches node 1"),
        ("matrix+rows~1_0@0.5_0.5", 2, "not strongly connected: nothing of node 1 reaches node 0"),
        ("matrix+rows~0_1_0@0_0_1@1_0_0", 3, "periodic, .*: add self-loops"),
        ("ring+self_loops~false", 4, "periodic"),
        ("matrix+rows~0.5_0.5@0.5_0.5", 3, "for 2 nodes, and there are 3 clients"),
        ("matrix+rows~a_b", 1, "the row 'a_b' is not of the form 0.25_0.75"),
        ("file+csv~nowhere", 4, "graphs/nowhere.csv .* not found"),
        ("small_world+neighbours~3", 8, "3 neighbours .*; give an even number"),
    ],
)
def test_a_graph_that_does_not_fit_is_one_sentence(token, clients, sentence):
    with pytest.raises(FedreproError, match=sentence) as caught:
        made(token, clients)
    assert "\n" not in str(caught.value)


def test_a_graph_that_no_draw_connects_is_refused(monkeypatch):
    monkeypatch.setattr("fedrepro.components.graphs.shapes.MOST_DRAWS", 1)
    with pytest.raises(FedreproError, match="not connected in 1 draws; raise its neighbours"):
        made("small_world+neighbours~2+rewired~1", 400)


def test_a_garbled_file_is_one_sentence_and_a_good_one_is_part_of_what_a_run_depends_on(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    mine = Path("config/graphs/mine.csv")
    mine.parent.mkdir(parents=True)
    for content, sentence in (
        (b"", "no data"),
        (b"0.5,0.5\n0.5,\n", "could not convert string '' to float64 at row 1"),
        (b"0.5,0.5\n0.5;0.5\n", "columns changed from 2 to 1 at row 2"),
        (b"\xff\xfe\x00", "decode byte 0xff"),
    ):
        mine.write_bytes(content)
        with pytest.raises(FedreproError, match=sentence):
            made("file+csv~mine", 2)
    spec, found = parse_token("graph", "file+csv~mine"), set()
    for rows in ("0.5,0.5\n0.5,0.5\n", "0.5,0.5\n0.25,0.75\n"):
        mine.write_text(rows)
        found.add(spec.resolved)
    assert (len(found), spec.token) == (2, "file+csv~mine")


DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "graphs.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| .*? \| (\d+) \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.M)


def test_every_graph_is_on_the_page_with_drawings():
    named = {token.partition("+")[0] for token in re.findall(r"`([\w+~@.-]+)`", PAGE)}
    assert set(GRAPHS) <= named
    shown = re.findall(r"!\[.+\]\((figures/graph-[\w.-]+)\)", PAGE)
    assert len(shown) == 3
    assert all(0 < (DOCS / name).stat().st_size < 200_000 for name in shown)


@pytest.mark.parametrize(("token", "edges", "modulus", "total"), ROWS)
def test_numbers_of_the_page_are_those_of_the_graphs(token, edges, modulus, total):
    weights = mixing.weights_of(parse_token("graph", token), 16, RngKey(0))
    assert int((weights > 0).sum()) - 16 == int(edges)
    assert mixing.second_modulus(weights) == pytest.approx(float(modulus), abs=5e-5)
    assert mixing.mixing_sum(weights) == pytest.approx(float(total), rel=5e-4, abs=1e-9)


def test_the_graph_that_the_page_adds_works():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    components("graph")
    try:
        exec(code, {"__name__": __name__})
        weights = mixing.weights_of(parse_token("graph", "wheel"), 6, RngKey(0))
    finally:
        del registry._found["graph"]["wheel"]
    assert np.allclose(weights.sum(1), 1)
    assert ((weights > 0).sum(1) - 1).tolist() == [5, 3, 3, 3, 3, 3]

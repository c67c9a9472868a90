"""Drawings of graphs: legible, repeatable, with words; the command, the stage, the page."""

from __future__ import annotations

import numpy as np
import pytest
from small_exhibits import file_of
from test_pages import Nesting

from fedrepro.cli.main import main
from fedrepro.core.artifacts import read_json
from fedrepro.core.registry import parse_token
from fedrepro.drawings.canvas import rules
from fedrepro.drawings.graph_map import figure, map_of, render, words
from fedrepro.graphs.places import PLACES, rectangle
from fedrepro.planning.config import Config
from fedrepro.planning.plan import Plan
from fedrepro.site.pages import drawings_page
from fedrepro.site.reading import Reports, graphs_of
from fedrepro.stages import maps as stage

MATRIX = "matrix+rows~0.45_0.55@0.70_0.30"
GOSSIP = {"name": "gossip_sgd", "label": "gossip"}


def drawing(token: str, clients: int):
    return map_of(parse_token("graph", token), clients, 0, 0)


@pytest.mark.parametrize(
    ("token", "clients"), [(MATRIX, 2), ("ring", 1), ("grid+torus~true", 9), ("small_world", 64)]
)
def test_the_same_graph_gives_the_same_bytes_whatever_the_users_settings(token, clients):
    import matplotlib

    first = render(drawing(token, clients))
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "mine"}):
        assert render(drawing(token, clients)) == first
    assert first[".svg"].startswith(b"<?xml")
    assert first[".png"].startswith(b"\x89PNG")
    assert len(first[".svg"]) < 400_000


@pytest.mark.parametrize(
    ("token", "clients"),
    [(MATRIX, 2), ("ring", 24), ("star+weights~uniform", 16), ("grid", 25), ("complete", 64)],
)
def test_no_text_is_cut_off(token, clients):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    with rules():
        drawn = figure(drawing(token, clients))
        canvas = FigureCanvasAgg(drawn)
        canvas.draw()
        texts = [t for t in drawn.findobj(Text) if t.get_text().strip() and t.get_visible()]
        boxes = [t.get_window_extent(canvas.get_renderer()).extents for t in texts]
    left, bottom, right, top = np.array(boxes).T
    width, height = canvas.get_width_height()
    assert min(left.min(), bottom.min()) >= 0
    assert right.max() <= width
    assert top.max() <= height


def shapes(token: str, clients: int) -> list[str]:
    """What the left panel is drawn with, discs and numbers aside."""
    with rules():
        axes = figure(drawing(token, clients)).axes[0]
    return [type(patch).__name__ for patch in axes.patches]


def test_unlike_weights_are_two_arrows_and_equal_ones_a_line():
    assert shapes(MATRIX, 2) == ["FancyArrowPatch"] * 2
    assert shapes("ring", 6) == ["PathPatch"] * 6


def test_an_edge_goes_around_nodes_that_lie_on_its_way():
    """In a torus of nine, the ends of a row are neighbours, and the middle is between them."""
    with rules():
        patches = figure(drawing("grid+torus~true", 9)).axes[0].patches
    bent = [is_bent(patch.get_path().vertices) for patch in patches]
    assert (len(bent), sum(bent)) == (18, 6)


def is_bent(points) -> bool:
    """Whether both halves of a curve of three points go different ways."""
    (x, y), (u, v) = np.diff(points, axis=0)
    return abs(x * v - y * u) > 1e-9


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("count", [1, 2, 3, 12, 17])
def test_every_node_has_a_place_of_its_own(name, count):
    places = PLACES[name](count)
    assert places.shape == (count, 2)
    assert ((places > -1e-12) & (places < 1 + 1e-12)).all()
    assert len(np.unique(places.round(9), axis=0)) == count


def test_a_rectangle_is_as_near_a_square_as_can_be():
    assert [rectangle(n) for n in (1, 2, 7, 8, 16, 24)] == [
        (1, 1), (1, 2), (1, 7), (2, 4), (4, 4), (4, 6),
    ]  # fmt: skip


def test_the_picture_has_words():
    given = drawing(MATRIX, 2)
    assert words(given.numbers) == (
        "2 directed edges; in the long run each of 2 nodes counts 0.44 to 0.56. "
        "Second modulus 0.25, S_W 0.3733."
    )
    assert given.alt.startswith("2 nodes: given. Nodes and edges, and the matrix of weights.")
    assert drawing("small_world", 8).subtitle == "small_world · seed 0, trial 0"


# --------------------------------------------------------------------------------- the command


def test_draw_graph_writes_a_picture_and_says_its_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "graph", "ring", "--clients", "5", "--out", "ring.png"]) == 0
    said = capsys.readouterr().out
    assert "10 directed edges" in said
    assert (tmp_path / "ring.png").read_bytes().startswith(b"\x89PNG")
    assert main(["draw", "graph", "star"]) == 0
    assert (tmp_path / "star--16.svg").exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["rign"], "did you mean 'ring'"),
        (["matrix"], "needs a value for its parameter 'rows'"),
        ([MATRIX, "--clients", "3"], "is for 2 nodes, and there are 3 clients"),
        (["ring", "--out", "ring.pdf"], "cannot write ring.pdf: its name must end in .svg or .png"),
    ],
)
def test_a_mistake_is_one_sentence(given, sentence, capsys):
    assert main(["draw", "graph", *given]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


# ------------------------------------------------------------------- the stage and the report


def plan_with(**settings) -> Plan:
    given = {"graph": {"name": "ring"}, "methods": [GOSSIP, {"name": "local", "label": "alone"}]}
    return Plan(Config(), {"small": file_of(**given | settings)}, "quick")


def test_the_plan_lists_graphs_that_methods_are_on():
    found = plan_with().graphs(["small/x"])
    assert {(graph.token, nodes): keys for (graph, nodes), keys in found.items()} == {
        ("ring", 2): ["small/x"],
        ("ring", 4): ["small/x"],
    }
    assert not plan_with(methods=[{"name": "local", "label": "alone"}]).graphs(["small/x"])


def test_all_graphs_are_drawn_by_one_stage_and_shown_on_the_page(tmp_path):
    out = tmp_path / "graphs"
    stage.run_graphs(plan_with(), ["small/x"], out)
    assert sorted(path.name for path in out.iterdir()) == [
        "graphs.json", "ring--2.svg", "ring--4.svg",
    ]  # fmt: skip
    shown = Nesting(drawings_page(Reports("quick", [], graphs=graphs_of(out))))
    images = shown.all("img")
    assert [image["src"] for image in images] == [
        f"shown/graphs/ring--{nodes}.svg" for nodes in (2, 4)
    ]
    assert all("Nodes and edges" in image["alt"] for image in images)
    text = " ".join(shown.text.split())
    for entry in read_json(out / "graphs.json")["graphs"]:
        assert entry["words"] in text

"""Drawings of partitions and graphs: legible, with words; the commands that draw them."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from partitioned import spec_of
from PIL import Image

from fedrepro.cli.data_and_draw_commands import draw_partition, drawn_partition
from fedrepro.cli.main import main
from fedrepro.core.registry import components, parse_token
from fedrepro.data import partitions_populations_and_holdouts as parts
from fedrepro.data.prepared import load_prepared, write_prepared
from fedrepro.drawings.lines_and_layout import rules
from fedrepro.drawings.partition_and_graph_maps import FEW, PartitionMap, graph_map, render_map
from fedrepro.planning.scenarios_runs_and_jobs import dataset_folder
from fedrepro.training.mixing_matrices import PLACES, rectangle

ROOT = Path(__file__).parents[2]


def map_with(counts, names=None, **given) -> PartitionMap:
    names = names or [str(label) for label in range(counts.shape[1])]
    return PartitionMap("Title", "subtitle", counts, names, **given)


def counts_of(clients, classes, seed=0):
    return 1 + np.random.default_rng(seed).poisson(5, (clients, classes))


MATRIX = "matrix+rows~0.45_0.55@0.70_0.30"


def drawing(token, clients):
    return graph_map(parse_token("graph", token), clients, 0, 0)


def texts_of(given):
    """Texts of a drawing with their boxes, all of which lie within it: ((n,) str, (4, n) float)."""
    with rules():
        drawn = given.figure()
        canvas = FigureCanvasAgg(drawn)
        canvas.draw()
        found = [t for t in drawn.findobj(Text) if t.get_text().strip() and t.get_visible()]
        upright = [t for t in found if t.get_rotation() in (0, 90)]
        boxes = [t.get_window_extent(canvas.get_renderer()).extents for t in upright]
    left, bottom, right, top = np.array(boxes).T
    width, height = canvas.get_width_height()
    assert min(left.min(), bottom.min()) >= 0
    assert right.max() <= width
    assert top.max() <= height
    return [text.get_text() for text in upright], (left, bottom, right, top)


DRAWINGS = {
    **{f"{n} clients": (map_with, counts_of(n, 10)) for n in (1, 40, 1000)},
    **{token: (drawing, token, n) for token, n in ((MATRIX, 2), ("ring", 1), ("small_world", 64))},
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_same_drawing_gives_the_same_bytes_whatever_the_users_settings(name):
    make, *given = DRAWINGS[name]
    first = {suffix: render_map(make(*given), suffix) for suffix in (".svg", ".png")}
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "mine"}):
        assert {suffix: render_map(make(*given), suffix) for suffix in first} == first
    assert first[".svg"].startswith(b"<?xml")
    assert len(first[".svg"]) < (200_000 if make is map_with else 400_000)
    image = Image.open(io.BytesIO(first[".png"]))
    assert image.format == "PNG"
    assert make is drawing or image.width == 1400  # as wide as a page


@pytest.mark.parametrize(
    ("clients", "classes", "names"),
    [
        (5, 7, ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]),
        (30, 10, None),
        (60, 80, [chr(32 + label) for label in range(80)]),
        (3, 3, ["\n", " ", "$x$"]),
        (1000, 10, None),
    ],
)
def test_no_text_is_cut_off_or_lies_on_another(clients, classes, names):
    for added in (None, np.linspace(0.01, 0.1, clients)):
        given = map_with(counts_of(clients, classes), names, noise=added)
        texts, (left, bottom, right, top) = texts_of(given)
        # the boxes have room around the glyphs; a pixel of it may be shared
        beside = (left[:, None] < right - 1) & (left < right[:, None] - 1)
        above = (bottom[:, None] < top - 2) & (bottom < top[:, None] - 2)
        pairs = np.argwhere(np.triu(beside & above, 1))
        assert not [(texts[i], texts[j]) for i, j in pairs]


def test_few_clients_stay_in_their_order_and_many_go_by_main_class_and_then_by_size():
    assert (map_with(counts_of(FEW, 3)).order() == np.arange(FEW)).all()
    single = np.eye(5, dtype=int)[np.arange(100) * 7 % 5] * (1 + np.arange(100)[:, None] % 9)
    order = map_with(single).order()
    assert sorted(order) == list(range(100))
    main, sizes = single[order].argmax(axis=1), single[order].sum(axis=1)
    assert (np.diff(main) >= 0).all()
    assert (np.diff(sizes)[np.diff(main) == 0] <= 0).all()


def test_a_picture_has_words_and_numbers_of_what_is_there():
    counts = map_with(np.array([[3, 0], [0, 5]]))
    assert counts.words == (
        "2 clients each hold 3 to 5 examples (median 4) of 1 class. "
        "Total variation from the whole: mean 0.500, at most 0.625."
    )
    with rules():  # a class that a client lacks has no number
        assert {t.get_text() for t in counts.figure().axes[3].texts} == {"3", "5"}
    graph = drawing(MATRIX, 2)
    assert graph.words == (
        "2 directed edges; in the long run each of 2 nodes counts 0.44 to 0.56. "
        "Second modulus 0.25, S_W 0.3733."
    )
    assert drawing("small_world", 8).subtitle == "small_world · seed 0, trial 0"


@pytest.fixture(autouse=True)
def _workplace(tmp_path, monkeypatch):
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_draw_writes_a_picture_and_says_its_numbers(capsys):
    for kind, words, said, other in (
        # a person may state a default and sort keys as they like
        ("partition", ["dirichlet+alpha~0.2+clients~5"], "each hold", "pooled"),
        ("graph", ["ring", "--clients", "5"], "10 directed edges", "star"),
    ):
        assert main(["draw", kind, *words, "--out", f"{kind}.png"]) == 0
        out = capsys.readouterr().out
        assert f"drawn: {kind}.png" in out
        assert said in out
        assert Path(f"{kind}.png").read_bytes().startswith(b"\x89PNG")
        assert main(["draw", kind, other]) == 0
        assert Path(f"{kind}.svg").exists()


def test_what_is_drawn_is_what_the_workflow_would_make():
    spec = spec_of("dirichlet", 4, min_examples=10)
    digits = components("dataset")["digits"].spec()
    write_prepared(Path("data"), digits.component.fn(Path(), **digits.values), digits, {})
    data = load_prepared("data")
    parts.write_partition("p.parquet", parts.build_partition(spec, data, range(3), 7), {})
    counts = parts.read_partition("p.parquet", 2).label_counts(data.labels("train"), 10)
    old = digits.component.fn(Path(), **digits.values | {"test": 100})  # of another version
    write_prepared(Path(dataset_folder("quick", digits)), old, digits, {})
    drawn = drawn_partition(spec, digits, 2, 7)
    assert np.array_equal(drawn.counts, counts)
    draw_partition(spec.token, "digits", 2, 7, Path("map.svg"))
    assert Path("map.svg").read_bytes() == render_map(drawn, ".svg")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["partition", "iid"], "needs a value for its parameter 'clients'"),
        (["partition", "pooled", "--data", "mnist"], "data set 'mnist' is not here"),
        (["partition", "pooled", "--trial", "-1"], "Invalid value for '--trial'"),
        *(
            ([*what, "--out", "x.pdf"], "cannot write x.pdf: its name must end in .svg or .png")
            for what in (["partition", "pooled"], ["graph", "ring"])
        ),
    ],
)
def test_a_mistake_is_one_sentence(words, sentence, capsys):
    assert main(["draw", *words]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_edges_of_a_small_graph_are_two_arrows_and_no_text_is_cut_off():
    for token, clients, arrows in ((MATRIX, 2, 2), ("ring", 6, 12), ("small_world", 64, 0)):
        with rules():
            assert len(drawing(token, clients).figure().axes[0].patches) == arrows
    for token, n in ((MATRIX, 2), ("ring", 24), ("star+weights~uniform", 16), ("complete", 64)):
        assert texts_of(drawing(token, n))


def test_an_edge_is_as_wide_as_its_weight():
    with rules():
        arrows = drawing("star+weights~uniform", 5).figure().axes[0].patches
    wide = [arrow for arrow in arrows if arrow.get_linewidth() > 2]
    assert len(wide) == 4
    assert len({tuple(arrow._posA_posB[0]) for arrow in wide}) == 1  # all from the middle


@pytest.mark.parametrize("name", PLACES)
def test_every_node_has_a_place_of_its_own(name):
    # of a rectangle the sides are as near a square's as can be
    sides = {1: (1, 1), 2: (1, 2), 7: (1, 7), 8: (2, 4), 16: (4, 4), 24: (4, 6)}
    assert {count: rectangle(count) for count in sides} == sides
    for count in (1, 2, 3, 12, 17):
        places = PLACES[name](count)
        assert places.shape == (count, 2)
        assert ((places > -1e-12) & (places < 1 + 1e-12)).all()
        assert len(np.unique(places.round(9), axis=0)) == count

"""Drawings of partitions: legible, repeatable, with words; the command, the stage, the page."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitioned import spec_of
from test_pages import Nesting

from fedrepro.cli.draw import draw_partition, partition_map
from fedrepro.cli.main import main
from fedrepro.core.artifacts import read_json
from fedrepro.core.registry import components, parse_token, read_token
from fedrepro.data.membership import build_partition, write_partition
from fedrepro.data.prepared import load_prepared, write_prepared
from fedrepro.drawings.canvas import rules
from fedrepro.drawings.partition_map import (
    ROWS_APART,
    PartitionMap,
    client_order,
    figure,
    render,
    words,
)
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.site.pages import drawings_page
from fedrepro.site.reading import Reports, maps_of
from fedrepro.stages import maps as stage

ROOT = Path(__file__).parents[2]
KEYS = ("pfnm/figure-2a", "pfnm/figure-2b")


def map_with(counts: np.ndarray, names: list[str] | None = None, **given: object) -> PartitionMap:
    names = names or [str(label) for label in range(counts.shape[1])]
    return PartitionMap("Title", "subtitle", counts, names, **given)  # type: ignore[arg-type]


def counts_of(clients: int, classes: int, seed: int = 0) -> np.ndarray:
    return 1 + np.random.default_rng(seed).poisson(5, (clients, classes))


@pytest.mark.parametrize("clients", [1, 2, 40, 41, 1000])
def test_the_same_partition_gives_the_same_bytes_whatever_the_users_settings(clients):
    import matplotlib

    given = map_with(counts_of(clients, 10))
    first = render(given)
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "mine"}):
        assert render(given) == first
    assert first[".svg"].startswith(b"<?xml")
    assert first[".png"].startswith(b"\x89PNG")
    assert len(first[".svg"]) < 200_000


@pytest.mark.parametrize(
    ("clients", "classes", "names"),
    [
        (2, 10, None),
        (5, 7, ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]),
        (30, 10, None),
        (60, 80, [chr(32 + label) for label in range(80)]),
        (3, 3, ["\n", " ", "$x$"]),
        (1000, 10, None),
    ],
)
def test_no_text_is_cut_off_or_lies_on_another(clients, classes, names):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    noise = np.linspace(0.01, 0.1, clients)
    for added in (None, noise):
        with rules():
            drawn = figure(map_with(counts_of(clients, classes), names, noise=added))
            canvas = FigureCanvasAgg(drawn)
            canvas.draw()
            renderer = canvas.get_renderer()
            texts = [t for t in drawn.findobj(Text) if t.get_text().strip() and t.get_visible()]
            upright = [t for t in texts if t.get_rotation() in (0, 90)]
            boxes = [t.get_window_extent(renderer).extents for t in upright]
        left, bottom, right, top = np.array(boxes).T
        width, height = canvas.get_width_height()
        assert min(left.min(), bottom.min()) >= 0
        assert right.max() <= width
        assert top.max() <= height
        # the boxes have room around the glyphs; a pixel of it may be shared
        beside = (left[:, None] < right - 1) & (left < right[:, None] - 1)
        above = (bottom[:, None] < top - 2) & (bottom < top[:, None] - 2)
        pairs = np.argwhere(np.triu(beside & above, 1))
        assert not [(upright[i].get_text(), upright[j].get_text()) for i, j in pairs]


@given(st.integers(1, 120), st.integers(1, 6), st.integers(0, 5))
def test_every_client_is_drawn_once_and_few_stay_in_their_own_order(clients, classes, seed):
    order, ordered = client_order(counts_of(clients, classes, seed))
    assert sorted(order) == list(range(clients))
    if clients <= ROWS_APART:
        assert (order == np.arange(clients)).all()
        assert ordered == ""


def test_many_clients_are_ordered_by_main_class_or_where_labels_are_alike_by_size():
    single = np.eye(5, dtype=int)[np.arange(100) * 7 % 5] * 9
    order, ordered = client_order(single)
    assert ordered == "by main class"
    assert (np.diff(single[order].argmax(axis=1)) >= 0).all()
    alike = np.arange(100, 0, -1)[::-1, None] * np.ones((1, 4), int)
    order, ordered = client_order(alike)
    assert ordered == "by size"
    assert (np.diff(alike[order].sum(axis=1)) <= 0).all()


def test_a_class_that_a_client_lacks_has_no_number():
    counts = np.array([[3, 0], [0, 4]])
    with rules():
        shown = {t.get_text() for t in figure(map_with(counts)).axes[0].texts}
    assert shown == {"3", "4"}


def test_the_picture_has_words():
    given = map_with(np.array([[3, 0], [0, 5]]))
    assert words(given.skew) == (
        "2 clients each hold 3 to 5 examples (median 4) of 1 class. "
        "Total variation from the whole: mean 0.500, at most 0.625."
    )
    assert given.alt.startswith("Title. Map of clients and classes. 2 clients")


# ------------------------------------------------------------------------------ the command


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_draw_partition_writes_a_picture_and_says_the_skew(workplace, capsys):
    # a person may state a default and sort keys as they like; a path may not
    token = "dirichlet+alpha~0.2+clients~5"
    assert main(["draw", "partition", token, "--out", "map.png"]) == 0
    said = capsys.readouterr().out
    assert "drawn: map.png" in said
    assert "distance from all" in said
    assert (workplace / "map.png").read_bytes().startswith(b"\x89PNG")
    assert main(["draw", "partition", "pooled"]) == 0
    assert (workplace / "digits--pooled.svg").exists()


def test_what_is_drawn_is_what_the_workflow_would_make(workplace):
    from fedrepro.data.membership import read_partition

    spec = spec_of("dirichlet", 4, min_examples=10)
    digits = components("dataset")["digits"].spec()
    write_prepared(Path("data"), digits.component.fn(Path(), **digits.values), digits, {})
    data = load_prepared("data")
    write_partition("p.parquet", build_partition(spec, data, range(3), 7), {})
    counts = read_partition("p.parquet", 2).label_counts(data.labels("train"), 10)
    assert np.array_equal(partition_map(spec, digits, 2, 7, None).counts, counts)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dirichlte"], "did you mean 'dirichlet'"),
        (["iid"], "needs a value for its parameter 'clients'"),
        (["pooled", "--out", "map.pdf"], "cannot write map.pdf: its name must end in .svg or .png"),
        (["pooled", "--dataset", "mnist"], "data set 'mnist' is not here"),
        (["one_class+clients~3"], "leave out some of the 10 classes"),
        (["pooled", "--trial", "-1"], "Invalid value for '--trial'"),
    ],
)
def test_a_mistake_is_one_sentence(workplace, words, sentence, capsys):
    assert main(["draw", "partition", *words]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_token_of_a_person_is_read_and_one_in_a_path_must_be_canonical():
    text = "dirichlet+clients~5+alpha~0.2"
    assert read_token("partition", text).token == "dirichlet+clients~5"
    with pytest.raises(Exception, match=r"not in canonical form; write 'dirichlet\+clients~5'"):
        parse_token("partition", text)


def test_the_file_is_the_drawing(workplace):
    path, skew = draw_partition("iid+clients~3", "digits", 1, 0, None, None)
    digits = components("dataset")["digits"].spec()
    drawn = partition_map(read_token("partition", "iid+clients~3"), digits, 1, 0, None)
    assert path.read_bytes() == render(drawn)[".svg"]
    assert skew["clients"] == 3


# ------------------------------------------------------------------- the stage and the report


def plan() -> Plan:
    return Plan(Config(), load_exhibits(), "tiny")


def drawn_maps(made: Plan) -> Path:
    """The stage, on partitions as the workflow makes them."""
    (block,) = made.blocks(2)
    for dataset, partition in made.partitions(KEYS):
        folder = Path(made.paths.dataset(dataset))
        if not folder.exists():
            write_prepared(folder, dataset.component.fn(Path(), **dataset.values), dataset, {})
        table = build_partition(partition, load_prepared(folder), range(2), 0)
        write_partition(made.partition_file(dataset, partition, block), table, {})
    out = Path(made.paths.partition_maps)
    stage.run(made, KEYS, out)
    return out


def test_the_plan_lists_what_exhibits_are_about_and_not_their_controls():
    found = plan().partitions([*KEYS, KEYS[0]])
    assert [(d.token, p.token) for d, p in found] == [
        ("digits", f"{name}+clients~{clients}")
        for name in ("homogeneous", "dirichlet")
        for clients in (2, 4)
    ]
    assert list(found.values()) == [[KEYS[0]], [KEYS[0]], [KEYS[1]], [KEYS[1]]]


def test_all_drawings_are_made_by_one_stage_and_shown_on_the_page(workplace):
    made = plan()
    out = drawn_maps(made)
    assert len(list(out.iterdir())) == 5
    shown = Nesting(drawings_page(Reports("tiny", [], maps=maps_of(out))))
    images = shown.all("img")
    assert len(images) == 4
    for image in images:
        assert (out.parent / image["src"].removeprefix("shown/")).exists()
        assert "Map of clients and classes" in image["alt"]
    text = " ".join(shown.text.split())
    for entry in read_json(out / "maps.json")["partitions"]:
        assert entry["words"] in text
        assert f"{entry['skew']['distance_mean']:.3f}" in text


def test_png_is_as_wide_as_a_page():
    from PIL import Image

    image = Image.open(io.BytesIO(render(map_with(counts_of(5, 10)))[".png"]))
    assert image.width == 1400

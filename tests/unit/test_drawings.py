"""Every kind of drawing: what is drawn is in the csv, and what was asked for is drawn."""

from __future__ import annotations

import itertools
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from small_exhibits import file_of, small
from synthetic import draw, plan, plausible, tables_of, workplace

from fedrepro.core.checksummed_files import read_json
from fedrepro.drawings.exhibits.accuracy import BESIDE, byte_lines, paths_of, round_lines
from fedrepro.drawings.exhibits.lines_and_heat_maps import pair_maps
from fedrepro.drawings.lines_and_layout import Line, by_case, close_up, figure, rules
from fedrepro.drawings.tables import arrangement_of, fixed_keys, html, widths_text
from fedrepro.drawings.tables import table_of as table_of_numbers
from fedrepro.numbers.tables_and_selection import csv_text, read_csv, summarise
from fedrepro.numbers.trial_statistics import as_shown
from fedrepro.planning.config_files import Config
from fedrepro.planning.plan import Plan

__all__ = ["workplace"]
pytestmark = pytest.mark.usefixtures("workplace")
ONE_OF_EACH = (
    *("figure-2b", "figure-2", "s-figure-3a", "s-figure-3b", "matching-or-size", "equal-size"),
    *("s-figure-4a", "s-figure-5a", "ensemble-readings", "wider-downpour"),
)


@cache
def csv_of(name, values, scale) -> str:
    made, key = plan(scale), f"pfnm/{name}"
    return csv_text(summarise(made.exhibit(key), tables_of(made, key, values)).numbers)


def numbers_of(name, values=plausible, scale="tiny"):
    return plan(scale).exhibit(f"pfnm/{name}"), read_csv(csv_of(name, values, scale))


def figure_of(name, values=plausible, scale="tiny") -> Figure:
    with rules():
        return figure(*numbers_of(name, values, scale))


def drawn(name) -> tuple[Figure, set[float]]:
    means = as_shown(numbers_of(name)[1])["mean"]
    return figure_of(name), {float(value) for value in means}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_drawn_number_is_in_the_csv(name):
    found, means = drawn(name)
    caps = ("_", "|")  # ends of error bars
    lines = [x for axes in found.axes for x in axes.lines if x.get_marker() not in caps]
    assert {float(y) for line in lines for y in line.get_ydata()} - {0.0, 1.0} <= means
    meshes = [mesh for axes in found.axes for mesh in axes.findobj(QuadMesh)]
    shown = {float(v) for mesh in meshes for v in mesh.get_array().ravel()}
    assert shown <= means | {100.0 * mean for mean in means}  # sizes, and accuracies in percent
    assert lines or meshes


def test_sizes_and_shares_are_the_csvs_and_against_rounds_each_measured_one():
    found, means = drawn("s-figure-2a")
    units, share = (axes.lines for axes in found.axes)
    assert {float(y) for line in units for y in line.get_ydata()} <= means
    assert len(units) == len(share) == 3  # two cases, and one line of the stack
    for line, part in zip(units, share, strict=True):
        assert list(part.get_ydata()) == pytest.approx(line.get_ydata() / units[-1].get_ydata())
    assert set(share[-1].get_ydata()) == {1.0}
    exhibit, numbers = numbers_of("s-figure-3a")
    found = round_lines(exhibit, numbers)
    assert found["D-SGD, messages averaged"].x == [1.0, 2.0, 3.0]
    level = numbers.query("method == 'U-Ens' and metric == 'accuracy'")
    assert found["U-Ens"].mean == [level["mean"].iloc[0]] * 2
    rounds = numbers.query("method == 'D-SGD, a step per message' and split == 'test'")
    assert rounds["round"].isna().sum() == 1
    methods = [{"name": "gossip_sgd", "label": "G"}]  # each message is sent and received once
    exhibit = small(graph={"name": "ring"}, methods=methods, sweep={"partition.clients": [2]})
    rows = [("accuracy", "test", 0.5), ("bytes_up", "", 1e6), ("bytes_down", "", 1e6)]
    rows = pd.DataFrame(rows, columns=["metric", "split", "mean"])
    assert byte_lines(exhibit, rows.assign(method="G", round=1, sd=0.0))["G"].x == [1.0]


def test_maps_are_of_every_pair_and_hold_the_rest_at_its_default():
    exhibit, numbers = numbers_of("s-figure-4a", scale="quick")
    maps, _ = pair_maps(exhibit, numbers)
    pairs = list(itertools.combinations(("sigma2", "sigma02", "gamma0"), 2))
    assert [(one.across, one.up) for one in maps] == pairs
    assert [one.held for one in maps] == [{"gamma0": 1.0}, {"sigma02": 10.0}, {"sigma2": 1.0}]
    panels = figure_of("s-figure-4a", scale="quick").axes
    assert len(panels) == 6
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in panels)


def but(**changes):
    """Plausible values, and of some metrics what functions of token, clients and trial give."""

    def values(token, clients, trial, metric, split):
        change = changes.get(metric, lambda *_: None)(token, clients, trial)
        return plausible(token, clients, trial, metric, split) if change is None else change

    return values


def units(token, *_):
    """The size that a setting asks for, or that of a client."""
    asked = re.search(r"units~(\d+)", token)
    return float(asked[1]) if asked else 50.0


def test_a_path_goes_through_what_was_not_left_out_and_sizes_asked_for_are_ticks():
    def left_out(token, clients, trial):
        # one of two trials; all settings of a method; a method of one size
        some = token == "pfnm_sized+units~100" and trial == 1
        return some or token.startswith("ot_fusion") or token == "average_shared"

    exhibit, numbers = numbers_of("equal-size", but(left_out=left_out, hidden_units=units))
    own = by_case(numbers)["homogeneous"]
    paths = paths_of(exhibit, own[own["clients"] == 4])
    assert paths["PFNM"][0] == [50, 200, 400]
    assert paths["OT fusion"][0] == paths["OT fusion"][1].mean == []
    assert len(paths["k-means of units"][1].mean) == 4
    with rules():
        panel = figure(exhibit, numbers).axes[0]
    assert panel.get_xticks().tolist() == [50, 100, 200, 400]


def test_panels_of_a_row_have_one_scale_and_what_lies_below_is_named():
    values = but(accuracy=lambda token, clients, trial: 0.75 + 0.03 * clients + 0.001 * trial)
    rows: dict[float, list[tuple[float, float]]] = {}
    for panel in figure_of("equal-size", values).axes:
        rows.setdefault(round(panel.get_position().y0, 4), []).append(panel.get_ylim())
    assert len(rows) == len(by_case(numbers_of("equal-size")[1]))
    assert all(len(limits) > len(set(limits)) == 1 for limits in rows.values())
    sizes = {"pfnm+sigma2~10": 20.0, "pfnm+sigma2~2": 90.0}
    values = but(
        hidden_units=lambda token, *_: sizes.get(token, 200.0),
        accuracy=lambda token, *_: 0.3 if token == "average" else 0.9,
    )
    panel = figure_of("matching-or-size", values).axes[0]
    assert {text.get_text() for text in panel.texts} == {"0.01", "10"}  # of both ends
    (lost,) = panel.get_legend().get_texts()
    assert lost.get_text() == "↓ parameter average 30 %"
    exhibit, numbers = numbers_of("matching-or-size", values)
    with rules():
        assert figure(exhibit, numbers.assign(sigma2=0.0))


def test_a_table_has_shown_settings_as_text_and_heads_of_data_and_what_varies():
    table = written("erratum-options")
    assert table.corner == ("Method", "popularity", "class weights", "count cap")
    heads = [row.heads for row in table.rows]
    assert heads[:: len(heads) - 1] == [("PFNM", "1", "true", "10"), ("PFNM", "2", "false", "none")]
    assert [len(row.cells) for row in table.rows] == [4] * 8
    assert table.heads == tuple(
        (case, j) for case in ("homogeneous", "heterogeneous") for j in ("J = 2", "J = 4")
    )
    assert not Path("reports/tiny/pfnm/erratum-options.svg").exists()
    table = written("deep-sigma2")
    cases = ("Digits (8×8), heterogeneous", "Coloured shapes, heterogeneous")
    assert table.heads == tuple((case,) for case in cases)
    assert "J = 4 · hidden = 2 × 50 · 2 trials" in table.caption
    for token, told in {"50@50@50": "3 × 50", "50@20": "50 + 20", "50": "50"}.items():
        assert widths_text(token) == told


def written(name):
    """The table of an exhibit, from what its stage writes."""
    base, exhibit = draw(plan(), f"pfnm/{name}"), plan().exhibit(f"pfnm/{name}")
    about, numbers = read_json(f"{base}.json"), read_csv(Path(f"{base}.csv").read_text())
    caption = f"{exhibit.caption} {fixed_keys(about, numbers)}."
    table = table_of_numbers(about, numbers, arrangement_of(about), None, caption)
    assert Path(f"{base}.html").read_text() == html(table)
    return table


ROUNDS = {
    "drawing": "accuracy-against-rounds",
    "trials": 2,
    "sweep": {"partition.clients": [3]},
    "methods": [{"name": "fedavg", "rounds": 6}, {"name": "average", "label": "once"}],
    "cases": {
        "iid": {"label": "alike"},
        "other": {"label": "unlike, very", "partition": {"name": "dirichlet"}},
    },
}


def against_rounds():
    made = Plan(Config(), {"small": file_of(**ROUNDS)}, "tiny")
    exhibit = made.exhibit("small/x")
    found = summarise(exhibit, tables_of(made, "small/x", plausible)).numbers
    return exhibit, read_csv(csv_text(found))


def test_a_figure_against_rounds_has_a_column_of_panels_for_each_case():
    exhibit, numbers = against_rounds()
    with rules():
        panels = figure(exhibit, numbers).axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["a  alike", "b  unlike\n    very", "close-up", "close-up"]
    for rows, axes in zip([*by_case(numbers).values()] * 2, panels, strict=True):
        shown = [list(line.get_ydata()) for line in axes.lines]
        assert all(line.mean in shown for line in round_lines(exhibit, rows).values())
    assert [axes.get_xlabel() for axes in panels] == ["", "", *["communication rounds"] * 2]
    assert not any(text.get_text() for axes in panels for text in axes.texts)


def test_a_figure_of_the_best_so_far_never_falls():
    exhibit, numbers = against_rounds()
    numbers = by_case(numbers)["alike"].copy()
    rounds = (numbers["method"] != "once") & (numbers["metric"] == "accuracy")
    numbers.loc[rounds & (numbers["round"] == numbers["round"].max()), "mean"] = 0.0
    drawing = {"name": "accuracy-against-rounds", "best_so_far": True}
    asked = small("tiny", **ROUNDS | {"drawing": drawing})
    with rules():
        fallen, never = (figure(one, numbers).axes[0] for one in (exhibit, asked))
    assert any((np.diff(line.get_ydata()) < 0).any() for line in fallen.lines)
    for before, line in zip(fallen.lines, never.lines, strict=True):
        assert list(line.get_ydata()) == list(np.maximum.accumulate(before.get_ydata()))


def near(mean: float) -> Line:
    return Line([2, 4], [mean, mean], [0.0, 0.0])


@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        # what failed in all trials is not in the way
        ({"PFNM": near(0.9), "U-Ens": near(0.8), "lost": near(math.nan)}, 0.79, 0.91),
        ({"lost": near(math.nan)}, 0.0, 1.0),
        ({"PFNM": near(0.9), "U-Ens": Line([2], [0.8], [0.0])}, 0.79, 0.91),  # left out at a point
        # a rival that collapses, and a control far below the rivals, are left out; one near is not
        ({"PFNM": near(0.35), "KD": near(0.15), "clients alone": near(0.2)}, 0.34, 0.36),
        ({"PFNM": near(0.35), "PFNM unmatched": near(0.32)}, 0.31, 0.36),
    ],
)
def test_a_close_up_has_what_stays_near_the_best(found, low, high):
    got = close_up(plan().exhibit("pfnm/figure-2b"), found)
    assert got == pytest.approx((low, high), abs=0.012)


def test_data_and_trials_are_told_once():
    for key, told in (
        # data that are prepared in two ways are named once; a case with more trials is counted
        ("fedavg/rates-cnn-pixels", "MNIST · 2 trials"),
        ("p2p/table-accuracy", "Fashion-MNIST · 5 or 10 trials"),
    ):
        base = Path(__file__).parents[2] / f"reports/record/paper/{key}"
        about, numbers = read_json(f"{base}.json"), read_csv(Path(f"{base}.csv").read_text())
        assert fixed_keys(about, numbers) == told


def test_a_cell_of_a_map_has_the_spread_over_trials():
    exhibit, numbers = numbers_of("s-figure-5a")
    with rules():
        shown, alone = (
            [text.get_text() for axes in figure(exhibit, of).axes for text in axes.texts]
            for of in (numbers, numbers.assign(sd=np.nan))
        )
    row = numbers[(numbers["metric"] == "accuracy") & (numbers["split"] == "train")].iloc[0]
    assert {f"{100 * row['mean']:.1f}", f"± {100 * row['sd']:.1f}"} <= set(shown)
    assert not [text for text in alone if "±" in text]


def test_marks_of_methods_that_have_one_size_stay_inside_the_frame():
    found = figure_of("equal-size", but(hidden_units=units, accuracy=lambda *_: 0.9))
    width, height = found.get_size_inches()
    found.set_size_inches(0.5 * width, height)  # panels as narrow as they get at the paper's size
    found.canvas.draw()
    panel = found.axes[0]
    marks = [bars for bars in panel.containers if bars.lines[0].get_linestyle() == "None"]
    assert len(marks) == 3
    at = panel.transData.transform((50, 0.9))[0]
    assert at - BESIDE * len(marks) * found.dpi / 72 > panel.bbox.x0

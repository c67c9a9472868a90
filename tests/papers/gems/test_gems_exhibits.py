"""What config and drawings say of good-enough model spaces, and what the paper prints of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from small_exhibits import small
from synthetic import FILES as read_files

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import Metric
from fedrepro.core.registry import components, parse_token
from fedrepro.drawings.canvas import figure, render, rules
from fedrepro.numbers.exhibit_metadata import of_features
from fedrepro.numbers.verdicts.claims import load_claims
from fedrepro.numbers.verdicts.printed_verdicts import (
    SETTING,
    points_of,
    printed_rows,
    read_published,
)
from fedrepro.papers.gems.drawings.common_points import trials_of
from fedrepro.planning.config import SCALES, Config
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[3]
FILES = {"gems": read_files()["gems"]}
CLAIMS = load_claims(ROOT / "src/fedrepro/papers/gems/claims.yaml").claims
PRINTED = read_published(ROOT / "src/fedrepro/papers/gems/published.csv")
NUMBERS = [v for v in PRINTED if v.exhibit.startswith("table-") and v.metric != SETTING]
SETTINGS = [v for v in PRINTED if v.metric == SETTING]
TRIALS = 20  # of everything that the paper shows; print has 5
FEWER = {"epsilon-and-p", "tuning-scope", "deepest-point", "early-stopping", "random-units"} | {
    *("cifar-sizes", "cifar-feature-sizes", "ham10000-features", "equal-steps-networks"),
    "equal-epochs",
}
DATA = ("mnist", "cifar10", "ham10000")


@cache
def plan(scale="paper"):
    return Plan(Config(), FILES, scale)


def exhibit(name, scale="paper"):
    return plan(scale).exhibit(f"gems/{name}")


def test_every_claim_is_there_with_a_bound():
    assert [claim.id for claim in CLAIMS] == [f"G{n}" for n in range(1, 39)]
    assert not [claim.id for claim in CLAIMS if claim.untested]


def test_every_claim_says_whether_it_rests_on_an_identity():
    for claim in CLAIMS:
        assert ("Identity: " in claim.reason) or ("Rests on no identity" in claim.reason), claim.id
    assert {claim.id for claim in CLAIMS if claim.label} == {"G10", "G12", "G17", "G20"}


def test_all_of_what_the_paper_prints_is_there_and_distinct_quantities_are_known():
    assert len(PRINTED) == 185
    assert (len(NUMBERS), sum(not value.again for value in NUMBERS)) == (158, 103)


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: value.where.rpartition(" ")[2])
def test_every_number_of_a_table_has_a_cell(value):
    own = exhibit(value.exhibit)
    (point,) = points_of(own, value)
    (measure,) = [m for m in point.measures if m.label == value.method]
    shown = {key: text for key, text in value.cell.items() if key in own.shown}
    assert set(shown) == set(measure.show)
    wanted = tuple(float(shown[key]) for key in measure.show)
    assert not shown or wanted in {tuple(map(float, group)) for group in measure.groups}


@pytest.mark.parametrize("value", SETTINGS, ids=lambda v: f"{v.exhibit}, {v.split}")
def test_what_the_paper_prints_of_its_settings_is_taken_over(value):
    (row,) = printed_rows(exhibit(value.exhibit), [value], pd.DataFrame(), {}).to_dict("records")
    assert row["verdict"] == ("not run" if value.note else "taken over")


def test_every_exhibit_has_the_papers_trials_training_and_networks():
    for name, own in plan().exhibits.items():
        assert set(own.trials.values()) == {TRIALS} or name.partition("/")[2] in FEWER, name
        for point in own.points:
            training = point.scenario.training
            assert (training["lr"], training["batch_size"]) == (0.001, 32), name
            network = point.scenario.model.name == "mlp"
            assert (training["init"], training["amsgrad"]) == (
                "glorot" if network else "normal",
                False,
            ), name
            if network:
                photographs = point.scenario.dataset.name == "cifar10"
                assert point.scenario.model["hidden"] == ((100,) if photographs else (50,)), name
                assert point.scenario.model["dropout"] == 0.5, name


@pytest.mark.parametrize("scale", SCALES)
def test_nothing_is_chosen_and_every_exhibit_is_planned(scale):
    for own in plan(scale).exhibits.values():
        assert own.runs
        assert not [m for p in own.points for m in p.measures if m.chosen]


@pytest.mark.parametrize("scale", ["tiny", "quick"])
def test_small_scales_are_on_digits(scale):
    points = [point for own in plan(scale).exhibits.values() for point in own.points]
    assert {point.scenario.dataset.name for point in points} == {"digits"}


def runs_of(names):
    return {run for name in names for run in exhibit(name).runs}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("in-all", [f"table-{n}-{data}" for n in (1, 2) for data in DATA]),
        ("figure-3", [f"figure-3-{data}" for data in DATA]),
        ("figure-4", [f"figure-4-{data}" for data in DATA]),
    ],
)
def test_what_sets_data_sets_side_by_side_has_no_runs_of_its_own(name, parts):
    assert runs_of([name]) <= runs_of(parts)


def test_the_tables_with_five_clients_share_the_runs_of_those_with_others():
    for data, table in zip(DATA, ("table-6", "table-7", "table-8"), strict=True):
        assert runs_of([f"table-1-{data}"]) <= runs_of([f"table-5-{data}"])
        assert runs_of([f"table-2-{data}"]) <= runs_of([table])


def test_figure_6_is_one_job_a_trial():
    runs = [run for run in exhibit("figure-6").runs if run.method.name == "gems_convex"]
    assert [len(list(run.method.expand())) for run in runs] == [64]


def test_features_of_another_network_stand_in():
    """So that what is computed with them is shown beside print, and not judged."""
    found = {
        name: of_features(exhibit(f"table-1-{name}").points[0].scenario.dataset) for name in DATA
    }
    assert "stand in for those of VGG-16" in found["cifar10"]
    assert (found["mnist"], found["ham10000"]) == ("", "")
    assert of_features(parse_token("dataset", "cifar10+features~convnet")) == ""


FIRST, OTHER = (0.5, 0.9), (0.5, 0.7, 0.9)
METHOD = {
    "name": "pfnm",
    "sigma2": list(FIRST),
    "gamma0": list(OTHER),
    "show": ["sigma2", "gamma0"],
}
MAP_SETTINGS = {"drawing": "common-points", "sweep": {"partition.clients": [2]}}


@pytest.fixture
def telling(monkeypatch):
    """A method that says whether spaces have a common point."""
    item = components("method")["pfnm"]
    metrics = {"common_point": Metric("common point", "", 0, 1, 0)}
    monkeypatch.setitem(
        components("method"), "pfnm", replace(item, meta=item.meta | {"metrics": metrics})
    )


def rows(met):
    """met: (sigma2, gamma0) -> a common point, by trial."""
    for at, first in enumerate(FIRST):
        for up, other in enumerate(OTHER):
            head = {"method": "PFNM", "clients": 2, "sigma2": first, "gamma0": other}
            accuracy = {"metric": "accuracy", "split": "test", "mean": 0.5 + 0.1 * at + 0.01 * up}
            yield head | accuracy | {"sd": 0.0, "by_trial": "0.5 0.5"}
            yield head | {"metric": "common_point", "split": "", "by_trial": met[first, other]}


def drawn(met):
    with rules():
        return figure(small(methods=[METHOD], **MAP_SETTINGS), pd.DataFrame(rows(met)))


@pytest.mark.usefixtures("telling")
def test_cells_without_a_common_point_are_crossed_and_have_no_colour():
    met = {(first, other): "1 1" for first in FIRST for other in OTHER}
    met |= {(0.9, 0.9): "0 0", (0.9, 0.7): "0 1"}
    axes = drawn(met).axes[0]
    (mesh,) = axes.findobj(QuadMesh)
    values = np.ma.filled(mesh.get_array().astype(float), np.nan)
    assert np.isnan(values).tolist() == [[False, False], [False, False], [False, True]]
    assert values[1, 0] == 0.51
    crosses = [(line.get_xdata()[0], line.get_ydata()[0] // 1) for line in axes.lines]
    assert crosses == [(1.5, 2)]
    said = [text.get_text() for text in axes.texts]
    assert sorted(said) == sorted(["50.0", "51.0", "52.0", "60.0", "61.0", "62.0", "1 of 2"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("σ²", "γ₀")


@pytest.mark.usefixtures("telling")
def test_no_common_point_anywhere_is_drawn_too_and_equal_numbers_give_equal_pictures():
    met = {(first, other): "0 nan" for first in FIRST for other in OTHER}
    axes = drawn(met).axes[0]
    assert len(axes.lines) == 6
    exhibit, numbers = small(methods=[METHOD], **MAP_SETTINGS), pd.DataFrame(rows(met))
    assert render(exhibit, numbers) == render(exhibit, numbers)


def test_what_was_not_decided_is_no_common_point():
    assert trials_of("1 0 nan") == [True, False, False]


@pytest.mark.usefixtures("telling")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sweep": {"partition.clients": [2, 4]}}, "map over two parameters of one method"),
        ({"methods": [METHOD | {"gamma0": 1.0, "show": ["sigma2"]}]}, "map over two parameters"),
        ({"methods": [{"name": "average"}]}, "map over two parameters"),
    ],
)
def test_what_cannot_be_such_a_map_is_a_sentence(change, told):
    with pytest.raises(FedreproError, match=told):
        small(**{"methods": [METHOD], **MAP_SETTINGS, **change})


def test_a_method_that_does_not_say_whether_spaces_meet_is_refused():
    with pytest.raises(FedreproError, match="'pfnm' does not say"):
        small(methods=[METHOD], **MAP_SETTINGS)


CLIENTS = {
    "drawing": "accuracy-of-clients",
    "partition": {"name": "by_label"},
    "model": {"name": "logistic"},
    "dataset": {"name": "digits", "validation": 400},
    "sweep": {"partition.clients": [2]},
}
ASKED = {"name": "gems_convex", "epsilon": [0.5, 0.9], "show": ["epsilon"]}


def test_a_mark_says_whether_the_point_is_good_enough_at_a_client():
    exhibit = small(methods=[ASKED], **CLIENTS)
    (method,) = [measure.label for measure in exhibit.measures]
    head = {"method": method, "split": "", "mean": 0.0, "sd": 0.0}
    each = {"accuracy_client_1": "0.5 0.95", "accuracy_client_2": "0.4 0.9"}
    numbers = pd.DataFrame(
        head | {"epsilon": bar, "metric": name, "by_trial": values}
        for bar in (0.5, 0.9)
        for name, values in each.items()
    )
    with rules():
        (axes,) = figure(exhibit, numbers).axes
    marks = {(line.get_marker(), float(y)) for line in axes.lines for y in line.get_ydata()}
    assert {y for marker, y in marks if marker == "o"} == {0.5, 0.95, 0.9}
    assert {y for marker, y in marks if marker == "x"} == {0.4, 0.5}
    assert {y for marker, y in marks if marker == "None"} == {0.5, 0.9}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"methods": [ASKED | {"epsilon": 0.5, "show": []}]}, "values of one parameter"),
        (
            {"methods": [METHOD | {"gamma0": 1.0, "show": ["sigma2"]}], "model": {"name": "mlp"}},
            "accuracy of its model at single clients",
        ),
        ({"sweep": {"partition.clients": [2, 5]}}, "at one point of its sweep"),
    ],
)
def test_what_has_no_accuracies_of_clients_is_a_sentence(change, told):
    with pytest.raises(FedreproError, match=told):
        small(**{"methods": [ASKED], **CLIENTS, **change})

"""The map of where spaces have a common point, and what it needs of an exhibit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import Metric
from fedrepro.core.registry import components
from fedrepro.drawings.canvas import figure, render, rules
from fedrepro.papers.gems.drawings.common_points import trials_of

FIRST, OTHER = (0.5, 0.9), (0.5, 0.7, 0.9)
METHOD = {
    "name": "pfnm",
    "sigma2": list(FIRST),
    "gamma0": list(OTHER),
    "show": ["sigma2", "gamma0"],
}
SETTINGS = {"drawing": "common-points", "sweep": {"partition.clients": [2]}}


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
        return figure(small(methods=[METHOD], **SETTINGS), pd.DataFrame(rows(met)))


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
    exhibit, numbers = small(methods=[METHOD], **SETTINGS), pd.DataFrame(rows(met))
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
        small(**{"methods": [METHOD], **SETTINGS, **change})


def test_a_method_that_does_not_say_whether_spaces_meet_is_refused():
    with pytest.raises(FedreproError, match="'pfnm' does not say"):
        small(methods=[METHOD], **SETTINGS)


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

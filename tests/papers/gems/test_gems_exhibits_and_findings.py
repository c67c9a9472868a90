"""What config, drawings and findings say of good-enough model spaces, and what the paper prints."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from findings import RECORD, ROOT, asked, told
from matplotlib.collections import QuadMesh
from small_exhibits import small
from synthetic import plan

from fedrepro.core.metrics import Metric
from fedrepro.core.registry import components, parse_token
from fedrepro.drawings.lines_and_layout import figure, rules
from fedrepro.numbers.exhibit_files import of_features
from fedrepro.numbers.verdicts.verdicts_on_printed_values import AGAIN, SETTING, read_published

PRINTED = read_published(ROOT / "src/fedrepro/papers/gems/published.csv")
NUMBERS = [v for v in PRINTED if v.exhibit.startswith("table-") and v.metric != SETTING]
QUANTITIES = [v for v in NUMBERS if not v.note.startswith(AGAIN)]


def test_features_of_another_network_stand_in():
    """So that what is computed with them is shown beside print, and not judged."""
    found = {
        name: of_features(plan("paper").exhibit(f"gems/table-1-{name}").points[0].scenario.dataset)
        for name in ("mnist", "cifar10", "ham10000")
    }
    assert "stand in for those of VGG-16" in found["cifar10"]
    assert (found["mnist"], found["ham10000"]) == ("", "")
    assert of_features(parse_token("dataset", "cifar10+features~convnet")) == ""


FIRST, OTHER = (0.5, 0.9), (0.5, 0.7, 0.9)
METHOD = {"name": "pfnm", "sigma2": list(FIRST), "gamma0": list(OTHER)}
METHOD |= {"show": ["sigma2", "gamma0"]}
MAP_SETTINGS = {
    "drawing": {"name": "heat-maps", "split": "test", "sizes": False, "where": "common_point"},
    "sweep": {"partition.clients": [2]},
}


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
    for (at, first), (up, other) in itertools.product(enumerate(FIRST), enumerate(OTHER)):
        head = {"method": "PFNM", "clients": 2, "sigma2": first, "gamma0": other}
        accuracy = {"metric": "accuracy", "split": "test", "mean": 0.5 + 0.1 * at + 0.01 * up}
        yield head | accuracy | {"sd": 0.0, "by_trial": "0.5 0.5"}
        yield head | {"metric": "common_point", "split": "", "by_trial": met[first, other]}


def drawn(met):
    with rules():
        return figure(small(methods=[METHOD], **MAP_SETTINGS), pd.DataFrame(rows(met)))


@pytest.mark.usefixtures("telling")
def test_cells_without_a_common_point_are_crossed_and_have_no_colour():
    met = dict.fromkeys(itertools.product(FIRST, OTHER), "1 1")
    axes = drawn(met | {(0.9, 0.9): "0 0", (0.9, 0.7): "0 1"}).axes[0]
    (mesh,) = axes.findobj(QuadMesh)
    values = np.ma.filled(mesh.get_array().astype(float), np.nan)
    assert np.isnan(values).tolist() == [[False, False], [False, False], [False, True]]
    assert values[1, 0] == 51.0
    assert [(line.get_xdata()[0], line.get_ydata()[0] // 1) for line in axes.lines] == [(1.5, 2)]
    said = [text.get_text() for text in axes.texts]
    assert sorted(said) == sorted(["50.0", "51.0", "52.0", "60.0", "61.0", "62.0", "1 of 2"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("σ²", "γ₀")
    assert len(drawn(dict.fromkeys(met, "0 nan")).axes[0].lines) == 6


FLAT = told("gems")
CASES = ("J = 2", "J = 3", "J = 5")


def test_what_is_said_of_the_printed_tables_is_so():
    assert f"print {len(NUMBERS)} numbers of {len(QUANTITIES)} quantities" in FLAT
    spreads = [v.note for v in NUMBERS if "has a spread of" in v.note]
    assert Counter(note.rpartition(" ")[2] for note in spreads) == {"0.007": 3, "0.006": 3}
    tables = [v for v in NUMBERS if v.exhibit.startswith(("table-1-", "table-2-"))]
    ours, local = ([v.value for v in tables if v.method == name] for name in ("GEMS", "Local"))
    assert f"is {100 * (sum(ours) - sum(local)) / 6:.2f} points above local models" in FLAT
    rows = [v for v in NUMBERS if v.exhibit.startswith("table-5-")]
    at = {(v.exhibit, v.cell["case"], v.method): v.value for v in rows}
    below = [key for key in at if key[2] == "GEMS" and at[key] < at[(*key[:2], "Averaged")]]
    assert len(below) == 3
    assert "above what is printed for GEMS in three of its rows" in FLAT


def same(table: str, question: str, count: int = 20) -> float:
    """A number that is the same in every trial."""
    (value,) = set(asked(f"gems/{table}", f"trials {question}", count))
    return value


def test_at_the_printed_epsilon_gems_is_the_average():
    for case in CASES:
        for name in ("GEMS", "GEMS, balls"):
            for table, count in (("table-5-mnist", 20), ("table-5-ham10000", 5)):
                assert same(table, f"start_inside of {name} at case={case}", count) == 1
            assert same("table-5-mnist", f"descent_steps of {name} at case={case}") == 0
            assert same("table-5-mnist", f"{name} minus Averaged at case={case}") == 0
        assert same("table-5-mnist", f"GEMS tuned minus Averaged tuned at case={case}") == 0
    assert asked("gems/equal-steps", "range GEMS tuned minus Averaged tuned", 2) == [0, 0]
    one = "table-1-cifar10"
    assert (same(one, "common_point of GEMS", 5), same(one, "start_inside of GEMS", 5)) == (1, 0)


def test_what_is_said_of_points_is_so():
    for case in CASES:
        for name in ("GEMS, balls", "GEMS, balls, ε = 0.9"):
            question = f"{name} minus {name}, deepest at case={case}"
            assert asked("gems/deepest-point", question)[0] > 0
        question = f"common_point of GEMS, ε = 0.9 at case={case}"
        assert same("table-5-ham10000", question, 5) == 0
    proven = "common_point of Balls, proven radii at epsilon="
    assert {same("clients-at-points", f"{proven}0.{n}") for n in (2, 4, 6, 7, 8, 9)} == {0}
    for clients in (2, 3):
        question = f"clients_met of GEMS, proven radii at case=J = {clients}"
        assert same("two-epsilons", question) == clients
    prints = [
        asked("gems/table-5-mnist.printed", f"{m} at case=J = 2") for m in ("GEMS", "Averaged")
    ]
    assert prints[0] == prints[1]  # "78.0 both"


def test_sizes_are_those_of_the_clusters_and_one_less_as_published():
    gaps = []
    for clusters in (50, 75, 100):
        for epsilon in ("0.5", "1"):
            at = f"at clusters={clusters}, epsilon_hidden={epsilon}"
            assert same("table-9", f"hidden_units of GEMS {at}", 5) == clusters
            assert same("table-9", f"hidden_units of GEMS, as published {at}", 5) == clusters - 1
            gaps += asked("gems/table-9", f"GEMS tuned minus GEMS tuned, as published {at}")
    assert f"changes tuned accuracy by at most {max(map(abs, gaps)):.1f} points" in FLAT
    for clusters in (100, 150, 200):  # "a larger ε_hidden changes nothing", on CIFAR-10
        at = f"GEMS tuned at clusters={clusters}, epsilon_hidden="
        assert same("table-3", f"{at}0.5 minus {at}0.7", 5) == 0
        assert same("table-3", f"hidden_units of {at}0.7", 5) == clusters


def test_what_the_count_of_reproduced_values_is_made_of():
    rows = pd.concat(
        pd.read_csv(path, keep_default_na=False).assign(exhibit=path.name.split(".")[0])
        for path in sorted((RECORD / "paper/gems").glob("*.printed.csv"))
    )
    rows = rows[~rows["note"].str.contains("printed again")]
    good = rows[(rows["verdict"] == "reproduced") & (rows["apart"] == "")]
    plain = (good["method"] == "Global").sum()
    assert f"Of the {len(good)} that are reproduced {plain} are Global, and those" in FLAT
    fixed = rows["apart"].str.startswith("nearly fixed")
    rest = rows[fixed & rows["verdict"].isin(["reproduced", "better"])]
    assert len(rest)
    assert ((rest["method"] == "Local") | (rest["metric"] == "hidden_units")).all()
    tables = ("table-1-mnist", "table-2-mnist", "table-5-mnist", "table-6")
    own = rows[(rows["method"] == "GEMS") & (rows["metric"] == "accuracy")]
    apart = own[own["exhibit"].isin(tables)]["difference"].astype(float).abs()
    assert f"the nearest on MNIST is {100 * apart.min():.1f} points from print" in FLAT

"""What config says of good-enough model spaces, and what the paper prints of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from synthetic import FILES as read_files

from fedrepro.core.registry import parse_token
from fedrepro.numbers.exhibit_metadata import of_features
from fedrepro.numbers.verdicts.claims import load_claims
from fedrepro.numbers.verdicts.printed_verdicts import (
    SETTING,
    points_of,
    printed_rows,
    read_published,
)
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

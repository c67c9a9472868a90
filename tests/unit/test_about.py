"""What an exhibit says of itself: what stands in for what, and how many trials each method has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import synthetic
from small_exhibits import file_of
from synthetic import draw, plan, undrawn, workplace  # noqa: F401

from fedrepro.core.registry import components
from fedrepro.numbers.exhibit_metadata import describe, stand_in
from fedrepro.planning.config import Config
from fedrepro.planning.plan import Plan

DATA = components("dataset")


def of(name):
    return DATA[name].spec()


def sentences(quick, paper, **more):
    """What is said of digits, shapes and mnist where `quick` stands for `paper`; cases by name."""
    file = file_of(
        sweep={"partition.clients": [2]},
        **more,
        at={"quick": quick, "paper": paper},
    )
    shown = Plan(Config(), {"small": file}, "quick").exhibit("small/x")
    return {name: stand_in(shown, file, of(name)) for name in ("digits", "shapes", "mnist")}


def test_data_that_a_case_of_the_paper_has_stand_in_for_nothing():
    same = {"dataset": {"name": "digits"}}
    assert set(sentences(same, same).values()) == {""}


def test_each_case_stands_in_for_its_own_data_set():
    quick = {"cases": {"a": {"dataset": {"name": "digits"}}, "b": {"dataset": {"name": "shapes"}}}}
    paper = {"cases": {"a": {"dataset": {"name": "mnist"}}, "b": {"dataset": {"name": "cifar10"}}}}
    found = sentences(quick, paper, cases={"a": {"label": "A"}, "b": {"label": "B"}})
    assert found["digits"].endswith("stand in for MNIST, the paper's data.")
    assert found["shapes"].endswith("stand in for CIFAR-10, the paper's data.")
    assert "MNIST" not in found["shapes"]
    assert found["mnist"] == ""


def test_a_case_that_the_paper_does_not_have_is_passed_over():
    quick = {"cases": {"a": {"label": "A"}, "b": {"label": "B"}}}
    paper = {"cases": {"a": {"label": "A", "dataset": {"name": "mnist"}}}}
    found = sentences(quick, paper)
    assert found["digits"].endswith("stand in for MNIST, the paper's data.")


def test_a_method_says_its_own_number_of_trials():
    rivals = [
        {"name": "uniform_ensemble", "label": "U"},
        {"name": "average", "label": "A", "paired_with": "U"},
    ]
    file = file_of(methods=rivals, trials=5, trials_of={"A": 2}, paired=True)
    made = Plan(Config(), {"small": file}, "quick")
    found = describe(made.exhibit("small/x"), made, file)
    assert {row["label"]: row["trials"] for row in found["methods"]} == {"U": 5, "A": 2}
    assert found["trials"] == 5


REDUCED = "Digits from photographs reduced to 4×4 pixels."


@pytest.mark.parametrize(
    ("plans", "sentence"),
    [
        (plan, f"Digits (8×8) stand in for MNIST, the paper's data. {REDUCED}"),
        (lambda: plan("paper", granularity={"trials_per_job": 10}), REDUCED),
    ],
)
@pytest.mark.usefixtures("workplace", "undrawn")
def test_an_exhibit_names_other_data_and_their_reduced_form(monkeypatch, plans, sentence):
    monkeypatch.setattr(synthetic, "SOURCE", {**synthetic.SOURCE, "stand_in": REDUCED})
    about = json.loads(Path(f"{draw(plans())}.json").read_text())
    assert about["data"][0]["stand_in"] == sentence

"""A stand-in is said wherever a result on it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import synthetic
from synthetic import draw, plan, undrawn, workplace  # noqa: F401

REDUCED = "Digits from photographs reduced to 4×4 pixels."


SMALLER = {"granularity": {"trials_per_job": 10}}


@pytest.mark.parametrize(
    ("plans", "sentence"),
    [
        (plan, f"Digits (8×8) stand in for MNIST, the paper's data. {REDUCED}"),
        (lambda: plan("paper", **SMALLER), REDUCED),
    ],
)
@pytest.mark.usefixtures("workplace", "undrawn")
def test_an_exhibit_names_other_data_and_their_reduced_form(monkeypatch, plans, sentence):
    monkeypatch.setattr(synthetic, "SOURCE", {**synthetic.SOURCE, "stand_in": REDUCED})
    about = json.loads(Path(f"{draw(plans())}.json").read_text())
    assert about["data"][0]["stand_in"] == sentence

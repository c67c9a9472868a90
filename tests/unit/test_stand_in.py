"""A stand-in is said wherever a result on it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import synthetic
from synthetic import draw, plan, undrawn, workplace  # noqa: F401

REDUCED = "Digits from photographs reduced to 4×4 pixels."


@pytest.mark.usefixtures("workplace", "undrawn")
def test_an_exhibit_names_other_data_and_their_reduced_form(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(synthetic, "SOURCE", {**synthetic.SOURCE, "stand_in": REDUCED})
    about = json.loads(Path(f"{draw(plan())}.json").read_text())
    said = about["data"][0]["stand_in"]
    assert said == f"Digits (8×8) stand in for MNIST, the paper's data. {REDUCED}"


@pytest.mark.usefixtures("workplace", "undrawn")
def test_the_papers_own_data_in_a_reduced_form_are_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(synthetic, "SOURCE", {**synthetic.SOURCE, "stand_in": REDUCED})
    about = json.loads(
        Path(f"{draw(plan('paper', granularity={'trials_per_job': 10}))}.json").read_text()
    )
    assert about["data"][0]["stand_in"] == REDUCED

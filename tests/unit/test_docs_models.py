"""docs/models.md: its numbers are those of the networks, and its example works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import jobs
import pytest

from fedrepro.core import plugins
from fedrepro.core.registry import components, parse_token
from fedrepro.core.state_and_model_files import read_models
from fedrepro.networks.predict import network_of
from fedrepro.training.optimiser_steps import Layout

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text()
ROWS = re.findall(
    r"^\| `([^`]+)` \| .*? \| ([\d,]+)(?: on ([^|]+?)| with 80 codes)? \|", PAGE, re.M
)
SHAPES = {
    "MNIST": (28, 28),
    "CIFAR-10": (3, 32, 32),
    "spectrograms": (32, 32),
    "32×32 images": (3, 32, 32),
}


def test_every_model_has_its_row():
    assert {token.partition("+")[0] for token, _, _ in ROWS} == set(components("model"))


@pytest.mark.parametrize(("token", "count", "data"), ROWS)
def test_numbers_of_parameters_are_those_of_the_networks(token, count, data):
    model = parse_token("model", token)
    shape, classes = SHAPES.get(data, (28, 28)), 10
    if model.name == "char_lstm":
        shape, classes = (80,), 80
    if "pool_every~2+" not in token and token.endswith("padding~valid+pool_every~2"):
        shape = (3, 32, 32)
    found = Layout(network_of(model, shape, classes).shapes).numbers
    assert f"{found:,}" == count


def test_the_example_of_ones_own_model_trains(tmp_path, monkeypatch):
    code = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "hourgl" in code)
    (tmp_path / "hourglass.py").write_text(code)
    monkeypatch.setenv(plugins.NAMED, str(tmp_path / "hourglass.py"))
    made = jobs.divided(tmp_path, "iid+clients~2", trials="0")
    made += ["--model", "hourglass+narrow~5", "--training", "sgd+epochs~1+init~fan_in"]
    made += ["--clients", "0-1", "--out", tmp_path / "m"]
    assert jobs.stage("train", *made) == 0
    assert read_models([tmp_path / "m"], [0])[0].tensors["weight1"].shape == (2, 100, 5)
    monkeypatch.setenv(plugins.NAMED, "")
    assert "hourglass" not in components("model")

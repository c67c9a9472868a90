"""docs/adding-an-exhibit.md: its file is planned and drawn as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from synthetic import write_runs

from fedrepro.api import CHOICES
from fedrepro.numbers.summary import read_csv
from fedrepro.planning.config import load_config, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.stages import exhibit as stage

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/adding-an-exhibit.md").read_text()
(FILE,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
KEYS = ("mine/by-clients", "mine/two-partitions")


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """The repository's config with the page's file beside the papers'."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "config/exhibits/mine.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(scale):
    return Plan(load_config(), load_exhibits(), scale)


@pytest.mark.parametrize("scale", ["tiny", "quick", "paper"])
def test_its_exhibits_are_planned_at_every_scale(workplace, scale):
    made = plan(scale)
    assert [key for key in made.exhibits if key.startswith("mine/")] == list(KEYS)
    clients = [point.scenario.clients for point in made.exhibit(KEYS[0]).points]
    assert clients == ([2, 4] if scale == "tiny" else [2, 4, 8])


@pytest.mark.parametrize("key", KEYS)
def test_its_exhibits_are_drawn_at_the_paths_that_it_names(workplace, key):
    made = plan("tiny")
    write_runs(made, key)
    stage.run(key, made, Path(made.paths.exhibit(key, "")))
    (path,) = re.findall(rf"snakemake .* reports/quick/({key}\.\w+)", PAGE)
    assert (workplace / "reports/tiny" / path).exists()
    numbers = read_csv((workplace / f"reports/tiny/{key}.csv").read_text())
    labels = {entry["label"] for entry in yaml.safe_load(FILE)["exhibits"][key[5:]]["methods"]}
    assert set(numbers["method"]) == labels


def test_it_names_every_rule_of_choice():
    assert all(f"`{name}`" in PAGE for name in CHOICES)

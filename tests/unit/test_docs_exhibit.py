"""docs/adding-an-exhibit.md: what stands there can be planned, and its printed values belong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from small_exhibits import small

from fedrepro.core.errors import FedreproError
from fedrepro.numbers.verdicts.printed_verdicts import read_published, require_cells
from fedrepro.planning.config import Config, ExhibitFile, table_names
from fedrepro.planning.plan import Plan

PAGE = (Path(__file__).parents[2] / "docs/adding-an-exhibit.md").read_text(encoding="utf-8")


(EXHIBITS,), (PRINTED,) = (re.findall(f"```{x}\n(.*?)```", PAGE, re.S) for x in ("yaml", "csv"))
FILES = {"mine": ExhibitFile.model_validate(yaml.safe_load(EXHIBITS))}


@pytest.mark.parametrize("scale", ["tiny", "quick", "paper"])
def test_its_exhibits_can_be_planned(scale):
    made = Plan(Config(exhibits="all"), FILES, scale)
    assert list(made.exhibits) == ["mine/figure-1", "mine/table-1"]
    table = made.exhibit("mine/table-1")
    assert [len(m.settings) for m in table.measures] == [1, 1, 2, 2]
    rates = {run.scenario.training["lr"] for run in table.runs}
    assert rates == {0.01, 0.003, 0.001}
    assert table_names(FILES)["paper/mine"] == ["table-1"]


def test_its_printed_values_belong_to_cells_or_say_why_not(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(PRINTED)
    values = read_published(path)
    assert [value.tolerance for value in values] == [None, pytest.approx(0.0124), None]
    require_cells([Plan(Config(), FILES, "paper").exhibit("mine/table-1")], values)


def test_its_tuned_methods_can_be_planned():
    entries = yaml.safe_load("\n".join(re.findall(r"^    (- \{name: .*tune.*\})$", PAGE, re.M)))
    assert [entry["name"] for entry in entries] == ["average", "local", "raw"]
    made = small(methods=entries, dataset={"name": "digits", "validation": 200})
    assert all(run.tune for run in made.runs)
    with pytest.raises(FedreproError, match="public sample of 200 examples"):
        small(methods=entries, dataset={"name": "digits", "validation": 199})

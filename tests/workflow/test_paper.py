"""docs/adding-a-paper.md: the paper that it makes is drawn and judged, as a new folder alone."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import yaml
from test_workflow import ROOT, checkout, run

pytestmark = pytest.mark.workflow
PAGE = (ROOT / "docs/adding-a-paper.md").read_text(encoding="utf-8")
FILES = re.findall(r"^`(src/[\w/.]+)`[^\n]*:\n\n```\w+\n(.*?)```", PAGE, re.M | re.S)
COMMANDS = re.findall(r"^    \.venv/bin/snakemake (.*)$", PAGE, re.M)


def test_the_python_of_the_page_says_what_its_yaml_says() -> None:
    (said,) = (text for name, text in FILES if name.endswith("exhibits.yaml"))
    (python,) = re.findall(r"^`exhibits\.py`[^\n]*:\n\n```python\n(.*?)```", PAGE, re.M | re.S)
    made: dict[str, object] = {}
    exec(python, made)
    assert made["EXHIBITS"] == yaml.safe_load(said)


def test_the_paper_of_the_page_is_drawn_and_judged(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone")
    for name, text in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "src/fedrepro/papers/toy/methods/__init__.py").write_text("")
    for command in COMMANDS:
        words = command.replace("--cores 2 ", "").split()
        run(folder, *words, PYTHONPATH=str(folder / "src"))
    assert (folder / "reports/tiny/toy/figure-1.svg").exists()
    with (folder / "reports/tiny/toy/claims.csv").open(newline="") as file:
        assert {row["claim"] for row in csv.DictReader(file)} == {"T1"}

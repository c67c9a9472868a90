"""The workflow with files of one's own, with a paper that is added, and with none."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from test_workflow import ROOT, checkout, edit, planned, run, snakemake

from fedrepro.core.paper_files import paper_names
from fedrepro.numbers.tables_and_selection import read_csv

pytestmark = pytest.mark.workflow


MINE = '''
from typing import Annotated

import numpy as np

from fedrepro.api import GlobalModel, Report, method
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.client_assignment_and_skew import Assignment


@register("partition", "halves", version=1, clients=lambda values: 2)
def halves(examples, rng):
    """Two clients, every other example each."""
    return Assignment((np.arange(len(examples)) % 2).astype(np.int32), 2)


@method("median", kind="one_shot", label="median")
def median(clients, info, *, rng):
    """median_j w_j, weight by weight."""
    tensors = {k: np.median(v, axis=0)[None] for k, v in clients.tensors.items()}
    return GlobalModel(clients.model, tensors)


@method("broken", kind="one_shot", label="broken", grid={"scale": (1, 2)})
def broken(clients, info, *, rng, scale: Annotated[float, Arg("x")] = 1.0):
    """Fails at every scale but 3."""
    times = {3: 1}[scale]
    return GlobalModel(clients.model, {k: v[[0]] * times for k, v in clients.tensors.items()})


@method("late", kind="federated", needs={"rounds"}, label="late")
class Late:
    """Fails in its second round."""

    def __init__(self, *, rounds: Annotated[int, Arg("x")] = 3) -> None:
        self.rounds = rounds

    def init(self, clients, info, rng):
        from fedrepro.training.federation.clients import initial_weights

        return {"weights": initial_weights(clients.network, clients.settings, [rng])}

    def round(self, state, clients, info, rng):
        return state, Report(metrics={} if rng.round == 0 else self.nothing)

    def model(self, state, clients):
        return GlobalModel(clients.model, state["weights"])
'''
EXHIBIT = """
paper: mine
title: Mine
source: nobody, nowhere, 2026
exhibits:
  table-mine:
    drawing: {name: table, rows: [epochs], columns: [method]}
    title: Mine
    place: nowhere
    caption: None.
    trials: 1
    dataset: {name: digits}
    model: {name: mlp, hidden: [5]}
    training: {name: adam}
    sweep: {training.epochs: [2]}
"""
ALL_MINE = """
    partition: {name: halves}
    methods:
      - {name: median, label: median}
      - {name: broken, label: broken}
      - {name: broken, label: chosen, settings: grid, choose: pooled_train}
      - {name: late, label: late}
"""
THEIRS = """
    partition: {name: iid, clients: 2}
    methods: [{name: average}, {name: local}]
"""
TARGET = "reports/tiny/mine/table-mine.html"


def test_a_file_of_ones_own_is_all_there_is_to_a_method_and_what_fails_is_a_row(tmp_path):
    folder = checkout(tmp_path / "own")
    (folder / "mine.py").write_text(MINE)
    (folder / "config/exhibits/mine.yaml").write_text(EXHIBIT + ALL_MINE)
    config, target = folder / "config/config.yaml", folder / TARGET
    config.write_text(config.read_text() + "components: [mine.py]\n")

    def rows():
        return read_csv(target.with_suffix(".csv").read_text())

    done = snakemake(folder, "--cores", "2", TARGET)
    said = done.stderr + done.stdout
    assert done.returncode == 1, said[-3000:]
    assert "broken failed in trial 0: mine.py, line 28, `times = " in said
    assert "KeyError: 1" in said
    assert "late failed in trial 0: mine.py, line 45, `return state, Report" in said
    assert "fault of the program" not in said
    shown = rows()[rows()["metric"] == "accuracy"].set_index("method")["mean"]
    assert shown["median"] > 0
    assert shown[["broken", "chosen", "late"]].isna().all()
    assert target.with_suffix(".html").read_text().count(">failed") == 3
    assert set(rows()[rows()["metric"] == "failed"]["mean"]) == {1.0}
    about = json.loads(target.with_suffix(".json").read_text())
    assert sum("failed in trial 0" in note for note in about["notes"]) == 3
    logs = "".join(path.read_text() for path in (folder / "results/tiny/logs").rglob("*.log"))
    assert "Traceback" in logs
    # a failure is no result: the next run tries these again, and no others
    assert planned(folder, TARGET) == {"aggregate", "federate", "table"}
    edit(folder / "mine.py", "{3: 1}[scale]", "1")
    edit(folder / "mine.py", "self.nothing", "{}")
    run(folder, TARGET)
    assert rows()[rows()["metric"] == "accuracy"]["mean"].notna().all()
    assert "failed" not in target.with_suffix(".json").read_text()
    assert planned(folder, TARGET) == set()
    edit(folder / "mine.py", "np.median", "np.mean")
    # the partition lies in the same file
    rules = {"partition", "train", "aggregate", "federate", "table"}
    assert planned(folder, TARGET) == rules


def test_drawings_follow_their_file_and_their_paper_and_pages_follow_drawings(tmp_path):
    folder, figure = checkout(tmp_path / "own"), TARGET.replace(".html", ".svg")
    page = (ROOT / "docs/adding-an-exhibit.md").read_text()
    (folder / "bars.py").write_text(re.findall(r"```python\n(.*?)```", page, re.S)[0])
    mine = folder / "config/exhibits/mine.yaml"
    mine.write_text(re.sub("drawing: .*", "drawing: bars", EXHIBIT + THEIRS))
    also = "also={mine: [{name: concatenation, label: more}], arena: [{name: average}]}"
    words = ("--config", "papers=own", "components=[bars.py]", "exhibits=[]", also)
    run(folder, figure, *words)
    assert ",more," in (folder / figure).with_suffix(".csv").read_text()
    run(folder, *words)
    assert planned(folder, *words) == set()
    edit(folder / "bars.py", "new_figure(3.0)", "new_figure(2.5)")
    run(folder, figure, *words)
    assert planned(folder, *words) == {"site"}
    edit(mine, "\ntitle: Mine", "\ntitle: My paper")
    assert planned(folder, figure, *words) == {"exhibit"}


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


def test_without_any_paper_an_exhibit_of_ones_own_is_computed(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone")
    for paper in paper_names():
        shutil.rmtree(folder / "src/fedrepro/papers" / paper)
    (folder / "config/exhibits/mine.yaml").write_text(EXHIBIT + THEIRS)
    run(folder, TARGET, PYTHONPATH=str(folder / "src"))
    assert (folder / TARGET).stat().st_size > 0

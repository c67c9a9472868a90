"""A paper can be taken out: without its folder all else is planned and computed, and tests pass.

Here it is a few tests, for time. All of them, in a copy of this repository without the paper:

    rm -r src/fedrepro/papers/gems tests/papers/gems; .venv/bin/fedrepro documents; make test
"""

from __future__ import annotations

import shutil
from pathlib import Path

import loaded
import pytest
from test_workflow import ROOT, checkout, environment, planned, run

from fedrepro.core.paper_files import paper_names

pytestmark = pytest.mark.workflow
OWN = """
paper: mine
title: Mine
source: nobody, nowhere, 2026
exhibits:
  table-mine:
    drawing: table
    title: Mine
    place: nowhere
    caption: None.
    dataset: {name: digits}
    partition: {name: iid, clients: 2}
    model: {name: mlp, hidden: [5]}
    training: {name: adam, epochs: 1}
    sweep: {}
    trials: 1
    methods: [{name: average}, {name: local}]
"""
TESTS = [f"tests/unit/test_{name}.py" for name in ("packs", "spec", "outside")]
TARGET = "reports/tiny/mine/table-mine.html"


def without(folder: Path, *papers: str) -> Path:
    """A clone without these papers, and with an exhibit of its own."""
    checkout(folder)
    for paper in papers:
        shutil.rmtree(folder / "src/fedrepro/papers" / paper)
    (folder / "config/exhibits/mine.yaml").write_text(OWN)
    return folder


def test_without_any_paper_an_exhibit_of_ones_own_is_computed(tmp_path: Path) -> None:
    folder = without(tmp_path / "clone", *paper_names())
    run(folder, TARGET, PYTHONPATH=str(folder / "src"))
    assert (folder / TARGET).stat().st_size > 0


# what a user and a developer would do, one after the other in one process
CODE = """
import contextlib, io, sys
import pytest
from fedrepro.cli.main import main
assert main(["documents"]) == 0
said = io.StringIO()
with contextlib.redirect_stdout(said):
    assert main(["exhibits"]) == 0
print("exhibits:", *{line.partition("/")[0] for line in said.getvalue().splitlines()})
sys.exit(pytest.main(["-p", "no:cacheprovider", "-n", "0", *sys.argv[1:]]))
"""


def taken_out() -> list[object]:
    """At once all papers that are figures and numbers alone, and each that has code by itself."""
    folders = {paper: ROOT / "src/fedrepro/papers" / paper for paper in paper_names()}
    alone = [paper for paper, folder in folders.items() if [*folder.glob("*/*.py")]]
    return [
        tuple(sorted(set(paper_names()) - set(alone))),
        *(pytest.param((paper,), marks=pytest.mark.nightly) for paper in alone),
    ]


@pytest.mark.parametrize("papers", taken_out(), ids=lambda papers: "-".join(papers))
def test_without_a_paper_all_else_goes_on(papers: tuple[str, ...], tmp_path: Path) -> None:
    folder = without(tmp_path / "clone", *papers)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for paper in papers:
        shutil.rmtree(folder / "tests/papers" / paper, ignore_errors=True)
    source = str(folder / "src")
    assert {"aggregate", "table"} <= planned(folder, TARGET, PYTHONPATH=source)
    done = loaded.python(["-c", CODE, *TESTS], folder, environment(PYTHONPATH=source))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("exhibits:"))
    assert {"mine", *paper_names()} - set(told.split()[1:]) == {*papers}

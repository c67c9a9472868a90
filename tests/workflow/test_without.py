"""A paper can be taken out: without its folder all else is planned and computed, and tests pass.

Here it is a few tests, for time. All of them, in a copy of this repository without the paper:

    rm -r src/fedrepro/papers/gems tests/papers/gems; .venv/bin/fedrepro documents; make test
"""

from __future__ import annotations

import shutil
from pathlib import Path

import loaded
import pytest
from test_workflow import ROOT, checkout, environment, run

from fedrepro.core.packs import packs

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
TESTS = [f"tests/unit/test_{name}.py" for name in ("packs", "rooms", "spec", "outside")]


@pytest.mark.parametrize("paper", packs())
def test_without_a_paper_all_else_goes_on(paper: str, tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone")
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(folder / "src/fedrepro/papers" / paper)
    shutil.rmtree(folder / "tests/papers" / paper, ignore_errors=True)
    (folder / "config/exhibits/mine.yaml").write_text(OWN)
    source = str(folder / "src")
    run(folder, "reports/tiny/mine/table-mine.html", PYTHONPATH=source)

    def python(*words: str) -> str:
        done = loaded.python(words, folder, environment(PYTHONPATH=source))
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    named = {line.partition("/")[0] for line in python("-m", "fedrepro", "exhibits").splitlines()}
    assert {"mine", *packs()} - named == {paper}
    python("-m", "fedrepro", "documents")
    python("-m", "pytest", "-p", "no:cacheprovider", "-n", "0", *TESTS)

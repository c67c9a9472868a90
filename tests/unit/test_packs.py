"""Papers as folders: where their files lie, what goes before, and that each can be taken out."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedrepro.core import packs
from fedrepro.core.errors import FedreproError
from fedrepro.planning.config import load_exhibits

ROOT = Path(__file__).parents[2]
PAPERS = packs.packs()
SMALL = "paper: {}\ntitle: t\nsource: s\nexhibits: {{}}\n"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_folder_says_which_paper_it_is_and_runs_nothing(paper):
    tree = ast.parse((PAPERS[paper] / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1
    assert load_exhibits()[paper].paper == paper


def test_paths_are_short_below_the_working_folder_and_whole_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert packs.claims_file("gems") == packs.IN_REPOSITORY / "gems/claims.yaml"
    monkeypatch.chdir(tmp_path)
    assert packs.claims_file("gems") == PAPERS["gems"] / "claims.yaml"


def test_a_file_of_the_working_folder_goes_before(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for place in ("exhibits/gems.yaml", "published/gems.yaml", "published/gems.csv"):
        path = tmp_path / "config" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SMALL.format("gems"))
    assert packs.exhibits_file("gems") == Path("config/exhibits/gems.yaml")
    assert packs.claims_file("gems") == Path("config/published/gems.yaml")
    assert packs.published_file("gems") == Path("config/published/gems.csv")
    assert not load_exhibits()["gems"].exhibits
    assert load_exhibits()["rm"].exhibits


def test_a_paper_of_ones_own_needs_no_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/exhibits").mkdir(parents=True)
    path = tmp_path / "config/exhibits/mine.yaml"
    path.write_text(SMALL.format("mine"))
    assert sorted(load_exhibits()) == sorted([*PAPERS, "mine"])
    assert packs.published_file("mine") == Path("config/published/mine.csv")
    path.write_text(SMALL.format("other"))
    with pytest.raises(FedreproError, match=r"exhibits/mine.yaml: paper must be 'mine'"):
        load_exhibits()["mine"]


def test_pages_of_findings_are_those_of_papers_and_of_docs(tmp_path):
    for name in ("docs/findings/a.md", "src/fedrepro/papers/b/findings.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("# found")
    (tmp_path / "src/fedrepro/papers/b/findings-more.md").write_text("# more")
    assert packs.findings(tmp_path) == {
        "a": Path("docs/findings/a.md"),
        "b": Path("src/fedrepro/papers/b/findings.md"),
        "b-more": Path("src/fedrepro/papers/b/findings-more.md"),
    }


# papers whose folder is elsewhere, and all that a plan, a stage and a drawing find
WITHOUT = """
import json, sys
import fedrepro.papers as found
found.__path__[:] = [sys.argv[1]]
from fedrepro.core.registry import KINDS, components
from fedrepro.drawings.draw import DRAWINGS
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.plan import Plan
plan = Plan(Config(exhibits="all"), load_exhibits(), "tiny")
names = [name for kind in KINDS for name in components(kind)]
told = {"names": names, "drawings": list(DRAWINGS), "papers": [e.paper for e in plan.selected]}
print(json.dumps(told))
"""


@pytest.mark.parametrize("paper", PAPERS)
def test_all_others_are_planned_without_a_paper(paper, tmp_path):
    for name, folder in PAPERS.items():
        if name != paper:
            (tmp_path / name).symlink_to(folder)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert set(told["papers"]) == set(PAPERS) - {paper}
    assert (
        ("gems_convex" in told["names"])
        == ("common-points" in told["drawings"])
        == (paper != "gems")
    )

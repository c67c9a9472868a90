"""Papers as folders: where their files lie, and what goes before."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fedrepro.core import paper_files
from fedrepro.core.errors import FedreproError
from fedrepro.planning.config_files import load_exhibits

ROOT = Path(__file__).parents[2]
PAPERS = paper_files.paper_names()
CLAIMING = next(name for name, folder in PAPERS.items() if (folder / "claims.yaml").exists())
SMALL = "paper: {}\ntitle: t\nsource: s\nexhibits: {{}}\n"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_folder_says_which_paper_it_is_and_runs_nothing(paper):
    tree = ast.parse((PAPERS[paper] / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert all(isinstance(one, ast.Assign) for one in tree.body[1:])
    assert load_exhibits()[paper].paper == paper


def test_a_file_of_the_working_folder_goes_before_and_paths_are_short_below_it(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(ROOT)
    assert paper_files.claims_file(CLAIMING) == paper_files.IN_REPOSITORY / CLAIMING / "claims.yaml"
    monkeypatch.chdir(tmp_path)
    assert paper_files.claims_file(CLAIMING) == PAPERS[CLAIMING] / "claims.yaml"
    for place in ("exhibits/{}.yaml", "published/{}.yaml", "published/{}.csv"):
        path = tmp_path / "config" / place.format(CLAIMING)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SMALL.format(CLAIMING))
    assert paper_files.exhibits_file(CLAIMING) == Path(f"config/exhibits/{CLAIMING}.yaml")
    assert paper_files.claims_file(CLAIMING) == Path(f"config/published/{CLAIMING}.yaml")
    assert paper_files.published_file(CLAIMING) == Path(f"config/published/{CLAIMING}.csv")
    assert [name for name, file in load_exhibits().items() if not file.exhibits] == [CLAIMING]


def test_a_paper_of_ones_own_needs_no_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/exhibits").mkdir(parents=True)
    path = tmp_path / "config/exhibits/mine.yaml"
    path.write_text(SMALL.format("mine"))
    assert sorted(load_exhibits()) == sorted([*PAPERS, "mine"])
    assert paper_files.published_file("mine") == Path("config/published/mine.csv")
    path.write_text(SMALL.format("other"))
    with pytest.raises(FedreproError, match=r"exhibits/mine.yaml: paper must be 'mine'"):
        load_exhibits()["mine"]


def test_pages_of_findings_are_those_of_papers(tmp_path):
    folder = Path("src/fedrepro/papers/b")
    (tmp_path / folder).mkdir(parents=True)
    for name in ("findings.md", "findings-more.md"):
        (tmp_path / folder / name).write_text("# found")
    pages = {"b": folder / "findings.md", "b-more": folder / "findings-more.md"}
    assert paper_files.findings(tmp_path) == pages

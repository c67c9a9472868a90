"""Papers as folders: where the files of a paper lie, and the modules that only it has.

What belongs to one paper alone lies in `fedrepro/papers/<paper>`. A file of the working folder goes
before that of the paper's folder: a copy of it may be changed there, and a paper of one's own needs
no folder of the package.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fedrepro import PAPERS

IN_REPOSITORY = Path("src/fedrepro/papers")
OWN_EXHIBITS = Path("config/exhibits")
OWN_PUBLISHED = Path("config/published")
OWN_FINDINGS = Path("docs/findings")
PRINTED, CLAIMS, FINDINGS = "published.csv", "claims.yaml", "findings"
EXHIBITS = ("exhibits.yaml", "exhibits/__init__.py", "exhibits.py")  # a paper has one of them


def packs() -> dict[str, Path]:
    """Paper -> its folder, in the order of names."""
    package = importlib.import_module(PAPERS)
    return {
        path.name: path
        for base in sorted(package.__path__)
        for path in sorted(Path(base).iterdir())
        if (path / "__init__.py").is_file()
    }


def said_of(paper: str, what: str) -> str:
    """A word that a paper's folder has for pages; empty if it has none.

    NAME: what the paper is called; LINK: where it is; PICTURE: the figure that stands for it;
    SENTENCE: what came out, if the first sentence of its findings does not say so; PART: what was
    run, of a paper that was run in part.
    """
    if paper not in packs():
        return ""
    return str(getattr(importlib.import_module(f"{PAPERS}.{paper}"), what, ""))


def exhibits_file(paper: str) -> Path:
    """What a paper shows; where neither is there, the place for it in the working folder."""
    return _file(paper, OWN_EXHIBITS / f"{paper}.yaml", *EXHIBITS)


def exhibits_files(paper: str) -> list[Path]:
    """The same with the modules beside it, where a paper has a folder of such."""
    path = exhibits_file(paper)
    return sorted(path.parent.glob("*.py")) if path.name == "__init__.py" else [path]


def published_file(paper: str) -> Path:
    """What a paper printed."""
    return _file(paper, OWN_PUBLISHED / f"{paper}.csv", PRINTED)


def claims_file(paper: str) -> Path:
    """What a paper says in words."""
    return _file(paper, OWN_PUBLISHED / f"{paper}.yaml", CLAIMS)


def _file(paper: str, file: Path, *names: str) -> Path:
    folder = packs().get(paper)
    # an empty one is just being written, as by a shell that sends what we print into it
    if folder is None or (file.exists() and file.stat().st_size):
        return file
    return next((_short(folder / name) for name in names if (folder / name).exists()), file)


def _short(path: Path) -> Path:
    """From the working folder on, if it lies there: paths are shown, and compared between runs."""
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def papers_with(names: Iterable[str], own: Path, suffix: str) -> list[str]:
    """The papers that have such a file, in their folder or in the working folder's `own`."""
    packed = [p for p, folder in packs().items() if any((folder / name).exists() for name in names)]
    return sorted({*packed, *(path.stem for path in own.glob(f"*{suffix}"))})


def exhibits_of(paper: str) -> Any:
    """What the Python of a paper's folder says that it shows: its `EXHIBITS`."""
    return importlib.import_module(f"{PAPERS}.{paper}.exhibits").EXHIBITS


def with_check() -> list[str]:
    """The papers that replay recorded outputs of their authors' code: those with a check.py."""
    return [paper for paper, folder in packs().items() if (folder / "check.py").is_file()]


def check_of(paper: str) -> Callable[[Path, Callable[[str], object]], int]:
    """`run_check` of its check.py: it is given a file and a way to print a line, and returns 0 if
    all agrees, 1 if not, 2 if it cannot be checked."""
    check: Callable[[Path, Callable[[str], object]], int]
    check = importlib.import_module(f"{PAPERS}.{paper}.check").run_check
    return check


def forms_of_papers() -> dict[str, Any]:
    """Forms of a check that the folders of papers add, by name: `FORMS` of their forms.py."""
    modules = [
        f"{PAPERS}.{paper}.forms"
        for paper, folder in packs().items()
        if (folder / "forms.py").is_file()
    ]
    return {k: v for name in modules for k, v in importlib.import_module(name).FORMS.items()}


def findings(root: Path = Path()) -> dict[str, Path]:
    """Pages of findings in a repository: `<paper>` or `<paper>-<part>` -> file, below its root."""
    pages = {path.stem: path for path in (root / OWN_FINDINGS).glob("*.md")}
    for path in (root / IN_REPOSITORY).glob(f"*/{FINDINGS}*.md"):
        pages[path.parent.name + path.stem.removeprefix(FINDINGS)] = path
    return {name: pages[name].relative_to(root) for name in sorted(pages)}


def modules_in(package: str) -> list[str]:
    """The modules of a package by their full names; those with an underscore are helpers."""
    folder = getattr(importlib.import_module(package), "__path__", [])
    names = sorted(module.name for module in pkgutil.iter_modules(folder))
    return [f"{package}.{name}" for name in names if not name.startswith("_")]


def modules_of_papers(room: str) -> list[str]:
    """The modules in this folder of every paper, such as its methods, by their full names."""
    folders = [paper for paper, folder in packs().items() if os.path.isdir(folder / room)]
    return [name for paper in folders for name in modules_in(f"{PAPERS}.{paper}.{room}")]


def by_own_name(modules: Iterable[str]) -> list[str]:
    """In the order of the names of the modules themselves, wherever they lie."""
    return sorted(modules, key=lambda name: (name.rpartition(".")[2], name))

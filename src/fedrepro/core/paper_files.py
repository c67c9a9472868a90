"""Find the files of papers, which lie in `fedrepro/papers/<paper>`, and their modules.

A file in the working folder is preferred, so that users can change a copy or add a paper.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedrepro import PAPERS

IN_REPOSITORY = Path("src/fedrepro/papers")
OWN_EXHIBITS = Path("config/exhibits")
OWN_PUBLISHED = Path("config/published")
PRINTED, CLAIMS, FINDINGS = "published.csv", "claims.yaml", "findings"
EXHIBITS = ("exhibits.yaml", "exhibits/__init__.py", "exhibits.py")  # a paper has one of them


def paper_names() -> dict[str, Path]:
    """Return the folder of each reproduced paper by its short name, sorted by name."""
    return {
        path.name: path
        for base in sorted(importlib.import_module(PAPERS).__path__)
        for path in sorted(Path(base).iterdir())
        if (path / "__init__.py").is_file()
    }


def paper_attribute(paper: str, what: str) -> str:
    """Return the text constant `what` of the __init__.py in a paper's folder; empty if missing.

    `what` is NAME, LINK, PICTURE (a figure that illustrates it) or PART (how much is reproduced).
    """
    known = paper in paper_names()
    return str(getattr(importlib.import_module(f"{PAPERS}.{paper}"), what, "")) if known else ""


def exhibits_file(paper: str) -> Path:
    """Return the path of the file that defines a paper's figures and tables; it may be missing."""
    return _file(paper, OWN_EXHIBITS / f"{paper}.yaml", *EXHIBITS)


def published_file(paper: str) -> Path:
    """Return the path of the csv with the values that a paper printed, for comparison."""
    return _file(paper, OWN_PUBLISHED / f"{paper}.csv", PRINTED)


def claims_file(paper: str) -> Path:
    """Return the path of the YAML file of a paper's claims, with which results are compared."""
    return _file(paper, OWN_PUBLISHED / f"{paper}.yaml", CLAIMS)


def _file(paper: str, file: Path, *names: str) -> Path:
    folder = paper_names().get(paper)
    # an empty one is just being written, as by a shell that redirects our output into it
    if folder is None or (file.exists() and file.stat().st_size):
        return file
    path, here = next((p for name in names if (p := folder / name).exists()), file), Path.cwd()
    # relative to the working folder, if it lies there, so that runs agree on it
    return path.relative_to(here) if path.is_relative_to(here) else path


def papers_with(names: Iterable[str], own: Path, suffix: str) -> list[str]:
    """List papers with any file of `names` in their folder, or <paper><suffix> in folder `own`."""
    packed = [
        p for p, folder in paper_names().items() if any((folder / name).exists() for name in names)
    ]
    return sorted({*packed, *(path.stem for path in own.glob(f"*{suffix}"))})


def exhibits_of(paper: str) -> Any:
    """Return a paper's figures and tables: EXHIBITS of exhibits.py, plain values as in YAML."""
    return importlib.import_module(f"{PAPERS}.{paper}.exhibits").EXHIBITS


def attributes_of_papers(module: str, what: str) -> dict[str, Any]:
    """Return {paper: attribute `what` of its <module>.py} for all papers that have such a file."""
    return {
        paper: getattr(importlib.import_module(f"{PAPERS}.{paper}.{module}"), what)
        for paper, folder in paper_names().items()
        if (folder / f"{module}.py").is_file()
    }


def findings(root: Path = Path()) -> dict[str, Path]:
    """Return {page: path, relative to `root`} of all papers' pages findings*.md below `root`.

    A page is named by its paper, such as gems, or gems-controls for gems/findings-controls.md.
    """
    found = (root / IN_REPOSITORY).glob(f"*/{FINDINGS}*.md")
    pages = {path.parent.name + path.stem.removeprefix(FINDINGS): path for path in found}
    return {name: pages[name].relative_to(root) for name in sorted(pages)}


def modules_in(package: str) -> list[str]:
    """Return the full names of a package's modules, except those that begin with an underscore."""
    folder = getattr(importlib.import_module(package), "__path__", [])
    names = sorted(module.name for module in pkgutil.iter_modules(folder))
    return [f"{package}.{name}" for name in names if not name.startswith("_")]

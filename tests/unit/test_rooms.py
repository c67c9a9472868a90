"""The rooms of docs/architecture.md: imports run downwards, and a name means one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/fedrepro"
RULE = re.compile(r"\b(?:rule|as) (\w+)[: ]|^ {4}\"(\w+)\": \(", re.MULTILINE)
USERS_NAMES = re.compile(r"/(?:cli|components|methods)/|run_locked")
ROW = re.compile(r"^\| `(\w+)`")


def rooms() -> list[str]:
    """From the lowest to the highest, as the page lists them."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return [found[1] for line in text.splitlines() if (found := ROW.match(line))]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def sources() -> dict[Path, list[ast.AST]]:
    """Each module and its nodes."""
    return {
        path: list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    }


ENTRY_POINTS = "fedrepro.components"  # what other packages call their group, and no module


def named(node: ast.AST) -> list[str]:
    """What an import statement imports, and a text names, as `import_module` would take it."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    text = str(node.value) if isinstance(node, ast.Constant) else ""
    return [text] if re.fullmatch(r"fedrepro\.\w[\w.]*", text) and text != ENTRY_POINTS else []


def test_every_room_is_on_the_page_and_no_import_runs_from_a_lower_one_to_a_higher_one() -> None:
    assert sorted(rooms()) == sorted({room_of(path) for path in sources()})
    order = {room: at for at, room in enumerate(rooms())}
    upwards = []
    for path, nodes in sources().items():
        for name in (name for node in nodes for name in named(node)):
            package, other, *_ = (*name.split("."), "")
            if package == "fedrepro" and order.get(other, -1) > order[room_of(path)]:
                upwards.append(f"{path.relative_to(ROOT)} names {name}")
    assert not upwards


def test_no_name_stands_for_two_things_and_no_file_is_longer_than_one_reads() -> None:
    every = (node for nodes in sources().values() for node in nodes)
    names = Counter(node.name for node in every if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1]
    # Commands and methods have the user's names; each stage has a `run`.
    own = {path: nodes for path, nodes in sources().items() if not USERS_NAMES.search(str(path))}
    functions = (node for nodes in own.values() for node in nodes[0].body)  # type: ignore[attr-defined]
    names = Counter(node.name for node in functions if isinstance(node, ast.FunctionDef))
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert twice == {"run", "compare"}
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert not {path: count for path, count in lines.items() if count > 500}


def test_the_drawing_of_rules_is_that_of_the_workflow() -> None:
    """It leaves out rules that no exhibit of ours needs at quick scale, and adds none."""
    drawn = set(re.findall(r">(\w+)</text>", (ROOT / "docs/figures/rules.svg").read_text("utf-8")))
    files = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    found = (names for path in files for names in re.findall(RULE, path.read_text("utf-8")))
    assert drawn <= set(chain(*found)), "draw it again by the command in docs/architecture.md"
    assert {"train", "exhibit", "claims", "site"} <= drawn

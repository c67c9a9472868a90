"""The rooms of docs/architecture.md: imports run downwards, and a name means one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/fedrepro"
RULE = re.compile(r"\b(?:rule|as) (\w+)[: ]|^ {4}\"(\w+)\": \(", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)`")


def rooms() -> list[str]:
    """From the lowest to the highest, as the page lists them."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return [found[1] for line in text.splitlines() if (found := ROW.match(line))]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.stem not in LEFT_OUT]


LEFT_OUT = {"__init__", "__main__"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported when the code runs; names that only types need do not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield from names_in(node)
        yield from imported(node)


def names_in(node: ast.AST) -> Iterator[str]:
    """What an import statement imports; nothing of any other."""
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def test_every_room_is_on_the_page() -> None:
    assert sorted(rooms()) == sorted({room_of(path) for path in sources()})


def test_no_import_runs_from_a_lower_room_to_a_higher_one() -> None:
    order = rooms()
    upwards = []
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name in (name for node in ast.walk(tree) for name in names_in(node)):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package != "fedrepro" or other not in order:
                continue
            if order.index(other) > order.index(room_of(path)):
                upwards.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not upwards


ENTRY_POINTS = "fedrepro.components"  # what other packages call their group, and no module


def test_no_text_names_a_module_of_a_higher_room() -> None:
    """As `import_module` would take it."""
    order = rooms()
    upwards = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            found = re.fullmatch(r"fedrepro\.(\w+)[\w.]*", text) if isinstance(text, str) else None
            if not found or found[1] not in order or text == ENTRY_POINTS:
                continue
            if order.index(found[1]) > order.index(room_of(path)):
                upwards.append(f"{path.relative_to(ROOT)} names {text}")
    assert not upwards


def test_no_class_name_stands_twice() -> None:
    names = Counter(
        node.name
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in names.items() if count > 1]


def test_no_file_is_longer_than_one_reads() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert not {path: count for path, count in lines.items() if count > 500}


def test_the_drawing_of_rules_is_that_of_the_workflow() -> None:
    """It leaves out rules that no exhibit of ours needs at quick scale, and adds none."""
    drawn = set(re.findall(r">(\w+)</text>", (ROOT / "docs/figures/rules.svg").read_text("utf-8")))
    files = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    rules = {
        name
        for path in files
        for found in re.findall(RULE, path.read_text("utf-8"))
        for name in found
    }
    assert drawn <= rules, "draw it again by the command in docs/architecture.md"
    assert {"train", "exhibit", "claims", "site"} <= drawn

"""Rooms of docs/architecture.md: imports run downwards, names mean one thing, plainly said."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/fedrepro"
RULE = re.compile(r"\b(?:rule|as) (\w+)[: ]|^ {4}\"(\w+)\": \(", re.MULTILINE)
USERS_NAMES = re.compile(r"/(?:cli|components|methods)/|command_under_lock")
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


def named(node: ast.AST) -> list[str]:
    """What an import statement imports, and a text names, as `import_module` would take it."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    text = str(node.value) if isinstance(node, ast.Constant) else ""
    return [text] if re.fullmatch(r"fedrepro\.\w[\w.]*", text) else []


def test_rooms_are_on_the_page_imports_run_downwards_and_the_drawing_is_of_the_workflow() -> None:
    assert sorted(rooms()) == sorted({room_of(path) for path in sources()})
    order = {room: at for at, room in enumerate(rooms())}
    upwards = []
    for path, nodes in sources().items():
        for name in (name for node in nodes for name in named(node)):
            package, other, *_ = (*name.split("."), "")
            if package == "fedrepro" and order.get(other, -1) > order[room_of(path)]:
                upwards.append(f"{path.relative_to(ROOT)} names {name}")
    assert not upwards
    # It leaves out rules that no exhibit of ours needs at quick scale, and adds none.
    drawn = set(re.findall(r">(\w+)</text>", (ROOT / "docs/figures/rules.svg").read_text("utf-8")))
    files = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    found = (names for path in files for names in re.findall(RULE, path.read_text("utf-8")))
    assert drawn <= set(chain(*found)), "draw it again by the command in docs/architecture.md"
    assert {"train", "exhibit", "claims", "site"} <= drawn


def test_no_name_stands_for_two_things_and_no_file_is_longer_than_one_reads() -> None:
    every = (node for nodes in sources().values() for node in nodes)
    names = Counter(node.name for node in every if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1]
    # Commands and methods have the user's names; each stage has a `run`.
    own = {path: nodes for path, nodes in sources().items() if not USERS_NAMES.search(str(path))}
    functions = (node for nodes in own.values() for node in nodes[0].body)  # type: ignore[attr-defined]
    names = Counter(node.name for node in functions if isinstance(node, ast.FunctionDef))
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert twice == {"run"}
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert not {path: count for path, count in lines.items() if count > 500}


ROOMS = sorted(
    path
    for path in (ROOT / "src/fedrepro").iterdir()
    if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
)
OPENING = re.compile(r"(?:^|[.;] )(?:The same|All of it|Those|That of|What)\b")
WORD = re.compile(
    r"\b(?:so many|is no [a-z]+|is none of|of wh(?:ich|om)|anew|beside|mend(?:s|ed)?|told)\b"
)


def of_docstring(node: ast.AST, doc: str) -> Iterator[str]:
    text = " ".join(doc.split())
    yield from (match[0] for rule in (OPENING, WORD) for match in rule.finditer(text))
    if not isinstance(node, ast.FunctionDef):
        return
    if node.name.startswith("_") and not node.name.startswith("__"):
        if doc and len(node.body) == 2:
            yield "private, of one statement"
        return
    if re.search(r"\bErrors?: ", doc):
        yield "errors are a list, under Raises:"
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    named = "|".join(re.escape(argument.arg) for argument in arguments) or "$^"
    if "Args:" not in doc and re.search(rf"(?:^|[.;] )(?:{named})(?:, \w+)*: ", text):
        yield "arguments are a list, under Args:"


def found(source: str) -> list[str]:
    """Return what the rules refuse in a module, each with its line."""
    hits, texts = [], []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            line = getattr(node, "lineno", 1)
            hits += [f"{line}: {hit}" for hit in of_docstring(node, ast.get_docstring(node) or "")]
        if isinstance(node, ast.Raise) and node.exc is not None:
            parts = (part for part in ast.walk(node.exc) if isinstance(part, ast.Constant))
            texts += [(part.lineno, part.value) for part in parts if isinstance(part.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts += [(one.start[0], one.string) for one in tokens if one.type == tokenize.COMMENT]
    return hits + [f"{line}: {m[0]}" for line, text in texts for m in WORD.finditer(text)]


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_a_room_is_said_plainly(room):
    files = [room] if room.suffix else sorted(room.rglob("*.py"))
    refused = {str(path.relative_to(ROOT)): found(path.read_text("utf-8")) for path in files}
    assert {path: hits for path, hits in refused.items() if hits} == {}

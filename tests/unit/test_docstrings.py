"""Docstrings, comments and errors say a thing plainly; ruff holds their form (D401, D205, D417)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = sorted(
    path
    for path in (ROOT / "src/fedrepro").iterdir()
    if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
)
OPENING = re.compile(r"(?:^|[.;] )(?:The same|All of it|Those|That of|What)\b")
WORD = re.compile(
    r"\b(?:so many|is no [a-z]+|is none of|of wh(?:ich|om)|anew|beside|mend(?:s|ed)?|told)\b"
)
LIST = re.compile(r"\bErrors?: ")


def flat(text: str) -> str:
    return " ".join(text.split())


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def of_docstring(node: ast.AST, doc: str) -> Iterator[str]:
    text = flat(doc)
    yield from (match[0] for rule in (OPENING, WORD) for match in rule.finditer(text))
    if not isinstance(node, ast.FunctionDef):
        return
    if private(node.name):
        if doc and len(node.body) == 2:
            yield "private, of one statement"
        return
    if LIST.search(doc):
        yield "errors are a list, under Raises:"
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    named = "|".join(re.escape(argument.arg) for argument in arguments) or "$^"
    if "Args:" not in doc and re.search(rf"(?:^|[.;] )(?:{named})(?:, \w+)*: ", text):
        yield "arguments are a list, under Args:"


def found(source: str) -> list[str]:
    """Return what the rules refuse in a module, each with its line."""
    tree = ast.parse(source)
    hits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            line = getattr(node, "lineno", 1)
            hits += [f"{line}: {hit}" for hit in of_docstring(node, ast.get_docstring(node) or "")]
        if isinstance(node, ast.Raise) and node.exc is not None:
            texts = [part for part in ast.walk(node.exc) if isinstance(part, ast.Constant)]
            hits += [
                f"{text.lineno}: {match[0]}"
                for text in texts
                if isinstance(text.value, str)
                for match in WORD.finditer(text.value)
            ]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            hits += [f"{token.start[0]}: {match[0]}" for match in WORD.finditer(token.string)]
    return hits


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_a_room_is_said_plainly(room):
    files = [room] if room.suffix else sorted(room.rglob("*.py"))
    assert {
        str(path.relative_to(ROOT)): hits
        for path in files
        if (hits := found(path.read_text(encoding="utf-8")))
    } == {}


ADD = 'def f(a):\n    """Add.\n\n    {}a: a number.\n    """'


@pytest.mark.parametrize(
    ("source", "hits"),
    [
        ('"""What comes of sums. The same of rows."""', ["1: What", "1: . The same"]),
        (ADD.format(""), ["1: arguments are a list, under Args:"]),
        (ADD.format("Args:\n        "), []),
        ('def f(a):\n    """Add. Errors: never."""', ["1: errors are a list, under Raises:"]),
        ('def _f():\n    """Add."""\n    return 1', ["1: private, of one statement"]),
        ("a = 1  # so many rows", ["1: so many"]),
        ('raise ValueError(f"{a} is none of b")', ["1: is none of"]),
    ],
)
def test_the_rules(source, hits):
    assert found(source) == hits

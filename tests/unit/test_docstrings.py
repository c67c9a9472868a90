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

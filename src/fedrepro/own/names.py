"""Methods by the names that pages call them, as well as by those of their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedrepro.core.registry import components
from fedrepro.planning.config import load_exhibits


def method_named(words: str) -> str:
    """The token of a one-shot method that pages or its file call so, such as RegMean++.

    Capitals do not matter. A token stays as it is, and so does what is no method's name.
    """
    name, plus, rest = words.partition("+")
    known = {key for key, item in components("method").items() if item.meta["kind"] == "one_shot"}
    if name in known:
        return words
    labelled = {**_by_own_labels(known), **_by_leaderboards(known)}
    if words.lower() in labelled:
        return labelled[words.lower()]
    method = labelled.get(name.lower()) or (name.lower() if name.lower() in known else name)
    return f"{method}{plus}{rest}"


def _by_own_labels(known: set[str]) -> dict[str, str]:
    """Label of one method alone, in small letters -> its name."""
    labels = [(components("method")[name].meta["label"].lower(), name) for name in sorted(known)]
    every = [label for label, _ in labels]
    return {label: name for label, name in labels if every.count(label) == 1}


def _by_leaderboards(known: set[str]) -> dict[str, str]:
    """The same of what leaderboards call their methods."""
    boards = [file for file in load_exhibits().values() if file.boards]
    entries = (
        entry
        for board in boards
        for entry in _entries([board.defaults, board.also, board.exhibits])
    )
    return {
        str(entry["label"]).lower(): entry["name"] for entry in entries if entry["name"] in known
    }


def _entries(node: Any) -> Iterator[dict[str, Any]]:
    """All entries with a name and a label."""
    if isinstance(node, dict):
        if isinstance(node.get("name"), str) and "label" in node:
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _entries(part)

"""Methods by the names that pages call them, as well as by those of their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedrepro.core.called import method_called
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
    of_boards = _by_leaderboards(known)
    for words_or_name, further in ((words, ""), (name, plus + rest)):
        if found := of_boards.get(words_or_name.lower()):
            return f"{found}{further}"
        one_shot = {key: components("method")[key] for key in known}
        if called := method_called(words_or_name, one_shot):
            return f"{called.token}{further}"
    return words


def _by_leaderboards(known: set[str]) -> dict[str, str]:
    """What leaderboards call their methods, in small letters -> its name."""
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

"""Pages that people write stay short: what is longer goes to pages of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("src/fedrepro/papers/*/*.md")),
]
MOST = 1500
BLOCK = re.compile(r"```.*?```|<!-- counts from here.*?<!-- to here -->", re.DOTALL)
TARGET = re.compile(r"\]\([^)]*\)")


def prose(page: str) -> int:
    """Words outside of tables, code and what is generated; of a link, those that are read."""
    lines = TARGET.sub("]", BLOCK.sub("", page)).splitlines()
    return sum(len(line.split()) for line in lines if not line.startswith(("|", "    ")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_read_in_some_minutes(page):
    assert prose(page.read_text(encoding="utf-8")) <= MOST


def test_words_of_tables_code_and_targets_are_not_counted():
    page = "One [two](three.md)\n| four |\n\n    five\n```\nsix\n```\nseven"
    assert prose(page) == 3

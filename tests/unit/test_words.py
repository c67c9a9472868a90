"""Pages that people write stay short and plain; run as a program, this prints their counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOGETHER = [*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("src/fedrepro/papers/*/*.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *TOGETHER]
BOUNDS = {
    "words of docs and findings": 30_000,
    "words of a sentence, mean": 25,
    "terms of the glossary": 25,
    "lines of the changelog": 120,
    "lines of the README": 150,
}
MOST = 1500  # words of a page
BLOCK = re.compile(r"```.*?```|<!-- counts from here.*?<!-- to here -->", re.DOTALL)
ROOMS = "|".join(path.name for path in (ROOT / "src/fedrepro").iterdir() if path.is_dir())
PATH = re.compile(  # of a file, but not of one that a page shows how to write
    rf"`((?:src|docs|tests|workflow|config|{ROOMS})/[\w./*-]+)`(?!.*(?:\n.+)?:\n\n[` ]{{3}})"
)
TARGET = re.compile(r'\]\([^()"\s]*(?: "[^"]*")?\)|^\[[^]]+\]: .*$', re.MULTILINE)
REFUSED = re.compile(
    r"\b(beside|told|anew|mend(ed)?|so many|is no(?= [a-z]))\b"
    r"|(?:^|[.:?] )\W*((?:What|Those|The same)\b[^?\n]*)(?!\?)",
    re.MULTILINE,
)


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def plain(page: str) -> list[str]:
    """Lines outside of tables, code and what is generated; of a link, the words that are read."""
    lines = TARGET.sub("]", BLOCK.sub("", page)).splitlines()
    return [line for line in lines if not line.startswith(("|", "    "))]


def prose(page: str) -> int:
    return sum(len(line.split()) for line in plain(page))


def sentences(page: str) -> list[str]:
    """Sentences of paragraphs and items; a heading, and an item without a full stop, are none."""
    lines = [line for line in plain(page) if not line.startswith(("#", "!", "<!--"))]
    parts = re.split(r"\n\s*\n|\n\s*(?:-|\d+\.) ", "\n".join(lines))
    found = (re.split(r"(?<=[.?:])\**\s+(?=[A-Z*\[`0-9])", " ".join(p.split())) for p in parts)
    return [one for part in found for one in part if len(one.split()) > 3]


def counts() -> dict[str, float]:
    """The count of each bound; words as `wc` counts them, lines of tables left out."""
    outside = (line for page in TOGETHER for line in read(page).splitlines())
    every = [len(one.split()) for page in PAGES for one in sentences(read(page))]
    terms = [line for line in read(ROOT / "docs/glossary.md").splitlines() if line.startswith("| ")]
    found = (
        sum(len(line.split()) for line in outside if not line.lstrip().startswith("|")),
        sum(every) / len(every),
        len(terms) - 2,  # the head and its line
        *(len(read(ROOT / name).splitlines()) for name in ("CHANGELOG.md", "README.md")),
    )
    return dict(zip(BOUNDS, found, strict=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_read_in_some_minutes(page):
    assert prose(read(page)) <= MOST


@pytest.mark.parametrize("page", TOGETHER, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_word_that_readers_stumble_over(page):
    assert [m[0].strip() for m in REFUSED.finditer("\n".join(plain(read(page))))] == []


def test_files_that_pages_name_are_there():
    named = [path for page in PAGES for path in PATH.findall(read(page))]
    assert [p for p in named if not {*ROOT.glob(p), *ROOT.glob(f"src/fedrepro/{p}")}] == []


def test_all_pages_together_are_within_their_bounds():
    found = counts()
    assert {name: found[name] for name, most in BOUNDS.items() if found[name] > most} == {}


if __name__ == "__main__":
    for name, count in counts().items():
        print(f"{count:>8,.0f} of {BOUNDS[name]:>6,}  {name}")
    for page in PAGES:
        print(f"{prose(read(page)):>8,} of {MOST:>6,}  {page.relative_to(ROOT)}")

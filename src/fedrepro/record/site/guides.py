"""Turn the guides of docs/ into pages, whose links lead to other pages or to copies of files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import relpath
from pathlib import Path, PurePosixPath

from fedrepro.record.site.pages import part
from fedrepro.record.templating import LINK, RecordQuery, filled

MARKDOWN = re.compile(r"(?<!!)\[([^\[\]]+)\]\(([^()\s]+)\)")
GENERATED = re.compile(r"<!-- [^>]*fedrepro documents -->.*?<!-- to here -->\n?", re.DOTALL)
# pages of the site; config's lies neither in docs/ nor with a paper
PAGE = re.compile(r"docs/.+\.md|config/README\.md|glossary\.md")
HOME = ("README.md", "reports/record", ".")  # for these the site has its first page


@dataclass
class Guides:
    """Turns markdown documents of the repository `root` into pages of the website.

    record: folder of recorded results, which numbers are filled in from. elsewhere: document ->
    page, where their paths differ. without: beginnings of the paths of pages that this website
    lacks. copies: files that pages link to, collected while pages are made.
    """

    root: Path
    record: Path
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    copies: set[str] = field(default_factory=set)

    def page(self, path: PurePosixPath) -> str:
        """Return the markdown file at `path` as a page, with recorded numbers and working links."""
        text = (self.root / path).read_text(encoding="utf-8")
        page = PurePosixPath(self.elsewhere.get(str(path), str(path)))
        if page.parent.name == "findings":  # the paper's own pages have its claims and values
            text = GENERATED.sub("", text)
        text = text.replace("```mermaid\n", "```text\n")  # a chart would need a script
        return self.linked(self.numbered(text, len(page.parts) - 1), path, page)

    def numbered(self, text: str, depth: int) -> str:
        """Fill in a text's numbers from recorded results, and link each to its figure or table.

        `depth` is the number of folders between the page and the root of the website.
        """

        def show(asked: RecordQuery, number: str) -> str:
            _, paper, name = asked.file.split("/")
            place = f"{'../' * depth}papers/{paper}.html#{name.partition('.')[0]}"
            return part("link", place, number, "number", f"{asked.file}: {asked.question}")

        return filled(text, self.record, show) if LINK.search(text) else text

    def linked(self, text: str, path: PurePosixPath, page: PurePosixPath) -> str:
        """Lead the links of a text from the file `path` to pages and copies; `page` is its page.

        A link to a missing file or page becomes plain text.
        """
        up, root = "../" * (len(page.parts) - 1), self.root.resolve()

        def resolved(match: re.Match[str]) -> str:
            label, target = match.groups()
            if re.match(r"[a-z]+:|#", target):
                return match[0]
            file, hash_sign, anchor = target.partition("#")
            place = (root / path.parent / file).resolve()
            relative = place.relative_to(root).as_posix() if place.is_relative_to(root) else ""
            other = self.elsewhere.get(relative, relative)
            if not relative or not place.exists() or other.startswith(self.without):
                return label
            if PAGE.fullmatch(other):
                return f"[{label}]({relpath(other, page.parent)}{hash_sign}{anchor})"
            if relative in HOME:
                return part("link", f"{up}index.html", label)
            if place.is_dir():
                return label
            self.copies.add(relative)
            return part("link", up + copied(relative), label)

        return MARKDOWN.sub(resolved, text)


def copied(path: str) -> str:
    """Return the path of a file's copy on the website, which any browser can show: as .txt."""
    shown = path.endswith((".csv", ".json", ".svg", ".png", ".txt"))
    return f"files/{path}" if shown else f"files/{path}.txt"

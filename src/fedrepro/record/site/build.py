"""Build the website: write pages, scripts and pictures as files for Sphinx, and run Sphinx.

The website works when it is opened from disk. No page loads anything over a network; only a search
loads pages of the website itself, to show excerpts of its results. The folder is written under a
temporary name and renamed when it is whole.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from os.path import dirname, normpath, relpath
from pathlib import Path, PurePosixPath
from typing import Any

from fedrepro.core.checksummed_files import temporary_folder
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import findings as findings_in
from fedrepro.record.numbers_in_pages import LINK, RecordQuery, filled
from fedrepro.record.record_entries_and_leaderboards import RECORD
from fedrepro.record.site import pages
from fedrepro.record.site.report_data import Reports

FINDINGS = "docs/findings/"
GUIDES = {
    "Use": ("using", "own-models", "combine", "exhibits", "methods"),
    "Data and networks": ("data", "partitions", "models", "graphs"),
    "Add": (
        *("adding-a-method", "adding-a-method-in-rounds", "adding-an-exhibit", "adding-a-paper"),
        "entries",
    ),
    "Read results": ("claims", "leaderboard", "origin", "performance", "verdicts-moved"),
}
GLOSSARY = "docs/glossary.md"  # the site makes it itself, as glossary.md
# of an svg's numbers above 1, and indents: a hundredth of a point is not seen
LONG = re.compile(r"(?<![\d.])([1-9]\d*\.\d\d)\d+|(?<=\n) +")
STYLE = "site.css"  # a folder that has it is a site
NEEDED = ("sphinx", "myst_parser", "furo")
MARKDOWN = re.compile(r"(?<!!)\[([^\[\]]+)\]\(([^()\s]+)\)")
COPIED = re.compile(r'href="(?:\.\./)*files/([^"]+)"')
GENERATED = re.compile(r"<!-- [^>]*fedrepro documents -->.*?<!-- to here -->\n?", re.DOTALL)


def build(reports: Reports, folder: Path, out: Path) -> int:
    """Write the website of results to `out`, and return its number of pages.

    `read_reports` made `reports` from `folder`. The docs of the working folder become pages too. A
    website of fedrepro in `out` is replaced; other files or warnings of Sphinx raise FedreproError.
    """
    _require_own(out)
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise FedreproError(f"the site needs {', '.join(NEEDED)}; {missing[0]} is missing")
    out.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(out.parent) as work:
        html = work / "html"
        count = len(write_source(reports, folder, work / "source"))
        _sphinx(work / "source", html, work / "doctrees")
        # of Sphinx alone, and the theme's sources for its authors
        for path in (html / ".buildinfo", html / "objects.inv", *html.rglob("*.map")):
            path.unlink(missing_ok=True)
        if out.exists():
            out.rename(work / "before")
        html.rename(out)
    return count


def _require_own(out: Path) -> None:
    other = out.is_dir() and any(out.iterdir()) and not (out / "_static" / STYLE).is_file()
    if other or out.is_symlink() or out.is_file():
        said = f"{out} is a file, a link, or a folder of other files than a site's,"
        raise FedreproError(f"{said} which would be lost; name a folder that is not there yet")


def write_source(reports: Reports, folder: Path, place: Path) -> dict[str, str]:
    """Write Sphinx's input on `reports` (files in `folder`) to `place`; return {page: markdown}."""
    whole = reports.scale == "paper"  # findings quote that scale alone
    written = {path.as_posix(): path for path in Path("docs").glob("**/*.md")}
    written["config/README.md"] = Path("config/README.md")
    written = {name: path for name, path in written.items() if path.exists() and name != GLOSSARY}
    found = {f"{FINDINGS}{name}.md": path for name, path in findings_in().items()}
    files = written | found if whole else written
    shown = {path.as_posix(): name for name, path in files.items()} | {GLOSSARY: "glossary.md"}
    names = sorted(files, key=lambda name: name.removesuffix(".md"))
    made = {name: _guide(files[name], name, shown) for name in names}
    cards, openings = {}, {}
    details: dict[str, list[tuple[str, str]]] = {}
    for name in filter(found.__contains__, names):
        about, file = _of(name), files[name]
        title = made[name].partition("\n")[0].removeprefix("# ")
        details.setdefault(about, []).append((title, name))
        if name == f"{FINDINGS}{about}.md":  # the paper's own page begins with it
            text = file.read_text(encoding="utf-8").partition("\n")[2]
            opening = re.split(r"^## |<!--", text, maxsplit=1, flags=re.MULTILINE)[0].strip()
            cards[about] = numbered(opening, 0).strip()
            openings[about] = linked(numbered(opening, 1), file, f"papers/{about}.md", shown)
    # only a checkout has guides
    origin, claims, board = (
        name if (name := f"docs/{guide}.md") in made else ""
        for guide in ("origin", "claims", "leaderboard")
    )
    links, guide = pages.links_of(reports), board.replace(".md", ".html")
    copies: dict[str, Path] = {}
    for paper in reports.papers:
        for board_of in paper.boards:
            for suffix in (".groups.svg", ".bytes.svg", ".csv", ".scenarios.csv", ".times.csv"):
                name = f"{board_of.key}{suffix}"
                copies[f"_extra/shown/{name}"] = folder / name
        for one in paper.exhibits.values():
            for suffix in {".csv", ".choice.csv", ".printed.csv", ".svg"} & {*one.files.suffixes}:
                ending = one.csv if suffix == ".csv" else suffix
                copies[f"_extra/shown/{one.key}{ending}"] = folder / f"{one.key}{suffix}"
        found_of_it = openings.get(paper.name, ""), details.get(paper.name, ())
        made[f"papers/{paper.name}.md"] = pages.paper_page(paper, *found_of_it, links, guide)
        made[f"papers/{paper.name}-numbers.md"] = pages.page("numbers.md", up="../", paper=paper)
    made |= {f"methods/{name}.md": text for name, text in pages.method_pages(reports).items()}
    made["reproduce.md"] = pages.page("reproduce.md", reports=reports, origin=origin)
    made["glossary.md"] = pages.page("glossary.md", guide=claims)
    if whole:
        made["api.md"] = pages.page("api.md")
    made["index.md"] = pages.home(reports, cards, _trees(reports, made))
    copied = {file for text in made.values() for file in COPIED.findall(text)}
    copies |= {f"_extra/files/{file}": Path(file) for file in copied}
    copies |= {f"_static/{name}": Path(__file__).with_name(name) for name in (STYLE, "site.js")}
    copies |= {str(file): file for file in Path("docs/figures").rglob("*") if file.is_file()}
    for name, what in (made | copies).items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, str):
            path.write_text(what, encoding="utf-8")
        elif path.suffix == ".gz":
            path.write_bytes(gzip.compress(what.read_bytes(), mtime=0))
        elif what.suffix == ".svg":
            path.write_text(LONG.sub(r"\1", what.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(what, path)
    return made


def _of(name: str) -> str:
    return PurePosixPath(name).stem.partition("-")[0]


def _trees(reports: Reports, made: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return the side bar of the website: pairs (caption, names of pages, all in `made`)."""
    there = [name.removesuffix(".md") for name in made]
    known = {paper.name: bool(paper.boards) for paper in reports.papers}
    lost = [name for name in there if name.startswith(FINDINGS) and _of(name) not in known]
    guides = {caption: [f"docs/{name}" for name in names] for caption, names in GUIDES.items()}
    others = {name for name in there if name.startswith("docs/") and name.count("/") == 1}
    trees = {
        "Leaderboard": [f"papers/{name}" for name, boards in known.items() if boards],
        "Papers": [*(f"papers/{name}" for name, boards in known.items() if not boards), *lost],
        "Methods": ["methods/index"],
        **guides,
        "Maintain": sorted(others.difference(*guides.values())),
        "Reference": ["glossary", "reproduce", "config/README", "api"],
    }
    found = ((caption, [n for n in names if n in there]) for caption, names in trees.items())
    return [(caption, names) for caption, names in found if names]


def _guide(file: Path, name: str, shown: Mapping[str, str]) -> str:
    """Return markdown `file` as page `name`, with recorded numbers and links (as in `linked`)."""
    text = file.read_text(encoding="utf-8")
    if name.startswith(FINDINGS):  # the paper's own pages have its claims and values
        text = GENERATED.sub("", text)
    text = text.replace("```mermaid\n", "```text\n")  # a chart would need a script
    return linked(numbered(text, name.count("/")), file, name, shown)


def numbered(text: str, depth: int, record: Path = RECORD) -> str:
    """Replace numbers that link to files of the `record` by recorded values that link to pages.

    `depth` is the number of folders above the text's page in the website, such as 1 for papers/x.
    """

    def show(asked: RecordQuery, number: str) -> str:
        _, paper, name = asked.file.split("/")
        place = f"{'../' * depth}papers/{paper}.html#{name.partition('.')[0]}"
        return pages.part("link", place, number, "number", f"{asked.file}: {asked.question}")

    return filled(text, record, show) if LINK.search(text) else text


def linked(text: str, path: Path, name: str, shown: Mapping[str, str]) -> str:
    """Return the `text` of the markdown file `path` with links that work on the page `name`.

    A link to a file in `shown`, {file: page}, then leads to its page; a link to any other csv file
    leads to a copy of that file. Web addresses stay; other links become text.
    """

    def resolved(match: re.Match[str]) -> str:
        label, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        file, hash_sign, anchor = target.partition("#")
        relative = normpath(path.parent / file)
        if other := shown.get(relative):
            return f"[{label}]({relpath(other, dirname(name))}{hash_sign}{anchor})"
        copied = f"{'../' * name.count('/')}files/{relative}"
        known = relative.endswith(".csv") and Path(relative).is_file()
        return pages.part("link", copied, label) if known else label

    return MARKDOWN.sub(resolved, text)


SETTINGS: dict[str, Any] = {
    "project": "fedrepro",
    "html_title": "fedrepro",
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "napoleon_numpy_docstring": False,
    "html_theme": "furo",
    "html_static_path": ["_static"],
    "html_extra_path": ["_extra"],
    "exclude_patterns": ["_extra/**", "_static/**"],
    "html_css_files": ["site.css"],
    "html_js_files": [("site.js", {"defer": "defer"})],
    **{f"html_{part}": False for part in ("copy_source", "show_sphinx", "show_copyright")},
    **{f"html_{part}": False for part in ("use_index", "domain_indices")},
    "default_role": "literal",
    "myst_heading_anchors": 4,
    "myst_enable_extensions": ["attrs_inline"],
    "autodoc_member_order": "bysource",
    "add_module_names": False,
    "pygments_style": "friendly",
    "suppress_warnings": ["misc.highlighting_failure", "autodoc", "ref.python", "docutils"],
    "html_theme_options": {
        "light_css_variables": {"color-brand-primary": "#0b5c7a", "color-brand-content": "#0b5c7a"},
        "dark_css_variables": {"color-brand-primary": "#7fcbe6", "color-brand-content": "#7fcbe6"},
    },
}


def _sphinx(source: Path, out: Path, doctrees: Path) -> None:
    """Turn pages in `source` into html in `out` (cache: `doctrees`); raise if Sphinx warns."""
    from sphinx.application import Sphinx
    from sphinx.search.en import SearchEnglish
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    class OneStemAWord(SearchEnglish):
        """Sphinx's search in English, with a cache of the stems of words for all pages."""

        stem = staticmethod(cache(SearchEnglish({}).stem))

    def plain(*event: Any) -> None:
        event[-1][:] = [pages.escaped(line, r"*|_\\`") for line in event[-1]]

    def draw(app: object, page: str, name: str, context: dict[str, Any], tree: object) -> None:
        """Collapse the menu of `page` except at that page; Sphinx calls this before each page."""
        whole = context["toctree"]
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})

    warnings = io.StringIO()
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            srcdir=str(source), confdir=None, outdir=str(out), doctreedir=str(doctrees), parallel=2,
            buildername="html", confoverrides=SETTINGS, status=None, warning=warnings,
        )  # fmt: skip
        app.connect("autodoc-process-docstring", plain, priority=400)  # before lists
        app.connect("html-page-context", draw, priority=100)  # before the theme draws it
        app.add_search_language(OneStemAWord)
        app.build()
    faults = [line for line in warnings.getvalue().splitlines() if line.strip()]
    if faults:
        text = "\n".join(line.replace(str(source.resolve()), "") for line in faults[:20])
        raise FedreproError(f"the site has {len(faults)} faults:\n{text}")

"""Building: the pages as files for Sphinx, their scripts and pictures, and Sphinx itself.

The site works from disk: scripts are classic ones, each once, and no page asks a network for
anything. The folder is written under a temporary name and renamed when it is whole.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import findings as findings_in
from fedrepro.core.paper_files import paper_attribute, paper_names
from fedrepro.core.registry import KINDS
from fedrepro.core.temporary_folders import temporary_folder
from fedrepro.record.site import pages
from fedrepro.record.site.charts import chart, vega_script
from fedrepro.record.site.guides import Guides, copied
from fedrepro.record.site.methods import links_of, method_pages
from fedrepro.record.site.minify_svg import minify_svg
from fedrepro.record.site.report_data import Paper, Reports

RECORD = Path("reports/record")
FINDINGS = "docs/findings/"
ROOMS = ("api", "combine", "graphs", "matching")
GUIDES = {
    "Use": ("using", "own-models", "combine", "exhibits", "methods"),
    "Data and networks": ("data", "partitions", "models", "graphs"),
    "Add": (
        *("adding-a-method", "adding-a-method-in-rounds", "adding-an-exhibit", "adding-a-paper"),
        "entries",
    ),
    "Read results": ("claims", "leaderboard", "origin", "performance", "verdicts-moved"),
    "Maintain": ("architecture",),
}
ORIGIN, CLAIMS, BOARD = "docs/origin.md", "docs/claims.md", "docs/leaderboard.md"
GLOSSARY = "docs/glossary.md"  # the site makes it itself, as glossary.md
EXCERPT = 4000  # letters of a page, in which the search shows where a word stands
ARTICLE = re.compile(r"<article[^>]*>(.*?)</article>", re.DOTALL)
TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
EXPORTS = re.compile(r"export\{([^}]*)\};?")
CAPTION = 'class="caption" role="heading"'  # in the navigation: readers need its level too
WRAPPER = 'class="table-wrapper'  # it scrolls, as code does, so keys must reach both
STYLE = "site.css"  # a folder that has it is a site
NEEDED = "the site needs sphinx, myst-parser, furo, altair, vl-convert-python and itables"


@dataclass
class Contents:
    """The input of Sphinx: pages by path, files that are copied as they are, static files."""

    pages: dict[str, str] = field(default_factory=dict)
    copies: dict[str, Path] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)


def build(reports: Reports, folder: Path, out: Path, root: Path = Path()) -> int:
    """Write the site of reports and return its number of pages.

    Args:
        reports: papers with their exhibits.
        folder: where the files of the reports lie.
        out: folder to write; a site that is there is replaced.
        root: of the repository, whose guides are part of the site.

    Raises:
        FedreproError: if a package is missing, Sphinx warns of something (for instance a link that
            leads nowhere), or `out` has files that are not a site.
    """
    _require_own(out)
    source = _source(reports, folder, root)
    out.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(out.parent) as work:
        _write(source, work / "source")
        _sphinx(work / "source", work / "html", work / "doctrees")
        excerpts = {}
        for path in (work / "html").rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            text = text.replace(CAPTION, f'{CAPTION} aria-level="2"')
            text = text.replace("<pre>", '<pre tabindex="0">')
            path.write_text(text.replace(WRAPPER, f'tabindex="0" {WRAPPER}'), encoding="utf-8")
            said = unescape(TAGS.sub(" ", "".join(ARTICLE.findall(text)))).replace("¶", "")
            excerpts[path.relative_to(work / "html").as_posix()] = " ".join(said.split())[:EXCERPT]
        words = json.dumps(excerpts, ensure_ascii=False, separators=(",", ":"))
        script = f"window.fedreproExcerpts={words};\n"
        (work / "html/_static/excerpts.js").write_text(script, encoding="utf-8")
        shutil.rmtree(work / "html/_sources", ignore_errors=True)
        for left in (".buildinfo", "objects.inv"):
            (work / "html" / left).unlink(missing_ok=True)
        for path in (work / "html").rglob("*.map"):  # of the theme's sources, for its authors
            path.unlink()
        if out.exists():
            out.rename(work / "before")
        (work / "html").rename(out)
    return len(source.pages)


def _require_own(out: Path) -> None:
    """Refuse to replace a folder that is neither a site nor empty."""
    if not (out.exists() or out.is_symlink()):
        return
    if out.is_symlink() or not out.is_dir():
        raise FedreproError(f"{out} is a file or a link; name a folder that is not there yet")
    if any(out.iterdir()) and not (out / "_static" / STYLE).is_file():
        raise FedreproError(
            f"{out} has other files than a site of fedrepro's, which would be lost; name a "
            "folder that is not there yet"
        )


def _source(reports: Reports, folder: Path, root: Path) -> Contents:
    contents = Contents()
    whole = reports.scale == "paper"  # findings quote that scale alone
    files = _guides(root)
    elsewhere = {file: page for page, file in files.items()} | {GLOSSARY: "glossary.md"}
    guides = Guides(root.resolve(), root / RECORD, elsewhere, () if whole else (FINDINGS,))
    names = sorted(files, key=lambda page: PurePosixPath(page).with_suffix("").parts)
    for name in (name for name in names if whole or not name.startswith(FINDINGS)):
        contents.pages[name] = guides.page(PurePosixPath(files[name]))
    findings = [name for name in contents.pages if name.startswith(FINDINGS)]
    cards, openings = _answers(guides, findings, files)
    charts: set[str] = set()
    links = links_of(reports)
    # only a checkout has guides
    origin, claims, board = (n if n in contents.pages else "" for n in (ORIGIN, CLAIMS, BOARD))
    for paper in reports.papers:
        charts |= _paper(paper, folder, contents)
        # the paper's own page begins with the first of them
        details = [
            (contents.pages[name].partition("\n")[0].removeprefix("# "), name)
            for name in findings
            if _of(name) == paper.name
        ]
        contents.pages[f"papers/{paper.name}.md"] = pages.paper_page(
            paper, openings.get(paper.name, ""), details, frozenset(charts), links,
            board.replace(".md", ".html"),
        )  # fmt: skip
    methods = method_pages(reports)
    contents.pages |= {f"methods/{name}.md": text for name, text in methods.items()}
    contents.pages["reproduce.md"] = pages.page("reproduce.md", reports=reports, origin=origin)
    contents.pages["glossary.md"] = pages.page("glossary.md", guide=claims)
    if reports.maps or reports.graphs:
        contents.pages["drawings.md"] = pages.drawings_page(reports)
        for each in (*reports.maps, *reports.graphs):
            contents.copies[f"shown/{each['image']}"] = folder / each["image"]
    contents.pages |= {"api.md": pages.page("api.md", rooms=_rooms())} if whole else {}
    contents.pages["index.md"] = pages.home(reports, cards, _trees(reports, contents.pages), links)
    contents.copies |= {copied(path): root / path for path in guides.copies}
    package = resources.files("fedrepro.record.site")
    for name in (STYLE, "site.js"):
        contents.static[name] = (package / name).read_text(encoding="utf-8")
    contents.static["tables.js"] = _tables_script()
    contents.static |= {"vega.js": vega_script()} if charts else {}
    return contents


def _guides(root: Path) -> dict[str, str]:
    """Return the file of each page; findings lie in their paper's folder, and are pages of docs."""
    paths = [path.relative_to(root) for path in (root / "docs").glob("**/*.md")]
    paths = [path for path in paths if path != Path(GLOSSARY)]
    paths += [Path("config/README.md")] if (root / "config/README.md").exists() else []
    files = {path.as_posix(): path.as_posix() for path in paths}
    return files | {f"{FINDINGS}{name}.md": f.as_posix() for name, f in findings_in(root).items()}


def _of(name: str) -> str:
    return PurePosixPath(name).stem.partition("-")[0]


def _answers(
    guides: Guides, findings: Sequence[str], files: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the finding of each paper for its card and for its own page, at the paper's size."""
    answers: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name in findings:
        paper = _of(name)
        if PurePosixPath(name).stem != paper:
            continue
        text = (guides.root / files[name]).read_text(encoding="utf-8")
        opening = re.split(r"^## |<!--", text.partition("\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        card = paper_attribute(paper, "SENTENCE") or opening
        answers[0][paper] = guides.numbered(card.strip(), 0)
        own = PurePosixPath(f"papers/{paper}.md")
        said = guides.numbered(opening.strip(), 1)
        answers[1][paper] = guides.linked(said, PurePosixPath(files[name]), own)
    return answers


def _paper(paper: Paper, folder: Path, contents: Contents) -> set[str]:
    """Add a paper's files and page of numbers; return the keys of exhibits with a chart."""
    for board in paper.boards:
        for suffix in board.about["files"]:
            if not suffix.endswith(".png"):
                contents.copies[f"shown/{board.key}{suffix}"] = folder / f"{board.key}{suffix}"
    contents.pages[f"papers/{paper.name}-numbers.md"] = pages.page(
        "numbers.md", up="../", paper=paper
    )
    charts = set()
    for shown in paper.exhibits.values():
        numbers = [] if shown.name in paper.parts else [".csv"]
        wanted = {*numbers, ".choice.csv", ".printed.csv", ".svg"}
        for suffix in sorted(wanted & {*shown.files.suffixes}):
            name = f"{shown.key}{shown.csv if suffix == '.csv' else suffix}"
            contents.copies[f"shown/{name}"] = folder / f"{shown.key}{suffix}"
        spec = chart(shown)
        if spec:
            text = json.dumps(spec, separators=(",", ":"))
            contents.static[f"charts/{shown.key}.js"] = (
                f"fedreproChart({json.dumps(shown.key)},{text});\n"
            )
            charts.add(shown.key)
    return charts


def _trees(reports: Reports, pages: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return the navigation: captions with their pages."""
    known = {paper.name: bool(paper.boards) for paper in reports.papers}
    leaderboards, papers = (
        [f"papers/{n}" for n in known if known[n] == one] for one in (True, False)
    )
    trees = {
        "Leaderboard": leaderboards,
        "Papers": papers + [n for n in pages if n.startswith(FINDINGS) and _of(n) not in known],
        "Methods": ["methods/index"],
        **{caption: [f"docs/{name}" for name in names] for caption, names in GUIDES.items()},
        "Reference": ["glossary", "reproduce", "drawings", "config/README", "api"],
    }
    listed = {name for names in trees.values() for name in names}
    others = sorted(n for n in pages if n.startswith("docs/") and n.count("/") == 1)
    trees["Maintain"] += [n for one in others if (n := one.removesuffix(".md")) not in listed]
    there = {name.removesuffix(".md") for name in pages}
    of = {
        caption: [n for name in names if (n := name.removesuffix(".md")) in there]
        for caption, names in trees.items()
    }
    return [(caption, names) for caption, names in of.items() if names]


def _rooms() -> list[tuple[str, list[str]]]:
    """List modules that others may want to call: general rooms, and the arithmetic of papers."""
    import pkgutil

    import fedrepro

    other = {"drawings", "exhibits", *(name.rpartition(".")[2] for name in KINDS.values())}
    folders = [folder for pack in paper_names().values() for folder in sorted(pack.iterdir())]
    own = [f for f in folders if (f / "__init__.py").is_file() and f.name not in other]
    names = [*ROOMS, *(f"papers.{folder.parent.name}.{folder.name}" for folder in own)]
    rooms = []
    for room in names:
        base = Path(fedrepro.__path__[0], *room.split("."))
        inner = sorted(m.name for m in pkgutil.iter_modules([str(base)])) if base.is_dir() else []
        if base.is_dir() or base.with_suffix(".py").exists():
            name = f"fedrepro.{room}"
            rooms.append((name, [name, *(f"{name}.{module}" for module in inner)]))
    return rooms


def _tables_script() -> str:
    """Turn itables' module of DataTables into a classic script, which loads from disk."""
    try:
        import itables
    except ImportError as error:
        raise FedreproError(f"{NEEDED}; {error.name} is missing") from error
    folder = Path(itables.__file__).parent / "html"
    text = (folder / "dt_bundle.js").read_text(encoding="utf-8")
    exported = EXPORTS.search(text)
    if not exported:
        raise FedreproError(f"{folder / 'dt_bundle.js'} names no export; take itables 2.9")
    names = dict(re.findall(r"([\w$]+) as ([\w$]+)", exported[1]))
    table = next(local for local, name in names.items() if name == "default")
    body = text[: exported.start()] + f"window.DataTable={table};" + text[exported.end() :]
    return f"(function(){{\n{body}\n}})();\n"


def _write(source: Contents, place: Path) -> None:
    static = {f"_static/{name}": text for name, text in source.static.items()}
    for name, text in (source.pages | static).items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, file in source.copies.items():
        path = place / "_extra" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy(file, path)
    figures = Path("docs/figures")
    if figures.is_dir():
        shutil.copytree(figures, place / figures, copy_function=_copy)


def _copy(file: str | Path, place: str | Path) -> None:
    if Path(place).suffix == ".gz":
        Path(place).write_bytes(gzip.compress(Path(file).read_bytes(), mtime=0))
    elif Path(file).suffix == ".svg":
        Path(place).write_text(minify_svg(Path(file).read_text(encoding="utf-8")), encoding="utf-8")
    else:
        shutil.copyfile(file, place)


SETTINGS: dict[str, Any] = {
    "project": "fedrepro",
    "html_title": "fedrepro",
    "extensions": ["myst_parser", "sphinx.ext.autodoc"],
    "html_theme": "furo",
    "html_static_path": ["_static"],
    "html_extra_path": ["_extra"],
    "exclude_patterns": ["_extra/**", "_static/**"],
    "html_css_files": ["site.css"],
    "html_js_files": [("site.js", {"defer": "defer"})],
    "html_copy_source": False,
    "html_show_sourcelink": False,
    "html_show_sphinx": False,
    "html_show_copyright": False,
    "html_show_search_summary": False,  # it would fetch pages, which a browser refuses from disk
    "html_use_index": False,
    "html_domain_indices": False,
    "default_role": "literal",
    "myst_heading_anchors": 4,
    "myst_enable_extensions": ["attrs_inline"],
    "autodoc_member_order": "bysource",
    "add_module_names": False,
    "pygments_style": "friendly",
    "language": "en",
    "suppress_warnings": ["misc.highlighting_failure", "autodoc", "ref.python", "docutils"],
    "html_theme_options": {
        "light_css_variables": {"color-brand-primary": "#0b5c7a", "color-brand-content": "#0b5c7a"},
        "dark_css_variables": {"color-brand-primary": "#7fcbe6", "color-brand-content": "#7fcbe6"},
    },
}


SENTENCE = 20  # letters in the last cell of a row, from which it is read as a sentence


def _sphinx(source: Path, out: Path, doctrees: Path) -> None:
    try:
        import furo  # noqa: F401
        import myst_parser  # noqa: F401
        from sphinx.application import Sphinx
        from sphinx.search.en import SearchEnglish
        from sphinx.util.docutils import docutils_namespace, patch_docutils
    except ImportError as error:
        raise FedreproError(f"{NEEDED}; {error.name} is missing") from error

    class OneStemAWord(SearchEnglish):
        """A search for all pages that stems each word once, not on each page that has it."""

        stem = staticmethod(cache(SearchEnglish({}).stem))

    warnings = io.StringIO()
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            srcdir=str(source), confdir=None, outdir=str(out), doctreedir=str(doctrees),
            buildername="html", confoverrides=SETTINGS, status=None, warning=warnings,
        )  # fmt: skip
        app.connect("autodoc-process-docstring", _plain)
        app.connect("doctree-read", _mark_worded)
        app.connect("html-page-context", _unfold_own, priority=100)  # before the theme draws it
        app.add_search_language(OneStemAWord)
        app.build()
    faults = [line for line in warnings.getvalue().splitlines() if line.strip()]
    if faults:
        text = "\n".join(line.replace(str(source.resolve()), "") for line in faults[:20])
        raise FedreproError(f"the site has {len(faults)} faults:\n{text}")


def _unfold_own(app: object, page: str, name: str, context: dict[str, Any], tree: object) -> None:
    """Unfold the branch of the page alone in the side bar, which halves the bytes of a page."""
    whole = context["toctree"]
    context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def _mark_worded(app: object, doctree: Any) -> None:
    """Mark tables that end in sentences: on a telephone each goes below its row."""
    from docutils import nodes  # type: ignore[import-untyped]

    for table in doctree.findall(nodes.table):
        rows = [row for body in table.findall(nodes.tbody) for row in body]
        last = [TAGS.sub("", row[-1].astext()) for row in rows]
        if max(map(len, last), default=0) > SENTENCE:
            table["classes"].append("worded")


def _plain(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    for at, line in enumerate(lines):
        pieces = re.split(r"(`[^`]+`)", line)
        lines[at] = "".join(
            piece if piece.startswith("`") else re.sub(r"([*|_\\`])", r"\\\1", piece)
            for piece in pieces
        )

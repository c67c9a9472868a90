"""Write the pages: home, papers and their numbers, methods, and how to compute them again.

Templates are markdown with parts of html, in which every text is escaped. `Reports` are all papers
of the website, each with its figures and tables (`ExhibitView`), from `report_data.py`.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from fedrepro.api import NEEDS
from fedrepro.core.errors import FedreproError
from fedrepro.core.literature_names_and_setting_tokens import names_of_field
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.paper_files import paper_attribute
from fedrepro.core.params import render
from fedrepro.core.provenance import same_bytes
from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.drawings.tables import environment, machines
from fedrepro.numbers.leaderboard import HERE
from fedrepro.numbers.verdicts import verdict_counts_and_unreported_settings as counting
from fedrepro.planning.command_line_runs import RunWords, exhibits_of_words, plan_of_words
from fedrepro.planning.config_files import load_yaml
from fedrepro.record.site import report_data
from fedrepro.record.site import verdict_and_leaderboard_texts as texts
from fedrepro.record.site.report_data import ExhibitView, Paper, Reports

NUMBERED = re.compile(r"(s-)?(figure|table)-(\d+)([a-z]?)(?:-(.+))?")
IN_TEXT = re.compile(r"(?<![\w-])(?:s-)?(?:figure|table)-\d+[a-z]?(?:-[a-z0-9-]+)?")
KNOWN_PARTS = "|".join(sorted(texts.WORDS["exhibits"], key=len, reverse=True))
PARTS = re.compile(rf"({KNOWN_PARTS}|[^-]+)(?:-|$)")
MEASURED = re.compile(r"\baccuracy \((\w+)\)")
MARKS = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`")
# a sentence ends at a full stop that a capital letter or the end follows
END = re.compile(r"(?:(?<=[.])|(?<=[.]\*\*))\s+(?:- )?(?=(?:\*\*)?[A-Z0-9])")
KNOWN = load_yaml(Path(__file__).with_name("methods.yaml"))
MARKDOWN = r"\\`*_\[\]<>|~&$"  # signs that mark up
BLANKS = re.compile(r"(?<=\S)\s+(?=\S)")  # between words


@cache
def _templates() -> Environment:
    made = environment("fedrepro.record.site", "fedrepro.drawings")
    for names in (vars(counting), vars(report_data), vars(texts), globals()):
        made.globals |= {name: value for name, value in names.items() if not name.startswith("_")}
    made.globals |= {"same_bytes": same_bytes, "render": render, "HERE": HERE}
    made.globals |= {"NEEDS": NEEDS, "METHOD_KINDS": METHOD_KINDS}
    made.filters |= {
        "along": texts.along,
        "num": texts.score_text,
        "times": lambda sent: f"{sent:.1f} ×" if sent else "0",
        "known": lambda value: "" if texts.is_none(value) else value,
        "worded": worded,
        "verdict_of": texts.verdict_of,
        "pieces": pieces,
        "slug": lambda word: word.replace(" ", "-"),
        "natural": lambda ones, key: sorted(ones, key=lambda one: _natural(getattr(one, key))),
    }
    return made


def page(template: str, *, up: str = "", **given: Any) -> str:
    """Render a template with the values `given`; `up` leads to the website's root, as "../"."""
    return _templates().get_template(template).render(up=up, **given)


def part(macro: str, *given: Any) -> Markup:
    """Return html from the macro `macro` of the template parts.html, called with `given`."""
    made: Markup = getattr(_templates().get_template("parts.html").module, macro)(*given)
    return made


def pieces(text: str) -> list[tuple[str, Markup]]:
    """Split a text at **bold** and `code` into pairs ("b", "code" or ""; escaped part)."""
    found = zip(itertools.cycle(("", "b", "code")), MARKS.split(escape(text)), strict=False)
    return [(kind, Markup(one)) for kind, one in found if one]


def paper_name(paper: str) -> str:
    return paper_attribute(paper, "NAME") or paper


def plain_name(name: str) -> str:
    """Write the name of a figure or table for readers: "Table 1, IID" for table-1-iid."""
    found = NUMBERED.fullmatch(name)
    if not found:
        return name.replace("-", " ").capitalize()
    parts = [texts.WORDS["exhibits"].get(part, part) for part in PARTS.findall(found[5] or "")]
    kind = f"Supplement, {found[2]}" if found[1] else found[2].capitalize()
    return ", ".join([f"{kind} {found[3]}{found[4]}", *parts])


def worded(text: str) -> str:
    """Write names as words: figure-2a as Figure 2a, and accuracy (train) as train accuracy."""
    text = IN_TEXT.sub(lambda match: plain_name(match[0]), text)
    return MEASURED.sub(r"\1 accuracy", text).replace(" -", " −")


def home(
    reports: Reports, answers: Mapping[str, str], trees: Sequence[tuple[str, Sequence[str]]]
) -> str:
    """Write the home page of the website, with the leaderboard's outcome and a card for each paper.

    `answers` has main findings by name of paper, `trees` the side bar: pairs (caption, pages).
    """
    shown = [b for p in reports.papers for b in p.boards if not texts.superseded_by(b, p.boards)]
    cards: list[dict[str, Any]] = []
    for paper in (paper for paper in reports.papers if not paper.boards):
        said = Markup(telling(answers.get(paper.name, "")))
        sentence = part("words", said) if said else verdict_summary(paper)
        counts = counting.settled_counts(paper.printed, paper.claims)
        card = {"paper": paper, "sentence": sentence, "counts": counts}
        cards.append(card | {"reproduced": counting.reproduced(paper.printed)})
    return page(
        "home.md",
        board=texts.answer(shown[0]) if shown else {},
        reports=reports,
        cards=sorted(cards, key=lambda card: -card["counts"]["decided"]),
        trees=trees,
        guides=any("docs/using" in names for _, names in trees),
    )


def picture(paper: Paper) -> ExhibitView | None:
    """Return the figure for a paper's card: the one that the paper names, or the first."""
    chosen = paper.exhibits.get(paper_attribute(paper.name, "PICTURE"))
    figures = (shown for shown in paper.exhibits.values() if not shown.files.is_table)
    return chosen or next(figures, None)


def verdict_summary(paper: Paper) -> str:
    of_claims = counting.claim_counts(paper.claims)[:1]
    return " ".join([*of_claims, *counting.printed_counts(paper.printed)[:2]])


def telling(text: str) -> str:
    """Return the sentence of `text` for a paper's card: the first with a number, else the first."""
    found = END.split(text.strip())
    return " ".join(next((one for one in found if 'class="number"' in one), found[0]).split())


def paper_page(
    paper: Paper,
    answer: str = "",
    details: Sequence[tuple[str, str]] = (),
    links: Mapping[str, str] | None = None,
    guide: str = "",
) -> str:
    """Write the page of a paper: its finding `answer`, claims, figures and tables.

    `details` are pairs (title, path) of pages of findings, `links` {label of a method on a
    leaderboard: address of its page}, `guide` the address of the page on how it ranks methods.
    """
    given = {"details": details, "links": links or {}, "guide": guide, "paper": paper}
    return page("paper.md", up="../", finding=Markup(answer or verdict_summary(paper)), **given)


def in_order(claims: Sequence[Sequence[Mapping[str, str]]]) -> list[Sequence[Mapping[str, str]]]:
    """Sort claims (each a list of the rows of its checks) by name: the paper's, then our own."""
    return sorted(claims, key=lambda rows: (rows[0]["place"] == "ours", _natural(rows[0]["claim"])))


def sections(paper: Paper) -> list[tuple[str, list[tuple[str, list[ExhibitView]]]]]:
    """Return [(title, [(section of the paper or "", its figures and tables)])], added ones last."""
    of_paper: dict[str, list[ExhibitView]] = {}
    ours: list[ExhibitView] = []
    for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name)):
        printed = NUMBERED.match(shown.name) or paper.printed_of(shown.name)
        if printed and not paper.boards:
            place = re.split("[,;]", str(shown.about.get("place", "")))[0]
            of_paper.setdefault(place[:1].upper() + place[1:], []).append(shown)
        else:
            ours.append(shown)
    groups = sorted(of_paper.items(), key=lambda one: (one[0][:1] != "S", _natural(one[0])))
    added = "Single scenarios" if paper.boards else "Added here"
    parts = [("Tables and figures", groups), (added, [("", ours)] if ours else [])]
    return [(title, found) for title, found in parts if found]


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def exhibit_title(paper: Paper, name: str) -> str:
    """Return the heading of a figure or table: its number in the paper, or else its title."""
    found = paper.exhibits.get(name)
    return plain_name(name) if not found or NUMBERED.fullmatch(name) else found.about["title"]


def computed_on(shown: ExhibitView) -> str:
    """Write the processors and devices that computed a figure or table, or "not recorded"."""
    known = shown.files.run.get("machines", ())
    recorded = [{"device": one["device"], "machine": one} for one in known]
    return ", ".join(machines(recorded or shown.about["computed"])) or "not recorded"


def method_pages(reports: Reports) -> dict[str, str]:
    """Return {page: text}: a page per method, "bounds" for controls and simulations, "index"."""
    used: dict[str, list[tuple[Paper, str]]] = {}
    for paper in reports.papers:
        for shown in paper.exhibits.values():
            for name in dict.fromkeys(method["name"] for method in shown.about["methods"]):
                used.setdefault(name, []).append((paper, shown.name))
    methods = dict(sorted(components("method").items(), key=lambda one: title_of(one[1]).lower()))
    texts = {name: _page(item, used.get(name, [])) for name, item in methods.items()}
    bounds = [Markup(text) for name, text in texts.items() if _bound(methods[name])]
    kinds: dict[str, list[Component]] = {}
    for item in methods.values():
        kinds.setdefault(item.meta["kind"], []).append(item)
    called = list(names_of_field(methods))
    shared = {"bounds": page("bounds.md", bounds=bounds)}
    shared["index"] = page("methods.md", kinds=kinds, called=called, methods=methods)
    return {name: text for name, text in texts.items() if not _bound(methods[name])} | shared


def _page(item: Component, used: Sequence[tuple[Paper, str]]) -> str:
    # a sign that is divided between two lines is one again; items of a list stay
    reference = [
        block if block.startswith("    ") else re.sub(r"\n(?!- )\s*", " ", block.strip())
        for block in (inspect.getdoc(inspect.getmodule(item.fn)) or "").split("\n\n")[1:]
    ]
    given = {"reference": docstring("\n\n".join(reference)), "part": _bound(item), "used": used}
    return page("method.md", up="../", item=item, runs=_runs(item), **given)


def _runs(item: Component) -> bool:
    """Return whether `fedrepro run` takes a method by its name alone."""
    with suppress(FedreproError):
        return bool(plan_of_words(exhibits_of_words(RunWords([item.name]), "page")))
    return False


def _bound(item: Component) -> bool:
    return item.meta["kind"] in ("control", "simulation")


def near(name: str) -> str:
    return f"bounds.html#{name}" if _bound(components("method")[name]) else f"{name}.html"


def title_of(item: Component) -> str:
    return str(KNOWN.get(item.name, {}).get("title") or item.meta.get("label") or item.name)


def links_of(reports: Reports) -> dict[str, str]:
    """Return {label of a method on the leaderboard: address of its page}."""
    boards = (paper for paper in reports.papers if paper.boards)
    shown = (exhibit for paper in boards for exhibit in paper.exhibits.values())
    methods = (method for exhibit in shown for method in exhibit.about["methods"])
    return {method["label"]: f"methods/{near(method['name'])}" for method in methods}


def about(item: Component) -> tuple[str, str]:
    """Return a method's docstring as markdown: (its first paragraph, the rest)."""
    first, _, rest = (inspect.getdoc(item.fn) or item.doc).partition("\n\n")
    return docstring(first), docstring(rest)


def docstring(text: str) -> str:
    """Convert a docstring to markdown, with special signs escaped and indented blocks as code."""
    return "\n\n".join(
        f"```text\n{inspect.cleandoc(block)}\n```"
        if block.startswith("    ")
        else escaped(block, MARKDOWN)
        for block in text.split("\n\n")
    )


def escaped(text: str, signs: str) -> str:
    """Join the lines of `text` and put a backslash before each of `signs`, except in `code`."""
    pieces = re.split(r"(`[^`]+`)", text)
    pieces[::2] = [re.sub(rf"([{signs}])", r"\\\1", BLANKS.sub(" ", one)) for one in pieces[::2]]
    return "".join(pieces)

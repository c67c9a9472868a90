"""The generated pages: home, a page a paper and its numbers, how all of it is made again.

Templates are markdown with parts of html, in which every text is escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fedrepro.core.paper_files import paper_attribute
from fedrepro.drawings.tables import environment, html_text
from fedrepro.numbers.exhibit_metadata import same_bytes
from fedrepro.numbers.leaderboard import HERE
from fedrepro.numbers.verdicts.summary_sentences import claim_counts, printed_counts, settled_counts
from fedrepro.record.site import leaderboard_pages as boards
from fedrepro.record.site.costs import cost_table, costs_of, with_sent
from fedrepro.record.site.report_data import BoardView, ExhibitView, Paper, Reports
from fedrepro.record.site.verdicts import (
    BOARD,
    CLAIMS,
    PRINTED,
    UNKNOWN,
    WORDS,
    bound_text,
    glossary,
    interval,
    interval_drawing,
    judged,
    of_claims,
    of_readings,
    of_values,
    printed_cells,
    ratio_dots,
    remarks,
    slug,
    verdict_counts,
    verdict_of,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

NUMBERED = re.compile(r"(s-)?(figure|table)-(\d+)([a-z]?)(?:-(.+))?")
IN_TEXT = re.compile(r"(?<![\w-])(?:s-)?(?:figure|table)-\d+[a-z]?(?:-[a-z0-9-]+)?")
PARTS = re.compile(rf"({'|'.join(sorted(WORDS['exhibits'], key=len, reverse=True))}|[^-]+)(?:-|$)")
MEASURED = re.compile(r"\baccuracy \((\w+)\)")


@cache
def _templates() -> Environment:
    made = environment(html_text, "fedrepro.record.site", "fedrepro.drawings")
    made.globals |= {
        "slug": slug,
        "unknown": UNKNOWN,
        "in_words": plain_name,
        "paper_name": paper_name,
    }
    made.filters |= {
        "num": boards.number,
        "times": boards.times_sent,
        "known": lambda value: "" if boards.is_none(value) else value,
        "worded": worded,
    }
    return made


def page(template: str, *, up: str = "", **given: Any) -> str:
    """Render a page, or a part of one; `up` leads from its folder to the root of the site."""
    return _templates().get_template(template).render(up=up, **given)


def marked(text: str) -> Markup:
    """Mark text as markdown, or html, that needs no escape."""
    from markupsafe import Markup

    return Markup(text)


def paper_name(paper: str) -> str:
    """Return the name of a paper on pages."""
    return paper_attribute(paper, "NAME") or paper


def plain_name(name: str) -> str:
    """Write an exhibit's name as people do: Figure 2a; Table 1, IID, B = 10; Equal size."""
    found = NUMBERED.fullmatch(name)
    if not found:
        return name.replace("-", " ").capitalize()
    parts = [WORDS["exhibits"].get(part, part) for part in PARTS.findall(found[5] or "")]
    place = "Supplement, " if found[1] else ""
    kind = found[2] if place else found[2].capitalize()
    return ", ".join([f"{place}{kind} {found[3]}{found[4]}", *parts])


def worded(text: str) -> str:
    """Write a sentence of a table in the field's words: names of exhibits, and of accuracies."""
    text = IN_TEXT.sub(lambda match: plain_name(match[0]), text)
    return MEASURED.sub(r"\1 accuracy", text).replace(" -", " −")


# ------------------------------------------------------------------------------------------ home


def home(
    reports: Reports,
    answers: Mapping[str, str],
    trees: Sequence[tuple[str, Any]],
    links: Mapping[str, str] | None = None,
) -> str:
    """Write the first page.

    Args:
        reports: papers with their exhibits.
        answers: paper -> its finding.
        trees: captions of the menu with pages.
        links: method -> its page, for the chooser.
    """
    shown = [
        (paper, board)
        for paper in reports.papers
        for board in paper.boards
        if not boards.superseded_by(board, paper.boards)
    ]
    found = boards.answer(shown[0][1]) if shown else {}
    chosen = {**boards.choices(shown[0][1]), "links": links or {}} if found else {}
    papers = [
        _card(paper, answers.get(paper.name, "")) for paper in reports.papers if not paper.boards
    ]
    papers.sort(key=lambda card: -card["counts"]["decided"])
    return page(
        "home.md",
        board=found,
        paper=shown[0][0].name if shown else "",
        listed=boards.joined_names,
        scale=reports.scale,
        notes=reports.stand_ins if reports.scale != "paper" else (),
        choices=chosen,
        by_place=boards.by_place(chosen) if chosen else [],
        cards=papers,
        trees=trees,
        guides="docs/using" in {name for _, names in trees for name in names},
    )


def _card(paper: Paper, answer: str) -> dict[str, Any]:
    shown = picture(paper)
    return {
        "paper": paper,
        "name": paper_name(paper.name),
        "part": paper_attribute(paper.name, "PART"),
        "picture": shown,
        "drawn": None if shown else ratio_dots(paper.printed),
        "sentence": marked(inline(telling(answer))) if answer else verdict_summary(paper),
        "counts": settled_counts(paper.printed, paper.claims),
        "printed": of_values(paper.printed),
        "claims": of_claims(paper.claims),
    }


def picture(paper: Paper) -> ExhibitView | None:
    """Return the figure that stands for a paper: the one chosen for it, or its first."""
    figures = [shown for shown in paper.exhibits.values() if not shown.is_table]
    chosen = paper.exhibits.get(paper_attribute(paper.name, "PICTURE"))
    return chosen or (figures[0] if figures else None)


def verdict_summary(paper: Paper) -> str:
    """Summarise the verdicts of a paper, in sentences of plain text."""
    return " ".join([*claim_counts(paper.claims)[:1], *printed_counts(list(paper.printed))[:2]])


def telling(text: str) -> str:
    """Return the first sentence that has a number of the record, or the first.

    A sentence ends at a full stop that a capital letter or the end follows.
    """
    ends = r"(?:(?<=[.])|(?<=[.]\*\*))\s+(?:- )?(?=(?:\*\*)?[A-Z0-9])"
    found = re.split(ends, text.strip())
    return next((one for one in found if 'class="number"' in one), found[0])


def inline(text: str) -> str:
    """Write the bold and code of a sentence as html; links to numbers are html already."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return " ".join(re.sub(r"`([^`]+)`", r"<code>\1</code>", text).split())


# ----------------------------------------------------------------------------------------- paper


def paper_page(
    paper: Paper,
    answer: str,
    details: Sequence[tuple[str, str]],
    charts: frozenset[str],
    links: Mapping[str, str] | None = None,
    guide: str = "",
) -> str:
    """Write the page of a paper.

    Args:
        paper: its exhibits, printed values and claims.
        answer: its finding.
        details: titles and paths of pages of findings.
        charts: keys of figures that have a chart.
        links: places of a leaderboard's methods by label.
        guide: the page that says how a leaderboard is decided.
    """
    shown = picture(paper)
    leaderboards = [
        board_part(one, links or {}, guide, boards.superseded_by(one, paper.boards))
        for one in paper.boards
    ]
    return page(
        "paper.md",
        up="../",
        paper=paper,
        name=paper_name(paper.name),
        link=paper_attribute(paper.name, "LINK"),
        finding=marked(answer or verdict_summary(paper)),
        details=details,
        counts=[
            ("Printed values", of_values(paper.printed), PRINTED),
            ("Claims", of_claims(paper.claims), CLAIMS),
        ],
        picture=None if paper.boards else shown,
        drawn=None if shown else ratio_dots(paper.printed),
        boards=[marked(text) for text in leaderboards],
        claims=marked(claims_part(paper.claims)),
        judged_cells=any(shown.printed for shown in paper.exhibits.values()),
        sections=[
            (title, [(at, [_exhibit(paper, one, charts) for one in ones]) for at, ones in groups])
            for title, groups in _sections(paper)
        ],
    )


def claims_part(claims: Sequence[Sequence[Mapping[str, str]]]) -> str:
    """Write a table of claims, each given as the rows of its checks; empty without any."""
    shown = [
        {
            "checks": checks,
            "decided": of_readings(checks) if checks[0]["check"] else {},
            "remarks": remarks(checks[0]),
        }
        # claims of the paper go before those that were added here
        for checks in sorted(
            claims, key=lambda rows: (rows[0]["place"] == "ours", _natural(rows[0]["claim"]))
        )
    ]
    given = {"interval_text": interval, "bound_text": bound_text, "drawing": interval_drawing}
    return page("claims.html", up="../", claims=shown, known=CLAIMS, **given) if shown else ""


def board_part(shown: BoardView, links: Mapping[str, str], guide: str = "", later: str = "") -> str:
    """Write the part of a page that has a leaderboard.

    Args:
        shown: the leaderboard.
        links: places of its methods by label.
        guide: the page that says how it is decided.
        later: key of the leaderboard that supersedes it, or "".
    """
    return page(
        "board.md",
        up="../",
        shown=shown,
        about=shown.about["board"],
        families=boards.families(shown),
        made_from=boards.made_from(shown.about),
        computed=boards.COMPUTED,
        here=HERE,
        words=BOARD,
        methods=links,
        guide=guide,
        later=later,
    )


def _sections(paper: Paper) -> list[tuple[str, list[tuple[str, list[ExhibitView]]]]]:
    """Group figures and tables by the paper's sections, followed by our own."""
    of_paper: dict[str, list[ExhibitView]] = {}
    ours: list[ExhibitView] = []
    for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name)):
        printed = NUMBERED.match(shown.name) or paper.printed_of(shown.name)
        if printed and not paper.boards:
            place = re.split("[,;]", str(shown.about.get("place", "")))[0]
            of_paper.setdefault(place[:1].upper() + place[1:], []).append(shown)
        else:
            ours.append(shown)
    groups = sorted(
        of_paper.items(), key=lambda item: (not item[0].startswith("S"), _natural(item[0]))
    )
    added = "Single scenarios" if paper.boards else "Added here"
    sections = [("Tables and figures", groups), (added, [("", ours)] if ours else [])]
    return [(title, found) for title, found in sections if found]


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def _exhibit(paper: Paper, shown: ExhibitView, charts: frozenset[str]) -> Any:
    costs, numbers = costs_of(shown.about, shown.numbers, shown.seconds), None
    if shown.is_table:
        numbers = with_sent(shown.table(paper.printed_of(shown.name)), shown.about, costs[1])
    text = page(
        "exhibit.html", up="../", paper=paper, shown=shown, numbers=numbers, judged=judged,
        costs=cost_table(*costs), numbered=NUMBERED.fullmatch(shown.name), known=PRINTED,
        counts=verdict_counts(map(verdict_of, paper.printed_of(shown.name)), PRINTED),
        with_chart=shown.key in charts, parts=paper.parts.get(shown.name, ()),
    )  # fmt: skip
    return marked(text)


def numbers_page(paper: Paper) -> str:
    """Write the page with every printed value of a paper, and the making of each exhibit."""
    titles = {
        name: shown.about["title"]
        for name, shown in paper.exhibits.items()
        if not NUMBERED.fullmatch(name)
    }
    values = [
        {"exhibit": titles.get(row["exhibit"]) or plain_name(row["exhibit"]), **printed_cells(row)}
        for row in paper.printed
    ]
    exhibits = sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name))
    return page(
        "numbers.md",
        up="../",
        name=paper_name(paper.name),
        summary=" ".join(printed_counts(list(paper.printed))),
        values=values,
        # where all were read in one place, the summary says so
        sources=len({value["source"] for value in values}) > 1,
        made=[(shown, _origins(shown.about)) for shown in exhibits],
    )


def _origins(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the versions and machines with which an exhibit was computed and drawn."""
    drawn = ("Drawn", about.get("drawn", about))
    rows = []
    for what, made in (*(("Computed", made) for made in about["computed"]), drawn):
        versions = ", ".join(f"{name} {text}" for name, text in made.get("versions", {}).items())
        origin = f"at revision {made.get('revision', 'unknown')}"
        if "machine" in made:
            machine = made["machine"]
            origin += f", on {made['device']} of a machine with {machine['cores']} cores"
            origin += f" ({machine['cpu']})"
        rows.append((what, f"{origin}; {versions}"))
    return rows


def reproduce_page(reports: Reports, origin: str = "") -> str:
    """Write the page of commands, core-hours and machines; `origin` is the page on origins."""
    rows = [
        (paper_name(paper.name), paper.name, shown, _machines(shown), same_bytes(shown.about))
        for paper in reports.papers
        for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name))
    ]
    hours = sum(0.0 if math.isnan(shown.hours) else shown.hours for _, _, shown, *_ in rows)
    return page("reproduce.md", rows=rows, hours=f"{hours:.0f}", numbered=NUMBERED, origin=origin)


def _machines(shown: ExhibitView) -> str:
    machines = shown.files.run.get("machines") or [
        {"device": made["device"], **made["machine"]}
        for made in shown.about["computed"]
        if "machine" in made
    ]
    names = (
        machine.get("cpu", "") if machine.get("device") == "cpu" else machine["device"]
        for machine in machines
    )
    return ", ".join(dict.fromkeys(filter(None, names))) or "not recorded"


def glossary_page(guide: str) -> str:
    """Write the glossary: words of verdicts and terms; `guide` says how verdicts come about."""
    return page("glossary.md", rows=glossary(), terms=WORDS["terms"], guide=guide)


def drawings_page(reports: Reports) -> str:
    """Write the page of partitions and graphs that the exhibits of this scale use in trial one."""
    return page("drawings.md", drawn=[*reports.maps, *reports.graphs])

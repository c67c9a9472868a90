"""The generated pages: home, a page a paper and its numbers, how all of it is made again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.core.packs import said_of
from fedrepro.numbers.about import same_bytes
from fedrepro.site import boards
from fedrepro.site.cells import judged, value
from fedrepro.site.chooser import by_place, choices
from fedrepro.site.claims import decided, interval, remarks
from fedrepro.site.costs import cost_table, costs_of, with_sent
from fedrepro.site.reading import Paper, Reports, Shown, ShownBoard
from fedrepro.site.verdicts import (
    BOARD,
    CLAIMS,
    PRINTED,
    beside,
    counted,
    glossary,
    of_claims,
    of_values,
    verdict_of,
)
from fedrepro.site.writing import marked, page
from fedrepro.verdicts.counted import claim_counts, printed_counts, settled_counts

SCALES = {
    "tiny": "This is a check that everything runs, on two trials of small data; it is no result.",
    "quick": "These are small data that ship with the software and few trials: what the pages look "
    "like, not a judgement of the papers.",
    "paper": "Figures and tables of papers on federated learning, computed again at the papers' "
    "sizes. What is not run yet says so, and what comes out stands beside what they print.",
}
QUESTIONS = {  # of a leaderboard's classes
    "one model": "One network shall predict, after one exchange",
    "extra exchanges": "Clients can answer again",
    "public data": "The server has images of others",
    "several models": "All clients' networks may predict",
}
NUMBERED = re.compile(r"(s-)?(figure|table)-(\d+)([a-z]?)(?:-(.+))?")


def name_of(paper: str) -> str:
    """What a paper is called on pages."""
    return said_of(paper, "NAME") or paper


# ------------------------------------------------------------------------------------------ home


def home(
    reports: Reports,
    answers: Mapping[str, str],
    trees: Sequence[tuple[str, Any]],
    links: Mapping[str, str] | None = None,
) -> str:
    """The first page. answers: paper -> its finding; trees: captions of the menu with pages."""
    shown = [
        (paper, board)
        for paper in reports.papers
        for board in paper.boards
        if not boards.superseded_by(board, paper.boards)
    ]
    found = boards.answer(shown[0][1]) if shown else None
    chosen = {**choices(shown[0][1]), "links": links or {}} if found else {}
    cards = [_card(paper, answers.get(paper.name, "")) for paper in reports.papers]
    papers = [card for card in cards if not card["paper"].boards]
    papers.sort(key=lambda card: -card["counts"]["decided"])
    return page(
        "home.md",
        board=found,
        paper=shown[0][0].name if shown else "",
        best=[[kind, *names] for kind, names in found.best] if found else [],
        questions=QUESTIONS,
        listed=boards.listed,
        papers_said=SCALES[reports.scale],
        notes=reports.stand_ins if reports.scale != "paper" else (),
        choices=chosen,
        by_place=by_place(chosen) if chosen else [],
        cards=[card for card in papers if not card["part"]],
        others=[card for card in papers if card["part"]],
        rows=[_counts(card) for card in papers if card["paper"].printed or card["paper"].claims],
        trees=trees,
        guides=any(caption == "Guides" for caption, _ in trees),
    )


def _card(paper: Paper, answer: str) -> dict[str, Any]:
    shown = picture(paper)
    sentence = marked(inline(telling(answer))) if answer else " ".join(told_of(paper))
    counts = settled_counts(paper.printed, paper.claims)
    return {
        "paper": paper,
        "name": name_of(paper.name),
        "part": said_of(paper.name, "PART"),
        "picture": shown,
        "drawn": None if shown else beside(paper.printed),
        "values": len(paper.printed),
        "sentence": sentence,
        "counts": counts | {"claims": counts["claims that a run can test"]},
    }


def _counts(card: Mapping[str, Any]) -> list[str]:
    """A paper's row of the one table of counts."""
    paper, counts = card["paper"], card["counts"]
    values, claims = of_values(paper.printed), of_claims(paper.claims)
    decided_so = [claims.get(word, 0) for word in ("holds", "refuted", "depends", "undecided")]
    numbers = [counts["printed values"], counts["judged"], values.get("reproduced", 0)]
    numbers += [counts[key] for key in ("shown beside", "set-up open", "not run")]
    whole = len(paper.claims)
    return [card["name"], *map(str, [*numbers, whole, *decided_so, whole - sum(decided_so)])]


def picture(paper: Paper) -> Shown | None:
    """The figure that stands for a paper: the one chosen for it, or its first."""
    figures = [shown for shown in paper.exhibits.values() if not shown.is_table]
    chosen = paper.exhibits.get(said_of(paper.name, "PICTURE"))
    return chosen or (figures[0] if figures else None)


def told_of(paper: Paper) -> list[str]:
    """What the verdicts of a paper come to, in sentences of plain text."""
    return [*claim_counts(paper.claims)[:1], *printed_counts(list(paper.printed))[:2]]


def sentences(text: str) -> list[str]:
    """Its sentences: up to a full stop that a capital letter or the end follows."""
    ends = r"(?:(?<=[.])|(?<=[.]\*\*))\s+(?=(?:\*\*)?[A-Z0-9])"
    return re.split(ends, text.strip())


def telling(text: str) -> str:
    """The first sentence that has a number of the record, or the first."""
    found = sentences(text)
    return next((one for one in found if 'class="number"' in one), found[0])


def inline(text: str) -> str:
    """Markdown of a sentence as html: bold and code; links to numbers are html already."""
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
    """The page of a paper.

    answer: its finding. details: titles and paths of pages of findings. charts: keys of figures
    that have one. links: of a leaderboard's methods -> where these are. guide: how a leaderboard
    is decided.
    """
    shown = picture(paper)
    return page(
        "paper.md",
        up="../",
        paper=paper,
        name=name_of(paper.name),
        link=said_of(paper.name, "LINK"),
        finding=marked(answer or " ".join(told_of(paper))),
        details=details,
        counts=[
            ("Printed numbers", of_values(paper.printed), PRINTED),
            ("Claims", of_claims(paper.claims), CLAIMS),
        ],
        in_words=in_words,
        picture=None if paper.boards else shown,
        drawn=None if shown else beside(paper.printed),
        values=len(paper.printed),
        boards=[
            marked(board_part(one, links or {}, guide, boards.superseded_by(one, paper.boards)))
            for one in paper.boards
        ],
        claims=marked(claims_part(paper.claims)),
        judged_cells=any(shown.printed for shown in paper.exhibits.values()),
        sections=[
            (title, [(at, [_exhibit(paper, one, charts) for one in ones]) for at, ones in groups])
            for title, groups in _sections(paper)
        ],
    )


def claims_part(claims: Sequence[Sequence[Mapping[str, str]]]) -> str:
    """A table of claims, each given as the rows of its checks; empty without any."""
    shown = [
        {"checks": checks, "decided": decided(checks), "remarks": remarks(checks[0])}
        for checks in sorted(claims, key=_paper_first)
    ]
    return page("claims.html", up="../", claims=shown, interval_text=interval) if shown else ""


def board_part(
    shown: ShownBoard, links: Mapping[str, str], guide: str = "", later: str = ""
) -> str:
    """The part of a page that has a leaderboard.

    links, guide: as `paper_page` has them. later: what supersedes it, if there is such.
    """
    about, families = shown.about["board"], boards.families(shown)
    lines = {
        (family.starts, table.name): line.at
        for family in families
        for table in family.tables
        for _, members in table.classes
        for line in members
        if line.method == about["line"]
    }
    return page(
        "board.md",
        up="../",
        shown=shown,
        about=about,
        families=families,
        line_at=lines,
        made_from=boards.made_from(shown.about),
        by_others="computed" in shown.table,
        pictures=boards.PICTURES,
        computed=boards.COMPUTED,
        words=BOARD,
        methods=links,
        guide=guide,
        later=later,
    )


def _sections(paper: Paper) -> list[tuple[str, list[tuple[str, list[Shown]]]]]:
    """Figures and tables by the paper's sections, then what was added here."""
    of_paper: dict[str, list[Shown]] = {}
    ours: list[Shown] = []
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


def _paper_first(checks: Sequence[Mapping[str, str]]) -> Any:
    """Order the claims of a paper by number, before those that were added here."""
    return checks[0]["place"] == "ours", _natural(checks[0]["claim"])


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Names in the order of their numbers: table-2 before table-11."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def in_words(name: str) -> str:
    """An exhibit's name as people write it: Figure 2a; Table 1, iid 10; Equal size."""
    found = NUMBERED.fullmatch(name)
    if not found:
        return name.replace("-", " ").capitalize()
    rest = f", {found[5].replace('-', ' ')}" if found[5] else ""
    return f"{found[2].capitalize()} {found[3]}{found[4]}{rest}"


def _exhibit(paper: Paper, shown: Shown, charts: frozenset[str]) -> Any:
    costs = costs_of(shown.about, shown.numbers, shown.seconds)
    numbers = None
    if shown.is_table:
        numbers = with_sent(shown.table(paper.printed_of(shown.name)), shown.about, costs[1])
    text = page(
        "exhibit.html",
        up="../",
        paper=paper,
        shown=shown,
        in_words=in_words(shown.name),
        numbers=numbers,
        judged=judged,
        counts=counted([verdict_of(row) for row in paper.printed_of(shown.name)], PRINTED),
        known=PRINTED,
        costs=cost_table(*costs),
        with_chart=shown.key in charts,
        parts=paper.parts.get(shown.name, ()),
    )
    return marked(text)


def numbers_page(paper: Paper) -> str:
    """Every printed value of a paper in one table, and how each exhibit was made."""
    exhibits = sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name))
    values = []
    for row in paper.printed:
        cells, found = value(row)
        values.append((cells, found, row.get("source", ""), verdict_of(row)))
    return page(
        "numbers.md",
        up="../",
        name=name_of(paper.name),
        told=" ".join(printed_counts(list(paper.printed))),
        values=values,
        made=[(shown, _origins(shown.about)) for shown in exhibits],
    )


def _origins(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """With which versions and on which machines an exhibit was computed and drawn."""
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
    """Commands, core-hours and machines of every exhibit. origin: the page on origins."""
    rows, whole = [], 0.0
    for paper in reports.papers:
        for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name)):
            hours = shown.hours
            whole += 0.0 if math.isnan(hours) else hours
            spent = "not recorded" if math.isnan(hours) else f"{hours:.2f}"
            rows.append((paper.name, shown, spent, _machines(shown), same_bytes(shown.about)))
    return page("reproduce.md", rows=rows, hours=f"{whole:.0f}", origin=origin)


def _machines(shown: Shown) -> str:
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


def drawings_page(reports: Reports) -> str:
    """Who holds what and who hears whom, as the exhibits of this scale have it in trial one."""
    return page("drawings.md", drawn=[*reports.maps, *reports.graphs])


def glossary_page(guide: str = "", others: str = "") -> str:
    """What every word of a verdict means. guide: on how claims are judged; others: other words."""
    return page("verdicts.md", words=glossary(), guide=guide, glossary=others)

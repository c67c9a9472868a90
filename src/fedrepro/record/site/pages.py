"""The generated pages: home, a page a paper and its numbers, how all of it is made again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.core.paper_files import paper_attribute
from fedrepro.numbers.exhibit_metadata import same_bytes
from fedrepro.numbers.verdicts.summary_sentences import claim_counts, printed_counts, settled_counts
from fedrepro.record.site import leaderboard_pages
from fedrepro.record.site.claim_intervals import interval, interval_drawing, of_readings, remarks
from fedrepro.record.site.costs import cost_table, costs_of, with_sent
from fedrepro.record.site.method_chooser import by_place, choices
from fedrepro.record.site.page_templates import marked, page
from fedrepro.record.site.report_data import BoardView, ExhibitView, Paper, Reports
from fedrepro.record.site.verdict_cells import judged, value
from fedrepro.record.site.verdict_styles import (
    BOARD,
    CLAIMS,
    PRINTED,
    of_claims,
    of_values,
    ratio_dots,
    verdict_counts,
    verdict_of,
)

NUMBERED = re.compile(r"(s-)?(figure|table)-(\d+)([a-z]?)(?:-(.+))?")


def paper_name(paper: str) -> str:
    """Return the name of a paper on pages."""
    return paper_attribute(paper, "NAME") or paper


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
        if not leaderboard_pages.superseded_by(board, paper.boards)
    ]
    found = leaderboard_pages.answer(shown[0][1]) if shown else {}
    chosen = {**choices(shown[0][1]), "links": links or {}} if found else {}
    cards = [_card(paper, answers.get(paper.name, "")) for paper in reports.papers]
    papers = [card for card in cards if not card["paper"].boards]
    papers.sort(key=lambda card: -card["counts"]["decided"])
    return page(
        "home.md",
        board=found,
        paper=shown[0][0].name if shown else "",
        listed=leaderboard_pages.joined_names,
        scale=reports.scale,
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
    sentence = marked(inline(telling(answer))) if answer else " ".join(verdict_summary(paper))
    counts = settled_counts(paper.printed, paper.claims)
    return {
        "paper": paper,
        "name": paper_name(paper.name),
        "part": paper_attribute(paper.name, "PART"),
        "picture": shown,
        "drawn": None if shown else ratio_dots(paper.printed),
        "values": len(paper.printed),
        "sentence": sentence,
        "counts": counts | {"claims": counts["claims that a run can test"]},
    }


def _counts(card: Mapping[str, Any]) -> list[str]:
    """Return a paper's row in the table of counts."""
    paper, counts = card["paper"], card["counts"]
    values, claims = of_values(paper.printed), of_claims(paper.claims)
    decided_so = [claims.get(word, 0) for word in ("holds", "refuted", "depends", "undecided")]
    numbers = [counts["printed values"], counts["judged"], values.get("reproduced", 0)]
    numbers += [counts[key] for key in ("shown beside", "set-up open", "not run")]
    whole = len(paper.claims)
    return [card["name"], *map(str, [*numbers, whole, *decided_so, whole - sum(decided_so)])]


def picture(paper: Paper) -> ExhibitView | None:
    """Return the figure that stands for a paper: the one chosen for it, or its first."""
    figures = [shown for shown in paper.exhibits.values() if not shown.is_table]
    chosen = paper.exhibits.get(paper_attribute(paper.name, "PICTURE"))
    return chosen or (figures[0] if figures else None)


def verdict_summary(paper: Paper) -> list[str]:
    """Summarise the verdicts of a paper, in sentences of plain text."""
    return [*claim_counts(paper.claims)[:1], *printed_counts(list(paper.printed))[:2]]


def sentences(text: str) -> list[str]:
    """Split a text at full stops that a capital letter or the end follows."""
    ends = r"(?:(?<=[.])|(?<=[.]\*\*))\s+(?=(?:\*\*)?[A-Z0-9])"
    return re.split(ends, text.strip())


def telling(text: str) -> str:
    """Return the first sentence that has a number of the record, or the first."""
    found = sentences(text)
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
    return page(
        "paper.md",
        up="../",
        paper=paper,
        name=paper_name(paper.name),
        link=paper_attribute(paper.name, "LINK"),
        finding=marked(answer or " ".join(verdict_summary(paper))),
        details=details,
        counts=[
            ("Printed numbers", of_values(paper.printed), PRINTED),
            ("Claims", of_claims(paper.claims), CLAIMS),
        ],
        in_words=plain_name,
        picture=None if paper.boards else shown,
        drawn=None if shown else ratio_dots(paper.printed),
        values=len(paper.printed),
        boards=[
            marked(
                board_part(
                    one, links or {}, guide, leaderboard_pages.superseded_by(one, paper.boards)
                )
            )
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
    """Write a table of claims, each given as the rows of its checks; empty without any."""
    shown = [
        {
            "checks": checks,
            "decided": of_readings(checks) if checks[0]["check"] else {},
            "remarks": remarks(checks[0]),
        }
        for checks in sorted(claims, key=_paper_first)
    ]
    given = {"interval_text": interval, "drawing": interval_drawing, "known": CLAIMS}
    return page("claims.html", up="../", claims=shown, **given) if shown else ""


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
        families=leaderboard_pages.families(shown),
        made_from=leaderboard_pages.made_from(shown.about),
        by_others="computed" in shown.table,
        computed=leaderboard_pages.COMPUTED,
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


def _paper_first(checks: Sequence[Mapping[str, str]]) -> Any:
    # claims of the paper go before those that were added here
    return checks[0]["place"] == "ours", _natural(checks[0]["claim"])


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def plain_name(name: str) -> str:
    """Write an exhibit's name as people do: Figure 2a; Table 1, iid 10; Equal size."""
    found = NUMBERED.fullmatch(name)
    if not found:
        return name.replace("-", " ").capitalize()
    rest = f", {found[5].replace('-', ' ')}" if found[5] else ""
    return f"{found[2].capitalize()} {found[3]}{found[4]}{rest}"


def _exhibit(paper: Paper, shown: ExhibitView, charts: frozenset[str]) -> Any:
    costs, numbers = costs_of(shown.about, shown.numbers, shown.seconds), None
    if shown.is_table:
        numbers = with_sent(shown.table(paper.printed_of(shown.name)), shown.about, costs[1])
    text = page(
        "exhibit.html", up="../", paper=paper, shown=shown, in_words=plain_name(shown.name),
        numbers=numbers, judged=judged, costs=cost_table(*costs),
        counts=verdict_counts([verdict_of(row) for row in paper.printed_of(shown.name)], PRINTED),
        with_chart=shown.key in charts, parts=paper.parts.get(shown.name, ()), known=PRINTED,
    )  # fmt: skip
    return marked(text)


def numbers_page(paper: Paper) -> str:
    """Write the page with every printed value of a paper, and the making of each exhibit."""
    exhibits = sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name))
    values = []
    for row in paper.printed:
        cells, found = value(row)
        values.append((cells, found, row.get("source", ""), verdict_of(row)))
    return page(
        "numbers.md",
        up="../",
        name=paper_name(paper.name),
        summary=" ".join(printed_counts(list(paper.printed))),
        values=values,
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
    rows, whole = [], 0.0
    for paper in reports.papers:
        for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name)):
            hours = shown.hours
            whole += 0.0 if math.isnan(hours) else hours
            spent = "not recorded" if math.isnan(hours) else f"{hours:.2f}"
            rows.append((paper.name, shown, spent, _machines(shown), same_bytes(shown.about)))
    return page("reproduce.md", rows=rows, hours=f"{whole:.0f}", origin=origin)


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


def drawings_page(reports: Reports) -> str:
    """Write the page of partitions and graphs that the exhibits of this scale use in trial one."""
    return page("drawings.md", drawn=[*reports.maps, *reports.graphs])

"""The generated pages as markdown: home, a page a paper, all printed values, how it was made."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.core.packs import said_of
from fedrepro.drawings.tables import html_text
from fedrepro.numbers.about import same_bytes
from fedrepro.site.boards import board_html, board_top, superseded_by
from fedrepro.site.cells import data_table, table_html, values_table, wide
from fedrepro.site.claims import claims_html
from fedrepro.site.costs import costs_html, costs_of, with_sent
from fedrepro.site.reading import Paper, Reports, Shown
from fedrepro.site.verdicts import CLAIMS, PRINTED, bar, beside, legend, of_claims, of_values
from fedrepro.verdicts.counted import claim_counts, printed_counts

SCALES = {
    "tiny": "This is a check that everything runs, on two trials of small data; it is no result.",
    "quick": "These are small data that ship with the software and few trials: what the pages look "
    "like, not a judgement of the papers.",
    "paper": "These are the data, sizes and trials of the papers.",
}
ABOUT = (
    "Five papers on federated learning say how models that were trained on separate data can be "
    "combined. Here their figures and tables are computed again. What is not run yet "
    "says so, and what comes out stands beside what they print."
)

CELLS = (
    "A cell has our number, below it the printed one and the verdict on it. Point at it or tap it "
    "for the reason."
)


def name_of(paper: str) -> str:
    """What a paper is called on pages."""
    return said_of(paper, "NAME") or paper


# ------------------------------------------------------------------------------------------ home


def home(reports: Reports, answers: Mapping[str, str], trees: Sequence[tuple[str, Any]]) -> str:
    """answers: paper -> its finding, whose first sentence is told. trees: of the navigation."""
    lines = ["---", "hide-toc: true", "---", "", "# Federated learning papers, run again", ""]
    lines += [
        f'<p class="lead">{ABOUT}</p>',
        "",
        f'<p class="soft">{SCALES[reports.scale]}</p>',
        "",
    ]
    lines += _notices(reports.stand_ins if reports.scale != "paper" else ())
    lines += ["## What was found", "", '<ul class="found">']
    for paper in reports.papers:
        finding = answers.get(paper.name) or " ".join(told_of(paper)) or paper.title
        lines.append(
            f'<li><a href="papers/{paper.name}.html"><b>{name_of(paper.name)}</b></a> '
            f"{inline(first_sentence(finding))}</li>"
        )
    lines += ["</ul>", ""]
    lines += [
        line
        for paper in reports.papers
        for board in paper.boards
        if not superseded_by(board, paper.boards)
        for line in board_top(board)
    ]
    lines += ["## Printed numbers", "", _bars(reports, values=True), ""]
    lines += ["## Claims in words", "", _bars(reports, values=False), ""]
    lines += [_legends()]
    lines += ["", "## One picture a paper", "", '<div class="cards">']
    lines += [_card(paper) for paper in reports.papers]
    lines += ["</div>", ""]
    for caption, names in trees:
        lines += [
            f"```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {caption}\n",
            *names,
            "```",
            "",
        ]
    return "\n".join(lines)


def _legends() -> str:
    """What verdicts mean, folded."""
    return (
        "<details><summary>What the words mean</summary><p><b>Printed numbers</b></p>"
        f"{legend(PRINTED)}<p><b>Claims</b></p>{legend(CLAIMS)}</details>"
    )


def _notices(notes: Sequence[str]) -> list[str]:
    """What stands in for the papers' data, said where nobody can miss it."""
    notices = "".join(f"<p><b>Stand-in data.</b> {html_text(note)}</p>" for note in notes)
    return [f'<div class="notice">{notices}</div>', ""] if notices else []


def _bars(reports: Reports, *, values: bool) -> str:
    parts = []
    for paper in reports.papers:
        counts = of_values(paper.printed) if values else of_claims(paper.claims)
        whole = sum(counts.values())
        title = f"{name_of(paper.name)}: {whole} {'numbers' if values else 'claims'}"
        parts.append(bar(counts, PRINTED if values else CLAIMS, title))
    bars = "".join(filter(None, parts))
    nothing = "<p>The papers of these exhibits print no number that stands here.</p>"
    return f'<div class="bars">{bars}</div>' if bars else nothing


def _card(paper: Paper) -> str:
    shown = picture(paper)
    name = html_text(name_of(paper.name))
    title = html_text(paper.title)
    link = f"papers/{paper.name}.html"
    if paper.boards:
        key = paper.boards[-1].key
        return (
            f'<div class="card"><h3><a href="{link}">{name}</a></h3><p>{title}</p>'
            f'<a href="{link}"><img src="shown/{key}.groups.svg" loading="lazy" '
            'alt="Methods in groups that are not told apart."></a></div>'
        )
    if shown is None:
        drawn, caption, link_to = (
            beside(paper.printed),
            "What is computed beside what is printed" if paper.printed else "",
            link,
        )
    else:
        drawn = f'<img src="shown/{shown.key}.svg" loading="lazy" alt="{html_text(shown.alt)}">'
        caption, link_to = shown.about["title"], f"{link}#{shown.name}"
    return (
        f'<div class="card"><h3><a href="{link}">{name}</a></h3><p>{title}</p>'
        f'<a href="{link_to}">{drawn}</a><p class="soft">{html_text(caption)}</p></div>'
    )


def picture(paper: Paper) -> Shown | None:
    """The figure that stands for a paper: the one chosen for it, or its first."""
    figures = [shown for shown in paper.exhibits.values() if not shown.is_table]
    chosen = paper.exhibits.get(said_of(paper.name, "PICTURE"))
    return chosen or (figures[0] if figures else None)


def told_of(paper: Paper) -> list[str]:
    """What the verdicts of a paper come to, in sentences of plain text."""
    return [*claim_counts(paper.claims)[:1], *printed_counts(list(paper.printed))[:2]]


def first_sentence(text: str) -> str:
    """The first sentence: up to a full stop that a capital letter or the end follows."""
    match = re.search(
        r"^.*?[.](?=(?:\*\*)?\s+(?:\*\*)?[A-Z0-9]|(?:\*\*)?$)(?:\*\*)?", text, re.DOTALL
    )
    return match[0] if match else text


def inline(text: str) -> str:
    """Markdown of a sentence as html: bold and code; links to numbers are html already."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return " ".join(re.sub(r"`([^`]+)`", r"<code>\1</code>", text).split())


# ----------------------------------------------------------------------------------------- paper


def paper_page(
    paper: Paper, answer: str, details: Sequence[tuple[str, str]], charts: frozenset[str]
) -> str:
    """The page of a paper. answer: its finding; details: pages of findings; charts: of figures."""
    end = "" if paper.title.endswith("?") else "."
    lines = [f"# {name_of(paper.name)}", "", f"*{paper.title}{end}* {paper.source}.", ""]
    lines += _notices(paper.stand_ins)
    finding = answer or " ".join(told_of(paper))
    lines += ["## The finding", "", finding, ""] if finding else []
    if details:
        links = ", ".join(f"[{title}](../{path})" for title, path in details)
        lines += [f"More: {links}.", ""]
    for board in paper.boards:
        lines += board_html(board, superseded_by(board, paper.boards))
    lines += [bar(of_values(paper.printed), PRINTED, "Numbers that the paper prints"), ""]
    lines += [bar(of_claims(paper.claims), CLAIMS, "Claims that it makes in words"), ""]
    lines += [_legends(), ""]
    if paper.claims:
        link = f'<a href="{paper.name}-values.html">Every printed value</a>. '
        values = link if paper.printed else ""
        lines += [
            f'<p><a href="#claims">Its claims</a>, sorted by verdict. {values}'
            f'<a href="{paper.name}-made.html">How each exhibit was made</a>.</p>',
            "",
        ]
    judged = any(shown.printed for shown in paper.exhibits.values())
    for title, exhibits in _sections(paper):
        lines += [f"## {title}", ""]
        if title == "Tables" and judged:
            lines += [f'<p class="soft">{CELLS}</p>', ""]
        for shown in exhibits:
            lines += _exhibit(paper, shown, shown.key in charts)
    if paper.claims:
        lines += ['<span id="claims"></span>', "", "## Claims", ""]
        lines += [
            '<p class="soft">Each claim is a sentence of the paper with a bound that it has to '
            "keep. The drawing shows the number that decides it with its interval over trials; "
            "the tinted side of the line is what the claim allows.</p>",
            "",
            claims_html(paper.claims),
            "",
        ]
    if paper.notes:
        title = "What was chosen" if paper.boards else "What the paper leaves open"
        lines += [f"## {title}", "", "<details><summary>"]
        lines += [f"What was chosen here: {len(paper.notes)} points</summary><ul>"]
        for note, names in paper.notes.items():
            where = ", ".join(names) if len(names) < 4 else f"{len(names)} exhibits"
            lines.append(f'<li>{html_text(note)} <span class="soft">({where})</span></li>')
        lines += ["</ul></details>", ""]
    names = [f"{paper.name}-{what}" for what in below(paper)]
    lines += ["```{toctree}\n:hidden:\n:titlesonly:\n", *names, "```", ""]
    return "\n".join(lines)


def below(paper: Paper) -> tuple[str, ...]:
    """The pages beside a paper's own: of its printed values, if there are any, and its making."""
    return ("values", "made") if paper.printed else ("made",)


def _sections(paper: Paper) -> list[tuple[str, list[Shown]]]:
    """Tables and figures of the paper, then what was added here; each in order."""
    tables: list[Shown] = []
    figures: list[Shown] = []
    ours: list[Shown] = []
    for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name)):
        printed = re.match(r"(s-)?(table|figure)\b", shown.name) or paper.printed_of(shown.name)
        if printed:
            (tables if shown.is_table else figures).append(shown)
        else:
            ours.append(shown)
    added = "Single scenarios" if paper.boards else "Added here"
    sections = [("Tables", tables), ("Figures", figures), (added, ours)]
    return [(title, exhibits) for title, exhibits in sections if exhibits]


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Names in the order of their numbers: table-2 before table-11."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def _exhibit(paper: Paper, shown: Shown, with_chart: bool) -> list[str]:
    about, at = shown.about, f"../shown/{shown.key}"
    costs = costs_of(about, shown.numbers, shown.seconds)
    title = about["title"].replace("*", r"\*")
    lines = [f'<span id="{shown.name}"></span>', "", f"### {shown.name}: {title}", ""]
    if shown.is_table:
        table = with_sent(shown.table(paper.printed_of(shown.name)), about, costs[1])
        lines += [table_html(table, about["title"], shown.held), ""]
        note = f"{shown.measured} · {shown.held}"
        lines += [f'<p class="soft small">{html_text(note)}</p>', ""]
    else:
        lines += [
            f'<figure><a href="{at}.svg"><img src="{at}.svg" loading="lazy" '
            f'alt="{html_text(shown.alt)}"></a></figure>',
            "",
        ]
    lines += [costs_html(about["title"], *costs), ""]
    if with_chart:
        lines += [
            f'<details class="chart" data-chart="{html_text(shown.key)}"><summary>The same with '
            "its numbers, on hover</summary>"
            f'<div class="vega" tabindex="0" role="region" aria-label="chart of {shown.name}">'
            "</div><noscript>This needs JavaScript; the csv has all numbers.</noscript></details>",
            "",
        ]
    numbers = f'<a href="{at}.csv">numbers, csv</a>'
    if shown.name in paper.parts:
        links = (
            f'<a href="../shown/{paper.name}/{n}.csv">{n}</a>' for n in paper.parts[shown.name]
        )
        numbers = f"numbers, csv: {', '.join(links)}"
    more = {".printed.csv": "beside print, csv", ".choice.csv": "settings tried, csv"}
    numbers += "".join(
        f' · <a href="{at}{suffix}">{words}</a>'
        for suffix, words in more.items()
        if suffix in shown.files.suffixes
    )
    lines += [
        f"<details><summary>What it shows, and its files</summary><p>{html_text(about['caption'])}"
        f'</p><p class="small">{numbers} · '
        f'<a href="{paper.name}-made.html#{shown.name}">how it was made</a></p></details>',
        "",
    ]
    return lines


def values_page(paper: Paper) -> str:
    """Every printed value of a paper in one table."""
    lines = [
        "---",
        "hide-toc: true",
        "---",
        "",
        f"# {name_of(paper.name)}: every printed value",
        "",
    ]
    if not paper.printed:
        return "\n".join([*lines, "The paper prints no number that stands here.", ""])
    lines += [" ".join(printed_counts(list(paper.printed))), ""]
    lines += [values_table(paper.printed, name_of(paper.name)), ""]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------- made by


def made_page(paper: Paper) -> str:
    """How each exhibit of a paper was made: command, data, settings, machines, checksums."""
    lines = [f"# {name_of(paper.name)}: how it was made", ""]
    lines += ["A fold for each exhibit, with the command that makes it alone.", ""]
    for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name)):
        about = shown.about
        rows = [("Command", f"<code>{html_text(about['command'])}</code>")]
        rows += [("Data", _data(data)) for data in about["data"]]
        for kind, part in about["scenario"].items():
            if kind != "dataset":
                values = "; ".join(f"{key} {value}" for key, value in part["values"].items())
                rows.append((kind.capitalize(), html_text(f"{part['name']}: {values}")))
        rows.append(("Trials", f"{about['trials']}, seed {about['seed']}"))
        for method in about["methods"]:
            seen = "; ".join(method["needs"].values()) or "weights only"
            chosen = method.get("criterion")
            description = f"<code>{html_text(method['resolved'])}</code>. Sees: {html_text(seen)}."
            sent = method.get("sends")
            description += f" Clients also send: {html_text(sent)}." if sent else ""
            description += f" Setting chosen by {html_text(chosen)}." if chosen else ""
            rows.append((html_text(method["label"]), description))
        rows += [("Computed", _origin(made)) for made in about["computed"]]
        rows.append(("Drawn", _origin(about.get("drawn", about))))
        body = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
        lines += [
            f'<span id="{shown.name}"></span>',
            "",
            f"<details><summary><b>{shown.name}</b> {html_text(about['title'])}</summary>"
            f'<dl class="made">{body}</dl></details>',
            "",
        ]
    return "\n".join(lines)


def _data(data: Mapping[str, Any]) -> str:
    text = f"{data['title']}. {data['about']} {data['citation']}. Licence: {data['licence']}."
    return f"{html_text(text)} SHA-256 of the arrays: <code>{data['sha256']}</code>"


def _origin(made: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {text}" for name, text in made.get("versions", {}).items())
    origin = f"at revision {made.get('revision', 'unknown')}"
    if "machine" in made:
        machine = made["machine"]
        origin += (
            f", on {made['device']} of a machine with {machine['cores']} cores ({machine['cpu']})"
        )
    return html_text(f"{origin}; {versions}")


def reproduce_page(reports: Reports, origin: str = "") -> str:
    """Commands, core-hours and machines of every exhibit."""
    lines = ["# Reproduce", "", "Two commands set everything up and draw the small version:", ""]
    lines += ["```\nmake\nmake test\n```", ""]
    lines += [
        "Each exhibit is made alone by its own command, at the paper's size from the paper's data, "
        "which are downloaded from their publishers and checked. `fedrepro plan` tells hours and "
        "gigabytes before anything runs; what was interrupted goes on where it was.",
        "",
        "Hours below are of one processor core, and were measured when the exhibit was computed; "
        "work that exhibits share is counted in each.",
        "",
    ]
    rows, whole = [], 0.0
    for paper in reports.papers:
        for shown in sorted(paper.exhibits.values(), key=lambda exhibit: _natural(exhibit.name)):
            hours = shown.hours
            whole += 0.0 if math.isnan(hours) else hours
            place = f'<a href="papers/{paper.name}-made.html#{shown.name}">{shown.key}</a>'
            rows.append(
                (
                    place,
                    str(shown.about["trials"]),
                    "not recorded" if math.isnan(hours) else f"{hours:.2f}",
                    html_text(_machines(shown)),
                    html_text(same_bytes(shown.about)),
                    f"<code>{html_text(shown.about['command'])}</code>",
                )
            )
    heads = ("Exhibit", "Trials", "Core-hours", "Machine", "Again to the byte", "Command")
    lines += [f"All {len(rows)} exhibits together: {whole:.0f} core-hours.", ""]
    lines += [wide(data_table(heads, rows, "Every exhibit, with its command"), "exhibits"), ""]
    lines += [f"How files name their origin: [origin]({origin}).", ""] if origin else []
    return "\n".join(lines)


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
    lines = ["# Partitions and graphs of these exhibits", ""]
    for each in (*reports.maps, *reports.graphs):
        lines += [
            f"## {each['title']}",
            "",
            f"`{each['token']}`: {each['about']} {each['words']}",
            "",
        ]
        lines += [f'<figure><img src="shown/{each["image"]}" loading="lazy" '
                  f'alt="{html_text(each["alt"])}"></figure>', ""]  # fmt: skip
    return "\n".join(lines)

"""Pages of the methods: a method each, from its docstring, signature, declarations and scores."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from fedrepro.api import NEEDS
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.params import render
from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.core.tokens import names_of_field
from fedrepro.drawings.tables import markdown_text
from fedrepro.numbers.leaderboard import ALL
from fedrepro.record.site.page_templates import marked, page
from fedrepro.record.site.report_data import Reports

SIZE = 17.0  # of letters, in pixels
COMMANDS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}


@dataclass(frozen=True)
class Formula:
    """A formula's text, its size in pixels, and its outline as svg has it."""

    text: str
    wide: float
    high: float
    path: str


def formula(text: str) -> Formula:
    """Typeset a formula in the notation of TeX.

    Raises:
        ValueError: if it cannot be read.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    letters = FontProperties(math_fontfamily="stix")
    outline = TextPath((0, 0), f"${text}$", size=SIZE, prop=letters)
    box = outline.get_extents()
    parts = []
    for points, code in outline.iter_segments(simplify=False, curves=True):
        pairs = zip(points[::2] - box.x0, box.y1 - points[1::2], strict=True)
        ends = "" if code == 79 else " ".join(f"{x + 1:.1f} {y + 1:.1f}" for x, y in pairs)
        parts.append(f"{COMMANDS[int(code)]}{ends}")
    return Formula(text, round(box.width + 2, 1), round(box.height + 2, 1), "".join(parts))


SENDS = {
    "one_shot": "Each client sends its trained weights once, and nothing comes back.",
    "federated": "In every round the chosen clients receive the global model and send theirs.",
    "peer": "Nodes send what they believe along the edges of a graph; there is no server.",
}
WORDS = re.compile(r"\S(?:.*\S)?", re.DOTALL)  # text without the blanks around it


def method_pages(reports: Reports) -> dict[str, str]:
    """Return the text of each page below methods/, with the list of all as `index`.

    Controls and simulations share a page, `bounds`.
    """
    labels, scores = _labels(reports), _scores(reports)
    board = next((paper.name for paper in reports.papers if paper.boards), "")
    used: dict[str, dict[tuple[str, str], None]] = {}
    for paper in reports.papers:
        for shown in paper.exhibits.values():
            for method in shown.about["methods"]:
                used.setdefault(method["name"], {})[paper.name, shown.name] = None
    methods = dict(sorted(components("method").items(), key=lambda one: title_of(one[1]).lower()))
    pages, bounds = {}, []
    kinds: dict[str, list[tuple[str, str, str]]] = {}
    for name, item in methods.items():
        own = [label for label, method in labels.items() if method == name and label in scores]
        rows = [(*row, label)[: 5 if len(own) > 1 else 4] for label in own for row in scores[label]]
        text = _page(item, [*used.get(name, ())], rows, board)
        if _bound(item):
            bounds.append(marked(text))
        else:
            pages[name] = text
        listed = href_of(name).removeprefix("methods/"), title_of(item), plain_doc(item.doc)
        kinds.setdefault(item.meta["kind"], []).append(listed)
    groups = [
        (METHOD_KINDS[kind].words.capitalize(), SENDS.get(kind, ""), members)
        for kind, members in kinds.items()
    ]
    called = [
        (known.name, href_of(known.method).removeprefix("methods/"),
         title_of(methods[known.method]), known.words.replace("`", ""))
        for known in names_of_field(methods)
    ]  # fmt: skip
    index = page("methods.md", kinds=groups, called=called)
    return pages | {"bounds": page("bounds.md", bounds=bounds), "index": index}


def _bound(item: Component) -> bool:
    return item.meta["kind"] in ("control", "simulation")


def href_of(name: str) -> str:
    """Return the place of a method on the site."""
    bound = _bound(components("method")[name])
    return f"methods/bounds.html#{name}" if bound else f"methods/{name}.html"


@cache
def _known() -> dict[str, dict[str, str]]:
    text = (resources.files("fedrepro.record.site") / "methods.yaml").read_text(encoding="utf-8")
    known: dict[str, dict[str, str]] = yaml.safe_load(text)
    return known


def title_of(item: Component) -> str:
    """Return the title of a method as people write it."""
    title = _known().get(item.name, {}).get("title") or item.meta.get("label") or item.name
    return str(title)


def links_of(reports: Reports) -> dict[str, str]:
    """Return the place of each method on the site by its label in a leaderboard's exhibits."""
    return {label: href_of(name) for label, name in _labels(reports).items()}


def _labels(reports: Reports) -> dict[str, str]:
    return {
        method["label"]: method["name"]
        for paper in reports.papers
        if paper.boards
        for shown in paper.exhibits.values()
        for method in shown.about["methods"]
    }


def plain_doc(text: str) -> str:
    """Write a docstring's sentence as markdown, with signs that mark up as plain ones."""
    return markdown_text(text.replace("`", ""))


def _page(
    item: Component, used: Sequence[tuple[str, str]], scores: Sequence[Sequence[str]], board: str
) -> str:
    known, kind = _known().get(item.name, {}), METHOD_KINDS[item.meta["kind"]]
    doc = inspect.getdoc(inspect.getmodule(item.fn)) or ""
    options = [
        (param.name, "required" if param.required else render(param.default), param.arg.unit,
         param.arg.doc + (f": one of {', '.join(param.choices)}" if param.choices else ""))
        for param in item.own_params.values()
    ]  # fmt: skip
    inside = "/fedrepro/" in item.file
    return page(
        "method.md",
        up="../",
        item=item,
        title=title_of(item),
        part=_bound(item),
        called=item.meta.get("label") or item.name,
        kind=kind.words,
        reference=" ".join(doc.partition("\n\n")[2].split()),
        link=known.get("link", ""),
        formula=formula(known["formula"]) if "formula" in known else None,
        about=docstring(inspect.getdoc(item.fn) or item.doc),
        sees=[NEEDS[need] for need in sorted(item.meta["needs"])],
        sends=SENDS.get(item.meta["kind"], "It is a simulation."),
        options=options,
        combined=kind.stage == "aggregate" and item.meta["kind"] != "control",
        run=kind.with_data and item.meta["kind"] not in ("peer", "control"),
        in_rounds=kind.in_rounds,
        scores=scores,
        board=board,
        used=used,
        file=f"src/fedrepro/{item.file.rpartition('/fedrepro/')[2]}" if inside else item.file,
    )


def docstring(text: str) -> str:
    """Write a docstring as markdown: paragraphs stay, indented blocks are code."""
    parts = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            parts.append("```text\n" + inspect.cleandoc(block) + "\n```")
        else:
            pieces = re.split(r"(`[^`]+`)", block)
            said = (
                p if p.startswith("`") else WORDS.sub(lambda words: plain_doc(words[0]), p)
                for p in pieces
            )
            parts.append("".join(said))
    return "\n\n".join(parts)


def _scores(reports: Reports) -> dict[str, list[Sequence[str]]]:
    """Return a row for each scenario of a leaderboard by label: place, accuracy in %, score."""
    rows: dict[str, list[Sequence[str]]] = {}
    for board in (board for paper in reports.papers for board in paper.boards):
        place = ["starts", "data", "case", "clients", "method"]
        found: dict[tuple[Any, ...], dict[str, float]] = {}
        for row in board.scenarios.to_dict("records"):
            if row["case"] != ALL and row["metric"] in ("accuracy", "score"):
                found.setdefault(tuple(row[key] for key in place), {})[row["metric"]] = row["mean"]
        for (starts, data, case, clients, label), means in found.items():
            where = f"{data}, {case}, {clients:g} clients"
            accuracy, score = (means.get(name, float("nan")) for name in ("accuracy", "score"))
            # adding zero removes the sign of a zero
            texts = (f"{100 * accuracy:.1f}", f"{round(score, 2) + 0.0:.2f}".replace("-", "−"))
            known = ("–" if "nan" in text else text for text in texts)
            rows.setdefault(label, []).append((where, starts, *known))
    return rows

"""Write a page on each method, from its docstring, signature and declarations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from fedrepro.api import NEEDS
from fedrepro.core.component_tokens import names_of_field
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.params import render
from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.record.site.pages import Markup, page
from fedrepro.record.site.report_data import Paper, Reports
from fedrepro.record.site.verdicts import page_data

KNOWN = page_data("methods.yaml")
SIZE = 17.0  # of letters, in pixels
COMMANDS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}
SENDS = {
    "one_shot": "Each client sends its trained weights once, and nothing comes back.",
    "federated": "In every round the chosen clients receive the global model and send theirs.",
    "peer": "Nodes send what they believe along the edges of a graph; there is no server.",
}
MARKDOWN = r"\\`*_\[\]<>|~&$"  # signs that mark up
BLANKS = re.compile(r"(?<=\S)\s+(?=\S)")  # between words
SOURCE = re.compile(r"Source: .*", re.DOTALL)


def method_pages(reports: Reports) -> dict[str, str]:
    """Return {name of a page: its text} for pages on methods; `index` is the list of methods.

    Controls and simulations share one page, `bounds`.
    """
    used: dict[str, list[tuple[Paper, str]]] = {}
    for paper in reports.papers:
        for shown in paper.exhibits.values():
            for name in dict.fromkeys(method["name"] for method in shown.about["methods"]):
                used.setdefault(name, []).append((paper, shown.name))
    methods = dict(sorted(components("method").items(), key=lambda one: title_of(one[1]).lower()))
    texts = {name: _page(item, used.get(name, [])) for name, item in methods.items()}
    bounds = [Markup(text) for name, text in texts.items() if _bound(methods[name])]
    kinds: dict[str, list[tuple[str, str, str]]] = {}
    for name, item in methods.items():
        listed = (_near(name), title_of(item), about(item)[0])
        kinds.setdefault(item.meta["kind"], []).append(listed)
    groups = [
        (METHOD_KINDS[kind].words.capitalize(), SENDS.get(kind, ""), members)
        for kind, members in kinds.items()
    ]
    called = [
        (known.name, _near(known.method), title_of(methods[known.method]), known.words)
        for known in names_of_field(methods)
    ]
    shared = {"bounds": page("bounds.md", bounds=bounds)}
    shared["index"] = page("methods.md", kinds=groups, called=called)
    return {name: text for name, text in texts.items() if not _bound(methods[name])} | shared


def _page(item: Component, used: Sequence[tuple[Paper, str]]) -> str:
    known = KNOWN.get(item.name, {})
    options = []
    for param in item.own_params.values():
        allowed = f": one of {', '.join(param.choices)}" if param.choices else ""
        default = "required" if param.required else render(param.default)
        options.append((param.name, default, param.arg.unit, param.arg.doc + allowed))
    # a sign that is divided between two lines is one again; items of a list stay
    reference = [
        block if block.startswith("    ") else re.sub(r"\n(?!- )\s*", " ", block.strip())
        for block in (inspect.getdoc(inspect.getmodule(item.fn)) or "").split("\n\n")[1:]
    ]
    return page(
        "method.md",
        up="../",
        item=item,
        kind=METHOD_KINDS[item.meta["kind"]],
        title=title_of(item),
        part=_bound(item),
        known=known,
        reference=docstring("\n\n".join(reference)),
        formula=formula(known["formula"]) if "formula" in known else None,
        about=about(item),
        sees=[NEEDS[need] for need in sorted(item.meta["needs"])],
        sends=SENDS.get(item.meta["kind"], "It is a simulation."),
        options=options,
        used=used,
    )


def _bound(item: Component) -> bool:
    return item.meta["kind"] in ("control", "simulation")


def _near(name: str) -> str:
    return f"bounds.html#{name}" if _bound(components("method")[name]) else f"{name}.html"


def title_of(item: Component) -> str:
    """Return the title of a method for headings: from methods.yaml, or else its label or name."""
    return str(KNOWN.get(item.name, {}).get("title") or item.meta.get("label") or item.name)


def links_of(reports: Reports) -> dict[str, str]:
    """Return {label of a method on the leaderboard: address of its page}."""
    boards = (paper for paper in reports.papers if paper.boards)
    shown = (exhibit for paper in boards for exhibit in paper.exhibits.values())
    methods = (method for exhibit in shown for method in exhibit.about["methods"])
    return {method["label"]: f"methods/{_near(method['name'])}" for method in methods}


def about(item: Component) -> tuple[str, str]:
    """Return a method's docstring as markdown in two parts: its first paragraph, and the rest.

    If methods.yaml has a sentence on the method, it replaces the first paragraph, whose equation is
    typeset by the page; the paragraph's source moves to the second part.
    """
    first, _, rest = (inspect.getdoc(item.fn) or item.doc).partition("\n\n")
    said = KNOWN.get(item.name, {}).get("about")
    if said:
        source = SOURCE.search(first)
        first, rest = said, "\n\n".join(filter(None, [rest, source and source[0]]))
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
    """Escape each of `signs` by a backslash and join lines in `text`, apart from `code`."""
    pieces = re.split(r"(`[^`]+`)", text)
    pieces[::2] = [re.sub(rf"([{signs}])", r"\\\1", BLANKS.sub(" ", one)) for one in pieces[::2]]
    return "".join(pieces)


def formula(text: str) -> dict[str, Any]:
    """Typeset a TeX formula; return its `text`, `wide` and `high` in pixels, and svg `path`.

    Raises:
        ValueError: if `text` is not a formula that matplotlib can read.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    letters = FontProperties(math_fontfamily="stix")
    outline = TextPath((0, 0), f"${text}$", size=SIZE, prop=letters)
    box, parts = outline.get_extents(), []
    for points, code in outline.iter_segments(simplify=False, curves=True):
        pairs = zip(points[::2] - box.x0, box.y1 - points[1::2], strict=True)
        ends = "" if code == 79 else " ".join(f"{x + 1:.1f} {y + 1:.1f}" for x, y in pairs)
        parts.append(f"{COMMANDS[int(code)]}{ends}")
    wide, high = round(box.width + 2, 1), round(box.height + 2, 1)
    return {"text": text, "wide": wide, "high": high, "path": "".join(parts)}

"""Pages of the methods: a method each, from its docstring, signature, declarations and scores."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from fedrepro.api import NEEDS
from fedrepro.core.called import names_of_field
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.params import Param, render
from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.drawings.tables import markdown_text
from fedrepro.numbers.board import ALL
from fedrepro.site.formula import formula
from fedrepro.site.reading import Reports
from fedrepro.site.writing import marked, page

SENDS = {
    "one_shot": "Each client sends its trained weights once, and nothing comes back.",
    "federated": "In every round the chosen clients receive the global model and send theirs.",
    "peer": "Nodes send what they believe along the edges of a graph; there is no server.",
}
WORDS = re.compile(r"\S(?:.*\S)?", re.DOTALL)  # text without the blanks around it


def method_pages(reports: Reports) -> dict[str, str]:
    """Name of a page below methods/ -> its text, with the list of all as `index`.

    What is no rival (controls, simulations) shares a page, `bounds`.
    """
    used, labels = _used(reports), _labels(reports)
    scores = _scores(reports)
    board = next((paper.name for paper in reports.papers if paper.boards), "")
    methods = dict(sorted(components("method").items(), key=lambda one: title_of(one[1]).lower()))
    texts = {
        name: _page(item, used.get(name, ()), _of(item, labels, scores), board)
        for name, item in methods.items()
    }
    pages = {name: text for name, text in texts.items() if not _bound(methods[name])}
    bounds = [marked(text) for name, text in texts.items() if name not in pages]
    kinds: dict[str, list[tuple[str, str, str]]] = {}
    for name, item in methods.items():
        row = href_of(name).removeprefix("methods/"), title_of(item), plain_doc(item.doc)
        kinds.setdefault(item.meta["kind"], []).append(row)
    groups = [
        (METHOD_KINDS[kind].words.capitalize(), SENDS.get(kind, ""), members)
        for kind, members in kinds.items()
    ]
    called = []
    for known in names_of_field(methods):
        href, title = href_of(known.method), title_of(methods[known.method])
        words = known.words.replace("`", "")
        called.append((known.name, href.removeprefix("methods/"), title, words))
    index = page("methods.md", kinds=groups, called=called)
    shared = {"bounds": page("bounds.md", bounds=bounds), "index": index}
    return pages | shared


def _bound(item: Component) -> bool:
    return item.meta["kind"] in ("control", "simulation")


def href_of(name: str) -> str:
    """Where the site has a method."""
    bound = _bound(components("method")[name])
    return f"methods/bounds.html#{name}" if bound else f"methods/{name}.html"


@cache
def _known() -> dict[str, dict[str, str]]:
    text = (resources.files("fedrepro.site") / "methods.yaml").read_text(encoding="utf-8")
    known: dict[str, dict[str, str]] = yaml.safe_load(text)
    return known


def title_of(item: Component) -> str:
    """A method as people write it."""
    title = _known().get(item.name, {}).get("title") or item.meta.get("label") or item.name
    return str(title)


def links_of(reports: Reports) -> dict[str, str]:
    """What a leaderboard's exhibits call a method -> where the site has it."""
    return {label: href_of(name) for label, name in _labels(reports).items()}


def _labels(reports: Reports) -> dict[str, str]:
    """What a leaderboard's exhibits call a method -> its name."""
    return {
        method["label"]: method["name"]
        for paper in reports.papers
        if paper.boards
        for shown in paper.exhibits.values()
        for method in shown.about["methods"]
    }


def plain_doc(text: str) -> str:
    """A docstring's sentence as markdown: signs that mark up are plain."""
    return markdown_text(text.replace("`", ""))


def _page(
    item: Component, used: Sequence[tuple[str, str]], scores: Sequence[Sequence[str]], board: str
) -> str:
    known, kind = _known().get(item.name, {}), item.meta["kind"]
    title = title_of(item)
    called = item.meta.get("label") or item.name
    doc = inspect.getdoc(inspect.getmodule(item.fn)) or ""
    return page(
        "method.md",
        up="../",
        title=title,
        part=_bound(item),
        name=item.name,
        called=called if called != title else "",
        kind=METHOD_KINDS[kind].words,
        version=item.version,
        reference=" ".join(doc.partition("\n\n")[2].split()),
        link=known.get("link", ""),
        formula=formula(known["formula"]) if "formula" in known else None,
        about=docstring(inspect.getdoc(item.fn) or item.doc),
        sees=[NEEDS[need] for need in sorted(item.meta["needs"])],
        sends=SENDS.get(kind, "It is a simulation."),
        also=item.meta.get("sends"),
        models=sorted(item.meta.get("models") or ()),
        options=[_option(param) for param in item.own_params.values()],
        use=_use(item),
        scores=scores,
        board=board,
        used=used,
        file=_file(item),
    )


def _use(item: Component) -> list[tuple[str, str]]:
    """Lines that use a method: what each is for, and the line."""
    kind, name = item.meta["kind"], item.name
    run = f"fedrepro run {name} --data mnist --clients 10 --partition dirichlet:0.1 --model mlp"
    python = f'fedrepro.run(methods="{name}", data="mnist")'
    lines = []
    if METHOD_KINDS[kind].with_data and kind not in ("peer", "control"):
        more = " --rounds 100" if METHOD_KINDS[kind].in_rounds else ""
        lines += [
            ("On data of your choice", run + more),
            ("The same in Python, as a frame", python),
        ]
    if METHOD_KINDS[kind].stage == "aggregate" and kind != "control":
        own = f"fedrepro combine {name} client*.pt --labels counts.csv --out global.pt"
        combine = f'made = fedrepro.combine(LocalModels.from_state_dicts(states), "{name}")'
        lines += [("On models of your own", own), ("The same in Python", combine)]
    return lines


def docstring(text: str) -> str:
    """A docstring as markdown: paragraphs stay, what is indented is code."""
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


def _option(param: Param) -> Sequence[str]:
    default = "required" if param.required else render(param.default)
    among = f": one of {', '.join(param.choices)}" if param.choices else ""
    return param.name, default, param.arg.unit, param.arg.doc + among


def _scores(reports: Reports) -> dict[str, list[Sequence[str]]]:
    """Label -> a row for each scenario of a leaderboard: where, accuracy in percent, score."""
    rows: dict[str, list[Sequence[str]]] = {}
    for board in (board for paper in reports.papers for board in paper.boards):
        place = ["starts", "data", "case", "clients", "method"]
        found: dict[tuple[Any, ...], dict[str, float]] = {}
        for row in board.scenarios.to_dict("records"):
            if row["case"] != ALL and row["metric"] in ("accuracy", "score"):
                found.setdefault(tuple(row[key] for key in place), {})[row["metric"]] = row["mean"]
        for (starts, data, case, clients, label), told in found.items():
            where = f"{data}, {case}, {clients:g} clients"
            accuracy, score = (told.get(name, float("nan")) for name in ("accuracy", "score"))
            # adding zero leaves no minus before it
            texts = (f"{100 * accuracy:.1f}", f"{round(score, 2) + 0.0:.2f}".replace("-", "−"))
            known = ("–" if "nan" in text else text for text in texts)
            rows.setdefault(label, []).append((where, starts, *known))
    return rows


def _of(
    item: Component, labels: Mapping[str, str], scores: Mapping[str, list[Sequence[str]]]
) -> list[Sequence[str]]:
    """The rows of all labels under which a leaderboard has a method."""
    own = [label for label, name in labels.items() if name == item.name and label in scores]
    return [(*row, label) if len(own) > 1 else row for label in own for row in scores[label]]


def _used(reports: Reports) -> dict[str, list[tuple[str, str]]]:
    """Method -> the exhibits that show it: paper and name."""
    by_method: dict[str, dict[tuple[str, str], None]] = {}
    for paper in reports.papers:
        for shown in paper.exhibits.values():
            for method in shown.about["methods"]:
                by_method.setdefault(method["name"], {})[paper.name, shown.name] = None
    return {name: list(links) for name, links in by_method.items()}


def _file(item: Component) -> str:
    file = Path(item.file)
    parts = file.parts
    at = len(parts) - 1 - parts[::-1].index("fedrepro") if "fedrepro" in parts else 0
    return Path("src", *parts[at:]).as_posix()

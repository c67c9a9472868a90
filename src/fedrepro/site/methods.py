"""Pages of the components: a method each, from its docstring, signature and declarations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrepro.api import NEEDS
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.params import Param, render
from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.drawings.tables import html_text
from fedrepro.site.reading import Reports

SENDS = {
    "one_shot": "Each client sends its trained weights once, and nothing comes back.",
    "federated": "In every round the chosen clients receive the global model and send theirs.",
    "peer": "Nodes send what they believe along the edges of a graph; there is no server.",
}


def method_pages(reports: Reports) -> dict[str, str]:
    """Name of a page below methods/ -> its text, with the list of all as `index`."""
    used = _used(reports)
    methods = components("method")
    pages = {name: _page(item, used.get(name, ())) for name, item in methods.items()}
    kinds: dict[str, list[Component]] = {}
    for _, item in sorted(methods.items()):
        kinds.setdefault(item.meta["kind"], []).append(item)
    lines = ["# Methods", "", "A method is one file. Each page below is made from it.", ""]
    for kind, members in kinds.items():
        lines += [f"## {METHOD_KINDS[kind].words.capitalize()}", "", SENDS.get(kind, ""), ""]
        lines += [f"- [{item.name}]({item.name}.md): {plain_doc(item.doc)}" for item in members] + [
            ""
        ]
    return pages | {"index": "\n".join(lines)}


def plain_doc(text: str) -> str:
    """A docstring's sentence as markdown: signs that mark up are plain."""
    return re.sub(r"([*_<>\[\]|])", r"\\\1", text.replace("`", ""))


def _page(item: Component, used: Sequence[str]) -> str:
    doc = inspect.getdoc(item.fn) or item.doc
    label = item.meta.get("label") or item.name
    needs = sorted(item.meta["needs"])
    sees = [f"- {NEEDS[need]}" for need in needs]
    kind = METHOD_KINDS[item.meta["kind"]].words
    # not in the navigation, which every page repeats: the list of methods leads here
    lines = ["---", "orphan: true", "---", "", f"# {item.name}", ""]
    lines += ["[All methods](index.md)", ""]
    lines += [f"Called **{label}** in figures and tables; {kind}, version {item.version}.", ""]
    lines += [docstring(doc), ""]
    lines += ["## What it sees beyond weights", "", *(sees or ["Nothing."]), ""]
    lines += ["## What it sends", "", SENDS.get(item.meta["kind"], "It is a simulation."), ""]
    if item.meta.get("sends"):
        lines += [f"Beside that, {item.meta['sends']}.", ""]
    if item.meta.get("models"):
        lines += ["It combines " + ", ".join(sorted(item.meta["models"])) + " only.", ""]
    lines += ["## Options", ""]
    params = item.own_params
    lines += [options(params) if params else "It has none.", ""]
    lines += ["## Where it stands", ""]
    lines += [", ".join(used) if used else "No exhibit of this scale shows it.", ""]
    lines += ["## Its file", "", f"<code>{html_text(_file(item))}</code>", ""]
    return "\n".join(lines)


def docstring(text: str) -> str:
    """A docstring as markdown: paragraphs stay, what is indented is code."""
    parts = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            parts.append("```text\n" + inspect.cleandoc(block) + "\n```")
        else:
            pieces = re.split(r"(`[^`]+`)", block)
            parts.append("".join(p if p.startswith("`") else plain_doc(p) for p in pieces))
    return "\n\n".join(parts)


def options(params: Mapping[str, Param]) -> str:
    """A table of parameters: what each means, its default, its unit."""
    rows = ["| option | default | unit | meaning |", "| --- | --- | --- | --- |"]
    for param in params.values():
        default = "required" if param.required else f"`{render(param.default)}`"
        doc = param.arg.doc
        if param.choices:
            doc += ": one of " + ", ".join(param.choices)
        rows.append(f"| `{param.name}` | {default} | {param.arg.unit} | {plain_doc(doc)} |")
    return "\n".join(rows)


def _used(reports: Reports) -> dict[str, list[str]]:
    """Method -> links to the exhibits that show it."""
    by_method: dict[str, dict[str, None]] = {}
    for paper in reports.papers:
        for shown in paper.exhibits.values():
            for method in shown.about["methods"]:
                link = f'<a href="../papers/{paper.name}.html#{shown.name}">{shown.key}</a>'
                by_method.setdefault(method["name"], {})[link] = None
    return {name: list(links) for name, links in by_method.items()}


def _file(item: Component) -> str:
    file = Path(item.file)
    parts = file.parts
    at = len(parts) - 1 - parts[::-1].index("fedrepro") if "fedrepro" in parts else 0
    return Path("src", *parts[at:]).as_posix()

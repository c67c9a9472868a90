"""Generated documents: JSON schemas, config/README.md, and the numbers in pages."""

from __future__ import annotations

import inspect
import json
import math
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedrepro.api import DISCLOSED, NEEDS
from fedrepro.core.paper_files import OWN_PUBLISHED, PRINTED, findings, papers_with, published_file
from fedrepro.core.params import Param, read_signature, render
from fedrepro.core.registry import COMMON, DRAWING, KINDS, components
from fedrepro.core.selection_rules import SELECTION_RULES
from fedrepro.core.spec import Component
from fedrepro.core.tokens import names_of_field
from fedrepro.numbers.verdicts.printed_verdicts import read_published
from fedrepro.numbers.verdicts.summary_sentences import (
    claim_counts,
    printed_counts,
    settled_counts,
)
from fedrepro.planning.config import Config, ExhibitFile, Granularity
from fedrepro.planning.exhibit_settings import (
    Case,
    ChoiceEntry,
    ComponentEntry,
    ExhibitSettings,
    MethodEntry,
)
from fedrepro.record.record_results import RECORD, drawn_keys
from fedrepro.record.site.pages import paper_name
from fedrepro.record.site.report_data import Paper, read_reports
from fedrepro.record.site.verdicts import glossary_table
from fedrepro.record.templating import DEFINITION, LINK, filled

TITLES = {
    "dataset": "Data sets",
    "partition": "Partitions",
    "model": "Models",
    "training": "Training procedures",
    "graph": "Graphs",
    "feature": "Features",
    "method": "Methods",
}

INTRODUCTION = """\
# Configuration

This page is generated from the typed configuration (`src/fedrepro/planning/config.py`) and from the
signatures of the components; `fedrepro documents` writes it again, and a test holds it in step.

`config/config.yaml` says what to draw and how much one job does. The figures and tables of a paper
stand in its folder, `src/fedrepro/papers/<paper>`: as data in `exhibits.yaml`, or as functions that
return the same data, where many have much in common, in `exhibits.py` or `exhibits/`.
`config/exhibits/<paper>.yaml` has those of a paper of yours. With the name of a paper of ours it
takes the place of that paper's; `fedrepro exhibits --yaml gems` prints such a file, to begin with.
All can be edited freely: a changed parameter makes new files and reruns only what depends on it.
Single keys can be set on the command line:

    .venv/bin/snakemake --cores 2 --config scale=paper exhibits=all
"""


FROM, TO = "<!-- from here: fedrepro documents -->", "<!-- to here -->"
FROM_COUNTS = "<!-- counts from here: fedrepro documents -->"
WORDS: dict[Any, str] = {  # of types
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "any",
    type(None): "nothing",
    ComponentEntry: "component",
}
KINDS_OF_METHODS = {
    "one_shot": "One exchange, or few",
    "federated": "In rounds",
    "peer": "On a graph, without a server",
    "control": "Bounds and controls",
}


def documents() -> dict[Path, str]:
    """Return the text of each generated document, and of each with a generated part, by path."""
    models: dict[str, type[BaseModel]] = {"config": Config, "exhibits": ExhibitFile}
    texts = {
        Path(f"workflow/schemas/{name}.schema.json"): f"{json.dumps(schema, indent=2)}\n"
        for name, schema in ((name, model.model_json_schema()) for name, model in models.items())
    }
    texts[Path("config/README.md")] = readme()
    keys = drawn_keys(RECORD, "paper")
    papers = read_reports(RECORD / "paper", "paper", keys).papers if keys else ()
    parts: dict[Path, tuple[str, Callable[[], str]]] = {
        Path("docs/methods.md"): (FROM, method_table),
        Path("docs/claims.md"): (FROM, partial(count_table, papers)),
        Path("docs/glossary.md"): (FROM, glossary_table),
    }
    pages = findings()
    parts |= {
        pages[paper.name]: (FROM_COUNTS, partial(counts, paper))
        for paper in papers
        if paper.claims and paper.name in pages
    }
    for path in (Path("README.md"), *parts, *pages.values()):
        text = old = path.read_text(encoding="utf-8") if path.exists() else ""
        mark, part = parts.get(path, (FROM, str))
        if path in parts and mark in text:
            before, _, rest = text.partition(mark)
            text = f"{before}{mark}\n\n{part()}\n{TO}{rest.partition(TO)[2]}"
        if LINK.search(text) or DEFINITION.search(text):
            text = filled(text, RECORD)
        if text != old:
            texts[path] = text
    return texts


def method_table() -> str:
    """Write tables of methods by kind: their work, needs, traffic and number of settings."""
    known = components("method")
    rows: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for name, item in sorted(known.items()):
        meta = item.meta
        sees = "; ".join(NEEDS[need] for need in sorted(meta["needs"])) or "the models alone"
        does = item.doc + (" Models of one start." if meta["one_start"] else "")
        works = [", ".join(sorted(meta[key])) for key in ("models", "trainings") if meta[key]]
        does += "".join(f" Only {text}." for text in works)
        tried = str(math.prod(map(len, meta["grid"].values())))
        rows[meta["kind"]].append((f"`{name}`", does, sees, meta["sends"] or "–", tried))
    heads = ["method", "what it does", "is handed", "clients send beside models", "settings"]
    kinds = KINDS_OF_METHODS.items()
    sections = [f"### {title}\n\n{_table(heads, rows[kind])}" for kind, title in kinds]
    names = [(item.name, f"`{item.token}`", item.words) for item in names_of_field(known)]
    heads = ["name", "here", "what it does"]
    return "\n".join([*sections, "### By other names of the field\n", _table(heads, names)])


def counts(paper: Paper) -> str:
    """Write the sentences that begin a page of findings: counts of printed values and claims."""
    bullets = [printed_counts(paper.printed), claim_counts(paper.claims)]
    return "\n".join(f"- {' '.join(sentences)}" for sentences in bullets if sentences) + "\n"


def count_table(papers: Sequence[Paper]) -> str:
    """Write a table of how many printed values and claims of each paper are judged, and of all."""
    found: dict[str, tuple[Sequence[Mapping[str, str]], Sequence[Sequence[Mapping[str, str]]]]] = {
        paper: ([{"verdict": "not run", "note": value.note} for value in values], ())
        for paper in papers_with([PRINTED], OWN_PUBLISHED, ".csv")
        if (values := read_published(published_file(paper)))
    }
    found |= {p.name: (p.printed, p.claims) for p in papers if p.printed or p.claims}
    lines = {paper_name(paper): settled_counts(*rows) for paper, rows in sorted(found.items())}
    heads = list(next(iter(lines.values()), {}))
    lines["all"] = {head: sum(counted[head] for counted in lines.values()) for head in heads}
    return _table(["paper", *heads], [(name, *one.values()) for name, one in lines.items()])


def readme() -> str:
    """Write config/README.md: each key of the configuration and each parameter of a component."""
    rules = [
        (f"`{rule.name}`", rule.words, DISCLOSED[rule.need].partition(",")[0])
        for rule in SELECTION_RULES.values()
    ]
    parts = [
        *(INTRODUCTION, "## config/config.yaml\n", _keys(Config, "granularity")),
        *("### granularity\n", _keys(Granularity), "## Exhibits of a paper\n", _keys(ExhibitFile)),
        "### An exhibit\n",
        "`defaults` and each exhibit hold these keys; below `at: {quick: …, paper: …, tiny: …}` "
        "stands what differs at a scale. A component is `{name: …}` with its parameters next to "
        "the name.\n",
        *(_keys(ExhibitSettings), "### A case of an exhibit\n", _keys(Case)),
        *("### A method of an exhibit\n", _keys(MethodEntry)),
        *("### How a setting is chosen\n", "`choose:` names one of these,\n"),
        _table(["name", "the highest", "what it reads"], rules),
        *("or says it in full:\n", _keys(ChoiceEntry), "## Drawings\n"),
        "`drawing:` of an exhibit names one, alone or with its options.\n",
        *(_component(item) for _, item in sorted(components(DRAWING).items())),
    ]
    for kind in KINDS:
        parts.append(f"## {TITLES[kind]}\n")
        if kind in COMMON:
            doc = " ".join((inspect.getdoc(COMMON[kind]) or "").split())
            shared = _parameters(read_signature(COMMON[kind]))
            parts.append(f"Each takes these as well. {doc}\n\n{shared}")
        parts += [_component(item) for _, item in sorted(components(kind).items())]
    parts += ["## What methods may need\n", _table(["need", "meaning"], sorted(NEEDS.items()))]
    return "\n".join(parts)


def _keys(model: type[BaseModel], *skip: str) -> str:
    rows = []
    for name, field in model.model_fields.items():
        default = "required"
        if not field.is_required():
            value = field.get_default(call_default_factory=True)
            default = "" if isinstance(value, BaseModel) else f"`{json.dumps(value)}`"
        if name not in skip:
            rows.append((f"`{name}`", _type(field.annotation), default, field.description or ""))
    return _table(["key", "type", "default", "meaning"], rows)


def _type(hint: Any) -> str:
    """Write a type hint in words."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{item}`" for item in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_type, args))
    if origin is typing.Annotated:
        return _type(args[0])
    if origin in (list, dict):
        return f"list of {_type(args[0])}" if origin is list else "keys and values"
    return str(WORDS.get(hint, hint.__name__))


def _component(item: Component) -> str:
    lines, meta = [f"### {item.name}\n", f"{item.doc}\n"], item.meta
    if item.kind == "method":
        sees = ", ".join(sorted(meta["needs"])) or "the clients' weights only"
        also = f" Clients send beside models: {meta['sends']}." if meta["sends"] else ""
        also += " Models of one start only." if meta["one_start"] else ""
        lines.append(f"Kind: {meta['kind'].replace('_', '-')}. Needs: {sees}.{also}\n")
    options: Any = item.fn  # of a drawing, a model of pydantic
    if item.kind == DRAWING and options.model_fields:
        lines.append(_keys(options))
    elif item.kind != DRAWING and item.own_params:
        lines.append(_parameters(item.own_params))
    return "\n".join(lines)


def _parameters(params: Mapping[str, Param]) -> str:
    rows = []
    for param in params.values():
        kind = ", ".join(f"`{c}`" for c in param.choices) if param.choices else _type(param.type)
        kind = f"list of {kind}s" if param.many else kind
        default = "required" if param.required else f"`{render(param.default)}`"
        rows.append((f"`{param.name}`", kind, default, param.arg.unit, param.arg.doc))
    return _table(["parameter", "type", "default", "unit", "meaning"], rows)


def _table(head: list[str], rows: Any) -> str:
    lines = [
        " | ".join(f"{name[:1].upper()}{name[1:]}" for name in head),
        " | ".join("---" for _ in head),
    ]
    lines += [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"

"""Generated documents: JSON schemas, config/README.md, and the numbers in pages."""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fedrepro.api import DISCLOSED, NEEDS
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import OWN_PUBLISHED, PRINTED, findings, papers_with, published_file
from fedrepro.core.params import Param, read_signature, render
from fedrepro.core.registry import COMMON, DRAWING, KINDS, components
from fedrepro.core.selection_rules import SELECTION_RULES
from fedrepro.core.spec import Component
from fedrepro.core.tokens import names_of_field
from fedrepro.numbers.exhibit_files import open_recorded, read_claims
from fedrepro.numbers.verdicts.printed_verdicts import read_published
from fedrepro.numbers.verdicts.summary_sentences import (
    claim_counts,
    printed_counts,
    resolve,
    settled_counts,
)
from fedrepro.planning.config import Config, ExhibitFile, Granularity
from fedrepro.planning.exhibit_settings import Case, ChoiceEntry, ExhibitSettings, MethodEntry
from fedrepro.record.record_results import CLAIMS, RECORD
from fedrepro.record.site.pages import paper_name
from fedrepro.record.site.report_data import claims_of
from fedrepro.record.site.verdicts import glossary_table
from fedrepro.record.templating import DEFINITION, LINK, filled

if TYPE_CHECKING:
    import pandas as pd

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


def documents() -> dict[Path, str]:
    """Return the text of each generated document, and of each with a generated part, by path."""
    texts = {
        Path(f"workflow/schemas/{name}.schema.json"): (
            json.dumps(model.model_json_schema(), indent=2) + "\n"
        )
        for name, model in (("config", Config), ("exhibits", ExhibitFile))
    }
    texts[Path("config/README.md")] = readme()
    parts: dict[Path, tuple[str, Callable[[], str]]] = {
        Path("docs/methods.md"): (FROM, method_table),
        Path("docs/claims.md"): (FROM, how_much),
        Path("docs/glossary.md"): (FROM, glossary_table),
    }
    pages = findings()
    for claims in sorted(RECORD.glob(f"paper/*/{CLAIMS}")):
        if page := pages.get(claims.parent.name):
            parts[page] = FROM_COUNTS, partial(counts, claims)
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
    heads = ["method", "what it does", "is handed", "clients send beside models", "settings"]
    sections = []
    for kind, title in KINDS_OF_METHODS.items():
        rows = []
        for name, item in sorted(known.items()):
            meta = item.meta
            if meta["kind"] != kind:
                continue
            sees = "; ".join(NEEDS[need] for need in sorted(meta["needs"])) or "the models alone"
            does = item.doc + (" Models of one start." if meta["one_start"] else "")
            works = [", ".join(sorted(meta[key])) for key in ("models", "trainings") if meta[key]]
            does += "".join(f" Only {text}." for text in works)
            tried = math.prod(map(len, meta["grid"].values()))
            rows.append((f"`{name}`", does, sees, meta["sends"] or "–", str(tried)))
        sections += [f"### {title}\n", _table(heads, rows)]
    names = [(item.name, f"`{item.token}`", item.words) for item in names_of_field(known)]
    heads = ["name", "here", "what it does"]
    return "\n".join([*sections, "### By other names of the field\n", _table(heads, names)])


KINDS_OF_METHODS = {
    "one_shot": "One exchange, or few",
    "federated": "In rounds",
    "peer": "On a graph, without a server",
    "control": "Bounds and controls",
}


def _claims(path: Path) -> list[list[dict[str, str]]]:
    """Return the claims of a record, each as the rows of its checks."""
    # older records have neither checksums nor a json
    known = path.with_suffix(".json").exists()
    return claims_of(read_claims(path) if known else path.read_text(encoding="utf-8"))


def counts(claims: Path) -> str:
    """Write the sentences that begin a page of findings: counts of printed values and claims."""
    bullets = [printed_counts(_printed_rows(claims.parent.name)), claim_counts(_claims(claims))]
    return "\n".join(f"- {' '.join(sentences)}" for sentences in bullets if sentences) + "\n"


def how_much() -> str:
    """Write a table of how much of each paper has an answer, and of all together."""
    papers = {path.parent.name: _claims(path) for path in RECORD.glob(f"paper/*/{CLAIMS}")}
    for paper in papers_with([PRINTED], OWN_PUBLISHED, ".csv"):
        papers.setdefault(paper, [])
    lines = {
        paper_name(paper): settled_counts(_printed_rows(paper), claims)
        for paper, claims in sorted(papers.items())
    }
    heads = list(next(iter(lines.values()), {}))
    lines["all"] = {head: sum(counted[head] for counted in lines.values()) for head in heads}
    rows = [(name, *map(str, one.values())) for name, one in lines.items()]
    return _table(["paper", *heads], rows)


def _printed_rows(paper: str) -> list[dict[str, str]]:
    """Return the recorded row of every printed value; open ones are settled by all rows."""
    folder = RECORD / "paper" / paper
    claims = _claims(folder / CLAIMS) if (folder / CLAIMS).exists() else []
    tables: dict[str, list[dict[str, str]]] = {}
    readers: dict[str, Iterator[dict[str, str]]] = {}
    rows: list[tuple[str, dict[str, str]]] = []
    for value in read_published(published_file(paper)):
        name = value.exhibit
        if name not in readers:
            file = folder / f"{name}.printed.csv"
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            readers[name] = csv.DictReader(io.StringIO(text, newline=""))
        row = next(readers[name], None)
        if row and (row["method"], float(row["printed"])) != (value.method, value.value):
            raise FedreproError(
                f"{value.where}: the record of {name} has another value in its place; "
                "record the exhibit again"
            )
        absent = {"verdict": "not run", "mean": "", "note": value.note, "exhibit": name}
        row = row or absent | {"apart": value.apart, "source": value.source}
        rows.append((name, row))
        tables.setdefault(name, []).append(row)

    def numbers(name: str) -> pd.DataFrame | None:
        key = f"{paper}/{name}"
        recorded = (folder / f"{name}.json").exists()
        return open_recorded(RECORD / "paper", key, "paper").numbers if recorded else None

    return [
        resolve(row, numbers, claims, tables[name])
        if row["verdict"] != "not run" or "set_up" in row
        else row
        for name, row in rows
    ]


def readme() -> str:
    """Write config/README.md: each key of the configuration and each parameter of a component."""
    rules = _table(
        ["name", "the highest", "what it reads"],
        [
            (f"`{rule.name}`", rule.words, DISCLOSED[rule.need].partition(",")[0])
            for rule in SELECTION_RULES.values()
        ],
    )
    parts = [INTRODUCTION]
    parts += ["## config/config.yaml\n", _keys(Config, "granularity")]
    parts += ["### granularity\n", _keys(Granularity)]
    parts += ["## Exhibits of a paper\n", _keys(ExhibitFile)]
    parts += [
        "### An exhibit\n",
        "`defaults` and each exhibit hold these keys; below `at: {quick: …, paper: …, tiny: …}` "
        "stands what differs at a scale. A component is `{name: …}` with its parameters next to "
        "the name.\n",
        _keys(ExhibitSettings),
    ]
    parts += ["### A case of an exhibit\n", _keys(Case)]
    parts += ["### A method of an exhibit\n", _keys(MethodEntry)]
    parts += ["### How a setting is chosen\n", "`choose:` names one of these,\n", rules]
    parts += ["or says it in full:\n", _keys(ChoiceEntry)]
    parts += ["## Drawings\n", "`drawing:` of an exhibit names one, alone or with its options.\n"]
    parts += [_drawing(item) for _, item in sorted(components(DRAWING).items())]
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
        return " or ".join(_type(arg) for arg in args)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin is list:
        return f"list of {_type(args[0])}"
    if origin is dict:
        return "keys and values"
    if hint is type(None):
        return "nothing"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any"}
    return names.get(hint, "component" if hint.__name__ == "ComponentEntry" else hint.__name__)


def _component(item: Component) -> str:
    lines = [f"### {item.name}\n", f"{item.doc}\n"]
    meta = item.meta
    if item.kind == "method":
        sees = ", ".join(sorted(meta["needs"])) or "the clients' weights only"
        also = f" Clients send beside models: {meta['sends']}." if meta["sends"] else ""
        also += " Models of one start only." if meta["one_start"] else ""
        lines.append(f"Kind: {meta['kind'].replace('_', '-')}. Needs: {sees}.{also}\n")
    return "\n".join([*lines, _parameters(item.own_params)] if item.own_params else lines)


def _drawing(item: Component) -> str:
    options: type[BaseModel] = item.fn  # type: ignore[assignment]
    table = [_keys(options)] if options.model_fields else []
    return "\n".join([f"### {item.name}\n", f"{item.doc}\n", *table])


def _parameters(params: Mapping[str, Param]) -> str:
    rows = []
    for param in params.values():
        kind = ", ".join(f"`{c}`" for c in param.choices) if param.choices else _type(param.type)
        kind = f"list of {kind}s" if param.many else kind
        default = "required" if param.required else f"`{render(param.default)}`"
        rows.append((f"`{param.name}`", kind, default, param.arg.unit, param.arg.doc))
    return _table(["parameter", "type", "default", "unit", "meaning"], rows)


def _table(head: list[str], rows: Any) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"

"""Texts of generated documents: config/README.md, and tables and numbers in other pages."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel

from fedrepro import api
from fedrepro.core import evaluation_schedule_and_successive_halving as evaluation_schedule
from fedrepro.core import params, registry
from fedrepro.core.literature_names_and_setting_tokens import names_of_field
from fedrepro.core.paper_files import OWN_PUBLISHED, PRINTED, findings, papers_with, published_file
from fedrepro.numbers.verdicts import verdict_counts_and_unreported_settings as counts
from fedrepro.numbers.verdicts.verdicts_on_printed_values import read_published
from fedrepro.planning import config_files, exhibit_config
from fedrepro.record.numbers_in_pages import LINK, filled
from fedrepro.record.record_entries_and_leaderboards import RECORD, drawn_keys
from fedrepro.record.site.pages import paper_name
from fedrepro.record.site.report_data import Paper, read_reports
from fedrepro.record.site.verdict_and_leaderboard_texts import glossary_table

FROM, TO = "<!-- from here: fedrepro documents -->", "<!-- to here -->"
FROM_COUNTS = "<!-- counts from here: fedrepro documents -->"
WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}
WORDS |= {Any: "any", type(None): "nothing", exhibit_config.ComponentEntry: "component"}


def documents() -> dict[Path, str]:
    """Return {path: new text} of config/README.md, and of other pages whose text would change."""
    texts = {Path("config/README.md"): docs_page("config.md")}
    keys = drawn_keys(RECORD, "paper")
    papers = read_reports(RECORD / "paper", "paper", keys).papers if keys else ()
    parts = {
        Path("docs/methods.md"): (FROM, docs_page("methods.md")),
        Path("docs/claims.md"): (FROM, count_table(papers)),
        Path("docs/glossary.md"): (FROM, glossary_table()),
    }
    pages = findings()
    for paper in (paper for paper in papers if paper.claims and paper.name in pages):
        counted = (counts.printed_counts(paper.printed), counts.claim_counts(paper.claims))
        lines = [f"- {' '.join(sentences)}\n" for sentences in counted if sentences]
        parts[pages[paper.name]] = FROM_COUNTS, "".join(lines)
    for path in (Path("README.md"), *parts, *pages.values()):
        text = old = path.read_text(encoding="utf-8") if path.exists() else ""
        mark, part = parts.get(path, (FROM, ""))
        if path in parts and mark in text:
            before, _, rest = text.partition(mark)
            text = f"{before}{mark}\n\n{part}\n{TO}{rest.partition(TO)[2]}"
        text = filled(text, RECORD) if LINK.search(text) else text
        if text != old:
            texts[path] = text
    return texts


def docs_page(template: str) -> str:
    """Return a markdown page: the file `template` of cli/templates, with tables made from code."""
    made = Environment(
        loader=PackageLoader("fedrepro.cli"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    modules = (api, config_files, exhibit_config, params, registry, evaluation_schedule)
    shared: dict[str, Any] = {module.__name__.rpartition(".")[2]: module for module in modules}
    shared |= {"keys": _keys, "models_of": _models_of, "parameters": _parameters}
    methods = names_of_field(registry.components("method"))
    named = [(item.name, f"`{item.token}`", item.words) for item in methods]
    made.globals |= shared | {"table": _table, "prod": math.prod, "named": named}
    return made.get_template(template).render()


def count_table(papers: Sequence[Paper]) -> str:
    """Return a markdown table: how many printed numbers and claims each paper has, by verdict."""
    found: dict[str, tuple[Any, Any]] = {
        paper: ([{"verdict": "not run", "note": value.note} for value in values], ())
        for paper in papers_with([PRINTED], OWN_PUBLISHED, ".csv")
        if (values := read_published(published_file(paper)))
    }
    found |= {p.name: (p.printed, p.claims) for p in papers if p.printed or p.claims}
    lines = {paper_name(p): counts.settled_counts(*rows) for p, rows in sorted(found.items())}
    heads = list(next(iter(lines.values()), {}))
    lines["all"] = {head: sum(counted[head] for counted in lines.values()) for head in heads}
    return _table(["paper", *heads], [(name, *one.values()) for name, one in lines.items()])


def _models_of(options: type[BaseModel]) -> list[type[BaseModel]]:
    """Return classes of a drawing's options: `options` and items of its lists; [] if no fields."""
    hints = (field.annotation for field in options.model_fields.values())
    listed = (args[0] for hint in hints if (args := typing.get_args(hint)))
    inner = [one for one in listed if isinstance(one, type) and issubclass(one, BaseModel)]
    return [options, *inner] if options.model_fields else []


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
    """Return a Python type hint in words for readers, such as "list of text"."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{item}`" for item in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_type, args))
    if origin in (typing.Annotated, list):
        return f"{'list of ' if origin is list else ''}{_type(args[0])}"
    return "keys and values" if origin is dict else str(WORDS.get(hint, hint.__name__))


def _parameters(signature: Mapping[str, params.Param]) -> str:
    rows = []
    for param in signature.values():
        kind = ", ".join(f"`{c}`" for c in param.choices) or _type(param.type)
        kind = f"list of {kind}s" if param.many else kind
        default = "required" if param.required else f"`{params.render(param.default)}`"
        rows.append((f"`{param.name}`", kind, default, param.arg.unit, param.arg.doc))
    return _table(["parameter", "type", "default", "unit", "meaning"], rows)


def _table(head: list[str], rows: Any) -> str:
    titles = [f"{name[:1].upper()}{name[1:]}" for name in head]
    lines = [" | ".join(cells) for cells in (titles, ["---"] * len(head))]
    lines += [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"

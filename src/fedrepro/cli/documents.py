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
from fedrepro.core.provenance import on_a_gpu
from fedrepro.core.registry import COMMON, DRAWING, KINDS, components
from fedrepro.core.selection_rules import SELECTION_RULES
from fedrepro.core.spec import Component
from fedrepro.core.tokens import names_of_field
from fedrepro.numbers.exhibit_files import open_recorded, read_claims
from fedrepro.numbers.verdicts.printed_verdicts import PrintedValue, read_published
from fedrepro.numbers.verdicts.summary_sentences import (
    claim_counts,
    printed_counts,
    reasons,
    resolve,
    settled_counts,
    trials_to_decide,
    word_of,
)
from fedrepro.planning.config import Config, ExhibitFile, Granularity
from fedrepro.planning.exhibit_entries import Case, ChoiceEntry, ExhibitSettings, MethodEntry
from fedrepro.record.record_results import CLAIMS, RECORD, drawn_keys
from fedrepro.record.site.pages import paper_name
from fedrepro.record.site.report_data import claims_of
from fedrepro.record.site.verdicts import (
    bound_text,
    deciding,
    glossary_table,
    interval,
    of_readings,
)
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

STAGES = (("train",), ("aggregate",), ("federate", "peer"))  # of the columns of a table

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
FROM_PRINTED = "<!-- printed values from here: fedrepro documents -->"
FROM_COUNTS = "<!-- counts from here: fedrepro documents -->"


def documents() -> dict[Path, str]:
    """Return the text of each generated document, and of each with a generated part, by path."""
    texts = {
        Path("workflow/schemas/config.schema.json"): _schema(Config),
        Path("workflow/schemas/exhibits.schema.json"): _schema(ExhibitFile),
        Path("config/README.md"): readme(),
    }
    parts: list[tuple[Path, str, Callable[[], str]]]
    parts = [(Path("docs/performance.md"), FROM, recorded_costs)]
    parts += [(Path("docs/methods.md"), FROM, method_table)]
    parts += [(Path("docs/claims.md"), FROM, how_much)]
    parts += [(Path("docs/glossary.md"), FROM, glossary_table)]
    pages = findings()
    for claims in sorted(RECORD.glob(f"paper/*/{CLAIMS}")):
        if page := pages.get(claims.parent.name):
            parts.append((page, FROM_COUNTS, partial(counts, claims)))
            parts.append((page, FROM, partial(recorded_verdicts, claims)))
    for paper in papers_with([PRINTED], OWN_PUBLISHED, ".csv"):
        for page in (path for name, path in pages.items() if name.partition("-")[0] == paper):
            parts.append((page, FROM_PRINTED, partial(printed_verdicts, paper)))
    for path, mark, part in parts:
        if path.exists() and mark in path.read_text(encoding="utf-8"):
            texts[path] = _with_part(
                texts.get(path) or path.read_text(encoding="utf-8"), mark, part()
            )
    for path in (Path("README.md"), *pages.values()):
        text = texts.get(path) or (path.read_text(encoding="utf-8") if path.exists() else "")
        if LINK.search(text) or DEFINITION.search(text):
            texts[path] = filled(text, RECORD)
    return texts


def _schema(model: type[BaseModel]) -> str:
    return json.dumps(model.model_json_schema(), indent=2) + "\n"


def _with_part(text: str, mark: str, part: str) -> str:
    """Replace the text between a mark and the next end."""
    before, rest = text.split(mark)
    return f"{before}{mark}\n\n{part}\n{TO}{rest.partition(TO)[2]}"


def recorded_costs(scale: str = "paper") -> str:
    """Write a table of the processor time, by stage, and memory of each recorded exhibit."""
    return _table(
        ["exhibit", "trials", "training", "one-shot", "rounds", "all, one core", "memory"],
        [_costs(scale, key) for key in drawn_keys(RECORD, scale)],
    )


def _costs(scale: str, key: str) -> tuple[str, ...]:
    files = open_recorded(RECORD / scale, key, scale)
    run = files.run
    spent = run.get("cpu_seconds", {})
    by_column = [[spent[s] for s in column if s in spent] for column in STAGES]
    stages = [f"{sum(seconds) / 60:.1f}" if seconds else "–" for seconds in by_column]
    whole = f"{sum(spent.values()) / 60:.1f} min" if spent else "–"
    memory = f"{max(run['peak_bytes'].values()) / 2**30:.2f} GiB" if run.get("peak_bytes") else "–"
    name = key.partition("/")[2] + (", on a GPU" if on_a_gpu(run) else "")
    return name, str(files.about["trials"]), *stages, whole, memory


def method_table() -> str:
    """Write tables of methods by kind: their work, needs, traffic and number of settings."""
    heads = ["method", "what it does", "is handed", "clients send beside models", "settings"]
    sections = []
    for kind, title in KINDS_OF_METHODS.items():
        items = [
            item for _, item in sorted(components("method").items()) if item.meta["kind"] == kind
        ]
        sections += [f"### {title}\n", _table(heads, map(_method_line, items))]
    names = [
        (item.name, f"`{item.token}`", item.words) for item in names_of_field(components("method"))
    ]
    sections += [
        "### By other names of the field\n",
        _table(["name", "here", "what it does"], names),
    ]
    return "\n".join(sections)


KINDS_OF_METHODS = {
    "one_shot": "One exchange, or few",
    "federated": "In rounds",
    "peer": "On a graph, without a server",
    "control": "Bounds and controls",
}


def _method_line(item: Component) -> tuple[str, ...]:
    meta = item.meta
    sees = "; ".join(NEEDS[need] for need in sorted(meta["needs"])) or "the models alone"
    start = " Models of one start." if meta["one_start"] else ""
    works = [", ".join(sorted(meta[key])) for key in ("models", "trainings") if meta[key]]
    only = "".join(f" Only {text}." for text in works)
    tried = math.prod(len(values) for values in meta["grid"].values())
    return f"`{item.name}`", item.doc + start + only, sees, meta["sends"] or "–", str(tried)


def recorded_verdicts(claims: Path) -> str:
    """Write a table of a paper's claims: each verdict, and the number that decides it."""
    return _table(
        ["claim", "in our words", "verdict", "what decides it", "number", "bound", "bound fixed"],
        [_verdict(checks) for checks in _claims(claims)],
    )


def _claims(path: Path) -> list[list[dict[str, str]]]:
    """Return the claims of a record, each as the rows of its checks."""
    # older records have neither checksums nor a json
    known = path.with_suffix(".json").exists()
    return claims_of(read_claims(path) if known else path.read_text(encoding="utf-8"))


def counts(claims: Path) -> str:
    """Write the sentences that begin a page of findings: counts of printed values and claims."""
    paper = claims.parent.name
    rows = [row for _, row in _printed_rows(paper)]
    bullets = [printed_counts(rows), claim_counts(_claims(claims))]
    return "\n".join(f"- {' '.join(sentences)}" for sentences in bullets if sentences) + "\n"


def how_much() -> str:
    """Write a table of how much of each paper has an answer, and of all together."""
    papers = {path.parent.name: _claims(path) for path in RECORD.glob(f"paper/*/{CLAIMS}")}
    printed = papers_with([PRINTED], OWN_PUBLISHED, ".csv")
    papers |= {paper: [] for paper in printed if paper not in papers}
    by_paper = {
        paper_name(paper): settled_counts([row for _, row in _printed_rows(paper)], claims)
        for paper, claims in sorted(papers.items())
    }
    heads = list(next(iter(by_paper.values()), {}))
    together = {head: sum(counted[head] for counted in by_paper.values()) for head in heads}
    lines = {**by_paper, "all": together}
    return _table(
        ["paper", *heads], [(name, *map(str, one.values())) for name, one in lines.items()]
    )


def _verdict(checks: list[dict[str, str]]) -> tuple[str, ...]:
    """Return a claim's row, with its deciding check: the first with the claim's verdict.

    Where readings differ each has its own deciding check.
    """
    row = deciding(checks)
    label = f" ({row['label']})" if row["label"] else ""
    needed = trials_to_decide(checks)
    more = f" (about {needed} trials would decide)" if needed else ""
    note = f" ({row['note']})" if row["note"] else ""
    head = row["claim"], row["says"], row["verdict"] + label + note + more
    if not row["check"]:
        return *head, row["reason"], "", "", ""
    decided = of_readings(checks)
    parts = [
        f"{reading}, {_looked_at(one)}" if reading else _looked_at(one)
        for reading, one in decided.items()
    ]
    numbers = [interval(one) or ("–" if reading else "") for reading, one in decided.items()]
    bounds = dict.fromkeys(bound_text(one) for one in decided.values())
    return *head, "; ".join(parts), "; ".join(numbers), "; ".join(bounds), row["fixed"]


def _looked_at(row: Mapping[str, str]) -> str:
    place = row["at"] or (f"missing: {row['missing']}" if row["missing"] else "not run")
    return f"{row['check'].removesuffix(': ' + row['bound']).rpartition(', ')[0]} ({place})"


def printed_verdicts(paper: str) -> str:
    """Write a table of every number that a paper printed, with ours, the verdict and its reason.

    The verdict is `not run` where no recorded exhibit has it.
    """
    head = ["exhibit", "cell", "method", "number", "printed", "ours", "verdict", "read in", "note"]
    return _table(head, [_printed_line(value, row) for value, row in _printed_rows(paper)])


def _printed_rows(paper: str) -> list[tuple[PrintedValue, dict[str, str]]]:
    """Return every printed value with its row of the record; open ones are settled by all rows."""
    folder = RECORD / "paper" / paper
    readers: dict[str, Iterator[dict[str, str]]] = {}
    claims = _claims(folder / "claims.csv") if (folder / "claims.csv").exists() else []
    rows: list[tuple[PrintedValue, dict[str, str]]] = []
    tables: dict[str, list[dict[str, str]]] = {}
    for value in read_published(published_file(paper)):
        if value.exhibit not in readers:
            file = folder / f"{value.exhibit}.printed.csv"
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            readers[value.exhibit] = csv.DictReader(io.StringIO(text, newline=""))
        row = next(readers[value.exhibit], None)
        if row and (row["method"], float(row["printed"])) != (value.method, value.value):
            raise FedreproError(
                f"{value.where}: the record of {value.exhibit} has another value in its place; "
                "record the exhibit again"
            )
        absent = {"verdict": "not run", "mean": "", "note": value.note}
        absent |= {"apart": value.apart, "source": value.source, "exhibit": value.exhibit}
        rows.append((value, row or absent))
        tables.setdefault(value.exhibit, []).append(row or absent)
    numbers = partial(_recorded, paper)
    for at, (value, row) in enumerate(rows):
        if row["verdict"] != "not run" or "set_up" in row:
            rows[at] = value, resolve(row, numbers, claims, tables[value.exhibit])
    return rows


def _recorded(paper: str, name: str) -> pd.DataFrame | None:
    """Return the numbers of a recorded exhibit, or None if it is not recorded."""
    key = f"{paper}/{name}"
    recorded = Path(f"{RECORD / 'paper' / key}.json").exists()
    return open_recorded(RECORD / "paper", key, "paper").numbers if recorded else None


def _printed_line(value: PrintedValue, row: Mapping[str, str]) -> tuple[str, ...]:
    cell = ", ".join(f"{key} {part}" for key, part in value.cell.items())
    number = f"{value.metric} ({value.split})" if value.split else value.metric
    ours = _number(float(row["mean"])) if row["mean"] else ""
    outcome = word_of(row), value.source, reasons(row)
    return value.exhibit, cell, value.method, number, _number(value.value), ours, *outcome


def _number(value: float) -> str:
    return "not reached" if math.isinf(value) else f"{value:.4g}"


def readme() -> str:
    """Write config/README.md: each key of the configuration and each parameter of a component."""
    parts = [INTRODUCTION]
    parts += ["## config/config.yaml\n", _keys(Config, skip={"granularity"})]
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
    parts += ["### How a setting is chosen\n", "`choose:` names one of these,\n", _choices()]
    parts += ["or says it in full:\n", _keys(ChoiceEntry)]
    parts += ["## Drawings\n", "`drawing:` of an exhibit names one, alone or with its options.\n"]
    parts += [_drawing(item) for _, item in sorted(components(DRAWING).items())]
    for kind in KINDS:
        parts.append(f"## {TITLES[kind]}\n")
        if kind in COMMON:
            parts.append(_common(COMMON[kind]))
        parts += [_component(item) for _, item in sorted(components(kind).items())]
    parts += ["## What methods may need\n", _table(["need", "meaning"], sorted(NEEDS.items()))]
    return "\n".join(parts)


def _choices() -> str:
    rows = [
        (f"`{c.name}`", c.words, DISCLOSED[c.need].partition(",")[0])
        for c in SELECTION_RULES.values()
    ]
    return _table(["name", "the highest", "what it reads"], rows)


def _keys(model: type[BaseModel], skip: set[str] = frozenset()) -> str:  # type: ignore[assignment]
    rows = []
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        default = "required" if field.is_required() else _default(field)
        rows.append((f"`{name}`", _type(field.annotation), default, field.description or ""))
    return _table(["key", "type", "default", "meaning"], rows)


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return f"`{json.dumps(value)}`" if not isinstance(value, BaseModel) else ""


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
    if item.own_params:
        lines.append(_parameters(item.own_params))
    return "\n".join(lines)


def _drawing(item: Component) -> str:
    options: type[BaseModel] = item.fn  # type: ignore[assignment]
    table = [_keys(options)] if options.model_fields else []
    return "\n".join([f"### {item.name}\n", f"{item.doc}\n", *table])


def _common(shared: Callable[..., Any]) -> str:
    """Describe the parameters that all components of a kind share."""
    doc = " ".join((inspect.getdoc(shared) or "").split())
    return f"Each takes these as well. {doc}\n\n{_parameters(read_signature(shared))}"


def _parameters(params: Mapping[str, Param]) -> str:
    rows = [_parameter(param) for param in params.values()]
    return _table(["parameter", "type", "default", "unit", "meaning"], rows)


def _parameter(param: Param) -> tuple[str, str, str, str, str]:
    kind = ", ".join(f"`{c}`" for c in param.choices) if param.choices else _type(param.type)
    kind = f"list of {kind}s" if param.many else kind
    default = "required" if param.required else f"`{render(param.default)}`"
    return f"`{param.name}`", kind, default, param.arg.unit, param.arg.doc


def _table(head: list[str], rows: Any) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"

"""Describe every figure and table as json: its configuration, and the origin of its numbers.

Website, record and comparisons need nothing else, so they run without configuration and plan.
Nothing in it depends on the time of day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from fedrepro.api import DISCLOSED, NEEDS
from fedrepro.core.artifacts import SCHEMA_VERSION
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import render
from fedrepro.core.provenance import loaded_source, origins, versions
from fedrepro.core.registry import SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.data.feature_extraction import feature_spec
from fedrepro.planning.config import ExhibitFile
from fedrepro.planning.exhibit import CASE
from fedrepro.planning.jobs import specs_of
from fedrepro.planning.plan import Exhibit, ExhibitMethod, Plan, Run

DRAWN_WITH = ("matplotlib", "pandas")

Source = Mapping[str, Any]  # provenance of a run's metrics


def command(scale: str, key: str, suffix: str = ".csv") -> str:
    """Return the shell command for the file of exhibit `key` (paper/name) that ends in `suffix`."""
    return f"snakemake --cores 2 reports/{scale}/{key}{suffix}"


def command_of(exhibit: Exhibit, scale: str) -> str:
    """Return the shell command that draws a figure's picture, or writes a table as html."""
    return command(scale, exhibit.key, exhibit.suffix)


def exhibit_metadata(
    exhibit: Exhibit, plan: Plan, file: ExhibitFile, sources: Mapping[Run, Sequence[Source]]
) -> dict[str, Any]:
    """Return the content of a figure's or table's json: methods, scenario, data sets, versions.

    `file` is the paper's configuration; `sources` has the provenance of each run's metrics.
    """
    all_sources = [source for run_sources in sources.values() for source in run_sources]
    return {
        **describe(exhibit, plan, file),
        "data": _data(exhibit, file, sources),
        "components": _components(exhibit, all_sources),
        "computed": origins(all_sources),
        "timings": plan.pieces(exhibit),
    }


def describe(exhibit: Exhibit, plan: Plan, file: ExhibitFile) -> dict[str, Any]:
    """Return an exhibit's json without results: title, methods, …, versions that draw it now."""
    settings, sources = exhibit.settings, loaded_source()
    pairs = {label: pair.sentence for label, pair in exhibit.pairs.items()}
    return {
        "kind": "exhibit",
        "schema": SCHEMA_VERSION,
        "key": exhibit.key,
        "scale": plan.scale,
        "command": command_of(exhibit, plan.scale),
        "paper": {"name": file.paper, "title": file.title, "source": file.source},
        "title": settings.title,
        "place": settings.place,
        "caption": exhibit.caption,
        "notes": list(settings.notes),
        "scenario": _scenario(exhibit),
        "cases": list(dict.fromkeys(p.values[CASE] for p in exhibit.points if CASE in p.values)),
        "columns": {"points": exhibit.swept, "settings": exhibit.shown},
        "sweep": {name: list(values) for name, values in settings.sweep.items()},
        "trials": settings.trials,
        "seed": plan.config.seed,
        "methods": [_method(exhibit, measure) for measure in exhibit.measures],
        "settings": settings.model_dump(mode="json"),
        # what drew the exhibit need not be what computed it
        "drawn": {
            "revision": sources.revision,
            "digest": sources.digest,
            "versions": versions() | {name: metadata.version(name) for name in DRAWN_WITH},
        },
        **({"pairs": pairs} if pairs else {}),
    }


def drawn_of(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return git revision and library versions that drew a figure, from its json `about`."""
    drawing: Mapping[str, Any] = about.get("drawn", about)
    return drawing


def _data(
    exhibit: Exhibit, file: ExhibitFile, sources: Mapping[Run, Sequence[Source]]
) -> list[dict[str, Any]]:
    """List the data sets of a figure or table: title, licence, checksum and a note on a stand-in.

    A stand-in is another data set, or other features, than the paper's. Raise FedreproError if two
    runs read different data under one name.
    """
    entries: dict[Spec, dict[str, Any]] = {}
    trained = ((run.scenario, own) for run, own in sources.items() if run.scenario)
    for spec, source in ((scenario.dataset, one) for scenario, own in trained for one in own):
        meta = spec.component.meta
        # all may hold: other data than the paper's, other features, a reduced form
        notes = stand_in(exhibit, file, spec), of_features(spec), source.get("stand_in")
        entry = {
            "name": spec.name,
            "token": spec.token,
            "title": meta["title"],
            "about": spec.component.doc,
            "licence": meta["licence"],
            "citation": meta["citation"],
            "sha256": source["data"],
            "stand_in": " ".join(filter(None, notes)),
        }
        if entries.setdefault(spec, entry)["sha256"] != source["data"]:
            raise FedreproError(
                f"{exhibit.key}: its runs were computed on different data called {spec.token}; "
                "delete their metrics and start again"
            )
    return list(entries.values())


def of_features(dataset: Spec) -> str:
    """Return a sentence if a data set's inputs are other features than the paper's, else ""."""
    text = dataset.values.get("features")
    return feature_spec(text).component.meta.get("stand_in", "") if isinstance(text, str) else ""


def stand_in(exhibit: Exhibit, file: ExhibitFile, dataset: Spec) -> str:
    """Return a sentence if `dataset` is not what the set-up of scale "paper" uses, else ""."""
    ours, papers = exhibit.settings, file.settings(exhibit.name, "paper")
    names = {
        papers.components(case)["dataset"].name
        for case in (ours.cases or (None,))
        if ours.components(case)["dataset"].name == dataset.name
        and (case is None or case in papers.cases)
    }
    if not names or dataset.name in names:
        return ""
    titles = [components("dataset")[name].meta["title"] for name in sorted(names)]
    title = dataset.component.meta["title"]
    return f"{title} stand in for {' and '.join(titles)}, the paper's data."


def _scenario(exhibit: Exhibit) -> dict[str, dict[str, Any]]:
    """Return {"dataset", "partition" and so on: {"name": name, "values": parameters as texts}}."""
    by_kind: dict[str, dict[str, Any]] = {}
    for kind in SCENARIO:
        specs = [spec for p in exhibit.points if (spec := getattr(p.scenario, kind, None))]
        if specs:
            values = {
                key: dict.fromkeys(render(spec.values[key]) for spec in specs if key in spec.values)
                for key in sorted({key for spec in specs for key in spec.recorded_values})
            }
            by_kind[kind] = {
                "name": ", ".join(dict.fromkeys(spec.name for spec in specs)),
                "values": {key: ", ".join(texts) for key, texts in values.items()},
            }
    return by_kind


def _method(exhibit: Exhibit, measure: ExhibitMethod) -> dict[str, Any]:
    meta = measure.spec.component.meta
    own = [(p, m) for p in exhibit.points for m in p.measures if m.label == measure.label]
    # case -> the method in its parameters there, where a case has one of its own
    of_case = {str(p.values[CASE]): m.spec.resolved for p, m in own if m.spec != measure.spec}
    # what it changes of the local training; values of a sweep stand in one text
    training: dict[str, dict[str, None]] = {}
    for key, value in (pair for setting in measure.settings for pair in setting.training):
        training.setdefault(key, {})[render(value)] = None
    chosen = measure.choose if measure.chosen else None
    return {
        "label": measure.label,
        "name": measure.spec.name,
        "about": measure.spec.component.doc,
        "kind": meta["kind"],
        "token": measure.spec.token,
        "resolved": measure.spec.resolved,
        "of_case": of_case,
        "training": {key: ", ".join(texts) for key, texts in training.items()},
        "reference": measure.reference,
        "trials": measure.trials or exhibit.settings.trials,
        "needs": {key: NEEDS[key] for key in sorted(measure.needs)},
        "sends": meta["sends"],
        "swept": ", ".join(measure.chosen) if measure.chosen else None,
        "discloses": {key: DISCLOSED[key] for key in sorted(measure.discloses)},
        "choice": chosen and chosen.name,
        "criterion": chosen and chosen.words,
        "shown": list(measure.show),
        "values": {
            key: list(dict.fromkeys(setting[key] for setting in measure.settings))
            for key in measure.show
        },
        "cases": list(dict.fromkeys(p.values[CASE] for p, _ in own if CASE in p.values)),
        **({"tune": measure.tune.resolved} if measure.tune else {}),
    }


def _components(exhibit: Exhibit, sources: Sequence[Source]) -> dict[str, list[str]]:
    """List what runs used: {kind, such as "method": names with version and parameters}."""
    by_kind: dict[str, set[str]] = {}
    for listing in (source["resolved"] for source in sources if "resolved" in source):
        for kind, resolved in listing.items():
            by_kind.setdefault(kind, set()).update(resolved)
    if not all("resolved" in source for source in sources):
        for run in exhibit.runs:
            for spec in (*specs_of(run.scenario), run.method):
                by_kind.setdefault(spec.kind, set()).add(spec.resolved)
    return {kind: sorted(resolved) for kind, resolved in by_kind.items()}

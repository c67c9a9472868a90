"""Describe figures and tables as json, and read and write their files, held together by checksums.

The key of a figure or table is paper/name. Its scale, tiny, quick or paper, is the size of the
experiment. A plan has the figures and tables of one scale; a run is a method on one data set.

`<name>.json` has a figure's configuration, the origin of its numbers, and checksums of all its
files. So csv files stay plain, and whoever reads results need not plan the jobs behind them. The
json does not depend on the time of day. The record, results kept in the repository, has the numbers
and one picture of each figure; there the json also says under `run` where and how long the numbers
were computed, and under `blank` which tables have a heading and no row.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.api import DISCLOSED, NEEDS
from fedrepro.core import checksummed_files as artifacts
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import render
from fedrepro.core.provenance import loaded_source, origins, versions
from fedrepro.core.registry import SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.data.feature_extraction import feature_spec, resolved_features
from fedrepro.numbers.tables_and_selection import read_csv
from fedrepro.planning.config_files import ExhibitFile
from fedrepro.planning.drawing_base import CASE
from fedrepro.planning.plan import Exhibit, ExhibitMethod, Plan, Run
from fedrepro.planning.scenarios_runs_and_jobs import specs_of

TIMES = ".times.csv"  # of a table of measured times: what does not repeat to the byte
KEPT = (".svg", ".csv", ".choice.csv", ".printed.csv", TIMES, ".metrics.parquet")  # of a record
SUFFIXES = (".png", ".html", *KEPT, ".json")
KEY = re.compile("[a-z0-9]+/(?![0-9]+$)[a-z0-9-]+")
KEYS: dict[str, type | tuple[type, ...]] = {"key": str, "scale": str, "schema": int}
DRAWN_WITH = ("matplotlib", "pandas")
Sources = Mapping[Run, Sequence[Mapping[str, Any]]]  # provenance of the metrics of each run


def command(scale: str, key: str, suffix: str = ".csv") -> str:
    """Return the snakemake command that makes file `key` + `suffix` of a figure at a `scale`."""
    return f"snakemake --cores 2 reports/{scale}/{key}{suffix}"


def exhibit_metadata(exhibit: Exhibit, plan: Plan, sources: Sources) -> dict[str, Any]:
    """Return the json of a figure or table; `sources` is {run: records of how it was computed}."""
    all_sources = [source for run_sources in sources.values() for source in run_sources]
    return {
        **describe(exhibit, plan),
        "data": _data(exhibit, plan.files[exhibit.paper], sources),
        "components": _components(exhibit, all_sources),
        "computed": origins(all_sources),
        "timings": plan.pieces(exhibit),
    }


def describe(exhibit: Exhibit, plan: Plan) -> dict[str, Any]:
    """Return the part of a figure's or table's json that needs no results, such as its title."""
    settings, file = exhibit.settings, plan.files[exhibit.paper]
    return {
        "kind": "exhibit",
        "schema": artifacts.SCHEMA_VERSION,
        "key": exhibit.key,
        "scale": plan.scale,
        "command": command(plan.scale, exhibit.key, exhibit.suffix),
        "paper": {"name": file.paper, "title": file.title, "source": file.source},
        "title": settings.title,
        "place": settings.place,
        "caption": exhibit.caption,
        "notes": list(settings.notes),
        "scenario": _scenario(exhibit),
        "cases": list(dict.fromkeys(p.values[CASE] for p in exhibit.points if CASE in p.values)),
        "columns": {"points": exhibit.swept, "settings": exhibit.shown},
        "trials": settings.trials,
        "seed": plan.config.seed,
        "methods": [_method(exhibit, measure) for measure in exhibit.measures],
        "settings": settings.model_dump(mode="json"),
        # what drew the exhibit need not be what computed it
        "drawn": {
            **loaded_source(),
            "versions": versions() | {name: metadata.version(name) for name in DRAWN_WITH},
        },
        **({"pairs": exhibit.pairs} if exhibit.pairs else {}),
    }


def _data(exhibit: Exhibit, file: ExhibitFile, sources: Sources) -> list[dict[str, Any]]:
    """Return a dict per data set of the runs `sources`: title, licence, sha256, stand-in, …."""
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
            **{key: meta[key] for key in ("licence", "citation")},
            "sha256": source["data"],
            "stand_in": " ".join(filter(None, notes)),
        }
        if entries.setdefault(spec, entry)["sha256"] != source["data"]:
            said = f"{exhibit.key}: its runs were computed on different data called {spec.token}"
            raise FedreproError(f"{said}; delete their metrics and start again")
    return list(entries.values())


def of_features(dataset: Spec) -> str:
    """Return a note if a data set's inputs are extracted features unlike the paper's, else ""."""
    text = dataset.values.get("features")
    return feature_spec(text).component.meta.get("stand_in", "") if isinstance(text, str) else ""


def stand_in(exhibit: Exhibit, file: ExhibitFile, dataset: Spec) -> str:
    """Return a note if `dataset` stands in for other data at scale "paper" (in `file`), else ""."""
    if "paper" not in (ours := exhibit.settings).scales:
        return ""
    papers = file.settings(exhibit.name, "paper")
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
    """Return {kind, as "dataset": {"name": names, "values": {parameter: values}}}, as texts."""

    def joined(texts: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(texts))

    by_kind: dict[str, dict[str, Any]] = {}
    for kind in SCENARIO:
        if specs := [spec for p in exhibit.points if (spec := getattr(p.scenario, kind, None))]:
            keys = sorted({key for spec in specs for key in spec.recorded_values})
            values = {k: joined(render(s.values[k]) for s in specs if k in s.values) for k in keys}
            by_kind[kind] = {"name": joined(spec.name for spec in specs), "values": values}
    return by_kind


def _method(exhibit: Exhibit, measure: ExhibitMethod) -> dict[str, Any]:
    alike = [m for point in exhibit.points for m in point.measures if m.label == measure.label]
    meta, rule = measure.spec.component.meta, next((m.rule for m in alike if m.rule), None)
    return {
        "label": measure.label,
        "name": measure.spec.name,
        "kind": meta["kind"],
        "token": measure.spec.token,
        "resolved": measure.spec.resolved,
        "reference": measure.reference,
        "trials": measure.trials or exhibit.settings.trials,
        "needs": {key: NEEDS[key] for key in sorted({*chain(*(m.needs for m in alike))})},
        "sends": meta["sends"],
        "discloses": {rule.need: DISCLOSED[rule.need]} if rule else {},
        "criterion": rule.words if rule else None,
    }


def _components(exhibit: Exhibit, sources: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return {kind: [component used, with version and parameters]} by the runs' provenances."""
    by_kind: dict[str, set[str]] = {}
    for listing in (source["resolved"] for source in sources if "resolved" in source):
        for kind, resolved in listing.items():
            by_kind.setdefault(kind, set()).update(resolved)
    if not all("resolved" in source for source in sources):
        for run in exhibit.trials:
            for spec in (*specs_of(run.scenario), run.method):
                by_kind.setdefault(spec.kind, set()).add(spec.resolved)
    for run in exhibit.trials:
        if run.tune:
            by_kind.setdefault("tune", set()).add(run.tune.resolved)
        if run.scenario and (features := resolved_features(run.scenario.dataset)):
            by_kind.setdefault("feature", set()).add(features)
    return {kind: sorted(resolved) for kind, resolved in by_kind.items()}


@dataclass(frozen=True)
class ExhibitFiles:
    """The files of one figure or table, with their checksums.

    base: their common path without suffix. about: the content of its json. run: where and how long
    it was computed, if the files are of the record (results kept in the repository); else empty.
    """

    base: str
    about: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """List the suffixes of all files of this figure or table, such as .csv, in fixed order."""
        return tuple(suffix for suffix in SUFFIXES if suffix in {*self.about["files"], ".json"})

    @property
    def is_table(self) -> bool:
        return ".svg" not in self.about["files"]

    def read(self, suffix: str) -> bytes:
        """Return the bytes of the file with `suffix`; raise FedreproError if missing or changed."""
        path = f"{self.base}{suffix}"
        if suffix in self.about.get("blank", {}):
            return str(self.about["blank"][suffix]).encode()
        try:
            if not Path(path).exists():
                raise _missing(path, self.about["scale"], self.about["key"])
            if suffix == ".json":
                return Path(path).read_bytes()
            checksum = self.about["files"].get(suffix, "")
            return artifacts.read_checked(path, checksum, f"{self.base}.json")
        except FedreproError as error:
            raise (_altered(path, self.base) if self.run else error) from error

    def table(self, suffix: str) -> pd.DataFrame:
        """Read the csv with `suffix`: .csv has results, .choice.csv all parameter values tried."""
        try:
            return read_csv(self.read(suffix).decode())
        except ValueError as error:
            raise artifacts.corrupt_file_error(f"{self.base}{suffix}", error) from error

    @property
    def numbers(self) -> pd.DataFrame:
        """Read the csv of results, and append the csv of measured times as rows, if it exists."""
        times = [self.table(TIMES)] if TIMES in self.suffixes else []
        return pd.concat([self.table(".csv"), *times], ignore_index=True)

    @property
    def metrics(self) -> pd.DataFrame:
        """Return all measurements, a row each, with columns for trial, method, round and value."""
        return pd.read_parquet(io.BytesIO(self.read(".metrics.parquet")))


def write_files(
    base: str, about: Mapping[str, Any], contents: Mapping[str, bytes], *there: str
) -> list[Path]:
    """Write `contents`, {suffix: bytes}, to files `base` + suffix, and a json; return their paths.

    The json has `about`, and checksums of these files and of existing ones with suffixes `there`.
    """
    checksums = {suffix: artifacts.checksum_of(data) for suffix, data in contents.items()}
    checksums |= {suffix: artifacts.checksum_of_file(f"{base}{suffix}") for suffix in there}
    for suffix, data in contents.items():
        artifacts.write_bytes(f"{base}{suffix}", data)
    artifacts.write_json(f"{base}.json", {**about, "files": checksums})
    return [Path(f"{base}{suffix}") for suffix in (*contents, ".json")]


def open_exhibit(folder: Path, key: str, scale: str) -> ExhibitFiles:
    """Open the files of the figure or table `key` in `folder`, at a `scale` such as "quick".

    Raise FedreproError if its json is missing, damaged, of an older version or of another figure.
    """
    path = f"{folder / _named(key)}.json"
    if not Path(path).exists():
        raise _missing(path, scale, key)
    about = artifacts.read_json(path, KEYS)
    if (about.get("scale"), about.get("key")) != (scale, key):
        said = f"{path} describes {about.get('key')} at scale {about.get('scale')}, not {key} at"
        raise FedreproError(f"{said} scale {scale}; make it again with: {command(scale, key)}")
    run = about.get("run", {})
    ours = about["schema"] == artifacts.SCHEMA_VERSION and isinstance(about.get("files"), dict)
    if not (run or ours):
        said = f"{path} is of another version of fedrepro, and names no checksums; delete it,"
        raise FedreproError(f"{said} and make the figure again from the results that are there")
    return ExhibitFiles(f"{folder / key}", about, run)


def whole_exhibits(folder: Path, keys: Iterable[str], scale: str) -> list[str]:
    """List the `keys` (paper/name) whose files at `scale`, as "quick", are all in `folder`."""
    whole = []
    for key in keys:
        with contextlib.suppress(FedreproError):
            suffixes = open_exhibit(folder, key, scale).suffixes
            if all(Path(f"{folder / key}{suffix}").exists() for suffix in suffixes):
                whole.append(key)
    return whole


def open_recorded(folder: Path, key: str, scale: str) -> ExhibitFiles:
    """Open the record of `key` at `scale` in `folder`; raise FedreproError if absent or changed."""
    base = f"{folder / _named(key)}"
    try:
        files = open_exhibit(folder, key, scale)
    except FedreproError as error:
        raise _altered(f"{base}.json", base) from error
    if not files.run:
        raise _altered(f"{base}.json", base)
    return files


def _named(key: str) -> str:
    """Return `key` if its form is paper/name, as it becomes part of a path; raise otherwise."""
    if not KEY.fullmatch(key):
        raise FedreproError(f"'{key}' is not an exhibit; name one such as pfnm/figure-2a")
    return key


def _missing(path: str, scale: str, key: str) -> FedreproError:
    suffix = path.rpartition(key)[2]  # the file itself: another that is there needs no job
    return FedreproError(f"{path} is missing; make it with: {command(scale, key, suffix)}")


def _altered(path: Path | str, base: str) -> FedreproError:
    said = f"the record of {Path(base).name} is incomplete or was altered: {path} is not as it was"
    return FedreproError(f"{said} written; restore its files from git, or record it again")


def write_claims(path: Path, text: str) -> list[Path]:
    """Write verdicts on claims (csv text) to `path`, a checksum to a json; return both paths."""
    about = {"kind": "claims", "schema": artifacts.SCHEMA_VERSION, "paper": path.parent.name}
    return write_files(str(path.with_suffix("")), about, {".csv": text.encode()})


def read_claims(path: Path) -> str:
    """Read the verdicts on a paper's claims, csv text; raise FedreproError if it was changed."""
    json_path = path.with_suffix(".json")
    about = artifacts.read_json(json_path, {"files": dict})
    if about.get("paper") != path.parent.name:
        why = f"it is not on the claims of {path.parent.name}"
        raise artifacts.corrupt_file_error(json_path, why)
    return artifacts.read_checked(path, str(about["files"].get(".csv")), json_path).decode()

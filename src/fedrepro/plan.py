"""From exhibits to the list of artifacts, in pure Python: no torch, no Snakemake, no pandas.

An exhibit is a sweep; each of its points is a scenario; each scenario is measured by methods;
each measurement is a run, made by one job and kept in one file. Two exhibits that need the same
run, or the same local models, share them, because the path says what is in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedrepro.api import CHOICES
from fedrepro.config import Component, Config, ExhibitFile, ExhibitSettings, MethodEntry
from fedrepro.errors import FedreproError, unknown
from fedrepro.paths import (
    Block,
    Paths,
    Pieces,
    Scenario,
    blocks,
    methods_name,
    methods_token,
    model_files,
    name_of,
)
from fedrepro.registry import components
from fedrepro.spec import Spec


@dataclass(frozen=True)
class Run:
    """Methods of one scenario that one job measures, over trials 0 … trials-1."""

    scenario: Scenario
    methods: tuple[Spec, ...]
    trials: int

    @property
    def federated(self) -> bool:
        return self.methods[0].component.meta["kind"] in ("federated", "peer")

    @property
    def block(self) -> Block:
        return Block(0, self.trials - 1)


@dataclass(frozen=True)
class Measure:
    """One method of an exhibit: its spec (perhaps a sweep), how it is shown and chosen."""

    spec: Spec
    label: str
    trials: int
    choose: str | None
    reference: bool

    @property
    def needs(self) -> frozenset[str]:
        """What the method sees beyond weights, with what choosing its setting reads."""
        given: frozenset[str] = self.spec.component.meta["needs"]
        chosen = {CHOICES[self.choose]} if self.choose else set()
        return (given - set(CHOICES.values())) | chosen


@dataclass(frozen=True)
class Point:
    """One point of an exhibit's sweep: the swept values, the scenario, and where each method is."""

    values: Mapping[str, Any]
    scenario: Scenario
    runs: Mapping[str, Run]


@dataclass(frozen=True)
class Exhibit:
    """A figure or table at one scale, ready to be computed."""

    paper: str
    name: str
    settings: ExhibitSettings
    measures: tuple[Measure, ...]
    points: tuple[Point, ...]

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def runs(self) -> list[Run]:
        """The distinct runs of the exhibit, in order of first need."""
        return list(dict.fromkeys(run for point in self.points for run in point.runs.values()))


class Plan:
    """All exhibits of one scale, the selected ones, and where their artifacts lie."""

    def __init__(self, config: Config, files: Mapping[str, ExhibitFile], scale: str) -> None:
        self.config = config
        self.scale = scale
        self.paths = Paths(scale, config.seed)
        self.exhibits = {
            exhibit.key: exhibit
            for file in files.values()
            for name in file.exhibits
            for exhibit in [build_exhibit(config, file, name, scale)]
        }

    @cached_property
    def selected(self) -> list[Exhibit]:
        """The exhibits that the config asks for."""
        wanted = self.config.exhibits
        if wanted == "all":
            return list(self.exhibits.values())
        if wanted == "headline":
            return [e for e in self.exhibits.values() if e.settings.headline]
        return [self.exhibit(key) for key in wanted]

    def exhibit(self, key: str) -> Exhibit:
        if key not in self.exhibits:
            raise unknown("exhibit", key, self.exhibits, "config/exhibits")
        return self.exhibits[key]

    @cached_property
    def runs(self) -> list[Run]:
        """The distinct runs of every exhibit of this scale, selected or not."""
        return list(dict.fromkeys(run for e in self.exhibits.values() for run in e.runs))

    @cached_property
    def tokens(self) -> dict[tuple[str, str], str]:
        """(kind, name in a path) -> full token, for every component of this scale."""
        found: dict[tuple[str, str], str] = {}
        for run in self.runs:
            for spec in run.scenario.specs:
                found[spec.kind, name_of(spec)] = spec.token
            found["methods", methods_name(run.methods)] = methods_token(run.methods)
        return found

    @property
    def shortened(self) -> list[tuple[str, str, str]]:
        """(kind, name, full token) of every name that is too long to stand in a path."""
        return sorted((k, name, token) for (k, name), token in self.tokens.items() if name != token)

    @cached_property
    def trials(self) -> dict[tuple[Spec, Spec], int]:
        """Trials of each (data set, partition): the most that any exhibit of this scale needs.

        It depends on what is declared, not on what is selected, so that drawing one figure and
        drawing all of them share every file.
        """
        found: dict[tuple[Spec, Spec], int] = {}
        for run in self.runs:
            key = (run.scenario.dataset, run.scenario.partition)
            found[key] = max(found.get(key, 0), run.trials)
        return found

    def partitions(self, keys: Sequence[str]) -> dict[tuple[Spec, Spec], list[str]]:
        """(data set, partition) -> the exhibits, of these, that are about it, controls aside."""
        found: dict[tuple[Spec, Spec], list[str]] = {}
        for key in dict.fromkeys(keys):
            points = [point.scenario for point in self.exhibit(key).points]
            for pair in dict.fromkeys((s.dataset, s.partition) for s in points):
                found.setdefault(pair, []).append(key)
        return found

    def partition_file(self, dataset: Spec, partition: Spec) -> str:
        """The partition of all trials."""
        trials = self.trials.get((dataset, partition))
        if trials is None:
            raise FedreproError(
                f"no exhibit of scale {self.scale} uses partition {partition.token} of "
                f"{dataset.token}; declare it in config/exhibits"
            )
        return self.paths.partition(dataset, partition, Block(0, trials - 1))

    def model_files(self, scenario: Scenario, trials: Block) -> list[str]:
        """The local models that cover these trials, one path per training job."""
        return model_files(self.paths.models_of(scenario), *self.model_pieces(scenario, trials))

    def model_pieces(self, scenario: Scenario, trials: Block) -> tuple[Pieces, Pieces]:
        """The trials and the clients of the training jobs that cover these trials."""
        job = self.config.granularity
        total = self.trials[scenario.dataset, scenario.partition]
        size = _size(job.trials_per_job) or total
        met = [block for block in blocks(total, size) if block.meets(trials)]
        return (
            Pieces(Block(met[0].first, met[-1].last), size),
            Pieces(Block(0, scenario.clients - 1), _size(job.clients_per_job) or scenario.clients),
        )

    def metrics_file(self, run: Run) -> str:
        return self.paths.metrics(run.scenario, run.methods, run.block)

    def metrics_files(self, exhibit: Exhibit) -> list[str]:
        return [self.metrics_file(run) for run in exhibit.runs]


def _size(size: str | int) -> int | None:
    return None if size == "all" else int(size)


def build_exhibit(config: Config, file: ExhibitFile, name: str, scale: str) -> Exhibit:
    """One exhibit at one scale: every point of its sweep with the runs that measure it."""
    settings = file.settings(name, scale)
    where = f"config/exhibits/{file.paper}.yaml, {name} at scale {scale}"
    measures = tuple(_measure(entry, settings, where) for entry in settings.methods)
    points = tuple(_points(config, settings, measures, where))
    return Exhibit(file.paper, name, settings, measures, points)


def _measure(entry: MethodEntry, settings: ExhibitSettings, where: str) -> Measure:
    spec = _spec("method", entry, where)
    trials = settings.kd_trials if entry.trials == "kd_trials" else entry.trials
    if len(spec.swept) > 1:
        raise FedreproError(
            f"{where}: method '{spec.name}' sweeps {' and '.join(spec.swept)}; sweep one"
        )
    if spec.swept and not entry.choose:
        raise FedreproError(
            f"{where}: method '{spec.name}' lists several values of {spec.swept[0]}; "
            "say how one is chosen (choose: pooled_train or client_train)"
        )
    return Measure(
        spec=spec,
        label=entry.label or spec.component.meta["label"],
        trials=trials or settings.trials,
        choose=entry.choose,
        reference=entry.reference,
    )


def _spec(kind: str, entry: Component, where: str, extra: Mapping[str, Any] | None = None) -> Spec:
    known = components(kind)
    if entry.name not in known:
        raise unknown(kind, entry.name, known, where)
    return known[entry.name].spec({**entry.parameters, **(extra or {})}, where)


def _points(
    config: Config, settings: ExhibitSettings, measures: Sequence[Measure], where: str
) -> Iterator[Point]:
    for values in _grid(settings.sweep, where):
        parts = {
            kind: _spec(kind, getattr(settings, kind), where, values.get(kind))
            for kind in ("dataset", "partition", "model", "training")
        }
        scenario = Scenario(**parts)
        shown = {key: value for part in values.values() for key, value in part.items()}
        yield Point(shown, scenario, _runs(config, scenario, measures, where))


def _grid(sweep: Mapping[str, list[Any]], where: str) -> Iterator[dict[str, dict[str, Any]]]:
    """Every combination of the swept values, as {component: {parameter: value}}."""
    for combination in itertools.product(*sweep.values()):
        point: dict[str, dict[str, Any]] = {}
        for key, value in zip(sweep, combination, strict=True):
            kind, dot, parameter = key.partition(".")
            if not dot or kind not in ("dataset", "partition", "model", "training"):
                raise FedreproError(
                    f"{where}: sweep '{key}' is not of the form component.parameter, "
                    "such as partition.clients"
                )
            point.setdefault(kind, {})[parameter] = value
        yield point


def _runs(
    config: Config, scenario: Scenario, measures: Sequence[Measure], where: str
) -> dict[str, Run]:
    """The run of each method. Methods without parameters and without training share a job."""
    alone: dict[str, Run] = {}
    shared: dict[tuple[Scenario, int], list[Spec]] = {}
    for measure in measures:
        meta = measure.spec.component.meta
        _check_model(measure.spec, scenario, where)
        own = _own_scenario(scenario, meta["scenario"])
        if measure.spec.values != measure.spec.component.spec().values or meta["own_job"]:
            alone[measure.spec.token] = Run(own, (measure.spec,), measure.trials)
        else:
            shared.setdefault((own, measure.trials), []).append(measure.spec)
    for (own, trials), methods in shared.items():
        methods.sort(key=lambda spec: spec.token)
        size = _size(config.granularity.methods_per_job) or len(methods)
        for at in range(0, len(methods), size):
            run = Run(own, tuple(methods[at : at + size]), trials)
            alone.update((spec.token, run) for spec in run.methods)
    return alone


def _own_scenario(scenario: Scenario, parts: Mapping[str, str]) -> Scenario:
    """The scenario with the components that a method sets itself."""
    own = {spec.kind: spec for spec in scenario.specs}
    own.update((kind, components(kind)[name].spec()) for kind, name in parts.items())
    return Scenario(**own)


def _check_model(method: Spec, scenario: Scenario, where: str) -> None:
    allowed = method.component.meta["models"]
    if allowed and scenario.model.name not in allowed:
        raise FedreproError(
            f"{where}: method '{method.name}' combines {', '.join(sorted(allowed))} models, "
            f"not '{scenario.model.name}'; take it out of the exhibit or change the model"
        )

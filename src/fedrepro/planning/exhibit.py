"""One exhibit at one scale: its points, what each method measures there, and the runs for it.

An exhibit is a sweep; each of its points is a scenario; each scenario is measured by methods;
each measurement is a run, made by one job and kept in one file.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedrepro.api import CHOICES
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.registry import components
from fedrepro.core.spec import Spec, Value, render
from fedrepro.planning.config import ComponentEntry, ExhibitFile, ExhibitSettings, MethodEntry
from fedrepro.planning.drawable import CASE as CASE
from fedrepro.planning.drawable import require_drawable
from fedrepro.planning.paths import Scenario

KINDS = ("dataset", "partition", "model", "training")


@dataclass(frozen=True)
class Run:
    """A method, perhaps a sweep, that is measured in one scenario.

    every: rounds between two measurements of a method in rounds, None for all others. How many
    trials there are is no part of it: each has a file of its own, or shares one with its block.
    """

    scenario: Scenario
    method: Spec
    every: int | None = None


@dataclass(frozen=True)
class Measure:
    """One method of an exhibit: its spec (perhaps a sweep), how it is shown and chosen.

    show: swept parameters of which every value is shown; of the others one setting is chosen.
    """

    spec: Spec
    label: str
    trials: int
    choose: str | None
    reference: bool
    show: tuple[str, ...] = ()
    measure_every: int = 1
    distilled: bool = False  # its trials are the exhibit's or the case's `kd_trials`

    @property
    def needs(self) -> frozenset[str]:
        """What the method sees beyond weights, with what choosing its setting reads."""
        given: frozenset[str] = self.spec.component.meta["needs"]
        chosen = {CHOICES[self.choose]} if self.choose else set()
        return (given - set(CHOICES.values())) | chosen

    @property
    def chosen(self) -> tuple[str, ...]:
        """The swept parameters of which one setting is chosen."""
        return tuple(key for key in self.spec.swept if key not in self.show)

    @cached_property
    def groups(self) -> dict[tuple[Value, ...], list[Spec]]:
        """Values of the shown parameters -> the settings that one is chosen from."""
        found: dict[tuple[Value, ...], list[Spec]] = {}
        for setting in self.spec.expand():
            found.setdefault(tuple(setting[key] for key in self.show), []).append(setting)
        return found


@dataclass(frozen=True)
class Point:
    """One point of an exhibit's sweep: the swept values, the scenario, and what is measured there.

    runs: (label of the method, token of the setting) -> run. trials: label -> how many of them.
    """

    values: Mapping[str, Any]
    scenario: Scenario
    runs: Mapping[tuple[str, str], Run]
    trials: Mapping[str, int]


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
        return list(self.trials)

    @cached_property
    def trials(self) -> dict[Run, int]:
        """Trials of each run: the most that any of its points asks for."""
        found: dict[Run, int] = {}
        for point in self.points:
            for (label, _), run in point.runs.items():
                found[run] = max(found.get(run, 0), point.trials[label])
        return found

    @property
    def swept(self) -> list[str]:
        """What differs between points: the leading columns of the exhibit's numbers."""
        return list(self.points[0].values)

    @property
    def shown(self) -> list[str]:
        """Parameters of methods of which every value is shown: the columns after those."""
        return list(dict.fromkeys(key for m in self.measures for key in m.show))

    @property
    def by_rounds(self) -> bool:
        """Whether single rounds are shown, in a column of their own."""
        return self.settings.drawing == "accuracy-against-rounds"


@dataclass(frozen=True)
class Place:
    """A point before its runs are known, with the repetitions of its case, if it has its own."""

    values: Mapping[str, Any]
    scenario: Scenario
    own_trials: int | None = None
    own_kd_trials: int | None = None

    def trials(self, measure: Measure) -> int:
        own = self.own_kd_trials if measure.distilled else self.own_trials
        return own or measure.trials


def in_rounds(method: Spec) -> bool:
    return method.component.meta["kind"] in ("federated", "peer")


def exhibit_of(file: ExhibitFile, name: str, scale: str) -> Exhibit:
    """The points and methods of one exhibit at one scale."""
    settings = file.settings(name, scale)
    where = f"config/exhibits/{file.paper}.yaml, {name} at scale {scale}"
    measures = tuple(_measure(entry, settings, where) for entry in settings.methods)
    places = tuple(_places(settings, where))
    _require_distinct(where, "methods are called", [measure.label for measure in measures])
    _require_distinct(where, "points are", [_at(place.values) for place in places])
    values = [place.values for place in places]
    axis = [key for key in values[0] if key != CASE]
    require_drawable(where, settings.drawing, measures, values, axis)
    points = tuple(_point(place, measures, where) for place in places)
    return Exhibit(file.paper, name, settings, measures, points)


def _point(place: Place, measures: Sequence[Measure], where: str) -> Point:
    """The run of each setting. A sweep is one run, but a method in rounds has one a setting."""
    runs = {}
    for measure in measures:
        _check_model(measure.spec, place.scenario, where)
        own = own_scenario(place.scenario, measure.spec)
        for setting in measure.spec.expand():
            if in_rounds(setting):
                run = Run(own, setting, measure.measure_every)
            else:
                run = Run(own, measure.spec)
            runs[measure.label, setting.token] = run
    trials = {measure.label: place.trials(measure) for measure in measures}
    return Point(place.values, place.scenario, runs, trials)


def _require_distinct(where: str, what: str, names: Sequence[str]) -> None:
    """Tables and figures tell methods by their labels, and points by their values."""
    for name, count in Counter(names).items():
        if count > 1:
            raise FedreproError(f"{where}: two of its {what} '{name}'; tell them apart")


def _at(values: Mapping[str, Any]) -> str:
    """The values of a point in words; 5 and 5.0 are one."""
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, int | float) else f"{key} {value}"
        for key, value in values.items()
    )


def _measure(entry: MethodEntry, settings: ExhibitSettings, where: str) -> Measure:
    spec = _spec("method", entry, where)
    trials = settings.kd_trials if entry.trials == "kd_trials" else entry.trials
    measure = Measure(
        spec=spec,
        label=entry.label or spec.component.meta["label"],
        trials=trials or settings.trials,
        choose=entry.choose,
        reference=entry.reference,
        show=tuple(entry.show),
        measure_every=entry.measure_every,
        distilled=entry.trials == "kd_trials",
    )
    idle = [key for key in measure.show if key not in spec.swept]
    if idle:
        raise FedreproError(
            f"{where}: method '{spec.name}' shows every value of {idle[0]}, "
            "but lists no values of it"
        )
    if len(measure.chosen) > 1:
        raise FedreproError(
            f"{where}: method '{spec.name}' sweeps {' and '.join(measure.chosen)}; sweep one, or "
            "name those of which every value is shown (show: [...])"
        )
    if measure.chosen and not entry.choose:
        raise FedreproError(
            f"{where}: method '{spec.name}' lists several values of {measure.chosen[0]}; "
            "say how one is chosen (choose: pooled_train or client_train)"
        )
    return measure


def _spec(
    kind: str, entry: ComponentEntry, where: str, extra: Mapping[str, Any] | None = None
) -> Spec:
    known = components(kind)
    if entry.name not in known:
        raise unknown(kind, entry.name, known, where)
    spec = known[entry.name].spec({**entry.parameters, **(extra or {})}, where)
    return spec if kind == "method" else spec.single(where)


def _places(settings: ExhibitSettings, where: str) -> Iterator[Place]:
    """Swept values and scenario of each point; cases, if there are any, vary slowest."""
    names = case_names(settings, where)
    for case in names or (None,):
        named = {CASE: names[case]} if case is not None else {}
        own = settings.cases.get(case or "")
        repetitions = (own.trials, own.kd_trials) if own else (None, None)
        for values in _grid(settings.sweep, where):
            parts = {
                kind: _spec(kind, settings.component(kind, case), where, values.get(kind))
                for kind in KINDS
            }
            yield Place(named | _shown(parts, values), Scenario(**parts), *repetitions)


def _shown(parts: Mapping[str, Spec], values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The swept values as they stand in tables: a list as in a token, 50@50."""
    found = {}
    for kind, given in values.items():
        for key, value in given.items():
            full = parts[kind][key]
            found[key] = render(full) if isinstance(full, tuple) else value
    return found


def case_names(settings: ExhibitSettings, where: str) -> dict[str, str]:
    """What each case is called: its label, after the data's title where cases differ in data."""
    data = {
        case: _spec("dataset", settings.component("dataset", case), where)
        for case in settings.cases
    }
    titles = {case: spec.component.meta["title"] for case, spec in data.items()}
    several = len(set(data.values())) > 1
    return {
        case: f"{titles[case]}, {own.label}" if several else own.label
        for case, own in settings.cases.items()
    }


def _grid(sweep: Mapping[str, list[Any]], where: str) -> Iterator[dict[str, dict[str, Any]]]:
    """Every combination of the swept values, as {component: {parameter: value}}."""
    for combination in itertools.product(*sweep.values()):
        point: dict[str, dict[str, Any]] = {}
        for key, value in zip(sweep, combination, strict=True):
            kind, dot, parameter = key.partition(".")
            if not dot or kind not in KINDS:
                raise FedreproError(
                    f"{where}: sweep '{key}' is not of the form component.parameter, "
                    "such as partition.clients"
                )
            point.setdefault(kind, {})[parameter] = value
        yield point


def own_scenario(scenario: Scenario, method: Spec) -> Scenario:
    """The scenario with the components that a method sets itself."""
    own = {spec.kind: spec for spec in scenario.specs}
    for kind, name in method.component.meta["scenario"].items():
        # examples that are set aside stay so for bounds and controls
        own[kind] = components(kind)[name].spec(own[kind].common)
    return Scenario(**own)


def _check_model(method: Spec, scenario: Scenario, where: str) -> None:
    allowed: Sequence[str] = method.component.meta["models"]
    if allowed and scenario.model.name not in allowed:
        raise FedreproError(
            f"{where}: method '{method.name}' combines {', '.join(sorted(allowed))} models, "
            f"not '{scenario.model.name}'; take it out of the exhibit or change the model"
        )

"""One exhibit at one scale: its points, what each method measures there, and the runs for it.

An exhibit is a sweep; each of its points is a scenario; each scenario is measured by methods;
each measurement is a run, made by one job and kept in one file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.finetuning import KIND as TUNE
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.metrics import SIZES, TIMES, Size
from fedrepro.core.params import comparable_text, render
from fedrepro.core.registry import GRAPH, SCENARIO, components
from fedrepro.core.spec import Spec
from fedrepro.planning.compatibility import require_fitting, require_kind
from fedrepro.planning.config import ExhibitFile
from fedrepro.planning.drawing import CASE as CASE
from fedrepro.planning.drawing import TABLE, Planned
from fedrepro.planning.exhibit_entries import Case, ComponentEntry, ExhibitSettings
from fedrepro.planning.exhibit_methods import (
    TUNED,
    exhibit_methods,
    halved_together,
    in_rounds,
    spec_of,
)
from fedrepro.planning.exhibit_methods import ExhibitMethod as ExhibitMethod
from fedrepro.planning.exhibit_methods import Setting as Setting
from fedrepro.planning.paired_trials import Pair, pairs_of, require_comparable
from fedrepro.planning.runs import Run as Run
from fedrepro.planning.runs import Scenario


@dataclass(frozen=True)
class Point:
    """One point of an exhibit's sweep: the swept values, the scenario, and the runs there.

    measures: the methods of its case. runs: (label of the method, setting) -> run. trials: label ->
    number. case: the key of its case in the config. Simulations have no scenario.
    """

    values: Mapping[str, Any]
    scenario: Scenario | None
    measures: tuple[ExhibitMethod, ...]
    runs: Mapping[tuple[str, Setting], Run]
    trials: Mapping[str, int]
    case: str | None = None


@dataclass(frozen=True)
class Exhibit:
    """A figure or table at one scale, ready to be computed.

    measures: the methods of all its points, each label once. A case may replace one of them by
    another method of that label, which its points have.
    """

    paper: str
    name: str
    settings: ExhibitSettings
    measures: tuple[ExhibitMethod, ...]
    points: tuple[Point, ...]

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def runs(self) -> list[Run]:
        """List the distinct runs, in order of first use."""
        return list(self.trials)

    @cached_property
    def trials(self) -> dict[Run, int]:
        """Return the trials of each run: the most that any of its points asks for."""
        by_run: dict[Run, int] = {}
        for point in self.points:
            for (label, _), run in point.runs.items():
                by_run[run] = max(by_run.get(run, 0), point.trials[label])
        return by_run

    @cached_property
    def evaluate(self) -> dict[Run, set[str]]:
        """Return the splits that each run is measured on."""
        return self._splits("evaluate")

    @cached_property
    def follow(self) -> dict[Run, set[str]]:
        """Return the splits, in addition to test, that each run is measured on after rounds."""
        return self._splits("follow")

    def _splits(self, when: str) -> dict[Run, set[str]]:
        by_run: dict[Run, set[str]] = {}
        for point in self.points:
            splits = {measure.label: getattr(measure, when) for measure in point.measures}
            for (label, _), run in point.runs.items():
                by_run.setdefault(run, set()).update(splits[label])
        return by_run

    @property
    def swept(self) -> list[str]:
        """Return the keys in which points differ: the leading columns of the exhibit's numbers."""
        return list(self.points[0].values)

    @property
    def shown(self) -> list[str]:
        """Return the parameters of methods that are columns of the numbers, a row per value."""
        return list(dict.fromkeys(key for m in self.measures for key in m.show))

    @cached_property
    def pairs(self) -> dict[str, Pair]:
        """Return the pair of every method with fewer trials than others, by label."""
        return pairs_of(self.measures, [point.trials for point in self.points])

    @property
    def caption(self) -> str:
        """Return the caption, with sentences on methods of fewer trials and on other spreads."""
        sentences = [self.settings.caption, *(pair.sentence for pair in self.pairs.values())]
        over = [measure.label for measure in self.measures if measure.over_clients]
        if over:
            sentences.append(f"The spread of {' and '.join(over)} is over clients.")
        return " ".join([*sentences, "Paired lines have no band."] if self.pairs else sentences)

    @property
    def is_table(self) -> bool:
        """Whether it is written as a table, rather than drawn."""
        return self.settings.drawing.name == TABLE

    @property
    def size(self) -> Size:
        """Return the size of models that it shows."""
        return SIZES[self.settings.size]

    @property
    def timed(self) -> bool:
        """Whether it is a table of measured times."""
        return self.settings.drawing.number[0] in TIMES

    @property
    def suffix(self) -> str:
        """Return the suffix of the file that people look at."""
        return self.settings.drawing.suffix

    @property
    def by_rounds(self) -> bool:
        """Whether the csv has single rounds, in a column `round`."""
        return self.settings.by_rounds or self.settings.drawing.by_rounds


@dataclass(frozen=True)
class UnplannedPoint:
    """A point before its runs are known, with its case if it has one."""

    values: Mapping[str, Any]
    scenario: Scenario | None
    measures: Sequence[ExhibitMethod]
    usual: int  # trials of methods that have no number of their own
    case: Case | None = None
    name: str | None = None  # the case's key in the config

    def trials(self, measure: ExhibitMethod) -> int:
        """Return the trials of a method, by its case's `trials_of`, itself, its case or exhibit."""
        of_case = self.case.trials_of.get(measure.label) if self.case else None
        return of_case or measure.trials or (self.case and self.case.trials) or self.usual


def exhibit_of(file: ExhibitFile, name: str, scale: str) -> Exhibit:
    """Plan the points, methods and runs of one exhibit at one scale."""
    settings = file.settings(name, scale)
    where = f"{file.place}, {name} at scale {scale}"
    places = tuple(_places(settings, where))
    values = [place.values for place in places]
    names = [", ".join(f"{key} {comparable_text(v)}" for key, v in at.items()) for at in values]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FedreproError(f"{where}: two of its points are '{twice[0]}'; tell them apart")
    by_label: dict[str, ExhibitMethod] = {}
    for measure in (measure for place in places for measure in place.measures):
        by_label.setdefault(measure.label, measure)
    measures = tuple(by_label.values())
    tuned = [key for key in settings.sweep if key.startswith(TUNED)]
    if tuned and not any(measure.tune for measure in measures):
        raise FedreproError(f"{where}: it sweeps {tuned[0]}, but none of its methods has a tune")
    for reason in settings.drawing.reasons(Planned(measures, values)):
        raise FedreproError(f"{where}: {reason}")
    points = tuple(_point(place, where) for place in places)
    require_comparable(where, settings, measures, [point.trials for point in points])
    return Exhibit(file.paper, name, settings, measures, points)


def _point(place: UnplannedPoint, where: str) -> Point:
    """Plan the run of each setting at a point."""
    runs: dict[tuple[str, Setting], Run] = {}
    for measure in place.measures:
        require_kind(measure, place.scenario, where)
        if place.scenario is None:
            by_setting = {setting: Run(None, measure.spec) for setting in measure.settings}
        else:
            by_setting = dict(_measured(place.scenario, measure, where))
        runs |= {(measure.label, setting): by_setting[setting] for setting in measure.settings}
    trials = {measure.label: place.trials(measure) for measure in place.measures}
    shared = _shared(runs)
    return Point(place.values, place.scenario, tuple(place.measures), shared, trials, place.name)


Runs = Mapping[tuple[str, Setting], Run]


def _shared(runs: Runs) -> Runs:
    """Give a method that is shown both tuned and untuned one run, which computes both."""
    tuning = {(run.scenario, run.method): run for run in runs.values() if run.tune}
    return {
        key: tuning.get((run.scenario, run.method), run) if run.tune is None else run
        for key, run in runs.items()
    }


def _measured(
    scenario: Scenario, measure: ExhibitMethod, where: str
) -> Iterator[tuple[Setting, Run]]:
    """Plan the runs of a method's settings in the scenario of a point.

    A sweep is one run, except that a method in rounds has one per setting unless they race.
    """
    usual = own_scenario(scenario, measure.spec)
    require_fitting(measure, scenario, usual, where)

    def trained(changes: Mapping[str, Any]) -> Scenario:
        return replace(usual, training=_training(usual.training, measure, changes, where))

    for group in measure.groups.values():
        if measure.races:
            method, changes = halved_together(group, where)
            run = Run(trained(changes), method, measure.measured(group))
            yield from ((setting, run) for setting in group)
            continue
        for setting in group:
            own = trained(dict(setting.training))
            if in_rounds(setting.method):
                yield setting, Run(own, setting.method, measure.measuring)
            else:
                yield setting, Run(own, measure.spec, tune=measure.tune)


def _training(usual: Spec, measure: ExhibitMethod, changes: Mapping[str, Any], where: str) -> Spec:
    """Return the local training of settings: the scenario's, as the method changes it."""
    if not measure.training:
        return usual
    entry = ComponentEntry.model_validate({"name": usual.name, **usual.values})
    changed = entry.changed({**measure.training, **changes})
    return spec_of("training", changed, where, sweep=measure.races)


def _places(settings: ExhibitSettings, where: str) -> Iterator[UnplannedPoint]:
    """Yield values, scenario and methods of each point; cases vary slowest."""
    names = case_names(settings, where)
    for case in names or (None,):
        named = {CASE: names[case]} if case is not None else {}
        case_entry = settings.cases.get(case or "")
        measures = partial(exhibit_methods, settings, case, where)
        tuned = any(key.startswith(TUNED) for key in settings.sweep)
        usual = [] if tuned else list(measures({}).values())
        for values in _grid(settings.sweep, where):
            parts = _parts(settings, case, where, values)
            shown, scenario = named | _shown(parts, values), Scenario(**parts) if parts else None
            point_measures = usual or list(measures(values.get(TUNE, {})).values())
            yield UnplannedPoint(shown, scenario, point_measures, settings.trials, case_entry, case)


def _parts(
    settings: ExhibitSettings,
    case: str | None,
    where: str,
    values: Mapping[str, Mapping[str, Any]],
) -> dict[str, Spec]:
    """Return the components of a point, with its swept values."""
    entries = settings.components(case)
    for kind, swept in values.items():
        if kind not in (*entries, TUNE):
            raise FedreproError(
                f"{where}: it sweeps {kind}.{next(iter(swept))} and has no {kind}; name one, as in "
                f"{kind}: {{name: ring}}"
            )
    return {kind: spec_of(kind, entry, where, values.get(kind)) for kind, entry in entries.items()}


def _shown(parts: Mapping[str, Spec], values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the swept values as tables write them: 50@50 for a list, true, none."""
    shown = {}
    for kind, swept in values.items():
        for key, value in swept.items():
            full = parts[kind][key] if kind in parts else value
            shown[key] = render(full) if isinstance(full, tuple | bool | None) else value
    return shown


def case_names(settings: ExhibitSettings, where: str) -> dict[str, str]:
    """Return the name of each case: its label, after the data's title where these differ."""
    if not settings.kinds:
        return {case: entry.label for case, entry in settings.cases.items()}
    data = {
        case: spec_of("dataset", settings.component("dataset", case), where)
        for case in settings.cases
    }
    titles = {case: spec.component.meta["title"] for case, spec in data.items()}
    several = len(set(data.values())) > 1
    return {
        case: f"{titles[case]}, {entry.label}" if several else entry.label
        for case, entry in settings.cases.items()
    }


def _grid(sweep: Mapping[str, list[Any]], where: str) -> Iterator[dict[str, dict[str, Any]]]:
    for combination in itertools.product(*sweep.values()):
        point: dict[str, dict[str, Any]] = {}
        for key, value in zip(sweep, combination, strict=True):
            kind, dot, parameter = key.partition(".")
            if not dot or kind not in (*SCENARIO, TUNE):
                raise FedreproError(
                    f"{where}: sweep '{key}' is not of the form component.parameter, "
                    "such as partition.clients, or tune.examples"
                )
            point.setdefault(kind, {})[parameter] = value
        yield point


def own_scenario(scenario: Scenario, method: Spec) -> Scenario:
    """Return the scenario with the components, or their parameters, that a method sets itself.

    Only peer methods keep a graph: all others are the same on every one.
    """
    on_graph = METHOD_KINDS[method.component.meta["kind"]].on_graph
    specs = {spec.kind: spec for spec in scenario.specs if on_graph or spec.kind != GRAPH}
    for kind, override in method.component.meta["scenario"].items():
        if isinstance(override, str):
            # bounds and controls leave aside the examples that the partition sets aside
            specs[kind] = components(kind)[override].spec(specs[kind].common)
        else:
            specs[kind] = specs[kind].component.spec({**specs[kind].values, **override})
    return Scenario(**specs)

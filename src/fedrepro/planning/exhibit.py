"""One exhibit at one scale: its points, what each method measures there, and the runs for it.

An exhibit is a sweep; each of its points is a scenario; each scenario is measured by methods;
each measurement is a run, made by one job and kept in one file. Means over different trials depend
on which trials were drawn. So all methods of a point have one number of trials, or the exhibit says
`paired: true`: a method with fewer trials is then shown as the mean of another method over all
trials plus the difference in the trials that both have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.finetuning import KIND as TUNE
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.metrics import SIZES, TIMES, Size
from fedrepro.core.params import comparable_text, render
from fedrepro.core.registry import DRAWING, GRAPH, SCENARIO, components
from fedrepro.planning.compatibility import require_fitting, require_kind
from fedrepro.planning.config import ExhibitFile
from fedrepro.planning.exhibit_methods import (
    TUNED,
    exhibit_methods,
    halved_together,
    in_rounds,
    spec_of,
)
from fedrepro.planning.exhibit_methods import ExhibitMethod as ExhibitMethod
from fedrepro.planning.exhibit_methods import Setting as Setting
from fedrepro.planning.exhibit_settings import ComponentEntry, ExhibitSettings
from fedrepro.planning.figure_interface import CASE as CASE
from fedrepro.planning.figure_interface import TABLE, Planned
from fedrepro.planning.jobs import Run as Run
from fedrepro.planning.jobs import Scenario


@dataclass(frozen=True)
class Point:
    """One point of an exhibit's sweep: the swept values, the scenario, and the runs there.

    measures: the methods of its case. trials: label -> number. case: the key of its case in the
    config. runs: (label of the method, setting) -> run. Simulations have no scenario.
    """

    values: Mapping[str, Any]
    scenario: Scenario | None
    measures: tuple[ExhibitMethod, ...]
    trials: Mapping[str, int]
    case: str | None
    runs: Mapping[tuple[str, Setting], Run]


@dataclass(frozen=True)
class Pair:
    """A method with fewer trials, the method that it is paired with, and the trials of both."""

    label: str
    beside: str
    trials: tuple[int, ...]  # at any point
    of: tuple[int, ...]  # those of the other

    @property
    def name(self) -> str:
        """Return the method's name in legends."""
        return f"{self.label} (paired)"

    @property
    def sentence(self) -> str:
        """Say in a sentence how it is shown, for captions and footnotes."""
        few, many = (" or ".join(map(str, numbers)) for numbers in (self.trials, self.of))
        word = "trial" if self.trials == (1,) else "trials"
        return (
            f"{self.label}, with {few} {word}, is shown as {self.beside} over all "
            f"{many} plus the difference between the two in the {few} that both have."
        )


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
    def splits(self) -> dict[Run, tuple[set[str], set[str]]]:
        """Return the splits that each run is measured on, and those of them after rounds."""
        by_run: dict[Run, tuple[set[str], set[str]]] = {run: (set(), set()) for run in self.trials}
        for point in self.points:
            by_label = {measure.label: measure for measure in point.measures}
            for (label, _), run in point.runs.items():
                by_run[run][0].update(by_label[label].evaluate)
                by_run[run][1].update(by_label[label].follow)
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
        """Return the pair of every method with fewer trials than others at a point, by label."""
        pairs = {}
        for label, other in ((m.label, m.paired_with) for m in self.measures if m.paired_with):
            points = [point.trials for point in self.points if point.trials.get(label, 0)]
            few = [trials for trials in points if trials[label] < max(trials.values())]
            own = sorted({trials[label] for trials in few})
            if few:
                of = sorted({trials.get(other, 0) for trials in few})
                pairs[label] = Pair(label, other, tuple(own), tuple(of))
        return pairs

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


def exhibit_of(file: ExhibitFile, name: str, scale: str) -> Exhibit:
    """Plan the points, methods and runs of one exhibit at one scale."""
    settings = file.settings(name, scale)
    where = f"{file.place}, {name} at scale {scale}"
    points = list(_points(settings, where))
    values = [point.values for point in points]
    names = [", ".join(f"{key} {comparable_text(v)}" for key, v in at.items()) for at in values]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FedreproError(f"{where}: two of its points are '{twice[0]}'; tell them apart")
    by_label: dict[str, ExhibitMethod] = {}
    for measure in (measure for point in points for measure in point.measures):
        by_label.setdefault(measure.label, measure)
    measures = tuple(by_label.values())
    tuned = [key for key in settings.sweep if key.startswith(TUNED)]
    if tuned and not any(measure.tune for measure in measures):
        raise FedreproError(f"{where}: it sweeps {tuned[0]}, but none of its methods has a tune")
    for reason in settings.drawing.reasons(Planned(measures, values)):
        raise FedreproError(f"{where}: {reason}")
    runs = [_runs(point, where) for point in points]
    for reason in _incomparable(settings, measures, [point.trials for point in points]):
        raise FedreproError(f"{where}: {reason}")
    planned = (replace(point, runs=own) for point, own in zip(points, runs, strict=True))
    return Exhibit(file.paper, name, settings, measures, tuple(planned))


def _points(settings: ExhibitSettings, where: str) -> Iterator[Point]:
    """Yield each point, without its runs; cases vary slowest."""
    names = _case_names(settings, where)
    tuned = any(key.startswith(TUNED) for key in settings.sweep)
    for key in names or (None,):
        entries, case = settings.components(key), settings.cases.get(key or "")
        measures = () if tuned else exhibit_methods(settings, key, where, {})
        for values in _grid(settings.sweep, where):
            for kind, swept in values.items():
                if kind not in (*entries, TUNE):
                    raise FedreproError(
                        f"{where}: it sweeps {kind}.{next(iter(swept))} and has no {kind}; name "
                        f"one, as in {kind}: {{name: ring}}"
                    )
            parts = {
                kind: spec_of(kind, entry, where, values.get(kind))
                for kind, entry in entries.items()
            }
            shown = {} if key is None else {CASE: names[key]}
            for kind, swept in values.items():
                for name, value in swept.items():  # as tables write them: 50@50 for a list, true
                    full = parts[kind][name] if kind in parts else value
                    listed = isinstance(full, tuple | bool | None)
                    shown[name] = render(full) if listed else value
            own = measures or exhibit_methods(settings, key, where, values.get(TUNE, {}))
            trials = {
                one.label: (case and case.trials_of.get(one.label))
                or one.trials
                or (case and case.trials)
                or settings.trials
                for one in own
            }
            yield Point(shown, Scenario(**parts) if parts else None, own, trials, key, {})


def _case_names(settings: ExhibitSettings, where: str) -> dict[str, str]:
    """Return the name of each case: its label, after the data's title where these differ."""
    names = {case: entry.label for case, entry in settings.cases.items()}
    if not settings.kinds:
        return names
    data = {case: spec_of("dataset", settings.component("dataset", case), where) for case in names}
    if len(set(data.values())) > 1:
        names = {case: f"{data[case].component.meta['title']}, {names[case]}" for case in names}
    return names


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


def _runs(point: Point, where: str) -> dict[tuple[str, Setting], Run]:
    """Plan the run of each setting at a point."""
    runs: dict[tuple[str, Setting], Run] = {}
    for measure in point.measures:
        require_kind(measure, point.scenario, where)
        if point.scenario is None:
            by_setting = {setting: Run(None, measure.spec) for setting in measure.settings}
        else:
            by_setting = dict(_measured(point.scenario, measure, where))
        runs |= {(measure.label, setting): by_setting[setting] for setting in measure.settings}
    # a method that is shown both tuned and untuned has one run, which computes both
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
    meta = measure.spec.component.meta
    # only peer methods keep a graph: all others are the same on every one
    on_graph = METHOD_KINDS[meta["kind"]].on_graph
    specs = {spec.kind: spec for spec in scenario.specs if on_graph or spec.kind != GRAPH}
    for kind, override in meta["scenario"].items():
        if isinstance(override, str):
            # bounds and controls leave aside the examples that the partition sets aside
            specs[kind] = components(kind)[override].spec(specs[kind].common)
        else:
            specs[kind] = specs[kind].component.spec({**specs[kind].values, **override})
    usual = Scenario(**specs)
    require_fitting(measure, scenario, usual, where)

    def trained(changes: Mapping[str, Any]) -> Scenario:
        if not measure.training:
            return usual
        old = {"name": usual.training.name, **usual.training.values}
        changed = ComponentEntry.model_validate(old).changed({**measure.training, **changes})
        training = spec_of("training", changed, where, sweep=measure.races)
        return replace(usual, training=training)

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


def _incomparable(
    settings: ExhibitSettings, measures: Sequence[ExhibitMethod], trials: list[Mapping[str, int]]
) -> Iterator[str]:
    """Say which means are over different trials, and which pair lacks its other method."""
    labels = [measure.label for measure in measures]
    for point in trials:
        most = max(point.values())
        for measure in measures:
            few = point.get(measure.label, most)
            if few == most:
                continue
            if not settings.paired:
                yield (
                    f"'{measure.label}' has {few} trials where others have {most}, so their means "
                    "are of other trials; give all one number, or say `paired: true` and what it "
                    "is set beside (`paired_with`)"
                )
            beside = measure.paired_with
            if not beside or point.get(beside, 0) < most:
                yield (
                    f"'{measure.label}' has {few} of {most} trials; say by `paired_with` which "
                    f"method with all of them it is set beside, of {', '.join(labels)}"
                )
    if settings.paired and not settings.drawing.shows_pairs:
        able = [n for n, item in components(DRAWING).items() if item.fn.shows_pairs]  # type: ignore
        yield f"`paired` is for the drawings {', '.join(able)}, not {settings.drawing.name}"

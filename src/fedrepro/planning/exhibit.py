"""One exhibit (a figure or table of a paper) at one scale: its points, methods and runs.

A scale is a size of experiments: tiny, quick or paper. At each point of a sweep of parameters
several methods are evaluated on equal data, models and training. As means over different trials do
not compare, all methods of a point have equally many, or the exhibit has `paired: true`: a method
with fewer trials is then shown as another's mean over all trials plus the mean difference in shared
ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedrepro.api import takes
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import TIMES
from fedrepro.core.params import comparable_text, render
from fedrepro.core.registry import GRAPH, TUNE, WITHOUT_GRAPH, components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.core.user_component_files import own_fault
from fedrepro.data import partitions_populations_and_holdouts as partition_building
from fedrepro.planning.config_files import ExhibitFile
from fedrepro.planning.drawing_base import CASE, TABLE, Planned
from fedrepro.planning.exhibit_config import ComponentEntry, ExhibitSettings
from fedrepro.planning.exhibit_methods import PUBLIC_SAMPLE, ExhibitMethod, Setting, exhibit_methods
from fedrepro.planning.scenarios_runs_and_jobs import Run as Run
from fedrepro.planning.scenarios_runs_and_jobs import Scenario, clients_of, public_data_of
from fedrepro.training.mixing_matrices import weights_of


@dataclass(frozen=True)
class Point:
    """One point of a figure's parameter sweep, such as 10 clients, and what is computed there.

    values: of the swept parameters. scenario: None for simulations. measures: the methods. trials:
    their numbers of trials, by label. case: the scenario's key in the configuration, where a figure
    compares several. runs: by (method's label, setting of its parameters), the `Run` to compute.
    """

    values: Mapping[str, Any]
    scenario: Scenario | None
    measures: tuple[ExhibitMethod, ...]
    trials: Mapping[str, int]
    case: str | None
    runs: Mapping[tuple[str, Setting], Run]


@dataclass(frozen=True)
class Exhibit:
    """A figure or table of a paper, planned at one scale: what to compute, and how to show it.

    measures: one method per label; at some points of the sweep the label may stand for another
    method. points: the values of the swept parameters, each with its own methods.
    """

    paper: str
    name: str
    settings: ExhibitSettings
    measures: tuple[ExhibitMethod, ...]
    points: tuple[Point, ...]

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"

    @cached_property
    def trials(self) -> dict[Run, int]:
        """Return {run of a method on data and model: the most trials that any point needs}."""
        by_run: dict[Run, int] = {}
        for point in self.points:
            for (label, _), run in point.runs.items():
                by_run[run] = max(by_run.get(run, 0), point.trials[label])
        return by_run

    @property
    def swept(self) -> list[str]:
        """Return the names of the swept parameters, the first columns of the csv file."""
        return list(self.points[0].values)

    @property
    def shown(self) -> list[str]:
        """List parameters in `show` of any method: the csv has a column of each, a row a value."""
        return list(dict.fromkeys(key for m in self.measures for key in m.show))

    @cached_property
    def pairs(self) -> dict[str, str]:
        """Return {label of a method with fewer trials: sentence on what it is compared with}."""
        pairs = {}
        for label, other in ((m.label, m.paired_with) for m in self.measures if m.paired_with):
            points = [point.trials for point in self.points if point.trials.get(label, 0)]
            few = [trials for trials in points if trials[label] < max(trials.values())]
            if few:
                numbers = (sorted({one[of] for one in few}) for of in (label, other))
                own, many = (" or ".join(map(str, each)) for each in numbers)
                pairs[label] = (
                    f"{label}, with {own} {'trial' if own == '1' else 'trials'}, is shown as "
                    f"{other} over all {many} plus the difference between the two in the {own} "
                    "that both have."
                )
        return pairs

    @property
    def caption(self) -> str:
        """Return the caption, and sentences on methods of fewer trials or spreads over clients."""
        sentences = [self.settings.caption, *self.pairs.values()]
        if over := [measure.label for measure in self.measures if measure.over_clients]:
            sentences.append(f"The spread of {' and '.join(over)} is over clients.")
        return " ".join([*sentences, "Paired lines have no band."] if self.pairs else sentences)

    @property
    def is_table(self) -> bool:
        return self.settings.drawing.name == TABLE

    @property
    def timed(self) -> bool:
        """Return whether this is a table of measured times, which differ at each computation."""
        return self.settings.drawing.number[0] in TIMES

    @property
    def suffix(self) -> str:
        return self.settings.drawing.suffix


def exhibit_of(file: ExhibitFile, name: str, scale: str) -> Exhibit:
    """Plan exhibit `name` of `file` at `scale` (tiny, …); raise FedreproError if it is invalid."""
    settings = file.settings(name, scale)
    with _at(file.where(name, scale)):
        points = list(_points(settings))
        by_label: dict[str, ExhibitMethod] = {}
        for measure in (measure for point in points for measure in point.measures):
            first = by_label.get(measure.label, measure)
            show = tuple(dict.fromkeys((*first.show, *measure.show)))
            kept = first if {*measure.show} <= {*first.show} else measure
            by_label[measure.label] = replace(kept, show=show)
        measures, values = tuple(by_label.values()), [point.values for point in points]
        if clash := [key for measure in measures for key in measure.show if key in values[0]]:
            said = f"it shows '{clash[0]}', and sweeps a parameter of that name"
            raise FedreproError(f"{said}: list a method for each value of one")
        at = [", ".join(f"{k} {comparable_text(v)}" for k, v in one.items()) for one in values]
        if twice := [name for name in at if at.count(name) > 1]:
            raise FedreproError(f"two of its points are '{twice[0]}'; tell them apart")
        for reason in settings.drawing.reasons(Planned(measures, values)):
            raise FedreproError(reason)
        planned = tuple(replace(point, runs=_runs(point)) for point in points)
        labels = ", ".join(by_label)
        for point, measure in itertools.product(points, measures):
            most, beside = max(point.trials.values()), point.trials.get(measure.paired_with, 0)
            few = point.trials.get(measure.label, most)
            if few < most and not (settings.paired and beside == most):
                said = f"'{measure.label}' has {few} trials where others have {most}, so their"
                fix = "give all one number, or say `paired: true`, and by `paired_with` which"
                fix = f"{fix} method with all trials it is compared with, of {labels}"
                raise FedreproError(f"{said} means are of other trials; {fix}")
        if settings.paired and not settings.drawing.shows_pairs:
            raise FedreproError(f"`paired` is not for the drawing {settings.drawing.name}")
    return Exhibit(file.paper, name, settings, measures, planned)


@contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except FedreproError as error:
        raise FedreproError(f"{where}: {error}") from error


def _points(settings: ExhibitSettings) -> Iterator[Point]:
    names = {case: entry.label for case, entry in settings.cases.items()}
    kinds = {case: settings.components(case) for case in names if settings.dataset}
    data = {case: own["dataset"].spec("dataset") for case, own in kinds.items()}
    if len(set(data.values())) > 1:
        names = {case: f"{data[case].component.meta['title']}, {names[case]}" for case in names}
    tuned = any(key.startswith(f"{TUNE}.") for key in settings.sweep)
    for key in names or (None,):
        entries, case = settings.components(key), settings.case(key)
        measures = () if tuned else exhibit_methods(settings, key, {})
        for combination in itertools.product(*settings.sweep.values()):
            values: dict[str, dict[str, Any]] = {}
            for word, value in zip(settings.sweep, combination, strict=True):
                kind, dot, parameter = word.partition(".")
                if not dot or kind not in (*entries, TUNE):
                    said = f"it sweeps {word}, which is not component.parameter, of one of"
                    known = ", ".join((*entries, TUNE))
                    raise FedreproError(f"{said} {known}: write it as partition.clients")
                values.setdefault(kind, {})[parameter] = value
            parts = {k: entry.spec(k, values.get(k, {})) for k, entry in entries.items()}
            shown = {} if key is None else {CASE: names[key]}
            for kind, swept in values.items():
                for name, value in swept.items():  # as tables write them: 50@50 for a list, true
                    full: Any = parts[kind][name] if kind in parts else value
                    full = tuple(full) if isinstance(full, list) else full
                    listed = isinstance(full, tuple | bool | None)
                    only = full if isinstance(value, list) else value  # [4] is 4
                    shown[name] = render(full) if listed else only
            own = measures or exhibit_methods(settings, key, values.get(TUNE, {}))
            usual, of = case.trials or settings.trials, case.trials_of
            trials = {one.label: of.get(one.label) or one.trials or usual for one in own}
            yield Point(shown, Scenario(**parts) if parts else None, own, trials, key, {})


def _runs(point: Point) -> dict[tuple[str, Setting], Run]:
    runs: dict[tuple[str, Setting], Run] = {}
    for measure in point.measures:
        with_data = measure.spec.method_kind.with_data
        if with_data == (point.scenario is None):
            said = f"'{measure.label}' is {'no' if with_data else 'a'} simulation; these, and no"
            raise FedreproError(f"{said} others, leave out the keys {', '.join(WITHOUT_GRAPH)}")
        if point.scenario is None:
            by_setting = {setting: Run(None, measure.spec) for setting in measure.settings}
        else:
            by_setting = dict(_measured(point.scenario, measure))
        runs |= {(measure.label, setting): by_setting[setting] for setting in measure.settings}
    # a method that is shown both tuned and untuned has one run, which computes both
    tuning = {(run.scenario, run.method): run for run in runs.values() if run.tune}
    return {
        key: tuning.get((run.scenario, run.method), run) if run.tune is None else run
        for key, run in runs.items()
    }


def _measured(scenario: Scenario, measure: ExhibitMethod) -> Iterator[tuple[Setting, Run]]:
    meta = measure.spec.component.meta
    on_graph = measure.spec.method_kind.on_graph
    specs = {spec.kind: spec for spec in scenario.specs if on_graph or spec.kind != GRAPH}
    for kind, override in meta["scenario"].items():
        if isinstance(override, str):
            # bounds and controls leave aside the examples that the partition sets aside
            specs[kind] = components(kind)[override].spec(specs[kind].common)
        else:
            specs[kind] = specs[kind].component.spec({**specs[kind].values, **override})
    usual = Scenario(**specs)
    _require_fitting(measure, scenario, usual)

    def trained(changes: Mapping[str, Any]) -> Scenario:
        own = usual
        if measure.training:
            old = {"name": usual.training.name, **usual.training.values}
            changed = ComponentEntry.model_validate(old).changed({**measure.training, **changes})
            own = replace(usual, training=changed.spec("training", sweep=measure.races))
        _require_training(measure.spec, own)
        return own

    for group in measure.groups.values():
        if measure.races:
            method, changes = measure.at_once(group)
            run = Run(trained(changes), method, measure.measured(group))
            yield from ((setting, run) for setting in group)
            continue
        for setting in group:
            own = trained(dict(setting.training))
            if setting.method.method_kind.in_rounds:
                yield setting, Run(own, setting.method, measure.measuring)
            else:
                yield setting, Run(own, measure.spec, tune=measure.tune)


def _require_training(method: Spec, scenario: Scenario) -> None:
    meta, training = method.component.meta, scenario.training
    if meta["trainings"] and training.name not in meta["trainings"]:
        known = ", ".join(sorted(meta["trainings"]))
        said = f"method '{method.name}' is defined with the training {known} only"
        raise FedreproError(f"{said}, not '{training.name}'")
    if meta["one_start"] and not training["shared_init"]:
        said = f"method '{method.name}' combines models that trained from one start, and here each"
        raise FedreproError(f"{said} client draws its own: set shared_init of the training to true")
    population = partition_building.population_of(scenario.dataset, scenario.partition)
    if population and training.values.get("augment", "none") != "none":
        said = f"'{scenario.dataset.token}' makes clients when they train, whose images are not"
        raise FedreproError(f"{said} augmented: take augment~none")


def _require_fitting(measure: ExhibitMethod, scenario: Scenario, changed: Scenario) -> None:
    """Raise FedreproError if `measure` cannot run in `changed`, its own version of `scenario`."""
    method, meta, partition = measure.spec, measure.spec.component.meta, changed.partition
    label, population_of = f"'{measure.label}'", partition_building.population_of
    if population_of(scenario.dataset, scenario.partition) and not population_of(
        *changed.specs[:2]
    ):
        said = f"{label} works on all examples at once, and these clients are made when they train"
        raise FedreproError(f"{said}: take it out of the exhibit")
    if not takes(method.component, scenario.model):
        said = f"method '{method.name}' combines {', '.join(sorted(meta['models']))} models"
        fix = "take it out of the exhibit or change the model"
        raise FedreproError(f"{said}, not '{scenario.model.name}'; {fix}")
    public, own = public_data_of(method), changed.dataset
    if public and len({one.values.get("features", "pixels") for one in (public, own)}) > 1:
        said = f"method '{method.name}' has public data {public.token}, scaled otherwise than"
        raise FedreproError(f"{said} {own.token}: leave out `features`")
    if method.method_kind.on_graph:
        if changed.graph is None:
            said = f"method '{method.name}' works on a graph, and there is none"
            raise FedreproError(said + "; name one, as in graph: {name: ring}, or --graph ring")
        clients = clients_of(partition)
        # else known with the data only, or drawn in each trial
        if clients is not None and not changed.graph.component.meta.get("random"):
            weights_of(changed.graph, clients, RngKey(0))
    available = partition_building.validation_count(changed.dataset, partition)
    if {"client_validation_examples", PUBLIC_SAMPLE} & measure.needs and available == 0:
        raise partition_building.missing_validation_error(label)
    for part in partition_building.HOLDOUTS:
        if part.split in measure.evaluate or part.need in measure.needs:
            holder = partition.values.get("validation_at")
            if not partition.values.get(part.parameter) or part.at not in (None, holder):
                raise partition_building.missing_holdout_error(label, part, partition.token)
    with _at(label):
        for setting in measure.settings:
            if setting.method.method_kind.in_rounds:
                try:
                    made = setting.method.component.fn(**setting.method.values)
                except Exception as error:
                    if isinstance(error, FedreproError) or not (fault := own_fault(error)):
                        raise
                    raise FedreproError(fault) from error
                if measure.races and made.rounds != setting["rounds"]:
                    said = f"it runs for {made.rounds} rounds, and its `rounds` are something else"
                    raise FedreproError(f"{said}: choose by another rule than race")

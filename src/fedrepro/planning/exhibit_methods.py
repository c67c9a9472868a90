"""A method of a figure or table: its settings, how one is selected, and how results are shown."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fedrepro.core import evaluation_schedule_and_successive_halving as schedules
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.literature_names_and_setting_tokens import method_called, setting_token
from fedrepro.core.params import Value
from fedrepro.core.registry import TUNE, components
from fedrepro.core.spec import Spec
from fedrepro.data.partitions_populations_and_holdouts import HOLDOUTS
from fedrepro.planning.exhibit_config import Case, ChoiceEntry, ExhibitSettings, MethodEntry

PUBLIC_SAMPLE = "public_sample"  # the need of a tuned method
TUNED = f"{TUNE}."  # prefix of keys of a sweep


@dataclass(frozen=True)
class Setting:
    """A method with one value for each parameter: one candidate of a grid of hyper-parameters.

    training: what the method changes of local training. tune: the fine-tuning, or None.
    """

    method: Spec
    training: tuple[tuple[str, Value], ...] = ()
    tune: Spec | None = None

    @property
    def token(self) -> str:
        """Return the setting as text for tables, such as fedavg;training+lr~0.1;tune+lr~0.01."""
        return setting_token(self.method, self.training, self.tune)

    def __getitem__(self, key: str) -> Any:
        tune = self.tune.values if self.tune else {}
        return {**tune, **self.method.values, **dict(self.training)}.get(key)


@dataclass(frozen=True)
class ExhibitMethod:
    """A method of a figure or table: its component (`spec`), its settings, and how it is shown.

    trials: None for as many as the figure has. choose: the rule that selects one of the settings.
    reference: whether it is drawn as a bound and not ranked. paired_with: label of the method that
    it is compared with if it has fewer trials. show: parameters with a row per value. node, belief:
    which node of a graph is shown, "before" or "after" it averages with neighbours. shown_on:
    held-out examples (validation, …) that a table shows numbers on. last_rounds: how many of the
    last evaluated rounds are averaged. measuring: when it is evaluated. over_clients: whether the
    spread shown is over clients. training, tune: changes of local training, and fine-tuning.
    """

    spec: Spec
    label: str
    trials: int | None
    choose: schedules.SelectionRule | None
    reference: bool
    paired_with: str = ""
    show: tuple[str, ...] = ()
    measuring: schedules.EvaluationSchedule = field(default_factory=schedules.EvaluationSchedule)
    training: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    tune: Spec | None = None
    over_clients: bool = False
    node: int | None = None
    belief: str | None = None
    shown_on: tuple[str, ...] = ()
    last_rounds: int = 1

    @property
    def needs(self) -> frozenset[str]:
        """Return the information on clients (keys of `api.NEEDS`) that method and tuning use."""
        declared: frozenset[str] = self.spec.component.meta["needs"]
        return declared | {PUBLIC_SAMPLE} if self.tune else declared

    @property
    def rule(self) -> schedules.SelectionRule | None:
        """Return the rule that selects one of the settings, None if there is nothing to select."""
        return self.choose if self.chosen else None

    @property
    def evaluate(self) -> tuple[str, ...]:
        """Return the example sets ("test", "train", …) to evaluate on at the end of a run."""
        by = (self.rule.split,) if self.rule else ()
        return tuple(dict.fromkeys((*self.spec.component.meta["evaluate"], *by, *self.shown_on)))

    @property
    def follow(self) -> tuple[str, ...]:
        """Return the example sets ("test", "train", …) to evaluate on after single rounds."""
        chosen = (self.rule.split,) if self.rule and self.rule.over != "end" else ()
        averaged = self.last_rounds > 1 and self.spec.method_kind.in_rounds
        return tuple(dict.fromkeys((*chosen, *(self.shown_on if averaged else ()))))

    @cached_property
    def swept(self) -> tuple[str, ...]:
        """Return the parameters of method, training and fine-tuning that take several values."""
        values = (
            (each.method.values, dict(each.training), each.tune.values if each.tune else {})
            for each in self.settings
        )
        parts = zip(*values, strict=True)
        return tuple(k for part in parts for k in part[0] if len({one[k] for one in part}) > 1)

    @property
    def chosen(self) -> tuple[str, ...]:
        """Return the swept parameters whose value a rule selects: all that are not in `show`."""
        return tuple(key for key in self.swept if key not in self.show)

    @cached_property
    def groups(self) -> dict[tuple[Value, ...], list[Setting]]:
        """Return {values of `show` parameters: settings with these, for a rule to select one}."""
        by_shown: dict[tuple[Value, ...], list[Setting]] = {}
        for setting in self.settings:
            by_shown.setdefault(tuple(setting[key] for key in self.show), []).append(setting)
        return by_shown

    @property
    def races(self) -> bool:
        """Return whether successive halving selects the setting, so that worse ones stop early."""
        return self.rule is not None and self.rule.over == "race"

    def measured(self, group: Sequence[Setting]) -> schedules.EvaluationSchedule:
        """Return when to evaluate settings of `group` (one of `groups`), or stop the worse ones."""
        return replace(self.measuring, race=group[0]["rounds"]) if self.races else self.measuring

    def at_once(self, group: Sequence[Setting]) -> tuple[Spec, dict[str, Any]]:
        """Return (method, training parameters) with lists of values that cover all of `group`."""
        methods = dict.fromkeys(setting.method for setting in group)
        spec = self.spec.component.paired({}, [dict(method.values) for method in methods])
        trainings = [dict(setting.training) for setting in group]
        changes = {key: list(dict.fromkeys(one[key] for one in trainings)) for key in trainings[0]}
        return spec, {key: v if len(v) > 1 else v[0] for key, v in changes.items()}


def exhibit_methods(
    settings: ExhibitSettings, case: str | None, at: Mapping[str, Any]
) -> tuple[ExhibitMethod, ...]:
    """Return a figure's methods in scenario `case`, if any; `at`: {tuning parameter: value}."""
    case_entry = settings.case(case)
    known = {key for item in components("method").values() for key in item.params}
    for key in settings.parameters | case_entry.parameters:
        if key not in known:
            raise unknown("parameter", key, known, "`parameters`")

    def made(entries: Sequence[MethodEntry]) -> dict[str, ExhibitMethod]:
        by_label: dict[str, ExhibitMethod] = {}  # tables and figures identify methods by labels
        for entry in entries:
            measure = _exhibit_method(entry, settings, case_entry, at)
            if measure.label in by_label:
                said = f"two of its methods are called '{measure.label}'"
                raise FedreproError(f"{said}; tell them apart")
            by_label[measure.label] = measure
        return by_label

    measures, added = made(settings.methods), made(case_entry.methods)
    for label in case_entry.without:
        if label not in measures:
            raise unknown("method", label, measures, f"without of case '{case}'")
    measures |= added
    return tuple(m for label, m in measures.items() if label not in case_entry.without)


def _exhibit_method(
    entry: MethodEntry, settings: ExhibitSettings, case: Case, at: Mapping[str, Any]
) -> ExhibitMethod:
    """Build method `entry` with defaults of `settings`, `case`; `at`: {tuning parameter: value}."""
    known = components("method")
    found = method_called(entry.name, known)
    item, rule, listed = known[found.method], entry.choose, entry.settings
    if clash := sorted(MethodEntry.model_fields.keys() & item.params.keys()):
        said = f"method '{item.name}' has a parameter '{clash[0]}', which every entry has"
        raise FedreproError(f"{said} in another meaning: rename it")
    given, training = {**found.values, **entry.parameters}, {**found.training, **entry.training}
    label = entry.label or (item.meta["label"] if found.method == entry.name else found.name)
    if isinstance(listed, str):
        if not (grid := dict(item.meta["grid"])):
            said = f"method '{item.name}' declares no settings for comparisons"
            raise FedreproError(f"{said}; leave out settings: grid")
        # values given with the grid: in place of its own, or, as rules of BatchNorm, with all of it
        for key, value in entry.parameters.items():
            several = isinstance(value, list | tuple)
            if key in grid or (several and key in item.params and not item.params[key].many):
                grid[key] = value if several else [value]
                del given[key]
        listed = [dict(zip(grid, v, strict=True)) for v in itertools.product(*grid.values())]
    own = {*given, *(key for one in listed for key in one)}
    shared = (settings.parameters | case.parameters).items()
    given |= {k: v for k, v in shared if k in item.params and k not in own}
    spec = item.paired(given, listed) if listed else item.spec(given)
    name, shown = f"method '{spec.name}'", settings.drawing.number[1]
    named = [key for key in training if key != "name"]
    if clash := [key for key in named if key in spec.values]:
        said = f"{name} has a parameter '{clash[0]}' of its own, so that it would be hard to tell"
        raise FedreproError(f"{said} from the training's; set it in the exhibit's training")
    changes: list[tuple[tuple[str, Value], ...]] = [()]
    if settings.training and training:
        other = {key: value for key, value in case.training.items() if key == "name"}
        sweep = settings.training.changed(other | training).spec("training", sweep=True)
        changes = [tuple((key, each[key]) for key in named) for each in sweep.expand()]
    if entry.tune is None and PUBLIC_SAMPLE in item.meta["needs"]:
        said = f"{name} works on the public sample alone"
        raise FedreproError(f"{said}: give it one by tune, such as tune: {{examples: 1000}}")
    tune, ways = None, list[Spec | None]([None])
    if entry.tune is not None:
        if spec.method_kind.in_rounds:
            raise FedreproError(f"{name} runs in rounds, and only one-shot models are tuned")
        over = {k.removeprefix(TUNED): v for k, v in settings.sweep.items() if k.startswith(TUNED)}
        tune = components(TUNE)[TUNE].spec({**entry.tune, **over}, name)
        if clash := [key for key in tune.swept if key in {**spec.values, **training}]:
            said = f"{name} has a parameter '{clash[0]}' of its own, so that the tuning's is hidden"
            raise FedreproError(f"{said}: list one method for each value of it")
        ways = [w for w in tune.expand() if all(w[key] == value for key, value in at.items())]
    every = entry.measure_every or case.measure_every or settings.measure_every
    measure = ExhibitMethod(
        spec=spec,
        label=label,
        trials=settings.trials_of.get(label, entry.trials),
        choose=rule.choice
        if isinstance(rule, ChoiceEntry)
        else schedules.SELECTION_RULES.get(rule or ""),
        reference=entry.reference,
        paired_with=entry.paired_with,
        show=tuple(entry.show),
        training=training,
        measuring=schedules.EvaluationSchedule(None if every == "auto" else every, entry.until),
        settings=tuple(itertools.starmap(Setting, itertools.product(spec.expand(), changes, ways))),
        tune=tune,
        over_clients=entry.spread == "clients",
        node=entry.node,
        shown_on=tuple(part.split for part in HOLDOUTS if part.split == shown),
        last_rounds=settings.last_rounds,
        belief=entry.belief,
    )
    _require_chosen(measure, {key for one in listed for key in one})
    return measure


def _require_chosen(measure: ExhibitMethod, listed: set[str]) -> None:
    """Raise FedreproError if no rule can select a setting, or a key of `show` has no values."""
    name, choose, until = f"method '{measure.spec.name}'", measure.choose, measure.measuring.until
    # a case may have one setting of a method that has several in other cases
    known = {*measure.swept, *(measure.tune.swept if measure.tune else ()), *listed}
    for key in measure.show:
        if key not in known:
            raise FedreproError(f"{name} shows every value of {key}, but lists no values of it")
    if not measure.chosen:
        return
    swept = [key for key in measure.chosen if key in measure.spec.swept]
    if len(swept) > 1 and not measure.spec.paired:
        fix = "sweep one, name those to be shown by a row per value (show: [...])"
        fix = f"{fix}, or list settings one by one (settings: [...])"
        raise FedreproError(f"{name} sweeps {' and '.join(swept)}; {fix}")
    if choose is None:
        rules = " or ".join(schedules.SELECTION_RULES)
        said = f"{name} lists several values of {measure.chosen[0]}"
        raise FedreproError(f"{said}; say how one is chosen (choose: {rules})")
    if measure.tune and choose.split == "client_validation":
        said = f"{name} is fine-tuned on the examples by which '{choose.name}' chooses"
        raise FedreproError(f"{said}: choose by others, such as public or server")
    if choose.over != "end" and not measure.spec.method_kind.in_rounds:
        said = f"{name} has no rounds, so that none of its settings is chosen by '{choose.name}'"
        raise FedreproError(f"{said}; choose over: end")
    if until is not None and choose.over == "end":
        said = f"the runs of {name} end where test accuracy reaches {until:g}, so that choosing by"
        said = f"{said} '{choose.name}' would compare them at rounds that test data decide"
        fix = "choose: race, or over: half, compares them at the same rounds"
        raise FedreproError(f"{said}; {fix}")
    rounds = [{setting["rounds"] for setting in group} for group in measure.groups.values()]
    if measure.races and any(len(one) > 1 or None in one for one in rounds):
        said = f"{name}: settings that race each other run for one number of rounds, given as"
        raise FedreproError(f"{said} `rounds`; choose by another rule, such as choose: server")

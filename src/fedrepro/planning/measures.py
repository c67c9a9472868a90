"""A method of an exhibit: what it computes, how it is shown, and how one setting is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fedrepro.api import CHOICES, Choice
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.registry import components
from fedrepro.core.spec import Spec, Value
from fedrepro.planning.entries import ChoiceEntry, ComponentEntry, ExhibitSettings, MethodEntry


@dataclass(frozen=True)
class Measure:
    """One method of an exhibit: its spec (perhaps a sweep), how it is shown and chosen.

    trials: repetitions of this method alone, None if it has those of the exhibit or the case.
    show: swept parameters of which every value is shown; of the others one setting is chosen.
    """

    spec: Spec
    label: str
    trials: int | None
    choose: Choice | None
    reference: bool
    show: tuple[str, ...] = ()
    measure_every: int = 1

    @property
    def needs(self) -> frozenset[str]:
        """What the method is handed beyond weights."""
        given: frozenset[str] = self.spec.component.meta["needs"]
        return given

    @property
    def discloses(self) -> frozenset[str]:
        """What choosing its setting reads."""
        return frozenset({self.choose.need} if self.choose and self.chosen else ())

    @property
    def evaluate(self) -> tuple[str, ...]:
        """The splits that it has to be measured on: its own, and the one it is chosen by."""
        own: tuple[str, ...] = self.spec.component.meta["evaluate"]
        by = (self.choose.split,) if self.choose and self.chosen else ()
        return tuple(dict.fromkeys((*own, *by)))

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


def in_rounds(method: Spec) -> bool:
    return method.component.meta["kind"] in ("federated", "peer")


def measure_of(entry: MethodEntry, settings: ExhibitSettings, where: str) -> Measure:
    """Errors: FedreproError for a method that is unknown, or whose settings cannot be chosen."""
    spec = spec_of("method", entry, where)
    label = entry.label or spec.component.meta["label"]
    measure = Measure(
        spec=spec,
        label=label,
        trials=settings.trials_of.get(label, entry.trials),
        choose=entry.choose.choice if isinstance(entry.choose, ChoiceEntry) else named(entry),
        reference=entry.reference,
        show=tuple(entry.show),
        measure_every=entry.measure_every,
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
    if measure.chosen:
        _require_choice(measure, where)
    return measure


def named(entry: MethodEntry) -> Choice | None:
    """The rule of choice that an entry names."""
    return CHOICES[entry.choose] if isinstance(entry.choose, str) else None


def _require_choice(measure: Measure, where: str) -> None:
    """One setting is to be chosen: there must be a rule, and it must fit the method."""
    if measure.choose is None:
        raise FedreproError(
            f"{where}: method '{measure.spec.name}' lists several values of "
            f"{measure.chosen[0]}; say how one is chosen (choose: {' or '.join(CHOICES)})"
        )
    if measure.choose.over != "end" and not in_rounds(measure.spec):
        raise FedreproError(
            f"{where}: method '{measure.spec.name}' has no rounds, so that none of its settings "
            f"is chosen by '{measure.choose.name}'; choose over: end"
        )


def spec_of(
    kind: str, entry: ComponentEntry, where: str, extra: Mapping[str, object] | None = None
) -> Spec:
    """The component of an entry. Errors: FedreproError for an unknown one, or a sweep of it."""
    known = components(kind)
    if entry.name not in known:
        raise unknown(kind, entry.name, known, where)
    spec = known[entry.name].spec({**entry.parameters, **(extra or {})}, where)
    return spec if kind == "method" else spec.single(where)

"""Read how the models of an exhibit's method are tuned, from its entry and the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.spec import Spec
from fedrepro.core.tuning import TUNE
from fedrepro.planning.entries import ExhibitSettings, MethodEntry

PUBLIC_SAMPLE = "public_sample"  # the need of a tuned method
TUNED = f"{TUNE.name}."  # prefix of keys of a sweep


def tune_of(spec: Spec, entry: MethodEntry, settings: ExhibitSettings, where: str) -> Spec | None:
    """Return how a method's models are tuned, with the values that the exhibit sweeps.

    Raises:
        FedreproError: the method runs in rounds, needs a public sample and has none, or has a
            parameter of the same name.
    """
    where = f"{where}: method '{spec.name}'"
    if entry.tune is None:
        if PUBLIC_SAMPLE in spec.component.meta["needs"]:
            raise FedreproError(
                f"{where} works on the public sample alone: give it one by tune, such as "
                "tune: {examples: 1000}"
            )
        return None
    if METHOD_KINDS[spec.component.meta["kind"]].in_rounds:
        raise FedreproError(f"{where} runs in rounds, and only one-shot models are tuned")
    swept = {
        key.removeprefix(TUNED): values
        for key, values in settings.sweep.items()
        if key.startswith(TUNED)
    }
    twice = next((key for key in swept if key in entry.tune), None)
    if twice is not None:
        raise FedreproError(f"{where} sets the tuning's {twice}, which the exhibit sweeps")
    tune = TUNE.spec({**entry.tune, **swept}, where)
    method_values = {**spec.values, **entry.training}
    taken = next((key for key in tune.swept if key in method_values and key not in swept), None)
    if taken is not None:
        raise FedreproError(
            f"{where} has a parameter '{taken}' of its own, so that it would be hard to tell from "
            "that of its tuning; list one value for tune, in an entry for each"
        )
    return tune


def ways_of(tune: Spec, at: Mapping[str, Any]) -> list[Spec]:
    """Return the tunings at a point of the exhibit, where the swept ones have the values `at`."""
    return [way for way in tune.expand() if all(way[key] == value for key, value in at.items())]


def sweeps_tuning(settings: ExhibitSettings) -> bool:
    """Whether points differ in how models are tuned."""
    return any(key.startswith(TUNED) for key in settings.sweep)


def require_tuned(settings: ExhibitSettings, measures: Sequence[Any], where: str) -> None:
    """Refuse a sweep of tuning where no method's models are tuned.

    Raises:
        FedreproError: no method has a `tune`.
    """
    if sweeps_tuning(settings) and not any(measure.tune for measure in measures):
        key = next(key for key in settings.sweep if key.startswith(TUNED))
        raise FedreproError(f"{where}: it sweeps {key}, but none of its methods has a tune")

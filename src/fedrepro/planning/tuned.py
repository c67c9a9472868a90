"""How the model of an exhibit's method is tuned, as its entry and the exhibit's sweep say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.spec import Spec
from fedrepro.core.tuning import TUNE
from fedrepro.planning.entries import ExhibitSettings, MethodEntry

PUBLIC_SAMPLE = "public_sample"  # what a tuned method needs
TUNED = f"{TUNE.name}."  # before the keys of a sweep that are of tuning


def tune_of(spec: Spec, entry: MethodEntry, settings: ExhibitSettings, where: str) -> Spec | None:
    """How a method's model is tuned, with what the exhibit sweeps of it.

    Errors: FedreproError for a method in rounds, one that lives of a sample and has none, and for
    a key that would be hard to tell from one of the method or its training.
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
        raise FedreproError(f"{where} runs in rounds, and only what is made at once is tuned")
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
    """The ways of tuning at a point of the exhibit, with these values of what it sweeps."""
    return [way for way in tune.expand() if all(way[key] == value for key, value in at.items())]


def sweeps_tuning(settings: ExhibitSettings) -> bool:
    """Whether points differ in how models are tuned."""
    return any(key.startswith(TUNED) for key in settings.sweep)


def require_tuned(settings: ExhibitSettings, measures: Sequence[Any], where: str) -> None:
    """Errors: FedreproError for a sweep of tuning where no method's model is tuned."""
    if sweeps_tuning(settings) and not any(measure.tune for measure in measures):
        key = next(key for key in settings.sweep if key.startswith(TUNED))
        raise FedreproError(f"{where}: it sweeps {key}, but none of its methods has a tune")

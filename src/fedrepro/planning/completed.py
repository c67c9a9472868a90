"""Entries of methods with what their exhibit, their case and the method itself say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from fedrepro.core.called import method_called
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.planning.entries import GRID, MethodEntry


def by_its_name(entry: MethodEntry) -> MethodEntry:
    """The entry of the component that a name of the field stands for, labelled by that name.

    What it sets itself stays. An unknown name stays as well, and is told elsewhere.
    """
    found = method_called(entry.name, components("method"))
    if found is None or found.method == entry.name:
        return entry
    given = {key: value for key, value in found.values.items() if key not in entry.parameters}
    label = entry.label or found.name
    training = {**found.training, **entry.training}
    update = {"name": found.method, "label": label, "training": training, **given}
    return entry.model_copy(update=update)


def with_grid(entry: MethodEntry, where: str) -> MethodEntry:
    """The entry with the settings that its method declares, where it asks for these.

    Errors: FedreproError for a method that declares none.
    """
    if entry.settings != GRID:
        return entry
    known = components("method")
    grid = known[entry.name].meta["grid"] if entry.name in known else {}
    if not grid and entry.name in known:
        raise FedreproError(
            f"{where}: method '{entry.name}' declares no settings for comparisons; leave out "
            "settings: grid"
        )
    each = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return entry.model_copy(update={"settings": each if grid else []})


def listed(entry: MethodEntry) -> list[dict[str, Any]]:
    """The settings that an entry lists one by one."""
    return [] if isinstance(entry.settings, str) else entry.settings


def with_shared(entry: MethodEntry, shared: Mapping[str, Any]) -> MethodEntry:
    """The entry with what an exhibit or a case says of parameters that it has and does not set."""
    set_by_itself = {*entry.parameters, *(key for setting in listed(entry) for key in setting)}
    added = {k: v for k, v in shared.items() if k in _parameters(entry) and k not in set_by_itself}
    return entry.model_copy(update=added) if added else entry


def with_measuring(entry: MethodEntry, every: int | str) -> MethodEntry:
    """The entry with what its exhibit or its case says of when to measure, if it does not say."""
    return entry.model_copy(update={"measure_every": entry.measure_every or every})


def _parameters(entry: MethodEntry) -> Mapping[str, Any]:
    """The parameters of a method; none of one that is unknown, which is told elsewhere."""
    known = components("method")
    return known[entry.name].params if entry.name in known else {}

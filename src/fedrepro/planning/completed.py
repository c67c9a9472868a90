"""Fill in entries of methods from their exhibit, their case and the method itself."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from fedrepro.core.called import method_called
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.planning.entries import GRID, MethodEntry


def by_its_name(entry: MethodEntry) -> MethodEntry:
    """Replace a name of the field by its component, labelled by that name.

    Parameters that the entry sets win. An unknown name is left for `measures` to refuse.
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
    """Replace `settings: grid` by the settings that the method declares for comparisons.

    Raises:
        FedreproError: the method declares none.
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
    """Return the settings that an entry lists one by one."""
    return [] if isinstance(entry.settings, str) else entry.settings


def with_shared(entry: MethodEntry, shared: Mapping[str, Any]) -> MethodEntry:
    """Add parameters of the exhibit or case that the method has and the entry does not set."""
    set_by_itself = {*entry.parameters, *(key for setting in listed(entry) for key in setting)}
    added = {k: v for k, v in shared.items() if k in _parameters(entry) and k not in set_by_itself}
    return entry.model_copy(update=added) if added else entry


def with_measuring(entry: MethodEntry, every: int | str) -> MethodEntry:
    """Set when the method is measured, where the entry does not say."""
    return entry.model_copy(update={"measure_every": entry.measure_every or every})


def _parameters(entry: MethodEntry) -> Mapping[str, Any]:
    """Return the parameters of a method; none of an unknown one, which `measures` refuses."""
    known = components("method")
    return known[entry.name].params if entry.name in known else {}

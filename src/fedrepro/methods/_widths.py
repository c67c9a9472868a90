"""Options of methods whose global model has a width that is asked for."""

from __future__ import annotations

from typing import Annotated

from fedrepro.api import LocalModels
from fedrepro.core.spec import Arg
from fedrepro.networks.network import widths

Units = Annotated[
    int | None,
    Arg("units of each hidden layer, none for as many as a client has", "units", least=1),
]


def target_widths(clients: LocalModels, units: int | None) -> tuple[int, ...]:
    """Return the width of each hidden layer, the lowest first."""
    client_widths = widths(clients.tensors)
    return client_widths if units is None else (units,) * len(client_widths)


def has_enough_units(clients: LocalModels, units: int | None) -> bool:
    """Tell whether all clients together have as many units as asked for in each hidden layer."""
    client_widths = widths(clients.tensors)
    each = zip(target_widths(clients, units), client_widths, strict=True)
    return all(wanted <= clients.clients * held for wanted, held in each)

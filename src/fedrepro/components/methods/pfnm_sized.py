"""PFNM of a chosen size: sigma2 solved for the number of hidden units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.components.methods._widths import Units, asked, within_reach
from fedrepro.components.methods.pfnm import pfnm
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.networks.dense import widths

LEAST, MOST = 1e-9, 1e6  # of sigma2
NEAR = 1.01  # factor within which the smallest sigma2 of a size is looked for
ALIKE = 1.00001  # factor below which two sigma2 are not told apart

Sized = tuple[int, GlobalModel]


@method(
    "pfnm_sized",
    kind="one_shot",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="PFNM",
)
def pfnm_sized(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: Rng,
    units: Units = None,
    sigma02: Annotated[float, Arg("variance of global units around their prior", above=0)] = 10.0,
    gamma0: Annotated[float, Arg("mass of the Beta process: more mass, more units", above=0)] = 1.0,
) -> GlobalModel | None:
    """PFNM at the smallest sigma2 found whose network has `units` units, in the mean over layers.

    The size falls as sigma2 rises, though not at every step, so sigma2 is bisected on its logarithm
    between a network that is larger and one that is not. Nothing is given where no network that
    was met has that size, or all clients together have fewer units. All else is as in `pfnm`.
    """
    if not within_reach(clients, units):
        return None

    def at(sigma2: float) -> Sized:
        made = pfnm(clients, info, rng=rng, sigma2=sigma2, sigma02=sigma02, gamma0=gamma0)
        named = replace(made, diagnostics={**made.diagnostics, "solved_sigma2": sigma2})
        return sum(widths(made.tensors)), named

    return solved(at, sum(asked(clients, units)))


def solved(at: Callable[[float], Sized], size: int) -> GlobalModel | None:
    """The model of the smallest sigma2 met that has this size, or None.

    at: sigma2 -> size and model. Sizes between the ends of the search need not be monotone.
    """
    ends = _ends(at, size)
    if ends is None:
        return None
    low, high, found = ends
    while high > low * (NEAR if found is not None else ALIKE):
        middle = (low * high) ** 0.5
        units, made = at(middle)
        if units > size:
            low = middle
        else:
            high = middle
            found = made if units == size else found
    return found


def _ends(
    at: Callable[[float], Sized], size: int
) -> tuple[float, float, GlobalModel | None] | None:
    """A sigma2 whose network is larger, one whose network is not, and its model if it has the size.

    Without a larger one, as where the size is that of all clients, both are the smallest sigma2.
    """
    units, made = at(1.0)
    low = high = 1.0
    if units > size:
        while units > size:
            low, high = high, high * 8
            if high > MOST:
                return None
            units, made = at(high)
        return low, high, made if units == size else None
    found = made if units == size else None
    while units <= size:
        high, found = low, made if units == size else None
        low /= 8
        if low < LEAST:
            return high, high, found
        units, made = at(low)
    return low, high, found

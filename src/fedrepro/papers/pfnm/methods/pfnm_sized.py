"""PFNM of a chosen size: sigma2 solved for the number of hidden units."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.metrics import Metric
from fedrepro.core.rng import RngKey
from fedrepro.methods._merging import Units, has_enough_units, target_widths
from fedrepro.methods.pfnm import Gamma0, Sigma02, pfnm
from fedrepro.networks.network import widths

LEAST, MOST = 1e-9, 1e6  # of sigma2
STEP = 8.0  # between two sigma2 that may hold the size between them
NEAR = 1.01  # factor within which the smallest sigma2 of a size is looked for
ALIKE = 1.002  # factor within which bisection looks for a size that it has not met
ORDERS = 10  # of the clients, tried one after another until bisection meets the size


class Matched(Protocol):
    def __call__(self, sigma2: float, order: int = 0) -> tuple[int, GlobalModel]:
        """Hidden units of all layers, and the network, at a sigma2 and an order of the clients."""


@method(
    "pfnm_sized",
    kind="one_shot",
    needs={"label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="PFNM",
    metrics={"solved_sigma2": Metric("sigma2 that gives the size", "variance", 0, None, 0)},
)
def pfnm_sized(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Units = None,
    sigma02: Sigma02 = 10.0,
    gamma0: Gamma0 = 1.0,
) -> GlobalModel | None:
    """PFNM at the smallest sigma2 met whose network has `units` units, in the mean over layers.

    The size falls as sigma2 rises, though not at every step, so sigma2 is bisected on its logarithm
    between a network that is larger and one that is not. Where that jumps over the size it is done
    again with the clients visited in another random order, which moves sizes by a few units.
    Nothing is given where none of these networks has the size, or all clients together have fewer
    units. All else is as in `pfnm`.
    """
    if not has_enough_units(clients, units):
        return None

    def at(sigma2: float, order: int = 0) -> tuple[int, GlobalModel]:
        place = rng.at(call=order)
        model = pfnm(clients, info, rng=place, sigma2=sigma2, sigma02=sigma02, gamma0=gamma0)
        named = replace(model, diagnostics={**model.diagnostics, "solved_sigma2": sigma2})
        return sum(widths(model.tensors)), named

    return solved(at, sum(target_widths(clients, units)))


def solved(at: Matched, size: int) -> GlobalModel | None:
    """Find the network of this size at the smallest sigma2 that has one, as far as searched."""
    low, high = _ends(at, size)
    if high > MOST:
        return None
    orders = range(ORDERS) if high > low else range(1)
    models = (_bisected(at, size, low, high, order) for order in orders)
    return next((model for model in models if model is not None), None)


def _bisected(at: Matched, size: int, low: float, high: float, order: int) -> GlobalModel | None:
    """Bisect for the network of this size at the smallest sigma2; None if it meets none."""
    units, model = at(high, order)
    fitting = model if units == size else None
    while high > low * (NEAR if fitting is not None else ALIKE):
        middle = (low * high) ** 0.5
        units, model = at(middle, order)
        if units > size:
            low = middle
        else:
            high = middle
            fitting = model if units == size else fitting
    return fitting


def _ends(at: Matched, size: int) -> tuple[float, float]:
    """Find a sigma2 whose network is larger than this, and one whose network is not.

    The second one is beyond MOST where all networks are larger. Where none is, as for the size of
    all clients together, both are the smallest sigma2.
    """
    sigma2 = 1.0
    if at(sigma2)[0] > size:
        while sigma2 <= MOST and at(sigma2 * STEP)[0] > size:
            sigma2 *= STEP
        return sigma2, sigma2 * STEP
    while sigma2 >= LEAST and at(sigma2 / STEP)[0] <= size:
        sigma2 /= STEP
    return (sigma2, sigma2) if sigma2 < LEAST else (sigma2 / STEP, sigma2)

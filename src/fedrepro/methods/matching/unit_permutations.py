"""Permutation of the hidden units of networks of one shape, so that their weights agree.

A network is a tuple of arrays: (weight0, bias0, weight1, …), lowest layer first, weights as inputs
× outputs, or a torch module's tensors. `units` says which array axes list hidden units. Git
Re-Basin (2023) permutes one network after another. C²M³ (2024) permutes all at once to one common
order, by a matrix P (L, L) for each network and set of units, doubly stochastic during the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.pfnm_atoms_and_rewards import Array, Ints

if TYPE_CHECKING:
    from fedrepro.methods.matching.network_arrays_and_tracing import UnitArrays

LEAST_GAIN = 1e-10  # of agreement, as a share of it


class Use(NamedTuple):
    """An axis of a weight array along which a set of hidden units lies, `places` entries per unit.

    at: the array's index in the network. counted: whether networks are compared by it. gives:
    whether units are its layer's outputs, not inputs. Entries behind all units (a bias) stay put.
    """

    at: int
    axis: int
    places: int = 1
    counted: bool = True
    gives: bool = True


@dataclass(frozen=True)
class UnitSets:
    """Sets of hidden units of a network, such as a layer's units, and array axes that list them.

    uses: for each set, all axes along which its units lie. heads: (index of an array, axis) that
    lists the classes. largest: indices of integer buffers (counts of batches), merged by maximum.
    """

    uses: tuple[tuple[Use, ...], ...]
    heads: tuple[tuple[int, int], ...] = ()
    largest: tuple[int, ...] = ()

    def width(self, network: UnitArrays, layer: int) -> int:
        use = self.uses[layer][0]
        return int(network[use.at].shape[use.axis]) // use.places

    def rows(self, network: UnitArrays, use: Use) -> Array:
        """Return the weight array of `use` as a matrix with one row per hidden unit, (units, …)."""
        value = np.moveaxis(network[use.at], use.axis, 0)
        return value.reshape(len(value) // use.places, -1)

    def agreement(self, model: UnitArrays, network: UnitArrays, layer: int) -> Array:
        """Compute inner products (L of `model`, L of `network`) of units' weights, set `layer`."""
        counted = (use for use in self.uses[layer] if use.counted)
        rows = ((self.rows(model, use), self.rows(network, use)) for use in counted)
        return np.asarray(sum(one @ other.T for one, other in rows))

    def rises(self, model: UnitArrays, before: UnitArrays, after: UnitArrays, layer: int) -> bool:
        """Return whether permuting units of set `layer` made a network agree more with `model`.

        `before` and `after` are the network's arrays. The result is True at once if each array
        lists the set on one axis at most: a best assignment then always raises the agreement.
        """
        counted = [use.at for use in self.uses[layer] if use.counted]
        if len({*counted}) == len(counted):
            return True
        gains = (float((model[i] * (after[i] - before[i])).sum()) for i in {*counted})
        return sum(gains) > 0

    def times(self, network: UnitArrays, uses: Iterable[Use], matrix: Array) -> UnitArrays:
        """Mix the units of a set along its `uses`: unit b becomes sum_a matrix[a, b] · unit a."""
        arrays = list(network)
        for use in uses:
            value = np.moveaxis(arrays[use.at], use.axis, 0)
            new = (matrix.T @ value.reshape(len(matrix), -1)).reshape(-1, *value.shape[1:])
            arrays[use.at] = np.moveaxis(new, 0, use.axis)
        return tuple(arrays)

    def permuted(self, network: UnitArrays, layer: int, order: Ints) -> UnitArrays:
        """Make unit order[i] of set `layer` the new unit i, `order` (L,); outputs stay equal."""
        arrays = list(network)
        for use in self.uses[layer]:
            rows = (order[:, None] * use.places + np.arange(use.places)).reshape(-1)
            rows = np.append(rows, np.arange(len(rows), arrays[use.at].shape[use.axis]))
            arrays[use.at] = np.take(arrays[use.at], rows, axis=use.axis)
        return tuple(arrays)

    def mean(
        self, networks: Sequence[UnitArrays], share: Array, towards: Array | None = None
    ) -> UnitArrays:
        """Average networks by `share` (J,), and weights to classes by `towards` (J, K) if given."""
        heads, made = dict(self.heads if towards is not None else ()), []
        for at, values in enumerate(zip(*networks, strict=True)):
            value = np.stack(values)
            if at in self.largest:
                made.append(value.max(axis=0))
            elif at in heads:
                by_class = np.moveaxis(value, 1 + heads[at] % (value.ndim - 1), -1)
                weights = np.expand_dims(towards, tuple(range(1, value.ndim - 1)))  # type: ignore[arg-type]
                made.append(np.moveaxis((weights * by_class).sum(axis=0), -1, heads[at]))
            else:
                made.append(np.tensordot(share, value, 1))
        return tuple(made)


@lru_cache(16)
def chain(layers: int) -> UnitSets:
    """Describe units in networks (weight0, bias0, …): a set for each of `layers` hidden layers."""
    uses = (
        (Use(2 * k, -1), Use(2 * k + 2, 0, gives=False), Use(2 * k + 1, 0)) for k in range(layers)
    )
    return UnitSets(tuple(uses), ((2 * layers, -1), (2 * layers + 1, -1)))


def best_columns(rewards: Array) -> Ints:
    """Return each row's column in the assignment with the largest sum of rewards: int64 (rows,).

    The last 16 of 52 bits are rounded away first, so that equal units tie.
    """
    # loaded here: planning lists the methods, and must not wait for SciPy
    from scipy.optimize import linear_sum_assignment

    bits = np.ascontiguousarray(rewards).view(np.int64)
    rounded = ((bits + (1 << 15)) & (-1 << 16)).view(np.float64)
    try:
        columns: Ints = linear_sum_assignment(rounded, maximize=True)[1].astype(np.int64)
    except ValueError:
        why = "the clients' weights are too large for the variances given"
        raise FedreproError(f"matching: a reward is not finite; {why}") from None
    return columns


def align_units(
    networks: Sequence[UnitArrays], sweeps: int, rng: np.random.Generator, units: UnitSets
) -> list[UnitArrays]:
    """Permute each network's hidden units so that its weights agree best with the others' mean.

    Each network is matched to the mean of those before it; then each, in random order, to the mean
    of all others, until none changes or for `sweeps` passes.
    """
    current = list(networks)
    first, *others = rng.permutation(len(current)).tolist()
    total = current[first]
    for count, j in enumerate(others, 1):
        current[j] = fitted(current[j], tuple(block / count for block in total), rng, units)
        total = _plus(total, current[j])
    for _ in range(sweeps if others else 0):
        moved = False
        for j in rng.permutation(len(current)).tolist():
            rest = _plus(total, tuple(-block for block in current[j]))
            others_mean = tuple(block / (len(current) - 1) for block in rest)
            now = fitted(current[j], others_mean, rng, units)
            moved |= now is not current[j]
            current[j], total = now, _plus(rest, now)
        if not moved:
            break
    return current


def fitted(
    network: UnitArrays, model: UnitArrays, rng: np.random.Generator, units: UnitSets
) -> UnitArrays:
    """Permute a network's hidden units so that its weights agree most with those of `model`.

    Sets are permuted one by one, in random order, by linear assignment, while the agreement rises.
    """
    while True:
        before = network
        for layer in rng.permutation(len(units.uses)).tolist():
            worth = units.agreement(model, network, layer)
            order = best_columns(worth)
            gain = worth[np.arange(len(order)), order].sum() - np.trace(worth)
            if gain > LEAST_GAIN * np.abs(worth).max():
                after = units.permuted(network, layer, order)
                network = after if units.rises(model, network, after, layer) else network
        if network is before:
            return network


def _plus(one: UnitArrays, two: UnitArrays) -> UnitArrays:
    return tuple(a + b for a, b in zip(one, two, strict=True))


Plan = list[Array]  # P of each hidden layer of one network
ENDS = np.linspace(0.0, 1.0, 5)  # of a line search: on a line the agreement is of fourth degree


def in_common_order(
    networks: Sequence[UnitArrays], steps: int, gain: float, units: UnitSets
) -> list[UnitArrays]:
    """Permute the hidden units of all networks into one common order, all at once (C²M³).

    Frank-Wolfe steps raise the agreement sum_{p<q} <P_p w_p, P_q w_q> of permuted weights w_p from
    P = I, until it rises by less than the fraction `gain`, for at most `steps`.
    """
    if len(networks) == 1:
        return list(networks)
    widths = [units.width(networks[0], layer) for layer in range(len(units.uses))]
    plans = [[np.eye(width) for width in widths] for _ in networks]
    best = agreement(networks, plans, units)
    for _ in range(steps):
        slopes = [gradient(networks, plans, p, units) for p in range(len(networks))]
        towards = [[np.eye(len(slope))[best_columns(slope)] for slope in own] for own in slopes]
        plans, value = _along(networks, plans, towards, units)
        if not value - best > gain * abs(best):
            break
        best = value
    made = list(networks)
    for p, plan in enumerate(plans):
        for layer, matrix in enumerate(plan):  # the nearest permutation
            made[p] = units.permuted(made[p], layer, np.argsort(best_columns(matrix)))
    return made


def agreement(networks: Sequence[UnitArrays], plans: Sequence[Plan], units: UnitSets) -> float:
    """Compute sum_{p<q} <P_p w_p, P_q w_q> of weights w_p permuted by plans[p], one P per set."""
    pairs = zip(networks, plans, strict=True)
    common = [permuted_network(network, plan, units) for network, plan in pairs]
    uses = list(itertools.chain(*units.uses))
    # running statistics are permuted, but not compared
    left_out = {use.at for use in uses} - {use.at for use in uses if use.counted} | {*units.largest}
    total = 0.0
    for place, blocks in enumerate(zip(*common, strict=True)):
        if place not in left_out:
            whole = np.sum(blocks, axis=0)
            total += float((whole**2).sum() - sum((block**2).sum() for block in blocks)) / 2
    return total


def permuted_network(network: UnitArrays, plan: Plan, units: UnitSets) -> UnitArrays:
    for uses, matrix in zip(units.uses, plan, strict=True):
        network = units.times(network, uses, matrix)
    return network


def gradient(
    networks: Sequence[UnitArrays], plans: Sequence[Plan], p: int, units: UnitSets
) -> Plan:
    """Compute the gradient of sum_{p<q} <P_p w_p, P_q w_q> by P_p: a matrix (L, L) for each set."""
    others = [
        permuted_network(network, plan, units)
        for q, (network, plan) in enumerate(zip(networks, plans, strict=True))
        if q != p
    ]
    rest, slopes = tuple(np.sum(blocks, axis=0) for blocks in zip(*others, strict=True)), []
    for layer, matrix in enumerate(plans[p]):
        carried, slope = [*plans[p]], np.zeros(())
        carried[layer] = np.eye(len(matrix))
        free = permuted_network(networks[p], carried, units)
        for use in (use for use in units.uses[layer] if use.counted):
            # where an array lists the set on two axes, it is permuted along the other one
            other_axis = [own for own in units.uses[layer] if own.at == use.at and own != use]
            mixed = units.times(free, other_axis, matrix)
            slope = slope + units.rows(mixed, use) @ units.rows(rest, use).T
        slopes.append(slope)
    return slopes


def _along(
    networks: Sequence[UnitArrays], plans: Sequence[Plan], towards: Sequence[Plan], units: UnitSets
) -> tuple[list[Plan], float]:
    """Return the plans between `plans` and `towards` that agree best, and their agreement."""

    def between(share: float) -> list[Plan]:
        return [
            [(1 - share) * start + share * end for start, end in zip(a, b, strict=True)]
            for a, b in zip(plans, towards, strict=True)
        ]

    values = [agreement(networks, between(share), units) for share in ENDS]
    roots = np.polynomial.Polynomial.fit(ENDS, values, len(ENDS) - 1).deriv().roots()
    inner = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)]
    shares = [*ENDS, *inner]
    values += [agreement(networks, between(share), units) for share in inner]
    best = int(np.argmax(values))
    return between(float(shares[best])), float(values[best])

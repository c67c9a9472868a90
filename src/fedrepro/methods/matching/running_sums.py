"""Running sums of natural parameters of the atoms, as clients come and go.

An atom lives in a slot, a row of every array here, until its last member leaves. Sums are kept by
adding and subtracting, so they carry rounding residue; they serve the rewards only, and the final
atoms are summed afresh from their members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrepro.methods.matching.rewards import Array, Gaussians, Ints, gain, posterior_mean

# Up to this many units their inner products are tabled: 128 MiB, and as much for the atoms.
TABLE = 4096


@dataclass(frozen=True)
class Prior:
    """The Gaussian an atom has before any member: means (P,) and (Q,), and one variance."""

    uniform: Array
    classed: Array
    variance: float


@dataclass(frozen=True)
class MatchedLayer:
    """The hidden units of one layer of J clients.

    uniform[j]: float64 (L_j, P); classed[j]: float64 (L_j, Q). variance: of the noise on the
    uniform coordinates. classed_precision: float64 (J, Q), may be zero where a client knows
    nothing.
    """

    uniform: tuple[Array, ...]
    classed: tuple[Array, ...]
    variance: float
    classed_precision: Array
    prior: Prior

    @property
    def clients(self) -> int:
        return len(self.uniform)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(len(units) for units in self.uniform)


@dataclass(frozen=True)
class Atoms:
    """Global atoms in natural parameters, from which a later step of streaming starts.

    natural: (atoms, P) and precision: (atoms,) on the uniform coordinates; classed and
    classed_precision: (atoms, Q).
    """

    natural: Array
    precision: Array
    classed: Array
    classed_precision: Array

    @property
    def uniform_mean(self) -> Array:
        return posterior_mean(self.natural, self.precision[:, None])

    @property
    def classed_mean(self) -> Array:
        return posterior_mean(self.classed, self.classed_precision)


@dataclass(frozen=True)
class Past:
    """Earlier steps of a stream: their atoms, and how often each client held them.

    `atoms` are those before the present step's members; `members`, int64 (J, atoms), count the
    earlier steps' units of each client in each atom, at least one in all. An atom's precision is
    that of the prior and of all its members, so variances are the same in every step.
    """

    atoms: Atoms
    members: Ints


def no_past(layer: MatchedLayer) -> Past:
    """Return the past before the first step: no atoms."""
    inputs, classes = layer.uniform[0].shape[1], layer.classed[0].shape[1]
    atoms = Atoms(np.empty((0, inputs)), np.empty(0), *np.empty((2, 0, classes)))
    return Past(atoms, np.empty((layer.clients, 0), np.int64))


def atoms_of(layer: MatchedLayer, assignments: tuple[Ints, ...], counts: Ints, past: Past) -> Atoms:
    """Sum prior and members, once per atom in the order of the clients (Proposition 1).

    The atoms of the past come first, with their earlier posterior as prior (supplement
    equation (10)). `counts`, int64 (atoms,), are members of all steps.
    """
    prior, before = layer.prior, len(past.atoms.natural)
    natural = np.tile(prior.uniform / prior.variance, (len(counts), 1))
    classed = np.tile(prior.classed / prior.variance, (len(counts), 1))
    classed_precision = np.full_like(classed, 1.0 / prior.variance)
    natural[:before] = past.atoms.natural
    classed[:before] = past.atoms.classed
    classed_precision[:before] = past.atoms.classed_precision
    for client, atoms in enumerate(assignments):
        # A client's units sit in different atoms, so no index occurs twice.
        natural[atoms] += layer.uniform[client] / layer.variance
        classed[atoms] += layer.classed[client] * layer.classed_precision[client]
        classed_precision[atoms] += layer.classed_precision[client]
    precision = 1.0 / prior.variance + counts / layer.variance
    return Atoms(natural, precision, classed, classed_precision)


class _Rows:
    """A row per slot: the origin, plus the rows of the units that sit there.

    rows: (units, width), what each unit adds; origin: (width,), the row of an empty atom; past:
    (atoms, width), the rows of the slots that are taken from the start.
    """

    def __init__(self, rows: Array, origin: Array, past: Array) -> None:
        self.rows = rows
        self.origin = origin
        # Room for every unit alone; memory is touched only as far as slots are used.
        self.used = len(past)
        self.slots = np.empty((self.used + len(rows), rows.shape[1]))
        self.slots[: self.used] = past

    def open(self, slots: Ints) -> None:
        self.used = max(self.used, int(slots.max(initial=-1)) + 1)
        self.slots[slots] = self.origin

    def add(self, units: slice, slots: Ints) -> None:
        self.slots[slots] += self.rows[units]

    def subtract(self, units: slice, slots: Ints) -> None:
        self.slots[slots] -= self.rows[units]

    def products(self, units: slice, slots: Ints) -> Array:
        """Compute the inner product of every unit with every slot's sum: (units, slots)."""
        raise NotImplementedError

    def own_products(self, units: slice, slots: Ints) -> Array:
        """Compute the inner product of each unit with the sum of its assigned slot: (units,)."""
        raise NotImplementedError


class SummedRows(_Rows):
    """A slot's row is the sum itself; inner products are computed when asked for."""

    def products(self, units: slice, slots: Ints) -> Array:
        # One product over all slots in use costs less than gathering the live ones first.
        result: Array = (self.rows[units] @ self.slots[: self.used].T)[:, slots]
        return result

    def own_products(self, units: slice, slots: Ints) -> Array:
        result: Array = np.einsum("ud,ud->u", self.rows[units], self.slots[slots])
        return result


class TabledRows(_Rows):
    """A slot's row holds its inner products with all units, so they are read off.

    It is the sum of the members' rows in a table of the units' products with each other, which
    is computed once for all passes.
    """

    def __init__(self, natural: Array, origin: Array, past: Array) -> None:
        super().__init__(natural @ natural.T, natural @ origin, past @ natural.T)

    def products(self, units: slice, slots: Ints) -> Array:
        return self.slots[slots, units].T

    def own_products(self, units: slice, slots: Ints) -> Array:
        result: Array = self.slots[slots, np.arange(units.start, units.stop)]
        return result


class RunningSums:
    """Sums over the members of each slot, and the gains of a client's units over them.

    The atoms of the past hold the first slots.
    """

    def __init__(self, layer: MatchedLayer, past: Past) -> None:
        prior, before = layer.prior, past.atoms
        ends = np.cumsum(layer.widths)
        self.units = [slice(end - n, end) for end, n in zip(ends, layer.widths, strict=True)]
        self.unit_precision = np.array([1.0 / layer.variance])
        self.client_precision = layer.classed_precision
        natural = np.concatenate(layer.uniform) / layer.variance
        self.unit_lengths = np.einsum("ud,ud->u", natural, natural)
        self.unit_classed = np.concatenate(
            [units * layer.classed_precision[j] for j, units in enumerate(layer.classed)]
        )
        origin = prior.uniform / prior.variance
        self.prior = Gaussians(
            np.array([origin @ origin]),
            np.array([1.0 / prior.variance]),
            prior.classed[None] / prior.variance,
            np.full((1, len(prior.classed)), 1.0 / prior.variance),
        )
        kind = TabledRows if len(natural) <= TABLE else SummedRows
        self.rows: _Rows = kind(natural, origin, before.natural)
        lengths = np.einsum("ad,ad->a", before.natural, before.natural)
        self.lengths = _with_room(lengths, len(natural))
        self.classed = _with_room(before.classed, len(natural))
        self.classed_precision = _with_room(before.classed_precision, len(natural))
        # What a new atom is worth to each unit does not depend on the others.
        products = natural @ origin
        self.fresh = [
            gain(self._units(client), self.prior, products[units, None])[:, 0]
            for client, units in enumerate(self.units)
        ]

    def open(self, slots: Ints) -> None:
        """Put the prior into these slots."""
        self.rows.open(slots)
        self.lengths[slots] = self.prior.lengths
        self.classed[slots] = self.prior.classed
        self.classed_precision[slots] = self.prior.classed_precision

    def add(self, client: int, slots: Ints) -> None:
        """Add the client's units, in row order, to these slots (all different)."""
        units = self.units[client]
        products = self.rows.own_products(units, slots)
        self.rows.add(units, slots)
        self.lengths[slots] += 2.0 * products + self.unit_lengths[units]
        self.classed[slots] += self.unit_classed[units]
        self.classed_precision[slots] += self.client_precision[client]

    def subtract(self, client: int, slots: Ints) -> None:
        """Take the client's units, in row order, out of the slots that hold them."""
        units = self.units[client]
        products = self.rows.own_products(units, slots)
        self.rows.subtract(units, slots)
        self.lengths[slots] -= 2.0 * products - self.unit_lengths[units]
        self.classed[slots] -= self.unit_classed[units]
        self.classed_precision[slots] -= self.client_precision[client]

    def gains(self, client: int, slots: Ints, counts: Ints) -> Array:
        """Compute gains (L_j, slots) of the client's units over slots with `counts` members."""
        atoms = Gaussians(
            self.lengths[slots],
            self.prior.precision + counts * self.unit_precision,
            self.classed[slots],
            self.classed_precision[slots],
        )
        return gain(self._units(client), atoms, self.rows.products(self.units[client], slots))

    def _units(self, client: int) -> Gaussians:
        units = self.units[client]
        return Gaussians(
            self.unit_lengths[units],
            self.unit_precision,
            self.unit_classed[units],
            self.client_precision[client][None],
        )


def _with_room(taken: Array, free: int) -> Array:
    return np.concatenate([taken, np.empty((free, *taken.shape[1:]))])

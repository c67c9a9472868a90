"""PFNM's common units, called atoms: rewards of matching a unit to them, and sums over members.

Source: "Probabilistic Federated Neural Matching", under review at ICLR 2019, main text and
supplement. A hidden unit is a vector v with diagonal Gaussian noise around an atom, which has a
diagonal Gaussian prior. Each is kept in natural parameters: precisions p and p * v add up over the
members of an atom. On the *uniform* coordinates (incoming weights, bias) all units have the same
precision, so the reward needs only inner products and lengths; on the *classed* ones (weights to
the classes) each client has its own precisions. Either sort of coordinates may be empty.

An atom has a slot, a row of every array of sums, until its last member leaves. Adding and
subtracting leaves rounding errors in the sums; the final atoms are summed once more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gaussians:
    """Hidden units, or atoms (common units of clients), as n Gaussians, float64.

    For weights to Q classes, classed (n, Q) is mean · precision, classed_precision (n, Q) or (1,
    Q). All other weights of a Gaussian have one precision, (n,) or (1,). Of their vector mean ·
    precision only the squared length is kept, lengths (n,).
    """

    lengths: Array
    precision: Array
    classed: Array
    classed_precision: Array


def gain(units: Gaussians, atoms: Gaussians, products: Array) -> Array:
    """Compute by how much each unit would raise the posterior by joining each atom: (units, atoms).

    Entry (l, i) is Q(h_l + G_i, p + S_i) - Q(G_i, S_i), Q(G, S) = sum_d G_d² / S_d. p, S are the
    precisions of a client's unit and an atom (common unit), h, G values times precision. `products`
    are h_l · G_i over all weights but those to classes. Source: PFNM, equation (9).
    """
    # uniform coordinates: |h + G|² / (p + S) - |G|² / S, terms in |G|² joined before they cancel
    shrink = 1.0 / (units.precision + atoms.precision)
    uniform = products * (2.0 * shrink)
    uniform += np.multiply.outer(units.lengths, shrink)
    uniform -= shrink * units.precision * atoms.lengths / atoms.precision
    # on the classed ones, with A = 1 / (p + S): (h²) A' + 2 h (G A)' - sum_d p_d G_d² A_d / S_d,
    # all pairs at once through one matrix product
    shrink = 1.0 / (units.classed_precision + atoms.classed_precision)
    pull = atoms.classed * shrink
    left = np.concatenate([units.classed**2, 2.0 * units.classed], axis=1)
    right = np.concatenate([shrink, pull], axis=1)
    offset = (pull * atoms.classed / atoms.classed_precision * units.classed_precision).sum(axis=1)
    classed: Array = left @ right.T
    classed -= offset
    return uniform + classed


def popularity(counts: Ints, clients: int, factor: float, cap: int | None) -> Array:
    """Return the reward for joining an atom that m other clients share: factor · log(m / (J - m)).

    `counts` (atoms,) are m, at most `cap` as in the authors' code; `clients` is J. PFNM's equation
    (9) has factor 1, but a derivation of it gives 2.
    """
    capped = counts if cap is None else np.minimum(counts, cap)
    return np.asarray(factor * np.log(capped / (clients - capped)))


def habit(members: Ints, step: int, factor: float) -> Array:
    """Return rewards for atoms that a client's units joined before `step` s = 1, 2, … of a stream.

    They are factor * log((1 + m) / (s - m)); `members` m (atoms,) counts the client's earlier units
    in the atom. PFNM calls this a heuristic (supplement, equation (11)), with factor 1.
    """
    return np.asarray(factor * np.log((1.0 + members) / (step - members)))


def novelty(columns: int, clients: int, gamma0: float) -> Array:
    """Return the rewards for a client's first, second, … new atom, `columns` in all.

    The t-th is 2 log(gamma0 / J) - 2 log t, with J `clients` and gamma0 the mass of the Beta
    process. Source: PFNM, equation (9); at step s of a stream, s * J replaces J (supplement, (11)).
    """
    return np.asarray(2.0 * np.log(gamma0 / clients) - 2.0 * np.log(np.arange(1, columns + 1)))


def reward_matrix(gains: Array, popular: Array, fresh: Array, novel: Array) -> Array:
    """Return the rewards that a matching maximises: (units, atoms + columns for new atoms).

    A unit joins an atom for `gains` (units, atoms) plus `popular` (atoms,), or becomes a new one
    for `fresh` (units,), its gain over the prior, plus `novel` (columns,). Source: PFNM, eq. (9).
    """
    atoms = len(popular)
    rewards = np.empty((len(gains), atoms + len(novel)))
    np.add(gains, popular, out=rewards[:, :atoms])
    np.add(fresh[:, None], novel, out=rewards[:, atoms:])
    return rewards


@dataclass(frozen=True)
class MatchedLayer:
    """One layer's hidden units at J clients, with the Gaussian noise and prior for matching them.

    uniform: each client's (L_j, P) weights whose noise has one `variance`, such as biases, float64.
    classed: in the top layer weights to Q classes, (L_j, Q), whose noise has classed_precision (J,
    Q), 0 where a client has no examples of a class. The prior of both has prior_variance; its mean
    is prior_mean (P,) for uniform, 0 for classed.
    """

    uniform: tuple[Array, ...]
    classed: tuple[Array, ...]
    variance: float
    classed_precision: Array
    prior_mean: Array
    prior_variance: float

    @property
    def clients(self) -> int:
        return len(self.uniform)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(len(units) for units in self.uniform)


@dataclass(frozen=True)
class Atoms:
    """The posteriors of atoms (units common to clients): Gaussians of independent weights.

    classed (atoms, Q): precision · mean of weights to Q classes; classed_precision (atoms, Q):
    their precision. natural (atoms, P): precision · mean of an atom's other P weights; precision
    (atoms,): of each of these. Source: PFNM, equation (5).
    """

    natural: Array
    precision: Array
    classed: Array
    classed_precision: Array


@dataclass(frozen=True)
class Past:
    """Posteriors of atoms (units common to clients) after earlier steps of a stream of data.

    members: how many units of each client have joined each atom in these steps, (J, atoms).
    """

    atoms: Atoms
    members: Ints


def no_past(layer: MatchedLayer) -> Past:
    """Return a `Past` without atoms, to match a layer that is not part of a stream."""
    inputs, classes = layer.uniform[0].shape[1], layer.classed[0].shape[1]
    atoms = Atoms(np.empty((0, inputs)), np.empty(0), *np.empty((2, 0, classes)))
    return Past(atoms, np.empty((layer.clients, 0), np.int64))


def atoms_of(layer: MatchedLayer, assignments: tuple[Ints, ...], counts: Ints, past: Past) -> Atoms:
    """Compute the posteriors of the atoms (common units) of a layer by their priors and units.

    `assignments` has, by client, each unit's atom; `counts` the units per atom in all steps. Atoms
    of `past` come first, their earlier posterior (supplement, (10)) as prior. PFNM, Proposition 1.
    """
    before, variance = len(past.atoms.natural), layer.prior_variance
    natural = np.tile(layer.prior_mean / variance, (len(counts), 1))
    classed = np.zeros((len(counts), layer.classed[0].shape[1]))
    classed_precision = np.full_like(classed, 1.0 / variance)
    natural[:before] = past.atoms.natural
    classed[:before] = past.atoms.classed
    classed_precision[:before] = past.atoms.classed_precision
    for client, atoms in enumerate(assignments):
        # A client's units sit in different atoms, so no index occurs twice.
        natural[atoms] += layer.uniform[client] / layer.variance
        classed[atoms] += layer.classed[client] * layer.classed_precision[client]
        classed_precision[atoms] += layer.classed_precision[client]
    return Atoms(natural, 1.0 / variance + counts / layer.variance, classed, classed_precision)


class RunningSums:
    """Sums over each atom's prior and units, kept up to date while units join and leave atoms.

    An atom (a unit common to clients) has one row (slot) in each array. The sums are of value ·
    precision and, for weights to classes, of precision. Atoms of `past` have the first rows.
    """

    def __init__(self, layer: MatchedLayer, past: Past) -> None:
        before, variance = past.atoms, layer.prior_variance
        ends = np.cumsum(layer.widths)
        self.units = [slice(end - n, end) for end, n in zip(ends, layer.widths, strict=True)]
        natural = self.natural = np.concatenate(layer.uniform) / layer.variance
        lengths, precision = np.einsum("ud,ud->u", natural, natural), np.array([1 / layer.variance])
        each = zip(self.units, layer.classed, layer.classed_precision, strict=True)
        self.clients = [
            Gaussians(lengths[units], precision, weights * own, own[None])
            for units, weights, own in each
        ]
        origin = self.origin = layer.prior_mean / variance
        classed = np.zeros((1, layer.classed[0].shape[1]))
        own = np.array([origin @ origin]), np.array([1.0 / variance])
        self.prior = Gaussians(*own, classed, np.full_like(classed, 1.0 / variance))
        self.used = len(before.natural)
        taken = np.einsum("ad,ad->a", before.natural, before.natural)
        # Room for every unit alone; memory is touched only as far as slots are used.
        self.sums = [
            np.concatenate([held, np.empty((len(natural), *held.shape[1:]))])
            for held in (before.natural, taken, before.classed, before.classed_precision)
        ]
        # what a new atom is worth to each unit does not depend on the others
        products = natural @ origin
        self.fresh = [
            gain(own, self.prior, products[units, None])[:, 0]
            for own, units in zip(self.clients, self.units, strict=True)
        ]

    def open(self, slots: Ints) -> None:
        """Begin new atoms in rows `slots`: their sums are the prior's, without any unit."""
        self.used = max(self.used, int(slots.max(initial=-1)) + 1)
        prior = self.prior
        each = self.origin, prior.lengths, prior.classed, prior.classed_precision
        for sums, start in zip(self.sums, each, strict=True):
            sums[slots] = start

    def change(self, op: np.ufunc, client: int, slots: Ints) -> None:
        """Add (`op` np.add) or subtract (np.subtract) a client's units, unit l in row slots[l]."""
        natural, own = self.natural[self.units[client]], self.clients[client]
        products = np.einsum("ud,ud->u", natural, self.sums[0][slots])
        each = natural, op(2.0 * products, own.lengths), own.classed, own.classed_precision
        for sums, units in zip(self.sums, each, strict=True):
            sums[slots] = op(sums[slots], units)

    def gains(self, client: int, slots: Ints, counts: Ints) -> Array:
        """Compute units' gains by joining atoms in `slots`, of `counts` units: (L_j, atoms)."""
        natural, lengths, *classed = self.sums
        precision = self.prior.precision + counts * self.clients[client].precision
        atoms = Gaussians(lengths[slots], precision, *(sums[slots] for sums in classed))
        # one product over all slots in use costs less than gathering the live ones first
        products = self.natural[self.units[client]] @ natural[: self.used].T
        return gain(self.clients[client], atoms, products[:, slots])

"""Rewards of matching a client's hidden units to global atoms, equation (9) of PFNM.

Source: "Probabilistic Federated Neural Matching", under review at ICLR 2019, main text and
supplement. A hidden unit is a vector v with diagonal Gaussian noise around an atom, which has a
diagonal Gaussian prior. Both are kept in natural parameters: precisions p and p * v add up
over the members of an atom.

The coordinates of a unit are of two sorts. On the *uniform* ones (incoming weights, bias) every
unit has the same precision, so an atom's precision is a single number and the reward needs only
inner products and lengths. On the *classed* ones (weights to the classes) a client's precision is
its own, coordinate by coordinate. Either sort may be empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gaussians:
    """Natural parameters of n units, or of n atoms, from which rewards are computed; all float64.

    lengths: (n,), squared length on the uniform coordinates. precision: (n,) or (1,), on the
    uniform coordinates. classed: (n, Q) and classed_precision: (n, Q) or (1, Q), on the others.
    """

    lengths: Array
    precision: Array
    classed: Array
    classed_precision: Array


def gain(units: Gaussians, atoms: Gaussians, products: Array) -> Array:
    """Compute what joining an atom adds to the posterior's form Q(G, S) = sum_d G_d^2 / S_d.

    Entry (l, i) is Q(h_l + G_i, p + S_i) - Q(G_i, S_i), the first part of equation (9). The units
    are those of one client, so they share one precision. `products` (units, atoms) are the inner
    products of h_l and G_i on the uniform coordinates. Returns (units, atoms).
    """
    return _uniform_gain(units, atoms, products) + _classed_gain(units, atoms)


def _uniform_gain(units: Gaussians, atoms: Gaussians, products: Array) -> Array:
    """Compute |h + G|^2 / (p + S) - |G|^2 / S, the two terms in |G|^2 joined before they cancel."""
    shrink = 1.0 / (units.precision + atoms.precision)
    offset = shrink * units.precision * atoms.lengths / atoms.precision
    result = products * (2.0 * shrink)
    result += np.multiply.outer(units.lengths, shrink)
    result -= offset
    return result


def _classed_gain(units: Gaussians, atoms: Gaussians) -> Array:
    """Compute `gain` on the classed coordinates, all pairs at once through one matrix product.

    With A = 1 / (p + S): (h^2) A' + 2 h (G A)' - sum_d p_d G_d^2 A_d / S_d.
    """
    shrink = 1.0 / (units.classed_precision + atoms.classed_precision)
    pull = atoms.classed * shrink
    left = np.concatenate([units.classed**2, 2.0 * units.classed], axis=1)
    right = np.concatenate([shrink, pull], axis=1)
    offset = (pull * atoms.classed / atoms.classed_precision * units.classed_precision).sum(axis=1)
    result: Array = left @ right.T
    result -= offset
    return result


def popularity(counts: Ints, clients: int, factor: float, cap: int | None) -> Array:
    """Compute factor * log(m / (J - m)), m = counts (atoms,) of other clients, at most `cap`.

    Counts are between 1 and J - 1. The factor is 1 in equation (9) as printed and 2 by
    its derivation; the cap is not in the text but in the authors' code.
    """
    capped = counts if cap is None else np.minimum(counts, cap)
    result: Array = factor * np.log(capped / (clients - capped))
    return result


def habit(members: Ints, step: int, factor: float) -> Array:
    """Compute factor * log((1 + m) / (s - m)), m how often the client's own past holds the atom.

    `members` m (atoms,) are between 0 and s - 1, at step s = 1, 2, ... of a stream. The paper
    declares it a heuristic, with the factor 1. Source: supplement, equation (11).
    """
    result: Array = factor * np.log((1.0 + members) / (step - members))
    return result


def novelty(columns: int, clients: int, gamma0: float) -> Array:
    """Compute 2 log(gamma0 / J) - 2 log t for the new atoms t = 1, ..., columns of equation (9).

    At step s of a stream s * J takes the place of J (supplement, equation (11)).
    """
    result: Array = 2.0 * np.log(gamma0 / clients) - 2.0 * np.log(np.arange(1, columns + 1))
    return result


def reward_matrix(gains: Array, popular: Array, fresh: Array, novel: Array) -> Array:
    """Join equation (9), to be maximised: existing atoms first, then the columns of new atoms.

    (units, atoms + columns) from gains (units, atoms), popular (atoms,), fresh (units,), the gain
    over the prior, and novel (columns,). The text calls its minimiser the solution, but
    with its signs the matching is the maximiser.
    """
    atoms = len(popular)
    rewards = np.empty((len(gains), atoms + len(novel)))
    np.add(gains, popular, out=rewards[:, :atoms])
    np.add(fresh[:, None], novel, out=rewards[:, atoms:])
    return rewards


def posterior_mean(natural: Array, precision: Array) -> Array:
    """Compute MAP atoms given their members: natural / precision, elementwise.

    Shapes: (atoms, dims), precision also (atoms, 1). Source: Proposition 1, equation (5).
    """
    return natural / precision

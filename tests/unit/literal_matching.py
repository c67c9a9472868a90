"""PFNM's matching written out literally, to test the fast one against.

Unit by unit and coordinate by coordinate as in equation (9), with nothing shared with the package:
lists of atoms, renumbered when one empties, and rewards from full precision vectors.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment


def rewards(h, p, natural, precision, counts, clients, h0, p0, *, gamma, factor, cap, columns):
    """Equation (9): h (L, n), p (n,), natural and precision (atoms, n). Nothing vectorised."""
    table = np.empty((len(h), len(natural) + columns))
    for unit, row in enumerate(h):
        for atom in range(len(natural)):
            G, S = natural[atom], precision[atom]
            m = counts[atom] if cap is None else min(counts[atom], cap)
            joined = ((row + G) ** 2 / (p + S)).sum() - (G**2 / S).sum()
            table[unit, atom] = joined + factor * np.log(m / (clients - m))
        alone = ((row + h0) ** 2 / (p + p0)).sum() - (h0**2 / p0).sum()
        for t in range(columns):
            new = 2 * np.log(gamma / clients) - 2 * np.log(t + 1)
            table[unit, len(natural) + t] = alone + new
    return table


class Matching:
    """vectors: a list of (L_j, n); precisions: (J, n); mean and p0: (n,)."""

    def __init__(self, vectors, precisions, mean, p0, *, gamma=1.0, factor=1.0, cap=10, width=700):
        self.h = [v * p for v, p in zip(vectors, precisions, strict=True)]
        self.precisions, self.h0, self.p0 = precisions, mean * p0, p0
        self.gamma, self.factor, self.cap, self.width = gamma, factor, cap, width
        self.natural, self.precision, self.counts = [], [], []
        self.assignments = [[] for _ in vectors]

    def run(self, visits):
        order = sorted(range(len(self.h)), key=lambda j: -len(self.h[j]))
        for row in self.h[order[0]]:
            self.assignments[order[0]].append(self.append(order[0], row))
        for client in order[1:]:
            self.assign(client)
        for client in np.ravel(visits):
            self.remove(client)
            self.assign(client)
        return self

    def append(self, client, row):
        self.natural.append(self.h0 + row)
        self.precision.append(self.p0 + self.precisions[client])
        self.counts.append(1)
        return len(self.counts) - 1

    def assign(self, client):
        h, p, atoms = self.h[client], self.precisions[client], len(self.counts)
        rule = {"gamma": self.gamma, "factor": self.factor, "cap": self.cap}
        rule["columns"] = min(len(h), max(self.width - atoms, 1))
        known = self.natural, self.precision, self.counts, len(self.h), self.h0, self.p0
        table = rewards(h, p, *known, **rule)
        _, chosen = linear_sum_assignment(-table)
        for unit, atom in enumerate(chosen):
            if atom < atoms:
                self.natural[atom] = self.natural[atom] + h[unit]
                self.precision[atom] = self.precision[atom] + p
                self.counts[atom] += 1
            else:
                atom = self.append(client, h[unit])
            self.assignments[client].append(int(atom))

    def remove(self, client):
        for unit, atom in enumerate(self.assignments[client]):
            self.natural[atom] = self.natural[atom] - self.h[client][unit]
            self.precision[atom] = self.precision[atom] - self.precisions[client]
            self.counts[atom] -= 1
        self.assignments[client] = []
        for atom in [a for a, m in enumerate(self.counts) if m == 0][::-1]:
            del self.natural[atom], self.precision[atom], self.counts[atom]
            self.assignments = [[a - (a > atom) for a in held] for held in self.assignments]

    @property
    def means(self):
        """Posterior means from the members, one coordinate vector per atom."""
        natural = [self.h0.copy() for _ in self.counts]
        precision = [self.p0.copy() for _ in self.counts]
        for client, held in enumerate(self.assignments):
            for unit, atom in enumerate(held):
                natural[atom] += self.h[client][unit]
                precision[atom] += self.precisions[client]
        return np.array(natural) / np.array(precision)


def match_networks(networks, label_counts, visits, **settings):
    """`match_deep` of networks with one hidden layer: (matching, [out_0, ..., out_3])."""
    (matching,), out = match_deep(networks, label_counts, visits, **settings)
    return matching, out


def match_deep(networks, label_counts, visits, *, sigma, sigma0, gamma, **rule):
    """Of networks (W0, b0, W1, ...): (matchings, top first, [out_0, ...]); sigma: lowest first."""
    label_counts = np.asarray(label_counts, dtype=float)
    clients, depth = len(networks), len(networks[0]) // 2 - 1
    inputs, classes = networks[0][0].shape[0], len(networks[0][-1])
    shares = label_counts / label_counts.sum(0)
    visits = np.broadcast_to(visits, (depth, *np.shape(visits)[-2:]))
    sigma = np.broadcast_to(sigma, depth)
    out = [None] * (2 * depth + 2)
    matchings = []
    for layer in reversed(range(depth)):
        size = classes if layer == depth - 1 else len(matchings[-1].counts)
        vectors = []
        for j, network in enumerate(networks):
            units = []
            for unit in range(len(network[2 * layer + 1])):
                outgoing = np.zeros(size)
                for target, weight in enumerate(network[2 * layer + 2][unit]):
                    at = target if layer == depth - 1 else matchings[-1].assignments[j][target]
                    outgoing[at] = weight
                incoming = network[0][:, unit] if layer == 0 else []
                units.append(np.r_[incoming, network[2 * layer + 1][unit], outgoing])
            vectors.append(np.array(units))
        own = inputs + 1 if layer == 0 else 1
        weights = shares if layer == depth - 1 else np.ones((clients, size))
        precisions = np.hstack([np.ones((clients, own)), weights]) / sigma[layer]
        mean = np.zeros(own + size)
        mean[own - 1] = 0.1
        prior = np.full(len(mean), 1 / sigma0)
        matching = Matching(vectors, precisions, mean, prior, gamma=gamma, **rule)
        matchings.append(matching.run(visits[depth - 1 - layer]))
        means = matching.means
        out[2 * layer + 1], out[2 * layer + 2] = means[:, own - 1], means[:, own:]
        if layer == 0:
            out[0] = means[:, :inputs].T
    top = 0.1 / sigma0 + sum(f * n[-1] / sigma[-1] for f, n in zip(shares, networks, strict=True))
    out[-1] = top / (1 / sigma0 + sum(f / sigma[-1] for f in shares))
    return matchings, out

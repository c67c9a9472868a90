"""Sequential matching of the hidden units of J clients in one layer (PFNM, Algorithm 1).

Each client's assignment to common units, called atoms, is a linear assignment problem over the
rewards of equation (9), solved exactly given all other clients; clients are removed and assigned
again in turn. A step may lower the paper's joint objective: equation (9) takes each client as the
last one, and these conditional laws belong to no single joint law over labelled atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching import pfnm_atoms_and_rewards as of_atoms
from fedrepro.methods.matching.network_arrays_and_tracing import UnitArrays, hidden_layers
from fedrepro.methods.matching.pfnm_atoms_and_rewards import Array, Atoms, Ints, MatchedLayer, Past
from fedrepro.methods.matching.unit_permutations import best_columns

LEAST_VARIANCE = 1e-100  # its inverse and the square of that are still numbers


@dataclass(frozen=True)
class Rule:
    """Parameters by which a client's unit joins an atom (a common unit) or becomes a new one.

    gamma0: mass of the Beta process; more makes new atoms likelier. popularity: factor on log(m /
    (J - m)), the reward for an atom that m other clients share, m at most count_cap, if any.
    width_cap: number of atoms beyond which a client may add only one at a time.
    """

    gamma0: float = 1.0
    popularity: float = 1.0
    count_cap: int | None = 10
    width_cap: int = 700


@dataclass(frozen=True)
class Matching:
    """A matching of one layer's hidden units, of J clients, to atoms (units common to clients).

    assignments: for each client j, int64 (L_j,), each unit's atom. counts: int64 (atoms,), the
    units that share each atom, over all steps so far if data arrive in a stream. atoms: posteriors.
    """

    assignments: tuple[Ints, ...]
    counts: Ints
    atoms: Atoms


def match(
    layer: MatchedLayer, rule: Rule, visits: Ints, past: Past | None = None, step: int | None = None
) -> Matching:
    """Match the hidden units of one layer of all clients to common units (atoms), as PFNM does.

    `rule` has the costs and caps, `visits` (passes, J) the clients' order in each pass. For data
    that arrive in steps, `step` counts from 1; `past` has the atoms of earlier steps, which stay
    first. An atom's reward then depends on how often the client had it (supplement, eq. (11)),
    without `count_cap`. Raises FedreproError if weights are not finite, or the width cap leaves too
    few atoms.
    """
    past = past or of_atoms.no_past(layer)
    for client, blocks in enumerate(zip(layer.uniform, layer.classed, strict=True)):
        if not all(np.isfinite(block).all() for block in blocks):
            raise FedreproError(f"matching: weights of the model of client {client} are not finite")
    if visits.ndim != 2 or any(sorted(row) != [*range(layer.clients)] for row in visits.tolist()):
        raise FedreproError(f"matching: each pass must visit all {layer.clients} clients once")
    with np.errstate(over="ignore", invalid="ignore"):  # the solver refuses what is not finite
        table = _Table(layer, rule, past, step)
        waiting = sorted(range(layer.clients), key=lambda j: -layer.widths[j])  # wide ones first
        if not past.members.size:
            first = waiting.pop(0)
            table.seat(first, np.arange(layer.widths[first]))  # each unit is an atom of its own
        for client in waiting:
            table.seat(client)
        for client in visits.ravel().tolist():
            table.visit(client)
        counts = table.counts[table.order]
        numbers = np.empty(len(table.counts), np.int64)  # of the atoms, by slot
        numbers[table.order] = np.arange(len(counts))
        assignments = tuple(numbers[slots] for slots in table.slots)
        return Matching(assignments, counts, of_atoms.atoms_of(layer, assignments, counts, past))


def useful_columns(rewards: Array, new: int) -> Ints:
    """Return the columns of `rewards` (units, atoms) that a best assignment may use, to save time.

    The last `new` columns are new atoms. If they are enough for all units, an older atom is left
    out if for every unit it is worth less than the last new atom. NaN columns stay.
    """
    units, columns = rewards.shape
    useful = np.ones(columns, bool)
    if new >= units:
        useful[: columns - new] = ~np.all(rewards[:, : columns - new] < rewards[:, -1:], axis=0)
    return np.flatnonzero(useful)


class _Table:
    """The current assignment of all clients' units to atoms during matching."""

    def __init__(self, layer: MatchedLayer, rule: Rule, past: Past, step: int | None) -> None:
        self.layer, self.rule, self.step = layer, rule, step
        # atoms of this step have no past
        self.members = np.pad(past.members, ((0, 0), (0, sum(layer.widths))))
        self.sums = of_atoms.RunningSums(layer, past)
        self.slots: list[Ints] = [np.empty(0, np.int64) for _ in layer.widths]
        # Members by slot. Those of the past never leave, and so neither do its atoms.
        before = past.members.sum(axis=0)
        self.counts = np.concatenate([before, np.zeros(sum(layer.widths), np.int64)])
        self.order = np.arange(len(before))  # live slots, in the order of the atoms
        self.settled = np.zeros(layer.clients, bool)

    def seat(self, client: int, columns: Ints | None = None) -> None:
        """Assign a client's units to atoms order[columns], new ones past `order`; None: best."""
        columns = self._best(client) if columns is None else columns
        new = columns >= len(self.order)
        slots = np.empty_like(columns)
        slots[~new] = self.order[columns[~new]]
        slots[new] = np.flatnonzero(self.counts == 0)[: new.sum()]
        self._join(client, slots, new)
        self.sums.open(slots[new])
        self.sums.change(np.add, client, slots)

    def visit(self, client: int) -> None:
        """Take a client's units out of their atoms; assign them again, given all others' units."""
        old_slots = self.slots[client]
        self.counts[old_slots] -= 1
        self.order = self.order[self.counts[self.order] > 0]
        alone = self.counts[old_slots] == 0
        if self.settled[client]:
            self._join(client, old_slots, alone)
            return
        self.sums.change(np.subtract, client, old_slots)
        self.seat(client)
        new_slots, shared = self.slots[client], ~alone
        stays = np.array_equal(self.counts[new_slots] > 1, shared)
        if not (stays and np.array_equal(new_slots[shared], old_slots[shared])):
            self.settled[:] = False
        self.settled[client] = True

    def _join(self, client: int, slots: Ints, new: np.ndarray) -> None:
        """Assign a client's units to atoms, in rows `slots`; `new` ones (bool) are ordered last."""
        self.slots[client] = slots
        self.counts[slots] += 1
        self.order = np.concatenate([self.order, slots[new]])

    def _best(self, client: int) -> Ints:
        """Return the best atom of each unit, (L_j,): its place in `order`, past the end if new."""
        width, room = self.layer.widths[client], self.rule.width_cap - len(self.order)
        new = min(width, max(room, 1))  # above the cap one at a time
        if len(self.order) + new < width:
            cap = f"a width cap of {self.rule.width_cap} leaves room for {len(self.order) + new}"
            said = f"client {client} has {width} hidden units, but {cap}"
            raise FedreproError(f"matching: {said}; raise width_cap to {max(self.layer.widths)}")
        rule, counts, clients = self.rule, self.counts[self.order], self.layer.clients
        gains = self.sums.gains(client, self.order, counts)
        if self.step is None:
            popular = of_atoms.popularity(counts, clients, rule.popularity, rule.count_cap)
        else:
            popular = of_atoms.habit(self.members[client, self.order], self.step, rule.popularity)
        novel = of_atoms.novelty(new, (self.step or 1) * clients, rule.gamma0)
        rewards = of_atoms.reward_matrix(gains, popular, self.sums.fresh[client], novel)
        kept = useful_columns(rewards, new)
        if 2 * len(kept) > rewards.shape[1]:  # picking columns costs more than it spares
            return best_columns(rewards)
        return kept[best_columns(rewards[:, kept])]


@dataclass(frozen=True)
class Variances:
    """Variances of units' noise (sigma2) and of the prior (sigma02), and the prior mean of biases.

    `layers` are factors on sigma2: one for all hidden layers; two, for those below the top one and
    for the top one; or one for each, lowest first.
    """

    sigma2: float = 1.0
    sigma02: float = 10.0
    bias: float = 0.1
    layers: tuple[float, ...] = (1.0,)

    def noise(self, depth: int) -> tuple[float, ...]:
        """Return the variance of units' noise in each of `depth` hidden layers, lowest first."""
        factors = self.layers
        if len(factors) in (1, 2):
            factors = (*[factors[0]] * max(depth - 1, 1), *[factors[-1]] * (depth > 1))
        elif len(factors) != depth:
            said = f"sigma2_layers has {len(factors)} values, but the networks have {depth} hidden"
            raise FedreproError(f"{said} layers; give one for each, the lowest first, or for all")
        noise = tuple(self.sigma2 * factor for factor in factors)
        if min(*noise, self.sigma02) < LEAST_VARIANCE:
            raise FedreproError("a variance of matching is too near to 0 to divide by; raise it")
        return noise


def match_networks(
    networks: Sequence[UnitArrays],
    shares: Array,
    variances: Variances,
    rule: Rule,
    orders: Sequence[Ints],
    posterior: Variances | None = None,
) -> tuple[UnitArrays, tuple[Matching, ...]]:
    """Match J networks into a global one; return it and each hidden layer's matching, top first.

    Networks are tuples (weight0, bias0, …), float64, of equal depth; widths may differ. `shares`,
    (J, K), is the precision of a client's weights to a class in units of 1 / sigma2. `orders` has
    the clients' order in each pass, (passes, J), for each hidden layer, top first. `posterior` are
    other variances, for the posterior means. Raises FedreproError if weights are not finite.
    """
    matchings = match_down(
        networks, shares, variances, lambda layer, units: match(units, rule, orders[-1 - layer])
    )
    if posterior is not None:  # the same assignments, with other sums
        found = matchings

        def again(layer: int, units: MatchedLayer) -> Matching:
            same = found[-1 - layer]
            atoms = of_atoms.atoms_of(units, same.assignments, same.counts, of_atoms.no_past(units))
            return replace(same, atoms=atoms)

        matchings = match_down(networks, shares, posterior, again)
    biases = np.stack([network[-1] for network in networks])
    bias = output_bias(biases, shares, posterior or variances, hidden_layers(networks[0]))
    atoms = [matching.atoms for matching in reversed(matchings)]
    return network_of_atoms(atoms, len(networks[0][0]), bias), matchings


def match_down(
    networks: Sequence[UnitArrays],
    shares: Array,
    variances: Variances,
    matched: Callable[[int, MatchedLayer], Matching],
) -> tuple[Matching, ...]:
    """Match the hidden layers of J networks from the top down; return the matchings, top first.

    matched(layer, units) returns the matching of one layer, 0 being the lowest, by biases, outgoing
    weights, and in the lowest layer incoming ones. A weight to class k has precision shares[:, k] /
    sigma2 (of `variances`); `shares` (J, K) are clients' shares of classes. Below, outgoing weights
    lead to atoms above; those to atoms that a client lacks are 0 at full precision, which draws
    averages to 0, as in the authors' code. Source: PFNM, 3.2; supplement, alg. 1.
    """
    matchings: list[Matching] = []
    for layer, noise in reversed([*enumerate(variances.noise(hidden_layers(networks[0])))]):
        uniform = [network[2 * layer + 1][:, None] for network in networks]
        if layer == 0:
            uniform = [np.hstack([n[0].T, b]) for n, b in zip(networks, uniform, strict=True)]
        own, classed = uniform[0].shape[1], [network[2 * layer + 2] for network in networks]
        precision = shares / noise
        if matchings:
            above = matchings[-1]
            wide = [np.zeros((len(units), own + len(above.counts))) for units in uniform]
            for client, units in enumerate(wide):
                units[:, :own] = uniform[client]
                units[:, own + above.assignments[client]] = classed[client]
            uniform, classed = wide, [np.empty((len(units), 0)) for units in wide]
            precision = np.empty((len(networks), 0))
        mean = np.zeros(uniform[0].shape[1])
        mean[own - 1] = variances.bias
        held = tuple(uniform), tuple(classed), noise, precision, mean, variances.sigma02
        matchings.append(matched(layer, MatchedLayer(*held)))
    return tuple(matchings)


def network_of_atoms(atoms: Sequence[Atoms], inputs: int, bias: Array) -> UnitArrays:
    """Build a network on D `inputs`: means of `atoms` (lowest layer first) and output `bias`."""
    # posterior means: in the lowest layer of incoming weights first; of biases; of weights to atoms
    means = [units.natural / units.precision[:, None] for units in atoms]
    blocks: list[Array] = [means[0][:, :inputs].T]
    for layer, mean in enumerate(means):
        bias_column = 0 if layer else inputs
        blocks += [mean[:, bias_column], mean[:, bias_column + 1 :]]
    return (*blocks[:-1], atoms[-1].classed / atoms[-1].classed_precision, bias)


def output_bias(biases: Array, shares: Array, variances: Variances, depth: int) -> Array:
    """Compute the global network's output bias, a posterior mean: (K,) from clients' biases (J, K).

    As in the authors' code, the prior is the one of hidden biases, and the noise has the variance
    of the top of `depth` hidden layers. `shares` (J, K) are clients' shares of each class.
    """
    noise = variances.noise(depth)[-1]
    natural = variances.bias / variances.sigma02 + (shares * biases).sum(axis=0) / noise
    return np.asarray(natural / (1.0 / variances.sigma02 + shares.sum(axis=0) / noise))


def alone(network: UnitArrays, shares: Array, variances: Variances) -> UnitArrays:
    """Return a network's posterior means as if none of its units were matched with another's.

    A weight v becomes (v p + mean / sigma02) / (p + 1 / sigma02) with p = 1 / sigma2, or for
    weights to class k shares[k] / sigma2, `shares` (K,); mean is variances.bias for biases, else 0.
    The output bias stays. Source: PFNM, equation (5).
    """
    noise = np.array(variances.noise(hidden_layers(network)))
    prior = 1.0 / variances.sigma02

    def drawn(value: Array, precision: Array, mean: float = 0.0) -> Array:
        return (value * precision + mean * prior) / (precision + prior)

    blocks = [drawn(network[0], 1.0 / noise[:1])]
    for layer, variance in enumerate(noise):
        precision = np.full(1, 1.0 / variance)
        blocks.append(drawn(network[2 * layer + 1], precision, variances.bias))
        top = layer == len(noise) - 1
        blocks.append(drawn(network[2 * layer + 2], shares / variance if top else precision))
    return (*blocks, network[-1])

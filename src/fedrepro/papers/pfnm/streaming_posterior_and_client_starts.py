"""Streaming matching: the posterior of one step is the prior of the next step (PFNM, section 3.3).

In natural parameters equation (10) of the supplement is a sum, so the state has sums for each atom
(global unit), and, for equation (11), in how many steps each client had each atom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.methods.matching import pfnm_sequential_matching as sequential_matching
from fedrepro.methods.matching.network_arrays_and_tracing import UnitArrays, hidden_layers
from fedrepro.methods.matching.pfnm_atoms_and_rewards import Array, Atoms, Ints, MatchedLayer, Past
from fedrepro.methods.matching.pfnm_sequential_matching import Matching, Rule, Variances, match

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients


@dataclass(frozen=True)
class Posterior:
    """The posterior over a global network's units (atoms) after `step` steps of a stream of data.

    inputs: number of the network's inputs. layers: atoms by hidden layer, lowest first. bias: the
    output bias's mean times bias_precision, both (K,).
    """

    step: int
    inputs: int
    layers: tuple[Past, ...]
    bias: Array
    bias_precision: Array

    @property
    def network(self) -> UnitArrays:
        """Return the global network of posterior means."""
        atoms = [layer.atoms for layer in self.layers]
        bias = self.bias / self.bias_precision
        return sequential_matching.network_of_atoms(atoms, self.inputs, bias)


def before_data(networks: Sequence[UnitArrays], variances: Variances) -> Posterior:
    """Return the posterior before data: no units, prior by `variances`, depth as in `networks`."""
    precision = np.full(len(networks[0][-1]), 1.0 / variances.sigma02)
    layers = []
    for towards in [0] * (hidden_layers(networks[0]) - 1) + [len(precision)]:  # classes
        atoms = Atoms(np.empty((0, 0)), np.empty(0), *np.empty((2, 0, towards)))
        layers.append(Past(atoms, np.empty((len(networks), 0), np.int64)))
    bias = variances.bias * precision
    return Posterior(0, networks[0][0].shape[0], tuple(layers), bias, precision)


def update(
    before: Posterior,
    networks: Sequence[UnitArrays],
    shares: Array,
    variances: Variances,
    rule: Rule,
    orders: Sequence[Ints],
    *,
    crowd_first: bool = True,
) -> tuple[Posterior, tuple[Matching, ...]]:
    """Match clients' networks of a new step to global units (atoms) of `before`, and each other.

    Returns the new posterior, and each layer's matching, the top hidden layer first. `shares` (J,
    K) are clients' shares of each class, `rule` how units are assigned, `orders` the clients' order
    in each pass (passes, J), for each hidden layer from the top. The paper's equation (11) counts
    earlier steps, so none at the first; with `crowd_first` its equation (9), which counts clients,
    is used there. New atoms follow earlier ones.
    """
    step = before.step + 1

    def matched(layer: int, units: MatchedLayer) -> Matching:
        past = before.layers[layer]
        # the layer above has got more atoms: outgoing weights to these are zeros so far
        missing = units.uniform[0].shape[1] - past.atoms.natural.shape[1]
        natural = np.pad(past.atoms.natural, ((0, 0), (0, missing)))
        padded = replace(past, atoms=replace(past.atoms, natural=natural))
        by_crowd = step == 1 and crowd_first
        return match(units, rule, orders[-1 - layer], padded, None if by_crowd else step)

    matchings = sequential_matching.match_down(networks, shares, variances, matched)
    noise = variances.noise(len(matchings))[-1]
    biases = np.stack([network[-1] for network in networks])
    layers = []
    for past, matching in zip(before.layers, reversed(matchings), strict=True):
        new = len(matching.counts) - past.members.shape[1]
        members = np.pad(past.members, ((0, 0), (0, new)))
        for client, atoms in enumerate(matching.assignments):
            members[client, atoms] += 1
        layers.append(Past(matching.atoms, members))
    bias = before.bias + (shares * biases).sum(axis=0) / noise
    precision = before.bias_precision + shares.sum(axis=0) / noise
    return Posterior(step, before.inputs, tuple(layers), bias, precision), matchings


def subsample(members: Ints, width: int, fresh: int, stream: np.random.Generator) -> Ints:
    """Draw the global units (atoms) with which a client starts `width` units, `fresh` of them new.

    Chances are proportional to `members`, in how many steps the client had each atom; if these are
    too few, all are taken. Returns indices, ascending. Source: PFNM, supplement 4.2.
    """
    held = np.flatnonzero(members)
    wanted = max(width - fresh, 0)
    if wanted < len(held):
        chances = members[held] / members[held].sum()
        held = np.sort(stream.choice(held, wanted, replace=False, p=chances))
    return held


def start_of(
    posterior: Posterior,
    client: int,
    widths: Sequence[int],
    variances: Variances,
    fresh: int,
    noise_sd: float,
    stream: np.random.Generator,
) -> UnitArrays:
    """Return the weights from which `client` trains in its next step: global units plus noise.

    Hidden layers of `widths` have first global units drawn at random, then at least `fresh` at the
    prior's mean. Normal noise (`noise_sd`) is on all but the output bias. Source: supplement 4.2.
    """
    network = posterior.network
    chosen = [
        subsample(layer.members[client], width, fresh, stream)
        for layer, width in zip(posterior.layers, widths, strict=True)
    ]
    sizes = (posterior.inputs, *widths, len(network[-1]))
    kept = [np.arange(sizes[0]), *chosen, np.arange(sizes[-1])]
    blocks: list[Array] = []
    for layer, (above, below) in enumerate(pairwise(kept)):
        weight = np.zeros(sizes[layer : layer + 2])
        weight[: len(above), : len(below)] = network[2 * layer][np.ix_(above, below)]
        bias = np.full(sizes[layer + 1], variances.bias)
        bias[: len(below)] = network[2 * layer + 1][below]
        blocks += [weight, bias]
    noisy = [block + stream.normal(0.0, noise_sd, block.shape) for block in blocks[:-1]]
    return (*noisy, blocks[-1])


def arriving(clients: Clients, step: int, steps: int, rng: RngKey) -> Clients:
    """Return the clients with only that part of their data that arrives at number `step`, from 0.

    Every client's examples are divided at random into `steps` parts of nearly equal size, always in
    the same way. Raises FedreproError if a client has fewer than `steps` examples.
    """

    def part(client: int, held: int) -> np.ndarray:
        if held < steps:
            said = f"client {client} has {held} examples, too few for a stream of {steps} steps"
            raise FedreproError(f"{said}; take fewer steps, or a partition with more min_examples")
        stream = rng.at(client=client, round=-1).stream("stream-parts")
        return np.sort(np.array_split(stream.permutation(held), steps)[step])

    return clients.with_subset(part)

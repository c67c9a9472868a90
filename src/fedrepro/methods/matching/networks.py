"""Matching whole networks: from the clients' weights to the weights of one global network.

A network is a tuple of arrays (weight0, bias0, weight1, bias1, ...), weights as inputs x outputs.
Hidden layers are matched from the top down (supplement, Algorithm 1; Propositions 3 and 4). A unit
is its bias and its outgoing weights, written over the global units of the layer above; in the
lowest hidden layer also its weights from the inputs. Other incoming weights are the outgoing ones
of the layer below, so they are averaged there. Orders and matchings are listed top layer first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.rewards import Array, Ints, posterior_mean
from fedrepro.methods.matching.running_sums import Atoms, MatchedLayer, Prior, atoms_of, no_past
from fedrepro.methods.matching.sequential_matching import Matching, Rule, match

UnitArrays = tuple[Array, ...]

LEAST_VARIANCE = 1e-100  # its inverse and the square of that are still numbers


@dataclass(frozen=True)
class Variances:
    """Variances of units' noise (sigma2) and of the prior (sigma02), and biases' prior mean.

    `layers` are factors on sigma2 for each hidden layer, the lowest first; or one for all; or two,
    for the layers below the top one and for the top one. The lowest layer is never the top one
    here: a unit of a single hidden layer has weights from the inputs, as all lowest ones do.
    """

    sigma2: float = 1.0
    sigma02: float = 10.0
    bias: float = 0.1
    layers: tuple[float, ...] = (1.0,)

    def noise(self, depth: int) -> tuple[float, ...]:
        """Return the noise of each of `depth` hidden layers, the lowest first."""
        below, top = self.layers[0], self.layers[-1]
        if len(self.layers) in (1, 2):
            factors = (below, *[below] * (depth - 2), *[top] * (depth > 1))
        elif len(self.layers) == depth:
            factors = self.layers
        else:
            raise FedreproError(
                f"sigma2_layers has {len(self.layers)} values, but the networks have {depth} "
                "hidden layers; give one for each, the lowest first, or one for all, or two, for "
                "the top layer and for all below it"
            )
        noise = tuple(self.sigma2 * factor for factor in factors)
        if min(*noise, self.sigma02) < LEAST_VARIANCE:
            raise FedreproError(
                f"variances of matching go down to {min(*noise, self.sigma02):g}, which is too "
                "near to 0 to divide by; raise sigma2, sigma2_layers or sigma02"
            )
        return noise


def networks_of(
    tensors: Mapping[str, np.ndarray], widths: Sequence[Sequence[int]] | None = None
) -> list[UnitArrays]:
    """Convert stacked tensors weight0 (J, D, L), bias0, ... to the networks of J clients, float64.

    `widths` are hidden units of each client, lowest layer first, if tensors hold more.

    Raises:
        FedreproError: For networks without biases, which are part of a unit here.
    """
    names = tensor_names(len(tensors))
    if set(names) != set(tensors):
        raise FedreproError(
            "units are matched by their weights and biases here, and these networks have no "
            "biases: train them with bias: true, or take weight_matching, ot_fusion or c2m3"
        )
    stacked = [np.asarray(tensors[name], dtype=np.float64) for name in names]
    networks: list[UnitArrays] = list(zip(*stacked, strict=True))
    if widths is None:
        return networks
    return [_narrowed(network, own) for network, own in zip(networks, widths, strict=True)]


def _narrowed(network: UnitArrays, widths: Sequence[int]) -> UnitArrays:
    """Cut each hidden layer to its first units, as many as `widths` says."""
    ends = (None, *widths, None)
    arrays: list[Array] = []
    for layer in range(len(network) // 2):
        rows, columns = slice(ends[layer]), slice(ends[layer + 1])
        arrays += [network[2 * layer][rows, columns], network[2 * layer + 1][columns]]
    return tuple(arrays)


def tensors_of(network: UnitArrays) -> dict[str, np.ndarray]:
    """Convert a network to stacked tensors of one model, float32: weight0 (1, D, L), bias0, ..."""
    names = tensor_names(len(network))
    return {
        name: value[None].astype(np.float32) for name, value in zip(names, network, strict=True)
    }


def tensor_names(count: int) -> list[str]:
    """List weight0, bias0, weight1, ..."""
    return [f"{kind}{layer}" for layer in range(count // 2) for kind in ("weight", "bias")]


def hidden_layers(network: UnitArrays) -> int:
    return len(network) // 2 - 1


def class_shares(label_counts: np.ndarray) -> Array:
    """Compute each client's share of all examples of each class; float64 (J, K).

    `label_counts` are (J, K). Columns sum to one; a class that nobody has is shared evenly, 1 / J.
    """
    counts = np.asarray(label_counts, dtype=np.float64)
    totals = counts.sum(axis=0)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), 1.0 / len(counts))


def shares_towards(label_counts: np.ndarray, by_class: bool) -> tuple[Array, Array]:
    """Compute each client's share of all examples, (J,), and of its weights to a class, (J, K).

    The latter is its share for every class, or with `by_class` its share of that class.
    """
    sizes = label_counts.sum(axis=1)
    share = sizes / sizes.sum()
    if by_class:
        return share, class_shares(label_counts)
    return share, np.tile(share[:, None], label_counts.shape[1])


def match_networks(
    networks: Sequence[UnitArrays],
    shares: Array,
    variances: Variances,
    rule: Rule,
    orders: Sequence[Ints],
    posterior: Variances | None = None,
) -> tuple[UnitArrays, tuple[Matching, ...]]:
    """Match J networks into a global one; return it and the matching of each hidden layer.

    Args:
        networks: float64, of equal depth; widths may differ.
        shares: (J, K), the precision of a client's weights to a class in units of 1 / sigma2.
        variances: Variances by which units are matched.
        rule: Parameters of the matching.
        orders: (passes, J) for each hidden layer, the top one first, as the matchings are.
        posterior: Other variances for the global network's posterior means.

    Raises:
        FedreproError: As `match`, and for variances by layer that are too few or too many.
    """
    visits = dict(zip(reversed(range(len(orders))), orders, strict=True))
    matchings = match_down(
        networks, shares, variances, lambda layer, units: match(units, rule, visits[layer])
    )
    if posterior is not None:
        matchings = as_assigned(networks, shares, posterior, matchings)
    biases = np.stack([network[-1] for network in networks])
    bias = output_bias(biases, shares, posterior or variances, hidden_layers(networks[0]))
    atoms = [matching.atoms for matching in reversed(matchings)]
    return network_of_atoms(atoms, len(networks[0][0]), bias), matchings


def as_assigned(
    networks: Sequence[UnitArrays],
    shares: Array,
    variances: Variances,
    matchings: Sequence[Matching],
) -> tuple[Matching, ...]:
    """Compute atoms of other variances for the same assignments; the top layer comes first."""
    by_layer = dict(zip(reversed(range(len(matchings))), matchings, strict=True))

    def again(layer: int, units: MatchedLayer) -> Matching:
        matching = by_layer[layer]
        return replace(
            matching, atoms=atoms_of(units, matching.assignments, matching.counts, no_past(units))
        )

    return match_down(networks, shares, variances, again)


def match_down(
    networks: Sequence[UnitArrays],
    shares: Array,
    variances: Variances,
    matched: Callable[[int, MatchedLayer], Matching],
) -> tuple[Matching, ...]:
    """Match layer after layer from the top (supplement, Algorithm 1); the top one comes first.

    matched(layer, units) matches one hidden layer, 0 being the lowest.
    """
    depth = hidden_layers(networks[0])
    noise = variances.noise(depth)
    matchings = [matched(depth - 1, top_layer(networks, shares, variances, noise[-1]))]
    for layer in reversed(range(depth - 1)):
        above = matchings[-1]
        matchings.append(
            matched(layer, inner_layer(networks, layer, above, variances, noise[layer]))
        )
    return tuple(matchings)


def top_layer(
    networks: Sequence[UnitArrays], shares: Array, variances: Variances, noise: float
) -> MatchedLayer:
    """Collect units of the highest hidden layer, whose weights to classes count by class share."""
    layer = hidden_layers(networks[0]) - 1
    uniform = tuple(_own_part(network, layer) for network in networks)
    outgoing = tuple(network[-2] for network in networks)
    mean = _prior_mean(uniform[0].shape[1], uniform[0].shape[1] - 1, variances.bias)
    prior = Prior(mean, np.zeros(outgoing[0].shape[1]), variances.sigma02)
    return MatchedLayer(uniform, outgoing, noise, shares / noise, prior)


def inner_layer(
    networks: Sequence[UnitArrays], layer: int, above: Matching, variances: Variances, noise: float
) -> MatchedLayer:
    """Collect units of a lower hidden layer, their outgoing weights over the global units above.

    Global units that a client lacks count as weights of 0, with full precision as in the authors'
    code, so the absent draw the average towards 0. Source: section 3.2 after Definition 1.
    """
    width = len(above.counts)
    uniform = []
    for network, atoms in zip(networks, above.assignments, strict=True):
        own_part, outgoing = _own_part(network, layer), network[2 * layer + 2]
        units = np.zeros((len(own_part), own_part.shape[1] + width))
        units[:, : own_part.shape[1]] = own_part
        units[:, own_part.shape[1] + atoms] = outgoing
        uniform.append(units)
    mean = _prior_mean(uniform[0].shape[1], uniform[0].shape[1] - width - 1, variances.bias)
    nothing = tuple(np.empty((len(units), 0)) for units in uniform)
    prior = Prior(mean, np.empty(0), variances.sigma02)
    return MatchedLayer(tuple(uniform), nothing, noise, np.empty((len(networks), 0)), prior)


def _own_part(network: UnitArrays, layer: int) -> Array:
    """Return units' inputs (lowest layer only) and bias, which need no layer above: (L, .)."""
    bias = network[2 * layer + 1][:, None]
    return bias if layer else np.hstack([network[0].T, bias])


def _prior_mean(dims: int, at: int, bias: float) -> Array:
    mean = np.zeros(dims)
    mean[at] = bias
    return mean


def network_of_atoms(atoms: Sequence[Atoms], inputs: int, bias: Array) -> UnitArrays:
    """Make the network of these atoms, lowest hidden layer first, and an output bias (K,).

    Weights into a layer are the outgoing weights of the atoms below it.
    """
    blocks: list[Array] = []
    for layer, units in enumerate(atoms):
        mean, bias_column = units.uniform_mean, 0 if layer else inputs
        if layer == 0:
            blocks.append(mean[:, :inputs].T)
        above = units.classed_mean if layer == len(atoms) - 1 else mean[:, bias_column + 1 :]
        blocks += [mean[:, bias_column], above]
    return (*blocks, bias)


def output_bias(biases: Array, shares: Array, variances: Variances, depth: int) -> Array:
    """Compute the posterior mean of the output bias, which needs no matching: (K,) from (J, K).

    The text is silent; as in the authors' code the prior is that of hidden biases and the
    precisions are the class shares over the variance of the top hidden layer.
    """
    noise = variances.noise(depth)[-1]
    natural = variances.bias / variances.sigma02 + (shares * biases).sum(axis=0) / noise
    precision = 1.0 / variances.sigma02 + shares.sum(axis=0) / noise
    return posterior_mean(natural, precision)

"""Arithmetic that merging methods share: solving for the weights of a layer, or averaging tensors.

Methods that average weights in each client's own metric solve one equation. For each layer, with
weights W_i (D inputs, last the bias; K outputs) of client i, share p_i, symmetric A_i, G_i:

    sum_i p_i A_i W G_i = sum_i p_i A_i W_i G_i.

A_i = G_i = I is the parameter average, G_i = I is RegMean, diagonal factors are a Fisher-weighted
average, and Kronecker factors of the Fisher information FedFisher (K-FAC) and FedLPA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels
from fedrepro.core.method_kinds import MIXED, MODULE, WHICH
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.networks.layer_matrices import layer_matrices, tensors_of_matrices
from fedrepro.networks.network import Network, widths
from fedrepro.networks.predict import network_of
from fedrepro.training.federation import fisher_and_input_moments
from fedrepro.training.federation.client_queries_and_costs import Reply
from fedrepro.training.federation.norm_statistics import mean_buffers

MODELS = {"cnn", "logistic", "mlp", MODULE}  # whose layers have matrices
UNITS = {"cnn", "mlp", MODULE}  # whose units may change places
# what methods declare that average weights in the metric of what clients answer
ANSWERED: dict[str, Any] = {
    "kind": "one_shot",
    "needs": {"example_counts", "client_answers"},
    "models": MODELS,
    "one_start": True,
    "merges": True,
}


def network_like(clients: LocalModels) -> Network:
    """Return the clients' architecture, a network without weights."""
    return network_of(clients.model, clients.shape, clients.classes)


def asking(question: str, **options: Any) -> Callable[..., list[Reply]]:
    """Return a function prepare(clients, info, *, rng) that asks each client for statistics.

    `question` names a function in `fisher_and_input_moments`, such as diagonal_fisher, and
    `options` are its keyword arguments. Prepare returns each client's result, a dict of arrays.
    """

    def prepare(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> list[Reply]:
        assert info.clients is not None
        return info.clients.query(partial(getattr(fisher_and_input_moments, question), **options))

    return prepare


def shares_of(info: ClientInfo) -> np.ndarray:
    """Return each client's share p_i of all training examples, float64 (J,)."""
    assert info.example_counts is not None
    return np.asarray(info.example_counts / info.example_counts.sum())


def merge_layers(
    clients: LocalModels, share: np.ndarray, layer: Callable[[str, np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """Merge the clients' networks layer by layer into one, float32 tensors (1, *shape).

    layer(weight's name, matrices) merges (J, D, K) to (D, K); `share` (J,) averages other tensors.
    """
    layers = layer_matrices(network_like(clients))
    made = tensors_of_matrices(layers, {m.key: layer(m.key, m.of(clients.tensors)) for m in layers})
    return mean_of_rest(clients, share, {name: value[None] for name, value in made.items()})


def mean_of_rest(
    clients: LocalModels, share: np.ndarray, made: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Complete merged tensors `made` (1, *shape): others are the clients' means by `share` (J,)."""
    network = network_like(clients)
    tensors = dict(made)
    for name in network.shapes:
        if name not in tensors and name not in network.buffers:
            tensors[name] = mean_of(clients.tensors[name], share)[None]
    tensors |= mean_buffers(network, clients.tensors, share)
    return {name: np.ascontiguousarray(tensors[name], np.float32) for name in network.shapes}


def with_mean_buffers(clients: LocalModels, share: np.ndarray, made: GlobalModel) -> GlobalModel:
    """Return model `made`; buffers of a torch module, as running means, are averaged by `share`."""
    if MODULE not in clients.model.component.meta:
        return made
    network = network_like(clients)
    return replace(made, tensors={**made.tensors, **mean_buffers(network, clients.tensors, share)})


def of_one_form(clients: LocalModels, info: ClientInfo) -> tuple[LocalModels, ClientInfo]:
    """Keep only clients of the most common architecture and widths, in `clients` and `info`."""
    if clients.model.name == MIXED:
        kind = clients.tensors[WHICH].argmax(axis=1)
        k = int(np.bincount(kind).argmax())
        spec = clients.model.component.meta["specs"][k]
        members = np.flatnonzero(kind == k)
        mark = f"{k}."
        own = {n.removeprefix(mark): v for n, v in clients.tensors.items() if n.startswith(mark)}
    elif clients.widths:
        widths = max(clients.widths, key=clients.widths.count)
        members = np.flatnonzero([own == widths for own in clients.widths])
        spec = clients.model.component.spec({**clients.model.values, "hidden": widths})
        own = {
            name: clients.tensors[name][(slice(None), *map(slice, shape))]
            for name, shape in network_of(spec, clients.shape, clients.classes).shapes.items()
        }
    else:
        return clients, info
    counts = info.example_counts
    if counts is not None:  # equal shares, if these clients have no examples
        counts = counts[members] + (not counts[members].any())
    some = replace(info, example_counts=counts)
    tensors = {name: value[members] for name, value in own.items()}
    return replace(clients, model=spec, tensors=tensors, widths=None), some


def stacked(answers: Sequence[Mapping[str, np.ndarray]], name: str) -> np.ndarray:
    """Stack the array `name` of each client's `answers`, a dict of arrays per client: (J, …)."""
    return np.stack([answer[name] for answer in answers])


def as_model(
    clients: LocalModels, tensors: Mapping[str, np.ndarray], left: float | None = None
) -> GlobalModel:
    """Return merged tensors (1, *shape) as a model; its metric is a solver's residual `left`."""
    diagnostics = {} if left is None else {"residual_left": left}
    return GlobalModel(clients.model, tensors, diagnostics=diagnostics)


Array = np.ndarray
EXHAUSTED = 1e-12  # of what the first vector becomes: nothing new in the next one


def mean_of(weights: Array, share: Array) -> Array:
    """Return the weighted mean sum_i p_i W_i of arrays W (J, …) by shares p (J,), float64 (…)."""
    return np.asarray(np.tensordot(share, weights.astype(np.float64), 1))


def regression_mean(weights: Array, inputs: Array, share: Array, ridge: float = 0.0) -> Array:
    """Merge a layer by regression on its inputs, as RegMean does: float64 (D, K).

    (sum_i p_i A_i + λ I)⁻¹ (sum_i p_i A_i W_i + λ W̄), with `weights` W_i (J, D, K), second moments
    of `inputs` A_i (J, D, D), `share` p (J,), W̄ = sum_i p_i W_i, and λ `ridge` times the
    diagonal's mean. If the inverse does not exist, the result is the solution nearest to W̄.
    """
    start = mean_of(weights, share)
    whole = mean_of(inputs, share)
    moments = inputs.astype(np.float64)
    apart = [p * a @ (w - start) for p, a, w in zip(share, moments, weights, strict=True)]
    whole[np.diag_indices_from(whole)] += ridge * np.trace(whole) / len(whole)
    return np.asarray(start + _solved(whole, np.sum(apart, axis=0)))


def _solved(matrix: Array, wanted: Array) -> Array:
    """Solve matrix · X = wanted for a symmetric matrix; if it is singular, by the shortest X."""
    if not (np.isfinite(matrix).all() and np.isfinite(wanted).all()):
        return np.full_like(wanted, np.nan)
    import scipy.linalg  # planning, which lists the methods, must not wait for it

    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True)
        solution: Array = scipy.linalg.cho_solve(factor, wanted)
    except np.linalg.LinAlgError:
        solution = np.linalg.pinv(matrix, hermitian=True) @ wanted
    return solution


def expectation_mean(inputs: Array, errors: Array, pull: Array, share: Array) -> Array:
    """Approximate the solution W, float64 (D, K), of sum_i p_i A_i W G_i = pull, to merge a layer.

    The result is (sum_i p_i A_i)⁻¹ pull (sum_i p_i G_i)⁻¹, exact if all A_i, or all G_i, are equal.
    `inputs`: A (J, D, D); `errors`: G (J, K, K); `share`: p (J,); `pull`: sum_i p_i A_i W_i G_i.
    """
    return np.asarray(_solved(mean_of(errors, share), _solved(mean_of(inputs, share), pull).T).T)


def plain_descent(
    applied: Callable[[Array], Array], start: Array, pull: Array, steps: int, basis: int = 400
) -> Array:
    """Run gradient descent for W on the mean of (applied(W) - pull)²; return the weights W.

    `applied` is a symmetric linear map, `pull` the result to reach, of W's shape. All `steps` steps
    of rate 1 are summed at once: W = start + φ(applied) r, with r = pull - applied(start), φ(λ) =
    (1 - (1 - c λ²)^steps) / λ and c = 2 / W.size, by Lanczos' method with at most `basis` vectors.
    """
    import scipy.linalg

    residual = pull - applied(start)
    length = float(np.linalg.norm(residual))
    if not (steps and length):
        return start.copy()
    space = np.empty((min(basis, start.size) + 1, start.size))
    space[0], diagonal, off_diagonal = residual.reshape(-1) / length, [], []
    for index, vector in enumerate(space[:-1]):
        turned = applied(vector.reshape(start.shape)).reshape(-1)
        diagonal.append(float(turned @ vector))
        for _ in range(2):  # once is not enough for rounding
            turned -= (space[: index + 1] @ turned) @ space[: index + 1]
        off_diagonal.append(float(np.linalg.norm(turned)))
        if not off_diagonal[-1] > EXHAUSTED * abs(diagonal[0]):
            break
        space[index + 1] = turned / off_diagonal[-1]
    if not np.isfinite([*diagonal, *off_diagonal]).all():
        return np.full_like(start, np.nan)
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal[: len(diagonal) - 1])
    values = np.maximum(values, EXHAUSTED * abs(diagonal[0]))
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (1 - (1 - 2 / start.size * values**2) ** steps) / values
        along = vectors @ (moved * vectors[0]) * length
        weights: Array = start + (along @ space[: len(along)]).reshape(start.shape)
    return weights


def applied_of(inputs: Array, errors: Array, share: Array) -> Callable[[Array], Array]:
    """Return the function W -> sum_i p_i A_i W G_i, of `inputs` A, `errors` G and `share` p."""
    a, g = inputs.astype(np.float64), errors.astype(np.float64)

    def applied(value: Array) -> Array:
        parts = (p * (left @ value @ right) for p, left, right in zip(share, a, g, strict=True))
        return np.asarray(sum(parts))

    return applied


def conjugate_gradients(
    applied: Callable[[Array], Array], start: Array, residual: Array, steps: int, tolerance: float
) -> tuple[Array, float]:
    """Solve a symmetric semi-definite linear system by conjugate gradients from `start`.

    `applied` is its left side, `residual` the right side minus applied(start). Stops after `steps`,
    or at a residual `tolerance` times as long as at first. Returns the solution and this ratio.
    """
    x, direction = start + 0 * residual, residual.copy()  # NaN stays NaN
    first = square = float((residual * residual).sum())
    for _ in range(steps):
        if not square > tolerance**2 * first:
            break
        turned = applied(direction)
        along = float((direction * turned).sum())
        if not along > 0:  # a direction that nobody has an opinion on, up to rounding
            break
        x += square / along * direction
        residual = residual - square / along * turned
        before, square = square, float((residual * residual).sum())
        direction = residual + square / before * direction
    return x, float(np.sqrt(square / first)) if first > 0 else 0.0


def fisher_mean(weights: Array, information: Array, share: Array, floor: float = 0.0) -> Array:
    """Average weights by Fisher information: sum_i p_i F_i w_i / sum_i p_i F_i, elementwise.

    `weights` w_i and `information` F_i are (J, …), `share` p is (J,); F_i is at least `floor`.
    Where F_i is 0 for all clients i, the result is the mean by `share`.
    """
    floored = np.maximum(information.astype(np.float64), floor)
    whole, average = mean_of(floored, share), mean_of(weights, share)
    apart = mean_of(floored * (weights - average), share)
    return np.asarray(average + np.divide(apart, whole, out=np.zeros_like(apart), where=whole != 0))


def fisher_descent(
    gradient: Callable[[Array], Array], start: Array, steps: int, rate: float, within: bool
) -> Array:
    """Run FedFisher's descent with momentum from `start`, by `steps` steps of size `rate` η.

    m = v + 0.9 m, s = v² + 0.99 s, w = w - η m / (√s + 0.01), where v is `gradient` at w; with
    `within`, 0.01 is added inside the root, as for Kronecker factors. Source: the authors' code; m
    and s are not damped sums, so this is not Adam.
    """
    x, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for _ in range(steps):
        v = gradient(x)
        mean, square = v + 0.9 * mean, v * v + 0.99 * square
        x -= rate * mean / (np.sqrt(square + 0.01) if within else np.sqrt(square) + 0.01)
    return x


Units = Annotated[
    int | None,
    Arg("units of each hidden layer, none for as many as a client has", "units", least=1),
]


def target_widths(clients: LocalModels, units: int | None) -> tuple[int, ...]:
    """Return a merged network's hidden widths: `units` each; if None the clients' largest ones."""
    client_widths = widths(clients.tensors)
    return client_widths if units is None else (units,) * len(client_widths)


def has_enough_units(clients: LocalModels, units: int | None) -> bool:
    """Return whether all clients together have `units` units in each hidden layer (None: True)."""
    each = zip(target_widths(clients, units), widths(clients.tensors), strict=True)
    return all(wanted <= clients.clients * held for wanted, held in each)

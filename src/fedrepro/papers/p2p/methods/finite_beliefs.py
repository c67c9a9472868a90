"""Algorithm 1 of P2P on a finite set of parameters, and the promises of theorem 1.

A. Lalitha, O. C. Kilinc, T. Javidi, F. Koushanfar. Peer-to-peer federated learning on graphs. 2019,
sections 3 and 4. The paper has no experiment on its theorem; this one is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import Simulated, method
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.metrics import Metric
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.papers.p2p.beliefs.bounds import (
    Problem,
    corrected_bound,
    least_rate,
    printed_bound,
    second_eigenvalue,
)
from fedrepro.papers.p2p.beliefs.finite import Array, averaged, learnt, uniform
from fedrepro.training.graphs import mixing_sum, second_modulus, stationary, weights_of

BITS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # the parameters; (M, 2)
TRUTH = 3  # by symmetry it does not matter which
ONE = np.array([0.3, 0.7])  # probability of a one where the bit is 0, and where it is 1
METRICS = {
    "error": Metric("repeats in which a node is wrong", "share of repeats", 0, 1, -1),
    "samples_needed": Metric(
        "samples of a node until errors are as rare as asked for", "samples", 0, None, -1
    ),
    "bound_printed": Metric("bound of theorem 1 as printed", "samples", 0, None, 0),
    "bound_corrected": Metric("bound of theorem 1, mended", "samples", 0, None, 0),
    "error_at_printed": Metric(
        "repeats in which a node is wrong at the printed bound", "share of repeats", 0, 1, -1
    ),
    "error_at_corrected": Metric(
        "repeats in which a node is wrong at the mended bound", "share of repeats", 0, 1, -1
    ),
    "modulus": Metric("second largest modulus of the weights", "", 0, 1, -1),
}

Graph = Literal["matrix", "complete", "ring", "star", "grid", "small_world"]


@method("finite_beliefs", kind="simulation", paper="p2p", label="Algorithm 1", metrics=METRICS)
def finite_beliefs(
    *,
    rng: RngKey,
    graph: Annotated[Graph, Arg("the graph of the nodes, with its usual weights")] = "matrix",
    rows: Annotated[
        tuple[str, ...], Arg("of graph 'matrix': what each node makes of all, joined by _")
    ] = ("0.25_0.75", "0.75_0.25"),
    nodes: Annotated[int, Arg("nodes of the graph, N", "nodes", least=2)] = 2,
    steps: Annotated[
        int | None,
        Arg("samples of a node; none: the corrected bound", "samples", least=1),
    ] = None,
    delta: Annotated[
        float, Arg("probability of an error at any node that is allowed", above=0, most=1)
    ] = 0.05,
    repeats: Annotated[int, Arg("of all of it in a trial", least=1)] = 2000,
) -> Simulated:
    """Let nodes that see one bit each learn two; count errors, and compute bounds.

    Node i sees coins that show a one with probability 0.7 if bit i mod 2 is 1, else 0.3; the set
    has the four values of both bits, and the prior is uniform. A node that believes two of them
    equally is wrong. Source: P2P, algorithm 1 and theorem 1.
    """
    weights = _weights(graph, rows, nodes, rng)
    bits = np.arange(nodes) % 2
    bounds = _bounds(weights, bits, delta)
    last = steps or math.ceil(bounds["bound_corrected"])
    errors = _errors(weights, _likelihoods(bits), last, repeats, rng)
    due = [step for step in range(1, last + 1) if EvaluationSchedule(None).is_due(step, last)]
    return Simulated(
        {step: {"error": float(errors[step - 1])} for step in due},
        {
            **bounds,
            **_at_bounds(errors, bounds),
            "samples_needed": _needed(errors, delta),
            "modulus": round(second_modulus(weights), 12),
        },
    )


def _weights(graph: Graph, rows: tuple[str, ...], nodes: int, rng: RngKey) -> Array:
    values = {"rows": list(rows)} if graph == "matrix" else {}
    return weights_of(components("graph")[graph].spec(values), nodes, rng)


def _likelihoods(samples: np.ndarray) -> Array:
    """log l of a zero and of a one at each node under each parameter, (N, 2, M)."""
    ones = ONE[BITS[:, samples]].T
    logs: Array = np.log(np.stack([1 - ones, ones], axis=1))
    return logs


def _errors(weights: Array, likelihoods: Array, steps: int, repeats: int, rng: RngKey) -> Array:
    """Return the share of repeats in which some node is wrong after each step, (steps,)."""
    nodes = np.arange(len(weights))
    draws = rng.stream("finite-beliefs")
    beliefs = uniform((repeats, len(weights), len(BITS)))
    shares = np.empty(steps)
    for step in range(steps):
        seen = (draws.random((repeats, len(weights))) < ONE[1]).astype(np.int64)
        # beliefs need not be normalised to be the same (P2P, section 5.2.1)
        beliefs = averaged(weights, beliefs + likelihoods[nodes, seen])
        shares[step] = 1 - learnt(beliefs, TRUTH).all(axis=-1).mean()
    return shares


def _bounds(weights: Array, own: np.ndarray, delta: float) -> dict[str, float]:
    """Both bounds. All nodes see a coin like the truth's, so that evidence is KL(0.7 || 0.3)."""
    most = math.log(ONE[1] / ONE[0])
    wrong = np.delete(BITS, TRUTH, axis=0)
    evidence = (ONE[1] - ONE[0]) * most * (wrong[:, own] != BITS[TRUTH, own]).T
    rate = least_rate(stationary(weights), evidence)
    problem = Problem(len(weights), len(BITS), most, rate, delta)
    return {
        "bound_printed": printed_bound(problem, second_eigenvalue(weights)),
        "bound_corrected": corrected_bound(problem, mixing_sum(weights)),
    }


def _at_bounds(errors: Array, bounds: Mapping[str, float]) -> dict[str, float]:
    """How often a node is wrong at each bound that is within reach."""
    samples = {
        f"error_at_{name.removeprefix('bound_')}": math.ceil(n) for name, n in bounds.items()
    }
    return {name: float(errors[n - 1]) for name, n in samples.items() if n <= len(errors)}


def _needed(errors: Array, delta: float) -> float:
    """Return the first number of samples with errors within delta; infinite if there is none.

    Ties make even numbers of samples worse than odd ones, so that a few after it may not be.
    """
    within = np.flatnonzero(errors <= delta)
    return int(within[0]) + 1 if within.size else math.inf

"""Algorithm 1 of P2P on a finite set of parameters, and the samples that theorem 1 requires.

A. Lalitha, O. C. Kilinc, T. Javidi, F. Koushanfar. Peer-to-peer federated learning on graphs. 2019,
sections 3 and 4. The paper has no experiment on its theorem; this one is ours. Beliefs are arrays
(..., N, M) float64 of log-probabilities of M parameters at N nodes; leading axes are independent
repeats, all computed at once.

The printed bound is 16 C log(NM/delta) / (K^2 (1 - lambda)) with C = |log(L/alpha)|, the largest
difference between log-likelihoods of two parameters, and lambda the second largest eigenvalue of
the mixing matrix W. Four steps of its proof do not hold:

- A log-likelihood ratio within [-C, C] has a range of 2C, so that McDiarmid's inequality gives
  exp(-eps^2 n / (8 C^2)): C has to be squared.
- The rate at which W converges is given by the second largest modulus. An eigenvalue of -0.5 makes
  1 - lambda 1.5. Even by the modulus, 4 log N / (1 - lambda) does not bound every W; the sum that
  it stands for, S_W = max_i sum_k sum_j |(W^k)_ij - v_j|, can be computed.
- Merging the two conditions on the number of samples n needs K <= 1.
- For every wrong parameter's belief to be below 1/(2M), n >= 2 log(2M) / K is needed as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrepro.api import Simulated, method
from fedrepro.core.evaluation_schedule_and_successive_halving import EvaluationSchedule
from fedrepro.core.metrics import Metric
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.mixing_matrices import mixing_sum, second_modulus, stationary, weights_of

Array = NDArray[np.float64]

TIE = 1e-9  # logarithms that differ less count as equal


def mixed_beliefs(weights: Array, beliefs: Array) -> Array:
    """Average each node's log-beliefs with its neighbours' by `weights` (N, N): sum_j W_ij log b_j.

    `beliefs` are log-probabilities (..., N, M) of M parameters at N nodes; rows of `weights` sum to
    one. The result is not normalised. Source: P2P, equation (3).
    """
    # one product for all repeats
    return np.moveaxis(np.tensordot(weights, beliefs, axes=(1, -2)), 0, -2)


def learnt(beliefs: Array, truth: int) -> NDArray[Any]:
    """Return for each node whether its most probable parameter is the true one: (..., N) bool.

    `beliefs` are log-probabilities (..., N, M) of M parameters at N nodes, and `truth` is the index
    of the true parameter. A tie with another parameter counts as an error.
    """
    true_belief = beliefs[..., truth]
    rivals = [beliefs[..., other] for other in range(beliefs.shape[-1]) if other != truth]
    return np.asarray(true_belief > np.maximum.reduce(rivals) + TIE)


@dataclass(frozen=True)
class Problem:
    """Numbers on which the bounds of P2P's theorem 1 on samples depend, besides the graph.

    nodes: their number N. parameters: number M of values that nodes tell apart. range: C, the
    largest difference between log-likelihoods of two parameters. rate: K, the least mean evidence
    of a sample against a wrong parameter, in nats. delta: allowed probability that any node errs.
    """

    nodes: int
    parameters: int
    range: float
    rate: float
    delta: float

    @property
    def log_cases(self) -> float:
        """Return log(NM/delta), a factor of the printed and of the corrected bound on samples."""
        return math.log(self.nodes * self.parameters / self.delta)


def printed_bound(problem: Problem, eigenvalue: float) -> float:
    """Compute how many samples per node P2P's theorem 1 requires as printed, equation (4).

    `eigenvalue` is the second largest eigenvalue of the mixing matrix W.
    """
    return 16 * problem.range * problem.log_cases / (problem.rate**2 * (1 - eigenvalue))


def corrected_bound(problem: Problem, mixing: float) -> float:
    """Compute how many samples per node P2P's theorem 1 requires, by a corrected proof.

    `mixing` is S_W = max_i sum_k sum_j |(W^k)_ij - v_j|, how slowly averaging by the mixing matrix
    W converges to its stationary distribution v. Priors are uniform.
    """
    c, k = problem.range, problem.rate
    return max(
        4 * c * mixing / k,
        32 * c**2 * problem.log_cases / k**2,
        2 * math.log(2 * problem.parameters) / k,
    )


BITS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # the parameters, (M, 2): values of both bits
TRUTH = 3  # index of the true parameter; by symmetry any will do
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
    graph: Annotated[Graph, Arg("graph of the nodes, with default weights")] = "matrix",
    rows: Annotated[
        tuple[str, ...],
        Arg("for graph 'matrix': the weights that each node gives to all nodes, joined by _"),
    ] = ("0.25_0.75", "0.75_0.25"),
    nodes: Annotated[int, Arg("number of nodes, N", "nodes", least=2)] = 2,
    steps: Annotated[
        int | None, Arg("samples of a node, none for the corrected bound", "samples", least=1)
    ] = None,
    delta: Annotated[
        float, Arg("allowed probability of an error at any node", above=0, most=1)
    ] = 0.05,
    repeats: Annotated[int, Arg("repetitions of the simulation in a trial", least=1)] = 2000,
) -> Simulated:
    """Simulate nodes on a graph that each observe one of two bits and learn both; count errors.

    Node i sees coin flips, a one with probability 0.7 if bit number i mod 2 is 1, else 0.3. Beliefs
    are over the four values of both bits, from a uniform prior; a tie is an error. The bounds of
    theorem 1 on the samples needed are computed too. Source: P2P, algorithm 1 and theorem 1.
    """
    values = {"rows": list(rows)} if graph == "matrix" else {}
    drawn = components("graph")[graph].meta.get("random")  # bounds differ between trials
    weights = weights_of(components("graph")[graph].spec(values), nodes, rng)
    bits = np.arange(nodes) % 2
    bounds = _bounds(weights, bits, delta)
    last = steps or math.ceil(bounds["bound_corrected"])
    errors = _errors(weights, bits, last, repeats, rng)
    due = [step for step in range(1, last + 1) if EvaluationSchedule(None).is_due(step, last)]
    # the first; ties make even numbers of samples worse, so a few later ones may be above delta
    within = np.flatnonzero(errors <= delta)
    ended = bounds | {
        f"error_at_{name.removeprefix('bound_')}": float(errors[math.ceil(bound) - 1])
        for name, bound in bounds.items()
        if math.ceil(bound) <= last and not drawn
    }
    ended["samples_needed"] = int(within[0]) + 1 if within.size else math.inf
    ended["modulus"] = round(second_modulus(weights), 12)
    return Simulated({step: {"error": float(errors[step - 1])} for step in due}, ended)


def _errors(weights: Array, bits: np.ndarray, steps: int, repeats: int, rng: RngKey) -> Array:
    """Return the share of `repeats` runs with an error at a node after each step, (steps,)."""
    # log l of a zero and of a one at each node under each parameter, (N, 2, M)
    ones = ONE[BITS[:, bits]].T
    likelihoods = np.log(np.stack([1 - ones, ones], axis=1))
    nodes = np.arange(len(weights))
    draws = rng.stream("finite-beliefs")
    beliefs = np.full((repeats, len(weights), len(BITS)), -np.log(len(BITS)))
    shares = np.empty(steps)
    for step in range(steps):
        seen = (draws.random((repeats, len(weights))) < ONE[1]).astype(np.int64)
        # beliefs are not normalised, which changes no result (P2P, section 5.2.1)
        beliefs = mixed_beliefs(weights, beliefs + likelihoods[nodes, seen])
        shares[step] = 1 - learnt(beliefs, TRUTH).all(axis=-1).mean()
    return shares


def _bounds(weights: Array, own: np.ndarray, delta: float) -> dict[str, float]:
    """Compute the printed and the corrected bound on samples for mixing matrix `weights` (N, N)."""
    most = math.log(ONE[1] / ONE[0])
    wrong = np.delete(BITS, TRUTH, axis=0)
    evidence = (ONE[1] - ONE[0]) * most * (wrong[:, own] != BITS[TRUTH, own]).T
    rate = float((stationary(weights) @ evidence).min())  # K, of the worst parameter
    problem = Problem(len(weights), len(BITS), most, rate, delta)
    # the second largest real part of an eigenvalue, for equation (4)
    second = float(np.sort(np.linalg.eigvals(weights).real)[-2])
    return {
        "bound_printed": printed_bound(problem, second),
        "bound_corrected": corrected_bound(problem, mixing_sum(weights)),
    }

"""Adaptive hyper-parameters: a distribution over a grid, moved by the rewards of past rounds.

Representation matching with adaptive hyper-parameters (RM), section 3. Learning rate and local
steps of a round are drawn from a discrete Gaussian over the grid; its mean and precision then move
towards values with higher rewards. The paper prints descent in equations (6), (7) and algorithm 1,
line 18; rewards should grow, so this is ascent (erratum E6). The state is plain float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from fedrepro.api import ClientInfo, Report, State, Traffic, method
from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.metrics import FLOAT_BYTES, Metric
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import fedavg_variants_and_base_classes as fedavg
from fedrepro.papers.rm.methods.representation_matching import MODELS, MatchingRounds

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients
    from fedrepro.training.loss_terms import Term, WeightTerm


Layout = Literal["positions", "values", "log"]

# bounds of the precision along an axis, whose length is one
LEAST_PRECISION, MOST_PRECISION = 2.0, 200.0


@dataclass(frozen=True)
class GridAxis:
    """The candidate values of one hyper-parameter, and their coordinates in [-0.5, 0.5], mean zero.

    Coordinates are (x - mean) / (2 max |x - mean|). `positions` says what x is: the values' ranks
    ("positions"), the values themselves ("values"), or their logarithms ("log"). `given` lists the
    values; fewer than two, or equal ones, raise FedreproError.
    """

    name: str
    given: Sequence[float]
    positions: Layout = "positions"

    def __post_init__(self) -> None:
        if len(self.given) < 2:
            raise FedreproError(
                f"'{self.name}' is an axis of a grid with the value {self.given[0]:g} alone, "
                "which leaves nothing to adapt; give two or more"
            )
        if len(set(self.given)) < len(self.given):
            said = f"'{self.name}' is an axis of a grid and lists a value twice"
            raise FedreproError(f"{said}: {shown([*self.given])}; take one out")

    @cached_property
    def values(self) -> np.ndarray:
        """Return the candidate values of the hyper-parameter in ascending order: float64 (n,)."""
        return np.sort(np.asarray(self.given, np.float64))

    @cached_property
    def scaled(self) -> np.ndarray:
        """Return the candidate values, or with `positions` "log" their logarithms: float64 (n,)."""
        return np.log(self.values) if self.positions == "log" else self.values

    @cached_property
    def places(self) -> np.ndarray:
        """Compute each candidate value's coordinate in [-0.5, 0.5]: float64 (n,), ascending."""
        x = np.arange(len(self.values)) if self.positions == "positions" else self.scaled
        gap = x - x.mean()
        return np.asarray(gap / (2 * np.abs(gap).max()))

    def real(self, place: float) -> float:
        """Compute the hyper-parameter at coordinate `place`, interpolated between grid values."""
        between = float(np.interp(place, self.places, self.scaled))
        return float(np.exp(between)) if self.positions == "log" else between


@dataclass(frozen=True)
class DiscreteGaussian:
    """Distribution P(h) ∝ exp(-½ (h - mean)ᵀ A (h - mean)) over grid points h, A = diag(exp(s)).

    points: coordinates h of the grid points, float64 (n, D) for D hyper-parameters. mean,
    log_precision (s): float64 (D,). The hyper-parameters of a round are drawn from P.
    """

    points: np.ndarray
    mean: np.ndarray
    log_precision: np.ndarray

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Compute the log-probability of each of the n grid points: float64 (n,)."""
        exponent = -0.5 * (self.points - self.mean) ** 2 @ np.exp(self.log_precision)
        exponent -= exponent.max()
        return np.asarray(exponent - np.log(np.exp(exponent).sum()))

    def draw(self, rng: RngKey) -> int:
        """Draw a grid point by its probability, and return its index; `rng` determines the draw."""
        ends = np.exp(self.log_probabilities).cumsum()
        drawn = rng.stream("hyper-parameters").random() * ends[-1]
        return int(np.searchsorted(ends, drawn, side="right"))

    def score(self, point: int) -> np.ndarray:
        """Compute the gradient of log P(grid point `point`) along mean, then s: float64 (2 D,).

        For coordinates h of the point: A (h - E[h']), then ½ exp(s_d) (E[(h'_d - mean_d)²] -
        (h_d - mean_d)²). E[h'] is over the grid; as that is finite, it differs from `mean`.
        """
        share, precision = np.exp(self.log_probabilities), np.exp(self.log_precision)
        gaps = self.points - self.mean
        by_mean = precision * (gaps[point] - share @ gaps)
        by_spread = 0.5 * precision * (share @ gaps**2 - gaps[point] ** 2)
        return np.concatenate([by_mean, by_spread])


def window_step(rewards: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Compute the direction sum_τ (r_τ - mean r) score_τ of a step along rewards, (K,).

    `rewards` r are (m,), of the last m rounds. `scores` (m, K) are the gradients of log P of each
    round's drawn hyper-parameters, along K parameters of the distribution P. Source: RM, eq. (7).
    """
    return np.asarray((rewards - rewards.mean()) @ scores)


def reward_of(before: float, after: float) -> float:
    """Return the reward of a round, the share by which the server's loss fell, clipped to [-1, 1].

    It is (before - after) / before, or -1 if the loss `after` the round is not finite.
    """
    if not np.isfinite(after):
        return -1.0
    fall = (before - after) / max(before, float(np.finfo(np.float64).tiny))
    return float(np.clip(fall, -1.0, 1.0))


@dataclass(frozen=True)
class Search:
    """A search over a grid of hyper-parameters by a distribution that moves along rewards.

    axes: the hyper-parameters. rate: step size eta_H. window: Z; an update uses the last Z + 1
    rewards. precision: the distribution's inverse variance along every axis at the start.
    """

    axes: tuple[GridAxis, ...]
    rate: float
    window: int
    precision: float

    @cached_property
    def points(self) -> np.ndarray:
        """Return the coordinates of all grid points: float64 (n, D), the last axis fastest."""
        return np.array(list(itertools.product(*(axis.places for axis in self.axes))))

    def start(self) -> dict[str, Any]:
        """Return the state before round 1: mean 0, log_precision, rewards and scores (none yet)."""
        count = len(self.axes)
        return {
            "mean": np.zeros(count),
            "log_precision": np.full(count, np.log(self.precision)),
            "rewards": np.zeros(0),
            "scores": np.zeros((0, 2 * count)),
        }

    def distribution(self, state: dict[str, Any]) -> DiscreteGaussian:
        """Return the distribution in `state`, from which a round's hyper-parameters are drawn."""
        return DiscreteGaussian(self.points, state["mean"], state["log_precision"])

    def setting(self, point: int) -> list[float]:
        """Return the value of each hyper-parameter at point number `point` of the search's grid."""
        place = np.unravel_index(point, [len(axis.values) for axis in self.axes])
        return [float(axis.values[i]) for axis, i in zip(self.axes, place, strict=True)]

    def mean(self, state: dict[str, Any]) -> list[float]:
        """Return the mean in `state` as the hyper-parameters' values, interpolated on the grid."""
        return [axis.real(place) for axis, place in zip(self.axes, state["mean"], strict=True)]

    def after(self, state: dict[str, Any], point: int, reward: float) -> dict[str, Any]:
        """Return the search's state after a round with grid point number `point` and its `reward`.

        Mean and log-precision move by rate · sum (r - mean r) grad log P over the last window + 1
        rewards. The mean is clipped to the grid, precisions to [2, 200].
        """
        last = slice(-(self.window + 1), None)
        score = self.distribution(state).score(point)
        rewards = np.append(state["rewards"], reward)[last]
        scores = np.vstack([state["scores"], score])[last]
        by_mean, by_spread = np.split(self.rate * window_step(rewards, scores), 2)
        low, high = self.points.min(0), self.points.max(0)
        limits = np.log([LEAST_PRECISION, MOST_PRECISION])
        return {
            "mean": np.clip(state["mean"] + by_mean, low, high),
            "log_precision": np.clip(state["log_precision"] + by_spread, *limits),
            "rewards": rewards,
            "scores": scores,
        }


NEEDS = {*fedavg.NEEDS, "server_validation"}

METRICS = {
    "mean_lr": Metric("learning rate at the mean of its distribution", "", 0, None, 0),
    "mean_steps": Metric("local steps at the mean of their distribution", "steps", 0, None, 0),
    "sampled_lr": Metric("learning rate drawn for the round", "", 0, None, 0),
    "sampled_steps": Metric("local steps drawn for the round", "steps", 0, None, 0),
    "reward": Metric("share by which the server's loss fell in a round", "share", -1, 1, 0),
}

LRS = (0.02, 0.04, 0.08, 0.16, 0.32)


@method(
    "adaptive_fedavg", kind="federated", needs=NEEDS, paper="rm", label="FA+AH", metrics=METRICS
)
@dataclass(kw_only=True)
class AdaptiveFedAvg(fedavg.Averaging):
    """FedAvg with learning rate and local steps drawn from an adaptive distribution P over a grid.

    psi = psi + meta_lr sum_{tau=t-Z}^{t} (r_tau - mean r) grad log P(h_tau), with psi the mean and
    log-precision of P, a discrete Gaussian, h_tau the values drawn in round tau, and the reward
    r_t = (L_t - L_{t+1}) / L_t of the server's validation cross-entropy L. Source: RM, eq. (7).
    """

    entropy: fedavg.EntropyShare = 0.0
    least_entropy: fedavg.LeastEntropy = 2.0
    lrs: Annotated[tuple[float, ...], Arg("learning rates of the grid", above=0)] = LRS
    step_counts: Annotated[
        tuple[int, ...],
        Arg("numbers of local minibatches in a round, of the grid", "minibatches", least=1),
    ] = (10, 20, 30, 40)
    positions: Annotated[
        Layout, Arg("how an axis is mapped to [-0.5, 0.5]: by ranks, values, or logarithms")
    ] = "positions"
    meta_lr: Annotated[
        float, Arg("step size of the distribution over settings, eta_H", least=0)
    ] = 0.01
    window: Annotated[int, Arg("number of earlier rewards that an update uses, Z", least=0)] = 5
    precision: Annotated[
        float, Arg("initial precision on both axes", least=LEAST_PRECISION, most=MOST_PRECISION)
    ] = 20.0

    def __post_init__(self) -> None:
        if self.batchnorm == "local":
            said = "the server has no BatchNorm layers to measure rewards with"
            raise FedreproError(f"{said}: let batchnorm be average or recalibrate")
        given = {"lrs": self.lrs, "step_counts": self.step_counts}
        axes = tuple(GridAxis(name, values, self.positions) for name, values in given.items())
        self.search = Search(axes, self.meta_lr, self.window, self.precision)

    def terms(self) -> list[Term | WeightTerm]:
        """Return loss terms that clients add to cross-entropy: `Entropy`, [] if `entropy` is 0."""
        return fedavg.entropy(self.entropy, self.least_entropy)

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: weights, the search's state, the server's loss L_1."""
        start = super().init(clients, info, rng)
        loss = _server_loss(start["weights"], clients, info)
        return {**start, "search": self.search.start(), "loss": loss}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Run a round: draw learning rate and local steps, train, average, update the distribution.

        Global weights stay as they were if all clients diverged or the new loss is not finite.
        """
        search = state["search"]
        point = self.search.distribution(search).draw(rng)
        lr, steps = self.search.setting(point)
        new = self.averaged(state, clients, info, rng, lr=lr, steps=round(steps)) or {}
        # each client receives both hyper-parameters with the model
        clients.ledger.sent(Traffic(bytes_down=2 * FLOAT_BYTES * clients.ledger.selected))
        loss = _server_loss(new["weights"], clients, info) if new else float("nan")
        if not np.isfinite(loss):
            # tensors that clients keep are updated nevertheless
            new = {key: value for key, value in new.items() if key not in ("weights", "server")}
        after = {
            **state,
            **new,
            "search": self.search.after(search, point, reward_of(state["loss"], loss)),
            "loss": loss if np.isfinite(loss) else state["loss"],
        }
        reward = float(after["search"]["rewards"][-1])
        numbers = (*self.search.mean(search), lr, steps, reward)
        return after, self.report(state, clients, dict(zip(METRICS, numbers, strict=True)))


@method(
    "adaptive_matching",
    kind="federated",
    needs=NEEDS,
    models=MODELS,
    paper="rm",
    label="FA+RM+AH",
    metrics=METRICS,
)
@dataclass(kw_only=True)
class AdaptiveMatching(MatchingRounds, AdaptiveFedAvg):
    """Representation matching with adaptive learning rate and steps. Source: RM, algorithm 1."""


def _server_loss(weights: dict[str, np.ndarray], clients: Clients, info: ClientInfo) -> float:
    """Compute the mean cross-entropy of `weights` on the server's examples; NaN if not finite."""
    import torch

    from fedrepro.training.federation.client_queries_and_costs import evaluated
    from fedrepro.training.training_examples import Examples

    assert info.validation_inputs is not None
    assert info.validation_labels is not None
    if not all(np.isfinite(value).all() for value in weights.values()):
        return float("nan")
    inputs, labels = (
        torch.from_numpy(np.array(part)).to(info.device)
        for part in (info.validation_inputs, info.validation_labels)
    )
    rows = [np.arange(len(inputs))]
    return float(evaluated(clients.network, Examples(inputs, labels), rows, weights).loss[0, 0])

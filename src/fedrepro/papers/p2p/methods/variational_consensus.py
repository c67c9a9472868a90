"""Beliefs over the weights of a network, learnt by the nodes of a graph without a server.

A. Lalitha, X. Wang, O. Kilinc, Y. Lu, T. Javidi, F. Koushanfar. Peer-to-peer federated learning on
graphs, 2019 (P2P), section 5.2: Bayes by backprop at each node, consensus with its neighbours.
Weights are independent: means and standard deviations are (N, n), a row for each node. The
normalised geometric mean of such beliefs, equation (3), is again one,

    1/s_i² = sum_j W_ij / σ_j²,    m_i = s_i² sum_j W_ij μ_j / σ_j².
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrepro.api import ClientInfo, Report, State, Tensors, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg

if TYPE_CHECKING:
    from fedrepro.networks.network import Network
    from fedrepro.training.federation.clients import GraphNodes
    from fedrepro.training.loss_terms import GaussianPrior


Array = NDArray[Any]


def consensus(weights: Array, mean: Array, deviation: Array) -> tuple[Array, Array]:
    """Average each node's Gaussian belief with its neighbours', by mixing matrix `weights` (N, N).

    `mean` and `deviation` (standard deviation) are (N, n), of n independent network weights at N
    nodes, and so are both results. A mean counts by its precision 1/deviation². Rows of `weights`
    sum to one. Source: P2P, section 5.2; with full covariances (6) and (7).
    """
    precision = 1 / (deviation * deviation)
    heard = weights @ precision
    return weights @ (precision * mean) / heard, 1 / np.sqrt(heard)


def mean_of_means(weights: Array, mean: Array, deviation: Array) -> tuple[Array, Array]:
    """Average the means of nodes' Gaussian beliefs without regard to precision, a control.

    Precisions 1/deviation² are averaged separately. `mean` and `deviation` (standard deviation) are
    (N, n) for N nodes, and so are both results; rows of the mixing matrix `weights` sum to one.
    """
    return weights @ mean, 1 / np.sqrt(weights @ (1 / (deviation * deviation)))


def deviation_of(spread: Array) -> Array:
    """Turn the trained parameter `spread` of weights into standard deviations log(1 + exp(spread)).

    The result is float64, of equal shape. Networks train the spread because it may be any number.
    """
    return np.log1p(np.exp(spread.astype(np.float64)))


def spread_of(deviation: Array) -> Array:
    """Turn standard deviations σ of weights into the parameter that is trained: log(exp(σ) - 1)."""
    return np.log(np.expm1(deviation))


COLUMNS = 1 << 14  # weights of a node at once: some MB for 64 nodes

Mix = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@method(
    "variational_consensus",
    kind="peer",
    needs={"rounds"},
    models={"variational_mlp"},
    paper="p2p",
    label="Consensus of beliefs",
)
@dataclass(kw_only=True)
class VariationalConsensus:
    """Each node learns a belief (Gaussian over weights) from its data; then beliefs are averaged.

    In a round node i minimises E[-log l] + KL(b_i ‖ prior_i) over minibatches, with likelihood l
    and belief b_i. Averaging gives ρ_i ∝ prod_j b_j^W_ij, which is the prior and the start of the
    next round. All nodes start from one network; the first prior is the model's N(0, prior_sd²), or
    if it has none, the start. Source: P2P, algorithm 1 and equation (8).
    """

    rounds: Annotated[int, Arg("number of exchanges with the neighbours", "rounds", least=1)] = 100
    epochs: Annotated[int, Arg("local epochs between two exchanges", "epochs", least=1)] = 1
    steps: Annotated[
        int | None,
        Arg(
            "local minibatches between two exchanges, which may be less than an epoch; none for "
            "whole epochs",
            "minibatches",
            least=1,
        ),
    ] = None
    divergence: Annotated[
        float, Arg("factor on the divergence from the prior in the loss", least=0)
    ] = 1.0
    examples: Annotated[
        Literal["reused", "once"],
        Arg(
            "how often the likelihood of an example counts: reused, whenever it is in a "
            "minibatch; once, once in the whole run, by a larger factor on the divergence"
        ),
    ] = "reused"
    keep_optimiser: Annotated[bool, Arg("the optimiser keeps its moments over exchanges")] = True
    spreads: Annotated[
        Literal["learnt", "held"],
        Arg("standard deviations of weights: learnt, or reset after each exchange"),
    ] = "learnt"
    mix = staticmethod(consensus)

    def init(self, peers: GraphNodes, info: ClientInfo, rng: RngKey) -> State:
        """Return the first state: "before", nodes' equal beliefs; "memory", optimisers' state."""
        from fedrepro.training.federation.clients import initial_weights

        if peers.network.kind != "variational":
            raise FedreproError(
                f"method '{peers.method}' averages beliefs, and model '{peers.model.token}' has "
                "none: take variational_mlp"
            )
        initial = initial_weights(peers.network, peers.settings, [rng.at(client=-1)])
        start = {name: np.repeat(value, peers.count, axis=0) for name, value in initial.items()}
        return {"before": start, "memory": {} if self.keep_optimiser else None}

    def round(
        self, state: State, peers: GraphNodes, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Run one round: nodes average beliefs with their neighbours', then train from the average.

        In the first round nodes train from the initial network, without averaging.
        """
        start = self._after(state, peers) if rng.round else state["before"]
        trained = peers.train(
            start,
            rng,
            epochs=self.epochs,
            steps=self.steps,
            terms=[self._prior(peers.network, first=not rng.round)],
            memory=state["memory"],
            done=None if self.steps is None else rng.round * self.steps,
        )
        bad = np.flatnonzero(~trained.finite)
        if len(bad):
            raise FedreproError(
                f"a mean or a spread of node {trained.places[int(bad[0])].client} in trial "
                f"{rng.trial} is not finite after round {rng.round + 1}; lower the learning rate "
                "(lr), or let the model start from another `spread`"
            )
        before = trained.tensors
        if self.spreads == "held":
            parameters = peers.network.parameters.items()
            held = {k: state["before"][k] for k, one in parameters if one.role == "spread"}
            before = {**before, **held}
        return {"before": before, "memory": trained.memory}, Report()

    def beliefs(self, state: State, peers: GraphNodes) -> Mapping[str, Tensors]:
        """Return beliefs "before" and "after" averaging, each as tensors (N, *shape) by name."""
        return {"before": state["before"], "after": self._after(state, peers)}

    def _prior(self, network: Network, first: bool) -> GaussianPrior:
        """Return the KL divergence from the prior, the model's in the `first` round, as a term."""
        from fedrepro.training.loss_terms import GaussianPrior

        sd = network.prior_sd if first else None
        if self.examples == "once":
            # an example is visited rounds · minibatches · batch_size / examples times
            return GaussianPrior(self.divergence * self.rounds, "client", sd)
        return GaussianPrior(self.divergence, "run", sd)

    def _after(self, state: State, peers: GraphNodes) -> dict[str, np.ndarray]:
        return heard(peers.network, peers.weights, state["before"], self.mix)


@method(
    "consensus_of_means",
    kind="peer",
    needs={"rounds"},
    models={"variational_mlp"},
    paper="p2p",
    label="Consensus, plain means",
)
class ConsensusOfMeans(VariationalConsensus):
    """Variational consensus that averages nodes' means regardless of precision: a control."""

    mix = staticmethod(mean_of_means)


def heard(network: Network, weights: np.ndarray, tensors: Tensors, mix: Mix) -> dict[str, Any]:
    """Average all nodes' beliefs over network weights; return tensors (N, *shape) by name.

    `tensors` are the beliefs before averaging, `weights` (N, N) the mixing matrix, and `mix`
    averages means and standard deviations (N, n) in float64, of n network weights at a time.
    """
    beliefs = {}
    for name, parameter in network.parameters.items():
        if parameter.role == "spread":
            continue
        mean, spread = tensors[name], tensors[f"{name}_spread"]
        flat, width = mean.reshape(len(mean), -1), spread.reshape(len(mean), -1)
        means, spreads = np.empty_like(flat), np.empty_like(width)
        for start in range(0, flat.shape[1], COLUMNS):
            block = slice(start, start + COLUMNS)
            means[:, block], deviation = mix(weights, flat[:, block], deviation_of(width[:, block]))
            spreads[:, block] = spread_of(deviation)
        beliefs[name] = means.reshape(mean.shape)
        beliefs[f"{name}_spread"] = spreads.reshape(spread.shape)
    return {name: beliefs[name] for name in network.shapes}

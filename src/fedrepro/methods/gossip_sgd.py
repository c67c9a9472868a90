"""Local steps of SGD, then an average over neighbours.

X. Lian et al. Can decentralized algorithms outperform centralized algorithms? NeurIPS 2017
(D-PSGD); with several local steps, A. Koloskova et al. A unified theory of decentralized SGD with
changing topology and local updates. ICML 2020, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, Report, State, Tensors, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.training.federation.clients import GraphNodes, initial_weights

Rounds = Annotated[int, Arg("number of exchanges with the neighbours", "rounds", least=1)]
Epochs = Annotated[int, Arg("local epochs between two exchanges", "epochs", least=1)]
Steps = Annotated[
    int | None,
    Arg("local minibatches between two exchanges, none for whole epochs", "minibatches", least=1),
]


@method("gossip_sgd", kind="peer", needs={"rounds"}, label="Gossip SGD")
@dataclass(kw_only=True)
class GossipSgd:
    """Gossip SGD: nodes of a graph train by themselves, then average weights over their neighbours.

    Node i of `peers` trains w_i to b_i; then w_i = sum_j W_ij b_j, W the mixing matrix. All nodes
    start from one network. `info` is not used. Source: Koloskova et al., 2020, algorithm 1; with
    one step a round the method is that of Lian et al., 2017, but with the step before the average.
    """

    rounds: Rounds = 100
    epochs: Epochs = 1
    steps: Steps = None

    def init(self, peers: GraphNodes, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: one randomly drawn network, equal at every node."""
        initial = initial_weights(peers.network, peers.settings, [rng.at(client=-1)])
        start = {name: np.repeat(value, peers.count, axis=0) for name, value in initial.items()}
        return {"before": start, "after": start}

    def round(
        self, state: State, peers: GraphNodes, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Let every node train, then average over neighbours; return the new state and a report.

        A node whose training diverged keeps its weights from before the training.
        """
        trained = peers.train(state["after"], rng, epochs=self.epochs, steps=self.steps)
        before = {}
        for k, new in trained.tensors.items():
            finite = trained.finite.reshape(-1, *(1,) * (new.ndim - 1))
            before[k] = np.where(finite, new, state["after"][k])
        return {"before": before, "after": peers.mixed(before)}, Report()

    def beliefs(self, state: State, peers: GraphNodes) -> Mapping[str, Tensors]:
        """Return {"before": w, "after": w}: nodes' weights by name before and after averaging."""
        return state

"""Federated averaging with representation matching.

H. Mostafa, Robust Federated Learning Through Representation Matching and Adaptive
Hyper-parameters, 2019 (RM), section 3.1.
"""

from __future__ import annotations

from fedrepro.api import method
from fedrepro.components.methods import fedavg
from fedrepro.papers.rm.methods._matching import (
    MODELS,
    Coefficient,
    MatchingRounds,
    Reduction,
    Source,
)


@method(
    "representation_matching",
    kind="federated",
    needs=fedavg.NEEDS,
    models=MODELS,
    paper="rm",
    label="FA+RM",
)
class MatchedFedAvg(MatchingRounds):
    """FedAvg, and local activations must give back the received model's. Source: RM, eq. (1).

    L = cross-entropy + matching · L_M (+ the other terms of `fedavg`), all by the same descent.
    """

    def __init__(
        self,
        *,
        rounds: fedavg.Rounds = 100,
        fraction: fedavg.Fraction = 0.1,
        epochs: fedavg.Epochs = 1,
        steps: fedavg.Steps = None,
        last_steps: fedavg.LastSteps = None,
        last_lr: fedavg.LastLr = None,
        weights: fedavg.Weights = "selected",
        proximal: fedavg.Mu = 0.0,
        divergence: fedavg.Divergence = 0.0,
        entropy: fedavg.EntropyShare = 0.0,
        least_entropy: fedavg.LeastEntropy = 2.0,
        server_lr: fedavg.ServerLr = 1.0,
        server_momentum: fedavg.ServerMomentum = 0.0,
        matching: Coefficient = 1.0,
        reduction: Reduction = "mean",
        source: Source = "above",
    ) -> None:
        super().__init__(
            rounds=rounds,
            fraction=fraction,
            epochs=epochs,
            steps=steps,
            last_steps=last_steps,
            last_lr=last_lr,
            weights=weights,
            proximal=proximal,
            divergence=divergence,
            entropy=entropy,
            least_entropy=least_entropy,
            server_lr=server_lr,
            server_momentum=server_momentum,
        )
        self.match(matching, reduction, source)

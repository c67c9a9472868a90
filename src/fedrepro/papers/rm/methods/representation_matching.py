"""Federated averaging with representation matching.

H. Mostafa, Robust Federated Learning Through Representation Matching and Adaptive
Hyper-parameters, 2019 (RM), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.api import method
from fedrepro.methods import fedavg
from fedrepro.papers.rm.methods._matching import MODELS, MatchingRounds


@method(
    "representation_matching",
    kind="federated",
    needs=fedavg.NEEDS,
    models=MODELS,
    paper="rm",
    label="FA+RM",
)
@dataclass(kw_only=True)
class MatchedFedAvg(MatchingRounds, fedavg.FedAvg):
    """FedAvg, and local activations must give back the received model's. Source: RM, eq. (1).

    L = cross-entropy + matching · L_M (+ the other terms of `fedavg`), all by the same descent.
    """

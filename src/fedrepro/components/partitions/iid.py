"""Clients of equal size, filled at random.

H. B. McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data.
AISTATS 2017, section 3 (the IID partition); also H. Mostafa, Robust Federated Learning Through
Representation Matching and Adaptive Hyper-parameters, 2019, section 4 (iid).
"""

from __future__ import annotations

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.data.assignment import (
    Assignment,
    Clients,
    TrainingLabels,
    deal_sizes,
    require_examples,
)
from fedrepro.data.stratify import apportion


@register("partition", "iid", version=1, title="IID, equal sizes")
def iid(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
) -> Assignment:
    """All examples are shuffled and dealt out in parts of N / J, whatever their labels.

    Classes are not evened out as in `homogeneous`: a small client has them by chance. Sizes differ
    by one at most; who gets the remainder is drawn. Source: FedAvg, section 3 (100 clients with 600
    examples each).
    """
    require_examples(examples, clients)
    even = np.ones(clients, np.int64)
    sizes = apportion(len(examples), even, rng.stream("partition-sizes"))
    return Assignment(deal_sizes(sizes, rng), clients)

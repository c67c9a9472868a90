"""Clients alike in labels and sizes, whose inputs carry more and more noise.

Q. Li et al. Federated Learning on Non-IID Data Silos: An Experimental Study. ICDE 2022
(NIID-Bench; noise-based feature imbalance).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np

from fedrepro.components.partitions.homogeneous import homogeneous
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.assignment import Assignment, Clients, TrainingLabels


@register("partition", "feature_noise", version=1, title="Feature noise")
def feature_noise(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    sigma: Annotated[
        float, Arg("variance of the noise at the last client, inputs being in [0, 1]", least=0)
    ] = 0.1,
) -> Assignment:
    """Split as `homogeneous`; client j = 1 .. J adds N(0, sigma · j / J) to each of its inputs.

    sigma · j / J is a variance. The noise itself is drawn when inputs are used
    (`PartitionIndices.with_feature_noise`). Source: NIID-Bench, with sigma = 0.1; there examples
    are split at random, here evenly by class.
    """
    noise = sigma * np.arange(1, clients + 1) / clients
    return replace(homogeneous(examples, rng, clients=clients), noise=noise)

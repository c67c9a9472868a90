"""Clients of unlike sizes, with labels alike: sizes fall off as a power of the rank.

T. Li et al. Federated Optimization in Heterogeneous Networks. MLSys 2020 (FedProx), experiments
(devices whose number of samples follows a power law).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.assignment import (
    Assignment,
    Clients,
    TrainingLabels,
    deal_sizes,
    require_examples,
)
from fedrepro.data.stratify import apportion

RESOLUTION = 1e9  # weights are whole numbers when examples are shared out


@register("partition", "power_law", version=1, title="Quantity skew, power law")
def power_law(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    exponent: Annotated[
        float, Arg("size of the r-th largest client: r to the power of minus this", least=0, most=4)
    ] = 1.0,
    min_examples: Annotated[
        int, Arg("what every client gets before the rest is shared out", unit="examples", least=1)
    ] = 1,
) -> Assignment:
    """Give the client of rank r a part of the shuffled examples in proportion to r^-exponent.

    Every client first gets `min_examples`; the rest follows the power law. Which client has which
    rank is drawn. Source: FedProx, which gives no exponent: 1 is our choice.
    """
    require_examples(examples, clients, min_examples)
    generator = rng.stream("partition-sizes")
    rank = 1.0 + generator.permutation(clients)
    weights = np.ceil(RESOLUTION * rank**-exponent).astype(np.int64)
    rest = len(examples) - clients * min_examples
    return Assignment(deal_sizes(min_examples + apportion(rest, weights, generator), rng), clients)

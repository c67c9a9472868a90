"""Clients of unlike sizes, with labels alike: sizes drawn from a Dirichlet distribution.

Q. Li et al. Federated Learning on Non-IID Data Silos: An Experimental Study. ICDE 2022
(NIID-Bench; quantity skew).
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
    MaxRedraws,
    MinExamples,
    TrainingLabels,
    deal_sizes,
    never_full,
    require_examples,
)


@register("partition", "quantity_skew", version=1, title="Quantity skew, Dirichlet")
def quantity_skew(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    alpha: Annotated[
        float,
        Arg("concentration: the smaller, the more unlike the sizes", least=0.001, most=1e6),
    ] = 0.5,
    min_examples: MinExamples = 10,
    max_redraws: MaxRedraws = 10_000,
) -> Assignment:
    """Shares q ~ Dir_J(alpha) of all shuffled examples go to the J clients.

    Source: NIID-Bench, with its default alpha = 0.5. Draws that leave a client with fewer than
    `min_examples` are repeated and counted, as in `dirichlet`.
    """
    require_examples(examples, clients, min_examples)
    generator = rng.stream("partition-sizes")
    for redraws in range(max_redraws + 1):
        share = generator.dirichlet(np.full(clients, alpha))
        bounds = np.rint(len(examples) * np.cumsum(share)).astype(np.int64)
        bounds[-1] = len(examples)
        sizes = np.diff(bounds, prepend=0)
        if sizes.min() >= min_examples:
            return Assignment(deal_sizes(sizes, rng), clients, redraws)
    raise never_full(
        "quantity_skew", max_redraws + 1, rng, clients, min_examples, len(examples), alpha
    )

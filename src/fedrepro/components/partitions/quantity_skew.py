"""Clients of unlike sizes, with labels alike: sizes drawn from a Dirichlet distribution.

Q. Li et al. Federated Learning on Non-IID Data Silos: An Experimental Study. ICDE 2022
(NIID-Bench; quantity skew).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Arg
from fedrepro.data.split import Owners, TrainingLabels, deal_sizes, require_examples


@register("partition", "quantity_skew", version=1, title="Quantity skew, Dirichlet")
def quantity_skew(
    examples: TrainingLabels,
    rng: Rng,
    *,
    clients: Annotated[int, Arg("holders of data", unit="clients", least=1)],
    alpha: Annotated[
        float,
        Arg("concentration: the smaller, the more unlike the sizes", least=0.001, most=1e6),
    ] = 0.5,
    min_examples: Annotated[
        int, Arg("draws that leave a client with less are repeated", unit="examples", least=1)
    ] = 10,
    max_redraws: Annotated[int, Arg("repeated draws before giving up", least=0)] = 10_000,
) -> Owners:
    """Shares q ~ Dir_J(alpha) of all shuffled examples go to the J clients.

    Source: NIID-Bench, with its default alpha = 0.5. Draws that leave a client with fewer than
    `min_examples` are repeated and counted, as in `dirichlet`.

    Raises:
        FedreproError: For more clients than examples, or if `max_redraws` is reached.
    """
    require_examples(examples, clients, min_examples)
    generator = rng.stream("partition-sizes")
    for redraws in range(max_redraws + 1):
        share = generator.dirichlet(np.full(clients, alpha))
        bounds = np.rint(len(examples) * np.cumsum(share)).astype(np.int64)
        bounds[-1] = len(examples)
        sizes = np.diff(bounds, prepend=0)
        if sizes.min() >= min_examples:
            return Owners(deal_sizes(sizes, rng), clients, redraws)
    raise FedreproError(
        f"partition 'quantity_skew': {max_redraws + 1} draws of trial {rng.trial} all left one of "
        f"{clients} clients with fewer than {min_examples} of {len(examples)} examples: "
        f"lower `clients` or `min_examples`, or raise `alpha` ({alpha:g})"
    )

"""Every client gets an equal part of every class.

M. Yurochkin et al. Bayesian Nonparametric Federated Learning of Neural Networks. ICML 2019,
section 4 (the homogeneous partition).
"""

from __future__ import annotations

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.data.assignment import (
    Assignment,
    Clients,
    TrainingLabels,
    require_examples,
    shuffled_by_class,
)


@register("partition", "homogeneous", version=1, title="Homogeneous")
def homogeneous(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
) -> Assignment:
    """Each class is split into near-equal parts, one per client.

    Neither the parts of a class nor the sizes of two clients differ by more than one example:
    classes are dealt out one after another around a drawn order of the clients, so that the
    remainder of one class goes on where that of the class before ended. Source: PFNM, section 4;
    the authors' code splits all examples at random instead.
    """
    require_examples(examples, clients)
    generator = rng.stream("partition")
    seats = generator.permutation(clients).astype(np.int32)
    owner = np.empty(len(examples), np.int32)
    order = shuffled_by_class(examples.labels, generator)
    owner[order] = seats[np.arange(len(examples)) % clients]
    return Assignment(owner, clients)

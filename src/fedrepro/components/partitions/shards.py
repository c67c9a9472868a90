"""Clients that hold a few shards of the examples sorted by label.

H. B. McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data.
AISTATS 2017, section 3 (the pathological non-IID partition).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.assignment import (
    Assignment,
    Clients,
    TrainingLabels,
    require_examples,
    shuffled_by_class,
)


@register("partition", "shards", version=1, title="Shards")
def shards(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    each: Annotated[int, Arg("shards that a client holds", unit="shards", least=1)] = 2,
) -> Assignment:
    """Examples sorted by label are cut into J · each equal shards; a client gets `each` at random.

    Most clients then hold `each` classes. Shards differ by one example at most, in random order
    within a class. Source: FedAvg, section 3: 100 clients, 200 shards of 300 examples, two each.
    """
    require_examples(examples, clients)
    count = clients * each
    if count > len(examples):
        raise FedreproError(
            f"partition 'shards': {len(examples)} training examples cannot be cut into {count} "
            f"shards ({each} for each of {clients} clients): lower `clients` or `each`"
        )
    generator = rng.stream("partition")
    order = shuffled_by_class(examples.labels, generator)
    holder = (generator.permutation(count) // each).astype(np.int32)
    owner = np.empty(len(examples), np.int32)
    # position i of N lies in shard floor(i · count / N)
    owner[order] = holder[np.arange(len(examples)) * count // len(examples)]
    return Assignment(owner, clients)

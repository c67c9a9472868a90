"""Clients that hold a few classes each.

Q. Li, Y. Diao, Q. Chen, B. He. Federated Learning on Non-IID Data Silos: An Experimental Study.
ICDE 2022 (quantity-based label imbalance, #C = k).
"""

from __future__ import annotations

from typing import Annotated

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.assignment import (
    Assignment,
    Clients,
    TrainingLabels,
    deal_classes,
    require_examples,
)


@register("partition", "labels_each", version=1, title="Labels of each client")
def labels_each(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
    each: Annotated[int, Arg("classes that a client holds", unit="classes", least=1)] = 2,
) -> Assignment:
    """Client j holds class j modulo K and `each` - 1 others at random; holders share alike.

    Examples of a class that nobody holds are left out, as there can be with fewer clients than
    classes. Source: NIID-Bench, by the authors' code, whose clients hold class j mod K first.
    """
    require_examples(examples, clients)
    if each > examples.classes:
        raise FedreproError(
            f"partition 'labels_each': a client cannot hold {each} of {examples.classes} "
            f"classes: lower `each` to {examples.classes}"
        )
    stream, client_classes = rng.stream("partition-labels"), []
    for client in range(clients):
        first = client % examples.classes
        others = [label for label in range(examples.classes) if label != first]
        drawn = stream.permutation(others)[: each - 1]
        client_classes.append([first, *map(int, drawn)])
    return Assignment(deal_classes(examples, client_classes, rng), clients)

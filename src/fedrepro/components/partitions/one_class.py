"""Every client holds a single class.

H. Mostafa. Robust Federated Learning Through Representation Matching and Adaptive
Hyper-parameters. 2019, section 4 (non-iid).
"""

from __future__ import annotations

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.data.assignment import (
    Assignment,
    Clients,
    TrainingLabels,
    deal_classes,
    require_examples,
)


@register("partition", "one_class", version=1, title="One class per client")
def one_class(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients = 10,
) -> Assignment:
    """Client j holds examples of class j modulo the number of classes K only.

    With more clients than classes, those of one class share it evenly at random. Source: RM,
    section 4: ten clients, "each client only has data points belonging to one of the ten classes".
    """
    require_examples(examples, clients)
    if clients < examples.classes:
        raise FedreproError(
            f"partition 'one_class': {clients} clients with one class each leave out some of the "
            f"{examples.classes} classes: set `clients` to at least {examples.classes}, or take "
            "partition 'by_label'"
        )
    client_classes = [[client % examples.classes] for client in range(clients)]
    return Assignment(deal_classes(examples, client_classes, rng), clients)

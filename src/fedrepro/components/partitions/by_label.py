"""Labels divided among the clients, so that (almost) every class is at one client.

N. Guha, V. Smith. Model Aggregation via Good-Enough Model Spaces. 2018, appendix B.2, table 4.
"""

from __future__ import annotations

from collections.abc import Sequence

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

# (classes, clients) -> classes of each client, where table 4 does not follow `runs`
TABLE_4: dict[tuple[int, int], Sequence[Sequence[int]]] = {
    (7, 2): ((0, 1, 2, 3), (4, 5, 6)),
    (7, 5): ((0, 5, 6), (1, 5, 6), (2, 5, 6), (3, 5, 6), (4, 5, 6)),
}


@register("partition", "by_label", version=1, title="By label")
def by_label(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Clients,
) -> Assignment:
    """Each client holds all examples of a run of classes: client j those from jK/J to (j+1)K/J - 1.

    Source: GEMS, table 4. Of its nine rows seven are such runs (MNIST and CIFAR-10, K = 10 classes,
    for 2, 3 and 5 clients; HAM, K = 7, for 3); for HAM with 2 and 5 clients the printed sets are
    used, in which all five clients share classes 5 and 6 evenly. For 2 clients and 10 classes the
    table prints {0-4} twice, a misprint for {0-4}, {5-9}.
    """
    require_examples(examples, clients)
    if clients > examples.classes:
        raise FedreproError(
            f"partition 'by_label': {clients} clients cannot divide {examples.classes} classes: "
            f"lower `clients` to {examples.classes}, or take partition 'one_class' or 'shards'"
        )
    client_classes = TABLE_4.get((examples.classes, clients)) or runs(examples.classes, clients)
    return Assignment(deal_classes(examples, client_classes, rng), clients)


def runs(classes: int, clients: int) -> list[range]:
    """Cut classes into runs of one length, or longer by one, the longer ones towards the end."""
    bounds = [client * classes // clients for client in range(clients + 1)]
    return [range(bounds[client], bounds[client + 1]) for client in range(clients)]

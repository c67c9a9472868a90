"""Partitions by classes: evenly, by lists of classes, some classes per client, or sorted shards.

Sources, in the order of the functions: PFNM (M. Yurochkin et al., ICML 2019), GEMS (N. Guha, V.
Smith, 2018), P2P (A. Lalitha et al., 2019), NIID-Bench (Q. Li et al., ICDE 2022), RM (H. Mostafa,
2019), FedAvg (H. B. McMahan et al., AISTATS 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data import client_assignment_and_skew as skew


@register("partition", "homogeneous", version=1, title="Homogeneous")
def homogeneous(
    examples: skew.TrainingLabels, rng: RngKey, *, clients: skew.Clients
) -> skew.Assignment:
    """Split each class evenly over the clients, so that all have the same share of each class.

    The parts of a class differ by at most one example, and so do clients' sizes: classes are dealt
    out one after another, in a random order of the clients. Source: PFNM, section 4; the authors'
    code splits all examples at random instead.
    """
    skew.require_examples(examples, clients)
    generator = rng.stream("partition")
    seats = generator.permutation(clients).astype(np.int32)
    owner = np.empty(len(examples), np.int32)
    order = skew.shuffled_by_class(examples.labels, generator)
    owner[order] = seats[np.arange(len(examples)) % clients]
    return skew.Assignment(owner, clients)


# (classes, clients) -> classes of each client, where table 4 does not follow `runs`
TABLE_4: dict[tuple[int, int], Sequence[Sequence[int]]] = {
    (7, 2): ((0, 1, 2, 3), (4, 5, 6)),
    (7, 5): ((0, 5, 6), (1, 5, 6), (2, 5, 6), (3, 5, 6), (4, 5, 6)),
}


@register("partition", "by_label", version=1, title="By label")
def by_label(
    examples: skew.TrainingLabels, rng: RngKey, *, clients: skew.Clients
) -> skew.Assignment:
    """Give client j all examples of consecutive classes, from jK/J to (j+1)K/J - 1.

    J clients, K classes; bounds are rounded down. Source: GEMS, table 4, in which seven of nine
    rows are of this form. For seven classes, as in HAM10000, the printed sets are used for 2
    clients, {0-3} and {4-6}, and for 5: client j has class j, and all share 5 and 6 evenly. For 2
    clients and 10 classes the table prints {0-4} twice, a misprint for {0-4}, {5-9}.
    """
    skew.require_examples(examples, clients)
    if clients > examples.classes:
        raise FedreproError(
            f"partition 'by_label': {clients} clients cannot divide {examples.classes} classes: "
            f"lower `clients` to {examples.classes}, or take partition 'one_class' or 'shards'"
        )
    # runs of one length, or longer by one, the longer ones towards the end
    bounds = [client * examples.classes // clients for client in range(clients + 1)]
    runs = [range(*run) for run in pairwise(bounds)]
    client_classes = TABLE_4.get((examples.classes, clients), runs)
    return skew.Assignment(skew.deal_classes(examples, client_classes, rng), clients)


@register(
    "partition",
    "label_lists",
    version=1,
    title="Label lists",
    clients=lambda values: len(values["lists"]),
)
def label_lists(
    examples: skew.TrainingLabels,
    rng: RngKey,
    *,
    lists: Annotated[
        tuple[str, ...],
        Arg("for each client the numbers of its classes, joined by -, such as 0-1-2"),
    ] = ("0-1-2-3-4", "5-6-7-8-9"),
) -> skew.Assignment:
    """Give client j the classes of the j-th list; a class on several lists is shared evenly.

    Examples of a class on no list are left out. Source: P2P, section 5.2.2: case (a) is the
    default, case (b) 0-2-3-4-6 and 1-5-7-8-9, the unbalanced case 0-1-2-3-4-5-6-7 and 8-9.
    """
    client_classes = [parse_list(text, examples.classes) for text in lists]
    return skew.Assignment(skew.deal_classes(examples, client_classes, rng), len(client_classes))


def parse_list(text: str, classes: int) -> list[int]:
    """Read the classes of one list of partition label_lists: 0-1-2 as [0, 1, 2]."""
    where = f"partition 'label_lists': the list '{text}'"
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise FedreproError(f"{where} is not of the form 0-1-2: class numbers joined by -")
    labels = [int(part) for part in parts]
    if len(set(labels)) < len(labels):
        raise FedreproError(f"{where} names a class twice; name each once")
    absent = [label for label in labels if label >= classes]
    if absent:
        raise FedreproError(
            f"{where} names class {absent[0]}, but the data have the classes 0 to {classes - 1}"
        )
    return labels


@register("partition", "labels_each", version=1, title="Labels of each client")
def labels_each(
    examples: skew.TrainingLabels,
    rng: RngKey,
    *,
    clients: skew.Clients,
    each: Annotated[int, Arg("classes that a client holds", unit="classes", least=1)] = 2,
) -> skew.Assignment:
    """Give client j class j modulo K and `each` - 1 random classes; holders share a class evenly.

    K is the number of classes. With fewer clients than classes, examples of classes that no client
    holds are left out. Source: NIID-Bench, by the authors' code, where client j has class j mod K.
    """
    skew.require_examples(examples, clients)
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
    return skew.Assignment(skew.deal_classes(examples, client_classes, rng), clients)


@register("partition", "one_class", version=1, title="One class per client")
def one_class(
    examples: skew.TrainingLabels, rng: RngKey, *, clients: skew.Clients = 10
) -> skew.Assignment:
    """Give client j only examples of class j modulo K, the number of classes.

    With more clients than classes, clients of one class share its examples evenly at random.
    Source: RM, section 4: ten clients, each with "data points belonging to one of the ten classes".
    """
    skew.require_examples(examples, clients)
    if clients < examples.classes:
        raise FedreproError(
            f"partition 'one_class': {clients} clients with one class each leave out some of the "
            f"{examples.classes} classes: set `clients` to at least {examples.classes}, or take "
            "partition 'by_label'"
        )
    client_classes = [[client % examples.classes] for client in range(clients)]
    return skew.Assignment(skew.deal_classes(examples, client_classes, rng), clients)


@register("partition", "shards", version=1, title="Shards")
def shards(
    examples: skew.TrainingLabels,
    rng: RngKey,
    *,
    clients: skew.Clients,
    each: Annotated[int, Arg("shards that a client holds", unit="shards", least=1)] = 2,
) -> skew.Assignment:
    """Sort examples by label, cut J · each equal shards, and give each client `each` at random.

    J is the number of clients. So most clients have at most `each` classes. Shards differ in size
    by at most one example. Source: FedAvg, section 3: 100 clients, two shards of 300 examples each.
    """
    skew.require_examples(examples, clients)
    count = clients * each
    if count > len(examples):
        raise FedreproError(
            f"partition 'shards': {len(examples)} training examples cannot be cut into {count} "
            f"shards ({each} for each of {clients} clients): lower `clients` or `each`"
        )
    generator = rng.stream("partition")
    order = skew.shuffled_by_class(examples.labels, generator)
    holder = (generator.permutation(count) // each).astype(np.int32)
    owner = np.empty(len(examples), np.int32)
    # position i of N lies in shard floor(i · count / N)
    owner[order] = holder[np.arange(len(examples)) * count // len(examples)]
    return skew.Assignment(owner, clients)

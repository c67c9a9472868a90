"""Each client holds the classes on a list of its own.

A. Lalitha et al. Peer-to-peer Federated Learning on Graphs. 2019, section 5.2.2 (non-IID balanced
and unbalanced).
"""

from __future__ import annotations

from typing import Annotated

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.assignment import Assignment, TrainingLabels, deal_classes


@register(
    "partition",
    "label_lists",
    version=1,
    title="Label lists",
    clients=lambda values: len(values["lists"]),
)
def label_lists(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    lists: Annotated[
        tuple[str, ...], Arg("for each client its classes by number, joined by -, such as 0-1-2")
    ] = ("0-1-2-3-4", "5-6-7-8-9"),
) -> Assignment:
    """Client j holds the classes of the j-th list; a class on several lists is shared evenly.

    Examples of a class on no list are left out. Source: P2P, section 5.2.2: case (a) is the
    default, case (b) 0-2-3-4-6 and 1-5-7-8-9, the unbalanced case 0-1-2-3-4-5-6-7 and 8-9.
    """
    client_classes = [parse_list(text, examples.classes) for text in lists]
    return Assignment(deal_classes(examples, client_classes, rng), len(client_classes))


def parse_list(text: str, classes: int) -> list[int]:
    """Read the classes of one list: 0-1-2 as [0, 1, 2]."""
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

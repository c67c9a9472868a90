"""Partition by natural groups of the data: a client per role, speaker or node.

H. B. McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data.
AISTATS 2017, section 3 (Shakespeare: one client per speaking role).
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.client_assignment_and_skew import UNASSIGNED, Assignment, TrainingLabels


@register("partition", "natural", version=1, title="Natural groups", by_group=True)
def natural(
    examples: TrainingLabels,
    rng: RngKey,
    *,
    clients: Annotated[
        int | None, Arg("groups that become clients, none for all", unit="clients", least=1)
    ] = None,
    pick: Annotated[
        Literal["first", "random"],
        Arg("which groups become clients, if not all: the first, or random ones"),
    ] = "first",
    min_examples: Annotated[
        int, Arg("groups with fewer training examples are left out", unit="examples", least=1)
    ] = 1,
) -> Assignment:
    """Turn each natural group of the data set (role, speaker, lesion) into a client, in order.

    Examples without a group, or of groups that are left out, belong to no client. Validation
    examples belong to the client of their group. One-shot methods need a value of `clients`. A data
    set that generates clients may have more clients than it stores. Their examples are generated
    when a method draws them. Source: FedAvg, section 3 (1146 roles).
    """
    if not examples.group_names:
        raise FedreproError(
            "partition 'natural': this data set does not say whose an example is: choose data "
            "with roles, speakers or nodes, or another partition"
        )
    sizes = np.bincount(examples.groups[examples.groups >= 0], minlength=len(examples.group_names))
    groups = np.flatnonzero(sizes >= min_examples)
    if groups.size < (clients or 1):
        raise FedreproError(
            f"partition 'natural': {groups.size} of {sizes.size} groups have {min_examples} "
            f"training examples or more, too few for {clients or 1} clients: lower `clients` or "
            "`min_examples`"
        )
    if clients is not None and pick == "random":
        groups = np.sort(rng.stream("partition").choice(groups, clients, replace=False))
    groups = groups[:clients].astype(np.int32)
    client_of = np.full(sizes.size + 1, UNASSIGNED, np.int32)  # the last entry serves group -1
    client_of[groups] = np.arange(groups.size)
    return Assignment(client_of[examples.groups], groups.size, groups=groups)

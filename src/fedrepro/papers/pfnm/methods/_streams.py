"""Data that arrive in steps: which of a client's examples come when, and what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng

if TYPE_CHECKING:
    from fedrepro.federation.clients import Clients


def arriving(clients: Clients, step: int, steps: int, rng: Rng) -> Clients:
    """Return the clients with what arrives at one step, 0 being the first.

    Every client's examples are cut at random into `steps` parts as equal as can be. The cut depends
    on seed, trial and client only. Source: PFNM, supplement 4.2.

    Raises:
        FedreproError: if a client has fewer examples than there are steps.
    """

    def part(client: int, held: int) -> np.ndarray:
        if held < steps:
            raise FedreproError(
                f"client {client} has {held} examples, too few for a stream of {steps} steps; "
                "take fewer steps, or a partition with more min_examples"
            )
        stream = rng.at(client=client, round=-1).stream("stream-parts")
        return np.sort(np.array_split(stream.permutation(held), steps)[step])

    return clients.holding(part)

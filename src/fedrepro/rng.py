"""Counter-based randomness: a draw depends on what it is for, never on who drew before.

Every stream is keyed by (seed, purpose, trial, client, round). A client's model therefore does
not depend on which job trained it, nor on how many clients there are, and a run that was killed
and resumed ends with the same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Rng:
    """A place in the tree of random streams.

    `stream(purpose)` gives the generator of this place; asking twice gives the same draws twice.
    """

    seed: int
    trial: int = 0
    client: int = -1
    round: int = -1

    def at(
        self, *, trial: int | None = None, client: int | None = None, round: int | None = None
    ) -> Rng:
        """The same tree at another trial, client or round."""
        return replace(
            self,
            trial=self.trial if trial is None else trial,
            client=self.client if client is None else client,
            round=self.round if round is None else round,
        )

    def stream(self, purpose: str) -> np.random.Generator:
        """A Philox generator keyed by a 128-bit digest of (seed, purpose, trial, client, round)."""
        place = f"{self.seed}/{purpose}/{self.trial}/{self.client}/{self.round}"
        key = hashlib.blake2b(place.encode(), digest_size=16).digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))

"""Random streams that depend on what is drawn and for whom, and never on earlier draws.

So a client's model depends neither on the process that trained it nor on the number of clients, and
a run that was killed and resumed ends with equal bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class _Digest(ISeedSequence):
    """A seed of NumPy's Philox generator: 128 bits of a hash, instead of bits from the system."""

    def __init__(self, bits: bytes) -> None:
        self.words = np.frombuffer(bits, "<u8")

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray[Any, Any]:
        assert (n_words, dtype) == (2, np.uint64)
        return self.words


@dataclass(frozen=True)
class RngKey:
    """The key of random numbers: equal keys draw equal numbers, whatever was drawn before.

    trial: number of the repetition. client: -1 for draws that are not for one client. round: the
    communication round, -1 without rounds. epoch: the epoch of local training, else -1. call: how
    often the client has trained in this round before, so that it draws other minibatches.
    """

    seed: int
    trial: int = 0
    client: int = -1
    round: int = -1
    epoch: int = -1
    call: int = 0

    def at(self, **place: int) -> RngKey:
        """Return a copy of this key with another `trial`, `client`, `round`, `epoch` or `call`."""
        return replace(self, **place)

    @property
    def clock(self) -> str:
        """Return the key's time, as hashed: "epoch" without rounds, else "round" or "round/epoch".

        ";call" follows if a client trains again in a round. Epoch 0 is left out: so round r of one
        method and epoch r of another without rounds draw equal numbers, for a fair comparison.
        """
        when = str(self.epoch if self.round < 0 else self.round)
        when += f"/{self.epoch}" if self.round >= 0 and self.epoch > 0 else ""
        return f"{when};{self.call}" if self.call else when

    def stream(self, purpose: str) -> np.random.Generator:
        """Return a new Philox generator, seeded by a hash of this key and a purpose (a text)."""
        # the types of NumPy know one kind of ISeedSequence, and its documentation any
        bits = np.random.Philox(_Digest(self._digest(purpose)))  # type: ignore[arg-type]
        return np.random.Generator(bits)

    def key(self, purpose: str) -> int:
        """Return the 128 bits, as a whole number, that seed the generator of a purpose."""
        return int.from_bytes(self._digest(purpose), "little")

    def _digest(self, purpose: str) -> bytes:
        place = f"{self.seed}/{purpose}/{self.trial}/{self.client}/{self.clock}"
        return hashlib.blake2b(place.encode(), digest_size=16).digest()

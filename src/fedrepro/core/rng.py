"""Random streams that depend on what is drawn and for whom, and never on earlier draws.

A stream is keyed by (seed, purpose, trial, client, round, epoch). So a client's model depends
neither on the job that trained it nor on the number of clients, and a run that was killed and
resumed ends with equal bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class _Digest(ISeedSequence):
    """Seeds NumPy's Philox generator with the 128 bits of a hash.

    If the bits were given as a key, NumPy would also ask the system for random bits.
    """

    def __init__(self, bits: bytes) -> None:
        self.words = np.frombuffer(bits, "<u8")

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray[Any, Any]:
        assert (n_words, dtype) == (2, np.uint64)
        return self.words


@dataclass(frozen=True)
class RngKey:
    """The key of random numbers: they depend on seed, trial, client, round and epoch alone.

    So equal keys give equal numbers, whatever was drawn before. round: of a method in rounds, else
    -1. epoch: of local training, else -1. call: counts the trainings of one client in one round,
    which would otherwise take the same minibatches.
    """

    seed: int
    trial: int = 0
    client: int = -1
    round: int = -1
    epoch: int = -1
    call: int = 0

    def at(self, **place: int) -> RngKey:
        """Return this key with another `trial`, `client`, `round`, `epoch` or `call`."""
        return replace(self, **place)

    @property
    def clock(self) -> str:
        """Return the key's round, epoch and call as one text, which `stream` hashes with the rest.

        Without a round it is the epoch; in a round's first epoch, or without one, it is the round;
        later it is round/epoch. So the first epoch of round r takes examples in the order of epoch
        r of local training without rounds: methods of both kinds are compared on common random
        numbers. Nothing else coincides, as a trial is either local training or rounds.
        """
        when = str(self.epoch if self.round < 0 else self.round)
        when += f"/{self.epoch}" if self.round >= 0 and self.epoch > 0 else ""
        return f"{when};{self.call}" if self.call else when

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the random generator of this key for a purpose, such as 'partition'.

        Each call starts it again. It is a Philox generator, seeded by a hash of key and purpose.
        """
        # the types of NumPy know one kind of ISeedSequence, and its documentation any
        bits = np.random.Philox(_Digest(self._digest(purpose)))  # type: ignore[arg-type]
        return np.random.Generator(bits)

    def key(self, purpose: str) -> int:
        """Return the 128 bits, as a whole number, that seed a purpose's stream (see `stream`)."""
        return int.from_bytes(self._digest(purpose), "little")

    def _digest(self, purpose: str) -> bytes:
        place = f"{self.seed}/{purpose}/{self.trial}/{self.client}/{self.clock}"
        return hashlib.blake2b(place.encode(), digest_size=16).digest()

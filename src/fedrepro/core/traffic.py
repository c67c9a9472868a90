"""Messages between clients and server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Messages between the server and the clients, and their size in bytes.

    A message between two nodes of a graph is one up, of its sender, and one down, of its receiver.
    """

    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.messages_up + other.messages_up,
            self.messages_down + other.messages_down,
            self.bytes_up + other.bytes_up,
            self.bytes_down + other.bytes_down,
        )

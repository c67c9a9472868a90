"""Training examples that a partition gives to no client to train with: one line for each kind."""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.core.errors import FedreproError


@dataclass(frozen=True)
class Aside:
    """split: its name in partition files and metrics. need: what a method declares to be handed it.

    parameter: of every partition, how many. at: who has to hold them (`validation_at`), if that
    is a question.
    """

    split: str
    need: str
    parameter: str
    at: str | None = None


ASIDE = (
    Aside("public", "public_examples", "public"),
    Aside("server_validation", "server_validation", "validation", "server"),
    Aside("client_validation", "client_validation", "validation", "clients"),
)


def lacking(who: str, part: Aside, partition: str = "") -> FedreproError:
    """The sentence for one who reads such examples where none were set aside."""
    holder = f", with validation_at: {part.at}" if part.at else ""
    named = f" '{partition}'" if partition else ""
    return FedreproError(
        f"{who} reads the examples of '{part.split}', and the partition{named} sets none aside: "
        f"give it {part.parameter}, a number{holder}"
    )

"""Kinds of training examples that a partition holds out, so that no client trains with them."""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Spec


@dataclass(frozen=True)
class Holdout:
    """A kind of held-out examples: training data that a partition gives no client to train on.

    split: their name in files. need: the key that a method declares in `needs` to get them.
    parameter: the partition's parameter that is their number. at: the value of the partition's
    `validation_at` that chooses this kind, if any.
    """

    split: str
    need: str
    parameter: str
    at: str | None = None


HOLDOUTS = (
    Holdout("public", "public_examples", "public"),
    Holdout("server_validation", "server_validation", "validation", "server"),
    Holdout("client_validation", "client_validation", "validation", "clients"),
)


def missing_holdout_error(who: str, part: Holdout, partition: str = "") -> FedreproError:
    """Return the error that `who` needs held-out examples (`part`), but `partition` has none."""
    holder = f", with validation_at: {part.at}" if part.at else ""
    named = f" '{partition}'" if partition else ""
    return FedreproError(
        f"{who} reads the examples of '{part.split}', and the partition{named} sets none aside: "
        f"give it {part.parameter}, a number{holder}"
    )


def validation_count(dataset: Spec, partition: Spec) -> int | None:
    """Return how many validation examples clients have at most; None if the data set decides."""
    if partition.values.get("validation_at") == "clients" and partition["validation"]:
        return int(partition["validation"])
    count: int | None = dataset.values.get("validation")  # type: ignore[assignment]
    return count


def missing_validation_error(who: str, who_has: str = "they have") -> FedreproError:
    """Return the error that `who` needs clients' validation examples and `who_has` none."""
    return FedreproError(
        f"{who} works on validation examples of clients, and {who_has} none: give the data set "
        "validation, a number, or the partition, with validation_at: clients"
    )


def too_few_examples_error(who: str, size: int, there: int) -> FedreproError:
    """Return the error that `who` asks for `size` public examples and only `there` exist."""
    return FedreproError(
        f"{who}: a public sample of {size} examples is asked for, and clients have {there} "
        "validation examples together: lower its examples, or set more aside for validation"
    )

"""Methods by the names of the field: some stand for a component with some parameters set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.params import render
from fedrepro.core.spec import Component


@dataclass(frozen=True)
class FieldName:
    """A name of the field, the component that it stands for, and values of its parameters.

    words: its equation or convention. training: its settings of the local training.
    """

    name: str
    method: str
    values: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        """Return the component with its parameters, and its changes of the training."""
        pairs = [f"{key}~{render(value)}" for key, value in sorted(self.values.items())]
        further = [f"{key} {render(value)}" for key, value in self.training.items()]
        trained = f", training with {', '.join(further)}" if further else ""
        return "+".join([self.method, *pairs]) + trained


FIELD_NAMES = (
    FieldName(
        "FedProx",
        "fedavg",
        {"proximal": 0.01},
        "adds mu/2 ||w - w_t||² to the clients' loss; `proximal` is mu, with the half, so give 2 mu"
        " for code that has no half (Li et al., 2020)",
    ),
    FieldName(
        "FedAvgM",
        "fedavg",
        {"server_momentum": 0.9},
        "v = 0.9 v + U and w = w + server_lr v for the mean update U (Hsu et al., 2019)",
    ),
    FieldName(
        "FedSGD",
        "fedavg",
        {"epochs": 1},
        "takes one step on all of a client's data in a round (McMahan et al., 2017)",
        {"batch_size": None},
    ),
    FieldName(
        "Local SGD", "fedavg", {"fraction": 1.0}, "trains all clients in every round (Stich, 2019)"
    ),
    FieldName("FedOpt", "fedadam", words="has Adam at the server (Reddi et al., 2021)"),
    FieldName("one-shot FedAvg", "average", words="is FedAvg with one round of all clients"),
    FieldName(
        "model soup", "average", {"weighted": False}, "is the plain mean (Wortsman et al., 2022)"
    ),
    FieldName("Git Re-Basin", "weight_matching", words="permutes units (Ainsworth et al., 2023)"),
    FieldName("TIES-Merging", "ties", words="elects signs (Yadav et al., 2023)"),
    FieldName("Fisher merging", "fisher_merge", words="(Matena and Raffel, 2022)"),
    FieldName("FedFisher", "fedfisher_kfac", words="with K-FAC; also `fedfisher_diagonal`"),
)


def method_called(name: str, known: Mapping[str, Component]) -> FieldName | None:
    """Return what a name stands for among known methods, or None; case and punctuation are ignored.

    A component's own name wins over a name of the field, and that over a label that one method has.
    """
    if name in known:
        return FieldName(name, name)
    wanted = simple(name)
    keys = [key for key in known if simple(key) == wanted]
    fields = [item for item in FIELD_NAMES if simple(item.name) == wanted and item.method in known]
    labels = [key for key, item in known.items() if simple(item.meta.get("label", "")) == wanted]
    if not keys and fields:
        return fields[0]
    found = keys or labels
    return FieldName(name, found[0]) if len(found) == 1 else None


def require_called(name: str, known: Mapping[str, Component], where: str = "") -> FieldName:
    """Return what a name stands for, where only a method and its parameters can be named.

    Raises:
        FedreproError: the name is unknown, or also sets the training.
    """
    found = method_called(name, known)
    if found is None:
        raise unknown_method(name, known, where)
    if found.training:
        raise FedreproError(
            f"'{name}' is {found.token}: name it in an exhibit, where an entry sets the training"
        )
    return found


def unknown_method(name: str, known: Collection[str], where: str = "") -> FedreproError:
    """Make the error for an unknown name; it names the nearest one."""
    return unknown(
        "method", name, [*known, *(item.name.lower() for item in names_of_field(known))], where
    )


def names_of_field(known: Collection[str]) -> list[FieldName]:
    """List the names of the field for these methods that are not component names."""
    taken = {simple(key) for key in known}
    return [item for item in FIELD_NAMES if item.method in known and simple(item.name) not in taken]


def simple(name: str) -> str:
    """Reduce a name to small letters, digits and plus signs, for comparison."""
    return "".join(sign for sign in name.lower() if sign.isalnum() or sign == "+")

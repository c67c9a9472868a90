"""Tokens (texts for a method, partition, … with its parameters) and names of methods in literature.

dirichlet+clients~25            name, then key~value for each value other than the default
pfnm+sigma2~0.01@0.1@1          @ joins a list: values to try, if the parameter takes one value
fedavg+epochs~1@5+lr~0.1@0.02+paired~2    two settings to try, (1, 0.1) and (5, 0.02)
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrepro.core.errors import unknown
from fedrepro.core.params import Value, render
from fedrepro.core.spec import Component, Spec


@dataclass(frozen=True)
class FieldName:
    """A name in the literature, such as FedProx, for our `method` with parameters set to `values`.

    words: its description, such as an equation. training: values by parameter of local training.
    """

    name: str
    method: str
    values: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        """Return the method and the parameters that this name sets, as in fedavg+proximal~0.01."""
        pairs = [f"{key}~{render(value)}" for key, value in sorted(self.values.items())]
        further = [f"{key} {render(value)}" for key, value in self.training.items()]
        trained = f", training with {', '.join(further)}" if further else ""
        return "+".join([self.method, *pairs]) + trained


PROXIMAL = (
    "adds mu/2 ||w - w_t||² to the clients' loss; `proximal` is mu, with the half, so give 2 mu "
    "for code that has no half (Li et al., 2020)"
)
MOMENTUM = "v = 0.9 v + U and w = w + server_lr v for the mean update U (Hsu et al., 2019)"
ONE_STEP = "takes one step on all of a client's data in a round (McMahan et al., 2017)"
FIELD_NAMES = (
    FieldName("FedProx", "fedavg", {"proximal": 0.01}, PROXIMAL),
    FieldName("FedAvgM", "fedavg", {"server_momentum": 0.9}, MOMENTUM),
    FieldName("FedSGD", "fedavg", {"epochs": 1}, ONE_STEP, {"batch_size": None}),
    FieldName(
        "Local SGD", "fedavg", {"fraction": 1.0}, "trains all clients in every round (Stich, 2019)"
    ),
    FieldName("FedBN", "fedavg", {"batchnorm": "local"}, "keeps each client's norms (Li, 2021)"),
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


def method_called(name: str, known: Mapping[str, Component], where: str = "") -> FieldName:
    """Return the method of `known`, components by name, that `name` means; raise if there is none.

    `name` is the method's own, one in the literature or its label in figures. If not exactly one
    fits, a FedreproError names `where`.
    """
    if name in known:
        return FieldName(name, name)
    wanted = simple(name)
    keys = [key for key in known if simple(key) == wanted]
    fields = [item for item in FIELD_NAMES if simple(item.name) == wanted and item.method in known]
    if fields and not keys:
        return fields[0]
    labels = [key for key, item in known.items() if simple(item.meta.get("label", "")) == wanted]
    found = keys or labels
    if len(found) != 1:
        names = [*known, *(item.name.lower() for item in names_of_field(known))]
        raise unknown("method", name, names, where)
    return FieldName(name, found[0])


def names_of_field(known: Collection[str]) -> list[FieldName]:
    """Return the names from the literature, such as FedProx, of the methods named in `known`."""
    taken = {simple(key) for key in known}
    return [item for item in FIELD_NAMES if item.method in known and simple(item.name) not in taken]


def simple(name: str) -> str:
    """Return a name in small letters, digits and plus signs only, to compare it with others."""
    return "".join(sign for sign in name.lower() if sign.isalnum() or sign == "+")


def setting_token(
    method: Spec, training: Sequence[tuple[str, Value]] = (), tune: Spec | None = None
) -> str:
    """Join tokens of method, `training` as [("lr", 0.1)], and `tune`: "fedavg;training+lr~0.1"."""
    changes = "".join(f"+{key}~{render(value)}" for key, value in training)
    trained = f"training{changes}" if changes else ""
    return ";".join(filter(None, [method.token, trained, tune.token if tune else ""]))


def setting_names(shown_by: Sequence[Spec], specs: Sequence[Spec], *further: str) -> str:
    """Return the name of a folder of results: the names of components `shown_by`, and a hash.

    The hash, which makes the name unique, is of all components `specs` with their parameters, and
    of the texts `further`.
    """
    text = "\n".join([*(f"{spec.kind} {spec.token}" for spec in specs), *further])
    key = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    return "-".join([*(spec.name for spec in shown_by), key])


def method_of(setting: str) -> str:
    """Return the method's name, such as fedavg, from a `setting` as `setting_token` writes it."""
    return setting.partition(";")[0].partition("+")[0]

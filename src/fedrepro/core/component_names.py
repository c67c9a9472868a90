"""Components by words: tokens, names of the field, classes of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.field_names import simple
from fedrepro.core.params import Param
from fedrepro.core.registry import components, model_in, read_token
from fedrepro.core.spec import Spec

CALLED = {"dataset": "data set", "training": "optimiser"}  # how kinds are called in sentences
LENET = {"channels": [6, 16], "kernel": 5, "padding": "valid", "hidden": [120, 84]}
# names of the field for a component with some of its parameters set
SHORT: Mapping[str, Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "dataset": {"fmnist": ("fashion_mnist", {})},
    "partition": {
        "two-labels": ("labels_each", {"each": 2}),
        "labels": ("labels_each", {}),
        "quantity": ("quantity_skew", {}),
        "noise": ("feature_noise", {}),
    },
    "model": {
        "2nn": ("mlp", {"hidden": [200, 200]}),
        "lenet5": ("cnn", LENET),
        "niid-bench-cnn": ("cnn", LENET),
        "pfllib-cnn": ("cnn", {**LENET, "channels": [32, 64], "hidden": [512]}),
    },
}


def spec_called(kind: str, word: str) -> Spec:
    """Return a component with its parameters, by a token or a name of the field.

    Raises:
        FedreproError: the name is unknown, or a value does not fit.
    """
    if "+" in word:
        name, _, rest = word.partition("+")
        entry = entry_of(kind, name)
        further = read_token(kind, f"{entry['name']}+{rest}")
        given = {part.partition("~")[0] for part in rest.split("+")}
        entry |= {key: value for key, value in further.values.items() if key in given}
    else:
        entry = entry_of(kind, word)
    return components(kind)[entry.pop("name")].spec(entry)


def entry_of(kind: str, word: str) -> dict[str, Any]:
    """Return the entry of a component by a name of the field.

    A value after a colon sets its first parameter, as in dirichlet:0.1. A model may be a class of a
    file: nets.py:Net.

    Raises:
        FedreproError: the name is unknown, or the value does not fit.
    """
    if kind == "model" and (name := model_in(word)):
        return {"name": name}
    called, sign, text = word.partition(":")
    known, short, wanted = components(kind), SHORT.get(kind, {}), simple(called)
    names = {**{key: (key, {}) for key in known}, **short}
    found = next((of for key, of in names.items() if simple(key) == wanted), None)
    if found is None:
        raise unknown(CALLED.get(kind, kind), called, names)
    name, values = found
    entry = {"name": name, **values}
    if sign:
        own = known[name].own_params
        key = next((key for key in own if key != "clients" and key not in values), None)
        if key is None:
            raise FedreproError(
                f"{CALLED.get(kind, kind)} '{called}' takes no value: write {called}"
            )
        entry[key] = value_of(own, key, text, word)
    return entry


def value_of(params: Mapping[str, Param], key: str, value: Any, where: str) -> Any:
    """Read the value of a parameter from text; other values are returned as they are.

    Raises:
        FedreproError: the parameter is unknown, or the text cannot be read.
    """
    if key not in params:
        raise unknown("parameter", key, params, f"'{where}'")
    if not isinstance(value, str):
        return value
    return params[key].read_list(value.replace(",", "@"), f"'{where}'")

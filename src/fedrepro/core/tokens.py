"""Tokens: specs as text, for settings in tables and keys of folders.

    dirichlet+clients~25            name, then key~value for each value other than the default
    pfnm+sigma2~0.01@0.1@1          a list joins its values by @; a list for a scalar is a sweep
    fedavg+epochs~1@5+lr~0.1@0.02+paired~2    a sweep of two settings, (1, 0.1) and (5, 0.02)

Tokens use letters, digits and `_ . - + ~ @` only. `parse` accepts the canonical form alone; parse
and `Spec.token` are inverse to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.field_names import require_called
from fedrepro.core.params import PAIRED, Value, render
from fedrepro.core.spec import Component, Spec


def setting_token(
    method: Spec, training: Sequence[tuple[str, Value]] = (), tune: Spec | None = None
) -> str:
    """Return a method's token with its changes of training and its tuning.

    For example fedavg;training+lr~0.1, or average;tune+examples~100.
    """
    changes = "".join(f"+{key}~{render(value)}" for key, value in training)
    parts = [method.token]
    parts += [f"training{changes}"] if changes else []
    return ";".join([*parts, tune.token] if tune else parts)


KEY_BYTES = 5  # of the digest in the name of a folder
LONGEST = 120  # letters in the name of a picture


def setting_names(shown_by: Sequence[Spec], specs: Sequence[Spec], *further: str) -> str:
    """Join the names of some components and a key of everything that a folder depends on."""
    text = "\n".join([*(f"{spec.kind} {spec.token}" for spec in specs), *further])
    key = hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).hexdigest()
    return "-".join([*(spec.name for spec in shown_by), key])


def shown_name(*specs: Spec) -> str:
    """Name the picture of components: by their tokens, where these are short."""
    tokens = "--".join(spec.token for spec in specs)
    return tokens if len(tokens) <= LONGEST else setting_names(specs, specs)


def method_of(setting: str) -> str:
    """Return the method's name of a token of `setting_token`: fedavg, local."""
    return setting.partition(";")[0].partition("+")[0]


def parse(components: Mapping[str, Component], token: str, kind: str = "component") -> Spec:
    """Return the spec of a token, in canonical form only.

    Raises:
        FedreproError: the form is another; the error gives the canonical one.
    """
    spec = read(components, token, kind)
    if spec.token != token:
        raise FedreproError(
            f"{kind} token '{token}' is not in canonical form; write '{spec.token}'"
        )
    return spec


def read(components: Mapping[str, Component], token: str, kind: str = "component") -> Spec:
    """Return the spec of a token, also if its keys are not sorted or it states a default."""
    name, *pairs = token.split("+")
    where = f"{kind} token '{token}'"
    values: dict[str, Any] = {}
    if kind == "method":
        found = require_called(name, components, f"'{token}'")
        name, values = found.method, dict(found.values)
    if name not in components:
        raise unknown(kind, name, components, f"'{token}'")
    component = components[name]
    paired = ""
    for pair in pairs:
        key, sep, text = pair.partition("~")
        if not sep or not text:
            raise FedreproError(f"{where}: '{pair}' is not of the form key~value")
        if key == PAIRED:
            paired = text
            continue
        if key not in component.params:
            raise unknown("parameter", key, component.params, where)
        values[key] = component.params[key].read_list(text, where)
    if not paired:
        return component.spec(values)
    return component.listing(values, int(paired) if paired.isdecimal() else 0, where)

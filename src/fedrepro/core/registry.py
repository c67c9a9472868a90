"""Components find themselves: every module of datasets/, partitions/, models/, methods/ … is read.

Component modules import neither torch nor torchvision nor scikit-learn at module level, so that
listing them, and planning, costs milliseconds.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Component, Spec, parse, read

KINDS = {
    "dataset": "fedrepro.components.datasets",
    "partition": "fedrepro.components.partitions",
    "model": "fedrepro.components.models",
    "training": "fedrepro.training.settings",
    "feature": "fedrepro.components.features",
    "method": "fedrepro.components.methods",
}
# the kinds that make a scenario, in the order in which they stand in a path
SCENARIO = ("dataset", "partition", "model", "training")

_found: dict[str, dict[str, Component]] = {kind: {} for kind in KINDS}
_loaded: set[str] = set()

F = TypeVar("F", bound=Callable[..., Any])


def register(kind: str, name: str, /, version: int, **meta: Any) -> Callable[[F], F]:
    """Decorator: the function below becomes the component `name` of this kind.

    `version` is an integer, raised whenever the component's results change: it is part of what
    Snakemake compares, so a mended component reruns what it touches.
    """

    def keep(fn: F) -> F:
        if name in _found[kind]:
            raise FedreproError(f"two {kind} components are named '{name}'; rename one")
        _found[kind][name] = Component(kind, name, version, fn, meta)
        return fn

    return keep


def components(kind: str) -> dict[str, Component]:
    """All components of a kind by name; imports the kind's modules on first use."""
    if kind not in _loaded:
        _loaded.add(kind)
        package = importlib.import_module(KINDS[kind])
        for module in sorted(
            m.name for m in pkgutil.iter_modules(getattr(package, "__path__", []))
        ):
            if not module.startswith("_"):
                importlib.import_module(f"{KINDS[kind]}.{module}")
    return _found[kind]


def parse_token(kind: str, token: str) -> Spec:
    """The spec that a token of this kind stands for (canonical form only)."""
    return _single(parse(components(kind), token, kind))


def read_token(kind: str, token: str) -> Spec:
    """The spec that a person means by a token of this kind, canonical or not."""
    return _single(read(components(kind), token, kind))


def _single(spec: Spec) -> Spec:
    """Only of methods one token may stand for several settings."""
    return spec if spec.kind == "method" else spec.single()

"""Components find themselves: every module of datasets/, models/, methods/ … is read, in
`components`, `methods` and the folders of papers, and so are files that the configuration names and
modules that installed packages declare (`outside.py`).

Component modules import neither torch nor torchvision nor scikit-learn at module level, so that
listing them, and planning, costs milliseconds.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fedrepro.core import outside
from fedrepro.core.errors import FedreproError
from fedrepro.core.packs import by_own_name, modules_in, modules_of_papers
from fedrepro.core.reading import opened_files
from fedrepro.core.sources import digest_of_file
from fedrepro.core.spec import Arg, Component, Spec
from fedrepro.core.tokens import parse, read

KINDS = {
    "dataset": "fedrepro.components.datasets",
    "partition": "fedrepro.components.partitions",
    "model": "fedrepro.components.models",
    "training": "fedrepro.components.trainings",
    "graph": "fedrepro.components.graphs",
    "feature": "fedrepro.components.features",
    "method": "fedrepro.methods",
}
DRAWING = "drawing"  # how an exhibit is shown: no result depends on it, and it has no token
PACKAGES = {**KINDS, DRAWING: "fedrepro.drawings.exhibits"}
# the kinds that make a scenario, in the order in which they stand in a path; the graph is there for
# peer methods alone
GRAPH = "graph"
SCENARIO = ("dataset", "partition", "model", "training", GRAPH)
WITHOUT_GRAPH = SCENARIO[:-1]


def _set_aside(
    *,
    public: Annotated[
        int, Arg("training examples in a labelled sample at the server", "examples", least=0)
    ] = 0,
    validation: Annotated[
        int, Arg("training examples to validate with instead", "examples", least=0)
    ] = 0,
    validation_at: Annotated[
        Literal["server", "clients"],
        Arg("who holds them: the server, or the clients in proportion to their training examples"),
    ] = "server",
) -> None:
    """Training examples that no client trains with, drawn once per trial before the partition."""


DEV = "dev"

# Parameters that every component of a kind has beside its own; the machinery acts on them.
COMMON: dict[str, Callable[..., Any]] = {"partition": _set_aside}

_found: dict[str, dict[str, Component]] = {kind: {} for kind in PACKAGES}
_loaded: set[str] = set()
# what each file outside the package registered, and whether installed packages were asked
_of_file: dict[str, list[tuple[str, str]]] = {}
_installed: list[bool] = []

F = TypeVar("F", bound=Callable[..., Any])


def register(kind: str, name: str, /, version: int | str, **meta: Any) -> Callable[[F], F]:
    """Decorator: the function below becomes the component `name` of this kind.

    `version` is an integer, raised whenever the component's results change: it is part of what
    Snakemake compares, so a mended component reruns what it touches. While one works on it,
    version="dev" stands for the digest of its file, so that every change of that file reruns it.
    """

    require_several(kind, name, files=meta.get("files"))

    def keep(fn: F) -> F:
        component = Component(kind, name, version, fn, meta, COMMON.get(kind))
        if name in _found[kind]:
            files = " and ".join(
                os.path.relpath(namesake.file)
                for namesake in (_found[kind][name], component)
                if namesake.file
            )
            raise FedreproError(f"two {kind} components are named '{name}', in {files}; rename one")
        digest = digest_of_file(component.file)  # this computes, whatever is on disk by then
        shown = f"{DEV}-{digest}" if version == DEV else version
        component = replace(component, version=shown, digest=digest)
        taken = sorted(set(component.own_params) & set(component.common_params))
        if taken:
            raise FedreproError(
                f"{kind} '{name}' has a parameter '{taken[0]}', which every {kind} has; rename it"
            )
        _found[kind][name] = component
        return fn

    return keep


def require_several(kind: str, name: str, **given: object) -> None:
    """Errors: FedreproError for a text where a decorator takes several, since it has letters."""
    for key, value in given.items():
        if isinstance(value, str):
            many = f"{{{value!r}}}" if key in ("needs", "models", "trainings") else f"({value!r},)"
            raise FedreproError(
                f"{kind} '{name}': `{key}` takes several, not one text: write {many} in its place"
            )


def components(kind: str) -> dict[str, Component]:
    """All components of a kind by name; imports the kind's modules on first use.

    Errors: FedreproError for a file outside the package that cannot be loaded.
    """
    if kind not in _loaded:
        _loaded.add(kind)
        papers = modules_of_papers(f"{kind}s")
        for module in by_own_name([*modules_in(PACKAGES[kind]), *papers]):
            importlib.import_module(module)
    _bring_outside()
    return _found[kind]


def components_of(file: str) -> list[Component]:
    """What a file that this process was told of registered, in its order."""
    components("method")
    return [_found[kind][name] for kind, name in _of_file.get(file, ())]


def _bring_outside() -> None:
    """Load what this process was told of and has not loaded; forget what it is told of no more."""
    if not _installed:
        _installed.append(True)  # before they are asked, since they may ask for components
        try:
            outside.load_installed()
        except FedreproError:
            _installed.clear()
            raise
    files = outside.named()
    for file in [file for file in _of_file if file not in files]:
        for kind, name in _of_file.pop(file):
            del _found[kind][name]
    for file in files:
        if file not in _of_file:
            _load(file)


def _load(file: str) -> None:
    """Load a file whole or not at all."""
    before = {kind: set(by_name) for kind, by_name in _found.items()}
    _of_file[file] = []  # it may ask for components while it is loaded
    try:
        # names that the package has are refused, so all of its own come first
        for kind in KINDS:
            components(kind)
        before = {kind: set(by_name) for kind, by_name in _found.items()}
        with opened_files() as opened:
            outside.load_file(file)
        _of_file[file] = [
            (kind, name)
            for kind, by_name in _found.items()
            for name in by_name
            if name not in before[kind]
        ]
        if not _of_file[file]:
            raise FedreproError(
                f"{file} has no component: decorate a function by @method or @register"
            )
        for kind, name in _of_file[file]:
            _found[kind][name].require_declared(opened)
    except BaseException:
        del _of_file[file]
        for kind, by_name in _found.items():
            for name in set(by_name) - before[kind]:
                del by_name[name]
        raise


def parse_token(kind: str, token: str) -> Spec:
    """The spec that a token of this kind stands for (canonical form only)."""
    return _single(parse(components(kind), token, kind))


def parse_settings(kind: str, token: str) -> Spec:
    """The same where a token may stand for several settings of any kind, as those of a race do."""
    return parse(components(kind), token, kind)


def read_token(kind: str, token: str) -> Spec:
    """The spec that a person means by a token of this kind, canonical or not."""
    return _single(read(components(kind), token, kind))


def _single(spec: Spec) -> Spec:
    """Only of methods one token may stand for several settings."""
    return spec if spec.kind == "method" else spec.single()

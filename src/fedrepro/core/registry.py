"""The registry of components: data sets, partitions, models, methods and so on, by name.

Modules register their functions by decorators: ours, which load without torch and scikit-learn so
that planning takes milliseconds, and a user's files (`user_component_files.py`). A kind is a group
of components, such as method or partition. An unknown name or value raises FedreproError.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fedrepro import DRAWINGS, PAPERS
from fedrepro import KINDS as KINDS
from fedrepro.core import user_component_files as component_files
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.literature_names_and_setting_tokens import method_called, simple
from fedrepro.core.method_kinds import MODULE
from fedrepro.core.paper_files import modules_in, paper_names
from fedrepro.core.params import PAIRED, Param
from fedrepro.core.source_digests import digest_of_file
from fedrepro.core.spec import Arg, Component, Spec

DRAWING = "drawing"  # shows an exhibit: no result depends on it, and it has no token
TUNE = "tune"  # trains further what a method made; papers alone have such
PACKAGES = {**KINDS, DRAWING: DRAWINGS, TUNE: PAPERS}
# the kinds that make a scenario, in the order in which they stand in a path; decentralised methods
# alone have a graph
GRAPH = "graph"
SCENARIO = ("dataset", "partition", "model", "training", GRAPH)
WITHOUT_GRAPH = SCENARIO[:-1]
# arguments of a user's class, by the value that they get
SHAPES = ("shape", "input_shape")
CHANNELS = ("in_channels", "in_features", "input_channels")
CLASSES = ("classes", "num_classes", "n_classes", "out_features")
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


def _set_aside(
    *,
    public: Annotated[
        int,
        Arg("training examples that become a labelled sample at the server", "examples", least=0),
    ] = 0,
    validation: Annotated[
        int, Arg("training examples that are held out for validation", "examples", least=0)
    ] = 0,
    validation_at: Annotated[
        Literal["server", "clients"],
        Arg(
            "who holds validation examples: the server, or the clients in proportion to their "
            "training examples"
        ),
    ] = "server",
) -> None:
    """Declare parameters of all partitions, for training examples that no client trains with."""


# Parameters that every component of a kind has besides its own; the machinery acts on them.
COMMON: dict[str, Callable[..., Any]] = {"partition": _set_aside}
# what a data set of a user need not say
UNNAMED = {"files": (), "licence": "none stated", "citation": "none stated"}

_found: dict[str, dict[str, Component]] = {kind: {} for kind in PACKAGES}
_loaded: set[str] = set()  # kinds
_of_file: dict[str, list[Component]] = {}  # by file outside the package

F = TypeVar("F", bound=Callable[..., Any])


def register(
    kind: str, name: str, /, version: int = 1, common: Callable[..., Any] | None = None, **meta: Any
) -> Callable[[F], F]:
    """Register the decorated function as a component, so that configurations can name it.

    Args:
        kind: dataset, partition, model, training, graph and so on.
        name: unique in its kind.
        version: a number to raise whenever results change; a hash of a user's file is added.
        common: a function whose parameters the component has too; they are not passed to it.
        meta: further properties, which depend on `kind`.
    """
    require_several(kind, name, files=meta.get("files"))

    def keep(fn: F) -> F:
        known = {"title": name, **(UNNAMED if kind == "dataset" else {}), **meta}
        component = Component(kind, name, version, fn, known, common or COMMON.get(kind))
        if name in _found[kind]:
            both = (_found[kind][name], component)
            files = " and ".join(os.path.relpath(item.file) for item in both if item.file)
            raise FedreproError(f"two {kind} components are named '{name}', in {files}; rename one")
        # as it was loaded, whatever is on disk later
        if fn.__module__.startswith("fedrepro."):
            component = replace(component, digest=digest_of_file(component.file))
        else:  # any change of its file, or of what that imports, may change results
            digest = component_files.digest_with_imports(component.file)
            component = replace(component, digest=digest, version=f"{version}-{digest}")
        _found[kind][name] = component
        return fn

    return keep


def require_several(kind: str, name: str, **given: object) -> None:
    """Raise FedreproError if a property in `given`, of component `name`, is a text, not a list."""
    for key, value in given.items():
        if isinstance(value, str):
            many = f"{{{value!r}}}" if key in ("needs", "models", "trainings") else f"({value!r},)"
            said = f"{kind} '{name}': `{key}` takes several, not one text"
            raise FedreproError(f"{said}: write {many} in its place")


def _import(kind: str) -> None:
    if kind in _loaded:
        return
    _loaded.add(kind)  # before their import, since they may ask for components
    papers = [paper for paper, at in paper_names().items() if (at / f"{kind}s").is_dir()]
    packages = (PACKAGES[kind], *(f"{PAPERS}.{paper}.{kind}s" for paper in papers))
    modules = [name for package in packages for name in modules_in(package)]
    for module in sorted(modules, key=lambda name: (name.rpartition(".")[2], name)):
        importlib.import_module(module)


def components(kind: str) -> dict[str, Component]:
    """Import the modules that define components of a kind, as method; return components by name."""
    _import(kind)
    files = component_files.configured_files()
    gone = _of_file.keys() - files
    for file in gone:
        for item in _of_file.pop(file):
            _found[item.kind].pop(item.name, None)
    for item in [one for own in _of_file.values() for one in own] if gone else []:
        _found[item.kind].setdefault(item.name, item)  # a part of the same file may have gone
    for file in files:
        if file not in _of_file:
            _load(file)
    return _found[kind]


def component_called(kind: str, name: Any, where: str = "") -> Component:
    """Return the component `name` of a `kind`; raise "unknown <kind> '<name>' in <where>" else."""
    known = components(kind)
    if name not in known:
        raise unknown(kind, name, known, where)
    return known[name]


def model_in(word: str) -> str:
    """Register as a model the class in a word like nets.py:Net; return its name, "" for others."""
    return components_of(word)[0].name if component_files.OF_CLASS.search(word) else ""


def components_of(file: str) -> list[Component]:
    """Load a user's Python file, or its class, as nets.py:Net; return the components registered."""
    before = component_files.configured_files()
    component_files.add_files([file])
    try:
        components("model")
    except FedreproError:
        component_files.set_files(before)  # so that later calls do not fail for this one
        raise
    path = os.path.abspath(file)
    return next(own for other, own in _of_file.items() if os.path.abspath(other) == path)


def _load(file: str) -> None:
    """Load a user's Python file and register its methods, models, …; register none if it fails."""
    for kind in KINDS:  # names that the package has are refused, so its components come first
        _import(kind)
    whole = {kind: dict(found) for kind, found in _found.items()}
    same = component_files.module_of(file)  # may be loaded, as a file and as one with a class
    again = [c for at, cs in _of_file.items() if component_files.module_of(at) == same for c in cs]
    for item in again:
        _found[item.kind].pop(item.name, None)
    before = {kind: dict(found) for kind, found in _found.items()}
    own = _of_file[file] = list[Component]()  # it may ask for components while it is loaded
    try:
        with component_files.opened_files() as opened:
            made = component_files.load_file(file)
        models = _found["model"].values() if made else ()
        asked = next((item.name for item in models if item.fn is made), "")
        if made and not asked:
            name = made.__name__.lower()
            others = (f"own_{name}{i}" for i in ("", *range(2, len(before["model"]) + 2)))
            asked = next(one for one in (name, *others) if one not in before["model"])
            keep = register("model", asked, 1, None, title=made.__name__, **{MODULE: True})
            keep(called_by(made, component_files.module_of(file)))
        for kind, name in [(k, n) for k, at in _found.items() for n in at if n not in before[k]]:
            if not asked or (kind, name) == ("model", asked):
                own.append(_found[kind][name])
            else:  # other components of the file are not asked for
                del _found[kind][name]
        if not own:
            fix = "decorate a function by @method or @register"
            raise FedreproError(f"{file} has no component: {fix}")
        for item in own:
            item.require_declared(opened)
        for item in again:
            _found[item.kind].setdefault(item.name, item)
    except BaseException:
        del _of_file[file]
        for kind, found in whole.items():
            _found[kind].clear()
            _found[kind].update(found)
        raise


def called_by(made: Callable[..., Any], module: str) -> Callable[..., Any]:
    """Wrap a network class `made` as a function of (shape, classes) with __module__ `module`."""
    asked = inspect.signature(made).parameters.values()
    for item in asked:
        variadic = item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
        known = variadic or item.name in (*SHAPES, *CHANNELS, *CLASSES)
        if item.default is item.empty and not known:
            said = f"{made.__name__} takes '{item.name}', whose value is unknown"
            fix = "write a function of shape and classes that makes it, and put @module before it"
            raise FedreproError(f"{said}: {fix} (docs/models.md)")

    def model(shape: tuple[int, ...], classes: int) -> Any:
        known = dict.fromkeys(SHAPES, shape) | dict.fromkeys(CHANNELS, shape[0])
        known |= dict.fromkeys(CLASSES, classes)
        return made(**{p.name: known[p.name] for p in asked if p.name in known})

    model.__doc__, model.__module__ = inspect.getdoc(made), module
    return model


def parse_token(kind: str, token: str) -> Spec:
    """Return the Spec of a `kind` that `token` means: a `Spec.token` or a word as in `entry_of`."""
    spec = spec_of_entry(kind, entry_of(kind, token))
    # a token may stand for several settings of a method, but of nothing else
    return spec if kind == "method" else spec.single()


def spec_of_entry(kind: str, entry: Mapping[str, Any], where: str = "") -> Spec:
    """Return the Spec that a dict from `Spec.entry` describes; errors begin with `where`."""
    component = component_called(kind, entry["name"], where)
    make = component.listing if PAIRED in entry else component.spec
    return make({key: v for key, v in entry.items() if key not in ("name", PAIRED)}, where)


def entry_of(kind: str, word: str) -> dict[str, Any]:
    """Return as a dict the `name` of the component that a user's `word` means, and its parameters.

    The word is a name, or one of SHORT such as 2nn; dirichlet:0.1 sets the first parameter too, and
    dirichlet+alpha~0.1 parameters by name. A model may be a class of a file: nets.py:Net.
    """
    if kind == "model" and (name := model_in(word)):
        return {"name": name}
    called, *pairs = word.split("+")
    called, sign, text = called.partition(":")
    known, what = components(kind), CALLED.get(kind, kind)
    if kind == "method":
        found = method_called(called, known, f"'{word}'")
        if found.training:
            said = f"'{called}' is {found.token}"
            raise FedreproError(f"{said}: name it in an exhibit, where an entry sets the training")
        name, values = found.method, found.values
    else:
        names = {**{key: (key, {}) for key in known}, **SHORT.get(kind, {})}
        meant = (of for key, of in names.items() if simple(key) == simple(called))
        name, values = next(meant, ("", {}))
        if not name and called.endswith(".py"):
            fix = f"is a file: set FEDREPRO_COMPONENTS={called} and give the name that it registers"
            fix = f"names no class: write it as {called}:Net" if kind == "model" else fix
            raise FedreproError(f"{what} '{word}' {fix}")
        if not name:
            raise unknown(what, called, names)
    entry = {"name": name, **values}
    if sign:
        own = known[name].own_params
        key = next((key for key in own if key != "clients" and key not in values), None)
        if key is None:
            raise FedreproError(f"{what} '{called}' takes no value: write {called}")
        pairs.append(f"{key}~{text}")
    for pair in pairs:
        key, _, text = pair.partition("~")
        if not text:
            raise FedreproError(f"'{word}': '{pair}' is not of the form key~value")
        entry[key] = text if key == PAIRED else value_of(known[name].params, key, text, word)
    return entry


def value_of(params: Mapping[str, Param], key: str, value: Any, where: str) -> Any:
    """Convert `value`, if a text, to the type of params[key]; errors quote `where`, its source."""
    if key not in params:
        raise unknown("parameter", key, params, f"'{where}'")
    if not isinstance(value, str):
        return value
    return params[key].read_list(value.replace(",", "@"), f"'{where}'")

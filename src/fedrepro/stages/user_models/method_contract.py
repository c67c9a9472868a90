"""Rules that methods of each kind must keep, checked by running them on a small federation.

Tests check the package's methods; `fedrepro check-method` a user's, on digits, in seconds. A
rule is a function, such as `combines`, that raises FedreproError if a method breaks it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrepro.api import BELIEFS, NEEDS, ClientInfo, GlobalModel, LocalModels, Simulated, takes
from fedrepro.core import user_component_files as component_files
from fedrepro.core.checkpoint_and_model_files import from_plain, load_state, save_state, to_plain
from fedrepro.core.checksummed_files import temporary_folder
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.metrics import metrics_of
from fedrepro.core.registry import components, components_of, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component, Spec
from fedrepro.data.client_assignment_and_skew import Assignment, TrainingLabels
from fedrepro.data.prepared import Arrays
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import class_scores
from fedrepro.stages.aggregate import SharedPreparation, run_setting
from fedrepro.stages.trial_data import declared_part
from fedrepro.stages.user_models.combine import each
from fedrepro.training.engine import train
from fedrepro.training.federation.clients import ClientData, Clients, GraphNodes, initial_weights
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.mixing_matrices import weights_of
from fedrepro.training.training_examples import Examples, tensor_of
from fedrepro.training.training_settings_and_procedures import settings_of

METHODS = "fedrepro.methods", "fedrepro.papers"
MODELS = ("mlp+hidden~20", "logistic", "variational_mlp+hidden~20")  # the first that suits is taken


@dataclass(frozen=True)
class SmallProblem:
    """A small federation to try methods on; `info` has all that a method may declare to need.

    Client j has rows[j] of the training examples `inputs`, float32 (N, D), and `labels`, int64
    (N,), on which `models` are trained.
    """

    inputs: np.ndarray
    labels: np.ndarray
    rows: list[np.ndarray]
    clients: Clients
    models: LocalModels
    info: ClientInfo


def problem_of(
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],
    rows: list[np.ndarray],
    validation: list[np.ndarray],
    model: Spec,
    training: Spec,
    shape: tuple[int, ...],
    classes: int,
) -> SmallProblem:
    """Make a small federation: train a model for each client, by seed 0 and trial 0.

    `pairs` has (inputs float32 (n, D), labels int64 (n,)) for `train`, `clients` (to validate),
    `server`, `public`. Client j has rows[j] of `train` and validation[j] of `clients`.
    """
    examples = {k: Examples(tensor_of(x), tensor_of(y)) for k, (x, y) in pairs.items()}
    inputs, labels = pairs["train"]
    network, settings = network_of(model, shape, classes), settings_of(training)
    tasks = [Task(client_rows, RngKey(0, 0, j)) for j, client_rows in enumerate(rows)]
    starts = initial_weights(network, settings, [task.rng for task in tasks])
    own = train(network, examples["train"], tasks, settings, starts).tensors
    data = ClientData(examples["train"], rows, validation, examples["clients"])
    clients = Clients(model, network, settings, data, needs=NEEDS, own=own)
    first, counts = initial_weights(network, settings, [RngKey(0)]), clients.label_counts
    of_all = inputs, labels, *pairs["public"], *pairs["server"], clients, first
    info = ClientInfo(training, "cpu", counts.sum(1), counts, *of_all)
    models = LocalModels(model, shape, classes, own)
    return SmallProblem(inputs, labels, rows, clients, models, info)


def peers_of(clients: Clients, graph: str = "ring") -> GraphNodes:
    """Return the clients as nodes of a graph, such as a ring."""
    weights = weights_of(components("graph")[graph].spec(), clients.count, RngKey(0))
    return GraphNodes(**vars(clients), weights=weights)


def _require(whether: bool, sentence: str) -> None:
    if not whether:
        raise FedreproError(sentence)


class _Watched:
    """Clients that raise FedreproError if a method's code reads their data itself."""

    def __getattribute__(self, name: str) -> Any:
        if name == "data":
            reader = sys._getframe(1).f_globals.get("__name__", "")
            item = components("method").get(object.__getattribute__(self, "method"))
            mine = item.fn.__module__ if item else METHODS[0]
            forbidden = reader == mine or reader.startswith((*METHODS, component_files.MODULES))
            said = f"a method reads `clients.data` (in {reader}): let clients answer instead"
            _require(not forbidden, said)
        return super().__getattribute__(name)


def watched(item: Component, clients: Clients) -> Clients:
    """Return `clients` that do only what the method `item` declares, with their data hidden."""
    on_graph = item.meta["kind"] == "peer"
    if on_graph and not isinstance(clients, GraphNodes):
        clients = peers_of(clients)
    values = {f.name: getattr(clients, f.name) for f in fields(clients)}
    bases = _Watched, GraphNodes if on_graph else Clients
    kind: Callable[..., Clients] = type("Watched", bases, {})
    return kind(**values | {"method": item.name, "needs": item.meta["needs"]})


def allowed(info: ClientInfo, item: Component) -> ClientInfo:
    """Return the part of `info` that the method `item` declares, with clients' data hidden."""
    part = declared_part(info, item)
    return replace(part, clients=part.clients and watched(item, part.clients))


def made_of(
    item: Component, models: LocalModels, info: ClientInfo, values: Mapping[str, Any]
) -> Any:
    """Run the one-shot method or control `item` with parameters `values`; return its result."""
    return run_setting(item.spec(values), SharedPreparation(models, info, RngKey(0))).made


def probabilities_of(model: GlobalModel, problem: SmallProblem) -> torch.Tensor:
    """Return a model's class probabilities for the training examples, (N, K); require finite."""
    network = network_of(model.model, problem.models.shape, problem.models.classes)
    try:
        scores = class_scores(network, model, problem.clients.data.examples, None)
    except (RuntimeError, ValueError) as error:
        forms = {name: np.shape(value) for name, value in model.tensors.items()}
        said = f"its networks cannot predict, with tensors of shapes {forms}"
        raise FedreproError(said) from error
    _require(bool(torch.isfinite(scores).all()), "its predictions are not finite")
    return scores


def says_what_it_is(item: Component, problem: SmallProblem | None = None) -> None:
    """Require a docstring, evaluation on test examples, defaults in any grid; ignore `problem`."""
    _require(bool(item.doc), "its docstring has no first line, which is what people read")
    on = "test" in item.meta["evaluate"]
    _require(on, "it is not measured on test examples: put test in `evaluate`")
    if grid := {k: list(v) for k, v in item.meta["grid"].items()}:
        settings = list(item.spec(grid).expand())
        _require(len(settings) > 1, "its grid has one setting: give several, or none")
        _require(item.spec() in settings, "its grid leaves the default setting out")


def combines(item: Component, problem: SmallProblem) -> None:
    """Require that method `item` combines the models of `problem`, and leaves these unchanged.

    Its result has finite predictions, only declared metrics, and equal weights in a second call.
    """
    before, classes = problem.models.tensors, problem.models.classes
    models = replace(problem.models, tensors={k: value.copy() for k, value in before.items()})
    info = allowed(problem.info, item)
    first, second = (each(made_of(item, models, info, {})) for _ in range(2))
    _require(bool(first), "it makes no model of these clients")
    changed = [k for k, v in models.tensors.items() if not np.array_equal(before[k], v)]
    _require(not changed, f"it changes {changed[:1]} of the clients' models: work on a copy")
    for model, repeated in zip(first, second, strict=True):
        scores = probabilities_of(model, problem)
        actual, shape = tuple(scores.shape), (len(problem.labels), classes)
        _require(actual == shape, f"its predictions are {actual}: not {shape}")
        if (weights := model.weights) is not None:
            actual, shape = weights.shape, (model.networks, classes)
            _require(actual == shape, f"its weights are {actual}, not {shape}")
            _require(np.allclose(weights.sum(0), 1), "the weights of a class do not add up to 1")
        _require_known(item, "its diagnostics", model.diagnostics)
        once, twice = (
            [*made.tensors.items(), *(made.gate or {}).items(), ("weights", np.array(made.weights))]
            for made in (model, repeated)
        )
        pairs = zip(once, twice, strict=True)
        differing = [name for (name, a), (_, b) in pairs if not np.array_equal(a, b)]
        said = f"a second call makes another {differing[:1]}: draw from rng.stream"
        _require(not differing, said)


def goes_on(item: Component, problem: SmallProblem) -> None:
    """Require that a round leaves its input state unchanged, and can begin from a saved state.

    The round's report must have only metrics that the method declares. The new state must give
    finite predictions, or on a graph a finite network for each node (its belief).
    """
    made, clients, info = item.fn(), watched(item, problem.clients), allowed(problem.info, item)
    with temporary_folder() as folder:
        path = folder / "state.pt"

        def kept(state: dict[str, Any]) -> bytes:
            save_state(path, to_plain(state))
            return path.read_bytes()

        state = made.init(clients, info, RngKey(0))
        for done in range(2):
            before, rng = kept(state), RngKey(0).at(round=done)
            read = from_plain(load_state(path))
            after, report = made.round(state, clients, info, rng)
            again, _ = made.round(read, clients, info, rng)
            said = "a round gives another state after its own state was saved and read"
            fix = "keep in the state all that a round reads, and draw from rng"
            _require(kept(after) == kept(again), f"{said}: {fix}")
            said = "a round changes the state that it is given: make a new one"
            _require(kept(state) == before, said)
            _require_known(item, "its report", report.metrics, report.clients)
            for name, values in report.clients.items():
                said = f"{name} is {np.shape(values)} in its report: not one a client"
                _require(np.shape(values) == (clients.count,), said)
            if item.meta["kind"] == "federated":
                probabilities_of(each(made.model(after, clients))[0], problem)
            else:
                _require_networks(made.beliefs(after, clients), clients)
            state = after


def _require_networks(beliefs: Mapping[str, Any], clients: Clients) -> None:
    shapes = {key: (clients.count, *shape) for key, shape in clients.network.shapes.items()}
    _require(set(beliefs) == set(BELIEFS), f"beliefs are {sorted(beliefs)}: not {BELIEFS}")
    for tensors in beliefs.values():
        actual = {key: value.shape for key, value in tensors.items()}
        _require(actual == shapes, f"tensors of a belief are {actual}: not {shapes}")
        sound = all(v.dtype == np.float32 and np.isfinite(v).all() for v in tensors.values())
        _require(sound, "a belief has weights that are not finite numbers of float32")


def simulates(item: Component, problem: SmallProblem | None = None) -> None:
    """Require that a simulation gives declared metrics, equal if repeated; ignore `problem`."""
    first, second = (item.make(Simulated, rng=RngKey(0), **item.spec().values) for _ in range(2))
    _require(bool(first.rounds), "it takes no step")
    _require_known(item, "what it found", *first.rounds.values(), first.ended)
    said = "a second call finds something else: draw from rng.stream"
    _require(repr(first) == repr(second), said)


Rule = Callable[..., None]  # called with a method and a small federation; raises FedreproError
# the words of each rule, and the kinds of methods that have to keep it
RULES: Mapping[Rule, tuple[str, Collection[str]]] = {
    says_what_it_is: ("says what it is, and which settings it tries", METHOD_KINDS),
    combines: ("predicts, with what it declares, twice the same", ("one_shot", "control")),
    goes_on: ("a round is pure, and goes on from a saved state", ["federated", "peer"]),
    simulates: ("finds numbers that are known, twice the same", ["simulation"]),
}


def rules_of(item: Component) -> dict[Rule, str]:
    """Return {rule: sentence on it} of the rules that the method `item` has to keep."""
    return {rule: words for rule, (words, kinds) in RULES.items() if item.meta["kind"] in kinds}


def _require_known(item: Component, where: str, *found: Collection[str]) -> None:
    strange = sorted({name for names in found for name in names} - set(metrics_of(item.spec())))
    said = f"{where} has '{strange[:1]}', which its decorator does not declare (metrics=…)"
    _require(not strange, said)


def methods_of(wanted: str) -> list[Component]:
    """Return the methods of a Python file, or the installed method of the name `wanted`."""
    if not wanted.endswith(".py"):
        known = components("method")
        if wanted not in known:
            raise unknown("method", wanted, known, "fedrepro (a file ends in .py)")
        return [known[wanted]]
    methods = [item for item in components_of(wanted) if item.kind == "method"]
    if not methods:
        raise FedreproError(f"{wanted} has no method: decorate a function or class by @method")
    return methods


def check_method(item: Component, model: str = "") -> dict[str, str]:
    """Check that a method keeps its rules, on digits with the network `model` or a small one.

    Returns {rule in words: why the method breaks it, or ""}.
    """
    for name in (name for name, param in item.params.items() if param.required):
        raise FedreproError(f"method '{item.name}' has no default for '{name}': give it one")
    digits = _digits(item, model) if METHOD_KINDS[item.meta["kind"]].with_data else None
    broken = {}
    for rule, words in rules_of(item).items():
        broken[words] = ""
        try:
            rule(item, digits)
        except FedreproError as error:
            broken[words] = str(error)
        except Exception as error:  # a stranger's code may raise anything
            broken[words] = component_files.own_fault(error) or f"{type(error).__name__}: {error}"
    return broken


def _digits(item: Component, named: str) -> SmallProblem:
    """Make a federation of five clients on digits, or of one if the method sets the partition."""
    fitting = [parse_token("model", word) for word in ([named] if named else MODELS)]
    model = next((spec for spec in fitting if takes(item, spec)), None)
    if model is None:
        tried, models = ", ".join(spec.token for spec in fitting), sorted(item.meta["models"])
        said = f"method '{item.name}' combines {', '.join(models)}, not '{tried}'"
        raise FedreproError(f"{said}: name one by --model")
    scenario, override = item.meta["scenario"], item.meta["scenario"].get("training")
    training = {"epochs": 10, "shared_init": bool(item.meta["one_start"])}
    training |= override if isinstance(override, Mapping) else {}
    spec = components("dataset")["digits"].spec({"test": 360, "validation": 300})
    made = spec.component.make(Arrays, Path(), **spec.values)
    x = {k: (part / np.float32(16)).reshape(len(part), -1) for k, part in made.x.items()}
    y, classes = made.y, len(made.classes)
    held = TrainingLabels(y["train"], classes, np.full(len(y["train"]), -1, np.int32))
    word = "pooled" if "partition" in scenario else "dirichlet+alpha~0.5+clients~5"
    kind = parse_token("partition", word)
    owners = kind.component.make(Assignment, held, RngKey(0, 0), **kind.own)
    rows = [np.flatnonzero(owners.owner == j) for j in range(owners.clients)]
    pairs = {"train": (x["train"], y["train"])}
    for at, name in enumerate(("clients", "server", "public")):
        pairs[name] = x["validation"][at::3], y["validation"][at::3]
    own = [np.arange(j, len(pairs["clients"][1]), owners.clients) for j in range(owners.clients)]
    how = components("training")[min(item.meta["trainings"] or ["adam"])].spec(training)
    return problem_of(pairs, rows, own, model, how, made.shape, classes)

"""Contract of every method, on a small federated problem in memory.

The package's own methods are held to it by its tests, others by `fedrepro check-method`. A check is
a function of a component and a small problem, and raises `ContractError` if it fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrepro.api import (
    BELIEFS,
    BUDGET,
    NEEDS,
    ClientInfo,
    GlobalModel,
    LocalModels,
    MethodOutput,
    Simulated,
    State,
)
from fedrepro.core import plugins
from fedrepro.core.metrics import metrics_of
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import from_plain, load_state, save_state, to_plain
from fedrepro.core.spec import Component, Spec
from fedrepro.core.temporary_folders import temporary_folder
from fedrepro.data.assignment import Assignment, TrainingLabels
from fedrepro.data.holdout import HOLDOUTS
from fedrepro.data.prepared import Arrays
from fedrepro.networks.predict import network_of, probabilities
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.stages.aggregate import SharedPreparation, require_models
from fedrepro.stages.trial_data import AT_CLIENTS
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import ClientData, Clients, GraphNodes, initial_weights
from fedrepro.training.minibatches import Task
from fedrepro.training.mixing_matrices import weights_of
from fedrepro.training.training_settings import settings_of

DIGITS = "digits, 5 clients, each with most of its examples in few classes"
TEST, HELD = 360, 300  # examples of the digits for testing; for validation and the public, a third


@dataclass(frozen=True)
class SmallProblem:
    """Inputs float32 (N, D) and labels int64 (N,); client j has rows[j].

    `models` are those that clients trained; `info` is complete, and each method gets its part; no
    client has the examples of `test`.
    """

    inputs: np.ndarray
    labels: np.ndarray
    rows: list[np.ndarray]
    training: Spec
    clients: Clients
    models: LocalModels
    info: ClientInfo
    test: EvaluationSplit


def problem_of(
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],
    rows: list[np.ndarray],
    validation: list[np.ndarray],
    model: Spec,
    training: Spec,
    shape: tuple[int, ...],
    classes: int,
) -> SmallProblem:
    """Train the clients' models, by seed 0 and trial 0.

    `pairs` are inputs float32 (n, D) and labels int64 (n,), by what they are for: `train` (rows[j]
    are those of client j), `clients` (it validates with validation[j]), `server`, `public`, `test`.
    """
    examples = {
        name: Examples(torch.from_numpy(x), torch.from_numpy(y)) for name, (x, y) in pairs.items()
    }
    inputs, labels = pairs["train"]
    network, settings = network_of(model, shape, classes), settings_of(training)
    tasks = [Task(client_rows, RngKey(0, 0, j)) for j, client_rows in enumerate(rows)]
    starts = initial_weights(network, settings, [task.rng for task in tasks])
    own = train(network, examples["train"], tasks, settings, starts).tensors
    data = ClientData(examples["train"], rows, validation, examples["clients"])
    clients = Clients(model, network, settings, data, needs=NEEDS, own=own)
    counts = np.stack([np.bincount(labels[client_rows], minlength=classes) for client_rows in rows])
    info = ClientInfo(
        training=training,
        example_counts=counts.sum(1),
        label_counts=counts,
        pooled_inputs=inputs,
        pooled_labels=labels,
        validation_inputs=pairs["server"][0],
        validation_labels=pairs["server"][1],
        public_inputs=pairs["public"][0],
        public_labels=pairs["public"][1],
        clients=clients,
        start=initial_weights(network, settings, [RngKey(0)]),
    )
    models = LocalModels(model, shape, classes, own)
    test = EvaluationSplit(examples["test"], pairs["test"][1], shape, classes)
    return SmallProblem(inputs, labels, rows, training, clients, models, info, test)


def peers_of(clients: Clients, graph: str = "ring") -> GraphNodes:
    """Make the clients nodes of a graph."""
    weights = weights_of(components("graph")[graph].spec(), clients.count, RngKey(0))
    return GraphNodes(**vars(clients), weights=weights)


def digits_problem(model: Spec, *, pooled: bool = False, **training: object) -> SmallProblem:
    """Make five clients with digits of unlike classes, or one that has all of them.

    `training` changes the local training, adam for 10 epochs.
    """
    made = _digits()
    y, classes = made.y, len(made.classes)
    x = {k: (part / np.float32(16)).reshape(len(part), -1) for k, part in made.x.items()}
    held = TrainingLabels(y["train"], classes, np.full(len(y["train"]), -1, np.int32))
    values = {} if pooled else {"clients": 5, "alpha": 0.5}
    kind = components("partition")["pooled" if pooled else "dirichlet"].spec(values)
    owners = kind.component.make(Assignment, held, RngKey(0, 0), **kind.own)
    rows = [np.flatnonzero(owners.owner == j) for j in range(owners.clients)]
    thirds = [(x["validation"][at::3], y["validation"][at::3]) for at in range(3)]
    own = [np.arange(j, len(thirds[0][1]), owners.clients) for j in range(owners.clients)]
    pairs = {split: (x[split], y[split]) for split in ("train", "test")}
    pairs |= dict(zip(("clients", "server", "public"), thirds, strict=True))
    how = components("training")["adam"].spec({"epochs": 10, **training})
    return problem_of(pairs, rows, own, model, how, made.shape, classes)


@cache
def _digits() -> Arrays:
    spec = components("dataset")["digits"].spec({"test": TEST, "validation": HELD})
    return spec.component.make(Arrays, Path(), **spec.values)


METHODS = "fedrepro.methods", "fedrepro.papers"


class ContractError(Exception):
    """A sentence that says which rule a method breaks."""


def hold(whether: bool, sentence: str) -> None:
    """Raise ContractError with this sentence unless the condition is true."""
    if not whether:
        raise ContractError(sentence)


class _Watched:
    """Clients whose data, which stay with them, no method may read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "data":
            reader = sys._getframe(1).f_globals.get("__name__", "")
            item = components("method").get(object.__getattribute__(self, "method"))
            mine = item.fn.__module__ if item else METHODS[0]
            if reader == mine or reader.startswith((*METHODS, plugins.MODULES)):
                raise ContractError(
                    f"a method reads `clients.data` (in {reader}): let clients answer instead"
                )
        return super().__getattribute__(name)


class WatchedClients(_Watched, Clients): ...


class WatchedPeers(_Watched, GraphNodes): ...


def watched(item: Component, clients: Clients) -> Clients:
    """Restrict clients to what this method declared, as the harness does."""
    on_graph = item.meta["kind"] == "peer"
    if on_graph and not isinstance(clients, GraphNodes):
        clients = peers_of(clients)
    values = {f.name: getattr(clients, f.name) for f in fields(clients)}
    kind: Callable[..., Clients] = WatchedPeers if on_graph else WatchedClients
    return kind(**values | {"method": item.name, "needs": item.meta["needs"]})


def allowed(info: ClientInfo, item: Component) -> ClientInfo:
    """Restrict `info` to what this method declared, as the harness does."""
    keep = item.meta["needs"] | {"training", "device"}
    if item.meta["needs"] & AT_CLIENTS and info.clients is not None:
        keep |= {"clients"}
        info = replace(info, clients=watched(item, info.clients))
    for part in HOLDOUTS:
        if part.need in item.meta["needs"] and part.at != "clients":
            keep |= {f"{part.parameter}_{what}" for what in ("inputs", "labels")}
    if "public_inputs" in item.meta["needs"]:
        keep |= {"public_inputs"}
    gone: dict[str, Any] = {f.name: None for f in fields(info) if f.name not in keep}
    return replace(info, **gone)


def made_of(
    item: Component, models: LocalModels, info: ClientInfo, values: Mapping[str, Any]
) -> Any:
    """Apply one setting of a method, after what it prepares for all of them."""
    spec = item.spec(values)
    prepared = SharedPreparation(item.meta["prepare"], models, info, RngKey(0))(spec)
    made = item.fn(models, info, rng=RngKey(0), **spec.own, **prepared)
    require_models(made, spec, models)
    return made


def each(made: MethodOutput) -> list[GlobalModel]:
    """List the models that were made: one, one for each client, or none."""
    if made is None:
        return []
    return [made] if isinstance(made, GlobalModel) else list(made)


def scores_of(model: GlobalModel, problem: SmallProblem) -> torch.Tensor:
    """Compute class probabilities of the training examples, (N, K)."""
    network = network_of(model.model, problem.models.shape, problem.models.classes)
    try:
        return probabilities(network, model.tensors, model.weights, problem.clients.data.examples)
    except (RuntimeError, ValueError) as error:
        forms = {name: np.shape(value) for name, value in model.tensors.items()}
        raise ContractError(
            f"its networks cannot predict, with tensors of shapes {forms}"
        ) from error


def says_what_it_is(item: Component, problem: SmallProblem | None = None) -> None:
    """Check for known needs, a label, a first line, and that it is measured on test examples."""
    meta = item.meta
    strange = sorted(meta["needs"] - set(NEEDS))
    hold(not strange, f"it declares unknown needs: {', '.join(strange)}")
    hold(bool(meta["label"]), "it has no label, by which figures call it")
    hold(bool(item.doc), "its docstring has no first line, which is what people read")
    hold("test" in meta["evaluate"], "it is not measured on test examples: put test in `evaluate`")


def tries_settings(item: Component, problem: SmallProblem | None = None) -> None:
    """Check that its grid has settings, at most BUDGET, and the default among them."""
    grid = item.meta["grid"]
    settings = list(item.spec({key: list(values) for key, values in grid.items()}).expand())
    hold(1 < len(settings) <= BUDGET, f"its grid has {len(settings)} settings, not 2 to {BUDGET}")
    hold(item.spec() in settings, "its grid leaves the default setting out")


def predicts(item: Component, problem: SmallProblem) -> None:
    """Check for finite probabilities from what it declares, and known metrics."""
    made = made_of(item, _copied(problem.models), allowed(problem.info, item), {})
    known, shape = set(metrics_of(item.spec())), (len(problem.labels), problem.models.classes)
    for model in each(made):
        scores = scores_of(model, problem)
        hold(
            tuple(scores.shape) == shape, f"its predictions are {tuple(scores.shape)}: not {shape}"
        )
        hold(bool(torch.isfinite(scores).all()), "its predictions are not finite")
        if model.weights is not None:
            due = (model.networks, problem.models.classes)
            hold(model.weights.shape == due, f"its weights are {model.weights.shape}, not {due}")
            hold(np.allclose(model.weights.sum(0), 1), "the weights of a class do not add up to 1")
        _known({*model.diagnostics}, known, "its diagnostics")


def repeats(item: Component, problem: SmallProblem) -> None:
    """Check for equal bytes at the second call, and that clients' models stay as they are."""
    before, models = problem.models.tensors, _copied(problem.models)
    info = allowed(problem.info, item)
    first, second = (each(made_of(item, models, info, {})) for _ in range(2))
    changed = [k for k, v in models.tensors.items() if not np.array_equal(before[k], v)]
    hold(not changed, f"it changes {changed[:1]} of the clients' models: work on a copy")
    for model, repeated in zip(first, second, strict=True):
        pairs = {k: (value, repeated.tensors[k]) for k, value in model.tensors.items()}
        differing = [k for k, pair in pairs.items() if not np.array_equal(*pair, equal_nan=True)]
        hold(not differing, f"a second call makes another {differing[:1]}: draw from rng.stream")


def reports(item: Component, problem: SmallProblem) -> None:
    """Check a round with what is declared: known metrics, and a model that predicts."""
    made, clients, _, state = _one_round(item, problem)
    predicting = made.model(state, clients)
    first = predicting if isinstance(predicting, GlobalModel) else predicting[0]
    scores = scores_of(first, problem)
    hold(bool(torch.isfinite(scores).all()), "its predictions are not finite")


def believes(item: Component, problem: SmallProblem) -> None:
    """Check a round on a graph: both beliefs of every node, float32, finite, before and after."""
    made, peers, begun, state = _one_round(item, problem)
    shapes = {key: (peers.count, *shape) for key, shape in peers.network.shapes.items()}
    for beliefs in (made.beliefs(begun, peers), made.beliefs(state, peers)):
        names = ", ".join(BELIEFS)
        hold(set(beliefs) == set(BELIEFS), f"beliefs are {sorted(beliefs)}: not {names}")
        for tensors in beliefs.values():
            actual = {key: value.shape for key, value in tensors.items()}
            hold(actual == shapes, f"tensors of a belief are {actual}: not {shapes}")
            finite = all(np.isfinite(value).all() for value in tensors.values())
            hold(finite, "a belief has weights that are not finite")
            types = {str(value.dtype) for value in tensors.values()}
            hold(types == {"float32"}, f"weights of a belief are {', '.join(sorted(types))}")


def goes_on(item: Component, problem: SmallProblem) -> None:
    """Check that a round changes none of its inputs, and continues alike from a saved state."""
    made, clients, info = _begun(item, problem)
    with temporary_folder() as folder:
        path = folder / "state.pt"

        def kept(state: State) -> bytes:
            save_state(path, to_plain(state))
            return path.read_bytes()

        state = made.init(clients, info, RngKey(0))
        for done in range(2):
            before, rng = kept(state), RngKey(0).at(round=done)
            read = from_plain(load_state(path))
            after, _ = made.round(state, clients, info, rng)
            again, _ = made.round(read, clients, info, rng)
            hold(
                kept(after) == kept(again),
                "from the same state, saved and read, a round comes to another one: keep all that "
                "it goes on with in the state, and draw from rng",
            )
            changed = "a round changes the state that it is given: make a new one"
            hold(kept(state) == before, changed)
            state = after


def simulates(item: Component, problem: SmallProblem | None = None) -> None:
    """Check for known metrics, equal at the second call."""
    spec = item.spec()
    first, second = (item.make(Simulated, rng=RngKey(0), **spec.values) for _ in range(2))
    hold(bool(first.rounds), "it takes no step")
    names = {name for numbers in first.rounds.values() for name in numbers} | {*first.ended}
    _known(names, set(metrics_of(spec)), "what it found")
    hold(repr(first) == repr(second), "a second call finds something else: draw from rng.stream")


def _copied(models: LocalModels) -> LocalModels:
    return replace(models, tensors={name: value.copy() for name, value in models.tensors.items()})


def _begun(item: Component, problem: SmallProblem) -> tuple[Any, Any, ClientInfo]:
    return item.fn(), watched(item, problem.clients), allowed(problem.info, item)


def _one_round(item: Component, problem: SmallProblem) -> tuple[Any, Any, State, State]:
    """Return a method, its clients, and its states before and after a round with a good report."""
    made, clients, info = _begun(item, problem)
    before = made.init(clients, info, RngKey(0))
    after, report = made.round(before, clients, info, RngKey(0).at(round=0))
    _known({*report.metrics, *report.clients}, set(metrics_of(item.spec())), "its report")
    for name, values in report.clients.items():
        shape = np.shape(values)
        hold(shape == (clients.count,), f"{name} is {shape} in its report: not one a client")
    return made, clients, before, after


def _known(names: set[str], known: set[str], where: str) -> None:
    strange = sorted(names - known)
    hold(
        not strange,
        f"{where} has '{strange[:1]}', which its decorator does not declare (metrics=…)",
    )


@dataclass(frozen=True)
class ContractCheck:
    """A check; `words` say which rule holds if it passes."""

    words: str
    run: Callable[[Component, SmallProblem], None]


IDENTITY = ContractCheck("says what it is, and what it needs", says_what_it_is)
GRID = ContractCheck("its grid is of settings, the default among them", tries_settings)
AT_ONCE = (
    ContractCheck("predicts, with what it declares and nothing else", predicts),
    ContractCheck("repeats itself, and leaves clients' models as they are", repeats),
)
STATE = ContractCheck("a round is pure, and goes on from a saved state", goes_on)
OF_KIND = {
    "one_shot": AT_ONCE,
    "control": AT_ONCE,
    "federated": (
        ContractCheck("a round predicts, with what it declares and nothing else", reports),
        STATE,
    ),
    "peer": (
        ContractCheck("a round gives beliefs, with what it declares and nothing else", believes),
        STATE,
    ),
    "simulation": (ContractCheck("finds numbers that are known, twice the same", simulates),),
}


def checks_of(item: Component) -> tuple[ContractCheck, ...]:
    """List the checks for a method of this kind."""
    grid = (GRID,) if item.meta["grid"] else ()
    return (IDENTITY, *grid, *OF_KIND[item.meta["kind"]])

"""The interface of methods: arguments, results, and the decorator that registers one.

A one-shot method or a control (a bound, such as pooled training) is a function of trained models. A
method in rounds is a class like `Federated`. A simulation takes parameters and an `rng` alone:

    @method("average", kind="one_shot", needs={"example_counts"})
    def average(clients: LocalModels, info: ClientInfo, *, rng: RngKey) -> GlobalModel: ...

A method gets only the information that it declares in `needs`: as data in `ClientInfo`, or as
answers from `Clients`, an object by which a server lets clients train without seeing their data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import numpy as np

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.method_kinds import METHOD_KINDS, MODULE, WHICH
from fedrepro.core.metrics import METRICS, Metric
from fedrepro.core.metrics import Traffic as Traffic
from fedrepro.core.registry import parse_token, register, require_several
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg, Component, Spec

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients

Kind = Literal["one_shot", "federated", "peer", "control", "simulation"]

# Information that a method may ask for beyond the clients' weights. It gets exactly the information
# that it declares; every figure and the leaderboard show it.
NEEDS = {
    "example_counts": "number of training examples of each client",
    "label_counts": "number of training examples of each client and class",
    "pooled_inputs": "the training inputs of all clients in one place",
    "pooled_labels": "the training labels of all clients in one place",
    "rounds": "work done by the clients in many rounds",
    "client_training": "clients that train again after they have sent their models",
    "client_evaluation": "candidate weights evaluated by the clients on their training examples",
    "client_validation": "candidate weights evaluated by the clients on validation examples",
    "client_answers": "numbers that clients compute on their own examples and send",
    "client_validation_examples": "validation examples of single clients, on which the clients "
    "work by themselves",
    "public_examples": "a labelled sample at the server that no client holds",
    "public_sample": "a labelled sample of the clients' validation examples in one place, on which "
    "the model is tuned",
    "server_validation": "validation examples at the server that no client holds",
    "public_inputs": "inputs of another data set at the server, without labels",
    "start": "the weights that all clients started from",
}

# Information that the choice of a setting reads, in addition to the method's needs.
DISCLOSED = {
    "pooled_train_accuracy": "training accuracy on pooled data, by which a setting is chosen",
    "client_train_accuracy": "each client's training accuracy, by which a setting is chosen",
    "server_validation": "labelled examples at the server, by which a setting is chosen",
    "client_validation": "each client's own validation examples, by which a setting is chosen",
    "public": "labelled examples that everybody may see, by which a setting is chosen",
}

# The rule for running statistics, such as BatchNorm's, where models are merged.
BatchNorm = Annotated[
    Literal["average", "local", "recalibrate"],
    Arg(
        "what becomes of BatchNorm's running statistics: averaged as weights are; left at "
        "each client, with the weights of their layers (FedBN); or measured again on data "
        "(REPAIR)",
        later=True,
    ),
]


def _merging(*, batchnorm: BatchNorm = "average") -> None:
    """Declare `batchnorm` of all merging methods by this signature, which is read, never called."""


BUDGET = 8  # settings of a method that a comparison of many methods tries


@dataclass(frozen=True)
class LocalModels:
    """The trained models of J clients, stacked along a first axis: the input of a one-shot method.

    model, shape, classes: the architecture, the shape of one example, the number of outputs.
    tensors: weights by name, float32 (J, *shape of the tensor). label_counts: training examples per
    client and class, int64 (J, K), if a user gave them. layers: names of the layers, if the models
    came from state dicts. widths: each client's numbers of hidden units, where clients differ;
    tensors are then as wide as the widest client's, with zeros behind a client's own units.
    """

    model: Spec
    shape: tuple[int, ...]
    classes: int
    tensors: Mapping[str, np.ndarray]
    label_counts: np.ndarray | None = None
    layers: tuple[str, ...] | None = None
    widths: tuple[tuple[int, ...], ...] | None = None

    @staticmethod
    def from_state_dicts(
        state_dicts: Sequence[Mapping[str, Any]],
        *,
        label_counts: np.ndarray | None = None,
        model: str | Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> LocalModels:
        """Stack models trained by plain PyTorch, one state dict per client, as input of a method.

        Args:
            state_dicts: one per client, in the order of clients.
            label_counts: training examples of each client and class, (J, K).
            model: the module, for all clients or a list with one for each: a name with parameters
                (resnet20+norm~batch), or file and class (nets.py:Net). By default fully connected
                layers in the order of the state dicts, with ReLU.
            shape: the shape of one example; required unless all layers are fully connected.
            names: names of the clients, for error messages.
        """
        from fedrepro.networks import state_dict_conversion as module

        words = [model] if isinstance(model, str) else list(model or ())
        specs = [parse_token("model", word) for word in words]
        stacked = module.stack(state_dicts, specs, tuple(shape) if shape else None, names)
        counts = module.checked_counts(label_counts, len(state_dicts), stacked.classes)
        return LocalModels(**vars(stacked), label_counts=counts)

    @property
    def clients(self) -> int:
        return len(next(iter(self.tensors.values())))

    def alone(self, client: int) -> GlobalModel:
        """Return the model of one client (an index) as a `GlobalModel`, which can predict."""
        tensors = {name: value[[client]] for name, value in self.tensors.items()}
        return GlobalModel(self.model, tensors, widths=self.widths and (self.widths[client],))

    @property
    def numbers(self) -> int:
        """Count the parameters of all clients' models together, which the clients upload."""
        return _numbers(self.tensors, self.widths)


@dataclass(frozen=True)
class ClientInfo:
    """The information about clients that a method gets: only what the method declares in `needs`.

    Fields that the method did not declare are None; `training` and `device` are always given.

    Attributes:
        training: the clients' local training procedure, such as sgd with its parameters.
        device: where to compute, such as cpu or cuda.
        example_counts: how many training examples each of the J clients has, int64 (J,).
        label_counts: how many each client has of each of the K classes, int64 (J, K).
        pooled_inputs, pooled_labels: all clients' training data, float32 (N, D) and int64 (N,).
        public_inputs, public_labels: a public sample at the server, float32 (n, D), int64 (n,).
        validation_inputs, validation_labels: validation examples at the server, likewise.
        clients: for a one-shot method, an object by which it asks clients to train or evaluate.
        start: the weights that all clients started from, tensors (1, *shape) by name.
    """

    training: Spec
    device: str = "cpu"
    example_counts: np.ndarray | None = None
    label_counts: np.ndarray | None = None
    pooled_inputs: np.ndarray | None = None
    pooled_labels: np.ndarray | None = None
    public_inputs: np.ndarray | None = None
    public_labels: np.ndarray | None = None
    validation_inputs: np.ndarray | None = None
    validation_labels: np.ndarray | None = None
    clients: Clients | None = None
    start: Mapping[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Report:
    """The measurements of one communication round, returned by a method's `round`.

    metrics: a number by name of metric: a common metric, or one declared by the method. clients: a
    number per client by name of metric, arrays (J,); NaN for clients without the number. traffic:
    number and bytes of the round's messages; by default one model to and from every client that
    trained, or one network along each edge of a graph. exchanges: how often the server sent to
    clients and got answers in the round; on a graph, how often nodes sent to neighbours.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    clients: Mapping[str, np.ndarray] = field(default_factory=dict)
    traffic: Traffic | None = None
    exchanges: int = 1


@dataclass(frozen=True)
class GlobalModel:
    """A model that predicts: one network, or a mixture of m networks with a weight per class.

    A mixture predicts argmax_k of sum_i weights[i, k] * softmax(logits_i)[k].

    Attributes:
        model: the architecture, by its name and parameters.
        tensors: weights of the networks by name, (m, *shape); widths may differ from the clients'.
        weights: each network's weight by class, (m, K), columns sum to one; None if m is 1.
        diagnostics: {metric: number}, for common metrics or those that the method declares.
        traffic: number and bytes of a one-shot method's messages; by default the clients' models,
            and all that the method exchanged with clients through `ClientInfo.clients`.
        exchanges: how often clients sent to the server; by default counted from these messages.
        layers: names of layers in the clients' PyTorch state dicts, if known.
        ties: a random key, if networks vote. Each network votes for the class that it predicts, by
            its weight for that class, and the key draws among classes with equal votes.
        gate: if given, a dense network from all m * K logits to K: weight0 (m * K, …), bias0, ….
        widths: numbers of hidden units of each network, if networks differ in them.
        unseen: for each client the positions, int64, among its validation examples of those that
            the method did not use; hyperparameters are selected on these alone.
    """

    model: Spec
    tensors: Mapping[str, np.ndarray]
    weights: np.ndarray | None = None
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    traffic: Traffic | None = None
    exchanges: int | None = None
    layers: tuple[str, ...] | None = None
    ties: RngKey | None = None
    gate: Mapping[str, np.ndarray] | None = None
    widths: tuple[tuple[int, ...], ...] | None = None
    unseen: Sequence[np.ndarray] | None = None

    def trained(self, buffers: Collection[str] = ()) -> int:
        """Count the trained parameters: all numbers but those of the tensors in `buffers`."""
        tensors = {k: v for k, v in self.tensors.items() if k == WHICH or k not in buffers}
        return _numbers(tensors, self.widths) + sum(v.size for v in (self.gate or {}).values())

    @property
    def networks(self) -> int:
        return len(next(iter(self.tensors.values())))

    @property
    def finite(self) -> bool:
        arrays = [*self.tensors.values(), *(self.gate or {}).values()]
        return all(bool(np.isfinite(value).all()) for value in arrays)

    def state_dict(self) -> dict[str, Any]:
        """Return the model as a PyTorch state dict: float32 tensors by name, weights as (out, in).

        Layers are called as in the clients' state dicts, or else as in an `nn.Sequential`. Raises
        FedreproError for a mixture of several networks, or a network with a gate.
        """
        if self.networks > 1 or self.gate:
            held = "one with a gate" if self.gate else f"a mixture of {self.networks} networks"
            raise FedreproError(
                f"this model is {held}, which no single state dict holds; take "
                "state_dicts(), and weigh their probabilities by `weights` or `gate`"
            )
        return self.state_dicts()[0]

    def state_dicts(self) -> list[dict[str, Any]]:
        """Return a PyTorch state dict, float32 tensors by name, for each of the m networks."""
        from fedrepro.networks.state_dict_conversion import unstack

        return unstack(self.model, self.tensors, self.layers, self.widths)


def _numbers(tensors: Mapping[str, np.ndarray], widths: Sequence[Sequence[int]] | None) -> int:
    """Count the parameters of m networks (m, *shape), without padding behind hidden `widths`."""
    if WHICH in tensors:
        counts = tensors[WHICH].sum(axis=0)
        sizes = ((name, value[0].size) for name, value in tensors.items() if name != WHICH)
        return sum(int(counts[int(name.partition(".")[0])]) * size for name, size in sizes)
    if widths is None:
        return sum(value.size for value in tensors.values())
    ends = tensors["weight0"].shape[1], tensors[f"weight{len(widths[0])}"].shape[2]
    biased = "bias0" in tensors
    sizes = ((ends[0], *own, ends[1]) for own in widths)
    return sum((a + biased) * b for each in sizes for a, b in pairwise(each))


def takes(method: Component, model: Spec) -> bool:
    """Return whether `method` declares that it can combine networks of the architecture `model`."""
    allowed = method.meta["models"]
    any_module = MODULE in allowed and bool(model.component.meta.get(MODULE))
    return not allowed or model.name in allowed or any_module


State = dict[str, Any]


class Federated(Protocol):
    """A method in rounds with a server, whose state is plain data: arrays, tensors, numbers.

    `init` returns the state before the first round. `round` runs round number rng.round, and
    returns the next state and the round's measurements. `model` returns the global model, or one
    model per client. Results depend on arguments alone. `rounds` is the number of rounds to run.

    On a graph, without a server, methods get `GraphNodes` instead of `Clients`. Instead of `model`
    they have beliefs(state, nodes), which returns {"before": tensors, "after": tensors}: N nodes'
    weights by name, (N, *shape), before and after each combines its network with its neighbours'.
    """

    rounds: int

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State: ...

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]: ...

    def model(self, state: State, clients: Clients) -> GlobalModel | Sequence[GlobalModel]: ...


# The beliefs of a node: before, learned on its own data, by which nodes are judged; and after,
# combined with its neighbours', from which it starts next.
BELIEFS = ("before", "after")
Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Simulated:
    """The measurements of a simulation, a method that needs neither a data set nor models.

    rounds: by measured step and name of metric, one number for all N nodes together, or an array
    (N,); the last step's are final results. ended: further results of the run, by name of metric.
    """

    rounds: Mapping[int, Mapping[str, float | np.ndarray]]
    ended: Mapping[str, float] = field(default_factory=dict)


# The result of a one-shot method or a control: a model, one for each client, or None where it has
# no model of these clients, which leaves the setting out of tables and figures, in all trials.
MethodOutput = GlobalModel | Sequence[GlobalModel] | None

F = TypeVar("F", bound=Callable[..., Any])


def method(
    name: str,
    *,
    kind: Kind,
    version: int = 1,
    needs: Collection[str] = (),
    models: Collection[str] = (),
    trainings: Collection[str] = (),
    paper: str = "",
    label: str = "",
    evaluate: tuple[str, ...] = ("test",),
    scenario: Mapping[str, str | Mapping[str, Any]] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    prepare: Callable[..., Any] | None = None,
    sends: str = "",
    one_start: bool | Literal["better"] = False,
    grid: Mapping[str, Sequence[Any]] | None = None,
    any_width: bool = False,
    merges: bool | Literal["matched"] = False,
) -> Callable[[F], F]:
    """Register the decorated function or class as a method that configurations can name.

    Args:
        name: the method's name in configuration and on the command line.
        kind: one_shot, federated (in rounds), peer (on a graph), control (baseline) or simulation.
        version: a number to raise when results change, so that they are computed again.
        needs: information that it uses besides weights, such as label_counts (keys of NEEDS).
        models: architectures that it combines (empty: any); "module" is any `torch.nn.Module`.
        trainings: local training procedures that it can be used with (empty: any).
        paper: the paper that describes it.
        label: its name in figures; by default `name`.
        evaluate: parts of the data, such as test, on which its models are measured.
        scenario: what it fixes of partition, model, training: {kind: name or {parameter: value}}.
        metrics: metrics, by name, that this method alone reports.
        prepare: for one-shot methods, a function of (clients, info, *, rng, some own parameters).
            It is called once for equal values of these; the method gets its result as `prepared`.
        sends: what clients send besides their models, as a phrase (with need `client_answers`).
        one_start: whether clients must start from equal weights; "better": they should.
        grid: {parameter: values to try}, which have at most 8 (BUDGET) combinations in all.
        any_width: whether it combines networks of different widths (`LocalModels.widths`), and of
            different architectures if `models` allow it.
        merges: whether it merges weights into one network of the clients' architecture, and so
            takes a rule for running statistics (`BatchNorm`); "matched": after permuting units.
    """
    if kind not in METHOD_KINDS:
        raise unknown("kind", kind, METHOD_KINDS, f"method '{name}'")
    several = {"needs": needs, "models": models, "trainings": trainings}
    require_several("method", name, evaluate=evaluate, **several)
    require_several("grid of method", name, **(grid or {}))
    if strangers := sorted(set(needs) - set(NEEDS)):
        raise unknown("need", strangers[0], NEEDS, f"method '{name}'")
    if ("client_answers" in needs) != bool(sends):
        raise FedreproError(
            f"method '{name}' must say in a phrase what clients answer (sends=…) if it needs "
            "client_answers, and only then"
        )
    tried = math.prod(len(values) for values in (grid or {}).values())
    if tried > BUDGET:
        raise FedreproError(
            f"method '{name}' declares a grid of {tried} settings, and comparisons try {BUDGET} of "
            "any method: leave some out"
        )
    if taken := set(metrics or ()) & set(METRICS):
        raise ValueError(f"method {name!r} declares metrics that are there: {sorted(taken)}")
    return register(
        "method",
        name,
        version,
        kind=kind,
        **{key: frozenset(value) for key, value in several.items()},
        paper=paper,
        label=label or name,
        evaluate=evaluate,
        scenario=dict(scenario or {}),
        metrics=dict(metrics or {}),
        prepare=prepare,
        sends=sends,
        one_start=one_start is True or "start" in needs,
        grid=dict(grid or {}),
        any_width=any_width,
        merges=merges,
        common=_merging if merges else None,
    )

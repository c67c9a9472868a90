"""What methods see and what they return, and the decorator that makes a function a method.

A one-shot method or a control is one function; a federated method is a class with a pair of
pure functions, `init` and `round`, and `model` to read the global model off the state:

    @method("average", kind="one_shot", needs={"example_counts"})
    def average(clients: LocalModels, info: ClientInfo, *, rng: Rng) -> GlobalModel: ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import read_token, register
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec

if TYPE_CHECKING:
    from fedrepro.training.clients import Clients

Kind = Literal["one_shot", "federated", "peer", "control"]

# What a method may ask for beyond the clients' weights. The harness hands over what is declared
# and nothing else; every figure and the leaderboard show it.
NEEDS = {
    "example_counts": "number of training examples of each client",
    "label_counts": "number of training examples of each client and class",
    "pooled_inputs": "the training inputs of all clients in one place",
    "pooled_labels": "the training labels of all clients in one place",
    "rounds": "work done by the clients in many rounds",
    "pooled_train_accuracy": "training accuracy on pooled data, by which a setting is chosen",
    "client_train_accuracy": "each client's training accuracy, by which a setting is chosen",
}

# What choosing one setting of a sweep needs, by the way it is chosen.
CHOICES = {"pooled_train": "pooled_train_accuracy", "client_train": "client_train_accuracy"}


@dataclass(frozen=True)
class LocalModels:
    """The models of J clients of one trial; `tensors[name]` is float32 (J, *shape).

    shape: of one example; classes: outputs of the models. Models of one's own also carry what
    came with them, which no method is handed: label_counts, int64 (J, K), and what their state
    dicts call the layers.
    """

    model: Spec
    shape: tuple[int, ...]
    classes: int
    tensors: Mapping[str, np.ndarray]
    label_counts: np.ndarray | None = None
    layers: tuple[str, ...] | None = None

    @staticmethod
    def from_state_dicts(
        state_dicts: Sequence[Mapping[str, Any]],
        *,
        label_counts: np.ndarray | None = None,
        model: str | None = None,
        shape: Sequence[int] | None = None,
        layers: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> LocalModels:
        """Models that plain PyTorch trained, one state dict per client; `combine` takes them.

        label_counts: examples of each client and class, (J, K). model: token of the architecture;
        without it, fully connected layers with ReLU between them. shape: of one example, for a
        model with convolutions. layers: their names in order, where file and names leave it open.
        names: of the clients, for sentences. Errors: FedreproError; see `networks.state_dicts`.
        """
        from fedrepro.networks.state_dicts import checked_counts, stack

        spec = read_token("model", model) if model else None
        found = stack(state_dicts, spec, tuple(shape) if shape else None, layers, names)
        counts = checked_counts(label_counts, len(state_dicts), found.classes)
        return LocalModels(
            found.model, found.shape, found.classes, found.tensors, counts, found.layers
        )

    @property
    def clients(self) -> int:
        return len(next(iter(self.tensors.values())))


@dataclass(frozen=True)
class ClientInfo:
    """What a method declared in `needs`; everything else is None.

    example_counts: int64 (J,); label_counts: int64 (J, K); pooled_inputs: float32 (N, D);
    pooled_labels: int64 (N,). `training` is the scenario's local training procedure, `device`
    where to compute.
    """

    training: Spec
    device: str = "cpu"
    example_counts: np.ndarray | None = None
    label_counts: np.ndarray | None = None
    pooled_inputs: np.ndarray | None = None
    pooled_labels: np.ndarray | None = None


@dataclass(frozen=True)
class GlobalModel:
    """What predicts: one network, or a mixture of m networks with a weight per class.

    tensors[name]: (m, *shape), widths may differ from the clients'. weights: (m, K), whose columns
    sum to one if the mixture is one of probabilities, or None for a single network. The prediction
    is argmax_k of sum_i weights[i, k] * softmax(logits_i)[k]. diagnostics: named numbers that
    become metrics. layers: what the clients' state dicts call the layers, if they came as such.
    """

    model: Spec
    tensors: Mapping[str, np.ndarray]
    weights: np.ndarray | None = None
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    layers: tuple[str, ...] | None = None

    @property
    def networks(self) -> int:
        return len(next(iter(self.tensors.values())))

    def state_dict(self, layers: Sequence[str] | None = None) -> dict[str, Any]:
        """The network as plain PyTorch loads it: torch tensors, float32, weights as (out, in).

        layers: what to call them; by default as the clients' state dicts do, or else as in an
        `nn.Sequential` of the model's layers. Errors: FedreproError for several networks.
        """
        if self.networks > 1:
            raise FedreproError(
                f"this model is a mixture of {self.networks} networks, which no single state dict "
                "holds; take state_dicts(), and weigh their probabilities by `weights`"
            )
        return self.state_dicts(layers)[0]

    def state_dicts(self, layers: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The same for each of the m networks."""
        from fedrepro.networks.state_dicts import unstack

        return unstack(self.model, self.tensors, layers or self.layers)


State = dict[str, Any]


class Federated(Protocol):
    """A method in rounds. The state is plain data, arrays and tensors: `states.py` says which.

    `init` and `round` are pure: the next state depends on the state, the clients and the random
    place (rng.round is the round's number) only. `round` also returns named numbers to record.
    `messages` counts the models or gradients sent up and down in one exchange of all clients with
    the server. A round is one exchange, unless the method says in `exchanges` how many it has.
    """

    rounds: int

    def init(self, clients: Clients, rng: Rng) -> State: ...

    def round(
        self, state: State, clients: Clients, rng: Rng
    ) -> tuple[State, Mapping[str, float]]: ...

    def model(self, state: State, clients: Clients) -> GlobalModel: ...

    def messages(self, clients: int) -> tuple[int, int]: ...


F = TypeVar("F", bound=Callable[..., Any])


def method(
    name: str,
    *,
    kind: Kind,
    version: int = 1,
    needs: Collection[str] = (),
    models: Collection[str] = (),
    paper: str = "",
    label: str = "",
    evaluate: tuple[str, ...] = ("test",),
    scenario: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """Decorator: registers a method.

    needs: keys of NEEDS. models: model names it can combine (empty: any). evaluate: splits on
    which the harness measures it; "train" is asked for where a parameter is chosen by it.
    scenario: components it sets itself (pooled training takes the partition `pooled`).
    """
    strangers = set(needs) - set(NEEDS)
    if strangers:
        raise ValueError(f"method {name!r} needs something unknown: {sorted(strangers)}")
    return register(
        "method",
        name,
        version,
        kind=kind,
        needs=frozenset(needs),
        models=frozenset(models),
        paper=paper,
        label=label or name,
        evaluate=evaluate,
        scenario=dict(scenario or {}),
    )

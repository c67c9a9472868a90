"""The clients of one trial, as a server or their neighbours see them: data stay, weights travel."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES, Traffic
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.client_rows import sizes_of
from fedrepro.data.holdout import missing_validation_error
from fedrepro.networks.network import Network, dense, hidden_layers
from fedrepro.training.engine import Averaged, Trained, average, train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.client_queries import (
    Evaluated,
    Query,
    Reply,
    evaluated,
    gradients_at,
    query,
)
from fedrepro.training.federation.cost_counter import CostCounter, models_sent
from fedrepro.training.federation.norm_statistics import pooled_statistics, running_statistics
from fedrepro.training.flat_models import Layout
from fedrepro.training.loss_terms import Term, WeightTerm, with_prior
from fedrepro.training.minibatches import Task
from fedrepro.training.mixing_matrices import mixed
from fedrepro.training.training_settings import Settings

Part = Literal["train", "validation"]


@dataclass(frozen=True)
class ClientData:
    """Data that clients keep to themselves: methods reach it through `Clients` only.

    rows[j]: training examples of client j, int64 rows of `examples`, read or made when somebody
    asks; validation[j]: those it was given to validate with, rows of `validation_examples`, or of
    `examples` if there are no others.
    """

    examples: Examples
    rows: Sequence[np.ndarray]
    validation: Sequence[np.ndarray] = ()
    validation_examples: Examples | None = None

    @property
    def validated(self) -> Examples:
        """The examples that rows of `validation` index."""
        return self.examples if self.validation_examples is None else self.validation_examples

    def of(
        self, clients: Iterable[int], on: Part = "train"
    ) -> tuple[Examples, Sequence[np.ndarray]]:
        """Return examples in memory, and which rows of them each client has, int64 (n,) each."""
        train = on == "train"
        examples, rows = (self.examples, self.rows) if train else (self.validated, self.validation)
        return examples.of([rows[client] for client in clients])


@dataclass(frozen=True)
class Clients:
    """The J clients of one trial: their data stay with them, and `needs` says what they do.

    settings: the local training procedure. method, needs: who asks, and what it declared; all
    else is refused with a FedreproError that names the need. ledger: the harness's account of what
    was sent and of what training gave. own: the models that they trained, (J, *shape), if they did.
    """

    model: Spec
    network: Network
    settings: Settings
    data: ClientData
    method: str = ""
    needs: Collection[str] = frozenset()
    ledger: CostCounter = field(default_factory=CostCounter, compare=False)
    own: Mapping[str, np.ndarray] | None = field(default=None, compare=False)

    @property
    def count(self) -> int:
        return len(self.data.rows)

    def inputs(self, client: int) -> np.ndarray:
        """Read training inputs of a client, float (n, D). Needs client_inputs."""
        self._require("read the inputs of single clients", "client_inputs")
        examples, (rows,) = self.data.of([client])
        return np.asarray(examples.scaled(rows).cpu())

    def labels(self, client: int) -> np.ndarray:
        """Read training labels of a client, int64 (n,). Needs client_labels."""
        self._require("read the labels of single clients", "client_labels")
        return self._labels(client)

    def validation(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Read validation examples of a client: inputs float (n, D) and labels int64 (n,).

        Needs client_validation_examples. They are those that the partition gives the client, of
        what it sets aside (validation_at: clients) or else of the data set's validation split.

        Raises:
            FedreproError: For a client that has none.
        """
        self._require("let clients work on their validation examples", "client_validation_examples")
        rows = self.data.validation[client] if len(self.data.validation) else np.empty(0, int)
        if not len(rows):
            raise missing_validation_error(f"method '{self.method}'", f"client {client} has")
        examples = self.data.validated
        return examples.scaled(rows).cpu().numpy(), examples.targets[rows].cpu().numpy()

    @property
    def example_counts(self) -> np.ndarray:
        """Training examples of each client: int64 (J,). Needs example_counts."""
        self._require("count the clients' examples", "example_counts", "label_counts")
        return sizes_of(self.data.rows)

    @property
    def label_counts(self) -> np.ndarray:
        """Training examples of each client and class: int64 (J, K). Needs label_counts."""
        self._require("count the clients' examples of each class", "label_counts")
        each = (self._labels(client) for client in range(self.count))
        return np.stack([np.bincount(one, minlength=self.network.classes) for one in each])

    def _labels(self, client: int) -> np.ndarray:
        examples, (rows,) = self.data.of([client])
        return np.asarray(examples.targets[rows].cpu())

    def with_subset(self, positions: Callable[[int, int], np.ndarray]) -> Clients:
        """Keep some of the clients' examples, as when data arrive in steps.

        positions(client, n): which of its n examples a client holds, int (k,), in the order in
        which they are to be visited; the server learns neither.
        """
        rows = [rows[positions(j, len(rows))] for j, rows in enumerate(self.data.rows)]
        return replace(self, data=replace(self.data, rows=rows))

    def train(
        self,
        start: dict[str, np.ndarray],
        rng: RngKey,
        *,
        epochs: int,
        chosen: Sequence[int] | None = None,
        lr: Sequence[float] | float | None = None,
        steps: Sequence[int] | int | None = None,
        terms: Sequence[Term | WeightTerm] = (),
        private: Mapping[str, np.ndarray] | None = None,
        reference: Mapping[str, np.ndarray] | None = None,
        memory: Mapping[str, np.ndarray] | None = None,
        done: int | None = None,
        keep_gradients: bool = False,
    ) -> Trained:
        """Let the chosen clients train from `start`. Needs rounds, or client_training.

        Minibatches follow (seed, trial, client, round, epoch), so a method that trains a client
        more than once in a round gives each time a `call` of its own, rng.at(call=1). Results are
        in the order of `chosen` and say which models are finite: the others are for the method to
        reject, or an error by `checked`.

        Args:
            start: tensors (1, *shape), shared, or one each.
            rng: the place of the round.
            epochs: passes over the examples of each client.
            chosen: clients that train, by default all.
            lr: for all, or one each.
            steps: minibatches instead of whole epochs, for all, or one each.
            terms: added to the loss.
            private: tensors of the terms, (chosen, *shape), which the result gives back trained.
            reference: (1, *shape), or one each; see `engine.train`.
            memory: see `engine.train`.
            done: minibatches that each of them took in earlier rounds; it goes on after them,
                within an epoch, in the order of local training.
            keep_gradients: sum the gradients over the steps.

        Raises:
            FedreproError: Outside a round.
        """
        tasks = self._tasks(rng, chosen, lr, steps)
        if done is not None:
            tasks = [replace(task, rng=task.rng.at(round=-1), done=done) for task in tasks]
        with self.ledger.timed():
            trained = train(
                self.network,
                *self._at_hand(tasks),
                replace(self.settings, epochs=epochs),
                start,
                terms=with_prior(self.network, terms),
                private=private,
                reference=reference,
                memory=memory,
                keep_gradients=keep_gradients,
            )
        self._note(self._members(chosen), trained.loss, trained.finite)
        return trained

    def average(
        self,
        start: dict[str, np.ndarray],
        rng: RngKey,
        weights: Sequence[float],
        *,
        epochs: int,
        chosen: Sequence[int] | None = None,
        lr: Sequence[float] | float | None = None,
        steps: Sequence[int] | int | None = None,
        terms: Sequence[Term | WeightTerm] = (),
        private: Mapping[str, np.ndarray] | None = None,
    ) -> Averaged:
        """Let the chosen clients train as in `train`; give sum_j weights[j] · (model of client j).

        Models that are not finite are left out; the result says what weight went in.
        """
        tasks = self._tasks(rng, chosen, lr, steps)
        with self.ledger.timed():
            averaged = average(
                self.network,
                *self._at_hand(tasks),
                replace(self.settings, epochs=epochs),
                start,
                weights,
                terms=with_prior(self.network, terms),
                private=private,
            )
        self._note(self._members(chosen), averaged.loss, averaged.finite)
        return averaged

    def train_heads(
        self,
        body: Mapping[str, np.ndarray],
        rng: RngKey,
        *,
        hidden: Sequence[int] = (),
        epochs: int,
        patience: int = 0,
        lr: float | None = None,
        weight_sd: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Let the clients train new layers on the outputs of given hidden layers.

        Each client starts afresh and trains by the local training procedure, without augmentation,
        and with the network's dropout after further hidden layers alone. The body goes down and
        what is trained comes up. Needs rounds, or client_training. Source: GEMS, section 3.2, step
        4 (layers above the merged one are trained again).

        Args:
            body: weight0 (1, D, L1), bias0 (1, L1), weight1 and so on, fully connected with ReLU,
                which stay as they are.
            rng: as for `train`.
            hidden: units of further hidden layers, below the output layer.
            epochs: passes over the examples of each client.
            lr: by default the procedure's.
            patience: see `EarlyStopping`.
            weight_sd: of normal weights to start from, with biases of 0, by default as the
                procedure starts networks.

        Returns:
            Tensors float32 (J, *shape), named from weight0 on, NaN for a client whose training
                diverged.
        """
        tasks = self._tasks(rng, None, lr, None)
        below = hidden_layers(math.prod(self.network.shape), body)
        above = dense((below.classes, *hidden, self.network.classes), self.network.dropout)
        settings = replace(self.settings, epochs=epochs, patience=patience, augment="none")
        if weight_sd is not None:
            settings = replace(settings, init="normal", weight_sd=weight_sd, bias=0.0)
        start = initial_weights(above, settings, [task.rng for task in tasks])
        with self.ledger.timed():
            examples, tasks = self._at_hand(tasks)
            trained = train(above, examples.above(below, body), tasks, settings, start)
        self.ledger.sent(models_sent(below, 0, self.count) + models_sent(above, self.count, 0))
        self.ledger.trained(range(self.count), trained.loss, trained.finite)
        return trained.tensors

    def gradients(
        self, weights: dict[str, np.ndarray], chosen: Sequence[int] | None = None
    ) -> dict[str, np.ndarray]:
        """Compute gradients (n, *shape) of the mean loss on all examples of each client.

        Clients hold equally many examples, and `weights` (1, *shape) are the same for all. A client
        that takes one step needs no optimiser of its own, so this is one pass over all clients'
        examples. A client whose loss is not finite has gradients of NaN. Needs rounds, or
        client_training; the network must not draw.
        """
        self._require("let clients compute gradients", "rounds", "client_training")
        members = self._members(chosen)
        with self.ledger.timed():
            gradients, losses = gradients_at(self.network, *self.data.of(members), weights)
        self._note(members, losses, np.isfinite(losses))
        return gradients

    def evaluate(
        self,
        candidates: Mapping[str, np.ndarray],
        chosen: Sequence[int] | None = None,
        on: Part = "train",
    ) -> Evaluated:
        """Evaluate m candidate weights (m, *shape) on the examples of each chosen client.

        Needs client_evaluation for training, client_validation for validation examples. Each
        candidate is predicted once on the examples of all; clients send two numbers for each, NaN
        from one that has no such examples.
        """
        need = "client_evaluation" if on == "train" else "client_validation"
        self._require(f"let clients evaluate weights on their {on} examples", need)
        self._require_examples(on)
        members = self._members(chosen)
        with self.ledger.timed():
            evaluation = evaluated(self.network, *self.data.of(members, on), candidates)
        count = len(evaluation.accuracy)
        traffic = self.models(up=0, down=count * len(members))
        numbers = 2 * FLOAT_BYTES * count * len(members)
        self._send(traffic + Traffic(messages_up=len(members), bytes_up=numbers))
        return evaluation

    def query(
        self,
        question: Query,
        weights: Mapping[str, np.ndarray] | None = None,
        chosen: Sequence[int] | None = None,
        on: Part = "train",
    ) -> list[Reply]:
        """Put a question to clients: named arrays of each, in their order. Needs client_answers.

        Bytes of the answers, those of weights that clients do not have yet, seconds, and passes
        over the examples are counted.

        Args:
            question: question(network, tensors (*shape), examples) runs at each client on its own.
            weights: of the network there, or of some of its layers: (1, *shape), the same for all,
                or (n, *shape); by default each client's own model.
            chosen: clients that are asked, by default all.
            on: "validation" needs client_validation_examples too.

        Raises:
            FedreproError: For answers of other kinds, and for clients without models of their own.
        """
        self._require("ask clients", "client_answers")
        if on == "validation":
            self._require(
                "ask clients about their validation examples", "client_validation_examples"
            )
        if weights is None and not self.own:
            raise FedreproError(
                f"method '{self.method}' asks clients about models of their own, and they trained "
                "none: say at which weights they are to answer"
            )
        self._require_examples(on)
        return self._answers(question, weights, chosen, on)

    def statistics(
        self, weights: Mapping[str, np.ndarray], chosen: Sequence[int] | None = None
    ) -> dict[str, np.ndarray]:
        """Measure running statistics at `weights` (1, *shape) by the chosen clients, or by all.

        Returns those of all their training examples, float32 (1, *shape). It is an exchange more:
        weights that clients do not have go down, statistics come up.
        """
        return pooled_statistics(self._answers(running_statistics, weights, chosen))

    def _answers(
        self,
        question: Query,
        weights: Mapping[str, np.ndarray] | None,
        chosen: Sequence[int] | None,
        on: Part = "train",
    ) -> list[Reply]:
        members = self._members(chosen)
        own = {name: value[members] for name, value in (self.own or {}).items()}
        with self.ledger.timed():
            replies = query(
                self.network,
                *self.data.of(members, on),
                question,
                own if weights is None else weights,
                f"method '{self.method}'",
            )
        self.ledger.asked(len(members), replies.bytes, replies.passes, weights, chosen is None)
        return replies.answers

    def models(self, up: int, down: int) -> Traffic:
        """Count the traffic of models that go up and down, each of the network's size."""
        return models_sent(self.network, up, down)

    def _note(self, members: list[int], losses: np.ndarray, finite: np.ndarray) -> None:
        self._send(self.models(up=len(members), down=len(members)))
        self.ledger.trained(members, losses, finite)

    def _send(self, traffic: Traffic) -> None:
        self.ledger.sent(traffic)

    def _at_hand(self, tasks: list[Task]) -> tuple[Examples, list[Task]]:
        """Return examples in memory, and the tasks with their rows there."""
        examples, each = self.data.examples.of([task.rows for task in tasks])
        if examples is self.data.examples:
            return examples, tasks
        return examples, [replace(task, rows=rows) for task, rows in zip(tasks, each, strict=True)]

    def _members(self, chosen: Sequence[int] | None) -> list[int]:
        return list(range(self.count) if chosen is None else map(int, chosen))

    def _require_examples(self, on: Part) -> None:
        if not len(self.data.rows if on == "train" else self.data.validation):
            raise missing_validation_error(f"method '{self.method}'")

    def _require(self, what: str, *needs: str) -> None:
        if not any(need in self.needs for need in needs):
            raise FedreproError(
                f"method '{self.method}' wants to {what}, and does not declare it: add "
                f"{' or '.join(repr(need) for need in needs)} to its needs"
            )

    def _tasks(
        self,
        rng: RngKey,
        chosen: Sequence[int] | None,
        lr: Sequence[float] | float | None,
        steps: Sequence[int] | int | None,
    ) -> list[Task]:
        self._require("let clients train", "rounds", "client_training")
        if rng.round < 0:
            raise FedreproError(
                "clients train in a round, or every round would have the same minibatches: hand "
                "over the place that `round` was given, or before the first round rng.at(round=0, "
                "call=1)"
            )
        members = self._members(chosen)
        rates = [lr] * len(members) if lr is None or isinstance(lr, int | float) else lr
        counts = [steps] * len(members) if steps is None or isinstance(steps, int) else steps
        each = zip(members, rates, counts, strict=True)
        return [Task(self.data.rows[j], rng.at(client=j), rate, n) for j, rate, n in each]


def initial_weights(
    network: Network, settings: Settings, places: Sequence[RngKey]
) -> dict[str, np.ndarray]:
    """Draw initial tensors (models, *shape) for each place; one per trial if starts are shared."""
    if settings.shared_init:
        places = [place.at(client=-1) for place in places]
    drawn = {
        name: np.empty((len(places), *shape), np.float32) for name, shape in network.shapes.items()
    }
    for i, place in enumerate(places):
        initial = network.initial(place, settings.weight_sd, settings.bias, settings.init)
        for name, value in drawn.items():
            value[i] = initial[name]
    return drawn


@dataclass(frozen=True)
class GraphNodes(Clients):
    """The N nodes of one trial, which train by themselves and send nothing for it.

    weights: float64 (N, N), stochastic: W_ij is what node i makes of what it hears from node j.
    """

    weights: np.ndarray = field(kw_only=True, compare=False)

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, ...]:
        """The neighbours that each node receives from, without itself: int64 (d_i,), ascending."""
        hears = self.weights > 0
        np.fill_diagonal(hears, False)
        return tuple(np.flatnonzero(row) for row in hears)

    @property
    def edges(self) -> int:
        """Directed edges: pairs of a node and one that it hears."""
        return sum(map(len, self.neighbours))

    @property
    def numbers(self) -> int:
        """Numbers in a message that is a belief: the network's, two for each variational weight."""
        return int(Layout(self.network.shapes).numbers)

    def mixed(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mix each tensor (N, *shape): sum_j W_ij x_j, summed in float64, dtype as given."""
        return {name: mixed(self.weights, value) for name, value in tensors.items()}

    def sent(self, numbers: int | None = None) -> Traffic:
        """Count the traffic of one message along each directed edge, by default of a belief."""
        size = (self.numbers if numbers is None else numbers) * FLOAT_BYTES * self.edges
        return Traffic(self.edges, self.edges, size, size)

    def average(self, *args: object, **kwargs: object) -> Averaged:
        """Refuse to fold what all of them send, which would take a server."""
        raise FedreproError(
            f"method '{self.method}' averages over all nodes, which takes a server, and peers have "
            "none: train them, and take `mixed` of the result"
        )

    def _send(self, traffic: Traffic) -> None:
        """Nothing goes to a server."""

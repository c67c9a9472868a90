"""The clients of one trial as a server or neighbours see them: data stay, weights are sent.

Clients count from 0; `chosen` are indices of those that are asked, by default all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np

from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.metrics import FLOAT_BYTES, Traffic
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.partitions_populations_and_holdouts import missing_validation_error, sizes_of
from fedrepro.networks.network import Network, dense, hidden_layers
from fedrepro.networks.predict import loaded
from fedrepro.training.engine import Averaged, Trained, train, train_and_average
from fedrepro.training.federation import client_queries_and_costs as queries
from fedrepro.training.federation.norm_statistics import pooled_statistics, running_statistics
from fedrepro.training.flat_models_and_optimiser_steps import Layout
from fedrepro.training.loss_terms import Terms, with_prior
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.mixing_matrices import mixed
from fedrepro.training.training_examples import Arrays, Examples
from fedrepro.training.training_settings_and_procedures import Settings

Part = Literal["train", "validation"]
Chosen = Sequence[int] | None  # of clients, None for all
Fitted = TypeVar("Fitted", Trained, Averaged)


@dataclass(frozen=True)
class ClientData:
    """The private data of all clients: methods reach these examples through `Clients` only.

    rows[j], int64 (n_j,), are client j's training examples in `examples`, validation[j] its
    validation examples in `validation_examples`, by default in `examples`.
    """

    examples: Examples
    rows: Sequence[np.ndarray]
    validation: Sequence[np.ndarray] = ()
    validation_examples: Examples | None = None

    @property
    def validated(self) -> Examples:
        return self.examples if self.validation_examples is None else self.validation_examples

    def of(
        self, clients: Iterable[int], on: Part = "train"
    ) -> tuple[Examples, Sequence[np.ndarray]]:
        """Return (data set, each client's row numbers in it) for `on` "train" or "validation"."""
        if on == "train":
            return self.examples.of([self.rows[client] for client in clients])
        return self.validated.of([self.validation[client] for client in clients])


@dataclass(frozen=True)
class Clients:
    """The J clients of one trial, which a federated method can ask and whose data stay with them.

    settings: of local training. data: not read by methods. needs: what the method named `method`
    declared to use, such as "label_counts"; asking for other information raises a FedreproError.
    ledger: counts costs and losses. own: the clients' own models (J, *shape), of one-shot methods.
    """

    model: Spec
    network: Network
    settings: Settings
    data: ClientData
    method: str = ""
    needs: Collection[str] = frozenset()
    ledger: queries.CostCounter = field(default_factory=queries.CostCounter, compare=False)
    own: Arrays | None = field(default=None, compare=False)

    @property
    def count(self) -> int:
        return len(self.data.rows)

    def validation(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one client's validation examples: inputs float (n, D) and labels int64 (n,).

        A method must declare the need "client_validation_examples".
        """
        self._require("let clients work on their validation examples", "client_validation_examples")
        rows = self.data.validation[client] if len(self.data.validation) else np.empty(0, int)
        if not len(rows):
            raise missing_validation_error(f"method '{self.method}'", f"client {client} has")
        examples = self.data.validated
        return examples.scaled(rows).cpu().numpy(), examples.targets[rows].cpu().numpy()

    @property
    def example_counts(self) -> np.ndarray:
        """Return clients' example counts (J,); methods must declare the need "example_counts"."""
        self._require("count the clients' examples", "example_counts", "label_counts")
        return sizes_of(self.data.rows)

    @property
    def label_counts(self) -> np.ndarray:
        """Return clients' counts of labels (J, K); methods must declare the need "label_counts"."""
        self._require("count the clients' examples of each class", "label_counts")
        each = []
        for client in range(self.count):
            examples, (rows,) = self.data.of([client])
            labels = examples.targets[rows].cpu().numpy()
            each.append(np.bincount(labels, minlength=self.network.classes))
        return np.stack(each)

    def with_subset(self, positions: Callable[[int, int], np.ndarray]) -> Clients:
        """Return clients that each train on positions(client, n), int (k,), of their n examples."""
        rows = [rows[positions(j, len(rows))] for j, rows in enumerate(self.data.rows)]
        return replace(self, data=replace(self.data, rows=rows))

    def train(self, start: dict[str, np.ndarray], rng: RngKey, **how: Any) -> Trained:
        """Train a model at each of the chosen clients from weights `start`; return all the models.

        Methods must declare "rounds" or "client_training". Models are in the order of `chosen`.
        Drop those not `finite`, or call the result's `checked`, which then raises FedreproError.

        Args:
            start: tensors (1, *shape), shared by all clients, or (chosen, *shape), one per client.
            rng: the round's random key. Minibatches depend on it, client and epoch, so pass
                rng.at(call=1) to train a client again in the round.
            **how: any of the following; `epochs` is required.
            epochs: passes over the examples of each client.
            chosen: indices of clients that train, by default all.
            lr: learning rate, by default that of the settings.
            steps: number of minibatches instead of whole epochs, for all, or one per client.
            terms: objects of `training/loss_terms.py`, such as [Proximal(0.1)], added to the loss.
            private: tensors (chosen, *shape) that terms train too, by the names in each term's
                `shapes`; the result has them as `private`.
            reference: weights that terms compare with, by default `start`.
            memory: the optimiser's state of earlier rounds, or {} to begin and get it returned.
            done: minibatches that each client took in earlier rounds; training goes on after them.
            keep_gradients: return each model's sum of gradients over the steps too.
        """
        return self._fitted(train, start, rng, **how)

    def average(
        self, start: dict[str, np.ndarray], rng: RngKey, weights: Sequence[float], **how: Any
    ) -> Averaged:
        """Train at each chosen client; return sum_j weights[j] · (trained model of client j).

        Arguments and needs are as in `train`, without `reference`, `memory` and `keep_gradients`.
        Models that are not finite are left out, and the result has the sum of the others' weights.
        """
        return self._fitted(train_and_average, start, rng, weights=weights, **how)

    def _fitted(
        self,
        fit: Callable[..., Fitted],
        start: Arrays,
        rng: RngKey,
        *,
        epochs: int,
        chosen: Chosen = None,
        lr: float | None = None,
        steps: Sequence[int] | int | None = None,
        done: int | None = None,
        terms: Terms = (),
        **more: Any,
    ) -> Fitted:
        lr = self.settings.lr if lr is None else lr
        settings = replace(self.settings, epochs=epochs, lr=lr)
        terms = with_prior(self.network, terms)
        with self.ledger.timed():
            examples, tasks = self._tasks(rng, chosen, steps, done)
            fitted = fit(self.network, examples, tasks, settings, start, terms=terms, **more)
        self._note(self._members(chosen), fitted.loss, fitted.finite)
        return fitted

    def train_heads(
        self,
        body: Arrays,
        rng: RngKey,
        *,
        hidden: Sequence[int] = (),
        weight_sd: float | None = None,
        **how: Any,
    ) -> dict[str, np.ndarray]:
        """Train new layers at each client, on top of hidden layers `body` that do not change.

        The `body` is weight0 (1, D, L1), bias0 (1, L1), weight1, …, fully connected with ReLU.
        `hidden` are units of new hidden layers below the new output layer. `how` (epochs, lr,
        patience) replaces settings, and `rng` is the round's key. `weight_sd`, if given, is the sd
        of normal initial weights. Images are not augmented; `patience` is 0 by default. Methods
        must declare "rounds" or "client_training". Clients get the body and send new layers,
        weight0, …: float32 (J, *shape), NaN where diverged. Source: GEMS, section 3.2, step 4.
        """
        below = hidden_layers(math.prod(self.network.shape), body)
        above = dense((below.classes, *hidden, self.network.classes), self.network.dropout)
        settings = replace(self.settings, **{"patience": 0, **how, "augment": "none"})
        if weight_sd is not None:
            settings = replace(settings, init="normal", weight_sd=weight_sd, bias=0.0)
        with self.ledger.timed():
            examples, tasks = self._tasks(rng)
        start = initial_weights(above, settings, [task.rng for task in tasks])
        with self.ledger.timed():
            trained = train(above, examples.above(below, body), tasks, settings, start)
        self.ledger.sent(
            queries.models_sent(below, 0, self.count) + queries.models_sent(above, self.count, 0)
        )
        self.ledger.trained(range(self.count), trained.loss, trained.finite)
        return trained.tensors

    def gradients(
        self, weights: dict[str, np.ndarray], chosen: Chosen = None
    ) -> dict[str, np.ndarray]:
        """Compute gradients (n, *shape) of the mean loss on all training examples of each client.

        `weights` (1, *shape) are shared; clients must have equally many examples, the network no
        dropout. NaN if a loss is not finite. Methods must declare "rounds" or "client_training".
        """
        self._require("let clients compute gradients", "rounds", "client_training")
        members = self._members(chosen)
        with self.ledger.timed():
            gradients, losses = queries.gradients_at(self.network, *self.data.of(members), weights)
        self._note(members, losses, np.isfinite(losses))
        return gradients

    def evaluate(
        self, candidates: Arrays, chosen: Chosen = None, on: Part = "train"
    ) -> queries.Evaluated:
        """Measure accuracy and loss of m candidate models (m, *shape) on each chosen client's data.

        A method must declare the need "client_evaluation" for `on` "train", "client_validation" for
        "validation". Clients send two numbers per candidate, NaN from a client without examples.
        """
        need = "client_evaluation" if on == "train" else "client_validation"
        self._require(f"let clients evaluate weights on their {on} examples", need)
        if not len(self.data.rows if on == "train" else self.data.validation):
            raise missing_validation_error(f"method '{self.method}'")
        members = self._members(chosen)
        with self.ledger.timed():
            evaluation = queries.evaluated(self.network, *self.data.of(members, on), candidates)
        count = evaluation.accuracy.size
        traffic = self.models(up=0, down=count)
        self._send(traffic + Traffic(messages_up=len(members), bytes_up=2 * FLOAT_BYTES * count))
        return evaluation

    def query(
        self, question: queries.Query, weights: Arrays | None = None, chosen: Chosen = None
    ) -> list[queries.Reply]:
        """Run the function `question` on each chosen client's examples; return all their answers.

        It is called as question(network, tensors (*shape), examples), and returns a dict of arrays.
        `weights` of all or some layers are (1, *shape), shared, or (n, *shape), one per client; by
        default each client's own model. A method must declare the need "client_answers".
        """
        self._require("ask clients", "client_answers")
        if weights is None and not self.own:
            said = f"method '{self.method}' asks clients about models of their own"
            raise FedreproError(f"{said}, and they trained none: give `weights`")
        return self._answers(question, weights, chosen)

    def statistics(self, weights: Arrays, chosen: Chosen = None) -> dict[str, np.ndarray]:
        """Measure BatchNorm's running statistics at `weights` on all examples of `chosen` clients.

        Clients lacking these get them. Returns float32 (1, *shape) by name, pooled by examples.
        """
        return pooled_statistics(self._answers(running_statistics, weights, chosen))

    def _answers(
        self, question: queries.Query, weights: Arrays | None, chosen: Chosen
    ) -> list[queries.Reply]:
        members, answers, read = self._members(chosen), list[queries.Reply](), 0
        own = {name: value[members] for name, value in (self.own or {}).items()}
        at = own if weights is None else weights
        if odd := {len(value) for value in at.values()} - {1, len(members)}:
            said = f"{len(members)} clients are asked, and weights are those of {max(odd)}"
            raise FedreproError(f"{said}: give those of one, or of each that is asked")
        with self.ledger.timed():
            examples, rows = self.data.of(members)
            for place, some in enumerate(rows):
                x, y = examples.inputs[some], examples.targets[some]
                watched = queries.Watched(x, y, examples.scale)
                model = {name: value[place % len(value)] for name, value in at.items()}
                answer = question(self.network, loaded(model, watched), watched)
                values = answer.values() if isinstance(answer, Mapping) else (answer, None)
                if not all(isinstance(value, np.ndarray) for value in values):
                    said = f"method '{self.method}': a client answers {shown(answer)}"
                    raise FedreproError(f"{said}; let it return a dict of NumPy arrays")
                answers.append(answer)
                read += sum(watched.reads)
        self.ledger.asked(answers, read / max(1, sum(map(len, rows))), weights, chosen is None)
        return answers

    def models(self, up: int, down: int) -> Traffic:
        """Return messages and bytes of `up` models to the server and `down` to clients, in all."""
        return queries.models_sent(self.network, up, down)

    def _note(self, members: list[int], losses: np.ndarray, finite: np.ndarray) -> None:
        self._send(self.models(up=len(members), down=len(members)))
        self.ledger.trained(members, losses, finite)

    def _send(self, traffic: Traffic) -> None:
        self.ledger.sent(traffic)

    def _members(self, chosen: Chosen) -> list[int]:
        return list(range(self.count) if chosen is None else map(int, chosen))

    def _require(self, what: str, *needs: str) -> None:
        if not any(need in self.needs for need in needs):
            said = f"method '{self.method}' wants to {what}, and does not declare it"
            raise FedreproError(f"{said}: add {' or '.join(map(repr, needs))} to its needs")

    def _tasks(
        self,
        rng: RngKey,
        chosen: Chosen = None,
        steps: Sequence[int] | int | None = None,
        done: int | None = None,
    ) -> tuple[Examples, list[Task]]:
        """Return a data set, and a `Task` on it for each client; arguments are as in `train`."""
        self._require("let clients train", "rounds", "client_training")
        if rng.round < 0:
            fix = "pass the key that `round` was given, or before round 0 rng.at(round=0, call=1)"
            raise FedreproError(f"clients train in a round, whose number draws minibatches: {fix}")
        members = self._members(chosen)
        counts = [steps] * len(members) if steps is None or isinstance(steps, int) else steps
        rng = rng if done is None else rng.at(round=-1)  # one order of minibatches over all rounds
        examples, each = self.data.of(members)
        return examples, [
            Task(rows, rng.at(client=j), count, done or 0)
            for rows, j, count in zip(each, members, counts, strict=True)
        ]


def initial_weights(
    network: Network, settings: Settings, places: Sequence[RngKey]
) -> dict[str, np.ndarray]:
    """Draw initial weights float32 (n, *shape) by n keys `places`; equal if `shared_init`."""
    if settings.shared_init:
        places = [place.at(client=-1) for place in places]
    how = settings.weight_sd, settings.bias, settings.init
    drawn = {k: np.empty((len(places), *v), np.float32) for k, v in network.shapes.items()}
    for i, place in enumerate(places):  # one by one, since all may fill the memory
        for name, value in network.initial(place, *how).items():
            drawn[name][i] = value
    return drawn


@dataclass(frozen=True)
class GraphNodes(Clients):
    """The N nodes of a method without a server: each node trains, and averages over its neighbours.

    weights: the mixing matrix W, float64 (N, N): W_ij is node i's weight for what node j sends.
    """

    weights: np.ndarray = field(kw_only=True, compare=False)

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, ...]:
        """Return which other nodes each node of the graph receives from: N arrays, int64 (d_i,)."""
        hears = (self.weights > 0) & ~np.eye(self.count, dtype=bool)
        return tuple(np.flatnonzero(row) for row in hears)

    @property
    def edges(self) -> int:
        return sum(map(len, self.neighbours))

    @property
    def numbers(self) -> int:
        """Return how many floats a node sends for one model, mean and spread of a weight as two."""
        return Layout(self.network.shapes).numbers

    def mixed(self, tensors: Arrays) -> dict[str, np.ndarray]:
        """Average tensors x (N, *shape) by the graph's weights W: node i gets sum_j W_ij x_j."""
        return {name: mixed(self.weights, value) for name, value in tensors.items()}

    def sent(self, numbers: int | None = None) -> Traffic:
        """Return messages and bytes if directed edges carry `numbers` floats each, or one model."""
        size = (self.numbers if numbers is None else numbers) * FLOAT_BYTES * self.edges
        return Traffic(self.edges, self.edges, size, size)

    def average(self, *args: object, **kwargs: object) -> Averaged:
        """Raise FedreproError: averaging over all nodes needs a server, which graphs lack."""
        said = f"method '{self.method}' averages over all nodes, which takes a server"
        raise FedreproError(f"{said}, and peers have none: train them, and take `mixed`")

    def _send(self, traffic: Traffic) -> None:
        """Ignore `traffic` to and from a server, which a graph does not have."""

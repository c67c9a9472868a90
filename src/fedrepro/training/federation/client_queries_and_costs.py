"""Work of clients besides training: answers, gradients, evaluations; and what their work costs."""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES, Traffic
from fedrepro.networks.layers import Pass
from fedrepro.networks.network import Network
from fedrepro.networks.predict import loaded
from fedrepro.training.flat_models_and_optimiser_steps import Layout
from fedrepro.training.training_examples import Arrays, Examples

if TYPE_CHECKING:
    import torch

Reply = Arrays
# of the network, tensors (*shape) by name, and a client's own examples
Query = Callable[[Network, Mapping[str, "torch.Tensor"], Examples], Reply]


@dataclass(frozen=True)
class Watched(Examples):
    """A client's examples; `reads` lists how many rows each read took, to count passes over all."""

    reads: list[int] = field(default_factory=list, compare=False)

    def scaled(self, rows: slice | np.ndarray) -> torch.Tensor:
        inputs = super().scaled(rows)
        self.reads.append(len(inputs))
        return inputs


def size_of(answer: np.ndarray) -> int:
    """Return the bytes to send an array; of a symmetric matrix, one triangle and the diagonal."""
    if answer.ndim == 2 and np.array_equal(answer, answer.T):
        rows = len(answer)
        return rows * (rows + 1) // 2 * answer.itemsize
    return answer.nbytes


@dataclass(frozen=True)
class Evaluated:
    """Accuracy and loss of m models on n clients, float64 (m, n); NaN for clients without data."""

    accuracy: np.ndarray
    loss: np.ndarray


def gradients_at(
    network: Network, examples: Examples, rows: Sequence[np.ndarray], weights: Arrays
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Compute clients' gradients (n, *shape) of mean losses at `weights`, and these losses (n,).

    `weights` (1, *shape) are shared. rows[j] are client j's row numbers, equally many for each
    client, or FedreproError is raised. NaN where a loss is not finite.
    """
    import torch
    from torch.nn.functional import cross_entropy

    if len({len(client_rows) for client_rows in rows}) > 1:
        fix = "let them hold as many as the smallest has (`with_subset`), or train for one step"
        raise FedreproError(f"clients compute gradients on equally many examples each: {fix}")
    index = torch.from_numpy(np.stack(rows)).to(examples.inputs.device)
    x, y = examples.gathered(index)
    layout = Layout(network.shapes)
    flat = torch.from_numpy(layout.pack(weights)).to(x).repeat(len(index), 1).requires_grad_()
    logits = network.forward(layout.views(flat), x, Pass())
    each = cross_entropy(logits.flatten(0, 1), network.asked(x, y).flatten(), reduction="none")
    losses = each.view(len(index), -1).mean(1)
    gradients = torch.autograd.grad(losses.sum(), flat)[0]
    gradients[~losses.isfinite()] = torch.nan
    return layout.unpack(gradients.cpu().numpy()), losses.detach().double().cpu().numpy()


def evaluated(
    network: Network, examples: Examples, rows: Sequence[np.ndarray], candidates: Arrays
) -> Evaluated:
    """Measure m models `candidates` (m, *shape) on each client j's rows[j] of `examples`."""
    import torch
    from torch.nn.functional import cross_entropy

    count = len(next(iter(candidates.values())))
    models = [loaded({k: v[i] for k, v in candidates.items()}, examples) for i in range(count)]
    index = np.concatenate(rows)
    found = torch.empty(2, count, len(index), dtype=torch.float64)
    with torch.no_grad():
        for at in range(0, len(index), network.prediction_rows):
            part = slice(at, at + network.prediction_rows)
            x = examples.scaled(index[part])
            y = network.asked(x, examples.targets[index[part]])
            for i, model in enumerate(models):
                logits = network.logits(model, x)
                hits, lost = logits.argmax(1) == y, cross_entropy(logits, y, reduction="none")
                hits = hits.double().masked_fill(~logits.isfinite().all(1), torch.nan)
                for into, each in zip(found, (hits, lost), strict=True):
                    into[i, part] = each.double().view(len(x), -1).mean(1).cpu()
    sizes = np.array([len(client_rows) for client_rows in rows])
    filled, means = sizes > 0, np.full((2, count, len(rows)), np.nan)
    if filled.any():  # an empty part would get the number after it
        starts = (np.cumsum(sizes) - sizes)[filled]
        means[..., filled] = np.add.reduceat(found.numpy(), starts, axis=2) / sizes[filled]
    return Evaluated(*means)


def models_sent(network: Network, up: int, down: int) -> Traffic:
    """Return messages and bytes of `up` models to the server and `down` to clients, in all."""
    each = Layout(network.shapes).numbers * FLOAT_BYTES
    return Traffic(up, down, up * each, down * each)


@dataclass(frozen=True)
class ClientCost:
    """Costs of all clients' work together: messages and bytes, seconds of this machine's time.

    exchanges: times that weights went to clients and statistics at these came back. passes: rows
    read for statistics / rows of the clients asked, summed over requests; 1 if each reads all once.
    """

    traffic: Traffic = field(default_factory=Traffic)
    exchanges: int = 0
    passes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: ClientCost) -> ClientCost:
        return ClientCost(*map(operator.add, vars(self).values(), vars(other).values()))


@dataclass
class CostCounter:
    """Counts the costs of clients' work in one round of federated learning.

    losses: {client: losses of its trainings}. rejected: number of trained models that diverged.
    held: weights that all clients received since `begin`, so that they are not sent again.
    """

    spent: ClientCost = field(default_factory=ClientCost)
    losses: dict[int, list[float]] = field(default_factory=dict)
    rejected: int = 0
    held: dict[str, np.ndarray] = field(default_factory=dict)

    def begin(self) -> None:
        """Set all counts to zero, before a round."""
        vars(self).update(vars(CostCounter()))

    @property
    def traffic(self) -> Traffic:
        return self.spent.traffic

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Add the seconds spent inside a `with` block to clients' work."""
        began = time.perf_counter()
        yield
        self.spent += ClientCost(seconds=time.perf_counter() - began)

    def sent(self, traffic: Traffic) -> None:
        """Add the messages and bytes `traffic` to the costs of this round."""
        self.spent += ClientCost(traffic)

    def asked(
        self, answers: Sequence[Reply], passes: float, weights: Arrays | None, everyone: bool = True
    ) -> None:
        """Add the costs of clients' `answers`, statistics at `weights`; `passes`: see `ClientCost`.

        `weights`, (1, *shape) or one per client, count as sent unless all clients hold them; None
        stands for clients' own models. If `everyone` answered, all now hold the shared weights.
        """
        up = sum(size_of(value) for answer in answers for value in answer.values())
        if weights is None:
            self.spent += ClientCost(Traffic(bytes_up=up), passes=passes)
            return
        new = {
            name: value
            for name, value in weights.items()
            if name not in self.held or not np.array_equal(self.held[name], value)
        }
        if everyone:
            self.held |= {k: v for k, v in new.items() if len(v) == 1}
        down = sum(v[0].nbytes for v in new.values()) * len(answers)
        self.spent += ClientCost(Traffic(len(answers), len(answers), up, down), 1, passes)

    def trained(self, members: Iterable[int], losses: np.ndarray, finite: np.ndarray) -> None:
        """Record losses (n,) of trainings at clients `members`; count models not `finite` (n,)."""
        for client, loss, whole in zip(members, losses, finite, strict=True):
            self.losses.setdefault(client, []).append(float(loss) if whole else float("nan"))
            self.rejected += not whole

    @property
    def selected(self) -> int:
        """Return the number of clients that trained at least once in this round."""
        return len(self.losses)

    @property
    def all_rejected(self) -> bool:
        """Return whether clients trained in this round and all their models diverged."""
        return bool(self.losses) and self.rejected == sum(map(len, self.losses.values()))

    @property
    def train_loss(self) -> float:
        """Return the mean of the round's finite training losses, one per model; NaN if none."""
        each = [loss for own in self.losses.values() for loss in own if np.isfinite(loss)]
        return float(np.mean(each)) if each else float("nan")

"""Terms that a method may add to the clients' loss.

A term on the weights alone gives its gradient; any other gives its loss per model, and may bring
tensors of its own that are trained with the model's and stay with the client. Sources: RM,
representation matching (H. Mostafa, 2019), P2P (A. Lalitha et al., 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from fedrepro.networks.layers import Pass, Shape
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TermInputs:
    """The inputs of a loss term in a training step of A models on B examples each.

    tensors: the network's weights and tensors that the term trains; start: the weights received, or
    others to compare with; both (A, *shape). x: (A, B, D). weight: (A, B), the examples' weights,
    which sum to one over a minibatch; 0 for rows that fill it up. run: the forward pass with its
    activations.
    """

    network: Network
    tensors: Mapping[str, torch.Tensor]
    start: Mapping[str, torch.Tensor]
    x: torch.Tensor
    weight: torch.Tensor
    run: Pass


class Term(Protocol):
    """A loss term that a method adds to the clients' cross-entropy."""

    @property
    def additive(self) -> bool:
        """Return whether the loss is a sum over examples, so that a minibatch may run in parts."""

    def shapes(self, network: Network) -> dict[str, Shape]:
        """Return shapes of the term's own tensors, trained and never sent; by default {}."""
        return {}

    def loss(self, look: TermInputs) -> torch.Tensor: ...


class Perturbation(Protocol):
    """A way to mix two gradients in a training step: at weights w, and at w + away(g), as in SAM.

    The optimiser gets (1 - share) g(w) + share g(w + away(g)), g the gradient of the loss on one
    minibatch. SAM (Foret et al., 2021) has share 1. Running statistics are those at w.
    """

    @property
    def share(self) -> float: ...

    def away(self, gradient: torch.Tensor, flat: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return by how much to move weights `flat`; `start`: received weights; all (A, size)."""


def compiled_kind(term: object) -> str:
    """Return the name of a term's compiled gradient, such as "entropy", or "" if it has none."""
    return str(vars(type(term)).get("written", ""))


@dataclass(frozen=True)
class Proximal:
    """The penalty coefficient · |w - start|², which pulls weights w towards the received weights.

    Sources: RM, section 4 (weight divergence, without ½); FedProx, whose mu is twice as large.
    """

    coefficient: float
    shift = 0.0

    @property
    def pull(self) -> float:
        return 2 * self.coefficient


@dataclass(frozen=True)
class Correction:
    """The linear loss term <c, w>: adds a vector c, one per client, to each gradient of training.

    Pass c as `reference` of the training, such as SCAFFOLD's c - c_j (Karimireddy et al., 2020).
    """

    pull = 0.0
    shift = 1.0


WeightTerm = Proximal | Correction  # terms on the weights alone
Terms = Sequence[Term | WeightTerm]


@dataclass(frozen=True)
class Entropy(Term):
    """The loss coefficient · max(0, least - H(softmax(logits))), which penalises confident outputs.

    H is the entropy of an example's prediction in nats. Source: RM, eq. (8).
    """

    least: float = 2.0
    coefficient: float = 1.0
    additive = True
    written = "entropy"

    def loss(self, look: TermInputs) -> torch.Tensor:
        """Return A models' loss (A,) by the entropy of their predictions on minibatch `look`."""
        import torch

        logits = look.run.activations[-1]
        entropy = -(torch.softmax(logits, -1) * torch.log_softmax(logits, -1)).sum(-1)
        return self.coefficient * ((self.least - entropy).clamp_min(0) * look.weight).sum(1)


@dataclass(frozen=True)
class GaussianPrior(Term):
    """The loss weight · KL(q ‖ prior) of a variational network's distribution q of its weights.

    A minibatch's mean loss gets weight / n times the divergence. `over` "client": n is a client's
    number of examples; "run": n counts the examples of all minibatches of one training, as if the
    last of an epoch were full. sd: the prior of each weight is N(0, sd²); if None, it is q as
    received. Source: P2P, eq. (8).
    """

    weight: float = 1.0
    over: Literal["run", "client"] = "run"
    sd: float | None = None
    additive = False
    written = "divergence"

    def share(self, examples: int, minibatches: int, batch_size: int) -> float:
        """Return weight / n; n: `examples` of a client, or for "run" minibatches * batch_size."""
        return self.weight / (examples if self.over == "client" else minibatches * batch_size)

    def loss(self, look: TermInputs) -> torch.Tensor:
        raise NotImplementedError("its gradient is in step_arrays_losses_variational.py")


def with_prior(network: Network, terms: Terms) -> list[Term | WeightTerm]:
    """Return `terms`, with a KL divergence to the network's prior, if any, unless they have one."""
    if network.prior_sd is None or any(isinstance(term, GaussianPrior) for term in terms):
        return list(terms)
    return [*terms, GaussianPrior(over="client", sd=network.prior_sd)]

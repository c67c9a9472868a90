"""Terms that a method may add to the clients' loss.

A term on the weights alone gives its gradient; any other gives its loss per model, and may bring
tensors of its own that are trained with the model's and stay with the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from fedrepro.core.portable_ops.torch_ops import logarithm
from fedrepro.networks.layers import Pass, Shape
from fedrepro.networks.network import Network

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TermInputs:
    """The inputs of a term in a step of A models.

    tensors: the network's and the client's own as trained now, and start: the same as received, or
    what the caller gave in its place, (A, *shape) by name. x: (A, B, D); weight: (A, B), a
    minibatch's sums to one and is zero for filled rows. run: what the forward pass kept. share:
    (A,), of a divergence in the loss of a minibatch.
    """

    network: Network
    tensors: Mapping[str, torch.Tensor]
    start: Mapping[str, torch.Tensor]
    x: torch.Tensor
    weight: torch.Tensor
    run: Pass
    share: torch.Tensor


class Term(Protocol):
    """A loss that is added to cross-entropy; `loss` is (A,).

    additive: the loss of a minibatch is the sum of those of its pieces, so that it can be computed
    piece by piece where a step takes all of a client's examples.
    """

    @property
    def additive(self) -> bool: ...

    def shapes(self, network: Network) -> dict[str, Shape]:
        """Private tensors by name: trained with the model's, they stay with the client."""
        return {}

    def loss(self, look: TermInputs) -> torch.Tensor: ...


class MatchingTerm(Protocol):
    """A term whose `written` is "matching": the gaps of what maps f_j give back of activations.

    reduction: "sum" or "mean" over the elements of an activation.
    """

    @property
    def coefficient(self) -> float: ...
    @property
    def reduction(self) -> str: ...
    def pairs(self, count: int) -> list[tuple[int, int]]:
        """List pairs of `count` activations, counted from 0: which is given back from which."""
        ...


class Perturbation(Protocol):
    """A step whose gradient is taken at two places: at the weights w, and at w + away(g).

    It is (1 - share) g(w) + share g(w + away(g)), by which the optimiser then moves w. SAM (Foret
    et al., 2021) has share 1. Both take the same minibatch, and running statistics the first pass.
    """

    @property
    def share(self) -> float: ...

    def away(self, gradient: torch.Tensor, flat: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the move of the weights; gradient, weights and start are (A, size) as it is."""
        ...


def perturbs(term: object) -> bool:
    """Tell whether a term is a `Perturbation`: it has `away`."""
    return hasattr(term, "away")


@dataclass(frozen=True)
class Ascent:
    """SAM's perturbation: `radius` times the gradient over its length, model by model."""

    radius: float
    share: float = 1.0

    def away(self, gradient: torch.Tensor, flat: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return `radius` times the gradient over its length, (A, size)."""
        lengths: torch.Tensor = gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return gradient * (self.radius / lengths)


def compiled_kind(term: object) -> str:
    """Name the form in which `compiled_steps.py` has the gradient of a term.

    It is "entropy", "divergence", "matching", or "" for a term that is differentiated
    automatically. A class says so for itself alone: one that is derived from it may compute
    something else.
    """
    kind: str = vars(type(term)).get("written", "")
    return kind


@dataclass(frozen=True)
class Proximal:
    """coefficient · |w - start|², the pull towards the received weights of the network.

    Sources: RM, section 4 (weight divergence, no factor ½); FedProx has half its mu here.
    """

    coefficient: float
    shift = 0.0

    @property
    def pull(self) -> float:
        """Of w - start in its gradient."""
        return 2 * self.coefficient

    def add(self, gradient: torch.Tensor, flat: torch.Tensor, start: torch.Tensor) -> None:
        """Add its gradient; all are (A, size)."""
        gradient.add_(flat, alpha=self.pull).sub_(start, alpha=self.pull)


@dataclass(frozen=True)
class Correction:
    """<reference, w>: every step's gradient gets the client's own `reference` of the training.

    SCAFFOLD's c - c_j is such a correction (Karimireddy et al., 2020, algorithm 1, line 10).
    """

    pull = 0.0
    shift = 1.0

    def add(self, gradient: torch.Tensor, flat: torch.Tensor, start: torch.Tensor) -> None:
        """Add its gradient; all are (A, size)."""
        gradient.add_(start)


WeightTerm = Proximal | Correction  # terms on the weights alone


@dataclass(frozen=True)
class Entropy(Term):
    """coefficient · max(0, least - H(softmax(logits))): against over-confident predictions.

    least: in nats. over: the maximum is taken for each example, as RM's eq. (8) prints, or for
    the minibatch's mean entropy, as its authors' code does.
    """

    least: float = 2.0
    coefficient: float = 1.0
    over: Literal["example", "minibatch"] = "example"
    written = "entropy"

    @property
    def additive(self) -> bool:
        """Not with the maximum over a mean."""
        return self.over == "example"

    def loss(self, look: TermInputs) -> torch.Tensor:
        """Compute the loss of each model, (A,)."""
        import torch

        logits = look.run.activations[-1]
        entropy = -(torch.softmax(logits, -1) * torch.log_softmax(logits, -1)).sum(-1)
        if self.over == "minibatch":
            short = (self.least - (entropy * look.weight).sum(1)).clamp_min(0)
        else:
            short = ((self.least - entropy).clamp_min(0) * look.weight).sum(1)
        return self.coefficient * short


@dataclass(frozen=True)
class GaussianPrior(Term):
    """weight · KL(q ‖ prior) for variational weights, added to the sum of the examples' losses.

    The loss of a minibatch is a mean over its examples, so it has one n-th of the divergence: n
    counts the examples in all minibatches of the run (those between two exchanges), or of the
    client, each once. sd: the prior is N(0, sd²) for every weight; without it, it is q as received.
    Source: P2P, eq. (8).
    """

    weight: float = 1.0
    over: Literal["run", "client"] = "run"
    sd: float | None = None
    additive = False
    written = "divergence"

    def share(self, examples: int, minibatches: int, batch_size: int) -> float:
        """Compute the share of the divergence in a minibatch's loss, by a client's examples."""
        return self.weight / (examples if self.over == "client" else minibatches * batch_size)

    def loss(self, look: TermInputs) -> torch.Tensor:
        """Sum log(s/σ) + (σ² + (μ - m)²) / (2 s²) - ½ over the weights of each model: (A,)."""
        import torch
        from torch.nn.functional import softplus

        total = look.x.new_zeros(len(look.x))
        for name, parameter in look.network.parameters.items():
            if parameter.role == "spread":
                continue
            mean, deviation = look.tensors[name], softplus(look.tensors[f"{name}_spread"])
            if self.sd is None:
                away = mean - look.start[name]
                prior = softplus(look.start[f"{name}_spread"])
            else:
                away, prior = mean, torch.full_like(mean, self.sd)
            ratio = (deviation**2 + away**2) / (2 * prior**2)
            each = logarithm(prior / deviation) + ratio - 0.5
            total = total + each.flatten(1).sum(1)
        return look.share * total


def with_prior(network: Network, terms: Sequence[Term | WeightTerm]) -> list[Term | WeightTerm]:
    """Add the divergence from the model's own prior to the terms, unless they have one of another.

    It counts once for all examples of a client, each once.
    """
    if network.prior_sd is None or any(isinstance(term, GaussianPrior) for term in terms):
        return list(terms)
    return [*terms, GaussianPrior(over="client", sd=network.prior_sd)]

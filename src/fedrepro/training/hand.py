"""Dense networks written out by hand: what a step of A models at once takes, and no more.

Stacked matrix products into buffers that are allocated once, two dozen kernels a step for all
models together, nothing recorded for automatic differentiation. Optimisers that look at a gradient
get it in a buffer (`Written`); plain descent moves the weights in the product that would give their
gradient (`Moved`), so that it is neither allocated nor written nor read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedrepro.networks.layers import Noise
from fedrepro.networks.network import Network
from fedrepro.training.representation import RepresentationMatching
from fedrepro.training.terms import Entropy, GaussianPrior, Term

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


def by_hand(network: Network, terms: Sequence[object]) -> bool:
    """Whether the gradients of this network and these terms are written out here."""
    kinds = [type(term) for term in terms]
    known = (Entropy, GaussianPrior if network.kind == "variational" else RepresentationMatching)
    dense = network.of_means if network.all_drawn else network
    return (
        dense.sizes is not None
        and all(kind in known for kind in kinds)
        and kinds.count(known[1]) <= 1
        # matching looks at activations as they are before dropout
        and not (RepresentationMatching in kinds and network.dropout)
    )


class Use(Protocol):
    """What is done with the gradients of affine maps, weights (M, n, m) and biases (M, m)."""

    def begin(self, rates: Sequence[float]) -> None:
        """The step sizes of the models that train next."""
        ...

    def resize(self, models: int) -> None:
        """Only the first models train from now on."""
        ...

    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """The weights (A, B) of examples that go into their errors."""
        ...

    def take(self, name: str, given: torch.Tensor, error: torch.Tensor) -> None:
        """Use those of a map, by its weight's name: inputs, turned (A, n, B), and errors (A, B, m).

        The gradient of its weight is given · error, that of its bias the sum of error.
        """
        ...


class Written:
    """They are written into a buffer: tensors by name (M, *shape)."""

    def __init__(self, gradients: Tensors) -> None:
        self.gradients = gradients
        self.out: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def begin(self, rates: Sequence[float]) -> None:
        """They are the optimiser's."""

    def resize(self, models: int) -> None:
        """See `Use`."""
        self.out = {
            name: (value[:models], self.gradients[_bias(name)][:models])
            for name, value in self.gradients.items()
            if "weight" in name
        }

    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """As they are."""
        return weight

    def take(self, name: str, given: torch.Tensor, error: torch.Tensor) -> None:
        """See `Use`."""
        import torch

        weight, bias = self.out[name]
        torch.bmm(given, error, out=weight)
        torch.sum(error, 1, out=bias)


class Moved:
    """Weights (M, *shape) by name take a step of plain descent, each model by its own rate.

    The rate is part of the errors, so a model moves as it does in the company of other rates.
    """

    def __init__(self, weights: Tensors, batch: int) -> None:
        self.weights = weights
        models = len(weights["bias0"])
        self.all_rates = self.rates = weights["bias0"].new_zeros(models, 1)
        self.ones = self.rates.new_ones(1, 1, 1).expand(models, 1, batch)
        self.row = self.ones
        self.own: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def begin(self, rates: Sequence[float]) -> None:
        """See `Use`."""
        self.all_rates[: len(rates)] = self.rates.new_tensor(rates).unsqueeze(1)

    def resize(self, models: int) -> None:
        """See `Use`."""
        self.rates, self.row = self.all_rates[:models], self.ones[:models]
        self.own = {
            name: (value[:models], self.weights[_bias(name)][:models].unsqueeze(1))
            for name, value in self.weights.items()
            if "weight" in name
        }

    def scaled(self, weight: torch.Tensor) -> torch.Tensor:
        """Times the rate of the model."""
        return weight * self.rates

    def take(self, name: str, given: torch.Tensor, error: torch.Tensor) -> None:
        """See `Use`."""
        weight, bias = self.own[name]
        weight.baddbmm_(given, error, alpha=-1)
        bias.baddbmm_(self.row, error, alpha=-1)


@dataclass(frozen=True)
class Views:
    """An affine map's tensors and buffers for as many models as train, made once for many steps.

    weight (A, n, m), bias (A, 1, m), output and error (A, B, m).
    """

    name: str
    weight: torch.Tensor
    weight_turned: torch.Tensor
    bias: torch.Tensor
    output: torch.Tensor
    output_turned: torch.Tensor
    error: torch.Tensor


class AffineMap:
    """An affine map: its tensors, and buffers for its outputs and their errors.

    plain: buffers that do not lie as the weights do. Products of narrow layers take a sixth less
    time if all lie alike.
    """

    def __init__(self, name: str, tensors: Tensors, batch: int, plain: bool = False) -> None:
        import torch

        self.name, self.weight, self.bias = name, tensors[name], tensors[_bias(name)]
        models, size = self.bias.shape
        self.output = self.weight.new_empty(models, batch, size)
        if self.weight.stride(1) < self.weight.stride(2) and not plain:
            self.output = self.weight.new_empty(models, size, batch).transpose(1, 2)
        self.error = torch.empty_like(self.output)

    def first(self, models: int) -> Views:
        """Of the first models."""
        weight, output = self.weight[:models], self.output[:models]
        return Views(
            self.name,
            weight,
            weight.transpose(1, 2),
            self.bias[:models].unsqueeze(1),
            output,
            output.transpose(1, 2),
            self.error[:models],
        )


class HandGradients:
    """A dense network's gradients. weights, start: by name, (M, *shape); see `Use` for the rest."""

    def __init__(
        self,
        network: Network,
        weights: Tensors,
        use: Use,
        batch: int,
        terms: Sequence[Term] = (),
        start: Tensors | None = None,
    ) -> None:
        import torch

        assert network.sizes is not None
        self.kept, self.use = 1 - network.dropout, use
        last = len(network.sizes) - 2
        self.maps = [AffineMap(f"weight{i}", weights, batch, i == last) for i in range(last + 1)]
        self.layers: list[Views] = []
        self.ones = torch.ones_like(weights["bias0"][:, :1, None]).expand(-1, batch, 1)
        self.count, self.minus = 0, self.ones
        self.entropies = [term for term in terms if isinstance(term, Entropy)]
        self.matching: HandMatching | None = None
        for term in terms:
            if isinstance(term, RepresentationMatching):
                self.matching = HandMatching(term, network, weights, start or {}, batch)

    def step(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: Noise | None = None
    ) -> torch.Tensor:
        """See `Gradients`."""
        import torch

        if x.size(0) != self.count:
            self.resize(x.size(0))
        given = x
        for layer in self.layers[:-1]:
            given = torch.baddbmm(layer.bias, given, layer.weight, out=layer.output).relu_()
            if noise is not None:
                given.mul_(noise.kept(given, self.kept).div_(self.kept))
        last = self.layers[-1]
        logits = torch.baddbmm(last.bias, given, last.weight)
        share = self.use.scaled(weight).unsqueeze(-1)
        error = self._error(logits, y, weight).mul_(share)
        if self.matching is not None:
            self.matching.pull(x, logits, share, self.layers, self.use)
        self._backward(x, error)
        return logits

    def begin(self, rates: Sequence[float], shares: Sequence[float]) -> None:
        """See `Gradients`."""
        self.use.begin(rates)

    def resize(self, models: int) -> None:
        """Only the first models train from now on."""
        self.count, self.minus = models, -self.ones[:models]
        self.layers = [one.first(models) for one in self.maps]
        self.use.resize(models)
        if self.matching is not None:
            self.matching.resize(models)

    def _error(self, logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The gradient at the logits (A, B, K) of examples of weight one."""
        import torch

        error = torch.softmax(logits, -1, out=self.layers[-1].error)
        pulls = [term.at_logits(logits, weight) for term in self.entropies]
        if y.dim() == 2:
            error.scatter_add_(-1, y.unsqueeze(-1), self.minus)
        else:
            error.sub_(y)
        for pull in pulls:
            error.add_(pull)
        return error

    def _backward(self, x: torch.Tensor, error: torch.Tensor) -> None:
        import torch

        for place in range(len(self.layers) - 1, 0, -1):
            layer, under = self.layers[place], self.layers[place - 1]
            if self.matching is None:
                below = torch.bmm(error, layer.weight_turned, out=under.error)
            else:
                below = under.error.baddbmm_(error, layer.weight_turned)
            self.use.take(layer.name, under.output_turned, error)
            # what dropout left out is zero as well, and what it kept was scaled up
            error = where_positive(below, under.output)
            if self.kept < 1:
                error.div_(self.kept)
        self.use.take(self.layers[0].name, x.transpose(1, 2), error)


@dataclass(frozen=True)
class _Pair:
    """f_j: from which activation which one is given back, and what an element's error counts."""

    back: Views
    source: int
    target: int
    share: float


class HandMatching:
    """Representation matching of a dense network; activations are counted from the input, 0."""

    def __init__(
        self,
        term: RepresentationMatching,
        network: Network,
        weights: Tensors,
        start: Tensors,
        batch: int,
    ) -> None:
        assert network.sizes is not None
        self.sizes, self.pairs, self.models = network.sizes, term.pairs(len(network.sizes)), 0
        self.maps = [AffineMap(f"match{j}_weight", weights, batch) for j in range(len(self.pairs))]
        farthest = max(target for _, target in self.pairs)
        self.received = [AffineMap(f"weight{i}", start, batch) for i in range(farthest)]
        self.term = term
        self.backs: list[_Pair] = []
        self.layers: list[Views] = []

    def resize(self, models: int) -> None:
        """Only the first models train from now on."""
        self.layers = [one.first(models) for one in self.received]
        self.backs = []
        for one, (source, target) in zip(self.maps, self.pairs, strict=True):
            share = 2 * self.term.coefficient
            if self.term.reduction == "mean":
                share /= self.sizes[target]
            self.backs.append(_Pair(one.first(models), source, target, share))

    def pull(
        self,
        x: torch.Tensor,
        logits: torch.Tensor,
        share: torch.Tensor,
        layers: Sequence[Views],
        use: Use,
    ) -> None:
        """Write the errors of hidden activations and add to those of the logits; use f_j's own.

        share: (A, B, 1), scaled weights of the examples. layers: of the network that trains.
        """
        import torch

        last = len(layers)
        theirs = self._received(x, last)
        for pair in self.backs:
            back, hidden = pair.back, 0 < pair.target < last
            given = logits if pair.source == last else layers[pair.source - 1].output
            out = torch.baddbmm(back.bias, given, back.weight, out=back.output)
            if hidden:
                out.relu_()
            error = torch.sub(out, theirs[pair.target], out=back.error).mul_(share * pair.share)
            if hidden:
                where_positive(error, out)
            top = layers[pair.source - 1].error
            if pair.source == last:
                top.baddbmm_(error, back.weight_turned)
            else:
                torch.bmm(error, back.weight_turned, out=top)
            use.take(back.name, given.transpose(1, 2), error)

    def _received(self, x: torch.Tensor, last: int) -> list[torch.Tensor]:
        """Activations of the received network."""
        import torch

        found = [x]
        for place, layer in enumerate(self.layers, start=1):
            out = torch.baddbmm(layer.bias, found[-1], layer.weight, out=layer.output)
            found.append(out.relu_() if place < last else out)
        return found


def where_positive(value: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The value, in place, zero where the output of the ReLU is; a product with a mask of bytes
    takes six times as long."""
    import torch

    backward = torch.ops.aten.threshold_backward.grad_input
    found: torch.Tensor = backward(value, output, 0, grad_input=value)
    return found


def _bias(weight: str) -> str:
    """The name of the bias beside a weight."""
    return weight.replace("weight", "bias")

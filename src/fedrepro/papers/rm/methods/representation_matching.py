"""Representation matching: local activations must be able to reconstruct the received model's.

H. Mostafa, Robust Federated Learning Through Representation Matching and Adaptive
Hyper-parameters, 2019 (RM), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from fedrepro.api import ClientInfo, State, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import fedavg_variants_and_base_classes as fedavg
from fedrepro.networks import layers
from fedrepro.networks.network import Network
from fedrepro.training.loss_terms import TermInputs

if TYPE_CHECKING:
    import torch

    from fedrepro.training.federation.clients import Clients
    from fedrepro.training.loss_terms import Term, WeightTerm


@dataclass(frozen=True)
class RepresentationMatching:
    """Loss term coefficient · sum_j |f_j(a_{j+1}(x; w)) - a_j(x; start)|² over activations a_j.

    w is the model in training, `start` the model received from the server; the maps f_j are trained
    together with w. a_1 is the input, then follow the outputs of the non-linearities (after
    pooling), and the logits. f_j is affine on vectors, a convolution on images, followed by a_j's
    own non-linearity. Pooled activations are unpooled first, at the positions that the trained
    model's pooling chose; a convolution has the kernel size of the layer whose output it maps.
    `reduction` is over the elements of a_j: RM, eq. (1) sums, its text says mean. With `source`
    "same", a_j is reconstructed from a_j(x; w), for all but the input, as in RM, section 3.1.
    """

    coefficient: float = 1.0
    reduction: Literal["sum", "mean"] = "sum"
    source: Literal["above", "same"] = "above"
    additive = True
    written = "matching"

    def pairs(self, count: int) -> list[tuple[int, int]]:
        """Return a pair (source, target) of indices of activations for each map f_j.

        A map reconstructs the target from the source, of `count` activations; 0 is the input.
        """
        if self.source == "same":
            return [(j, j) for j in range(1, count)]
        return [(j + 1, j) for j in range(count - 1)]

    def shapes(self, network: Network) -> dict[str, layers.Shape]:
        """Return {name: shape} of the tensors of maps f_j for `network`, such as match0_bias."""
        return {name: parameter.shape for name, parameter in self._parameters(network)}

    def initial(self, network: Network, rng: RngKey) -> dict[str, np.ndarray]:
        """Draw tensors of maps f_j between activations by name: float32, uniform in ±1/√fan_in."""
        generator, tensors = rng.stream("representation-matching"), {}
        for name, parameter in self._parameters(network):
            limit = 1 / math.sqrt(parameter.fan_in)
            values = generator.uniform(-limit, limit, parameter.shape)
            tensors[name] = values.astype(np.float32)
        return tensors

    def loss(self, look: TermInputs) -> torch.Tensor:
        """Compute the matching loss on a minibatch for each of the A models trained at once: (A,).

        Gradients reach the trained model and the maps f_j, not the model received from the server.
        """
        import torch

        with torch.no_grad():
            received = layers.Pass(look.run.convolution, keep=True)
            look.network.forward(look.start, look.x, received)
        total = look.x.new_zeros(len(look.x))
        shapes = [shape for shape, _ in matched_activations(look.network)]
        for j, (source, target, mapped) in enumerate(self._maps(look.network)):
            tensors = {part: look.tensors[f"match{j}_{part}"] for part in ("weight", "bias")}
            activation, theirs = look.run.activations[source], received.activations[target]
            pooled = look.run.pooled[source] if source > target else None
            share = look.weight / (math.prod(shapes[target]) if self.reduction == "mean" else 1)
            run = layers.Pass(look.run.convolution)
            back = mapped.forward(tensors, _unpooled(activation, pooled), run)
            back = back.relu() if 0 < target < len(shapes) - 1 else back
            back = _centred(back, shapes[target]) if len(shapes[source]) == 3 else back
            gaps = _squared_gap().apply(back.reshape(theirs.shape), theirs)
            total = total + (gaps * share).sum(1)
        return self.coefficient * total

    def _maps(
        self, network: Network
    ) -> Iterator[tuple[int, int, layers.Affine | layers.Convolution2d]]:
        """Yield (index of input activation, index of target activation, map between them)."""
        activations = matched_activations(network)
        for source, target in self.pairs(len(activations)):
            (shape, kernel), (wanted, _) = activations[source], activations[target]
            if len(shape) == 3:
                yield source, target, layers.Convolution2d(wanted[0], kernel, kernel // 2)
            else:
                yield source, target, layers.Affine(math.prod(wanted))

    def _parameters(self, network: Network) -> Iterator[tuple[str, layers.Parameter]]:
        activations = matched_activations(network)
        for j, (source, _, mapped) in enumerate(self._maps(network)):
            for name, parameter in mapped.parameters(activations[source][0]).items():
                yield f"match{j}_{name}", parameter


def require_matchable(network: Network) -> None:
    """Check that representation matching can reconstruct the activations of every layer.

    Raises:
        FedreproError: a layer is of an unknown kind, or a pooling layer does not follow a ReLU.
    """
    known = (layers.Affine, layers.Convolution2d, layers.Dropout, layers.MaxPool, layers.Relu)
    for before, layer in pairwise((None, *network.layers)):
        if not isinstance(layer, known):
            raise FedreproError(
                f"representation matching cannot give back what a layer {type(layer).__name__} of "
                f"this {network.kind} network was given; choose mlp, logistic or cnn, or another "
                "method"
            )
        if isinstance(layer, layers.MaxPool) and not isinstance(before, layers.Relu):
            raise FedreproError(
                "representation matching undoes a pooling that follows a ReLU, and this network "
                "has one after another layer; put ReLU before it"
            )


def matched_activations(network: Network) -> list[tuple[layers.Shape, int]]:
    """Return (shape, kernel size) for each activation that representation matching reconstructs.

    The list goes from the input to the logits. The kernel size is that of the last convolution up
    to the activation, or 1 before the first convolution.
    """
    found, kernel = [(network.shape, 1)], 1
    for layer, shape, _ in network.places:
        if isinstance(layer, layers.Convolution2d):
            kernel = layer.kernel
        elif isinstance(layer, layers.Relu):
            found.append((layer.output(shape), kernel))
        elif isinstance(layer, layers.MaxPool):
            found[-1] = layer.output(shape), found[-1][1]
    last, shape, _ = network.places[-1]
    return [*found, (last.output(shape), kernel)]


def _unpooled(value: torch.Tensor, pooled: layers.Pooled | None) -> torch.Tensor:
    """Undo max pooling of `value` (A, B, C, H', W'), by positions `pooled`, if not None."""
    if pooled is None:
        return value
    from torch.nn.functional import max_unpool2d

    places, size = layers.join_models(pooled.argmax), list(pooled.size)
    return layers.split_models(
        max_unpool2d(layers.join_models(value), places, [2, 2], output_size=size), len(value)
    )


def _centred(value: torch.Tensor, target: layers.Shape) -> torch.Tensor:
    """Crop images (…, H', W'), or pad them with zeros, to the height and width of `target`."""
    from torch.nn.functional import pad

    height, width = (want - have for want, have in zip(target[1:], value.shape[-2:], strict=True))
    if not height and not width:
        return value
    top, left = height // 2, width // 2
    return pad(value, (left, width - left, top, height - top))


@cache
def _squared_gap() -> Any:
    """Return f(back, target) = |back - target|² per example, (A, B), which saves memory."""
    import torch

    class SquaredGap(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, back: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            gap = back - target
            ctx.save_for_backward(gap)
            norm: torch.Tensor = torch.linalg.vector_norm(gap, dim=tuple(range(2, gap.dim())))
            return norm**2

        @staticmethod
        def backward(ctx: Any, each: torch.Tensor) -> tuple[torch.Tensor, None]:
            (gap,) = ctx.saved_tensors
            return gap.mul_((2 * each).view(*each.shape, *[1] * (gap.dim() - 2))), None

    return SquaredGap


# models whose activations the loss term can reconstruct
MODELS = {"cnn", "logistic", "mlp"}


@dataclass(kw_only=True)
class MatchingRounds(fedavg.Averaging):
    """Base of FedAvg with representation matching, whose maps f_j stay with each client.

    A map f_j reconstructs one activation from another. A client's maps are drawn at random when the
    client is first sampled, and kept between its rounds. Source: RM, section 3.1 and algorithm 1.
    """

    matching: Annotated[float, Arg("coefficient of the matching loss", least=0)] = 1.0
    reduction: Annotated[
        Literal["mean", "sum"],
        Arg("mean or sum of the squared gaps over the elements of an activation"),
    ] = "mean"
    source: Annotated[
        Literal["above", "same"],
        Arg("activation that predicts a received one: the one above it, or its own"),
    ] = "above"

    def term(self) -> RepresentationMatching:
        """Return the representation-matching loss with the parameters of this method."""
        return RepresentationMatching(self.matching, self.reduction, source=self.source)

    def terms(self) -> list[Term | WeightTerm]:
        """Return loss terms that clients add to cross-entropy, representation matching first."""
        return [self.term(), *super().terms()]

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before round 1: global weights, and "private": {} for clients' maps."""
        require_matchable(clients.network)
        return {**super().init(clients, info, rng), "private": {}}

    def private_tensors(
        self, state: State, chosen: np.ndarray, clients: Clients, rng: RngKey
    ) -> dict[str, np.ndarray]:
        """Return tensors of chosen clients' maps between activations by name, (chosen, *shape).

        `chosen` are indices of this round's clients; one never chosen before gets newly drawn maps.
        """
        term = self.term()
        by_client = [
            state["private"].get(str(j))
            or term.initial(clients.network, rng.at(client=j, round=-1))
            for j in chosen.tolist()
        ]
        return {name: np.stack([tensors[name] for tensors in by_client]) for name in by_client[0]}


@method(
    "representation_matching",
    kind="federated",
    needs=fedavg.NEEDS,
    models=MODELS,
    paper="rm",
    label="FA+RM",
)
@dataclass(kw_only=True)
class MatchedFedAvg(MatchingRounds, fedavg.FedAvg):
    """FedAvg in which local activations must reconstruct activations of the received global model.

    Clients minimise cross-entropy + matching · L_M (+ other terms of `fedavg`), with L_M the
    squared error of reconstruction. Source: RM, eq. (1).
    """

"""Knowledge distillation: one network is trained on the predictions of all clients' models.

FedDF: T. Lin, L. Kong, S. U. Stich, M. Jaggi. Ensemble Distillation for Robust Model Fusion in
Federated Learning. NeurIPS 2020. DENSE: J. Zhang, C. Chen, B. Li, L. Lyu, S. Wu, S. Ding, C. Shen,
C. Wu. DENSE: Data-Free One-Shot Federated Learning. NeurIPS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MIXED
from fedrepro.core.metrics import Metric
from fedrepro.core.portable_ops.torch_ops import exponential, root
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import MODELS, network_like, of_one_form
from fedrepro.methods.average import average
from fedrepro.networks.network import Network, dense_spec, widths
from fedrepro.networks.network import dense as perceptron
from fedrepro.networks.predict import joint_logits, network_of, probabilities
from fedrepro.training.engine import train
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Examples, tensor_of
from fedrepro.training.training_settings_and_procedures import settings_of

if TYPE_CHECKING:
    import torch

    Logits = Callable[[torch.Tensor], torch.Tensor]


@method(
    "distillation",
    kind="one_shot",
    needs={"pooled_inputs"},
    models={"mlp"},
    paper="pfnm",
    label="KD",
)
def distillation(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    units: Annotated[int, Arg("units of each hidden layer of the student", least=1)] = 500,
) -> GlobalModel:
    """Train a new network on the clients' mean prediction for the pooled inputs (distillation).

    The loss is cross-entropy at temperature 1. Training is as the clients' local training, with
    `units` in each hidden layer. Source: PFNM, supplement 4.1, after Hinton et al. (2015).
    """
    assert info.pooled_inputs is not None
    inputs = tensor_of(info.pooled_inputs).to(info.device)
    teacher = network_like(clients)
    targets = probabilities(teacher, clients.tensors, None, Examples(inputs, inputs))
    model = dense_spec((units,) * len(widths(clients.tensors)))
    student = network_of(model, clients.shape, clients.classes)
    settings = settings_of(info.training)
    trained = train(
        student,
        Examples(inputs, targets),
        [Task(np.arange(len(inputs)), rng)],
        settings,
        initial_weights(student, settings, [rng]),
    ).checked()
    return GlobalModel(model, trained.tensors)


@method(
    "feddf",
    kind="one_shot",
    needs={"example_counts", "public_inputs"},
    models={*MODELS, MIXED},
    label="FedDF",
    any_width=True,
    grid={"epochs": (5, 20), "lr": (1e-4, 0.001)},
)
def feddf(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    public_data: Annotated[str, Arg("data set whose inputs the server has")] = "mnist",
    epochs: Annotated[int, Arg("passes over the server's inputs", "epochs", least=1)] = 20,
    lr: Annotated[float, Arg("learning rate of Adam", above=0)] = 0.001,
    batch_size: Annotated[int, Arg("minibatch size of the student", "examples", least=1)] = 128,
) -> GlobalModel:
    """Distil the clients' mean logits into their parameter average on public inputs.

    Minimises KL(softmax(mean_j z_j(x)) || softmax(z_w(x))) over at most 10,000 inputs x; z are
    logits. Source: FedDF, algorithm 1, with one round. The authors lower the step size to 0 along a
    cosine, clip gradients and stop by validation accuracy; here Adam runs for `epochs` epochs at
    one step size. If clients' networks have several architectures, the student has the most common
    one and starts from the average of the clients that have it.
    """
    assert info.public_inputs is not None
    network = network_like(clients)
    inputs = tensor_of(info.public_inputs).to(info.device)
    each = joint_logits(network, clients.tensors, Examples(inputs, inputs))
    some, their_info = of_one_form(clients, info)
    mean = each.reshape(len(each), clients.clients, clients.classes).mean(axis=1)
    shares = np.exp(mean - mean.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    values = {"lr": lr, "batch_size": batch_size, "epochs": epochs, "l2": 0.0}
    trained = train(
        network_of(some.model, clients.shape, clients.classes),
        Examples(inputs, tensor_of(shares.astype(np.float32)).to(info.device)),
        [Task(np.arange(len(inputs)), rng)],
        settings_of(components("training")["adam"].spec(values)),
        dict(average(some, their_info, rng=rng).tensors),
    ).checked()
    return GlobalModel(some.model, trained.tensors)


GAP = Metric("divergence of the student from the ensemble on made inputs", "nats", 0, None, -1)
MADE = Metric("cross-entropy of the ensemble on inputs made for a class", "nats", 0, None, -1)
BETAS, SMALL, MOMENTUM = (0.5, 0.999), 1e-8, 0.9


@method(
    "dense",
    kind="one_shot",
    needs={"example_counts"},
    models={*MODELS, MIXED},
    label="DENSE",
    any_width=True,
    version=2,
    grid={"adversarial": (0.5, 1.0), "lr": (0.005, 0.01)},
    metrics={"student_gap": GAP, "made_loss": MADE},
)
def dense(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    epochs: Annotated[int, Arg("generated batches", "epochs", least=1)] = 20,
    generator_steps: Annotated[
        int, Arg("the generator's steps for a batch", "steps", least=1)
    ] = 30,
    generator_lr: Annotated[float, Arg("learning rate of the generator", above=0)] = 0.001,
    generator_units: Annotated[int, Arg("units of its hidden layer", "units", least=1)] = 256,
    latent: Annotated[int, Arg("random numbers behind an input", least=1)] = 256,
    adversarial: Annotated[float, Arg("weight of the loss on disagreement", least=0)] = 1.0,
    lr: Annotated[float, Arg("learning rate of the student", above=0)] = 0.005,
    temperature: Annotated[float, Arg("temperature of the student's targets", above=0)] = 20.0,
    batch_size: Annotated[int, Arg("inputs of a generated batch", "examples", least=1)] = 256,
    start: Annotated[Literal["average", "fresh"], Arg("the student's initial weights")] = "average",
) -> GlobalModel:
    """Distil the clients' mean logits on inputs from trained generators, without any data.

    The student minimises T² KL(softmax(z̄/T) || softmax(z_w/T)), z̄ being the clients' mean logits,
    z_w the student's, T `temperature`. For each batch a new generator, a perceptron with outputs in
    [0, 1], and its random inputs are trained. They lower CE(z̄(x), y) - β mean[1(argmax z_w ≠
    argmax z̄) KL(softmax z̄(x) || softmax z_w(x))] for random labels y, β being `adversarial`. Of
    its batches, one per step, the one of least loss is kept; then the student learns once from each
    batch kept so far. Source: DENSE, by its formulas, without the batch normalisation term. The
    student keeps its initial running statistics. The authors generate 200 batches and start from
    fresh weights. If clients have several architectures, the student has the most common one.
    """
    import torch

    of_clients = network_like(clients)
    some, their_info = of_one_form(clients, info)
    network = network_of(some.model, clients.shape, clients.classes)
    begun = (
        dict(average(some, their_info, rng=rng).tensors)
        if start == "average"
        else initial_weights(network, settings_of(info.training), [rng])
    )
    student = {name: _leaf(value[0], info.device) for name, value in begun.items()}
    learned = partial(network.logits, student)
    ensemble = _mean_logits(of_clients, clients.tensors, info.device)
    weights = [value for name, value in student.items() if name not in network.buffers]
    moved = [torch.zeros_like(value) for value in weights]
    pool: list[tuple[torch.Tensor, torch.Tensor]] = []
    gap = loss = 0.0
    for epoch in range(epochs):
        place = rng.at(round=epoch)
        generator = _Generator(network, latent, generator_units, batch_size, place, info.device)
        made, loss = generator.made(ensemble, learned, generator_steps, generator_lr, adversarial)
        with torch.no_grad():
            pool.append((made, ensemble(made)))
        gaps = []
        for at in place.stream("dense-batches").permutation(len(pool)):
            x, wanted = pool[at]
            batch_gap = divergence(wanted, learned(x), temperature)
            apart = temperature**2 * batch_gap  # which parts for training alone do not change
            slopes = torch.autograd.grad(apart, weights, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                for value, move, slope in zip(weights, moved, slopes, strict=True):
                    value -= lr * move.mul_(MOMENTUM).add_(slope)
            gaps.append(float(batch_gap.detach()))
        gap = float(np.mean(gaps))
    tensors = {name: value.detach().cpu().numpy()[None] for name, value in student.items()}
    diagnostics = {"student_gap": max(0.0, gap), "made_loss": loss}
    return GlobalModel(some.model, tensors, diagnostics=diagnostics)


def divergence(
    wanted: torch.Tensor, logits: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    """Return mean KL(softmax(wanted/T) || softmax(logits/T)) of logits (B, K), T `temperature`."""
    return _divergences(wanted / temperature, logits / temperature).mean()


def _divergences(wanted: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return KL(softmax(wanted) || softmax(logits)) of each example, (B,); logits are (B, K)."""
    import torch

    log_wanted, log_logits = torch.log_softmax(wanted, dim=1), torch.log_softmax(logits, dim=1)
    return (exponential(log_wanted) * (log_wanted - log_logits)).sum(dim=1)


class _Generator:
    """A perceptron that maps random numbers to inputs (B, D), for data-free distillation."""

    def __init__(
        self, network: Network, latent: int, units: int, batch: int, rng: RngKey, device: str
    ) -> None:
        stream = rng.stream("dense-generator")
        self.network = perceptron((latent, units, math.prod(network.shape)))
        first = self.network.initial(rng, 0.0, 0.0, "fan_in")
        self.tensors = {name: _leaf(value, device) for name, value in first.items()}
        self.noise = _leaf(stream.standard_normal((batch, latent), np.float32), device)
        self.labels = _on(stream.integers(network.classes, size=batch), device)

    def made(
        self, ensemble: Logits, student: Logits, steps: int, lr: float, adversarial: float
    ) -> tuple[torch.Tensor, float]:
        """Train the generator; return its inputs of least loss, and the ensemble's cross-entropy.

        The loss is the `ensemble`'s cross-entropy for random labels, less `adversarial` times the
        divergence of the `student` where it predicts another class.
        """
        import torch

        leaves = [self.noise, *self.tensors.values()]
        moments = [(torch.zeros_like(leaf), torch.zeros_like(leaf)) for leaf in leaves]
        best: tuple[float, torch.Tensor, float] | None = None
        for step in range(1, steps + 1):
            x = torch.sigmoid(self.network.logits(self.tensors, self.noise))
            ensemble_logits, student_logits = ensemble(x), student(x)
            entropy = torch.nn.functional.cross_entropy(ensemble_logits, self.labels)
            loss = entropy - adversarial * _apart(ensemble_logits, student_logits)
            if best is None or float(loss.detach()) < best[0]:
                best = float(loss.detach()), x.detach(), float(entropy.detach())
            slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
            if slopes[0] is None:
                said = "DENSE: the networks read inputs as codes, which no generator can learn"
                raise FedreproError(f"{said}; take a method without one, such as feddf")
            with torch.no_grad():
                for leaf, kept, slope in zip(leaves, moments, slopes, strict=True):
                    leaf -= lr * adam(*kept, slope, step)
        assert best is not None
        return best[1], best[2]


def adam(mean: torch.Tensor, square: torch.Tensor, slope: torch.Tensor, step: int) -> torch.Tensor:
    """Return Adam's step at learning rate 1, to be subtracted, for the gradient `slope`.

    `mean` and `square` are its two moments, updated in place; `step` counts from 1. Written by
    hand, since torch's own optimisers load its compiler first, which takes seconds.
    """
    beta1, beta2 = BETAS
    mean.mul_(beta1).add_(slope, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(slope, slope, value=1 - beta2)
    return (mean / (1 - beta1**step)) / (root(square / (1 - beta2**step)) + SMALL)


def _apart(theirs: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """Return the mean of two models' KL divergences, set to 0 where their predictions agree."""
    differ = (theirs.argmax(dim=1) != ours.argmax(dim=1)).to(theirs.dtype)
    return (differ * _divergences(theirs, ours)).mean()


def _mean_logits(network: Network, tensors: Mapping[str, np.ndarray], device: str) -> Logits:
    """Return a function from inputs to the mean logits of J networks, `tensors` (J, *shape)."""
    held = {name: _on(value, device) for name, value in tensors.items()}
    count = len(next(iter(held.values())))
    each = [{name: value[j] for name, value in held.items()} for j in range(count)]
    return lambda x: reduce(add, (network.logits(model, x) for model in each)) / count


def _on(value: np.ndarray, device: str) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.require(value, requirements="C")).to(device)


def _leaf(value: np.ndarray, device: str) -> torch.Tensor:
    return _on(np.array(value, np.float32), device).requires_grad_()

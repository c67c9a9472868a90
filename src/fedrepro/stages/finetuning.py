"""Tuning at the server: further training on a public sample, equal for every method's model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrepro.api import GlobalModel
from fedrepro.core.finetuning import FineTuning
from fedrepro.core.rng import RngKey
from fedrepro.networks.heads import split
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.minibatches import Task
from fedrepro.training.procedure import Settings

Tensors = dict[str, np.ndarray]


def finetuned(
    model: GlobalModel,
    sample: Examples,
    shape: tuple[int, ...],
    classes: int,
    how: FineTuning,
    settings: Settings,
    rng: RngKey,
) -> GlobalModel:
    """Train a model further on the sample, each of its networks by itself.

    Source: GEMS, section 3.3.

    Args:
        model: to train.
        sample: labelled examples at the server.
        shape: of one example.
        classes: number of outputs.
        how: replaces epochs, step size and patience of `settings`.
        settings: the local training procedure; its optimiser starts again.
        rng: of trial and repetition; it gives the order of the sample and dropout, equal for all
            models.
    """
    network = network_of(model.model, shape, classes).fitted(model.tensors)
    tuning_settings = replace(settings, epochs=how.epochs, lr=how.lr, patience=how.patience)
    if how.layers == "last":
        return replace(model, tensors=_last(network, model, sample, tuning_settings, rng))
    tasks = [Task(np.arange(len(sample.targets)), rng)] * model.networks
    start = {name: model.tensors[name] for name in network.shapes}
    return replace(model, tensors=train(network, sample, tasks, tuning_settings, start).tensors)


def _last(
    network: Network, model: GlobalModel, sample: Examples, settings: Settings, rng: RngKey
) -> Tensors:
    """Train the output layers alone, on the activations below them."""
    import torch

    hidden, head = split(network)
    names = dict(zip(head.shapes, list(network.shapes)[-len(head.shapes) :], strict=True))
    each = [
        sample.above(hidden, {name: model.tensors[name][[i]] for name in hidden.shapes}).inputs
        for i in range(model.networks)
    ]
    count = len(sample.targets)
    examples = Examples(torch.cat(each), sample.targets.repeat(model.networks))
    tasks = [Task(np.arange(i * count, (i + 1) * count), rng) for i in range(model.networks)]
    start = {name: model.tensors[whole] for name, whole in names.items()}
    plain = replace(settings, augment="none")  # which moves pixels
    trained = train(head, examples, tasks, plain, start).tensors
    return dict(model.tensors) | {names[name]: value for name, value in trained.items()}

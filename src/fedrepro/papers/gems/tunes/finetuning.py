"""Fine-tuning of models on a public sample: the key `tune` of a method in a figure or table.

In file names it is written as `tune+examples~100@1000+repetitions~5`, here for 100 and for 1000.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import GlobalModel
from fedrepro.core.registry import TUNE, register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.networks.network import split
from fedrepro.networks.predict import network_of
from fedrepro.training.engine import train
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Examples
from fedrepro.training.training_settings_and_procedures import Settings


@register(TUNE, "tune")
def finetuned(
    model: GlobalModel,
    sample: Examples,
    shape: tuple[int, ...],
    classes: int,
    settings: Settings,
    rng: RngKey,
    *,
    examples: Annotated[
        int,
        Arg("examples of the public sample, which is drawn from all validation examples", least=1),
    ] = 1000,
    repetitions: Annotated[int, Arg("samples of each size, each tuned on by itself", least=1)] = 1,
    epochs: Annotated[int, Arg("passes over the public sample", "epochs", least=1)] = 5,
    lr: Annotated[float, Arg("learning rate of fine-tuning", above=0)] = 0.01,
    layers: Annotated[
        Literal["all", "last"], Arg("layers that are fine-tuned: all, or the output layer alone")
    ] = "all",
    patience: Annotated[
        int,
        Arg(
            "epochs without a rise of accuracy on the public sample after which fine-tuning "
            "stops, 0 for never",
            "epochs",
            least=0,
        ),
    ] = 0,
) -> GlobalModel:
    """Train a global model further on the labelled public sample, each of its networks by itself.

    `settings` are those of local training, with a new optimiser and other epochs, learning rate and
    patience. `shape` is of one input, `classes` counts outputs. `rng` depends on trial and
    repetition alone, so models get equal dropout and orders of examples. Source: GEMS, section 3.3.
    """
    import torch

    network = network_of(model.model, shape, classes).fitted(model.tensors)
    settings = replace(settings, epochs=epochs, lr=lr, patience=patience)
    if layers != "last":
        tasks = [Task(np.arange(len(sample.targets)), rng)] * model.networks
        start = {name: model.tensors[name] for name in network.shapes}
        return replace(model, tensors=train(network, sample, tasks, settings, start).tensors)
    hidden, head = split(network)  # output layers alone, on the activations below them
    names = dict(zip(head.shapes, list(network.shapes)[-len(head.shapes) :], strict=True))
    each = [
        sample.above(hidden, {name: model.tensors[name][[i]] for name in hidden.shapes}).inputs
        for i in range(model.networks)
    ]
    count = len(sample.targets)
    above = Examples(torch.cat(each), sample.targets.repeat(model.networks))
    tasks = [Task(np.arange(i * count, (i + 1) * count), rng) for i in range(model.networks)]
    start = {name: model.tensors[whole] for name, whole in names.items()}
    plain = replace(settings, augment="none")  # augmentation is for pixels, not activations
    trained = train(head, above, tasks, plain, start).tensors
    new = {names[name]: value for name, value in trained.items()}
    return replace(model, tensors={**model.tensors, **new})

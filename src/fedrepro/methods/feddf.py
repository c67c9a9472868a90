"""FedDF: the averaged network learns the ensemble's predictions on inputs of another data set.

T. Lin, L. Kong, S. U. Stich, M. Jaggi. Ensemble Distillation for Robust Model Fusion in Federated
Learning. NeurIPS 2020.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.method_kinds import MIXED
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import MODELS, network_like, of_one_form
from fedrepro.methods.average import average


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
    epochs: Annotated[int, Arg("passes over these inputs", "epochs", least=1)] = 20,
    lr: Annotated[float, Arg("step size of Adam", above=0)] = 0.001,
    batch_size: Annotated[int, Arg("inputs of a step", "examples", least=1)] = 128,
) -> GlobalModel:
    """min KL(softmax(mean_j z_j(x)) || softmax(z_w(x))) over inputs x, from the parameter average.

    z are logits. Source: FedDF, algorithm 1, with one round. There are at most 10,000 inputs. The
    authors lower the step size to 0 along a cosine, clip gradients and stop by validation accuracy;
    here Adam takes `epochs` epochs at one step size. Of networks of several forms the student has
    that of most clients, and starts from their average.
    """
    from fedrepro.core.registry import components
    from fedrepro.networks.predict import joint_logits, network_of
    from fedrepro.training.engine import train
    from fedrepro.training.examples import Examples, tensor_of
    from fedrepro.training.minibatches import Task
    from fedrepro.training.settings import settings_of

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

"""Knowledge distillation: a new network learns the uniform ensemble's predictions."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import network_like
from fedrepro.networks.network import dense_spec, widths
from fedrepro.networks.predict import network_of, probabilities


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
    units: Annotated[int, Arg("units of each hidden layer of the new network", least=1)] = 500,
) -> GlobalModel:
    """Cross-entropy against the clients' mean prediction on the pooled inputs, temperature 1.

    The new network is trained as a client would be (optimiser, minibatch, epochs), with `units`
    in each hidden layer. Source: PFNM, supplement 4.1, after Hinton et al. (2015).
    """
    from fedrepro.training.engine import train
    from fedrepro.training.examples import Examples, tensor_of
    from fedrepro.training.federation.clients import initial_weights
    from fedrepro.training.minibatches import Task
    from fedrepro.training.settings import settings_of

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

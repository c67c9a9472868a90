"""Federated averaging over many clients with pfl: `python pfl_population.py WORK`, json."""

from __future__ import annotations

import sys

import population_work
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy


def run(say) -> None:
    work = population_work.load(sys.argv[1])
    module = population_work.network()
    module.loss = lambda x, y: cross_entropy(module(x), y)
    module.metrics = lambda x, y: {"loss": Weighted(module.loss(x, y).item() * len(y), len(y))}

    class Told(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            say(round=central_iteration)
            return False, Metrics()

    def made(user: int) -> PyTorchTensorDataset:
        return PyTorchTensorDataset(population_work.tensors(work, user), user_id=str(user))

    data = FederatedDataset(made, get_user_sampler("random", range(work.clients)))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.cohort,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0)),
        model_train_params=NNTrainHyperParams(
            local_batch_size=work.batch_size,
            local_num_epochs=work.epochs,
            local_learning_rate=work.lr,
        ),
        callbacks=[Told()],
        send_metrics_to_platform=False,
    )
    say(accuracy=population_work.accuracy(work, module))


if __name__ == "__main__":
    population_work.talking(run)

"""Federated averaging with pfl: `python pfl_rounds.py PROBLEM.npz [cpu|cuda]`."""

from __future__ import annotations

import sys
import time

import torch
import work
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


class Clock(TrainingProcessCallback):
    """Starts after the first round, which warms up and evaluates, and puts the model back."""

    def __init__(self, start: dict[str, torch.Tensor]) -> None:
        self.start = start
        self.began = 0.0

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        if central_iteration == 0:
            model.pytorch_model.load_state_dict(self.start)
            self.began = time.perf_counter()
        return False, Metrics()


def main(path: str, device: str) -> None:
    problem = work.load(path)
    module = work.network(problem).to(device)
    start = {name: value.detach().clone() for name, value in module.state_dict().items()}
    module.loss = lambda x, y: cross_entropy(module(x), y)
    module.metrics = lambda x, y: {"loss": Weighted(module.loss(x, y).item() * len(y), len(y))}
    users = {
        user: PyTorchTensorDataset(
            (problem.inputs[rows].to(device), problem.labels[rows].to(device)), user_id=str(user)
        )
        for user, rows in enumerate(problem.rows)
    }

    def run() -> dict[str, float]:
        module.load_state_dict(start)
        sampler = get_user_sampler("random", list(users))
        data = FederatedDataset(users.__getitem__, sampler)
        clock = Clock(start)
        model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
        FederatedAveraging().run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=problem.rounds + 1,
                evaluation_frequency=problem.rounds + 1,
                train_cohort_size=problem.cohort,
                val_cohort_size=None,
            ),
            backend=SimulatedBackend(training_data=data, val_data=data),
            model=model,
            model_train_params=NNTrainHyperParams(
                local_batch_size=problem.batch_size,
                local_num_epochs=problem.epochs,
                local_learning_rate=problem.lr,
            ),
            callbacks=[clock],
            send_metrics_to_platform=False,
        )
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - clock.began
        return {"seconds": seconds, "accuracy": work.accuracy(module, problem)}

    work.answer(run)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], *(sys.argv[2:] or ["cpu"]))

"""Federated averaging with Flower's Ray simulation: `python flower_rounds.py PROBLEM.npz`.

One worker of one thread. The clock starts after the first round, when Ray and its worker are up.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.update(
    FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0"
)

import flower_client
import work
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


class Timed(FedAvg):
    """FedAvg that puts the model back after the first round and times the others."""

    def __init__(self, start: ArrayRecord, **options) -> None:
        super().__init__(fraction_evaluate=0.0, **options)
        self.start_arrays = start
        self.began = 0.0

    def configure_train(self, server_round, arrays, config, grid):
        if server_round == 2:
            self.began = time.perf_counter()
            arrays = self.start_arrays
        return super().configure_train(server_round, arrays, config, grid)


def main(path: str) -> None:
    os.environ[flower_client.PROBLEM] = path
    problem = work.load(path)
    clients = len(problem.rows)

    def run() -> dict[str, float]:
        found: dict[str, float] = {}
        server = ServerApp()

        @server.main()
        def serve(grid, context) -> None:
            model = work.network(problem)
            start = ArrayRecord(model.state_dict())
            strategy = Timed(
                start,
                fraction_train=problem.cohort / clients,
                min_train_nodes=problem.cohort,
                min_available_nodes=clients,
            )
            result = strategy.start(grid, start, num_rounds=problem.rounds + 1)
            found["seconds"] = time.perf_counter() - strategy.began
            model.load_state_dict(result.arrays.to_torch_state_dict())
            found["accuracy"] = work.accuracy(model, problem)

        run_simulation(
            server,
            flower_client.app,
            num_supernodes=clients,
            backend_config={
                "init_args": {"num_cpus": 1, "include_dashboard": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
        return found

    work.answer(run)


if __name__ == "__main__":
    main(sys.argv[1])

"""Federated averaging over many clients with Flower: `python flower_population.py WORK`, json."""

from __future__ import annotations

import os
import sys

os.environ.update(
    FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0"
)

import flower_population_client
import population_work
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


def run(say) -> None:
    os.environ[flower_population_client.WORK] = sys.argv[1]
    work = population_work.load(sys.argv[1])

    class Told(FedAvg):
        def aggregate_train(self, server_round, replies):
            found = super().aggregate_train(server_round, replies)
            say(round=server_round)
            return found

    server = ServerApp()

    @server.main()
    def serve(grid, context) -> None:
        module = population_work.network()
        strategy = Told(
            fraction_evaluate=0.0,
            fraction_train=work.cohort / work.clients,
            min_train_nodes=work.cohort,
            min_available_nodes=work.clients,
        )
        start = ArrayRecord(module.state_dict())
        result = strategy.start(grid, start, num_rounds=work.rounds)
        module.load_state_dict(result.arrays.to_torch_state_dict())
        say(accuracy=population_work.accuracy(work, module))

    run_simulation(
        server,
        flower_population_client.app,
        num_supernodes=work.clients,
        backend_config={
            "init_args": {"num_cpus": 1, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    population_work.talking(run)

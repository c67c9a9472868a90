"""The client of `flower_rounds.py`: a module of its own, so that Ray's worker loads it once."""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace

import torch
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

PROBLEM = "FEDREPRO_PEER_PROBLEM"

app = ClientApp()


@functools.cache
def loaded() -> tuple[SimpleNamespace, nn.Module]:
    torch.set_num_threads(1)
    problem = work.load(os.environ[PROBLEM])
    return problem, work.network(problem)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local epochs of plain gradient descent on the examples of one client."""
    problem, model = loaded()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rows = problem.rows[int(context.node_config["partition-id"])]
    x, y = problem.inputs[rows], problem.labels[rows]
    optimiser = torch.optim.SGD(model.parameters(), lr=problem.lr)
    for _ in range(problem.epochs):
        for part, target in zip(
            x.split(problem.batch_size), y.split(problem.batch_size), strict=True
        ):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(part), target).backward()
            optimiser.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(rows)}),
        }
    )
    return Message(content=content, reply_to=message)

"""The client of `flower_population.py`: a module of its own, so that Ray's worker loads it once."""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace

import population_work
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

WORK = "FEDREPRO_PEER_WORK"

app = ClientApp()


@functools.cache
def loaded() -> tuple[SimpleNamespace, nn.Module]:
    torch.set_num_threads(1)
    return population_work.load(os.environ[WORK]), population_work.network()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local epochs of plain gradient descent on the examples of one client."""
    work, model = loaded()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = population_work.tensors(work, int(context.node_config["partition-id"]))
    optimiser = torch.optim.SGD(model.parameters(), lr=work.lr)
    for _ in range(work.epochs):
        for part, target in zip(x.split(work.batch_size), y.split(work.batch_size), strict=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(part), target).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)

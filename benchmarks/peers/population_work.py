"""What peers share in `client_rows.py`: the same clients as ours, and the lines that they print.

Clients are made by fedrepro's own `Synthetic`, when a framework asks for their data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TextIO

import numpy as np
import torch
from torch import nn

from fedrepro.components.datasets.synthetic import CLASSES, INPUTS, Synthetic


def load(text: str) -> SimpleNamespace:
    """The work as attributes, with `made`, whose `examples(j)` are those of client j."""
    given = json.loads(text)
    return SimpleNamespace(**given, made=Synthetic(**given["data"]))


def tensors(work: SimpleNamespace, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels of a client."""
    x, y = work.made.examples(client)
    return torch.from_numpy(x), torch.from_numpy(y)


def network() -> nn.Module:
    """Logistic regression from zero."""
    linear = nn.Linear(INPUTS, CLASSES)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def accuracy(work: SimpleNamespace, module: nn.Module) -> float:
    """Share of the test examples of the clients that are kept."""
    parts = [work.made.examples(client, "test") for client in range(work.made.kept)]
    x, y = (torch.from_numpy(np.concatenate([part[at] for part in parts])) for at in (0, 1))
    with torch.no_grad():
        return float((module(x).argmax(1) == y).float().mean())


def talking(run: Callable[[Callable[..., None]], None]) -> None:
    """Run with a function that prints a json line; what a framework prints goes elsewhere."""
    torch.set_num_threads(1)
    out: TextIO
    out, sys.stdout = sys.stdout, sys.stderr
    run(lambda **said: print(json.dumps(said), file=out, flush=True))

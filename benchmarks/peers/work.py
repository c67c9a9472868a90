"""What every peer does the same way: reads the problem, builds the model, answers line by line.

A peer prints `ready`; for every line `run` on its standard input it does the work once and prints
one json object: seconds of the training rounds, and the accuracy on test data after them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn


def load(path: str) -> SimpleNamespace:
    """The problem as tensors; `settings` as attributes."""
    stored = np.load(path)
    settings = json.loads(str(stored["settings"]))
    arrays = {name: stored[name] for name in stored.files if name != "settings"}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return SimpleNamespace(**tensors, **settings)


def network(problem: SimpleNamespace) -> nn.Module:
    """Logistic regression from zero, or the network of pfl's Table 1 from its random start."""
    torch.manual_seed(problem.seed)
    if problem.model == "logistic":
        linear = nn.Linear(problem.inputs.shape[1], 10)
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
        return linear
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def accuracy(model: nn.Module, problem: SimpleNamespace) -> float:
    """Share of the test examples that are predicted right."""
    with torch.no_grad():
        parts = problem.test_inputs.split(1000)
        found = torch.cat([model(part.to(device_of(model))).argmax(1).cpu() for part in parts])
    return (found == problem.test_labels).float().mean().item()


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def answer(run: Callable[[], dict[str, float]]) -> None:
    """Serve until standard input ends. What a framework prints goes to standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        if line.strip() == "run":
            print(json.dumps(run()), file=out, flush=True)

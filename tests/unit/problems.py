"""Small problems for tests: three blobs at unequal clients, and pictures that are learnt."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.data.prepared import SPLITS, Arrays
from fedrepro.stages.user_models.method_contract import peers_of as peers_of
from fedrepro.stages.user_models.method_contract import problem_of

FEATURES, CLASSES, COUNT = 6, 3, 240


@dataclass(frozen=True)
class Ascent:
    """SAM's perturbation."""

    radius: float
    share: float = 1.0

    def away(self, gradient, flat, start):
        return gradient * (self.radius / gradient.norm(dim=1, keepdim=True))


def blobs(seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(COUNT) % CLASSES
    centres = np.random.default_rng(7).random((CLASSES, FEATURES)) * 2
    inputs = (centres[labels] + 0.1 * rng.standard_normal((COUNT, FEATURES))).astype(np.float32)
    return inputs, labels.astype(np.int64)


def problem(hidden=(8,), count=4, kind="mlp", **training_values):
    inputs, labels = blobs()
    last = max(count - 1, 1)
    owner = np.where(labels == 0, np.arange(COUNT) % last, np.arange(COUNT) // 3 % count)
    rows = [np.flatnonzero(owner == j) for j in range(count)]
    values = {"epochs": 20, "batch_size": 8, **training_values}
    training = components("training")["adam"].spec(values)
    name, own = (kind, {"hidden": list(hidden)}) if hidden else ("logistic", {})
    model = components("model")[name].spec(own)
    held = [own[::2] for own in rows]
    pairs = {"train": (inputs, labels), "clients": blobs(seed=2)}
    for part, seed, size in (("server", 1, 30), ("public", 3, 60)):
        pairs[part] = tuple(array[:size] for array in blobs(seed))
    return problem_of(pairs, rows, held, model, training, (FEATURES,), CLASSES)


def problem_on(inputs, labels, count, model, training, classes):
    """A problem on these examples (N, *shape); the first thirty are validated with, and public."""
    shape, flat = inputs.shape[1:], inputs.reshape(len(inputs), -1)
    rows = [np.arange(j, len(inputs), count) for j in range(count)]
    part = flat[:30], labels[:30]
    pairs = dict.fromkeys(("clients", "server", "public"), part)
    pairs["train"] = flat, labels
    held = [own[own < 30] for own in rows]
    return problem_of(pairs, rows, held, model, training, shape, classes)


def model_of(make):
    """A model whose networks this function gives, which is registered nowhere."""
    return Component("model", "theirs", 1, make, {"title": "t", "module": True}).spec()


def unwell(given, rows=slice(None)):
    """The same with clients whose inputs in these rows are no numbers."""
    inputs = torch.from_numpy(given.inputs.copy())
    inputs[rows] = torch.nan
    data = given.clients.data
    data = replace(data, examples=replace(data.examples, inputs=inputs))
    return replace(given, clients=replace(given.clients, data=data))


SIZES = {"train": 90, "validation": 0, "test": 30}


def pictures(shape=(3, 32, 32), seed=0):
    """Noise with a bright third whose place is the class."""
    rng = np.random.default_rng(seed)
    y = {split: np.arange(n, dtype=np.int64) % 3 for split, n in SIZES.items()}
    x = {}
    for split in SPLITS:
        x[split] = rng.integers(0, 100, (SIZES[split], *shape), np.uint8)
        for image, label in zip(x[split], y[split], strict=True):
            third = shape[-1] // 3
            image[..., label * third : (label + 1) * third] += 100
    return Arrays(x=x, y=y, scale=255.0, shape=shape, classes=("left", "middle", "right"))

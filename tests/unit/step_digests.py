"""Digests of the weights that forty compiled steps of each kind of network leave behind.

    python tests/unit/step_digests.py

It needs no torch, so that another processor can be played: on Debian with qemu-user,

    QEMU_CPU=EPYC qemu-x86_64 .venv/bin/python tests/unit/step_digests.py

with NUMBA_CPU_NAME and NUMBA_CPU_FEATURES set takes the code that the same names made before, and
must print the same. Other words are the kinds and dtypes to print, all by default.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from fedrepro.core.rng import RngKey
from fedrepro.networks.layers import (
    Affine,
    Convolution2d,
    Dropout,
    EachPosition,
    Embedding,
    Lstm,
    MaxPool,
    Relu,
    Variational,
)
from fedrepro.networks.network import Network, dense
from fedrepro.training.compiled_trainer import CompiledTrainer
from fedrepro.training.loss_terms import Entropy, GaussianPrior, Proximal
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_settings_and_procedures import Procedure, Settings

INPUTS, EXAMPLES, STEPS = 61, 130, 40
DTYPES = ["float32", "float64"]
PLAIN = Settings("sgd", 0.05, 0.0, 10, 1, 0.1, 0.1, False)
ADAM = replace(PLAIN, optimiser="adam", lr=1e-3, l2=1e-4)


@dataclass(frozen=True)
class Stored:
    """An array where the engine expects a tensor."""

    array: np.ndarray

    def cpu(self) -> Stored:
        return self

    def numpy(self) -> np.ndarray:
        return self.array


def beliefs() -> Network:
    return Network((INPUTS,), (Variational(12), Relu(), Variational(10)), "variational")


def pooled(bias: bool = True) -> Network:
    """Two convolutions of 5 × 5 with pooling, as FedAvg and LeNet have them."""
    kernels = (Convolution2d(6, 5, 2, bias), Relu(), MaxPool(), Convolution2d(20, 5, 0, bias))
    top = (Relu(), MaxPool(), Affine(30, bias), Relu(), Affine(10, bias))
    return Network((3, 14, 15), (*kernels, *top), "convolutional")


def listed() -> Network:
    """Pooled convolutions with odd sides, whose inputs fill vectors: zero errors are left out."""
    lower = (Convolution2d(16, 3, 1), Relu(), MaxPool(), Convolution2d(32, 4, 2), Relu(), MaxPool())
    top = (Convolution2d(12, 3), Relu(), MaxPool(), Affine(10))
    return Network((1, 18, 19), (*lower, *top), "convolutional")


def deep() -> Network:
    kernels = (Convolution2d(9, 3, 1), Relu(), Convolution2d(8, 3), Relu())
    top = (Affine(20), Relu(), Dropout(0.3), Affine(10))
    return Network((1, 9, 8), (*kernels, *top), "convolutional")


def letters(every: bool) -> Network:
    last = (EachPosition(),) if every else ()
    layers = (Embedding(10, 5), Lstm(20), Lstm(20, not every), *last, Affine(10))
    return Network((7,), layers, "recurrent")


CASES = {
    "logistic": (dense((INPUTS, 10)), PLAIN, ()),
    "deep": (dense((INPUTS, 50, 21, 10)), PLAIN, ()),
    "momentum": (dense((INPUTS, 50, 10)), replace(PLAIN, momentum=0.9, l2=0.01), (Proximal(0.1),)),
    "amsgrad": (dense((INPUTS, 50, 10)), replace(ADAM, amsgrad=True, batch_size=32), ()),
    "adam": (dense((INPUTS, 50, 10)), ADAM, ()),
    "whole data": (dense((INPUTS, 20, 10)), replace(PLAIN, batch_size=None), ()),
    "dropout": (dense((INPUTS, 50, 10), 0.5), PLAIN, ()),
    "entropy": (dense((INPUTS, 20, 10)), PLAIN, (Entropy(),)),
    "beliefs": (beliefs(), ADAM, (GaussianPrior(),)),
    "pooled": (pooled(), PLAIN, ()),
    "pooled, no biases": (pooled(False), replace(PLAIN, momentum=0.9), (Proximal(0.1),)),
    "listed": (listed(), replace(PLAIN, l2=1e-3), ()),
    "convolutions": (deep(), replace(ADAM, augment="crop_flip"), (Entropy(),)),
    "letters": (letters(False), PLAIN, ()),
    "every letter": (letters(True), ADAM, ()),
}


def weights_after(name: str, dtype: str) -> dict[str, np.ndarray]:
    """Tensors of the network and of the terms after all steps, (1, *shape)."""
    network, settings, terms = CASES[name]
    rng = np.random.default_rng(0)
    most, size = (10, 7) if network.kind == "recurrent" else (256, math.prod(network.shape))
    inputs = rng.integers(0, most, (EXAMPLES, size)).astype(np.uint8)
    scaled = inputs if dtype == "float32" else inputs / (255.0 if most == 256 else 1.0)
    examples = SimpleNamespace(
        inputs=Stored(scaled),
        targets=Stored(rng.integers(0, 10, EXAMPLES)),
        kind=np.dtype(dtype),
        scale=255.0 if dtype == "float32" and most == 256 else 1.0,
    )
    procedure = Procedure(network, settings, terms)

    def drawn(shapes):
        return {name: rng.uniform(-0.2, 0.2, (1, *s)).astype(dtype) for name, s in shapes.items()}

    start = {**drawn(network.shapes), **drawn(procedure.private)}
    task = Task(np.arange(EXAMPLES), RngKey(0, 0, 0), steps=STEPS)
    (part,) = CompiledTrainer(procedure, examples, False).parts([task], start, None, None)
    assert part.finite.all()
    return {**part.tensors, **part.private}


def digest(tensors: dict[str, np.ndarray]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for value in tensors.values():
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def digests(words: list[str]) -> dict[str, str]:
    """Digests of these kinds, of all by default, and in these dtypes, both by default."""
    dtypes = [word for word in words if word in DTYPES] or DTYPES
    names = [word for word in words if word not in DTYPES] or CASES
    return {f"{n}, {dtype}": digest(weights_after(n, dtype)) for n in names for dtype in dtypes}


if __name__ == "__main__":
    print(json.dumps(digests(sys.argv[1:]), indent=2))

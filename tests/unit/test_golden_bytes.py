"""Digests of what is computed with pinned libraries: the same on every x86-64 processor with AVX2.

`golden_bytes.json` has those of every component on a fixed input, of each kind of network trained
by each optimiser, of what images, spectrograms and sorting give, and of every file of metrics of
the tiny scale. `python tests/unit/test_golden_bytes.py` writes them anew; what changed, the diff
says. tools/other_processors.py compares some of them on processors that QEMU plays.
"""

from __future__ import annotations

import io
import math
import os
import sys
import tempfile
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # sums are cut by threads

from fedrepro.core import kernel_pinning  # noqa: E402  # isort: skip

kernel_pinning.pin()  # before NumPy and torch are loaded

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from scipy.io import wavfile  # noqa: E402
from torch.nn.functional import cross_entropy, softplus  # noqa: E402

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests/workflow")]

from asked import asked_of_mkl  # noqa: E402
from exact import BYTES, HINT, PORTABLE, digest, kept, of_tiny, write_kept  # noqa: E402
from test_golden import ALL, NUMBERS, can_be_measured, is_module  # noqa: E402

from fedrepro.components.datasets.speech_commands import (  # noqa: E402
    RATE,
    Mel,
    mel_spectrograms,
)
from fedrepro.core.portable_ops.torch_ops import exponential, logarithm, root  # noqa: E402
from fedrepro.core.registry import components  # noqa: E402
from fedrepro.core.rng import RngKey  # noqa: E402
from fedrepro.networks.predict import network_of, probabilities  # noqa: E402
from fedrepro.training.engine import train  # noqa: E402
from fedrepro.training.federation.clients import initial_weights  # noqa: E402
from fedrepro.training.minibatches_and_augmentation import Task  # noqa: E402
from fedrepro.training.training_examples import Examples  # noqa: E402
from fedrepro.training.training_settings_and_procedures import settings_of  # noqa: E402

portable = pytest.mark.skipif(not PORTABLE, reason="libraries are not pinned")

MODELS: dict[str, tuple[dict[str, object], tuple[int, ...], int]] = {
    "logistic": ({}, (784,), 10),
    "mlp": ({"hidden": [200, 50]}, (784,), 10),
    "cnn": ({}, (1, 28, 28), 10),
    "char_lstm": ({}, (20,), 80),
    "variational_mlp": ({"hidden": [100]}, (784,), 10),
}
STEPS = {"sgd": {"lr": 0.05}, "adam": {"lr": 0.001}}
TRAINED = [(model, optimiser) for model in MODELS for optimiser in STEPS]


def trained(model: str, optimiser: str) -> list[np.ndarray]:
    """Two clients after some minibatches, their losses, and what one of them predicts."""
    values, shape, classes = MODELS[model]
    network = network_of(components("model")[model].spec(values), shape, classes)
    rng = np.random.default_rng(0)
    size = (30, int(np.prod(shape)))
    x = rng.integers(0, classes if model == "char_lstm" else 256, size).astype(np.uint8)
    labels = torch.from_numpy(rng.integers(0, classes, 30))
    examples = Examples(torch.from_numpy(x), labels, 1.0 if model == "char_lstm" else 255.0)
    own = {**STEPS[optimiser], "epochs": 2, "batch_size": 10}
    settings = settings_of(components("training")[optimiser].spec(own))
    places = [RngKey(0, client=client) for client in range(2)]
    start = initial_weights(network, settings, places)
    rows = (np.arange(20), np.arange(15, 30))
    tasks = [Task(one, place) for one, place in zip(rows, places, strict=True)]
    found = train(network, examples, tasks, settings, start)
    scores = probabilities(network, {k: v[:1] for k, v in found.tensors.items()}, None, examples)
    return [*found.tensors.values(), found.loss, scores.numpy()]


def images() -> list[np.ndarray]:
    picture = np.random.default_rng(0).integers(0, 256, (37, 53, 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(picture).resize((224, 160), Image.Resampling.BICUBIC))
    found = [smooth]
    for kind in ("PNG", "JPEG"):
        file = io.BytesIO()
        Image.fromarray(smooth).save(file, kind)
        with Image.open(file) as image:
            found += [np.asarray(image), np.asarray(image.resize((32, 24)))]
    return found


def spectrogram() -> list[np.ndarray]:
    sound = (np.random.default_rng(0).standard_normal(RATE) * 3000).astype(np.int16)
    with tempfile.TemporaryDirectory() as place:
        clip = Path(place, "clip.wav")
        wavfile.write(clip, RATE, sound)
        return [mel_spectrograms([clip], Mel(40, 480, 160, 20, 4000, 80), clip)]


def sorting() -> list[np.ndarray]:
    """Also of what ties, whose order is the algorithm's."""
    rng = np.random.default_rng(0)
    ties, numbers = rng.integers(0, 50, 10_000), rng.standard_normal(10_000).astype(np.float32)
    return [np.argsort(ties), np.argsort(numbers), np.sort(numbers), np.argpartition(ties, 500)]


def functions() -> list[np.ndarray]:
    """Of NumPy and of our own, in single and double precision."""
    x = np.random.default_rng(0).uniform(0.01, 20, 1003)
    known = (np.exp, np.log, np.log1p, np.expm1, np.tanh, np.sqrt, np.sin, np.cos)
    found = [f(x.astype(kind)) for kind in (np.float32, np.float64) for f in known]
    one = torch.from_numpy(x.astype(np.float32))
    top = one[:1000].view(10, 100).amax(-1, keepdim=True)
    shares = ((one[:1000].view(10, 100) - top) * math.log2(math.e)).exp2_().sum(-1)
    ours = [exponential(-one), logarithm(one), (shares - 1).log1p().add(top.squeeze(-1))]
    square = np.outer(x, x)[:50, :50] + np.diag(x[:50])
    return [*found, *(value.numpy() for value in ours), np.linalg.eigvalsh(square)]


def operators() -> list[np.ndarray]:
    """Of those of torch that methods use and that go by no library, and of our root."""
    x = torch.from_numpy(np.random.default_rng(0).normal(0, 3, (59, 17)).astype(np.float32))
    labels = torch.arange(59) % 17
    x.requires_grad_()
    known = (torch.sigmoid, torch.tanh, softplus, torch.square, torch.expm1, torch.reciprocal)
    values = [*(f(x) for f in known), x.abs() ** 2.5, x.softmax(1), x.log_softmax(1)]
    values += [x.sum(0), x.mean(1), cross_entropy(x, labels)]
    slopes = [torch.autograd.grad((value**2).sum(), x)[0] for value in values]
    return [value.detach().numpy() for value in (*values, *slopes, root(x.abs()))]


INPUTS = {
    "images": images,
    "spectrogram": spectrogram,
    "sorting": sorting,
    "functions": functions,
    "operators": operators,
}


def tiny() -> dict[str, str]:
    from test_workflow import by_path, checkout

    with tempfile.TemporaryDirectory() as place:
        by_path(checkout(Path(place)))
        return of_tiny(Path(place))


@pytest.mark.parametrize(("model", "optimiser"), TRAINED)
def test_bytes_of_trained_networks(model, optimiser):
    key = f"network {model} {optimiser}"
    with asked_of_mkl() as asked:
        found = trained(model, optimiser)
    assert asked == []
    if PORTABLE:
        assert digest(found) == kept().get(key), f"{key}; {HINT}"


@portable
@pytest.mark.parametrize("name", INPUTS)
def test_bytes_of_inputs(name):
    assert digest(INPUTS[name]()) == kept().get(f"input {name}"), HINT


def written() -> dict[str, str]:
    """All digests as they are now; what cannot be computed here stays."""
    found = dict(kept())
    for kind, name in ALL:
        if can_be_measured(kind, name) and not is_module(components(kind)[name]):
            found[f"{kind} {name}"] = digest(NUMBERS[kind](components(kind)[name]))
    found |= {f"network {m} {o}": digest(trained(m, o)) for m, o in TRAINED}
    found |= {f"input {name}": digest(make()) for name, make in INPUTS.items()}
    named = {f"{kind} {name}" for kind, name in ALL}
    return {k: v for k, v in found.items() if k in named or k.startswith(("network", "input"))}


if __name__ == "__main__":
    if not PORTABLE:
        sys.exit("the libraries of this process are not pinned")
    if "--tiny" in sys.argv:  # the tiny scale alone
        now = {k: v for k, v in kept().items() if not k.startswith("tiny ")}
    else:
        now = written()
    if "--without-tiny" in sys.argv:
        now |= {k: v for k, v in kept().items() if k.startswith("tiny ")}
    else:
        now |= {f"tiny {path}": value for path, value in tiny().items()}
    write_kept(BYTES, now)

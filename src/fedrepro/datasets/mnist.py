"""MNIST, handwritten digits of 28x28 pixels.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-based learning applied to document
recognition. Proceedings of the IEEE 86(11), 1998.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Annotated

import numpy as np

from fedrepro.artifacts import damaged
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratify import set_aside
from fedrepro.errors import FedreproError
from fedrepro.registry import register
from fedrepro.rng import Rng
from fedrepro.spec import Arg

TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


@register(
    "dataset",
    "mnist",
    version=1,
    files=TRAIN + TEST,
    title="MNIST",
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document "
    "recognition. Proceedings of the IEEE 86(11), 1998",
)
def mnist(
    raw: Path,
    *,
    validation: Annotated[
        int, Arg("training examples set aside for validation", unit="examples", least=0)
    ] = 0,
) -> Arrays:
    """MNIST: 60,000 training and 10,000 test digits of 28×28 pixels, split as published.

    Validation examples are drawn by class from the training part, with a fixed seed: the split
    is the same whatever the seed of a run. Errors: FedreproError if a raw file is missing or
    damaged, or if a class would have no training example left.
    """
    x, y = _read_pair(raw, *TRAIN)
    test_x, test_y = _read_pair(raw, *TEST)
    inner, outer = _set_aside(y, validation)
    return Arrays(
        x={"train": x[outer], "validation": x[inner], "test": test_x},
        y={"train": y[outer], "validation": y[inner], "test": test_y},
        scale=255.0,
        shape=x.shape[1:],
        classes=tuple("0123456789"),
    )


def _set_aside(labels: np.ndarray, validation: int) -> tuple[np.ndarray, np.ndarray]:
    if validation < labels.size:
        inner, outer = set_aside(labels, validation, 10, Rng(0).stream("mnist-validation"))
        if np.unique(labels[outer]).size == np.unique(labels).size:
            return inner, outer
    raise FedreproError(
        f"data set 'mnist': validation~{validation} of {labels.size} training examples leaves a "
        "class without training examples: choose a smaller one"
    )


def _read_pair(raw: Path, images: str, labels: str) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (N, 28, 28) and int64 (N,)."""
    x, y = _read_idx(raw / images), _read_idx(raw / labels)
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise damaged(raw / images, f"images {x.shape} do not fit labels {y.shape}")
    return x, y.astype(np.int64)


def _read_idx(path: Path) -> np.ndarray:
    from torchvision.datasets.mnist import read_image_file, read_label_file

    read = read_image_file if "idx3" in path.name else read_label_file
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        try:
            # torchvision's readers take plain files only
            with gzip.open(path) as packed, plain.open("wb") as file:
                shutil.copyfileobj(packed, file)
            array: np.ndarray = read(str(plain)).numpy()
        except (OSError, EOFError, zlib.error) as error:
            raise damaged(path, error) from error
        except (RuntimeError, ValueError, TypeError, KeyError, AssertionError) as error:
            raise damaged(path, "it is not the idx file it should be") from error
    return array

"""MNIST and Fashion-MNIST: four gzipped idx files each in `raw`, images and labels of two parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrepro.core.checksummed_files import corrupt_file_error
from fedrepro.core.registry import register
from fedrepro.data.archive import decompress_file
from fedrepro.data.feature_extraction import Features, represent
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratified_samples_and_splits import Train, Validation, split_as_published

TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def read_idx_images(
    name: str, raw: Path, validation: int, classes: tuple[str, ...], train: int | None = None
) -> Arrays:
    """Read the data set `name` from its four idx files in folder `raw`, split as published.

    `validation` examples are drawn from the training part; `train` of the remaining examples are
    kept (None: all). Raises FedreproError if a raw file is missing or damaged, or a class has no
    training example left.
    """
    parts = [part for files in (TRAIN, TEST) for part in _read_pair(name, raw, files, len(classes))]
    return split_as_published(name, parts, classes, validation, train)


def _read_pair(
    name: str, raw: Path, files: tuple[str, str], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Read a file of images, uint8 (N, 28, 28), and its file of labels, int64 (N,); check both."""
    images, labels = (raw / file for file in files)
    x, y = _read_idx(name, images), _read_idx(name, labels)
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise corrupt_file_error(images, f"images {x.shape} do not fit labels {y.shape}")
    if y.size and y.max() >= classes:
        raise corrupt_file_error(
            labels, f"it has a label {y.max()}, but there are {classes} classes"
        )
    return x, y.astype(np.int64)


def _read_idx(name: str, path: Path) -> np.ndarray:
    from torchvision.datasets.mnist import read_image_file, read_label_file

    read = read_image_file if "idx3" in path.name else read_label_file
    with decompress_file(name, path) as plain:
        try:  # torchvision's readers take names of plain files
            array: np.ndarray = read(plain.name).numpy()
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, AssertionError) as error:
            raise corrupt_file_error(path, "it is not the idx file it should be") from error
    return array


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
    raw: Path, *, validation: Validation = 0, features: Features = "pixels", train: Train = None
) -> Arrays:
    """Read MNIST: 60,000 training and 10,000 test digits of 28×28 pixels, split as published.

    `validation` examples, stratified by class, are drawn from the training part with a fixed seed.
    `train` of the others are kept (None: all). `features` names what replaces the pixels.
    """
    classes = tuple("0123456789")
    return represent(read_idx_images("mnist", raw, validation, classes, train), features)


CLASSES = (
    *("t-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


@register(
    "dataset",
    "fashion_mnist",
    version=1,
    files=TRAIN + TEST,
    title="Fashion-MNIST",
    licence="MIT",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine "
    "learning algorithms. arXiv:1708.07747, 2017",
)
def fashion_mnist(
    raw: Path, *, validation: Validation = 0, features: Features = "pixels"
) -> Arrays:
    """Read Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28×28 pixels.

    `validation` examples, stratified by class, are drawn from the training part with a fixed seed.
    `features` names what replaces the pixels. Split as published; used by P2P, section 5.2.2.
    """
    return represent(read_idx_images("fashion_mnist", raw, validation, CLASSES), features)

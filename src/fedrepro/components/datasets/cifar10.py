"""CIFAR-10, colour photographs of 32x32 pixels in ten classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrepro.core.checksummed_files import corrupt_file_error
from fedrepro.core.registry import register
from fedrepro.data.archive import unpack_archive
from fedrepro.data.feature_extraction import Features, represent
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratified_samples_and_splits import Train, Validation, split_as_published

FILE = "cifar-10-python.tar"
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@register(
    "dataset",
    "cifar10",
    version=1,
    files=(FILE,),
    title="CIFAR-10",
    licence="none stated",
    citation="Krizhevsky: Learning multiple layers of features from tiny images. Technical "
    "report, University of Toronto, 2009",
)
def cifar10(
    raw: Path, *, validation: Validation = 0, features: Features = "pixels", train: Train = None
) -> Arrays:
    """Read CIFAR-10: 50,000 training and 10,000 test photographs of 32×32 pixels, as published.

    Inputs are (3, 32, 32): red, green, blue. `validation` training examples are set aside,
    stratified by class, with a fixed seed; of the others `train` are kept (None: all). `raw` is the
    folder of the downloaded file, `features` names what replaces the pixels.
    """
    parts = _read(raw / FILE)
    return represent(split_as_published("cifar10", parts, CLASSES, validation, train), features)


def _read(path: Path) -> list[np.ndarray]:
    """Read training and test part from the archive: uint8 (N, 3, 32, 32) and int64 (N,) each."""
    from torchvision.datasets import CIFAR10

    arrays: list[np.ndarray] = []
    with unpack_archive("cifar10", path) as folder:
        for train in (True, False):
            try:
                part = CIFAR10(str(folder), train=train)
            except RuntimeError as error:
                raise corrupt_file_error(path, "its files are not those of CIFAR-10") from error
            # torchvision turns the stored order (channel, row, column) into pictures
            arrays += [part.data.transpose(0, 3, 1, 2), np.asarray(part.targets, np.int64)]
    return arrays

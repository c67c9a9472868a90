"""Data sets that come as MNIST does: four gzipped idx files, images and labels of two parts."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from fedrepro.core.artifacts import corrupt_file_error, saying_disk_errors
from fedrepro.core.temporary_folders import temporary_folder
from fedrepro.data.archive import decompress_file
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratify import training_rows

TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def read_idx_images(
    name: str, raw: Path, validation: int, classes: tuple[str, ...], train: int | None = None
) -> Arrays:
    """Read the data set `name` from its four files in `raw`, its test part as published.

    Of the training examples `train` are kept, all by default.

    Raises:
        FedreproError: If a raw file is missing or damaged, or if a class would have no training
            example left.
    """
    x, y = _read_pair(name, raw, TRAIN, len(classes))
    test_x, test_y = _read_pair(name, raw, TEST, len(classes))
    inner, outer = training_rows(name, y, validation, train)
    return Arrays(
        x={"train": x[outer], "validation": x[inner], "test": test_x},
        y={"train": y[outer], "validation": y[inner], "test": test_y},
        scale=255.0,
        shape=x.shape[1:],
        classes=classes,
    )


def _read_pair(
    name: str, raw: Path, files: tuple[str, str], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (N, 28, 28) and int64 (N,)."""
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
    with temporary_folder() as folder:
        plain = folder / path.stem
        # torchvision's readers take plain files only
        with (
            decompress_file(name, path) as packed,
            saying_disk_errors(plain),
            plain.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file)
        try:
            array: np.ndarray = read(str(plain)).numpy()
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, AssertionError) as error:
            raise corrupt_file_error(path, "it is not the idx file it should be") from error
    return array

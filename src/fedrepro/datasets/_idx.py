"""Data sets that come as MNIST does: four gzipped idx files, images and labels of two parts."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from pathlib import Path

import numpy as np

from fedrepro.artifacts import damaged
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratify import validation_rows

TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def read_idx_images(name: str, raw: Path, validation: int, classes: tuple[str, ...]) -> Arrays:
    """The data set `name` from its four files in `raw`, its test part as published.

    Errors: FedreproError if a raw file is missing or damaged, or if a class would have no
    training example left.
    """
    x, y = _read_pair(raw, *TRAIN)
    test_x, test_y = _read_pair(raw, *TEST)
    inner, outer = validation_rows(name, y, validation)
    return Arrays(
        x={"train": x[outer], "validation": x[inner], "test": test_x},
        y={"train": y[outer], "validation": y[inner], "test": test_y},
        scale=255.0,
        shape=x.shape[1:],
        classes=classes,
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

"""Divide whole numbers of examples in proportion to weights, and sample by class, without bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays

Validation = Annotated[
    int, Arg("training examples set aside for validation", unit="examples", least=0)
]
Train = Annotated[
    int | None,
    Arg("training examples kept, none for all that are left", "examples", least=10, later=True),
]


def apportion(total: int, weights: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Split `total` items into whole numbers in proportion to `weights`, by largest remainders.

    Ties are broken at random. `weights`, int64 (n,), are ≥ 0 with a sum > 0. Returns int64 (n,).
    """
    shares, remainders = np.divmod(total * weights.astype(np.int64), weights.sum())
    order = np.lexsort((generator.random(weights.size), -remainders))
    shares[order[: total - shares.sum()]] += 1
    return shares


def stratified_sample(
    labels: np.ndarray, count: int, classes: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` examples, classes in proportion; return (drawn, other) rows, sorted int64."""
    shares = apportion(count, np.bincount(labels, minlength=classes), generator)
    chosen = np.zeros(labels.size, bool)
    for label, share in enumerate(shares):
        chosen[generator.permutation(np.flatnonzero(labels == label))[:share]] = True
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def split_as_published(
    name: str,
    parts: Sequence[np.ndarray],
    classes: tuple[str, ...],
    validation: int,
    train: int | None,
) -> Arrays:
    """Return a data set of images: the published test part, and the training part split in two.

    `parts` are images (N, *shape) of pixels 0 to 255 and labels for training, then for testing. Of
    the first, `validation` rows are drawn for validation, and `train` others for training (None:
    all). Rows are drawn by class with a fixed seed for data set `name`; validation rows do not
    depend on `train`. Raises FedreproError if a class would have no training example.
    """
    x, labels, test_x, test_y = parts
    kinds = np.unique(labels).size
    inner = outer = np.empty(0, np.int64)
    if validation < labels.size:
        stream = RngKey(0).stream(f"{name}-validation")
        inner, outer = stratified_sample(labels, validation, kinds, stream)
    if train is not None and train > outer.size:
        left = f"the {outer.size} training examples that validation~{validation} leaves"
        raise FedreproError(f"data set '{name}': train~{train} is more than {left}: lower one")
    if train is not None and train < outer.size:
        stream = RngKey(0).stream(f"{name}-train")
        outer = outer[stratified_sample(labels[outer], train, kinds, stream)[0]]
    if np.unique(labels[outer]).size < kinds:
        said = f"with train~{train} and validation~{validation} a class is left without training"
        raise FedreproError(f"data set '{name}': {said} examples: raise train, or lower validation")
    kept = x if outer.size == labels.size else x[outer]  # all without a copy of some 150 MB
    return Arrays(
        x={"train": kept, "validation": x[inner], "test": test_x},
        y={"train": labels[outer], "validation": labels[inner], "test": test_y},
        scale=255.0,
        shape=x.shape[1:],
        classes=classes,
    )


def split_groups(
    labels: np.ndarray, groups: np.ndarray, generator: np.random.Generator, held: float = 0.1
) -> dict[str, np.ndarray]:
    """Split examples into train, validation and test so that no natural group is divided.

    Validation and test each get the share `held` of every class, as nearly as whole groups allow. A
    group counts for the class of its first example. Shapes: labels, groups int64 (N,); returns
    sorted int64 indices by name of the part.
    """
    names, first, member, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )
    fold = np.zeros(names.size, np.int64)
    for label in np.unique(labels[first]):
        order = generator.permutation(np.flatnonzero(labels[first] == label))
        # a group belongs where its middle example falls
        middle = np.cumsum(sizes[order]) - sizes[order] / 2
        fold[order] = np.digitize(middle / sizes[order].sum(), [held, 2 * held])
    return {
        split: np.flatnonzero(fold[member] == number)
        for number, split in enumerate(("test", "validation", "train"))
    }

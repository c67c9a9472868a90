"""Digits and coloured shapes: small images that need no download.

Shapes are hard for a multilayer perceptron, as CIFAR-10 is: position, size and colours vary, so a
single pixel contains little information on the class. A perceptron classifies about two thirds of
the test pictures correctly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratified_samples_and_splits import Validation
from fedrepro.data.user_data import OwnExamples, split_by_class

DIGITS_NOTE = (
    "There is no publisher's split: test and validation examples are drawn, the same in all runs"
)


@register(
    "dataset",
    "digits",
    version=1,
    files=(),
    title="Digits (8×8)",
    licence="CC BY 4.0",
    citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits. "
    "UCI Machine Learning Repository, 1998",
)
def digits(
    raw: Path,
    *,
    test: Annotated[int, Arg("examples set aside for testing", unit="examples", least=10)] = 360,
    validation: Validation = 0,
) -> Arrays:
    """Load handwritten digits of 8×8 pixels with 17 grey levels, from scikit-learn.

    Test examples, then `validation` examples, are drawn by class with a fixed seed. So all runs
    have one split, and test examples do not depend on `validation`. `raw` is not used.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x, y = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
    examples = OwnExamples(x, y, tuple("0123456789"), (DIGITS_NOTE,))
    return split_by_class(
        examples, test, validation, scale=16.0, kind="image", stream="digits-split"
    )


SIDE = 12  # pixels
SHIFT = 1.5  # pixels that a shape's middle may lie off the picture's, each way
MOST = 100_000  # pictures of a split
CLASSES = (
    *("disc", "ring", "square", "frame", "triangle"),
    *("plus", "cross", "rows", "columns", "chequers"),
)
SHAPES_NOTE = (
    "The pictures are generated: ten shapes in random colours, places and sizes, with noise."
)


@register(
    "dataset",
    "shapes",
    version=1,
    files=(),
    title="Coloured shapes",
    licence="MIT (generated)",
    citation="Drawn by this project",
)
def shapes(
    raw: Path,
    *,
    train: Annotated[int, Arg("training examples", unit="examples", least=100, most=MOST)] = 3000,
    test: Annotated[int, Arg("test examples", unit="examples", least=10, most=MOST)] = 500,
    validation: Annotated[int, Arg("validation examples", unit="examples", least=0, most=MOST)] = 0,
    noise: Annotated[
        float,
        Arg("standard deviation of the noise added to each pixel; pixels lie in [0, 1]", least=0),
    ] = 0.1,
) -> Arrays:
    """Draw colour pictures of 12×12 pixels: ten shapes, equally many pictures of each.

    Shape (3, 12, 12): red, green, blue. Colours, position, size and noise are drawn with a fixed
    seed, so pictures are the same in all runs, and a picture does not depend on how many there are.
    `raw` is not used.
    """
    counts = {"train": train, "validation": validation, "test": test}
    x, y = {}, {}
    for fold, (split, count) in enumerate(counts.items()):
        y[split] = np.arange(count, dtype=np.int64) % len(CLASSES)
        pictures = [_picture(int(y[split][i]), i, fold, noise) for i in range(count)]
        x[split] = np.array(pictures, np.uint8).reshape(count, 3, SIDE, SIDE)
    return Arrays(
        x=x,
        y=y,
        scale=255.0,
        shape=(3, SIDE, SIDE),
        classes=CLASSES,
        stand_in=SHAPES_NOTE,
        notes=(SHAPES_NOTE,),
    )


def _picture(label: int, index: int, split: int, noise: float) -> np.ndarray:
    """Draw one noisy picture of the shape of class `label`: uint8 (3, SIDE, SIDE)."""
    draw = RngKey(0, trial=split, client=index).stream("shapes")
    half = draw.uniform(3.0, 4.6)
    room = min(SHIFT, SIDE / 2 - half)
    middle = SIDE / 2 + np.clip(draw.uniform(-SHIFT, SHIFT, size=2), -room, room)
    down, across = (np.indices((SIDE, SIDE)) + 0.5 - middle[:, None, None]) / half
    inside = _mask(CLASSES[label], down, across)
    # shapes are mostly lighter than their ground, and never so close to it as to be unseen
    shape, ground = draw.uniform(0.35, 1.0, 3), draw.uniform(0.0, 0.65, 3)
    while np.abs(shape - ground).max() < 0.3:
        ground = draw.uniform(0.0, 0.65, 3)
    plain = np.where(inside, shape[:, None, None], ground[:, None, None])
    noisy = np.clip(plain + draw.normal(0.0, noise, plain.shape), 0.0, 1.0)
    pixels: np.ndarray = np.rint(255 * noisy).astype(np.uint8)
    return pixels


def _mask(name: str, down: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Return the mask of pixels that belong to the shape `name`: bool (SIDE, SIDE)."""
    from_middle = np.hypot(down, across)
    box = np.maximum(np.abs(down), np.abs(across))
    masks = {
        "disc": from_middle <= 1,
        "ring": (from_middle <= 1) & (from_middle >= 0.55),
        "square": box <= 1,
        "frame": (box <= 1) & (box >= 0.6),
        "triangle": (np.abs(across) <= (down + 1) / 2) & (down <= 1),
        "plus": (box <= 1) & (np.minimum(np.abs(down), np.abs(across)) <= 0.3),
        "cross": (box <= 1) & (np.abs(np.abs(down) - np.abs(across)) <= 0.4),
        "rows": (box <= 1) & (np.floor(2.5 * (down + 1)) % 2 == 0),
        "columns": (box <= 1) & (np.floor(2.5 * (across + 1)) % 2 == 0),
        "chequers": (box <= 1) & ((np.floor(2 * (down + 1)) + np.floor(2 * (across + 1))) % 2 == 0),
    }
    mask: np.ndarray = masks[name]
    return mask

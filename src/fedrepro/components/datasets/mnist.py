"""MNIST, handwritten digits of 28x28 pixels.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-based learning applied to document
recognition. Proceedings of the IEEE 86(11), 1998.
"""

from __future__ import annotations

from pathlib import Path

from fedrepro.components.datasets._idx import TEST, TRAIN, read_idx_images
from fedrepro.core.registry import register
from fedrepro.data.feature_extraction import Features, represent
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratify import Train, Validation


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
    validation: Validation = 0,
    features: Features = "pixels",
    train: Train = None,
) -> Arrays:
    """MNIST: 60,000 training and 10,000 test digits of 28×28 pixels, split as published.

    Validation examples are drawn by class from the training part, with a fixed seed: the split is
    the same whatever the seed of a run; so are those that are kept for training.
    """
    classes = tuple("0123456789")
    return represent(read_idx_images("mnist", raw, validation, classes, train), features)

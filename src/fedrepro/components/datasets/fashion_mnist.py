"""Fashion-MNIST, pictures of clothes of 28x28 pixels.

H. Xiao, K. Rasul, R. Vollgraf. Fashion-MNIST: a novel image dataset for benchmarking machine
learning algorithms. arXiv:1708.07747, 2017.
"""

from __future__ import annotations

from pathlib import Path

from fedrepro.components.datasets._idx import TEST, TRAIN, read_idx_images
from fedrepro.core.registry import register
from fedrepro.data.feature_extraction import Features, represent
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratify import Validation

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
    raw: Path,
    *,
    validation: Validation = 0,
    features: Features = "pixels",
) -> Arrays:
    """Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28×28 pixels.

    Split as published; used by P2P, section 5.2.2. Validation examples are drawn by class from the
    training part, with a fixed seed.
    """
    return represent(read_idx_images("fashion_mnist", raw, validation, CLASSES), features)

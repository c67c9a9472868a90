"""Handwritten digits, 8x8 pixels, that ship inside scikit-learn: real data without a download.

E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. UCI Machine Learning
Repository, 1998 (scikit-learn carries its test part, 1797 examples).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratify import Validation
from fedrepro.data.user_data import OwnExamples, split_by_class

NOTE = "There is no publisher's split: test and validation examples are drawn, the same in all runs"


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
    """Handwritten digits of 8×8 pixels with 17 grey levels, from scikit-learn.

    The set has no publisher's split. Test examples, and then validation examples, are drawn by
    class with a fixed seed, so the split is the same whatever the seed of a run, and the test part
    does not depend on how many examples validation takes. `raw` is not used: the data are embedded.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x, y = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
    examples = OwnExamples(x, y, tuple("0123456789"), (NOTE,))
    return split_by_class(
        examples, test, validation, scale=16.0, kind="image", stream="digits-split"
    )

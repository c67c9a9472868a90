"""Number of jobs that share a GPU."""

from __future__ import annotations

import os

from fedrepro.core.errors import FedreproError

SLOTS = "FEDREPRO_GPU_JOBS"


def slots() -> int:
    """Return how many jobs may compute on one GPU.

    Raises:
        FedreproError: the variable is not a positive whole number.
    """
    value = os.environ.get(SLOTS, "1")
    if not value.isdecimal() or int(value) < 1:
        raise FedreproError(
            f"{SLOTS} is '{value}'; let it be how many jobs may share a GPU, such as 8, or unset it"
        )
    return int(value)

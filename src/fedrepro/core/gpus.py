"""How many jobs share a GPU."""

from __future__ import annotations

import os

from fedrepro.core.errors import FedreproError

SLOTS = "FEDREPRO_GPU_JOBS"


def slots() -> int:
    """How many jobs may compute on one GPU. Errors: FedreproError for what is no such number."""
    value = os.environ.get(SLOTS, "1")
    if not value.isdecimal() or int(value) < 1:
        raise FedreproError(
            f"{SLOTS} is '{value}'; let it be how many jobs may share a GPU, such as 8, or unset it"
        )
    return int(value)

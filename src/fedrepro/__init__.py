"""fedrepro: which way of combining models trained on separate data works, and at what cost."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# what people call by the package's name; loaded when it is asked for
OFFERED = {
    "combine": "fedrepro.own.combine",
    "compare": "fedrepro.stages.notebook",
    "results": "fedrepro.numbers.results",
    "run": "fedrepro.stages.notebook",
    "start": "fedrepro.stages.notebook",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *OFFERED})


def __getattr__(name: str) -> Any:
    if name not in OFFERED:
        raise AttributeError(f"module 'fedrepro' has no attribute '{name}'")
    return getattr(import_module(OFFERED[name]), name)

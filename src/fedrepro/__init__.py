"""fedrepro: which way of combining models trained on separate data works, and at what cost."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# what people call by the package's name; loaded when it is asked for
OFFERED = {
    "combine": "fedrepro.stages.user_models.combine",
    "results": "fedrepro.numbers.method_results_and_differences",
    "run": "fedrepro.stages.run_figures_or_methods",
    "start": "fedrepro.stages.snakemake_in_folder",
}

# where components of each kind lie, and papers: core looks there, and knows no room above it
KINDS = {
    "dataset": "fedrepro.components.datasets",
    "partition": "fedrepro.components.partitions",
    "model": "fedrepro.components.models",
    "training": "fedrepro.components.trainings",
    "graph": "fedrepro.components.graphs",
    "feature": "fedrepro.components.features",
    "method": "fedrepro.methods",
}
DRAWINGS = "fedrepro.drawings.exhibits"
PAPERS = "fedrepro.papers"


def __dir__() -> list[str]:
    return sorted({*globals(), *OFFERED})


def __getattr__(name: str) -> Any:
    if name not in OFFERED:
        raise AttributeError(f"module 'fedrepro' has no attribute '{name}'")
    return getattr(import_module(OFFERED[name]), name)

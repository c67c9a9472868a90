"""Write as short texts what methods cost and what they need to know, for cells of tables."""

from __future__ import annotations

import math
from collections.abc import Collection

# of each need of `api.NEEDS` a few words
SEEN = {
    "example_counts": "example counts",
    "label_counts": "label counts",
    "pooled_inputs": "all inputs in one place",
    "pooled_labels": "all labels in one place",
    "rounds": "",  # what is sent says so
    "client_training": "clients train again",
    "client_evaluation": "clients evaluate models",
    "client_validation": "clients validate models",
    "client_answers": "",  # what is sent says more
    "client_validation_examples": "validation at clients",
    "public_examples": "labelled public sample",
    "public_sample": "labelled public sample",
    "server_validation": "validation at the server",
    "public_inputs": "unlabelled public inputs",
    "start": "the common start",
}


def needs_in_words(needs: Collection[str], sends: str = "") -> str:
    """Write in words a method's `needs`, keys of `api.NEEDS`, and append the text `sends`."""
    parts = dict.fromkeys(SEEN.get(need, "") for need in sorted(needs))
    return "; ".join(filter(None, [*parts, sends])) or "weights only"


def megabytes(size: float) -> str:
    """Write a `size` in bytes with three digits, as 0.716 MB or 1.2 GB."""
    if not math.isfinite(size):
        return "–"
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"

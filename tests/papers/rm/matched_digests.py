"""What compiled steps with representation matching of images leave behind, as digests.

python tests/papers/rm/matched_digests.py
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit"))

import step_digests

from fedrepro.core.registry import parse_token
from fedrepro.networks.predict import network_of
from fedrepro.papers.rm.methods.representation_matching import RepresentationMatching
from fedrepro.training.loss_terms import Entropy


def digests() -> dict[str, str]:
    """Of both dtypes; kernels are laid down in rows of one vector, and in rows of many."""
    network = network_of(parse_token("model", "cnn+channels~40@12+hidden~20"), (1, 10, 10), 10)
    terms = Entropy(), RepresentationMatching(0.5, "mean")
    step_digests.CASES["matched images"] = network, replace(step_digests.PLAIN, batch_size=7), terms
    before, step_digests.INPUTS = step_digests.INPUTS, 100
    try:
        return step_digests.digests(["matched images"])
    finally:
        step_digests.INPUTS = before
        del step_digests.CASES["matched images"]


if __name__ == "__main__":
    print(json.dumps(digests()))

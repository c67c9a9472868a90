"""Count the hidden units of local networks that fire for no training example.

    python tools/dead_units.py RESULTS > src/fedrepro/papers/pfnm/dead-units.csv

RESULTS is the folder of the paper's scale, such as results/paper, with the local models of the
table pfnm/equal-size (networks of 50 units on MNIST). Prints a csv row for each partition and
number of clients, with two shares of all clients' units in each trial: units that are 0 for all
training examples, and units that are 0 for all training examples of their own client.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedrepro.core.checkpoint_and_model_files import read_models
from fedrepro.data.partitions_populations_and_holdouts import read_partition

PARTITIONS = {"homogeneous": "homogeneous", "heterogeneous": "dirichlet"}
CLIENTS, TRIALS = (5, 10, 25), 10


def main(results: Path) -> None:
    inputs = np.load(results / "datasets/dataset=mnist/train_x.npy", mmap_mode="r")
    pixels = np.asarray(inputs.reshape(len(inputs), -1), np.float32)
    scale = np.float32(1 / 255 if inputs.dtype == np.uint8 else 1)
    print("case,clients,dead_everywhere,dead_at_home")
    for case, name in PARTITIONS.items():
        for clients in CLIENTS:
            place = f"dataset=mnist/partition={name}+clients~{clients}"
            shares = [_of_trial(results / "seed=0", place, t, pixels, scale) for t in range(TRIALS)]
            columns = (
                " ".join(f"{share:.10g}" for share in own) for own in zip(*shares, strict=True)
            )
            print(case, clients, *columns, sep=",", flush=True)


def _of_trial(
    folder: Path, place: str, trial: int, pixels: np.ndarray, scale: np.float32
) -> tuple[float, float]:
    """Return two shares of all clients' hidden units in one trial of the partition at `place`.

    Units are 0 on all training images (pixels, multiplied by `scale`), or on their own client's.
    """
    where = folder / f"models/{place}/model=mlp/training=adam/trials={trial}"
    tensors = read_models(sorted(where.glob("*/local.parquet")), [trial])[trial].tensors
    (part,) = folder.glob(f"partitions/{place}/trials={trial}/*.parquet")
    members = read_partition(part, trial).train
    weights, biases = (next(t for t in tensors.values() if t.ndim == n) for n in (3, 2))
    everywhere = home = 0
    for own, weight, bias in zip(members, weights, biases, strict=True):
        fires = pixels @ (weight.reshape(pixels.shape[1], -1) * scale) + bias > 0
        everywhere += int((~fires.any(axis=0)).sum())
        home += int((~fires[own].any(axis=0)).sum())
    units = weights.shape[0] * biases.shape[1]
    return everywhere / units, home / units


if __name__ == "__main__":
    main(Path(sys.argv[1]))

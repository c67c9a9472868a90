"""Task vectors: what each client's training added to the start, brought together.

Task arithmetic: G. Ilharco, M. T. Ribeiro, M. Wortsman, S. Gururangan, L. Schmidt, H. Hajishirzi,
A. Farhadi. Editing Models with Task Arithmetic. ICLR 2023.
TIES: P. Yadav, D. Tam, L. Choshen, C. Raffel, M. Bansal. TIES-Merging: Resolving Interference When
Merging Models. NeurIPS 2023.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import network_like, with_mean_buffers

Array = np.ndarray


def ties_merge(vectors: Array, keep: float) -> Array:
    """Average task vectors (J, n) over those that agree with the elected sign: (n,).

    Of each vector the largest `keep` of its entries count, by magnitude, and at least one. The sign
    of a coordinate is that of the sum of what is kept; 0 where nobody keeps it. Source: TIES,
    section 4 (trim, elect sign, disjoint merge).
    """
    count = max(1, round(keep * vectors.shape[1]))
    sizes = np.abs(vectors)
    threshold = np.partition(sizes, -count, axis=1)[:, -count, None]
    kept = np.where(sizes >= threshold, vectors, 0.0)
    agree = (np.sign(kept) == np.sign(kept.sum(axis=0))) & (kept != 0)
    mean: Array = (kept * agree).sum(axis=0) / np.maximum(agree.sum(axis=0), 1)
    return mean


Scale = Annotated[float, Arg("what is added to the start is times this", above=0, most=100)]


@method(
    "task_arithmetic",
    kind="one_shot",
    needs={"start"},
    merges=True,
    label="task arithmetic",
    grid={"scale": (0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0)},
)
def task_arithmetic(
    clients: LocalModels, info: ClientInfo, *, rng: RngKey, scale: Scale = 1.0
) -> GlobalModel:
    """w = w0 + s / J · sum_i (w_i - w0), w0 the common start; s = 1 is the plain mean.

    Source: Ilharco et al., section 2, whose λ is s / J.
    """
    start, vectors = _vectors(clients, info)
    return _model(clients, start + scale * vectors.mean(axis=0))


@method(
    "ties",
    kind="one_shot",
    needs={"start"},
    merges=True,
    label="TIES",
    grid={"keep": (0.2, 0.5), "scale": (0.5, 1.0, 1.5, 2.0)},
)
def ties(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    keep: Annotated[float, Arg("share of each task vector that counts", above=0, most=1)] = 0.2,
    scale: Scale = 1.0,
) -> GlobalModel:
    """w = w0 + s · mean of the task vectors w_i - w0 that agree with the elected sign, trimmed.

    Only the largest entries of each vector count, over all weights together; the sign of a weight
    is that of their sum. Source: TIES, section 4.
    """

    start, vectors = _vectors(clients, info)
    return _model(clients, start + scale * ties_merge(vectors, keep))


def _vectors(clients: LocalModels, info: ClientInfo) -> tuple[np.ndarray, np.ndarray]:
    """Flatten the start and the task vectors: float64 (n,), (J, n)."""
    assert info.start is not None
    names = _trained(clients)
    start = np.concatenate([info.start[name].reshape(-1) for name in names])
    each = [clients.tensors[name].reshape(clients.clients, -1) for name in names]
    return start.astype(np.float64), np.concatenate(each, axis=1).astype(np.float64) - start


def _model(clients: LocalModels, flat: np.ndarray) -> GlobalModel:
    """Make one network of all its numbers (n,), as `_vectors` laid them."""
    names = _trained(clients)
    ends = np.cumsum([clients.tensors[name][0].size for name in names])
    parts = np.split(flat.astype(np.float32), ends[:-1])
    tensors = {
        name: part.reshape(1, *clients.tensors[name].shape[1:])
        for name, part in zip(names, parts, strict=True)
    }
    even = np.full(clients.clients, 1 / clients.clients)
    return with_mean_buffers(clients, even, GlobalModel(clients.model, tensors))


def _trained(clients: LocalModels) -> list[str]:
    """Name the tensors that are weights and no buffers."""

    buffers = network_like(clients).buffers
    return [name for name in clients.tensors if name not in buffers]

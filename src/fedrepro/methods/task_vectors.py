"""Merging of task vectors, which are trained weights minus the common start.

Task arithmetic: G. Ilharco, M. T. Ribeiro, M. Wortsman, S. Gururangan, L. Schmidt, H. Hajishirzi,
A. Farhadi. Editing Models with Task Arithmetic. ICLR 2023. TIES: P. Yadav, D. Tam, L. Choshen, C.
Raffel, M. Bansal. TIES-Merging: Resolving Interference When Merging Models. NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import network_like, with_mean_buffers
from fedrepro.training.flat_models_and_optimiser_steps import Layout


def ties_merge(vectors: np.ndarray, keep: float) -> np.ndarray:
    """Merge task vectors (J, n) by TIES: average entries that agree with the elected sign, (n,).

    A task vector is a client's trained weights minus the start. Of each, the share `keep` of
    entries of largest magnitude is kept (at least one), others count as zero. A coordinate's
    elected sign is the sign of the kept entries' sum. Source: TIES, section 4.
    """
    count = max(1, round(keep * vectors.shape[1]))
    sizes = np.abs(vectors)
    threshold = np.partition(sizes, -count, axis=1)[:, -count, None]
    kept = np.where(sizes >= threshold, vectors, 0.0)
    agree = (np.sign(kept) == np.sign(kept.sum(axis=0))) & (kept != 0)
    return np.asarray((kept * agree).sum(axis=0) / np.maximum(agree.sum(axis=0), 1))


Scale = Annotated[float, Arg("factor on the added update", above=0, most=100)]


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
    """Add the scaled mean update to the common start w0: w = w0 + s / J · sum_i (w_i - w0).

    J is the number of clients; `scale` s = 1 is the mean. Source: Ilharco et al., with λ = s / J.
    """
    return _from_start(clients, info, lambda vectors: scale * vectors.mean(axis=0))


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
    keep: Annotated[float, Arg("share of an update that is kept", above=0, most=1)] = 0.2,
    scale: Scale = 1.0,
) -> GlobalModel:
    """Add to the start w0 the mean of trimmed updates w_i - w0 that agree in the elected sign.

    w = w0 + s · mean, s being `scale`. Trimming keeps the largest entries of each update, over all
    weights; the elected sign is the sign of the kept entries' sum. Source: TIES, section 4.
    """
    return _from_start(clients, info, lambda vectors: scale * ties_merge(vectors, keep))


def _from_start(
    clients: LocalModels, info: ClientInfo, moved: Callable[[np.ndarray], np.ndarray]
) -> GlobalModel:
    """Return w0 + moved(task vectors), a model; `moved` maps w_i - w0, float64 (J, n), to (n,)."""
    assert info.start is not None
    buffers = network_like(clients).buffers
    layout = Layout({k: v.shape[1:] for k, v in clients.tensors.items() if k not in buffers})
    start = layout.pack(info.start)[:, : layout.numbers]
    vectors = layout.pack(clients.tensors)[:, : layout.numbers].astype(np.float64) - start
    tensors = layout.unpack((start.astype(np.float64) + moved(vectors)).astype(np.float32))
    even = np.full(clients.clients, 1 / clients.clients)
    return with_mean_buffers(clients, even, GlobalModel(clients.model, tensors))

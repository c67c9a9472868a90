"""Steps on a GPU, recorded as CUDA graphs and played again.

A step of a small network is some eighty kernels of a few microseconds each, and the host takes
longer to ask for them than the GPU to run them. Played from a graph they are asked for at once.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedrepro.training.procedure import Procedure
from fedrepro.training.terms import written

if TYPE_CHECKING:
    import torch

    Tensors = tuple[torch.Tensor, ...]
    Take = Callable[..., torch.Tensor]

KINDS = ("dense", "convolutional")
# Recording takes as long as ten played steps save. Until so many were taken it may not pay.
BEFORE = 10


def recordable(procedure: Procedure, device: torch.device) -> bool:
    """Whether a step is the same kernels on the same buffers each time: nothing is drawn in it, and
    no term of the loss is another's, which may count its steps on the host.
    """
    network = procedure.network
    ours = all(written(term) for term in procedure.losses)
    return device.type == "cuda" and network.kind in KINDS and not network.draws and ours


class Recorder:
    """Graphs of a step, one for each number of models that train.

    Whoever takes the steps forgets them when buffers or numbers that a step reads are others.
    """

    def __init__(self) -> None:
        self.taken: Counter[int] = Counter()
        self.graphs: dict[int, Graph] = {}
        self.pool: Any = None

    def step(self, take: Take, minibatch: Tensors) -> torch.Tensor:
        """One step: logits (A, B, K), in memory of their own.

        take: what is to be given to a step, tensors (A, …) on the GPU, to its logits. All else that
        it reads and writes stays where it is.
        """
        models = len(minibatch[0])
        if models not in self.graphs:
            # libraries choose their kernels in a step that is not recorded
            if self.taken[models] < BEFORE:
                self.taken[models] += 1
                return take(*minibatch)
            self.graphs[models] = Graph(take, minibatch, self.pool)
            self.pool = self.graphs[models].graph.pool()
        return self.graphs[models].play(minibatch)


class Graph:
    """A step of so many models; recording it takes none.

    pool: memory that graphs share for what lies between their first kernel and their last.
    """

    def __init__(self, take: Take, minibatch: Tensors, pool: Any) -> None:
        import torch

        self.given = tuple(value.clone() for value in minibatch)
        self.graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # memory of other graphs must not be given back while one is recorded
        try:
            with torch.cuda.device(minibatch[0].device), torch.cuda.graph(self.graph, pool=pool):
                self.logits = take(*self.given)
        finally:
            if collecting:
                gc.enable()

    def play(self, minibatch: Tensors) -> torch.Tensor:
        """Take the step on other minibatches."""
        for buffer, value in zip(self.given, minibatch, strict=True):
            buffer.copy_(value)
        self.graph.replay()
        return self.logits.clone()

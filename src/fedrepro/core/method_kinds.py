"""Kinds of methods: one-shot, in rounds, on a graph, control (a bound), simulation (no data)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodKind:
    """A kind of method, such as one-shot.

    stage: the workflow's step that runs methods of this kind, such as aggregate. words: the kind's
    name in texts. in_rounds: whether clients train in rounds. on_graph: whether they send to their
    neighbours, without a server. with_data: whether these methods use a data set.
    """

    stage: str
    words: str
    in_rounds: bool = False
    on_graph: bool = False
    with_data: bool = True


METHOD_KINDS = {
    "one_shot": MethodKind("aggregate", "one-shot"),
    "federated": MethodKind("federate", "in rounds", in_rounds=True),
    "peer": MethodKind("peer", "in rounds, without a server", in_rounds=True, on_graph=True),
    "control": MethodKind("aggregate", "control"),
    "simulation": MethodKind("simulate", "simulation", with_data=False),
}
# stages that compute, in the order in which data pass them
TRAIN = "train"
STAGES = (TRAIN, *dict.fromkeys(kind.stage for kind in METHOD_KINDS.values()))
# in the meta of a model that is a torch.nn.Module
MODULE = "module"
# the model of clients with different models, and the tensor that tells which
MIXED, WHICH = "mixed", "which"
# the form of a model's state dicts, once some were read
STATE = "state"

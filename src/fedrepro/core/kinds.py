"""The kinds of methods: which stage computes one, and in which tree its results lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodKind:
    """words: for people. on_graph: whether its clients are the nodes of a graph. with_data: whether
    it is measured in a scenario, on data and with a model.
    """

    stage: str
    tree: str
    words: str
    in_rounds: bool = False
    on_graph: bool = False
    with_data: bool = True


METHOD_KINDS = {
    "one_shot": MethodKind("aggregate", "metrics", "one-shot"),
    "federated": MethodKind("federate", "federated", "in rounds", in_rounds=True),
    "peer": MethodKind(
        "peer", "peer", "in rounds, without a server", in_rounds=True, on_graph=True
    ),
    "control": MethodKind("aggregate", "metrics", "control"),
    "simulation": MethodKind("simulate", "simulations", "simulation", with_data=False),
}
TRAINING_TREE, TRAINING_STAGE = "models", "train"
TUNED_TREE = "tuned"  # of one-shot methods and controls whose models are trained on once more
# which stage the results of a tree are from, in the order of the way of data
STAGE_OF_TREE = {TRAINING_TREE: TRAINING_STAGE} | {
    kind.tree: kind.stage for kind in METHOD_KINDS.values()
}
STAGE_OF_TREE[TUNED_TREE] = METHOD_KINDS["one_shot"].stage
# in the meta of a model that is a torch.nn.Module
MODULE = "module"
# a model that is one of several, and the tensor that says which
MIXED, WHICH = "mixed", "which"
# how its state dicts are written, once some were read
STATE = "state"

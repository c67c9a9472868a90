"""The rules by which one setting of a sweep is selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Over = Literal["end", "best", "area", "half", "race"]


@dataclass(frozen=True)
class SelectionRule:
    """A rule by which one setting of a sweep is chosen: the best mean over trials of a number.

    metric, split: of the number. over: its value at the end of a run, the best of all measured
    rounds, the area under its curve divided by the rounds, that area over the second half of the
    rounds that all settings ran, or its value at the last rung of a race. need: a key of DISCLOSED.
    words: a description of the number.
    """

    name: str
    metric: str
    split: str
    over: Over
    need: str
    words: str


_PRESETS = (
    SelectionRule(
        "pooled_train",
        "accuracy",
        "train",
        "end",
        "pooled_train_accuracy",
        "mean accuracy over all trials on the pooled training data",
    ),
    SelectionRule(
        "client_train",
        "accuracy_clients",
        "train",
        "end",
        "client_train_accuracy",
        "mean accuracy over all trials and clients on the clients' own training data",
    ),
    SelectionRule(
        "server",
        "accuracy",
        "server_validation",
        "end",
        "server_validation",
        "mean accuracy over all trials on labelled examples at the server",
    ),
    SelectionRule(
        "race",
        "accuracy",
        "server_validation",
        "race",
        "server_validation",
        "mean accuracy over all trials on labelled examples at the server, by which at 1/8, 1/4 "
        "and 1/2 of the rounds the worse half stops",
    ),
    SelectionRule(
        "client_validation",
        "accuracy_clients",
        "client_validation",
        "end",
        "client_validation",
        "mean accuracy over all trials and clients on the clients' own validation examples",
    ),
    SelectionRule(
        "public",
        "accuracy",
        "public",
        "end",
        "public",
        "mean accuracy over all trials on the labelled public sample",
    ),
)
SELECTION_RULES = {choice.name: choice for choice in _PRESETS}

"""Exhibits in Python: functions that return what an `exhibits.yaml` says, for papers whose figures
and tables have much in common.

A paper's `exhibits.py` has `EXHIBITS`, made of these. Nothing is checked here: what they return is
read like the same data from YAML, and a mistake in it is the same sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, Unpack

Entry = dict[str, Any]  # a component by name, with its parameters beside it


class ExhibitData(TypedDict, total=False):
    """What an exhibit, or the defaults of a file, may say; config/README.md describes each key."""

    title: str
    place: str
    caption: str
    headline: bool
    scales: list[str]
    drawing: str | Entry
    size: str
    sweep: dict[str, list[Any]]
    cases: dict[str, dict[str, Any]]
    dataset: Entry
    partition: Entry
    model: Entry
    training: Entry
    graph: Entry
    methods: list[Entry]
    parameters: dict[str, Any]
    reduced: str
    trials: int
    trials_of: dict[str, int]
    measure_every: int | str
    last_rounds: int
    by_rounds: bool
    paired: bool
    notes: list[str]
    at: dict[str, ExhibitData]


class PaperData(TypedDict):
    """What the exhibits.yaml of a paper holds."""

    paper: str
    title: str
    source: str
    boards: NotRequired[dict[str, dict[str, Any]]]
    defaults: NotRequired[ExhibitData]
    also: NotRequired[list[Entry]]
    exhibits: Mapping[str, ExhibitData]


def exhibit(*others: ExhibitData, **keys: Unpack[ExhibitData]) -> ExhibitData:
    """An exhibit of these keys, over those of others, of which the last wins.

    A key is taken whole: `at`, `cases` and `parameters` of another are replaced, and not merged as
    the defaults of a file are.
    """
    merged: ExhibitData = {}
    for other in others:
        merged.update(other)
    merged.update(keys)
    return merged


def entry(name: str, label: str = "", /, **parameters: Any) -> Entry:
    """A component by name, or a method with its label."""
    return {"name": name, **({"label": label} if label else {}), **parameters}


def like(other: Entry, label: str = "", /, **changes: Any) -> Entry:
    """The same component or method with another label, or other parameters."""
    return {**other, **({"label": label} if label else {}), **changes}


def text(sentence: str) -> str:
    """A sentence that was written over several lines, in one."""
    return " ".join(line.strip(" ") for line in sentence.strip(" \n").split("\n"))

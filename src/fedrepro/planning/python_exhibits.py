"""Exhibits in Python: functions that return the data of an `exhibits.yaml`.

They serve papers whose figures and tables have much in common: a paper's `exhibits.py` has
`EXHIBITS`, made of these. Nothing is checked here: the result is read like data from YAML, so that
a mistake gives the same sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, Unpack

Entry = dict[str, Any]  # a component: its name, and its parameters as further keys


class ExhibitData(TypedDict, total=False):
    """Keys of an exhibit, or of the defaults of a file; config/README.md describes each."""

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
    """Keys of a paper's exhibits.yaml."""

    paper: str
    title: str
    source: str
    boards: NotRequired[dict[str, dict[str, Any]]]
    defaults: NotRequired[ExhibitData]
    also: NotRequired[list[Entry]]
    exhibits: Mapping[str, ExhibitData]


def exhibit(*others: ExhibitData, **keys: Unpack[ExhibitData]) -> ExhibitData:
    """Build an exhibit from these keys, on top of those of other exhibits; the last one wins.

    A key is replaced as a whole: `at`, `cases` and `parameters` are not merged as the defaults of a
    file are. Title, caption and notes may be written over several lines.
    """
    merged: ExhibitData = {}
    for other in (*others, keys):
        merged.update(other)
    for key in ("title", "caption"):
        if key in merged:
            merged[key] = text(merged[key])
    if "notes" in merged:
        merged["notes"] = [text(note) for note in merged["notes"]]
    return merged


def component(name: str, label: str = "", /, **parameters: Any) -> Entry:
    """Build the entry of a component by name, or of a method with its label."""
    return {"name": name, **({"label": label} if label else {}), **parameters}


def with_changes(other: Entry, label: str = "", /, **changes: Any) -> Entry:
    """Copy an entry with another label or other parameters."""
    return {**other, **({"label": label} if label else {}), **changes}


def text(sentence: str) -> str:
    """Join a sentence that is written over several lines."""
    return " ".join(line.strip(" ") for line in sentence.strip(" \n").split("\n"))

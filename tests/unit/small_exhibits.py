"""Exhibits of a test's own, on digits, with the least that an exhibit has to say."""

from __future__ import annotations

from typing import Any

from fedrepro.planning.config_files import ExhibitFile
from fedrepro.planning.exhibit import Exhibit, exhibit_of

LEAST: dict[str, Any] = {
    "title": "a title",
    "place": "nowhere",
    "caption": "a caption",
    "drawing": "table",
    "dataset": {"name": "digits"},
    "partition": {"name": "iid", "validation": 20},
    "model": {"name": "mlp"},
    "training": {"name": "adam"},
    "sweep": {"partition.clients": [2, 4]},
    "trials": 2,
    "methods": [{"name": "average", "label": "A"}],
}


def file_of(*, defaults: dict[str, Any] | None = None, **settings: Any) -> ExhibitFile:
    given = {"defaults": LEAST | (defaults or {}), "exhibits": {"x": settings}}
    return ExhibitFile(paper="small", title="", source="", **given)


def small(scale: str = "quick", **settings: Any) -> Exhibit:
    """The exhibit with these settings in the place of the least ones."""
    return exhibit_of(file_of(**settings), "x", scale)

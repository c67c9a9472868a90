"""Figures from the numbers of an exhibit: svg and png, the same bytes for the same numbers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from fedrepro.core.packs import modules_of_papers
from fedrepro.drawings.accuracy_and_size import accuracy_and_size
from fedrepro.drawings.canvas import data_title, image_of, rules
from fedrepro.drawings.heat_maps import heat_maps
from fedrepro.drawings.panels import accuracy_close_up, accuracy_panels
from fedrepro.drawings.rounds import accuracy_against_rounds
from fedrepro.drawings.sizes import accuracy_against_size, size
from fedrepro.numbers.pairing import as_shown
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw: TypeAlias = "Callable[[Exhibit, pd.DataFrame], Figure]"
DRAWINGS: dict[str, Draw] = {
    "accuracy-and-size": accuracy_and_size,
    "accuracy-close-up": accuracy_close_up,
    "accuracy-panels": accuracy_panels,
    "accuracy-against-rounds": accuracy_against_rounds,
    "accuracy-against-size": accuracy_against_size,
    "heat-maps": heat_maps,
    "size": size,
}
for _name in modules_of_papers("drawings"):
    # a paper's own: each module says by which names exhibits ask for what it draws
    DRAWINGS |= getattr(importlib.import_module(_name), "DRAWINGS", {})


def render(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, bytes]:
    """The figure by suffix: .svg and .png."""
    title = f"{exhibit.settings.title}: {data_title(exhibit)}"
    with rules():
        drawn = figure(exhibit, numbers)
        return {suffix: image_of(drawn, suffix, title) for suffix in (".svg", ".png")}


def figure(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """The exhibit as its settings say; call it within `rules()`."""
    return DRAWINGS[exhibit.settings.drawing](exhibit, as_shown(numbers))

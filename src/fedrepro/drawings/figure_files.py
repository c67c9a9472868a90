"""Figures from the numbers of an exhibit: svg and png, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from fedrepro.drawings.canvas import data_title, image_of, rules
from fedrepro.planning.drawing import Drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fedrepro.planning.exhibit import Exhibit


class Figured(Drawing):
    """A drawing that is a figure."""

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        """Draw the figure from numbers as `as_shown` returns them; call it within `rules()`."""
        raise NotImplementedError

    def files(
        self, exhibit: Exhibit, about: Mapping[str, Any], numbers: pd.DataFrame
    ) -> dict[str, bytes]:
        return render(exhibit, numbers)


class Along(Figured):
    """A figure along a horizontal axis."""

    x_label: str = Field("", description="what the horizontal axis is called, if not by itself")


def render(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, bytes]:
    """Draw the figure and return its images by suffix, .svg and .png."""
    title = f"{exhibit.settings.title}: {data_title(exhibit)}"
    with rules():
        drawn = figure(exhibit, numbers)
        return {suffix: image_of(drawn, suffix, title) for suffix in (".svg", ".png")}


def figure(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """Draw the figure of an exhibit whose drawing is one; call it within `rules()`."""
    from fedrepro.numbers.paired_trials import as_shown

    kind = exhibit.settings.drawing
    assert isinstance(kind, Figured)
    return kind.draw(exhibit, as_shown(numbers))

"""Give each method a colour, marker and dash that are equal in every figure.

Okabe and Ito's colours are distinct for any colour vision; markers and dashes need no colour.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedrepro.core.registry import components
from fedrepro.planning.exhibit_methods import ExhibitMethod

Dash = tuple[float, tuple[float, ...]]
SOLID: Dash = (0, ())


@dataclass(frozen=True)
class LineStyle:
    """The style of a method's line: colour, marker, dash, width, drawing order (largest on top)."""

    colour: str
    marker: str = ""
    dash: Dash = SOLID
    width: float = 1.4
    order: float = 3

    @property
    def rgb(self) -> bytes:
        return bytes.fromhex(self.colour[1:])

    @property
    def line(self) -> dict[str, Any]:
        """Return the style as keyword arguments of matplotlib's `Axes.plot`."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dash,
            "linewidth": self.width,
            "markersize": 4.6,
            "markeredgewidth": 0.5,
            "markeredgecolor": "white",
            "zorder": self.order,
        }


LINE_STYLES: dict[str, LineStyle] = {
    "pfnm": LineStyle("#0072B2", "o", width=2.0, order=5),
    "uniform_ensemble": LineStyle("#E69F00", "s"),
    "weighted_ensemble": LineStyle("#009E73", "^", (0, (5, 1.2))),
    "distillation": LineStyle("#CC79A7", "D", (0, (4, 1.2, 1, 1.2))),
    "downpour_sgd": LineStyle("#D55E00", "v", (0, (2.5, 1))),
    "pruned_concatenation": LineStyle("#8C510A", "P", (0, (1.5, 0.7))),
    "average": LineStyle("#56B4E9", "X", (0, (1.2, 0.9))),
    "average_shared": LineStyle("#1EB4C3", "p", (0, (1.2, 0.9))),
    "whole_clients": LineStyle("#8700C3", "h", (0, (6, 1.5))),
    "best_clients": LineStyle("#2D4B1E", "d", (0, (2.5, 1))),
    "kmeans_units": LineStyle("#A52D3C", "s", (0, (8, 1.5))),
    "ot_fusion": LineStyle("#3C69FF", "^", (0, (3, 1, 1, 1))),
    "weight_matching": LineStyle("#A5A55A", "D", (0, (3.5, 1.5))),
    "gems_convex": LineStyle("#8C0032", "h", width=2.0, order=2.5),
    "local": LineStyle("#D98900", "o", (0, (4, 1.5))),
}
# for methods that have no look of their own: far from those above and from one another, also with
# the commonest kinds of colour blindness; each has a marker and a dash that no other has
FALLBACK_STYLES = (
    LineStyle("#780F78", ">", (0, (1.5, 1))),
    LineStyle("#8796FF", "*", (0, (8, 1.5))),
    LineStyle("#693C5A", "H", (0, (3, 1, 1, 1, 1, 1))),
    LineStyle("#D29696", "8", (0, (2, 1.5))),
    LineStyle("#F03C3C", "p", (0, (3.5, 1.5))),
    LineStyle("#5A3CA5", "<", (0, (7, 1, 1, 1))),
    LineStyle("#0000FF", ">", (0, (1, 0.6))),
    LineStyle("#006978", "p", (0, (5, 1, 2, 1))),
    LineStyle("#E10F5A", "<", (0, (6, 1.5))),
    LineStyle("#C34BD2", "8", (0, (4.5, 1))),
    LineStyle("#C30087", "h", (0, (6, 1.5, 1, 1.5))),
    LineStyle("#78B478", "H", (0, (3, 1))),
    LineStyle("#000000", "d", (0, (5, 2))),
)
REFERENCES = {
    "pooled": LineStyle("#222222", dash=(0, (7, 2)), width=1.0, order=6),
    "concatenation": LineStyle("#222222", dash=(0, (1.2, 1.6)), width=1.2, order=6),
    "unmatched": LineStyle("#5B7FA6", dash=(0, (3, 1, 1, 1)), width=1.2, order=6),
    "local": LineStyle("#777777", dash=(0, (5, 1.6, 1.2, 1.6)), width=1.0, order=2),
    "majority": LineStyle("#999999", dash=(0, (1, 3)), width=1.0, order=2),
}
FALLBACK_REFERENCES = (
    LineStyle("#555555", dash=(0, (3, 1.6)), width=1.0, order=2),
    LineStyle("#6E6E4E", dash=(0, (6, 1.2, 2, 1.2)), width=1.0, order=2),
    LineStyle("#6B4E71", dash=(0, (2, 0.8)), width=1.0, order=2),
    LineStyle("#4E6B60", dash=(0, (9, 2)), width=1.0, order=2),
    LineStyle("#7A5C4A", dash=(0, (4, 1, 1, 1, 1, 1)), width=1.0, order=2),
)
PALETTES = ((LINE_STYLES, FALLBACK_STYLES), (REFERENCES, FALLBACK_REFERENCES))
# scenarios side by side in one figure
CASES = (
    LineStyle("#0072B2", "o"),
    LineStyle("#D55E00", "s", (0, (5, 1.2))),
    LineStyle("#009E73", "^", (0, (4, 1.2, 1, 1.2))),
    LineStyle("#CC79A7", "D", (0, (2.5, 1))),
    LineStyle("#E69F00", "v", (0, (1.2, 0.9))),
    LineStyle("#56B4E9", "X", (0, (6, 1.5, 1, 1.5))),
    LineStyle("#000000", "p"),
    LineStyle("#B8A800", "h", (0, (6, 1.5, 1, 1.5))),
    LineStyle("#7F3C8D", "<", (0, (3, 1))),
    LineStyle("#3B6E22", ">", (0, (1.5, 1))),
)
HEARD: Dash = (0, (3, 1.2))
DASHES: tuple[Dash, ...] = (HEARD, (0, (1, 1)), (0, (6, 1.2, 1, 1.2)), (0, (8, 3)))
# from nothing to all: one hue, steadily darker, so that it reads the same with any colour vision
SHARES = ("#FFFFFF", "#CFE3F2", "#8FBFE0", "#4293C9", "#0072B2", "#08306B")
BAR = "#6B7280"
FAR = "#D55E00"
NOISE = "#009E73"
TICKS = {"color": "#444444", "labelcolor": "black", "major.width": 0.6, "major.size": 2.5}
# text at least 7 pt at the width it is drawn for, glyphs as shapes so that every viewer agrees
RULES: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("font.size", "axes.labelsize", "legend.fontsize"), 7.5),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7),
    "axes.titlesize": 8,
    "figure.titlesize": 9,
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in TICKS.items()},
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "fedrepro",
}
ALIASES = {"downpour_streaming": "downpour_sgd", "pfnm_sized": "pfnm", "gems_neural": "gems_convex"}


def line_styles(measures: Sequence[ExhibitMethod]) -> dict[str, LineStyle]:
    """Return {label of a method: its line style} for one figure; no two styles are equal.

    The first line of each method in `measures` has one style in every figure. A line of results at
    one graph node has the style of that node. Further lines of a method have styles from a reserved
    list, chosen by their labels. If that style's colour is in the figure already, the reserved
    style with the colour farthest from all colours in the figure replaces it.
    """
    by_label: dict[str, LineStyle] = {}
    for measure in measures:
        look = _look(measure)
        if look not in by_label.values():
            by_label[measure.label] = look
    later = [measure for measure in measures if measure.label not in by_label]
    for measure in sorted(later, key=lambda measure: (_number(measure.label), measure.label)):
        _, spare = PALETTES[measure.reference]
        look = _free(measure.label, spare, by_label.values())
        colours = {other.rgb for other in by_label.values()}
        free = [other for other in spare if other.rgb not in colours]
        if look.rgb in colours and free:  # the free colour farthest from those taken
            look = max(free, key=lambda one: min(math.dist(one.rgb, other) for other in colours))
        by_label[measure.label] = look
    return {measure.label: by_label[measure.label] for measure in measures}


def _look(measure: ExhibitMethod) -> LineStyle:
    """Return the fixed style of a method's line; for results at a graph node, the node's style."""
    if measure.node is not None and not measure.reference:
        look = replace(CASES[(measure.node - 1) % len(CASES)], dash=SOLID)
        return replace(look, dash=HEARD, width=1.0) if measure.belief == "after" else look
    known, spare = PALETTES[measure.reference]
    name = family_of(measure.spec.name)
    by_name: dict[str, LineStyle] = dict(known)
    names = {family_of(other) for other in (*components("method"), name)} - set(known)
    # bounds come last: as rivals they are rare
    for other in sorted(names, key=lambda other: (other in REFERENCES, _number(other))):
        by_name[other] = _free(other, spare, by_name.values())
    return by_name[name]


def family_of(method: str) -> str:
    """Return the method whose line style `method` shares, as pfnm for pfnm_streaming, or itself."""
    return ALIASES.get(method, method.removesuffix("_streaming"))


def _number(text: str) -> int:
    return zlib.crc32(text.encode())


def _free(text: str, spare: Sequence[LineStyle], taken: Collection[LineStyle]) -> LineStyle:
    """Return a style not in `taken`: one of `spare` or parts of two; a hash of `text` picks it."""
    first, count = _number(text), len(spare)
    for turn, step in itertools.product(range(count), repeat=2):
        other = spare[(first + step + turn) % count]
        look = replace(spare[(first + step) % count], marker=other.marker, dash=other.dash)
        if look not in taken:
            return look
    return spare[first % count]


def trials_text(*counts: int) -> str:
    """Write numbers of trials for a heading: "5 trials", or "5 or 10 trials"."""
    return f"{' or '.join(map(str, counts))} {'trial' if counts == (1,) else 'trials'}"

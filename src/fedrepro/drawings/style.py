"""How methods look: one colour, marker and dash per method, the same in every figure.

Colours are those of Okabe and Ito, told apart by people with any colour vision; markers and
dashes tell methods apart without any colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.planning.plan import Measure

Dash = tuple[float, tuple[float, ...]]
SOLID: Dash = (0, ())


@dataclass(frozen=True)
class Look:
    """How a line is drawn. A reference has no marker and a thin dashed grey line."""

    colour: str
    marker: str = ""
    dash: Dash = SOLID
    width: float = 1.4
    order: float = 3

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments of `Axes.plot`."""
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


LOOKS: dict[str, Look] = {
    "pfnm": Look("#0072B2", "o", width=2.0, order=5),
    "uniform_ensemble": Look("#E69F00", "s"),
    "weighted_ensemble": Look("#009E73", "^", (0, (5, 1.2))),
    "distillation": Look("#CC79A7", "D", (0, (4, 1.2, 1, 1.2))),
    "downpour_sgd": Look("#D55E00", "v", (0, (2.5, 1))),
    "pruned_concatenation": Look("#8C510A", "P", (0, (1.5, 0.7))),
    "average": Look("#56B4E9", "X", (0, (1.2, 0.9))),
    "average_shared": Look("#1B4F8A", "*", (0, (1.2, 0.9))),
    "whole_clients": Look("#6A3D9A", "h"),
    "best_clients": Look("#8A8A8A", "d", (0, (2.5, 1))),
    "kmeans_units": Look("#D55E00", "s"),
    "ot_fusion": Look("#009E73", "^", (0, (5, 1.2))),
    "weight_matching": Look("#CC79A7", "D", (0, (4, 1.2, 1, 1.2))),
}
SPARE = (
    Look("#000000", "p"),
    Look("#B8A800", "h", (0, (6, 1.5, 1, 1.5))),
    Look("#7F3C8D", "<", (0, (3, 1))),
    Look("#3B6E22", ">", (0, (1.5, 1))),
)
REFERENCES = {
    "pooled": Look("#222222", dash=(0, (7, 2)), width=1.0, order=6),
    "concatenation": Look("#222222", dash=(0, (1.2, 1.6)), width=1.2, order=6),
    "unmatched": Look("#5B7FA6", dash=(0, (3, 1, 1, 1)), width=1.2, order=6),
    "local": Look("#777777", dash=(0, (5, 1.6, 1.2, 1.6)), width=1.0, order=2),
    "majority": Look("#999999", dash=(0, (1, 3)), width=1.0, order=2),
}
SPARE_REFERENCE = Look("#555555", dash=(0, (3, 1.6)), width=1.0, order=2)

# scenarios side by side in one figure
CASES = (
    Look("#0072B2", "o"),
    Look("#D55E00", "s", (0, (5, 1.2))),
    Look("#009E73", "^", (0, (4, 1.2, 1, 1.2))),
    Look("#CC79A7", "D", (0, (2.5, 1))),
    Look("#E69F00", "v", (0, (1.2, 0.9))),
    Look("#56B4E9", "X", (0, (6, 1.5, 1, 1.5))),
    *SPARE,
)

# from nothing to all: one hue, steadily darker, so that it reads the same with any colour vision
SHARES = ("#FFFFFF", "#CFE3F2", "#8FBFE0", "#4293C9", "#0072B2", "#08306B")
BAR = "#6B7280"
FAR = "#D55E00"
NOISE = "#009E73"

# text at least 7 pt at the width it is drawn for, glyphs as shapes so that every viewer agrees
TEXT = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "figure.titlesize": 9,
}
RULES: dict[Any, Any] = TEXT | {
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.5,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "fedrepro",
}


ALIASES = {"downpour_streaming": "downpour_sgd", "pfnm_sized": "pfnm"}


def looks(measures: Sequence[Measure]) -> dict[str, Look]:
    """The look of each method by its label; methods without one of their own take spare ones."""
    found: dict[str, Look] = {}
    spare = iter(SPARE)
    for measure in measures:
        # the same method on a stream of data, or of a chosen size, looks the same
        name = ALIASES.get(measure.spec.name, measure.spec.name.removesuffix("_streaming"))
        if measure.reference:
            found[measure.label] = REFERENCES.get(name, SPARE_REFERENCE)
        elif name in LOOKS and LOOKS[name] not in found.values():
            found[measure.label] = LOOKS[name]
        else:
            found[measure.label] = next(spare, SPARE[0])
    return found

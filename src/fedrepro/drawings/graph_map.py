"""A graph as a picture: who hears whom, and how much each counts.

Nodes and edges, wide where a weight is large, discs larger where a node counts more in the long
run; where two nodes make unlike much of each other there are two arrows. Beside them W, a row for
each node, with its numbers where they can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.drawings.canvas import image_of, rules
from fedrepro.drawings.style import BAR, SHARES
from fedrepro.graphs.made import weights_of
from fedrepro.graphs.places import PLACES
from fedrepro.graphs.spectrum import mixing_sum, second_modulus, stationary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 7.0, 3.3  # inches
NAMED = 24  # up to so many nodes have their numbers, and W up to so many rows
WRITTEN = 6  # up to so many nodes have their weights written in W
ARROWS = 24  # up to so many nodes unlike weights are two arrows
DRAWN = 700  # more edges, or cells of W, are drawn as pixels
BENT = 0.2  # of its length, how far an edge goes around nodes that lie on it
TICKS = 12  # where not every row of W is named
NONE = 1e-9  # below, a number is rounding
TOKEN = 90  # letters below the title


@dataclass(frozen=True)
class GraphNumbers:
    """What a graph is like. least and most: of what a node counts in the long run."""

    nodes: int
    edges: int
    second_modulus: float
    mixing_sum: float
    least: float
    most: float


@dataclass(frozen=True)
class GraphMap:
    """What is drawn of one graph. weights: float64 (N, N); places: float64 (N, 2)."""

    title: str
    subtitle: str
    weights: np.ndarray
    places: np.ndarray

    @cached_property
    def numbers(self) -> GraphNumbers:
        """Computed once: the sum takes seconds on a long ring."""
        weights, limit = self.weights, stationary(self.weights)
        hears = (weights > 0) & ~np.eye(len(weights), dtype=bool)
        return GraphNumbers(
            len(weights),
            int(hears.sum()),
            second_modulus(weights),
            mixing_sum(weights),
            float(limit.min()),
            float(limit.max()),
        )

    @property
    def alt(self) -> str:
        """What the picture shows, for those who do not see it."""
        return f"{self.title}. Nodes and edges, and the matrix of weights. {words(self.numbers)}"


def map_of(graph: Spec, clients: int, seed: int, trial: int) -> GraphMap:
    """What is drawn of a graph; a random one is that of one trial."""
    meta = graph.component.meta
    drawn = f" · seed {seed}, trial {trial}" if meta.get("random") else ""
    nodes = "1 node" if clients == 1 else f"{clients} nodes"
    return GraphMap(
        title=f"{nodes}: {meta['title']}",
        subtitle=f"{graph.token[:TOKEN]}{drawn}",
        weights=weights_of(graph, clients, Rng(seed, trial)),
        places=PLACES[meta.get("layout", "circle")](clients),
    )


def words(numbers: GraphNumbers) -> str:
    """The numbers in two sentences."""
    low, high = f"{numbers.least:.3g}", f"{numbers.most:.3g}"
    span = low if low == high else f"{low} to {high}"
    return (
        f"{numbers.edges} directed edges; in the long run each of {numbers.nodes} nodes counts "
        f"{span}. Second modulus {_number(numbers.second_modulus)}, S_W "
        f"{_number(numbers.mixing_sum)}."
    )


def _number(value: float) -> str:
    return f"{value:.4g}" if value > NONE else "0"


def render(graph: GraphMap, suffixes: Sequence[str] = (".svg", ".png")) -> dict[str, bytes]:
    """The drawing by suffix; the same bytes for the same graph."""
    with rules():
        drawn = figure(graph)
        return {suffix: image_of(drawn, suffix, graph.title) for suffix in suffixes}


def figure(graph: GraphMap) -> Figure:
    """The drawing; call it within `rules()`."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(WIDTH, HEIGHT))
    nodes = drawn.add_axes((0.02, 0.03, 0.44, 0.8))
    matrix = drawn.add_axes((0.56, 0.12, 0.37, 0.37 * WIDTH / HEIGHT))
    _draw_nodes(nodes, graph)
    _draw_matrix(matrix, graph.weights)
    drawn.text(0.012, 1 - 0.15 / HEIGHT, graph.title, fontsize=9, va="center", parse_math=False)
    drawn.text(
        0.012, 1 - 0.33 / HEIGHT, graph.subtitle, va="center", color="#444444", parse_math=False
    )
    return drawn


def _draw_nodes(axes: Axes, graph: GraphMap) -> None:
    """Edges below, discs and numbers above them."""
    weights, places, count = graph.weights, graph.places, len(graph.weights)
    axes.set(xlim=(-0.16, 1.16), ylim=(-0.16, 1.16), aspect="equal")
    axes.set_axis_off()
    unlike = not np.allclose(weights, weights.T)
    if unlike and count <= ARROWS:
        _draw_arrows(axes, weights, places)
    else:
        _draw_lines(axes, weights, places)
    limit = stationary(weights) * count
    sizes = min(260.0, 2600.0 / count) * (0.6 + 0.4 * limit / limit.max())
    discs = axes.scatter(places[:, 0], places[:, 1], sizes, BAR, zorder=3)
    discs.set(edgecolors="white", linewidths=0.6)
    for node, (x, y) in enumerate(places if count <= NAMED else []):
        text = axes.text(x, y - 0.004, str(node), color="white", fontsize=7, zorder=4)
        text.set(ha="center", va="center")


def _draw_lines(axes: Axes, weights: np.ndarray, places: np.ndarray) -> None:
    """A line a pair, as wide as the larger weight of both."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    both = np.maximum(weights, weights.T)
    pairs = np.argwhere(np.triu(both, 1) > 0)
    widest = max((both[i, j] for i, j in pairs), default=1.0)
    for i, j in pairs:
        (x, y), (u, v) = places[i], places[j]
        bend = _bend(places, i, j)
        # to the right of the way, so that it goes around what lies between
        middle = (x + u) / 2 + bend * (v - y), (y + v) / 2 - bend * (u - x)
        path = Path([(x, y), middle, (u, v)], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        width = _width(both[i, j] / widest, len(pairs))
        axes.add_patch(
            PathPatch(path, fill=False, edgecolor="#9AA3AF", linewidth=width, zorder=1)
        ).set_rasterized(len(pairs) > DRAWN)


def _bend(places: np.ndarray, i: int, j: int) -> float:
    """How far an edge is bent: not at all, unless other nodes lie on the straight way."""
    way = places[j] - places[i]
    others = places - places[i]
    length = float(way @ way)
    along = others @ way / length
    beside = np.abs(others[:, 0] * way[1] - others[:, 1] * way[0])
    between = (along > 1e-6) & (along < 1 - 1e-6) & (beside < 1e-6)
    return BENT if between.any() else 0.0


def _draw_arrows(axes: Axes, weights: np.ndarray, places: np.ndarray) -> None:
    """An arrow from j to i for each W_ij, as messages go."""
    from matplotlib.patches import FancyArrowPatch

    apart = weights - np.diag(np.diag(weights))
    pairs = np.argwhere(apart > 0)
    for i, j in pairs:
        axes.add_patch(
            FancyArrowPatch(
                places[j],
                places[i],
                connectionstyle="arc3,rad=0.14",
                arrowstyle="-|>,head_length=4,head_width=2",
                shrinkA=9,
                shrinkB=9,
                color="#9AA3AF",
                linewidth=_width(apart[i, j] / apart.max(), len(pairs)),
                zorder=1,
            )
        )


def _width(share: float, edges: int) -> float:
    """Of a line in points, thinner where there are many."""
    return 0.15 + min(2.2, 60.0 / edges) * share


def _draw_matrix(axes: Axes, weights: np.ndarray) -> None:
    """W, a row for each node, dark where a weight is large."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    count = len(weights)
    edges = np.arange(count + 1)
    axes.pcolormesh(
        edges,
        edges,
        weights,
        cmap=LinearSegmentedColormap.from_list("shares", SHARES),
        norm=PowerNorm(0.5, vmin=0, vmax=1),
        edgecolors="#E3E3E3" if count <= NAMED else "none",
        linewidth=0.4 if count <= NAMED else 0,
        rasterized=count**2 > DRAWN,
    )
    axes.set(ylim=(count, 0), aspect="equal", xlabel="makes of what it hears from node")
    axes.set_ylabel("node")
    axes.grid(False)
    axes.tick_params(length=0)
    step = 1 if count <= NAMED else -(-count // TICKS)
    shown = range(0, count, step)
    names = [str(node) for node in shown]
    axes.set_xticks([node + 0.5 for node in shown], names)
    axes.set_yticks([node + 0.5 for node in shown], names)
    for i, j in np.ndindex(weights.shape) if count <= WRITTEN else ():
        ink = "white" if weights[i, j] > 0.3 else "#1c1e21"
        axes.text(j + 0.5, i + 0.5, f"{weights[i, j]:.3g}", color=ink, ha="center", va="center")

"""Draw a partition (clients by classes), and a graph of clients (nodes, edges and weights)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from fedrepro.core.rng import RngKey
from fedrepro.data.assignment import Skew, distances, skew_of
from fedrepro.data.partition_table import PartitionIndices, labels_of
from fedrepro.drawings.canvas import LEFT, SOFT, WIDTH, image_of, rules
from fedrepro.drawings.style import BAR, FAR, NOISE, SHARES
from fedrepro.training.mixing_matrices import (
    PLACES,
    mixing_sum,
    second_modulus,
    stationary,
    weights_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedrepro.core.spec import Spec
    from fedrepro.data.prepared import Prepared

ROW, MOST_HEIGHT, HEAD = 0.2, 4.6, 0.9  # inches: a client, the map, what is above and below it
GRAPH_HEIGHT = 3.4  # inches
READABLE = 0.14  # inches of a client from which numbers are written
FEW = 40  # up to this many clients have their own row and number
NAMED = 24  # up to this many classes, or nodes, have their names, and nodes two arrows an edge
WRITTEN = 12  # up to this many columns have their numbers in the cells
PIXELS = 700  # more cells, or edges, are drawn as pixels
EDGE, LIGHT, DARK = "#9AA3AF", "white", "#1c1e21"


@dataclass(frozen=True)
class PartitionMap:
    """A drawing of how a partition divides a data set among clients, in one trial.

    counts: examples by client and class, int64 (J, K). noise: variance of each client's added
    noise, float64 (J,), or None.
    """

    title: str
    subtitle: str
    counts: np.ndarray
    classes: Sequence[str]
    noise: np.ndarray | None = None

    @property
    def skew(self) -> Skew:
        return skew_of(self.counts)

    @property
    def words(self) -> str:
        """Describe in two sentences how many examples and classes clients hold, and how skewed."""
        skew = self.skew
        holders = "1 client holds" if skew.clients == 1 else f"{skew.clients} clients each hold"
        return (
            f"{holders} {_span(skew.size_min, skew.size_max)} examples (median "
            f"{skew.size_median:g}) of {_span(skew.classes_min, skew.classes_max)} "
            f"{'class' if skew.classes_max == 1 else 'classes'}. Total variation from the whole: "
            f"mean {skew.distance_mean:.3f}, at most {skew.distance_max:.3f}."
        )

    @property
    def alt(self) -> str:
        return f"{self.title}. Map of clients and classes. {self.words}"

    def order(self) -> np.ndarray:
        """Return clients' indices from top to bottom, (J,): over 40 are sorted by main class."""
        by_class = np.lexsort((-self.counts.sum(axis=1), self.counts.argmax(axis=1)))
        return np.arange(len(by_class)) if len(by_class) <= FEW else by_class

    def figure(self) -> Figure:
        """Draw each client's shares of classes and number of examples; call within `rules()`."""
        order = self.order()
        counts = self.counts[order]
        clients, classes = counts.shape
        columns = [
            ("examples", self.counts.sum(axis=1), BAR, "{:.0f}"),
            ("distance from all", distances(self.counts), FAR, "{:.2f}"),
        ]
        columns += [] if self.noise is None else [("noise variance", self.noise, NOISE, "{:.2g}")]
        body = min(max(ROW * clients, 0.5), MOST_HEIGHT)
        room = body >= READABLE * clients
        drawn = _titled(self.title, self.subtitle, HEAD + ROW + body + 0.4)
        widths = [3.4, *[1.2] * len(columns)]
        grid = drawn.add_gridspec(2, len(widths), width_ratios=widths, height_ratios=[ROW, body])
        shares = drawn.add_subplot(grid[1, 0])
        whole = drawn.add_subplot(grid[0, 0], sharex=shares)
        _heat(whole, counts.sum(axis=0, keepdims=True) / counts.sum())
        whole.set_yticks([0.5], ["all"])
        whole.tick_params("x", labelbottom=False)
        written = counts if room and classes <= WRITTEN else None
        cells = _heat(shares, counts / counts.sum(axis=1, keepdims=True), written)
        texts = [n if n.strip() and n.isprintable() else repr(n) for n in self.classes]
        shown, turned = slice(0, classes, -(-classes // NAMED)), max(map(len, texts)) > 3
        ticks = np.arange(classes)[shown] + 0.5
        shares.set_xticks(ticks, texts[shown], rotation=90 if turned else 0, parse_math=False)
        rows = np.arange(clients if clients <= FEW else 0)
        shares.set_yticks(rows + 0.5, rows.astype(str))
        label = "client" if clients <= FEW else f"{clients} clients, by main class"
        shares.set(xlabel="class", ylabel=label)
        for at, (name, values, colour, form) in enumerate(columns, start=1):
            axes = drawn.add_subplot(grid[1, at], sharey=shares)
            axes.set_title(name, loc="left", fontsize=7.5)
            _bars(axes, values[order], colour, form if room else "")
        spare = drawn.add_subplot(grid[0, 1:])
        spare.set_axis_off()
        key = drawn.colorbar(
            cells,
            spare.inset_axes((0.55, 0.1, 0.45, 0.5)),
            orientation="horizontal",
            ticks=[0, 0.05, 0.2, 0.5, 1],
            format=lambda share, _: f"{100 * share:g}",
        )
        key.ax.xaxis.set_ticks_position("top")
        key.ax.tick_params(length=0, pad=1)
        spare.text(0.52, 0.35, "% of a client's examples", ha="right", va="center", fontsize=7)
        return drawn


@dataclass(frozen=True)
class GraphMap:
    """A drawing of a communication graph, whose nodes are clients.

    weights: float64 (N, N); row i has the weights by which node i averages what it receives.
    places: float64 (N, 2), positions of the nodes in the unit square.
    """

    title: str
    subtitle: str
    weights: np.ndarray
    places: np.ndarray

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Return numbers that describe the graph, by name; on a long ring that takes seconds.

        nodes and edges are counts; `second_modulus` and `mixing_sum` measure how slowly averages
        spread; `least` and `most` are the extreme weights of nodes in the limit of averaging.
        """
        weights, limit = self.weights, stationary(self.weights)
        return {
            "nodes": len(weights),
            "edges": int((weights > 0).sum() - (np.diag(weights) > 0).sum()),
            "second_modulus": second_modulus(weights),
            "mixing_sum": mixing_sum(weights),
            "least": float(limit.min()),
            "most": float(limit.max()),
        }

    @property
    def words(self) -> str:
        """Describe the graph in two sentences: edges, nodes' limit weights, speed of averaging."""
        found = self.numbers
        second, mixing = (
            f"{found[name]:.4g}" if found[name] > 1e-9 else "0"  # below is rounding
            for name in ("second_modulus", "mixing_sum")
        )
        least, most = (float(f"{found[name]:.3g}") for name in ("least", "most"))
        return (
            f"{found['edges']} directed edges; in the long run each of {found['nodes']} nodes "
            f"counts {_span(least, most)}. Second modulus {second}, S_W {mixing}."
        )

    @property
    def alt(self) -> str:
        return f"{self.title}. Nodes and edges, and the matrix of weights. {self.words}"

    def figure(self) -> Figure:
        """Draw the graph, edges as wide as their weights, and the weight matrix.

        Call it in the context `canvas.rules()`, which sets matplotlib's style.
        """
        count = len(self.weights)
        drawn = _titled(self.title, self.subtitle, GRAPH_HEIGHT)
        nodes, matrix = drawn.subplots(1, 2, width_ratios=[1, 1])
        self._draw_edges(nodes)
        net = nx.empty_graph(count)
        limit = stationary(self.weights)
        sizes = min(260.0, 2600.0 / count) * (0.6 + 0.4 * limit / limit.max())
        nx.draw_networkx_nodes(
            net, self.places, node_size=sizes, node_color=BAR, edgecolors=LIGHT, ax=nodes
        )
        if count <= NAMED:
            places = dict(enumerate(self.places))
            nx.draw_networkx_labels(net, places, ax=nodes, font_size=7, font_color=LIGHT)
        nodes.set(xlim=(-0.16, 1.16), ylim=(-0.16, 1.16), aspect="equal")
        nodes.set_axis_off()
        _heat(matrix, self.weights, self.weights if count <= WRITTEN // 2 else None)
        shown = np.arange(0, count, 1 if count <= NAMED else -(-count // WRITTEN))
        for axis in (matrix.xaxis, matrix.yaxis):
            axis.set_ticks(shown + 0.5, shown.astype(str))
        matrix.set(aspect="equal", xlabel="weight of what it receives from node", ylabel="node")
        return drawn

    def _draw_edges(self, axes: Axes) -> None:
        """Draw the edges: arrows in a small graph with asymmetric weights, else lines."""
        apart = self.weights - np.diag(np.diag(self.weights))
        arrows = len(apart) <= NAMED and not np.allclose(apart, apart.T)
        if not arrows:
            apart = np.triu(np.maximum(apart, apart.T))
        # W_ij is what i makes of what j says, so messages go from j to i
        edges = [(int(j), int(i)) for i, j in np.argwhere(apart > 0)]
        wide = min(2.2, 60 / max(1, len(edges)))
        bent = [arrows or self._passes_a_node(i, j) for j, i in edges]
        arrow: dict[str, Any] = {"arrowstyle": "-|>" if arrows else "-", "node_size": 180}
        for curved, look in ((False, {}), (True, {"connectionstyle": "arc3,rad=0.2", **arrow})):
            some = [edge for edge, is_bent in zip(edges, bent, strict=True) if is_bent == curved]
            lines: Any = nx.draw_networkx_edges(
                nx.DiGraph(edges),
                self.places,
                edgelist=some,
                ax=axes,
                arrows=curved,
                edge_color=EDGE,
                width=[0.15 + wide * apart[i, j] / apart.max() for j, i in some],
                **look,
            )
            if some and not curved:
                lines.set_rasterized(len(some) > PIXELS)

    def _passes_a_node(self, i: int, j: int) -> bool:
        way, others = self.places[j] - self.places[i], self.places - self.places[i]
        along = others @ way / (way @ way)
        off = np.abs(others[:, 0] * way[1] - others[:, 1] * way[0])
        return bool(((along > 1e-6) & (along < 1 - 1e-6) & (off < 1e-6)).any())


def partition_map(
    prepared: Prepared, partition: Spec, members: PartitionIndices, seed: int, trial: int
) -> PartitionMap:
    """Build the drawing of one trial of a partition: counts of examples, noise and headings.

    `prepared` is the data set, `partition` the rule with its parameters, and `members` says which
    examples each client holds. `seed` and `trial` are for the heading.
    """
    classes, made = max(1, len(prepared.classes)), members.population
    counts = (
        made.label_counts(classes)
        if made
        else members.label_counts(labels_of(prepared, "train"), classes)
    )
    whose = f" of the first {len(counts)} clients" if made else ""
    return PartitionMap(
        f"{partition.component.meta['title']}: {prepared.info['title']}",
        f"{partition.token} · training examples{whose} · seed {seed}, trial {trial}",
        counts,
        prepared.classes or ("any",),
        members.noise,
    )


def graph_map(graph: Spec, clients: int, seed: int, trial: int) -> GraphMap:
    """Build the drawing of a graph of `clients` nodes; a random one depends on seed and trial."""
    meta = graph.component.meta
    drawn = f" · seed {seed}, trial {trial}" if meta.get("random") else ""
    return GraphMap(
        f"{'1 node' if clients == 1 else f'{clients} nodes'}: {meta['title']}",
        f"{graph.token[:90]}{drawn}",
        weights_of(graph, clients, RngKey(seed, trial)),
        PLACES[meta.get("layout", "circle")](clients),
    )


def render_map(
    drawn: PartitionMap | GraphMap, suffixes: Sequence[str] = (".svg", ".png")
) -> dict[str, bytes]:
    """Draw a partition or graph; return images as bytes by suffix, equal for equal input."""
    with rules():
        figure = drawn.figure()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axes in figure.axes:  # the solver's last digits are chance, and name parts of an svg
            axes.set_position(np.round(axes.get_position(original=True).bounds, 6))
        return {suffix: image_of(figure, suffix, drawn.title) for suffix in suffixes}


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _titled(title: str, subtitle: str, height: float) -> Figure:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(WIDTH, height), layout="constrained")
    engine: Any = drawn.get_layout_engine()
    engine.set(rect=(0.01, 0.01, 0.98, 1 - 0.48 / height), h_pad=0.02, hspace=0)
    for text, y, size, colour in ((title, 0.15, 9, DARK), (subtitle, 0.35, 7.5, SOFT)):
        look: dict[str, Any] = {"va": "center", "fontsize": size, "color": colour}
        drawn.text(LEFT, 1 - y / height, text, parse_math=False, **look)
    return drawn


def _heat(axes: Axes, shares: np.ndarray, written: np.ndarray | None = None) -> Any:
    """Draw a matrix of shares in [0, 1] on `axes` as coloured cells; return matplotlib's mesh.

    A square-root scale keeps small shares visible; `written` has numbers to write into the cells.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    rows, columns = shares.shape
    few = rows <= FEW and columns <= NAMED
    cells = axes.pcolormesh(
        shares,
        cmap=LinearSegmentedColormap.from_list("shares", SHARES),
        norm=PowerNorm(0.5, vmin=0, vmax=1),
        edgecolors="#E3E3E3" if few else "none",
        linewidth=0.4 if few else 0,
        rasterized=shares.size > PIXELS,
    )
    axes.set_ylim(rows, 0)
    axes.grid(False)
    axes.tick_params(length=0)
    numbers = np.zeros(shares.shape) if written is None else written
    for row, column in np.argwhere(numbers > 0):
        ink = LIGHT if shares[row, column] > 0.3 else DARK
        number = numbers[row, column]
        text = f"{number:.3g}" if numbers.dtype.kind == "f" else f"{number}"
        look: dict[str, Any] = {"color": ink, "fontsize": 7, "ha": "center", "va": "center"}
        axes.text(column + 0.5, row + 0.52, text, **look)
    return cells


def _bars(axes: Axes, values: np.ndarray, colour: str, form: str) -> None:
    """Draw a bar per client, with its number written by `form`, such as "{:.2f}", or not by ""."""
    axes.grid(False, axis="y")
    axes.tick_params("y", left=False, labelleft=False)
    most, edges = float(values.max()) or 1.0, np.arange(values.size + 1)
    axes.set_xlim(0, (1.45 if form else 1.05) * most)
    if not form:  # one outline of all: a bar each would be a large file
        axes.set_xticks([0, 10.0 ** np.floor(np.log10(most))])
        drawn = axes.stairs(values, edges, orientation="horizontal", fill=True, color=colour)
        drawn.set_rasterized(True)
        return
    bars = axes.barh(edges[:-1] + 0.5, values, 0.7, color=colour, linewidth=0)
    axes.bar_label(bars, [form.format(value) for value in values], padding=2, fontsize=7)
    axes.tick_params("x", bottom=False, labelbottom=False)
    axes.spines["bottom"].set_visible(False)
    axes.grid(False)

"""Draw a partition (clients by classes), and a graph of clients (nodes, edges and weights)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.client_assignment_and_skew import distances, skew_of
from fedrepro.data.partitions_populations_and_holdouts import PartitionIndices, labels_of
from fedrepro.data.prepared import Prepared
from fedrepro.drawings import lines_and_layout as layout
from fedrepro.drawings.style import BAR, FAR, NOISE, SHARES
from fedrepro.training import mixing_matrices as mixing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.2  # inches of a client, if the map has room for all
FEW = 40  # up to this many clients have their own row and number
NAMED = 24  # up to this many classes, or nodes, have their names, and nodes two arrows an edge
WRITTEN = 12  # up to this many columns have their numbers in the cells
PIXELS = 700  # more cells, or edges, are drawn as pixels
EDGE, LIGHT, DARK = "#9AA3AF", "white", "#1c1e21"


@dataclass(frozen=True)
class PartitionMap:
    """How a partition divides a data set among clients, in one trial.

    counts: examples by client and class, int64 (J, K). noise: variance of the noise that is added
    to each client's inputs, float (J,), or None.
    """

    title: str
    subtitle: str
    counts: np.ndarray
    classes: Sequence[str]
    noise: np.ndarray | None = None

    @property
    def words(self) -> str:
        """Describe in two sentences how many examples and classes clients hold, and how skewed."""
        of = skew_of(self.counts)
        holders = "1 client holds" if of["clients"] == 1 else f"{of['clients']} clients each hold"
        return (
            f"{holders} {_span(of['size_min'], of['size_max'])} examples (median "
            f"{of['size_median']:g}) of {_span(of['classes_min'], of['classes_max'])} "
            f"{'class' if of['classes_max'] == 1 else 'classes'}. Total variation from the whole: "
            f"mean {of['distance_mean']:.3f}, at most {of['distance_max']:.3f}."
        )

    def order(self) -> np.ndarray:
        """Return clients' indices in the order of rows, (J,): if over 40, sorted by main class."""
        by_class = np.lexsort((-self.counts.sum(axis=1), self.counts.argmax(axis=1)))
        return np.arange(len(by_class)) if len(by_class) <= FEW else by_class

    def figure(self) -> Figure:
        """Draw each client's shares of classes and number of examples; call within `rules()`."""
        order = self.order()
        counts = self.counts[order]
        clients, classes = counts.shape
        columns = [("examples", counts.sum(axis=1), BAR, "{:.0f}")]
        columns.append(("distance from all", distances(counts), FAR, "{:.2f}"))
        if self.noise is not None:
            columns.append(("noise variance", self.noise[order], NOISE, "{:.2g}"))
        body = min(max(ROW * clients, 0.5), 4.6)
        room = body >= 0.14 * clients  # inches, from which numbers are written
        drawn = _titled(self, 1.3 + ROW + body)
        widths = [3.4, *[1.2] * len(columns)]
        grid = drawn.subplots(2, len(widths), width_ratios=widths, height_ratios=[ROW, body])
        (whole, *spare, key), (shares, *bars) = grid
        _heat(whole, counts.sum(axis=0, keepdims=True) / counts.sum())
        whole.set_xticks([])
        whole.set_yticks([0.5], ["all"])
        written = counts if room and classes <= WRITTEN else None
        cells = _heat(shares, counts / counts.sum(axis=1, keepdims=True), written)
        named = np.arange(0, classes, -(-classes // NAMED))
        names = [n if n.strip() and n.isprintable() else repr(n) for n in self.classes]
        turn = 90 if max(map(len, names)) > 3 else 0
        shares.set_xticks(named + 0.5, [names[at] for at in named], parse_math=False, rotation=turn)
        rows = np.arange(clients if clients <= FEW else 0)
        shares.set_yticks(rows + 0.5, rows.astype(str))
        label = "client" if clients <= FEW else f"{clients} clients, by main class"
        shares.set(xlabel="class", ylabel=label)
        for axes, (name, values, colour, form) in zip(bars, columns, strict=True):
            axes.set_title(name, loc="left", fontsize=7.5)
            _bars(axes, values, colour, form if room else "")
        for axes in spare:
            axes.set_axis_off()
        shown: dict[str, Any] = {"ticks": [0, 0.05, 0.2, 0.5, 1], "format": layout.percents}
        drawn.colorbar(cells, key, orientation="horizontal", **shown)
        key.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0, pad=1)
        words = {"s": "% of a client's examples", "ha": "right", "va": "center", "fontsize": 7}
        key.text(-0.05, 0.5, in_layout=False, **words)
        return drawn


@dataclass(frozen=True)
class GraphMap:
    """A communication graph, whose nodes are clients.

    weights: float64 (N, N); row i has the weights by which node i averages what it receives.
    places: float64 (N, 2), positions of the nodes in the unit square.
    """

    title: str
    subtitle: str
    weights: np.ndarray
    places: np.ndarray

    @property
    def words(self) -> str:
        """Return sentences on edges, nodes' weights in the final average, and averaging speed."""
        weights, limit = self.weights, mixing.stationary(self.weights)
        edges = int((weights > 0).sum() - (np.diag(weights) > 0).sum())
        speeds = mixing.second_modulus(weights), mixing.mixing_sum(weights)
        second, total = (f"{x:.4g}" if x > 1e-9 else "0" for x in speeds)  # below is rounding
        least, most = (float(f"{end:.3g}") for end in (limit.min(), limit.max()))
        said = f"{edges} directed edges; in the long run each of {len(weights)} nodes counts"
        return f"{said} {_span(least, most)}. Second modulus {second}, S_W {total}."

    def figure(self) -> Figure:
        """Draw edges as wide as their weights, and the weight matrix; call within `rules()`."""
        count = len(self.weights)
        drawn = _titled(self, 3.4)
        nodes, matrix = drawn.subplots(1, 2)
        self._draw_edges(nodes)
        net, limit = nx.empty_graph(count), mixing.stationary(self.weights)
        sizes = min(260.0, 2600.0 / count) * (0.6 + 0.4 * limit / limit.max())
        look: dict[str, Any] = {"node_color": BAR, "edgecolors": LIGHT, "ax": nodes}
        nx.draw_networkx_nodes(net, self.places, node_size=sizes, **look)
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
        """Draw the edges: in a small graph two bent arrows for each, else a line."""
        apart = self.weights - np.diag(np.diag(self.weights))
        few = len(apart) <= NAMED
        if not few:
            apart = np.triu(np.maximum(apart, apart.T))
        # W_ij is what i makes of what j says, so messages go from j to i
        edges = [(int(j), int(i)) for i, j in np.argwhere(apart > 0)]
        wide = min(2.2, 60 / max(1, len(edges)))
        widths = [0.15 + wide * apart[i, j] / apart.max() for j, i in edges]
        look: dict[str, Any] = {"width": widths, "edge_color": EDGE, "arrows": few, "ax": axes}
        if few:  # a bent arrow goes around nodes that lie between its ends
            look |= {"arrowstyle": "-|>", "node_size": 180, "connectionstyle": "arc3,rad=0.2"}
        look["edgelist"] = edges  # in the order of `widths`
        lines: Any = nx.draw_networkx_edges(nx.DiGraph(edges), self.places, **look)
        if edges and not few:
            lines.set_rasterized(len(edges) > PIXELS)


def partition_map(
    prepared: Prepared, partition: Spec, members: PartitionIndices, seed: int, trial: int
) -> PartitionMap:
    """Map `members`, each client's rows of data `prepared`; other arguments are for titles."""
    counts = members.label_counts(labels_of(prepared, "train"), max(1, len(prepared.classes)))
    return PartitionMap(
        f"{partition.component.meta['title']}: {prepared.info['title']}",
        f"{partition.token} · training examples · seed {seed}, trial {trial}",
        counts,
        prepared.classes or ("any",),
        members.noise,
    )


def graph_map(graph: Spec, clients: int, seed: int, trial: int) -> GraphMap:
    """Build the map of a graph of `clients` nodes; a random graph depends on `seed` and `trial`."""
    meta = graph.component.meta
    drawn = f" · seed {seed}, trial {trial}" if meta.get("random") else ""
    return GraphMap(
        f"{'1 node' if clients == 1 else f'{clients} nodes'}: {meta['title']}",
        f"{graph.token[:90]}{drawn}",
        mixing.weights_of(graph, clients, RngKey(seed, trial)),
        mixing.PLACES[meta.get("layout", "circle")](clients),
    )


def render_map(drawn: PartitionMap | GraphMap, suffix: str) -> bytes:
    """Draw a partition or graph as .svg or .png; return its bytes, equal for equal input."""
    with layout.rules():
        figure = drawn.figure()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axes in figure.axes:  # the solver's last digits are chance, and name parts of an svg
            axes.set_position(np.round(axes.get_position(original=True).bounds, 6))
        return layout.image_of(figure, suffix, drawn.title)


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _titled(shown: PartitionMap | GraphMap, height: float) -> Figure:
    drawn, room = layout.new_figure(height), (0.01, 0.01, 0.98, 1 - 0.48 / height)
    drawn.set_layout_engine("constrained", rect=room, h_pad=0.02, hspace=0)
    layout.write_headings(drawn, shown.title, shown.subtitle)
    return drawn


def _heat(axes: Axes, shares: np.ndarray, written: np.ndarray | None = None) -> Any:
    """Draw shares in [0, 1] as coloured cells, with numbers `written`; return matplotlib's mesh."""
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
    for (row, column), number in np.ndenumerate(() if written is None else written):
        if number > 0:
            text = f"{number:.3g}" if isinstance(number, float) else f"{number}"
            colour = LIGHT if shares[row, column] > 0.3 else DARK
            axes.text(column + 0.5, row + 0.52, text, fontsize=7, color=colour, **layout.CENTRED)
    return cells


def _bars(axes: Axes, values: np.ndarray, colour: str, form: str) -> None:
    """Draw a bar per client, and its value as text in the format `form`, unless that is ""."""
    axes.grid(False, axis="y")
    axes.set_yticks([])
    most, edges = float(values.max()) or 1.0, np.arange(values.size + 1)
    axes.set_ylim(values.size, 0)
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

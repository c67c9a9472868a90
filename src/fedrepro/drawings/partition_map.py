"""A partition as a picture: who holds how much of which class.

A map of clients × classes, dark where a class is most of what a client holds, with the classes of
all clients together above it; beside it each client's size and its distance from the whole, and
the noise on its inputs if there is any. With few clients the map has the counts written in it;
with many, clients are put in an order that shows what they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.data.membership import Membership, labels_of
from fedrepro.data.skew import Skew, distances, skew_of
from fedrepro.drawings.canvas import image_of, rules
from fedrepro.drawings.style import BAR, FAR, NOISE, SHARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.figure import Figure

    from fedrepro.core.spec import Spec
    from fedrepro.data.prepared import Prepared

WIDTH = 7.0  # inches, as all figures
ROW = 0.2  # height of a client while there is room for it
MOST_HEIGHT = 4.6  # of the map
HEAD, FOOT = 0.88, 0.42  # above the map (title and the whole) and below it (classes)
SLANTED, UPRIGHT = 0.3, 0.45  # what long names and many classes add below it
READABLE = 0.14  # height of a client from which numbers are written
ROWS_APART = 40  # up to so many clients are told apart one by one, in their own order
CELLS_NAMED = 12  # up to so many classes have their counts written in the map
CELLS_DRAWN = 700  # more cells are drawn as pixels
NAMES_SHOWN = 24  # classes
UNLIKE = 0.25  # mean distance from which many clients are ordered by class instead of by size
TICKS = (0.0, 0.05, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class PartitionMap:
    """What is drawn of one trial. counts: int64 (J, K). noise: float64 (J,) or None."""

    title: str
    subtitle: str
    counts: np.ndarray
    classes: Sequence[str]
    noise: np.ndarray | None = None

    @property
    def skew(self) -> Skew:
        return skew_of(self.counts)

    @property
    def alt(self) -> str:
        """What the picture shows, for those who do not see it."""
        return f"{self.title}. Map of clients and classes. {words(self.skew)}"


@dataclass(frozen=True)
class Column:
    """A number per client beside the map: float64 (J,). most: the end of its axis, if fixed."""

    name: str
    values: np.ndarray
    colour: str
    form: str
    most: float | None = None

    @property
    def end(self) -> float:
        return self.most or float(self.values.max()) or 1.0


def map_of(
    prepared: Prepared, partition: Spec, members: Membership, seed: int, trial: int
) -> PartitionMap:
    """What is drawn of one trial of a partition of a data set."""
    classes, made = max(1, len(prepared.classes)), members.population
    if made:
        counts = made.label_counts(classes)
        whose = f" of the first {len(counts)} clients"
    else:
        counts, whose = members.label_counts(labels_of(prepared, "train"), classes), ""
    return PartitionMap(
        title=f"{partition.component.meta['title']}: {prepared.info['title']}",
        subtitle=f"{partition.token} · training examples{whose} · seed {seed}, trial {trial}",
        counts=counts,
        classes=prepared.classes or ("any",),
        noise=members.noise,
    )


def render(partition: PartitionMap, suffixes: Sequence[str] = (".svg", ".png")) -> dict[str, bytes]:
    """The drawing by suffix; the same bytes for the same partition."""
    with rules():
        drawn = figure(partition)
        return {suffix: image_of(drawn, suffix, partition.title) for suffix in suffixes}


def words(skew: Skew) -> str:
    """The skew in a sentence or two."""
    holders = "1 client holds" if skew.clients == 1 else f"{skew.clients} clients each hold"
    classes = "class" if skew.classes_max == 1 else "classes"
    return (
        f"{holders} {_span(skew.size_min, skew.size_max)} examples "
        f"(median {skew.size_median:g}) of {_span(skew.classes_min, skew.classes_max)} {classes}. "
        f"Total variation from the whole: mean {skew.distance_mean:.3f}, "
        f"at most {skew.distance_max:.3f}."
    )


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def client_order(counts: np.ndarray) -> tuple[np.ndarray, str]:
    """Clients from top to bottom, int64 (J,), and in a word what orders them.

    A few stand in their own order. Many are ordered by the class they hold most of, the purest
    first, or by size where their labels are much alike.
    """
    if len(counts) <= ROWS_APART:
        return np.arange(len(counts)), ""
    sizes = counts.sum(axis=1)
    if distances(counts).mean() < UNLIKE:
        return np.argsort(-sizes, kind="stable"), "by size"
    purity = counts.max(axis=1) / sizes
    return np.lexsort((-purity, counts.argmax(axis=1))), "by main class"


def figure(partition: PartitionMap) -> Figure:
    """The drawing; call it within `rules()`."""
    from matplotlib.figure import Figure

    order, ordered = client_order(partition.counts)
    counts = partition.counts[order]
    body = min(max(ROW * len(counts), 0.5), MOST_HEIGHT)
    written = body / len(counts) >= READABLE
    foot = FOOT + {0: 0.0, 30: SLANTED, 90: UPRIGHT}[_slant(partition.classes)]
    height = HEAD + body + foot
    drawn = Figure(figsize=(WIDTH, height))
    ratios = [4.0, 1.2, 1.2] if partition.noise is None else [3.1, 1.2, 1.2, 1.2]
    grid = drawn.add_gridspec(
        2,
        len(ratios),
        width_ratios=ratios,
        height_ratios=[ROW, body],
        left=0.085,
        right=0.965,
        bottom=foot / height,
        top=1 - (HEAD - ROW - 0.06) / height,
        wspace=0.12,
        hspace=2 * 0.06 / (body + ROW),
    )
    shares = drawn.add_subplot(grid[1, 0])
    whole = drawn.add_subplot(grid[0, 0], sharex=shares)
    _draw_map(shares, counts, partition.classes)
    if written and len(partition.classes) <= CELLS_NAMED:
        _write_counts(shares, counts)
    _draw_whole(whole, counts)
    _clients_axis(shares, len(counts), ordered)
    columns = [
        Column("examples", counts.sum(axis=1).astype(float), BAR, "{:.0f}"),
        Column("distance from all", distances(counts), FAR, "{:.2f}", most=1.0),
    ]
    if partition.noise is not None:
        columns.append(Column("noise variance", partition.noise[order], NOISE, "{:.2g}"))
    for at, column in enumerate(columns, start=1):
        draw = _draw_bars if written else _draw_profile
        draw(drawn.add_subplot(grid[1, at], sharey=shares), column)
    _key(drawn, height)
    drawn.text(0.012, 1 - 0.15 / height, partition.title, fontsize=9, va="center", parse_math=False)
    drawn.text(
        0.012, 1 - 0.33 / height, partition.subtitle, va="center", color="#444444", parse_math=False
    )
    return drawn


def _colours() -> tuple[LinearSegmentedColormap, PowerNorm]:
    """The square root of the share decides, so that a tenth is told from nothing."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    return LinearSegmentedColormap.from_list("shares", SHARES), PowerNorm(0.5, vmin=0, vmax=1)


def _cells(axes: Axes, shares: np.ndarray) -> None:
    colours, norm = _colours()
    rows, classes = shares.shape
    few = rows <= ROWS_APART and classes <= NAMES_SHOWN
    axes.pcolormesh(
        np.arange(classes + 1),
        np.arange(rows + 1),
        shares,
        cmap=colours,
        norm=norm,
        edgecolors="#E3E3E3" if few else "none",
        linewidth=0.4 if few else 0,
        rasterized=rows * classes > CELLS_DRAWN,
    )
    axes.grid(False)
    axes.tick_params(length=0)


def _draw_map(axes: Axes, counts: np.ndarray, names: Sequence[str]) -> None:
    rows, classes = counts.shape
    shares = counts / counts.sum(axis=1, keepdims=True)
    _cells(axes, shares)
    axes.set_ylim(rows, 0)
    step = max(1, -(-classes // NAMES_SHOWN))
    shown = range(0, classes, step)
    texts = [_visible(names[label]) for label in shown]
    slant = _slant(names)
    axes.set_xticks([label + 0.5 for label in shown], texts, rotation=slant, parse_math=False)
    if slant == 30:
        for text in axes.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")
    axes.set_xlabel("class")


def _visible(name: str) -> str:
    """A class's name, where it is a blank or a line break as Python writes it."""
    return name if name.strip() and name.isprintable() else repr(name)


def _slant(names: Sequence[str]) -> int:
    """How far names of classes are turned, in degrees, so that they do not overlap."""
    if max(map(len, names)) <= 3:
        return 0
    return 30 if len(names) <= CELLS_NAMED else 90


def _write_counts(axes: Axes, counts: np.ndarray) -> None:
    shares = counts / counts.sum(axis=1, keepdims=True)
    for row, label in np.argwhere(counts > 0):
        ink = "white" if shares[row, label] > 0.3 else "#1c1e21"
        text = axes.text(label + 0.5, row + 0.52, str(counts[row, label]), color=ink, fontsize=7)
        text.set(ha="center", va="center")


def _draw_whole(axes: Axes, counts: np.ndarray) -> None:
    _cells(axes, counts.sum(axis=0, keepdims=True) / counts.sum())
    axes.set_yticks([0.5], ["all"])
    axes.tick_params("x", labelbottom=False)


def _clients_axis(axes: Axes, clients: int, ordered: str) -> None:
    """Every client has its number, or, where they were put in order, their count is given."""
    if ordered:
        axes.set_yticks([])
        axes.set_ylabel(f"{clients} clients, {ordered}")
    else:
        axes.set_yticks(np.arange(clients) + 0.5, [str(client) for client in range(clients)])
        axes.set_ylabel("client")


def _draw_bars(axes: Axes, column: Column) -> None:
    """A bar and its number for every client, on the rows of the map."""
    _column_axes(axes, column)
    rows = np.arange(column.values.size) + 0.5
    axes.barh(rows, column.values, height=0.7, color=column.colour, linewidth=0)
    for row, value in zip(rows, column.values, strict=True):
        text = axes.annotate(
            column.form.format(value), (value, row + 0.02), (2, 0), textcoords="offset points"
        )
        text.set(va="center", fontsize=7)
    axes.set_xlim(0, 1.4 * column.end)
    axes.tick_params("x", bottom=False, labelbottom=False)
    axes.spines["bottom"].set_visible(False)
    axes.grid(False)


def _draw_profile(axes: Axes, column: Column) -> None:
    """One outline over all clients, where there is no room for a bar each."""
    from matplotlib.ticker import MaxNLocator

    _column_axes(axes, column)
    edges = np.arange(column.values.size + 1)
    axes.stairs(column.values, edges, orientation="horizontal", fill=True, color=column.colour)
    axes.set_xlim(0, 1.05 * column.end)
    ticks = MaxNLocator(2, steps=[1, 2, 5, 10]).tick_values(0, column.end)
    axes.set_xticks([tick for tick in ticks if 0 <= tick <= 1.05 * column.end])


def _column_axes(axes: Axes, column: Column) -> None:
    axes.set_title(column.name, loc="left", fontsize=7.5)
    axes.grid(False, axis="y")
    axes.tick_params("y", left=False, labelleft=False)


def _key(drawn: Figure, height: float) -> None:
    """What the colours mean, at the top right."""
    from matplotlib.cm import ScalarMappable

    colours, norm = _colours()
    axes = drawn.add_axes((0.735, 1 - 0.24 / height, 0.23, 0.08 / height))
    bar = drawn.colorbar(ScalarMappable(norm, colours), cax=axes, orientation="horizontal")
    bar.set_ticks(list(TICKS), labels=[f"{100 * tick:g}" for tick in TICKS])
    bar.outline.set_linewidth(0.4)
    axes.tick_params(length=0, pad=1)
    drawn.text(
        0.728, 1 - 0.2 / height, "% of the client's examples", ha="right", va="center", fontsize=7
    )

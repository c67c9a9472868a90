"""Draw what all figures share: lines from numbers, axes, headings, legends and image files.

Only matplotlib's objects are used, with its own defaults and `style.RULES`, so that neither a
user's matplotlibrc nor a display changes a figure.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.drawings.style import RULES, TEXT, LineStyle, text_width, trials_text
from fedrepro.planning.figure_interface import CASE, Drawing, final, select_series
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from fedrepro.planning.exhibit import Exhibit


WIDTH = 7.0  # inches; the text width of a paper
LEGEND_ROW = 0.15  # inches that each row of the legend takes
LEGEND_COLUMNS = 5
LEGEND_HANDLE = 43.5  # points, of a line and its margins next to a label
PNG_DPI = 200
CONTROL = 0.05  # a bound that falls no further below the rivals than this is in the close-up too
COLLAPSE = 0.15  # a method that falls this far below the best one does not set the close-up's range
SOFT = "#444444"
FEW = 2  # methods whose trials a heading names
LETTERS = "abcdefgh"  # of panels
LEFT = 0.012  # where headings begin, as a share of the width
SYMBOLS = {
    "sigma2": "σ²",
    "sigma02": "σ₀²",
    "gamma0": "γ₀",
    "clients": "clients J",
    "hidden": "hidden units",
    "popularity": "factor on popularity",
    "class_weights": "class weights",
    "count_cap": "cap on counts",
    "epsilon": "ε",
    "epsilon_first": "ε of the first client",
    "examples": "public images",
}


@dataclass(frozen=True)
class Line:
    """One line of a figure: at each `x` a mean, and its sd over trials (0 for a single trial)."""

    x: list[float]
    mean: list[float]
    sd: list[float]

    @property
    def low(self) -> list[float]:
        return [m - s for m, s in zip(self.mean, self.sd, strict=True)]

    @property
    def high(self) -> list[float]:
        return [m + s for m, s in zip(self.mean, self.sd, strict=True)]


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a figure: the parameter `key` along it, its label and symbol."""

    key: str
    label: str
    symbol: str
    depth: bool = False  # a list of widths stands for its length

    def positions(self, column: pd.Series) -> list[float]:
        """Return the position on the axis of each parameter value in `column`.

        A number is its own position; a list of layer widths (50@50) is at its number of layers.
        """
        if self.depth:
            return [float(str(value).count("@") + 1) for value in column]
        return [float(value) for value in column]


# ------------------------------------------------------------------------------------- numbers


def axis_of(exhibit: Exhibit) -> Axis:
    """Return the horizontal axis of a figure: the swept parameter that varies, else the first."""
    values = {key: distinct for key, distinct in swept_values(exhibit).items() if key != CASE}
    key = next((key for key, distinct in values.items() if len(distinct) > 1), next(iter(values)))
    if key == "hidden":
        deep = len({str(text).count("@") for text in values[key]}) > 1
        return Axis(key, "hidden layers C" if deep else "hidden units", "C", deep)
    return Axis(key, parameter_title(key), "J" if key == "clients" else key)


def swept_values(exhibit: Exhibit) -> dict[str, list[Any]]:
    """Return {swept parameter of a figure or table: its distinct values}."""
    return {
        key: list(dict.fromkeys(point.values[key] for point in exhibit.points))
        for key in exhibit.swept
    }


def parameter_title(key: str) -> str:
    """Return how figures write the name of the parameter `key`, such as σ² for sigma2."""
    return SYMBOLS.get(key, key.replace("_", " "))


def cases(numbers: pd.DataFrame) -> list[str]:
    """Return the labels of the scenarios in a figure's csv, such as data sets; [] if it has one."""
    return list(dict.fromkeys(numbers[CASE])) if CASE in numbers else []


def of_case(numbers: pd.DataFrame, case: str) -> pd.DataFrame:
    return numbers[numbers[CASE] == case]


def lines(exhibit: Exhibit, numbers: pd.DataFrame, metric: str, split: str) -> dict[str, Line]:
    """Return {label of a method: its line in a figure}, of a metric on a split, such as test.

    Values are from the end of runs; `numbers` is the csv. Methods without `metric` are left out.
    """
    axis = axis_of(exhibit)
    rows = select_series(final(numbers), metric, split)
    by_label: dict[str, Line] = {}
    for measure in exhibit.measures:
        method_rows = rows[rows["method"] == measure.label]
        if len(method_rows):
            by_label[measure.label] = line_of(method_rows, axis.positions(method_rows[axis.key]))
    return by_label


def size_lines(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, Line]:
    """Return {label of a method: its line of model size, in the figure's unit} from the csv."""
    size = exhibit.size
    scaled = numbers.assign(mean=numbers["mean"] * size.factor, sd=numbers["sd"] * size.factor)
    return lines(exhibit, scaled, size.metric, "")


def line_of(rows: pd.DataFrame, x: list[float]) -> Line:
    return Line(x, rows["mean"].tolist(), rows["sd"].fillna(0.0).astype(float).tolist())


def close_up(exhibit: Exhibit, accuracy: Mapping[str, Line]) -> tuple[float, float]:
    """Return the vertical range, (low, high), of a close-up of the best methods' accuracies.

    `accuracy` has lines by method label. References, such as pooled training, are in it if they are
    near; a method far below the best one does not widen it. A single line is shown with its whole
    band.
    """
    known = {k: line for k, line in accuracy.items() if all(map(math.isfinite, line.mean))}
    if len(known) < 2:
        ends = [end for line in known.values() for end in (*line.low, *line.high)]
        return rounded(min(ends), max(ends)) if ends else (0.0, 1.0)
    bounds = {measure.label for measure in exhibit.measures if measure.reference}
    rivals = [line.mean for label, line in known.items() if label not in bounds]
    rivals = rivals or [line.mean for line in known.values()]
    best = [max(values) for values in zip(*rivals, strict=True)]
    good = [x for x in rivals if all(b - m <= COLLAPSE for b, m in zip(best, x, strict=True))]
    low = min(map(min, good or rivals))
    controls = [min(line.mean) for label, line in known.items() if label in bounds]
    low = min([low, *(least for least in controls if least >= low - CONTROL)])
    return rounded(low, max(max(line.mean) for line in known.values()))


def rounded(low: float, high: float) -> tuple[float, float]:
    """Return a range of shares in [0, 1], (low, high), widened a little to round numbers."""
    room = max(0.05 * (high - low), 0.002)
    low, high = low - room, high + room
    step = 0.05 if high - low > 0.3 else 0.01 if high - low > 0.03 else 0.005
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return max(0.0, low), min(1.0, high)


# ------------------------------------------------------------------------------------- drawing


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty matplotlib figure of this height and width in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def grid_of(
    drawn: Figure,
    rows: int,
    columns: int,
    *,
    left: float,
    right: float,
    top: float,
    bottom: float,
    across: float = 0.5,
    between: float = 0.5,
) -> list[list[Axes]]:
    """Add axes in rows and columns to the figure `drawn`; return them as [row][column].

    Lengths are in inches: margins, and the gaps between columns (`across`) and rows (`between`).
    """
    width, height = drawn.get_figwidth(), drawn.get_figheight()
    wide = (width - left - right - across * (columns - 1)) / columns
    high = (height - top - bottom - between * (rows - 1)) / rows

    def place(row: int, column: int) -> Axes:
        x, y = left + column * (wide + across), bottom + (rows - 1 - row) * (high + between)
        return drawn.add_axes((x / width, y / height, wide / width, high / height))

    return [[place(row, column) for column in range(columns)] for row in range(rows)]


def headings(drawn: Figure, exhibit: Exhibit) -> None:
    """Write a figure's title at the top, and below it its data sets and numbers of trials."""
    write_headings(drawn, exhibit.settings.title, subtitle(exhibit))


def write_headings(drawn: Figure, title: str, below: str) -> None:
    """Write `title` at the top of a figure, and the smaller line `below` under it."""
    height = drawn.get_figheight()
    drawn.text(LEFT, 1 - 0.15 / height, title, fontsize=9, va="center")
    drawn.text(LEFT, 1 - 0.32 / height, below, va="center", color=SOFT)


def subtitle(exhibit: Exhibit) -> str:
    """Return a figure's second heading: data sets, constant parameters, and numbers of trials.

    Methods that do not have the usual number of trials are listed with their own.
    """
    counts: dict[str, tuple[int, ...]] = {}
    for measure in exhibit.measures:
        known = {point.trials.get(measure.label) for point in exhibit.points} - {None}
        counts[measure.label] = tuple(sorted(count for count in known if count is not None))
    usual = max(counts.values(), key=list(counts.values()).count)
    lone = {key: values[0] for key, values in swept_values(exhibit).items() if len(values) == 1}
    fixed = [
        str(v) if k == CASE else f"{'J' if k == 'clients' else parameter_title(k)} = {v}"
        for k, v in lone.items()
    ]
    others = {label: trials for label, trials in counts.items() if trials != usual}
    each = [f"{label}: {trials_text(*trials)}" for label, trials in others.items()]
    if len(each) > FEW:  # more than a line holds; the csv has every number
        each = [f"others: {trials_text(*sorted(set().union(*others.values())))}"]
    return " · ".join([data_title(exhibit), *fixed, trials_text(*usual), *each])


def data_title(exhibit: Exhibit) -> str:
    """Return the titles of a figure's data sets, joined by commas, or "Simulation" without data."""
    titles = [p.scenario.dataset.component.meta["title"] for p in exhibit.points if p.scenario]
    return ", ".join(dict.fromkeys(titles)) or "Simulation"


def draw_lines(
    axes: Axes,
    lines: Mapping[str, Line],
    look: Mapping[str, LineStyle],
    banded: Collection[str],
    markers: int = 0,
) -> None:
    """Draw a figure's lines on `axes`, some with bands of one standard deviation.

    `lines` are by label of their method, `look` has colour, marker and dash by label, and `banded`
    the labels of lines with a band. `markers` is the most markers on a line; 0 draws one at each
    value.
    """
    for label, line in lines.items():
        style = look[label]
        if label in banded and any(line.sd):
            band: dict[str, Any] = {"color": style.colour, "alpha": 0.13 if style.marker else 0.07}
            axes.fill_between(line.x, line.low, line.high, linewidth=0, zorder=1, **band)
        every = math.ceil(len(line.x) / markers) if markers else None
        axes.plot(line.x, line.mean, label=label, markevery=every, **style.line)


def halo() -> list[Any]:
    """Return the matplotlib effect that outlines letters in white, to be readable on lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2, foreground="white")]


def percent(axes: Axes) -> None:
    """Label the vertical axis in percent; its values are shares from 0 to 1, such as accuracies."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g}"))


def shade_close_up(axes: Axes, low: float, high: float, name: str = "b") -> None:
    """Shade on `axes` the range that a close-up shows, from `low` to `high`.

    `axes` are those of the whole range. `name` is the letter of the close-up's panel, at the right.
    """
    axes.axhspan(low, high, color="#000000", alpha=0.06, linewidth=0, zorder=0)
    look: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "color": SOFT}
    axes.text(1.015, (low + high) / 2, name, **look)


def set_x_axis(axes: Axes, exhibit: Exhibit, numbers: pd.DataFrame, label: str = "") -> None:
    """Name the horizontal axis `label`, or else as the swept parameter, and mark up to 8 values."""
    axis = axis_of(exhibit)
    values = sorted(set(axis.positions(numbers[axis.key])))
    if len(values) <= 8:
        axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xlabel(label or axis.label)


def legend_rows(labels: Sequence[str], least: int = 2) -> int:
    """Return in how many rows, `least` or more, a legend of `labels` fits the figure's width."""
    widths = [LEGEND_HANDLE + text_width(label, TEXT["legend.fontsize"]) for label in labels]
    for most in range(LEGEND_COLUMNS, 1, -1):
        rows = max(least, math.ceil(len(labels) / most))
        # filled column by column, the first ones with one more where they do not come out even
        parts = np.array_split(widths, math.ceil(len(labels) / rows))
        if sum(part.max(initial=LEGEND_HANDLE) for part in parts) <= 72 * WIDTH:
            return rows
    return max(2, len(labels))


def names_of(exhibit: Exhibit) -> dict[str, str]:
    """Return {method label: its name in a legend}; "(paired)" marks a method with fewer trials."""
    names = {measure.label: measure.label for measure in exhibit.measures}
    return names | {label: pair.name for label, pair in exhibit.pairs.items()}


def handles_of(
    look: Mapping[str, LineStyle], names: Mapping[str, str] | None = None
) -> list[Line2D]:
    """Return legend entries, one per style in `look`, named by its label or by `names[label]`."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], label=(names or {}).get(label, label), **style.line)
        for label, style in look.items()
    ]


def sheet(
    exhibit: Exhibit,
    look: Mapping[str, LineStyle],
    height: float,
    rows: int,
    columns: int,
    *,
    foot: float = 0.08,
    bottom: float = 0.95,
    **sides: float,
) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure with headings, axes in rows and columns, and a legend of all methods.

    Args:
        exhibit: the figure to draw, with its title and methods.
        look: colour, marker and dash of each method by label.
        height: inches, for a legend of two rows; a larger legend adds to it.
        rows: rows of axes.
        columns: columns of axes.
        foot: inches from the lower edge to the legend.
        bottom: inches below the axes, for a legend of two rows.
        sides: further lengths for `grid_of`, in inches.

    Returns:
        The figure, and its axes by row and column.
    """
    names = names_of(exhibit)
    legend_lines = legend_rows(list(names.values()))
    added = LEGEND_ROW * (legend_lines - 2)
    drawn = new_figure(height + added)
    legend(drawn, handles_of(look, names), foot, legend_lines)
    headings(drawn, exhibit)
    return drawn, grid_of(drawn, rows, columns, bottom=bottom + added, **sides)


def legend(drawn: Figure, handles: Sequence[Line2D], bottom: float, rows: int) -> None:
    """Draw a legend of `handles` in `rows` rows, `bottom` inches above a figure's lower edge."""
    drawn.legend(
        handles=list(handles),
        loc="lower center",
        bbox_to_anchor=(0.5, bottom / drawn.get_figheight()),
        ncols=math.ceil(len(handles) / rows),
        handlelength=3.4,
        columnspacing=1.6,
        labelspacing=0.4,
    )


# -------------------------------------------------------------------------------------- images


def image_of(drawn: Figure, suffix: str, title: str) -> bytes:
    """Return a figure as .svg or .png bytes without a date: equal figures have equal bytes."""
    plain = {".svg": {"Date": None, "Creator": None, "Title": title}, ".png": {"Software": None}}
    image = io.BytesIO()
    drawn.savefig(image, format=suffix[1:], dpi=PNG_DPI, metadata=plain[suffix])
    return image.getvalue()


@contextmanager
def rules() -> Iterator[None]:
    """Set matplotlib to fedrepro's style within this context, whatever a user's settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RULES)
        yield


class Figured(Drawing):
    """Base class of drawings that show the results of methods as a figure and not as a table."""

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        """Draw the results of `exhibit` and return the matplotlib figure; call within `rules()`.

        `numbers` is the csv, in which `as_shown` has put the means and sds that figures show.
        """
        raise NotImplementedError

    def files(
        self, exhibit: Exhibit, about: Mapping[str, Any], numbers: pd.DataFrame
    ) -> dict[str, bytes]:
        return render(exhibit, numbers)


def render(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, bytes]:
    """Draw a figure from its csv `numbers`; return {suffix, .svg or .png: image as bytes}."""
    title = f"{exhibit.settings.title}: {data_title(exhibit)}"
    with rules():
        drawn = figure(exhibit, numbers)
        return {suffix: image_of(drawn, suffix, title) for suffix in (".svg", ".png")}


def figure(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """Draw `exhibit`, a figure and not a table, from its csv `numbers`; call within `rules()`."""
    from fedrepro.numbers.trial_statistics import as_shown

    kind = exhibit.settings.drawing
    assert isinstance(kind, Figured)
    return kind.draw(exhibit, as_shown(numbers))

"""Draw what all figures share: lines from numbers, axes, headings, legends and image files.

Figures are made from matplotlib's classes, without pyplot, with the library's own defaults and
`style.RULES`, so that neither a user's matplotlibrc nor a display changes a figure.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrepro.drawings.style import RULES, LineStyle, line_styles, trials_text
from fedrepro.planning.drawing_base import CASE, About, Drawing, Planned, final, select_series
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.0  # inches; the text width of a paper
LEGEND_ROW = 0.15  # inches that each row of the legend takes
LEGEND_HANDLE = 43.5  # points, of a line and its margins next to a label
LETTER = 4.1  # points, of a label's mean letter
PNG_DPI = 200
SOFT = "#444444"
LETTERS = "abcdefgh"  # of panels
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}  # of texts
LEFT = 0.012  # where headings begin, as a share of the width
GREEK = {"sigma2": "σ²", "sigma02": "σ₀²", "gamma0": "γ₀", "epsilon": "ε"}
SYMBOLS = GREEK | {
    "clients": "clients J",
    "hidden": "hidden units",
    "popularity": "factor on popularity",
    "count_cap": "cap on counts",
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
    def band(self) -> tuple[list[float], list[float]]:
        """Return (lower ends, upper ends) of a band of one sd around the mean, for each `x`."""
        return np.subtract(self.mean, self.sd).tolist(), np.add(self.mean, self.sd).tolist()


def axis_of(exhibit: Exhibit) -> tuple[str, str, str]:
    """Return (key, label, symbol) of a figure's x axis, such as ("hidden", "hidden units", "C").

    It is the first swept parameter that varies, or the first if none does. If lists of layer widths
    differ in length, the axis is the number of layers.
    """
    shown = planned(exhibit)
    key = (shown.varied or shown.axis)[0]
    if key == "hidden":
        deep = len({str(text).count("@") for text in shown.values(key)}) > 1
        return key, "hidden layers C" if deep else "hidden units", "C"
    return key, parameter_title(key), "J" if key == "clients" else key


def planned(exhibit: Exhibit) -> Planned:
    return Planned(exhibit.measures, [point.values for point in exhibit.points])


def positions(column: pd.Series) -> pd.Series:
    """Turn a csv `column` of a parameter's values into positions on an axis, float64.

    Numbers stay. If any value lists widths of several layers, as 50@50, all become layer counts.
    """
    layers = column.astype(str).str.count("@") + 1
    return (layers if layers.max() > 1 else column).astype(float)


def parameter_title(key: str) -> str:
    """Return how figures write the name of the parameter `key`, such as σ² for sigma2."""
    return SYMBOLS.get(key, key.replace("_", " "))


def by_case(numbers: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split csv rows by scenario, such as data sets: {its label: rows}, or {"": all} if none."""
    if CASE not in numbers:
        return {"": numbers}
    return {str(case): rows for case, rows in numbers.groupby(CASE, sort=False)}


def lines(exhibit: Exhibit, numbers: pd.DataFrame, metric: str, split: str) -> dict[str, Line]:
    """Return {method's label: line of final values of `metric` on `split` in csv `numbers`}."""
    rows = select_series(final(numbers), metric, split)
    rows = rows.assign(x=positions(rows[axis_of(exhibit)[0]]))
    return lines_of(exhibit, rows.sort_values("x", kind="stable"))


def lines_of(exhibit: Exhibit, rows: pd.DataFrame) -> dict[str, Line]:
    """Return {method's label: its line} from csv `rows` of one metric, with x positions as `x`."""
    groups = {str(label): line_of(own) for label, own in rows.groupby("method")}
    return {m.label: groups[m.label] for m in exhibit.measures if m.label in groups}


def line_of(rows: pd.DataFrame) -> Line:
    columns = rows["x"], rows["mean"], rows["sd"].fillna(0.0)
    return Line(*(column.astype(float).tolist() for column in columns))


def close_up(
    exhibit: Exhibit, accuracy: Mapping[str, Line], *, at_end: bool = False
) -> tuple[float, float]:
    """Return the vertical range, (low, high), of a close-up of the best methods' accuracies.

    A method that is anywhere over 0.15 below the best one does not widen the range. If `at_end`,
    only last accuracies count, and 0.2 replaces 0.15. A bound, such as pooled training, widens the
    range downwards if it is at most 0.05 below the other methods.
    """
    import pandas as pd

    means = {label: np.array(line.mean) for label, line in accuracy.items()}
    high = max((mean[np.isfinite(mean)].max(initial=0.0) for mean in means.values()), default=1.0)
    far = 0.2 if at_end else 0.15
    if at_end:  # methods have different rounds; what failed was finite before
        means = {label: mean[np.isfinite(mean)][-1:] for label, mean in means.items()}
    means = {k: mean for k, mean in means.items() if len(mean) and np.isfinite(mean).all()}
    if not means:
        return 0.0, 1.0
    if len(means) == 1 and not at_end:  # a single line has its whole band in sight
        low_ends, high_ends = accuracy[next(iter(means))].band
        return rounded(min(low_ends), max(high_ends))
    bounds = {measure.label for measure in exhibit.measures if measure.reference}
    rivals = [label for label in means if label not in bounds] or [*means]
    # by x, since a method may be left out at a point
    at = {label: [0.0] if at_end else accuracy[label].x for label in rivals}
    every = pd.DataFrame({label: pd.Series(means[label], at[label]) for label in rivals})
    behind = every.rsub(every.max(axis=1), axis=0).max()
    low = float((every.loc[:, behind <= far] if (behind <= far).any() else every).min().min())
    controls = [mean.min() for label, mean in means.items() if label in bounds]
    low = float(min([low, *(least for least in controls if least >= low - 0.05)]))
    # lines rise from below
    return rounded(low - max(0.01, 0.1 * (high - low)) if at_end else low, float(high))


def rounded(low: float, high: float) -> tuple[float, float]:
    """Return a range of shares in [0, 1], (low, high), widened a little to round numbers."""
    room = max(0.05 * (high - low), 0.002)
    low, high = low - room, high + room
    step = 0.05 if high - low > 0.3 else 0.01 if high - low > 0.03 else 0.005
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return max(0.0, low), min(1.0, high)


def new_figure(height: float) -> Figure:
    """Return an empty matplotlib figure of a page's width and a height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height))


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
    width, height = drawn.get_size_inches()
    wide = (width - left - right - across * (columns - 1)) / columns
    high = (height - top - bottom - between * (rows - 1)) / rows
    sides = {"left": left / width, "right": 1 - right / width, "wspace": across / wide}
    sides |= {"bottom": bottom / height, "top": 1 - top / height, "hspace": between / high}
    return list(map(list, drawn.subplots(rows, columns, squeeze=False, gridspec_kw=sides)))


def headings(drawn: Figure, exhibit: Exhibit) -> None:
    """Write a figure's title at the top; below it data sets, fixed parameters and trials."""
    counts = {
        measure.label: tuple(sorted({p.trials.get(measure.label, 0) for p in exhibit.points} - {0}))
        for measure in exhibit.measures
    }
    usual = max(counts.values(), key=list(counts.values()).count)
    values = {key: planned(exhibit).values(key) for key in exhibit.swept}
    lone = {key: distinct[0] for key, distinct in values.items() if len(distinct) == 1}
    names = {key: "J" if key == "clients" else parameter_title(key) for key in lone}
    fixed = [f"{v}" if key == CASE else f"{names[key]} = {v}" for key, v in lone.items()]
    others = {label: trials for label, trials in counts.items() if trials != usual}
    each = [f"{label}: {trials_text(*trials)}" for label, trials in others.items()]
    if len(each) > 2:  # more than a line holds; the csv has every number
        each = [f"others: {trials_text(*sorted(set().union(*others.values())))}"]
    below = [data_title(exhibit), *fixed, trials_text(*usual), *each]
    write_headings(drawn, exhibit.settings.title, " · ".join(below))


def write_headings(drawn: Figure, title: str, below: str) -> None:
    """Write `title` at the top of a figure, and the smaller line `below` under it."""
    height = drawn.get_figheight()
    look: dict[str, Any] = {"va": "center", "parse_math": False}
    drawn.text(LEFT, 1 - 0.15 / height, title, fontsize=9, **look)
    drawn.text(LEFT, 1 - 0.32 / height, below, color=SOFT, **look)


def data_title(exhibit: Exhibit) -> str:
    """Return the titles of a figure's data sets, joined by commas, or "Simulation" without data."""
    titles = [p.scenario.dataset.component.meta["title"] for p in exhibit.points if p.scenario]
    return ", ".join(dict.fromkeys(titles)) or "Simulation"


def draw_lines(
    axes: Axes,
    lines: Mapping[Any, Line],
    look: Mapping[Any, LineStyle],
    banded: Collection[str] | None = None,
    markers: int = 0,
) -> None:
    """Draw `lines` in styles `look`, both by label; labels in `banded` get a band of one sd.

    If `banded` is None, all lines get a band. A line has at most `markers`; 0 sets no limit.
    """
    for label, line in lines.items():
        style = look[label]
        if any(line.sd) and (banded is None or label in banded):
            band: dict[str, Any] = {"color": style.colour, "alpha": 0.13 if style.marker else 0.07}
            axes.fill_between(line.x, *line.band, linewidth=0, zorder=1, **band)
        every = math.ceil(len(line.x) / markers) if markers else None
        axes.plot(line.x, line.mean, label=str(label), markevery=every, **style.line)


def percent(axes: Axes) -> None:
    """Label the vertical axis in percent; its values are shares from 0 to 1, such as accuracies."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(percents)


def percents(share: float, place: object = None) -> str:
    """Write a share in percent without a % sign; matplotlib passes `place`, which is not used."""
    return f"{100 * share:.6g}"


def sheet(
    exhibit: Exhibit,
    height: float,
    rows: int,
    columns: int,
    look: Mapping[str, LineStyle] | None = None,
    /,
    *,
    foot: float = 0.08,
    bottom: float = 0.95,
    **sides: float,
) -> tuple[Figure, list[list[Axes]]]:
    """Return (figure with headings and a legend, its axes in lists by [row][column]).

    `look` has the legend's styles by name; None means those of all methods, in two rows or more.
    Lengths are inches: `foot` below the legend, `bottom` below the axes, `sides` (left, right, top,
    across, between) around panels. `bottom` and `height` are for two legend rows; more add to both.
    """
    from matplotlib.lines import Line2D

    least = 1 if look else 2
    if look is None:  # a method with fewer trials than others is marked "(paired)"
        styles = line_styles(exhibit.measures)
        look = {f"{k} (paired)" if k in exhibit.pairs else k: v for k, v in styles.items()}
    columns_room = 72 * WIDTH / (LEGEND_HANDLE + LETTER * max(map(len, look), default=0))
    legend_lines = max(least, math.ceil(len(look) / min(5, max(1, int(columns_room)))))
    added = LEGEND_ROW * (legend_lines - 2)
    drawn = new_figure(height + added)
    drawn.legend(
        handles=[Line2D([], [], label=label, **style.line) for label, style in look.items()],
        loc="lower center",
        bbox_to_anchor=(0.5, foot / drawn.get_figheight()),
        ncols=math.ceil(len(look) / legend_lines),
        handlelength=3.4,
        columnspacing=1.6,
        labelspacing=0.4,
    )
    headings(drawn, exhibit)
    return drawn, grid_of(drawn, rows, columns, bottom=bottom + added, **sides)


def image_of(drawn: Figure, suffix: str, title: str) -> bytes:
    """Return a figure as .svg or .png, by `suffix`; equal figures and titles give equal bytes."""
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
        """Return a figure of the means and sds in csv rows `numbers`; call within `rules()`."""
        raise NotImplementedError

    def files(self, exhibit: Exhibit, about: About, numbers: pd.DataFrame) -> dict[str, bytes]:
        title = f"{exhibit.settings.title}: {data_title(exhibit)}"
        with rules():
            drawn = figure(exhibit, numbers)
            return {suffix: image_of(drawn, suffix, title) for suffix in (".svg", ".png")}


def figure(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """Draw `exhibit`, a figure and not a table, from csv rows `numbers`; call within `rules()`."""
    from fedrepro.numbers.trial_statistics import as_shown

    kind = exhibit.settings.drawing
    assert isinstance(kind, Figured)
    return kind.draw(exhibit, as_shown(numbers))

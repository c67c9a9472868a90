"""Figures from the numbers of an exhibit: svg and png, the same bytes for the same numbers.

Uses matplotlib's objects only, with its own defaults and `style.RULES`, so that neither a user's
matplotlibrc nor a display changes a figure.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from fedrepro.errors import FedreproError
from fedrepro.exhibits.style import RULES, Look, looks
from fedrepro.plan import Exhibit, Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 7.0, 3.5  # inches; the text width of a paper, with a legend of two rows
LEGEND_ROW = 0.15  # inches that each further row of the legend adds
LEGEND_COLUMNS = 5
PNG_DPI = 200
COLLAPSE = 0.15  # a method that falls this far below the best one does not set the close-up's range


@dataclass(frozen=True)
class Line:
    """One drawn line: x, mean and sd (0 where there is a single trial), all as in the csv."""

    x: list[float]
    mean: list[float]
    sd: list[float]

    @property
    def low(self) -> list[float]:
        return [m - s for m, s in zip(self.mean, self.sd, strict=True)]

    @property
    def high(self) -> list[float]:
        return [m + s for m, s in zip(self.mean, self.sd, strict=True)]


def render(exhibit: Exhibit, numbers: pd.DataFrame) -> dict[str, bytes]:
    """The figure by suffix: .svg and .png."""
    title = f"{exhibit.settings.title}: {_data(exhibit)}"
    with rules():
        drawn = figure(exhibit, numbers)
        return {suffix: image_of(drawn, suffix, title) for suffix in (".svg", ".png")}


def image_of(drawn: Figure, suffix: str, title: str) -> bytes:
    """A figure as svg or png, without the date and version that matplotlib adds by itself."""
    plain = {".svg": {"Date": None, "Creator": None, "Title": title}, ".png": {"Software": None}}
    image = io.BytesIO()
    drawn.savefig(image, format=suffix[1:], dpi=PNG_DPI, metadata=plain[suffix])
    return image.getvalue()


@contextmanager
def rules() -> Iterator[None]:
    """matplotlib's defaults with the rules of `style`, for a while."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for key, value in RULES.items():
            matplotlib.rcParams[key] = value
        yield


def figure(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """The exhibit as its settings say; call it within `rules()`."""
    drawings = {"accuracy-and-size": accuracy_and_size}
    return drawings[exhibit.settings.drawing](exhibit, numbers)


def accuracy_and_size(exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
    """Test accuracy (whole range, and a close-up of the best) and size against the sweep."""
    from matplotlib.figure import Figure

    look = looks(exhibit.measures)
    accuracy = lines(exhibit, numbers, "accuracy", "test")
    added = LEGEND_ROW * (_legend_rows(exhibit) - 2)
    height = HEIGHT + added
    drawn = Figure(figsize=(WIDTH, height))

    def up(share: float) -> float:
        """A height above the legend, given as a share of a figure whose legend has two rows."""
        return (share * HEIGHT + added) / height

    grid = drawn.add_gridspec(
        1, 3, left=0.06, right=0.955, top=up(0.825), bottom=up(0.305), wspace=0.3
    )
    whole, close, size = (drawn.add_subplot(grid[0, at]) for at in range(3))
    low, high = close_up(exhibit, accuracy)
    _draw(whole, accuracy, look, banded=set(accuracy))
    # in the close-up a band whose line is mostly outside would only be in the way
    _draw(close, accuracy, look, banded={k for k, x in accuracy.items() if min(x.mean) >= low})
    for axes in (whole, close):
        _percent(axes)
    whole.set_title("a  Test accuracy (%)", loc="left")
    whole.set_ylim(0, 1)
    close.set_title("b  Test accuracy (%), close-up", loc="left")
    close.set_ylim(low, high)
    _mark(whole, low, high)
    shared = _draw_sizes(size, exhibit, numbers, look)
    size.set_title("c  Hidden units, global model", loc="left")
    for axes in (whole, close, size):
        _horizontal(axes, exhibit, numbers)
    _legend(drawn, exhibit, look, bottom=0.05 * HEIGHT / height)
    drawn.text(0.012, up(0.957), exhibit.settings.title, fontsize=9, va="center")
    drawn.text(0.012, up(0.908), subtitle(exhibit), va="center", color="#444444")
    drawn.text(
        0.5, 0.03 * HEIGHT / height, shared, fontsize=7, ha="center", va="center", color="#444444"
    )
    return drawn


def lines(exhibit: Exhibit, numbers: pd.DataFrame, metric: str, split: str) -> dict[str, Line]:
    """label -> the line of one metric, for every method that has it at each point."""
    key = swept(exhibit)
    rows = numbers[(numbers["metric"] == metric) & (numbers["split"] == split)]
    found: dict[str, Line] = {}
    for measure in exhibit.measures:
        own = rows[rows["method"] == measure.label]
        if len(own):
            sd = own["sd"].fillna(0.0).astype(float)
            found[measure.label] = Line(
                own[key].astype(float).tolist(), own["mean"].tolist(), sd.tolist()
            )
    return found


def swept(exhibit: Exhibit) -> str:
    """The parameter along the horizontal axis."""
    keys = list(exhibit.points[0].values)
    if len(keys) != 1:
        raise FedreproError(
            f"{exhibit.key} is drawn against one swept parameter, but its sweep has "
            f"{len(keys)}; name one in config/exhibits/{exhibit.paper}.yaml"
        )
    return keys[0]


def close_up(exhibit: Exhibit, accuracy: Mapping[str, Line]) -> tuple[float, float]:
    """The range of the methods that nowhere fall far below the best; bounds may lie above it."""
    bounds = {measure.label for measure in exhibit.measures if measure.reference}
    rivals = [line for label, line in accuracy.items() if label not in bounds]
    rivals = rivals or list(accuracy.values())
    best = [max(values) for values in zip(*(line.mean for line in rivals), strict=True)]
    good = [
        line
        for line in rivals
        if all(b - m <= COLLAPSE for b, m in zip(best, line.mean, strict=True))
    ]
    low = min(min(line.mean) for line in good or rivals)
    high = max(max(line.mean) for line in accuracy.values())
    room = max(0.05 * (high - low), 0.002)
    low, high = low - room, high + room
    step = 0.05 if high - low > 0.3 else 0.01 if high - low > 0.03 else 0.005
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return max(0.0, low), min(1.0, high)


def subtitle(exhibit: Exhibit) -> str:
    """Data, trials, and which methods have fewer of them."""
    most = exhibit.settings.trials
    parts = [_data(exhibit), _trials(most)]
    fewer = [m for m in exhibit.measures if m.trials != most]
    parts += [f"{m.label}: {_trials(m.trials)}" for m in fewer]
    return " · ".join(parts)


def _data(exhibit: Exhibit) -> str:
    titles = [p.scenario.dataset.component.meta["title"] for p in exhibit.points]
    return ", ".join(dict.fromkeys(titles))


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count} trials"


def _draw(
    axes: Axes, found: Mapping[str, Line], look: Mapping[str, Look], banded: Collection[str]
) -> None:
    for label, line in found.items():
        style = look[label]
        if label in banded and any(line.sd):
            strength = 0.13 if style.marker else 0.07
            axes.fill_between(
                line.x,
                line.low,
                line.high,
                color=style.colour,
                alpha=strength,
                linewidth=0,
                zorder=1,
            )
        axes.plot(line.x, line.mean, label=label, **style.line)


def _percent(axes: Axes) -> None:
    """Shares on the axis, percent on its labels."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g}"))


def _mark(axes: Axes, low: float, high: float) -> None:
    """A grey band shows which part of the whole range the close-up holds."""
    axes.axhspan(low, high, color="#000000", alpha=0.06, linewidth=0, zorder=0)
    middle = (axes.get_yaxis_transform(), (low + high) / 2)
    axes.text(1.015, middle[1], "b", transform=middle[0], va="center", color="#444444")


def _horizontal(axes: Axes, exhibit: Exhibit, numbers: pd.DataFrame) -> None:
    key = swept(exhibit)
    values = sorted(set(numbers[key].astype(float)))
    if len(values) <= 8:
        axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xlabel("clients J" if key == "clients" else key)


def _draw_sizes(
    axes: Axes, exhibit: Exhibit, numbers: pd.DataFrame, look: Mapping[str, Look]
) -> str:
    """Hidden units; methods of the same size share a line, except those that match units.

    Returns the sentence that says which methods share which line.
    """
    matching = set(numbers.loc[numbers["metric"] == "matched_share", "method"])
    groups = size_groups(exhibit.measures, lines(exhibit, numbers, "hidden_units", ""), matching)
    said = []
    for members, line in groups:
        _draw(axes, {members[0].label: line}, look, banded=[members[0].label])
        if len(members) > 1:
            size = size_name(line, swept(exhibit))
            axes.annotate(
                size,
                (1.0, line.mean[-1]),
                (3, 0),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
            )
            said.append(f"{size}: {', '.join(m.label for m in members)}")
    axes.set_ylim(bottom=0)
    return f"Shared lines in c. {'; '.join(said)}." if said else ""


Group = tuple[list[Measure], Line]


def size_groups(
    measures: tuple[Measure, ...], sizes: Mapping[str, Line], matching: set[str]
) -> list[Group]:
    """Methods that hold the same number of units everywhere, and that number.

    A method that matches units keeps a line of its own: that its size equals another's is a
    result. References come first among their group, since they are bounds. No line for none.
    """
    groups: list[Group] = []
    for measure in sorted(measures, key=lambda m: not m.reference):
        line = sizes.get(measure.label)
        if line is None or not any(line.mean):
            continue
        same = [g for g in groups if g[1] == line and g[0][0].label not in matching]
        if same and measure.label not in matching:
            same[0][0].append(measure)
        else:
            groups.append(([measure], line))
    return groups


def size_name(line: Line, key: str) -> str:
    """A shared size in a word: `500`, or `50·J` where it grows with the clients."""
    ratios = {m / x for m, x in zip(line.mean, line.x, strict=True)}
    if len(set(line.mean)) == 1:
        return f"{line.mean[0]:g}"
    return f"{ratios.pop():g}·{'J' if key == 'clients' else key}" if len(ratios) == 1 else "same"


def _legend_rows(exhibit: Exhibit) -> int:
    return max(2, math.ceil(len(exhibit.measures) / LEGEND_COLUMNS))


def _legend(drawn: Figure, exhibit: Exhibit, look: Mapping[str, Look], bottom: float) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=m.label, **look[m.label].line) for m in exhibit.measures]
    drawn.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, bottom),
        ncols=math.ceil(len(handles) / _legend_rows(exhibit)),
        handlelength=3.4,
        columnspacing=1.6,
        labelspacing=0.4,
    )

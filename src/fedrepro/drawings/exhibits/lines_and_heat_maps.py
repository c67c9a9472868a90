"""Draw any metric: lines against rounds, a parameter or a number; heat maps of two parameters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedrepro.core.metrics import all_metrics, metrics_of
from fedrepro.drawings import lines_and_layout as layout
from fedrepro.drawings.style import CASES, DASHES, FAR, LineStyle, line_styles
from fedrepro.planning import drawing_base as checks
from fedrepro.planning.drawing_base import CASE, ROUND, MetricName, drawing, select_series
from fedrepro.planning.exhibit_config import key as option
from fedrepro.planning.plan import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS, HIGH, AROUND = 3, 1.63, 0.72  # panels in a row; inches of a panel, and above each row
FEW = 8  # up to this many values are named on an axis
MARKERS = 7  # of a line against rounds
UPRIGHT = (":", "--")  # of upright lines, metric by metric
NUMBER = re.compile(r"^(.*?),? *(\d+(?:\.\d+)?)\D*$")  # in a case, such as "ring, 8 nodes"

Key = tuple[str, str]  # case ("" without cases) and label of a method


class Panel(checks.Strict):
    """One panel of a figure of lines: a metric, against rounds or the values of a parameter.

    A case is a scenario of the figure, drawn at the number in its label: 8 in "ring, 8 nodes". A
    shown parameter is one in a method's `show`. Without `x_label` the axis is named after `along`.
    """

    metric: MetricName = option(..., "the number that is drawn")
    split: str = option("", "split on which it is measured; empty if on none")
    along: str = option(
        ROUND, "round, a swept or shown parameter, or case: the number in its label"
    )
    title: str = option("", "heading of the panel, if not the metric's title")
    x_label: str = option("", "what the horizontal axis is called, if not by itself")
    of: str = option("", "label of the method by whose number the others are divided")
    zero: bool = option(False, "the vertical axis begins at zero")
    log: list[Literal["x", "y"]] = option(list, "axes that are logarithmic")
    dots: MetricName | None = option(None, "a metric whose single trials are drawn as dots")
    upright: list[MetricName] = option(
        list, "metrics whose values are drawn as upright lines, at these x"
    )
    bound: float | Literal["x"] | None = option(
        None, "height of a dotted level line; x draws the line y = x"
    )

    def rows(self, numbers: pd.DataFrame, metric: str, split: str = "") -> dict[Key, pd.DataFrame]:
        """Return {(scenario, method): csv rows of `metric` on `split`, with x positions as `x`}."""
        rows = select_series(numbers, metric, split)
        of_rounds = self.along == ROUND and metric not in self.upright
        rows = rows[rows[ROUND].notna()] if of_rounds else checks.final(rows)
        case = rows[CASE].astype(str) if CASE in rows else rows["method"].map(lambda _: "")
        x = rows.get(self.along, case)
        if self.along == CASE:
            case, x = (case.str.extract(NUMBER)[part] for part in (0, 1))
        rows = rows.assign(x=layout.positions(x), line=case)
        if self.of and metric == self.metric:
            whole = rows[rows["method"] == self.of].set_index(["line", "x"])["mean"]
            base = whole.reindex(rows.set_index(["line", "x"]).index).to_numpy()
            rows = rows.assign(mean=rows["mean"] / base, sd=rows["sd"] / base)
        by_line = rows.groupby(["line", "method"], sort=False)
        return {(str(key[0]), str(key[1])): own.sort_values("x") for key, own in by_line}

    def lines(self, exhibit: Exhibit, numbers: pd.DataFrame) -> dict[Key, layout.Line]:
        """Return {(scenario, method's label): line of this panel} from csv rows `numbers`.

        Class `Lines` says which are left out. A reference method, such as pooled training, that is
        equal in all scenarios has one line, last, at ("", label).
        """
        rows = self.rows(numbers, self.metric, self.split)
        found = {key: layout.line_of(own) for key, own in rows.items() if own["x"].is_unique}
        found = {key: line for key, line in found.items() if len(line.x) > 1} or found
        made, once = dict[Key, layout.Line](), dict[Key, layout.Line]()
        for measure in exhibit.measures:
            own = {key: line for key, line in found.items() if key[1] == measure.label}
            first = next(iter(own.values()), None)
            if measure.reference and first and all(line == first for line in own.values()):
                once["", measure.label] = first
            else:
                made |= own
        return made | once

    def draw(
        self,
        axes: Axes,
        numbers: pd.DataFrame,
        lines: Mapping[Key, layout.Line],
        look: Mapping[Key, LineStyle],
    ) -> None:
        """Draw `lines` in styles `look`; dots, upright lines and the bound, from csv `numbers`."""
        from matplotlib.ticker import LogLocator

        of_rounds, log_x = self.along == ROUND, "x" in self.log
        for side in self.log:
            axes.set(**{f"{side}scale": "log"})
            axis: Any = axes.xaxis if side == "x" else axes.yaxis
            axis.set_major_locator(LogLocator(subs=(1,) if of_rounds else (1, 2, 5)))
            axis.set_major_formatter("{x:,.10g}")
        layout.draw_lines(axes, lines, look, markers=MARKERS if of_rounds and not log_x else 0)
        if of_rounds and not log_x:
            axes.locator_params("x", nbins=5, steps=[1, 2, 5, 10], integer=True)
        for curve in axes.get_lines() if of_rounds and log_x else ():
            curve.set_markevery(1 / (MARKERS + 1))  # as far apart on each line
        dotted: set[float] = set()
        by_line = {}
        if self.dots:
            by_line = self.rows(numbers, self.dots, self.split) or self.rows(numbers, self.dots)
        for key in filter(by_line.__contains__, lines):
            trials = by_line[key].set_index("x")["by_trial"].astype(str)
            each = trials.str.split().explode().astype(float)
            dotted.update(each)
            dot: dict[str, Any] = {"s": 3, "alpha": 0.3, "linewidths": 0, "zorder": 1}
            axes.scatter(each.index, each, color=look[key].colour, **dot)
        along = {x for line in lines.values() for x in line.x}
        for axis, values in ((axes.xaxis, along), (axes.yaxis, dotted)):
            if 0 < len(values) <= FEW:
                axis.set_ticks(sorted(values), [f"{value:g}" for value in sorted(values)])
                axis.set_ticks([], minor=True)
        thin: dict[str, Any] = {"linewidth": 1.0, "zorder": 0}
        for metric, style in zip(self.upright, UPRIGHT, strict=False):
            for key, rows in self.rows(numbers, metric).items():
                for value in rows["mean"].unique() if key in lines else ():
                    axes.axvline(value, color=look[key].colour, linestyle=style, **thin)
        if self.bound == "x":
            axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
            axes.axline((1, 1), (2, 2), color=layout.SOFT, linestyle=":", **thin)
        elif self.bound is not None:
            axes.axhline(self.bound, color=layout.SOFT, linestyle=":", **thin)


@drawing("lines")
class Lines(layout.Figured):
    """A figure of metrics, a panel for each, with a line per scenario (data set) and method.

    Bands are one standard deviation over trials. A line is left out if it has several numbers at
    one x, or a single number where others have more. Metrics of one unit share a vertical scale.
    """

    panels: list[Panel] = option(
        ..., "what is drawn, a panel for each", min_length=1, max_length=checks.PANELS
    )

    @property
    def by_rounds(self) -> bool:  # type: ignore[override]
        return any(panel.along == ROUND for panel in self.panels)

    def reasons(self, shown: checks.Planned) -> Iterator[str]:
        known = {name for measure in shown.measures for name in metrics_of(measure.spec)}
        settings = [key for measure in shown.measures for key in measure.show]
        labels = [str(case) for case in shown.values(CASE)]
        for panel in self.panels:
            divisors = [m for m in shown.measures if m.label == panel.of]
            if panel.of and not divisors:
                yield f"its panel is of shares of '{panel.of}', which is none of its methods"
            if panel.of and panel.dots:
                yield "its panel is of shares, which dots of single trials are not: leave one out"
            if panel.bound == "x" and len(panel.log) == 1:
                yield "its line y = x asks for two axes of one kind: make both logarithmic, or none"
            for one in divisors:
                several = {*one.show, *shown.varied} - {panel.along}
                if several or (panel.along == ROUND and not one.spec.method_kind.in_rounds):
                    yield f"its panel is of shares of '{panel.of}', which varies at one x"
            for name in filter(None, (panel.metric, panel.dots, *panel.upright)):
                if name not in known:
                    yield f"none of its methods reports {name}, which `panels` asks for"
            if panel.along == CASE:
                if not labels or not all(map(NUMBER.match, labels)):
                    yield "it is drawn along the number in each case's label, which not all have"
            elif panel.along not in (ROUND, *shown.axis, *settings):
                yield f"it is drawn along '{panel.along}', which it neither sweeps nor shows"
            elif panel.along != ROUND:
                values = shown.values(panel.along)
                for measure in shown.measures:
                    if panel.along in measure.show:
                        values += [setting[panel.along] for setting in measure.settings]
                deep = panel.along == "hidden" and len({str(x).count("@") for x in values}) > 1
                if not deep and not all(checks.is_number(str(value)) for value in values):
                    yield f"it is drawn along '{panel.along}', whose values are not all numbers"
            elif shown.varied:
                yield f"it is drawn against rounds, and {shown.varied[0]} varies: sweep nothing"
        cases = {
            NUMBER.sub(r"\1", label) if panel.along == CASE else label
            for panel in self.panels
            for label in labels
        }
        if len(cases) > len(CASES):
            yield f"it has lines of {len(cases)} cases, of which {len(CASES)} can be told apart"

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        from matplotlib.ticker import EngFormatter

        lines = [panel.lines(exhibit, numbers) for panel in self.panels]
        looks, (first, *_) = line_styles(exhibit.measures), exhibit.measures
        keys = list(dict.fromkeys(itertools.chain(*lines)))
        # a colour per scenario; thin for methods after the first
        by_case = dict(zip(dict.fromkeys(case for case, _ in keys if case), CASES, strict=False))
        look, named = dict[Key, LineStyle](), dict[str, LineStyle]()
        for case, method in keys:
            style, name = by_case.get(case, looks[method]), case or method
            if case and method != first.label:
                at = [measure.label for measure in exhibit.measures].index(method)
                dash, marker = DASHES[(at - 1) % len(DASHES)], style.marker * (at <= len(DASHES))
                style = replace(style, dash=dash, marker=marker, width=0.9)
                name = f"{case}, {method}"
            look[case, method] = named[name] = style
        columns = 2 if len(lines) in (2, 4) else min(len(lines), ACROSS)
        rows = -(-len(lines) // columns)
        sides = {"left": 0.5, "right": 0.12, "top": AROUND, "bottom": 0.9, "between": AROUND}
        height = (AROUND + HIGH) * rows + 0.9
        figure, grid = layout.sheet(exhibit, height, rows, columns, named, **sides)
        every = [*itertools.chain(*grid)]
        units: dict[tuple[str, str, bool], list[Axes]] = {}
        for at, (axes, panel, found) in enumerate(zip(every, self.panels, lines, strict=False)):
            metric = all_metrics()[panel.metric]
            panel.draw(axes, numbers, found, look)
            shares = bool(panel.of) or metric.unit.startswith("share of")
            if share := shares and "y" not in panel.log:
                layout.percent(axes)
                least, most = axes.get_ylim()
                axes.set_ylim(max(least, -0.03), most if panel.of else min(most, 1.03))
            elif metric.unit == "bytes":
                axes.yaxis.set_major_formatter(EngFormatter("B"))
            if panel.zero:
                axes.set_ylim(bottom=0)
            title = panel.title or f"{metric.title[0].upper()}{metric.title[1:]}"
            axes.set_title(f"{layout.LETTERS[at]}  {title}{' (%)' * share}", loc="left")
            along = {ROUND: "communication rounds"}.get(panel.along, panel.along)
            axes.set_xlabel(panel.x_label or layout.parameter_title(along))
            scale = panel.of, metric.unit or panel.metric, "y" in panel.log
            units.setdefault(scale, []).append(axes)
        for same in units.values():
            lows, highs = zip(*(axes.get_ylim() for axes in same), strict=True)
            for axes in same if len(same) > 1 else ():
                axes.set_ylim(min(lows), max(highs))
        for spare in every[len(lines) :]:
            spare.set_axis_off()
        return figure


CELL, TALL = 0.27, 0.36  # inches, height of a row: a mean, and below it the sd over trials


@dataclass(frozen=True)
class Map:
    """One heat map: parameters on its axes (`across`, `up`), and the values of others (`held`)."""

    across: str
    up: str
    held: dict[str, float]

    def table(self, rows: pd.DataFrame, column: str = "mean") -> pd.DataFrame:
        """Return `column` of csv `rows` at the values `held` as a table (`up`, `across`)."""
        for key, value in self.held.items():
            rows = rows[rows[key].astype(float) == value]
        return rows.pivot(index=self.up, columns=self.across, values=column)

    def draw(
        self,
        axes: Axes,
        rows: pd.DataFrame,
        met: pd.DataFrame | None,
        limits: tuple[float, float],
        form: str,
        title: str,
    ) -> None:
        """Draw the means of csv `rows` on `axes` as coloured cells, with the numbers in the cells.

        Colours span `limits`; `form`, such as "{:.1f}", formats numbers; `title` begins the
        heading. Below a mean is its sd. If `met` has rows of a metric that is 1 in successful
        trials, their number replaces the sd, unless all succeed. Cells without any are crossed.
        """
        table, sds = self.table(rows), self.table(rows, "sd")
        if met is None:
            below, small = sds.map(lambda sd: f"± {form.format(sd)}").mask(sds.isna(), ""), 4.8
        else:
            trials = self.table(met, "by_trial").map(lambda text: str(text).split())
            words = trials.map(lambda one: f"{one.count('1')} of {len(one)}")
            below, small = words.mask(trials.map(lambda one: {*one} == {"1"}), ""), 5.5
        absent = self.table(rows.assign(ran=1.0), "ran").isna()  # cells that were not run
        failed = below.map(lambda text: text.startswith("0 of ")) & ~absent
        shown = table.astype(float).mask(failed).to_numpy()
        axes.pcolormesh(shown, cmap="cividis", vmin=limits[0], vmax=limits[1])
        axes.grid(False)
        axes.set_xticks(np.arange(table.shape[1]) + 0.5, [f"{v:g}" for v in table.columns])
        axes.set_yticks(np.arange(table.shape[0]) + 0.5, [f"{v:g}" for v in table.index])
        axes.tick_params(length=0)
        axes.set_xlabel(layout.parameter_title(self.across), labelpad=1)
        others = " of the other clients" if self.across == f"{self.up}_first" else ""
        axes.set_ylabel(layout.parameter_title(self.up) + others, labelpad=2)
        held = [f"{layout.parameter_title(key)} = {value:g}" for key, value in self.held.items()]
        title = "; ".join(filter(None, (title, ", ".join(held))))
        axes.set_title(title, loc="left", fontsize=7)
        for (row, column), value in np.ndenumerate(table.to_numpy(float)):
            if absent.iat[row, column]:
                continue
            second, text = str(below.iat[row, column]), form.format(value)
            texts = [(0.68, 6.5, text), (0.25, small, second)] if second else [(0.5, 6.5, text)]
            if crossed := failed.iat[row, column]:
                cross: dict[str, Any] = {"color": FAR, "markersize": 8, "markeredgewidth": 1.8}
                axes.plot(column + 0.5, row + 0.66, "x", **cross)
                texts = [(0.25, 5.5, text)]
            dark = value - limits[0] < 0.55 * (limits[1] - limits[0]) and not crossed
            look = layout.CENTRED | {"color": "white" if dark else "black"}
            for up, points, text in texts:
                axes.text(column + 0.5, row + up, text, fontsize=points, **look)


@drawing("heat-maps")
class HeatMaps(layout.Figured):
    """A figure of accuracy and model size over each pair of a method's varied parameters.

    Accuracy has a row of maps, and size another; the two maps of a single pair are side by side.
    """

    split: Literal["train", "test"] = option("train", "split of the accuracies")
    sizes: bool = option(True, "maps of the size of the model too")
    where: MetricName | None = option(
        None, "a metric that is 1 in trials that succeed; a cell without success is crossed"
    )

    def reasons(self, shown: checks.Planned) -> Iterator[str]:
        showing = [measure for measure in shown.measures if measure.show]
        if len(showing) != 1 or shown.cases:
            said = "heat maps are of one method that shows every value of a parameter (show:"
            yield f"{said} [...]), without cases; {len(showing)} of its methods do"
            return
        (measure,) = showing
        if len(shown.varied) + sum(key in measure.swept for key in measure.show) < 2:
            yield "heat maps need two parameters that vary; show one more, or sweep one"
        if self.split not in measure.evaluate:
            yield f"'{measure.spec.name}' is not measured on the split {self.split} of heat maps"
        if self.where and self.where not in metrics_of(measure.spec):
            yield f"'{measure.spec.name}' does not report {self.where}"
        for key in shown.varied:
            if not all(checks.is_number(str(value)) for value in shown.values(key)):
                yield f"heat maps are drawn along numbers, which those of '{key}' are not"
        yield from checks.numbers_shown(measure)

    def draw(self, exhibit: Exhibit, numbers: pd.DataFrame) -> Figure:
        (maps, rows), size = pair_maps(exhibit, numbers), exhibit.settings.size
        name = "training" if self.split == "train" else "test"
        accuracy = ("accuracy", self.split, f"{name} accuracy (%)", 100.0, "{:.1f}")
        of_size = (size, "", size.replace("_", " "), 1.0, "{:.0f}")
        shades = [accuracy, of_size] if self.sizes else [accuracy]
        columns = len(maps) if len(maps) > 1 else len(shades)
        tall = max(rows[panel.up].nunique() for panel in maps)
        lines = len(maps) * len(shades) // columns
        high = max((TALL if self.where else CELL) * tall, 1.0)
        drawn = layout.new_figure(0.85 + lines * (high + 0.55) + 0.05)
        margins = {"left": 0.55, "right": 0.1, "top": 0.85, "bottom": 0.42, "between": 0.62}
        axes = itertools.chain(*layout.grid_of(drawn, lines, columns, **margins))
        met = select_series(rows, self.where, "") if self.where else None
        for metric, split, title, scale, form in shades:
            own = select_series(rows, metric, split)
            own = own.assign(mean=scale * own["mean"], sd=scale * own["sd"])
            # one colour scale for all maps of a metric, a point wide at least against noise
            means = np.concatenate([panel.table(own).to_numpy(float).ravel() for panel in maps])
            most = float(np.nanmax(means))
            least = min(float(np.nanmin(means)), most - 1.0)
            for panel in maps:
                panel.draw(next(axes), own, met, (least, most), form, title)
        layout.headings(drawn, exhibit)
        return drawn


def pair_maps(exhibit: Exhibit, numbers: pd.DataFrame) -> tuple[list[Map], pd.DataFrame]:
    """Return a heat map for each pair of parameters that vary, and the csv rows of their method.

    The method is the one of `exhibit` whose accuracy is shown for each of its settings. In a map,
    other varied parameters have their default or, if that was not run, a middle value.
    """
    (measure,) = (measure for measure in exhibit.measures if measure.show)
    rows = checks.final(numbers)
    rows = rows[rows["method"] == measure.label]
    several = [key for key in (*exhibit.swept, *measure.show) if rows[key].nunique() > 1]
    defaults = measure.spec.component.spec().values
    held = {}
    for key in several:
        values, default = rows[key].astype(float).unique().tolist(), defaults.get(key)
        held[key] = float(default) if default in values else values[len(values) // 2]  # type: ignore[arg-type]
    maps = [
        Map(a, b, {key: value for key, value in held.items() if key not in (a, b)})
        for a, b in itertools.combinations(several, 2)
    ]
    return maps, rows

"""Interactive charts: what a figure shows, with its numbers on hover, by Vega-Lite.

The figure itself stays a picture; a chart is loaded only when a reader asks for it. Its script is
that of the packages that are installed, written once an environment: to bundle it takes seconds.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.artifacts import write_text
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.tables import cell_text, column_title
from fedrepro.numbers.exhibit_tables import ROUND
from fedrepro.numbers.trial_statistics import as_shown
from fedrepro.planning.figure_interface import select_series
from fedrepro.record.site.report_data import ExhibitView

# in the environment, which many folders share, or else in the folder
KEPT = (Path(sys.prefix) / "share/fedrepro", Path(".fedrepro/record/site"))
MOST_PANELS, MOST_POINTS = 8, 1500
COLOURS = [
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7f7f7f", "#8c564b"),
    *("#1b1b1b", "#6a3d9a", "#b5bd00", "#a50026"),
]


def vega_script() -> str:
    """Return the JavaScript of Vega, Vega-Lite and Vega-Embed that draws the interactive charts.

    It is bundled once for each installed version, which takes seconds, and kept on disk.
    """
    from importlib.metadata import version

    import vl_convert

    name = f"vega-{version('vl-convert-python')}.js"
    for folder in KEPT:
        if (folder / name).exists():
            return (folder / name).read_text(encoding="utf-8")
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    script = f"(function(){{{bundle}\n}})();\n"  # its short names stay its own
    for folder in KEPT:
        with contextlib.suppress(FedreproError):  # an environment that others own
            write_text(folder / name, script)
            break
    return script


def chart(shown: ExhibitView) -> dict[str, Any] | None:
    """Return a figure's test accuracies as a Vega-Lite chart; None where lines would not show them.

    None is for tables, figures without accuracy or a numeric axis, and too many panels or points.
    """
    if shown.files.is_table or "accuracy" not in set(shown.numbers["metric"]):
        return None
    rows = select_series(as_shown(shown.numbers), "accuracy", "test")
    keys = [*shown.about["columns"]["points"], *shown.about["columns"]["settings"]]
    varied = (k for k in keys if pd.api.types.is_numeric_dtype(rows[k]) and rows[k].nunique() > 1)
    across = ROUND if ROUND in rows and rows[ROUND].nunique() > 2 else next(varied, None)
    if across is None:
        return None
    rows = rows[rows[across].notna()]
    apart = [key for key in keys if key != across and rows[key].nunique() > 1]
    panel = [", ".join(map(cell_text, place)) for place in rows[apart].itertuples(index=False)]
    if len(set(panel)) > MOST_PANELS or len(rows) > MOST_POINTS or rows[across].nunique() < 2:
        return None
    shares = {"accuracy": rows["mean"], "sd": rows["sd"]}
    percent = {name: (100 * share.astype(float)).round(3) for name, share in shares.items()}
    data = pd.DataFrame({"x": rows[across].astype(float), **percent, "panel": panel})
    data = data.join(rows[["trials", "method"]])
    return _spec(data[data["accuracy"].notna()], column_title(across), shown.key)


def _spec(data: pd.DataFrame, across: str, key: str) -> dict[str, Any]:
    import altair as alt

    wide = data["x"].min() > 0 and data["x"].max() / data["x"].min() > 50
    picked = alt.selection_point(fields=["method"], bind="legend")
    marks = alt.Chart(data).mark_line(point=alt.OverlayMarkDef(size=45)).encode(
        x=alt.X("x:Q", title=across, scale=alt.Scale(type="log" if wide else "linear", zero=False)),
        y=alt.Y("accuracy:Q", title="Test accuracy (%)", scale=alt.Scale(zero=False)),
        color=alt.Color("method:N", title=None, scale=alt.Scale(range=COLOURS)).legend(
            orient="bottom", columns=3, labelLimit=300
        ),
        tooltip=[
            alt.Tooltip("method:N"),
            alt.Tooltip("x:Q", title=across),
            alt.Tooltip("accuracy:Q", format=".2f", title="Test accuracy (%)"),
            alt.Tooltip("sd:Q", format=".2f"),
            alt.Tooltip("trials:Q"),
        ],
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.12)),
    ).add_params(picked)  # fmt: skip
    if data["panel"].nunique() > 1:
        facet = alt.Facet("panel:N", title=None, sort=None)
        made = marks.properties(width=240, height=180).facet(facet, columns=2)
        made = made.resolve_scale(y="independent")
    else:
        made = marks.properties(width=520, height=300)
    spec: dict[str, Any] = json.loads(made.to_json(indent=None))
    return spec | {"usermeta": {"key": key}}

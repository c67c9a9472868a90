"""Stage exhibit: from the metrics of its runs to a figure or table, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.artifacts import write_table
from fedrepro.core.packs import published_file
from fedrepro.drawings.draw import render
from fedrepro.drawings.layout import arrangement_of, held, sizes_below, table_of
from fedrepro.drawings.tables import TextTable, html, latex, markdown
from fedrepro.numbers.about import about
from fedrepro.numbers.confusion import CONFUSION, read_confusions
from fedrepro.numbers.files import TIMES, write_exhibit
from fedrepro.numbers.printed import printed_rows, read_published
from fedrepro.numbers.summary import csv_text, read_csv, read_metrics, summarise, tidy
from fedrepro.numbers.times import method_times, times_of
from fedrepro.planning.plan import Exhibit, Plan
from fedrepro.stages.common import say

# what the metadata of the tidy metrics repeats of the json
SOURCE = ("key", "scale", "seed", "data", "components", "computed")


def run(exhibit_key: str, plan: Plan, out_base: Path) -> None:
    """Write `<out_base>` .csv, .choice.csv, .json, .metrics.parquet, and what people look at.

    That is .svg and .png of a figure; .html, .md, .tex and .printed.csv of a table. The metrics lie
    where the plan says, seen from the working folder. Both are made from the text of the csv, so
    the csv holds every number that is shown; measured times have a .times.csv of their own.
    """
    exhibit = plan.exhibit(exhibit_key)
    files = {run: plan.run_files(run, trials) for run, trials in exhibit.trials.items()}
    tables = {run: read_metrics(paths) for run, paths in files.items()}
    rows = {run: found.rows for run, found in tables.items()}
    confused = exhibit.settings.drawing == CONFUSION
    confusions = {run: read_confusions(paths) for run, paths in files.items()} if confused else {}
    of_board = bool(plan.files[exhibit.paper].boards)
    summary = summarise(exhibit, rows, confusions, lost_stay=of_board)
    numbers = csv_text(summary.numbers)
    sources = {run: found.sources for run, found in tables.items()}
    described = about(exhibit, plan, plan.files[exhibit.paper], sources)
    texts = {".csv": numbers.encode(), ".choice.csv": csv_text(summary.choice).encode()}
    every = read_csv(numbers)
    if exhibit.timed:
        times = csv_text(times_of(exhibit, files, list(summary.numbers.columns)))
        texts[TIMES] = times.encode()
        every = pd.concat([every, read_csv(times)], ignore_index=True)
    elif of_board and exhibit.is_table:
        texts[TIMES] = csv_text(method_times(exhibit, files, summary.numbers)).encode()
    write = written if exhibit.is_table else drawn
    shown = write(exhibit, described, every)
    source = {key: described[key] for key in SOURCE}

    write_table(f"{out_base}.metrics.parquet", tidy(exhibit, rows), "metrics", source)
    write_exhibit(f"{out_base}", described, texts | shown)
    say(f"{exhibit.key}: {len(summary.numbers)} numbers from {sum(map(len, files.values()))} jobs")


def drawn(exhibit: Exhibit, about: Mapping[str, Any], numbers: pd.DataFrame) -> dict[str, bytes]:
    """A figure by suffix."""
    return render(exhibit, numbers)


def written(exhibit: Exhibit, about: Mapping[str, Any], numbers: pd.DataFrame) -> dict[str, bytes]:
    """A table by suffix, with what the paper printed beside it."""
    stand_ins = {data["token"]: data["stand_in"] for data in about["data"]}
    published = read_published(published_file(exhibit.paper))
    printed = csv_text(printed_rows(exhibit, published, numbers, stand_ins))
    table = exhibit_table(exhibit, about, numbers, read_csv(printed))
    texts = {".html": html(table), ".md": markdown(table), ".tex": latex(table)}
    return {suffix: text.encode() for suffix, text in (texts | {".printed.csv": printed}).items()}


def exhibit_table(
    exhibit: Exhibit,
    about: Mapping[str, Any],
    numbers: pd.DataFrame,
    printed: pd.DataFrame | None,
) -> TextTable:
    """The table as the exhibit's settings lay it out."""
    settings = exhibit.settings
    below = sizes_below(numbers, settings.size) if settings.table.sizes else None
    caption = f"{exhibit.caption} {held(about, numbers)}."
    return table_of(about, numbers, arrangement_of(about), below, printed, caption)

"""Stage exhibit: from the metrics of its runs to a figure, its tables, and where they come from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedrepro.artifacts import read_provenance, write_table
from fedrepro.config import load_exhibits
from fedrepro.exhibits.about import about
from fedrepro.exhibits.draw import render
from fedrepro.exhibits.files import write_exhibit
from fedrepro.exhibits.summary import csv_text, read_csv, read_runs, summarise, tidy
from fedrepro.plan import Plan
from fedrepro.stages.common import say

# what the metadata of the tidy metrics repeats of the json
SOURCE = ("key", "scale", "seed", "data", "components", "computed")


def run(
    exhibit_key: str, plan: Plan, metrics: Sequence[Path], timings: Sequence[Path], out_base: Path
) -> None:
    """Write `<out_base>` .csv, .choice.csv, .svg, .png, .json and .metrics.parquet.

    `metrics` and `timings` are in the order of the exhibit's runs. The figure is drawn from the
    text of the csv, so the csv holds every number that is drawn.
    """
    exhibit = plan.exhibit(exhibit_key)
    tables = read_runs(exhibit, metrics)
    summary = summarise(exhibit, tables)
    numbers = csv_text(summary.numbers)
    images = render(exhibit, read_csv(numbers))
    sources = [read_provenance(table) for table in tables.values()]
    described = about(exhibit, plan, load_exhibits()[exhibit.paper], sources)
    source = {key: described[key] for key in SOURCE}

    write_table(f"{out_base}.metrics.parquet", tidy(exhibit, tables), "metrics", source)
    texts = {".csv": numbers.encode(), ".choice.csv": csv_text(summary.choice).encode()}
    write_exhibit(f"{out_base}", described | {"timings": _shown(timings)}, texts | images)
    say(f"{exhibit.key}: {len(summary.numbers)} numbers from {len(metrics)} runs")


def _shown(paths: Sequence[Path]) -> list[str]:
    """Paths relative to the working folder, which is where the workflow names them from."""
    return [os.path.relpath(path) for path in paths]

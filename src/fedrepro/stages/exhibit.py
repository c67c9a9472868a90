"""Stage exhibit: from the metrics of its runs to a figure, its tables, and where they come from."""

from __future__ import annotations

from pathlib import Path

from fedrepro.core.artifacts import write_table
from fedrepro.drawings.draw import render
from fedrepro.numbers.about import about
from fedrepro.numbers.files import write_exhibit
from fedrepro.numbers.summary import csv_text, read_csv, read_metrics, summarise, tidy
from fedrepro.planning.config import load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.stages.common import say

# what the metadata of the tidy metrics repeats of the json
SOURCE = ("key", "scale", "seed", "data", "components", "computed")


def run(exhibit_key: str, plan: Plan, out_base: Path) -> None:
    """Write `<out_base>` .csv, .choice.csv, .svg, .png, .json and .metrics.parquet.

    The metrics lie where the plan says, seen from the working folder. The figure is drawn from the
    text of the csv, so the csv holds every number that is drawn.
    """
    exhibit = plan.exhibit(exhibit_key)
    files = {run: plan.run_files(run, trials) for run, trials in exhibit.trials.items()}
    tables = {run: read_metrics(paths) for run, paths in files.items()}
    summary = summarise(exhibit, {run: found.rows for run, found in tables.items()})
    numbers = csv_text(summary.numbers)
    images = render(exhibit, read_csv(numbers))
    sources = {run: found.sources for run, found in tables.items()}
    described = about(exhibit, plan, load_exhibits()[exhibit.paper], sources)
    source = {key: described[key] for key in SOURCE}
    rows = tidy(exhibit, {run: found.rows for run, found in tables.items()})

    write_table(f"{out_base}.metrics.parquet", rows, "metrics", source)
    texts = {".csv": numbers.encode(), ".choice.csv": csv_text(summary.choice).encode()}
    write_exhibit(f"{out_base}", described, texts | images)
    say(f"{exhibit.key}: {len(summary.numbers)} numbers from {sum(map(len, files.values()))} jobs")

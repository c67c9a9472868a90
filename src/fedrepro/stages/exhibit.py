"""Stage exhibit: from the metrics of its runs to a figure or table with its provenance."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedrepro.core.artifacts import write_table
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import TIMES, write_exhibit
from fedrepro.numbers.exhibit_metadata import exhibit_metadata
from fedrepro.numbers.summary import Metrics, csv_text, read_csv, read_metrics, summarise, tidy
from fedrepro.numbers.times import method_times, times_of
from fedrepro.planning.jobs import specs_of
from fedrepro.planning.plan import Plan, Run
from fedrepro.stages.common import log

# keys of the json that the metadata of the tidy metrics repeats
SOURCE = ("key", "scale", "seed", "data", "components", "computed")


def run(exhibit_key: str, plan: Plan, out_base: Path) -> None:
    """Write `<out_base>` .csv, .choice.csv, .json, .metrics.parquet, and its picture or table.

    A figure has .svg and .png, a table .html, .md, .tex and .printed.csv. They are made from the
    text of the csv, so the csv has every number that is shown; measured times have a .times.csv of
    their own. Files of the plan are read from the working folder.
    """
    exhibit = plan.exhibit(exhibit_key)
    files = {run: plan.run_files(run, trials) for run, trials in exhibit.trials.items()}
    tables = {run: read_metrics(paths) for run, paths in files.items()}
    _require_current(exhibit_key, files, tables)
    rows = {run: table.rows for run, table in tables.items()}
    sources = {run: table.sources for run, table in tables.items()}
    failed = {
        path: source["failed"]
        for run, paths in files.items()
        for path, source in zip(paths, sources[run], strict=True)
        if "failed" in source
    }
    of_board = bool(plan.files[exhibit.paper].boards)
    summary = summarise(exhibit, rows, files, allow_all_failed=of_board or bool(failed))
    numbers = csv_text(summary.numbers)
    described = exhibit_metadata(exhibit, plan, plan.files[exhibit.paper], sources)
    if failed:
        words = dict.fromkeys(itertools.chain(*failed.values()))
        described |= {"notes": [*described["notes"], *words], "failed": failed}
    texts = {".csv": numbers.encode(), ".choice.csv": csv_text(summary.choice).encode()}
    every = read_csv(numbers)
    if exhibit.timed:
        times = csv_text(times_of(exhibit, files, list(summary.numbers.columns)))
        texts[TIMES] = times.encode()
        every = pd.concat([every, read_csv(times)], ignore_index=True)
    elif of_board and exhibit.is_table:
        texts[TIMES] = csv_text(method_times(exhibit, files, summary.numbers)).encode()
    shown = exhibit.settings.drawing.files(exhibit, described, every)
    source = {key: described[key] for key in SOURCE}

    write_table(f"{out_base}.metrics.parquet", tidy(exhibit, rows), "metrics", source, compact=True)
    write_exhibit(f"{out_base}", described, texts | shown)
    log(f"{exhibit.key}: {len(summary.numbers)} numbers from {sum(map(len, files.values()))} jobs")


def _require_current(
    key: str, files: Mapping[Run, Sequence[str]], tables: Mapping[Run, Metrics]
) -> None:
    """Refuse runs of other versions or parameters than the plan's.

    Snakemake runs them again by itself, except files that were copied here without its records.
    """
    old = []
    for run, table in tables.items():
        due = {spec.kind: [spec.resolved] for spec in (*specs_of(run.scenario), run.method)}
        for path, source in zip(files[run], table.sources, strict=True):
            for kind, now in due.items():
                then = source.get("resolved", {}).get(kind, now)
                if then != now:
                    old.append(f"{path} is of {then[0]}, which is {now[0]} now")
                    break
    if old:
        more = f", and so are {len(old) - 1} more files: delete them" if old[1:] else ": delete it"
        raise FedreproError(f"{key}: {old[0]}{more}, and start again")

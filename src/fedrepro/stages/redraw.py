"""Draw recorded figures and tables again with the present code, from their recorded numbers.

Nothing is trained, so a changed drawing is seen without the hours that its numbers took. If the
configuration has other methods, points or trials than the record, the figure must be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fedrepro.core.artifacts import read_provenance, read_table, write_bytes, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import comparable_text
from fedrepro.core.temporary_folders import temporary_folder
from fedrepro.numbers.exhibit_files import (
    SUFFIXES,
    TIMES,
    ExhibitFiles,
    open_recorded,
    write_files,
)
from fedrepro.numbers.exhibit_metadata import command_of, describe
from fedrepro.numbers.exhibit_tables import csv_text, leading_columns, read_csv
from fedrepro.numbers.trial_statistics import COLUMNS, with_pairs
from fedrepro.planning.config import load_config, load_exhibits
from fedrepro.planning.figure_interface import final
from fedrepro.planning.plan import Exhibit, Plan
from fedrepro.record.record_results import RECORD, Recorded, record

# keys of the json that say where the numbers come from
KEPT = ("data", "components", "computed", "timings")


def redraw(
    scale: str, keys: Sequence[str], target: Path = RECORD, source: str | None = None
) -> Recorded:
    """Draw recorded figures and tables again with the present drawing code, and record them again.

    Nothing is trained. `scale` is tiny, quick or paper. `keys` are figures and tables as
    paper/name, in the folder `target`. `source` is a recorded figure or table that has the numbers
    of all `keys`; by default each is drawn from its own numbers.

    Raises:
        FedreproError: a figure or table is not recorded, or its record has other methods, points or
            trials than the present configuration.
    """
    plan = Plan(load_config(), load_exhibits(), scale)
    with temporary_folder() as folder:
        for key in keys:
            exhibit = plan.exhibit(key)  # first, since it refuses a leaderboard by its name
            files = open_recorded(target / scale, source or key, scale)
            _draw(plan, exhibit, files, folder)
        done = record(scale, keys, folder, target)
    for key in keys:
        files = open_recorded(target / scale, key, scale)
        for suffix in set(SUFFIXES) - set(files.suffixes):
            Path(f"{target / scale / key}{suffix}").unlink(missing_ok=True)  # a table's old image
    return done


def _draw(plan: Plan, exhibit: Exhibit, files: ExhibitFiles, folder: Path) -> None:
    """Draw a figure or table again from its recorded `files`, and write it to `folder`."""
    labels = {measure.label for measure in exhibit.measures}
    numbers, choice = (_of(files.table(suffix), labels) for suffix in (".csv", ".choice.csv"))
    _require_all(exhibit, numbers, plan.scale)
    if exhibit.pairs:
        plain = numbers.drop(columns=list(COLUMNS), errors="ignore")
        rows = [{str(k): value for k, value in row.items()} for row in plain.to_dict("records")]
        paired = with_pairs(rows, leading_columns(plain), exhibit.pairs)
        numbers = pd.DataFrame(paired, columns=[*plain.columns, *COLUMNS])
    text = csv_text(numbers)
    described = {name: files.about[name] for name in KEPT} | describe(
        exhibit, plan, plan.files[exhibit.paper]
    )
    took = ("seconds", "cpu_seconds", "peak_bytes") if files.about["key"] == exhibit.key else ()
    run = {name: files.run[name] for name in ("machine", "machines", *took) if name in files.run}
    base = folder / plan.scale / exhibit.key
    contents = {".csv": text.encode(), ".choice.csv": csv_text(choice).encode()}
    every = read_csv(text)
    if TIMES in files.suffixes:
        contents[TIMES] = files.read(TIMES)
        every = pd.concat([every, read_csv(contents[TIMES].decode())], ignore_index=True)
    contents |= exhibit.settings.drawing.files(exhibit, described, every)
    base.parent.mkdir(parents=True, exist_ok=True)
    _write_metrics(exhibit, files, Path(f"{base}.metrics.parquet"))
    write_files(str(base), described | {"run": run}, contents, ".metrics.parquet")


def _of(table: pd.DataFrame, labels: set[str]) -> pd.DataFrame:
    """Return the rows of the methods `labels`, without columns of parameters that no row has."""
    kept = table[table["method"].isin(labels)].reset_index(drop=True)
    idle = [name for name in leading_columns(kept) if kept[name].isna().all()]
    return kept.drop(columns=idle if len(kept) else [])


def _write_metrics(exhibit: Exhibit, files: ExhibitFiles, path: Path) -> None:
    """Write the recorded metrics of the methods that a figure or table shows to `path`."""
    data = files.read(".metrics.parquet")
    write_bytes(path, data)
    table = read_table(path, "metrics")
    # scenarios may have other settings of a method, so settings of all points are kept
    measures = (measure for point in exhibit.points for measure in point.measures)
    tokens = {setting.method.token for measure in measures for setting in measure.settings}
    kept = table.filter(pc.is_in(table["method"], pa.array(sorted(tokens))))
    if len(kept) < len(table):
        plain, source = kept.replace_schema_metadata(), read_provenance(table)
        write_table(path, plain, "metrics", source, compact=True)


def _require_all(exhibit: Exhibit, numbers: pd.DataFrame, scale: str) -> None:
    """Raise FedreproError unless recorded `numbers` have just the configured methods and trials."""
    recorded = {
        (*(comparable_text(row[key]) for key in exhibit.swept), row["method"]): int(row["trials"])
        for row in final(numbers).to_dict("records")
    }
    wanted = {
        (*map(comparable_text, point.values.values()), label): trials
        for point in exhibit.points
        for label, trials in point.trials.items()
    }
    other = sorted({key[-1] for key, trials in wanted.items() if recorded.get(key) != trials})
    if other or len(recorded) > len(wanted):
        raise FedreproError(
            f"{exhibit.key}: the record has other methods, points or numbers of trials than the "
            f"config, of {', '.join(other) or 'all'}; compute it again with: "
            f"{command_of(exhibit, scale)}"
        )

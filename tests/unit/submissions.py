"""A leaderboard of two clients with digits, and a method that is entered on it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import once
import pyarrow as pa

from fedrepro.cli import name_configured
from fedrepro.cli.main import main
from fedrepro.core import outside
from fedrepro.core.artifacts import read_source, read_table, write_table
from fedrepro.core.registry import components
from fedrepro.planning.config import load_config, load_exhibits
from fedrepro.planning.entered import entry_plan, job_of, jobs_before, runs_of
from fedrepro.planning.plan import Plan
from fedrepro.record.entry import pack, unpack

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/adding-a-method.md").read_text()
MEDIAN = next(c for c in re.findall(r"```python\n(.*?)```", PAGE, re.S) if '@method("median"' in c)
SAYS = {"name": "median", "label": "median of others"}
# a convolution, so that nothing has to be compiled: where QEMU plays a processor that takes minutes
BOARD = """
paper: mini
title: A small leaderboard
source: tests
boards:
  "1": {title: small, baseline: FedAvg, ceiling: pooled, line: best}
exhibits:
  1-digits:
    title: Digits
    place: nowhere
    caption: None.
    drawing: {name: table, rows: [method], columns: [case], sizes: false}
    dataset: {name: digits}
    model: {name: cnn, channels: [2], kernel: 3, hidden: [4], bias: false}
    training: {name: sgd, epochs: 1, batch_size: 64, init: fan_in, shared_init: true}
    partition: {name: dirichlet, alpha: 0.5, validation: 100, validation_at: clients}
    sweep: {partition.clients: [2]}
    trials: 2
    cases:
      one: {label: alpha 0.5}
      iid: {label: iid, partition: {name: iid, validation: 100, validation_at: clients}}
    methods:
      - {name: average, label: FedAvg}
      - {name: pooled, label: pooled, reference: true}
      - {name: best_client, label: best, reference: true}
"""


def folder_of(place: Path, text: str = MEDIAN) -> None:
    """A working folder with the leaderboard and the method."""
    (place / "config/exhibits").mkdir(parents=True)
    (place / "config/exhibits/mini.yaml").write_text(BOARD)
    shutil.copy2(ROOT / "config/datasets.csv", place / "config/datasets.csv")
    (place / "median.py").write_text(text)
    says = json.dumps(SAYS)
    (place / "config/config.yaml").write_text(
        f"components: [median.py]\nalso: {{mini: [{says}]}}\n"
    )


def words_of(plan: Plan) -> list[tuple[str, ...]]:
    """The words of all stages that compute the runs of a plan, in the working folder."""
    found: dict[str, tuple[str, ...]] = {}
    for run in runs_of(plan, list(plan.exhibits)):
        jobs = jobs_before(plan, run, ".")
        last = job_of(plan, run, ".", str(Path(run.path).parent), (set(), set()))
        found |= {job.out: job.words for job in [*jobs, last]}
    return list(found.values())


def words_of_entry() -> list[tuple[str, ...]]:
    """The same of the entry."""
    item = components("method")["median"]
    return words_of(entry_plan(load_exhibits()["mini"], SAYS, item, "tiny", load_config()))


def computed(place: Path) -> None:
    """The runs of the entry, and the archive of it."""
    folder_of(place)
    with chdir(place):
        for words in words_of_entry():
            assert main(["job", *words]) == 0
        assert main(["submit", "mini/1", "--scale", "tiny", "--by", "a test"]) == 0


def grounded(place: Path) -> None:
    """The leaderboard without the entry, computed and drawn."""
    shutil.copytree(working_folder() / "results", place / "results")
    folder_of(place, "")
    (place / "config/config.yaml").write_text("{}\n")
    with chdir(place):
        plan = Plan(load_config(), {"mini": load_exhibits()["mini"]}, "tiny")
        for words in words_of(plan):
            if not Path(json.loads(words[0])["out"]).exists():
                assert main(["job", *words]) == 0
        drawn = {"stage": "exhibit", "exhibit": "mini/1-digits", "scale": "tiny"}
        assert main(["job", json.dumps(drawn | {"out": "reports/tiny/mini/1-digits"})]) == 0
        ranked = {"stage": "board", "board": "mini/1", "scale": "tiny", "reports": "reports/tiny"}
        assert main(["job", json.dumps(ranked | {"out": "reports/tiny/mini/1"})]) == 0


class chdir:
    """In a folder, with what its configuration names and nothing else."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __enter__(self) -> None:
        self.before, self.named = os.getcwd(), os.environ.pop(outside.NAMED, None)
        os.chdir(self.place)
        name_configured()

    def __exit__(self, *_: object) -> None:
        os.chdir(self.before)
        outside.name_files([])
        components("method")
        os.environ.pop(outside.NAMED, None)
        if self.named is not None:
            os.environ[outside.NAMED] = self.named


def working_folder() -> Path:
    """The folder of a submitter, computed once for all tests."""
    return once.folder("submission", computed)


def ground_folder() -> Path:
    """The folder of who makes the leaderboard, computed once for all tests."""
    return once.folder("submission-ground", grounded)


def repacked(archive: Path, folder: Path, change: Callable[[dict, dict[str, bytes]], None]) -> Path:
    """An archive with something altered, and every digest of it made anew."""
    folder.mkdir()
    found = unpack(archive, folder)
    told = found.entry.model_dump(mode="json", by_alias=True, exclude={"files"})
    files = {name: found.read(name) for name in found.entry.files}
    change(told, files)
    out = folder.with_suffix(".zip")
    pack(told, files, out)
    return out


def with_number(folder: Path, name: str, data: bytes, value: float) -> bytes:
    """A file of metrics with another first accuracy, as fedrepro itself would write it."""
    path = folder / "rewritten" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    source, table = read_source(path), read_table(path, "metrics")
    values = table["value"].to_pylist()
    values[table["metric"].to_pylist().index("accuracy")] = value
    place = table.column_names.index("value")
    table = table.set_column(place, "value", pa.array(values, pa.float64()))
    write_table(path, table.replace_schema_metadata(), "metrics", source)
    return path.read_bytes()

"""Metrics that nobody measured: files of an exhibit's runs with values that a test decides."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import once
import pyarrow as pa
import pytest

from fedrepro.core.checksummed_files import read_json, write_table
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.numbers.exhibit_files import write_files
from fedrepro.numbers.tables_and_selection import read_metrics
from fedrepro.planning.config_files import Config, load_exhibits
from fedrepro.planning.plan import Plan, Run
from fedrepro.planning.scenarios_runs_and_jobs import folders_of
from fedrepro.stages.figures_claims_and_pages import draw_exhibit

ROOT = Path(__file__).parents[2]
KEY = "pfnm/figure-2a"
REVISION = "0123456789ab"
ORIGIN = {
    "revision": REVISION,
    "digest": "12" * 16,
    "versions": {"torch": "2"},
    "arithmetic": "portable",
    "device": "cpu",
    "machine": {"system": "Linux", "cpu": "of the files", "cores": 3, "python": "3.11.7"},
}
SOURCE = {"data": "ab" * 32, "seed": 0, **ORIGIN}

# (setting's token, clients, trial, metric, split) -> value
Values = Callable[[str, int, int, str, str], float]


def plausible(token: str, clients: int, trial: int, metric: str, split: str) -> float:
    name = token.split("+")[0]
    if metric == "hidden_units":
        stacked = name in ("uniform_ensemble", "weighted_ensemble", "concatenation", "unmatched")
        sizes = {"distillation": 500, "majority": 0, "pfnm": 40 * clients + trial}
        return float(sizes.get(name, 50 * clients if stacked else 50))
    level = 0.11 if name == "majority" else 0.95 - 0.01 * clients
    place = token, clients, trial, metric, split
    return level + 0.02 * (zlib.crc32(repr(place).encode()) / 2**32)


FILES = cache(lambda: load_exhibits())
PLANS: dict[str, Plan] = {}


def plan(scale: str = "tiny", **config) -> Plan:
    """The repository's exhibits at a scale, planned once by each worker: not to be changed."""
    key = repr((scale, sorted(config.items())))
    if key not in PLANS:
        PLANS[key] = Plan(Config(**config), FILES(), scale)
    return PLANS[key]


def write_runs(made: Plan, key: str = KEY, values: Values = plausible) -> None:
    """Metrics and timings of every run of an exhibit, in the working folder."""
    for run, trials in made.exhibit(key).trials.items():
        for block, path in zip(made.blocks(trials), made.run_files(run, trials), strict=True):
            table = Table(run.scenario.specs)
            for trial in block:
                for setting in run.method.expand():
                    rows = list(_rows(setting, run.scenario.clients, trial, values))
                    table.add(rows)
                    table.add(_tuned(rows, run))
            write_table(path, table.arrow(), "metrics", SOURCE)
            times, token = Path(path).with_name("timings.parquet"), next(run.method.expand()).token
            write_times(times, [(t, 0) for t in block], 2.0, {"method": token})


def tables_of(made: Plan, key: str = KEY, values: Values = plausible) -> dict[Run, pa.Table]:
    write_runs(made, key, values)
    exhibit = made.exhibit(key)
    return {r: read_metrics(made.run_files(r, n))[0] for r, n in exhibit.trials.items()}


def _tuned(rows: list[MetricRow], run: Run) -> Iterator[MetricRow]:
    """The same after tuning, a hundredth better on each further sample."""
    for tune in run.tune.expand() if run.tune else ():
        for repetition in range(tune["repetitions"]):
            more = 0.01 * (1 + repetition)
            for row in rows:
                value = row.value + more * (row.metric == "accuracy")
                yield replace(row, value=value, tune=tune, repetition=repetition)


def _rows(setting, clients: int, trial: int, values: Values):
    def row(metric, split=None, **place):
        value = values(setting.token, clients, trial, metric, split or "")
        return MetricRow(trial, setting, metric, value, split, **place)

    if values(setting.token, clients, trial, "left_out", "") == 1:
        yield row("left_out")
        return
    yield from (row("accuracy", s) for s in setting.component.meta["evaluate"])
    yield row("hidden_units")
    yield row("accuracy", "test", client=0)
    rounds = 3 if setting.component.meta["kind"] == "federated" else 0
    yield from (row("accuracy", "test", round=done + 1) for done in range(rounds))
    if setting.name == "pfnm":
        yield row("accuracy_clients", "train")
        yield row("matched_share")


SPENT = {"cpu_seconds": 5.0, "peak_bytes": 2**30}


def write_times(
    path: Path, models: list[tuple[int, int]], seconds: float, more: dict[str, str] | None = None
) -> None:
    trials, clients = zip(*models, strict=True)
    columns = {"trial": list(trials), "client": list(clients), "seconds": [seconds] * len(models)}
    columns |= {name: [text] * len(models) for name, text in (more or {}).items()}
    write_table(path, columns, "timings", SPENT)


def write_training_times(made: Plan, key: str = KEY, seconds: float = 3.0) -> None:
    for run, trials in made.exhibit(key).trials.items():
        for block in made.blocks(trials) if run.every is None else ():
            for path in map(Path, folders_of(made.local(run.scenario, block))):
                clients = made.job(str(path.parent)).clients
                models = [(t, j) for t in block for j in clients]
                write_times(path.with_name("timings.parquet"), models, seconds)


def draw(made: Plan, key: str = KEY, values: Values = plausible) -> Path:
    """The exhibit through its stage; returns its path without a suffix."""
    write_runs(made, key, values)
    base = Path(made.exhibit_file(key, ""))
    draw_exhibit(key, made, base)
    return base


def made_once(name: str, make: Callable[[], object]) -> None:
    """What `make` leaves in the working folder, which depends on the name only: a copy of it."""
    tops = ("results", "reports")

    def fill(folder: Path) -> None:
        make()
        for top in tops:
            shutil.copytree(top, folder / top)
            shutil.rmtree(top)

    kept = once.folder(f"drawn/{name}", fill)
    for top in tops:
        shutil.copytree(kept / top, top)


def rewrite(base: Path | str, suffix: str, data: bytes) -> None:
    """Another file in the place of one of a drawn exhibit, as if it had been drawn so."""
    others = (".svg", ".png", ".csv", ".choice.csv")
    contents = {name: Path(f"{base}{name}").read_bytes() for name in others}
    about = read_json(f"{base}.json")
    write_files(str(base), about, contents | {suffix: data}, ".metrics.parquet")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the repository's config, at a clean revision."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    at_revision(monkeypatch, REVISION)
    return tmp_path


def at_revision(monkeypatch: pytest.MonkeyPatch, revision: str) -> None:
    """Exhibits are drawn from now on by sources of this revision."""
    sources = {"revision": revision, "digest": "34" * 16}
    monkeypatch.setattr("fedrepro.numbers.exhibit_files.loaded_source", sources.copy)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage without its slowest part, for tests that do not look at figures."""
    images = {".svg": b"<svg/>", ".png": b"png"}
    monkeypatch.setattr("fedrepro.drawings.lines_and_layout.Figured.files", lambda *_: images)

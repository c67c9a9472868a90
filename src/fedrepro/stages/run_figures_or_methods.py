"""Compute figures, tables or methods given by options."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import shlex
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core import user_component_files as component_files
from fedrepro.core.checksummed_files import write_text
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.paper_files import OWN_EXHIBITS, paper_names
from fedrepro.core.params import comparable_text
from fedrepro.core.registry import components, model_in
from fedrepro.numbers.exhibit_files import open_exhibit
from fedrepro.numbers.intervals import interval_of_mean
from fedrepro.numbers.run_times import seconds_by_setting, spent_by_stage
from fedrepro.numbers.tables_and_selection import csv_text, read_metrics
from fedrepro.planning import config_files as configs
from fedrepro.planning.command_line_runs import SCALE, RunWords, exhibits_of_words, plan_of_words
from fedrepro.planning.drawing_base import ROUND, final, select_series
from fedrepro.planning.exhibit import Exhibit
from fedrepro.planning.plan import Plan
from fedrepro.planning.scenarios_runs_and_jobs import MODEL, TIMINGS, folders_of, log_path
from fedrepro.stages.snakemake_in_folder import WORKFLOW, compute, inside_folder, start

OUT = Path("runs")
CONFIDENCE = 0.95
SAID = re.compile(r": round (\d+) of (\d+), accuracy (\S+)")
COLUMNS = ("method", "accuracy", "low", "high", "trials", "megabytes", "seconds")


def run(
    key: str | Path = "",
    scale: str = "quick",
    *,
    folder: str | Path = "",
    cores: int | None = None,
    profile: str = "",
    **words: Any,
) -> pd.DataFrame:
    """Compute a figure or table, such as pfnm/figure-2a, or methods given by options.

    Options are as in run(methods="fedavg,scaffold", data="mnist", partition="dirichlet:0.1"). With
    options or a YAML file the result is the table that `fedrepro run` prints, a row per method. For
    a figure or table it has a row per point (values of the swept parameters), method, metric and
    split: mean, sd and number of trials, each trial's value and the selected parameters.
    `attrs["file"]` of the result is the path of the picture or page.

    Args:
        key: name of the figure or table, or the path of a YAML file.
        scale: size of a figure's or table's experiments: tiny, quick or paper.
        folder: a folder that `start` made, or the repository's root, by default the current folder.
            With options or a YAML file it is made if missing, by default as `runs`.
        cores: number of cores, by default all that this process may use.
        profile: profile of Snakemake, such as for a cluster.
        words: options of a run, and `changes` of parameters, such as {"scaffold.lr": 0.1}.
    """
    if words or Path(key).suffix == ".yaml":
        with component_files.restored_files():
            return run_words(words or Path(key), folder, cores, profile)
    key, profile = str(key), _located(profile)
    with component_files.restored_files(), inside_folder(folder or "."):
        config = configs.load_config()
        components("method")  # forgets files of an earlier call, which may have changed
        component_files.add_files(map(os.path.abspath, config.components))
        plan = Plan(config, configs.load_exhibits(), scale)
        exhibit = plan.exhibit(key)
        target = plan.exhibit_file(key, exhibit.suffix)
        compute([target], cores, profile)
        frame = open_exhibit(Path("reports", scale), key, scale).numbers
        frame.attrs["file"] = os.path.abspath(target)
        return frame


def run_words(
    given: str | Path | Mapping[str, Any],
    folder: str | Path = "",
    cores: int | None = None,
    profile: str = "",
    show: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Compute methods given by options, or the figures and tables of a YAML file; return results.

    The result has a row per method: mean test accuracy over trials with its 95 % interval,
    megabytes that clients and server sent, and seconds of one core per trial. Its `attrs` has the
    paths of a picture (`file`), of all numbers (`csv`) and of the run's description (`yaml`), the
    `command` that repeats the run, and `networks`, {path of trained models: method's label}.
    `given` has options by name, or is the path of a YAML file; `show` is called with lines of
    progress. `folder`, `cores` and `profile` are as in `run`. If an
    option is wrong, FedreproError is raised and nothing is computed.
    """
    out, words = Path(folder or OUT), _words(given) if isinstance(given, Mapping) else None
    source = Path("" if isinstance(given, Mapping) else given).absolute()
    if not words:
        if not source.is_file():
            raise FedreproError(f"{given} is missing: name the YAML file of a run, or methods")
        own = not folder and source.parts[-3:-1] == OWN_EXHIBITS.parts  # in a working folder
        out = source.parents[2] if own and (source.parents[2] / WORKFLOW).is_file() else out
    there, profile = (out / WORKFLOW).is_file(), _located(profile)
    if there:
        with inside_folder(out):
            components("method")  # as in `run`
            component_files.add_files(map(os.path.abspath, configs.load_config().components))
    where = inside_folder(out) if there else contextlib.nullcontext()  # with the files of the jobs
    if words:
        command, named, name = words.command, None, model_in(words.model)
        if name:  # jobs and the YAML name it
            component_files.set_files(map(os.path.abspath, component_files.configured_files()))
            named, words = words.model, replace(words, model=name)
        with where:
            plan_of_words(exhibits_of_words(words, "run"))
    else:
        command = f"fedrepro run {shlex.quote(str(given))}"
        file = configs.validated(configs.ExhibitFile, configs.load_yaml(source), str(source))
        if not file.names(SCALE):
            raise FedreproError(f"{given} has no exhibit at scale {SCALE}: add one to its scales")
        with where:
            for name in file.names(SCALE):
                plan_of_words(file, name, str(given))
        path, text = OWN_EXHIBITS / f"{file.paper}.yaml", source.read_text(encoding="utf-8")
    if not there:
        start(out)
    with inside_folder(out):
        if words:
            path, text = _place(words, command, named)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
        file = configs.validated(configs.ExhibitFile, configs.load_yaml(path), str(path))
        config = configs.load_config().model_copy(update={"also": {}})
        plan = Plan(config, {file.paper: file}, SCALE)
        exhibits = [plan.exhibit(f"{file.paper}/{name}") for name in file.names(SCALE)]
        targets = [plan.exhibit_file(one.key, one.suffix) for one in exhibits]
        compute(targets, cores, profile, own=True, watch=show and _watch(plan, exhibits, show))
        rows = [
            ({"exhibit": exhibit.name} if len(exhibits) > 1 else {}) | row
            for exhibit in exhibits
            for row in _rows(plan, exhibit)
        ]
        networks = {
            os.path.abspath(Path(file).with_name(MODEL)): label
            for point in (point for exhibit in exhibits for point in exhibit.points)
            for (label, _), one in point.runs.items()
            if one.stage == "federate"
            for file in plan.run_files(one, point.trials[label])
        }
        leading = dict.fromkeys(key for row in rows for key in row if key not in COLUMNS)
        table = pd.DataFrame(rows, columns=[*leading, *COLUMNS])
        for exhibit, target in zip(exhibits, targets, strict=True):
            _write_events(exhibit, os.path.splitext(target)[0] + ".events")
        base = os.path.abspath(targets[0]).removesuffix(exhibits[0].suffix)
        write_text(f"{base}.table.csv", csv_text(table))
        picture = base + (".html" if exhibits[0].is_table else ".png")
        yaml = os.path.abspath(path)
    command += f" --out {shlex.quote(str(folder))}" if folder else ""
    table.attrs |= {"file": picture, "csv": f"{base}.csv", "yaml": yaml, "command": command}
    table.attrs["networks"] = networks
    return table


def _located(profile: str) -> str:
    return os.path.abspath(profile) if os.path.isdir(profile) else profile


def _plain(value: Any) -> Any:
    """Return a value, also within lists and dicts, without NumPy's types, which YAML has not."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _words(given: Mapping[str, Any]) -> RunWords:
    given = _plain(given)
    known = [item.name for item in fields(RunWords)]
    for name in (name for name in given if name not in known):
        raise unknown("option", name, known)
    methods = given.get("methods") or ()
    methods = methods.split(",") if isinstance(methods, str) else methods
    if not (methods := [word.strip() for word in methods if word.strip()]):
        raise FedreproError("name one method or several: `fedrepro list methods` has them")
    return RunWords(**{**given, "methods": methods})


def _place(words: RunWords, command: str = "", model: str | None = None) -> tuple[Path, str]:
    for number in itertools.count(1):
        paper = words.name + (f"v{number}" if number > 1 else "")
        path = OWN_EXHIBITS / f"{paper}.yaml"
        text = exhibits_of_words(words, paper, command).as_yaml()
        if model:
            text = f"# of its own network: set FEDREPRO_COMPONENTS={model} to run this file\n{text}"
        taken = path.exists() and path.read_text(encoding="utf-8") != text
        if not taken and paper not in paper_names():
            return path, text
    raise AssertionError


def _rows(plan: Plan, exhibit: Exhibit) -> Iterator[dict[str, Any]]:
    numbers = final(open_exhibit(Path("reports") / SCALE, exhibit.key, SCALE).numbers)
    for point, measure in ((p, m) for p in exhibit.points for m in p.measures):
        rows = numbers[numbers["method"] == measure.label]
        for key, value in point.values.items():
            rows = rows[rows[key].map(comparable_text) == comparable_text(value)]
        if (rows["metric"] == "left_out").any():
            said = "makes no model of these clients in some trial, so that it has no row"
            warnings.warn(f"{measure.label} {said}", stacklevel=4)
        accuracy = rows[(rows["metric"] == "accuracy") & (rows["split"] == "test")]
        for _, row in accuracy.iterrows():
            interval = interval_of_mean(np.array(row["by_trial"].split(), float), CONFIDENCE)
            means = dict(list(rows[rows["setting"] == row["setting"]].groupby("metric")))
            # along an edge one message is sent and received
            counted = (
                ("bytes_up",) if measure.spec.method_kind.on_graph else ("bytes_up", "bytes_down")
            )
            sent = [means[m]["mean"].iloc[0] for m in counted if m in means]
            setting = next(s for s in measure.settings if s.token == row["setting"])
            run, trials = point.runs[measure.label, setting], point.trials[measure.label]
            files = plan.run_files(run, trials)
            if all(map(os.path.exists, files)):  # those in which a setting failed are deleted
                _warn_of_lost_updates(measure.label, files, run.rows_of(setting))
            paths = [Path(file).with_name(TIMINGS) for file in files]
            own = seconds_by_setting(paths).get(run.rows_of(setting), [0.0])
            blocks = plan.blocks(trials, run)
            trained: list[Path] = []  # seconds of local training
            if run.scenario and run.stage == "aggregate":
                local = (plan.local(run.scenario, block) for block in blocks)
                trained = [Path(f).with_name(TIMINGS) for text in local for f in folders_of(text)]
            seconds = sum(spent_by_stage(trained)["seconds"].values()) / sum(map(len, blocks))
            cells = [measure.label, row["mean"], interval.low, interval.high, row["trials"]]
            cells += [sum(sent) / 1e6 if sent else math.nan, float(np.mean(own)) + seconds]
            shown = {key: row[key] for key in exhibit.shown}
            yield {**point.values, **shown, **dict(zip(COLUMNS, cells, strict=True))}


def _write_events(exhibit: Exhibit, folder: str) -> None:
    """Write curves of test accuracy by round to `folder` for TensorBoard, if it is installed."""
    numbers = open_exhibit(Path("reports") / SCALE, exhibit.key, SCALE).numbers
    if ROUND not in numbers or find_spec("tensorboard") is None:
        return
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(folder, ignore_errors=True)
    rows = select_series(numbers[numbers[ROUND].notna()], "accuracy", "test")
    swept = exhibit.swept if len(exhibit.points) > 1 else []
    for place, curve in rows.groupby(["method", *swept, *exhibit.shown], dropna=False):
        name = " ".join(comparable_text(value) for value in place if value == value)
        name = name.replace("/", "-")
        with SummaryWriter(f"{folder}/{name}") as writer:
            for at, mean in zip(curve[ROUND], curve["mean"], strict=True):
                writer.add_scalar("test accuracy", mean, int(at))


def _warn_of_lost_updates(label: str, files: Sequence[str], setting: str) -> None:
    rows = read_metrics(files)[0].to_pandas()
    rows = rows[(rows["metric"] == "updates_rejected") & (rows["setting"] == setting)]
    if lost := int(rows.groupby("trial")["value"].max().sum()):
        said = f"{lost} of the clients' updates were not finite numbers and are left out"
        warnings.warn(f"{label}: {said}; a smaller lr may help", stacklevel=5)


def _watch(plan: Plan, exhibits: list[Exhibit], show: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that calls `show` with jobs' progress: share, time left, accuracies."""
    began: list[tuple[float, float]] = []  # time and share done, at the first call with progress

    def look() -> None:
        shares: list[float] = []
        accuracies: list[str] = []
        for point in (point for exhibit in exhibits for point in exhibit.points):
            for (label, _), run in point.runs.items():
                found = [_how_far(file) for file in plan.run_files(run, point.trials[label])]
                shares += [share for share, _ in found]
                known = [accuracy for _, accuracy in found if accuracy is not None]
                if run.method.method_kind.in_rounds and known:
                    accuracies.append(f"{label} {100 * np.mean(known):.1f} %")
        if 0 < (done := float(np.mean(shares))) < 1:
            began.append((time.monotonic(), done))
            (since, first), (now, _) = began[0], began[-1]
            words = [f"{100 * done:.0f} % done"]
            if done > first:
                words.append(f"{(now - since) * (1 - done) / (done - first):.0f} s left")
            show(", ".join([*words, *accuracies]))

    return look


def _how_far(metrics: str) -> tuple[float, float | None]:
    """Return (finished share, last accuracy or None) of the job that writes the file `metrics`."""
    path, ended = Path(log_path(str(Path(metrics).parent))), os.path.exists(metrics)
    said = SAID.findall(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else []
    if not said:
        return float(ended), None
    done, rounds, accuracy = said[-1]
    return 1.0 if ended else int(done) / int(rounds), float(accuracy)

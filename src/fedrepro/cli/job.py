"""`fedrepro job JSON`: runs one job of the workflow, also on a machine without Snakemake.

`planning/jobs.py` describes a job that computes; one that draws has the arguments of a function
below as keys. Neither typer nor pydantic is loaded to compute, so that a machine with only the
numerical packages is enough.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from importlib import import_module
from pathlib import Path
from typing import Any

from fedrepro.cli.main import THREADS
from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.registry import GRAPH, WITHOUT_GRAPH

WRITTEN = "job.json"  # in the folder of a job that is done
FOREVER = 1e7


def run_job(argv: Sequence[str]) -> int:
    """Run a job, or those jobs of a file that are not done yet; return the exit status."""
    parser = argparse.ArgumentParser(prog="fedrepro job", description=__doc__)
    parser.add_argument("job", help="json of a job, or a file with one a line")
    parser.add_argument("--threads", type=int, default=1, help="of the numerical libraries")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where to compute")
    parser.add_argument("--at-once", type=int, default=1, help="jobs of a file that run at once")
    parser.add_argument("--seconds", type=float, default=FOREVER, help="stop jobs of a file then")
    options = parser.parse_args(argv)
    if not options.job.lstrip().startswith(("{", "[")):
        return _run_list(Path(options.job), options)
    # before NumPy and torch are loaded, which read these once
    os.environ.update(dict.fromkeys(THREADS, str(options.threads)))
    _run(options.job, options.device)
    from fedrepro.core.provenance import say_what_it_took

    say_what_it_took()
    return 0


def _run_list(path: Path, options: argparse.Namespace) -> int:
    """Run the jobs of a file in processes, each after those that it needs; done ones are skipped.

    Returns 0 if all are done, else 1.
    """
    from fedrepro.core.artifacts import require_file
    from fedrepro.planning.jobs import log_of, read_job

    try:
        require_file(path)
        lines = path.read_text(encoding="utf-8").splitlines()
        jobs = [read_job(json.loads(line), str(path)) for line in lines if line.strip()]
    except (OSError, ValueError, AttributeError) as error:
        raise FedreproError(f"{path} cannot be read as jobs ({type(error).__name__})") from None
    end, words = time.monotonic() + options.seconds, [f"--threads={options.threads}"]
    command = [sys.executable, "-P", "-m", "fedrepro", "job", *words, f"--device={options.device}"]
    left = {}
    for job in jobs:
        note = Path(job.out, WRITTEN)  # says whether this very job is done
        if not note.exists() or note.read_text(encoding="utf-8") != _note(job):
            left[job.out] = job
    waiting = dict(left)

    def one(job: Any) -> int:
        log = Path(log_of(job.out))
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as said:
            process = subprocess.Popen([*command, job.text], stderr=said)
            try:
                return process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
                return process.wait()

    with ThreadPoolExecutor(options.at_once) as pool:
        running: dict[Any, str] = {}
        while time.monotonic() < end:
            for out, job in list(waiting.items()):
                if len(running) < options.at_once and not left.keys() & {*job.before}:
                    running[pool.submit(one, waiting.pop(out))] = out
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                out, status = running.pop(future), future.result()
                print(f"{status or 'done'}: {out}, {log_of(out)}", flush=True)
                if status == 0:
                    del left[out]
    print(f"{len(jobs) - len(left)} of {len(jobs)} jobs are done")
    return int(bool(left))


def _note(job: Any) -> str:
    return json.dumps({**json.loads(job.text), "digest": job.digest}, indent=1) + "\n"


def _run(text: str, device: str) -> None:
    """Run the job that a json text describes."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FedreproError(f"the job is not valid json: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("stage"), str):
        raise FedreproError(f'a job must be {{"stage": ...}} with its keys, not {shown(data)}')
    stage = data["stage"]
    if stage in COMPUTING:
        _compute(data, device)
        return
    if stage not in DRAWING:
        raise unknown("stage", stage, [*COMPUTING, *DRAWING], "the job")
    function = DRAWING[stage]
    given = {key: value for key, value in data.items() if key != "stage"}
    known = dict(inspect.signature(function).parameters)
    options = {"device": device} if known.pop("device", None) else {}
    for key, value in given.items():
        if key not in known:
            raise unknown("key", key, known, f"the job of stage {stage}")
        listed = value if isinstance(value, list) else [value]
        if not isinstance(value, TYPES.get(key, str)) or (
            key in MANY and not all(isinstance(one, str) for one in listed)
        ):
            raise FedreproError(f"the job of stage {stage}: '{key}' cannot be {shown(value)}")
    for key, parameter in known.items():
        if key not in given and parameter.default is parameter.empty:
            raise FedreproError(f"the job of stage {stage}: the key '{key}' is missing")
    function(**given, **options)


ON_DATA = (*WITHOUT_GRAPH, "data", "members", "trials")
COMPUTING: dict[str, tuple[str, ...]] = {  # stage -> the keys that it needs
    "prepare": ("dataset",),
    "partition": ("partition", "data", "trials"),
    "train": (*ON_DATA, "clients"),
    "aggregate": (*ON_DATA, "method", "local"),
    "federate": (*ON_DATA, "method"),
    "peer": (*ON_DATA, GRAPH, "method"),
    "simulate": ("method", "trials"),
}


def _compute(data: Mapping[str, Any], device: str) -> None:
    from fedrepro.core.artifacts import require_unread, write_text
    from fedrepro.planning.jobs import read_job

    job = read_job(data)
    for key in COMPUTING[job.stage]:
        if key not in job.specs and not getattr(job, key, None):
            raise FedreproError(f"the job of stage {job.stage}: the key '{key}' is missing")
    if method := job.specs.get("method"):
        kind = METHOD_KINDS[method.component.meta["kind"]]
        if kind.stage != job.stage:
            way = "in rounds" if kind.in_rounds else "at once"
            where = " on a graph" if kind.on_graph else ""
            raise FedreproError(
                f"method '{method.name}' is computed {way}{where}: its stage is {kind.stage}, "
                f"not {job.stage}"
            )
    require_unread(job.out, filter(None, (job.raw, job.data, job.public)))
    compute(job, device)
    write_text(Path(job.out, WRITTEN), _note(job))


def compute(job: Any, device: str) -> None:
    """Run the stage of a `planning.jobs.Job` that computes."""
    from fedrepro.planning.jobs import MEMBERS

    out = Path(job.out)
    module = import_module(
        f"fedrepro.stages.{'data' if job.stage in ('prepare', 'partition') else job.stage}"
    )
    if job.stage == "prepare":
        module.prepare(job.specs["dataset"], Path(job.raw), out)
    elif job.stage == "partition":
        partition = job.specs["partition"]
        module.partition(Path(job.data), partition, job.trials, job.seed, out / MEMBERS)
    elif job.stage == "simulate":
        module.run(job)
    else:
        module.run(job, device)


# ---------------------------------------------------------------------------------- what draws


def _download(dataset: str, file: str, out: str) -> None:
    from fedrepro.stages import data

    data.download(dataset, file, os.environ.get("FEDREPRO_MIRROR", ""), Path(out))


def _plan(scale: str, seed: int, granularity: Mapping[str, Any], exhibits: Sequence[str]) -> Any:
    from fedrepro.planning.config import load_config, load_exhibits, read_config
    from fedrepro.planning.plan import Plan

    changes = {"seed": seed, "granularity": granularity}
    config = read_config(load_config().model_dump() | changes, "the job")
    files = load_exhibits(of=exhibits)  # the others are not needed
    also = {paper: entries for paper, entries in config.also.items() if paper in files}
    return Plan(config.model_copy(update={"also": also}), files, scale)


def _exhibit(
    exhibit: str, scale: str, out: str, seed: int = 0, granularity: Mapping[str, Any] = {}
) -> None:
    from fedrepro.stages.reports import draw_exhibit

    draw_exhibit(exhibit, _plan(scale, seed, granularity, [exhibit]), Path(out))


def _models(
    exhibit: str, scale: str, reports: str, out: str, device: str,
    seed: int = 0, granularity: Mapping[str, Any] = {},
) -> None:  # fmt: skip
    from fedrepro.stages import export_models

    plan = _plan(scale, seed, granularity, [exhibit])
    export_models.run(exhibit, plan, Path(reports), device, Path(out))


def _maps(
    kind: str, exhibits: Sequence[str], scale: str, out: str,
    seed: int = 0, granularity: Mapping[str, Any] = {},
) -> None:  # fmt: skip
    from fedrepro.stages.reports import draw_maps

    draw_maps(kind, _plan(scale, seed, granularity, exhibits), exhibits, Path(out))


def _claims(paper: str, exhibits: Sequence[str], reports: str, out: str) -> None:
    from fedrepro.core.paper_files import claims_file
    from fedrepro.stages.reports import judge_claims

    judge_claims(claims_file(paper), exhibits, Path(reports), Path(out))


def _board(board: str, scale: str, reports: str, out: str) -> None:
    from fedrepro.stages.reports import draw_board

    draw_board(board, scale, Path(reports), Path(out))


def _site(
    scale: str, exhibits: Sequence[str], reports: str, out: str,
    maps: str = "", graphs: Sequence[str] = (),
) -> None:  # fmt: skip
    from fedrepro.stages.reports import draw_site

    drawn = Path(maps) if maps else None
    draw_site(scale, Path(reports), Path(out), exhibits, drawn, [Path(one) for one in graphs])


MANY = ("exhibits", "graphs")
TYPES: dict[str, type] = {"seed": int, "granularity": dict, **dict.fromkeys(MANY, list)}
DRAWING: dict[str, Callable[..., None]] = {
    "download": _download,
    "exhibit": _exhibit,
    "models": _models,
    "maps": _maps,
    "claims": _claims,
    "board": _board,
    "site": _site,
}

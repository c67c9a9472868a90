"""`fedrepro job JSON`: runs one job of the workflow, also on a machine without Snakemake.

The plan writes the json of jobs that compute (`planning/scenarios_runs_and_jobs.py`), the workflow
that of jobs that draw. Jobs that compute load neither typer nor pydantic.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from fedrepro.cli.main import THREADS
from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.method_kinds import STAGES, TRAIN
from fedrepro.core.paper_files import claims_file

WRITTEN = "job.json"  # in the folder of a job that is done
FOREVER = 1e7
COMPUTING = ("prepare", "partition", *STAGES)
MODULES = {"prepare": "data", "partition": "data", "train": "train_local_models"}
MODULES |= {"simulate": "run_simulation_methods"}
MODULES |= dict.fromkeys(("federate", "peer"), "federate_and_peer")
DRAWING = ("download", "exhibit", "claims", "board", "site")


def run_job(argv: Sequence[str]) -> int:
    """Run the job in `argv` (json), or a file's unfinished jobs (one a line); return the status."""
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
    try:
        data = json.loads(options.job)
    except ValueError as error:
        raise FedreproError(f"the job is not valid json: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("stage"), str):
        raise FedreproError(f'a job must be {{"stage": ...}} with its keys, not {shown(data)}')
    if data["stage"] in DRAWING:
        _draw(data)
    elif data["stage"] in COMPUTING:
        from fedrepro.core.checksummed_files import write_text
        from fedrepro.planning.scenarios_runs_and_jobs import read_job

        job = read_job(data)
        compute(job, options.device)
        write_text(Path(job.out, WRITTEN), _note(job))
    else:
        raise unknown("stage", data["stage"], [*COMPUTING, *DRAWING], "the job")
    from fedrepro.core.provenance import resources_used

    seconds, memory = resources_used().values()
    took = f"took {seconds:.2f} s of processor time and, at its peak, {memory / 2**20:.0f} MiB"
    print(took, "of memory", file=sys.stderr)
    return 0


def _run_list(path: Path, options: argparse.Namespace) -> int:
    """Run a file's unfinished jobs by stages, with `run_job`'s options; return 1 if any is left."""
    from fedrepro.core.checksummed_files import require_file
    from fedrepro.planning.scenarios_runs_and_jobs import log_path, read_job

    try:
        require_file(path)
        lines = path.read_text(encoding="utf-8").splitlines()
        jobs = [read_job(json.loads(line), str(path)) for line in lines if line.strip()]
    except (OSError, ValueError, AttributeError) as error:
        raise FedreproError(f"{path} cannot be read as jobs ({type(error).__name__})") from None
    for job in (job for job in jobs if job.stage not in COMPUTING):
        raise unknown("stage", job.stage, COMPUTING, str(path))
    end, words = time.monotonic() + options.seconds, [f"--threads={options.threads}"]
    command = [sys.executable, "-P", "-m", "fedrepro", "job", *words, f"--device={options.device}"]
    left: dict[str, Any] = {}
    for job in jobs:
        note = Path(job.out, WRITTEN)  # says whether this very job is done
        there = note.exists() and Path(job.result).exists()
        stale = not there or note.read_text(encoding="utf-8") != _note(job)
        if stale or left.keys() & {*job.before}:
            left[job.out] = job
            note.unlink(missing_ok=True)  # the next call computes it, whatever this one reaches

    def one(job: Any) -> None:
        if time.monotonic() > end or left.keys() & {*job.before}:
            return
        log = Path(log_path(job.out))
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as said:
            process = subprocess.Popen([*command, job.text], stderr=said)
            try:
                status = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
                status = process.wait()
        print(f"{status or 'done'}: {job.out}, {log}", flush=True)
        if status == 0:
            del left[job.out]

    for stages in (["prepare"], ["partition"], [TRAIN], STAGES[1:]):
        with ThreadPoolExecutor(max(1, options.at_once)) as pool:
            list(pool.map(one, [job for job in left.values() if job.stage in stages]))
    print(f"{len(jobs) - len(left)} of {len(jobs)} jobs are done")
    return int(bool(left))


def _note(job: Any) -> str:
    return json.dumps({**json.loads(job.text), "digest": job.digest}, indent=1) + "\n"


def compute(job: Any, device: str) -> None:
    """Run `job`, a `Job`, on `device` (cpu or cuda); write its results to job.out."""
    from fedrepro.planning.scenarios_runs_and_jobs import MEMBERS

    out = Path(job.out)
    module = import_module(f"fedrepro.stages.{MODULES.get(job.stage, job.stage)}")
    if job.stage == "prepare":
        module.prepare(job.specs["dataset"], Path(job.raw), out)
    elif job.stage == "partition":
        partition = job.specs["partition"]
        module.partition(Path(job.data), partition, job.trials, job.seed, out / MEMBERS)
    else:
        module.run(job, *([] if job.stage == "simulate" else [device]))


def _draw(data: dict[str, Any]) -> None:
    out, shown = Path(data["out"]), [*data.get("exhibits", ())]
    if data["stage"] == "download":
        from fedrepro.stages.data import download

        download(data["dataset"], data["file"], os.environ.get("FEDREPRO_MIRROR", ""), out)
        return
    from fedrepro.stages import figures_claims_and_pages as pages

    if data["stage"] == "exhibit":
        pages.draw_exhibit(data["exhibit"], _plan(data), out)
    elif data["stage"] == "claims":
        pages.judge_claims(claims_file(data["paper"]), shown, Path(data["reports"]), out)
    elif data["stage"] == "board":
        pages.draw_board(data["board"], data["scale"], Path(data["reports"]), out)
    else:
        pages.draw_site(data["scale"], Path(data["reports"]), out, shown)


def _plan(values: dict[str, Any]) -> Any:
    from fedrepro.planning.config_files import Config, load_exhibits, validated
    from fedrepro.planning.plan import Plan

    given = {key: values[key] for key in ("seed", "granularity")}
    given["also"] = {values["exhibit"].partition("/")[0]: values["also"]}
    files = load_exhibits(of=[values["exhibit"]])
    return Plan(validated(Config, given, "the job"), files, values["scale"])

"""`fedrepro job JSON`: one job of the workflow, which also a machine without Snakemake can run.

A job that computes is what `planning/jobs.py` says; of one that draws, its keys are the arguments
of a function below. Neither typer nor pydantic is loaded to compute, so that a machine is enough
that has only the numerical packages.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.registry import GRAPH, WITHOUT_GRAPH

WRITTEN = "job.json"  # in the folder of a job that is done


def run_job(argv: Sequence[str]) -> int:
    """Run a job, or the jobs of a file that are not done yet."""
    parser = argparse.ArgumentParser(prog="fedrepro job", description=__doc__)
    parser.add_argument("job", help="json of a job, or a file that holds one, or one a line")
    parser.add_argument("--threads", type=int, default=1, help="of the numerical libraries")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where to compute")
    options = parser.parse_args(argv)
    # before NumPy and torch are loaded, which read these once
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    texts = [options.job] if options.job.lstrip().startswith("{") else _lines(Path(options.job))
    for text in texts:
        _run(text, options.device, again=len(texts) == 1)
    from fedrepro.core.provenance import say_what_it_took

    say_what_it_took()
    return 0


def _lines(path: Path) -> list[str]:
    """The jobs of a file. Errors: FedreproError for one that cannot be read."""
    from fedrepro.core.artifacts import require_file

    require_file(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FedreproError(f"{path} cannot be read as jobs ({type(error).__name__})") from None
    return [line for line in text.splitlines() if line.strip()]


def _run(text: str, device: str, again: bool) -> None:
    """Run one job. again: also if it is done."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FedreproError(f"the job is not valid json: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("stage"), str):
        raise FedreproError(f'a job is {{"stage": ...}} with its keys, not {shown(data)}')
    stage = data["stage"]
    if stage in COMPUTING:
        _compute(data, device, again)
        return
    if stage not in DRAWING:
        raise unknown("stage", stage, [*COMPUTING, *DRAWING], "the job")
    function = DRAWING[stage]
    given = {key: value for key, value in data.items() if key != "stage"}
    known = inspect.signature(function).parameters
    for key in given:
        if key not in known:
            raise unknown("key", key, known, f"the job of stage {stage}")
    for key, parameter in known.items():
        if key not in given and parameter.default is parameter.empty:
            raise FedreproError(f"the job of stage {stage}: the key '{key}' is missing")
    function(**given, **({"device": device} if "device" in known else {}))


def _compute(data: Mapping[str, Any], device: str, again: bool) -> None:
    from fedrepro.core.artifacts import require_unread, write_text
    from fedrepro.planning.jobs import read_job

    job = read_job(data)
    needed, run = COMPUTING[job.stage]
    for key in needed:
        if key not in job.specs and not getattr(job, key, None):
            raise FedreproError(f"the job of stage {job.stage}: the key '{key}' is missing")
    _require_method(job)
    written = Path(job.out, WRITTEN)
    if not again and written.exists() and written.read_text(encoding="utf-8") == f"{job.text}\n":
        return
    require_unread(job.out, filter(None, (job.raw, job.data, job.public)))
    run(job, device)
    write_text(written, f"{job.text}\n")


def _require_method(job: Any) -> None:
    """Errors: FedreproError for a method that another stage computes."""
    if "method" in job.specs:
        method = job.specs["method"]
        kind = METHOD_KINDS[method.component.meta["kind"]]
        if kind.stage != job.stage:
            way = "in rounds" if kind.in_rounds else "at once"
            where = " on a graph" if kind.on_graph else ""
            raise FedreproError(
                f"method '{method.name}' is computed {way}{where}: its stage is {kind.stage}, "
                f"not {job.stage}"
            )


# -------------------------------------------------------------------------------- what computes


def _prepare(job: Any, device: str) -> None:
    from fedrepro.stages import data

    data.prepare(job.specs["dataset"], Path(job.raw), Path(job.out))


def _partition(job: Any, device: str) -> None:
    from fedrepro.planning.jobs import MEMBERS
    from fedrepro.stages import data

    out = Path(job.out, MEMBERS)
    data.partition(Path(job.data), job.specs["partition"], job.trials, job.seed, out)


def _train(job: Any, device: str) -> None:
    from fedrepro.stages import train

    train.run(job, device)


def _aggregate(job: Any, device: str) -> None:
    from fedrepro.stages import aggregate

    aggregate.run(job, device)


def _federate(job: Any, device: str) -> None:
    from fedrepro.stages import federate

    federate.run(job, device)


def _peer(job: Any, device: str) -> None:
    from fedrepro.stages import peer

    peer.run(job, device)


def _simulate(job: Any, device: str) -> None:
    from fedrepro.stages import simulate

    simulate.run(job)


ON_DATA = (*WITHOUT_GRAPH, "data", "members", "trials")
COMPUTING: dict[str, tuple[tuple[str, ...], Callable[[Any, str], None]]] = {
    "prepare": (("dataset",), _prepare),
    "partition": (("partition", "data", "trials"), _partition),
    "train": ((*ON_DATA, "clients"), _train),
    "aggregate": ((*ON_DATA, "method", "local"), _aggregate),
    "federate": ((*ON_DATA, "method"), _federate),
    "peer": ((*ON_DATA, GRAPH, "method"), _peer),
    "simulate": (("method", "trials"), _simulate),
}


# ---------------------------------------------------------------------------------- what draws


def _download(dataset: str, file: str, out: str) -> None:
    from fedrepro.stages import data

    data.download(dataset, file, os.environ.get("FEDREPRO_MIRROR", ""), Path(out))


def _plan(scale: str, seed: int, granularity: Mapping[str, Any], exhibits: Sequence[str]) -> Any:
    from fedrepro.planning.config import load_config, load_exhibits, read_config
    from fedrepro.planning.plan import Plan

    changes = {"seed": seed, "granularity": granularity}
    config = read_config(load_config().model_dump() | changes, "the job")
    files = load_exhibits(of=exhibits)  # of others nothing is asked
    also = {paper: entries for paper, entries in config.also.items() if paper in files}
    return Plan(config.model_copy(update={"also": also}), files, scale)


def _exhibit(
    exhibit: str, scale: str, out: str, seed: int = 0, granularity: Mapping[str, Any] = {}
) -> None:
    from fedrepro.stages import exhibit as stage

    stage.run(exhibit, _plan(scale, seed, granularity, [exhibit]), Path(out))


def _models(
    exhibit: str, scale: str, reports: str, out: str, device: str,
    seed: int = 0, granularity: Mapping[str, Any] = {},
) -> None:  # fmt: skip
    from fedrepro.stages import chosen

    plan = _plan(scale, seed, granularity, [exhibit])
    chosen.run(exhibit, plan, Path(reports), device, Path(out))


def _maps(
    kind: str, exhibits: Sequence[str], scale: str, out: str,
    seed: int = 0, granularity: Mapping[str, Any] = {},
) -> None:  # fmt: skip
    from fedrepro.stages import maps

    draw = {"partitions": maps.run, "graphs": maps.run_graphs}[kind]
    draw(_plan(scale, seed, granularity, exhibits), exhibits, Path(out))


def _claims(paper: str, exhibits: Sequence[str], reports: str, out: str) -> None:
    from fedrepro.core.packs import claims_file
    from fedrepro.stages import claims

    claims.run(claims_file(paper), exhibits, Path(reports), Path(out))


def _board(board: str, scale: str, reports: str, out: str) -> None:
    from fedrepro.stages import board as stage

    stage.run(board, scale, Path(reports), Path(out))


def _site(
    scale: str, exhibits: Sequence[str], reports: str, out: str,
    maps: str = "", graphs: Sequence[str] = (),
) -> None:  # fmt: skip
    from fedrepro.stages import site

    drawn = Path(maps) if maps else None
    site.run(scale, Path(reports), Path(out), exhibits, drawn, [Path(one) for one in graphs])


DRAWING: dict[str, Callable[..., None]] = {
    "download": _download,
    "exhibit": _exhibit,
    "models": _models,
    "maps": _maps,
    "claims": _claims,
    "board": _board,
    "site": _site,
}

"""`fedrepro stage NAME …`: the workflow's stages, one command each; also without Snakemake.

Neither typer nor pydantic is loaded for the compute stages, so that they run on a machine that
has only the numerical packages.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.registry import SCENARIO, WITHOUT_GRAPH

Options = argparse.Namespace
Stage = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[Options], None]]


def run_stage(argv: Sequence[str]) -> int:
    """Parse the arguments of one stage and run it."""
    parser = argparse.ArgumentParser(prog="fedrepro stage", description=__doc__)
    names = parser.add_subparsers(dest="stage", required=True, metavar="NAME")
    for name, (doc, arguments, _) in STAGES.items():
        subparser = names.add_parser(name, help=doc, description=doc)
        subparser.add_argument("--threads", type=int, default=1, help="of the numerical libraries")
        arguments(subparser)
    options = parser.parse_args(argv)
    _limit_threads(options.threads)
    if getattr(options, "arithmetic", "") == "native":
        from fedrepro.machine.products import require_right

        require_right()
    _require_unread(options)
    STAGES[options.stage][2](options)
    from fedrepro.core.provenance import say_what_it_took

    say_what_it_took()
    return 0


def _require_unread(options: Options) -> None:
    """Refuse a file or folder to write that the stage reads."""
    from fedrepro.core.artifacts import require_unread

    read = [value for name, value in vars(options).items() if name not in WRITTEN]
    paths = [p for value in read for p in (value if isinstance(value, list) else [value])]
    for name in WRITTEN & vars(options).keys():
        require_unread(getattr(options, name), [p for p in paths if isinstance(p, Path)])


def _limit_threads(count: int) -> None:
    """Must come before NumPy and torch are loaded, which read these once."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(count)


def _spec(kind: str, token: str) -> Any:
    from fedrepro.core.registry import parse_token

    return parse_token(kind, token)


def _method(token: str, stage: str) -> Any:
    """The method of a job. Errors: FedreproError for one that another stage computes."""
    method = _spec("method", token)
    kind = METHOD_KINDS[method.component.meta["kind"]]
    if kind.stage != stage:
        way = "in rounds" if kind.in_rounds else "at once"
        where = " on a graph" if kind.on_graph else ""
        raise FedreproError(
            f"method '{method.name}' is computed {way}{where}: give it to `fedrepro stage "
            f"{kind.stage}`"
        )
    return method


def _block(text: str) -> Any:
    from fedrepro.planning.paths import TrialBlock

    return TrialBlock.parse(text)


def _scenario(options: Options) -> Any:
    from fedrepro.planning.paths import Scenario

    return Scenario(**{kind: _spec(kind, token) for kind, token in _tokens_of(options).items()})


def _tokens_of(options: Options) -> dict[str, str]:
    """The components of a scenario by kind; only a stage of peers is given a graph."""
    return {kind: getattr(options, kind) for kind in SCENARIO if kind in options}


def _tuning(token: str) -> Any:
    """How a method is tuned; None for no token."""
    from fedrepro.core.tuning import parse_tuning

    return parse_tuning(token) if token else None


def _racing(options: Options, race: int) -> tuple[Any, Any]:
    """Scenario and method of a job in rounds; only in a race do they stand for several settings."""
    from fedrepro.core.registry import parse_settings
    from fedrepro.planning.paths import Scenario

    method = _method(options.method, options.stage)
    if not race:
        return _scenario(options), method.single()
    specs = {k: _spec(k, token) for k, token in _tokens_of(options).items() if k != "training"}
    return Scenario(**specs, training=parse_settings("training", options.training)), method


def _add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add arguments by name, from the table below."""
    for name in names:
        flags = dict(ARGUMENTS[name])
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, **flags)


WRITTEN = {"out", "timings", "global_model", "confusion", "nodes"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "dataset": {"required": True, "help": "token of the data set"},
    "partition": {"required": True, "help": "token of the partition"},
    "model": {"required": True, "help": "token of the model"},
    "training": {"required": True, "help": "token of the training procedure"},
    "graph": {"required": True, "help": "token of the graph"},
    "method": {"required": True, "help": "token of the method"},
    "file": {"required": True, "help": "file name, as in config/datasets.csv"},
    "public": {
        "type": Path,
        "default": None,
        "help": "folder of the data set whose inputs, without labels, the server has",
    },
    "mirror": {
        "default": os.environ.get("FEDREPRO_MIRROR", ""),
        "help": "folder with copies of the data sets",
    },
    "raw": {"type": Path, "default": Path(), "help": "folder of the raw files"},
    "data": {"type": Path, "required": True, "help": "folder of the prepared data set"},
    "members": {"type": Path, "required": True, "help": "partition.parquet"},
    "local": {
        "type": Path,
        "nargs": "+",
        "required": True,
        "help": "local models, parquet; or the folder of a scenario's, with the option below",
    },
    "local_clients": {"default": "", "help": "clients of the training jobs, such as 0-99:10"},
    "trials": {"required": True, "help": "range of trials, such as 0-9, or 3"},
    "clients": {"required": True, "help": "range of clients, such as 0-24"},
    "seed": {"type": int, "default": 0, "help": "seed of every draw"},
    "arithmetic": {
        "default": "portable",
        "choices": ["portable", "native"],
        "help": "branches of the libraries: those of every x86-64 processor with AVX2, or the "
        "widest ones of this machine",
    },
    "device": {"default": "cpu", "choices": ["cpu", "cuda"], "help": "where to compute"},
    "checkpoint_seconds": {
        "type": float,
        "default": float(os.environ.get("FEDREPRO_CHECKPOINT_SECONDS", "20")),
        "help": "between checkpoints",
    },
    "measure_every": {
        "default": "1",
        "help": "rounds between measurements, or auto; +until~0.97 ends at that test accuracy, "
        "+race~100 lets settings race over 100 rounds",
    },
    "evaluate": {"nargs": "*", "default": (), "help": "further splits to measure on at the end"},
    "tune": {
        "default": "",
        "help": "how what a method makes is tuned on a public sample, such as "
        "tune+examples~100@1000",
    },
    "follow": {"nargs": "*", "default": (), "help": "further splits to measure on in rounds"},
    "paper": {"required": True, "help": "whose claims"},
    "reports": {
        "type": Path,
        "required": True,
        "help": "folder of a scale's exhibits, such as reports/record/paper",
    },
    "out": {"type": Path, "required": True, "help": "file or folder to write"},
    "timings": {"type": Path, "required": True, "help": "table of measured seconds to write"},
    "global_model": {"type": Path, "required": True, "help": "final models to write, .pt"},
    "confusion": {"type": Path, "required": True, "help": "table of confused classes to write"},
    "nodes": {"type": Path, "required": True, "help": "final beliefs of the nodes to write, .pt"},
    "scale": {"required": True, "help": "tiny, quick or paper"},
    "board": {"required": True, "help": "a leaderboard, such as arena/1"},
    "exhibit": {"required": True, "help": "paper/name, such as pfnm/figure-2a"},
    "exhibits": {"nargs": "+", "required": True, "help": "paper/name of each exhibit"},
    "trials_per_job": {"default": "auto", "help": "trials in a file, as the workflow has it"},
    "clients_per_job": {"default": "all", "help": "clients in a file, as the workflow has it"},
    "maps": {"type": Path, "help": "folder of the drawings of partitions"},
    "graphs": {"type": Path, "nargs": "*", "default": [], "help": "folder of those of graphs"},
}


def _download(options: Options) -> None:
    from fedrepro.stages import data

    data.download(options.dataset, options.file, options.mirror, options.out)


def _prepare(options: Options) -> None:
    from fedrepro.stages import data

    data.prepare(_spec("dataset", options.dataset), options.raw, options.out)


def _partition(options: Options) -> None:
    from fedrepro.stages import data

    spec = _spec("partition", options.partition)
    data.partition(options.data, spec, _block(options.trials), options.seed, options.out)


def _train(options: Options) -> None:
    from fedrepro.stages import train

    train.run(
        _scenario(options),
        options.data,
        options.members,
        _block(options.trials),
        _block(options.clients),
        options.seed,
        options.device,
        options.out,
        options.timings,
    )


def _local_files(options: Options) -> list[Path]:
    """The files of local models, named one by one or as pieces of a folder."""
    if not options.local_clients:
        return list(options.local)
    from fedrepro.planning.paths import Pieces, model_files

    clients = Pieces.parse(options.local_clients)
    return [Path(path) for path in model_files(options.local[0], _block(options.trials), clients)]


def _aggregate(options: Options) -> None:
    from fedrepro.stages import aggregate

    aggregate.run(
        _scenario(options),
        _method(options.method, options.stage),
        options.data,
        options.members,
        _local_files(options),
        _block(options.trials),
        options.seed,
        options.device,
        options.out,
        options.timings,
        options.evaluate,
        _tuning(options.tune),
        options.public,
    )


def _rounds(options: Options) -> Any:
    """What the job of a method in rounds is given."""
    from fedrepro.core.measuring import Measuring
    from fedrepro.stages.rounds_job import RoundsInputs

    measuring = Measuring.parse(options.measure_every)
    return RoundsInputs(
        *_racing(options, measuring.race),
        options.data,
        options.members,
        _block(options.trials),
        options.seed,
        options.device,
        options.checkpoint_seconds,
        options.out,
        options.timings,
        measuring,
        options.evaluate,
        options.follow,
    )


def _federate(options: Options) -> None:
    from fedrepro.stages import federate

    federate.run(_rounds(options), options.global_model)


def _peer(options: Options) -> None:
    from fedrepro.stages import peer

    peer.run(_rounds(options), options.confusion, options.nodes)


def _simulate(options: Options) -> None:
    from fedrepro.stages import simulate

    method = _method(options.method, "simulate")
    simulate.run(method, _block(options.trials), options.seed, options.out, options.timings)


def _plan(options: Options) -> Any:
    from fedrepro.planning.config import Granularity, load_config, load_exhibits, read_config
    from fedrepro.planning.plan import Plan

    values = {name: getattr(options, name) for name in Granularity.model_fields if name in options}
    job = {key: int(v) if v.isdecimal() and len(v) < 8 else v for key, v in values.items()}
    changes = {"seed": options.seed, "granularity": job}
    config = read_config(load_config().model_dump() | changes, "the options of a stage")
    few = [options.exhibit] if "exhibit" in options else getattr(options, "exhibits", ())
    files = load_exhibits(of=few)  # of others nothing is asked
    also = {paper: entries for paper, entries in config.also.items() if not few or paper in files}
    return Plan(config.model_copy(update={"also": also}), files, options.scale)


def _tokens(options: Options) -> None:
    from fedrepro.core.artifacts import write_text

    rows = [",".join(row) for row in (("kind", "name", "token"), *_plan(options).shortened)]
    write_text(options.out, "\n".join(rows) + "\n")


def _exhibit(options: Options) -> None:
    from fedrepro.stages import exhibit

    exhibit.run(options.exhibit, _plan(options), options.out)


def _models(options: Options) -> None:
    from fedrepro.stages import chosen

    chosen.run(options.exhibit, _plan(options), options.reports, options.device, options.out)


def _site(options: Options) -> None:
    from fedrepro.stages import site

    where = options.reports, options.out
    site.run(options.scale, *where, options.exhibits, options.maps, options.graphs)


def _claims(options: Options) -> None:
    from fedrepro.core.packs import claims_file
    from fedrepro.stages import claims

    claims.run(claims_file(options.paper), options.exhibits, options.reports, options.out)


def _board(options: Options) -> None:
    from fedrepro.stages import board

    board.run(options.board, options.scale, options.reports)


def _partition_maps(options: Options) -> None:
    from fedrepro.stages import maps

    maps.run(_plan(options), options.exhibits, options.out)


def _graph_maps(options: Options) -> None:
    from fedrepro.stages import maps

    maps.run_graphs(_plan(options), options.exhibits, options.out)


def _with(*names: str) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add(parser, *names)


COMPUTE = ("data", "members", "trials", "seed", "device", "arithmetic", "out", "timings")
OF_PLAN = ("scale", "seed", "trials_per_job")
IN_ROUNDS = ("method", "checkpoint_seconds", "measure_every", "evaluate", "follow", *COMPUTE)

STAGES: dict[str, Stage] = {
    "download": (
        "fetch one raw file of a data set",
        _with("dataset", "file", "mirror", "out"),
        _download,
    ),
    "prepare": ("arrays from raw files", _with("dataset", "raw", "out"), _prepare),
    "partition": (
        "which client holds which examples",
        _with("partition", "data", "trials", "seed", "out"),
        _partition,
    ),
    "train": (
        "local models of a block of clients and trials",
        _with(*WITHOUT_GRAPH, "clients", *COMPUTE),
        _train,
    ),
    "aggregate": (
        "one-shot methods and controls: metrics from local models",
        _with(
            *WITHOUT_GRAPH,
            "method",
            "local",
            "local_clients",
            "evaluate",
            "tune",
            "public",
            *COMPUTE,
        ),
        _aggregate,
    ),
    "federate": (
        "a method in rounds, with checkpoints",
        _with(*WITHOUT_GRAPH, "global_model", *IN_ROUNDS),
        _federate,
    ),
    "peer": (
        "a method in rounds without a server, on a graph, with checkpoints",
        _with(*SCENARIO, "confusion", "nodes", *IN_ROUNDS),
        _peer,
    ),
    "simulate": (
        "blocks of repeats of a simulation, without data or a model",
        _with("method", "trials", "seed", "out", "timings"),
        _simulate,
    ),
    "tokens": (
        "the full text behind names in paths that had to be shortened",
        _with(*OF_PLAN, "out"),
        _tokens,
    ),
    "exhibit": (
        "one figure with its tables",
        _with(*OF_PLAN, "exhibit", "out"),
        _exhibit,
    ),
    "models": (
        "the chosen global models of an exhibit's one-shot methods",
        _with(*OF_PLAN, "clients_per_job", "exhibit", "reports", "device", "arithmetic", "out"),
        _models,
    ),
    "claims": (
        "what a paper's exhibits say of its claims",
        _with("paper", "exhibits", "reports", "out"),
        _claims,
    ),
    "board": ("a leaderboard from its exhibits", _with("board", "scale", "reports"), _board),
    "site": (
        "the pages of a scale",
        _with("scale", "exhibits", "reports", "maps", "graphs", "out"),
        _site,
    ),
    "partition-maps": (
        "drawings of the partitions that exhibits are about",
        _with(*OF_PLAN, "exhibits", "out"),
        _partition_maps,
    ),
    "graph-maps": (
        "drawings of the graphs that exhibits are about",
        _with(*OF_PLAN, "exhibits", "out"),
        _graph_maps,
    ),
}

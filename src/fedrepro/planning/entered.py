"""An entry of a leaderboard: one method in the exhibits of a file, and nothing else of them.

The ground is that of the file as it is here: an entry brings its method, the settings that it tries
and the rule by which one of them is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.spec import Component
from fedrepro.data.table import raw_files
from fedrepro.planning.config import Config, ExhibitFile
from fedrepro.planning.jobs import METRICS, Job, Run, TrialBlock
from fedrepro.planning.plan import Plan

# what of an exhibit is about its other methods
OTHERS = frozenset({"methods", "without", "trials_of", "also"})
# what an entry may say beside the parameters of its method: none of it changes the ground
SAID = frozenset({"name", "label", "settings", "choose", "measure_every"})


@dataclass(frozen=True)
class EntryRun:
    """A run in a block of trials, and its file of metrics, named from the working folder."""

    path: str
    run: Run
    trials: TrialBlock

    @property
    def timings(self) -> str:
        return str(PurePosixPath(self.path).with_name("timings.parquet"))


def alone(file: ExhibitFile, entry: Mapping[str, Any]) -> ExhibitFile:
    """The exhibits of a file with this method and no other."""
    exhibits = {name: _bare(layer) for name, layer in file.exhibits.items()}
    defaults = _bare(file.defaults) | {"methods": [dict(entry)]}
    return file.model_copy(update={"exhibits": exhibits, "defaults": defaults, "also": []})


def _bare(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _bare(value) if isinstance(value, Mapping) else value
        for key, value in layer.items()
        if key not in OTHERS
    }


def entry_plan(
    file: ExhibitFile, entry: Mapping[str, Any], item: Component, scale: str, job: Config
) -> Plan:
    """The plan of an entry. job: its seed and how many trials a file holds.

    Errors: FedreproError for an entry that says more of its exhibits than it may.
    """
    allowed = SAID | set(item.params)
    odd = sorted(set(entry) - allowed)
    if odd:
        raise FedreproError(
            f"an entry of a leaderboard cannot set '{odd[0]}', by which it would stand on another "
            f"ground than the others: it may say {', '.join(sorted(allowed))}"
        )
    if entry.get("name") != item.name:
        raise FedreproError(f"the entry is of method '{entry.get('name')}', not '{item.name}'")
    config = job.model_copy(update={"also": {}})
    return Plan(config, {file.paper: alone(file, entry)}, scale)


def runs_of(plan: Plan, keys: Sequence[str]) -> Iterator[EntryRun]:
    """The files of metrics of an entry in these exhibits, each once."""
    done = set()
    for key in keys:
        for run, trials in plan.exhibit(key).trials.items():
            for block in plan.blocks_of(run, trials):
                name = f"{plan.jobs.run(run, block)}/{METRICS}"
                if name not in done:
                    done.add(name)
                    yield EntryRun(name, run, block)


# ------------------------------------------------------------------------ the jobs that make one


@dataclass(frozen=True)
class StageJob:
    """A job in words, as `fedrepro job` takes them, and what it writes: one file or folder."""

    words: tuple[str, ...]
    out: str


def jobs_before(plan: Plan, entry: EntryRun, root: str) -> Iterator[StageJob]:
    """The jobs whose results a run is computed from, in their order: data, who holds what, local
    models. They are the same for every method.

    root: folder that the plan's paths are named from here.
    """
    for job in plan.needed(plan.jobs.run(entry.run, entry.trials))[:-1]:
        for file in raw_files(job.specs["dataset"]) if job.stage == "prepare" else ():
            out = f"{root}/{job.raw}/{file}"
            name = job.specs["dataset"].name
            keys = {"stage": "download", "dataset": name, "file": file, "out": out}
            yield StageJob((json.dumps(keys),), out)
        yield StageJob((_below(job, root).text,), f"{root}/{job.out}")


def job_of(
    plan: Plan, entry: EntryRun, root: str, out: str, measured: tuple[set[str], set[str]]
) -> StageJob:
    """The job that computes a run: the only one for which the method is there.

    out: folder for what it writes. measured: splits on which its file has final values, and such of
    single rounds, beside those that the plan asks for.
    """
    job = _below(plan.jobs.job(plan.jobs.run(entry.run, entry.trials)), root)
    evaluate, follow = (
        tuple(sorted({*planned, *more}))
        for planned, more in zip((job.evaluate, job.follow), measured, strict=True)
    )
    job = replace(job, out=out, evaluate=evaluate, follow=follow if job.every else ())
    return StageJob((job.text,), f"{out}/{METRICS}")


def _below(job: Job, root: str) -> Job:
    """The job with files of another folder."""
    places = {key: getattr(job, key) for key in ("out", "raw", "data", "members", "public")}
    moved: dict[str, Any] = {key: path and f"{root}/{path}" for key, path in places.items()}
    return replace(job, **moved, local=tuple(f"{root}/{path}" for path in job.local))

"""An entry of a leaderboard: one method in the exhibits of a file, and nothing else of them.

The ground is that of the file as it is here: an entry brings its method, the settings that it tries
and the rule by which one of them is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.spec import Component, Spec
from fedrepro.data.table import raw_files
from fedrepro.planning.config import Config, ExhibitFile
from fedrepro.planning.elsewhere import public_data_of
from fedrepro.planning.jobs import TrialBlock, specs_of
from fedrepro.planning.plan import Plan, Run

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
            for block, path in zip(
                plan.blocks_of(run, trials), plan.run_pieces(run, trials).folders, strict=True
            ):
                name = str(path / "metrics.parquet")
                if name not in done:
                    done.add(name)
                    yield EntryRun(name, run, block)


# ------------------------------------------------------------------------ the jobs that make one


@dataclass(frozen=True)
class StageJob:
    """A stage in words, as `fedrepro stage` takes them, and what it writes: one file or folder."""

    words: tuple[str, ...]
    out: str


def jobs_before(plan: Plan, entry: EntryRun, root: str, mirror: str) -> Iterator[StageJob]:
    """The stages whose results a run is computed from, in their order: data, who holds what, local
    models. They are the same for every method.

    root: folder that the plan's paths are named from here. mirror: folder with copies of raw files.
    """
    run = entry.run
    if run.scenario is None:
        return
    for spec in filter(None, (run.scenario.dataset, public_data_of(run.method))):
        yield from _data_jobs(plan, spec, root, mirror)
    data, members = _inputs(plan, entry, root)
    seed, trials = str(plan.config.seed), str(entry.trials)
    same = ("--data", data, "--trials", trials, "--seed", seed)
    yield StageJob(
        ("partition", "--partition", run.scenario.partition.token, *same, "--out", members), members
    )
    if METHOD_KINDS[run.method.component.meta["kind"]].in_rounds:
        return
    pieces = plan.client_pieces(run.scenario)
    for clients, path in zip(pieces, plan.model_files(run.scenario, entry.trials), strict=True):
        out = f"{root}/{path}"
        made = (*_scenario(run), "--members", members, *same, "--clients", str(clients))
        times = out.replace("local.parquet", "timings.parquet")
        yield StageJob(("train", *made, "--out", out, "--timings", times), out)


def _data_jobs(plan: Plan, dataset: Spec, root: str, mirror: str) -> Iterator[StageJob]:
    raw, out = f"{root}/resources/{dataset.name}", f"{root}/{plan.paths.dataset(dataset)}"
    for file in raw_files(dataset):
        made = ("--dataset", dataset.name, "--file", file, "--mirror", mirror)
        yield StageJob(("download", *made, "--out", f"{raw}/{file}"), f"{raw}/{file}")
    yield StageJob(("prepare", "--dataset", dataset.token, "--raw", raw, "--out", out), out)


def job_of(
    plan: Plan, entry: EntryRun, root: str, out: str, measured: tuple[set[str], set[str]]
) -> StageJob:
    """The stage that computes a run: the only one for which the method is there.

    out: folder for what it writes. measured: splits on which its file has final values, and such of
    single rounds, beside those that the plan asks for.
    """
    run, method = entry.run, entry.run.method
    kind = METHOD_KINDS[method.component.meta["kind"]]
    metrics = f"{out}/metrics.parquet"
    command = [kind.stage, "--method", method.token, "--trials", str(entry.trials)]
    command += ["--seed", str(plan.config.seed), "--out", metrics]
    command += ["--timings", f"{out}/timings.parquet"]
    if run.scenario is None:
        return StageJob(tuple(command), metrics)
    data, members = _inputs(plan, entry, root)
    command += [*_scenario(run), "--data", data, "--members", members]
    for option, planned, more in zip(
        ("--evaluate", "--follow"), plan.splits_at(entry.path), measured, strict=True
    ):
        splits = sorted({*planned, *more})
        command += (
            [option, *splits] if splits and (kind.in_rounds or option == "--evaluate") else []
        )
    if kind.in_rounds:
        command += ["--measure-every", str(run.every)]
        further = {"--confusion": "confusion.parquet", "--nodes": "nodes.pt"}
        further = further if kind.on_graph else {"--global-model": "global.pt"}
        command += [word for option, name in further.items() for word in (option, f"{out}/{name}")]
        return StageJob(tuple(command), metrics)
    command += [
        "--local",
        *(f"{root}/{path}" for path in plan.model_files(run.scenario, entry.trials)),
    ]
    public = public_data_of(method)
    command += ["--public", f"{root}/{plan.paths.dataset(public)}"] if public else []
    command += ["--tune", run.tune.token] if run.tune else []
    return StageJob(tuple(command), metrics)


def _inputs(plan: Plan, entry: EntryRun, root: str) -> tuple[str, str]:
    """The folder of the data, and the file of who holds what."""
    scenario = entry.run.scenario
    assert scenario is not None
    members = plan.partition_file(scenario.dataset, scenario.partition, entry.trials)
    return f"{root}/{plan.paths.dataset(scenario.dataset)}", f"{root}/{members}"


def _scenario(run: Run) -> list[str]:
    """The components of its scenario as options."""
    specs = specs_of(run.scenario)
    return [word for spec in specs for word in (f"--{spec.kind}", spec.token)]

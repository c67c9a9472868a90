"""Plan the jobs (processes) for figures and tables, without torch, Snakemake or pandas.

The path of a file depends only on its content, so two figures that need equal results share files.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.method_kinds import TRAIN
from fedrepro.core.paper_files import exhibits_file
from fedrepro.core.spec import Spec
from fedrepro.planning.config import SCALES, Config, ExhibitFile, Papers
from fedrepro.planning.exhibit import Exhibit, ExhibitMethod, Point, Run, exhibit_of
from fedrepro.planning.exhibit_methods import in_rounds
from fedrepro.planning.jobs import (
    CLIENTS,
    METRICS,
    TRIALS,
    Job,
    Jobs,
    TrialBlock,
    clients_of,
    specs_of,
    whole_blocks,
)

__all__ = ["Exhibit", "ExhibitMethod", "Plan", "Point", "Run"]

T = TypeVar("T")

# Trials that share a file, by `trials_per_job: auto`. At the small scales starting a job takes
# longer than its work; at the paper's a job of one trial loses least when it is killed.
AUTO_TRIALS = {"tiny": 2, "quick": 5, "paper": 1}


def _fitting(file: ExhibitFile, name: str, scale: str) -> Exhibit:
    """Plan a figure or table; raise if on a one-shot leaderboard a method has several rounds."""
    exhibit, board = exhibit_of(file, name, scale), name.partition("-")[0]
    for method in (s.method for m in exhibit.measures for s in m.settings if board in file.boards):
        rounds = method.component.fn(**method.values).rounds if in_rounds(method) else 1
        if rounds > 1:
            others = [n for n in file.names(scale) if n.partition("-")[0] not in file.boards]
            raise FedreproError(
                f"{file.paper}/{board} compares methods of one exchange, and method "
                f"'{method.name}' runs for {rounds} rounds: give it rounds: 1"
                + "".join(f", or compare it in {file.paper}/{n}" for n in others[:1])
            )
    return exhibit


class Plan:
    """All exhibits (figures and tables of papers) of one scale, and the paths of their files.

    broken: errors of exhibits that cannot be planned, by paper/name; such an exhibit is left out,
    and access to it raises the error. mistaken: errors of whole definition files, by paper.
    without: why a method that the configuration adds to all exhibits (`also`) does not fit an
    exhibit, by paper/name and label.
    """

    def __init__(self, config: Config, files: Mapping[str, ExhibitFile], scale: str) -> None:
        if scale not in SCALES:
            raise FedreproError(f"scale must be tiny, quick or paper, not '{scale}'")
        files = files if isinstance(files, Papers) else Papers(files, {})
        self.mistaken = dict(files.unread)
        for paper in config.also.keys() - files.keys() - self.mistaken.keys():
            raise unknown("paper", paper, files, "`also` of config/config.yaml")
        also = {paper: [*file.also, *config.also.get(paper, ())] for paper, file in files.items()}
        whole = {k: _with(v, also[k]) for k, v in files.items()}
        self.files = Papers(whole, self.mistaken, files.of_default)
        self.config = config
        self.scale = scale
        size = config.granularity.trials_per_job
        self.trials_per_job = AUTO_TRIALS[scale] if size == "auto" else size
        self.exhibits: dict[str, Exhibit] = {}
        self.broken: dict[str, FedreproError] = {}
        self.without: dict[tuple[str, str], FedreproError] = {}
        for file in self.files.values():
            self._add(file)

    def _add(self, file: ExhibitFile) -> None:
        exhibits: dict[str, Exhibit] = {}
        mistaken = False
        for name in file.names(self.scale):
            key = f"{file.paper}/{name}"
            try:
                exhibits[key] = self._exhibit(file, name, key)
            except FedreproError as error:
                self.broken[key], mistaken = error, True
        for entry in file.also if exhibits else ():
            errors = [self.without.get((key, _called(entry))) for key in exhibits]
            if None not in errors:  # it fits no exhibit
                mistaken = True
                self.broken |= {key: why for key in exhibits if (why := errors[0])}
        # Defaults may name labels of some exhibits only, so those of all count; labels that one of
        # those without a mistake does not know may be of one that has one.
        if not mistaken:
            labels = {measure.label for one in exhibits.values() for measure in one.measures}
            for key, exhibit in exhibits.items():
                cases = exhibit.settings.cases.values()
                for by_label in (exhibit.settings.trials_of, *(case.trials_of for case in cases)):
                    for label in by_label.keys() - labels:
                        where = f"trials_of of {key}, {file.place}"
                        self.broken[key] = unknown("method", label, labels, where)
        self.exhibits |= {key: one for key, one in exhibits.items() if key not in self.broken}

    def _exhibit(self, file: ExhibitFile, name: str, key: str) -> Exhibit:
        exhibit = _fitting(_with(file, []), name, self.scale)
        fitting: list[dict[str, Any]] = []
        for entry in file.also:
            try:
                exhibit = _fitting(_with(file, [*fitting, entry]), name, self.scale)
                fitting.append(entry)
            except FedreproError as error:
                self.without[key, _called(entry)] = error
        return exhibit

    @property
    def mistakes(self) -> list[str]:
        """Return a sentence on each error that excludes a file, figure, table or method."""
        files = [f"exhibits of {paper} are left out: {e}" for paper, e in self.mistaken.items()]
        others = [
            f"{key} goes without '{label}': {error}"
            for (key, label), error in self.without.items()
            if key not in self.broken
        ]
        broken = [f"{key} is left out: {error}" for key, error in self.broken.items()]
        return [*files, *others, *broken]

    @cached_property
    def selected(self) -> list[Exhibit]:
        """Return the figures and tables that are to be drawn according to config/config.yaml.

        Raises:
            FedreproError: the definition of one has a mistake.
        """
        wanted = self.config.exhibits
        if wanted in ("all", "headline"):
            for paper in self.files.unread if wanted == "all" else self.files.of_default:
                raise self.files.unread[paper]
            for key, error in self.broken.items():
                paper, _, name = key.partition("/")
                if wanted == "all" or self.files[paper].is_headline(name, self.scale):
                    raise error
            exhibits = self.exhibits.values()
            wanted = [e.key for e in exhibits if wanted == "all" or e.settings.headline]
        return [self.exhibit(key) for key in ([wanted] if isinstance(wanted, str) else wanted)]

    def exhibit(self, key: str) -> Exhibit:
        paper, _, name = key.partition("/")
        if error := self.broken.get(key) or self.mistaken.get(paper):
            raise error
        if key not in self.exhibits:
            if paper in self.files and name in self.files[paper].boards:
                raise FedreproError(
                    f"{key} is a leaderboard, made of all exhibits {key}-*: name one of them"
                )
            raise unknown("exhibit", key, self.exhibits)
        return self.exhibits[key]

    @cached_property
    def splits(self) -> dict[Run, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return for each run the example sets (test, …) to evaluate on: (at end, after rounds)."""
        by_run: dict[Run, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
        for point in (point for one in self.exhibits.values() for point in one.points):
            by_label = {measure.label: measure for measure in point.measures}
            for (label, _), run in point.runs.items():
                by_run[run][0].update(by_label[label].evaluate)
                by_run[run][1].update(by_label[label].follow)
        return {run: (tuple(sorted(e)), tuple(sorted(f))) for run, (e, f) in by_run.items()}

    def partitions(self, keys: Sequence[str]) -> dict[tuple[Spec, Spec], list[str]]:
        """Return for each (data set, partition) which figures use it, of these keys."""
        return _by_use(
            (key, (point.scenario.dataset, point.scenario.partition))
            for key in keys
            for point in self.exhibit(key).points
            if point.scenario
        )

    def graphs(self, keys: Sequence[str]) -> dict[tuple[Spec, int], list[str]]:
        """Return for each (graph, node count), if known, which figures use it, of these keys."""
        return _by_use(
            (key, (run.scenario.graph, clients))
            for key in keys
            for run in self.exhibit(key).runs
            if run.scenario and run.scenario.graph
            if (clients := clients_of(run.scenario.partition)) is not None
        )

    # --------------------------------------------------------------------------- files and jobs

    @cached_property
    def jobs(self) -> Jobs:
        """Return the object that creates this plan's jobs (processes) and names result folders."""
        return Jobs(
            self.scale,
            self.config.seed,
            self.config.granularity.clients_per_job,
            lambda run: self.splits.get(run, ((), ())),
        )

    def job(self, folder: str) -> Job:
        """Return the job (process) that writes to `folder`; raise if no figure needs it."""
        for run, trials in (pair for one in self.exhibits.values() for pair in one.trials.items()):
            if folder in self.jobs.made:
                break
            # a process that is given one job asks for it before any folder has been named
            if folder.startswith(tuple(self.jobs.begins(run))):
                self.needed(*self._folders(run, trials))
        if folder not in self.jobs.made:
            raise FedreproError(f"no exhibit of scale {self.scale} needs {folder}")
        return self.jobs.job(folder)

    def jobs_of(self, exhibit: Exhibit) -> list[Job]:
        """Return all jobs of a figure or table in an order in which inputs are computed first."""
        return self.needed(*(f for pair in exhibit.trials.items() for f in self._folders(*pair)))

    def needed(self, *folders: str) -> list[Job]:
        """Return the jobs that compute `folders` and all their inputs, in order of execution."""
        found: dict[str, Job] = {}

        def add(folder: str) -> None:
            if folder not in found:
                job = self.jobs.job(folder)
                for before in job.before:
                    add(before)
                found[folder] = job

        for folder in folders:
            add(folder)
        return list(found.values())

    def exhibit_file(self, key: str, suffix: str) -> str:
        """Return the path of a figure's or table's file with this suffix, such as .csv."""
        return f"reports/{self.scale}/{key}{suffix}"

    def blocks(self, trials: int) -> list[TrialBlock]:
        """Divide `trials` trials into ranges, one per file; the last range may exceed them."""
        return whole_blocks(trials, self.trials_per_job)

    def blocks_of(self, run: Run, trials: int) -> list[TrialBlock]:
        """Divide the trials of a run (a method on data and model) into ranges, one per file.

        Successive halving needs one range of all trials, as the mean over them decides what stops.
        """
        return [TrialBlock(0, trials - 1)] if run.is_race else self.blocks(trials)

    def _folders(self, run: Run, trials: int) -> list[str]:
        return [self.jobs.run(run, block) for block in self.blocks_of(run, trials)]

    def run_files(self, run: Run, trials: int) -> list[str]:
        """Return the paths of a run's files of metrics for the first `trials` trials."""
        return [f"{folder}/{METRICS}" for folder in self._folders(run, trials)]

    def metrics_files(self, exhibit: Exhibit) -> list[str]:
        """Return the paths of the files of metrics of all runs of a figure or table."""
        return [path for pair in exhibit.trials.items() for path in self.run_files(*pair)]

    def pieces(self, exhibit: Exhibit) -> list[str]:
        """Return all result folders that a figure needs, as texts that `folders_of` expands."""
        found: dict[str, None] = {}
        for run, trials in exhibit.trials.items():
            blocks = self.blocks_of(run, trials)
            pieces = f"{TRIALS}{TrialBlock(0, blocks[-1].last)}:{len(blocks[0])}"
            if run.scenario and run.stage == "aggregate":
                clients = self.jobs.pieces_of_clients(run.scenario)
                found[f"{self.jobs.base(run.scenario, TRAIN)}{pieces}{CLIENTS}{clients}"] = None
            found[f"{self.jobs.base(run, run.stage)}{pieces}"] = None
        return list(found)


def _with(file: ExhibitFile, also: list[dict[str, Any]]) -> ExhibitFile:
    return file if also == file.also else file.model_copy(update={"also": also})


def _called(entry: Mapping[str, Any]) -> str:
    return str(entry.get("label") or entry.get("name"))


def _by_use(pairs: Iterable[tuple[str, T]]) -> dict[T, list[str]]:
    found: dict[T, list[str]] = {}
    for key, thing in dict.fromkeys(pairs):
        found.setdefault(thing, []).append(key)
    return found


# ----------------------------------------------------------------------------- leaderboards


def part_keys(plan: Plan, paper: str, version: str) -> list[str]:
    """Return the keys (paper/name) of the tables that make up leaderboard `version` of a paper."""
    return [f"{paper}/{name}" for name in plan.files[paper].parts(version, plan.scale)]


def tables_of_board(plan: Plan, paper: str, version: str) -> list[Exhibit]:
    """Return the planned tables that make up leaderboard `version` of a paper, in order.

    Raises:
        FedreproError: one of them has a mistake.
    """
    return [plan.exhibit(key) for key in part_keys(plan, paper, version)]


def ground_of(parts: Iterable[Exhibit]) -> str:
    """Return a SHA-256 digest of the conditions of a leaderboard, to notice if they change.

    `parts` are the leaderboard's tables. Conditions are data, partitions, models and training with
    all parameters and versions, numbers of trials, and selection rules, but not the methods.
    """
    lines = []
    for exhibit in parts:
        rules = sorted({m.choose.name for m in exhibit.measures if m.choose and m.chosen})
        for point in exhibit.points:
            scenario = " ".join(spec.resolved for spec in specs_of(point.scenario))
            trials = sorted(set(point.trials.values()))
            lines.append(f"{exhibit.key}: {scenario}; trials {trials}; chosen by {rules}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def require_frozen(plan: Plan, papers: Iterable[str] | None = None) -> None:
    """Raise FedreproError if a leaderboard's data, models, trials or selection rules have changed.

    Args:
        plan: the figures and tables of a scale; only scale paper is checked.
        papers: the papers whose leaderboards are checked; None: all.

    Raises:
        FedreproError: the digest of these conditions is not the one in the leaderboard's file.
    """
    for paper in (plan.files if papers is None else papers) if plan.scale == "paper" else ():
        for version, board in plan.files[paper].boards.items():
            if set(part_keys(plan, paper, version)) & set(plan.broken):
                continue  # `Plan.exhibit` raises its error
            digest = ground_of(tables_of_board(plan, paper, version))
            if board.ground and digest != board.ground:
                raise FedreproError(
                    f"{exhibits_file(paper)}: the ground of {paper}/{version} changed (its "
                    f"digest is {digest}, written is {board.ground}); results on two grounds do "
                    f"not compare: undo the change, or add it as {paper}/{int(version) + 1}"
                )

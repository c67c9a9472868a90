"""Plan the jobs (processes) for figures and tables, without torch, Snakemake or pandas.

The path of a file depends only on its content, so two figures that need equal results share files.
A scale is the size of experiments: tiny, quick or paper. An exhibit's key is paper/name.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.literature_names_and_setting_tokens import setting_names
from fedrepro.core.method_kinds import TRAIN
from fedrepro.core.paper_files import exhibits_file, paper_names
from fedrepro.core.spec import Spec
from fedrepro.planning import scenarios_runs_and_jobs as jobs
from fedrepro.planning.config_files import SCALES, Config, ExhibitFile, Papers
from fedrepro.planning.exhibit import Exhibit, Point, Run, exhibit_of
from fedrepro.planning.exhibit_methods import ExhibitMethod

__all__ = ["Exhibit", "ExhibitMethod", "Plan", "Point", "Run"]

# Trials that share a file, by `trials_per_job: auto`. At the small scales starting a job takes
# longer than its work; at the paper's a job of one trial loses least when it is killed.
AUTO_TRIALS = {"tiny": 2, "quick": 5, "paper": 1}


class Plan:
    """All exhibits (figures and tables of papers) of one scale, and the paths of their files.

    exhibits: planned ones by key. broken: errors of others, by key; access to one raises its error.
    mistaken: errors of whole definition files, by paper. without: why a method that the
    configuration adds to all exhibits of a paper (`also`) does not fit one, by (key, label). made:
    by folder of results, a function that creates the job that writes it.
    """

    def __init__(self, config: Config, files: Mapping[str, ExhibitFile], scale: str) -> None:
        if scale not in SCALES:
            raise FedreproError(f"scale must be tiny, quick or paper, not '{scale}'")
        self.mistaken = dict(files.unread) if isinstance(files, Papers) else {}
        # the configuration is of all papers, also where only the user's own are read
        others = paper_names() if config.papers == "own" else {}
        for paper in config.also.keys() - files.keys() - self.mistaken.keys() - others.keys():
            raise unknown("paper", paper, files, "`also` of config/config.yaml")
        also = {paper: [*file.also, *config.also.get(paper, ())] for paper, file in files.items()}
        whole = {k: v.model_copy(update={"also": also[k]}) for k, v in files.items()}
        self.files = Papers(whole, self.mistaken)
        self.config, self.scale = config, scale
        size = config.granularity.trials_per_job
        self.trials_per_job = AUTO_TRIALS[scale] if size == "auto" else size
        self.exhibits: dict[str, Exhibit] = {}
        self.broken: dict[str, FedreproError] = {}
        self.without: dict[tuple[str, str], FedreproError] = {}
        self.made: dict[str, Callable[[], jobs.Job]] = {}
        self._names: dict[Any, str] = {}
        for file in self.files.values():
            self._add(file)

    def _add(self, file: ExhibitFile) -> None:
        exhibits: dict[str, Exhibit] = {}
        for name in file.names(self.scale):
            key = f"{file.paper}/{name}"
            try:
                exhibits[key] = self._exhibit(file, name, key)
            except FedreproError as error:
                self.broken[key] = error
        for entry in file.also if exhibits else ():
            errors = [self.without.get((key, _called(entry))) for key in exhibits]
            if None not in errors:  # it fits no exhibit
                self.broken |= {key: why for key in exhibits if (why := errors[0])}
        # Defaults may name labels of some exhibits only, so those of all count; labels that one of
        # those without a mistake does not know may be of one that has one.
        labels = {measure.label for one in exhibits.values() for measure in one.measures}
        mistaken = any(key.startswith(f"{file.paper}/") for key in self.broken)
        for key, exhibit in exhibits.items() if not mistaken else ():
            cases = (case.trials_of for case in exhibit.settings.cases.values())
            for label in {*exhibit.settings.trials_of}.union(*cases) - labels:
                where = f"trials_of of {key}, {file.place}"
                self.broken[key] = unknown("method", label, labels, where)
        self.exhibits |= {key: one for key, one in exhibits.items() if key not in self.broken}

    def _exhibit(self, file: ExhibitFile, name: str, key: str) -> Exhibit:
        def with_methods(also: list[dict[str, Any]]) -> Exhibit:
            made = exhibit_of(file.model_copy(update={"also": also}), name, self.scale)
            board = name.partition("-")[0]
            of_points = (measure for point in made.points for measure in point.measures)
            compared = [*of_points] if board in file.boards else []
            if compared and made.pairs:
                raise FedreproError(f"{key}: on a leaderboard all methods have the same trials")
            for rule in (m.rule for m in compared if m.rule):
                if (rule.metric, rule.split) != ("accuracy", "client_validation"):
                    said = f"{file.paper}/{board} selects settings by accuracy on client_validation"
                    raise FedreproError(f"{said}, not by {rule.name}: leave out `choose`")
            methods = (s.method for m in compared for s in m.settings)
            for method in (one for one in methods if one.method_kind.in_rounds):
                if (rounds := method.component.fn(**method.values).rounds) > 1:
                    said = f"{file.paper}/{board} compares methods of one exchange, and method"
                    said = f"{said} '{method.name}' runs for {rounds} rounds"
                    raise FedreproError(f"{said}: give it rounds: 1")
            return made

        exhibit, fitting = with_methods([]), list[dict[str, Any]]()
        for entry in file.also:
            try:
                exhibit = with_methods([*fitting, entry])
                fitting.append(entry)
            except FedreproError as error:
                self.without[key, _called(entry)] = error
        return exhibit

    @property
    def mistakes(self) -> list[str]:
        """Return a sentence on each error that excludes a file, figure, table or method."""
        without = {at: error for at, error in self.without.items() if at[0] not in self.broken}
        return [
            *(f"exhibits of {paper} are left out: {e}" for paper, e in self.mistaken.items()),
            *(f"{key} goes without '{label}': {e}" for (key, label), e in without.items()),
            *(f"{key} is left out: {error}" for key, error in self.broken.items()),
        ]

    @cached_property
    def selected(self) -> list[Exhibit]:
        """Return the exhibits that config.yaml asks for; raise FedreproError if one is invalid."""
        wanted = self.config.exhibits
        if wanted in ("all", "headline"):
            for paper, error in self.files.unread.items():
                path = exhibits_file(paper)  # a headline may be in what cannot be read
                is_own = path.suffix == ".yaml" and path.is_file()
                if wanted == "all" or not is_own or b"headline: t" in path.read_bytes():
                    raise error
            wanted = [
                f"{file.paper}/{name}"
                for file in self.files.values()
                for name in file.names(self.scale)
                if wanted == "all" or file.written(name, self.scale).get("headline")
            ]
        return [self.exhibit(key) for key in ([wanted] if isinstance(wanted, str) else wanted)]

    def exhibit(self, key: str) -> Exhibit:
        if error := self.broken.get(key) or self.mistaken.get(key.partition("/")[0]):
            raise error
        if key not in self.exhibits:
            raise unknown("exhibit", key, self.exhibits)
        return self.exhibits[key]

    @cached_property
    def splits(self) -> dict[Run, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return {run: (example sets to evaluate on at its end, and after single rounds)}."""
        by_run: dict[Run, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
        for point in (point for one in self.exhibits.values() for point in one.points):
            by_label = {measure.label: measure for measure in point.measures}
            for (label, _), run in point.runs.items():
                by_run[run][0].update(by_label[label].evaluate)
                by_run[run][1].update(by_label[label].follow)
        return {run: (tuple(sorted(e)), tuple(sorted(f))) for run, (e, f) in by_run.items()}

    def job(self, folder: str) -> jobs.Job:
        """Return the job that writes to `folder`; raise FedreproError if no figure needs it."""
        for run, trials in (pair for one in self.exhibits.values() for pair in one.trials.items()):
            if folder in self.made:
                break
            # a process that is given one job asks for it before any folder has been named
            begins = [self.base(run, run.stage)]
            if (own := run.scenario) and not folder.startswith(begins[0]):
                data = filter(None, (own.dataset, jobs.public_data_of(run.method)))
                begins += [jobs.dataset_folder(self.scale, one) for one in data]
                begins += [self.base((own.dataset, own.partition), "partition")]
                begins += [self.base(own, TRAIN)]
            if folder.startswith(tuple(begins)):
                self.needed(*self._folders(run, trials))
        if folder not in self.made:
            raise FedreproError(f"no exhibit of scale {self.scale} needs {folder}")
        return self.made[folder]()

    def jobs_of(self, exhibit: Exhibit) -> list[jobs.Job]:
        """Return all jobs of a figure or table in an order in which inputs are computed first."""
        return self.needed(*(f for pair in exhibit.trials.items() for f in self._folders(*pair)))

    def needed(self, *folders: str) -> list[jobs.Job]:
        """Return the jobs that compute `folders` and their inputs, in order of execution."""
        found: dict[str, jobs.Job] = {}

        def add(folders: Iterable[str]) -> None:
            for folder in folders:
                if folder not in found:
                    job = self.made[folder]()
                    add(job.before)
                    found[folder] = job

        add(folders)
        return list(found.values())

    def exhibit_file(self, key: str, suffix: str) -> str:
        """Return the path of a file of exhibit `key` (paper/name) with this suffix, as .csv."""
        return f"reports/{self.scale}/{key}{suffix}"

    def blocks(self, trials: int, run: Run | None = None) -> list[range]:
        """Cover at least `trials` trials by equal ranges, one a job; successive halving has one."""
        # in successive halving the mean over all trials decides what stops
        size = trials if run and run.is_race else self.trials_per_job
        return [range(at, at + size) for at in range(0, trials, size)]

    def _folders(self, run: Run, trials: int) -> list[str]:
        return [self.run(run, block) for block in self.blocks(trials, run)]

    def run_files(self, run: Run, trials: int) -> list[str]:
        """Return the paths of a run's files of metrics for the first `trials` trials."""
        return [f"{folder}/{jobs.METRICS}" for folder in self._folders(run, trials)]

    def metrics_files(self, exhibit: Exhibit) -> list[str]:
        """Return the paths of the files of metrics of all runs of a figure or table."""
        return [path for pair in exhibit.trials.items() for path in self.run_files(*pair)]

    def pieces(self, exhibit: Exhibit) -> list[str]:
        """List texts that `folders_of` expands to folders of a figure's runs and local models."""
        found: dict[str, None] = {}
        for run, trials in exhibit.trials.items():
            blocks = self.blocks(trials, run)
            pieces = f"{jobs.block_name('trials', range(blocks[-1].stop))}:{len(blocks[0])}"
            if run.scenario and run.stage == "aggregate":
                clients, size = self._clients_and_block_size(run.scenario)
                of_clients = f"{pieces}{jobs.block_name('clients', clients)}:{size}"
                found[f"{self.base(run.scenario, TRAIN)}{of_clients}"] = None
            found[f"{self.base(run, run.stage)}{pieces}"] = None
        return list(found)

    def dataset(self, dataset: Spec) -> str:
        """Create the job that prepares a data set; return the folder where its arrays will be."""
        folder, raw = jobs.dataset_folder(self.scale, dataset), f"resources/{dataset.name}"
        self.made.setdefault(
            folder, partial(jobs.Job, "prepare", folder, {"dataset": dataset}, raw=raw)
        )
        return folder

    def partition(self, dataset: Spec, partition: Spec, trials: range) -> str:
        """Create the job that divides a data set in these trials; return the file it will write."""
        folder = self.base((dataset, partition), "partition") + jobs.block_name("trials", trials)
        if folder not in self.made:
            specs, given = {"dataset": dataset, "partition": partition}, self._given(trials)
            data = self.dataset(dataset)
            self.made[folder] = partial(jobs.Job, "partition", folder, specs, data=data, **given)
        return f"{folder}/{jobs.MEMBERS}"

    def local(self, scenario: jobs.Scenario, trials: range) -> str:
        """Create jobs that train local models; return their paths as one text for `folders_of`."""
        base = self.base(scenario, TRAIN) + jobs.block_name("trials", trials)
        clients, size = self._clients_and_block_size(scenario)
        first = base + jobs.block_name("clients", clients[:size])
        if first not in self.made:  # many methods read them
            specs = {spec.kind: spec for spec in scenario.specs}
            given = self._given(trials, scenario)
            for block in jobs.cut(clients, size):
                folder = base + jobs.block_name("clients", block)
                self.made[folder] = partial(jobs.Job, TRAIN, folder, specs, clients=block, **given)
        return f"{base}{jobs.block_name('clients', clients)}:{size}/{jobs.LOCAL}"

    def _clients_and_block_size(self, scenario: jobs.Scenario) -> tuple[range, int]:
        count, size = scenario.clients, self.config.granularity.clients_per_job
        return range(count), count if size == "all" else size

    def run(self, run: Run, trials: range) -> str:
        """Create the job that computes a run for a range of trials; return its result folder."""
        folder = self.base(run, run.stage) + jobs.block_name("trials", trials)
        self.made.setdefault(folder, partial(self._job_of_run, run, trials, folder))
        return folder

    def _job_of_run(self, run: Run, trials: range, folder: str) -> jobs.Job:
        given = {"every": run.every, **self._given(trials, run.scenario)}
        if run.scenario:
            given["evaluate"], given["follow"] = self.splits.get(run, ((), ()))
            if run.every is None:
                given["local"] = (self.local(run.scenario, trials),)
            if public := jobs.public_data_of(run.method):
                given["public"] = self.dataset(public)
        return jobs.Job(run.stage, folder, {spec.kind: spec for spec in run.specs}, **given)

    def _given(self, trials: range, scenario: jobs.Scenario | None = None) -> dict[str, Any]:
        given: dict[str, Any] = {"seed": self.config.seed, "trials": trials}
        if scenario:
            given["data"] = self.dataset(scenario.dataset)
            given["members"] = self.partition(scenario.dataset, scenario.partition, trials)
        return given

    def base(self, what: Any, stage: str) -> str:
        """Return results/<scale>/<stage>/<name> (without -trials-…) of a Run, Scenario or Specs."""
        key = (stage, what)
        if key not in self._names:
            specs = what if isinstance(what, tuple) else what.specs
            last = {"partition": "partition", TRAIN: "model"}.get(stage, "method")
            shown_by = [spec for spec in specs if spec.kind in ("dataset", last)]
            every = str(getattr(what, "every", None) or "")
            name = setting_names(shown_by, specs, stage, str(self.config.seed), every)
            self._names[key] = f"results/{self.scale}/{stage}/{name}"
        return self._names[key]


def _called(entry: Mapping[str, Any]) -> str:
    return str(entry.get("label") or entry.get("name"))


def require_frozen(plan: Plan, paper: str) -> None:
    """Raise FedreproError if the ground of a paper's leaderboards, at scale paper, has changed.

    The ground is their scenarios, numbers of trials and selection rules, but not the methods; its
    digest is in the configuration.
    """
    file = plan.files[paper]
    for version, board in file.boards.items() if plan.scale == "paper" else ():
        parts, lines = file.parts(version, plan.scale), []
        if plan.broken.keys() & parts:
            continue  # `Plan.exhibit` raises its error
        for exhibit in map(plan.exhibit, parts):
            rules = sorted({m.rule.name for m in exhibit.measures if m.rule})
            for point in exhibit.points:
                scenario = " ".join(spec.resolved for spec in jobs.specs_of(point.scenario))
                trials = sorted(set(point.trials.values()))
                lines.append(f"{exhibit.key}: {scenario}; trials {trials}; chosen by {rules}")
        digest = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
        if board.ground and digest != board.ground:
            said = f"{exhibits_file(paper)}: the ground of {paper}/{version} changed (its digest is"
            said = f"{said} {digest}, written is {board.ground}); results on two grounds do not"
            fix = f"undo the change, or add it as {paper}/{int(version) + 1}"
            raise FedreproError(f"{said} compare: {fix}")

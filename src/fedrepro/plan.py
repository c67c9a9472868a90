"""From exhibits to the list of artifacts, in pure Python: no torch, no Snakemake, no pandas.

Two exhibits that need the same run, or the same local models, share them, because the path says
what is in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from fedrepro.config import Config, ExhibitFile
from fedrepro.errors import FedreproError, unknown
from fedrepro.paths import (
    Block,
    Paths,
    Pieces,
    Scenario,
    blocks,
    methods_name,
    methods_token,
    model_files,
    name_of,
)
from fedrepro.points import Exhibit, Measure, Point, Run, SharedRuns, draft_of
from fedrepro.spec import Spec

__all__ = ["Exhibit", "Measure", "Plan", "Point", "Run"]


class Plan:
    """All exhibits of one scale, the selected ones, and where their artifacts lie."""

    def __init__(self, config: Config, files: Mapping[str, ExhibitFile], scale: str) -> None:
        self.config = config
        self.scale = scale
        self.paths = Paths(scale, config.seed)
        drafts = [
            draft_of(file, name, scale) for file in files.values() for name in file.names(scale)
        ]
        shared = SharedRuns(drafts, _size(config.granularity.methods_per_job))
        exhibits = [draft.exhibit(shared) for draft in drafts]
        self.exhibits = {exhibit.key: exhibit for exhibit in exhibits}

    @cached_property
    def selected(self) -> list[Exhibit]:
        """The exhibits that the config asks for."""
        wanted = self.config.exhibits
        if wanted == "all":
            return list(self.exhibits.values())
        if wanted == "headline":
            return [e for e in self.exhibits.values() if e.settings.headline]
        return [self.exhibit(key) for key in wanted]

    def selected_of(self, paper: str) -> list[Exhibit]:
        """The selected exhibits of one paper."""
        return [exhibit for exhibit in self.selected if exhibit.paper == paper]

    def exhibit(self, key: str) -> Exhibit:
        if key not in self.exhibits:
            raise unknown("exhibit", key, self.exhibits, "config/exhibits")
        return self.exhibits[key]

    @cached_property
    def runs(self) -> list[Run]:
        """The distinct runs of every exhibit of this scale, selected or not."""
        return list(dict.fromkeys(run for e in self.exhibits.values() for run in e.runs))

    @cached_property
    def tokens(self) -> dict[tuple[str, str], str]:
        """(kind, name in a path) -> full token, for every component of this scale."""
        found: dict[tuple[str, str], str] = {}
        for run in self.runs:
            for spec in run.scenario.specs:
                found[spec.kind, name_of(spec)] = spec.token
            found["methods", methods_name(run.methods)] = methods_token(run.methods)
        return found

    @property
    def shortened(self) -> list[tuple[str, str, str]]:
        """(kind, name, full token) of every name that is too long to stand in a path."""
        return sorted((k, name, token) for (k, name), token in self.tokens.items() if name != token)

    @cached_property
    def trials(self) -> dict[tuple[Spec, Spec], int]:
        """Trials of each (data set, partition): the most that any exhibit of this scale needs.

        It depends on what is declared, not on what is selected, so that drawing one figure and
        drawing all of them share every file.
        """
        found: dict[tuple[Spec, Spec], int] = {}
        for run in self.runs:
            key = (run.scenario.dataset, run.scenario.partition)
            found[key] = max(found.get(key, 0), run.trials)
        return found

    @cached_property
    def trained(self) -> dict[Scenario, int]:
        """Trials of each scenario's local models: the most that any exhibit of this scale needs.

        By itself, because of several networks on one partition a deep one may have fewer.
        """
        found: dict[Scenario, int] = {}
        for run in self.runs:
            if run.federated:
                continue
            found[run.scenario] = max(found.get(run.scenario, 0), run.trials)
        return found

    @cached_property
    def measured_every(self) -> dict[str, int]:
        """Path of a federated run -> rounds between measurements: all that any exhibit asks for."""
        found: dict[str, int] = {}
        for exhibit in self.exhibits.values():
            for point in exhibit.points:
                for measure in exhibit.measures:
                    for setting in measure.spec.expand():
                        path = self.metrics_file(point.runs[setting.token])
                        found[path] = math.gcd(found.get(path, 0), measure.measure_every)
        return found

    def partitions(self, keys: Sequence[str]) -> dict[tuple[Spec, Spec], list[str]]:
        """(data set, partition) -> the exhibits, of these, that are about it, controls aside."""
        found: dict[tuple[Spec, Spec], list[str]] = {}
        for key in dict.fromkeys(keys):
            points = [point.scenario for point in self.exhibit(key).points]
            for pair in dict.fromkeys((s.dataset, s.partition) for s in points):
                found.setdefault(pair, []).append(key)
        return found

    def partition_file(self, dataset: Spec, partition: Spec) -> str:
        """The partition of all trials."""
        trials = self.trials.get((dataset, partition))
        if trials is None:
            raise FedreproError(
                f"no exhibit of scale {self.scale} uses partition {partition.token} of "
                f"{dataset.token}; declare it in config/exhibits"
            )
        return self.paths.partition(dataset, partition, Block(0, trials - 1))

    def model_files(self, scenario: Scenario, trials: Block) -> list[str]:
        """The local models that cover these trials, one path per training job."""
        return model_files(self.paths.models_of(scenario), *self.model_pieces(scenario, trials))

    def model_pieces(self, scenario: Scenario, trials: Block) -> tuple[Pieces, Pieces]:
        """The trials and the clients of the training jobs that cover these trials."""
        job = self.config.granularity
        total = self.trained[scenario]
        size = _size(job.trials_per_job) or total
        met = [block for block in blocks(total, size) if block.meets(trials)]
        return (
            Pieces(Block(met[0].first, met[-1].last), size),
            Pieces(Block(0, scenario.clients - 1), _size(job.clients_per_job) or scenario.clients),
        )

    def metrics_file(self, run: Run) -> str:
        return self.paths.metrics(run.scenario, run.methods, run.block)

    def metrics_files(self, exhibit: Exhibit) -> list[str]:
        return [self.metrics_file(run) for run in exhibit.runs]


def _size(size: str | int) -> int | None:
    return None if size == "all" else int(size)

"""Read the data of a trial (a seeded repetition): examples of clients and server, test sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import ClientInfo
from fedrepro.core.checksummed_files import corrupt_file_error, read_source, require_source
from fedrepro.core.errors import FedreproError
from fedrepro.core.provenance import provenance
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component, Spec
from fedrepro.data import partitions_populations_and_holdouts as partitions
from fedrepro.data.prepared import SPLITS, Prepared, load_prepared
from fedrepro.networks.layers import Embedding
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.planning.scenarios_runs_and_jobs import Job, Scenario
from fedrepro.stages.job_log_results_gpu_lock import device_of
from fedrepro.training.federation.clients import ClientData, Clients
from fedrepro.training.training_examples import Examples, GeneratedExamples, tensor_of
from fedrepro.training.training_settings_and_procedures import settings_of

# Needs of one-shot methods for which clients compute.
AT_CLIENTS = {
    *("client_training", "client_evaluation", "client_validation"),
    *("client_answers", "client_validation_examples"),
}


def declared_part(info: ClientInfo, item: Component, *more: str) -> ClientInfo:
    """Return `info` with only training, device, what method `item` needs, and fields `more`."""
    needs = item.meta["needs"]
    keep = {*needs, "training", "device", *more, *(["clients"] if needs & AT_CLIENTS else [])}
    for part in partitions.HOLDOUTS:
        if part.need in needs and part.at != "clients":
            keep |= {f"{part.parameter}_inputs", f"{part.parameter}_labels"}
    gone: dict[str, Any] = {f.name: None for f in fields(info) if f.name not in keep}
    return replace(info, **gone)


@dataclass(frozen=True)
class ScenarioData:
    """The data set, partition file and seed of a scenario (data, partition, network, training)."""

    scenario: Scenario
    prepared: Prepared
    partition: Path
    seed: int
    device: str
    public: Prepared | None = None  # another data set, whose inputs the server has

    @staticmethod
    def of(job: Job, device: str) -> ScenarioData:
        """Load the data set of a job, to use it on `device`; "cuda" stands for a free GPU."""
        device, token = device_of(device), job.scenario.dataset.token
        prepared = load_prepared(job.data)
        if prepared.token != token:
            raise corrupt_file_error(Path(job.data), f"it holds {prepared.token}, not {token}")
        require_codes(job.scenario.model, prepared)
        members, path = Path(job.members), f"{token}/{job.scenario.partition.token}"
        require_source(members, {"path": path, "data": prepared.checksum, "seed": job.seed})
        public = load_prepared(job.public) if job.public else None
        return ScenarioData(job.scenario, prepared, members, job.seed, device, public)

    def trial(self, trial: int) -> TrialData:
        """Read which client has which examples in trial number `trial`; return the trial's data."""
        own = self.scenario
        population = partitions.population_of(own.dataset, own.partition)
        members = partitions.read_partition(self.partition, trial, population)
        if members.noise is not None and reads_codes(own.model, self.prepared):
            said = f"partition '{own.partition.name}' adds noise to numbers, and model"
            raise FedreproError(f"{said} '{own.model.name}' reads codes: choose another of them")
        return TrialData(self.prepared, members, RngKey(self.seed, trial), self.device)

    def source(
        self, path: str, method: Spec | None = None, files: Iterable[str] = (), **more: Any
    ) -> dict[str, Any]:
        """Return the provenance to store with results as a dict: versions, seed and all inputs.

        `path` is the text scenario/method, `files` are inputs besides data, `more` further keys.
        """
        read = [read_source(self.partition), *map(read_source, files)]
        if self.public:
            read.append(self.public.info["provenance"])
            more["public_data"] = {"resolved": read[-1]["resolved"], "data": self.public.checksum}
        return provenance(
            self.seed,
            specs=(*self.scenario.specs, *([method] if method else [])),
            device=self.device,
            inputs=[self.prepared.info["provenance"], *read],
            path=path,
            data=self.prepared.checksum,
            **more,
        )


def reads_codes(model: Spec, prepared: Prepared) -> bool:
    layers = network_of(model, prepared.shape, len(prepared.classes)).layers
    return any(isinstance(layer, Embedding) for layer in layers)


def require_codes(model: Spec, prepared: Prepared) -> None:
    """Raise FedreproError if a recurrent network's inputs are not letters as class numbers."""
    classes = len(prepared.classes)
    if not classes:
        said = f"{prepared.token} has no classes for networks to tell apart"
        raise FedreproError(f"{said}: choose another data set, or a method without networks")
    if not reads_codes(model, prepared):
        return
    every = [prepared.raw(split) for split in SPLITS]
    within = all(x.min(initial=0) >= 0 and x.max(initial=0) < classes for x in every)
    if prepared.scale != 1 or not within or any(np.any(x % 1) for x in every):
        said = f"model '{model.name}' reads text as whole codes from 0 to {classes - 1}, one a"
        lack = f"class, unscaled, which the inputs of {prepared.token} are not"
        fix = "choose another model or data set, or give its Arrays scale=1"
        raise FedreproError(f"{said} {lack}: {fix}")


def examples_of(prepared: Prepared, split: str, device: str) -> Examples:
    """Return all inputs and labels of a split; on the CPU the file is memory-mapped."""
    return Examples(
        tensor_of(prepared.raw(split)).to(device),
        tensor_of(prepared.labels(split)).to(device),
        prepared.scale,
    )


@dataclass(frozen=True)
class TrialData:
    """The data of one trial (a seeded repetition); `members` says who has which examples."""

    prepared: Prepared
    members: partitions.PartitionIndices
    rng: RngKey
    device: str

    @cached_property
    def held(self) -> Examples:
        """Return the examples into which `members.train` points; the partition may add noise."""
        if self.members.population:
            return GeneratedExamples(self.members.population, self.prepared.scale, self.device)
        return self._noisy("train")

    def _noisy(self, split: str) -> Examples:
        plain = examples_of(self.prepared, split, self.device)
        if self.members.noise is None:
            return plain
        noisy = self.members.with_feature_noise(self.prepared.inputs(split), self.rng, split)
        return Examples(tensor_of(noisy).to(self.device), plain.targets)

    @cached_property
    def validated(self) -> tuple[Sequence[np.ndarray], Examples | None]:
        """Return (indices of each client's validation examples, the examples they point into).

        None stands for `held`, if the partition took these examples from the training examples.
        """
        members = self.members
        if len(members.client_validation) or not partitions.sizes_of(members.validation).sum():
            return members.client_validation, None
        return members.validation, self._noisy("validation")

    def public_sample(self, size: int, repetition: int) -> Examples:
        """Draw `size` labelled examples from clients' validation examples, to fine-tune models on.

        Sample number `repetition` is equal for all methods: only seed, trial and `size` change it.
        FedreproError is raised if clients together have fewer validation examples.
        """
        held, validation = self.validated
        rows = np.sort(np.concatenate([np.empty(0, np.int64), *held]))
        if not rows.size:
            raise partitions.missing_validation_error("tuning")
        if size > rows.size:
            said = f"tune of trial {self.rng.trial}: {size} public examples are asked for, and"
            have = f"clients have {rows.size} validation examples together"
            raise FedreproError(f"{said} {have}: lower its examples, or set more aside")
        stream = self.rng.at(call=repetition + 1).stream(f"public-sample-{size}")
        drawn = np.sort(stream.permutation(rows)[:size])
        examples = validation or self.held
        return Examples(examples.inputs[drawn], examples.targets[drawn], examples.scale)

    def split(self, name: str) -> EvaluationSplit:
        """Return the examples of a split, such as test, to evaluate models on."""
        aside = next((part for part in partitions.HOLDOUTS if part.split == name), None)
        of_clients = name in ("train", "client_validation")
        taken = getattr(self.members, name) if of_clients or aside else ()
        examples = self.held if of_clients else self._noiseless
        if name == "train" and not self.members.population:  # not what nobody trains with
            kept = np.unique(np.concatenate([np.empty(0, np.int64), *taken]))
            if kept.size < len(examples.targets):
                examples = Examples(examples.inputs[kept], examples.targets[kept], examples.scale)
                taken = [np.searchsorted(kept, rows) for rows in taken]
        if not (of_clients or aside):
            examples = examples_of(self.prepared, name, self.device)
        if aside:  # examples that were set aside, and the rows of each client among them
            each = [] if isinstance(taken, np.ndarray) else list(taken)
            index = np.concatenate(each) if each else np.asarray(taken, np.int64)
            if not index.size:
                raise partitions.missing_holdout_error("what is measured", aside)
            loaded, (index,) = examples.of([index])
            examples = Examples(loaded.inputs[index], loaded.targets[index], loaded.scale)
            ends = np.cumsum([0, *map(len, each)])
            taken = [np.arange(a, b) for a, b in itertools.pairwise(ends)] if each else ()
        sizes = self.prepared.shape, len(self.prepared.classes)
        return EvaluationSplit(examples, examples.targets.cpu().numpy(), *sizes, taken)

    @cached_property
    def _noiseless(self) -> Examples:
        made = self.members.population is not None
        return self.held if made else examples_of(self.prepared, "train", self.device)

    def clients(
        self, scenario: Scenario, method: Spec, trained: Mapping[str, np.ndarray] | None = None
    ) -> Clients:
        """Return J clients limited to what `method` needs; `trained`: their models, (J, *shape)."""
        return Clients(
            model=scenario.model,
            network=network_of(scenario.model, self.prepared.shape, len(self.prepared.classes)),
            settings=settings_of(scenario.training),
            data=ClientData(self.held, self.members.train, *self.validated),
            method=method.name,
            needs=method.component.meta["needs"],
            own=trained,
        )

    def info(self, method: Spec, training: Spec, clients: Clients | None = None) -> ClientInfo:
        """Return the ClientInfo that `method` declares to need, with `training` and `clients`."""
        needs, members = method.component.meta["needs"], self.members

        def labels() -> np.ndarray:
            return self._noiseless.targets.cpu().numpy()

        def pooled() -> np.ndarray:
            return np.sort(np.concatenate(list(members.train)))

        known: dict[str, Callable[[], Any]] = {
            "example_counts": lambda: partitions.sizes_of(members.train),
            "label_counts": lambda: members.label_counts(labels(), len(self.prepared.classes)),
            "pooled_inputs": lambda: self.held.scaled(pooled()).cpu().numpy(),
            "pooled_labels": lambda: labels()[pooled()],
        }
        fields = {name: of() for name, of in known.items() if name in needs}
        for part in partitions.HOLDOUTS:
            if part.need in needs and part.at != "clients":
                rows = getattr(members, part.split)
                if not rows.size:
                    raise partitions.missing_holdout_error(f"method '{method.name}'", part)
                examples, (rows,) = self._noiseless.of([rows])
                fields[f"{part.parameter}_inputs"] = examples.scaled(rows).cpu().numpy()
                fields[f"{part.parameter}_labels"] = examples.targets[rows].cpu().numpy()
        return ClientInfo(training, self.device, clients=clients, **fields)

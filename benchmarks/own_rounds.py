"""Rounds as the papers have them, against what they cannot do without.

By processor time, in one process, one thread. The data are made up: what a step costs does not
depend on them. Dense networks are held against their bare matrix products, those of the received
network and of the maps f_j among them; matching on images against the same rounds without it.
"""

from __future__ import annotations

import itertools
import resource
from pathlib import Path

import bare
import harness
import numpy as np
import torch
from problems import Workload

from fedrepro.core.registry import parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.compiled_layout_and_buffers import parts_of
from fedrepro.networks.predict import network_of
from fedrepro.papers.rm.methods.representation_matching import RepresentationMatching
from fedrepro.training.engine import train_and_average
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.loss_terms import Entropy
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Examples
from fedrepro.training.training_settings_and_procedures import settings_of

MATCHING = RepresentationMatching(1.0, "mean")
PEAK_GIB, STATE_MB = 1.5, 200.0


def run(name: str, workload: Workload, runs: int, results: Path) -> int:
    """Measure a workload; returns the exit status."""
    work = Rounds(workload)
    plain = [] if name == "fedavg-2nn" else [Entropy()]
    contenders = {"fedrepro": harness.by_processor_time(lambda: work.train(plain))}
    pairs = {}
    if plain:
        both = [*plain, MATCHING]
        contenders["with matching"] = harness.by_processor_time(lambda: work.train(both))
        pairs["without matching"] = ("with matching", "fedrepro")
    libraries = bare.LIBRARIES if work.network.kind == "dense" else {}
    for library, multiply in libraries.items():
        for ours, what in (("fedrepro", "products"), ("with matching", "products with matching")):
            if ours in contenders:
                operands = work.products(matching=ours != "fedrepro")
                again = bare.repeated(operands, work.steps, multiply)
                contenders[f"{what}, {library}"] = harness.by_processor_time(again)
                pairs[what] = (ours, f"{what}, MKL")
    measured = harness.in_turn(contenders, runs)
    targets = [
        harness.Target(
            f"{ours} against {theirs}",
            harness.times_faster(measured, theirs, ours),
            workload.targets[what],
            at_least=False,
        )
        for what, (ours, theirs) in pairs.items()
        if what in workload.targets
    ]
    if work.network.kind != "dense":
        targets += work.memory()
    settings = {**workload.settings, "clients": workload.clients, "examples": workload.examples}
    return harness.conclude(f"rounds-{name}", results, settings, measured, targets)


class Rounds:
    """Rounds of averaging on made-up data."""

    def __init__(self, workload: Workload) -> None:
        given = workload.settings
        rng = np.random.default_rng(0)
        model = parse_token("model", str(given["model"]))
        shape = (3, 32, 32) if model.name == "cnn" else (28, 28)
        count, self.given = workload.clients * workload.examples, given
        inputs = rng.integers(0, 256, (count, int(np.prod(shape))), np.uint8)
        labels = rng.integers(0, 10, count)
        self.examples = Examples(torch.from_numpy(inputs), torch.from_numpy(labels), 255.0)
        self.rows = np.split(rng.permutation(count), workload.clients)
        self.network = network_of(model, shape, 10)
        own = {key: given[key] for key in ("lr", "batch_size")}
        spec = parse_token("training", "sgd").component.spec({**own, "init": "fan_in"})
        self.settings = settings_of(spec)

    def number(self, name: str) -> int:
        return int(self.given[name])  # type: ignore[call-overload]

    def train(self, terms: list[Entropy | RepresentationMatching]) -> None:
        """All rounds; private tensors stay with their clients from one to the next."""
        cohort = self.number("cohort")
        weights = initial_weights(self.network, self.settings, [RngKey(0, client=-1)])
        private: dict[str, np.ndarray] = {}
        if MATCHING in terms:
            drawn = [MATCHING.initial(self.network, RngKey(0, client=j)) for j in range(cohort)]
            private = {name: np.stack([one[name] for one in drawn]) for name in drawn[0]}
        for done in range(self.number("rounds")):
            place, steps = RngKey(0, round=done), self.number("steps")
            tasks = [Task(self.rows[j], place.at(client=j), steps=steps) for j in range(cohort)]
            share = [1 / cohort] * cohort
            found = train_and_average(
                self.network, self.examples, tasks, self.settings, weights, share,
                terms=terms, private=private,
            )  # fmt: skip
            weights, private = found.tensors, found.private

    def products(self, matching: bool) -> bare.Operands:
        """The bare products of a step of one client."""
        parts, batch = parts_of(self.network), self.number("batch_size")
        assert parts is not None
        sizes = parts.sizes
        found = bare.of_network(batch, sizes)
        if matching:
            up = list(itertools.pairwise(sizes))
            for low, high in up:
                found += bare.of_map(batch, high, low, below=True)
            for low, high in up[:-1]:  # the last layer of the received network gives nothing back
                found += bare.of_map(batch, low, high, below=False, learned=False)
        return found

    @property
    def steps(self) -> int:
        return self.number("rounds") * self.number("steps") * self.number("cohort")

    def memory(self) -> list[harness.Target]:
        """The largest resident memory until now, and what a run must keep to go on."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        tensors = [MATCHING.shapes(self.network)] * self.number("cohort") + [self.network.shapes]
        state = sum(int(np.prod(s)) for own in tensors for s in own.values()) * 4 / 1e6
        return [
            harness.Target("peak, GiB", peak, PEAK_GIB, at_least=False),
            harness.Target("network and private tensors, MB", state, STATE_MB, at_least=False),
        ]

"""What several stages need: a line of progress, the device, the data that a method may see."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedrepro.api import ClientInfo
from fedrepro.core.artifacts import damaged, require_source
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.data.membership import Membership
from fedrepro.data.prepared import Prepared, load_prepared
from fedrepro.numbers.measure import EvaluationSplit
from fedrepro.planning.paths import Scenario
from fedrepro.training.examples import Examples, tensor_of

_began = time.perf_counter()


def restart_clock() -> None:
    """Count the seconds of a job from now on: in a preloaded process they began before it."""
    global _began
    _began = time.perf_counter()


def say(line: str) -> None:
    """A line of progress on standard error, which the workflow keeps as the job's log."""
    print(f"[{time.perf_counter() - _began:7.1f} s] {line}", file=sys.stderr, flush=True)


def prepared_for(scenario: Scenario, data: Path, partition: Path) -> Prepared:
    """The data set of a job. Errors: FedreproError for data or a partition of another scenario."""
    prepared = load_prepared(data)
    if prepared.token != scenario.dataset.token:
        raise damaged(data, f"it holds {prepared.token}, not {scenario.dataset.token}")
    path = f"{prepared.token}/{scenario.partition.token}"
    require_source(partition, {"path": path, "data": prepared.checksum})
    return prepared


def examples_of(prepared: Prepared, split: str, device: str) -> Examples:
    """Inputs and labels of a split; on the CPU they stay mapped, on a GPU they are copied there."""
    return Examples(
        tensor_of(prepared.raw(split)).to(device),
        tensor_of(prepared.labels(split)).to(device),
        prepared.scale,
    )


def held_examples(prepared: Prepared, members: Membership, rng: Rng, device: str) -> Examples:
    """The training examples as the clients of a trial hold them; rng is at the seed and trial."""
    plain = examples_of(prepared, "train", device)
    if members.noise is None:
        return plain
    noisy = members.as_held(prepared.inputs("train"), rng)
    return Examples(tensor_of(noisy).to(device), plain.targets)


def splits_as_held(
    names: Iterable[str],
    prepared: Prepared,
    members: Membership,
    rng: Rng,
    device: str,
) -> dict[str, EvaluationSplit]:
    """The splits to measure models on in a trial; rng is at the seed and trial.

    Training examples are as the clients hold them, noise included, with who holds which, so that
    every stage measures training accuracy on the same inputs.
    """
    found = {}
    for name in names:
        held = name == "train"
        examples = (
            held_examples(prepared, members, rng, device)
            if held
            else examples_of(prepared, name, device)
        )
        rows = members.train if held else ()
        found[name] = EvaluationSplit(
            examples, prepared.labels(name), prepared.shape, len(prepared.classes), rows
        )
    return found


def client_info(
    method: Spec,
    training: Spec,
    prepared: Prepared,
    members: Membership,
    rng: Rng,
    device: str,
) -> ClientInfo:
    """Exactly what the method declared in `needs`, and nothing else; rng is at seed and trial."""
    needs = method.component.meta["needs"]
    labels = prepared.labels("train")
    counts = members.label_counts(labels, len(prepared.classes))
    held = np.sort(np.concatenate(members.train))
    pooled = None
    if "pooled_inputs" in needs:
        pooled = members.as_held(prepared.inputs("train"), rng)[held]
    return ClientInfo(
        training=training,
        device=device,
        example_counts=counts.sum(1) if "example_counts" in needs else None,
        label_counts=counts if "label_counts" in needs else None,
        pooled_inputs=pooled,
        pooled_labels=labels[held] if "pooled_labels" in needs else None,
    )

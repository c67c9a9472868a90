"""Stage aggregate: one-shot methods and controls, from local models to metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedrepro.api import GlobalModel, LocalModels
from fedrepro.core.artifacts import TrialModels, read_models, write_table
from fedrepro.core.metrics import FLOAT_BYTES, MetricRow, Table
from fedrepro.core.provenance import provenance, provenance_of, spent
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.data.membership import Membership, read_partition
from fedrepro.data.prepared import Prepared
from fedrepro.networks.predict import network_of
from fedrepro.numbers.measure import Values, communication, measure, measure_alone, own_accuracy
from fedrepro.planning.paths import Scenario, TrialBlock
from fedrepro.stages.common import client_info, prepared_for, say, splits_as_held
from fedrepro.stages.devices import device_of
from fedrepro.training.flat import Layout


def run(
    scenario: Scenario,
    method: Spec,
    data: Path,
    partition: Path,
    local_models: Sequence[Path],
    trials: TrialBlock,
    seed: int,
    device: str,
    out: Path,
    timings: Path,
) -> None:
    """Measure every setting of a method in every trial of a block."""
    prepared = prepared_for(scenario, data, partition)
    where = device_of(device)
    made = {"path": scenario.folder, "data": prepared.checksum}
    found = read_models(local_models, list(trials), made)
    table = Table(scenario.specs)
    measured: list[tuple[int, str, float]] = []
    for trial in trials:
        members = read_partition(partition, trial)
        for setting, numbers, alone, seconds in _trial(
            scenario, method, prepared, members, found[trial], Rng(seed, trial), where
        ):
            table.add(MetricRow(trial, setting, m, value, split) for m, split, value in numbers)
            table.add(
                MetricRow(trial, setting, "accuracy", value, "test", client=j)
                for j, value in enumerate(alone)
            )
            measured.append((trial, setting.token, seconds))
        say(f"trial {trial}: {method.name}")
    source = provenance(
        seed,
        specs=(*scenario.specs, method),
        device=where,
        inputs=[prepared.info["provenance"], *map(provenance_of, (partition, *local_models))],
        path=f"{scenario.folder}/{method.token}",
        data=prepared.checksum,
        stand_in=prepared.stand_in,
    )
    columns = dict(zip(("trial", "method", "seconds"), zip(*measured, strict=True), strict=True))
    write_table(timings, columns, "timings", source | spent())
    write_table(out, table.arrow(), "metrics", source)


def _trial(
    scenario: Scenario,
    method: Spec,
    prepared: Prepared,
    members: Membership,
    models: TrialModels,
    rng: Rng,
    device: str,
) -> Iterator[tuple[Spec, Values, list[float], float]]:
    """Every setting of a method in one trial: spec, numbers, per-client accuracies, seconds."""
    clients = LocalModels(scenario.model, prepared.shape, len(prepared.classes), models.tensors)
    info = client_info(method, scenario.training, prepared, members, rng, device)
    if "own_train_accuracy" in method.component.meta["needs"]:
        held = splits_as_held(["train"], prepared, members, rng, device)["train"]
        info = replace(info, own_train_accuracy=own_accuracy(clients, held))
    wanted = method.component.meta["evaluate"]
    splits = splits_as_held(wanted, prepared, members, rng, device)
    network = network_of(scenario.model, prepared.shape, len(prepared.classes))
    sent = Layout(network.shapes).numbers * FLOAT_BYTES
    for setting in method.expand():
        began = time.perf_counter()
        made = setting.component.fn(clients, info, rng=rng, **setting.values)
        seconds = time.perf_counter() - began
        alone: list[float] = []
        if made is None:
            yield setting, [("left_out", None, 1.0)], alone, seconds
            continue
        if isinstance(made, GlobalModel):
            numbers = measure(made, splits)
        else:
            numbers, alone = measure_alone(made, splits)
        # one-shot methods send every client's weights up once; controls are bounds and send none
        once = int(method.component.meta["kind"] == "one_shot")
        numbers += communication(sent, once, up=clients.clients, down=0)
        yield setting, numbers, alone, seconds

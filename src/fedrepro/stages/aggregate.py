"""Stage aggregate: one-shot methods and controls, from local models to metrics."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Traffic
from fedrepro.core.artifacts import TrialModels, read_models, write_table
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.provenance import provenance, provenance_of, spent
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.data.membership import read_partition
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of
from fedrepro.numbers.measure import Draws, Values, communication, measure, measure_alone
from fedrepro.planning.paths import Scenario, TrialBlock
from fedrepro.stages.common import AT_CLIENTS, TrialData, prepared_for, say
from fedrepro.stages.devices import device_of
from fedrepro.training.ledger import Ledger, models_sent


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
    evaluate: Sequence[str] = (),
) -> None:
    """Measure every setting of a method in every trial of a block.

    evaluate: splits to measure on beside those that the method's decorator names.
    """
    prepared = prepared_for(scenario, data, partition)
    where = device_of(device)
    made = {"path": scenario.folder, "data": prepared.checksum}
    found = read_models(local_models, list(trials), made)
    table = Table(scenario.specs)
    measured: list[tuple[int, str, float]] = []
    for trial in trials:
        own = TrialData(prepared, read_partition(partition, trial), Rng(seed, trial), where)
        for setting, numbers, alone, seconds in _trial(
            scenario, method, own, found[trial], evaluate
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
    own: TrialData,
    models: TrialModels,
    evaluate: Sequence[str],
) -> Iterator[tuple[Spec, Values, list[float], float]]:
    """Every setting of a method in one trial: spec, numbers, per-client accuracies, seconds."""
    local, info = handed(scenario, method, own, models)
    meta, rng = method.component.meta, own.rng
    splits = own.splits(dict.fromkeys((*meta["evaluate"], *evaluate)))
    network = network_of(scenario.model, local.shape, local.classes)
    costly, ledger = Prepare(meta["prepare"], local, info, rng), ledger_of(info)
    for setting in method.expand():
        began = time.perf_counter()
        extra = costly(setting)
        ledger.begin()
        made = setting.component.fn(local, info, rng=rng, **setting.values, **extra)
        seconds = time.perf_counter() - began
        further = costly.sent(setting) + ledger.traffic
        alone: list[float] = []
        if made is None:
            yield setting, [("left_out", None, 1.0)], alone, seconds
            continue
        if isinstance(made, GlobalModel):
            numbers = measure(made, splits, Draws(rng))
            sent = made.traffic
        else:
            numbers, alone = measure_alone(made, splits, Draws(rng))
            sent = None
        numbers += communication(*_sent(meta["kind"], local.clients, network, sent, further))
        yield setting, numbers, alone, seconds


def _sent(
    kind: str, clients: int, network: Network, declared: Traffic | None, further: Traffic
) -> tuple[int, Traffic]:
    """Exchanges and messages of a setting; further: what clients did for it beside.

    One-shot methods send every client's weights up once. Controls are bounds and send nothing.
    """
    if kind != "one_shot":
        return 0, declared or Traffic()
    whole = declared or models_sent(network, clients, 0) + further
    return 1 + int(further != Traffic()), whole


def handed(
    scenario: Scenario, method: Spec, own: TrialData, models: TrialModels
) -> tuple[LocalModels, ClientInfo]:
    """What a one-shot method or control is handed in one trial."""
    shape, classes = own.prepared.shape, len(own.prepared.classes)
    local = LocalModels(scenario.model, shape, classes, models.tensors)
    asked = method.component.meta["needs"] & AT_CLIENTS
    clients = own.clients(scenario, method) if asked else None
    return local, own.info(method, scenario.training, clients)


@dataclass
class Prepare:
    """What a method makes once for all settings with equal values of what it is made from."""

    fn: Callable[..., Any] | None
    clients: LocalModels
    info: ClientInfo
    rng: Rng
    made: dict[tuple[Any, ...], tuple[Any, Traffic]] = field(default_factory=dict)

    def __call__(self, setting: Spec) -> dict[str, Any]:
        """What is handed to the method beside its parameters: nothing, or `prepared`."""
        return {} if self.fn is None else {"prepared": self._made(self.fn, setting)[0]}

    def sent(self, setting: Spec) -> Traffic:
        """What clients sent for it: a cost of each setting, as it would be without the others."""
        return Traffic() if self.fn is None else self._made(self.fn, setting)[1]

    def _made(self, fn: Callable[..., Any], setting: Spec) -> tuple[Any, Traffic]:
        names = [name for name in inspect.signature(fn).parameters if name in setting.values]
        values = {name: setting.values[name] for name in names}
        key = tuple(values.values())
        if key not in self.made:
            ledger = ledger_of(self.info)
            ledger.begin()
            value = fn(self.clients, self.info, rng=self.rng, **values)
            self.made[key] = value, ledger.traffic
        return self.made[key]


def ledger_of(info: ClientInfo) -> Ledger:
    """The account of the clients of a one-shot method, an empty one if it asks nothing of them."""
    return info.clients.ledger if info.clients else Ledger()

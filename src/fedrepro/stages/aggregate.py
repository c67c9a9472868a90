"""Stage aggregate: one-shot methods and controls, from local models to metrics.

A method may also be tuned: what it made once is then trained further on each public sample, and
measured again.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Made, Traffic
from fedrepro.core.artifacts import TrialModels, read_models, write_table
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.provenance import provenance, provenance_of, spent
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import setting_token
from fedrepro.core.tuning import tuning_of
from fedrepro.data.membership import read_partition
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of
from fedrepro.numbers.measure import (
    Draws,
    EvaluationSplit,
    Values,
    communication,
    measure,
    measure_alone,
)
from fedrepro.planning.paths import Scenario, TrialBlock
from fedrepro.stages.common import AT_CLIENTS, TrialData, prepared_for, say
from fedrepro.stages.devices import device_of
from fedrepro.training.ledger import Ledger, models_sent
from fedrepro.training.settings import Settings, settings_of
from fedrepro.training.tuning import tuned


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
    tune: Spec | None = None,
) -> None:
    """Measure every setting of a method in every trial of a block.

    evaluate: splits to measure on beside those that the method's decorator names. tune: how what
    it makes is tuned, perhaps a sweep.
    """
    prepared = prepared_for(scenario, data, partition)
    where = device_of(device)
    made = {"path": scenario.folder, "data": prepared.checksum}
    found = read_models(local_models, list(trials), made)
    table = Table(scenario.specs)
    measured: list[tuple[int, str, float]] = []
    for trial in trials:
        own = TrialData(prepared, read_partition(partition, trial), Rng(seed, trial), where)
        for one in _trial(scenario, method, own, found[trial], evaluate, tune):
            table.add(one.rows(trial))
            measured.append((trial, one.token, one.seconds))
        say(f"trial {trial}: {method.name}")
    source = provenance(
        seed,
        specs=(*scenario.specs, method),
        device=where,
        inputs=[prepared.info["provenance"], *map(provenance_of, (partition, *local_models))],
        path="/".join([scenario.folder, method.token, *([tune.token] if tune else [])]),
        data=prepared.checksum,
        stand_in=prepared.stand_in,
        **({"tune": tune.resolved} if tune else {}),
    )
    columns = dict(zip(("trial", "method", "seconds"), zip(*measured, strict=True), strict=True))
    write_table(timings, columns, "timings", source | spent())
    write_table(out, table.arrow(), "metrics", source)


@dataclass(frozen=True)
class Measured:
    """A setting in one trial: its numbers, those of single clients by metric and split, seconds.

    tune, repetition: how what it made was tuned, if it was, and on which sample.
    """

    setting: Spec
    numbers: Values
    alone: Mapping[tuple[str, str | None], Sequence[float]]
    seconds: float
    tune: Spec | None = None
    repetition: int | None = None

    @property
    def token(self) -> str:
        return setting_token(self.setting, tune=self.tune)

    def rows(self, trial: int) -> Iterator[MetricRow]:
        """All of it as rows of a table of metrics."""
        row = partial(MetricRow, trial, self.setting, tune=self.tune, repetition=self.repetition)
        for metric, split, value in self.numbers:
            yield row(metric, value, split)
        for (metric, split), values in self.alone.items():
            for client, value in enumerate(values):
                yield row(metric, value, split, client=client)


def _trial(
    scenario: Scenario,
    method: Spec,
    own: TrialData,
    models: TrialModels,
    evaluate: Sequence[str],
    tune: Spec | None,
) -> Iterator[Measured]:
    """Every setting of a method in one trial, and after each what comes of tuning it."""
    local, info = handed(scenario, method, own, models)
    meta, rng = method.component.meta, own.rng
    splits = own.splits(dict.fromkeys((*meta["evaluate"], *evaluate)))
    network = network_of(scenario.model, local.shape, local.classes)
    costly, ledger = Prepare(meta["prepare"], local, info, rng), ledger_of(info)
    draws = Draws(rng)
    for setting in method.expand():
        began = time.perf_counter()
        extra = costly(setting)
        ledger.begin()
        made = setting.component.fn(local, info, rng=rng, **setting.values, **extra)
        seconds = time.perf_counter() - began
        further = costly.sent(setting) + ledger.traffic
        cost = communication(*_sent(meta["kind"], local.clients, network, made, further))
        yield Measured(setting, *_measured(made, splits, draws, models.epochs, cost), seconds)
        for how in tune.expand() if tune else ():
            for repetition in range(tuning_of(how).repetitions):
                began = time.perf_counter()
                new = _tuned(made, how, repetition, own, settings_of(scenario.training))
                seconds = time.perf_counter() - began
                found = _measured(new, splits, draws, models.epochs, cost)
                yield Measured(setting, *found, seconds, how, repetition)


def _measured(
    made: Made,
    splits: Mapping[str, EvaluationSplit],
    draws: Draws,
    epochs: np.ndarray | None,
    cost: Values,
) -> tuple[Values, dict[tuple[str, str | None], Sequence[float]]]:
    """Numbers of what a method made, and those of single clients by metric and split.

    epochs: (J,), after how many of them each client stopped, where they stop by themselves.
    """
    if made is None:
        return [("left_out", None, 1.0)], {}
    if isinstance(made, GlobalModel):
        return measure(made, splits, draws) + cost, {}
    numbers, each = measure_alone(made, splits, draws)
    if epochs is None:
        return numbers + cost, {("accuracy", "test"): each}
    done = ("epochs", None, float(epochs.mean()))
    return [*numbers, done, *cost], {("accuracy", "test"): each, ("epochs", None): epochs.tolist()}


def _tuned(made: Made, tune: Spec, repetition: int, own: TrialData, settings: Settings) -> Made:
    """What a method made after training on one of the samples, at no further cost of messages."""
    how, place = tuning_of(tune), own.rng.at(call=repetition + 1)
    sample = own.public_sample(how.examples, repetition)
    shape, classes = own.prepared.shape, len(own.prepared.classes)
    after = partial(
        tuned, sample=sample, shape=shape, classes=classes, how=how, settings=settings, rng=place
    )
    if isinstance(made, GlobalModel):
        return after(made)
    return None if made is None else [after(model) for model in made]


def _sent(
    kind: str, clients: int, network: Network, made: Made, further: Traffic
) -> tuple[int, Traffic]:
    """Exchanges and messages of a setting, as its model says or as they were.

    further: what clients did for it beside. One-shot methods send every client's weights up once.
    Controls are bounds and send nothing.
    """
    own = made if isinstance(made, GlobalModel) else None
    declared, exchanges = (own.traffic, own.exchanges) if own else (None, None)
    if kind != "one_shot":
        return 0, declared or Traffic()
    whole = declared or models_sent(network, clients, 0) + further
    return exchanges or 1 + int(further != Traffic()), whole


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

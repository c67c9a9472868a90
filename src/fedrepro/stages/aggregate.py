"""Stage aggregate: one-shot methods and controls, from local models to metrics.

A method may also be tuned: its model is then trained further on each public sample, and measured
again.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, MethodOutput, Traffic
from fedrepro.core.artifacts import one_line, read_source, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.finetuning import finetuning_of
from fedrepro.core.metrics import FLOAT_BYTES, MetricRow, Number, Table
from fedrepro.core.params import render
from fedrepro.core.plugins import own_fault
from fedrepro.core.provenance import provenance, resources_used
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import TrialModels, read_models
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import setting_token
from fedrepro.data.prepared import load_prepared, unlabelled
from fedrepro.networks.predict import network_of
from fedrepro.numbers.model_evaluation import (
    Draws,
    EvaluationSplit,
    communication,
    measure,
    measure_alone,
)
from fedrepro.planning.jobs import METRICS, TIMINGS, Job, Scenario
from fedrepro.stages.common import AT_CLIENTS, Failures, TrialData, log, members_of, prepared_for
from fedrepro.stages.devices import device_of
from fedrepro.stages.finetuning import finetuned
from fedrepro.training.examples import Examples
from fedrepro.training.examples import tensor_of as torch_of
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.federation.cost_counter import ClientCost, CostCounter
from fedrepro.training.federation.norm_statistics import (
    pooled_statistics,
    require_norms,
    running_statistics,
)
from fedrepro.training.settings import Settings, settings_of


def run(job: Job, device: str = "cpu") -> None:
    """Measure every setting of a method, and every tuning of its models, in every trial."""
    scenario, method, tune = job.scenario, job.specs["method"], job.tune
    assert job.trials is not None
    partition, public = Path(job.members), Path(job.public) if job.public else None
    prepared = prepared_for(scenario, Path(job.data), partition)
    where = device_of(device)
    made = {"path": scenario.token, "data": prepared.checksum}
    models = read_models(list(map(Path, job.models)), list(job.trials), made)
    table, failures = Table(scenario.specs), Failures()
    measured: list[tuple[int, str, float, float, float]] = []
    for trial in job.trials:
        trial_data = TrialData(
            prepared, members_of(scenario, partition, trial), RngKey(job.seed, trial), where
        )
        handed_over = scenario, method, trial_data, models[trial], job.evaluate, tune, public
        for result in _trial(*handed_over, failures):
            table.add(result.rows(trial))
            measured.append((trial, result.token, result.seconds, *result.shares))
        log(f"trial {trial}: {method.name}")
    source = provenance(
        job.seed,
        specs=(*scenario.specs, method),
        device=where,
        inputs=[prepared.info["provenance"], *map(read_source, [job.members, *job.models])],
        path="/".join([scenario.token, method.token, *([tune.token] if tune else [])]),
        data=prepared.checksum,
        stand_in=prepared.stand_in,
        **({"tune": tune.resolved} if tune else {}),
        **failures.diagnostics,
    )
    names = ("trial", "method", "seconds", "client_seconds", "server_seconds")
    columns = dict(zip(names, zip(*measured, strict=True), strict=True))
    write_table(Path(job.out, TIMINGS), columns, "timings", source | resources_used())
    write_table(Path(job.out, METRICS), table.arrow(), "metrics", source)


@dataclass(frozen=True)
class Measured:
    """A setting in one trial: its numbers, those of single clients last, and seconds.

    shares: seconds of clients and of the server, including preparations for several settings, as if
    for this one alone. tune, repetition: of the model, if it was tuned, and on which sample.
    """

    setting: Spec
    numbers: list[Number]
    seconds: float
    shares: tuple[float, float]
    tune: Spec | None = None
    repetition: int | None = None

    @property
    def token(self) -> str:
        return setting_token(self.setting, tune=self.tune)

    def rows(self, trial: int) -> Iterator[MetricRow]:
        """Yield the numbers as rows of a table of metrics."""
        row = partial(MetricRow, trial, self.setting, tune=self.tune, repetition=self.repetition)
        yield from (row(*number) for number in self.numbers)


def _trial(
    scenario: Scenario,
    method: Spec,
    data: TrialData,
    models: TrialModels,
    evaluate: Sequence[str],
    tune: Spec | None,
    public: Path | None,
    failures: Failures,
) -> Iterator[Measured]:
    """Yield every setting of a method in one trial, each followed by its tuned versions.

    A setting that fails with an error of its own is a row of metric `failed`, and a note.
    """
    local, info = method_inputs(scenario, method, data, models, public)
    meta, rng = method.component.meta, data.rng
    splits = data.splits(dict.fromkeys((*meta["evaluate"], *evaluate)))
    costly, draws = SharedPreparation(meta["prepare"], local, info, rng), Draws(rng)
    for setting in method.expand():
        ways = list(tune.expand()) if tune else []
        try:
            done = run_setting(setting, local, info, rng, costly)
            made, cost = done.made, done.cost
            numbers = _measured(made, splits, draws, models.epochs, cost)
        except Exception as error:  # a method's code may raise anything
            failures.note(setting.token, rng.trial, error)
            nothing = [Number("failed", 1.0)], 0.0, (0.0, 0.0)
            yield Measured(setting, *nothing)
            for how in ways:
                for repetition in range(finetuning_of(how).repetitions):
                    yield Measured(setting, *nothing, how, repetition)
            continue
        yield Measured(setting, numbers, done.seconds, (done.further.seconds, done.server))
        for how in ways:
            for repetition in range(finetuning_of(how).repetitions):
                began = time.perf_counter()
                new = _tuned(made, how, repetition, data, settings_of(scenario.training))
                seconds = time.perf_counter() - began
                again = _measured(new, splits, draws, models.epochs, cost)
                yield Measured(setting, again, seconds, (0.0, seconds), how, repetition)


@dataclass(frozen=True)
class SettingResult:
    """The models of a setting, and their cost.

    seconds: of server and clients, including a preparation done now. server: of the server alone,
    including its preparation. further: work of clients besides sending their models. cost:
    exchanges, messages, bytes and passes, as metrics.
    """

    made: MethodOutput
    seconds: float
    server: float
    further: ClientCost
    cost: list[Number]


def run_setting(
    setting: Spec, local: LocalModels, info: ClientInfo, rng: RngKey, costly: SharedPreparation
) -> SettingResult:
    """Run one setting of a one-shot method or control.

    Where its arithmetic fails (a singular matrix, an overflow that numpy was set to raise) its
    model is not finite, as one that diverged. Any other exception is a mistake in its code.

    Raises:
        FedreproError: it returns another type than `Made`.
    """
    import torch

    began = time.perf_counter()
    arithmetic = (ArithmeticError, np.linalg.LinAlgError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]
    try:
        return _worked(setting, local, info, rng, costly, began)
    except arithmetic as error:
        if own_fault(error):
            raise
        log(f"{setting.token} failed: {type(error).__name__}, {one_line(error)}")
    nothing = {name: np.full_like(value[:1], np.nan) for name, value in local.tensors.items()}
    lost = GlobalModel(local.model, nothing)
    sent = _sent(setting.component.meta["kind"], local, lost, ClientCost())
    seconds = time.perf_counter() - began
    return SettingResult(lost, seconds, seconds, ClientCost(), communication(*sent))


def _worked(
    setting: Spec,
    local: LocalModels,
    info: ClientInfo,
    rng: RngKey,
    costly: SharedPreparation,
    began: float,
) -> SettingResult:
    extra, ledger = costly(setting), ledger_of(info)
    ledger.begin()
    called = time.perf_counter()
    made = setting.component.fn(local, info, rng=rng, **setting.own, **extra)
    require_models(made, setting, local)
    made = ruled(made, setting, local, info)
    ended = time.perf_counter()
    further = costly.spent(setting) + ledger.spent
    server = ended - called - ledger.spent.seconds + costly.seconds(setting)
    cost = communication(*_sent(setting.component.meta["kind"], local, made, further))
    cost += [Number("passes", further.passes)] if further.passes else []
    return SettingResult(made, ended - began, server, further, cost)


def require_models(made: Any, setting: Spec, local: LocalModels) -> None:
    """Refuse results of another type than `Made`, and tensors of other shapes than the network's.

    Raises:
        FedreproError: the first difference.
    """
    models = [made] if isinstance(made, GlobalModel) else made
    if models is None:
        return
    if not isinstance(models, Sequence) or not models or isinstance(models, str):
        raise _no_model(made, setting)
    for model in models:
        if not isinstance(model, GlobalModel):
            raise _no_model(made, setting)
        due = network_of(model.model, local.shape, local.classes).shapes
        shapes = {name: np.shape(value) for name, value in model.tensors.items()}
        missing, strange = [n for n in due if n not in shapes], [n for n in shapes if n not in due]
        fault = ""
        if missing or strange:
            fault = f"no '{missing[0]}'" if missing else f"'{strange[0]}', which its model lacks"
        for name in due if not fault else ():
            form = shapes[name]
            if len(form) != 1 + len(due[name]) or form[0] != len(model.tensors[next(iter(due))]):
                fault = (
                    f"'{name}' of shape {form}: let it be (m, {_sides(due[name])}) for m networks"
                )
                break
        if fault:
            raise FedreproError(f"method '{setting.token}' returns {fault}")


def recalibrates(method: Spec) -> bool:
    """Whether a setting of a method has running statistics measured again."""
    return "recalibrate" in render(method.values.get("batchnorm", "")).split("@")


def ruled(made: MethodOutput, setting: Spec, local: LocalModels, info: ClientInfo) -> MethodOutput:
    """Apply a setting's rule for running statistics to its model.

    Methods average them by themselves. `local` gives each client its own, and the weights of their
    layers; `recalibrate` measures them at the clients, or on inputs of the server.

    Raises:
        FedreproError: the network has no such statistics, or nobody has data to measure them on.
    """
    rule = setting.common.get("batchnorm", "average")
    if rule == "average" or not isinstance(made, GlobalModel):
        return made
    who = f"method '{setting.token}'"
    network = network_of(local.model, local.shape, local.classes)
    require_norms(network, who)
    if rule == "local":
        if setting.component.meta["merges"] == "matched":
            raise FedreproError(
                f"{who} has its units in another order than clients have, so that their running "
                "statistics do not fit: take average or recalibrate"
            )
        own = {name: local.tensors[name] for name in network.norms}
        return [
            replace(made, tensors={**made.tensors, **{k: v[[j]] for k, v in own.items()}})
            for j in range(local.clients)
        ]
    server = info.validation_inputs if info.public_inputs is None else info.public_inputs
    if info.clients is not None:
        new = info.clients.statistics(made.tensors)
    elif server is not None:
        tensors = {k: torch_of(v[0]).to(info.device) for k, v in made.tensors.items()}
        inputs = torch_of(server).to(info.device)
        new = pooled_statistics([running_statistics(network, tensors, Examples(inputs, inputs))])
    else:
        raise FedreproError(
            f"{who} has no data to measure running statistics on: give those of clients, or inputs "
            "of the server (--clients-data or --public)"
        )
    return replace(made, tensors={**made.tensors, **new})


def _sides(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def _no_model(made: Any, setting: Spec) -> FedreproError:
    return FedreproError(
        f"method '{setting.token}' returns a {type(made).__name__}: let it return a GlobalModel, a "
        "list with one for each client, or None where it has none of these clients"
    )


def _measured(
    made: MethodOutput,
    splits: Mapping[str, EvaluationSplit],
    draws: Draws,
    epochs: np.ndarray | None,
    cost: list[Number],
) -> list[Number]:
    """Return the numbers of a method's models, then those of single clients.

    epochs: (J,), of each client's training, where it stops early.
    """
    if made is None:
        return [Number("left_out", 1.0)]
    if isinstance(made, GlobalModel):
        return measure(made, splits, draws) + cost
    numbers, each = measure_alone(made, splits, draws)
    accuracies = [Number("accuracy", v, "test", client=j) for j, v in enumerate(each)]
    if epochs is None:
        return [*numbers, *cost, *accuracies]
    done = [Number("epochs", v, client=j) for j, v in enumerate(epochs.tolist())]
    return [*numbers, Number("epochs", float(epochs.mean())), *cost, *accuracies, *done]


def _tuned(
    made: MethodOutput, tune: Spec, repetition: int, data: TrialData, settings: Settings
) -> MethodOutput:
    """Train a method's models on one of the samples, at no further cost of messages."""
    how, place = finetuning_of(tune), data.rng.at(call=repetition + 1)
    sample = data.public_sample(how.examples, repetition)
    shape, classes = data.prepared.shape, len(data.prepared.classes)
    after = partial(
        finetuned,
        sample=sample,
        shape=shape,
        classes=classes,
        how=how,
        settings=settings,
        rng=place,
    )
    if isinstance(made, GlobalModel):
        return after(made)
    return None if made is None else [after(model) for model in made]


def _sent(
    kind: str, local: LocalModels, made: MethodOutput, further: ClientCost
) -> tuple[int, Traffic]:
    """Return exchanges and messages of a setting, as its model declares or as they were counted.

    One-shot methods send every client's weights up once. Controls are bounds and send nothing.
    """
    model = made if isinstance(made, GlobalModel) else None
    declared, exchanges = (model.traffic, model.exchanges) if model else (None, None)
    if kind != "one_shot":
        return 0, declared or Traffic()
    models = Traffic(local.clients, 0, FLOAT_BYTES * local.numbers)
    whole = declared or models + further.traffic
    messages = further.traffic.messages_up + further.traffic.messages_down
    return exchanges or 1 + (further.exchanges or int(messages > 0)), whole


def method_inputs(
    scenario: Scenario,
    method: Spec,
    data: TrialData,
    models: TrialModels,
    public: Path | None = None,
) -> tuple[LocalModels, ClientInfo]:
    """Return the arguments of a one-shot method or control in one trial.

    Args:
        scenario: of the trial.
        method: with its parameters.
        data: of the trial.
        models: the local models.
        public: folder of the data set whose inputs it has at the server.

    Raises:
        FedreproError: it needs inputs of another data set, and none are given or their shape
            differs.
    """
    shape, classes = data.prepared.shape, len(data.prepared.classes)
    local = LocalModels(scenario.model, shape, classes, models.tensors)
    asked = method.component.meta["needs"] & AT_CLIENTS or recalibrates(method)
    clients = data.clients(scenario, method, models.tensors) if asked else None
    info = data.info(method, scenario.training, clients)
    if "start" in method.component.meta["needs"]:
        network, settings = (
            network_of(scenario.model, shape, classes),
            settings_of(scenario.training),
        )
        info = replace(info, start=initial_weights(network, settings, [data.rng]))
    if "public_inputs" in method.component.meta["needs"]:
        if public is None:
            raise FedreproError(
                f"method '{method.name}' has inputs of another data set at the server, and none is "
                "given here (public)"
            )
        inputs = unlabelled(load_prepared(public), shape, f"method '{method.name}'", data.rng)
        info = replace(info, public_inputs=inputs)
    return local, info


@dataclass
class SharedPreparation:
    """A method's preparations, each done once for all settings with equal parameters of it."""

    fn: Callable[..., Any] | None
    clients: LocalModels
    info: ClientInfo
    rng: RngKey
    made: dict[tuple[Any, ...], tuple[Any, ClientCost, float]] = field(default_factory=dict)

    def __call__(self, setting: Spec) -> dict[str, Any]:
        """Return the keyword `prepared` of the method, if it has a preparation."""
        return {} if self.fn is None else {"prepared": self._made(self.fn, setting)[0]}

    def spent(self, setting: Spec) -> ClientCost:
        """Return the work of clients for it, which counts for each setting."""
        return ClientCost() if self.fn is None else self._made(self.fn, setting)[1]

    def seconds(self, setting: Spec) -> float:
        """Return the server's seconds for it, which count for each setting."""
        return 0.0 if self.fn is None else self._made(self.fn, setting)[2]

    def _made(self, fn: Callable[..., Any], setting: Spec) -> tuple[Any, ClientCost, float]:
        names = [name for name in inspect.signature(fn).parameters if name in setting.values]
        values = {name: setting.values[name] for name in names}
        key = tuple(values.values())
        if key not in self.made:
            ledger = ledger_of(self.info)
            ledger.begin()
            began = time.perf_counter()
            value = fn(self.clients, self.info, rng=self.rng, **values)
            whole = time.perf_counter() - began
            self.made[key] = value, ledger.spent, whole - ledger.spent.seconds
        return self.made[key]


def ledger_of(info: ClientInfo) -> CostCounter:
    """Return the account of a one-shot method's clients; an empty one if they do nothing for it."""
    return info.clients.ledger if info.clients else CostCounter()

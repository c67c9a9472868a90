"""Stage aggregate: run one-shot methods, and controls such as pooled training; evaluate results."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, MethodOutput, Traffic
from fedrepro.core.checkpoint_and_model_files import TrialModels, read_models
from fedrepro.core.checksummed_files import one_line
from fedrepro.core.errors import FedreproError
from fedrepro.core.literature_names_and_setting_tokens import setting_token
from fedrepro.core.metrics import FLOAT_BYTES, MetricRow, Number, Table
from fedrepro.core.params import render
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.core.user_component_files import own_fault
from fedrepro.data.prepared import Prepared, unlabelled
from fedrepro.networks.predict import network_of
from fedrepro.numbers import model_evaluation as evaluation
from fedrepro.numbers.model_evaluation import Draws, Splits
from fedrepro.planning.scenarios_runs_and_jobs import Job, Scenario
from fedrepro.stages.job_log_results_gpu_lock import Failures, log, write_measured
from fedrepro.stages.trial_data import AT_CLIENTS, ScenarioData, TrialData
from fedrepro.training.federation import norm_statistics
from fedrepro.training.federation.client_queries_and_costs import ClientCost, CostCounter
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.training_examples import Examples, tensor_of
from fedrepro.training.training_settings_and_procedures import Settings, settings_of

Way = tuple[Spec | None, int | None]  # a fine-tuning, and the number of its public sample
PLAIN: Way = None, None


def run(job: Job, device: str = "cpu") -> None:
    """Run a one-shot method, or a control such as pooled training, in every trial of a job.

    Writes metrics and times. Every combination of parameter values (a setting) is evaluated, and
    again after each fine-tuning of the job. Work that several settings share counts fully in the
    costs of each, but once in `seconds`. If the method raises an error, its one metric is `failed`.
    """
    method, tune, trials = job.specs["method"], job.tune, job.trials
    assert trials is not None
    given = ScenarioData.of(job, device)
    made = {"path": job.scenario.token, "data": given.prepared.checksum}
    models = read_models(list(map(Path, job.models)), list(trials), made)
    table, failures = Table(job.scenario.specs), Failures()
    measured: list[tuple[Any, ...]] = []
    training, hows = settings_of(job.scenario.training), tune.expand() if tune else ()
    ways = [(how, repetition) for how in hows for repetition in range(how["repetitions"])]

    def add(trial: int, setting: Spec, way: Way, numbers: list[Number], *seconds: float) -> None:
        row = partial(MetricRow, trial, setting, tune=way[0], repetition=way[1])
        table.add(row(*number) for number in numbers)
        measured.append((trial, setting_token(setting, tune=way[0]), *seconds))

    for trial in trials:
        data, epochs = given.trial(trial), models[trial].epochs
        local, info = method_inputs(job.scenario, method, data, models[trial], given.public)
        splits_of = dict.fromkeys((*method.component.meta["evaluate"], *job.evaluate))
        splits = {name: data.split(name) for name in splits_of}
        costly, draws = SharedPreparation(local, info, data.rng), Draws(data.rng)
        for setting in method.expand():
            try:
                done = run_setting(setting, costly)
                numbers = numbers_of(done.made, splits, draws, epochs, done.cost)
            except Exception as error:  # a method's code may raise anything
                failures.note(setting.token, trial, error)
                for way in (PLAIN, *ways):
                    add(trial, setting, way, [Number("failed", 1.0)], 0.0, 0.0, 0.0)
                continue
            add(trial, setting, PLAIN, numbers, done.seconds, done.further.seconds, done.server)
            for how, repetition in ways:
                began = time.perf_counter()
                new = _tuned(done.made, how, repetition, data, training)
                took = time.perf_counter() - began
                again = numbers_of(new, splits, draws, epochs, done.cost)
                add(trial, setting, (how, repetition), again, took, 0.0, took)
        log(f"trial {trial}: {method.name}")
    source = given.source(
        "/".join([job.scenario.token, method.token, *([tune.token] if tune else [])]),
        method,
        job.models,
        stand_in=given.prepared.stand_in,
        **({"tune": tune.resolved} if tune else {}),
        **failures.diagnostics,
    )
    names = ("trial", "method", "seconds", "client_seconds", "server_seconds")
    columns = dict(zip(names, zip(*measured, strict=True), strict=True))
    write_measured(job, columns, table, source)


@dataclass(frozen=True)
class SettingResult:
    """The models that a one-shot method made with one choice of parameter values, and their cost.

    seconds: of server and clients; the method's `prepare` step counts for the first setting that
    needs it. server: the server's seconds, always with `prepare`. further: clients' messages, data
    passes and seconds besides sending models. cost: metrics of the whole cost, such as "bytes_up".
    """

    made: MethodOutput
    seconds: float
    server: float
    further: ClientCost
    cost: list[Number]


def run_setting(setting: Spec, costly: SharedPreparation) -> SettingResult:
    """Run a method with its parameter values, `setting`, on the models of a trial; count its cost.

    `costly` has these models, and the work that several settings share. If the method's arithmetic
    fails (a singular matrix, an overflow that numpy was set to raise), the resulting model has NaN
    weights. FedreproError is raised unless the method returns a `MethodOutput`.
    """
    import torch

    began = time.perf_counter()
    local, info = costly.clients, costly.info
    ledger = ledger_of(info)
    arithmetic = (ArithmeticError, np.linalg.LinAlgError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]
    try:
        extra, spent, seconds = costly(setting)
        ledger.begin()
        called = time.perf_counter()
        made = setting.component.fn(local, info, rng=costly.rng, **setting.own, **extra)
        require_models(made, setting, local)
        made = ruled(made, setting, local, info)
        ended = time.perf_counter()
    except arithmetic as error:
        if own_fault(error):
            raise
        log(f"{setting.token} failed: {type(error).__name__}, {one_line(error)}")
        nothing = {name: np.full_like(value[:1], np.nan) for name, value in local.tensors.items()}
        made, further, ended = GlobalModel(local.model, nothing), ClientCost(), time.perf_counter()
        server = ended - began
    else:
        further, server = spent + ledger.spent, ended - called - ledger.spent.seconds + seconds
    cost = evaluation.communication(*_sent(setting, local, made, further))
    cost += [Number("passes", further.passes)] if further.passes else []
    return SettingResult(made, ended - began, server, further, cost)


def require_models(made: Any, setting: Spec, local: LocalModels) -> None:
    """Raise FedreproError unless `made` is None or GlobalModels: m networks as (m, *shape)."""
    models = [made] if isinstance(made, GlobalModel) else () if made is None else made
    listed = made is None or isinstance(made, GlobalModel)
    listed |= isinstance(models, list | tuple) and len(models) == local.clients
    if not listed or not all(isinstance(model, GlobalModel) for model in models):
        raise FedreproError(
            f"method '{setting.token}' returns a {type(made).__name__}: let it return a "
            "GlobalModel, a list of one for each client, or None where it has none of these clients"
        )
    for model in models:
        due = network_of(model.model, local.shape, local.classes).shapes
        found = {k: getattr(v, "shape", type(v).__name__) for k, v in model.tensors.items()}
        arrays = all(isinstance(value, np.ndarray) for value in model.tensors.values())
        axes = {k: len(shape) - 1 for k, shape in found.items()}
        counts = {shape[:1] for shape in found.values()}
        fits = arrays and axes == {k: len(shape) for k, shape in due.items()}
        if not fits or len(counts) > 1 or (0,) in counts:
            said = f"method '{setting.token}' returns tensors {found}: let them be NumPy arrays"
            fix = f"of {due}, each with one more axis in front, of m > 0 networks"
            raise FedreproError(f"{said} {fix}")


def _norm_rule(setting: Spec) -> Any:
    return setting["batchnorm"] if setting.component.meta["merges"] else "average"


def recalibrates(method: Spec) -> bool:
    return "recalibrate" in render(method.values.get("batchnorm", "")).split("@")


def ruled(made: MethodOutput, setting: Spec, local: LocalModels, info: ClientInfo) -> MethodOutput:
    """Set BatchNorm's running statistics in a method's result `made`, by the parameter `batchnorm`.

    "average" keeps the averaged statistics. "local" returns a model per client, with statistics and
    normalisation weights of the client's local model. "recalibrate" measures the statistics again,
    on clients' data or the server's inputs. FedreproError is raised by "local" and "recalibrate"
    without BatchNorm, by "local" if units were reordered, by "recalibrate" without inputs.
    """
    rule = _norm_rule(setting)
    if rule == "average" or not isinstance(made, GlobalModel):
        return made
    who = f"method '{setting.token}'"
    network = network_of(local.model, local.shape, local.classes)
    norm_statistics.require_norms(network, who)
    if rule == "local":
        if setting.component.meta["merges"] == "matched":
            said = f"{who} has its units in another order than clients have, so that their running"
            raise FedreproError(f"{said} statistics do not fit: take average or recalibrate")
        own = {name: local.tensors[name] for name in network.norms}
        return [
            replace(made, tensors={**made.tensors, **{k: v[[j]] for k, v in own.items()}})
            for j in range(local.clients)
        ]
    server = info.validation_inputs if info.public_inputs is None else info.public_inputs
    if info.clients is not None:
        new = info.clients.statistics(made.tensors)
    elif server is not None:
        tensors = {k: tensor_of(v[0]).to(info.device) for k, v in made.tensors.items()}
        inputs = tensor_of(server).to(info.device)
        new = norm_statistics.running_statistics(network, tensors, Examples(inputs, inputs))
        new = norm_statistics.pooled_statistics([new])
    else:
        said = f"{who} has no data to measure running statistics on: give those of clients,"
        raise FedreproError(f"{said} or inputs of the server (--clients-data or --public)")
    return replace(made, tensors={**made.tensors, **new})


def numbers_of(
    made: MethodOutput, splits: Splits, draws: Draws, epochs: np.ndarray | None, cost: list[Number]
) -> list[Number]:
    """Return metrics of a method's result `made` on `splits`, and those in `cost`.

    `draws` says how variational networks average over drawn weights. `epochs` of each client, if
    unequal, are added if `made` has a model per client. If `made` is None, the metric is left_out.
    """
    if made is None:
        return [Number("left_out", 1.0)]
    if isinstance(made, GlobalModel):
        return evaluation.measure(made, splits, draws) + cost
    numbers, each = evaluation.measure_alone(made, splits, draws)
    accuracies = [Number("accuracy", v, "test", client=j) for j, v in enumerate(each)]
    if epochs is None:
        return [*numbers, *cost, *accuracies]
    done = [Number("epochs", v, client=j) for j, v in enumerate(epochs.tolist())]
    return [*numbers, Number("epochs", float(epochs.mean())), *cost, *accuracies, *done]


def _tuned(
    made: MethodOutput, tune: Spec, repetition: int, data: TrialData, settings: Settings
) -> MethodOutput:
    if made is None:
        return None
    sample = data.public_sample(tune["examples"], repetition)
    shape, classes = data.prepared.shape, len(data.prepared.classes)
    rng, fn = data.rng.at(call=repetition + 1), tune.component.fn
    models = [made] if isinstance(made, GlobalModel) else made
    new = [fn(model, sample, shape, classes, settings, rng, **tune.values) for model in models]
    return new[0] if isinstance(made, GlobalModel) else new


def _sent(
    setting: Spec, local: LocalModels, made: MethodOutput, further: ClientCost
) -> tuple[int, Traffic]:
    """Return rounds of communication (0 of a control), and traffic with `further` costs."""
    declared, exchanges = None, None
    if isinstance(made, GlobalModel):
        declared, exchanges = made.traffic, made.exchanges
    if setting.component.meta["kind"] != "one_shot":
        return 0, declared or Traffic()
    numbers = local.numbers
    if _norm_rule(setting) == "local":  # layers of BatchNorm are not sent
        network = network_of(local.model, local.shape, local.classes)
        numbers -= sum(local.tensors[name].size for name in network.norms)
    whole = declared or Traffic(local.clients, 0, FLOAT_BYTES * numbers) + further.traffic
    messages = further.traffic.messages_up + further.traffic.messages_down
    return exchanges or 1 + (further.exchanges or int(messages > 0)), whole


def method_inputs(
    scenario: Scenario, method: Spec, data: TrialData, models: TrialModels, public: Prepared | None
) -> tuple[LocalModels, ClientInfo]:
    """Return the arguments of a one-shot method in one trial: local models, client information.

    `public` is another data set, whose inputs the server has without labels.
    """
    shape, classes = data.prepared.shape, len(data.prepared.classes)
    local = LocalModels(scenario.model, shape, classes, models.tensors)
    needs = method.component.meta["needs"]
    asked = needs & AT_CLIENTS or recalibrates(method)
    clients = data.clients(scenario, method, models.tensors) if asked else None
    info = data.info(method, scenario.training, clients)
    if "start" in needs:
        network, settings = network_of(scenario.model, shape, classes), settings_of(info.training)
        info = replace(info, start=initial_weights(network, settings, [data.rng]))
    if "public_inputs" in needs:
        if public is None:
            said = f"method '{method.name}' has inputs of another data set at the server,"
            raise FedreproError(f"{said} and none is given here (public)")
        inputs = unlabelled(public, shape, f"method '{method.name}'", data.rng)
        info = replace(info, public_inputs=inputs)
    return local, info


@dataclass
class SharedPreparation:
    """A cache of a method's `prepare` step in a trial, run once per choice of its parameters.

    clients, info, rng: the other arguments of the step. made: {values of these parameters:
    ({"prepared": result}, clients' cost, server's seconds)}.
    """

    clients: LocalModels
    info: ClientInfo
    rng: RngKey
    made: dict[Any, tuple[dict[str, Any], ClientCost, float]] = field(default_factory=dict)

    def __call__(self, setting: Spec) -> tuple[dict[str, Any], ClientCost, float]:
        """Return ({"prepared": result}, clients' cost, server's seconds) for this `setting`."""
        prepare = setting.component.meta["prepare"]
        if prepare is None:
            return {}, ClientCost(), 0.0
        names = [name for name in inspect.signature(prepare).parameters if name in setting.values]
        values = {name: setting.values[name] for name in names}
        key = tuple(values.values())
        if key not in self.made:
            ledger = ledger_of(self.info)
            ledger.begin()
            began = time.perf_counter()
            value = {"prepared": prepare(self.clients, self.info, rng=self.rng, **values)}
            whole = time.perf_counter() - began
            self.made[key] = value, ledger.spent, whole - ledger.spent.seconds
        return self.made[key]


def ledger_of(info: ClientInfo) -> CostCounter:
    return info.clients.ledger if info.clients else CostCounter()

"""Stages federate and peer: run methods in rounds, with a server or on a graph; evaluate them."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import BELIEFS, GlobalModel, Tensors, Traffic
from fedrepro.core import evaluation_schedule_and_successive_halving as schedule
from fedrepro.core.checkpoint_and_model_files import save_state, to_plain
from fedrepro.core.checksummed_files import write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.literature_names_and_setting_tokens import setting_token
from fedrepro.core.metrics import MetricRow, Number, Table
from fedrepro.core.provenance import origin
from fedrepro.core.rng import RngKey
from fedrepro.numbers import model_evaluation as evaluation
from fedrepro.numbers.model_evaluation import Splits, accuracy_of_means, confusion, of_all
from fedrepro.planning.scenarios_runs_and_jobs import MODEL, Job
from fedrepro.stages.job_log_results_gpu_lock import Failures, log, write_measured
from fedrepro.stages.trial_data import ScenarioData
from fedrepro.stages.trial_rounds import (
    Checkpointer,
    Evaluator,
    Progress,
    StateEvaluation,
    TrialRounds,
)
from fedrepro.stages.user_models.combine import as_state
from fedrepro.training.federation.clients import GraphNodes
from fedrepro.training.mixing_matrices import second_modulus, weights_of
from fedrepro.training.training_examples import tensor_of

CHECKPOINTS = "checkpoints"  # name of their folder in the job's folder
CHECKPOINT_SECONDS = "FEDREPRO_CHECKPOINT_SECONDS"  # environment variable
TEST = "test"
FIRST, LAST = BELIEFS  # beliefs before averaging are evaluated, beliefs after it are kept
CONFUSION = ("trial", "setting", "belief", "client", "label", "predicted", "count")


def run(job: Job, device: str = "cpu") -> None:
    """Run a method in rounds in every trial of a job; write metrics, times and the final models.

    If the method's code raises an error with some parameter values, their run in that trial ends
    and has the metric `failed`. A killed job continues from its checkpoints.
    """
    scenario, method, trials = job.scenario, job.specs["method"], job.trials
    assert trials is not None
    measuring = job.every or schedule.EvaluationSchedule()
    if not measuring.race:  # without a race there must be one setting
        scenario.training.single()
        method.single()
    given = ScenarioData.of(job, device)
    seconds = float(os.environ.get(CHECKPOINT_SECONDS, "20"))
    follow = tuple(dict.fromkeys((*job.follow, *([schedule.SPLIT] if measuring.race else []))))
    # a checkpoint goes on for equal inputs, code and device, also on another machine
    code, specs = origin(given.device), (*scenario.specs, method)
    meant = [*(spec.resolved for spec in specs), f"measured~{measuring}", *follow]
    meant += [given.prepared.checksum, code["digest"], code["device"], code["arithmetic"]]
    meaning = ";".join([*meant, f"seed {job.seed}", json.dumps(code["versions"], sort_keys=True)])
    splits_of = dict.fromkeys((*method.component.meta["evaluate"], *job.evaluate, *follow))
    swept = scenario.training.swept
    settings = [  # local training, method, and the name of both
        (training, setting, setting_token(setting, [(key, training[key]) for key in swept]))
        for setting, training in itertools.product(method.expand(), scenario.training.expand())
    ]
    for _, setting, _ in settings:
        setting.component.fn(**setting.values)  # refuses wrong values before anything is run
    failures = Failures()
    several, on_graph = len(settings) > 1, scenario.graph is not None
    known: dict[tuple[int, int], Progress] = {}
    failed: set[tuple[int, int]] = set()
    stopped: dict[int, int] = {}  # setting -> the round after which it stopped
    nothing = Progress(0, {}).times
    columns: dict[str, list[Any]] = {name: [] for name in ("trial", "method", *nothing)}
    table, models, confusions = Table(scenario.specs), dict[str, Any](), list[tuple[Any, ...]]()

    # in a race every setting needs all trials again and again, else trials come one by one
    data_of = lru_cache(maxsize=len(trials) if measuring.race else 1)(given.trial)

    def finish(
        at: int, trial: int, numbers: Sequence[Number], times: Mapping[str, Any], kept: Any = None
    ) -> None:
        """Record metrics, times and final models (`kept`) of setting number `at` in a trial."""
        training, setting, name = settings[at]
        left_at = stopped.get(at)
        more = [Number("stopped_at", float(left_at))] if left_at else []
        table.add(MetricRow(trial, setting, *n, training) for n in (*numbers, *more))
        for key, value in {"trial": trial, "method": name, **times}.items():
            columns[key].append(value)
        if kept is None or left_at:
            return
        models[f"{trial};{name}" if several else str(trial)] = kept["nodes"] if on_graph else kept
        confusions.extend(
            (trial, name, belief, *place, int(count))
            for belief, counts in (kept["confusion"] if on_graph else {}).items()
            for place, count in np.ndenumerate(counts)
        )

    def go_on(at: int, trial: int, rung: int | None) -> None:
        """Run setting number `at` to the end, or round `rung`; record results, or its error."""
        training, setting, name = settings[at]
        data, own = data_of(trial), replace(scenario, training=training)
        splits = {split: data.split(split) for split in splits_of}
        clients = data.clients(own, setting)
        judge: Evaluator = GlobalEvaluator(setting, clients)
        if own.graph is not None:
            weights = weights_of(own.graph, clients.count, data.rng)
            judge = NodeEvaluator(setting, GraphNodes(**vars(clients), weights=weights))
        followed = {split: splits[split] for split in (TEST, *follow)}
        rounds = TrialRounds(judge, data.info(setting, training), measuring, followed)
        path = Path(job.out, CHECKPOINTS, f"{f'setting-{at}-' if several else ''}trial-{trial}.pt")
        try:
            run = known.get((at, trial))
            if run is None or at not in stopped:
                run = rounds.run(data.rng, Checkpointer(path, meaning, seconds), run, rung)
            if rung is not None:
                known[at, trial] = run
                return
            end = run.target or run  # rounds after the target do not count
            came = judge.evaluate_final(end, splits, data.rng)
            numbers = [*run.recorded, *came.values]
            if measuring.until is not None:
                means = [n for n in run.recorded if n.client is None]  # not of single nodes
                test = [n for n in means if (n.metric, n.split) == ("accuracy", TEST)]
                after, accuracies = zip(*((n.round, n.value) for n in test), strict=True)
                reached = schedule.rounds_to_target(after, accuracies, measuring.until)
                numbers.append(Number("rounds_to_target", reached))
            why = f", {end.ended}" if end.ended else ""
            called = f", {name}" if several else ""
            log(f"trial {trial}{called}: {end.done} rounds{why}, {run.seconds:.1f} s")
        except Exception as error:  # a method's code may raise anything
            failures.note(name, trial, error)
            failed.add((at, trial))
        else:
            finish(at, trial, numbers, run.times, came.kept)

    def score(at: int, rung: int) -> float:
        for trial in trials:
            go_on(at, trial, rung)
        if any((at, trial) in failed for trial in trials):
            return math.nan
        return float(np.mean([known[at, trial].accuracy(schedule.SPLIT, rung) for trial in trials]))

    stopped.update(schedule.successive_halving(len(settings), measuring.race, score))
    for at, rung in stopped.items():
        log(f"round {rung}: {settings[at][-1]} stops")
    for trial, at in itertools.product(trials, range(len(settings))):
        if (at, trial) not in failed:
            go_on(at, trial, None)
        if (at, trial) in failed:
            finish(at, trial, [Number("failed", 1.0)], nothing)
    path, more = f"{scenario.token}/{method.token}", failures.diagnostics
    source = given.source(path, method, stand_in=given.prepared.stand_in, **more)
    file = Path(job.out, "nodes.pt" if on_graph else MODEL)
    save_state(file, {"provenance": source, "trials": models})
    if on_graph:
        held = {name: [row[at] for row in confusions] for at, name in enumerate(CONFUSION)}
        write_table(Path(job.out, "confusion.parquet"), held, "confusion", source)
    write_measured(job, columns, table, source)
    shutil.rmtree(Path(job.out, CHECKPOINTS), ignore_errors=True)


class GlobalEvaluator(Evaluator):
    """An evaluator of methods with a server: of the global model, or of a model per client.

    Both functions get a method's state and `splits`, {name: examples}, on which they evaluate its
    models. They return accuracies; at the end also sizes, costs, and tensors to save (`kept`).
    """

    def models(self, state: dict[str, Any]) -> list[GlobalModel]:
        made = self.made.model(state, self.clients)
        models = [made] if isinstance(made, GlobalModel) else list(made)
        if not isinstance(made, GlobalModel) and len(models) != self.clients.count:
            said = f"method '{self.method.name}' has {len(models)} models for {self.clients.count}"
            raise FedreproError(f"{said} clients: give one, or one for each client")
        return models

    def evaluate_round(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> StateEvaluation:
        models = self.models(state)
        numbers = _measured(models, splits, evaluation.Draws(rng, evaluation.ALONG))
        accuracies = [number for number in numbers if number.split]
        return StateEvaluation(accuracies, all(model.finite for model in models))

    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        models = self.models(run.state)
        numbers = _measured(models, splits, evaluation.Draws(rng.at(round=run.done)))
        numbers += evaluation.communication(run.exchanges, run.traffic)
        states = [self._state(model) for model in models]
        kept = states[0] if len(states) == 1 else {"state_dicts": states}  # of clients
        return StateEvaluation(numbers, kept=kept)

    def _state(self, model: GlobalModel) -> Any:
        try:
            return as_state(model, self.clients.network.classes)
        except FedreproError:  # of layers that no state dict has, such as an LSTM's
            return {name: tensor_of(value) for name, value in model.tensors.items()}


def _measured(models: list[GlobalModel], splits: Splits, draws: evaluation.Draws) -> list[Number]:
    if len(models) == 1:
        return evaluation.measure(models[0], splits, draws)
    return evaluation.measure_alone(models, splits, draws)[0]


@dataclass(frozen=True)
class NodeEvaluator(Evaluator):
    """An evaluator of nodes' networks (beliefs), before and after they average with neighbours.

    Test metrics per node and over all nodes are recorded as split `before` or `after`. Split `test`
    repeats the accuracies of `before`, for comparison with other methods.
    """

    clients: GraphNodes

    def evaluate_round(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> StateEvaluation:
        return self._evaluated(self._held(state, rng), splits, rng)

    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        held = self._held(run.state, rng.at(round=run.done))
        look = self._evaluated(held, splits, rng, ended=True)
        model = GlobalModel(self.clients.model, {k: value[:1] for k, value in held[FIRST].items()})
        sent = run.traffic
        costs = {
            "rounds": run.exchanges,
            "messages": sent.messages_up,
            "bytes_up": sent.bytes_up,
            "bytes_down": sent.bytes_down,
            "edges": self.clients.edges,
            "spectral_gap": round(1 - second_modulus(self.clients.weights), 12),
            "bytes_per_edge": sent.bytes_up / max(1, sent.messages_up),
        }
        values = [*look.values, *evaluation.size(model, splits[TEST], evaluation.SAMPLES)]
        values += [Number(metric, float(value)) for metric, value in costs.items()]
        kept = {"nodes": to_plain(dict(held[LAST])), "confusion": look.kept}
        return StateEvaluation(values, kept=kept)

    def sent(self) -> Traffic:
        return self.clients.sent()

    def _held(self, state: dict[str, Any], rng: RngKey) -> dict[str, Tensors]:
        """Return {"before": nodes' tensors, "after": averaged ones}; raise if any is not finite."""
        beliefs = self.made.beliefs(state, self.clients)
        if set(beliefs) != set(BELIEFS):
            said = f"the beliefs of method '{self.method.name}' are {', '.join(sorted(beliefs))}"
            raise FedreproError(f"{said}; name them {' and '.join(BELIEFS)}")
        for name, tensors in beliefs.items():
            if fault := evaluation.strange(self.clients.network, tensors):
                said = f"a {fault[1]} of node {fault[0]} in trial {rng.trial} is not finite after"
                fix = "lower the learning rate (lr), or check its inputs"
                raise FedreproError(f"{said} round {rng.round} (belief {name}); {fix}")
        return {name: beliefs[name] for name in BELIEFS}

    def _evaluated(
        self, held: Mapping[str, Tensors], splits: Splits, rng: RngKey, ended: bool = False
    ) -> StateEvaluation:
        network, values, confusions = self.clients.network, list[Number](), {}
        samples = evaluation.SAMPLES if ended else evaluation.ALONG

        def answers_of(tensors: Tensors, split: evaluation.EvaluationSplit) -> list[Any]:
            # a node's beliefs before and after averaging have equal draws
            nodes = [(rng.at(client=at), node) for at, node in enumerate(_nodes(tensors))]
            return [evaluation.predicted(network, node, split, samples, key) for key, node in nodes]

        for name, tensors in held.items() if TEST in splits else ():
            scores = answers_of(tensors, splits[TEST])
            nodes = []
            for at, node in enumerate(_nodes(tensors)):
                numbers = evaluation.scored(*scores[at]) | evaluation.spreads(network, node)
                if ended and network.kind == "variational":
                    numbers["accuracy_of_means"] = accuracy_of_means(network, node, splits[TEST])
                nodes.append(numbers)
                values += [Number(metric, v, name, client=at) for metric, v in numbers.items()]
            values += [Number(metric, value, name) for metric, value in of_all(nodes).items()]
            if ended:
                confusions[name] = np.stack([confusion(*node_scores) for node_scores in scores])
        headline = ("accuracy", "accuracy_worst")  # split test repeats them
        first = [n for n in values if n.split == FIRST and n.metric in headline]
        values += [number._replace(split=TEST) for number in first]
        for name, split in splits.items():
            if name == TEST:
                continue
            scores = answers_of(held[FIRST], split)
            right = [np.where(np.isnan(s).any(1), np.nan, s.argmax(1) == y) for s, y in scores]
            each = [float(hits.mean()) for hits in right]
            values += [Number("accuracy", v, name, client=at) for at, v in enumerate(each)]
            values.append(Number("accuracy", float(np.mean(right)), name))
            answers = [hits.reshape(len(split.labels), -1) for hits in right]
            values += evaluation.on_own(answers, name, split.rows)
        return StateEvaluation(values, kept=confusions)


def _nodes(tensors: Tensors) -> list[dict[str, np.ndarray]]:
    return [dict(zip(tensors, own, strict=True)) for own in zip(*tensors.values(), strict=True)]

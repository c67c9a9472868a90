"""Stages federate and peer: run methods in rounds, with a server or on a graph; evaluate them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import BELIEFS, GlobalModel, Tensors, Traffic
from fedrepro.core.artifacts import write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import Number
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.core.state_and_model_files import save_state, to_plain
from fedrepro.numbers.model_evaluation import (
    ALONG,
    SAMPLES,
    Draws,
    EvaluationSplit,
    accuracy_of_means,
    communication,
    confusion,
    measure,
    measure_alone,
    of_all,
    predicted,
    scored,
    size,
    spreads,
    strange,
)
from fedrepro.planning.jobs import Job, Scenario
from fedrepro.stages.rounds_job import (
    Evaluator,
    FinishedTrial,
    Progress,
    Splits,
    StateEvaluation,
    run_rounds,
)
from fedrepro.stages.trial_data import TrialData
from fedrepro.training.federation.clients import GraphNodes
from fedrepro.training.mixing_matrices import second_modulus, weights_of

TEST = "test"
FIRST, LAST = BELIEFS  # beliefs before averaging are evaluated, beliefs after it are kept


def run(job: Job, device: str = "cpu") -> None:
    """Run a method in rounds in every trial of a job; write metrics and the final models."""

    def evaluator(own: Scenario, method: Spec, data: TrialData) -> Evaluator:
        clients = data.clients(own, method)
        if own.graph is None:
            return GlobalEvaluator(method, clients)
        weights = weights_of(own.graph, clients.count, data.rng)
        return NodeEvaluator(method, GraphNodes(**vars(clients), weights=weights))

    def keep(finished: list[FinishedTrial], source: Mapping[str, Any]) -> None:
        on_graph = job.scenario.graph is not None
        kept = {one.key: one.kept["nodes"] if on_graph else one.kept for one in finished}
        file = Path(job.out, "nodes.pt" if on_graph else "global.pt")
        save_state(file, {"provenance": source, "trials": kept})
        if not on_graph:
            return
        rows = [
            (result.trial, result.setting.name, belief, *at, int(count))
            for result in finished
            for belief, counts in result.kept["confusion"].items()
            for at, count in np.ndenumerate(counts)
        ]
        names = ("trial", "setting", "belief", "client", "label", "predicted", "count")
        table = {name: [row[at] for row in rows] for at, name in enumerate(names)}
        write_table(Path(job.out, "confusion.parquet"), table, "confusion", source)

    run_rounds(job, device, evaluator, keep)


class GlobalEvaluator(Evaluator):
    """Evaluates a method with a server in one trial: its global model, or its model per client."""

    def models(self, state: dict[str, Any]) -> list[GlobalModel]:
        made = self.made.model(state, self.clients)
        return [made] if isinstance(made, GlobalModel) else list(made)

    def evaluate_round(self, state: dict[str, Any], splits: Splits, rng: RngKey) -> StateEvaluation:
        models = self.models(state)
        numbers = _measured(models, splits, Draws(rng, ALONG))
        accuracies = [number for number in numbers if number.metric == "accuracy"]
        return StateEvaluation(accuracies, all(model.finite for model in models))

    def evaluate_final(self, run: Progress, splits: Splits, rng: RngKey) -> StateEvaluation:
        models = self.models(run.state)
        numbers = _measured(models, splits, Draws(rng.at(round=run.done)))
        numbers += communication(run.exchanges, run.traffic)
        names, weights = models[0].tensors, models[0].weights
        tensors = {name: np.concatenate([m.tensors[name] for m in models]) for name in names}
        kept = {"tensors": tensors, **({} if weights is None else {"weights": weights})}
        return StateEvaluation(numbers, kept=to_plain(kept))


def _measured(models: list[GlobalModel], splits: Splits, draws: Draws) -> list[Number]:
    if len(models) == 1:
        return measure(models[0], splits, draws)
    numbers: list[Number] = []
    for name, split in splits.items():
        found, _ = measure_alone(models, {"test": split}, draws)
        numbers += [number._replace(split=name) for number in found if number.split]
    return numbers + [number for number in found if not number.split]


@dataclass(frozen=True)
class NodeEvaluator(Evaluator):
    """Evaluates each node's network (belief), before and after it is averaged with its neighbours'.

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
        values = [*look.values, *size(model, splits[TEST], SAMPLES)]
        values += [Number(metric, float(value)) for metric, value in costs.items()]
        kept = {"nodes": to_plain(dict(held[LAST])), "confusion": look.kept}
        return StateEvaluation(values, kept=kept)

    def sent(self) -> Traffic:
        return self.clients.sent()

    def _held(self, state: dict[str, Any], rng: RngKey) -> dict[str, Tensors]:
        """Return nodes' networks in a method's `state`: {"before" or "after" averaging: tensors}.

        Raises:
            FedreproError: the method returns other keys than these two, or a weight is not finite.
        """
        beliefs = self.made.beliefs(state, self.clients)
        if set(beliefs) != set(BELIEFS):
            raise FedreproError(
                f"the beliefs of method '{self.method.name}' are {', '.join(sorted(beliefs))}; "
                f"name them {' and '.join(BELIEFS)}"
            )
        for name, tensors in beliefs.items():
            if fault := strange(self.clients.network, tensors):
                raise FedreproError(
                    f"a {fault[1]} of node {fault[0]} in trial {rng.trial} is not finite after "
                    f"round {rng.round} (belief {name}); lower the learning rate (lr), or check "
                    "its inputs"
                )
        return {name: beliefs[name] for name in BELIEFS}

    def _predicted(
        self, tensors: Tensors, split: EvaluationSplit, samples: int, rng: RngKey
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        # a node's beliefs before and after averaging have equal draws
        return [
            predicted(self.clients.network, node, split, samples, rng.at(client=at))
            for at, node in enumerate(_nodes(tensors))
        ]

    def _evaluated(
        self, held: Mapping[str, Tensors], splits: Splits, rng: RngKey, ended: bool = False
    ) -> StateEvaluation:
        """Return metrics of the networks `held`; also confusion matrices if `ended`."""
        network, values, confusions = self.clients.network, list[Number](), {}
        samples = SAMPLES if ended else ALONG
        for name, tensors in held.items() if TEST in splits else ():
            scores = self._predicted(tensors, splits[TEST], samples, rng)
            nodes = []
            for at, node in enumerate(_nodes(tensors)):
                numbers = scored(*scores[at]) | spreads(network, node)
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
            scores = self._predicted(held[FIRST], split, samples, rng)
            right = [class_scores.argmax(1) == asked for class_scores, asked in scores]
            each = [float(hits.mean()) for hits in right]
            values += [Number("accuracy", v, name, client=at) for at, v in enumerate(each)]
            values.append(Number("accuracy", float(np.mean(right)), name))
            if split.rows:
                answers = [hits.reshape(len(split.labels), -1) for hits in right]
                pairs = zip(answers, split.rows, strict=True)
                accuracies = [float(hits[rows].mean()) for hits, rows in pairs if len(rows)]
                values.append(Number("accuracy_clients", float(np.mean(accuracies)), name))
        return StateEvaluation(values, kept=confusions)


def _nodes(tensors: Tensors) -> list[dict[str, np.ndarray]]:
    return [dict(zip(tensors, own, strict=True)) for own in zip(*tensors.values(), strict=True)]

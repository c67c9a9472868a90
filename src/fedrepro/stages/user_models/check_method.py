"""Check a method on images of digits, in seconds: rules for methods, accuracy and costs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import takes
from fedrepro.core import plugins
from fedrepro.core.artifacts import temporary_folder
from fedrepro.core.component_notation import require_called
from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.registry import components, components_of, spec_called
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component
from fedrepro.numbers.model_evaluation import Draws
from fedrepro.stages.aggregate import SharedPreparation
from fedrepro.stages.federate import GlobalEvaluator, NodeEvaluator
from fedrepro.stages.rounds_job import Checkpointer, Evaluator, TrialRounds
from fedrepro.stages.user_models.combine import applied, metrics_on
from fedrepro.stages.user_models.method_contract import (
    ContractError,
    SmallProblem,
    allowed,
    digits_problem,
    rules_of,
    watched,
)
from fedrepro.training.federation.clients import GraphNodes

MOST_ROUNDS = 5  # that a method in rounds runs to measure its costs
# networks for digits; the first that the method supports is used
MODELS: Mapping[str, Mapping[str, Any]] = {
    "mlp": {"hidden": [20]},
    "logistic": {},
    "variational_mlp": {"hidden": [20]},
}
WORKS = "runs on digits, to a model that predicts"


@dataclass(frozen=True)
class CheckedMethod:
    """The result of checking a method.

    findings: pairs (a rule, why the method breaks it, or ""). numbers: metrics on images of digits,
    and `alone`, the mean accuracy of the clients' own models; `models`, bytes of the clients'
    models; and `chance`, the accuracy of always predicting the commonest class, plus two standard
    errors. rounds: the rounds run, 0 for methods without rounds.
    """

    item: Component
    findings: Sequence[tuple[str, str]]
    numbers: Mapping[str, float] = field(default_factory=dict)
    rounds: int = 0
    clients: int = 0

    @property
    def passes(self) -> bool:
        return not any(why for _, why in self.findings)

    @property
    def at_chance(self) -> str:
        """Return a phrase to print if the method's accuracy is not above chance, else ""."""
        if not self.numbers or self.numbers["accuracy"] > self.numbers["chance"]:
            return ""
        return f"not above chance ({100 * self.numbers['chance']:.1f} %)"


def methods_of(wanted: str) -> list[Component]:
    """Return the methods that a Python file defines, or the installed method of this name.

    `wanted` is the path or the name. A name such as FedProx gives a method with other defaults.

    Raises:
        FedreproError: the file has no method or cannot be loaded, or the name is unknown.
    """
    if wanted.endswith(".py"):
        files = plugins.configured_files()
        same = [file for file in files if os.path.abspath(file) == os.path.abspath(wanted)]
        if not same:
            plugins.set_plugin_files((*files, wanted))
        methods = [item for item in components_of((same or [wanted])[0]) if item.kind == "method"]
        if not methods:
            raise FedreproError(f"{wanted} has no method: decorate a function or class by @method")
        return methods
    known = components("method")
    found = require_called(wanted, known, "fedrepro (a file ends in .py)")
    item = known[found.method]
    if not found.values:
        return [item]
    changed = replace(item)
    vars(changed)["own_params"] = {  # they replace the parameters of the signature
        key: replace(param, default=found.values.get(key, param.default))
        for key, param in item.own_params.items()
    }
    return [changed]


def check_method(item: Component, model: str = "") -> CheckedMethod:
    """Check that a method keeps its rules, and measure it on digits with `model` or a small one."""
    for name in (name for name, param in item.params.items() if param.required):
        raise FedreproError(f"method '{item.name}' has no default for '{name}': give it one")
    kind = METHOD_KINDS[item.meta["kind"]]
    digits = _problem_for(item, model) if kind.with_data else None
    findings = [(words, _tried(rule, item, digits)) for rule, words in rules_of(item).items()]
    if digits is None:
        return CheckedMethod(item, findings)
    numbers: dict[str, float] = {}
    work = _in_rounds if kind.in_rounds else _at_once
    findings.append((WORKS, _tried(lambda *_: numbers.update(work(item, digits)), item, digits)))
    if numbers:
        models, labels = digits.models, digits.test.labels
        most = float(np.bincount(labels).max()) / len(labels)  # accuracy of the commonest class
        alone = [models.alone(j) for j in range(models.clients)]
        numbers |= {
            "models": float(sum(value.nbytes for value in models.tensors.values())),
            "alone": metrics_on(alone, digits.test, Draws(RngKey(0)))["accuracy"],
            "chance": most + 2 * math.sqrt(most * (1 - most) / len(labels)),  # two standard errors
        }
    rounds = int(numbers.pop("done", 0))
    return CheckedMethod(item, findings, numbers, rounds, digits.clients.count)


def _problem_for(item: Component, named: str) -> SmallProblem:
    """Make a small federation on digits, with a network and training that suit the method `item`.

    Raises FedreproError if it does not support the network `named`, or if that is empty none of
    mlp, logistic and variational_mlp.
    """
    chosen, allowed_models = spec_called("model", named) if named else None, item.meta["models"]
    combines = f"method '{item.name}' combines {', '.join(sorted(allowed_models))}"
    if chosen and not takes(item, chosen):
        raise FedreproError(f"{combines}, not '{chosen.token}': name one of these")
    kinds = [name for name in MODELS if name in (allowed_models or MODELS)]
    if not kinds and not chosen:
        raise FedreproError(f"{combines} only, and is checked with {', '.join(MODELS)}")
    scenario = item.meta["scenario"]
    override = scenario.get("training", {})
    training = dict(override) if isinstance(override, Mapping) else {}
    if item.meta["one_start"]:
        training.setdefault("shared_init", True)
    model = chosen or components("model")[kinds[0]].spec(MODELS[kinds[0]])
    return digits_problem(model, pooled="partition" in scenario, **training)


def _tried(run: Callable[..., Any], item: Component, problem: SmallProblem | None) -> str:
    """Check one rule on the method `item`, by calling `run`; return why the rule is broken, or "".

    If the method's code fails because it uses a field of `info` that it does not declare, so that
    the field is None, the text names the field.
    """
    try:
        run(item, problem)
        return ""
    except (ContractError, FedreproError) as error:
        return str(error)
    except Exception as error:  # a stranger's code may raise anything
        message = plugins.own_fault(error) or f"{type(error).__name__}: {error}"
        if problem is None or "None" not in str(error):
            return message
    handed, text = allowed(problem.info, item), Path(item.file).read_text(encoding="utf-8")
    read = dict.fromkeys(re.findall(r"\binfo\.(\w+)", text))
    none = next((f"info.{name}" for name in read if getattr(handed, name, item) is None), "")
    return message + (f"; {none} is None where `needs` does not declare it" if none else "")


def _at_once(item: Component, problem: SmallProblem) -> dict[str, float]:
    """Run a one-shot method or control; return {metric: value}, accuracy, costs and seconds."""
    info, rng = allowed(problem.info, item), RngKey(0)
    costly = SharedPreparation(item.meta["prepare"], problem.models, info, rng)
    done = applied(item.spec(), costly)
    numbers = metrics_on(done.made, problem.test, Draws(rng))
    numbers |= {number.metric: number.value for number in done.cost}
    return numbers | {"seconds": done.server, "client_seconds": done.further.seconds}


def _in_rounds(item: Component, problem: SmallProblem) -> dict[str, float]:
    """Run a few rounds of a method; return {metric: value}, accuracy, costs and seconds."""
    spec, clients = item.spec(), watched(item, problem.clients)
    judge: Evaluator = GlobalEvaluator(spec, clients)
    if isinstance(clients, GraphNodes):
        judge = NodeEvaluator(spec, clients)
    info, splits = allowed(problem.info, item), {"test": problem.test}
    trial = TrialRounds(spec, judge, info, EvaluationSchedule(None), splits)
    rounds = min(judge.made.rounds, MOST_ROUNDS)
    with temporary_folder() as folder:
        keeper = Checkpointer(folder / "checkpoint.pt", "", math.inf)
        progress = trial.run(RngKey(0), keeper, rung=rounds)
    values = judge.evaluate_final(progress, splits, RngKey(0)).values
    of_all = [one for one in values if one.client is None and one.split in (None, "test")]
    return {one.metric: one.value for one in of_all} | {
        "seconds": progress.seconds - progress.client_seconds,
        "client_seconds": progress.client_seconds,
        "done": float(progress.done),
    }

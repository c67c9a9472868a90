"""Methods of every kind on a small problem, each handed what it declares and nothing else."""

from __future__ import annotations

from dataclasses import replace

from problems import CLASSES, FEATURES, problem

from fedrepro.api import GlobalModel
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import widths
from fedrepro.numbers.model_evaluation import EvaluationSplit
from fedrepro.stages.user_models.combine import each as each
from fedrepro.stages.user_models.method_contract import allowed as allowed
from fedrepro.stages.user_models.method_contract import made_of as made_of
from fedrepro.stages.user_models.method_contract import probabilities_of as probabilities_of
from fedrepro.stages.user_models.method_contract import watched

METHODS = components("method")


def of_kind(*kinds):
    """The names of methods of these kinds that combine perceptrons, or softmax regressions."""
    return [
        name
        for name, item in METHODS.items()
        if item.meta["kind"] in kinds and {"mlp", "logistic"} & (item.meta["models"] or {"mlp"})
    ]


ONE_SHOT = of_kind("one_shot", "control")
FEDERATED = of_kind("federated")
PEERS = [name for name, item in METHODS.items() if item.meta["kind"] == "peer"]


def quick(name):
    """The method; with smaller values by default if it would take most of the time."""
    item, own = METHODS[name], {"dense": {"epochs": 2, "generator_steps": 3}}.get(name)
    if own:
        every = item.own_params.items()
        item = replace(item)
        vars(item)["own_params"] = {k: replace(v, default=own.get(k, v.default)) for k, v in every}
    return item


def problem_for(name, count=4, **values):
    models = METHODS[name].meta["models"]
    if models == {"logistic"}:
        return problem(hidden=(), count=count, **values)
    kind = "mlp" if "mlp" in (models or {"mlp"}) else sorted(models)[0]
    return problem(count=count, kind=kind, **values)


def suited(name, given):
    """The problem, or another where the method has its own clients, training or models."""
    item = METHODS[name]
    if item.meta["models"] == {"logistic"}:
        given = problem(hidden=())
    if "partition" in item.meta["scenario"]:  # pooled training is a scenario of one client
        given = problem(count=1)
    if "training" in item.meta["scenario"]:  # one that has its clients trained otherwise
        hidden = widths(given.models.tensors)
        given = problem(hidden=hidden, **item.meta["scenario"]["training"])
    return given


def call(name, given, **values):
    item, given = quick(name), suited(name, given)
    return made_of(item, given.models, allowed(given.info, item), values)


def item_of(made):
    (item,) = [item for item in METHODS.values() if item.fn is type(made)]
    return item


def asked_by(made, clients):
    """The clients as the harness hands them to this method: they do what it declared."""
    return watched(item_of(made), clients)


def states(made, clients, info=None):
    """The state before and after every round; info: of the problem, all of it."""
    clients = asked_by(made, clients)
    own = allowed(info or problem().info, item_of(made))
    found = [made.init(clients, own, RngKey(0))]
    for done in range(made.rounds):
        found.append(made.round(found[-1], clients, own, RngKey(0).at(round=done))[0])
    return found


def models_of(name, given, values):
    """What predicts after a method of any kind has done its work on a problem."""
    if name not in (*FEDERATED, *PEERS):
        return each(call(name, given, **values))
    made = METHODS[name].fn(**values)
    *_, state = states(made, given.clients, given.info)
    if name in FEDERATED:
        return [made.model(state, given.clients)]
    clients = asked_by(made, given.clients)
    return [
        GlobalModel(clients.model, {k: v[[node]] for k, v in tensors.items()})
        for tensors in made.beliefs(state, clients).values()
        for node in range(clients.count)
    ]


def as_split(given):
    return EvaluationSplit(
        given.clients.data.examples, given.labels, (FEATURES,), CLASSES, given.rows
    )

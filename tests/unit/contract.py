"""Methods of every kind on a small problem, each handed what it declares and nothing else."""

from __future__ import annotations

import sys
from dataclasses import fields, replace

from problems import CLASSES, FEATURES, peers_of, problem

from fedrepro.api import GlobalModel
from fedrepro.core.registry import components
from fedrepro.core.rng import Rng
from fedrepro.data.aside import ASIDE
from fedrepro.networks.dense import widths
from fedrepro.networks.predict import network_of, probabilities
from fedrepro.numbers.measure import EvaluationSplit
from fedrepro.stages.aggregate import Prepare
from fedrepro.stages.common import AT_CLIENTS
from fedrepro.training.clients import Clients
from fedrepro.training.peers import Peers

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


def problem_for(name, count=4, **values):
    """A problem with a model that the method combines."""
    models = METHODS[name].meta["models"]
    if models == {"logistic"}:
        return problem(hidden=(), count=count, **values)
    kind = "mlp" if "mlp" in (models or {"mlp"}) else sorted(models)[0]
    return problem(count=count, kind=kind, **values)


def allowed(info, item):
    """Only what the method declared, as the harness hands it over."""
    keep = item.meta["needs"] | {"training", "device"}
    if item.meta["needs"] & AT_CLIENTS:
        keep |= {"clients"}
        info = replace(info, clients=watched(item, info.clients))
    for part in ASIDE:
        if part.need in item.meta["needs"] and part.at != "clients":
            keep |= {f"{part.parameter}_{what}" for what in ("inputs", "labels")}
    if "public_inputs" in item.meta["needs"]:
        keep |= {"public_inputs"}
    gone = {f.name: None for f in fields(info) if f.name not in keep}
    return replace(info, **gone)


def call(name, given, **values):
    """What a one-shot method or control makes of a problem."""
    item = METHODS[name]
    if item.meta["models"] == {"logistic"}:
        given = problem(hidden=())
    if "partition" in item.meta["scenario"]:  # pooled training is a scenario of one client
        given = problem(count=1)
    if "training" in item.meta["scenario"]:  # one that has its clients trained otherwise
        hidden = widths(given.models.tensors)
        given = problem(hidden=hidden, **item.meta["scenario"]["training"])
    return made_of(item, given.models, allowed(given.info, item), values)


def made_of(item, models, info, values):
    """The model of one setting, with what the method prepares for all of them."""
    spec = item.spec(values)
    prepared = Prepare(item.meta["prepare"], models, info, Rng(0))(spec)
    return item.fn(models, info, rng=Rng(0), **spec.values, **prepared)


def each(made):
    return [made] if isinstance(made, GlobalModel) else list(made)


class Watched(Clients):
    """Clients whose data no method may take for itself."""

    def __getattribute__(self, name):
        if name == "data":
            reader = sys._getframe(1).f_globals["__name__"]
            assert not reader.startswith("fedrepro.components.methods"), "a method reads the data"
        return super().__getattribute__(name)


def item_of(made):
    """The component that an object of a method in rounds was made by."""
    (item,) = [item for item in METHODS.values() if item.fn is type(made)]
    return item


class WatchedPeers(Watched, Peers):
    """The same as nodes of a graph."""


def asked_by(made, clients):
    """The clients as the harness hands them to this method: they do what it declared."""
    return watched(item_of(made), clients)


def watched(item, clients):
    """The same by the component that the method is."""
    on_graph = item.meta["kind"] == "peer"
    if on_graph and not isinstance(clients, Peers):
        clients = peers_of(clients)
    given = {f.name: getattr(clients, f.name) for f in fields(clients)}
    kind = WatchedPeers if on_graph else Watched
    return kind(**given | {"method": item.name, "needs": item.meta["needs"]})


def states(made, clients, info=None):
    """The state before and after every round; info: of the problem, all of it."""
    clients = asked_by(made, clients)
    own = allowed(info or problem().info, item_of(made))
    found = [made.init(clients, own, Rng(0))]
    for done in range(made.rounds):
        found.append(made.round(found[-1], clients, own, Rng(0).at(round=done))[0])
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


def scores_of(model, given):
    network = network_of(model.model, (FEATURES,), CLASSES)
    return probabilities(network, model.tensors, model.weights, given.clients.data.examples)

"""Check what methods require of a scenario before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedrepro.api import takes
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.registry import WITHOUT_GRAPH
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.client_rows import population_of
from fedrepro.data.holdout import (
    HOLDOUTS,
    missing_holdout_error,
    missing_validation_error,
    too_few_examples_error,
    validation_count,
)
from fedrepro.planning.exhibit_methods import PUBLIC_SAMPLE, ExhibitMethod, in_rounds, simulated
from fedrepro.planning.runs import Scenario, clients_of, public_data_of
from fedrepro.training.graphs import weights_of

if TYPE_CHECKING:
    from fedrepro.planning.exhibit import Exhibit

# used until a data set is prepared, and its dataset.json has them
Form = tuple[tuple[int, ...], int, int]  # shape of an example, classes, training examples
FORMS: dict[str, Form] = {
    "digits": ((8, 8), 10, 1437),
    "mnist": ((28, 28), 10, 60_000),
    "fashion_mnist": ((28, 28), 10, 60_000),
    "cifar10": ((3, 32, 32), 10, 50_000),
}


def require_kind(measure: ExhibitMethod, scenario: Scenario | None, where: str) -> None:
    """Refuse a simulation with data, and any other method without.

    Raises:
        FedreproError: the method does not fit.
    """
    if simulated(measure.spec) and scenario:
        raise FedreproError(
            f"{where}: '{measure.label}' is a simulation, which has neither data nor a model; "
            f"leave out {', '.join(WITHOUT_GRAPH)}"
        )
    if not simulated(measure.spec) and scenario is None:
        raise FedreproError(
            f"{where}: the keys {', '.join(WITHOUT_GRAPH)} are missing, which only simulations do "
            f"without; '{measure.label}' is not one"
        )


def require_fitting(
    measure: ExhibitMethod, scenario: Scenario, changed: Scenario, where: str
) -> None:
    """Refuse a method that cannot work in a scenario.

    Args:
        measure: the method.
        scenario: of the point.
        changed: of the point, with the components and parameters that the method sets itself.
        where: the exhibit, for error messages.

    Raises:
        FedreproError: the first reason why it cannot.
    """
    _check_model(measure.spec, scenario, where)
    _check_training(measure.spec, changed, where)
    _check_population(measure, scenario, changed, where)
    _check_start(measure.spec, changed, where)
    public_data_of(measure.spec)
    _check_graph(measure.spec, changed, where)
    _check_validation(measure, changed, where)
    _check_aside(measure, changed.partition, where)
    for setting in measure.settings:
        if in_rounds(setting.method):
            _check_made(setting.method, f"{where}: '{measure.label}'")


def _check_population(
    measure: ExhibitMethod, scenario: Scenario, changed: Scenario, where: str
) -> None:
    """Refuse impossible populations, and a method that would see other clients than its rivals."""
    try:
        population = population_of(scenario.dataset, scenario.partition)
    except FedreproError as error:
        raise FedreproError(f"{where}: {error}") from None
    if population and changed.partition != scenario.partition:
        raise FedreproError(
            f"{where}: '{measure.label}' divides what the data set keeps by "
            f"'{changed.partition.token}', which is of {population.made.kept} of these "
            f"{population.clients} clients: leave it out, or let the data set keep all of them, as "
            f"clients: {population.clients}"
        )


def _check_validation(measure: ExhibitMethod, scenario: Scenario, where: str) -> None:
    """Refuse a need of validation examples of clients where none are held out."""
    available = validation_count(scenario.dataset, scenario.partition)
    works = {"client_validation_examples", PUBLIC_SAMPLE} & measure.needs
    if works and available == 0:
        raise missing_validation_error(f"{where}: '{measure.label}'")
    sizes = [setting.tune["examples"] for setting in measure.settings if setting.tune]
    if sizes and available is not None and max(sizes) > available:
        raise too_few_examples_error(f"{where}: '{measure.label}'", max(sizes), available)


def _check_aside(measure: ExhibitMethod, partition: Spec, where: str) -> None:
    for part in HOLDOUTS:
        if part.split in measure.evaluate or part.need in measure.needs:
            holder = partition.values.get("validation_at")
            if not partition.values.get(part.parameter) or part.at not in (None, holder):
                raise missing_holdout_error(f"{where}: '{measure.label}'", part, partition.token)


def _check_graph(method: Spec, scenario: Scenario, where: str) -> None:
    """Refuse a peer method without a graph, or on one that does not fit."""
    if not METHOD_KINDS[method.component.meta["kind"]].on_graph:
        return
    if scenario.graph is None:
        raise FedreproError(
            f"{where}: method '{method.name}' works on a graph, and there is none; name one, as in "
            "graph: {name: ring}"
        )
    clients = clients_of(scenario.partition)
    if clients is None or scenario.graph.component.meta.get("random"):
        return  # known with the data only, or drawn in each trial
    try:
        weights_of(scenario.graph, clients, RngKey(0))
    except FedreproError as error:
        raise FedreproError(f"{where}: {error}") from None


def _check_made(method: Spec, where: str) -> None:
    try:
        method.component.fn(**method.values)
    except FedreproError as error:
        raise FedreproError(f"{where}: {error}") from None


def _check_start(method: Spec, scenario: Scenario, where: str) -> None:
    if method.component.meta["one_start"] and not scenario.training["shared_init"]:
        raise FedreproError(
            f"{where}: method '{method.name}' combines models that trained from one start, and "
            "here each client draws its own: set shared_init of the training to true"
        )


def doubts(exhibit: Exhibit) -> list[str]:
    """List concerns about an exhibit that can be computed, a sentence each."""
    names = {
        run.method.name: None
        for run in exhibit.runs
        if run.scenario is not None
        and run.method.component.meta["better_of_one_start"]
        and run.scenario.model.name != "logistic"  # without hidden units starts do not matter
        and not run.scenario.training["shared_init"]
    }
    return [
        f"{exhibit.key}: '{name}' combines units in their places, and here each client draws a "
        "start of its own; to compare it fairly set shared_init of the training to true"
        for name in names
    ]


def _check_training(method: Spec, scenario: Scenario, where: str) -> None:
    """Refuse local training for which a method is not defined."""
    allowed: Sequence[str] = method.component.meta["trainings"]
    if allowed and scenario.training.name not in allowed:
        raise FedreproError(
            f"{where}: method '{method.name}' is defined with the training "
            f"{', '.join(sorted(allowed))} only, not '{scenario.training.name}'"
        )


def _check_model(method: Spec, scenario: Scenario, where: str) -> None:
    if not takes(method.component, scenario.model):
        allowed = sorted(method.component.meta["models"])
        raise FedreproError(
            f"{where}: method '{method.name}' combines {', '.join(allowed)} models, "
            f"not '{scenario.model.name}'; take it out of the exhibit or change the model"
        )

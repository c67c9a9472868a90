"""Check that each method can work in its scenario, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedrepro.api import takes
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.registry import WITHOUT_GRAPH
from fedrepro.core.rng import RngKey
from fedrepro.data.client_rows import population_of
from fedrepro.data.holdout import (
    HOLDOUTS,
    missing_holdout_error,
    missing_validation_error,
    too_few_examples_error,
    validation_count,
)
from fedrepro.planning.exhibit_methods import PUBLIC_SAMPLE, ExhibitMethod, in_rounds, simulated
from fedrepro.planning.jobs import Scenario, clients_of, public_data_of
from fedrepro.training.mixing_matrices import weights_of

# of data sets that are not prepared yet; dataset.json of prepared ones has the same
Form = tuple[tuple[int, ...], int, int]  # shape of an example, classes, training examples
FORMS: dict[str, Form] = {
    "digits": ((8, 8), 10, 1437),
    "mnist": ((28, 28), 10, 60_000),
    "fashion_mnist": ((28, 28), 10, 60_000),
    "cifar10": ((3, 32, 32), 10, 50_000),
}


def require_kind(measure: ExhibitMethod, scenario: Scenario | None, where: str) -> None:
    """Refuse a simulation in a scenario, and any other method without one.

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
        scenario: the scenario of a point of the exhibit.
        changed: the scenario with the components and parameters that the method sets itself.
        where: the exhibit, for error messages.

    Raises:
        FedreproError: the first reason why it cannot.
    """
    method, meta, partition = measure.spec, measure.spec.component.meta, changed.partition
    labelled = f"{where}: '{measure.label}'"
    if not takes(method.component, scenario.model):
        raise FedreproError(
            f"{where}: method '{method.name}' combines {', '.join(sorted(meta['models']))} models, "
            f"not '{scenario.model.name}'; take it out of the exhibit or change the model"
        )
    if meta["trainings"] and changed.training.name not in meta["trainings"]:
        raise FedreproError(
            f"{where}: method '{method.name}' is defined with the training "
            f"{', '.join(sorted(meta['trainings']))} only, not '{changed.training.name}'"
        )
    with _at(where):
        population = population_of(scenario.dataset, scenario.partition)
    if population and partition != scenario.partition:  # it would see other clients than its rivals
        raise FedreproError(
            f"{labelled} divides what the data set keeps by '{partition.token}', which is of "
            f"{population.made.kept} of these {population.clients} clients: leave it out, or let "
            f"the data set keep all of them, as clients: {population.clients}"
        )
    if meta["one_start"] and not changed.training["shared_init"]:
        raise FedreproError(
            f"{where}: method '{method.name}' combines models that trained from one start, and "
            "here each client draws its own: set shared_init of the training to true"
        )
    public_data_of(method)
    if METHOD_KINDS[meta["kind"]].on_graph:
        if changed.graph is None:
            raise FedreproError(
                f"{where}: method '{method.name}' works on a graph, and there is none; name one, "
                "as in graph: {name: ring}"
            )
        clients = clients_of(partition)
        # else known with the data only, or drawn in each trial
        if clients is not None and not changed.graph.component.meta.get("random"):
            with _at(where):
                weights_of(changed.graph, clients, RngKey(0))
    available = validation_count(changed.dataset, partition)
    if {"client_validation_examples", PUBLIC_SAMPLE} & measure.needs and available == 0:
        raise missing_validation_error(labelled)
    sizes = [setting.tune["examples"] for setting in measure.settings if setting.tune]
    if sizes and available is not None and max(sizes) > available:
        raise too_few_examples_error(labelled, max(sizes), available)
    for part in HOLDOUTS:
        if part.split in measure.evaluate or part.need in measure.needs:
            holder = partition.values.get("validation_at")
            if not partition.values.get(part.parameter) or part.at not in (None, holder):
                raise missing_holdout_error(labelled, part, partition.token)
    with _at(labelled):
        for setting in measure.settings:
            if in_rounds(setting.method):
                setting.method.component.fn(**setting.method.values)


@contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except FedreproError as error:
        raise FedreproError(f"{where}: {error}") from None

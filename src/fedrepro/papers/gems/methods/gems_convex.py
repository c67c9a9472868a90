"""Good-enough model spaces of softmax regressions, and a model that lies in all of them.

Source: "Model Aggregation via Good-Enough Model Spaces" (GEMS), section 3.1 and appendix A. Options
that the text leaves open are as in the authors' code, except for the radius, which is the tested
side.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Traffic, method
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.papers.gems.methods._spaces import (
    BALL,
    METRICS,
    AsPublished,
    Delta,
    Draws,
    GoodEnough,
    Intersecting,
    Largest,
    Point,
    Points,
    Proof,
    lowest_layers,
    tensors_of_layer,
)
from fedrepro.papers.gems.spaces.softmax_models import (
    Bisection,
    Softmax,
    information,
    relative_radii,
)


def good_enough(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    space: str,
    draws: str,
    radii: str,
    points: int,
    r_max: float,
    delta: float,
    c_min: float,
    fisher_examples: int,
) -> GoodEnough:
    """Prepare each client's model and validation examples; spaces are computed when asked for."""
    assert info.clients is not None
    models, places = [], [rng.at(client=j) for j in range(clients.clients)]
    for j, centre in enumerate(lowest_layers(clients.tensors)):
        inputs, labels = info.clients.validation(j)
        shape = BALL
        if space == "ellipsoid":
            generator = places[j].stream("gems-fisher")
            chosen = generator.permutation(len(inputs))[:fisher_examples]
            shape = relative_radii(information(inputs[chosen], centre, generator), c_min)
        models.append(Softmax(inputs, labels, centre, shape))
    return GoodEnough(models, places, Bisection(r_max, delta, points), draws, radii)


@method(
    "gems_convex",
    kind="one_shot",
    needs={"client_validation_examples"},
    models={"logistic"},
    paper="gems",
    label="GEMS",
    metrics=METRICS,
    prepare=good_enough,
)
def gems_convex(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: GoodEnough,
    epsilon: Annotated[
        float, Arg("accuracy that a good enough model has at its client", least=0, most=1)
    ] = 0.4,
    epsilon_first: Annotated[
        float | None,
        Arg("the same of the first client, none for that of the others", least=0, most=1),
    ] = None,
    space: Annotated[
        Literal["ball", "ellipsoid"],
        Arg("form of a space: a ball, or an ellipsoid, wider along weights that matter less"),
    ] = "ball",
    c_min: Annotated[
        float, Arg("least radius of an ellipsoid, as a share of its largest", above=0, most=1)
    ] = 0.1,
    fisher_examples: Annotated[
        int, Arg("validation examples that say which weights matter", "examples", least=1)
    ] = 200,
    point: Point = "descent",
    draws: Draws = "shared",
    radii: Proof = "drawn",
    points: Points = 500,
    r_max: Largest = 4000.0,
    delta: Delta = 0.01,
    as_published: AsPublished = False,
) -> GlobalModel:
    """Find a point in all spaces {w: |c_k - w| <= r_k}, each with accuracy epsilon at its client.

    Spaces are searched on the clients' validation examples. Where they have no common point, the
    last one of the descent is measured, and the metrics say so. Source: GEMS, Algorithms 1 and 2,
    equations (1), (2), (4) and (5).
    """
    accuracies = [epsilon] * clients.clients
    if epsilon_first is not None:
        accuracies[0] = epsilon_first
    weights, diagnostics = prepared.common(
        accuracies, Intersecting(space, point, as_published, delta)
    )
    # every client sends its model once, and a radius, or one for each weight
    numbers = weights.size + (1 if space == "ball" else weights.size)
    sent = Traffic(messages_up=clients.clients, bytes_up=clients.clients * numbers * FLOAT_BYTES)
    tensors = tensors_of_layer(weights, 0)
    return GlobalModel(clients.model, tensors, diagnostics=diagnostics, traffic=sent)

"""Good-enough model spaces (GEMS): a model, or hidden units, in the spaces of all clients.

Source: "Model Aggregation via Good-Enough Model Spaces" (GEMS), section 3 and appendix A. Where the
text leaves a choice, it is made as in the authors' code, with two exceptions: a radius is the
largest that passed the test, and units whose balls meet in pairs only are not merged. `point` takes
the last point of a descent, or the deepest in all spaces; `as_published` repeats the code's errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.networks.network import dense_spec, widths
from fedrepro.networks.predict import network_of
from fedrepro.papers.gems import hidden_units
from fedrepro.papers.gems import softmax_spaces as softmax

Draws = Annotated[
    Literal["shared", "fresh"],
    Arg("random directions from the centre: the same for every radius, or new ones for each"),
]
Points = Annotated[int, Arg("random points at each radius", "points", least=1, most=20_000)]
Largest = Annotated[float, Arg("largest radius that the search tries", above=0)]
Delta = Annotated[float, Arg("how far a radius is searched to", above=0)]
Point = Annotated[
    Literal["descent", "deepest"],
    Arg(
        "point taken as global model: where descent from the mean of the centres ends, or the "
        "point whose largest distance from a centre, in radii, is least (the mean if a space "
        "is empty)"
    ),
]
AsPublished = Annotated[
    bool,
    Arg(
        "do as the authors' code does: the objective of balls weighs distances by the "
        "centres, and the units of the first cluster are lost"
    ),
]


def softmax_spaces(
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
) -> softmax.GoodEnough:
    """Prepare the clients' good-enough spaces, which all parameter settings of `gems_convex` share.

    A space is a ball or ellipsoid (`space`) of models with enough accuracy at a client. The result
    has models, validation examples and, for ellipsoids, relative radii. These come from Fisher
    information on `fisher_examples` examples, and are at least `c_min` times the largest. A radius
    is searched when a setting first asks for its accuracy, and then kept. The search goes up to
    `r_max`, to within `delta`, with `points` random models at each radius. `draws` says whether
    their directions are "shared" by all radii, or "fresh". `radii` says whether radii are "drawn"
    in this way, or "proven".
    """
    assert info.clients is not None
    models, rngs = [], [rng.at(client=j) for j in range(clients.clients)]
    for j, centre in enumerate(hidden_units.lowest_layers(clients.tensors)):
        inputs, labels = info.clients.validation(j)
        shape = softmax.BALL
        if space == "ellipsoid":
            generator = rngs[j].stream("gems-fisher")
            chosen = generator.permutation(len(inputs))[:fisher_examples]
            shape = softmax.relative_radii(
                softmax.information(inputs[chosen], centre, generator), c_min
            )
        models.append(softmax.Softmax(inputs, labels, centre, shape))
    return softmax.GoodEnough(models, rngs, softmax.Bisection(r_max, delta, points), draws, radii)


@method(
    "gems_convex",
    kind="one_shot",
    needs={"client_validation_examples"},
    models={"logistic"},
    paper="gems",
    label="GEMS",
    metrics=softmax.METRICS,
    prepare=softmax_spaces,
)
def gems_convex(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: softmax.GoodEnough,
    epsilon: Annotated[
        float, Arg("accuracy from which a model is good enough", least=0, most=1)
    ] = 0.4,
    epsilon_first: Annotated[
        float | None,
        Arg("epsilon of the first client, none for that of the others", least=0, most=1),
    ] = None,
    space: Annotated[
        Literal["ball", "ellipsoid"],
        Arg("form of a space: a ball, or an ellipsoid, wider along weights that matter less"),
    ] = "ball",
    c_min: Annotated[
        float, Arg("least axis of an ellipsoid, as a share of its largest", above=0, most=1)
    ] = 0.1,
    fisher_examples: Annotated[
        int, Arg("validation examples that say which weights matter", "examples", least=1)
    ] = 200,
    point: Point = "descent",
    draws: Draws = "shared",
    radii: Annotated[
        Literal["drawn", "proven"],
        Arg(
            "how a radius is found: the largest at which no random point failed, or one within "
            "which every model is good enough"
        ),
    ] = "drawn",
    points: Points = 500,
    r_max: Largest = 4000.0,
    delta: Delta = 0.01,
    as_published: AsPublished = False,
) -> GlobalModel:
    """Find a model in all spaces {w: |c_k - w| <= r_k} of models with accuracy epsilon at client k.

    Spaces (`prepared`) are searched on clients' validation examples. If they have no common point,
    the one by `point` is returned nevertheless, and the metric `common_point` is 0. Source: GEMS,
    Algorithms 1 and 2, equations (1), (2), (4) and (5).
    """
    accuracies = [epsilon] * clients.clients
    if epsilon_first is not None:
        accuracies[0] = epsilon_first
    search = softmax.Intersecting(space, point, as_published, delta)
    weights, diagnostics = prepared.common(accuracies, search)
    # every client sends its model once, and a radius, or one for each weight
    numbers = weights.size + (1 if space == "ball" else weights.size)
    sent = Traffic(messages_up=clients.clients, bytes_up=clients.clients * numbers * FLOAT_BYTES)
    tensors = hidden_units.tensors_of_layer(weights, 0)
    return GlobalModel(clients.model, tensors, diagnostics=diagnostics, traffic=sent)


def unit_spaces(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    deviation: hidden_units.Deviation,
    draws: str,
    points: int,
    r_max: float,
    delta: float,
) -> hidden_units.LayerSpaces:
    """Prepare the search for balls around clients' units of the lowest hidden layer.

    A ball has the units whose outputs differ little. Balls do not depend on the later merging, so
    all parameter settings of `gems_neural` share them. A radius is searched up to `r_max`, to
    within `delta`, with `points` random units at each radius. `draws` says whether their directions
    are "shared" by all radii, or "fresh"; `deviation` whether 1/d in (3) is "outside" the root.
    """
    assert info.clients is not None
    inputs = [info.clients.validation(j)[0] for j in range(clients.clients)]
    rngs = [rng.at(client=j) for j in range(clients.clients)]
    client_units = list(
        map(hidden_units.HiddenUnits, inputs, hidden_units.lowest_layers(clients.tensors))
    )
    return hidden_units.LayerSpaces(
        client_units, rngs, softmax.Bisection(r_max, delta, points), draws, deviation
    )


@method(
    "gems_neural",
    kind="one_shot",
    needs={"client_validation_examples", "client_training"},
    models={"mlp"},
    paper="gems",
    label="GEMS",
    metrics=softmax.METRICS | hidden_units.UNIT_METRICS,
    prepare=unit_spaces,
)
def gems_neural(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: hidden_units.LayerSpaces,
    epsilon_hidden: Annotated[
        float, Arg("how far a hidden unit's outputs may be from its own", least=0)
    ] = 0.01,
    clusters: Annotated[
        int, Arg("clusters of units, within which they are merged (m_eps); 1: no clusters", least=1)
    ] = 1,
    epsilon_final: Annotated[
        float, Arg("accuracy from which an output layer is good enough", least=0, most=1)
    ] = 0.7,
    merge: Annotated[
        Literal["greedy", "tuples"],
        Arg(
            "which units of a cluster become one: each that intersects the units merged before "
            "it, or tuples of units of different clients, one after another"
        ),
    ] = "greedy",
    units: Annotated[
        Literal["merged", "drawn", "untrained"],
        Arg(
            "units of the common layers: the merged ones; as many random units of the clients; or "
            "as many untrained ones"
        ),
    ] = "merged",
    deviation: Annotated[
        hidden_units.Deviation,
        Arg("where the 1/d of equation (3) stands: outside the root, as printed, or inside"),
    ] = "outside",
    head_epochs: Annotated[
        int, Arg("epochs in which clients train the layers above a common layer", "epochs", least=1)
    ] = 10,
    head_patience: Annotated[
        int, Arg("epochs without a gain after which it stops, 0 for never", "epochs", least=0)
    ] = 3,
    head_lr: Annotated[float, Arg("learning rate of that training", above=0)] = 0.001,
    head_sd: Annotated[
        float, Arg("standard deviation of the initial weights above a common layer", least=0)
    ] = 0.05,
    point: Point = "descent",
    draws: Draws = "shared",
    points: Points = 500,
    r_max: Largest = 4000.0,
    delta: Delta = 0.01,
    as_published: AsPublished = False,
) -> GlobalModel:
    """Merge clients' hidden units whose balls of similar outputs share a point; keep all others.

    Layers are merged one by one from the lowest (`prepared`); after each, clients train the layers
    above again. Output layers are combined as softmax models, by a point searched in all
    good-enough spaces. Source: GEMS, section 3.2, equation (3).
    """
    assert info.clients is not None
    own, search = info.clients, softmax.Intersecting("ball", point, as_published, delta)
    layers = widths(clients.tensors)

    def trained(tensors: Mapping[str, np.ndarray], layer: int) -> Mapping[str, np.ndarray]:
        """Train every client's layers above number `layer`, the top one of the common `tensors`.

        Returns the trained tensors (J, *shape), named from weight0 on.
        """
        heads = own.train_heads(
            tensors,
            rng.at(round=layer),
            hidden=layers[layer + 1 :],
            epochs=head_epochs,
            patience=head_patience,
            lr=head_lr,
            weight_sd=head_sd,
        )
        diverged = ~np.isfinite(heads["bias0"]).all(axis=1)
        if diverged.any():
            raise FedreproError(
                f"gems_neural: what client {int(diverged.argmax())} trains above the common hidden "
                f"layer {layer + 1} diverged; lower head_lr, which is {head_lr:g}"
            )
        return heads

    def at_random(
        spaces: hidden_units.LayerSpaces, merged: hidden_units.Merged
    ) -> hidden_units.Merged:
        """Return as many units as `merged` has: drawn from clients' units, or untrained."""
        count, inputs = merged.units.shape[0], merged.units.shape[1] - 1
        if units == "drawn":
            generator = rng.stream(f"gems-random-units-{spaces.layer}")
            chosen = np.sort(generator.permutation(len(spaces.units.centres))[:count])
            return hidden_units.Merged(spaces.units.centres[chosen], 0, count, 0)
        from fedrepro.training.federation.clients import initial_weights
        from fedrepro.training.training_settings_and_procedures import settings_of

        network = network_of(dense_spec((count,)), (inputs,), 1)
        start = initial_weights(network, settings_of(info.training), [rng.at(round=spaces.layer)])
        return hidden_units.Merged(
            hidden_units.lowest_layers(start)[0].T.astype(np.float64), 0, 0, 0
        )

    merging = hidden_units.Merging(epsilon_hidden, clusters, merge, search)
    instead = None if units == "merged" else at_random
    hidden = hidden_units.common_layers(prepared, len(layers), merging, trained, rng, instead)
    labels = [own.validation(j)[1] for j in range(clients.clients)]
    models = map(
        softmax.Softmax, hidden.inputs, labels, hidden.heads, [softmax.BALL] * clients.clients
    )
    spaces = softmax.GoodEnough(list(models), prepared.rngs, prepared.search, draws)
    head, diagnostics = spaces.common([epsilon_final] * clients.clients, search)
    tensors = hidden.tensors | hidden_units.tensors_of_layer(head, len(layers))
    heads_sent = clients.clients * (head.size + 1) * FLOAT_BYTES
    return GlobalModel(
        dense_spec(widths(tensors)),  # no dropout: layers above were trained without it
        tensors,
        diagnostics=diagnostics | hidden.diagnostics,
        traffic=hidden.sent + Traffic(messages_up=clients.clients, bytes_up=heads_sent),
        exchanges=len(layers) + 1,
    )

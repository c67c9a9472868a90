"""Good-enough model spaces of perceptrons: hidden units merged layer by layer, then the outputs.

Source: "Model Aggregation via Good-Enough Model Spaces" (GEMS), section 3.2. Options that the text
leaves open are as in the authors' code, except for the radius, which is the tested side, and for
units whose balls meet in pairs only, which stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Traffic, method
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.networks.network import dense_spec, widths
from fedrepro.networks.predict import network_of
from fedrepro.papers.gems.methods._hidden import UNIT_METRICS, LayerSpaces, Merging, common_layers
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
    lowest_layers,
    tensors_of_layer,
)
from fedrepro.papers.gems.spaces.hidden_units import Deviation, HiddenUnits, Merged
from fedrepro.papers.gems.spaces.softmax_models import Bisection, Softmax

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients

EpsilonHidden = Annotated[
    float, Arg("how far a hidden unit's outputs may be from its own", least=0)
]
Clusters = Annotated[
    int, Arg("clusters of units, within which they are merged (m_eps); 1: no clusters", least=1)
]
EpsilonFinal = Annotated[
    float, Arg("accuracy that a good enough output layer has at its client", least=0, most=1)
]
Merge = Annotated[
    Literal["greedy", "tuples"],
    Arg(
        "units of a cluster that become one: all that meet those before them, or again and again a "
        "tuple of units of different clients"
    ),
]
Which = Annotated[
    Literal["merged", "drawn", "untrained"],
    Arg(
        "units of the common layers: those that merging gives; as many of the clients' own, drawn "
        "at random; or as many that nobody has trained"
    ),
]
Place = Annotated[
    Deviation, Arg("where the 1/d of equation (3) stands: outside the root, as printed, or inside")
]
HeadEpochs = Annotated[
    int, Arg("in which clients train what is above a common layer", "epochs", least=1)
]
HeadPatience = Annotated[
    int, Arg("epochs without a gain after which that ends, 0 for never", "epochs", least=0)
]
HeadLr = Annotated[float, Arg("step size of that training", above=0)]
HeadSd = Annotated[float, Arg("standard deviation of the weights that it starts from", least=0)]


def lowest_spaces(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    deviation: Deviation,
    draws: str,
    points: int,
    r_max: float,
    delta: float,
) -> LayerSpaces:
    """Prepare the spaces of the lowest hidden layer, which do not depend on what is merged."""
    assert info.clients is not None
    inputs = [info.clients.validation(j)[0] for j in range(clients.clients)]
    places = [rng.at(client=j) for j in range(clients.clients)]
    client_units = list(map(HiddenUnits, inputs, lowest_layers(clients.tensors)))
    return LayerSpaces(client_units, places, Bisection(r_max, delta, points), draws, deviation)


@dataclass(frozen=True)
class Retraining:
    """Options of training above the common layers; `widths` are of all hidden layers."""

    clients: Clients
    rng: RngKey
    widths: tuple[int, ...]
    epochs: int
    patience: int
    lr: float
    weight_sd: float

    def __call__(self, tensors: Mapping[str, np.ndarray], layer: int) -> Mapping[str, np.ndarray]:
        """Each client's layers above this one: tensors (J, *shape), named from weight0 on.

        Raises:
            FedreproError: For a client whose training diverged.
        """
        heads = self.clients.train_heads(
            tensors,
            self.rng.at(round=layer),
            hidden=self.widths[layer + 1 :],
            epochs=self.epochs,
            patience=self.patience,
            lr=self.lr,
            weight_sd=self.weight_sd,
        )
        diverged = ~np.isfinite(heads["bias0"]).all(axis=1)
        if diverged.any():
            raise FedreproError(
                f"gems_neural: what client {int(diverged.argmax())} trains above the common hidden "
                f"layer {layer + 1} diverged; lower head_lr, which is {self.lr:g}"
            )
        return heads


@dataclass(frozen=True)
class AtRandom:
    """Controls for merging: as many units as it gave, drawn from the clients' or initialised."""

    info: ClientInfo
    rng: RngKey
    trained: bool

    def __call__(self, spaces: LayerSpaces, merged: Merged) -> Merged:
        """Return the layer that replaces `merged`."""
        count, inputs = merged.units.shape[0], merged.units.shape[1] - 1
        if self.trained:
            generator = self.rng.stream(f"gems-random-units-{spaces.layer}")
            chosen = np.sort(generator.permutation(len(spaces.units.centres))[:count])
            return Merged(spaces.units.centres[chosen], 0, count, 0)
        from fedrepro.training.federation.clients import initial_weights
        from fedrepro.training.training_settings import settings_of

        network = network_of(dense_spec((count,)), (inputs,), 1)
        place = self.rng.at(round=spaces.layer)
        start = initial_weights(network, settings_of(self.info.training), [place])
        return Merged(lowest_layers(start)[0].T.astype(np.float64), 0, 0, 0)


@method(
    "gems_neural",
    kind="one_shot",
    needs={"client_validation_examples", "client_training"},
    models={"mlp"},
    paper="gems",
    label="GEMS",
    metrics=METRICS | UNIT_METRICS,
    prepare=lowest_spaces,
)
def gems_neural(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: LayerSpaces,
    epsilon_hidden: EpsilonHidden = 0.01,
    clusters: Clusters = 1,
    epsilon_final: EpsilonFinal = 0.7,
    merge: Merge = "greedy",
    units: Which = "merged",
    deviation: Place = "outside",
    head_epochs: HeadEpochs = 10,
    head_patience: HeadPatience = 3,
    head_lr: HeadLr = 0.001,
    head_sd: HeadSd = 0.05,
    point: Point = "descent",
    draws: Draws = "shared",
    points: Points = 500,
    r_max: Largest = 4000.0,
    delta: Delta = 0.01,
    as_published: AsPublished = False,
) -> GlobalModel:
    """Merge hidden units whose balls have a common point; all others stay.

    Layer after layer from the lowest; clients then train the layers above again, and the output
    layers are combined as softmax models are. Source: GEMS, section 3.2, equation (3).
    """
    assert info.clients is not None
    search = Intersecting("ball", point, as_published, delta)
    merging = Merging(epsilon_hidden, clusters, merge, search)
    layers = widths(clients.tensors)
    retraining = Retraining(info.clients, rng, layers, head_epochs, head_patience, head_lr, head_sd)
    instead = None if units == "merged" else AtRandom(info, rng, units == "drawn")
    hidden = common_layers(prepared, len(layers), merging, retraining, rng, instead)
    labels = [info.clients.validation(j)[1] for j in range(clients.clients)]
    models = map(Softmax, hidden.inputs, labels, hidden.heads, [BALL] * clients.clients)
    spaces = GoodEnough(list(models), prepared.places, prepared.search, draws)
    head, diagnostics = spaces.common([epsilon_final] * clients.clients, search)
    tensors = hidden.tensors | tensors_of_layer(head, len(layers))
    heads_sent = clients.clients * (head.size + 1) * FLOAT_BYTES
    return GlobalModel(
        dense_spec(widths(tensors)),  # no dropout: what is above was trained without
        tensors,
        diagnostics=diagnostics | hidden.diagnostics,
        traffic=hidden.sent + Traffic(messages_up=clients.clients, bytes_up=heads_sent),
        exchanges=len(layers) + 1,
    )

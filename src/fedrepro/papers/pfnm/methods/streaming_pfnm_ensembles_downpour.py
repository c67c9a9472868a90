"""PFNM, ensembles and downpour SGD on data that arrive in steps.

In PFNM the posterior of a step is the prior of the next step. Source: "Probabilistic Federated
Neural Matching", under review at ICLR 2019, section 3.3 and supplement sections 3 and 4.2. The text
does not give the noise that is added to the units a client starts from, nor what equation (11)
means at the first step; both are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, Report, State, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods import pfnm_and_concatenation as pfnm
from fedrepro.methods.downpour_sgd import DownpourSgd, Epochs, Messages
from fedrepro.methods.matching import network_arrays_and_tracing as arrays
from fedrepro.methods.matching.pfnm_atoms_and_rewards import Atoms, Past
from fedrepro.methods.matching.pfnm_sequential_matching import Rule, Variances
from fedrepro.networks.network import widths
from fedrepro.papers.pfnm import streaming_posterior_and_client_starts as streaming

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients


Steps = Annotated[int, Arg("number of parts in which each client's data arrive", least=1)]


@method(
    "pfnm_streaming",
    kind="federated",
    version=3,
    needs={"rounds", "label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="PFNM-Streaming",
    evaluate=("train", "test"),
)
@dataclass(kw_only=True)
class PfnmStreaming:
    """PFNM on a stream of data: at each step clients train on new data and their units are matched.

    A step is a round. Clients' hidden units are matched to atoms: the units of the global network
    so far. Clients start the first step from initial weights. They download the start of a later
    step: atoms, drawn by how often their units joined them, new units, and noise. Source: PFNM,
    supplement, equations (10) and (11). `clients` train when asked; `info` is not used.
    """

    steps: Steps = 15
    sigma2: pfnm.Sigma2 = 1.0
    sigma2_layers: Annotated[
        tuple[float, ...],
        Arg("factor on sigma2 for each hidden layer, the lowest first, or one for all", above=0),
    ] = (1.0,)
    sigma02: pfnm.Sigma02 = 10.0
    gamma0: pfnm.Gamma0 = 1.0
    passes: Annotated[
        int, Arg("times that each client's units are matched again in a step", "passes", least=0)
    ] = 5
    popularity: Annotated[float, Arg("factor on the popularity term: 1 as published", least=0)] = (
        1.0
    )
    count_cap: Annotated[
        int | None,
        Arg("most clients that equation (9) counts at the first step, none for no cap", least=1),
    ] = 10
    class_weights: Annotated[
        bool, Arg("weigh outgoing weights by the share of each class in this step's examples")
    ] = True
    width_cap: pfnm.WidthCap = 700
    bias_prior: pfnm.BiasPrior = 0.1
    order: pfnm.Order = "random"
    first_step: Annotated[
        Literal["crowd", "habit"],
        Arg("popularity at the first step: among clients (9), or in the own past (11)"),
    ] = "crowd"
    fresh: Annotated[
        int, Arg("units at the prior mean in each layer of a start, gamma0 in the text", least=0)
    ] = 1
    start_noise: Annotated[
        float, Arg("standard deviation of the noise added to a step's initial network", least=0)
    ] = 0.01

    def __post_init__(self) -> None:
        self.rounds = self.steps
        self.variances = Variances(self.sigma2, self.sigma02, self.bias_prior, self.sigma2_layers)
        self.rule = Rule(self.gamma0, self.popularity, self.count_cap, self.width_cap)

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before the first step: the output bias's prior, and no global units."""
        return _state(
            streaming.before_data(
                arrays.networks_of(self._starts(None, clients, rng)), self.variances
            )
        )

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Run one step: train clients on the data that arrived, match their units to the atoms."""
        before = _posterior(state)
        arrived = streaming.arriving(clients, before.step, self.rounds, rng)
        epochs = clients.settings.epochs
        start = self._starts(before, clients, rng)
        trained = arrived.train(start, rng, epochs=epochs).checked()
        shares = arrays.class_shares(arrived.label_counts)
        after, _ = streaming.update(
            before,
            arrays.networks_of(trained.tensors),
            shares if self.class_weights else np.ones_like(shares),
            self.variances,
            self.rule,
            pfnm.visiting_orders(clients.count, len(before.layers), self.passes, self.order, rng),
            crowd_first=self.first_step == "crowd",
        )
        units = sum(layer.members.shape[1] for layer in after.layers)
        sent = clients.models(up=clients.count, down=clients.count * (before.step > 0))
        return _state(after), Report({"hidden_units": float(units)}, traffic=sent)

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """Return the global network in `state`: the posterior means of its units."""
        return GlobalModel(clients.model, arrays.tensors_of(_posterior(state).network))

    def _starts(
        self, before: streaming.Posterior | None, clients: Clients, rng: RngKey
    ) -> dict[str, np.ndarray]:
        """Return weights (J, *shape) by name from which J clients start the step after `before`."""
        from fedrepro.training.federation.clients import initial_weights

        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        initial = initial_weights(clients.network, clients.settings, places)
        if before is None or before.step == 0:
            return initial
        sizes, options = widths(initial), (self.variances, self.fresh, self.start_noise)
        streams = [rng.at(client=j).stream("pfnm-streaming-start") for j in range(clients.count)]
        by_client = [
            arrays.tensors_of(streaming.start_of(before, j, sizes, *options, stream))
            for j, stream in enumerate(streams)
        ]
        return {name: np.concatenate([tensors[name] for tensors in by_client]) for name in initial}


def _state(posterior: streaming.Posterior) -> State:
    """Convert a posterior over the global network to numbers and arrays that files can hold."""
    layers = [[past.members, *astuple(past.atoms)] for past in posterior.layers]
    bias = [posterior.bias, posterior.bias_precision]
    return {"step": posterior.step, "inputs": posterior.inputs, "layers": layers, "bias": bias}


def _posterior(state: Mapping[str, Any]) -> streaming.Posterior:
    layers = tuple(Past(Atoms(*atoms), members) for members, *atoms in state["layers"])
    return streaming.Posterior(state["step"], state["inputs"], layers, *state["bias"])


@dataclass(kw_only=True)
class _StreamingEnsemble:
    """An ensemble of clients' networks, trained further as data arrive in steps, one a round."""

    weighted: ClassVar[bool] = False
    steps: Steps = 15
    members: Annotated[
        Literal["latest", "all"],
        Arg("networks that predict: each client's latest one, or those after every step so far"),
    ] = "latest"

    def __post_init__(self) -> None:
        self.rounds = self.steps

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the state before the first step: a newly initialised network for each client."""
        from fedrepro.training.federation.clients import initial_weights

        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        networks = initial_weights(clients.network, clients.settings, places)
        # examples seen by each network, (J, K), or (J, 0) if all networks have equal weights
        seen = np.zeros((clients.count, clients.network.classes if self.weighted else 0), np.int64)
        return {"step": 0, "networks": networks, "seen": seen}

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Train every client on the examples that arrived in this step, with a new optimiser state.

        Each client uploads its weights in each step, and downloads nothing.
        """
        step, before, seen = state["step"], state["networks"], state["seen"]
        arrived = streaming.arriving(clients, step, self.steps, rng)
        latest = {name: value[-clients.count :] for name, value in before.items()}
        after = arrived.train(latest, rng, epochs=clients.settings.epochs).checked().tensors
        now = seen[-clients.count :]
        if self.weighted:
            now = now + arrived.label_counts
        if self.members == "all" and step > 0:
            after = {name: np.concatenate([before[name], value]) for name, value in after.items()}
            now = np.concatenate([seen, now])
        sent = clients.models(up=clients.count, down=0)
        return {"step": step + 1, "networks": after, "seen": now}, Report(traffic=sent)

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """Return the ensemble of the networks in `state`, with weights by member and class."""
        seen = state["seen"]
        alike = np.full((len(seen), clients.network.classes), 1.0 / len(seen))
        weights = arrays.class_shares(seen) if self.weighted else alike
        return GlobalModel(clients.model, state["networks"], weights)


@method(
    "uniform_ensemble_streaming",
    kind="federated",
    version=2,
    needs={"rounds"},
    paper="pfnm",
    label="U-Ens streaming",
)
class UniformEnsembleStreaming(_StreamingEnsemble):
    """Ensemble by the mean of class probabilities of clients' networks, which train as data arrive.

    Source: PFNM, supplement 4.2 (streaming).
    """


@method(
    "weighted_ensemble_streaming",
    kind="federated",
    version=2,
    needs={"rounds", "label_counts"},
    paper="pfnm",
    label="W-Ens streaming",
)
class WeightedEnsembleStreaming(_StreamingEnsemble):
    """Ensemble of clients' networks, which train as data arrive, by weighted class probabilities.

    Weights are shares of a class's examples seen so far. Source: PFNM, supplement 4.2 (streaming).
    """

    weighted = True


@method(
    "downpour_streaming",
    kind="federated",
    version=2,
    needs={"rounds"},
    models={"mlp"},
    paper="pfnm",
    label="D-SGD streaming",
)
class DownpourStreaming(DownpourSgd):
    """Downpour SGD on data that arrive in steps: the master's weights are kept from step to step.

    The method is evaluated after each step of several rounds. The paper does not say how many; 10
    of one epoch are as in its experiment without a stream. Source: PFNM, supplement 4.2.
    """

    def __init__(
        self,
        *,
        steps: Steps = 15,
        rounds: Annotated[int, Arg("communication rounds in a step", "rounds", least=1)] = 10,
        epochs: Epochs = 1,
        messages: Messages = "sequential",
    ) -> None:
        super().__init__(rounds=rounds, epochs=epochs, messages=messages)
        self.exchanges, self.rounds = rounds, steps

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """Run all communication rounds of one step, on the data that arrived in this step."""
        step, first = rng.round, rng.round * self.exchanges
        arrived = streaming.arriving(clients, step, self.rounds, rng)
        for done in range(first, first + self.exchanges):
            state, _ = super().round(state, arrived, info, rng.at(round=done))
        return state, Report(exchanges=self.exchanges)

"""Streaming PFNM: data arrive in steps, and the posterior of a step is the prior of the next.

Source: "Probabilistic Federated Neural Matching", under review at ICLR 2019, section 3.3 and
supplement sections 3 and 4.2. The text does not give the noise that is added to the units a client
starts from, nor what equation (11) means at the first step; both are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, Report, State, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods.matching.atom_sums import Atoms, Past
from fedrepro.methods.matching.sequential_matching import Rule, Variances
from fedrepro.methods.matching.unit_arrays import class_shares, networks_of, tensors_of
from fedrepro.methods.pfnm import (
    BiasPrior,
    Gamma0,
    Order,
    Sigma02,
    Sigma2,
    WidthCap,
    visiting_orders,
)
from fedrepro.networks.network import widths
from fedrepro.papers.pfnm.streaming import Posterior, arriving, before_data, start_of, update

if TYPE_CHECKING:
    from fedrepro.training.federation.clients import Clients


@method(
    "pfnm_streaming",
    kind="federated",
    version=2,
    needs={"rounds", "label_counts"},
    models={"mlp"},
    paper="pfnm",
    label="PFNM-Streaming",
    evaluate=("train", "test"),
)
@dataclass(kw_only=True)
class PfnmStreaming:
    """At each step clients train on what arrived, and their units are matched to all atoms so far.

    A round is a step. Clients start the first step as in local training, and every later one from
    units of the global network drawn by popularity in their own past, fresh units, and noise.
    Source: PFNM, supplement, equations (10) and (11).
    """

    steps: Annotated[int, Arg("parts in which each client's data arrive", least=1)] = 15
    sigma2: Sigma2 = 1.0
    sigma2_layers: Annotated[
        tuple[float, ...],
        Arg("factor on sigma2 for each hidden layer, the lowest first, or one for all", above=0),
    ] = (1.0,)
    sigma02: Sigma02 = 10.0
    gamma0: Gamma0 = 1.0
    passes: Annotated[
        int, Arg("times every client is assigned again in a step", "passes", least=0)
    ] = 5
    popularity: Annotated[float, Arg("factor on the popularity term: 1 as published", least=0)] = (
        1.0
    )
    count_cap: Annotated[
        int | None,
        Arg("largest count in equation (9), at the first step; none for no cap", least=1),
    ] = 10
    class_weights: Annotated[
        bool, Arg("weigh outgoing weights by the share of each class in this step's examples")
    ] = True
    width_cap: WidthCap = 700
    bias_prior: BiasPrior = 0.1
    order: Order = "random"
    first_step: Annotated[
        Literal["crowd", "habit"],
        Arg("popularity at the first step: among clients (9), or in the own past (11)"),
    ] = "crowd"
    fresh: Annotated[
        int, Arg("units at the prior mean in each layer of a start, gamma0 in the text", least=0)
    ] = 1
    start_noise: Annotated[
        float, Arg("standard deviation of the noise added to a start", least=0)
    ] = 0.01

    def __post_init__(self) -> None:
        self.rounds = self.steps
        self.variances = Variances(self.sigma2, self.sigma02, self.bias_prior, self.sigma2_layers)
        self.rule = Rule(self.gamma0, self.popularity, self.count_cap, self.width_cap)

    def init(self, clients: Clients, info: ClientInfo, rng: RngKey) -> State:
        """Return the prior: no atoms."""
        return _state(before_data(networks_of(self._starts(None, clients, rng)), self.variances))

    def round(
        self, state: State, clients: Clients, info: ClientInfo, rng: RngKey
    ) -> tuple[State, Report]:
        """One step: clients train on its part of their data, and are matched to the atoms.

        Every client's weights go up, and what it starts the next step from comes down.
        """
        before = _posterior(state)
        arrived = arriving(clients, before.step, self.rounds, rng)
        epochs = clients.settings.epochs
        start = self._starts(before, clients, rng)
        trained = arrived.train(start, rng, epochs=epochs).checked()
        shares = class_shares(arrived.label_counts)
        after, _ = update(
            before,
            networks_of(trained.tensors),
            shares if self.class_weights else np.ones_like(shares),
            self.variances,
            self.rule,
            visiting_orders(clients.count, len(before.layers), self.passes, self.order, rng),
            crowd_first=self.first_step == "crowd",
        )
        units = sum(layer.members.shape[1] for layer in after.layers)
        return _state(after), Report({"hidden_units": float(units)})

    def model(self, state: State, clients: Clients) -> GlobalModel:
        """Return the posterior mean network."""
        return GlobalModel(clients.model, tensors_of(_posterior(state).network))

    def _starts(
        self, before: Posterior | None, clients: Clients, rng: RngKey
    ) -> dict[str, np.ndarray]:
        """Weights (J, *shape) that the clients train from: at first their own."""
        from fedrepro.training.federation.clients import initial_weights

        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        initial = initial_weights(clients.network, clients.settings, places)
        if before is None or before.step == 0:
            return initial
        by_client = [
            tensors_of(
                start_of(
                    before,
                    j,
                    widths(initial),
                    self.variances,
                    self.fresh,
                    self.start_noise,
                    rng.at(client=j).stream("pfnm-streaming-start"),
                )
            )
            for j in range(clients.count)
        ]
        return {name: np.concatenate([tensors[name] for tensors in by_client]) for name in initial}


def _state(posterior: Posterior) -> State:
    """Convert the posterior to plain data and tensors."""
    import torch

    def kept(*arrays: np.ndarray) -> list[torch.Tensor]:
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]

    layers = [
        kept(
            past.members,
            past.atoms.natural,
            past.atoms.precision,
            past.atoms.classed,
            past.atoms.classed_precision,
        )
        for past in posterior.layers
    ]
    bias = kept(posterior.bias, posterior.bias_precision)
    return {"step": posterior.step, "inputs": posterior.inputs, "layers": layers, "bias": bias}


def _posterior(state: Mapping[str, Any]) -> Posterior:
    layers = []
    for tensors in state["layers"]:
        members, *atoms = (tensor.numpy() for tensor in tensors)
        layers.append(Past(Atoms(*atoms), members))
    bias, precision = (tensor.numpy() for tensor in state["bias"])
    return Posterior(state["step"], state["inputs"], tuple(layers), bias, precision)

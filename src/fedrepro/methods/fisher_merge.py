"""Fisher-weighted averaging: each weight by how much each client's predictions depend on it.

M. Matena, C. Raffel. Merging Models with Fisher-Weighted Averaging. NeurIPS 2022.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, method
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.methods._merging import MODELS, as_model, asking, mean_of_rest, shares_of, stacked
from fedrepro.training.federation.client_queries import Reply

information = asking("diagonal_fisher")


@method(
    "fisher_merge",
    kind="one_shot",
    needs={"example_counts", "client_answers"},
    sends="diagonal of the Fisher information",
    models=MODELS,
    one_start=True,
    merges=True,
    label="Fisher merge",
    prepare=information,
    grid={"normalise": (True, False), "floor": (0.0, 1e-6), "clients_by": ("equal", "examples")},
)
def fisher_merge(
    clients: LocalModels,
    info: ClientInfo,
    *,
    rng: RngKey,
    prepared: list[Reply],
    normalise: Annotated[bool, Arg("divide each client's information by its length")] = True,
    floor: Annotated[float, Arg("least information of a weight, of all clients", least=0)] = 1e-6,
    clients_by: Annotated[
        Literal["examples", "equal"], Arg("clients count by their examples, or equally")
    ] = "equal",
) -> GlobalModel:
    """w_k = sum_i λ_i F_ik w_ik / sum_i λ_i F_ik, F_i = E_x E_y~p(y|x) (d log p(y|x) / d w)².

    Source: Matena and Raffel, section 3: information divided by its L2 norm over all weights, and
    at least 1e-6. They choose λ_i on validation examples; here it is 1 / J or n_i / n. All
    clients have this floor, so their order does not matter. Weights of other layers than `Linear`
    and `Conv2d` have no information and are averaged by λ_i.
    """
    from fedrepro.methods.merging.fisher_average import fisher_mean

    share = shares_of(info)
    if clients_by == "equal":
        share = np.full_like(share, 1 / len(share))
    each = {name: stacked(prepared, name) for name in clients.tensors if name in prepared[0]}
    if normalise:
        lengths = lengths_of(each)
        each = {name: _over(value, lengths) for name, value in each.items()}
    made = {
        name: fisher_mean(clients.tensors[name], value, share, floor)[None].astype(np.float32)
        for name, value in each.items()
    }
    return as_model(clients, mean_of_rest(clients, share, made))


def lengths_of(each: dict[str, np.ndarray]) -> np.ndarray:
    """Compute the L2 norm over all tensors of each client, (J,); 1 where all is nothing."""
    squares = [(v.astype(np.float64) ** 2).reshape(len(v), -1).sum(1) for v in each.values()]
    norms: np.ndarray = np.sqrt(np.sum(squares, axis=0))
    return np.where(norms > 0, norms, 1.0)


def _over(value: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    normalised: np.ndarray = value / lengths.reshape(-1, *[1] * (value.ndim - 1))
    return normalised

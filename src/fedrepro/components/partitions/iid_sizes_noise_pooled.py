"""Partitions without label skew: equal sizes, skewed sizes, noise on inputs, or a single client.

Sources: FedAvg (H. B. McMahan et al., AISTATS 2017) and RM (H. Mostafa, 2019) for iid, FedProx (T.
Li et al., MLSys 2020) for the power law, NIID-Bench (Q. Li et al., ICDE 2022) for quantity_skew and
feature_noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from fedrepro.components.partitions.by_classes import homogeneous
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data import client_assignment_and_skew as assignment
from fedrepro.data.stratified_samples_and_splits import apportion


@register("partition", "iid", version=1, title="IID, equal sizes")
def iid(
    examples: assignment.TrainingLabels, rng: RngKey, *, clients: assignment.Clients
) -> assignment.Assignment:
    """Shuffle all examples and deal them out in parts of N / J, whatever their labels.

    N examples, J clients. A client's class counts vary by chance, unlike in `homogeneous`. Sizes
    differ by one at most. Source: FedAvg, section 3 (100 clients with 600 examples each).
    """
    assignment.require_examples(examples, clients)
    even = np.ones(clients, np.int64)
    sizes = apportion(len(examples), even, rng.stream("partition-sizes"))
    return assignment.Assignment(assignment.deal_sizes(sizes, rng), clients)


@register("partition", "pooled", version=1, title="Pooled")
def pooled(examples: assignment.TrainingLabels, rng: RngKey) -> assignment.Assignment:
    """Give all examples to a single client. Nothing is drawn."""
    return assignment.Assignment(np.zeros(len(examples), np.int32), clients=1)


RESOLUTION = 1e9  # weights are whole numbers when examples are shared out


@register("partition", "power_law", version=1, title="Quantity skew, power law")
def power_law(
    examples: assignment.TrainingLabels,
    rng: RngKey,
    *,
    clients: assignment.Clients,
    exponent: Annotated[
        float,
        Arg(
            "the r-th largest client's size is in proportion to r to the minus this",
            least=0,
            most=4,
        ),
    ] = 1.0,
    min_examples: Annotated[
        int, Arg("examples that every client gets first", unit="examples", least=1)
    ] = 1,
) -> assignment.Assignment:
    """Give the client of rank r a number of random examples in proportion to r^-exponent.

    Every client first gets `min_examples`; all further examples follow the power law. Ranks are
    drawn at random. Source: FedProx, which does not state the exponent: 1 is our choice.
    """
    assignment.require_examples(examples, clients, min_examples)
    generator = rng.stream("partition-sizes")
    rank = 1.0 + generator.permutation(clients)
    weights = np.ceil(RESOLUTION * rank**-exponent).astype(np.int64)
    rest = len(examples) - clients * min_examples
    return assignment.Assignment(
        assignment.deal_sizes(min_examples + apportion(rest, weights, generator), rng), clients
    )


@register("partition", "quantity_skew", version=1, title="Quantity skew, Dirichlet")
def quantity_skew(
    examples: assignment.TrainingLabels,
    rng: RngKey,
    *,
    clients: assignment.Clients,
    alpha: Annotated[
        float, Arg("concentration: the smaller, the more sizes differ", least=0.001, most=1e6)
    ] = 0.5,
    min_examples: assignment.MinExamples = 10,
    max_redraws: assignment.MaxRedraws = 10_000,
) -> assignment.Assignment:
    """Give the J clients shares q ~ Dir_J(alpha) of all shuffled examples, so that sizes differ.

    Draws that leave a client under `min_examples` are repeated. Source: NIID-Bench, alpha = 0.5.
    """
    assignment.require_examples(examples, clients, min_examples)
    generator = rng.stream("partition-sizes")
    for redraws in range(max_redraws + 1):
        share = generator.dirichlet(np.full(clients, alpha))
        bounds = np.rint(len(examples) * np.cumsum(share)).astype(np.int64)
        bounds[-1] = len(examples)
        sizes = np.diff(bounds, prepend=0)
        if sizes.min() >= min_examples:
            return assignment.Assignment(assignment.deal_sizes(sizes, rng), clients, redraws)
    raise assignment.never_full(
        "quantity_skew", max_redraws + 1, rng, clients, min_examples, len(examples), alpha
    )


@register("partition", "feature_noise", version=1, title="Feature noise")
def feature_noise(
    examples: assignment.TrainingLabels,
    rng: RngKey,
    *,
    clients: assignment.Clients,
    sigma: Annotated[
        float, Arg("noise of the last client, inputs being in [0, 1]; see `grows`", least=0)
    ] = 0.1,
    grows: Annotated[
        Literal["variance", "deviation"],
        Arg(
            "which of them rises evenly to sigma: the variance, from sigma / J, or the standard "
            "deviation, from 0, as in NIID-Bench's code",
            later=True,
        ),
    ] = "variance",
) -> assignment.Assignment:
    """Split each class evenly over the clients; client j's inputs get noise N(0, sigma · j / J).

    sigma · j / J is a variance, j = 1 .. J clients; with `grows` as deviation, the standard
    deviation is sigma · (j - 1) / (J - 1). The noise is drawn when inputs are used. Source:
    NIID-Bench, with sigma = 0.1, whose code splits examples at random, not by class.
    """
    noise = sigma * np.arange(1, clients + 1) / clients
    if grows == "deviation":
        noise = (sigma * np.arange(clients) / max(clients - 1, 1)) ** 2
    return replace(homogeneous(examples, rng, clients=clients), noise=noise)

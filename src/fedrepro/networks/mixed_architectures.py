"""Networks of different architectures under one name, for methods that take them as they are.

A model has the tensors of all architectures, named by their number, and says which of them it is;
those of the others are zeros, which nothing reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedrepro.core.method_kinds import MIXED, WHICH
from fedrepro.core.spec import Component, Spec
from fedrepro.networks.layers import Parameter, Pass, Shape
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class MixedNetwork(Network):
    """One of several networks."""

    members: tuple[Network, ...] = ()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """Return the tensors of all members, and (architectures,), a one among zeros."""
        own = {
            f"{k}.{name}": parameter
            for k, member in enumerate(self.members)
            for name, parameter in member.parameters.items()
        }
        return {**own, WHICH: Parameter((len(self.members),), 1)}

    @property
    def classes(self) -> int:
        """Outputs, equal for all members."""
        return self.members[0].classes

    @property
    def products(self) -> int:
        """Multiplications that predict one example by the largest member."""
        return max(member.products for member in self.members)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Buffers of all members, and which it is."""
        own = (f"{k}.{name}" for k, m in enumerate(self.members) for name in m.buffers)
        return (*own, WHICH)

    @cached_property
    def widest(self) -> int:
        """Count the floats of the largest activation of one example."""
        return max(member.widest for member in self.members)

    def forward(
        self, tensors: Mapping[str, torch.Tensor], x: torch.Tensor, run: Pass
    ) -> torch.Tensor:
        """Compute logits (A, B, K), one model after another."""
        import torch

        logits = []
        for i in range(len(x)):
            k = int(tensors[WHICH][i].argmax())
            own = {name: tensors[f"{k}.{name}"][i] for name in self.members[k].parameters}
            logits.append(self.members[k].logits(own, x[i]))
        return torch.stack(logits)


def mixed_spec(specs: Sequence[Spec]) -> Spec:
    """Make a model that is one of these."""
    title = " or ".join(spec.token for spec in specs)

    def mixed(shape: Shape, classes: int) -> Network:
        members = tuple(network_of(spec, shape, classes) for spec in specs)
        return MixedNetwork(shape, (), "mixed", members=members)

    return Component("model", MIXED, 1, mixed, {"title": title, "specs": tuple(specs)}).spec()


def mixed_network_tensors(
    each: Sequence[tuple[int, Mapping[str, np.ndarray]]],
) -> dict[str, np.ndarray]:
    """Stack tensors (J, *shape) of J models, from the architecture and tensors (*shape) of each."""
    shapes = {f"{k}.{name}": value.shape for k, own in each for name, value in own.items()}
    made = {name: np.zeros((len(each), *shape), np.float32) for name, shape in shapes.items()}
    made[WHICH] = np.zeros((len(each), 1 + max(k for k, _ in each)), np.float32)
    for j, (k, own) in enumerate(each):
        made[WHICH][j, k] = 1
        for name, value in own.items():
            made[f"{k}.{name}"][j] = value
    return made

"""Character embedding and stacked LSTM layers, with the backward pass written out.

The gradient of the recurrent weights is one matrix product over all time steps at the end;
automatic differentiation would add up one per step, each writing the whole matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from fedrepro.core.portable_ops.torch_ops import multiplied
from fedrepro.networks.layers import Parameter, Pass, Shape

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Embedding:
    """A vector per code; inputs are codes 0 … codes-1 kept as floats, (B, T)."""

    codes: int
    size: int

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Return table (codes, size)."""
        return {"table": Parameter((self.codes, self.size), 1, "table")}

    def output(self, shape: Shape) -> Shape:
        """Return (T, size)."""
        return (*shape, self.size)

    def forward(
        self, tensors: Mapping[str, torch.Tensor], x: torch.Tensor, run: Pass
    ) -> torch.Tensor:
        """Map (A, B, T) to (A, B, T, size)."""
        import torch
        from torch.nn.functional import embedding

        first = torch.arange(len(x), device=x.device) * self.codes
        return embedding(x.long() + first[:, None, None], tensors["table"].flatten(0, 1))


@dataclass(frozen=True)
class Lstm:
    """A layer of long short-term memory; rows of its tensors: input, forget, cell, output gate.

    With `last` it gives the state after the last character only.
    """

    units: int
    last: bool = False

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Return weight (4 units, inputs), recurrent (4 units, units), bias (4 units)."""
        wide = 4 * self.units
        return {
            "weight": Parameter((wide, shape[1]), self.units),
            "recurrent": Parameter((wide, self.units), self.units),
            "bias": Parameter((wide,), self.units, "bias"),
        }

    def output(self, shape: Shape) -> Shape:
        """Return (T, units), or (units,) for the last state."""
        return (self.units,) if self.last else (shape[0], self.units)

    def forward(self, own: Mapping[str, torch.Tensor], x: torch.Tensor, run: Pass) -> torch.Tensor:
        """Map (A, B, T, inputs) to (A, B, T, units), or (A, B, units)."""
        tensors = [own[name] for name in ("weight", "recurrent", "bias")]
        states: torch.Tensor = _cell().apply(x.permute(2, 0, 1, 3), *tensors)
        return states[-1] if self.last else states.permute(1, 2, 0, 3)


@dataclass(frozen=True)
class EachPosition:
    """Every position of a window as an example of its own, those of a window one after another."""

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Return none."""
        return {}

    def output(self, shape: Shape) -> Shape:
        """Return (units,), of each position."""
        return shape[1:]

    def forward(
        self, tensors: Mapping[str, torch.Tensor], x: torch.Tensor, run: Pass
    ) -> torch.Tensor:
        """Map (A, B, T, units) to (A, B·T, units)."""
        return x.flatten(1, 2)


def _beside(timed: torch.Tensor) -> torch.Tensor:
    return timed.transpose(0, 1).flatten(1, 2)


def _timed(flat: torch.Tensor, steps: int) -> torch.Tensor:
    return flat.view(len(flat), steps, -1, flat.shape[-1]).transpose(0, 1)


@cache
def _cell() -> Any:
    """Make the autograd function, on first use, because torch is imported late."""
    import torch

    sigmoid_backward = torch.ops.aten.sigmoid_backward
    tanh_backward = torch.ops.aten.tanh_backward

    class LstmCell(torch.autograd.Function):
        """All time steps of a layer: x (T, A, B, I) to states (T, A, B, H)."""

        @staticmethod
        def forward(
            ctx: Any,
            x: torch.Tensor,
            weight: torch.Tensor,
            recurrent: torch.Tensor,
            bias: torch.Tensor,
        ) -> torch.Tensor:
            steps, models, batch = x.shape[:3]
            units = recurrent.shape[2]
            projected = multiplied(_beside(x), weight.transpose(1, 2)).add_(bias.unsqueeze(1))
            transposed = recurrent.transpose(1, 2)
            gates = _timed(projected, steps).contiguous()
            states = x.new_empty(steps, models, batch, units)
            cells, squashed = torch.empty_like(states), torch.empty_like(states)
            for t in range(steps):
                gate = gates[t]
                if t:
                    gate.add_(multiplied(states[t - 1], transposed))
                entry, forget, new, out = gate.chunk(4, -1)
                gate[..., : 2 * units].sigmoid_()
                new.tanh_()
                out.sigmoid_()
                torch.mul(entry, new, out=cells[t])
                if t:
                    cells[t].addcmul_(forget, cells[t - 1])
                torch.tanh(cells[t], out=squashed[t])
                torch.mul(out, squashed[t], out=states[t])
            ctx.save_for_backward(x, weight, recurrent, gates, states, cells, squashed)
            return states

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            x, weight, recurrent, gates, states, cells, squashed = ctx.saved_tensors
            errors = torch.empty_like(gates)
            state_error = torch.zeros_like(states[0])
            cell_error = torch.zeros_like(states[0])
            for t in reversed(range(len(x))):
                entry, forget, new, out = gates[t].chunk(4, -1)
                to_entry, to_forget, to_new, to_out = errors[t].chunk(4, -1)
                state_error = state_error + grad[t]
                through = tanh_backward(state_error * out, squashed[t])
                cell_error = cell_error + through
                to_entry.copy_(sigmoid_backward(cell_error * new, entry))
                if t:
                    to_forget.copy_(sigmoid_backward(cell_error * cells[t - 1], forget))
                else:
                    to_forget.zero_()
                to_new.copy_(tanh_backward(cell_error * entry, new))
                to_out.copy_(sigmoid_backward(state_error * squashed[t], out))
                cell_error = cell_error * forget
                if t:
                    state_error = multiplied(errors[t], recurrent)
            flat = _beside(errors)
            before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
            transposed = flat.transpose(1, 2)
            weight_grad = multiplied(transposed, _beside(x))
            recurrent_grad = multiplied(transposed, _beside(before))
            x_grad = None
            if ctx.needs_input_grad[0]:
                back = multiplied(flat, weight)
                x_grad = _timed(back, len(x))
            return x_grad, weight_grad, recurrent_grad, flat.sum(1)

    return LstmCell

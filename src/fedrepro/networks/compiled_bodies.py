"""Outputs of convolutions and recurrent layers for many examples, in compiled code."""

from __future__ import annotations

from functools import partial
from typing import Any

from numba.extending import overload

from fedrepro.core.portable_ops import compiled_math as products
from fedrepro.core.portable_ops import cpu_instructions, gathered_products
from fedrepro.core.portable_ops.aligned_buffers import PAD
from fedrepro.core.portable_ops.compiled_math import Array, compiled
from fedrepro.core.portable_ops.cpu_instructions import flush, restore
from fedrepro.networks import compiled_convolutions, compiled_lstm
from fedrepro.networks.compiled_convolutions import Convolutions, features, lay_image
from fedrepro.networks.compiled_lstm import lay_letters


@partial(
    compiled,
    calls=(products, gathered_products, cpu_instructions, compiled_convolutions, compiled_lstm),
)
def predict(body: Any, weights: Array, inputs: Array, rows: int, room: Any, out: Array) -> None:
    """Write the body's outputs for inputs (N, D) to out, flat, `rows` at a time.

    For a prediction after each letter, letters (T, B) of those rows come one after another.
    """
    before = flush()
    each = (len(out) - PAD) // len(inputs)
    for first in range(0, len(inputs), rows):
        some = inputs[first : first + rows]
        give(body, weights, some, room, out[first * each :])
    restore(before)


def give(body: Any, weights: Array, inputs: Array, room: Any, out: Array) -> None:
    """Write the body's outputs for a few inputs."""
    raise NotImplementedError


@overload(give, jit_options={"error_model": "numpy"}, strict=False)
def _give(body: Any, weights: Any, inputs: Any, room: Any, out: Any) -> Any:
    def images(body: Any, weights: Any, inputs: Any, room: Any, out: Any) -> None:
        one = inputs.dtype.type(1)
        for b in range(len(inputs)):
            lay_image(body, inputs[b], one, one, (0, 0, 0), b, room)
        features(body, weights, len(inputs), room, out)

    def letters(body: Any, weights: Any, inputs: Any, room: Any, out: Any) -> None:
        for b in range(len(inputs)):
            lay_letters(inputs[b], b, len(inputs), room)
        compiled_lstm.unrolled(body, weights, len(inputs), room, out)

    return images if body.instance_class is Convolutions else letters

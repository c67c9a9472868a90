"""Products whose first factor is read in place, and pooling by vectors, in compiled code.

Rows of the first factor begin at places of a list, and a sum is made of runs. A window of an image
that lies as (H, W, C) is such a row: k runs of k · C numbers. So a convolution is a product, and
nothing is unfolded. An element is one chain of fused multiplications and additions in the order of
its sum, as in `compiled`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped
from numba.extending import intrinsic

from fedrepro.core.portable_ops import compiled_math
from fedrepro.core.portable_ops.aligned_buffers import PAD
from fedrepro.core.portable_ops.compiled_math import (
    COLUMNS,
    HALF,
    ROWS,
    by_address,
    by_height,
    named_after,
    write_tile,
)

cgutils: Any = untyped
numba_types: Any = types
DEEP = 256  # terms of a sum at a time: as many rows of COLUMNS numbers stay in the first cache
NOWHERE = 4  # the place in a window of 2 × 2 that a pooling notes where nothing is above zero


def _tile_of(
    typing: Any, columns: Any, rows: Any, out: Any, begin: Any, a: Any, b: Any, terms: Any
) -> Any:
    """Compute out = begin + a @ b for up to ROWS rows; the number of columns is a literal.

    out, begin: (pointer, at, row stride). a: (pointer, at, places, that of the first row), b:
    (pointer, at), both followed by strides from run to run and from term to term. terms: runs, and
    terms of a run.
    """
    width = columns.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, rows, *matrices, terms = arguments
        out, begin, a, b = (cgutils.unpack_tuple(builder, value) for value in matrices)
        targets = [(builder.gep(data, [at]), row) for data, at, row in (out, begin)]
        image, places = builder.gep(a[0], [a[1]]), builder.gep(a[2], [a[3]])
        right = builder.gep(b[0], [b[1]])

        def tile(height: int) -> None:
            each = [
                builder.gep(image, [builder.load(builder.gep(places, [ir.Constant(rows.type, r)]))])
                for r in range(height)
            ]
            size = height, width, signature.args[2][0].dtype.bitwidth
            length = cgutils.unpack_tuple(builder, terms)
            write_tile(builder, size, length, targets, each, a[4:], right, b[2:])

        by_height(builder, rows, range(1, ROWS + 1), tile)
        return context.get_dummy_value()

    return types.void(numba_types.literal(width), types.intp, out, begin, a, b, terms), generate


_tile: Any = intrinsic(prefer_literal=True)(_tile_of)


def _multiply_at(
    out: Any, out_row: int, begin: Any, begin_row: int, a: Any, a_run: int, a_step: int,
    b: Any, b_run: int, b_step: int, places: Any, rows: int, runs: int, length: int, columns: int,
) -> None:  # fmt: skip
    """Compute `product_at`; matrices are pointers, followed by their strides."""
    # rows of b that are read again and again stay in the first cache: some runs, or part of one
    part = -(-length // -(-length // DEEP))
    together = max(1, DEEP // length)
    together = -(-runs // -(-runs // together))
    for turn in range(0, runs, together):
        for k in range(0, length, part):
            terms = min(together, runs - turn), min(part, length - k)
            a_at, b_at = turn * a_run + k * a_step, turn * b_run + k * b_step
            first = turn == 0 and k == 0
            before, before_row = (begin, begin_row) if first else (out, out_row)
            j = 0
            while j < columns:
                over, row, tiles = columns - j, 0, -(-rows // ROWS)
                while row < rows:
                    # equally high: low ones leave the processor waiting
                    height = -(-(rows - row) // tiles)
                    target = out, row * out_row + j, out_row
                    start = before, row * before_row + j, before_row
                    left = a, a_at, places, row, a_run, a_step
                    right = b, b_at + j, b_run, b_step
                    if over >= COLUMNS:
                        _tile(COLUMNS, height, target, start, left, right, terms)
                    elif over >= HALF:
                        _tile(HALF, height, target, start, left, right, terms)
                    else:
                        _tile(PAD, height, target, start, left, right, terms)
                    row += height
                    tiles -= 1
                j += COLUMNS if over >= COLUMNS else HALF if over >= HALF else PAD


named_after(_multiply_at, [compiled_math])


@cache
def multiplier_at(dtype: str) -> Any:
    """Compile the product by places of float32 or float64 numbers, to call by its address."""
    size = types.intp
    matrix = numba_types.CPointer(getattr(types, dtype)), size
    signature = types.void(
        *matrix, *matrix, *matrix, size, *matrix, size, numba_types.CPointer(types.int64),
        *[size] * 4,
    )  # fmt: skip
    return by_address(_multiply_at, signature, dtype)


def _product_at(
    typing: Any, by: Any, out: Any, begin: Any, a: Any, b: Any, places: Any, size: Any
) -> Any:
    """Compute out = begin + a @ b; size: rows, runs, terms of a run, columns (a multiple of PAD).

    by: the address of `multiplier_at`. out, begin: (array, at, row stride), which for `begin` may
    be 0. a, b: (array, at, stride from run to run, from term to term). places: (int64 array, where
    in it those of a's rows begin), counted from where a begins.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, *matrices, places, size = arguments

        def data(kind: Any, array: Any) -> Any:
            return context.make_array(kind)(context, builder, array).data

        values: list[Any] = []
        for kind, value in zip(signature.args[1:5], matrices, strict=True):
            array, at, *strides = cgutils.unpack_tuple(builder, value)
            values += [builder.gep(data(kind[0], array), [at]), *strides]
        listed, first = cgutils.unpack_tuple(builder, places)
        values.append(builder.gep(data(signature.args[5][0], listed), [first]))
        values += cgutils.unpack_tuple(builder, size)
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        builder.call(builder.inttoptr(address, kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(by, out, begin, a, b, places, size), generate


product_at: Any = intrinsic(_product_at)


WORDS, BYTES = ir.VectorType(ir.IntType(32), PAD), ir.VectorType(ir.IntType(8), PAD)


def _each(vector: Any, value: float) -> Any:
    return ir.Constant(vector, [value] * PAD)


def _vector_of(kind: Any) -> Any:
    return ir.VectorType(ir.FloatType() if kind.dtype.bitwidth == 32 else ir.DoubleType(), PAD)


def _pointer(builder: Any, context: Any, kind: Any, array: Any, at: Any, vector: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


def _window(builder: Any, at: Any, right: Any, down: Any) -> list[Any]:
    """Return the places of the four values of a window."""
    lower = builder.add(at, down)
    return [at, builder.add(at, right), lower, builder.add(lower, right)]


def _largest(
    typing: Any, x: Any, at: Any, right: Any, down: Any, out: Any, to: Any, chosen: Any, noted: Any
) -> Any:
    """Write the ReLU of the largest of a 2×2 window of PAD channels, and note its position.

    The first of equal values is taken, NOWHERE is noted where none is above zero, and NaN stays.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, at, right, down, out, to, chosen, noted = arguments
        kinds = signature.args
        floats = _vector_of(kinds[0])
        size = kinds[0].dtype.bitwidth // 8
        best, where = None, _each(WORDS, 0)
        for place, start in enumerate(_window(builder, at, right, down)):
            value = builder.load(_pointer(builder, context, kinds[0], x, start, floats), align=size)
            if best is None:
                best = value
                continue
            more = builder.or_(
                builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value)
            )
            best = builder.select(more, value, best)
            where = builder.select(more, _each(WORDS, place), where)
        below = builder.fcmp_ordered("<=", best, _each(floats, 0.0))
        best = builder.select(below, _each(floats, 0.0), best)
        where = builder.select(below, _each(WORDS, NOWHERE), where)
        builder.store(best, _pointer(builder, context, kinds[4], out, to, floats), align=size)
        place = _pointer(builder, context, kinds[6], chosen, noted, BYTES)
        builder.store(builder.trunc(where, BYTES), place, align=1)
        return context.get_dummy_value()

    return types.void(x, at, right, down, out, to, chosen, noted), generate


largest: Any = intrinsic(_largest)


def _given_back(
    typing: Any, error: Any, at: Any, chosen: Any, noted: Any, below: Any, to: Any, right: Any,
    down: Any,
) -> Any:  # fmt: skip
    """Write errors of PAD channels to where their values came from in a window, zeros elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        error, at, chosen, noted, below, to, right, down = arguments
        kinds = signature.args
        floats = _vector_of(kinds[0])
        size = kinds[0].dtype.bitwidth // 8
        value = builder.load(_pointer(builder, context, kinds[0], error, at, floats), align=size)
        place = _pointer(builder, context, kinds[2], chosen, noted, BYTES)
        where = builder.zext(builder.load(place, align=1), WORDS)
        for place, start in enumerate(_window(builder, to, right, down)):
            same = builder.icmp_signed("==", where, _each(WORDS, place))
            given = builder.select(same, value, _each(floats, 0.0))
            target = _pointer(builder, context, kinds[4], below, start, floats)
            builder.store(given, target, align=size)
        return context.get_dummy_value()

    return types.void(error, at, chosen, noted, below, to, right, down), generate


given_back: Any = intrinsic(_given_back)

"""Matrix products with windows of images, which are not copied, and max pooling, in compiled code.

Rows of the first factor begin at listed offsets in an array, and consist of stretches of adjacent
numbers. A k × k window of an image stored as (H, W, C) is such a row: k stretches of k · C numbers.
So a convolution needs no unfolded copy. An element is summed as in `matrix_products`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from fedrepro.core.portable_ops import matrix_products
from fedrepro.core.portable_ops.matrix_products import (
    COLUMNS,
    HALF,
    ROWS,
    Code,
    Vectors,
    by_address,
    call_address,
    cgutils,
    loop,
    named_after,
    tile,
    written,
)
from fedrepro.core.portable_ops.padding_and_alignment import PAD

DEEP = 256  # terms of a sum at a time: as many rows of COLUMNS numbers stay in the first cache
NOWHERE = 4  # the place in a window of 2 × 2 that a pooling notes where nothing is above zero


def _multiply_at(
    out: Any, out_row: int, begin: Any, begin_row: int, a: Any, a_run: int, a_step: int,
    b: Any, b_run: int, b_step: int, places: Any, rows: int, runs: int, length: int, columns: int,
) -> None:  # fmt: skip
    """Compute out = begin + a @ b, where a's rows may overlap, such as windows of an image.

    Row r of a begins at a[places[r]] and consists of `runs` stretches of `length` numbers. Matrices
    are pointers; *_row, *_run and *_step are strides between rows, stretches and numbers.
    """
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
                    left, listed = (a, a_at, a_run, a_step), (places, row)
                    right = b, b_at + j, b_run, b_step
                    if over >= COLUMNS:
                        tile(COLUMNS, height, terms, target, start, left, right, listed)
                    elif over >= HALF:
                        tile(HALF, height, terms, target, start, left, right, listed)
                    else:
                        tile(PAD, height, terms, target, start, left, right, listed)
                    row += height
                    tiles -= 1
                j += COLUMNS if over >= COLUMNS else HALF if over >= HALF else PAD


named_after(_multiply_at, [matrix_products])


multiplier_at = by_address(_multiply_at, "xnxnxnnxnnpnnnn")


@written
def product_at(
    code: Code, by: Any, out: Any, begin: Any, a: Any, b: Any, places: Any, size: Any
) -> None:
    """Write LLVM code, into `code`, for out = begin + a @ b, such as windows times a kernel.

    A row of a lies in several runs (stretches) of adjacent terms. `size` is (rows, runs of a row,
    terms of a run, columns), columns a multiple of 8 (PAD). `by` is the address of the code that
    `multiplier_at` compiles; out and begin are (array, offset, row stride), a and b (array, offset,
    stride from run to run, from term to term), places (offsets of a's rows, index of the first).
    """
    call_address(code, by, out, begin, a, b, places, size)


WORDS, BYTES = ir.VectorType(ir.IntType(32), PAD), ir.VectorType(ir.IntType(8), PAD)


def _each(vector: Any, value: float) -> Any:
    return ir.Constant(vector, [value] * PAD)


def _window(builder: Any, at: Any, right: Any, down: Any) -> list[Any]:
    """Return LLVM values: the 4 offsets of a 2×2 window at `at`, of strides `right` and `down`."""
    lower = builder.add(at, down)
    return [at, builder.add(at, right), lower, builder.add(lower, right)]


@written
def largest(
    code: Code, x: Any, at: Any, right: Any, down: Any, out: Any, to: Any, chosen: Any, noted: Any
) -> None:
    """Write LLVM code, into `code`, for ReLU and max pooling of a 2×2 window, of 8 channels (PAD).

    The window begins at x[at]; `right` and `down` are strides to its next column and row. The
    maxima go to out[to:], and where in the window they were, 0 to 3, to chosen[noted:]; NOWHERE (4)
    if no value is positive. Of equal values the first is chosen; NaN stays NaN.
    """
    builder, kinds = code.builder, code.kinds
    point, vector = code.at, Vectors(builder, kinds[0].dtype, PAD)
    zeros, best, where = _each(vector.type, 0.0), None, _each(WORDS, 0)
    for place, start in enumerate(_window(builder, at, right, down)):
        value = vector.load(vector.at(point(kinds[0], x, start)))
        if best is None:
            best = value
            continue
        more = builder.or_(
            builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value)
        )
        best = builder.select(more, value, best)
        where = builder.select(more, _each(WORDS, place), where)
    below = builder.fcmp_ordered("<=", best, zeros)
    vector.store(builder.select(below, zeros, best), vector.at(point(kinds[4], out, to)))
    where = builder.select(below, _each(WORDS, NOWHERE), where)
    place = builder.bitcast(point(kinds[6], chosen, noted), BYTES.as_pointer())
    builder.store(builder.trunc(where, BYTES), place, align=1)


@written
def given_back(
    code: Code, error: Any, at: Any, chosen: Any, noted: Any, below: Any, to: Any, right: Any,
    down: Any,
) -> None:  # fmt: skip
    """Write LLVM code, into `code`, that backpropagates through 2×2 max pooling of a window.

    The outputs' gradients error[at:], of 8 channels, go to where the largest inputs were, by
    chosen[noted:], in the window at below[to] (strides `right` and `down`), zeros to the others.
    """
    builder, kinds = code.builder, code.kinds
    point, vector = code.at, Vectors(builder, kinds[0].dtype, PAD)
    value = vector.load(vector.at(point(kinds[0], error, at)))
    place = builder.bitcast(point(kinds[2], chosen, noted), BYTES.as_pointer())
    where = builder.zext(builder.load(place, align=1), WORDS)
    for place, start in enumerate(_window(builder, to, right, down)):
        same = builder.icmp_signed("==", where, _each(WORDS, place))
        given = builder.select(same, value, _each(vector.type, 0.0))
        vector.store(given, vector.at(point(kinds[4], below, start)))


@written
def added_up(code: Code, x: Any, at: Any, rows: Any, columns: Any, out: Any, to: Any) -> None:
    """Write LLVM code, into `code`, that writes the sum of a grid of vectors to out[to:].

    The vectors, of 8 numbers, are added row by row. The first begins at x[at]; `rows` and `columns`
    of the grid are (their number, their stride in numbers of x).
    """
    builder, kinds = code.builder, code.kinds
    point, vector = code.at, Vectors(builder, kinds[0].dtype, PAD)
    none = ir.Constant(at.type, 0)
    (count, down), (width, right) = (
        cgutils.unpack_tuple(builder, part) for part in (rows, columns)
    )

    def add_row(sums: list[Any], i: Any) -> list[Any]:
        first = builder.add(at, builder.mul(i, down))

        def add(sums: list[Any], j: Any) -> list[Any]:
            place = point(kinds[0], x, builder.add(first, builder.mul(j, right)))
            return [builder.fadd(sums[0], vector.load(vector.at(place)))]

        return loop(builder, sums, none, width, add)[0]

    (total,), _ = loop(builder, [_each(vector.type, 0.0)], none, count, add_row)
    vector.store(total, vector.at(point(kinds[4], out, to)))

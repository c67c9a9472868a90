"""Matrix products with windows of images, sparse products, and max pooling, in compiled code.

In `product_at`, rows of the first factor begin at listed offsets in an array, and consist of
stretches of adjacent numbers. A k × k window of an image stored as (H, W, C) is such a row: k
stretches of k · C numbers. So a convolution needs no unfolded copy.

In `sparse_product`, the first factor is mostly zeros, which are left out: a chain of fused
multiply-adds gives the same bits without them. `lay` adds a weighted sum of blocks of a matrix to a
tile of another; `lift` computes gradients. A tile of kind 1 to 10 is one row of as many vectors of
512 bits. Kinds 11 to 14 are 2 to 5 rows of one vector. Callers leave out the argument `code`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from fedrepro.core.portable_ops import compiled_functions_and_products as llvm_code_and_products
from fedrepro.core.portable_ops.compiled_functions_and_products import (
    COLUMNS,
    HALF,
    ROWS,
    VECTOR,
    WIDE,
    Code,
    Vectors,
    by_address,
    by_height,
    call_address,
    cgutils,
    loop,
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
    """Compute out = begin + a @ b; row r of a has `runs` stretches from a[places[r]] on."""
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


multiplier_at = by_address(_multiply_at, "xnxnxnnxnnpnnnn", [llvm_code_and_products])


@written
def product_at(
    code: Code, by: Any, out: Any, begin: Any, a: Any, b: Any, places: Any, size: Any
) -> None:
    """Write LLVM code, into `code`, for out = begin + a @ b, where rows of a may overlap in memory.

    So a may be windows of an image, and b a kernel. A row of a consists of runs: stretches of
    adjacent numbers. `size` is (rows, runs of a row, numbers of a run, columns), columns a multiple
    of 8 (PAD). out and begin are (array, offset, row stride), a and b (array, offset, stride
    between runs, stride between numbers). places = (p, i): row r of a has the further offset p[i +
    r]. `by` is the address of the code from `multiplier_at`.
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
    maxima go to out[to:], and where in the window they were, 0 to 3, as bytes to chosen[noted:];
    NOWHERE (4) if no value is positive. Of equal values the first is chosen; NaN stays NaN.
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

    The gradients error[at:] of 8 channels are written to the window at below[to], of strides
    `right` and `down`: each where chosen[noted:], from `largest`, says, and zeros elsewhere.
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

        return loop(builder, sums, none, width, add)

    (total,) = loop(builder, [_each(vector.type, 0.0)], none, count, add_row)
    vector.store(total, vector.at(point(kinds[4], out, to)))


LANE_BYTES = VECTOR // 8
# Vectors of a row, or rows of one vector, that a tile has at most. As tiles overlap from number to
# number, the order of sums depends on these; on how many the registers hold at a time it does not.
VECTORS, STRIPS = 10, 5
HELD = 10 if WIDE else 5
CASES = range(1, VECTORS + STRIPS)


class _Tile(Vectors):
    """Writer of LLVM code for a tile: 1 to 10 vectors of a row, or 2 to 5 rows of one vector."""

    def __init__(self, code: Code, dtype: Any, index: Any) -> None:
        super().__init__(code.builder, dtype)
        self.data, self.index = code.at, index

    def write(self, kind: Any, one: Callable[[int, range], None]) -> None:
        """Write LLVM code that switches, at run time, on the form `kind`; `one` writes each case.

        one(form, part) is called per form and range `part` of vectors that fits into registers.
        """

        def whole(case: int) -> None:
            count = case if case <= VECTORS else case - VECTORS + 1
            each = -(-count // -(-count // HELD))
            for first in range(0, count, each):
                one(case, range(first, min(first + each, count)))

        by_height(self.builder, kind, CASES, whole)

    def pointers(self, first: Any, kind: int, apart: Any, part: range) -> list[Any]:
        """Return pointers to vectors `part` of a `kind` tile at `first`, of row stride `apart`."""
        if kind <= VECTORS:
            starts = [ir.Constant(self.index, v * self.lanes) for v in part]
        else:
            starts = [self.builder.mul(ir.Constant(self.index, r), apart) for r in part]
        return [self.at(first, at) for at in starts]

    def load_all(self, pointers: list[Any]) -> list[Any]:
        return [self.load(pointer) for pointer in pointers]

    def store_all(self, values: list[Any], pointers: list[Any]) -> None:
        for value, pointer in zip(values, pointers, strict=True):
            self.store(value, pointer)


@written
def lay(code: Code, kind: Any, image: Any, laid: Any, which: Any, amounts: Any, part: Any) -> None:
    """Write LLVM code, into `code`, that adds weighted blocks of `laid` to a tile of `image`.

    Both are matrices (array, offset, row stride); the tile, of this `kind`, begins at image's
    offset. For part[0] ≤ m < part[1], the block of this kind which[m] numbers behind laid's offset
    is added, times amounts[m].
    """
    builder, kinds = code.builder, code.kinds
    image, at, apart = cgutils.unpack_tuple(builder, image)
    laid, under, below = cgutils.unpack_tuple(builder, laid)
    first, end = cgutils.unpack_tuple(builder, part)
    tile = _Tile(code, kinds[1][0].dtype, at.type)
    onto = tile.data(kinds[1][0], image, at)
    rows = tile.data(kinds[2][0], laid, under)
    zero = ir.Constant(at.type, 0)
    which, amounts = tile.data(kinds[3], which, zero), tile.data(kinds[4], amounts, zero)

    def write(case: int, some: range) -> None:
        targets = tile.pointers(onto, case, apart, some)

        def add(sums: list[Any], m: Any) -> list[Any]:
            row = builder.gep(rows, [builder.load(builder.gep(which, [m]))])
            amount = tile.spread(builder.gep(amounts, [m]))
            values = tile.load_all(tile.pointers(row, case, below, some))
            return [tile.fma(amount, v, s) for v, s in zip(values, sums, strict=True)]

        sums = loop(builder, tile.load_all(targets), first, end, add)
        tile.store_all(sums, targets)

    tile.write(kind, write)


# What `sparse_product` computes, for arrays as pointers; out_step and b_step are strides from step
# to step. Sums may overlap in `out`: they are added in the order of r.
def _multiply_sparse(
    out: Any, out_step: int, b: Any, b_step: int, outs: Any, which: Any, amounts: Any,
    firsts: Any, ends: Any, steps: int, rows: int, vectors: int, lanes: int,
) -> None:  # fmt: skip
    for step in range(steps):
        for r in range(rows):
            at = 0
            while at < vectors:
                kind, place = min(VECTORS, vectors - at), at * lanes
                target = out, step * out_step + outs[r] + place, 0
                source = b, step * b_step + place, 0
                lay(kind, target, source, which, amounts, (firsts[r], ends[r]))
                at += kind


sparse_multiplier = by_address(_multiply_sparse, "xnxnppxppnnnn", [llvm_code_and_products])


@written
def sparse_product(
    code: Code, by: Any, out: Any, b: Any, outs: Any, which: Any, amounts: Any, firsts: Any,
    ends: Any, size: Any,
) -> None:  # fmt: skip
    """Write LLVM code, into `code`, that adds a sparse matrix times a dense matrix b to `out`.

    For each row r: out[outs[r]:] += Σ amounts[m] · b[which[m]:] over firsts[r] ≤ m < ends[r].
    amounts are the sparse matrix's non-zero values; outs and which are offsets of rows of out
    and b. All five are (array, offset). This is done `steps` times; out and b are (array, offset,
    stride), and begin one stride further each time. `size` is (steps, rows, vectors, lanes): a row
    of b has vectors · lanes numbers. `by` is the address of the code of `sparse_multiplier`.
    """
    call_address(code, by, out, b, outs, which, amounts, firsts, ends, size)


@written
def lift(
    code: Code, kind: Any, errors: Any, laid: Any, moved: Any, seats: Any, amounts: Any,
    sums: Any, count: Any,
) -> None:  # fmt: skip
    """Write LLVM code, into `code`, that backpropagates through additions of one block to an image.

    In the forward pass (`lay`), for each m < `count`, amounts[m] times the block was added to the
    image, seats[m] numbers behind its offset. `laid` has the block, of this `kind`, `errors` the
    image's gradients: both are (array, offset, row stride). The block's gradient is added to the
    array `moved`, at laid's offset and row stride. The gradient of amounts[m] is added to vector m
    of the array `sums`; `total` adds up its numbers.
    """
    builder, kinds = code.builder, code.kinds
    errors, at, apart = cgutils.unpack_tuple(builder, errors)
    laid, under, below = cgutils.unpack_tuple(builder, laid)
    tile = _Tile(code, kinds[1][0].dtype, at.type)
    image = tile.data(kinds[1][0], errors, at)
    row, target = tile.data(kinds[2][0], laid, under), tile.data(kinds[3], moved, under)
    zero = ir.Constant(at.type, 0)
    seats, amounts = tile.data(kinds[4], seats, zero), tile.data(kinds[5], amounts, zero)
    totals = tile.data(kinds[6], sums, zero)

    def write(case: int, some: range) -> None:
        weights = tile.load_all(tile.pointers(row, case, below, some))
        targets = tile.pointers(target, case, below, some)

        def add(moves: list[Any], m: Any) -> list[Any]:
            seat = builder.gep(image, [builder.load(builder.gep(seats, [m]))])
            amount = tile.spread(builder.gep(amounts, [m]))
            lanes = builder.mul(m, ir.Constant(m.type, tile.lanes))
            place = tile.at(totals, lanes)
            total = tile.load(place)
            values = tile.load_all(tile.pointers(seat, case, apart, some))
            for value, weight in zip(values, weights, strict=True):
                total = tile.fma(value, weight, total)
            tile.store(total, place)
            return [tile.fma(amount, v, g) for v, g in zip(values, moves, strict=True)]

        moves = loop(builder, tile.load_all(targets), zero, count, add)
        tile.store_all(moves, targets)

    tile.write(kind, write)


@partial(written, result=None)
def total(code: Code, sums: Any, at: Any) -> Any:
    """Write LLVM code, into `code`, for the sum of the numbers of a 512-bit vector, sums[at:]."""
    builder, tile = code.builder, _Tile(code, code.kinds[0].dtype, at.type)
    value = tile.load(tile.at(tile.data(code.kinds[0], sums, at)))
    word, lanes = ir.IntType(32), tile.lanes
    while lanes > 1:
        lanes //= 2
        halves = [
            builder.shuffle_vector(
                value,
                ir.Constant(value.type, ir.Undefined),
                ir.Constant(ir.VectorType(word, lanes), list(range(first, first + lanes))),
            )
            for first in (0, lanes)
        ]
        value = builder.fadd(*halves)
    return builder.extract_element(value, ir.Constant(word, 0))

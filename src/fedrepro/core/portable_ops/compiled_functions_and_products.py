"""Functions compiled by Numba, and matrix products: the same bits on every processor.

A product is written in LLVM's vectors, which each machine maps to its registers. An element of the
result is one chain of fused multiply-adds in a fixed order, however many are computed at a time. No
library is called. Nothing here allows `fastmath`. Callers leave out the argument `code`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numba
import numpy as np
import xxhash
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped
from numba.core import config
from numba.extending import intrinsic, overload

from fedrepro.core.portable_ops import padding_and_alignment
from fedrepro.core.portable_ops.compilation import OPTIONS, cached, one_process
from fedrepro.core.portable_ops.padding_and_alignment import PAD

Array = np.ndarray[Any, Any]
cgutils: Any = untyped
numba_types: Any = types
Function = Callable[..., Any]


def named_after(function: Function, calls: Collection[ModuleType]) -> None:
    """Append a hash of the source of the modules `calls` to a function's name.

    Numba finds cached code by a function's name and own file, and misses changes in other modules.
    """
    sources = "".join(inspect.getsource(module) for module in (padding_and_alignment, *calls))
    function.__qualname__ += f"_{xxhash.xxh3_64_hexdigest(sources.encode())}"


def compiled(function: Function, calls: Collection[ModuleType] = ()) -> Any:
    """Compile a function that calls compiled functions of the modules `calls`, cached on disk.

    Division by zero gives infinity, as in NumPy, since a check for it would prevent vector code.
    """
    named_after(function, calls)
    dispatcher = cached(partial(numba.njit, error_model="numpy"), function)
    compile_now, name = dispatcher.compile, function.__qualname__

    def compile_or_wait(kinds: Any) -> Any:
        with one_process(f"{name}{kinds}"):
            return compile_now(kinds)

    dispatcher.compile = compile_or_wait  # one process compiles, all others read the cache
    return dispatcher


def inner(function: Function) -> Any:
    """Compile a function that only compiled functions call; its code is cached within theirs."""
    return numba.njit(**OPTIONS)(function)


def overloaded(choose: Function) -> Function:
    """Make a function for compiled code, whose implementation depends on its arguments' types.

    choose(*Numba types) returns the Python function to compile for arguments of these types.
    """

    def called(*_: Any) -> Any:
        raise NotImplementedError  # outside of compiled code

    overload(called, jit_options=OPTIONS, strict=False)(choose)
    return called


def by_type(plain: Function, kinds: Mapping[type, Function], field: str = "") -> Function:
    """Make a function, for compiled code, that dispatches on the type of its first argument.

    `kinds` maps a class of named tuples to the function to call; `plain` is called for all others.
    With `field`, the type of the argument's field of this name decides.
    """

    @overloaded
    def called(first: Any, *_: Any) -> Function:
        kind = first.types[first.instance_class._fields.index(field)] if field else first
        return kinds.get(getattr(kind, "instance_class", type(None)), plain)

    return called


def nothing(*_: Any) -> None:
    """Do nothing: a function that `by_type` may call for types of arguments that need no work."""


class Code(NamedTuple):
    """LLVM code of a function: Numba context, LLVM builder, and `kinds`, arguments' Numba types."""

    context: Any
    builder: Any
    kinds: Any

    def at(self, kind: Any, array: Any, at: Any) -> Any:
        """Return an LLVM pointer to element `at` of an `array` of Numba type `kind`."""
        if isinstance(kind, types.Array):
            array = self.context.make_array(kind)(self.context, self.builder, array).data
        return self.builder.gep(array, [at])


def written(write: Function, result: Any = types.void) -> Any:
    """Make a function that compiled code can call, from `write`, which writes its LLVM code.

    write(code, *arguments) gets a `Code`, which callers leave out, and an LLVM value for each
    argument. It returns the LLVM value of the result, if any. `result` is the Numba type of the
    result, by default none; if it is None, the result has the number type of the first argument.
    """

    def typed(typing: Any, *kinds: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = write(Code(context, builder, signature.args), *arguments)
            return context.get_dummy_value() if value is None else value

        return (result or getattr(kinds[0], "dtype", kinds[0]))(*kinds), generate

    vars(typed)["__signature__"] = inspect.signature(write)
    typed.__name__ = write.__name__
    return intrinsic(typed)


@inner
def clear(values: Array, first: int, end: int) -> None:
    """Set values[first:end] to zero, by a loop, which Numba compiles far quicker than a slice."""
    for k in range(first, end):
        values[k] = 0


padded_to, row_of = inner(padding_and_alignment.padded_to), inner(padding_and_alignment.row_of)


NAMED: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
WIDE = "+avx512f" in NAMED if NAMED else bool(binding.get_host_cpu_features().get("avx512f"))
# how many rows and columns of a product are computed at a time: accumulators fill the registers
ROWS, COLUMNS = (12, 32) if WIDE else (6, 16)
HALF = COLUMNS // 2
BROAD = HALF + PAD  # with AVX-512, one vector and a half
HEIGHTS = (1, *range(2, ROWS + 1, 2))
VECTOR = 512  # bits; LLVM makes of them what the machine has
PLAIN = np.uint64  # an index of this type is not looked at for whether it counts from the end
SQUARE = 8  # side of the squares in which a matrix is transposed
FEW = 4096  # numbers that stay in the first cache
# columns and terms of a sum at a time: wide rows, or what they are read from comes in too slowly
PANEL, TERMS_OF_PANEL = 4 * COLUMNS, 64


class Vectors:
    """Emits LLVM instructions by `builder` on vectors of `lanes` numbers of type `dtype`.

    By default a vector has 512 bits. Methods take and return LLVM values.
    """

    def __init__(self, builder: Any, dtype: Any, lanes: int | None = None) -> None:
        bits = dtype.bitwidth
        self.builder, self.bytes, self.lanes = builder, bits // 8, lanes or VECTOR // bits
        self.number = dtype
        self.type = ir.VectorType(ir.FloatType() if bits == 32 else ir.DoubleType(), self.lanes)
        self.fused = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(self.type, [self.type] * 3),
            f"llvm.fma.v{self.lanes}f{bits}",
        )

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.builder.call(self.fused, [a, b, c])

    def spread(self, pointer: Any) -> Any:
        """Write LLVM code that copies the number at `pointer` into all elements of a vector."""
        nowhere, word = ir.Constant(self.type, ir.Undefined), ir.IntType(32)
        number = self.builder.load(pointer)
        lane = self.builder.insert_element(nowhere, number, ir.Constant(word, 0))
        zeros = ir.Constant(ir.VectorType(word, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(lane, nowhere, zeros)

    def at(self, pointer: Any, place: Any = None) -> Any:
        """Return an LLVM pointer to the vector `place` numbers (None: 0) behind `pointer`."""
        if place is not None:
            pointer = self.builder.gep(pointer, [place])
        return self.builder.bitcast(pointer, self.type.as_pointer())

    def load(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=self.bytes)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, pointer, align=self.bytes)

    def load_some(self, pointer: Any, lanes: int) -> Any:
        """Write code that loads `lanes` numbers at `pointer` as a vector; others are undefined."""
        few = Vectors(self.builder, self.number, lanes)
        return self.resized(few.load(few.at(pointer)), lanes, self.lanes)

    def store_some(self, value: Any, pointer: Any, lanes: int) -> None:
        """Write code that stores the first `lanes` numbers of the vector `value` at `pointer`."""
        few = Vectors(self.builder, self.number, lanes)
        few.store(self.resized(value, self.lanes, lanes), few.at(pointer))

    def resized(self, value: Any, lanes: int, to: int) -> Any:
        if lanes == to:
            return value
        kept = [min(lane, lanes) for lane in range(to)]  # number `lanes` is undefined
        indices = ir.Constant(ir.VectorType(ir.IntType(32), to), kept)
        return self.builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), indices)


def _tile_of(
    typing: Any, columns: Any, rows: Any, terms: Any, out: Any, begin: Any, a: Any, b: Any, of: Any
) -> Any:
    """Return (signature, generator), for Numba, of LLVM code for a block of begin + a @ b."""
    width, listed = columns.literal_value, isinstance(of, types.BaseTuple)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, rows, terms, *matrices, of = arguments
        index, number = rows.type, signature.args[3][0].dtype
        vector = Vectors(builder, number, min(width, VECTOR // number.bitwidth))
        parts = [cgutils.unpack_tuple(builder, value) for value in matrices]
        out, begin, a, b = (builder.gep(data, [at]) for data, at, *_ in parts)
        (out_row,), (begin_row,), a_steps, b_steps = (steps for _, _, *steps in parts)
        runs, length = cgutils.unpack_tuple(builder, terms)
        if listed:
            places, first = cgutils.unpack_tuple(builder, of)
            of = builder.gep(places, [first])

        def constant(value: int) -> Any:
            return ir.Constant(index, value)

        def place(at: Any) -> Any:
            # hidden from LLVM, which would keep a pointer for each row and turn, most in memory
            known, kind = width >= COLUMNS or not listed, ir.FunctionType(index, [index])
            return at if known else builder.asm(kind, "", "=r,0", [at], False)

        def across(pointer: Any, at: Any) -> list[Any]:
            starts = range(0, width, vector.lanes)
            return [builder.gep(pointer, [builder.add(at, constant(start))]) for start in starts]

        def load(pointers: list[Any]) -> list[Any]:
            *whole, last = pointers
            return [*(vector.load(vector.at(each)) for each in whole), vector.load_some(last, rest)]

        rest = width - (width - 1) // vector.lanes * vector.lanes

        def row_of_a(r: int) -> Any:
            at = builder.load(builder.gep(of, [constant(r)])) if listed else constant(r)
            return builder.gep(a, [at if listed else builder.mul(at, of)])

        def tile(height: int) -> None:
            each = [row_of_a(r) for r in range(height)]

            def run(sums: list[Any], turn: Any) -> list[Any]:
                a_at, b_at = builder.mul(turn, a_steps[0]), builder.mul(turn, b_steps[0])

                def add(sums: list[Any], k: Any) -> list[Any]:
                    at = place(builder.add(b_at, builder.mul(k, b_steps[1])))
                    values = load(across(b, at))
                    at, new = place(builder.add(a_at, builder.mul(k, a_steps[1]))), []
                    for r, row in enumerate(each):
                        factor = vector.spread(builder.gep(row, [at]))
                        own = sums[r * len(values) : (r + 1) * len(values)]
                        new += [vector.fma(factor, v, s) for v, s in zip(values, own, strict=True)]
                    return new

                return loop(builder, sums, constant(0), length, add)

            def pointers(matrix: Any, step: Any) -> list[list[Any]]:
                return [across(matrix, builder.mul(constant(r), step)) for r in range(height)]

            sums = [value for row in pointers(begin, begin_row) for value in load(row)]
            sums = loop(builder, sums, constant(0), runs, run)
            sums.reverse()
            for row in pointers(out, out_row):
                for pointer in row[:-1]:
                    vector.store(sums.pop(), vector.at(pointer))
                vector.store_some(sums.pop(), row[-1], rest)

        by_height(builder, rows, range(1, ROWS + 1) if listed else HEIGHTS, tile)
        return context.get_dummy_value()

    return types.void(numba_types.literal(width), types.intp, terms, out, begin, a, b, of), generate


tile: Any = intrinsic(prefer_literal=True)(_tile_of)


def by_height(builder: Any, rows: Any, heights: Iterable[int], tile: Callable[[int], None]) -> None:
    """Write an LLVM switch: for `rows` = h, one of `heights`, run the code that tile(h) writes."""
    done = builder.append_basic_block("done")
    choice = builder.switch(rows, done)
    for height in heights:
        block = builder.append_basic_block(f"rows{height}")
        choice.add_case(ir.Constant(rows.type, height), block)
        builder.position_at_end(block)
        tile(height)
        builder.branch(done)
    builder.position_at_end(done)


def loop(builder: Any, values: list[Any], first: Any, end: Any, body: Any) -> list[Any]:
    """Write an LLVM loop of values = body(values, k), k from first to end - 1; return values."""
    places = [cgutils.alloca_once_value(builder, value) for value in values]
    step = ir.Constant(first.type, 1)
    with cgutils.for_range_slice(builder, first, end, step, first.type) as (k, _):
        new = body([builder.load(place) for place in places], k)
        for place, value in zip(places, new, strict=True):
            builder.store(value, place)
    return [builder.load(place) for place in places]


def _multiply(
    out: Any, out_row: int, begin: Any, begin_row: int, a: Any, a_row: int, a_inner: int,
    b: Any, b_row: int, rows: int, length: int, columns: int,
) -> None:  # fmt: skip
    """Compute out = begin + a @ b in blocks of registers; *_row are row strides of pointers."""
    # what is read again and again should be the smaller one, or stay in the first cache
    panel = columns if length * columns <= FEW else PANEL
    for first in range(0, columns, panel):
        last = min(first + panel, columns)
        for k in range(0, max(length, 1), TERMS_OF_PANEL):
            terms, row = (1, min(TERMS_OF_PANEL, length - k)), 0
            start, start_row = (out, out_row) if k else (begin, begin_row)
            while row < rows:
                height = min(ROWS, rows - row)
                height -= height % 2 * (height > 1)
                left = (a, row * a_row + k * a_inner, 0, a_inner)
                j = first
                while j < last:
                    target = (out, row * out_row + j, out_row)
                    before = (start, row * start_row + j, start_row)
                    right = (b, k * b_row + j, 0, b_row)
                    if j + COLUMNS <= last:
                        tile(COLUMNS, height, terms, target, before, left, right, a_row)
                        j += COLUMNS
                    elif j + BROAD == last:
                        tile(BROAD, height, terms, target, before, left, right, a_row)
                        j += BROAD
                    elif j + HALF <= last:
                        tile(HALF, height, terms, target, before, left, right, a_row)
                        j += HALF
                    else:
                        tile(PAD, height, terms, target, before, left, right, a_row)
                        j += PAD
                row += height


def by_address(function: Function, arguments: str, calls: Collection[ModuleType] = ()) -> Function:
    """Return a function from a dtype, "float32" or "float64", to `function` compiled for it.

    Compiled code calls that by its `address` (`call_address`), so that large code is compiled once,
    not again within each caller. `arguments` has a letter per argument of `function`: x, a pointer
    to numbers of the dtype; p, a pointer to int64; n, a whole number. `calls` are the modules of
    compiled functions that `function` calls, except its own module.
    """
    named_after(function, calls)

    @cache
    def compiled_for(dtype: str) -> Any:
        numbers, places = (numba_types.CPointer(getattr(types, t)) for t in (dtype, "int64"))
        kinds = {"x": numbers, "p": places, "n": types.intp}
        signature = types.void(*(kinds[letter] for letter in arguments))
        with one_process(f"{function.__qualname__} {dtype}"):
            return cached(partial(numba.cfunc, signature), function)

    return compiled_for


multiplier = by_address(_multiply, "xnxnxnnxnnnn")


@written
def product(code: Code, by: Any, out: Any, begin: Any, a: Any, b: Any, size: Any) -> None:
    """Write LLVM code, into `code`, that computes out = begin + a @ b.

    `size` is (rows, inner, columns), columns a multiple of 8 (PAD). `by` is the address of the code
    that `multiplier` compiles. out, begin (rows, columns) and b (inner, columns) are (flat array,
    offset, row stride), where stride 0 of `begin` repeats a row; a (rows, inner) is (flat array,
    offset, row stride, column stride). An element is begin + a_0 b_0 + …, by fma in this order.
    """
    call_address(code, by, out, begin, a, b, size)


def call_address(code: Code, address: Any, *tuples: Any) -> None:
    """Write LLVM code that calls the compiled function at a memory address, an LLVM value.

    Its arguments are the items of `tuples`; (array, offset) that begin a tuple become one pointer.
    """
    builder, values = code.builder, []
    for kind, value in zip(code.kinds[1:], tuples, strict=True):
        parts = cgutils.unpack_tuple(builder, value)
        if isinstance(kind[0], types.Array):
            parts[:2] = [code.at(kind[0], *parts[:2])]
        values += parts
    function = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    builder.call(builder.inttoptr(address, function.as_pointer()), values)


@partial(written, result=None)
def fma(code: Code, a: Any, b: Any, c: Any) -> Any:
    """Write LLVM code, into `code`, for a · b + c rounded once: the same bits on every machine."""
    return code.builder.fma(a, b, c)


@written
def turn_square(
    code: Code, source: Any, at: Any, row: Any, to: Any, first: Any, apart: Any
) -> None:
    """Write LLVM code, into `code`, that transposes 8 × 8 numbers (SQUARE) by shuffles.

    They begin at source[at], with row stride `row`; the result at to[first], row stride `apart`.
    """
    builder, kinds = code.builder, code.kinds
    lanes, size = range(SQUARE), SQUARE // 2
    vector = Vectors(builder, kinds[0].dtype, SQUARE)
    indices = ir.VectorType(ir.IntType(32), SQUARE)

    def pointers(kind: Any, array: Any, start: Any, step: Any) -> list[Any]:
        begin = code.at(kind, array, start)
        return [vector.at(begin, builder.mul(ir.Constant(step.type, r), step)) for r in lanes]

    def chosen(pair: tuple[Any, Any], which: list[int]) -> Any:
        return builder.shuffle_vector(*pair, ir.Constant(indices, which))

    rows = [vector.load(pointer) for pointer in pointers(kinds[0], source, at, row)]
    while size:  # blocks of this side change places across the diagonal, then smaller ones
        for r in lanes:
            if not r & size:
                pair = rows[r], rows[r + size]
                rows[r] = chosen(pair, [n + (SQUARE - size) * bool(n & size) for n in lanes])
                rows[r + size] = chosen(pair, [n + (SQUARE if n & size else size) for n in lanes])
        size //= 2
    for value, pointer in zip(rows, pointers(kinds[3], to, first, apart), strict=True):
        vector.store(value, pointer)


@inner
def transpose(source: Any, rows: int, columns: int, to: Any) -> None:
    """Write the transpose of `source` (rows, columns) to `to`, both (array, offset, row stride)."""
    (values, at, step), (out, first, apart) = source, to
    whole, broad = rows // SQUARE * SQUARE, columns // SQUARE * SQUARE
    for i in range(0, whole, SQUARE):
        for j in range(0, broad, SQUARE):
            turn_square(values, at + i * step + j, step, out, first + j * apart + i, apart)
    for i in range(rows):
        for j in range(broad if i < whole else 0, columns):
            out[first + j * apart + i] = values[at + i * step + j]

"""Processor instructions in compiled code: prefetch memory, flush subnormal numbers to zero."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as untyped
from numba.extending import intrinsic

cgutils: Any = untyped

X86 = platform.machine() in ("x86_64", "AMD64")
FLUSHED = 0x8040  # bits of the register: of results, and of operands


def _fetch(typing: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # to read, into the second cache, data and no code
        builder.call(ask, [place, *(ir.Constant(number, value) for value in (0, 2, 1))])
        return context.get_dummy_value()

    return types.void(array, at), generate


# asks for the cache line that holds array[at], so that it is in the cache when it is needed
fetch: Any = intrinsic(_fetch)


def _mode(builder: Any, name: str, place: Any) -> None:
    """Write LLVM code that copies the CPU's floating-point modes (x86: MXCSR) to memory, or back.

    `name` is 'st' to store them at the pointer `place`, or 'ld' to load them from there.
    """
    pointer = builder.bitcast(place, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type])
    ask = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}mxcsr")
    builder.call(ask, [pointer])


def _flush(typing: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
        if X86:
            _mode(builder, "st", place)
        before = builder.load(place)
        builder.store(builder.or_(before, ir.Constant(before.type, FLUSHED)), place)
        if X86:
            _mode(builder, "ld", place)
        return before

    return types.uint32(), generate


def _restore(typing: Any, before: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if X86:
            _mode(builder, "ld", cgutils.alloca_once_value(builder, arguments[0]))
        return context.get_dummy_value()

    return types.void(types.uint32), generate


# Between `flush` and `restore` subnormal numbers count as zero, since a multiplication of one takes
# a processor many times as long. `restore` takes the modes that `flush` returned.
flush: Any = intrinsic(_flush)
restore: Any = intrinsic(_restore)

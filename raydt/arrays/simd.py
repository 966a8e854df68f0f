"""What the compiler cannot be told in Python: int64 added in pairs, powers of 2 made of bits, rows fetched ahead.

Each half of a vector is an addition of int64 of its own: exact, and the same bits as two additions, whatever the
numbers are, so that no bound is needed.
"""

from __future__ import annotations

from typing import Any

from raydt.arrays.kernel import emitted_kernel


@emitted_kernel
def add_pair(typing_context: Any, sums: Any, s: Any, first: Any, second: Any) -> Any:
    """``sums[s, 0] += first; sums[s, 1] += second`` of an int64 array, shape (n, 2), in C order; ``s`` is not checked.

    A vector of both addends is made once for a loop in which they do not change.
    """
    from llvmlite import ir
    from numba.core import types

    if not (isinstance(sums, types.Array) and sums.ndim == 2 and sums.layout == "C" and sums.dtype == types.int64):
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, *addends = arguments
        data = context.make_array(sums)(context, builder, value=array).data
        words, wide = ir.VectorType(ir.IntType(64), 2), ir.IntType(64)
        index = context.cast(builder, index, s, types.uint64)
        cell = builder.gep(builder.bitcast(data, words.as_pointer()), [index])
        pair = ir.Constant(words, ir.Undefined)
        for half, (value, kind) in enumerate(zip(addends, (first, second), strict=True)):
            value = context.cast(builder, value, kind, types.int64)
            pair = builder.insert_element(pair, value, ir.Constant(wide, half))
        total = builder.add(builder.load(cell, align=8), pair)
        builder.store(total, cell, align=8)
        return context.get_dummy_value()

    return types.void(sums, s, first, second), emit


@emitted_kernel
def fetch_row(typing_context: Any, array: Any, row: Any) -> Any:
    """Begin to load ``array[row]``, or the first cells of it, into the cache, and do not wait; ``row`` is not checked.

    Of an array of one or two dimensions in C order. The processor foresees neighbouring rows only; without this, a loop
    over rows that are far apart waits for each.
    """
    from llvmlite import ir
    from numba.core import cgutils, types

    if not (isinstance(array, types.Array) and array.ndim <= 2 and array.layout == "C"):
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(array)(context, builder, value=arguments[0])
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        offset = builder.mul(
            context.cast(builder, arguments[1], row, types.int64), builder.extract_value(made.strides, 0)
        )
        first = builder.gep(builder.bitcast(made.data, byte), [offset])
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        fetch: Any = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, "llvm.prefetch.p0i8"
        )
        for_reading, into_all_caches, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(fetch, [first, for_reading, into_all_caches, data])
        return context.get_dummy_value()

    return types.void(array, row), emit


#: Added to k, it leaves k + 1023 in the lowest bits of a float64: the exponent field of 2**k.
_TO_EXPONENT = 1.5 * 2.0**52 + 1023.0


@emitted_kernel
def power_of_two(typing_context: Any, k: Any) -> Any:
    """2.0**k of a whole k from -1022 to 1023; any bits for others. Unlike a table, it lets loops be vectorised."""
    from llvmlite import ir
    from numba.core import types

    if k != types.float64:
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, number = ir.IntType(64), ir.DoubleType()
        bits = builder.bitcast(builder.fadd(arguments[0], ir.Constant(number, _TO_EXPONENT)), wide)
        return builder.bitcast(builder.shl(bits, ir.Constant(wide, 52)), number)

    return types.float64(k), emit

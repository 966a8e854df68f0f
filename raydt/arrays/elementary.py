"""exp, log, logistic and softmax that have the same bits on every machine.

Invariant: all are made of IEEE additions, multiplications and divisions in a fixed order, without a library's ``exp``.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import emitted_kernel, inner_kernel, kernel

# What the compiler cannot be told in Python: int64 added in pairs, powers of 2 made of bits, rows fetched ahead.
#
# Each half of a vector is an addition of int64 of its own: exact, and the same bits as two additions, whatever the
# numbers are, so that no bound is needed.


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


# Names of the types of arrays, for annotations: one word for each type of entries.

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Slots = Int32s  #: Positions of examples in memory.
AnyArray = npt.NDArray[Any]
Arrays = dict[str, AnyArray]  #: Arrays by name, such as those of a state.


#: 1/n! for n from 3 on.
_T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12, _T13 = (1.0 / math.factorial(n) for n in range(3, 14))
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_LN2 = 0.6931471805599453


@inner_kernel
def exp_of(x: float) -> float:
    """exp(x) for x <= 0 to about 1e-15, 0 below -700: x = k ln 2 + r, 2**k times the Taylor polynomial of r."""
    k = np.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (0.5 + r * _T3)
    middle = (_T4 + r * _T5) + r2 * (_T6 + r * _T7)
    high = (_T8 + r * _T9) + r2 * (_T10 + r * _T11) + r4 * (_T12 + r * _T13)
    value: float = (low + r4 * (middle + r4 * high)) * power_of_two(k)
    return 0.0 if x < -700.0 else value


@inner_kernel
def logistic(x: float) -> float:
    """1 / (1 + exp(-x))."""
    e = exp_of(-abs(x))
    p: float = (1.0 if x >= 0 else e) / (1.0 + e)
    return p


@inner_kernel
def probabilities(F: Any, p: Any) -> None:
    """Softmax of ``F``, shape (K,), into ``p``; with one value the logistic function of it."""
    if len(F) == 1:
        p[0] = logistic(F[0])
        return
    top = F[0]
    for k in range(1, len(F)):
        top = max(top, F[k])
    total = 0.0
    for k in range(len(F)):
        p[k] = exp_of(F[k] - top)
        total += p[k]
    for k in range(len(F)):
        p[k] /= total


#: Rows whose probabilities are computed together, class after class, so that the loops are vectorised.
TOGETHER = 128


@inner_kernel
def probabilities_together(F: Any, begin: Any, n: Any, p: Any) -> None:
    """Probabilities of ``n`` rows from ``begin`` on; ``F`` has shape (K', rows), ``p`` (K' + 2, TOGETHER).

    They are in ``p[:K', :n]``; the rest is scratch. The operations on a row, and so the bits, are those of
    :func:`probabilities`.
    """
    per = np.uint64(len(F))
    if per == 1:
        for i in range(n):
            p[0, i] = logistic(F[0, begin + i])
        return
    top, total = p[per], p[per + np.uint64(1)]
    for i in range(n):
        top[i], total[i] = F[0, begin + i], 0.0
    for k in range(np.uint64(1), per):
        for i in range(n):
            top[i] = max(top[i], F[k, begin + i])
    for k in range(per):
        of_class = p[k]
        for i in range(n):
            e = exp_of(F[k, begin + i] - top[i])
            of_class[i] = e
            total[i] += e
    for k in range(per):
        of_class = p[k]
        for i in range(n):
            of_class[i] /= total[i]


@kernel
def _softmax(F: Any, out: Any) -> None:
    for i in range(len(F)):
        probabilities(F[i], out[i])


def softmax(F: Floats) -> Floats:
    """Probabilities of the classes, shape (n, K), of F, shape (n, K); of one logit, shape (n, 1), those of two."""
    p = np.empty_like(F)
    _softmax(np.ascontiguousarray(F), p)
    return np.concatenate([1.0 - p, p], axis=1) if F.shape[1] == 1 else p


@inner_kernel
def log_of(x: float) -> float:
    """log(x) of a positive number, the same bits as :func:`natural_log`."""
    m, e = math.frexp(x)
    if m < 0.7071067811865476:
        m, e = 2.0 * m, e - 1
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, 0.0
    for n in range(25, 0, -2):
        series = series * square + 1.0 / n
    value: float = e * _LN2 + 2.0 * s * series
    return value


def natural_log(x: Floats) -> Floats:
    """Natural logarithm of positive numbers: x = m 2**e with m near 1, and 2 artanh((m - 1) / (m + 1))."""
    m, e = np.frexp(x)
    low = m < 0.7071067811865476
    m, e = np.where(low, 2.0 * m, m), e - low
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, np.zeros_like(s)
    for n in range(25, 0, -2):
        series = series * square + 1.0 / n
    value: Floats = e * _LN2 + 2.0 * s * series
    return value


# Counter-based randomness: a number is a pure function of (seed, purpose, counter).
#
# No generator object, no hidden state: what is drawn does not depend on how often, in which order or in which process
# anything else is drawn. The numbers are those of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
# generators", OOPSLA 2014) started at a key made of seed and purpose; ``counter`` is the place in that sequence.
#
# Invariant: the NumPy functions and their ``*_at`` twins for Numba give identical bits. Only integer operations and one
# exact float multiplication are used, so the values do not depend on platform or library; for the same reason there is
# no normal deviate here (it needs ``log``, which differs in the last bit).

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ONE, _11, _27, _30, _31 = (np.uint64(n) for n in (1, 11, 27, 30, 31))
_TO_UNIT = 2.0**-53


def stream_key(seed: int, purpose: str) -> np.uint64:
    """Key of the sequence that ``purpose`` draws from under ``seed``: any integer, any name."""
    key: np.uint64 = np.uint64(int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:8], "little"))
    return key


def bits(key: np.uint64, counter: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """Return 64 random bits of a :func:`stream_key` for each counter, which is at least 0; shape of ``counter``."""
    z = counter.astype(np.uint64)
    z += _ONE
    z *= _GAMMA
    z += key
    shifted = z >> _30
    z ^= shifted
    z *= _MIX_1
    z ^= np.right_shift(z, _27, out=shifted)
    z *= _MIX_2
    z ^= np.right_shift(z, _31, out=shifted)
    return z


def uniform(key: np.uint64, counter: npt.NDArray[np.integer]) -> Floats:
    """Uniform float64 in [0, 1), a multiple of 2**-53, for each counter; shape of ``counter``."""
    z = bits(key, counter)
    z >>= _11
    unit = z.astype(np.float64)
    unit *= _TO_UNIT
    return unit


def below(key: np.uint64, counter: npt.NDArray[np.integer], n: int | npt.NDArray[np.integer]) -> Ints:
    """Integer in [0, n) for each counter (one n, or one for each); probabilities are equal to n * 2**-53 (relative)."""
    return (uniform(key, counter) * n).astype(np.int64)


def permutation(key: np.uint64, n: int) -> Ints:
    """The numbers 0 to ``n`` - 1 in the order of their random bits, of equals the smaller first. O(n log n)."""
    return np.argsort(bits(key, np.arange(n)), kind="stable")


@kernel
def bits_at(key: np.uint64, counter: int) -> np.uint64:
    """:func:`bits` of one counter, for use inside Numba kernels."""
    z = key + (np.uint64(counter) + _ONE) * _GAMMA
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    mixed: np.uint64 = z ^ (z >> _31)
    return mixed


@kernel
def uniform_at(key: np.uint64, counter: int) -> float:
    """:func:`uniform` of one counter, for use inside Numba kernels."""
    unit: float = np.float64(bits_at(key, counter) >> _11) * _TO_UNIT
    return unit


@kernel
def below_at(key: np.uint64, counter: int, n: int) -> int:
    """:func:`below` of one counter, for use inside Numba kernels."""
    number: int = np.int64(uniform_at(key, counter) * n)
    return number


# The bits of numbers, and pairs in order, for kernels.


@emitted_kernel
def bits_of(typing_context: Any, x: Any) -> Any:
    """The bits of a float64, as an int64."""
    from llvmlite import ir
    from numba.core import types

    if x != types.float64:
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(x), emit


@inner_kernel
def sort_pairs(keys: Any, values: Any, n: int) -> None:
    """Sort the first n keys, which all differ, and their values with them: by Shell's method, for few of them."""
    gap = np.int64(1)
    while gap < n:
        gap = 3 * gap + 1
    while gap > 1:
        gap //= 3
        for i in range(gap, n):
            key, value, at = keys[i], values[i], i
            while at >= gap and keys[at - gap] > key:
                keys[at], values[at] = keys[at - gap], values[at - gap]
                at -= gap
            keys[at], values[at] = key, value


# Arrays that have something of many things, one after another.


def largest_between(values: Ints, edges: Ints) -> Ints:
    """Return the largest value between every two edges, -1 where there is none."""
    found, some = np.full(len(edges) - 1, -1, dtype=np.int64), np.flatnonzero(np.diff(edges))
    if len(some):
        found[some] = np.maximum.reduceat(values, edges[some])
    return found

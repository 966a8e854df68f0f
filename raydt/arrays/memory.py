"""Large arrays, mapped on their own: dropped ones go back to the system, which the C allocator does not ensure."""

from __future__ import annotations

import contextlib
import math
import mmap

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray

#: Bytes from which an array is mapped on its own.
LARGE = 1 << 18
#: Bytes from which it asks for pages of this size: where the system has them, the first use of memory costs a tenth.
HUGE = 1 << 21
#: Bytes that are copied before their pages go back.
_COPIED = 1 << 23


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
    """As ``numpy.empty``."""
    kind = np.dtype(dtype)
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    size = count * kind.itemsize
    if size < LARGE:
        return np.empty(shape, dtype=kind)
    pages = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)  # private: shared pages cost more, and are never huge
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=kind, count=count).reshape(shape)


def trimmed(array: AnyArray, length: int) -> AnyArray:
    """Return the first ``length`` rows of ``array`` without room for more: a copy, unless there is none."""
    return array if len(array) <= length else array[:length].copy()


def grown(array: AnyArray, capacity: int) -> AnyArray:
    """A copy of ``array`` with ``capacity`` rows; new ones are 0 and, of a large array, cost no memory yet."""
    longer = empty((capacity, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    if longer.nbytes < LARGE:
        longer[len(array) :] = 0
    return longer


def extended(array: AnyArray, capacity: int) -> AnyArray:
    """As :func:`grown`, of an array that nobody uses again: its pages go back while it is copied, so both cost one."""
    pages: object = array
    while isinstance(pages, np.ndarray):
        pages = pages.base
    pages = pages.obj if isinstance(pages, memoryview) else pages
    if not (isinstance(pages, mmap.mmap) and len(pages) == array.nbytes and hasattr(mmap, "MADV_DONTNEED")):
        return grown(array, capacity)
    longer = empty((capacity, *array.shape[1:]), array.dtype)
    old, new = array.reshape(-1).view(np.uint8), longer.reshape(-1).view(np.uint8)
    copied = 0
    try:
        for begin in range(0, len(old), _COPIED):
            some = slice(begin, min(begin + _COPIED, len(old)))
            new[some] = old[some]
            copied = some.stop
            pages.madvise(mmap.MADV_DONTNEED, begin, some.stop - begin)
    except BaseException:  # an interrupt: the old array is still the one in use
        old[:copied] = new[:copied]
        raise
    return longer

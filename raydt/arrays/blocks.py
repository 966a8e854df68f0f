"""Parts of a matrix: some of its rows, and neighbouring columns of these.

NumPy looks up every number of such a part on its own; here a row is found once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from raydt.arrays.kernel import kernel
from raydt.arrays.memory import empty
from raydt.arrays.types import AnyArray, Bools, Floats, Int32s, Ints
from raydt.messages import message
from raydt.parallel.threads import ranges, run

#: Bits of a float64: of its exponent, which are all set in NaN and infinity, and of -0.0.
_EXPONENT, _NEGATIVE_ZERO = np.int64(0x7FF << 52), np.int64(-(1 << 63))
#: Cells that are worth the start of another thread.
_FEW_CELLS = 1 << 17


@kernel
def _copy(X: Any, rows: Any, first: int, part: Any) -> None:
    """``part[i, j] = X[rows[i], first + j]``."""
    for i in range(len(rows)):
        for j in range(part.shape[1]):
            part[i, j] = X[rows[i], first + j]


@kernel
def _turn(X: Any, rows: Any, begin: int, end: int, first: int, part: Any) -> None:
    """``part[j, i] = X[rows[i], first + j]``, of the rows from ``begin`` to before ``end``."""
    for i in range(np.uint64(begin), np.uint64(end)):
        row = np.uint32(rows[i])  # unsigned: no test for an index from the end
        for j in range(len(part)):
            part[j, i] = X[row, first + j]


@kernel
def is_clean(bits: Any) -> bool:
    """Return True if no float64 among some, given by their bits, is NaN, infinite or a negative zero."""
    unusable = np.int64(0)
    for i in range(len(bits)):
        unusable |= np.int64((bits[i] & _EXPONENT) == _EXPONENT) | np.int64(bits[i] == _NEGATIVE_ZERO)
    return bool(unusable == 0)


def equal_rows(X: Floats, row: Floats) -> Bools:
    """Return which rows equal a row in every column, shape (rows,); NaN equals NaN."""
    equal: Bools = ((row == X) | (np.isnan(X) & np.isnan(row))).all(axis=1)
    return equal


def put_rows(X: Floats, at: AnyArray, rows: Floats) -> None:
    """Copy rows to some places of a matrix: in threads where the places are neighbours."""
    place = as_slice(at)
    if not isinstance(place, slice):
        X[at] = rows
        return
    target, parts = X[place], ranges(len(at), _FEW_CELLS // max(1, X.shape[1]), 4)
    run([partial(np.copyto, target[part], rows[part]) for part in parts])


def block(X: Floats, rows: AnyArray, columns: Ints) -> Floats:
    """Copy some rows of neighbouring columns, which ascend without a gap; shape (rows, columns). O(rows x columns).

    A gap, or a row or column that X does not have, is an ``IndexError``.
    """
    part = empty((len(rows), len(columns)), np.float64)
    if part.size:
        _copy(X, *_checked(X, rows, columns), part)
    return part


def blocks(X: Floats, rows: AnyArray, parts: Sequence[Ints]) -> list[Floats]:
    """As :func:`block` of several ranges of columns, each in a task of its own."""
    tasks = [partial(block, X, rows, columns) for columns in parts]
    return run(tasks) if len(rows) * X.shape[1] >= _FEW_CELLS else [task() for task in tasks]


def taken(values: AnyArray, at: AnyArray) -> AnyArray:
    """Return ``values[at]``, in threads where they are many; IndexError for a place that there is not."""
    out = np.empty((len(at), *values.shape[1:]), values.dtype)

    def take(part: slice) -> None:
        if len(at[part]) and not (at[part].min() >= 0 and at[part].max() < len(values)):
            raise IndexError(f"places from {at[part].min()} to {at[part].max()} of {len(values)}")
        np.take(values, at[part], axis=0, out=out[part], mode="clip")  # any other mode makes another copy

    run([partial(take, part) for part in ranges(len(at), _FEW_CELLS)])
    return out


def turned_block(X: Floats, rows: AnyArray, columns: Ints, scratch: Floats | None = None) -> Floats:
    """As :func:`block`, transposed: shape (columns, rows); ``scratch``, of at least as many columns, may take them.

    Threads copy ranges of rows.
    """
    part = empty((len(columns), len(rows)), np.float64) if scratch is None else scratch[: len(columns)]
    if part.size:
        sound, first = _checked(X, rows, columns)
        each = ranges(len(rows), _FEW_CELLS // len(columns), 4)
        run([partial(_turn, X, sound, own.start, own.stop, first, part) for own in each])
    return part


def as_slice(rows: AnyArray) -> AnyArray | slice:
    """Return neighbouring ascending rows as a slice, by which NumPy copies no or less; others as they are. O(rows)."""
    n = len(rows)
    if n and int(rows[-1]) - int(rows[0]) == n - 1 and (n == 1 or bool((rows[1:] > rows[:-1]).all())):
        return slice(int(rows[0]), int(rows[0]) + n)
    return rows


def _checked(X: Floats, rows: AnyArray, columns: Ints) -> tuple[Int32s, int]:
    """Rows and the first column, as kernels take them, which look at no bounds."""
    taken, first, last = np.require(rows, np.int32, ["C", "W"]), int(columns[0]), int(columns[-1])
    within = taken.min() >= 0 and taken.max() < len(X) and first >= 0 and last < X.shape[1]
    if not within or last - first + 1 != len(columns):
        ends = {"rows": (taken.min(), taken.max()), "first": first, "last": last}
        raise IndexError(message("states.outside", columns=len(columns), shape=X.shape, **ends))
    return taken, first

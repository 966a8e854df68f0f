"""Parts of a matrix: some of its rows, and neighbouring columns of these.

NumPy looks up every number of such a part on its own; here a row is found once.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.messages import message
from raydt.parallel import ranges, run

# Large arrays, mapped on their own: dropped ones go back to the system, which the C allocator does not ensure.

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


def grown(array: AnyArray, capacity: int, used: int | None = None) -> AnyArray:
    """A copy of ``array``, or of its first ``used`` rows, with ``capacity`` rows.

    New rows are 0 and, of a large array, cost no memory yet; a copy of unused ones would.
    """
    known = array[:used]
    longer = empty((capacity, *array.shape[1:]), array.dtype)
    longer[: len(known)] = known
    if longer.nbytes < LARGE:
        longer[len(known) :] = 0
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


class GrowingRows:
    """An array that rows are appended to, amortised O(rows), and of which there are never two copies."""

    def __init__(self, rows: AnyArray) -> None:
        self._rows, self._n, self._shown = rows, len(rows), True

    def append(self, rows: AnyArray) -> None:
        """Append rows; a view from before keeps its own."""
        n = self._n + len(rows)
        if n > len(self._rows):
            self._rows = (grown if self._shown else extended)(self._rows, 2 * n)
            self._shown = False
        self._rows[self._n : n] = rows
        self._n = n

    def view(self) -> AnyArray:
        """All rows so far, writable."""
        self._shown = True
        return self._rows[: self._n]


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
    """As :func:`block` of several ranges of columns, each in a task of its own; few cells of neighbours at once."""
    if len(rows) * X.shape[1] >= _FEW_CELLS:
        return run([partial(block, X, rows, columns) for columns in parts])
    known, ends = np.concatenate([np.empty(0, dtype=np.int64), *parts]), [*accumulate(map(len, parts), initial=0)]
    if (np.diff(known) != 1).any():
        return [block(X, rows, columns) for columns in parts]
    whole = block(X, rows, known)
    return [whole[:, begin:end].copy() for begin, end in pairwise(ends)]


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


# Rows of different lengths by slot, in one array that is compacted when half of it is waste.


@kernel
def _move(begin: Any, end: Any, values: Any, into: Any) -> int:
    """Copy all rows to the front of ``into``; where the last one ends."""
    used = 0
    for slot in range(len(begin)):
        start = used
        for at in range(begin[slot], end[slot]):
            into[used] = values[at]
            used += 1
        begin[slot], end[slot] = start, used
    return used


@kernel
def gather(begin: Any, end: Any, values: Any, slots: Any, into: Any) -> None:
    """Copy the rows of ``slots`` one after the other."""
    used = 0
    for slot in slots:
        for at in range(begin[slot], end[slot]):
            into[used] = values[at]
            used += 1


class RaggedRows(NamedTuple):
    """View of a :class:`RaggedStore` for kernels: the row of a slot is ``values[begin[slot]:end[slot]]``."""

    begin: Ints
    end: Ints
    values: AnyArray


class RaggedStore:
    """Rows of integers by slot. Putting a row takes amortised O(its length); a slot that was never put is empty.

    Arrays are as in :class:`RaggedRows`.
    """

    def __init__(self, dtype: npt.DTypeLike = np.uint32) -> None:
        self.begin = np.zeros(0, dtype=np.int64)
        self.end = np.zeros(0, dtype=np.int64)
        self.values = np.empty(0, dtype=dtype)
        self._used = self._live = 0

    def put(self, slots: Int32s, lengths: Ints, values: AnyArray) -> None:
        """Replace the rows of different ``slots``: ``values`` has them one after the other."""
        if not len(slots):
            return
        need = int(slots.max()) + 1
        if need > len(self.begin):
            have, room = len(self.begin), max(need, len(self.begin) * 3 // 2)
            self.begin, self.end = grown(self.begin, room), grown(self.end, room)
            self.begin[have:] = self.end[have:] = 0
        self._live += len(values) - int((self.end[slots] - self.begin[slots]).sum())
        self.end[slots] = self.begin[slots]
        if self._used + len(values) > len(self.values):
            wasteful = self._used > 2 * self._live  # else there is need of more room
            room = max(self._live, len(self.values) if wasteful else self._live * 3 // 2)
            into = np.empty(room, dtype=self.values.dtype)
            self._used = int(_move(self.begin, self.end, self.values, into))
            self.values = into
        self.end[slots] = self._used + np.cumsum(lengths)
        self.begin[slots] = self.end[slots] - lengths
        self.values[self._used : self._used + len(values)] = values
        self._used += len(values)

    def take(self, slots: Int32s) -> tuple[Ints, AnyArray]:
        """Lengths of the rows of some slots, and their values one after the other."""
        lengths = self.end[slots] - self.begin[slots]
        values = np.empty(int(lengths.sum()), dtype=self.values.dtype)
        gather(self.begin, self.end, self.values, slots, values)
        return lengths, values

    @property
    def rows(self) -> RaggedRows:
        """The arrays, for kernels; valid until the next :meth:`put`."""
        return RaggedRows(self.begin, self.end, self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.begin.nbytes + self.end.nbytes + self.values.nbytes


# Arrays of very many holders, one after another: what is asked of each name is asked of all holders at once.


class Column(NamedTuple):
    """The arrays of one name."""

    values: AnyArray  #: All of them, flat.
    shapes: Ints  #: Shape (arrays, dimensions).
    places: Ints  #: Shape (arrays,), ascending: the number of the holder of each.


# Arrays that are read when they are asked for, so that not all of them are in memory at once.

Key = TypeVar("Key")


class Lazy(Mapping[Key, dict[str, Any]]):
    """Named parts, each made when it is asked for; arrays of ``keep_bytes`` in all are kept once made.

    Arrays that are read-only, since a file is mapped there, do not count.
    """

    def __init__(self, keys: Iterable[Key], make: Callable[[Key], dict[str, Any]], keep_bytes: int = 0) -> None:
        self._parts: dict[Key, dict[str, Any] | None] = dict.fromkeys(keys)
        self._make, self._room = make, keep_bytes

    def __getitem__(self, key: Key) -> dict[str, Any]:
        part = self._parts[key]
        if part is None:
            part = self._make(key)
            if self._room:
                arrays = [value for value in part.values() if isinstance(value, np.ndarray)]
                needed = sum(array.nbytes for array in arrays if array.flags.writeable)
                if needed <= self._room:
                    self._room -= needed
                    self._parts[key] = part
        return part

    def __iter__(self) -> Iterator[Key]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, key: object) -> bool:
        return key in self._parts


# Arrays that are kept compressed: of a model that may not be used for long.

_CODEC = "zstd"


class Compressed(Mapping[str, AnyArray]):
    """Arrays by name, bit for bit those that were given; each access makes a new one. O(bytes) to make and to read."""

    def __init__(self, arrays: Mapping[str, AnyArray]) -> None:
        self._parts = {
            name: (pa.compress(np.ascontiguousarray(one), _CODEC, asbytes=True), one.dtype, one.shape)
            for name, one in arrays.items()
        }

    def __getitem__(self, name: str) -> AnyArray:
        part, dtype, shape = self._parts[name]
        array = np.empty(shape, dtype=dtype)
        if array.nbytes:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(
                pa.decompress(part, array.nbytes, _CODEC, asbytes=True), dtype=np.uint8
            )
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


# Arrow columns of NumPy arrays and lists of text, and back, for which ``pyarrow`` itself would import pandas.


def arrow_column(
    values: pa.Array | AnyArray | Sequence[Any], kind: pa.DataType | None = None, mask: Bools | None = None
) -> pa.Array:
    """Return an Arrow array. Numbers are not copied; NaN is a number, None and values under ``mask`` are null."""
    if isinstance(values, pa.Array):
        return values if kind is None else values.cast(kind)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
        buffers = [valid, pa.py_buffer(np.ascontiguousarray(values))]
        column = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)
        return column if kind is None else column.cast(kind)
    if isinstance(values, list) and kind == pa.string():
        builder = pa.lib.StringBuilder()
        builder.append_values(values)
        return builder.finish()
    return pa.array(values, kind, mask=mask)


def numpy_column(column: pa.ChunkedArray) -> AnyArray:
    """Return a column as ``to_numpy`` does: nulls of numbers are NaN."""
    array = column.combine_chunks()
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        values: AnyArray = array.to_numpy(zero_copy_only=False)
        return values
    valid, data = array.buffers()
    begin, end = array.offset, array.offset + len(array)
    kind = "f" if pa.types.is_floating(array.type) else "u" if pa.types.is_unsigned_integer(array.type) else "i"
    # The name of the dtype: old versions of Arrow import pandas to answer.
    values = np.frombuffer(data or b"", dtype=f"{kind}{array.type.bit_width // 8}")[begin:end]
    if array.null_count:
        values = np.where(np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[begin:end], values, np.nan)
    return values


# Rows of binary features that are given by the indices that are 1.
#
# Invariant: in every row the indices are ascending and distinct, at least 0 and below the number of features. Time and
# memory follow the ones, never rows x features.

#: Indices are int32, so that a number of features is at most this.
LARGEST_WIDTH = 2**31 - 1

_HASH = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@inner_kernel
def group_of(index: int, groups: int) -> int:
    """The feature group of a sparse feature, in 0, ..., ``groups`` - 1: a fixed hash, the same for ever."""
    high = (np.uint64(index) * _HASH) >> _HALF
    group: int = np.int64((high * np.uint64(groups)) >> _HALF)
    return group


@inner_kernel
def is_one(indices: Any, begin: int, end: int, feature: int) -> bool:
    """Return True if a sparse feature is among the ascending ones of a row, ``indices[begin:end]``."""
    low, high = begin, end
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return bool(low < end and indices[low] == feature)


@kernel
def _groups_of(indices: Any, groups: int, out: Any) -> None:
    for i in range(len(indices)):
        out[i] = group_of(indices[i], groups)


@kernel
def _keep(indptr: Any, indices: Any, groups: int, wanted: Any, kept: Any, out: Any) -> None:
    """Copy the ones whose group is ``wanted``; fills ``kept`` (like ``indptr``) and the beginning of ``out``."""
    at = 0
    kept[0] = 0
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            out[at] = indices[k]  # no branch: whose feature it is cannot be predicted
            at += wanted[group_of(indices[k], groups)]
        kept[i + 1] = at


@kernel
def _ascends(indptr: Any, indices: Any, width: int) -> bool:
    """Return True if every row has ascending, distinct indices in 0, ..., ``width`` - 1."""
    for i in range(len(indptr) - 1):
        last = -1
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] <= last or indices[k] >= width:
                return False
            last = indices[k]
    return True


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Rows of binary features."""

    indptr: Ints  #: Shape (n + 1,): row i has the ones ``indices[indptr[i]:indptr[i + 1]]``; the first entry is 0.
    indices: Int32s  #: Shape (number of ones,): ascending and distinct in each row.
    n_features: int

    @classmethod
    def empty(cls, n_features: int, rows: int = 0) -> SparseRows:
        """Rows without ones."""
        return cls(np.zeros(rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32), n_features)

    @classmethod
    def of_lengths(cls, lengths: AnyArray, indices: Int32s, n_features: int) -> SparseRows:
        """Rows from their numbers of ones, shape (n,), and all their indices; taken on trust."""
        indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        return cls(indptr, indices, n_features)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, AnyArray], n_features: int) -> SparseRows:
        """Read rows from what :meth:`arrays` gave; missing or impossible ones are a ``KeyError`` or ``ValueError``."""
        lengths, indices = arrays["sparse_lengths"], arrays["sparse_values"]
        for name, shape in (("sparse_lengths", "rows"), ("sparse_values", "ones")):
            if arrays[name].dtype != np.int32 or arrays[name].ndim != 1:
                raise ValueError(message("states.form", array=name, types="int32", shape=shape))
        if lengths.min(initial=0) < 0 or int(lengths.sum(dtype=np.int64)) != len(indices):
            raise ValueError(message("states.addition", array="sparse_lengths", other="sparse_values"))
        rows = cls.of_lengths(lengths, indices, n_features)
        if not _ascends(rows.indptr, rows.indices, n_features):
            raise ValueError(message("states.sparse_order", array="sparse_values", features=n_features))
        return rows

    def arrays(self) -> dict[str, AnyArray]:
        """As a ragged entry of a state (see ``folders.checkpoint``): ``sparse_lengths``, ``sparse_values``, int32."""
        return {"sparse_lengths": self.lengths.astype(np.int32), "sparse_values": self.indices}

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def lengths(self) -> Ints:
        """Ones of each row, shape (n,)."""
        return np.diff(self.indptr)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.indptr.nbytes + self.indices.nbytes

    def row(self, i: int) -> Int32s:
        """Indices of one row, a view."""
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def __getitem__(self, rows: slice | AnyArray | list[int]) -> SparseRows:
        """Some rows, by a slice (a view of the indices), an array of row numbers or a mask. O(ones of these rows)."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                stop = max(start, stop)
                begin, end = int(self.indptr[start]), int(self.indptr[stop])
                return SparseRows(self.indptr[start : stop + 1] - begin, self.indices[begin:end], self.n_features)
            rows = np.arange(start, stop, step)
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)
        lengths = self.lengths[chosen]
        indices = np.empty(int(lengths.sum()), dtype=np.int32)
        gather(self.indptr[:-1], self.indptr[1:], self.indices, chosen, indices)
        return SparseRows.of_lengths(lengths, indices, self.n_features)

    def copy(self) -> SparseRows:
        """The same rows in arrays of their own, which are writable."""
        return SparseRows(self.indptr.copy(), self.indices.copy(), self.n_features)

    def of_groups(self, groups: AnyArray, of: int) -> SparseRows:
        """Return the same rows with the ones of some feature groups only, of G there are. O(ones)."""
        wanted = np.zeros(of, dtype=np.bool_)
        wanted[groups] = True
        indptr, indices = np.empty_like(self.indptr), np.empty_like(self.indices)
        _keep(self.indptr, self.indices, of, wanted, indptr, indices)
        return SparseRows(indptr, indices[: indptr[-1]].copy(), self.n_features)

    def dense(self) -> Floats:
        """As a matrix of zeros and ones, shape (n, n_features): for few rows and features only."""
        X = np.zeros((len(self), self.n_features))
        X[np.repeat(np.arange(len(self)), self.lengths), self.indices] = 1.0
        return X


def hashed_groups(indices: AnyArray, groups: int) -> Ints:
    """:func:`group_of` of each index."""
    out = np.empty(len(indices), dtype=np.int64)
    _groups_of(np.ascontiguousarray(indices, dtype=np.int64), groups, out)
    return out


def concatenated(parts: Sequence[SparseRows]) -> SparseRows:
    """The rows of all parts, at least one, in order. O(ones)."""
    lengths = np.concatenate([part.lengths for part in parts])
    return SparseRows.of_lengths(lengths, np.concatenate([part.indices for part in parts]), parts[0].n_features)


def merged(parts: Sequence[SparseRows]) -> SparseRows:
    """Rows of which each part, at least one, has other features: the reverse of ``of_groups``. O(ones * log)."""
    first = parts[0]
    row = np.concatenate([np.repeat(np.arange(len(part)), part.lengths) for part in parts])
    indices = np.concatenate([part.indices for part in parts])
    lengths = np.stack([part.lengths for part in parts]).sum(axis=0)
    return SparseRows.of_lengths(lengths, indices[np.lexsort((indices, row))], first.n_features)

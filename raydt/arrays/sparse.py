"""Rows of binary features that are given by the indices that are 1.

Invariant: in every row the indices are ascending and distinct, at least 0 and below the number of features. Time and
memory follow the ones, never rows x features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.ragged import gather
from raydt.arrays.types import AnyArray, Floats, Int32s, Ints
from raydt.messages import message

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
    """Whether a sparse feature is among the ascending ones of a row, ``indices[begin:end]``."""
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
    """Whether every row has ascending, distinct indices in 0, ..., ``width`` - 1."""
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

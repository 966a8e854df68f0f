"""From columns to the features of rows: the one encoder of files, frames and dictionaries.

Invariant: a bad row gives no codes, so that what its categories and tokens are leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows
from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.encoding.columns import (
    Dictionary,
    Faults,
    Mask,
    Tokens,
    holds_tokens,
    in_words,
    inexact,
    infinite,
    is_list,
    missing,
    named_features,
    unconverted,
)
from raydt.errors import InputError
from raydt.examples.updates import Features, Reading
from raydt.messages import message
from raydt.parallel import ranges, run

# A column of lists of indices: the sparse features of a source, all of them in one column.
#
# Invariant: what is read is what the file says. A null list, a null, negative or repeated index, and one beyond the
# number of features make their row bad; only the order within a list, which says nothing, is not kept.

#: Key of a schema's metadata with the number of sparse features.
N_FEATURES = b"n_features"


def holds_indices(kind: pa.DataType) -> bool:
    """Return True if a column of this type holds lists of integers, or lists that are all empty."""
    return is_list(kind) and bool(pa.types.is_integer(kind.value_type) or pa.types.is_null(kind.value_type))


def is_empty_list(kind: pa.DataType) -> bool:
    """Return True if a column of this type holds lists without any value, which could be of any kind."""
    return is_list(kind) and bool(pa.types.is_null(kind.value_type))


def find_indices(types: Mapping[str, pa.DataType], file: str | None, reading: Reading) -> str | None:
    """Return the one column of lists of integers or text; InputError for several, or if the learner takes none."""
    found = [name for name, kind in types.items() if holds_indices(kind) or holds_tokens(kind)]
    if found and not reading.sparse:
        from raydt.learners import instead  # needed for the message only: compiled kernels are imported with it

        others, kind = instead("", lambda other: other.sparse), in_words(types[found[0]])
        said = message("columns.sparse", kind=kind, others=others, features=named_features(file))
        raise InputError(said, file=file, column=found[0])
    if len(found) > 1:
        kind = in_words(types[found[1]])
        said = message("columns.two_lists", kind=kind, other=found[0], features=named_features(file))
        raise InputError(said, file=file, column=found[1])
    return found[0] if found else None


def declared_width(schemas: Sequence[pa.Schema], files: Sequence[str | None]) -> int | None:
    """Return the most sparse features by metadata; None if a file lacks it, InputError if it is no such number."""
    widths = []
    for schema, file in zip(schemas, files, strict=True):
        text = (schema.metadata or {}).get(N_FEATURES)
        if text is None:
            return None
        if not text.isdigit() or not 1 <= int(text) <= LARGEST_WIDTH:
            shown = text.decode(errors="replace")[:40]
            raise InputError(message("columns.bad_width", width=shown, largest=LARGEST_WIDTH), file=file)
        widths.append(int(text))
    return max(widths, default=None)


def width_of(column: pa.Array) -> int:
    """The largest index + 1, at least 1 and at most what int32 holds. O(ones)."""
    largest = pc.max(pc.list_flatten(column)).as_py() if holds_indices(column.type) else None
    return max(1, min(int(largest or 0) + 1, LARGEST_WIDTH))


def read_indices(column: pa.Array, name: str, width: int, needed: Mask | None, faults: Faults) -> SparseRows:
    """Return the lists of indices below ``width`` of a column, and mark rows that cannot be used. O(ones log)."""
    n = len(column)
    faults.mark("no_list", name, np.asarray(column.is_null()), needed)
    if pa.types.is_null(column.type):
        return SparseRows.empty(width, n)
    lengths = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
    flat = pc.list_flatten(column)  # without what lies under a null
    values, row = _as_int64(flat), np.repeat(np.arange(n), lengths)
    if flat.null_count:
        faults.mark("null_index", name, _first(np.asarray(flat.is_null()), row, values, n)[0], needed)
    wrong = (values < 0) | (values >= width)
    if wrong.any():
        found, first = _first(wrong, row, values, n)
        faults.mark("negative_index", name, found & (first < 0), needed, first)
        faults.mark("index_beyond", name, found, needed, first, width=width)
    if ((np.diff(values) <= 0) & (np.diff(row) == 0)).any():
        values = values[np.lexsort((values, row))]
        again = (np.diff(values) == 0) & (np.diff(row) == 0)
        found, first = _first(again, row[1:], values[1:], n)
        faults.mark("repeated_index", name, found, needed, first)
    keep = faults.keep(needed)
    if keep is not None:
        values, lengths = values[keep[row]], np.where(keep, lengths, 0)
    return SparseRows.of_lengths(lengths, values.astype(np.int32), width)


def _first(wrong: Mask, row: AnyArray, values: Ints, n: int) -> tuple[Mask, Ints]:
    """Return which of n rows have a wrong value, and the first such value of each, shape (n,) both."""
    found, first = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
    found[row[wrong]] = True
    first[row[wrong][::-1]] = values[wrong][::-1]  # of repeated rows the last assignment stays
    return found, first


def _as_int64(flat: pa.Array) -> Ints:
    """Indices, null as 0; those of uint64 that do not fit as the largest that does."""
    values = np.asarray(flat.fill_null(0)) if len(flat) else np.empty(0, dtype=np.int64)
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    return values.astype(np.int64)


#: Cells that are worth the start of another thread.
_FEW_CELLS = 1 << 17
#: Cells of a matrix that are written column by column: half of the nearest large cache.
_CACHED_CELLS = 1 << 15

#: Rows without a value, and multiples of the mean gap between two values, after which a feature is lost.
LOST_ROWS, LOST_GAPS = 64, 20

Columns = Mapping[str, pa.Array]


class LostFeatures:
    """Finds features that had values and have none any more: renamed where the rows come from, say.

    A feature is lost once it had none in :data:`LOST_ROWS` rows, and in :data:`LOST_GAPS` times as many as it has had
    between two values so far; so a feature that has few values is not lost by chance (2e-9). It is told once.
    """

    def __init__(self, features: Features) -> None:
        n = len(features.names)
        self._features = features
        self._categorical = np.array(features.categorical, dtype=np.bool_)
        self._values, self._rows = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self._without = np.zeros(n, dtype=np.int64)
        self._told = np.zeros(n, dtype=np.bool_)
        self._found: list[str] = []

    def expect(self, X: Floats) -> None:
        """Take note of rows that came before: of their values, not of their order."""
        self._values += np.count_nonzero(self._there(X), axis=0)
        self._rows += len(X)

    def note(self, X: Floats) -> None:
        """Take note of the next rows, shape (n, d), with features. O(n d)."""
        if not len(X) or not len(self._values):
            return
        there = self._there(X)
        some = there.any(axis=0)
        self._without = np.where(some, np.argmax(there[::-1], axis=0), self._without + len(X))
        self._values += np.count_nonzero(there, axis=0)
        self._rows += np.where(some, len(X), 0)
        lost = (self._values > 0) & (self._without >= LOST_ROWS) & ~self._told
        lost &= self._without * self._values >= LOST_GAPS * self._rows
        self._told |= lost
        self._found += [self._features.names[j] for j in np.flatnonzero(lost).tolist()]

    def take(self) -> list[str]:
        """Return the features that were lost since the last call."""
        found, self._found = self._found, []
        return found

    def _there(self, X: Floats) -> Bools:
        """Mask of the values that are not missing."""
        return np.asarray(~np.isnan(X) & ~(self._categorical & (X == -1.0)))


class FeatureEncoder:
    """Encodes features in two steps: all checks of a chunk of rows come before any code is given."""

    def __init__(
        self,
        features: Features,
        reading: Reading,
        tokens: Tokens | None = None,
        known: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.features, self.tokens, self._reading = features, tokens, reading
        self.restore(known or {})

    def restore(self, known: Mapping[str, Sequence[Any]]) -> None:
        """Replace the categories and tokens known."""
        by_value, features = self._reading.by_value, self.features
        self.categories = {
            name: Dictionary(known.get(name, ()), by_value)
            for name, coded in zip(features.names, features.categorical, strict=True)
            if coded
        }
        if self.tokens is not None:
            self.tokens.dictionary = Dictionary(known.get(self.tokens.name, ()))
        #: Categories and tokens by column.
        self.dictionaries = self.categories | (
            {} if self.tokens is None else {self.tokens.name: self.tokens.dictionary}
        )

    def check(
        self, columns: Columns, faults: Faults, needed: Mask | None = None, X: Floats | None = None
    ) -> tuple[Floats, SparseRows | None]:
        """Return numbers, 0 for categories, and indices, and mark the rows whose features cannot be used.

        Only rows ``needed``, shape (n,), must have features. ``X``, shape (n, d), are the numbers if they are a matrix
        already; it is changed, and ``columns`` then has the categories only. There are no indices of tokens, which
        :meth:`encode` returns.
        """
        names, dense = self.features.names, X is None
        if X is None:
            X = np.empty((len(faults.good), len(names)))
        numeric = [j for j, name in enumerate(names) if name not in self.categories]
        X[:, [j for j, name in enumerate(names) if name in self.categories]] = 0.0
        if dense:
            self._fill(columns, X, numeric)
            for j in numeric:
                faults.mark("inexact", names[j], inexact(columns[names[j]]), needed)
        finite = np.empty(X.shape, dtype=np.bool_)
        parts = ranges(len(X), _FEW_CELLS // max(1, len(names)))
        run([partial(self._check_rows, X[part], finite[part]) for part in parts])
        if not finite.all():
            for j in np.flatnonzero(~finite.all(axis=0)).tolist():
                absent = np.isnan(X[:, j])
                faults.mark("no_value", names[j], ~finite[:, j] & absent, needed)
                faults.mark("infinite", names[j], ~finite[:, j], needed)
        for name in self.categories:
            if self._reading.missing:
                faults.mark("infinite_category", name, infinite(columns[name]), needed)
            else:
                faults.mark("no_category", name, missing(columns[name]), needed)
        if self.tokens is not None:
            self.tokens.check(columns[self.tokens.name], needed, faults)
        elif self.features.sparse:
            name = self.features.sparse_column
            return X, read_indices(columns[name], name, self.features.sparse, needed, faults)
        return X, None

    def _fill(self, columns: Columns, X: Floats, numeric: Sequence[int]) -> None:
        """Enter the columns of numbers: some rows of all of them while these rows are in the cache."""
        columns_at_once = max(1, _FEW_CELLS // max(1, len(X)))
        taken = ranges(len(numeric), columns_at_once, each=2)
        given = [columns[self.features.names[j]] for j in numeric]
        values = [array for part in run([partial(_unconverted, given[part]) for part in taken]) for array in part]
        step = max(64, _CACHED_CELLS // max(1, X.shape[1]))

        def work(part: slice) -> None:
            for begin in range(part.start, part.stop, step):
                rows = slice(begin, min(begin + step, part.stop))
                for j, array in zip(numeric, values, strict=True):
                    X[rows, j] = array[rows]

        run([partial(work, part) for part in ranges(len(X), _FEW_CELLS // max(1, len(numeric)))])

    def _check_rows(self, X: Floats, finite: Bools) -> None:
        """Mark the numbers that are finite or may be missing; of zeros and of NaNs there is one kind afterwards."""
        with np.errstate(invalid="ignore"):  # a signalling NaN is reported like any other
            X += 0.0  # turns -0.0 into 0.0
        np.isfinite(X, out=finite)
        if self._reading.missing and not finite.all():
            absent = np.isnan(X)
            X[absent] = np.nan  # so that equal rows have equal bytes
            finite |= absent

    def encode(
        self,
        columns: Columns,
        X: Floats,
        faults: Faults,
        needed: Mask | None = None,
        *,
        row: int = 0,
        grow: bool = True,
    ) -> SparseRows | None:
        """Enter codes of categories into ``X``, -1 of new ones unless they may ``grow``, and return the tokens."""
        sparse = None
        if self.tokens is not None:
            sparse = self.tokens.encode(columns[self.tokens.name], row, needed, faults)
        good = faults.keep(needed)
        for j, name in enumerate(self.features.names):
            if name not in self.categories:
                continue
            column, keep, dictionary = columns[name], good, self.categories[name]
            absent = missing(column) if self._reading.missing else None
            if absent is not None:
                keep = ~absent if keep is None else keep & ~absent
            X[:, j] = dictionary.encode(column, row, keep) if grow else dictionary.find(column)
        return sparse


def _unconverted(columns: Sequence[pa.Array]) -> list[AnyArray]:
    return [*map(unconverted, columns)]

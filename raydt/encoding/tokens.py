"""A column of lists of text: sparse features that are tokens, coded in order of first appearance in the stream.

Invariant: as of categories (``raydt.encoding.columns``): a code depends on the rows before it alone, neither
on chunks nor on
reading ahead, and a bad row gives none. A token that a list repeats says no more than once: the feature is 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Ints
from raydt.encoding.columns import Dictionary, is_text, plain
from raydt.encoding.faults import Fault, Faults, Mask


def holds_tokens(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists of text, plain or in dictionaries."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    value = kind.value_type
    return is_text(value.value_type if pa.types.is_dictionary(value) else value)


def different(columns: Iterable[pa.Array]) -> int:
    """How many tokens there are in some columns, at least 1. O(tokens), and memory for the different ones."""
    seen: set[str] = set()
    for column in columns:
        seen.update(_flat(column).unique().to_pylist())
    return max(1, len(seen - {None}))


class Tokens:
    """The tokens of a column and their codes, at most ``width``; unless it ``grows``, new ones are no features."""

    def __init__(self, name: str, grows: bool) -> None:
        self.name, self._grows = name, grows
        self.dictionary, self.width = Dictionary(), 0

    def check(self, column: pa.Array, needed: Mask | None, faults: Faults) -> None:
        """Note the rows without a list, or with a token that is null."""
        faults.mark("no_tokens", self.name, np.asarray(column.is_null()), needed)
        flat = _flat(column)
        if flat.null_count:
            lost = np.zeros(len(column), dtype=np.bool_)
            lost[_rows_of(column)[np.asarray(flat.is_null())]] = True
            faults.mark("null_token", self.name, lost, needed)

    def require_known(self, column: pa.Array, faults: Faults) -> None:
        """Note the rows of a checked column with a token that has no code."""
        flat, of = _flat(column), _rows_of(column)
        for place in np.flatnonzero(self.dictionary.find(flat) < 0)[::-1].tolist():
            faults[int(of[place])] = Fault("unknown_token", self.name, flat[place].as_py())

    def encode(self, column: pa.Array, row: int, needed: Mask | None, faults: Faults) -> SparseRows:
        """Return the tokens of a column, none in bad or needless rows; a row beyond the room becomes bad."""
        flat, of, keep = _flat(column), _rows_of(column), faults.keep(needed)
        taken = None if keep is None else keep[of]
        if self._grows:
            known = len(self.dictionary)
            codes = self.dictionary.encode(flat, row, taken, of)
            if len(self.dictionary) > self.width:
                self.dictionary.cut(known)
                codes = self._one_by_one(flat, of, row, taken, faults)
        else:
            codes = self.dictionary.find(flat)
            codes[codes >= self.width] = -1
            if taken is not None:
                codes[~taken] = -1
        order = np.lexsort((codes, of))
        codes, of = codes[order], of[order]
        first = np.ones(len(codes), dtype=np.bool_)
        first[1:] = (codes[1:] != codes[:-1]) | (of[1:] != of[:-1])
        first &= codes >= 0
        lengths = np.bincount(of[first], minlength=len(column))
        return SparseRows.of_lengths(lengths, codes[first].astype(np.int32), self.width)

    def _one_by_one(self, flat: pa.Array, of: Ints, row: int, taken: Mask | None, faults: Faults) -> Ints:
        """Codes where there is no room for all new tokens: a row whose new ones do not fit is bad, and gives none."""
        codes = self.dictionary.find(flat)
        new = (codes < 0) & (True if taken is None else taken)
        for position in np.unique(of[new]).tolist():
            begin, end = np.searchsorted(of, [position, position + 1]).tolist()
            known, part = len(self.dictionary), flat.slice(begin, end - begin)
            codes[begin:end] = self.dictionary.encode(part, row + position, None, np.zeros(end - begin, dtype=np.int64))
            if len(self.dictionary) <= self.width:
                continue
            token = self.dictionary.values[self.width]
            self.dictionary.cut(known)
            codes[begin:end] = -1
            faults[position] = Fault("token_beyond", self.name, token, {"width": self.width})
            faults.good[position] = False
        if taken is not None:
            codes[~taken] = -1
        return codes


def _flat(column: pa.Array) -> pa.Array:
    """All tokens, without what lies under a null."""
    if pa.types.is_null(column.type):
        return pa.array([], pa.string())
    flat = pc.list_flatten(column)
    return pc.cast(flat, pa.string()) if pa.types.is_null(flat.type) else plain(flat)


def _rows_of(column: pa.Array) -> Ints:
    """Place of the list that each token is in."""
    if pa.types.is_null(column.type):
        return np.empty(0, dtype=np.int64)
    lengths: Any = pc.list_value_length(column).fill_null(0)
    return np.repeat(np.arange(len(column), dtype=np.int64), np.asarray(lengths).astype(np.int64))

"""A column of lists of text: sparse features that are tokens, coded in order of first appearance in the stream.

Invariant: as of categories (``raydt.sources.columns.encoding``): a code depends on the rows before it alone, neither
on chunks nor on
reading ahead, and a bad row gives none. A token that a list repeats says no more than once: the feature is 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.sparse import SparseRows
from raydt.errors import OR_SKIP
from raydt.redaction import quoted
from raydt.sources.columns.bad_rows import BadRows, Mask
from raydt.sources.columns.encoding import Dictionary, is_text, plain

_NO_LIST = f"Write an empty list for a row without a token{OR_SKIP}"
_CORRECT = f"Correct the file{OR_SKIP}"


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
    """The tokens of a column and their codes.

    Parameters
    ----------
    name : str
        The column, for messages.
    grows : bool
        Whether new tokens get codes. Otherwise they are no features.

    Attributes
    ----------
    dictionary : Dictionary
    width : int
        How many tokens there may be.
    """

    def __init__(self, name: str, grows: bool) -> None:
        self._name, self._grows = name, grows
        self.dictionary, self.width = Dictionary(), 0

    def check(self, column: pa.Array, needed: Mask | None, bad: BadRows) -> None:
        """Note the rows without a list, or with a token that is null."""
        bad.add_mask(np.asarray(column.is_null()), needed, self._name, "no list of tokens", _NO_LIST)
        flat = _flat(column)
        if flat.null_count:
            lost = np.zeros(len(column), dtype=np.bool_)
            lost[_rows_of(column)[np.asarray(flat.is_null())]] = True
            bad.add_mask(lost, needed, self._name, "a token is null", _CORRECT)

    def unknown(self, column: pa.Array) -> tuple[int, str] | None:
        """The first token of a checked column that has no code, and its row."""
        flat = _flat(column)
        new = np.flatnonzero(self.dictionary.find(flat) < 0)
        return (int(_rows_of(column)[new[0]]), flat[int(new[0])].as_py()) if len(new) else None

    def encode(self, column: pa.Array, row: int, needed: Mask | None, bad: BadRows) -> SparseRows:
        """The rows of a column that was checked.

        Parameters
        ----------
        column : pa.Array of lists of text, n values
        row : int
            Row number of the first value.
        needed : ndarray of bool, shape (n,), optional
            Rows that must have a list; None for all.
        bad : BadRows
            Receives those with new tokens for which there is no room.

        Returns
        -------
        SparseRows
            Without ones in the rows that are not needed, or bad. O(tokens log), and Python work for each distinct one.
        """
        flat, of, keep = _flat(column), _rows_of(column), bad.keep(needed)
        taken = None if keep is None else keep[of]
        if self._grows:
            known = len(self.dictionary)
            codes = self.dictionary.encode(flat, row, taken, of)
            if len(self.dictionary) > self.width:
                self.dictionary.cut(known)
                codes = self._one_by_one(flat, of, row, taken, bad)
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

    def _one_by_one(
        self, flat: pa.Array, of: npt.NDArray[np.int64], row: int, taken: Mask | None, bad: BadRows
    ) -> npt.NDArray[np.int64]:
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
            what = f"there are more than the {self.width:,} different ones that n_features, or the files of a run, set"
            problem = f"with the token {quoted(token, 40)} {what}"
            bad.add([position], self._name, problem, f"Say in source.n_features how many there may be{OR_SKIP}")
        if taken is not None:
            codes[~taken] = -1
        return codes


def _flat(column: pa.Array) -> pa.Array:
    """All tokens, without what lies under a null."""
    if pa.types.is_null(column.type):
        return pa.array([], pa.string())
    flat = pc.list_flatten(column)
    return pc.cast(flat, pa.string()) if pa.types.is_null(flat.type) else plain(flat)


def _rows_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """Place of the list that each token is in."""
    if pa.types.is_null(column.type):
        return np.empty(0, dtype=np.int64)
    lengths: Any = pc.list_value_length(column).fill_null(0)
    return np.repeat(np.arange(len(column), dtype=np.int64), np.asarray(lengths).astype(np.int64))

"""A shard's half of a divided reading: it reads the features it owns, of the rows that the driver numbers.

Invariant: a block is *good* only if no row in it is bad by any feature of this shard. Of a good block the features are
those that reading all columns gives, but for the codes of categories and tokens: these are numbered by first appearance
in the block, and the driver says which codes they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.sparse import SparseRows, concatenated
from raydt.arrays.types import Floats, Ints
from raydt.errors import InputError, message_of
from raydt.examples.features import Features
from raydt.examples.reading import Reading
from raydt.exchange.blocks import Block
from raydt.messages import message
from raydt.sources.file_options import FileOptions
from raydt.sources.opening import open_source
from raydt.sources.options import SyntheticOptions


@dataclass(frozen=True, slots=True)
class BlockReport:
    """What a shard says of a block of rows."""

    good: bool  #: Every row can be used.
    rows: int | None = None  #: Rows that there are: less than asked for at the end of the source. None: not counted.
    problem: str | None = None  #: Why the file cannot be read on, if it cannot.
    #: Of each categorical feature, and of a column of tokens: its categories in order of appearance, and the row in
    #: which each came first.
    categories: Mapping[str, tuple[list[Any], list[int]]] = field(default_factory=dict)


class _Piece(NamedTuple):
    """Some rows of a block: dense features, and ones if there are sparse features."""

    X: Floats
    ones: SparseRows | None


@dataclass(frozen=True, slots=True)
class Opening:
    """What a shard needs to open the source that the driver has opened."""

    options: FileOptions | SyntheticOptions
    base_dir: str
    reading: Reading
    places: Sequence[tuple[str, int, int | None]]  #: Of the files, as :attr:`FileSource.places`.
    fingerprint: str  #: Of the data.


class SourceFeatures:
    """The features of some groups of a source, which this process opens for itself; of all ``groups`` if None.

    InputError if the source is not what the driver has opened: a file is missing here, or another one.
    """

    def __init__(self, opening: Opening, features: Features, groups: Ints | None = None) -> None:
        options = opening.options
        if isinstance(options, FileOptions):  # labels are the driver's, who also knows how many sparse features to find
            options = options.model_copy(update={"positive": None, "n_features": features.sparse or None})
        self._held: dict[int, list[_Piece]] = {}  # by the first row of a block
        self._features = features
        self._groups = np.arange(features.groups) if groups is None else groups
        self._by_value = opening.reading.by_value
        self._names = [features.names[column] for column in features.columns_of(self._groups).tolist()]
        ones = [features.sparse_column] if features.sparse and len(self._groups) else []
        self._lock = Lock()
        source: Any = open_source(options, opening.base_dir, opening.reading)
        if source.places != list(opening.places) and source.identity().fingerprint != opening.fingerprint:
            raise InputError(message("files.changed"), file=source.places[0][0])
        self._source = source.part([*self._names, *ones], keys=False)
        self._reads = bool(self._names or ones)
        #: The column of tokens, which are numbered by their first appearance, too.
        self._tokens = next((name for name in ones if name in self._source.categories()), None)

    def check(self, start: int, stop: int, unwanted: Sequence[int] = ()) -> BlockReport:
        """Read a block, keep its features if it is good, and report on it; drop blocks that begin in some rows."""
        with self._lock:
            for first in unwanted:
                self._held.pop(first, None)
        if not self._reads:
            return BlockReport(good=True)
        try:
            pieces = []
            for rows in self._source.block(start, stop):
                if rows.bad:
                    return BlockReport(good=False)
                pieces.append(_Piece(rows.X, None if rows.sparse is None else self._owned(rows.sparse)))
        except InputError as error:
            return BlockReport(good=False, problem=message_of(error.but(remedy=None)))
        with self._lock:
            self._held[start] = pieces
        categories = {name: (list(d.values), d.first_rows()) for name, d in self._source.categories().items()}
        if 0 not in self._groups:  # every shard reads all tokens: one says which there are
            categories.pop(self._tokens, None)
        return BlockReport(good=True, rows=sum(len(piece.X) for piece in pieces), categories=categories)

    def _owned(self, ones: SparseRows) -> SparseRows:
        """Return the ones of the groups; of tokens all, since their group follows from their code."""
        return ones if self._tokens else ones.of_groups(self._groups, self._features.groups)

    def take(self, rows: Ints, blocks: Sequence[Block]) -> tuple[Floats, SparseRows]:
        """Return the features of some rows; see :class:`raydt.exchange.blocks.FeatureReader`."""
        X, ones = np.empty((len(rows), len(self._names))), [SparseRows.empty(self._features.sparse)]
        if not self._reads:
            return X, SparseRows.empty(self._features.sparse, len(rows))
        for block in blocks:
            begin, end = np.searchsorted(rows, (block.start, block.stop))
            if begin == end:
                continue
            self._drop(block.start)
            ones += self._fill(X[begin:end], rows[begin:end] - block.start, block)
            if rows[end - 1] == block.stop - 1:
                self._drop(block.stop)
        return X, concatenated(ones)

    def _drop(self, row: int) -> None:
        """Drop the blocks that begin before a row."""
        with self._lock:
            for first in [first for first in self._held if first < row]:
                del self._held[first]

    def _fill(self, X: Floats, places: Ints, block: Block) -> list[SparseRows]:
        """Enter the rows in some places of a block, and return their ones."""
        first, found = 0, []
        for piece, ones in self._held[block.start]:
            begin, end = np.searchsorted(places, (first, first + len(piece)))
            if end > begin:
                low, high = int(places[begin]) - first, int(places[end - 1]) - first + 1
                whole = high - low == end - begin
                which = slice(low, high) if whole else places[begin:end] - first
                X[begin:end] = piece[which]
                if ones is not None:
                    found.append(self._coded(ones[which], block))
            first += len(piece)
        for name, codes in block.codes.items() if not self._by_value else ():
            if name in self._names and len(codes):
                column = X[:, self._names.index(name)]
                known = np.append(codes, -1).astype(np.float64)  # -1 is that of a missing category
                column[:] = known[column.astype(np.int64)]
        return found

    def _coded(self, ones: SparseRows, block: Block) -> SparseRows:
        """Return the ones of the groups; of tokens these have just got their codes."""
        if self._tokens is None:
            return ones
        codes = block.codes[self._tokens][ones.indices]
        order = np.lexsort((codes, np.repeat(np.arange(len(ones)), ones.lengths)))
        coded = SparseRows(ones.indptr, codes[order].astype(np.int32), self._features.sparse)
        return coded.of_groups(self._groups, self._features.groups)

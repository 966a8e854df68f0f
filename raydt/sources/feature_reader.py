"""A shard's half of a divided reading: it reads the features it owns, of the rows that the driver numbers.

Invariant: a block is *good* only if no row in it is bad by any feature of this shard. Of a good block the features are
those that reading all columns gives, but for the codes of categories: these are numbered by first appearance in the
block, and the driver says which codes they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.errors import InputError, message_of
from raydt.examples.reading import Reading
from raydt.exchange.blocks import Block
from raydt.messages import message
from raydt.sources.opening import open_source
from raydt.sources.options import FileOptions, SyntheticOptions


@dataclass(frozen=True, slots=True)
class BlockReport:
    """What a shard says of a block of rows."""

    good: bool  #: Every row can be used.
    rows: int | None = None  #: Rows that there are: less than asked for at the end of the source. None: not counted.
    problem: str | None = None  #: Why the file cannot be read on, if it cannot.
    #: Of each categorical feature: its categories in order of appearance, and the row in which each came first.
    categories: Mapping[str, tuple[list[Any], list[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a shard needs to open the source that the driver has opened."""

    options: FileOptions | SyntheticOptions
    base_dir: str
    reading: Reading
    places: Sequence[tuple[str, int, int | None]]  #: Of the files, as :attr:`FileSource.places`.
    fingerprint: str  #: Of the data.


class SourceFeatures:
    """The features ``names`` of a source, which this process opens for itself.

    InputError if the source is not what the driver has opened: a file is missing here, or another one.
    """

    def __init__(self, opening: Opening, names: Sequence[str]) -> None:
        options = opening.options
        if isinstance(options, FileOptions):  # labels are the driver's: nobody else reads through them
            options = options.model_copy(update={"positive": None})
        self._held: dict[int, list[npt.NDArray[np.float64]]] = {}  # by the first row of a block
        self._by_value, self._names = opening.reading.by_value, tuple(names)
        self._lock = Lock()
        source: Any = open_source(options, opening.base_dir, opening.reading)
        if source.places != list(opening.places) and source.identity().fingerprint != opening.fingerprint:
            raise InputError(message("files.changed"), file=source.places[0][0])
        self._source = source.part(self._names, keys=False)

    def check(self, start: int, stop: int, unwanted: Sequence[int] = ()) -> BlockReport:
        """Read a block, keep its features if it is good, and report on it; drop blocks that begin in some rows."""
        with self._lock:
            for first in unwanted:
                self._held.pop(first, None)
        if not self._names:
            return BlockReport(good=True)
        try:
            pieces = []
            for rows in self._source.block(start, stop):
                if rows.bad:
                    return BlockReport(good=False)
                pieces.append(rows.X)
        except InputError as error:
            return BlockReport(good=False, problem=message_of(error.but(remedy=None)))
        with self._lock:
            self._held[start] = pieces
        categories = {name: (list(d.values), d.first_rows()) for name, d in self._source.categories().items()}
        return BlockReport(good=True, rows=sum(map(len, pieces)), categories=categories)

    def take(self, rows: npt.NDArray[np.int64], blocks: Sequence[Block]) -> npt.NDArray[np.float64]:
        """Return the features of some rows; see :class:`raydt.exchange.blocks.FeatureReader`."""
        X = np.empty((len(rows), len(self._names)))
        if not self._names:
            return X
        for block in blocks:
            begin, end = np.searchsorted(rows, (block.start, block.stop))
            if begin == end:
                continue
            self._drop(block.start)
            self._fill(X[begin:end], rows[begin:end] - block.start, block)
            if rows[end - 1] == block.stop - 1:
                self._drop(block.stop)
        return X

    def _drop(self, row: int) -> None:
        """Drop the blocks that begin before a row."""
        with self._lock:
            for first in [first for first in self._held if first < row]:
                del self._held[first]

    def _fill(self, X: npt.NDArray[np.float64], places: npt.NDArray[np.int64], block: Block) -> None:
        """Enter the rows in some places of a block."""
        first = 0
        for piece in self._held[block.start]:
            begin, end = np.searchsorted(places, (first, first + len(piece)))
            if end > begin:
                low, high = int(places[begin]) - first, int(places[end - 1]) - first + 1
                whole = high - low == end - begin
                X[begin:end] = piece[low:high] if whole else piece[places[begin:end] - first]
            first += len(piece)
        if self._by_value:
            return
        for name, codes in block.codes.items():
            if name in self._names and len(codes):
                column = X[:, self._names.index(name)]
                known = np.append(codes, -1).astype(np.float64)  # -1 is that of a missing category
                column[:] = known[column.astype(np.int64)]

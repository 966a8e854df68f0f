"""The driver's half of a divided reading: it reads ids, labels and times, and has the shards read the features.

The driver reads its columns block by block and asks the shards to read theirs, a few blocks ahead. If a block is good
for everybody, its rows go on without features: those are at the shards already, and only categories that are new have
to be told. A block with a bad row is read as ever, in full, so that its messages, and what counts as the first
appearance of a category, are the same.

Invariant: the rows, their order and numbers, all codes and all errors are those of reading the source as a whole. At
most the first ``warmup`` good rows come without features.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from raydt.arrays.blocks import SparseRows, concatenated
from raydt.arrays.elementary import Floats, Ints
from raydt.encoding.columns import NullValues
from raydt.errors import ConfigError, InputError, message_of
from raydt.examples.updates import CLASSES, Features, Reading, of_labels
from raydt.exchange.messages import Block
from raydt.messages import Message, message
from raydt.sources.base import FileOptions, Rows, Source, require
from raydt.sources.file_source import FileSource, PermutedFiles
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import DataFile, FilePlace, find_files
from raydt.sources.files.jsonl import FORMATS, JsonLinesDataFile
from raydt.sources.live.base import LiveOptions
from raydt.sources.live.followed import FollowedSource
from raydt.sources.options import (
    CsvFiles,
    Hyperplane,
    JsonLinesFiles,
    RandCbt,
    Sea,
    SparseSynthetic,
    SyntheticOptions,
)
from raydt.sources.synthetic import HyperplaneSource, RandCbtSource, SeaSource, SparseSyntheticSource, SyntheticSource

# From the options of a source to the source: the one place that knows which class reads which kind.

_FORMATS = {form.kind: form for form in FORMATS}

#: The generator of each type of options.
_GENERATORS: dict[type[SyntheticOptions], Any] = {
    Sea: SeaSource,
    Hyperplane: HyperplaneSource,
    RandCbt: RandCbtSource,
    SparseSynthetic: SparseSyntheticSource,
}


def open_source(
    options: FileOptions | SyntheticOptions, base_dir: str | Path = ".", reading: Reading = CLASSES
) -> Source:
    """Open the source that ``options`` describe, for a learner that takes rows as ``reading`` says.

    InputError if a file or column cannot be used; ConfigError if labels cannot be what the options want.
    """
    if isinstance(options, FileOptions) and options.weight is not None and not reading.weights:
        from raydt.learners import for_weights  # needed for messages only: compiled kernels are imported with it

        raise ConfigError(message("sources.no_weights", takers=for_weights(reading.regression)))
    source: Source
    if isinstance(options, LiveOptions):
        source = FollowedSource(options, options.open(reading), reading)
    elif isinstance(options, FileOptions):
        source = _open_files(options, base_dir, reading)
    else:
        source = _draw(options, reading)
    require(reading, source.features)
    return source


def open_file(options: FileOptions, place: FilePlace, reading: Reading = CLASSES) -> DataFile:
    """Open one file of a source."""
    if isinstance(options, CsvFiles):
        label = None if reading.regression else options.label
        named = tuple(column for column in (options.id, options.subject, options.key) if column)
        classes = (label,) if label else ()
        mixed = (*classes, *named, *((options.op,) if options.op else ()))
        if options.rules < 4:
            return CsvDataFile(place, options.delimiter, tuple(options.categorical), mixed, options.ts)
        as_text = (*options.categorical, *options.text)
        given = options.delimiter, as_text, mixed, options.ts, named, classes, options.integers
        return CsvDataFile(place, *given, nulls=_nulls(options))
    if isinstance(options, JsonLinesFiles):
        as_text = tuple(column for column in (options.label, options.id, options.key, options.op) if column)
        return JsonLinesDataFile(place, (*as_text, *options.categorical), options.rules >= 4, _nulls(options))
    return _FORMATS[options.kind](place)


def _nulls(options: CsvFiles | JsonLinesFiles) -> NullValues:
    """Return what stands for a missing number in the columns that have no role but that of a feature."""
    roles = {options.label, options.id, options.subject, options.key, options.weight, options.op, options.ts}
    return NullValues(options.null_values, options.rules, lambda name: name not in roles)


def files_of(options: FileOptions, base_dir: str | Path = ".") -> list[FilePlace]:
    """Return the files of a source; InputError if nothing is there."""
    return find_files(options.path, base_dir, _FORMATS[options.kind].suffixes)


def _open_files(options: FileOptions, base_dir: str | Path, reading: Reading) -> FileSource:
    places = files_of(options, base_dir)
    make = FileSource if options.permutation is None else PermutedFiles
    files = [open_file(options, place, reading) for place in places]
    of_text = [file for file in files if isinstance(file, CsvDataFile)]
    for name in {name for file in of_text for name in file.unlike}:
        for file in of_text:  # nothing is lost, since values are read as text
            if name in file.names:
                file.read_as_text(name)
    return make(options, files, reading=reading)


def _draw(options: SyntheticOptions, reading: Reading) -> Source:
    if reading.regression:
        raise ConfigError(message("sources.generated_classes"))
    if isinstance(options, SparseSynthetic) and not reading.sparse:
        raise ConfigError(message("sources.generated_indices"))
    source: SyntheticSource = _GENERATORS[type(options)](options)
    if reading.class_weight:
        source.class_weight = of_labels(reading.class_weight, source.classes)
    return source


# A shard's half of a divided reading: it reads the features it owns, of the rows that the driver numbers.
#
# Invariant: a block is *good* only if no row in it is bad by any feature of this shard. Of a good block the features
# are those that reading all columns gives, but for the codes of categories and tokens: these are numbered by first
# appearance in the block, and the driver says which codes they stand for.


@dataclass(frozen=True, slots=True)
class BlockReport:
    """The answer of a shard about a block of rows."""

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
    """The values by which a shard opens the source that the driver has opened."""

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
        """Return the features of some rows; see :class:`raydt.exchange.messages.FeatureReader`."""
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


log = logging.getLogger(__name__)

#: Blocks that the shards read ahead of the one whose rows are handed out.
BLOCKS_AHEAD = 3
#: Rows of a block.
BLOCK_ROWS = 1 << 16


class Readers(Protocol):
    """The shards, as those who read features."""

    def check(self, start: int, stop: int, unwanted: Sequence[int]) -> Callable[[], Sequence[BlockReport]]:
        """Have every shard read a block of rows; the call returns their reports. Blocks at ``unwanted`` are dropped."""


class DividedReading:
    """Rows of a source from its first on, of which the first come without features.

    ``source`` is at its beginning. Blocks have ``block_rows`` rows, or
    :data:`BLOCK_ROWS`.
    """

    def __init__(self, source: Any, readers: Readers, warmup: int, block_rows: int = 0) -> None:
        self._source, self._readers, self._block_rows = source, readers, block_rows or BLOCK_ROWS
        self._end = warmup if source.n_rows is None else min(warmup, source.n_rows)
        self._blocks: list[Block] = []

    def blocks_of(self, rows: Ints) -> tuple[Block, ...]:
        """Return the blocks in which these rows lie, ascending numbers of rows that came without features."""
        first, last = (bisect_right(self._blocks, row, key=lambda block: block.start) for row in rows[[0, -1]].tolist())
        return tuple(self._blocks[first - 1 : last])

    def rows(self) -> Generator[Rows, None, None]:
        """Yield chunks of rows; ``X`` of those without features has no columns."""
        keys = self._source.part((), keys=True)
        asked: deque[tuple[int, int, Callable[[], Sequence[BlockReport]]]] = deque()
        position = begin = 0  # the first row not handed out, and not asked for
        unwanted: list[int] = []  # blocks that some shard or the driver cannot use
        while position < self._end:
            while len(asked) < BLOCKS_AHEAD and begin < self._end:
                stop = min(begin + self._block_rows, self._end)
                asked.append((begin, stop, self._readers.check(begin, stop, tuple(unwanted))))
                begin = stop
                unwanted.clear()
            start, stop, wait = asked.popleft()
            reports = wait()
            good = all(report.good for report in reports)
            chunks = self._keys(keys, start, stop) if good else []
            length = sum(map(len, chunks or ()))
            problem = _problem(reports, length if good and chunks is not None else None)
            if chunks is None or problem is not None:
                yield from self._instead(position, stop, problem)
                return
            good = good and not any(chunk.bad for chunk in chunks)
            if good and (block := self._known(start, start + length, reports)) is not None:
                self._blocks.append(block)
                self._source.hand_out(start + length)
                yield from chunks
                position = start + length
                if position < stop:
                    return
            elif self._source.seekable:
                unwanted.append(start)
                with closing(self._whole(start)) as found:
                    for rows in found:
                        yield rows.part(0, min(len(rows), stop - rows.start))
                        position = min(stop, rows.start + len(rows))
                        if position == stop:
                            break
                if position < stop:  # the source has no more rows
                    return
            else:
                break
        yield from self._whole(position)

    def _keys(self, keys: Any, start: int, stop: int) -> list[Rows] | None:
        """Read ids, labels and times of a block; None if that fails, and then no label of the block is known."""
        try:
            return list(keys.block(start, stop))
        except InputError:
            self._source.forget_labels(start)
            return None

    def _known(self, start: int, stop: int, reports: Sequence[BlockReport]) -> Block | None:
        """Give the categories and tokens of a good block their codes; None if there are more tokens than may be."""
        codes, dictionaries, features = {}, self._source.categories(), self._source.features
        known = {name: len(dictionary) for name, dictionary in dictionaries.items()}
        for report in reports:
            for name, (values, rows) in report.categories.items():
                codes[name] = dictionaries[name].learn(values, rows)
        if features.sparse and len(dictionaries.get(features.sparse_column, ())) > features.sparse:
            for name, dictionary in dictionaries.items():
                dictionary.cut(known[name])
            return None
        return Block(start, stop, codes)

    def _instead(self, start: int, stop: int, problem: Message | None) -> Generator[Rows, None, None]:
        """Yield all rows from ``start`` on, since the shards do not get beyond the block that ends before ``stop``.

        If the driver does, it warns of their problem. Else the file is damaged for all, and the error says so.
        """
        with closing(self._whole(start, from_beginning=True)) as found:
            for rows in found:
                if problem is not None and rows.start + len(rows) >= stop:
                    log.warning("%s", message("runs.rows_sent", why=problem), extra={"event": "rows_sent"})
                    problem = None
                yield rows

    def _whole(self, start: int, *, from_beginning: bool = False) -> Generator[Rows, None, None]:
        """Yield rows with all features, in chunks ``from_beginning`` where an error may name the chunk before it."""
        with closing(self._source.rows(0 if from_beginning else start)) as found:
            for rows in found:
                cut = max(0, start - rows.start)
                if cut < len(rows):
                    yield rows.part(cut, len(rows)) if cut else rows


def _problem(reports: Sequence[BlockReport], length: int | None) -> Message | None:
    """Return why a block cannot be that of the driver, if one of the shards cannot read it on, or reads other rows.

    The driver has found ``length`` rows in it; None if it has not looked.
    """
    for shard, report in enumerate(reports):
        if report.problem is not None:
            return message("sources.shard_unread", shard=shard, problem=report.problem)
        if length is not None and report.rows not in (None, length):
            return message("sources.shard_unlike", shard=shard, rows=report.rows, length=length)
    return None

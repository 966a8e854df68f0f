"""A source made of files of one format, read in order in bounded chunks.

Invariant: a row's number is its place over all files, the same wherever reading starts and however it is chunked.
"""

from __future__ import annotations

import copy
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.elementary import Ints, permutation, stream_key
from raydt.encoding.columns import Dictionary, TimeColumn, different, holds_tokens, is_text, plain
from raydt.encoding.features import declared_width, holds_indices, is_empty_list, width_of
from raydt.encoding.labels import Labels, resolve_positive
from raydt.errors import ConfigError, InputError, message_of
from raydt.examples.updates import CLASSES, Reading
from raydt.messages import message
from raydt.parallel import ahead, run, threads
from raydt.sources.base import Envelope, FileOptions, Rows, Source, SourceIdentity, hashed
from raydt.sources.encoder import Checked, EncodedBlock, EncodedSource, RowEncoder
from raydt.sources.files.content import Columns, agreement, require_agreement
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.jsonl import Dialect

#: A chunk holds about this many feature values, within the two bounds on its rows.
CHUNK_CELLS = 1 << 19
CHUNK_ROWS = (64, 1 << 16)
#: What the sparse features of a row count for, of which only reading tells how many are 1.
SPARSE_CELLS = 256
#: Values that each of several threads gets in one round.
ROUND_CELLS = 1 << 18


class _Cursor:
    """Record batches read in order, cut where blocks of rows end."""

    def __init__(self, batches: Iterator[tuple[pa.RecordBatch, int, DataFile, int]], row: int) -> None:
        self._batches, self.row = batches, row
        self._rest: tuple[pa.RecordBatch, int, DataFile, int] | None = None

    def until(self, stop: int) -> Iterator[tuple[pa.RecordBatch, int, DataFile, int]]:
        """Yield what lies before row ``stop``."""
        while self.row < stop:
            found, self._rest = self._rest or next(self._batches, None), None
            if found is None:
                return
            batch, row, file, file_row = found
            length = min(batch.num_rows, stop - row)
            if length < batch.num_rows:
                self._rest = batch.slice(length), row + length, file, file_row + length
            self.row = row + length
            yield batch.slice(0, length), row, file, file_row


class FileSource(EncodedSource):
    """Rows of one or several opened files; satisfies :class:`raydt.sources.base.Source`.

    Without ``chunk_rows`` the number of features chooses how many rows a chunk has. A column that is missing or
    unusable, or that differs between files, is an InputError; ``positive`` that is not among the labels, or where these
    are to be numbers, is a ConfigError. With ``positive`` the label column is read through once here (for CSV that is a
    pass over the text).
    """

    complete = True

    def __init__(
        self, options: FileOptions, files: list[DataFile], chunk_rows: int | None = None, reading: Reading = CLASSES
    ) -> None:
        if reading.regression and options.positive is not None:
            raise ConfigError(message("sources.positive_numbers"))
        self._files, self._limit, self.dialect = files, options.limit, Dialect.of(Dialect.recorded(options))
        self._cursor: _Cursor | None = None
        self._counting = False  #: Rows whose number is not known are being handed out, though all may be read ahead.
        self._rows_at_opening = [file.n_rows for file in files]
        envelope = None
        if options.envelope is not None and options.op is not None and options.id is not None:
            times = [options.ts] if options.ts is not None and any(options.ts in file.names for file in files) else []
            envelope = Envelope([options.op, *times], options.id)
        self._tables = [_columns_of(file, envelope) for file in files]
        seen = [name for table in self._tables for name in table.schema.names if name not in table.untyped]
        if self.n_rows == 0 and self._tables[0].schema.names and not seen:  # a header tells no types
            raise self._no_rows()
        self._agreed = agreement(self._tables)
        self._encoder = RowEncoder(
            options, self._agreed.schema, self._agreed.file, envelope, self._agreed.untyped, reading
        )
        for table in self._tables:
            require_agreement(table, self._agreed, self._encoder.parts, strict=options.features is None)
        low, high = CHUNK_ROWS
        cells = len(self._encoder.features.names) + (0 if self._encoder.sparse is None else SPARSE_CELLS)
        self._chunk_rows = chunk_rows or max(low, min(high, CHUNK_CELLS // cells))
        self._row_cells = cells
        self._handed_out = 0  # row after the last one that was given to a reader
        if self._encoder.sparse is not None:
            self._encoder.set_width(self._width(options.n_features, self._encoder.sparse))
        elif options.n_features is not None:
            raise InputError(message("columns.no_lists"), file=files[0].name)
        self._describe(options)
        if options.positive is not None and options.label is not None:
            counts = self._label_counts(options.label)
            if not counts and self.n_rows == 0:
                raise self._no_rows()
            positive = resolve_positive(options.positive, counts)
            self._encoder.labels = Labels(positive, [label for label in counts if label not in positive])
        self.known_classes, self.target_dtype = len(self.classes), self._encoder.labels.dtype

    @property
    def positive(self) -> list[Any] | None:
        """Labels that count as positive, resolved."""
        return self._encoder.labels.positive

    @property
    def n_rows(self) -> int | None:
        """Number of rows within ``limit``, if every file's is known, to one who reads no row ahead."""
        if self._counting:
            return None
        known = [file.n_rows for file in self._files]
        total = None if None in known else sum(n for n in known if n is not None)
        return total if total is None or self._limit is None else min(total, self._limit)

    def count_rows(self) -> int:
        """Number of rows within ``limit``; CSV files and Arrow streams are read through once."""
        total, self._counting = sum(file.count() for file in self._files), False
        return total if self._limit is None else min(total, self._limit)

    def require_ts(self) -> TimeColumn:
        """Fill ``Rows.ts`` from now on; see :meth:`raydt.sources.base.Source.require_ts`."""
        return self._agreeing(super().require_ts())

    def times(self) -> TimeColumn | None:
        """Fill ``Rows.ts`` from now on, if there are times; see :meth:`raydt.sources.base.Source.times`."""
        column = super().times()
        return None if column is None else self._agreeing(column)

    def _agreeing(self, column: TimeColumn) -> TimeColumn:
        for table in self._tables:
            require_agreement(table, self._agreed, {column.name: "ts"}, strict=False)
        return column

    def identity(self) -> SourceIdentity:
        """Identify columns and types, ``limit``, and rows, size and content hash of files, not their paths."""
        schema = [[field.name, str(field.type)] for field in self._agreed.schema]
        described = {"kind": self._files[0].kind, "schema": schema, "limit": self._limit}
        files = [file.described(rows) for rows, file in zip(self._rows_at_opening, self._files, strict=True)]
        content = [[file["rows"], file["bytes"], file["sha256"]] for file in files]
        return SourceIdentity(hashed(json.dumps({**described, "files": content})), {**described, "files": files})

    def rows(self, start: int = 0) -> Generator[Rows, None, None]:
        """Yield chunks of encoded rows from row ``start`` on, whose codes follow the order of reading.

        Threads read the next rows meanwhile, so close the iteration before the source is restored or read elsewhere.
        """
        n, self._counting = threads(), self.n_rows is None
        self._limit_threads(n)
        rounds = ahead(self._rounds(start, n)) if n > 1 else self._one_by_one(start)
        with closing(rounds):
            for chunks in rounds:
                for chunk in chunks:
                    if len(chunk):
                        self._handed_out = max(self._handed_out, chunk.start + len(chunk))
                    yield chunk
        self._counting = False
        known = [file.n_rows for file in self._files if file.n_rows is not None]
        if n > 1 and len(known) == len(self._files) and (self._limit is None or sum(known) < self._limit):
            self._files[-1].require_unchanged()  # it may have changed since the reading ahead came to its end

    def _one_by_one(self, start: int) -> Generator[list[Rows], None, None]:
        for block in self._blocks(start):
            yield [self._encoder.encode(block)]

    def _rounds(self, start: int, n: int) -> Generator[list[Rows], None, None]:
        """Yield encoded rows for ``n`` threads: one reads the next blocks, while others check those read before.

        Meanwhile the rows checked before those get their codes, in order; an error comes after all rows before it.
        """
        size, checked = 1, list[Any]()
        with closing(self._blocks(start)) as blocks:
            now = _read(blocks, size)
            while now.blocks or checked:
                reading: list[Callable[[], Any]] = []
                if now.error is None:
                    cells = self._row_cells * max(1, now.blocks[0].batch.num_rows)
                    size = min(2 * size, max(1, n * ROUND_CELLS // cells))
                    reading.append(partial(_read, blocks, size))
                checks: list[Callable[[], Any]] = [partial(_checked, self._encoder, block) for block in now.blocks]
                results: list[Any] = run([*reading, *checks[:1], partial(self._finished, checked), *checks[1:]])
                now = results.pop(0) if reading else _Read([], now.error)
                chunks, error = results.pop(min(1, len(checks)))
                checked = results
                if chunks:
                    yield chunks
                if error is not None:
                    raise error
        if now.error is not None and not isinstance(now.error, StopIteration):
            raise now.error

    def _finished(self, checked: list[Checked | Exception]) -> tuple[list[Rows], Exception | None]:
        """Return the rows of checked blocks up to the first that ends the reading, and its error."""
        chunks: list[Rows] = []
        for result in checked:
            try:
                if isinstance(result, Exception):
                    raise result
                chunks.append(self._encoder.finish(result))
            except Exception as error:
                return chunks, error
        return chunks, None

    def _blocks(self, start: int) -> Generator[EncodedBlock, None, None]:
        for found in self._batches(self._encoder.columns, start):
            yield _block(*found)

    def _limit_threads(self, n: int) -> None:
        """Have Arrow decode columns in threads of its own only if ``n`` may be used, more than one."""
        for file in self._files:
            file.in_threads = n > 1

    @property
    def data_files(self) -> list[DataFile]:
        """The files, in their order."""
        return list(self._files)

    def beginnings(self, since: int = 0) -> list[tuple[str, int]]:
        """Return the names of the files and the numbers of their first rows, as far as these are known.

        They begin with the file of the row before ``since``.
        """
        known = takewhile(lambda rows: rows is not None, (file.n_rows for file in self._files))
        begins = [*accumulate((rows or 0 for rows in known), initial=0)]
        files = [(file.name, begin) for file, begin in zip(self._files, begins, strict=False)]
        return files[max(0, bisect_left(begins, since, hi=len(files)) - 1) :]

    @property
    def places(self) -> list[tuple[str, int, int | None]]:
        """Path, bytes and time of the last change (ns) of each file."""
        return [(file.place.path, file.place.size, file.place.modified) for file in self._files]

    @property
    def seekable(self) -> bool:
        """Return True if reading from a later row does not cost reading the rows before it."""
        return all(file.seekable for file in self._files)

    def part(self, names: Sequence[str], *, keys: bool) -> FileSource:
        """Return a source of the same rows with some of the features only; see :meth:`RowEncoder.part`."""
        part = copy.copy(self)
        part._encoder = self._encoder.part(names, keys=keys)
        part.features, part._chunk_rows = part._encoder.features, CHUNK_ROWS[1]
        part._cursor = None
        return part

    def block(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows ``start`` to before ``stop`` of a :meth:`part`, with categories numbered as they appear there."""
        self._encoder.forget_categories()
        if self._cursor is None or self._cursor.row != start:
            self._limit_threads(threads())
            self._cursor = _Cursor(self._batches(self._encoder.columns, start), start)
        for found in self._cursor.until(stop):
            yield self._encoder.encode(_block(*found))

    def hand_out(self, row: int) -> None:
        """Take note that the rows before this one were handed out, though not by :meth:`rows`."""
        self._handed_out = max(self._handed_out, row)

    def forget_labels(self, row: int) -> None:
        """Forget the labels that first appeared in this row or later."""
        self._encoder.labels.forget(row)

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it (zero-based)."""
        name, begin = self.beginnings(max(0, row) + 1)[0]
        return name, row - begin

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Dictionaries as known before ``row`` (from all rows handed out, if None)."""
        return self._encoder.state(self._handed_out if row is None else row)

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with saved dictionaries."""
        self._encoder.restore(state)
        self._handed_out = 0

    def _batches(
        self, columns: list[str], start: int
    ) -> Generator[tuple[pa.RecordBatch, int, DataFile, int], None, None]:
        """Yield record batches with the row number of their first row, their file, and the row there."""
        begin = 0
        for file in self._files:
            skip = max(0, start - begin)
            if skip and file is not self._files[-1] and file.count() <= skip:
                begin += file.count()
                continue
            at = skip
            with closing(file.batches(columns, skip, self._chunk_rows)) as batches:
                for batch in batches:
                    if self._limit is not None and begin + at + batch.num_rows >= self._limit:
                        rest = batch.slice(0, max(0, self._limit - begin - at))
                        if rest.num_rows:
                            yield rest, begin + at, file, at
                        return
                    yield batch, begin + at, file, at
                    at += batch.num_rows
            if file.n_rows is None and (at > skip or not skip):
                file.n_rows = at
            begin += at

    def _width(self, option: int | None, column: str) -> int:
        """Number of sparse features: as the option says, else the files' metadata, else by reading all of them."""
        chosen = [file for file, table in zip(self._files, self._tables, strict=True) if not table.empty] or self._files
        width = option or declared_width([file.schema for file in chosen], [file.name for file in chosen])
        if width is None:
            with closing(self._batches(self._encoder.to_read([column]), 0)) as batches:
                columns = (self._encoder.column(batch, column) for batch, *_ in batches)
                width = max(map(width_of, columns), default=1) if self._encoder.tokens is None else different(columns)
        return width

    def _no_rows(self) -> InputError:
        return InputError(message("files.no_rows"), file=self._files[0].name)

    def _label_counts(self, label: str) -> dict[Any, int]:
        seen, counts = Dictionary(), np.zeros(0, dtype=np.int64)
        with closing(self._batches(self._encoder.to_read([label]), 0)) as batches:
            for batch, row, _, _ in batches:
                codes = seen.encode(*self._encoder.read_labels(batch, label, row))
                new = np.bincount(codes[codes >= 0], minlength=len(seen))
                new[: len(counts)] += counts
                counts = new
        return dict(zip(seen.values, counts.tolist(), strict=True))


class _Read(NamedTuple):
    """Blocks, and the error that comes after them: StopIteration at the end."""

    blocks: list[EncodedBlock]
    error: Exception | None


def _read(blocks: Iterator[EncodedBlock], size: int) -> _Read:
    read: list[EncodedBlock] = []
    try:
        while len(read) < size:
            read.append(next(blocks))
    except Exception as error:
        return _Read(read, error)
    return _Read(read, None)


def _checked(encoder: RowEncoder, block: EncodedBlock) -> Checked | Exception:
    """Check a block; return what ends the reading before it."""
    try:
        return encoder.check(block)
    except Exception as error:
        return error


def _block(batch: pa.RecordBatch, row: int, file: DataFile, file_row: int) -> EncodedBlock:
    return EncodedBlock(batch, row, partial(_place, file.name, file_row), file.take_flaws(file_row, batch.num_rows))


def _place(file: str, first: int, position: int) -> tuple[str, int]:
    return file, first + position


def _columns_of(file: DataFile, envelope: Envelope | None) -> Columns:
    schema = file.schema if envelope is None else envelope.row_schema(file.schema, file.name)
    null = {field.name for field in schema if pa.types.is_null(field.type) or is_empty_list(field.type)}
    return Columns(file.name, schema, file.untyped | null, file.n_rows == 0)


# Files read in an order drawn from a seed (``source.permutation``).
#
# All needed columns of all rows are held in memory as one Arrow table, in the drawn order, from the first reading on.
#
# Invariant: row r of the source is row ``order[r]`` of the files, of which ``limit`` takes the first. Row numbers of
# the source (positions, ``after`` in a deletion log) count in the drawn order. Ids of a source without an id column are
# the numbers that rows have in the files, and messages name the file and the row there.


class PermutedFiles(FileSource):
    """Rows of one or several files in an order drawn from ``options.permutation``; see :class:`FileSource`."""

    def __init__(
        self, options: FileOptions, files: list[DataFile], chunk_rows: int | None = None, reading: Reading = CLASSES
    ) -> None:
        super().__init__(options, files, chunk_rows, reading)
        assert options.permutation is not None
        self._seed = options.permutation
        self._order: Ints | None = None
        self._table = pa.table({})
        self._flaws: dict[int, InputError] = {}  # by number in the files

    def rows(self, start: int = 0) -> Generator[Rows, None, None]:
        """Chunks of encoded rows from row ``start`` of the drawn order on."""
        with closing(super().rows(start)) as chunks:
            for rows in chunks:
                yield self._numbered(rows)

    seekable = True

    def block(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows of the drawn order; see :meth:`FileSource.block`."""
        self._encoder.forget_categories()
        self._limit_threads(threads())
        for block in self._blocks(start, stop):
            yield self._numbered(self._encoder.encode(block))

    def _numbered(self, rows: Rows) -> Rows:
        """Give rows without ids the numbers that they have in the files."""
        if self.id_kind != "row" or not len(rows):
            return rows
        return replace(rows, id=self._load()[rows.start : rows.start + len(rows)].copy())

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it (zero-based)."""
        return super().where(int(self._load()[row]))

    def identity(self) -> SourceIdentity:
        """The identity of the files, and the seed."""
        files = super().identity()
        described = {**files.description, "permutation": self._seed}
        return SourceIdentity(hashed(f"{files.fingerprint} permuted by {self._seed}"), described)

    def _blocks(self, start: int, stop: int | None = None) -> Generator[EncodedBlock, None, None]:
        order = self._load()
        end = len(order) if stop is None else min(stop, len(order))
        for begin in range(start, end, self._chunk_rows):
            part = self._table.slice(begin, min(self._chunk_rows, end - begin)).combine_chunks().to_batches()[0]
            numbers = order[begin : begin + part.num_rows].tolist() if self._flaws else []
            flaws = {place: self._flaws[number] for place, number in enumerate(numbers) if number in self._flaws}
            yield EncodedBlock(part, begin, partial(self._place, begin), flaws)

    def _place(self, first: int, position: int) -> tuple[str, int]:
        return self.where(first + position)

    def _load(self) -> Ints:
        """The drawn order; reads the files the first time."""
        columns = self._encoder.columns
        if self._order is None or self._table.column_names != columns:
            tables, self._flaws = [], {}
            for batch, row, file, file_row in self._batches(columns, 0):
                tables.append(pa.table({name: _held(batch.column(name)) for name in columns}))
                found = file.take_flaws(file_row, batch.num_rows)
                self._flaws |= {row + place: error for place, error in found.items()}
            try:
                table = pa.concat_tables(tables, promote_options="permissive") if tables else self._table
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                said = message("files.no_table", reason=message_of(error))
                raise InputError(said, file=self._files[0].name) from error
            self._order = permutation(stream_key(self._seed, "source permutation"), len(table))
            self._table = table.combine_chunks().take(self._order)
        return self._order


def _held(column: pa.Array) -> pa.Array:
    """The column without a dictionary, which differs from file to file, and with room for 2**31 bytes or values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = plain(column)
    if holds_tokens(column.type):
        return pc.cast(column, pa.large_list(pa.large_string()))
    if holds_indices(column.type):
        return pc.cast(column, pa.large_list(column.type.value_type))
    return pc.cast(column, pa.large_string()) if is_text(column.type) else column


# The rows of another source, read and encoded once, for any number of streams, also in other processes.
#
# Invariant: a stream over it gives the updates, names and places that it gives over the original. What is handed out is
# a copy: the stored chunks may lie in memory that processes share, which is read-only, and Numba compiles a kernel once
# more for a read-only array.


class StoredSource:
    """All rows of ``source``, read to its end; satisfies :class:`raydt.sources.base.Source`.

    It can be sent to other processes. ``tokens``, of large_string, is what the indices of the sparse features stand
    for; empty where they are numbers themselves. Memory: 8 bytes per cell, 4 per sparse feature that is 1 and 20 per
    row, beside the strings of text ids and tokens.
    """

    complete = True

    def __init__(self, source: Source) -> None:
        self.chunks = tuple(chunk for chunk in source.rows() if len(chunk))
        self.rules, self.reading = source.rules, source.reading
        self.features, self.id_kind, self.id_column = source.features, source.id_kind, source.id_column
        self.subject_column, self.subject_kind = source.subject_column, source.subject_kind
        self.is_changelog = source.is_changelog
        self.has_labels, self.known_classes = source.has_labels, source.known_classes
        self.target_dtype = source.target_dtype
        self.classes, self.positive = source.classes, source.positive
        self.n_rows = sum(len(chunk) for chunk in self.chunks)
        self._identity = source.identity()
        # A stream that was made over the original has asked it for times already.
        self._column = source.times() if any(chunk.ts is not None for chunk in self.chunks) else None
        self._places = [place for chunk in self.chunks for place in _places(source, chunk)]
        self.tokens = pa.array(
            source.state().get("categories", {}).get(self.features.sparse_column, []), pa.large_string()
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(column.nbytes) for chunk in self.chunks for column in chunk.columns().values())

    def first_bad(self) -> InputError | None:
        """Return the error of the first bad row, if there is one."""
        return next((chunk.bad[min(chunk.bad)] for chunk in self.chunks if chunk.bad), None)

    def count_rows(self) -> int:
        """Total number of rows."""
        return self.n_rows

    def times(self) -> TimeColumn | None:
        """The column of times, if the original was asked for it."""
        return self._column

    def require_ts(self) -> TimeColumn:
        """The column of times, which the original must have been asked for before it was stored."""
        if self._column is None:
            raise ConfigError(message("sources.stored_times"))
        return self._column

    def identity(self) -> SourceIdentity:
        """The identity of the original."""
        return self._identity

    def rows(self, start: int = 0) -> Iterator[Rows]:
        """Chunks of rows from row ``start`` on, copied."""
        for chunk in self.chunks:
            cut = max(0, start - chunk.start)
            if cut < len(chunk):
                rest = chunk.part(cut, len(chunk))
                yield replace(rest, **{name: column.copy() for name, column in rest.columns().items()})

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it (zero-based), as the original has them. O(log n)."""
        start, file, first = self._places[max(0, bisect_right(self._places, row, key=lambda place: place[0]) - 1)]
        return file, first + row - start

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Nothing to keep: every row is encoded."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


def _places(source: Source, chunk: Rows) -> list[tuple[int, str, int]]:
    """Return the places of a chunk's rows: (row, file, row there) of the first of each run of neighbouring rows."""
    file, first = source.where(chunk.start)
    if source.where(chunk.start + len(chunk) - 1) == (file, first + len(chunk) - 1):
        return [(chunk.start, file, first)]
    return [(row, *source.where(row)) for row in range(chunk.start, chunk.start + len(chunk))]

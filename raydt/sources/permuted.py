"""Files read in an order drawn from a seed (``source.permutation``).

All needed columns of all rows are held in memory as one Arrow table, in the drawn order, from the first reading on.

Invariant: row r of the source is row ``order[r]`` of the files, of which ``limit`` takes the first. Row numbers of the
source (positions, ``after`` in a deletion log) count in the drawn order. Ids of a source without an id column are the
numbers that rows have in the files, and messages name the file and the row there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.rng import permutation, stream_key
from raydt.arrays.types import Ints
from raydt.encoding.columns import is_text, plain
from raydt.encoding.indices import holds_indices
from raydt.encoding.tokens import holds_tokens
from raydt.errors import InputError, message_of
from raydt.examples.reading import CLASSES, Reading
from raydt.messages import message
from raydt.parallel.threads import threads
from raydt.sources.base import Rows
from raydt.sources.encoder import Block
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile
from raydt.sources.identity import Identity, hashed

if TYPE_CHECKING:
    from raydt.sources.file_options import FileOptions


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

    def identity(self) -> Identity:
        """That of the files, and the seed."""
        files = super().identity()
        described = {**files.description, "permutation": self._seed}
        return Identity(hashed(f"{files.fingerprint} permuted by {self._seed}"), described)

    def _blocks(self, start: int, stop: int | None = None) -> Generator[Block, None, None]:
        order = self._load()
        end = len(order) if stop is None else min(stop, len(order))
        for begin in range(start, end, self._chunk_rows):
            part = self._table.slice(begin, min(self._chunk_rows, end - begin)).combine_chunks().to_batches()[0]
            numbers = order[begin : begin + part.num_rows].tolist() if self._flaws else []
            flaws = {place: self._flaws[number] for place, number in enumerate(numbers) if number in self._flaws}
            yield Block(part, begin, partial(self._place, begin), flaws)

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

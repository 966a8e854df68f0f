"""CSV files with a header row, also compressed (by suffix: .gz, .bz2, .zst, .lz4).

Column types are inferred from the first block of a source's first file that shows a value in every column; all
values are then read as text and converted column by column, so that one value of another kind makes one bad row, not
an unreadable file. Event times are of the kind that most of them are. Columns that are to be categories stay text.
There are no row groups: a seek parses from the beginning.

Invariant: every row of the file is there. Rows of another length than the header, which Arrow passes over, come back
in their order as nulls and are noted; so are texts that are not UTF-8. A quote that is left open is an error: where
its row ends is anybody's guess.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from raydt.encoding.columns import (
    DECIMAL_COMMA,
    NUMBER,
    WORDS_FOR_NOTHING,
    NullValues,
    kind_of_times,
    share,
    unlike_integers,
)
from raydt.errors import InputError
from raydt.messages import marked, message, quoted
from raydt.sources.files.content import END_BYTES
from raydt.sources.files.datafile import DataFile, FilePlace

_BLOCK = 1 << 20
#: Rows, the header among them, may be as long as this.
_LONGEST = 64 << 20
_UNREADABLE = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)")
_DELIMITERS = ";\t,|"


class CsvDataFile(DataFile):
    """One CSV file.

    Without a ``delimiter``, it is the ``likely`` one if the header has that; else a tab where the name says so (.tsv),
    else a comma. Columns ``as_text`` are not converted. In columns ``mixed`` numbers among texts are texts; any other
    column with more numbers than texts is one of numbers, in which the texts are errors. ``ts`` is the column of event
    times. Columns ``integers`` are read as such. Columns ``named`` (of ids, subjects and keys) are text if a value of
    the first block is written unlike an integer, so that 007 and 7 are two ids; columns of ``classes`` are if all
    values could be integers otherwise. ``nulls`` say nothing about the kind of a column.
    """

    kind = "csv"
    suffixes = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst", ".csv.lz4")

    def __init__(
        self,
        place: FilePlace,
        delimiter: str | None = None,
        as_text: tuple[str, ...] = (),
        mixed: tuple[str, ...] = (),
        ts: str | None = None,
        named: Sequence[str] = (),
        classes: Sequence[str] = (),
        integers: Sequence[str] = (),
        likely: str | None = None,
        nulls: NullValues | None = None,
    ) -> None:
        self._nulls = nulls
        self._chosen = delimiter is not None
        usual = "\t" if place.name.lower().endswith((".tsv", ".tsv.gz")) else ","
        self._delimiters = [delimiter] if delimiter else list(dict.fromkeys([likely or usual, usual]))
        self._as_text, self._mixed, self._ts = as_text, (*as_text, *mixed), ts
        self._integers, self._named = integers, {*named} - {*integers, *as_text}
        self._integral = {*self._named, *classes} - {*as_text}
        self.unlike: dict[str, str] = {}  #: Columns that are text because of a value, and that value.
        super().__init__(place)

    def _open(self) -> None:
        head, tail = super()._ends_of_file()
        if head[:4] == tail[-4:] == b"PAR1":  # the beginning alone may be the name of a column
            raise ValueError("it is not text")
        try:
            inferred, first, is_empty = self._look(_BLOCK)
        except pa.ArrowInvalid as error:  # the header or the first row may be longer than a block
            self._refuse_bytes(error)
            inferred, first, is_empty = self._look(_LONGEST)
        names = inferred.names
        self._check_header(names)
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise InputError(message("columns.repeated"), file=self.name, column=marked(twice))
        self.untyped = frozenset(field.name for field in inferred if pa.types.is_null(field.type))
        self.n_rows = 0 if is_empty else None
        self.schema = pa.schema([pa.field(field.name, self._declared(field, first)) for field in inferred])

    def _find_unlike(self, found: pa.Schema, lines: bytes, block: int) -> None:
        """Find the columns of a first block with a value that is written unlike what Arrow takes it for: an integer."""
        names = [one.name for one in found if one.name in self._named and pa.types.is_floating(one.type)]
        names += [one.name for one in found if one.name in self._integral and pa.types.is_integer(one.type)]
        if not names or len(set(found.names)) < len(found):
            return
        texts = self._reader(pa.BufferReader(lines), block, lambda _: None, _as_texts(names)).next()
        if texts is None:
            return
        for name in names:
            column = texts.column(name)
            column = column.filter(pc.invert(pc.is_in(column, pa.array(sorted(WORDS_FOR_NOTHING)))))
            unlike = unlike_integers(column)
            if unlike is not None:
                self.unlike[name] = column[int(np.argmax(unlike))].as_py()

    def _declared(self, field: pa.Field, first: pa.RecordBatch | None) -> pa.DataType:
        name, kind = field.name, field.type
        if name in self._integers:
            return pa.int64()
        if name in self._as_text or name in self.unlike or pa.types.is_binary(kind):
            return pa.string()  # bytes that are not UTF-8 become an error when they are read
        if not pa.types.is_string(kind) or name in self._mixed or first is None:
            return pa.float64() if name in self.untyped else kind
        texts = first.column(name)
        texts = texts.filter(pc.not_equal(texts, ""))
        if name == self._ts:
            return kind_of_times(texts) or kind
        if self._nulls is not None and self._nulls.applies(name):
            texts = texts.filter(pa.array(~self._nulls.of(texts)))
            if not len(texts):
                self.untyped |= {name}
                return pa.float64()
        if share(texts, DECIMAL_COMMA) > 0.5:
            said = message("files.decimal_comma", value=quoted(texts[0].as_py(), 40))
            raise InputError(said, file=self.name, column=marked(name))
        return pa.float64() if share(texts, NUMBER) > 0.5 else kind

    def read_as_text(self, name: str) -> None:
        """Read a column as text, since it is text in another file of the source."""
        place = self.schema.get_field_index(name)
        self.schema = self.schema.set(place, pa.field(name, pa.string()))

    def _look(self, block: int) -> tuple[pa.Schema, pa.RecordBatch | None, bool]:
        """Return columns and rows of the whole lines of a first block, and True if there are none in the file."""
        data = b""  # in memory, as Arrow goes on reading a file ahead even when it has given up on it
        with self.open_stream() as source:
            while len(data) < block and (piece := source.read(block - len(data))):
                data += piece
        is_whole = len(data) < block
        header = data[: data.find(b"\n")]
        self._delimiter = next((sign for sign in self._delimiters if sign.encode() in header), self._delimiters[0])
        ragged: list[pacsv.InvalidRow] = []
        lines = data if is_whole else data[: data.rfind(b"\n") + 1]
        reader = self._reader(pa.BufferReader(lines), block, ragged.append)
        first = reader.next()
        if first is None and not is_whole:
            raise pa.ArrowInvalid("the first row is longer than a block")
        self._find_unlike(reader.schema, lines, block)
        return reader.schema, first, first is None and not ragged

    def _reader(
        self,
        source: Any,
        block: int,
        note: Callable[[pacsv.InvalidRow], None],
        convert: pacsv.ConvertOptions | None = None,
    ) -> _Reader:
        """Return a reader in one thread, so that it counts rows; ``note`` gets rows of another length."""

        def skip(row: pacsv.InvalidRow) -> str:
            note(row)
            return "skip"

        read = pacsv.ReadOptions(block_size=block, use_threads=False)
        parse = pacsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=skip)
        return _Reader(source, read, parse, convert)

    def _ends_of_file(self) -> tuple[bytes, bytes]:
        """The first bytes of the text, which may be compressed in the file; the last ones tell nothing."""
        with contextlib.suppress(OSError, pa.ArrowException), self.open_stream() as source:
            return source.read(END_BYTES), b""
        return b"?", b""  # not what its name says: the error from reading it is the better one

    def _batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        return self._blocks(columns, start, _BLOCK)

    def _blocks(self, columns: list[str], start: int, block: int) -> Generator[pa.RecordBatch, None, None]:
        convert = _as_texts(columns)
        row = 0
        ragged: deque[pacsv.InvalidRow] = deque()  # passed over, not yet back in their order
        with self.open_stream() as source:
            try:
                with contextlib.closing(self._reader(source, block, ragged.append, convert)) as reader:
                    end = pa.RecordBatch.from_pylist([], reader.schema)  # behind which ragged rows at the end come
                    for batch in itertools.chain(iter(reader.next, None), [end]):
                        batch, stop = self._with_ragged(batch, row, ragged, start)
                        if row + batch.num_rows > start:  # Arrow's own skipping of rows counts empty lines
                            yield batch.slice(max(0, start - row))
                        row += batch.num_rows
                        if stop is not None:
                            raise stop
            except pa.ArrowInvalid as error:
                self._refuse_bytes(error)
                if block == _LONGEST:
                    raise
                yield from self._blocks(columns, max(start, row), _LONGEST)  # a row may be longer than a block

    def _with_ragged(
        self, batch: pa.RecordBatch, row: int, ragged: deque[pacsv.InvalidRow], start: int
    ) -> tuple[pa.RecordBatch, InputError | None]:
        """A batch that begins at ``row``, with the ragged rows in it as nulls, and why nothing after it can be read."""
        found: list[pacsv.InvalidRow] = []
        while ragged and ragged[0].number - 2 <= row + batch.num_rows + len(found):  # counted from 1, with the header
            found.append(ragged.popleft())
        if not found:
            return batch, None
        before = [bad.number - 2 - row - count for count, bad in enumerate(found)]
        places = np.insert(np.arange(batch.num_rows), before, -1)
        batch = batch.take(pa.array(places, mask=places < 0))
        for bad in found:
            at, lengths = bad.number - 2, {"values": bad.actual_columns, "columns": bad.expected_columns}
            if "\n" in bad.text or "\r" in bad.text:
                said = message("rows.open_quote", text=quoted(bad.text), **lengths)
                return batch.slice(0, at - row), InputError(said, file=self.name, row=at)
            if at >= start:
                self.note_flaw(at, message("rows.length", text=quoted(bad.text), **lengths))
        return batch, None

    def _refuse_bytes(self, error: pa.ArrowInvalid) -> None:
        """Raise an error that names the row, if Arrow has given up on one of another length that is not UTF-8."""
        if found := _UNREADABLE.match(str(error)):
            row, expected, actual = map(int, found.groups())
            said = message("rows.undecoded_length", values=actual, columns=expected)
            raise InputError(said, file=self.name, row=row - 2) from error

    def _check_header(self, names: list[str]) -> None:
        """Refuse a header that is one column with what looks like another delimiter in it."""
        other = next((sign for sign in _DELIMITERS if len(names) == 1 and sign in names[0]), None)
        if other is not None:
            what = "delimiter" if self._chosen else "no_tabs" if self._delimiters[-1] == "\t" else "no_commas"
            said = message(f"files.{what}", header=quoted(names[0]), delimiter=json.dumps(other))
            raise InputError(said, file=self.name)


class _Quiet:
    """Context without what Arrow writes to standard error of a row that is not UTF-8, which it cannot hand over.

    Threads may be in it at the same time; the error itself is raised all the same.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._hook = threading.Lock(), 0, sys.unraisablehook

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._hook, sys.unraisablehook = sys.unraisablehook, self._hear
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.unraisablehook = self._hook

    def _hear(self, seen: Any) -> None:
        if not isinstance(seen.exc_value, UnicodeDecodeError):
            self._hook(seen)


_QUIET = _Quiet()


def _as_texts(columns: list[str]) -> pacsv.ConvertOptions:
    """Return what has Arrow read some columns as text, in which nothing but an empty one is null."""
    return pacsv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()),
        include_columns=columns,
        null_values=[""],
        strings_can_be_null=True,
        check_utf8=False,  # every batch of any format is checked: ``DataFile.batches``
    )


class _Reader:
    """Arrow's reader, which reads ahead in a thread of its own, also after an error, until it is closed.

    A process that ends while that thread reads from a file object of Python is aborted.
    """

    def __init__(self, *given: Any) -> None:
        with _QUIET:
            self._reader = pacsv.open_csv(*given)
        self.schema: pa.Schema = self._reader.schema

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end."""
        with _QUIET:
            return next(iter(self._reader), None)

    def close(self) -> None:
        """Read no further: Arrow reads ahead as long as somebody has its reader, as the frames of an error may."""
        self._reader = None

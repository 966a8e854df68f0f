"""CSV text that Arrow's reader gives up on: rows of another length, bytes that are not UTF-8, very long rows.

Invariant: every row of the file is there, in its place; one that cannot be had as a whole has null for what is lost
and is noted with what is wrong. A quote that is left open is an error: where its row ends is anybody's guess.

The bytes are read as Latin-1, in which all are text, and each value is turned back. Slower than Arrow's threads (one
thread, and Python work for each distinct value that is not ASCII), so only used for files that need it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from raydt.errors import InputError
from raydt.sources.files.damage import not_utf8

#: Rows, the header among them, may be as long as this.
BLOCK = 64 << 20
_BOM = b"\xef\xbb\xbf"

#: Takes a row number, what is wrong with the row, and the column if it is one.
Note = Callable[[int, str, str | None], None]


class Look(NamedTuple):
    """The beginning of a file: its columns with types inferred from the first rows, these rows, and if it has any."""

    schema: pa.Schema
    first: pa.RecordBatch | None
    is_empty: bool


class SalvagedText:
    """One CSV file, read with its flaws.

    Parameters
    ----------
    open_input : callable
        Opens the bytes, decompressed.
    delimiter : str
    file : str
        Its name, for messages.
    """

    def __init__(self, open_input: Callable[[], Any], delimiter: str, file: str) -> None:
        self._open_input, self._file = open_input, file
        self._parse = pacsv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=self._pass_over
        )
        self._ragged: deque[pacsv.InvalidRow] = deque()  # passed over, not yet put in place

    def look(self) -> Look:
        """Columns and first rows; types come from the rows of the first block that have the right length.

        Raises
        ------
        UnicodeDecodeError
            A column's name is not UTF-8.
        """
        with self._reader(None) as reader:
            inferred, first = reader.schema, next(iter(reader), None)
        names = [_as_bytes(field.name).decode() for field in inferred]
        schema = pa.schema([field.with_name(name) for name, field in zip(names, inferred, strict=True)])
        if first is None:
            return Look(schema, None, not self._ragged)
        return Look(schema, pa.RecordBatch.from_arrays(first.columns, schema=schema), False)

    def batches(self, columns: list[str], start: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Batches of text from row ``start`` on; ``note`` is called for each flawed row before its batch comes.

        Raises
        ------
        InputError
            A row of another length than the header goes on in the next line.
        """
        convert = pacsv.ConvertOptions(
            column_types={_as_latin(name): pa.string() for name in columns},
            include_columns=[_as_latin(name) for name in columns],
            null_values=[""],
            strings_can_be_null=True,
        )
        self._ragged.clear()
        row = 0
        with self._reader(convert) as reader:
            end = pa.RecordBatch.from_pylist([], reader.schema)  # what ragged rows at the end are put behind
            for batch in itertools.chain(reader, [end]):
                batch, flawed, stop = self._in_place(batch, row)
                for bad in flawed:
                    if bad >= start:
                        note(bad, flawed[bad], None)
                skip = max(0, start - row)
                if skip < batch.num_rows:
                    arrays = [
                        _decoded(column, name, row + skip, flawed, note)
                        for name, column in zip(columns, batch.slice(skip).columns, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, names=columns)
                row += batch.num_rows
                if stop is not None:
                    raise stop

    def _reader(self, convert: pacsv.ConvertOptions | None) -> pacsv.CSVStreamingReader:
        """A reader in one thread, since only then does Arrow count rows."""
        source = pa.TransformInputStream(self._open_input(), _ToLatin())
        return pacsv.open_csv(source, pacsv.ReadOptions(block_size=BLOCK, use_threads=False), self._parse, convert)

    def _pass_over(self, row: pacsv.InvalidRow) -> str:
        self._ragged.append(row)
        return "skip"

    def _in_place(self, batch: pa.RecordBatch, row: int) -> tuple[pa.RecordBatch, dict[int, str], InputError | None]:
        """A batch that begins at ``row``, with the rows passed over in it put back in as nulls.

        Returns
        -------
        batch : pa.RecordBatch
        flawed : dict of int to str
            Row number and problem of each of them.
        stop : InputError or None
            Why nothing after this batch can be told.
        """
        place: list[int | None] = []  # of each row in the batch, None for a row of nulls
        flawed: dict[int, str] = {}
        used = 0
        stop = None
        while self._ragged and self._ragged[0].number - 2 <= row + len(place) + batch.num_rows - used:
            ragged = self._ragged.popleft()
            at = ragged.number - 2  # counted from 1, the header included
            good = at - row - len(place)
            place += range(used, used + good)
            used += good
            text = _as_bytes(ragged.text).decode(errors="replace")
            problem = f"it has {ragged.actual_columns} values, the header {ragged.expected_columns}: {text[:60]!r}"
            if "\n" in text or "\r" in text:
                remedy = "Close the quote that is open here"
                stop = InputError(f"{problem}, over several lines", file=self._file, row=at, remedy=remedy)
                return batch.take(pa.array(place, pa.int64())), flawed, stop
            place.append(None)
            flawed[at] = problem
        if not flawed:
            return batch, flawed, stop
        place += range(used, batch.num_rows)
        return batch.take(pa.array(place, pa.int64())), flawed, stop


class _ToLatin:
    """Bytes, a piece at a time, to the UTF-8 of what they are as Latin-1, without a byte order mark."""

    def __init__(self) -> None:
        self._begun = False

    def __call__(self, piece: Any) -> bytes:
        data = bytes(piece)
        if not self._begun:
            self._begun, data = True, data.removeprefix(_BOM)
        return data.decode("latin-1").encode()


def _as_latin(name: str) -> str:
    return name.encode().decode("latin-1")


def _as_bytes(text: str) -> bytes:
    """The bytes that were read as Latin-1."""
    return text.encode("latin-1")


def _decoded(column: pa.Array, name: str, row: int, flawed: dict[int, str], note: Note) -> pa.Array:
    """A column turned back from Latin-1, null where its bytes are not UTF-8."""
    if pc.all(pc.string_is_ascii(column), min_count=0).as_py():
        return column
    coded = column.dictionary_encode()
    texts: list[str | None] = []
    problems: dict[int, str] = {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            texts.append(_as_bytes(text).decode())
        except UnicodeDecodeError:
            texts.append(None)
            problems[code] = not_utf8(_as_bytes(text))
    codes = coded.indices.to_numpy(zero_copy_only=False)
    for position in np.flatnonzero(np.isin(codes, list(problems))).tolist():
        note(row + position, problems[int(codes[position])], name)
    return pa.array(texts, pa.string()).take(coded.indices)

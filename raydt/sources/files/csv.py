"""CSV files with a header row, also compressed (by suffix: .gz, .bz2, .zst, .lz4).

Column types are inferred from the first block of a source's first file that shows a value in every column; all
values are then read as text and converted column by column, so that one value of another kind makes one bad row, not
an unreadable file. Event times are of the kind that most of them are. Columns that are to be categories stay text.
There are no row groups: a seek parses from the beginning. Where Arrow's reader gives up, the file is read again as
``raydt.sources.files.salvage`` does it.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from raydt.errors import InputError
from raydt.sources.columns.times import kind_of_times
from raydt.sources.files.damage import END_BYTES
from raydt.sources.files.datafile import DataFile, Place
from raydt.sources.files.salvage import SalvagedText

_BLOCK = 1 << 20
_DELIMITERS = ";\t,|"
_NUMBER = r"^\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*$"
_DECIMAL_COMMA = r"^\s*[-+]?[0-9]*,[0-9]+\s*$"


class CsvDataFile(DataFile):
    """One CSV file.

    Parameters
    ----------
    place : Place
    delimiter : str, optional
        By default a tab where the name says so (.tsv), else a comma.
    as_text : tuple of str
        Columns that are not converted.
    mixed : tuple of str
        Columns in which numbers among texts are texts. Any other column with more numbers than texts is one of
        numbers, in which the texts are errors.
    ts : str, optional
        Column of event times.
    """

    kind = "csv"
    suffixes = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst", ".csv.lz4")

    def __init__(
        self,
        place: Place,
        delimiter: str | None = None,
        as_text: tuple[str, ...] = (),
        mixed: tuple[str, ...] = (),
        ts: str | None = None,
    ) -> None:
        self._chosen = delimiter is not None
        if delimiter is None:
            delimiter = "\t" if place.name.lower().endswith((".tsv", ".tsv.gz")) else ","
        self._parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        self._as_text, self._mixed, self._ts = as_text, (*as_text, *mixed), ts
        super().__init__(place)

    def _open(self) -> None:
        head, tail = super()._ends_of_file()
        if head[:4] == tail[-4:] == b"PAR1":  # the beginning alone may be the name of a column
            raise ValueError("it is not text")
        try:
            beginning, is_whole = self._beginning()
            reader = pacsv.open_csv(pa.BufferReader(beginning), pacsv.ReadOptions(block_size=_BLOCK), self._parse)
            inferred, first = reader.schema, next(iter(reader), None)
            names, is_empty = list(inferred.names), first is None
            if is_empty and not is_whole:
                raise pa.ArrowInvalid("the first row is longer than a block")
        except (pa.ArrowInvalid, UnicodeDecodeError):
            inferred, first, is_empty = SalvagedText(self._input, self._parse.delimiter, self.name).look()
            names = inferred.names
        self._check_header(names)
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise InputError("two columns have this name", file=self.name, column=twice, remedy="Rename one of them")
        self.untyped = frozenset(field.name for field in inferred if pa.types.is_null(field.type))
        self.n_rows = 0 if is_empty else None
        self.schema = pa.schema([pa.field(field.name, self._declared(field, first)) for field in inferred])

    def _declared(self, field: pa.Field, first: pa.RecordBatch | None) -> pa.DataType:
        name, kind = field.name, field.type
        if name in self._as_text or pa.types.is_binary(kind):
            return pa.string()  # bytes that are not UTF-8 become an error when they are read
        if not pa.types.is_string(kind) or name in self._mixed or first is None:
            return pa.float64() if name in self.untyped else kind
        texts = first.column(name)
        texts = texts.filter(pc.not_equal(texts, ""))
        if name == self._ts:
            return kind_of_times(texts) or kind
        if _share(texts, _DECIMAL_COMMA) > 0.5:
            raise InputError(
                f"{texts[0].as_py()[:40]!r} looks like a number with a decimal comma",
                file=self.name,
                column=name,
                remedy="Write decimal points, or list the column under source.categorical if these are names",
            )
        return pa.float64() if _share(texts, _NUMBER) > 0.5 else kind

    def _beginning(self) -> tuple[bytes, bool]:
        """Whole lines of the first block, and whether that is the whole file.

        In memory, as Arrow goes on reading a file ahead even when it has given up on it.
        """
        data = b""
        with self._input() as source:
            while len(data) < _BLOCK and (piece := source.read(_BLOCK - len(data))):
                data += piece
        is_whole = len(data) < _BLOCK
        return data if is_whole else data[: data.rfind(b"\n") + 1], is_whole

    def _input(self) -> Any:
        return self.place.filesystem.open_input_stream(self.place.path)

    def _ends_of_file(self) -> tuple[bytes, bytes]:
        """The first bytes of the text, which may be compressed in the file; the last ones tell nothing."""
        with contextlib.suppress(OSError, pa.ArrowException), self._input() as source:
            return source.read(END_BYTES), b""
        return b"?", b""  # not what its name says: the error from reading it is the better one

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[pa.RecordBatch]:
        convert = pacsv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=columns,
            null_values=[""],
            strings_can_be_null=True,
        )
        passed = 0
        with self._input() as source:
            try:
                for batch in pacsv.open_csv(source, pacsv.ReadOptions(block_size=_BLOCK), self._parse, convert):
                    if passed + batch.num_rows > start:  # Arrow's own skipping of rows counts empty lines
                        yield batch.slice(max(0, start - passed))
                    passed += batch.num_rows
            except pa.ArrowInvalid:
                # Within the block: Arrow's thread may still be reading ahead, and if its file were closed, it would
                # read from whatever is opened next under the same number.
                salvaged = SalvagedText(self._input, self._parse.delimiter, self.name)
                yield from salvaged.batches(columns, max(start, passed), self.note_flaw)

    def _check_header(self, names: list[str]) -> None:
        """Refuse a header that is one column with what looks like another delimiter in it."""
        other = next((sign for sign in _DELIMITERS if len(names) == 1 and sign in names[0]), None)
        if other is not None:
            remedy = "Separate the columns by commas, or by tabs in a file called .tsv"
            if self._parse.delimiter == "\t":
                remedy = "Separate the columns by tabs, as the name says, or rename the file"
            if self._chosen:
                remedy = f"Set source.delimiter: {json.dumps(other)}"
            raise InputError(f"the header is one column, {names[0][:60]!r}", file=self.name, remedy=remedy)


def _share(texts: pa.Array, pattern: str) -> float:
    """Share of the texts that match a regular expression."""
    return (pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0) / max(1, len(texts))

"""CSV files with a header row, also compressed (by suffix: .gz, .bz2, .zst, .lz4).

Column types are inferred from the first block of a source's first file that shows a value in every column; all
values are then read as text and converted column by column, so that one value of another kind makes one bad row, not
an unreadable file. Columns that are to be categories stay text. There are no row groups: a seek parses from the
beginning.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from raydt.errors import InputError
from raydt.sources.datafile import DataFile, Place

_BLOCK = 1 << 20
_DELIMITERS = ";\t,|"


class CsvDataFile(DataFile):
    """One CSV file.

    Parameters
    ----------
    place : Place
    delimiter : str
    as_text : tuple of str
        Columns that are not converted.
    """

    kind = "csv"
    suffixes = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst", ".csv.lz4")

    def __init__(self, place: Place, delimiter: str = ",", as_text: tuple[str, ...] = ()) -> None:
        self._parse = pc.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        self._as_text = as_text
        super().__init__(place)

    def _open(self) -> None:
        with self._ragged_rows(None), self._input() as source:
            inferred = pc.open_csv(source, pc.ReadOptions(block_size=_BLOCK), self._parse).schema
        self._check_header(inferred.names)
        self.untyped = frozenset(field.name for field in inferred if pa.types.is_null(field.type))
        self.schema = pa.schema([pa.field(field.name, self._declared(field)) for field in inferred])

    def _declared(self, field: pa.Field) -> pa.DataType:
        if field.name in self._as_text or pa.types.is_binary(field.type):
            return pa.string()  # bytes that are not UTF-8 become an error when they are read
        return pa.float64() if field.name in self.untyped else field.type

    def _input(self) -> Any:
        return self.place.filesystem.open_input_stream(self.place.path)

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[pa.RecordBatch]:
        convert = pc.ConvertOptions(
            column_types=dict.fromkeys(self.schema.names, pa.string()),
            include_columns=columns,
            null_values=[""],
            strings_can_be_null=True,
        )
        read = pc.ReadOptions(block_size=_BLOCK, skip_rows_after_names=start)
        with self._ragged_rows(convert), self._input() as source:
            yield from pc.open_csv(source, read, self._parse, convert)

    def _check_header(self, names: list[str]) -> None:
        """Refuse a header that is one column with what looks like another delimiter in it."""
        other = next((sign for sign in _DELIMITERS if len(names) == 1 and sign in names[0]), None)
        if other is not None:
            raise InputError(
                f"the header is one column, {names[0][:60]!r}",
                file=self.name,
                remedy=f"Set source.delimiter: {json.dumps(other)} (a deletion log needs commas)",
            )

    @contextlib.contextmanager
    def _ragged_rows(self, convert: pc.ConvertOptions | None) -> Iterator[None]:
        """Name the row where reading fails for a row that is longer or shorter than the header.

        Arrow counts rows only when it reads without threads, so the file is read again up to the failure.
        """
        try:
            yield
        except pa.ArrowInvalid:
            found: list[pc.InvalidRow] = []

            def note(row: pc.InvalidRow) -> str:
                found.append(row)
                return "skip"

            parse = pc.ParseOptions(delimiter=self._parse.delimiter, newlines_in_values=True, invalid_row_handler=note)
            read = pc.ReadOptions(block_size=_BLOCK, use_threads=False)
            with contextlib.suppress(pa.ArrowInvalid), self._input() as source:
                reader = pc.open_csv(source, read, parse, convert)
                self._check_header(reader.schema.names)
                for _ in reader:
                    if found:
                        break
            if not found:
                raise
            row = found[0]
            raise InputError(
                f"it has {row.actual_columns} values, the header {row.expected_columns}: {row.text[:60]!r}",
                file=self.name,
                row=row.number - 2,  # counted from 1, the header included
                remedy="Correct the file",
            ) from None

"""Files of JSON Lines (NDJSON): a line is one JSON object, a row; its keys are the columns.

A key that a row lacks is null, and so is everything of a line ``null``; empty lines are no rows. The types of the
columns hold all values; objects are structs, as in a change of Debezium, whose payload is the row where Kafka Connect
has wrapped it. A seek parses from the beginning. Invariant: every row of the file is there. One that is no JSON object,
or has a value of another kind than the rows before it, is a row of nulls, and is noted.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from raydt.encoding.columns import NullValues, in_words
from raydt.encoding.labels import parse_json, rounded_integers, sound_part
from raydt.errors import InputError
from raydt.examples.updates import NEWEST_RULES
from raydt.messages import Message, message, quoted
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import ArrowDataFile, DataFile, FilePlace, ParquetDataFile, find_files
from raydt.sources.files.libsvm import LibsvmDataFile, whole_lines

_BLOCK = 1 << 22
#: A line may be as long as this.
_LONGEST = 1 << 26
#: Values that show most columns of text to be one.
_FEW = 64
#: A row without a value.
_NULL = b"{}"
#: Keys of a line that wraps a change.
_WRAPPED = {"schema", "payload"}


class JsonLinesDataFile(DataFile):
    """One file of JSON Lines, also compressed (by suffix). Columns ``as_text``, of structs too, are no times.

    With ``exact``, an integer beyond 2**53 is bad in a column of floating-point numbers, too. ``nulls`` are texts that
    are no values among numbers, and say nothing about the kind of a column.
    """

    kind = "jsonl"
    suffixes = tuple(form + end for form in (".jsonl", ".ndjson") for end in ("", ".gz", ".bz2", ".zst", ".lz4"))

    def __init__(
        self,
        place: FilePlace,
        as_text: tuple[str, ...] = (),
        exact: bool = True,
        nulls: NullValues | None = None,
    ) -> None:
        self._as_text, self._exact = frozenset(as_text), exact
        self._nulls = nulls if nulls is not None and nulls.words else None
        super().__init__(place)

    def _open(self) -> None:
        """Read the file through once, for its types and the number of its rows."""
        kind: pa.DataType = pa.struct([])
        rows = 0
        for block in whole_lines(self, _BLOCK, _LONGEST):
            lines = _lines(block)
            if not rows and lines and lines[0].lstrip().startswith(b"["):
                raise InputError(message("files.json_array"), file=self.name)
            rows += len(lines)
            try:
                found = [self._kinds(_parsed(lines, None))]
            except pa.ArrowInvalid:  # values of several kinds, or no JSON: line by line
                found = [self._kinds(table) for line in lines if (table := _attempted([line], None)) is not None]
            for one in found:
                kind = _merged(kind, one) or kind
        self.n_rows = rows
        self.schema = pa.schema([self._declared(field) for field in kind])

    def expect(self, types: Mapping[str, pa.DataType], inside: Sequence[str] = ()) -> None:
        """Have columns of these types, too, where no row has a value; with ``inside``, as fields of these structs."""
        found = {field.name: field for field in self.schema}
        if not inside:
            found |= {name: pa.field(name, kind) for name, kind in types.items() if not _has_values(found.get(name))}
        for outer in inside:
            known = found.get(outer)
            inner = {field.name: field for field in known.type} if _has_values(known) and known is not None else {}
            inner |= {name: pa.field(name, kind) for name, kind in types.items() if not _has_values(inner.get(name))}
            found[outer] = pa.field(outer, pa.struct(list(inner.values())))
        self.schema = pa.schema(list(found.values()))
        self.names = list(self.schema.names)

    def _kinds(self, table: pa.Table) -> pa.StructType:
        """Return the types of columns; a text that stands for a missing number has none."""
        return pa.struct([self._kind(field, table.column(field.name)) for field in table.schema])

    def _kind(self, field: pa.Field, column: pa.ChunkedArray) -> pa.Field:
        if pa.types.is_struct(field.type):
            inner = zip(field.type, column.flatten(), strict=True)
            return field.with_type(pa.struct([self._kind(one, values) for one, values in inner]))
        nulls = self._nulls
        if nulls is None or not pa.types.is_string(field.type) or not nulls.applies(field.name):
            return field
        if field.name in self._as_text or not all(nulls.of(t.drop_null()).all() for t in (column[:_FEW], column)):
            return field
        return field.with_type(pa.null())

    def _declared(self, field: pa.Field) -> pa.Field:
        if pa.types.is_struct(field.type):
            return field.with_type(pa.struct([self._declared(inner) for inner in field.type]))
        return field.with_type(pa.string()) if field.name in self._as_text and _is_text(field.type) else field

    def _batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        wanted = {name for column in columns for name in (column, column.partition(".")[0])}
        schema, row = pa.schema([field for field in self.schema if field.name in wanted]), 0
        for block in whole_lines(self, _BLOCK, _LONGEST):
            lines = _lines(block)
            skip = max(0, start - row)
            if skip < len(lines):
                yield from self._read(lines[skip:], row + skip, schema).to_batches()
            row += len(lines)

    def _read(self, lines: list[bytes], row: int, schema: pa.Schema) -> pa.Table:
        """Return the rows of lines, the first of which is ``row``; bad ones have what can be read, and are noted."""
        table = _attempted(lines, schema)
        if table is None and self._nulls is not None:
            lines = [_without_words(line, schema, self._nulls) for line in lines]
            table = _attempted(lines, schema)
        if table is None:
            sound = list(lines)
            for place, line in enumerate(lines):
                try:
                    _parsed([line], schema)
                except pa.ArrowInvalid as error:
                    sound[place] = _sound(line, schema)
                    self.note_flaw(row + place, *_fault(line, schema, error))
            table, lines = _parsed(sound, schema), sound
        if self._exact and len(schema):
            for place, column in rounded_integers(table, lines).items():
                self.note_flaw(row + place, message("rows.inexact"), column)
        return table


def _lines(block: bytes) -> list[bytes]:
    """Return the lines of a block that are rows; ``null`` as an empty object, since Arrow crashes where it is first."""
    lines = [line for line in block.split(b"\n") if line.strip()]
    return [_NULL if line.strip() == b"null" else _unwrapped(line) for line in lines]


def _unwrapped(line: bytes) -> bytes:
    """Return the change that is the payload of a line, an empty object for a null one; any other line as it is."""
    if b'"payload"' not in line:
        return line
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(values, dict) or not {"payload"} <= values.keys() <= _WRAPPED:
        return line
    change = values["payload"]
    if change is None:  # the tombstone of a key
        return _NULL
    is_change = isinstance(change, dict) and "op" in change and not {"before", "after"}.isdisjoint(change)
    return json.dumps(change).encode() if is_change else line


def _parsed(lines: list[bytes], schema: pa.Schema | None) -> pa.Table:
    """Return the rows of lines with the columns of a schema, or with all that they have; ``pa.ArrowInvalid``."""
    # A line that ends with a brace is not completed by the next one, which begins with one.
    if not all(line.lstrip().startswith(b"{") and line.rstrip().endswith(b"}") for line in lines):
        raise pa.ArrowInvalid("a line is no object")
    table = parse_json(b"\n".join(lines) + b"\n", len(lines), schema)
    if schema is None:
        return table
    return pa.table([table.column(name) for name in schema.names], schema=schema) if len(schema) else table


def _sound(line: bytes, schema: pa.Schema) -> bytes:
    """Return what of a bad line can be read."""
    try:
        part = json.dumps(sound_part(line, schema), allow_nan=False).encode()
        _parsed([part], schema)
    except (ValueError, TypeError, pa.ArrowInvalid):
        return _NULL
    return part


def _attempted(lines: list[bytes], schema: pa.Schema | None) -> pa.Table | None:
    """Return what :func:`_parsed` does, None where that cannot read the lines."""
    try:
        return _parsed(lines, schema)
    except pa.ArrowInvalid:
        return None


def _without_words(line: bytes, schema: pa.Schema, nulls: NullValues) -> bytes:
    """Return a line with null for the texts that stand for a missing number; any other line as it is."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return line
    found = nulls.without_words(values, pa.struct(list(schema)))
    return line if found == values else json.dumps(found).encode()


def _fault(line: bytes, schema: pa.Schema, error: pa.ArrowInvalid) -> tuple[Message, str | None]:
    """Return what is wrong with a line, and the column that it is wrong with, if it is one."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as reason:
        return message("rows.not_json", reason=str(reason), line=quoted(line.decode(errors="replace"), 40)), None
    if not isinstance(values, dict):
        return message("rows.not_object", value=quoted(line.decode(errors="replace"), 40)), None
    for field in schema:
        if field.name in values:
            one = json.dumps({field.name: values[field.name]}).encode()
            try:
                _parsed([one], pa.schema([field]))
            except pa.ArrowInvalid:
                value = quoted(json.dumps(values[field.name]), 40)
                return message("rows.not_kind", value=value, kind=in_words(field.type)), field.name
    return message("rows.not_json", reason=str(error), line=quoted(line.decode(errors="replace"), 40)), None


def _has_values(field: pa.Field | None) -> bool:
    return field is not None and not pa.types.is_null(field.type)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of two types; None if there is none."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _is_number(one) and _is_number(other):
        return pa.float64()
    if _is_text(one) and _is_text(other):
        return pa.string()
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = _merged(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field for field in one}
        for field in other:
            known = fields.get(field.name, field)
            fields[field.name] = known.with_type(_merged(known.type, field.type) or known.type)
        return pa.struct(list(fields.values()))
    return None


# The formats of files, and which one a name stands for (:func:`find_kind`) where no config tells it.

FORMATS: tuple[type[DataFile], ...] = (
    ParquetDataFile,
    ArrowDataFile,
    CsvDataFile,
    JsonLinesDataFile,
    LibsvmDataFile,
)


class Dialect(NamedTuple):
    """Format and delimiter of the files of a run's source, for the files that its later commands are given."""

    kind: str | None = None  #: Of files whose names have no ending of a format.
    delimiter: str | None = None  #: Of CSV files; a file without it in its header is one of the usual kind.
    null_values: tuple[str, ...] | None = None  #: As of :class:`NullValues`.

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Dialect:
        """Return the dialect that ``meta`` of a model or state records; what earlier builds wrote has a config."""
        source = meta.get(DIALECT) or meta.get("config", {}).get("source", {})
        kind = source.get("kind")
        nulls = source.get("null_values")
        given = source.get("delimiter"), None if nulls is None else tuple(nulls)
        return cls(kind, *given) if any(form.kind == kind for form in FORMATS) else cls()

    @classmethod
    def recorded(cls, options: Any) -> dict[str, Any]:
        """Return the entry of ``meta`` for the options of a source; none if it has no files."""
        found = cls.of({DIALECT: {name: getattr(options, name, None) for name in cls._fields}})
        if not found.kind:
            return {}
        written = found._asdict()
        return {DIALECT: written if written["null_values"] is not None else dict([*written.items()][:2])}


#: Of files of which nothing but their names is known.
USUAL = Dialect()

#: The entry of a manifest for the fields of :class:`Dialect`.
DIALECT = "dialect"


def form_of(name: str) -> type[DataFile] | None:
    """Return the format that the ending of a name stands for; None if it stands for none."""
    return next((form for form in FORMATS if name.lower().endswith(form.suffixes)), None)


def find_kind(
    path: str,
    base_dir: str | Path,
    kind: str | None = None,
    *,
    or_else: str = "",
    dialect: Dialect = USUAL,
) -> tuple[type[DataFile], list[FilePlace]]:
    """Return the format of a path's files (:func:`find_files`), and these; InputError if it is unclear."""
    own = next((form for form in FORMATS if form.kind == dialect.kind), None)
    among = [form for form in FORMATS if kind in (None, form.kind)]
    suffixes = tuple(suffix for form in among for suffix in form.suffixes)
    places = find_files(path, base_dir, suffixes)
    if kind is not None:
        return among[0], places
    found: dict[type[DataFile], str] = {}
    for place in places:
        form = form_of(place.name) or own
        if form is None:
            said = message("files.unclear", suffixes=", ".join(suffixes), or_else=or_else)
            raise InputError(said, file=place.name)
        found.setdefault(form, place.name)
    if len(found) > 1:
        raise InputError(message("files.many_kinds", names=" and ".join(found.values())), file=path)
    return next(iter(found)), places


def open_file(
    form: type[DataFile],
    place: FilePlace,
    as_text: tuple[str, ...],
    dialect: Dialect = USUAL,
    rules: int = NEWEST_RULES,
    numbers: Sequence[str] = (),
) -> DataFile:
    """Open one file, read by ``rules``; columns ``as_text`` stay text in CSV and JSON, whatever they look like.

    In ``numbers``, features of a model, texts that stand for a missing number are no values.
    """
    nulls = NullValues(dialect.null_values, rules, frozenset(numbers).__contains__)
    try:
        if form is CsvDataFile:
            return CsvDataFile(place, as_text=as_text, likely=dialect.delimiter, nulls=nulls)
        return JsonLinesDataFile(place, as_text, rules >= 4, nulls) if form is JsonLinesDataFile else form(place)
    except InputError as error:
        if form_of(place.name) is None and form.kind == dialect.kind:
            raise error.but(remedy=message("files.assumed", kind=form.kind)) from None
        raise

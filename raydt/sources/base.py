"""Interface of every source: encoded rows in a fixed order, readable again from any row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import accumulate, zip_longest
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, model_validator

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows, concatenated
from raydt.arrays.elementary import Bools, Floats, Ints
from raydt.encoding.columns import Faults, TimeColumn, id_values, in_words
from raydt.encoding.labels import OpValues
from raydt.errors import InputError
from raydt.examples.updates import DELETE, INSERT, NEWEST_RULES, QUERY, UPDATE, Features, Reading, Targets, Weights
from raydt.messages import Message, message, quoted, quoted_columns

# Identity of the data of a source: described, so that a difference can be named, and hashed.
#
# Invariant: two sources have the same fingerprint exactly if what identifies their data is the same; their places are
# not part of it, so that data may move. The names of files are in the description for messages only.


class SourceIdentity(NamedTuple):
    """Identity of a source's data."""

    fingerprint: str  #: ``sha256:`` and 64 hexadecimal digits.
    #: JSON values. Of files: ``kind``, ``schema`` (names and types), ``limit``, ``files`` (``name``, ``rows`` if the
    #: format says it, ``bytes``, ``sha256`` of the contents) and, in a drawn order, ``permutation``; of a generator:
    #: its options.
    description: dict[str, Any]


def hashed(text: str) -> str:
    """``sha256:`` of a text."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return in what two descriptions of data differ; ``then`` may be of another version."""
    found: list[str] = [
        message("sources.differs", what=key, then=_shown(then, key), now=_shown(now, key))
        for key in dict.fromkeys([*then, *now])
        if key not in ("files", "schema") and then.get(key) != now.get(key)
    ]
    try:
        found += _columns(dict(then.get("schema", [])), dict(now.get("schema", [])))
        found += _files(then.get("files", []), now.get("files", []))
    except (TypeError, ValueError, KeyError, AttributeError):
        found.append(message("sources.unknown_description"))
    return found


def is_continued(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return True if data are, by their descriptions, what they were, with more files behind those."""
    try:
        before, after = ([file["sha256"] for file in one["files"]] for one in (then, now))
    except (KeyError, TypeError):
        return False
    same = {**then, "files": None} == {**now, "files": None}
    return same and now.get("limit") is None and len(after) > len(before) and after[: len(before)] == before


def file_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Message | None:
    """Return in what one file differs from what it was; None if in nothing that counts."""
    if (then["rows"], then["bytes"], then["sha256"]) == (now["rows"], now["bytes"], now["sha256"]):
        return None
    name = then["name"] if then["name"] == now["name"] else f"{then['name']} (now {now['name']})"
    changes = [
        f"{then[key]:,} {key} then, {now[key]:,} now"
        for key in ("rows", "bytes")
        if then[key] != now[key] and None not in (then[key], now[key])
    ]
    if not changes:
        return message("sources.other_contents", file=name)
    return message("sources.other_length", file=name, lengths=", ".join(changes))


def _columns(then: dict[str, str], now: dict[str, str]) -> Iterator[Message]:
    for one, other, change in ((then, now, "gone"), (now, then, "new")):
        yield from (message(f"sources.{change}", what=f"column {n!r} ({one[n]})") for n in one if n not in other)
    for name, kind in then.items():
        if now.get(name, kind) != kind:
            yield message("sources.differs", what=f"column {name!r}", then=kind, now=now[name])
    if list(then) != list(now) and then.keys() == now.keys():
        yield message("sources.other_order", what="columns", then=", ".join(then), now=", ".join(now))


def _files(then: list[Mapping[str, Any]], now: list[Mapping[str, Any]]) -> Iterator[Message]:
    before, after = [file["sha256"] for file in then], [file["sha256"] for file in now]
    if before != after and sorted(before) == sorted(after):
        yield message("sources.other_order", what="files", then=_names(then), now=_names(now))
        return
    if len(before) != len(after):
        yield message("sources.other_files", then=len(before), now=len(after))
        yield from (message("sources.gone", what=file["name"]) for file in then if file["sha256"] not in after)
        yield from (message("sources.new", what=file["name"]) for file in now if file["sha256"] not in before)
        return
    for old, new in zip_longest(then, now):
        change = file_differences(old, new)
        if change is not None:
            yield change


def _names(files: list[Mapping[str, Any]]) -> str:
    return ", ".join(str(file["name"]) for file in files)


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key]) if key in values else "not there"


def require(reading: Reading, features: Features) -> None:
    """Raise an InputError about features that a learner does not take."""
    from raydt.learners import instead  # needed for messages only: compiled kernels are imported with it

    if features.names and not reading.dense:
        shown = ", ".join(map(repr, features.names[:3]))
        more = f" and {len(features.names) - 3:,} others" if len(features.names) > 3 else ""
        others = instead(reading.with_dense, lambda other: other.sparse and other.dense)
        raise InputError(message("columns.dense", names=shown + more, others=others))
    if reading.needs_sparse and not features.sparse:
        others = reading.without_sparse or instead("", lambda other: not other.needs_sparse)
        raise InputError(message("columns.no_sparse", others=others))


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a source, encoded: consecutive ones as they are read, or a selection of them."""

    row: Ints  #: Shape (n,): numbers over all files of the source, ascending.
    #: Shape (n, d): finite, -0.0 replaced by 0.0; categorical columns hold codes in order of first appearance or, under
    #: :attr:`Reading.by_value`, numbers that follow from the values. Unspecified where the operation carries no
    #: features. Under :attr:`Reading.missing` a missing number is NaN, and a missing category -1, the code of whatever
    #: the model has not seen: the rows that lack it are told apart from all categories in the same way, and no file or
    #: model needs a name for what has none.
    X: Floats
    #: Shape (n,): class codes in order of first appearance (0 = rest, 1 = positive under ``positive``); -1 where
    #: missing. Under :attr:`Reading.regression` float64, the labels themselves; NaN where missing.
    y: Targets
    #: Shape (n,): the id column, or the row number where the source has none; -1 where ids are text (``names``).
    id: Ints
    #: Shape (n,): operation codes of a changelog (``raydt.examples.updates``), or ``IGNORED``.
    op: npt.NDArray[np.int8] | None = None
    #: Rows that cannot be used, by position; their values are unspecified, but for ``op`` and ``id`` (``names``) of a
    #: change log: an insert or update has the id of the row that it was about, an update that of the old row; where
    #: that cannot be read, it is ``IGNORED``. A selection of rows has none.
    bad: dict[int, InputError] = field(default_factory=dict)
    #: Shape (n,): event times, once :meth:`Source.times` or :meth:`Source.require_ts` has asked for them: microseconds
    #: since 1970-01-01 UTC for a column of timestamps or dates, integers as they are. At most
    #: ``raydt.encoding.columns.LARGEST_TIME`` in size.
    ts: Ints | None = None
    #: The sparse features, if the source has some; without ones where the operation carries no features.
    sparse: SparseRows | None = None
    #: Shape (n,): weights in units, times those of the classes (:attr:`Reading.class_weight`); None where no row has
    #: any.
    weight: Weights | None = None
    #: Shape (n,): text ids, None where there is none; the stream gives them numbers.
    names: npt.NDArray[np.object_] | None = None
    #: Shape (n,): whose row each is, text or integers, if the source names a column of subjects; None of a row that is
    #: not inserted.
    subject: npt.NDArray[np.object_] | None = None
    #: Shape (n,): code of the key that each row belongs to (:attr:`Source.keys`), -1 where there is none, if the source
    #: names a column of keys.
    key: Ints | None = None
    #: Shape (n,): of an update that moves its example from another key the code of that one, else -1; None where none
    #: does.
    moved: Ints | None = None

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Any) -> Rows:
        return Rows(**{name: column[index] for name in _COLUMNS if (column := getattr(self, name)) is not None})

    def part(self, begin: int, end: int) -> Rows:
        """Return consecutive rows, by position, with the bad ones among them."""
        part = self[begin:end]
        part.bad.update((place - begin, error) for place, error in self.bad.items() if begin <= place < end)
        return part

    @property
    def start(self) -> int:
        """Number of the first row."""
        return int(self.row[0])

    @property
    def has_features(self) -> bool:
        """Return False if the shards have read the features of these rows (:mod:`raydt.sources.divided`)."""
        return bool(self.X.shape[1]) or self.sparse is not None

    def columns(self) -> dict[str, Any]:
        """Return the arrays and sparse rows that are there, by name."""
        return {name: column for name in _COLUMNS if (column := getattr(self, name)) is not None}

    @staticmethod
    def joined(parts: list[Rows]) -> Rows:
        """Return the rows of at least one part, all of the same columns, one after another; a single part itself."""
        if len(parts) == 1:
            return parts[0]
        whole: dict[str, Any] = {}
        for name in parts[0].columns():
            columns = [getattr(part, name) for part in parts]
            whole[name] = concatenated(columns) if name == "sparse" else np.concatenate(columns)
        begins = accumulate(map(len, parts), initial=0)
        bad = {begin + at: error for begin, part in zip(begins, parts, strict=False) for at, error in part.bad.items()}
        return Rows(**whole, bad=bad)


_COLUMNS = tuple(one.name for one in fields(Rows) if one.name != "bad")


class Source(Protocol):
    """A finite, ordered, re-readable table of examples or changes."""

    features: Features
    rules: int  #: By which rows are read (:data:`raydt.examples.updates.NEWEST_RULES`).
    reading: Reading  #: What it reads for a learner.
    #: ``"row"`` (no id column: the row number is the id), ``"integer"`` or ``"text"``.
    id_kind: Literal["row", "integer", "text"]
    id_column: str | None  #: Name of the id column, for messages.
    subject_column: str | None  #: Name of the column of subjects.
    subject_kind: Literal["integer", "text"] | None  #: What that column holds; None without one.
    is_changelog: bool  #: Whether rows carry operations.
    has_labels: bool  #: Whether rows carry labels; without, they can be predicted only.
    known_classes: int  #: Classes known before any row is read: 2 under ``positive`` and for generators, else 0.
    target_dtype: np.dtype[Any]  #: Of :attr:`Rows.y`.
    #: False while more rows may come: :meth:`rows` then ends at a pause, and goes on from there if it is called again.
    complete: bool

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of their codes, as known so far (plain Python values)."""

    @property
    def positive(self) -> list[Any] | None:
        """Labels that count as positive, resolved (``majority`` included); None where every label is a class."""

    @property
    def n_rows(self) -> int | None:
        """Total number of rows if it is known without reading them."""

    def identity(self) -> SourceIdentity:
        """Return the identity of the data: schema, row counts, and contents (read once) or generator settings."""

    def rows(self, start: int = 0) -> Iterator[Rows]:
        """Chunks of rows from row ``start`` on."""

    def count_rows(self) -> int:
        """Total number of rows; files of a format that does not say it are read through once."""

    def times(self) -> TimeColumn | None:
        """Fill :attr:`Rows.ts` from now on if the source names a column that can hold event times.

        A row without a usable time has ``raydt.encoding.columns.NO_TIME``, and stays as good as it is.
        """

    def require_ts(self) -> TimeColumn:
        """Fill :attr:`Rows.ts` from now on, and make a row without a usable time bad.

        Raises
        ------
        ConfigError
            The source names no column of times.
        InputError
            The column cannot hold event times.
        """

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it (zero-based) of a row number, for messages."""

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Dictionaries of categories, labels and tokens, as plain JSON values.

        With ``row``, as they were before that row was read, so that reading ahead does not show.
        """

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the dictionaries of a saved state."""


# Debezium's envelope: a change as the structs ``before`` and ``after``, told apart by an operation.
#
# Invariant: opening an envelope changes neither the number nor the order of the rows, and every value of a good row
# comes from one struct: ``before`` for a delete, else ``after``. A bad update has the id in ``before``, if there is
# one.
#
# What the operations mean is in ``raydt.encoding.labels``, what becomes of the opened rows in the encoder.

BEFORE, AFTER = "before", "after"


class Envelope:
    """Rows inside ``before`` and ``after``, which have the field ``id``; other columns stand ``outside``."""

    def __init__(self, outside: Iterable[str], id: str) -> None:
        self._outside, self._id = tuple(outside), id

    def row_schema(self, schema: pa.Schema, file: str) -> pa.Schema:
        """Return the columns of the rows inside: outer ones, then fields of the structs, or an InputError."""
        fields = [schema.field(name) for name in self._outside if schema.names.count(name) == 1]
        inside: dict[str, pa.Field] = {}
        for side in (AFTER, BEFORE):
            for named in self._fields(schema, side, file):
                # Without a deletion (an update) a writer may not know the types of `before` (of `after`).
                if named.name not in inside or pa.types.is_null(inside[named.name].type):
                    inside[named.name] = named
        return pa.schema([*fields, *inside.values()])

    def stored(self, name: str) -> str:
        """Return the name of a column of the opened rows as it is stored, for messages."""
        return name if name in self._outside else f"{AFTER}.{name}"

    def columns(self, names: Iterable[str]) -> list[str]:
        """Return the columns of a file to read for these columns of the opened rows, as far as the file has it."""
        return [*map(self.stored, names), f"{BEFORE}.{self._id}"]

    def tombstones(self, batch: pa.RecordBatch, op: str) -> Bools:
        """Mask, shape (n,), of the rows in which everything is null: what Kafka keeps of a key after its deletion."""
        empty = batch.column(op).is_null()
        for side in (BEFORE, AFTER):
            if side in batch.schema.names:
                empty = pc.and_(empty, batch.column(side).is_null())
        return np.asarray(empty)

    def open(
        self, batch: pa.RecordBatch, names: Iterable[str], op: npt.NDArray[np.int8], faults: Faults
    ) -> pa.RecordBatch:
        """Return columns ``names`` of the rows inside; bad are null structs, and updates that change the id."""
        deletes = op == DELETE
        inserts = (op == INSERT) | (op == UPDATE) | (op == QUERY)
        for code, side, needed in (("no_after", AFTER, inserts), ("no_before", BEFORE, deletes)):
            empty = np.asarray(batch.column(side).is_null()) if side in batch.schema.names else np.ones(len(op), bool)
            faults.mark(code, side, empty, needed)
        columns = {name: self.column(batch, name) for name in names}
        if self._id in columns:
            columns[self._id] = self._ids(batch, columns[self._id], op, faults)
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def column(self, batch: pa.RecordBatch, name: str, side: str = AFTER) -> pa.Array:
        """A column of the opened rows as ``side`` has it; all null where the struct or the field was not written."""
        if name in self._outside and name in batch.schema.names:
            return batch.column(name)
        struct = batch.column(side) if side in batch.schema.names else pa.nulls(batch.num_rows)
        if pa.types.is_null(struct.type) or struct.type.get_field_index(name) < 0:
            return pa.nulls(batch.num_rows)
        return pc.struct_field(struct, name)

    def _ids(self, batch: pa.RecordBatch, after: pa.Array, op: npt.NDArray[np.int8], faults: Faults) -> pa.Array:
        before, after = id_values(self.column(batch, self._id, BEFORE)), id_values(after)
        if pa.types.is_null(after.type):
            after = pa.nulls(len(after), before.type)
        before = pc.cast(before, after.type)
        faults.mark("no_key", f"{BEFORE}.{self._id}", np.asarray(before.is_null()), op == DELETE)
        moved = np.asarray(pc.fill_null(pc.not_equal(before, after), False))
        faults.mark("moved_id", self._id, moved, op == UPDATE, after)
        faults.mark("no_id", self._id, np.asarray(after.is_null()), op == UPDATE)
        # A bad update still names its old row.
        return pc.if_else(pa.array((op == DELETE) | (op == UPDATE)), pc.coalesce(before, after), after)

    @staticmethod
    def _fields(schema: pa.Schema, side: str, file: str) -> list[pa.Field]:
        if schema.names.count(side) != 1:
            inner = [f.name for f in schema if pa.types.is_struct(f.type) and f.type.get_field_index(side) >= 0]
            said = message("columns.no_struct", columns=quoted_columns(schema.names))
            if inner:
                said = message("columns.wrapped_struct", outer=quoted(inner[0]))
            raise InputError(said, file=file, column=side)
        kind = schema.field(side).type
        if pa.types.is_struct(kind):
            return list(kind)
        if pa.types.is_null(kind):
            return []
        raise InputError(message("columns.not_struct", kind=in_words(kind)), file=file, column=side)


# Options of every source of rows in columns: which column plays which part, and where the rows are.

Label = StrictBool | StrictInt | StrictFloat | str


class OptionSection(BaseModel):
    """Options that are fixed, and of which none is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class FileOptions(OptionSection):
    """Options of every source that reads files."""

    #: Whether files of this kind can hold structs.
    has_structs: ClassVar[bool] = True
    #: Whether a deletion needs no key, since an id has one row, whatever its key.
    deletes_by_id: ClassVar[bool] = False

    kind: str
    path: str | list[str] = Field(description="file, folder, pattern, URI, or a list of these")
    label: str | None = Field("y", description="label column; null: rows have no labels and are only predicted")
    positive: Label | list[Label] | None = Field(
        None,
        description="labels that become class 1, all others class 0: one or several labels, or majority or minority; "
        "null: every label is a class",
    )
    features: list[str] | None = Field(
        None,
        min_length=1,
        description="feature columns; null: all columns but label, id, subject, key, weight, op and ts",
    )
    exclude: list[str] = Field([], description="columns that are no features, for features: null")
    categorical: list[str] = Field([], description="numeric features to read as categories")
    n_features: int | None = Field(
        None,
        ge=1,
        le=LARGEST_WIDTH,
        description="number of sparse features: indices of a list column, or different tokens it may hold; null: "
        "n_features of the files' metadata, else the largest index + 1 or the number of tokens in the files",
    )
    id: str | None = Field(
        None, description="column of stable ids, integers or strings; null: rows are numbered from 0"
    )
    subject: str | None = Field(
        None,
        description="column that says whose row it is (a person, an account), integers or strings; never a feature. "
        "Deletions may name it; null: rows are deleted by id only",
    )
    key: str | None = Field(
        None,
        description="column that says which model a row belongs to (a store, a machine), integers or strings: one "
        "model for each value; never a feature. null: one model",
    )
    weight: str | None = Field(
        None, description="column of weights: how many rows each row counts for; null: all count 1; never a feature"
    )
    op: str | None = Field(None, description="column of operations; it makes the source a changelog")
    envelope: Literal["debezium"] | None = Field(
        None,
        description="debezium: each row is in the structs before and after, next to op; label, id and features name "
        "their fields",
    )
    op_values: OpValues = OpValues()
    ts: str | None = Field(
        None,
        description="column of event times (timestamps, dates, integers): for time_window and reports, never a feature",
    )
    rules: int = Field(
        NEWEST_RULES,
        ge=1,
        le=NEWEST_RULES,
        description="rules by which rows are read; a run keeps the rules that were the newest when it began",
    )
    limit: int | None = Field(None, ge=1, description="number of rows to read; null: all")
    permutation: int | None = Field(
        None, description="seed of a random order of the rows; holds all needed columns in memory; null: file order"
    )

    @model_validator(mode="before")
    @classmethod
    def _op_of_envelope(cls, data: Any) -> Any:
        named = isinstance(data, dict) and data.get("envelope") is not None and data.get("op") is None
        return {**data, "op": "op"} if named else data

    @model_validator(mode="after")
    def _consistent(self) -> FileOptions:
        if self.envelope is not None and not self.has_structs:
            raise ValueError(message("sources.no_structs", kind=self.kind))
        if self.op is not None and self.id is None:
            what = "source.op" if self.envelope is None else "source.envelope"
            raise ValueError(message("sources.no_ids", option=what))
        if self.op is None and self.op_values != OpValues():
            raise ValueError(message("sources.op_values"))
        if self.op is not None and self.permutation is not None:
            raise ValueError(message("sources.permuted_changes"))
        if self.label is None and self.positive is not None:
            raise ValueError(message("sources.positive"))
        if self.exclude and self.features is not None:
            raise ValueError(message("sources.both"))
        for name in ("features", "exclude", "categorical", "path"):
            values = getattr(self, name)
            if isinstance(values, list) and len(set(values)) < len(values):
                raise ValueError(message("sources.twice", option=name))
        if not self.path or (isinstance(self.path, list) and "" in self.path):
            raise ValueError(message("sources.no_path"))
        return self

"""Record batches of a file to encoded :class:`Rows`: which columns play which part, and what makes a row bad.

Invariant: a bad row leaves no trace: its categories, label and id get no codes. A row that only the stream finds to be
bad (late, or with an id that is live) has been encoded by then, and its codes stay.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows
from raydt.arrays.elementary import Floats, Ints
from raydt.encoding.columns import (
    LARGEST_INTEGER,
    LARGEST_TIME,
    NO_TIME,
    WORDS_FOR_NOTHING,
    Dictionary,
    Fault,
    Faults,
    IdKind,
    Mask,
    NullValues,
    TimeColumn,
    Tokens,
    beyond_int64,
    column_kinds,
    equal_to,
    error_of,
    holds_text,
    holds_tokens,
    id_kind,
    in_words,
    is_text,
    missing,
    numbers,
    objects,
    parse,
    plain,
    read_as,
    read_ids,
    repeated,
    time_column,
    times,
    unlike_integers,
)
from raydt.encoding.features import FeatureEncoder, LostFeatures, find_indices
from raydt.encoding.labels import Labels, NumericLabels, read_operations, without_ids
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import (
    BITS,
    CLASSES,
    DELETE,
    DELETE_VALUE,
    INSERT,
    MOST,
    QUERY,
    UNIT,
    UPDATE,
    Features,
    Reading,
    Weights,
    fixed,
    no_targets,
    of_labels,
    out_of_range,
    previous_names,
    products,
)
from raydt.messages import marked, message, quoted_columns
from raydt.sources.base import Envelope, FileOptions, Rows

# Which columns of the rows play which part: label, id, operation, event time, or feature.

#: What pandas calls an index without a name in a file: row numbers of a frame that was filtered, say.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
#: A name that looks like this is a value: the file has no header.
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
#: How many names are looked through for one like the missing one.
_COMPARED = 10_000


@dataclass(frozen=True, slots=True)
class ColumnParts:
    """The part of each used column."""

    used: dict[str, str]  #: For each column that is not a feature, the option that names it, such as ``source.label``.
    features: list[str]  #: The columns that are features.


def _unknown_column(name: str, option: str, schema: pa.Schema, file: str) -> InputError:
    """The error of ``option``, with what the name could have been."""
    near = difflib.get_close_matches(name, schema.names[:_COMPARED], 1)
    what = "misspelt" if near else "unknown"
    if {"before", "after", "op"} <= set(schema.names):
        what = "in_envelope"
    elif f"/{name}=" in file:
        what = "of_folders"
    elif any(_NUMBER.fullmatch(other) for other in schema.names[:_COMPARED]):
        what = "no_names"
    shown = {"columns": quoted_columns(schema.names), "near": marked(repr("".join(near)), "another one")}
    return InputError(message(f"columns.{what}", option=option, **shown), file=file, column=name)


def find_parts(options: FileOptions, schema: pa.Schema, file: str) -> ColumnParts:
    """Find the part of each column; InputError if one is missing, is there twice, or plays two parts."""
    columns = Counter(schema.names)
    if len(columns) < len(schema.names):
        name = max(columns, key=columns.__getitem__)
        raise InputError(message("columns.repeated"), file=file, column=name)
    wanted = {
        "source.label": options.label,
        "source.id": options.id,
        "source.subject": options.subject,
        "source.key": options.key,
        "source.weight": options.weight,
        "source.op": options.op,
        "source.ts": options.ts,
    }
    used: dict[str, str] = {}
    for option, named in wanted.items():
        if named is None:
            continue
        if named not in columns:
            raise _unknown_column(named, option, schema, file)
        if named in used:
            raise InputError(message("columns.two_parts", first=used[named], second=option), file=file, column=named)
        used[named] = option
    for option, names in (("source.features", options.features or ()), ("source.exclude", options.exclude)):
        for name in names:
            if name not in columns:
                raise _unknown_column(name, option, schema, file)
            if name in used:
                said = message("columns.two_parts", first=used[name], second=option)
                raise InputError(said, file=file, column=name)
    features = options.features
    if features is None:
        others = used.keys() | set(options.exclude)
        features = [name for name in columns if name not in others and not _PANDAS_INDEX.fullmatch(name)]
    return ColumnParts(used, features)


def check_features(features: list[str], sparse: str | None, options: FileOptions, schema: pa.Schema, file: str) -> None:
    """Raise an InputError if there is no feature, one without a name, or a categorical one is missing."""
    known = frozenset(features)
    for name in options.categorical:
        if name == sparse:
            raise InputError(message("columns.categorical_lists"), file=file, column=name)
        if name not in known:
            raise InputError(message("columns.not_categorical"), file=file, column=name)
    if options.features is None and "" in features:
        raise InputError(message("columns.nameless", place=schema.names.index("")), file=file)
    if not features:
        raise InputError(message("columns.no_features"), file=file)


_PLACEHOLDER = "__debezium_unavailable_value"


def _rounded(texts: pa.Array, read: pa.Array) -> Mask | None:
    """Mask of the texts that write an integer beyond 2**53, read as floating-point numbers; None if there are none."""
    size = np.abs(numbers(read))
    large = (size >= LARGEST_INTEGER) & np.isfinite(size)
    for place in np.flatnonzero(large).tolist():
        digits = texts[place].as_py().strip().lstrip("+-0")
        large[place] = digits.isdecimal() and int(digits) > LARGEST_INTEGER
    return large if large.any() else None


class EncodedBlock(NamedTuple):
    """Rows of a file that follow each other."""

    batch: pa.RecordBatch  #: Columns of the encoder, as far as the file has them.
    row: int  #: Number of the first row over the whole source.
    where: Callable[[int], tuple[str, int]]  #: File, and row of it, of a position in the batch.
    flaws: Mapping[int, InputError] = MappingProxyType({})  #: Rows that the file does not give as a whole, by position.


class Checked(NamedTuple):
    """Rows whose labels and categories have no codes yet."""

    block: EncodedBlock
    faults: Faults
    columns: Mapping[str, pa.Array]
    X: Floats  #: Shape (n, d), without categories.
    sparse: SparseRows | None  #: Indices, if the features are some.
    op: npt.NDArray[np.int8] | None
    ts: Ints | None
    with_features: Mask | None  #: Rows that need features.
    with_label: Mask | None  #: Rows that need a label.
    weights: Weights | None  #: Those of a column.


class RowEncoder:
    """Encodes record batches of ``schema`` under the column options of one source.

    ``file`` has that schema, for messages; ``envelope`` is what the rows are wrapped in. The type of an ``untyped``
    column is a guess, as no value was seen; ids are then integers. A named column that is missing, plays two parts, or
    has a type that cannot be used is an InputError. ``parts`` says of each column used if it is ``feature``, ``label``,
    ``id``, ``subject``, ``key``, ``weight``, ``op`` or ``ts``; ``columns`` are those to read of a file. ``sparse`` is
    the column of sparse features, of which :meth:`set_width` has to say the number, and ``tokens`` what its lists hold,
    if not indices; without labels, which is for prediction, new tokens are no features.
    """

    def __init__(
        self,
        options: FileOptions,
        schema: pa.Schema,
        file: str,
        envelope: Envelope | None = None,
        untyped: frozenset[str] = frozenset(),
        reading: Reading = CLASSES,
    ) -> None:
        self._envelope, self._rules, reading = envelope, options.rules, reading.under(options.rules)
        self._integers = frozenset(getattr(options, "integers", ()))
        self._nulls = NullValues(getattr(options, "null_values", None), options.rules)
        self._label, self._id, self._op = options.label, options.id, options.op
        self._subject, self._key, self._weight = options.subject, options.key, options.weight
        found = find_parts(options, schema, file)
        used, names = found.used, found.features
        self.sparse = find_indices({name: schema.field(name).type for name in names}, file, reading)
        tokens = self.sparse is not None and holds_tokens(schema.field(self.sparse).type)
        self.tokens = Tokens(self.sparse, grows=options.label is not None) if self.sparse and tokens else None
        categorical, self._numbers = set(options.categorical), frozenset(names)
        if self._weight is not None:
            self._numbers |= {self._weight}
            if holds_text(schema.field(self._weight).type) and self._weight not in untyped:
                raise InputError(message("columns.not_weights"), file=file, column=self._weight)
        check_features(names, self.sparse, options, schema, file)
        self.parts = dict.fromkeys(names, "feature")
        self.parts |= {n: option.removeprefix("source.") for n, option in used.items() if option != "source.ts"}
        self._types = {n: schema.field(n).type for n in self.parts}
        names = [name for name in names if name != self.sparse]
        unlike = {self._id, self._subject, self._key, self.sparse}
        if self._op is not None and pa.types.is_null(schema.field(self._op).type):
            unlike.add(self._op)  # operations may be empty (source.op_values)
        typed = [name for name in self.parts if name not in unlike]
        kinds = dict(zip(typed, column_kinds([schema.field(name) for name in typed], file), strict=True))
        self._stored = {} if envelope is None else {name: envelope.stored(name) for name in self.parts}
        self.columns = self.to_read(list(self.parts))
        self._ts: TimeColumn | None = None  # until somebody asks for it
        self._ts_required = False
        self._ts_field, self._file = None if options.ts is None else schema.field(options.ts), file
        self._previous = dict(zip(previous_names(len(reading.previous)), reading.previous, strict=True))
        for name in self._previous:
            if name in schema.names:
                raise InputError(message("columns.previous"), file=file, column=name)
        coded = (
            *(n in categorical or kinds[n] == "text" for n in names),
            *(not reading.regression for _ in self._previous),
        )
        features = Features((*names, *self._previous), coded)
        self._encoder = FeatureEncoder(features, reading, self.tokens)
        self.lost = LostFeatures(features)
        self.id_kind: Literal["row", "integer", "text"] = self._kind_of_ids(self._id, "columns.not_ids") or "row"
        self.subject_kind = self._kind_of_ids(self._subject, "columns.not_subjects")
        self.key_kind = self._kind_of_ids(self._key, "columns.not_keys")
        self.keys = Dictionary()
        self.reading = reading
        if reading.regression and self._label is not None:
            if holds_text(self._types[self._label]) and self._label not in untyped:
                raise InputError(message("columns.not_targets"), file=self._file, column=self._label)
            self._numbers |= {self._label}
        elif self._label in untyped and not pa.types.is_null(self._types[self._label]):
            self._types[self._label] = pa.string()  # words such as NA, if anything: labels, as in any column of text
        self.labels: Labels | NumericLabels = NumericLabels()
        if not reading.regression:
            # Of models by key each has classes of its own, which are counted where its rows are told apart.
            most = None if self._key is not None else reading.most_classes(sparse=self.sparse is not None)
            self.labels = Labels(most=most, with_more=reading.with_classes if self.sparse is None else "")
        self._op_values, self._deletes_by_id = options.op_values, options.deletes_by_id

    @property
    def features(self) -> Features:
        """Names and kinds of the features."""
        return self._encoder.features

    def _kind_of_ids(self, name: str | None, refusal: str) -> IdKind | None:
        """Return the kind of a column of ids, subjects or keys, and read it as such from now on; None without one."""
        if name is None:
            return None
        stored = self._types[name]
        kind = id_kind(stored)
        if kind is None:
            raise InputError(message(refusal, kind=in_words(stored)), file=self._file, column=name)
        self._types[name] = pa.string() if kind == "text" else pa.int64()
        return kind

    def set_width(self, width: int) -> None:
        """Say how many sparse features there are, or of tokens may be."""
        assert self.sparse is not None
        if self.tokens is not None:
            self.tokens.width = width
        self._encoder.features = replace(self.features, groups=Features.groups, sparse=width, sparse_column=self.sparse)

    def times(self) -> TimeColumn | None:
        """Read and encode event times from now on, if there are any; see :meth:`raydt.sources.base.Source.times`."""
        if self._ts_field is None:
            return None
        try:
            return self._ask_for_times()
        except InputError:  # of a column that cannot hold times, which only those who require them need
            return None

    def require_ts(self) -> TimeColumn:
        """Read and encode event times from now on; see :meth:`raydt.sources.base.Source.require_ts`."""
        if self._ts_field is None:
            raise ConfigError(message("sources.no_times"))
        self._ts_required = True
        return self._ask_for_times()

    def _ask_for_times(self) -> TimeColumn:
        assert self._ts_field is not None
        if self._ts is None:
            self._ts = time_column(self._ts_field, self._file)
            name = self._ts.name
            self.parts[name], self._types[name] = "ts", read_as(self._ts_field.type)
            if self._envelope is not None:
                self._stored[name] = self._envelope.stored(name)
            self.columns = self.to_read(list(self.parts))
        return self._ts

    def encode(self, block: EncodedBlock) -> Rows:
        """Encode rows; a label of one class more than a learner of many classes takes is an InputError."""
        return self.finish(self.check(block))

    def check(self, block: EncodedBlock) -> Checked:
        """Check what depends on no other rows: values, numeric features, faults. Threads may do so at the same time."""
        batch, n = block.batch, block.batch.num_rows
        faults = Faults(n, block.flaws)
        op = with_label = with_features = with_id = with_subject = with_key = None
        if self._op is not None:
            tombstone = None if self._envelope is None else self._envelope.tombstones(batch, self._op)
            op = read_operations(plain(batch.column(self._op)), self._op, self._op_values, tombstone, faults)
            with_label = (op == INSERT) | (op == UPDATE) | (op == DELETE_VALUE)
            with_features = with_label | (op == QUERY)
            with_subject = (op == INSERT) | (op == UPDATE)
            with_id = with_subject | (op == DELETE)
            with_key = with_features if self._deletes_by_id else with_features | (op == DELETE)
        needed = {
            self._id: with_id,
            self._label: with_features,
            self._key: with_key,
            **dict.fromkeys((self._subject, self._weight), with_subject),
        }
        if self._ts is not None and not self._ts_required:
            needed[self._ts.name] = np.zeros(n, dtype=np.bool_)
        names = [name for name in self.parts if name != self._op]
        if self._envelope is not None and op is not None:
            batch = self._envelope.open(batch, names, op, faults)
        columns = {n: self._typed(batch.column(n), n, needed.get(n, with_features), faults) for n in names}
        columns |= {name: repeated(label, n) for name, label in self._previous.items()}
        for part, lacking, wide in (
            (self._id, "no_id", "wide_id"),
            (self._subject, "no_subject", "wide_subject"),
            (self._key, "no_model_key", "wide_model_key"),
        ):
            if part is not None:
                faults.mark(lacking, part, missing(columns[part]), needed[part])
                beyond = beyond_int64(columns[part])
                faults.mark(wide, part, beyond, needed[part])
                if beyond is not None:  # it has no id, and belongs to no key
                    columns[part] = pc.if_else(beyond, None, columns[part])
        if op is not None:
            for name in [*self._encoder.categories, *([] if self._label is None else [self._label])]:
                faults.mark("unsent", name, equal_to(columns[name], _PLACEHOLDER), with_features)
        X, sparse = self._encoder.check(columns, faults, with_features)
        weights = None if self._weight is None else self._weights(columns[self._weight], faults, with_subject)
        ts = None
        if self._ts is not None:
            absent = missing(columns[self._ts.name])
            ts, too_large = times(columns[self._ts.name])
            if self._ts_required:
                faults.mark("no_time", self._ts.name, absent, with_features)
                faults.mark("far_time", self._ts.name, too_large, with_features, largest=LARGEST_TIME)
            else:
                for unusable in (absent, too_large):
                    ts = ts if unusable is None else np.where(unusable, NO_TIME, ts)
        return Checked(block, faults, columns, X, sparse, op, ts, with_features, with_label, weights)

    def finish(self, checked: Checked) -> Rows:
        """Give labels and categories their codes, in the order of the rows."""
        block, faults, columns, X, sparse, op, ts, with_features, with_label, weights = checked
        n, row = len(X), block.row
        y = no_targets(n, self.labels.dtype)
        if self._label is not None:
            y = self.labels.read(columns[self._label], self._label, row, with_features, with_label, faults)
        tokens = self._encoder.encode(columns, X, faults, with_features, row=row)
        if self.reading.missing:
            kept = faults.keep(with_features)
            self.lost.note(X if kept is None else X[kept])
        bad = dict(block.flaws) | {place: self._error(fault, block.where(place)) for place, fault in faults.items()}
        for position, fault in faults.items():
            if fault.code == "many_classes":
                raise bad[position]
        numbers = np.arange(row, row + n, dtype=np.int64)
        ids, texts = self._ids(columns, numbers)
        if op is not None and bad and self._id is not None:
            op = without_ids(op, [*bad], columns[self._id])
        subjects = None if self._subject is None else objects(columns[self._subject])
        keys = None if self._key is None else self.keys.encode(columns[self._key], row)
        if self.reading.class_weight and self._label is not None:
            factors = of_labels(self.reading.class_weight, self.labels.classes(row + n))
            weights = products(UNIT if weights is None else weights, np.append(factors, UNIT)[y])
        return Rows(
            numbers, X, y, ids, op, bad, ts, sparse if tokens is None else tokens, weights, texts, subjects, keys
        )

    def _weights(self, column: pa.Array, faults: Faults, needed: Mask | None) -> Weights:
        """Weights of rows, in units; 1 where none can be used."""
        given = numbers(column)
        faults.mark("no_weight", self._weight or "", np.isnan(given), needed)
        beyond = out_of_range(given)
        faults.mark("weight_range", self._weight or "", beyond, needed, column, least=1 / UNIT, most=MOST >> BITS)
        return fixed(np.where(beyond, 1.0, given))

    def _error(self, fault: Fault, where: tuple[str, int]) -> InputError:
        file, row = where
        return error_of(fault, file=file, row=row, stored=self._stored)

    def to_read(self, names: list[str]) -> list[str]:
        """Return the columns of a file to read for these columns of the rows."""
        return names if self._envelope is None else self._envelope.columns(names)

    def _typed(self, column: pa.Array, name: str, needed: Mask | None, faults: Faults) -> pa.Array:
        kind = self._types[name]
        if name in (self._id, self._subject, self._key):
            padded = name in self._integers if self._rules >= 4 else None
            return read_ids(column, kind, name, faults, needed, padded=padded)
        column = plain(column)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), kind)
        nulls = self._nulls if self.parts[name] == "feature" and name not in self._encoder.categories else None
        if not is_text(column.type) or is_text(kind) or pa.types.is_dictionary(kind):
            return column if nulls is None or name == self.sparse else nulls.without_numbers(column)
        is_number = name in self._numbers
        is_whole = is_number and pa.types.is_integer(kind)  # as the first rows are; later ones may have fractions
        as_kind = pa.float64() if is_whole else kind
        read, wrong = parse(column, as_kind, nulls)
        read = read if nulls is None else nulls.without_numbers(read)
        if is_whole:
            faults.mark("inexact", name, np.abs(numbers(read)) >= LARGEST_INTEGER, needed)
        elif is_number and self._rules >= 4:  # as in JSON: an integer that is rounded is bad, and 1e300 is not
            faults.mark("inexact_label" if name == self._label else "inexact", name, _rounded(column, read), needed)
        if wrong is not None:
            words = in_words(kind)
            if name == self._label:
                trimmed = pc.utf8_trim_whitespace(column)
                nothing = np.asarray(pc.is_in(trimmed, pa.array(sorted(WORDS_FOR_NOTHING), trimmed.type)))
                faults.mark("word_for_nothing", name, wrong & nothing, needed, trimmed, kind=words)
            faults.mark("not_number" if is_number else "not_kind", name, wrong, needed, column, kind=words)
        if self._rules >= 4 and pa.types.is_integer(kind) and name == self._label and not is_number:
            faults.mark("other_spelling", name, unlike_integers(column), needed, column)
        return read

    def _ids(self, columns: Mapping[str, pa.Array], numbers: Ints) -> tuple[Ints, npt.NDArray[np.object_] | None]:
        """Ids of rows, and those that are text."""
        if self._id is None:
            return np.array(numbers), None
        if self.id_kind == "text":
            return np.full(len(numbers), -1, dtype=np.int64), objects(columns[self._id])
        return np.array(columns[self._id].fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)), None

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A column of the rows, as the batch has it."""
        return batch.column(name) if self._envelope is None else self._envelope.column(batch, name)

    def read_labels(self, batch: pa.RecordBatch, label: str, row: int) -> tuple[pa.Array, int, Mask | None]:
        """Label column of a batch as :meth:`Dictionary.encode` takes it: without what cannot be read."""
        column = self._typed(self.column(batch, label), label, None, Faults(batch.num_rows))
        lost = missing(column)
        return column, row, None if lost is None else ~lost

    def part(self, names: Sequence[str], *, keys: bool) -> RowEncoder:
        """Return an encoder of some features with dictionaries of its own; with ``keys`` also of label, id and time."""
        part = copy.copy(self)
        kinds = dict(zip(self.features.names, self.features.categorical, strict=True))
        dense = tuple(name for name in names if name != self.sparse)
        features = Features(dense, tuple(kinds[name] for name in dense))
        part.sparse = part.tokens = None
        if self.sparse is not None and self.sparse in names:
            part.sparse = self.sparse
            features = replace(features, groups=Features.groups, sparse=self.features.sparse, sparse_column=self.sparse)
            if self.tokens is not None:
                part.tokens = Tokens(self.sparse, grows=True)
                part.tokens.width = LARGEST_WIDTH
        part._encoder = FeatureEncoder(features, self.reading, part.tokens)
        part.lost = LostFeatures(features)
        if not keys:
            part._label = part._id = part._subject = part._key = part._ts = part._weight = None
            part.id_kind = "row"
        wanted = {"op", *(set(self.parts.values()) - {"feature"} if keys else ())}
        part.parts = {
            name: role for name, role in self.parts.items() if (name in names if role == "feature" else role in wanted)
        }
        part.columns = part.to_read(list(part.parts))
        return part

    def forget_categories(self) -> None:
        """Number categories from 0 again."""
        self._encoder.restore({})

    @property
    def categories(self) -> dict[str, Dictionary]:
        """The dictionaries of the categorical features and of tokens, by column."""
        return self._encoder.dictionaries

    def state(self, row: int | None) -> dict[str, Any]:
        """All dictionaries as known before ``row``."""
        categories = {name: d.values[: d.known(row)] for name, d in self._encoder.dictionaries.items()}
        if self._label is not None:
            categories |= dict.fromkeys(self._previous.keys() & categories, self.labels.classes(row))
        state = {"categories": categories, "labels": self.labels.state(row)}
        return state if self._key is None else {**state, "keys": self.keys.values[: self.keys.known(row)]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with saved dictionaries."""
        self._encoder.restore(state["categories"])
        self.labels.restore(state["labels"])
        self.keys = Dictionary(state.get("keys", ()))


# Labels, keys of models and categories that a source of encoded rows has met.


class EncodedSource:
    """A source whose rows one encoder has encoded; ``_handed_out`` is the row after the last one that a reader got."""

    _encoder: RowEncoder
    _handed_out: int

    def _describe(self, options: FileOptions) -> None:
        """Say of the rows what the options and the encoder say of them."""
        encoder = self._encoder
        self.reading = encoder.reading
        self.features, self.rules = encoder.features, options.rules
        self.id_kind, self.id_column = encoder.id_kind, options.id
        self.subject_kind, self.subject_column = encoder.subject_kind, options.subject
        self.key_kind, self.key_column = encoder.key_kind, options.key
        self.is_changelog, self.has_labels = options.op is not None, options.label is not None

    def times(self) -> TimeColumn | None:
        """Fill ``Rows.ts`` from now on, if there are times; see :meth:`raydt.sources.base.Source.times`."""
        return self._encoder.times()

    def require_ts(self) -> TimeColumn:
        """Fill ``Rows.ts`` from now on; see :meth:`raydt.sources.base.Source.require_ts`."""
        return self._encoder.require_ts()

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of their codes, as known from the rows handed out so far."""
        return self._encoder.labels.classes(self._handed_out)

    @property
    def label_values(self) -> list[Any]:
        """Labels in the order of their codes, as known from the rows read so far."""
        return self._encoder.labels.values()

    @property
    def keys(self) -> list[Any]:
        """Keys of models in the order of their codes, as known from the rows read so far."""
        return self._encoder.keys.values

    @property
    def lost(self) -> LostFeatures:
        """Features that had values and have none any more, by the rows read so far."""
        return self._encoder.lost

    def categories(self) -> dict[str, Dictionary]:
        """Return the dictionaries of the categorical features and of tokens, by column."""
        return self._encoder.categories

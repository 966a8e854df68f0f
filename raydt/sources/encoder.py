"""Record batches of a file to encoded :class:`Rows`: which columns play which part, and what makes a row bad.

Invariant: a bad row leaves no trace: its categories, label and id get no codes. A row that only the stream finds to be
bad (late, or with an id that is live) has been encoded by then, and its codes stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.errors import OR_SKIP, ConfigError, InputError
from raydt.examples.features import Features
from raydt.examples.reading import CLASSES, Reading
from raydt.examples.targets import no_targets
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE
from raydt.redaction import quoted
from raydt.sources.base import Rows
from raydt.sources.columns.bad_rows import BadRows, Mask
from raydt.sources.columns.encoding import (
    LARGEST_INTEGER,
    WORDS_FOR_NOTHING,
    Dictionary,
    beyond_int64,
    column_kind,
    equal_to,
    id_kind,
    id_values,
    in_words,
    inexact,
    infinite,
    is_text,
    missing,
    numbers,
    parse,
    plain,
)
from raydt.sources.columns.indices import find_indices, read_indices
from raydt.sources.columns.labels import NO_LABEL, Labels
from raydt.sources.columns.numeric_labels import NumericLabels
from raydt.sources.columns.operations import read_operations
from raydt.sources.columns.times import LARGEST_TIME, TimeColumn, read_as, time_column, times
from raydt.sources.columns.tokens import Tokens, holds_tokens
from raydt.sources.parts import check_features, find_parts

if TYPE_CHECKING:
    from raydt.sources.columns.envelope import Envelope
    from raydt.sources.options import FileOptions

_FILL = f"Fill it in or leave the column out of source.features{OR_SKIP}"
_PLACEHOLDER = "__debezium_unavailable_value"
_UNSENT = "no value, only Debezium's placeholder for a value that was not sent"
_IDENTITY = "Set REPLICA IDENTITY FULL for the table, or leave the column out of source.features"
_INEXACT = "an integer beyond 2**53 has no exact float64"
_SCALE = "Scale the column, or list it under source.categorical"
_SKIP = f"Correct the file{OR_SKIP}"


class RowEncoder:
    """Encodes record batches under the column options of one source.

    Parameters
    ----------
    options : FileOptions
        ``label``, ``features``, ``categorical``, ``id``, ``op``, ``op_values``, ``ts``.
    schema : pa.Schema
        Columns and types of the rows.
    file : str
        The file that has them, for messages.
    envelope : Envelope, optional
        What the rows are wrapped in.
    untyped : frozenset of str
        Columns whose type is a guess, as no value was seen; ids are then integers.
    reading : Reading

    Attributes
    ----------
    features : Features
    parts : dict of str to str
        The columns of the rows that are used, and what each is: ``feature``, ``label``, ``id``, ``op``, ``ts``.
    columns : list of str
        The columns to read of a file.
    id_kind : {"row", "integer", "text"}
    sparse : str or None
        The column of sparse features; :meth:`set_width` has to say how many these are.
    tokens : Tokens or None
        What its lists hold, if not indices. Without labels, which is for prediction, new tokens are no features.

    Raises
    ------
    InputError
        A named column is missing, plays two parts, or has a type that cannot be used.
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
        self._envelope = envelope
        self._label, self._id, self._op = options.label, options.id, options.op
        found = find_parts(options, schema, file)
        used, names = found.used, found.features
        self.sparse = find_indices({name: schema.field(name).type for name in names}, file, reading)
        self.tokens: Tokens | None = None
        if self.sparse is not None and holds_tokens(schema.field(self.sparse).type):
            self.tokens = Tokens(self.sparse, grows=options.label is not None)
        categorical, self._feature_names = set(options.categorical), frozenset(names)
        check_features(names, self.sparse, options, schema, file)
        self.parts = dict.fromkeys(names, "feature")
        self.parts |= {n: option.removeprefix("source.") for n, option in used.items() if option != "source.ts"}
        self._types = {n: schema.field(n).type for n in self.parts}
        names = [name for name in names if name != self.sparse]
        unlike = (self._id, self.sparse)
        kinds = {name: column_kind(schema.field(name), file) for name in self.parts if name not in unlike}
        self._stored = {} if envelope is None else {name: envelope.stored(name) for name in self.parts}
        self.columns = self.to_read(list(self.parts))
        self._ts: TimeColumn | None = None  # until somebody requires it
        self._ts_field, self._file = None if options.ts is None else schema.field(options.ts), file
        self.features = Features(tuple(names), tuple(n in categorical or kinds[n] == "text" for n in names))
        self.id_kind: Literal["row", "integer", "text"] = "row"
        if self._id is not None:
            kind = id_kind(self._types[self._id])
            if self._id in untyped and pa.types.is_floating(self._types[self._id]):
                kind = "integer"
            if kind is None:
                raise InputError(
                    f"it holds {in_words(self._types[self._id])}, but ids are integers or text",
                    file=file,
                    column=self._id,
                    remedy="Convert it, or name another column in source.id",
                )
            self.id_kind = kind
            self._types[self._id] = pa.string() if kind == "text" else pa.int64()
        self._reading, self._takes_missing, self._numbers = reading, reading.missing, self._feature_names
        if reading.regression and self._label is not None:
            self._require_numbers(self._label, untyped)
            self._numbers |= {self._label}
        elif self._label in untyped and not pa.types.is_null(self._types[self._label]):
            self._types[self._label] = pa.string()  # words such as NA, if anything: labels, as in any column of text
        self._by_value = reading.by_value
        self._categories = {
            n: Dictionary(by_value=reading.by_value) for n, c in zip(names, self.features.categorical, strict=True) if c
        }
        self.labels: Labels | NumericLabels = NumericLabels()
        if not reading.regression:
            most = reading.most_classes(sparse=self.sparse is not None)
            self.labels = Labels(most=most, with_more=reading.with_classes if self.sparse is None else "")
        self._op_values = options.op_values

    def _require_numbers(self, label: str, untyped: frozenset[str]) -> None:
        """Refuse labels that are text, where numbers are wanted."""
        kind = self._types[label]
        if is_text(kind.value_type if pa.types.is_dictionary(kind) else kind) and label not in untyped:
            raise InputError(
                "it holds text, but a regression needs numeric labels",
                file=self._file,
                column=label,
                remedy="Name a column of numbers in source.label, or choose another learner.objective",
            )

    def set_width(self, width: int) -> None:
        """Say how many sparse features there are, or of tokens may be."""
        assert self.sparse is not None
        if self.tokens is not None:
            self.tokens.width = width
        self.features = replace(self.features, groups=Features.groups, sparse=width, sparse_column=self.sparse)

    def require_ts(self) -> TimeColumn:
        """Read and encode event times from now on; see :meth:`raydt.sources.base.Source.require_ts`."""
        if self._ts_field is None:
            raise ConfigError("source.ts is not set, but the stream needs event times. Name the column that holds them")
        if self._ts is None:
            self._ts = time_column(self._ts_field, self._file)
            name = self._ts.name
            self.parts[name], self._types[name] = "ts", read_as(self._ts_field.type)
            if self._envelope is not None:
                self._stored[name] = self._envelope.stored(name)
            self.columns = self.to_read(list(self.parts))
        return self._ts

    def encode(
        self, batch: pa.RecordBatch, row: int, file: str, file_row: int, flaws: Mapping[int, InputError] | None = None
    ) -> Rows:
        """Encode one batch.

        Parameters
        ----------
        batch : pa.RecordBatch
            Holds :attr:`columns`, as far as its file has them.
        row : int
            Row number, over the whole source, of its first row.
        file, file_row : str, int
            Where that row is, for messages.
        flaws : mapping, optional
            Rows that the file does not give as a whole, by position.
        """
        n = batch.num_rows
        bad = BadRows(file, file_row, n, self._stored)
        bad.update(flaws or {})
        op = with_label = with_features = with_id = None
        if self._op is not None:
            tombstone = None if self._envelope is None else self._envelope.tombstones(batch, self._op)
            operations = self._typed(batch.column(self._op), self._op, None, bad)
            op = read_operations(operations, self._op, self._op_values, tombstone, bad)
            with_label = (op == INSERT) | (op == UPDATE) | (op == DELETE_VALUE)
            with_features = with_label | (op == QUERY)
            with_id = (op == INSERT) | (op == UPDATE) | (op == DELETE)
        needed = {self._id: with_id, self._label: with_features}
        names = [name for name in self.parts if name != self._op]
        if self._envelope is not None and op is not None:
            batch = self._envelope.open(batch, names, op, bad)
        columns = {n: self._typed(batch.column(n), n, needed.get(n, with_features), bad) for n in names}
        if self._id is not None:
            self._check_ids(columns[self._id], self._id, with_id, bad)
        if op is not None:
            for name in [*self._categories, *([] if self._label is None else [self._label])]:
                bad.add_mask(equal_to(columns[name], _PLACEHOLDER), with_features, name, _UNSENT, _IDENTITY)
        X = self._numeric(columns, n, with_features, bad)
        sparse = None
        if self.sparse is not None and self.tokens is None:
            sparse = read_indices(columns[self.sparse], self.sparse, self.features.sparse, with_features, bad)
        elif self.sparse is not None and self.tokens is not None:
            self.tokens.check(columns[self.sparse], with_features, bad)
        ts = None if self._ts is None else self._times(columns[self._ts.name], self._ts.name, with_features, bad)
        for name in self._categories:
            bad.add_mask(self._no_category(columns[name]), with_features, name, "no value", self._fill)
        y = no_targets(n, self.labels.dtype)
        if self._label is not None:
            y = self.labels.read(columns[self._label], self._label, row, with_features, with_label, bad)
        if self.sparse is not None and self.tokens is not None:  # may find one more row to be bad
            sparse = self.tokens.encode(columns[self.sparse], row, with_features, bad)
        for j, name in enumerate(self.features.names):
            if self.features.categorical[j]:
                X[:, j] = self._categories[name].encode(
                    columns[name], row, self._coded(columns[name], with_features, bad)
                )
        numbers = np.arange(row, row + n, dtype=np.int64)
        return Rows(numbers, X, y, self._ids(columns, numbers), op, bad, ts, sparse, self._names(columns))

    def to_read(self, names: list[str]) -> list[str]:
        """Return the columns of a file to read for these columns of the rows."""
        return names if self._envelope is None else self._envelope.columns(names)

    def _typed(self, column: pa.Array, name: str, needed: Mask | None, bad: BadRows) -> pa.Array:
        column, kind = id_values(column) if name == self._id else plain(column), self._types[name]
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), kind)
        if not is_text(column.type) or is_text(kind) or pa.types.is_dictionary(kind):
            return column
        is_number = name in self._numbers
        whole = is_number and pa.types.is_integer(kind)  # as the first rows are; later ones may have fractions
        read, wrong = parse(column, pa.float64() if whole else kind)
        if whole:
            bad.add_mask(np.abs(numbers(read)) >= LARGEST_INTEGER, needed, name, _INEXACT, _SCALE)
        if wrong is not None:
            what = "a number" if is_number else f"of the kind of the first rows ({in_words(kind)})"
            for position in np.nonzero(wrong if needed is None else wrong & needed)[0].tolist():
                text = column[position].as_py()
                if name == self._label and text.strip() in WORDS_FOR_NOTHING:
                    bad.add([position], name, f"no label ({quoted(text.strip())} among {in_words(kind)})", NO_LABEL)
                else:
                    bad.add([position], name, f"{quoted(text, 40)} is not {what}", _SKIP)
        return read

    def _times(self, column: pa.Array, name: str, needed: Mask | None, bad: BadRows) -> npt.NDArray[np.int64]:
        bad.add_mask(missing(column), needed, name, "no event time", _SKIP)
        values, too_large = times(column)
        bad.add_mask(too_large, needed, name, f"an event time beyond {LARGEST_TIME} in size", _SKIP)
        return values

    def _check_ids(self, column: pa.Array, name: str, needed: Mask | None, bad: BadRows) -> None:
        bad.add_mask(missing(column), needed, name, "no id", _SKIP)
        bad.add_mask(beyond_int64(column), needed, name, "the id does not fit into a signed 64-bit integer", _SKIP)

    def _ids(self, columns: Mapping[str, pa.Array], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if self._id is None:
            return np.array(numbers)
        if self.id_kind == "text":
            return np.full(len(numbers), -1, dtype=np.int64)
        return np.array(columns[self._id].fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))

    def _names(self, columns: Mapping[str, pa.Array]) -> npt.NDArray[np.object_] | None:
        """Text ids of rows."""
        if self._id is None or self.id_kind != "text":
            return None
        return np.array([*columns[self._id].to_pylist(), None], dtype=np.object_)[:-1]

    def _numeric(
        self, columns: Mapping[str, pa.Array], n: int, needed: Mask | None, bad: BadRows
    ) -> npt.NDArray[np.float64]:
        X = np.empty((n, len(self.features.names)), dtype=np.float64)
        for j, name in enumerate(self.features.names):
            if self.features.categorical[j]:
                X[:, j] = 0.0
                continue
            X[:, j] = numbers(columns[name])
            bad.add_mask(inexact(columns[name]), needed, name, _INEXACT, _SCALE)
        with np.errstate(invalid="ignore"):  # a signalling NaN is reported below like any other
            X += 0.0  # turns -0.0 into 0.0
        finite = np.isfinite(X)
        if self._takes_missing and not finite.all():
            absent = np.isnan(X)
            X[absent] = np.nan  # of all NaNs one, so that equal rows have equal bytes
            finite |= absent
        if not finite.all():
            wrong = ~finite if needed is None else ~finite & needed[:, None]
            for position, j in zip(*(axis.tolist() for axis in np.nonzero(wrong)), strict=True):
                absent = np.isnan(X[position, j])
                problem, remedy = ("no value (null or NaN)", self._fill) if absent else ("an infinite value", _FILL)
                bad.add([position], self.features.names[j], problem, remedy)
        return X

    @cached_property
    def _fill(self) -> str:
        """Remedy for a missing value; where the learner takes these, the value is an infinite one."""
        from raydt.learners import for_missing  # needed for messages only: compiled kernels are imported with it

        others = "" if self._takes_missing else for_missing(self._reading, sparse=self.sparse is not None)
        return f"{_FILL.removesuffix(OR_SKIP)}, or use {others}{OR_SKIP}" if others else _FILL

    def _no_category(self, column: pa.Array) -> Mask | None:
        """Values that make a row bad."""
        return infinite(column) if self._takes_missing else missing(column)

    def _coded(self, column: pa.Array, needed: Mask | None, bad: BadRows) -> Mask | None:
        """Rows whose category gets a code; None for all."""
        keep, absent = bad.keep(needed), missing(column) if self._takes_missing else None
        return keep if absent is None else ~absent if keep is None else keep & ~absent

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A column of the rows, as the batch has it."""
        return batch.column(name) if self._envelope is None else self._envelope.column(batch, name)

    def read_labels(self, batch: pa.RecordBatch, label: str, row: int) -> tuple[pa.Array, int, Mask | None]:
        """Label column of a batch as :meth:`Dictionary.encode` takes it: without what cannot be read."""
        column = self._typed(self.column(batch, label), label, None, BadRows("", 0, batch.num_rows, {}))
        lost = missing(column)
        return column, row, None if lost is None else ~lost

    def _dictionaries(self) -> dict[str, Dictionary]:
        tokens = {} if self.sparse is None or self.tokens is None else {self.sparse: self.tokens.dictionary}
        return {**self._categories, **tokens}

    def state(self, row: int | None) -> dict[str, Any]:
        """All dictionaries as known before ``row``."""
        return {
            "categories": {name: d.values[: d.known(row)] for name, d in self._dictionaries().items()},
            "labels": self.labels.state(row),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with saved dictionaries."""
        known = state["categories"]
        self._categories = {name: Dictionary(known[name], self._by_value) for name in self._categories}
        if self.sparse is not None and self.tokens is not None:
            self.tokens.dictionary = Dictionary(state["categories"].get(self.sparse, ()))
        self.labels.restore(state["labels"])

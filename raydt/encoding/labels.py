"""Labels to class codes: every label a class, or one or several labels against the rest.

Invariant: codes depend on the labels alone: order of first appearance, or under ``positive`` 1 for the positive labels
and 0 for the rest, both known before the first row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt, model_validator

from raydt.arrays.elementary import Bools, Floats, Int32s
from raydt.encoding.columns import (
    LARGEST_INTEGER,
    Dictionary,
    Faults,
    Mask,
    inexact,
    infinite,
    missing,
    numbers,
    one_batch,
)
from raydt.errors import ConfigError
from raydt.examples.updates import CODES, NUMBERS, OP_NAMES, OUT_OF_RANGE
from raydt.examples.updates import out_of_range_targets as out_of_range
from raydt.messages import Message, message, quoted

#: Texts that YAML reads as booleans; an unquoted ``positive: yes`` must still find the label ``"yes"``.
_TRUTH = {True: ("true", "yes", "on"), False: ("false", "no", "off")}


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return _TRUTH[value]
    if isinstance(value, float) and value.is_integer():
        return (str(int(value)),)
    return (str(value).strip().casefold(),)


def find_label(wanted: Any, labels: Sequence[Any]) -> Any:
    """Return the one label that a value written in a configuration means.

    The same value of the same type wins; else the one label that reads the same as text (``1`` finds ``"1"``, ``True``
    finds ``"yes"``). None or several are a ConfigError that lists the labels.
    """
    same = [label for label in labels if label == wanted and isinstance(label, bool) == isinstance(wanted, bool)]
    found = same or [label for label in labels if set(_texts(label)) & set(_texts(wanted))]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(quoted, list(labels)[:20])) + (", ..." if len(labels) > 20 else "")
    what = "ambiguous_label" if found else "unknown_label"
    meant = " or ".join(map(quoted, found))
    raise ConfigError(message(f"sources.{what}", wanted=wanted, found=meant, labels=shown or "none at all"))


def resolve_positive(positive: Any, counts: Mapping[Any, int]) -> list[Any]:
    """Return the labels that count as positive, given the rows of each label in order of first appearance.

    ``"majority"`` and ``"minority"`` are the most frequent and the rarest; of equals the one that appears first. A
    label that is itself called so is written as a list.
    """
    if positive in ("majority", "minority"):
        if not counts:
            raise ConfigError(message("sources.no_labels", positive=positive))
        return [(max if positive == "majority" else min)(counts, key=lambda label: counts[label])]
    wanted = positive if isinstance(positive, list) else [positive]
    return list(dict.fromkeys(find_label(value, list(counts)) for value in wanted))


class Labels:
    """Class codes of labels.

    Without resolved ``positive`` labels and the ``rest``, every label is a class, of at most ``most``; ``with_more``
    are the options of the learner that take more, for a remedy. If the rest is ``open``, any other label is among it,
    as of a source whose labels cannot be read in advance. Labels that are numbers have the same interface
    (``raydt.encoding.labels``).
    """

    dtype = CODES

    def __init__(
        self,
        positive: list[Any] | None = None,
        rest: Sequence[Any] = (),
        most: int | None = None,
        with_more: str = "",
        *,
        open: bool = False,
    ) -> None:
        self.positive, self._rest, self._most, self._open = positive, list(rest), most, open
        self._more = f", use {with_more}" if with_more else ""
        self._seen = Dictionary()
        self._names: list[Any] = []
        if positive is not None:
            name = positive[0] if len(positive) == 1 else "|".join(map(str, positive))
            self._names = [rest[0] if len(rest) == 1 else f"not {name}", name]

    def classes(self, row: int | None) -> list[Any]:
        """Label of each code known before ``row``; under ``positive``, the first is the other, or ``not`` it."""
        if self.positive is not None:
            return list(self._names)
        return self._seen.values[: self._seen.known(row)][: self._most]

    def values(self) -> list[Any]:
        """Return the label of each code there is so far."""
        return self._seen.values if self.positive is None else list(self._names)

    def known(self) -> str:
        """The positive labels and the others, for messages."""
        rest = ", ".join(map(quoted, self._rest[:20])) + (", ..." if len(self._rest) > 20 else "")
        return f"{', '.join(map(quoted, self.positive or []))} (positive) and {rest or 'no others'}"

    def read(
        self, column: pa.Array, name: str, row: int, wanted: Mask | None, needed: Mask | None, faults: Faults
    ) -> Int32s:
        """Return the class codes of a column, -1 where a label is missing, passed over or of one class too many.

        Rows ``wanted``, shape (n,), may have a label, others are passed over; rows ``needed`` must have one. Bad are
        rows without a label, with one that is neither positive nor among the rest, and of one class too many. Where a
        learner takes many classes, one more is the fault ``many_classes``, at which reading must end: passing over all
        rows of further labels is never meant, and rows before it, read ahead, would take long to learn.
        """
        faults.mark("no_label", name, missing(column), needed)
        y = self.encode(column, row, faults.keep(wanted))
        if self.positive is not None:
            faults.mark("other_label", name, y < 0, needed, column, known=self.known())
        elif self._most is not None and len(self._seen) > self._most:
            beyond, code = y >= self._most, "third_class" if self._most == 2 else "many_classes"
            faults.mark(code, name, beyond, needed, column, most=self._most, seen=len(self._seen), instead=self._more)
            y[beyond] = -1
        return y

    def encode(self, column: pa.Array, row: int, keep: Mask | None = None) -> Int32s:
        """Return class codes, shape (n,): -1 where missing, passed over, or neither positive nor among the rest."""
        codes = self._seen.encode(column, row, keep)
        if self.positive is not None:
            code_of = dict.fromkeys(self._rest, 0) | dict.fromkeys(self.positive, 1)
            other = 0 if self._open else -1
            codes = np.array([*(code_of.get(v, other) for v in self._seen.values), -1], dtype=np.int64)[codes]
        return codes.astype(np.int32)

    def forget(self, row: int) -> None:
        """Forget the classes that first appeared in this row or later."""
        self._seen.cut(self._seen.known(row))

    def state(self, row: int | None) -> dict[str, Any]:
        """Return the labels known before ``row``."""
        if self.positive is not None:
            resolved = {"positive": self.positive, "rest": self._rest, "names": self._names}
            return {**resolved, "open": True} if self._open else resolved
        return {"classes": self._seen.values[: self._seen.known(row)]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with a saved state, its resolution of ``positive`` included."""
        self.positive = state.get("positive")
        self._rest, self._names = list(state.get("rest", ())), list(state.get("names", ()))
        self._open = bool(state.get("open", False))
        self._seen = Dictionary(state.get("classes", ()))


class NumericLabels:
    """Labels as they are; nothing is coded, and nothing has to be remembered."""

    dtype = NUMBERS
    positive: ClassVar[None] = None

    def classes(self, row: int | None) -> list[Any]:
        """Numbers have no classes."""
        return []

    def values(self) -> list[Any]:
        """Numbers have no codes."""
        return []

    def read(
        self, column: pa.Array, name: str, row: int, wanted: Mask | None, needed: Mask | None, faults: Faults
    ) -> Floats:
        """Return float64 labels, shape (n,), -0.0 as 0.0 and NaN for none; arguments as of ``Labels.read``."""
        faults.mark("infinite_label", name, infinite(column), wanted)
        faults.mark("inexact_label", name, inexact(column), wanted)
        faults.mark("no_label", name, missing(column), needed)
        values = numbers(column) + 0.0
        faults.mark("label_range", name, out_of_range(values), wanted, range=OUT_OF_RANGE)
        keep = faults.keep(wanted)
        return values if keep is None else np.where(keep, values, np.nan)

    def forget(self, row: int) -> None:
        """Nothing to forget."""

    def state(self, row: int | None) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


# Meaning of the values of an operation column: this project's words, Debezium's letters, Flink's row kinds.
#
# Invariant: a value means an operation, nothing (the row is ignored), or is an error; none is guessed.

#: Code of a row that is no update: it is passed over, neither bad nor skipped.
IGNORED = -1
_UNKNOWN = -2
#: Code of an update whose new row is bad, so that its old row goes and nothing comes.
RETRACTION = -3

OpValue = str | StrictInt | StrictFloat | None

#: A truncate (Debezium's ``t``) removes examples that it does not name, so it is no update of one example.
_TRUNCATE = ("t", "truncate")


#: A whole number as pandas writes a column in which one is missing.
_WHOLE = re.compile(r"(-?[0-9]+)\.0*")


def _word(value: Any) -> str:
    """Return how a value is compared: as text in lower case, a whole number without a point, a missing one as empty."""
    text = "" if value is None or value != value else str(value).strip().casefold()
    whole = _WHOLE.fullmatch(text)
    return text if whole is None else whole[1]


class OpValues(BaseModel):
    """The values of the ``op`` column for each operation; compared as text, without regard to case.

    Both ``""`` and null stand for no value: AWS DMS writes such rows for what was there before the changes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    insert: list[OpValue] = ["insert", "i", "c", "r", "+I"]
    delete: list[OpValue] = ["delete", "d", "-D"]
    update: list[OpValue] = ["update", "u", "+U", "update_after", "update_postimage"]
    query: list[OpValue] = ["query", "q"]
    delete_value: list[OpValue] = ["delete_value"]
    ignore: list[OpValue] = ["-U", "update_before", "update_preimage", "m"]

    def by_name(self) -> dict[str, list[str]]:
        """Values in lower case by the name of their operation, ``ignore`` among them."""
        return {name: [*map(_word, getattr(self, name))] for name in type(self).model_fields}

    def codes(self) -> dict[str, int]:
        """Operation code of each value in lower case, :data:`IGNORED` where it means none."""
        return {
            value: IGNORED if name == "ignore" else OP_NAMES.index(name)
            for name, values in self.by_name().items()
            for value in values
        }

    def describe(self) -> str:
        """All values, for messages."""
        written = {
            name: ["no value" if _word(value) == "" else str(value) for value in getattr(self, name)]
            for name in type(self).model_fields
        }
        return "; ".join(f"{name}: {', '.join(values)}" for name, values in written.items() if values)

    @model_validator(mode="after")
    def _distinct(self) -> OpValues:
        seen: set[str] = set()
        for values in self.by_name().values():
            if repeated := seen & set(values):
                raise ValueError(message("sources.two_meanings", value=min(repeated)))
            seen |= set(values)
        return self


def read_operations(
    column: pa.Array, name: str, values: OpValues, tombstone: Bools | None, faults: Faults
) -> npt.NDArray[np.int8]:
    """Return n operation codes, :data:`IGNORED` in rows of ``tombstone``, a number below it in bad rows."""
    seen, known = Dictionary(), values.codes()
    places = seen.encode(column, 0)
    words = [_word(value) for value in seen.values]
    op = np.array([known.get(word, _UNKNOWN) for word in [*words, ""]], dtype=np.int8)[places]
    if tombstone is not None:
        op[tombstone] = IGNORED
    unknown = op == _UNKNOWN
    if unknown.any():
        texts = np.array([*map(str, seen.values), ""], dtype=np.object_)[places]
        truncate = np.array([*(word in _TRUNCATE for word in words), False])[places]
        empty = np.array([*(word == "" for word in words), True])[places]
        faults.mark("no_operation", name, unknown & empty, operations=values.describe())
        faults.mark("truncate", name, unknown & truncate, values=texts)
        faults.mark("unknown_operation", name, unknown, values=texts, operations=values.describe())
    return op


def without_ids(op: npt.NDArray[np.int8], bad: Sequence[int], ids: pa.Array) -> npt.NDArray[np.int8]:
    """Return operations, :data:`IGNORED` in the ``bad`` rows that have no usable id."""
    places, op = np.array(bad, dtype=np.int64), op.copy()
    unusable = missing(ids)
    if unusable is not None:
        op[places[unusable[places]]] = IGNORED
    return op


# Texts that are one JSON object each, to rows of a schema.
#
# Invariant: a text makes one row, whatever is in it or in the others.


def json_rows(texts: Sequence[bytes], schema: pa.Schema) -> tuple[pa.RecordBatch, dict[int, Message]]:
    """Return rows, and why texts are no rows of these types, by position: their rows have what fits."""
    rows = _together(texts, schema)
    if rows is not None:
        return rows, _rounded(rows, texts)
    parts, flaws = [], {}
    for place, text in enumerate(texts):
        row = _together([text], schema)
        if row is None:
            try:
                values = _fitting({**json.loads(text)}, pa.struct(list(schema)))
                row = pa.RecordBatch.from_pylist([values], schema)
            except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
                row = pa.RecordBatch.from_pylist([sound_part(text, schema)], schema)
                flaws[place] = message("live.no_row", text=quoted(text.decode(errors="replace")))
        parts.append(row)
    rows = one_batch(pa.Table.from_batches(parts, schema))
    return rows, _rounded(rows, texts) | flaws


def _rounded(rows: pa.RecordBatch, texts: Sequence[bytes]) -> dict[int, Message]:
    found = rounded_integers(rows, texts)
    return {
        place: message("live.rounded", column=column, text=quoted(texts[place].decode(errors="replace")))
        for place, column in found.items()
    }


def rounded_integers(rows: pa.RecordBatch | pa.Table, texts: Sequence[bytes]) -> dict[int, str]:
    """Return the column of numbers that has rounded an integer beyond 2**53, by the place of the row.

    ``rows`` were parsed from ``texts``; only texts with a number that large are looked at again.
    """
    suspects = [_large(rows.column(name)) for name in rows.schema.names]
    found = {}
    for place in np.flatnonzero(np.logical_or.reduce([np.zeros(len(texts), dtype=np.bool_), *suspects])).tolist():
        try:
            values = json.loads(texts[place])
        except (ValueError, RecursionError):
            continue
        if (column := next(_beyond(values, pa.struct(list(rows.schema))), None)) is not None:
            found[place] = column
    return found


def _large(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Mask of the rows with a floating-point number, in a struct or not, that a larger integer may be rounded to."""
    found = np.zeros(len(column), dtype=np.bool_)
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([found[:0], *map(_large, column.chunks)])
    if pa.types.is_struct(column.type):
        return np.logical_or.reduce([found, *map(_large, column.flatten())])  # type: ignore[no-any-return]
    if pa.types.is_floating(column.type):
        with np.errstate(invalid="ignore"):
            found |= np.abs(numbers(column)) >= LARGEST_INTEGER
    return found


def _beyond(value: Any, kind: pa.DataType, name: str = "") -> Iterator[str]:
    """Yield the names of columns of floating-point numbers that a value, of ``kind``, has too large an integer for."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            yield from _beyond(value.get(field.name), field.type, field.name)
    elif pa.types.is_floating(kind) and isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        yield name


def sound_part(text: bytes, schema: pa.Schema) -> dict[str, Any]:
    """Return the values of a text that fit their columns, if it is an object: an operation and an id may be there."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return _sound(values, pa.struct(list(schema))) or {}


def _sound(value: Any, kind: pa.DataType) -> Any:
    """Return a value, or what of it fits a type; None if nothing does."""
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return None
        return {field.name: _sound(value[field.name], field.type) for field in kind if field.name in value}
    try:
        return pa.scalar(_fitting(value, kind), kind).as_py()
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None


def parse_json(data: bytes, rows: int, schema: pa.Schema | None) -> pa.Table:
    """Return the rows of JSON objects, of a schema or with all that they have; ``pa.ArrowInvalid`` unless so many."""
    import pyarrow.json as pajson  # needed for what is read only: a slow import

    behaviour = "infer" if schema is None else "ignore"
    parse = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behaviour)
    reading = pajson.ReadOptions(use_threads=False, block_size=len(data) + 1)
    table = pajson.read_json(pa.BufferReader(data), reading, parse)
    if table.num_rows != rows:
        raise pa.ArrowInvalid("a line holds several values")
    return table


def _together(texts: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    """Parse texts at once; None if Arrow does not find one row in each."""
    joined, between = b"\n".join(texts), len(texts) - 1
    # A text that ends with a brace is not completed by the next one, which begins with one.
    apart = joined[:1] == b"{" and joined[-1:] == b"}" and joined.count(b"}\n{") == between
    if not apart or joined.count(b"\n") != between:
        return None
    try:
        rows = one_batch(parse_json(joined, len(texts), schema).select(schema.names))
        rows.validate(full=True)  # texts are UTF-8
    except pa.ArrowException:
        return None
    return rows


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a value for a column; ValueError if Arrow would make another number of it."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise ValueError(value)
    if pa.types.is_integer(kind) and isinstance(value, float):
        if not value.is_integer() or abs(value) >= LARGEST_INTEGER:  # which others round to, too
            raise ValueError(value)
        return int(value)
    return value


# Two states of some rows to the changes between them.
#
# Invariant: an id changes at most once, and a row that is the same in both states is no change.


def netted(before: pa.Table, after: pa.Table, id: str, op: str) -> pa.Table:
    """Return what makes ``after`` of ``before``: rows with a column ``op``, deletes first, both parts by id.

    The tables have the same columns, and an id once. O(n log n).
    """
    before, after = (table.combine_chunks().take(pc.sort_indices(table[id])) for table in (before, after))
    place = pc.index_in(after[id], value_set=before[id].combine_chunks())
    there = before.take(pc.fill_null(place, 0)) if len(before) else after
    known = pc.is_valid(place)
    same = known
    for name in after.schema.names:
        same = pc.and_(same, _equal(after[name], there[name]))
    gone = before.filter(pc.invert(pc.is_in(before[id], value_set=after[id].combine_chunks())))
    kept = pc.invert(same)
    ops = pc.if_else(known, pa.scalar("update"), pa.scalar("insert")).filter(kept)
    deletes = gone.append_column(op, pa.array(["delete"] * len(gone), pa.string()))
    return pa.concat_tables([deletes, after.filter(kept).append_column(op, ops)])


def _equal(one: Any, other: Any) -> Any:
    """Return, for each row, True if two columns are equal, or both null, or both not a number."""
    try:
        same = pc.fill_null(pc.equal(one, other), False)
    except pa.ArrowNotImplementedError:  # lists and records
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return pa.array([mine == its for mine, its in pairs], pa.bool_())
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))

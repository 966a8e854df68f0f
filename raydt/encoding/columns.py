"""From Arrow columns to numbers: which types are taken, numeric values, and dictionaries of categories.

Invariant: a value's code is its place in the order of first appearance in the stream, whatever codes a file has inside,
and wherever chunks end or reading ahead has got: a dictionary remembers the row at which each value first appeared and
can be cut at any row. For learners that take categories by value, a number that follows from the value stands for its
code. Rows are put together in ``raydt.sources.encoder``.
"""

from __future__ import annotations

import hashlib
import re
from array import array as typed_array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.errors import InputError
from raydt.messages import Message, message, quoted, quoted_columns, sentences

ColumnKind = Literal["number", "text"]
IdKind = Literal["integer", "text"]

#: Integers beyond this size have no exact float64.
LARGEST_INTEGER = 2**53

#: Texts that Arrow takes for a missing value where it infers the kind of a column of a text file.
WORDS_FOR_NOTHING = frozenset(pacsv.ConvertOptions().null_values)


class NullValues:
    """Texts that stand for a missing value in columns of numbers of text files: ``source.null_values``.

    Blanks around them do not count, and a blank field is always one of them. Numbers among them stand for a missing
    value however they are written. ``words`` None are the texts that pandas takes for one. In a file, only columns that
    :attr:`applies` names may have some: ids, subjects, keys, labels and weights never do.
    """

    def __init__(
        self, words: Sequence[str] | None, rules: int, applies: Callable[[str], bool] = lambda name: True
    ) -> None:
        given = WORDS_FOR_NOTHING | {"None", "<NA>"} if words is None else {word.strip() for word in words}
        self.words = frozenset({"", *given}) if rules >= 5 else frozenset[str]()
        found = pc.cast(pa.array([word for word in self.words if re.match(NUMBER, word)], pa.string()), pa.float64())
        self._numbers, self.applies = found, applies

    def of(self, texts: pa.Array) -> Bools:
        """Mask of the texts that stand for a missing number."""
        trimmed = pc.utf8_trim_whitespace(texts)
        return np.asarray(pc.is_in(trimmed, pa.array(sorted(self.words), trimmed.type)))

    def without_numbers(self, column: pa.Array) -> pa.Array:
        """Return a column of numbers with null in the place of those that stand for a missing one."""
        if not len(self._numbers) or pa.types.is_boolean(column.type):
            return column
        return pc.if_else(pc.is_in(pc.cast(column, pa.float64(), safe=False), self._numbers), None, column)

    def without_words(self, value: Any, kind: pa.DataType) -> Any:
        """Return a value of JSON with None for texts that stand for a missing number, where ``kind`` has numbers."""
        if not isinstance(value, dict) or not pa.types.is_struct(kind):
            return value
        found = dict(value)
        for field in kind:
            one = value.get(field.name)
            if isinstance(one, dict):
                found[field.name] = self.without_words(one, field.type)
            elif isinstance(one, str) and (_is_number(field.type) or pa.types.is_null(field.type)):
                found[field.name] = None if one.strip() in self.words and self.applies(field.name) else one
        return found


_USUAL, _PADDED = r"^(0|-?[1-9][0-9]*)(\.0*)?$", r"^-?[0-9]+(\.0*)?$"
_FINER = r"^(.*\.[0-9]{6})[0-9]+"

_WORDS = (
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None, "times without a zone"),
    (pa.types.is_timestamp, "times with a zone"),
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_decimal, "decimal numbers"),
    (pa.types.is_nested, "lists or records"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
)


def is_text(kind: pa.DataType) -> bool:
    """Return True if a column of this type holds strings, not counting dictionaries."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def holds_text(kind: pa.DataType) -> bool:
    """Return True if a column of this type holds text, in a dictionary or not."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def in_words(kind: pa.DataType) -> str:
    """Contents of a column of this type, for messages: plain words where there are some, else Arrow's name."""
    if pa.types.is_dictionary(kind):
        return in_words(kind.value_type)
    if is_text(kind):
        return "text"
    if pa.types.is_integer(kind):
        return "integers"
    if pa.types.is_floating(kind):
        return "floating-point numbers"
    if pa.types.is_boolean(kind):
        return "truth values"
    if pa.types.is_null(kind):
        return "no value in any row"
    what = next((words for is_kind, words in _WORDS if is_kind(kind)), "values of type")
    return f"{what} {kind}" if what == "values of type" else f"{what} ({kind})"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def column_kind(field: pa.Field, file: str | None = None) -> ColumnKind:
    """Return whether a column holds numbers, or text that needs codes; InputError for all other types."""
    kind = field.type
    extension = (field.metadata or {}).get(b"ARROW:extension:name")
    if not extension and not isinstance(kind, pa.BaseExtensionType):
        if _is_number(kind):
            return "number"
        if is_text(kind):
            return "text"
        if pa.types.is_dictionary(kind) and (_is_number(kind.value_type) or is_text(kind.value_type)):
            return "text"
    shown = f"values of type {extension.decode(errors='replace')}" if extension else in_words(kind)
    times = file and (pa.types.is_timestamp(kind) or pa.types.is_date(kind))
    what = "unusable_times" if times else "unusable"
    features = "X" if file is None else "the features (source.exclude)"
    said = message(f"columns.{what}", kind=shown, features=features, column=field.name)
    raise InputError(said, file=file, column=field.name)


def column_kinds(fields: Sequence[pa.Field], file: str | None = None) -> list[ColumnKind]:
    """Return :func:`column_kind` of each column; one InputError names all that cannot be used, such as several dates.

    ``file`` is None for an argument of an estimator.
    """
    kinds, refused = list[ColumnKind](), dict[str, InputError]()
    for field in fields:
        try:
            kinds.append(column_kind(field, file))
        except InputError as error:
            refused[field.name] = error
    if len(refused) == 1:
        raise next(iter(refused.values()))
    if refused:
        shown = quoted_columns([f"{one.name} ({in_words(one.type)})" for one in fields if one.name in refused])
        what = "columns.several_unusable" if file is None else "columns.several_unusable_of_file"
        raise InputError(message(what, columns=shown, names=quoted_columns(list(refused))), file=file)
    return kinds


def named_features(file: str | None) -> str:
    """Return what has the features, for messages: an option of a source, or an argument of an estimator."""
    return "X" if file is None else "source.features"


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def id_kind(kind: pa.DataType) -> IdKind | None:
    """Return the kind of ids that a column of this type holds, None if it holds none; a dictionary holds its values.

    Floating-point numbers are integers (:func:`whole_ids`): as such pandas writes integers where one is missing.
    """
    if pa.types.is_dictionary(kind):
        return id_kind(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "integer"
    return "text" if is_text(kind) or _is_uuid(kind) else None


def id_values(column: pa.Array) -> pa.Array:
    """A column of ids as plain integers or text: dictionaries decoded, UUIDs in their usual spelling."""
    if pa.types.is_dictionary(column.type):
        return id_values(column.dictionary).take(column.indices)
    if _is_uuid(column.type):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return plain(column)


def exact_bits(kind: pa.DataType) -> int:
    """Return the bits of the integers that a floating-point type holds one by one: 53 of 64, 24 of 32."""
    return int(np.finfo(kind.to_pandas_dtype()).nmant) + 1


def whole_ids(column: pa.Array) -> tuple[pa.Array, Bools | None]:
    """Return ids in floating point as integers, null where there is none; mask of what is not one, None if all are.

    An integer of more than :func:`exact_bits` is not one: it may have been rounded to the id of another row.
    """
    given = numbers(column)
    exact = (np.abs(given) < 2.0 ** exact_bits(column.type)) & (np.floor(given) == given)
    wrong = ~(np.isnan(given) | exact)
    whole = pa.array(np.where(exact, given, 0.0).astype(np.int64), mask=~exact)
    return whole, wrong if wrong.any() else None


def beyond_int64(column: pa.Array) -> Bools | None:
    """Mask of the unsigned integers that do not fit into a signed 64-bit integer; None if there are none."""
    if not pa.types.is_uint64(column.type):
        return None
    wide = np.asarray(column.fill_null(0)) > np.iinfo(np.int64).max
    return wide if wide.any() else None


def equal_to(column: pa.Array, text: str) -> Bools | None:
    """Mask of the values of a column that are this text; None if there are none."""
    if pa.types.is_dictionary(column.type):
        same = equal_to(column.dictionary, text)
        if same is None:
            return None
        return np.append(same, False)[np.asarray(column.indices.fill_null(len(same))).astype(np.int64)]
    if not is_text(column.type):
        return None
    same = np.asarray(pc.fill_null(pc.equal(column, text), False))
    return same if same.any() else None


def plain(column: pa.Array) -> pa.Array:
    """The column with string views (what Polars writes) as strings, since Arrow has no kernels for them."""
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, plain(column.dictionary))
    return pc.cast(column, pa.large_string()) if pa.types.is_string_view(column.type) else column


def objects(column: pa.Array) -> npt.NDArray[np.object_]:
    """Return the values of a column as Python objects, shape (n,)."""
    return np.array([*column.to_pylist(), None], dtype=np.object_)[:-1]


def numbers(column: pa.Array) -> Floats:
    """Values of a numeric or boolean column (or a dictionary of such) as float64, null as NaN; may be read-only."""
    return unconverted(column).astype(np.float64, copy=False)


def unconverted(column: pa.Array) -> AnyArray:
    """Return the array that :func:`numbers` converts: integers stay integers if none is null."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count or pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    values: AnyArray = column.to_numpy(zero_copy_only=False)
    return values


def inexact(column: pa.Array) -> Bools | None:
    """Mask of the integers beyond 2**53, which float64 cannot hold exactly; None if there are none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_integer(column.type) or column.type.bit_width < 64:
        return None
    extremes = pc.min_max(column).as_py()
    if extremes["max"] is None or (extremes["max"] <= LARGEST_INTEGER and extremes["min"] >= -LARGEST_INTEGER):
        return None
    whole = column.fill_null(0).to_numpy(zero_copy_only=False)
    outside = whole > LARGEST_INTEGER
    if pa.types.is_signed_integer(column.type):
        outside |= whole < -LARGEST_INTEGER
    return np.asarray(outside, dtype=np.bool_)


def repeated(value: Any, n: int) -> pa.Array:
    """Return a column of n times a value; without any it is a missing number or category."""
    return pa.nulls(n, pa.float64()) if value is None else pa.repeat(value, n)


def missing(column: pa.Array) -> Bools | None:
    """Mask of null (and, among floats, NaN and infinite) values of a column that is to be coded; None if none."""
    if pa.types.is_dictionary(column.type):
        lost = missing(column.dictionary)
        if column.null_count == 0 and lost is None:
            return None
        absent = np.array(column.indices.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
        if lost is not None and len(lost):
            index = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
            absent |= lost[index]
        return absent if absent.any() else None
    if pa.types.is_floating(column.type):
        absent = ~np.isfinite(numbers(column))
        return absent if absent.any() else None
    if column.null_count == 0:
        return None
    return np.array(column.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def infinite(column: pa.Array) -> Bools | None:
    """Mask of the infinite values of a column, or a dictionary, of numbers; None if there are none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_floating(column.type):
        return None
    mask = np.isinf(numbers(column))
    return mask if mask.any() else None


def parse(column: pa.Array, kind: pa.DataType, nulls: NullValues | None = None) -> tuple[pa.Array, Bools | None]:
    """Return a column of text as ``kind``, null where a text cannot be read, and the mask of these (None: none).

    Of the texts that cannot be read, those among ``nulls`` are missing.
    """
    if is_text(kind):
        return column, None
    column = pc.utf8_trim_whitespace(column)
    if pa.types.is_timestamp(kind):  # rounded down to microseconds: Arrow refuses finer texts
        column = pc.replace_substring_regex(column, _FINER, r"\1")
    try:
        return pc.cast(column, kind), None
    except pa.ArrowInvalid:
        if nulls is not None and nulls.words:
            return parse(pc.if_else(pa.array(nulls.of(column)), None, column), kind)
    # some value cannot be read: find out which, among the distinct ones
    coded = column.dictionary_encode()
    readable = np.ones(len(coded.dictionary), dtype=np.bool_)
    readable[_unreadable(coded.dictionary, kind)] = False
    distinct = pc.cast(pc.if_else(pa.array(readable), coded.dictionary, None), kind)
    values = distinct.take(coded.indices)
    return values, np.asarray(values.is_null()) & np.asarray(column.is_valid())


def parse_integers(column: pa.Array) -> tuple[pa.Array, Bools | None]:
    """Return ids written as text as :func:`parse` does: integers, also with a point and zeros behind it."""
    read, wrong = parse(column, pa.int64())
    if wrong is None:
        return read, None
    whole, _ = whole_ids(parse(column, pa.float64())[0])
    wrong &= np.asarray(whole.is_null())
    return pc.coalesce(read, whole), wrong if wrong.any() else None


def unlike_integers(texts: pa.Array, *, padded: bool = False) -> Bools | None:
    """Mask of the texts that do not write an integer as usual, in decimal digits; None if there are none.

    So ``007``, ``-0``, ``1e5`` and ``0x10`` are unlike integers, but not ``7.0``, which pandas writes where another
    value is missing. With ``padded``, zeros in front are usual.
    """
    usual = pc.match_substring_regex(pc.utf8_trim_whitespace(texts), _PADDED if padded else _USUAL)
    unlike = np.asarray(pc.fill_null(pc.invert(usual), False))
    return unlike if unlike.any() else None


def read_ids(
    column: pa.Array, kind: pa.DataType, name: str, faults: Faults, needed: Mask | None = None, *, padded: bool | None
) -> pa.Array:
    """Return a column of ids as integers or text, as ``kind`` says, null where there is none, and mark its faults.

    Integers may be written as text: ``padded`` with zeros in front, only as usual, or (None) in any way.
    """
    column = id_values(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if pa.types.is_floating(column.type):
        whole, wrong = whole_ids(column)
        faults.mark("not_whole", name, wrong, needed, column, bits=exact_bits(column.type))
        return whole
    if not is_text(column.type) or is_text(kind):
        return column
    read, wrong = parse_integers(column)
    faults.mark("not_kind", name, wrong, needed, column, kind=in_words(kind))
    if padded is not None:
        faults.mark("other_spelling", name, unlike_integers(column, padded=padded), needed, column)
    return read


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _unreadable(texts: pa.Array, kind: pa.DataType, start: int = 0) -> list[int]:
    """Places of the texts that cannot be read, by halving: O(log n) conversions for each."""
    try:
        pc.cast(texts, kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return [start]
        half = len(texts) // 2
        return _unreadable(texts[:half], kind, start) + _unreadable(texts[half:], kind, start + half)
    return []


def number_of(value: Any) -> int:
    """A whole number below 2**53 that follows from a category alone, and is exact as float64.

    BLAKE2b of its text or, of a number, of how Python writes it, whole ones without a point. Two of a million values
    have one number with probability 6e-5; they are then one category.
    """
    if isinstance(value, str):
        written = b"text " + value.encode("utf-8", "surrogatepass")
    else:
        number = float(value)
        written = b"number " + (str(int(value)) if number.is_integer() else repr(number)).encode()
    return int.from_bytes(hashlib.blake2b(written, digest_size=8).digest(), "little") >> 11


class Dictionary:
    """Values and their codes, in order of first appearance; ``values`` are known from the start.

    Equal numbers are one value whatever their type (1, 1.0), as in Python. With ``by_value``, :meth:`encode` and
    :meth:`find` give :func:`number_of` the values, and not their codes.
    """

    def __init__(self, values: Sequence[Any] = (), by_value: bool = False) -> None:
        self._by_value = by_value
        self.values: list[Any] = list(values)
        self._codes = {value: code for code, value in enumerate(self.values)}
        self._first_row = typed_array("q", [-1]) * len(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def known(self, row: int | None = None) -> int:
        """Return the number of values that appeared before ``row`` (all, if None). O(log n)."""
        return len(self.values) if row is None else bisect_left(self._first_row, row)

    def encode(self, column: pa.Array, row: int, keep: Bools | None = None, of: Ints | None = None) -> Ints:
        """Return the codes of a column's values, -1 where null or passed over; new values get the next codes.

        ``row`` is the number of the first value's row. Values outside of ``keep``, shape (n,), are passed over. ``of``,
        shape (n,), has the row of each value, counted from ``row``, ascending; by default every value has its own. O(n)
        vectorised, and Python work for each *distinct* value of the column.
        """
        distinct, local = _distinct(column, keep)
        if any(value not in self._codes for value in distinct):
            self._add(distinct, local, row, of)
        return self._look_up(distinct, local)

    def find(self, column: pa.Array) -> Ints:
        """Codes of a column's values, -1 where null or unknown; no value is added. Cost as of :meth:`encode`."""
        return self._look_up(*_distinct(column, None))

    def learn(self, values: Sequence[Any], rows: Sequence[int]) -> Ints:
        """Return the codes of ``values``, distinct ones in order of appearance, of which each came first in its row.

        New values get the next codes. They are codes also with ``by_value``. O(values).
        """
        for value, row in zip(values, rows, strict=True):
            if value not in self._codes:
                self._codes[value] = len(self.values)
                self.values.append(value)
                self._first_row.append(row)
        return np.array([self._codes[value] for value in values], dtype=np.int64)

    def first_rows(self) -> list[int]:
        """Return the row in which each value came first; -1 of those known from the start."""
        return self._first_row.tolist()

    def cut(self, n: int) -> None:
        """Forget all but the first ``n`` values. O(values forgotten)."""
        for value in self.values[n:]:
            self._codes.pop(value, None)  # none has a code if adding it was broken off
        del self.values[n:], self._first_row[n:]

    def _look_up(self, distinct: list[Any], local: Ints) -> Ints:
        codes = np.array([self._codes.get(value, -1) for value in distinct] + [-1], dtype=np.int64)
        if self._by_value:
            known = [
                number_of(value) if code >= 0 else -1 for value, code in zip(distinct, codes.tolist(), strict=False)
            ]
            codes = np.array([*known, -1], dtype=np.int64)
        return codes[local]

    def _add(self, distinct: list[Any], local: Ints, row: int, of: Ints | None) -> None:
        first = np.zeros(len(distinct) + 1, dtype=np.int64)
        first[local[::-1]] = np.arange(len(local) - 1, -1, -1)  # of repeated places the last assignment stays
        rows = first if of is None or not len(of) else of[first]
        for value, place in zip(distinct, rows.tolist(), strict=False):
            if value is not None and value not in self._codes:
                self.values.append(value)
                self._first_row.append(row + place)
                self._codes[value] = len(self.values) - 1


def _distinct(column: pa.Array, keep: Bools | None) -> tuple[list[Any], Ints]:
    """The distinct values of a column in order of appearance, and each row's place among them (-1: none)."""
    table = None
    if pa.types.is_dictionary(column.type):
        table, column = column.dictionary, column.indices
    if keep is not None:
        column = pc.if_else(pa.array(keep), column, pa.scalar(None, column.type))
    coded = column.dictionary_encode()
    distinct = (coded.dictionary if table is None else table.take(coded.dictionary)).to_pylist()
    return distinct, np.asarray(coded.indices.fill_null(-1)).astype(np.int64)


# Faults of rows: what makes them bad, as codes with a column and a value, and the errors of them.

Mask = Bools


class Fault(NamedTuple):
    """The reason for which a row is bad."""

    code: str  #: Names the sentence in ``raydt/messages/rows.txt``.
    column: str
    value: Any = None  #: The value at fault, if the sentence shows it.
    more: Mapping[str, Any] = MappingProxyType({})  #: Further parameters of the sentence.


class Faults(dict[int, Fault]):
    """The first fault of each row of a chunk, by position, but of those that are ``bad`` already."""

    def __init__(self, length: int, bad: Iterable[int] = ()) -> None:
        super().__init__()
        self.good = np.ones(length, dtype=np.bool_)
        self.good[list(bad)] = False

    def mark(
        self, code: str, column: str, mask: Mask | None, needed: Mask | None = None, values: Any = None, **more: Any
    ) -> None:
        """Note a fault of the rows in ``mask`` and ``needed`` (None: all) that have none yet, for a sentence."""
        if mask is None:
            return
        new = mask & self.good if needed is None else mask & needed & self.good
        for position in np.flatnonzero(new).tolist():
            value = None if values is None else values[position]
            if isinstance(value, pa.Scalar | np.generic):
                value = value.as_py() if isinstance(value, pa.Scalar) else value.item()
            self[position] = Fault(code, column, value, more)
        self.good &= ~new

    def keep(self, needed: Mask | None) -> Mask | None:
        """Return the mask of the rows that are needed and good; None for all."""
        kept = self.good if needed is None else self.good & needed
        return None if kept.all() else kept


def error_of(
    fault: Fault, *, file: str | None = None, row: int | None = None, stored: Mapping[str, str] | None = None
) -> InputError:
    """Return the error of a fault in a row of a file or of data in memory; ``stored`` has other names of columns."""
    shown = {"value": quoted(fault.value, 40), **fault.more}
    if fault.code == "many_classes":
        from raydt.learners import for_numbers  # needed for messages only: compiled kernels are imported with it

        shown["numeric"] = for_numbers()
    said = message(f"rows.{fault.code}", **shown)
    column = (stored or {}).get(fault.column, fault.column)
    if file is None:
        told = message(f"in_memory.{fault.code}").problem if fault.code in sentences("in_memory") else None
        return InputError(said.alone(), row=row, column=column, remedy=told)
    return InputError(said, file=file, row=row, column=column)


# A column of lists of text: sparse features that are tokens, coded in order of first appearance in the stream.
#
# Invariant: as of categories (``raydt.encoding.columns``): a code depends on the rows before it alone, neither
# on chunks nor on
# reading ahead, and a bad row gives none. A token that a list repeats says no more than once: the feature is 1.


def is_list(kind: pa.DataType) -> bool:
    """Return True if a column of this type holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def holds_tokens(kind: pa.DataType) -> bool:
    """Return True if a column of this type holds lists of text, plain or in dictionaries."""
    return is_list(kind) and holds_text(kind.value_type)


def different(columns: Iterable[pa.Array]) -> int:
    """Return the number of tokens in some columns, at least 1. O(tokens), and memory for the different ones."""
    seen: set[str] = set()
    for column in columns:
        seen.update(_flat(column).unique().to_pylist())
    return max(1, len(seen - {None}))


class Tokens:
    """The tokens of a column and their codes, at most ``width``; unless it ``grows``, new ones are no features."""

    def __init__(self, name: str, grows: bool) -> None:
        self.name, self._grows = name, grows
        self.dictionary, self.width = Dictionary(), 0

    def check(self, column: pa.Array, needed: Mask | None, faults: Faults) -> None:
        """Note the rows without a list, or with a token that is null."""
        faults.mark("no_tokens", self.name, np.asarray(column.is_null()), needed)
        flat = _flat(column)
        if flat.null_count:
            lost = np.zeros(len(column), dtype=np.bool_)
            lost[_rows_of(column)[np.asarray(flat.is_null())]] = True
            faults.mark("null_token", self.name, lost, needed)

    def require_known(self, column: pa.Array, faults: Faults) -> None:
        """Note the rows of a checked column with a token that has no code."""
        flat, of = _flat(column), _rows_of(column)
        for place in np.flatnonzero(self.dictionary.find(flat) < 0)[::-1].tolist():
            faults[int(of[place])] = Fault("unknown_token", self.name, flat[place].as_py())

    def encode(self, column: pa.Array, row: int, needed: Mask | None, faults: Faults) -> SparseRows:
        """Return the tokens of a column, none in bad or needless rows; a row beyond the room becomes bad."""
        flat, of, keep = _flat(column), _rows_of(column), faults.keep(needed)
        taken = None if keep is None else keep[of]
        if self._grows:
            known = len(self.dictionary)
            codes = self.dictionary.encode(flat, row, taken, of)
            if len(self.dictionary) > self.width:
                self.dictionary.cut(known)
                codes = self._one_by_one(flat, of, row, taken, faults)
        else:
            codes = self.dictionary.find(flat)
            codes[codes >= self.width] = -1
            if taken is not None:
                codes[~taken] = -1
        order = np.lexsort((codes, of))
        codes, of = codes[order], of[order]
        first = np.ones(len(codes), dtype=np.bool_)
        first[1:] = (codes[1:] != codes[:-1]) | (of[1:] != of[:-1])
        first &= codes >= 0
        lengths = np.bincount(of[first], minlength=len(column))
        return SparseRows.of_lengths(lengths, codes[first].astype(np.int32), self.width)

    def _one_by_one(self, flat: pa.Array, of: Ints, row: int, taken: Mask | None, faults: Faults) -> Ints:
        """Codes where there is no room for all new tokens: a row whose new ones do not fit is bad, and gives none."""
        codes = self.dictionary.find(flat)
        new = (codes < 0) & (True if taken is None else taken)
        for position in np.unique(of[new]).tolist():
            begin, end = np.searchsorted(of, [position, position + 1]).tolist()
            known, part = len(self.dictionary), flat.slice(begin, end - begin)
            codes[begin:end] = self.dictionary.encode(part, row + position, None, np.zeros(end - begin, dtype=np.int64))
            if len(self.dictionary) <= self.width:
                continue
            token = self.dictionary.values[self.width]
            self.dictionary.cut(known)
            codes[begin:end] = -1
            faults[position] = Fault("token_beyond", self.name, token, {"width": self.width})
            faults.good[position] = False
        if taken is not None:
            codes[~taken] = -1
        return codes


def _flat(column: pa.Array) -> pa.Array:
    """All tokens, without what lies under a null."""
    if pa.types.is_null(column.type):
        return pa.array([], pa.string())
    flat = pc.list_flatten(column)
    return pc.cast(flat, pa.string()) if pa.types.is_null(flat.type) else plain(flat)


def _rows_of(column: pa.Array) -> Ints:
    """Place of the list that each token is in."""
    if pa.types.is_null(column.type):
        return np.empty(0, dtype=np.int64)
    lengths: Any = pc.list_value_length(column).fill_null(0)
    return np.repeat(np.arange(len(column), dtype=np.int64), np.asarray(lengths).astype(np.int64))


# Event times: which column types are taken, and their values as int64.
#
# Invariant: a time is at most :data:`LARGEST_TIME` in size, so that adding or taking away a duration of that size
# cannot overflow. Timestamps and dates are microseconds since 1970-01-01 UTC, rounded down (a timestamp without a zone
# is taken as UTC); integers are as they are, in the user's own unit.

#: 146,000 years in microseconds.
LARGEST_TIME = 2**62

#: Of a row without a time, where nobody requires one: no time is earlier.
NO_TIME = -LARGEST_TIME

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class TimeColumn(NamedTuple):
    """The column of event times: its name, and whether it holds points in time or integers of the user's unit."""

    name: str
    kind: Literal["timestamp", "integer"]


def time_column(field: pa.Field, file: str) -> TimeColumn:
    """Return a column as one of event times; one whose type cannot be used is an InputError with the remedy."""
    kind = field.type
    if not (field.metadata or {}).get(b"ARROW:extension:name"):
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return TimeColumn(field.name, "timestamp")
        if pa.types.is_integer(kind):
            return TimeColumn(field.name, "integer")
    said = message(f"columns.{'text_times' if is_text(kind) else 'not_times'}", kind=in_words(kind))
    raise InputError(said, file=file, column=field.name)


def read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type as which text in a column of times is read, whatever the fineness of its first rows."""
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None)


def kind_of_times(texts: pa.Array) -> pa.DataType | None:
    """Return the type as which most of the first 1,000 texts can be read as times; None if most are no times."""
    texts = texts[:1000]
    kinds = (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
    integers, *moments = [len(texts) - parse(texts, kind)[0].null_count for kind in kinds]
    if 2 * max(integers, sum(moments)) <= len(texts):
        return None
    return kinds[0] if integers > sum(moments) else kinds[1 + moments.index(max(moments))]


def times(column: pa.Array) -> tuple[Ints, Bools | None]:
    """Return the values of a column of times, 0 where null or too large, and the mask of those too large, if any."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1_000, None
    factor = 1
    if pa.types.is_date32(kind):
        column, factor = pc.cast(pc.cast(column, pa.int32()), pa.int64()), 86_400_000_000
    elif pa.types.is_date64(kind):
        column, factor = pc.cast(column, pa.int64()), 1_000
    elif pa.types.is_timestamp(kind):
        column, factor = pc.cast(column, pa.int64()), _MICROSECONDS[kind.unit]
    raw = column.fill_null(0).to_numpy(zero_copy_only=False)
    limit = LARGEST_TIME // factor
    outside = (raw > limit) | (raw < -limit) if raw.dtype.kind == "i" else raw > limit
    values = np.where(outside, 0, raw).astype(np.int64) * factor
    return values, np.asarray(outside, dtype=np.bool_) if outside.any() else None


# Texts that look like numbers or times, of which each value would be a category of its own.

NUMBER = r"^\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*$"
DECIMAL_COMMA = r"^\s*[-+]?[0-9]*,[0-9]+\s*$"
#: With groups of thousands, a currency or a percent sign.
_WRITTEN_OUT = r"^\s*[-+]?\p{Sc}?\s*[0-9]{1,3}(?:[,.' _]?[0-9]{3})*(?:[.,][0-9]+)?\s*[%\p{Sc}]?\s*$"
#: So many values are looked at.
_MOST = 1000


#: An integer as it is usually written: 007, -0 and +7 are texts.
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


def integer_of(written: str) -> int | None:
    """Return the integer that a text writes as Python would, None if it writes none so."""
    return int(written) if _INTEGER.fullmatch(written) and len(written) < 400 else None


def share(texts: pa.Array, pattern: str) -> float:
    """Share of the texts that match a regular expression."""
    return (pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0) / max(1, len(texts))


def doubt(values: pa.Array) -> Message | None:
    """Say, as the end of a sentence, what a column of text is more likely to hold; None where it holds names."""
    values = values[:_MOST]
    if share(values, f"{NUMBER}|{DECIMAL_COMMA}|{_WRITTEN_OUT}") > 0.5:
        return message("columns.like_numbers")
    return None if kind_of_times(values) is None else message("columns.like_times")

"""Rows of one source told apart by key, and the view that each key has of its own.

Invariant: what a :class:`KeySource` gives its stream is what a source would give that has the rows of this key alone:
rows are numbered from 0, and categories, tokens and labels have codes in the order of their first appearance among
these rows. So nothing of a model depends on the rows of other keys.
"""

from __future__ import annotations

from array import array as typed_array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Bools, Ints
from raydt.encoding.columns import number_of
from raydt.encoding.operations import IGNORED
from raydt.encoding.times import TimeColumn
from raydt.errors import InputError
from raydt.examples.reading import Reading
from raydt.examples.targets import NUMBERS
from raydt.examples.updates import CARRIES_ROW
from raydt.keyed.groups import Key
from raydt.keyed.log import Due, KeyLog
from raydt.keyed.sent import SentSource, WholeSource
from raydt.keyed.table_keys import told_apart
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sources.base import Rows
from raydt.sources.identity import Identity

Codes = Ints


class Part(NamedTuple):
    """Rows of one key, or of none, and deletions of a log that take effect by their end."""

    key: Key | None
    rows: Rows
    due: Due | None = None


class SharedSource:
    """The source that all keys read; codes of categories that follow from values are told back by their value.

    ``log`` is the deletion log, if there is one: its ``column``, ``name`` and description (``described``).
    """

    def __init__(self, source: WholeSource | SentSource, reading: Reading, log: Any = None) -> None:
        self.source, self.reading, self.log = source, reading, log
        features = source.features
        self.categorical = [j for j, coded in enumerate(features.categorical) if coded]
        self.most = reading.most_classes(sparse=bool(features.sparse))
        self._values_of: dict[str, dict[int, Any]] = {}

    def values(self, name: str) -> Sequence[Any] | Mapping[int, Any]:
        """Return the category, or the token, of each code in a column."""
        dictionary = self.source.categories()[name]
        if not self.reading.by_value or name == self.source.features.sparse_column:
            return dictionary.values
        known = self._values_of.setdefault(name, {})
        for value in dictionary.values[len(known) :]:
            known.setdefault(number_of(value), value)
        return known

    def split(self, rows: Rows, due: Due | None = None) -> Iterator[Part]:
        """Yield the rows of each key, in the order of their first appearance, and those without a key as of None.

        ``row`` stays the number over the whole source. Keys with deletions ``due`` and no rows come last. O(n log n).
        """
        rows = told_apart(rows)
        assert rows.key is not None
        order = np.argsort(rows.key, kind="stable")
        codes = rows.key[order]
        begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]) if len(codes) else [])
        ends = np.append(begins[1:], len(codes))
        sorted_rows, keys = rows[order], self.source.keys
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        bad = sorted((int(place[one]), error) for one, error in rows.bad.items())
        for i in np.argsort(order[begins], kind="stable").tolist():
            begin, end = int(begins[i]), int(ends[i])
            code = int(codes[begin])
            part = sorted_rows[begin:end]
            first = bisect_left(bad, begin, key=lambda one: one[0])
            last = bisect_left(bad, end, key=lambda one: one[0])
            part.bad.update((at - begin, error) for at, error in bad[first:last])
            yield Part(None if code < 0 else keys[code], part, None if due is None else due[due.key == code])
        if due is not None and len(due):
            for code in np.setdiff1d(due.key, rows.key).tolist():
                yield Part(keys[code], rows[:0], due[due.key == code])


class _Codes:
    """Codes of one column within a key, by the codes of the shared source; -1 stays.

    There are at most ``most``, if that is given: further values get it for a code, and leave no trace.
    """

    __slots__ = ("_first", "_known", "_local", "_most", "values")

    def __init__(self, values: Sequence[Any] = (), most: int | None = None) -> None:
        self.values, self._most = list(values), most
        self._known = {value: code for code, value in enumerate(self.values)}  # not met since they were restored
        if isinstance(values, str) or len(self._known) != len(self.values):
            raise ValueError(message("keyed.uneven", name="values"))
        self._local = {-1: -1}
        self._first = typed_array("q", [-1]) * len(self.values)

    def encode(self, codes: list[int], row: list[int], shared: Sequence[Any] | Mapping[int, Any]) -> list[int]:
        """Return the codes within the key. O(1) each."""
        local, found = self._local, []
        for code, at in zip(codes, row, strict=True):
            own = local.get(code)
            if own is None:
                own = local[code] = self._code_of(shared[code], at)
            found.append(own)
        return found

    def _code_of(self, value: Any, row: int) -> int:
        known = self._known.pop(value, None)
        if known is not None or len(self.values) == self._most:
            return len(self.values) if known is None else known
        self.values.append(value)
        self._first.append(row)
        return len(self.values) - 1

    def before(self, row: int | None) -> list[Any]:
        """Return the values that appeared before a row (all, if None)."""
        return self.values[: len(self.values) if row is None else bisect_left(self._first, row)]


class KeySource:
    """The rows of one key, as far as they were given; satisfies :class:`raydt.sources.base.Source`."""

    complete = False
    n_rows = None

    def __init__(self, shared: SharedSource) -> None:
        source = shared.source
        self._shared, self.features = shared, source.features
        self.rules = source.rules
        self.id_kind, self.id_column = source.id_kind, source.id_column
        self.subject_kind, self.subject_column = source.subject_kind, source.subject_column
        self.is_changelog, self.has_labels = source.is_changelog, source.has_labels
        self.known_classes, self.target_dtype = source.known_classes, source.target_dtype
        log = shared.log
        #: The key's part of the deletion log.
        self.log = None if log is None else KeyLog(log.column, log.name, log.described)
        self._waiting: deque[Rows] = deque()
        self._read = 0  # rows given so far
        self._block = np.empty(0, dtype=np.int64)  # numbers over the whole source of the rows given last
        self.restore({})

    @property
    def positive(self) -> list[Any] | None:
        """As of the whole source."""
        return self._shared.source.positive

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of their codes, as known from the rows given so far."""
        return self._shared.source.classes if self._labels is None else self._labels.values

    def give(self, rows: Rows, due: Due | None = None) -> None:
        """Take the next rows of the key, which are changed and numbered anew (:meth:`SharedSource.split`)."""
        if due is not None and self.log is not None and len(due):
            self.log.add(due, rows.row, self._read)
        if not len(rows):
            return
        n, start, shared = len(rows), self._read, self._shared
        number = np.arange(start, start + n, dtype=np.int64)
        self._block = rows.row
        good = np.ones(n, dtype=np.bool_) if rows.op is None else CARRIES_ROW[np.where(rows.op == IGNORED, 1, rows.op)]
        good[list(rows.bad)] = False
        if self._labels is not None:
            self._give_labels(self._labels, rows, good)
        at = np.flatnonzero(good)
        where = (at + start).tolist()
        for j in shared.categorical:
            name = self.features.names[j]
            codes = self._categories[name].encode(rows.X[at, j].astype(np.int64).tolist(), where, shared.values(name))
            if not shared.reading.by_value:
                rows.X[at, j] = codes
        sparse = rows.sparse
        if self._tokens and sparse is not None:
            sparse = self._give_tokens(sparse, start)
        ids = number if self.id_kind == "row" else rows.id
        self._read += n
        self._waiting.append(replace(rows, row=number, id=ids, sparse=sparse, key=None))

    def _give_labels(self, labels: _Codes, rows: Rows, good: Bools) -> None:
        """Enter the key's own class codes; a row of one class more than the learner takes becomes bad."""
        at, most = np.flatnonzero(good), self._shared.most
        own = labels.encode(rows.y[at].tolist(), (at + self._read).tolist(), self._shared.source.label_values)
        for place in [place for place, code in zip(at.tolist(), own, strict=True) if code >= most]:
            file, row = self._shared.source.where(int(rows.row[place]))
            label = quoted(self._shared.source.label_values[int(rows.y[place])])
            rows.bad[place] = InputError(message("keyed.more_classes", label=label, most=most), file=file, row=row)
            good[place] = False
        rows.y[at] = own

    def _give_tokens(self, sparse: SparseRows, start: int) -> SparseRows:
        """Return sparse rows with the key's own numbers of tokens."""
        name = self.features.sparse_column
        of = np.repeat(np.arange(len(sparse)), sparse.lengths)
        own = self._categories[name].encode(sparse.indices.tolist(), (of + start).tolist(), self._shared.values(name))
        codes = np.array(own, dtype=np.int32)
        return SparseRows(sparse.indptr, codes[np.lexsort((codes, of))], sparse.n_features)

    def rows(self, start: int = 0) -> Iterator[Rows]:
        """Rows that were given and not read yet."""
        while self._waiting:
            rows = self._waiting.popleft()
            if rows.start + len(rows) > start:
                yield rows

    def identity(self) -> Identity:
        """Refuse: the identity of data is that of the whole source."""
        raise NotImplementedError

    def count_rows(self) -> int:
        """Rows given so far."""
        return self._read

    def times(self) -> TimeColumn | None:
        """As of the whole source."""
        return self._shared.source.times()

    def require_ts(self) -> TimeColumn:
        """As of the whole source."""
        return self._shared.source.require_ts()

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of one of the rows given last."""
        place = row - (self._read - len(self._block))
        within = 0 <= place < len(self._block)
        return self._shared.source.where(int(self._block[place]) if within else 0)

    def place(self, row: int) -> int:
        """Return the number over the whole source of one of the rows given last; -1 of any other."""
        place = row - (self._read - len(self._block))
        return int(self._block[place]) if 0 <= place < len(self._block) else -1

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Dictionaries as known before ``row``, as of a source with the rows of this key alone."""
        labels = {} if self._labels is None else {"classes": self._labels.before(row)}
        if self.positive is not None:
            labels = self._shared.source.state(0)["labels"]
        return {"categories": {name: codes.before(row) for name, codes in self._categories.items()}, "labels": labels}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the dictionaries of a saved state."""
        known = state.get("categories", {})
        names = [self.features.names[j] for j in self._shared.categorical]
        self._tokens = self.features.sparse_column in self._shared.source.categories()
        names += [self.features.sparse_column] if self._tokens else []
        self._categories = {name: _Codes(known.get(name, ())) for name in names}
        own = self.target_dtype != NUMBERS and self.positive is None
        known_labels = state.get("labels", {}).get("classes", ())
        self._labels = _Codes(known_labels, self._shared.most) if own else None

    def go_to(self, row: int, deletions: int = 0) -> None:
        """Go on after so many rows of the key, and entries of its log."""
        if self.log is not None:
            self.log.go_to(deletions)
        self._waiting.clear()
        self._read, self._block = row, np.empty(0, dtype=np.int64)

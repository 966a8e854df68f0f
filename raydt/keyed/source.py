"""Rows of one source told apart by key, and the view that each key has of its own.

Invariant: what a :class:`KeySource` gives its stream is what a source would give that has the rows of this key alone:
rows are numbered from 0, and categories, tokens and labels have codes in the order of their first appearance among
these rows. So nothing of a model depends on the rows of other keys.
"""

from __future__ import annotations

from array import array as typed_array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import Ints
from raydt.encoding.columns import Dictionary, TimeColumn, number_of
from raydt.encoding.labels import IGNORED
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DUPLICATE_ID,
    INSERT,
    NUMBERS,
    REFUSALS,
    UNKNOWN_ID,
    UPDATE,
    Features,
    Reading,
    previous_names,
)
from raydt.exchange.messages import Segment
from raydt.keyed.groups import Due, Key, KeyLog
from raydt.messages import message, quoted
from raydt.sources.base import Rows, SourceIdentity
from raydt.sources.file_source import FileSource
from raydt.sources.live.followed import KEPT, FollowedSource
from raydt.streams.row_stream import restored_ids, saved_ids

# The keys of the ids of a table that changes: a deletion names no key, and an update may name another one.
#
# Invariant: what is known follows from the rows before alone, whatever the models did with them. An id belongs to the
# key of the newest row that the table has of it, usable or not, until the table deletes it. In a table of keys A and B:
#
#     =====================  ===================================  =========
#     row                    what the models of the keys get      key of 7
#     =====================  ===================================  =========
#     insert 7 of A          A: insert                            A
#     update 7 of A          A: update                            A
#     update 7 of B          A: delete, B: insert                 B
#     insert 7 of A          none: a bad row, since 7 is there    B
#     update 7 of A, bad     B: delete                            B
#     update 7 of A          A: insert                            A
#     delete 7               A: delete                            none
#     delete 7 of A          none: a bad row                      none
#     =====================  ===================================  =========

#: The key of an id whose only row names none: no model has it.
NO_KEY = -1
#: A request to delete what no model has, beside the codes of operations.
MISSING = -4

Ops = npt.NDArray[np.int8]


class _Change(NamedTuple):
    """A row that changes the table."""

    at: int  #: Its place in the block.
    id: Any
    op: int
    key: int  #: Code of the key that it names.


class _Owner(NamedTuple):
    """To whom an id of the table belongs."""

    key: int  #: Code of the key; :data:`NO_KEY` if no row has named one.
    spoilt: bool  #: The newest row of the id is bad, so that no model has it.


class _Block:
    """Rows while they are settled: what becomes of their operations and keys, and which are bad."""

    def __init__(self, rows: Rows) -> None:
        assert rows.op is not None
        assert rows.key is not None
        self._rows, self._op, self._key = rows, rows.op, rows.key
        self.op, self.key, self.told, self.bad = rows.op.copy(), rows.key.copy(), rows.op.copy(), dict(rows.bad)
        self.told[[*self.bad]] = IGNORED
        self.moved = np.full(len(rows), NO_KEY, dtype=np.int64)  #: Old keys of rows that move.

    def listed(self) -> Iterator[tuple[Any, int, int]]:
        """Return id, operation and code of the key of each row, as it came."""
        ids = self._rows.id if self._rows.names is None else self._rows.names
        return zip(ids.tolist(), self._op.tolist(), self._key.tolist(), strict=True)

    def number(self, row: _Change) -> int:
        """Return the number of a row over all files."""
        return int(self._rows.row[row.at])

    def settled(self) -> Rows:
        """Return the rows as they are settled."""
        moved = self.moved if (self.moved >= 0).any() else None
        return replace(self._rows, op=self.op, key=self.key, moved=moved, bad=self.bad)


class TableKeys:
    """The key of each id of the table that a source follows; O(1) for each row, about 100 bytes for each id."""

    def __init__(self, source: FollowedSource) -> None:
        self._source = source
        #: Says of an id, once, whether a receipt shows it as erased: that it has no key is no fault then.
        self.erased: Callable[[Any], bool] | None = None
        self._keys: dict[Any, int] = {}  # codes of keys; of an id whose newest row is bad what _spoilt makes of them

    def settle(self, rows: Rows, *, strict: bool) -> tuple[Rows, Ops]:
        """Return the next rows, each with the key of its example, and what each is to its id.

        That is the operation of the update that a run with one model would make of it, or :data:`MISSING`. A row that
        the table cannot have is bad; ``strict`` leaves off at the first one.
        """
        block = _Block(rows)
        for at, (id, op, key) in enumerate(block.listed()):
            held = self._keys.get(id)
            if op not in (INSERT, DELETE, UPDATE) or (op == UPDATE and held == key and at not in block.bad):
                continue  # most rows of a table that changes: an update that moves nothing
            row = _Change(at, id, op, key)
            owner = None if held is None else _Owner(held if held >= 0 else _spoilt(held), spoilt=held < 0)
            if at in block.bad:
                self._settle_bad(block, row, owner)
            elif op == DELETE:
                self._settle_deletion(block, row, owner)
            else:
                self._settle_good(block, row, owner)
            if strict and len(block.bad) > len(rows.bad):
                break
        return block.settled(), block.told

    def _settle_bad(self, block: _Block, row: _Change, owner: _Owner | None) -> None:
        """Settle a row that cannot be used: an update takes the old row away from the model that has it."""
        if row.op == DELETE:
            return
        if row.op == INSERT and owner is not None and not owner.spoilt:
            # It says nothing about the row that the table has; another key is not to hear of it.
            block.op[row.at] = row.op if owner.key == row.key else IGNORED
            return
        if row.op == UPDATE:
            block.told[row.at] = MISSING if owner is None or owner.spoilt else DELETE
        key = row.key if owner is None or owner.key == NO_KEY else owner.key
        if row.op == UPDATE:
            block.key[row.at] = key
        elif row.key != key:
            block.op[row.at] = IGNORED
        self._keys[row.id] = _spoilt(key)

    def _settle_deletion(self, block: _Block, row: _Change, owner: _Owner | None) -> None:
        """Settle a deletion, which goes to the key of its id, whatever key it names."""
        erased = self.erased is not None and self.erased(row.id)  # asked of every deletion, since it says so once
        if owner is None:  # no model takes note of it
            block.op[row.at], block.told[row.at], block.key[row.at] = IGNORED, MISSING, NO_KEY
            if not erased:
                block.bad[row.at] = self._error("keyed.no_owner", row.id, UNKNOWN_ID, block.number(row))
            return
        del self._keys[row.id]
        block.op[row.at] = IGNORED if owner.key == NO_KEY else DELETE
        block.key[row.at], block.told[row.at] = owner.key, MISSING if owner.spoilt else DELETE

    def _settle_good(self, block: _Block, row: _Change, owner: _Owner | None) -> None:
        """Settle an insertion, or an update, which may move its row from one key to another."""
        if owner is None:
            if row.op == INSERT:  # an update of an unknown id is refused by the key that it names
                self._keys[row.id] = row.key
            return
        if row.op == INSERT and not owner.spoilt and owner.key != row.key:
            block.bad[row.at] = self._error("keyed.live_elsewhere", row.id, DUPLICATE_ID, block.number(row))
            block.op[row.at] = block.told[row.at] = IGNORED
            return
        self._keys[row.id] = row.key
        if owner.key == NO_KEY:
            block.op[row.at] = INSERT
        elif owner.key != row.key:
            block.moved[row.at] = owner.key
        if owner.spoilt:
            block.told[row.at] = INSERT

    def _error(self, said: str, id: Any, reason: int, row: int) -> InputError:
        problem, remedy = REFUSALS[reason]
        file, line = self._source.where(row)
        said_of_id = message(said, id=quoted(id), problem=problem, remedy=remedy)
        return InputError(said_of_id, file=file, row=line, column=self._source.id_column)

    def follow_update(self, key: Key, gone: Iterable[Any], new: Iterable[Any]) -> None:
        """Take in which ids an update from elsewhere has deleted from a key, and inserted into it."""
        code = self._source.code_of_key(key)
        for id in gone:
            if self._keys.get(id) == code:
                del self._keys[id]
        self._keys |= dict.fromkeys(new, code)

    def state(self) -> dict[str, Any]:
        """Return ids, ascending, and their keys."""
        return _saved(self._keys)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave; ValueError if a key is not known."""
        keys, known = _restored(state), len(self._source.keys)
        if any(not -2 - known < key < known for key in keys.values()):
            raise ValueError(message("keyed.uneven", name="table_keys"))
        self._keys = keys


def _saved(keys: Mapping[Any, int]) -> dict[str, Any]:
    ids = saved_ids(keys)
    return {"table_ids": ids, "table_keys": np.array([keys[id] for id in restored_ids(ids)], dtype=np.int64)}


def _restored(state: Mapping[str, Any]) -> dict[Any, int]:
    if "table_keys" not in state:
        return {}
    return dict(zip(restored_ids(state["table_ids"]), state["table_keys"].tolist(), strict=True))


def _spoilt(key: int) -> int:
    """Return what stands for a key in the place of an id whose newest row is bad, and the other way round; < 0."""
    return NO_KEY if key == NO_KEY else -2 - key


def recoded(state: Mapping[str, Any], code: Mapping[int, int], keeps: Any) -> dict[str, Any]:
    """Return what :meth:`TableKeys.state` gave with other codes of keys, and only ids for which ``keeps`` is true.

    ``keeps`` is called with the old code of the key (None: no key) and the id.
    """
    if "table_keys" not in state:
        return {}
    kept: dict[Any, int] = {}
    for id, held in _restored(state).items():
        key = held if held >= 0 else _spoilt(held)
        if keeps(None if key == NO_KEY else key, id):
            new = code.get(key, NO_KEY)
            kept[id] = new if held >= 0 else _spoilt(new)
    return _saved(kept)


def told_apart(rows: Rows) -> Rows:
    """Return rows in which each update that moves an example is a deletion from its old key and an insertion.

    Both halves have the number of the row. O(rows).
    """
    if rows.moved is None:
        return rows
    assert rows.op is not None
    assert rows.key is not None
    moves = rows.moved >= 0
    place = np.repeat(np.arange(len(rows)), np.where(moves, 2, 1))
    second = np.append(False, place[1:] == place[:-1])
    first = np.append(second[1:], False)
    whole = replace(rows, moved=None)[place]
    op, key = rows.op[place], rows.key[place]
    op[first], op[second], key[first] = DELETE, INSERT, rows.moved[place[first]]
    sparse = whole.sparse
    if sparse is not None:  # a deletion has no tokens, which would get codes
        lengths = np.where(first, 0, sparse.lengths)
        indices = sparse.indices[np.repeat(~first, sparse.lengths)]
        sparse = SparseRows(np.append(0, np.cumsum(lengths)), indices, sparse.n_features)
    at = np.flatnonzero(~first)  # where each row is now, its second half of one that moves
    bad = {int(at[one]): error for one, error in rows.bad.items()}
    return replace(whole, op=op, key=key, sparse=sparse, bad=bad)


# Rows of a source sent to another process, which has models by key and no source of its own.
#
# Invariant: dictionaries there are those of the source as far as codes of rows that were sent need them: each message
# has the values that are new since the one before.

#: A source that has rows of many keys.
WholeSource = FileSource | FollowedSource


@dataclass
class SentSource:
    """A source without files, as :class:`raydt.keyed.source.SharedSource` needs it."""

    features: Features
    rules: int
    id_kind: Literal["row", "integer", "text"]
    id_column: str | None
    subject_kind: Literal["integer", "text"] | None
    subject_column: str | None
    is_changelog: bool
    has_labels: bool
    known_classes: int
    target_dtype: np.dtype[Any]
    positive: list[Any] | None
    classes: list[Any]  #: under ``positive``
    label_state: dict[str, Any]
    column_of_times: TimeColumn | None
    coded: tuple[str, ...]  #: columns with dictionaries
    files: list[tuple[str, int]]  #: names, and numbers of the first rows
    grows: bool  #: plans are added to the files without end, and the first are forgotten
    keys: list[Any] = field(default_factory=list)
    label_values: list[Any] = field(default_factory=list)
    dictionaries: dict[str, Dictionary] = field(default_factory=dict)

    @classmethod
    def of(cls, source: WholeSource) -> SentSource:
        """Describe a source, of which nothing was sent yet."""
        return cls(
            source.features,
            source.rules,
            source.id_kind,
            source.id_column,
            source.subject_kind,
            source.subject_column,
            source.is_changelog,
            source.has_labels,
            source.known_classes,
            source.target_dtype,
            source.positive,
            source.classes if source.positive is not None else [],
            source.state(0)["labels"],
            source.times(),
            tuple(source.categories()),
            source.beginnings(),
            isinstance(source, FollowedSource),
            dictionaries={name: Dictionary() for name in source.categories()},
        )

    def categories(self) -> dict[str, Dictionary]:
        """Return the dictionaries by column."""
        return self.dictionaries

    def times(self) -> TimeColumn | None:
        """Return the column of event times, if rows have some."""
        return self.column_of_times

    def require_ts(self) -> TimeColumn:
        """As :meth:`times`; ConfigError without any."""
        if self.column_of_times is None:
            raise ConfigError(message("sources.no_times"))
        return self.column_of_times

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Return the resolution of positive labels."""
        return {"labels": self.label_state}

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of a row of the source."""
        name, begin = self.files[max(0, bisect_right(self.files, row, key=lambda file: file[1]) - 1)]
        return name, row - begin

    def take(self, news: News) -> None:
        """Take the values that are new."""
        self.keys += news.keys
        self.label_values += news.labels
        for name, values in news.categories.items():
            self.dictionaries[name].learn(values, [-1] * len(values))
        for name, begin in news.files:
            while self.files and self.files[-1][1] >= begin:
                self.files.pop()
            self.files.append((name, begin))
        if self.grows:
            del self.files[:-KEPT]


@dataclass(frozen=True)
class News:
    """Values of dictionaries that are new since the message before."""

    keys: list[Any]
    labels: list[Any]
    categories: dict[str, list[Any]]
    files: list[tuple[str, int]]


class Sending:
    """The values that a source has given other processes so far."""

    def __init__(self, source: WholeSource) -> None:
        self._source = source
        self._keys = self._labels = self._since = 0
        self._categories = dict.fromkeys(source.categories(), 0)

    def news(self) -> News:
        """Return the values of all dictionaries that are new since the last call."""
        source = self._source
        keys, labels = source.keys[self._keys :], source.label_values[self._labels :]
        found = {name: one.values[self._categories[name] :] for name, one in source.categories().items()}
        self._keys, self._labels = self._keys + len(keys), self._labels + len(labels)
        for name, values in found.items():
            self._categories[name] += len(values)
        files = source.beginnings(self._since)
        self._since = files[-1][1] + 1
        return News(keys, labels, {name: values for name, values in found.items() if values}, files)


@dataclass(frozen=True)
class SentRows:
    """Rows of the keys of one process; the bad ones by place."""

    rows: Rows
    news: News
    stored: Sequence[Segment] | None  #: a snapshot is to follow, without these
    due: Due | None = None
    digest: bool = False  #: The digests before these rows are wanted.


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
            if bad:
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

    def encode(self, codes: list[int], row: Sequence[int], shared: Sequence[Any] | Mapping[int, Any]) -> list[int]:
        """Return the codes within the key. O(1) each."""
        local = self._local
        if local.keys() >= set(codes):  # most are known
            return [local[code] for code in codes]
        found = []
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
        self.rules, self.reading = source.rules, shared.reading
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
        at, where = number - start, range(start, start + n)  # places of good rows, and their numbers
        if rows.op is not None or rows.bad:
            good = np.full(n, True) if rows.op is None else CARRIES_ROW[np.where(rows.op == IGNORED, 1, rows.op)]
            if rows.bad:
                good[list(rows.bad)] = False
            at = np.flatnonzero(good)
            where = (at + start).tolist()
        if self._labels is not None and self._give_labels(self._labels, rows, at, where):
            at = at[~np.isin(at, list(rows.bad))]
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

    def _give_labels(self, labels: _Codes, rows: Rows, at: Ints, where: Sequence[int]) -> bool:
        """Enter the key's own class codes ``at`` some rows, whose numbers within the key are given.

        A row of one class more than the learner takes becomes bad; returns whether there was one.
        """
        most, given = self._shared.most, rows.y[at]
        own = labels.encode(given.tolist(), where, self._shared.source.label_values)
        rows.y[at] = own
        if max(own, default=-1) < most:
            return False
        beyond = [place for place, code in zip(at.tolist(), own, strict=True) if code >= most]
        for place, code in zip(beyond, given[np.isin(at, beyond)].tolist(), strict=True):
            file, row = self._shared.source.where(int(rows.row[place]))
            label = quoted(self._shared.source.label_values[code])
            rows.bad[place] = InputError(message("keyed.more_classes", label=label, most=most), file=file, row=row)
        return True

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

    def identity(self) -> SourceIdentity:
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
        categories = {name: codes.before(row) for name, codes in self._categories.items()}
        if self.reading.previous and self.target_dtype != NUMBERS:
            known = self.classes if self._labels is None else self._labels.before(row)
            categories |= dict.fromkeys(previous_names(len(self.reading.previous)), known)
        return {"categories": categories, "labels": labels}

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

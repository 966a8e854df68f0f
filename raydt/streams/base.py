"""Interface of every stream model: one numbered sequence of updates made from a source."""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from pydantic import BeforeValidator, Field, StrictInt

from raydt.arrays.blocks import GrowingRows, SparseRows, as_slice, concatenated
from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints, largest_between
from raydt.encoding.columns import LARGEST_TIME, NO_TIME, TimeColumn
from raydt.errors import InputError, UpdateError
from raydt.evaluation.classification import Delayed, Prequential, ScoredRows
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import NO_LEVEL
from raydt.examples.row_owners import are_in
from raydt.examples.updates import (
    ADDS_EXAMPLE,
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    DUPLICATE_ID,
    ENDS_EXAMPLE,
    INSERT,
    NUMBERS,
    QUERY,
    REFUSALS,
    UNKNOWN_ID,
    UPDATE,
    BatchResult,
    History,
    Log,
    Refusal,
    Targets,
    UpdateBatch,
    filled,
    no_targets,
    there,
)
from raydt.exchange.messages import Buckets
from raydt.learners.description import Description
from raydt.messages import message, quoted
from raydt.sources.base import Rows, Source


class Skipped(NamedTuple):
    """A bad row that was passed over."""

    row: int  #: Its number over all files.
    file: str
    reason: str  #: What is wrong, with the row in the file; values are marked (:mod:`raydt.messages`).


class Stream(Protocol):
    """Turns the rows of a source into updates; the sequence does not depend on the batch size."""

    source: Source
    times: TimeColumn | None  #: The column of event times of the source, None if it has none.
    #: A query is the prediction of an example that is inserted later, and is scored then.
    delayed: bool
    planned_warmup: int  #: Leading insertions that build the model at once, if all come before any other operation.

    def batches(self, size: int) -> Iterator[UpdateBatch]:
        """Updates from the current position on, at most ``size`` to a batch.

        Batches are smaller at the end, before a bad row under ``on_error: fail`` (the next step raises), and where a
        model turns from insertions to deletions or back.
        """

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Take the rows of the source, from the first one on, from here: the stream is at its beginning.

        They are those of the source; the first may come without features (:mod:`raydt.sources.divided`).
        """

    def state(self) -> dict[str, Any]:
        """Position and everything needed to resume from it: plain JSON values and NumPy arrays.

        Valid between two batches. Includes the dictionaries of the source.
        """

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""

    def follow_update(
        self, deleted: Ints, inserted: Ints, updates: int, names: Mapping[str, Any], n_classes: int
    ) -> None:
        """Continue after updates from outside of the stream, which the next numbers belong to.

        What the stream draws or counts itself is as without them. A stream that chooses its deletions will not delete
        the ``deleted`` examples a second time, and never the ``inserted`` ones.

        Parameters
        ----------
        deleted, inserted : ndarray of int64
            Ids. One that was replaced is in both.
        updates : int
            How many there were.
        names : mapping
            ``source``, its dictionaries after the updates, the state of :class:`~raydt.streams.id_dictionary.TextIds`
            if ids are text, and that of :class:`~raydt.examples.store.Subjects` if the source has subjects.
        n_classes : int
            Known after the updates.

        Raises
        ------
        ConfigError
            A stream of this model cannot continue.
        """

    def inputs(self) -> dict[str, Any]:
        """Return the files read in addition to the source, by option: as :class:`Identity` describes a file."""

    def length(self) -> int | None:
        """At most so many updates are in the whole stream, where that is known in advance (for the progress bar).

        Fewer come where rows are bad, or ignored as no update; which are, is known only when they are read.
        """

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it (zero-based) of an update, for messages.

        Parameters
        ----------
        row : int
            The update's entry in ``UpdateBatch.row``, other than -1. From 0 on it is a row of the source; a deletion
            ordered by row r of a deletion log has -2 - r, and the file is then the log.
        """

    def take_skipped(self) -> list[Skipped]:
        """Bad rows passed over since the last call, up to the current position."""

    def figures(self) -> dict[str, Any]:
        """Return what the summary of a run says of the stream at its position, by its key."""

    def let_go(self) -> None:
        """Let go, at the end of the source, of copies of examples that only rows still to come would need."""


# The raw history of a stream for an audit: which example was live during which updates.
#
# Independent of any learner: a plain replay with a dictionary, which decides for itself which updates are refused.

#: A row's bytes and its label.
_Value = tuple[bytes, int | float]

_LIVE = np.iinfo(np.int64).max
_BATCH = 1 << 14
#: Examples that came last and are sorted apart, at least, so that an update costs the logarithm of the live ones.
_RECENT = 1 << 16


def history_of(stream: Stream, stop: int | None = None, own: Buckets | None = None) -> History:
    """Replay ``stream``, up to ``stop`` updates, and return every example inserted, in order; in ``own`` buckets only.

    An update is a delete and an insert of one number; what cannot be applied has no effect. InputError for own buckets
    of a stream that deletes by value.
    """
    history = Replay(stream.source, own)
    history.read(stream, stop)
    return history.result()


class _Places(NamedTuple):
    """Ids, ascending, and of each the place of an example; of one id the newest is the last."""

    id: Ints
    place: Ints

    @classmethod
    def of(cls, ids: Ints, places: Ints) -> _Places:
        """Sort ids, which are often sorted."""
        order = np.argsort(ids, kind="stable")
        return cls(ids[order], places[order])


class Replay:
    """A history while it is recorded: of a stream over ``source``, and of updates from elsewhere in between.

    Of the examples in ``own`` buckets alone, if these are given: what becomes of an id depends on no other.
    """

    def __init__(self, source: Source, own: Buckets | None = None) -> None:
        self._own = own
        d, width, nothing = len(source.features.names), source.features.sparse, np.empty(0, dtype=np.int64)
        self._done, self._warmup, self._complete = 0, 0, True
        self._id, self._inserted, self._deleted = (GrowingRows(nothing) for _ in range(3))
        self._X, self._y = GrowingRows(np.empty((0, d))), GrowingRows(no_targets(0, source.target_dtype))
        self._sparse = [SparseRows.empty(width)] if width else []
        self._weight: GrowingRows | None = None  # None while all are 1
        #: Ids, ascending, and places in the arrays above of the live examples and of some dead ones: of most, and of
        #: those that came last. None if they are to be made.
        self._known: tuple[_Places, _Places] | None = None
        #: Where examples are deleted by value: places of the live ones by id, and those of the examples with one row
        #: and label, oldest first; dead ones may be among them.
        self._place: dict[int, int] | None = None
        self._by_value: defaultdict[_Value, deque[int]] = defaultdict(deque)

    def begin(self, history: History, updates: int) -> None:
        """Begin after so many updates, with the examples of then; what else was deleted before is not known."""
        self._done, self._complete, self._known = updates, False, None
        told = history.id, history.inserted, history.deleted, history.X, history.y
        self._id, self._inserted, self._deleted, self._X, self._y = map(GrowingRows, told)
        self._sparse = [] if history.sparse is None else [history.sparse]
        self._weight = None if history.weight is None else GrowingRows(history.weight)

    def read(self, stream: Stream, stop: int | None = None) -> None:
        """Replay ``stream`` up to update ``stop``, reading no further than that."""
        while stop is None or self._done < stop:
            batch = next(stream.batches(_BATCH if stop is None else min(_BATCH, stop - self._done)), None)
            if batch is None:
                return
            self.add(batch)

    def find(self, ids: Ints) -> Ints:
        """Return the place of the live example of each id; -1 where there is none."""
        found, deleted = np.full(len(ids), -1), self._deleted.view()
        for known in self._places():
            if len(known.id):
                at = np.searchsorted(known.id, ids, side="right") - 1  # the newest: those before are dead
                there = (at >= 0) & (known.id[at] == ids) & (deleted[known.place[at]] == _LIVE)
                found[there] = known.place[at[there]]
        return found

    def _places(self) -> tuple[_Places, _Places]:
        if self._known is None:
            places = self._alive()
            self._known = _Places.of(self._id.view()[places], places), _Places.of(places[:0], places[:0])
        return self._known

    def _alive(self) -> Ints:
        """Places of the live examples, in the order of their insertion."""
        return np.flatnonzero(self._deleted.view() == _LIVE)

    @property
    def live(self) -> int:
        """Number of live examples."""
        return len(self._alive())

    @property
    def living(self) -> tuple[Ints, Ints]:
        """Ids of the live examples, and the numbers of the updates that inserted them."""
        places = self._alive()
        return self._id.view()[places], self._inserted.view()[places]

    @property
    def next_id(self) -> int:
        """One more than the largest id ever inserted."""
        return int(self._id.view().max(initial=-1)) + 1

    def add(self, batch: UpdateBatch) -> None:
        """Replay one batch."""
        self._done = batch.stop
        if not batch.start:
            self._warmup = batch.warmup
        elif batch.ends_warmup:
            self._warmup = min(self._warmup, batch.warmup)
        by_value = bool((batch.op == DELETE_VALUE).any())
        if by_value and self._own is not None:
            raise InputError(message("audits.by_value"))
        if by_value and self._place is None:
            self._index()
        own = np.flatnonzero((batch.op != QUERY) & (True if self._own is None else are_in(batch.id, self._own)))
        carried, n = np.cumsum(CARRIES_ROW[batch.op]) - 1, len(self._id.view())
        came = self._by_id(batch, own) if self._place is None else self._one_by_one(batch, own, carried)
        rows = as_slice(carried[came])
        self._X.append(batch.X[rows])
        if batch.sparse is not None:
            self._sparse.append(batch.sparse[rows])
        self._y.append(batch.y[rows])
        if batch.weight is not None and self._weight is None:
            self._weight = GrowingRows(filled(None, n))
        if self._weight is not None:
            self._weight.append(filled(batch.weight, len(batch.y))[rows])

    def _by_id(self, batch: UpdateBatch, own: Ints) -> Ints:
        """Apply updates by id, all at once; return which have inserted an example.

        Whatever was before, an id lives after its insertion and is dead after its deletion; an update changes neither.
        """
        order = own[np.argsort(batch.id[own], kind="stable")]
        op, ids, number = batch.op[order], batch.id[order], np.arange(len(order))
        begin = np.searchsorted(ids, ids)  # of each id's updates
        before = self.find(ids)

        def last(some: Bools) -> tuple[Bools, Ints]:
            """The last update of the same id before each one that is among some, and where there is one."""
            at = np.append(-1, np.maximum.accumulate(np.where(some, number, -1)))[:-1]
            return at >= begin, at

        known, at = last(op != UPDATE)
        lived = np.where(known, op[at] == INSERT, before >= 0)
        comes, goes = np.where(op == UPDATE, lived, (op == INSERT) & ~lived), lived & (op != INSERT)
        came, n = np.sort(order[comes]), len(self._id.view())
        place = n + np.searchsorted(came, order)
        self._come(batch, came)
        known, at = last(comes)
        self._deleted.view()[np.where(known, place[at], before)[goes]] = batch.start + order[goes]
        most, recent = self._places()
        recent = _Places.of(np.append(recent.id, ids[comes]), np.append(recent.place, place[comes]))
        self._known = (most, recent) if len(recent.id) < max(_RECENT, len(most.id) // 4) else None
        return came

    def _come(self, batch: UpdateBatch, came: Ints) -> None:
        """Enter the examples that some updates of a batch insert."""
        self._id.append(batch.id[came])
        self._inserted.append(batch.start + came)
        self._deleted.append(np.full(len(came), _LIVE))

    def _one_by_one(self, batch: UpdateBatch, own: Ints, carried: Ints) -> Ints:
        """Apply updates one after the other, as whoever deletes by value has to; return which have inserted one."""
        assert self._place is not None
        live, came, n = self._place, list[int](), len(self._id.view())
        ended = dict[int, int]()  # when examples go, by place
        deleted, names = self._deleted.view(), self._id.view()
        for at, op, i in zip(own.tolist(), batch.op[own].tolist(), batch.id[own].tolist(), strict=True):
            if op == DELETE_VALUE:
                oldest = self._by_value[_value(batch.X, batch.y, batch.sparse, int(carried[at]))]
                while oldest:  # amortised O(1): a dead one is met once
                    place = oldest.popleft()
                    if place not in ended and (place >= n or deleted[place] == _LIVE):
                        ended[place] = batch.start + at
                        del live[int(names[place] if place < n else batch.id[came[place - n]])]
                        break
            elif op == DELETE:
                if i in live:
                    ended[live.pop(i)] = batch.start + at
            elif (i in live) == (op == UPDATE):
                if op == UPDATE:
                    ended[live.pop(i)] = batch.start + at
                live[i] = n + len(came)
                self._by_value[_value(batch.X, batch.y, batch.sparse, int(carried[at]))].append(live[i])
                came.append(at)
        self._come(batch, np.array(came, dtype=np.int64))
        self._deleted.view()[[*ended]] = [*ended.values()]
        self._known = None
        return np.array(came, dtype=np.int64)

    def _index(self) -> None:
        """Index the live examples by id and by value, from now on."""
        X, y, sparse, ids = self._X.view(), self._y.view(), self._all_sparse(), self._id.view()
        self._place = {}
        for place in self._alive().tolist():
            self._place[int(ids[place])] = place
            self._by_value[_value(X, y, sparse, place)].append(place)

    def _all_sparse(self) -> SparseRows | None:
        if len(self._sparse) > 1:
            self._sparse = [concatenated(self._sparse)]
        return self._sparse[0] if self._sparse else None

    def result(self) -> History:
        """Everything replayed so far; what comes later changes ``deleted``."""
        self._known = None  # which can be made again
        return History(
            id=self._id.view(),
            X=self._X.view(),
            y=self._y.view(),
            inserted=self._inserted.view(),
            deleted=self._deleted.view(),
            warmup=self._warmup if self._complete else 0,
            complete=self._complete,
            sparse=self._all_sparse(),
            weight=None if self._weight is None else self._weight.view(),
        )


def _value(X: Floats, y: Targets, sparse: SparseRows | None, row: int) -> _Value:
    """Row and label as one key; equal rows have equal bytes, since there is no -0.0 and but one NaN."""
    ones = b"" if sparse is None else sparse.row(row).tobytes()
    return X[row].tobytes() + ones, y[row].item()


# Lengths of time as options: text with units for timestamps, whole numbers for integer times.
#
# Invariant: equal lengths have one spelling, so that a config's hash does not depend on how it was written.

#: Microseconds of each unit, in the order in which a length is spelled.
UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}

_NAMES = {**UNITS, "min": UNITS["m"]}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|min|s|m|h|d)(?![a-z])", re.ASCII)


def microseconds(text: str) -> int:
    """Return the microseconds of a text such as ``90s``, ``1h30m`` or ``0.5 d``; ValueError if it is none."""
    total, place = Fraction(0), 0
    while (part := _PART.match(text, place)) is not None:
        total += Fraction(part[1]) * _NAMES[part[2]]
        place = part.end()
    if not place or text[place:].strip():
        raise ValueError(message("streams.time_or_number"))
    if total.denominator > 1:
        raise ValueError(message("streams.whole_microseconds"))
    if total > LARGEST_TIME:
        raise ValueError(message("streams.longest_time"))
    return int(total)


def spelled(length: int) -> str:
    """The one spelling of a number of microseconds: ``5400000000`` is ``1h30m``."""
    parts = []
    for unit, size in UNITS.items():
        count, length = divmod(length, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _one_spelling(value: Any) -> Any:
    if not isinstance(value, str):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(message("streams.time_or_number"))
        return value
    length = microseconds(value)
    return spelled(length) if length else 0  # nothing is nothing in every unit


#: An option: text in its one spelling, or a whole number.
Duration = Annotated[Annotated[StrictInt, Field(ge=0, le=LARGEST_TIME)] | str, BeforeValidator(_one_spelling)]


def _age(value: Any) -> Any:
    if not isinstance(value, str) or not microseconds(value):
        raise ValueError(message("streams.length_of_time"))
    return spelled(microseconds(value))


#: An option in hours of a clock: text in its one spelling, longer than nothing.
Age = Annotated[str, BeforeValidator(_age)]


# The examples a stream holds active, in the order of their insertion: pushed at the end, taken from either end.


class ActiveList:
    """Entries of int64, oldest first, in one array; push, and take from either end, of k entries are amortised O(k)."""

    def __init__(self, entries: Ints) -> None:
        self._data = entries.astype(np.int64)
        self._head, self._tail = 0, len(entries)

    def __len__(self) -> int:
        return self._tail - self._head

    def push(self, entries: Ints) -> None:
        """Append entries."""
        if self._tail + len(entries) > len(self._data):
            live = self.view()
            self._data = np.empty((2 * (len(live) + len(entries)), *live.shape[1:]), dtype=np.int64)
            self._data[: len(live)] = live
            self._head, self._tail = 0, len(live)
        self._data[self._tail : self._tail + len(entries)] = entries
        self._tail += len(entries)

    def take_first(self, k: int) -> Ints:
        """Remove the first ``k`` entries: a view that the next push may overwrite."""
        self._head += k
        return self._data[self._head - k : self._head]

    def take_last(self, k: int) -> Ints:
        """Remove the last ``k`` entries: a view, in their order, that the next push overwrites."""
        self._tail -= k
        return self._data[self._tail : self._tail + k]

    def view(self) -> Ints:
        """All entries, writable in place until the next push."""
        entries: Ints = self._data[self._head : self._tail]
        return entries

    def array(self) -> Ints:
        """A copy of all entries."""
        entries: Ints = self.view().copy()
        return entries


# The error of an update that a model refuses because of its id.


def update_error(stream: Stream, batch: UpdateBatch, position: int, reason: int, later: str = "") -> UpdateError:
    """Return the error of a refused update: its place, its id and the remedy.

    ``later`` is the place of the insertion that comes after this deletion, or the other way round, where that is
    known. To skip such an update would lose the deletion, or the row.
    """
    problem, remedy = REFUSALS[reason]
    row = int(batch.row[position])
    file, line = stream.where(row) if row != -1 else (None, None)
    by_value = batch.op[position] == DELETE_VALUE
    key = "" if by_value else f" (id {quoted(batch.name(position))})"
    if reason == UNKNOWN_ID and batch.op[position] == UPDATE:
        remedy = message("runs.unknown_update")
    if later:
        name = "early_deletion" if reason == UNKNOWN_ID else "early_insertion"
    else:
        name = "refused_id" if reason in (UNKNOWN_ID, DUPLICATE_ID) else "refused"
    said = {"update": batch.start + position, "problem": problem, "key": key, "later": later, "remedy": remedy}
    return UpdateError(message(f"runs.{name}", **said), file=file, row=line)


# Counts and scores of one stream, as its batches are answered.
#
# Invariant: they depend on the stream and the model only, never on how the stream was cut into batches. Nothing is
# written here.

Mask = Bools

_COUNTS = ("updates", "inserts", "deletes", "predictions", "refused", "skipped", "replaced", "queries", "next_id")

#: Statistics of a session, which begin at 0 with each; the others are of the model, and go on with it.
_TRAFFIC = ("rounds", "bytes_exchanged")


class Tally:
    """Counts and scores of one stream, which names classes and examples, and the places of updates.

    ``replaced`` are updates of examples, each of which counts as one of ``inserts`` and one of ``deletes``; ``queries``
    rows that were only predicted. ``n_classes``: classes that the updates so far have shown; what was only read ahead
    does not count. ``next_id``: largest id (or code of an id that is text) ever inserted + 1, whatever was deleted
    since. ``statistics``: of the learner after the last batch, ``rounds`` and ``bytes_exchanged`` over all sessions
    that led there. ``seconds``: processing time that led there; what was done and lost since is not in it.
    ``first_time``, ``time``: the first and the latest event time, None before any, and of a source without times.
    ``weighted``: scores count each prediction by the weight of its row. ``early_warmup``: how the warm-up ended, if it
    ended early (:meth:`~raydt.examples.updates.UpdateBatch.early_warmup`).
    """

    def __init__(self, stream: Stream, *, weighted: bool = False) -> None:
        self._stream, self._source, self._weighted = stream, stream.source, weighted
        self.prequential: Any = (
            PrequentialErrors()
            if self._source.target_dtype == NUMBERS
            else Prequential(self._source.positive is not None, weighted=weighted)
        )
        self._delayed = Delayed(self.prequential) if stream.delayed else None
        self.updates = self.inserts = self.deletes = self.predictions = self.refused = self.skipped = 0
        self.replaced = self.queries = self.next_id = 0
        self.n_classes = self._source.known_classes
        self.early_warmup: dict[str, Any] | None = None
        self.first_time: int | None = None
        self.time: int | None = None
        self.statistics: dict[str, int] = {}
        self._earlier: dict[str, int] = {}
        self.seconds = 0.0

    @property
    def applied(self) -> int:
        """Updates so far."""
        return self.updates

    @property
    def active(self) -> int:
        """Live examples: inserted and not deleted."""
        return self.inserts - self.deletes

    def record(self, batch: UpdateBatch, result: BatchResult, seconds: float) -> None:
        """Take an answered batch, or its front, into account, after so many ``seconds`` of processing."""
        self.record_all([(self, batch, result, seconds)])

    @staticmethod
    def record_all(answered: Sequence[tuple[Tally, UpdateBatch, BatchResult, float]]) -> None:
        """Take answered batches of different streams of one kind into account, as :meth:`record` of their tallies.

        What is asked of each update is asked of all at once: of very many streams each has a few.
        """
        applied = [result.applied for _, _, result, _ in answered]
        edges = np.append(0, np.cumsum(applied))
        op = np.concatenate([batch.op[: result.applied] for _, batch, result, _ in answered])
        ids = np.concatenate([batch.id[: result.applied] for _, batch, result, _ in answered])
        prediction = np.concatenate([result.predictions[: result.applied] for _, _, result, _ in answered])
        truth = np.concatenate([truths(batch, result.applied) for _, batch, result, _ in answered])
        inserted, deleted, queried = ADDS_EXAMPLE[op], ENDS_EXAMPLE[op], op == QUERY
        for (_, _, result, _), begin in zip(answered, edges.tolist(), strict=False):
            if result.refused:
                bad = [begin + refusal.position for refusal in result.refused if refusal.position < result.applied]
                inserted[bad] = deleted[bad] = queried[bad] = False
        at = np.flatnonzero(inserted if answered[0][0]._delayed is None else inserted | queried)
        ends = np.searchsorted(at, edges)
        scored = ids[at], queried[at], truth[at], prediction[at]
        places = at - np.repeat(edges[:-1], np.diff(ends))
        counts = (
            np.maximum(_classes_between(truth, edges), _classes_between(prediction, edges)),
            largest_between(np.where(inserted, ids, -1), edges) + 1,
            *(_count_between(of, edges) for of in (inserted, deleted, inserted & deleted, queried, there(prediction))),
        )
        together = answered[0][0]._delayed is None and not answered[0][0]._weighted
        if together:
            known = [result.levels is not None for _, _, result, _ in answered]
            levels = np.concatenate([_levels(result) for _, _, result, _ in answered])
            starts = np.repeat([batch.start for _, batch, _, _ in answered], np.diff(ends))
            evaluations = [tally.prequential for tally, _, _, _ in answered]
            evaluations[0].update_all(evaluations, ends, *scored[2:], levels[at], known, places + starts)
        each = zip(answered, pairwise(ends.tolist()), zip(*(of.tolist() for of in counts), strict=True), strict=True)
        for (tally, batch, result, seconds), (begin, end), counted in each:
            if not together:
                tally._score(batch, result, places[begin:end], *(column[begin:end] for column in scored))
            tally._count(batch, result, counted)
            tally.statistics, tally.seconds = tally.totals(result.statistics), seconds

    def _count(self, batch: UpdateBatch, result: BatchResult, numbers: tuple[int, ...]) -> None:
        """Count the updates of an answered batch: classes, the next id, and so many of each kind."""
        n = result.applied
        classes, next_id, inserts, deletes, replaced, queries, predictions = numbers
        self.early_warmup = self.early_warmup or batch.early_warmup(self._stream.planned_warmup)
        if result.refused:
            self.refused += sum(refusal.position < n for refusal in batch.faults(result.refused))
        self.n_classes, self.next_id = max(self.n_classes, classes), max(self.next_id, next_id)
        self._clock(batch, n)
        self.updates = batch.start + n
        self.inserts += inserts
        self.deletes += deletes
        self.replaced += replaced
        self.queries += queries
        self.predictions += predictions

    def _clock(self, batch: UpdateBatch, n: int) -> None:
        """Note the latest event time of the first ``n`` updates."""
        if batch.time is not None:
            times = batch.time[: int(np.count_nonzero(CARRIES_ROW[batch.op[:n]]))]
            times = times[times != NO_TIME]
            if len(times):
                self.first_time = int(times[0]) if self.first_time is None else self.first_time
                self.time = max(int(times.max()), int(times[0]) if self.time is None else self.time)

    def _score(
        self, batch: UpdateBatch, result: BatchResult, at: Ints, ids: Ints, queried: Mask, truth: Any, prediction: Any
    ) -> None:
        """Score the rows at some places of a batch."""
        seq, levels, weight = at + batch.start, None if result.levels is None else result.levels[at], None
        if self._weighted and batch.weight is not None:
            row = np.cumsum(CARRIES_ROW[batch.op]) - 1
            weight = batch.weight[row[at]]
        if self._delayed is None:
            self.prequential.update(truth, prediction, levels, seq, weight)
        else:
            self._delayed.update(ScoredRows(ids, queried, truth, prediction, levels, seq, weight))

    def totals(self, statistics: Mapping[str, int]) -> dict[str, int]:
        """Statistics of the present session, with the traffic of those before it added."""
        return {name: count + self._earlier.get(name, 0) for name, count in statistics.items()}

    def state(self) -> dict[str, Any]:
        """All that is counted, as plain JSON values and NumPy arrays of its own."""
        return self._state(self.prequential.state())

    def narrow_state(self) -> dict[str, Any]:
        """Return the same with scores in little room (:meth:`raydt.evaluation.scoring.Evaluation.narrow_state`)."""
        return self._state(self.prequential.narrow_state())

    def _state(self, scores: dict[str, Any]) -> dict[str, Any]:
        return {
            **{name: int(getattr(self, name)) for name in (*_COUNTS, "n_classes")},
            "seconds": float(self.seconds),
            "first_time": self.first_time,
            "time": self.time,
            "statistics": {name: int(count) for name, count in self.statistics.items()},
            "prequential": scores,
            **({} if self._delayed is None else self._delayed.state()),
            **({} if self.early_warmup is None else {"early_warmup": self.early_warmup}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, in a session that has just been opened."""
        for name in (*_COUNTS, "n_classes"):
            setattr(self, name, int(state[name]))
        self.seconds, self.statistics = float(state["seconds"]), dict(state["statistics"])
        self.first_time, self.time = state.get("first_time"), state.get("time")  # an earlier version kept none
        self._earlier = {name: self.statistics.get(name, 0) for name in _TRAFFIC}
        self.early_warmup = state.get("early_warmup")
        self.prequential.restore(state["prequential"])
        if self._delayed is not None:
            self._delayed.restore(state, self._source.target_dtype)

    def record_log(self, log: Log) -> None:
        """Take the learner's own record of what it did into account."""

    def record_skipped(self, skipped: list[Skipped]) -> None:
        """Note rows that never became updates."""
        self.skipped += len(skipped)

    def update_error(self, batch: UpdateBatch, refusal: Refusal) -> UpdateError:
        """The error of a refused update: its place, its id and the remedy."""
        return update_error(self._stream, batch, refusal.position, refusal.reason)

    def outcome(self, description: Description, name: Callable[[int], str]) -> dict[str, Any]:
        """Return what the learner says of its model, with the names of features."""
        return description.outcome(self.statistics, name)

    @property
    def classes(self) -> list[str]:
        """Labels that the updates so far have shown, in the order of their codes."""
        return [str(label) for label in self._source.classes[: self.n_classes]]

    def metrics(self) -> dict[str, Any]:
        """The ``metrics`` mapping of the summary; shares as fractions, None where undefined."""
        return known(self.prequential.figures(self.n_classes))

    def times_read(self) -> dict[str, Any] | None:
        """Return column, first and latest of event times, of points in microseconds since 1970; None without."""
        if self._stream.times is None or self.time is None:
            return None
        name, kind = self._stream.times
        return {"column": name, "kind": kind, "first": self.first_time, "latest": self.time}

    def baselines(self) -> dict[str, Any]:
        """The score of the trivial predictors on the same predictions."""
        return known(self.prequential.baselines())


def _levels(result: BatchResult) -> AnyArray:
    """Return the levels of the predictions of the updates that were applied, also where none has one."""
    return np.full(result.applied, NO_LEVEL) if result.levels is None else result.levels[: result.applied]


def _classes_between(targets: Targets, edges: Ints) -> Ints:
    """Return :func:`classes_in` of the targets between every two edges."""
    return largest_between(targets, edges) + 1 if targets.dtype != NUMBERS else np.zeros(len(edges) - 1, dtype=np.int64)


def _count_between(mask: Mask, edges: Ints) -> Ints:
    """Return how many are True between every two edges."""
    return np.diff(np.append(0, np.cumsum(mask))[edges])


def truths(batch: UpdateBatch, n: int) -> Targets:
    """Targets of the first ``n`` updates; none where one carries no row."""
    carries = CARRIES_ROW[batch.op[:n]]
    if carries.all():
        return batch.y[:n]
    truth = no_targets(n, batch.y.dtype)
    truth[carries] = batch.y[: np.count_nonzero(carries)]
    return truth


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with None for numbers that are undefined or beyond float64, which JSON cannot hold."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }

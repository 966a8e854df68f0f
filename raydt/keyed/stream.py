"""The rows of a source in blocks, for models by key: what a run reads, numbers and goes back to.

Invariant: the state after a block is a function of the rows up to its end. What rows mean to a key (updates, codes,
windows) is the key's own (:mod:`raydt.keyed.members`); this stream numbers rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raydt.arrays.elementary import Ints
from raydt.errors import InputError, message_of
from raydt.examples.updates import DELETE, INSERT, UNIT, UNKNOWN_ID, UPDATE, Refusal
from raydt.exchange.messages import Barrier
from raydt.keyed.groups import Due, KeyLog, LogOwners
from raydt.keyed.source import MISSING, Ops, TableKeys, WholeSource
from raydt.learners.base import Traits, WeightSum, too_little_of_keys
from raydt.messages import Message
from raydt.sources.base import Rows
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Skipped
from raydt.streams.deletion_log import LoggedDeletions
from raydt.streams.row_stream import END

#: Rows of a block for each update that a message may have: a key gets the more rows of its own at once.
ROWS = 16
#: A block of a source that ends has more rows than that where a key would get fewer than so many, up to so many feature
#: values: to visit a key costs as much as to learn twenty rows.
ROWS_OF_KEY, MOST_CELLS = 8, 1 << 24
#: Where blocks may be large anyway, a key gets one for so many of their rows, up to the second number: to ask for small
#: ones is to ask for checkpoints often.
ROWS_FOR_ONE, MOST_OF_KEY = 1 << 11, 32


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Consecutive rows of a source, of any keys; in the place of :class:`~raydt.examples.updates.UpdateBatch`."""

    start: int  #: Number of the first row.
    rows: Rows
    due: Due | None = None  #: Deletions of a log that take effect by the end of these rows.
    every: int = 0
    warmup: int = 0
    ends_warmup = False  #: Each key has a warm-up of its own.
    barrier: Barrier | None = None  #: A snapshot is wanted once this batch is applied.
    #: Shape (m,), of a table: what each row is to its id (:meth:`raydt.keyed.source.TableKeys.settle`).
    told: Ops | None = None
    digest: bool = False  #: The digest over all keys before this batch is wanted.

    def __len__(self) -> int:
        return len(self.rows)

    # -- as of an UpdateBatch, for receipts: rows in the place of updates ----------------------------------------------

    @property
    def op(self) -> Ops:
        """Return the operation of each row on the example of its id, int8, shape (m,)."""
        assert self.told is not None
        return np.where(self.told == MISSING, np.int8(DELETE), self.told)

    @property
    def row(self) -> Ints:
        """Numbers of the rows."""
        return self.rows.row

    @property
    def id(self) -> Ints:
        """Ids, if they are integers."""
        return self.rows.id

    @property
    def names(self) -> Any:
        """Ids, if they are text."""
        return self.rows.names

    def name(self, position: int) -> Any:
        """The id of a row as the user knows it."""
        return int(self.id[position]) if self.names is None else self.names[position]

    def refusals(self, rows: Iterable[tuple[int, int]]) -> list[Refusal]:
        """Return which rows found no example, or a live one: ``rows`` that keys refused, and those of no key."""
        found = {row - self.start: reason for row, reason in rows}
        if self.told is not None:  # a row that comes to be good in another key has nothing to delete in the old one
            found = {at: why for at, why in found.items() if (self.told[at], why) != (INSERT, UNKNOWN_ID)}
            found |= dict.fromkeys(np.flatnonzero(self.told == MISSING).tolist(), UNKNOWN_ID)
        return [Refusal(*one) for one in sorted(found.items())]

    def pieces(self, places: Sequence[int]) -> Iterator[KeyedBatch]:
        """Yield the batch in pieces that begin at ascending places within it; a barrier stays with the last."""
        rest: KeyedBatch | None = self
        for place in places:
            assert rest is not None
            before, rest = rest.cut(self.start + place)
            yield replace(before, barrier=None)
        if rest is not None:
            yield rest

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def stop(self) -> int:
        """Number of the row after the last one."""
        return self.start + len(self.rows)

    def before(self, row: int) -> KeyedBatch:
        """Return the part of the batch before a row."""
        return self.cut(row)[0]

    def cut(self, row: int) -> tuple[KeyedBatch, KeyedBatch | None]:
        """Return the parts of the batch before a row and from it on; None without any."""
        if self.stop <= row:
            return self, None
        place, first = max(0, row - self.start), None if self.due is None else self.due.after <= row
        parts = ((0, place, first), (place, len(self.rows), None if first is None else ~first))
        before, since = (
            replace(
                self,
                start=self.start + begin,
                rows=self.rows.part(begin, end),
                due=None if self.due is None else self.due[due],
                told=None if self.told is None else self.told[begin:end],
                digest=self.digest and not begin,
            )
            for begin, end, due in parts
        )
        return before, since


class KeyWeights:
    """Number and sum of weights of the rows of each key; in the place of :class:`WeightSum`."""

    def __init__(self, source: WholeSource) -> None:
        self._source = source
        self._rows, self._units = np.zeros((2, 0), dtype=np.int64)

    def with_batch(self, batch: KeyedBatch) -> KeyWeights:
        """Return the sums with the rows that a batch inserts."""
        return self.plus(batch.rows)

    def plus(self, rows: Rows) -> KeyWeights:
        """Return the sums with more rows of a source; bad ones, and those that insert nothing, do not count."""
        assert rows.key is not None
        counts = (rows.key >= 0) & (True if rows.op is None else (rows.op == INSERT) | (rows.op == UPDATE))
        counts[list(rows.bad)] = False
        keys, n = rows.key[counts], len(self._source.keys)
        units = np.full(len(keys), UNIT) if rows.weight is None else rows.weight[counts]
        found = KeyWeights(self._source)
        for name, more in (("_rows", np.bincount(keys, minlength=n)), ("_units", np.bincount(keys, units, n))):
            before = getattr(self, name)
            more[: len(before)] += before
            setattr(found, name, more.astype(np.int64))  # exact: sums of units are far below 2^53
        return found

    def too_little(self, traits: Traits) -> Message | None:
        """Return a warning if the rows of some keys are enough to be split, but their weights are not."""
        keys, small = self._source.keys, np.flatnonzero(self._units < traits.least_weight[1] * UNIT).tolist()
        sums = ((keys[at], WeightSum(int(self._rows[at]), int(self._units[at]))) for at in small)
        return too_little_of_keys(sums, traits)


class KeyedStream:
    """Blocks of rows of a source that names a column of keys.

    Under ``skip_bad``, bad rows go to their key, which passes over them; one without a key is passed over here.
    Otherwise a batch ends before the first bad row, whose InputError is the next step. So it is with deletions of a
    ``log`` whose id no row before has had. Of a source that is followed, each row goes to the key of its id
    (:mod:`raydt.keyed.source`), and a ``strict`` stream ends before a row that the table cannot have.
    """

    delayed = False

    def __init__(
        self, source: WholeSource, *, skip_bad: bool, strict: bool = False, log: LoggedDeletions | None = None
    ) -> None:
        self.source, self.times, self._skip_bad, self._strict = source, source.times(), skip_bad, strict or not skip_bad
        self.table = TableKeys(source) if isinstance(source, FollowedSource) else None
        self._owners = None if log is None else LogOwners(log)
        #: Where purges have removed keys without a live example, which begin anew if rows of them come: so many rows,
        #: entries of the log, and updates from elsewhere had been taken in.
        self.purges: list[list[int]] = []
        self._row = 0
        self._skipped: list[Skipped] = []
        self._rows: Generator[Rows, None, None] | None = None
        self._chunk: Rows | None = None  # read last; its rows before the position were handed out
        self._error: InputError | None = None  # of the rows that follow those read

    def batches(self, size: int) -> Iterator[KeyedBatch]:
        """Yield blocks of at most ``size`` rows, of more where there are many keys, from the current position on."""
        while (block := self._block(size)) is not None:
            rows, error = self._sound(block)
            told = None
            if self.table is not None and len(rows):
                passed = rows.bad.keys()
                rows, told = self.table.settle(rows, strict=self._strict)
                rows, found = self._sound(rows, passed)
                told, error = told[: len(rows)], found or error
            if len(rows):
                yield from self._yielded(KeyedBatch(self._row, rows, told=told), self._row + len(rows))
            if error is not None:
                raise error
        last, owners = self._chunk, self._owners
        if owners is not None and last is not None and owners.done < len(owners.log.after):
            yield from self._yielded(KeyedBatch(self._row, last.part(0, 0)), END)

    def _block(self, size: int) -> Rows | None:
        """Return the next rows, some at least; None at the end of the source, or at a pause."""
        if self.table is not None:
            chunk = self._reach(self._row)
            return None if chunk is None else chunk.part(self._row - chunk.start, self._row - chunk.start + size)
        cells, row, each = 0, self._row, min(MOST_OF_KEY, size // ROWS_FOR_ONE)
        end = row + max(size, ROWS_OF_KEY * len(self.source.keys))
        parts: list[Rows] = []
        if self._error is not None:
            raise self._error
        try:
            while cells < MOST_CELLS and row < end and (chunk := self._reach(row)) is not None:
                end = max(end, self._row + each * len(self.source.keys))  # also those met meanwhile
                part = chunk.part(row - chunk.start, end - chunk.start)
                if parts and part.columns().keys() != parts[0].columns().keys():
                    break
                parts.append(part)
                cells += part.X.size + (0 if part.sparse is None else len(part.sparse.indices))
                row += len(part)
        except InputError as error:  # the file breaks off: what was read before it is still good
            if not parts:
                raise
            self._error = error
        return Rows.joined(parts) if parts else None

    def _reach(self, row: int) -> Rows | None:
        """Return the rows read together in which a row is; None at the end of the source, or at a pause."""
        if self._chunk is not None and row < self._chunk.start:  # of what was read for a block, not all was handed out
            self._close()
        while self._chunk is None or not len(self._chunk) or row >= self._chunk.start + len(self._chunk):
            if self._rows is None:
                self._rows = self.source.rows(row)
            chunk = next(self._rows, None)
            if chunk is None:
                self._rows = None
                return None
            self._chunk = chunk
        return self._chunk

    def _sound(self, rows: Rows, passed: Set[int] | None = None) -> tuple[Rows, InputError | None]:
        """Return the rows before the first bad one, and its error, if bad rows end the stream.

        With the places ``passed``, of bad rows that do not, those that the table cannot have are looked for.
        """
        wrong = rows.bad.keys() - (passed or ())
        if not wrong or not (self._strict if passed is not None else not self._skip_bad):
            return rows, None
        first = min(wrong)
        return rows.part(0, first), rows.bad[first]

    def _yielded(self, batch: KeyedBatch, stop: int) -> Iterator[KeyedBatch]:
        """Yield the next rows with the deletions due by ``stop``; the rows before a deletion of an unknown id."""
        rows, owners, error = batch.rows, self._owners, None
        if owners is not None:
            due, first = owners.take(rows, stop), owners.done
            unknown = np.flatnonzero(due.key < 0).tolist()
            if unknown and not self._skip_bad:
                place = unknown[0]
                error, owners.done = owners.unknown(due, place), first - len(due) + place
                batch, due = batch.before(int(due.after[place])), due[:place]
            elif unknown:
                for place in unknown:
                    why = message_of(owners.unknown(due, place).without_skipping())
                    self._skipped.append(Skipped(-1, owners.log.name, why))
                due = due[due.key >= 0]
            batch = replace(batch, due=due)
        self._row += len(batch)
        self._note_without_key(batch.rows)
        yield batch
        if error is not None:
            raise error

    def _note_without_key(self, rows: Rows) -> None:
        """Pass over bad rows that belong to no key."""
        assert rows.key is not None
        for place in sorted(rows.bad):
            if rows.key[place] < 0:
                number, error = int(rows.row[place]), rows.bad[place]
                why = message_of(error.without_skipping())
                self._skipped.append(Skipped(number, self.source.where(number)[0], why))

    @property
    def deletions(self) -> int:
        """Entries of the deletion log so far."""
        return 0 if self._owners is None else self._owners.done

    @property
    def log(self) -> KeyLog | None:
        """The names of the deletion log, without its entries; None of a stream without one."""
        log = None if self._owners is None else self._owners.log
        return None if log is None else KeyLog(log.column, log.name, log.described)

    def figures(self) -> dict[str, Any]:
        """Return nothing: streams are those of the keys."""
        return {}

    def let_go(self) -> None:
        """Do nothing: streams are those of the keys."""

    def take_skipped(self) -> list[Skipped]:
        """Bad rows without a key since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def length(self) -> int | None:
        """Rows of the source, where their number is known."""
        return self.source.n_rows

    def inputs(self) -> dict[str, Any]:
        """The deletion log, if there is one."""
        return {} if self._owners is None else {"deletion_log": self._owners.log.described}

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of a row of the source."""
        return self.source.where(row)

    def state(self) -> dict[str, Any]:
        """Position and dictionaries of the whole source."""
        known = self.source.state(self._row)
        n_classes = len(known["labels"].get("classes", self.source.classes))  # not those of rows read ahead
        state = {"seq": self._row, "row": self._row, "n_classes": n_classes, "source": known}
        state |= {"purges": self.purges} if self.purges else {}
        for own in (self._owners, self.table):
            state |= {} if own is None else own.state()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._close()
        self._row, self._skipped, self.purges = int(state["row"]), [], list(state.get("purges", ()))
        self.source.restore(state["source"])
        if self._owners is not None:
            self._owners.restore(state, len(self.source.keys))
        if self.table is not None:
            self.table.restore(state)

    def _close(self) -> None:
        rows, self._rows, self._chunk, self._error = self._rows, None, None, None
        if rows is not None:
            rows.close()

"""A live source as a source of encoded rows, which pauses where nothing new is there.

Invariant: rows and their numbers follow from the plans, which are kept before their rows are read: read again after a
crash, they are the same. The state tells the plan that the next row is in, so that no earlier one is needed. A source
that waits at a bad row changes when the rows after it come, and none of them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from threading import Event
from typing import Any, Protocol

import pyarrow as pa

from raydt.encoding.columns import is_text
from raydt.encoding.labels import IGNORED, Labels
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import CLASSES, QUERY, Reading
from raydt.messages import message
from raydt.sources.base import Envelope, Rows, SourceIdentity, hashed
from raydt.sources.encoder import EncodedBlock, EncodedSource, RowEncoder
from raydt.sources.live.base import LiveOptions, LiveSource, Plan, SourceAwayError

#: Most rows of a chunk, and about how many feature values it holds.
CHUNK_ROWS, CHUNK_CELLS = 1 << 16, 1 << 19
#: Plans that were read and are kept in memory, for messages and receipts.
KEPT = 1 << 12


@dataclass(slots=True)
class Step:
    """A plan of a stream: its number, the number of its first row, and how many rows it has, once it was read."""

    number: int
    row: int
    plan: Plan
    rows: int | None = None

    def ends_by(self, row: int) -> bool:
        """Return True if the plan was read and has no row from ``row`` on."""
        return self.rows is not None and self.row + self.rows <= row


class Plans(Protocol):
    """A store of plans."""

    def find(self, number: int) -> Step | None:
        """Return the plan of a number, if it was kept."""

    def keep(self, step: Step) -> None:
        """Keep a plan for good, before a row of it is read."""


class PlansInMemory(dict[int, Step]):
    """Plans that nothing survives."""

    def find(self, number: int) -> Step | None:
        """Return the plan of a number."""
        step = self.get(number)
        return None if step is None else Step(step.number, step.row, step.plan)

    def keep(self, step: Step) -> None:
        """Keep a plan."""
        self[step.number] = step


@dataclass(slots=True)
class _Awaited:
    """A bad row that the source waits at until it is repaired: a newer row of its id is good, or deletes it."""

    row: int
    id: Any  #: None of a row without one, which no newer row can repair.
    error: InputError
    plan: Plan
    rest: int  #: Rows of the plan up to this one.
    seen: Plan | None = None  #: The newest plan that was looked through.
    repaired: bool = False


class FollowedSource(EncodedSource):
    """The rows of a live source; satisfies :class:`raydt.sources.base.Source`.

    One that ``waits`` hands out a bad row once a newer row of its id is good, or deletes it. One that is ``patient``
    ends its rows where it is ``held``, as at a pause: the source is away, or a bad row is awaited. Else the error of
    that is raised.
    """

    complete, n_rows = False, None

    def __init__(self, options: LiveOptions, live: LiveSource, reading: Reading = CLASSES) -> None:
        self.live = live
        self.plans: Plans = PlansInMemory()
        self.patient = False
        #: Waits after a pause, until an event at the most; whether rows are to be read on. None: a pause is the end.
        self.pause: Callable[[Event], bool] | None = None
        self.waits = False
        self.held: SourceAwayError | InputError | None = None  #: Why the rows have ended before a pause.
        self._awaited: _Awaited | None = None
        schema, envelope = live.schema(), None
        if options.envelope is not None:
            envelope = Envelope([options.op], options.id)
            schema = envelope.row_schema(schema, live.name)
        self._new_encoder = partial(_encoder_of, options, schema, live.name, envelope, reading)
        self._encoder = self._new_encoder()
        self._schema = [[name, str(schema.field(name).type)] for name in self._encoder.parts]
        self._describe(options)
        self._chunk_rows = max(64, min(CHUNK_ROWS, CHUNK_CELLS // max(1, len(self.features.names))))
        self.target_dtype, self.known_classes = self._encoder.labels.dtype, len(self._encoder.labels.classes(0))
        self._steps: deque[Step] = deque()
        self.restored: Step | None = None  #: The newest plan of which the state that was restored has all rows.
        self._handed_out = 0

    @property
    def positive(self) -> list[Any] | None:
        """Labels that count as positive."""
        return self._encoder.labels.positive

    def code_of_key(self, key: str | int) -> int:
        """Return the code of a key; one that no row has named gets the next."""
        if key not in self.keys:
            self._encoder.keys.learn([key], [max(-1, self._handed_out - 1)])
        return self.keys.index(key)

    @property
    def last(self) -> Step | None:
        """The plan that is read, or was read last."""
        return self._steps[-1] if self._steps else None

    def read_to(self) -> Step | None:
        """Return the newest plan whose rows were all handed out; of those of late, or before these."""
        found = next((step for step in reversed(self._steps) if step.rows is not None), None)
        first = self._steps[0].number if self._steps else 0
        return found if found is not None or not first else self.plans.find(first - 1)

    def done_by(self, row: int) -> Step | None:
        """Return the newest plan without a row after ``row``, if it is one of late."""
        return next((step for step in reversed(self._steps) if step.ends_by(row + 1)), None)

    def identity(self) -> SourceIdentity:
        """Identify the source by what it says of itself, and the columns that are read."""
        described = {"kind": "live", "live": self.live.describe(), "schema": self._schema}
        return SourceIdentity(hashed(json.dumps(described, sort_keys=True)), described)

    def rows(self, start: int = 0) -> Generator[Rows, None, None]:
        """Yield chunks of encoded rows from row ``start`` on, up to a pause."""
        self.held = None
        try:
            if self._awaited is not None and self._awaited.row == start and not self._is_repaired(self._awaited):
                raise self._awaited.error
            while (step := self._reach(start)) is not None:
                for chunk in self._read(step, start):
                    ready = self._ready(step, chunk) if self.waits and chunk.bad else len(chunk)
                    if ready:
                        start = self._handed_out = chunk.start + ready
                        yield chunk if ready == len(chunk) else chunk.part(0, ready)
                    if ready < len(chunk):
                        raise chunk.bad[ready]
        except (SourceAwayError, InputError) as error:
            awaited = self._awaited is not None and error is self._awaited.error
            if not self.patient or not (awaited or isinstance(error, SourceAwayError)):
                raise
            self.held = error

    def _ready(self, step: Step, chunk: Rows) -> int:
        """Return how many rows of a chunk come before the first bad row that is not repaired; it is awaited then."""
        ids = chunk.id if chunk.names is None else chunk.names
        for place in sorted(chunk.bad):
            row, awaited = chunk.start + place, self._awaited
            if awaited is None or awaited.row != row:
                id = ids[place] if chunk.op is not None and chunk.op[place] != IGNORED else None
                awaited = _Awaited(row, id, chunk.bad[place], step.plan, row - step.row + 1)
            if not self._is_repaired(awaited):
                self._awaited = awaited
                return place
        return len(chunk)

    def _is_repaired(self, awaited: _Awaited) -> bool:
        """Look through the plans that have come since for a row that repairs a bad one; return True if there is one."""
        if awaited.id is None or awaited.repaired:
            return awaited.repaired
        if awaited.seen is None:
            awaited.repaired = self._has_good(awaited.plan, awaited.id, awaited.rest)
            awaited.seen = awaited.plan
        while not awaited.repaired and (plan := self.live.plan(awaited.seen)) is not None:
            awaited.repaired = self._has_good(plan, awaited.id)
            awaited.seen = plan
        return awaited.repaired

    def _has_good(self, plan: Plan, id: Any, first: int = 0) -> bool:
        """Return True if a plan has a good row that changes or deletes an id, from its row ``first`` on."""
        encoder, row = self._new_encoder(), 0
        encoder.restore(self._encoder.state(None))
        for batch, flaws in self.live.read(plan, encoder.columns):
            flawed = {at: InputError(said) for at, said in flaws.items()}
            rows = encoder.encode(EncodedBlock(batch, row, lambda position: ("", position), flawed))
            good = (rows.id if rows.names is None else rows.names) == id
            good[list(rows.bad)] = False
            if rows.op is not None:
                good &= (rows.op != IGNORED) & (rows.op != QUERY)  # they leave the row as it is
            if good[max(0, first - row) :].any():
                return True
            row += batch.num_rows
        return False

    def _reach(self, start: int) -> Step | None:
        """Return the plan that row ``start`` is in, or can be in; None where nothing new is there."""
        found = None
        for step in reversed(self._steps):
            if step.ends_by(start):
                break
            found = step
        if found is not None:
            return found
        last = self.last
        number, row = (0, 0) if last is None else (last.number + 1, last.row + (last.rows or 0))
        found = self.plans.find(number)
        if found is None:
            plan = self.live.plan(None if last is None else last.plan)
            if plan is None:
                return None
            found = Step(number, row, plan)
            self.plans.keep(found)
        self._steps.append(found)
        while len(self._steps) > KEPT and self._steps[0].ends_by(self._handed_out):
            self._steps.popleft()
        return found

    def _read(self, step: Step, start: int) -> Iterator[Rows]:
        row = step.row
        for batch, flaws in self.live.read(step.plan, self._encoder.columns):
            for begin in range(0, batch.num_rows, self._chunk_rows):
                piece = batch.slice(begin, self._chunk_rows)
                cut = min(piece.num_rows, max(0, start - row))
                if cut < piece.num_rows:
                    first = row + cut
                    where = partial(self._place, step, first - step.row)
                    bad = {
                        at - begin - cut: InputError(said, file=self._name(step), row=row - step.row + at - begin)
                        for at, said in flaws.items()
                        if begin + cut <= at < begin + piece.num_rows
                    }
                    yield self._encoder.encode(EncodedBlock(piece.slice(cut), first, where, bad))
                row += piece.num_rows
        step.rows = row - step.row

    def _name(self, step: Step) -> str:
        return f"{self.live.name}, {self.live.place(step.plan)}"

    def _place(self, step: Step, first: int, position: int) -> tuple[str, int]:
        return self._name(step), first + position

    def where(self, row: int) -> tuple[str, int]:
        """Source and place in it, and the row within that (zero-based); only of the plans of late."""
        step = self.step_of(row)
        return (self.live.name, row) if step is None else self._place(step, row - step.row, 0)

    def step_of(self, row: int) -> Step | None:
        """Return the plan that a row is in; None of a row of long ago."""
        return next((step for step in reversed(self._steps) if step.row <= row), None)

    def begins(self, after: int, last: int) -> list[int]:
        """Return the first rows of the plans that begin after row ``after``, up to row ``last``, ascending."""
        found = []
        for step in reversed(self._steps):
            if step.row <= after:
                break
            if step.row <= last:
                found.append(step.row)
        return found[::-1]

    def beginnings(self, since: int = 0) -> list[tuple[str, int]]:
        """Return the names of the plans and the numbers of their first rows, from that of row ``since`` - 1 on."""
        found = list[tuple[str, int]]()
        for step in reversed(self._steps):
            found.append((self._name(step), step.row))
            if step.row < since:
                break
        return found[::-1] or [(self.live.name, 0)]

    @property
    def is_between(self) -> bool:
        """Return True at a pause after the last row of a plan: the source was not held in the middle of one."""
        return self.held is None and (self.last is None or self.last.rows is not None)

    def count_rows(self) -> int:
        """Rows handed out so far."""
        return self._handed_out

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Dictionaries as known before ``row``, and the plan that this row is in; ``rows`` where it comes after it.

        Plans without a row that were read since count as well: what they name may be gone when rows come again.
        """
        row = self._handed_out if row is None else row
        step = self.last
        if step is not None and not step.ends_by(row):
            step = next((step for step in self._steps if step.rows is None or step.row + step.rows >= row), None)
        at = None if step is None else asdict(step) | {"rows": step.rows if step.ends_by(row) else None}
        return {**self._encoder.state(row), "step": at}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with a saved state."""
        self._encoder.restore(state)
        self._steps = deque() if state.get("step") is None else deque([Step(**state["step"])])
        self._handed_out, self._awaited, self.restored = 0, None, self.read_to()


def _encoder_of(
    options: LiveOptions, schema: pa.Schema, name: str, envelope: Envelope | None, reading: Reading
) -> RowEncoder:
    """Return an encoder of the rows of a source; InputError if they do not fit its options."""
    encoder = RowEncoder(options, schema, name, envelope, reading=reading)
    if encoder.sparse is not None:
        if options.n_features is None:
            raise InputError(message("live.no_width"), file=name, column=encoder.sparse)
        encoder.set_width(options.n_features)
    if options.positive is not None and options.label is not None:
        if reading.regression:
            raise ConfigError(message("sources.positive_numbers"))
        given = options.positive if isinstance(options.positive, list) else [options.positive]
        kind = schema.field(options.label).type
        for label in given:
            if (isinstance(label, bool), isinstance(label, str)) != (pa.types.is_boolean(kind), is_text(kind)):
                raise ConfigError(message("live.positive", wanted=label, column=options.label, kind=str(kind)))
        encoder.labels = Labels(list(dict.fromkeys(given)), open=True)
    return encoder

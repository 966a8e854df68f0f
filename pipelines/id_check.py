"""A search, before a run, for updates that a model refuses because of their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pipelines.config import Config
from pipelines.running.keyed import StreamsOfKeys, streams_of
from raydt.errors import InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, DUPLICATE_ID, INSERT, QUERY, UNKNOWN_ID, UPDATE, UpdateBatch
from raydt.keyed.packing import Member
from raydt.streams.base import Stream, update_error
from raydt.streams.deletion_log import DeletionLogStream

#: A search ends after so many updates, or so many numbers of features.
MOST_UPDATES, MOST_CELLS = 1_000_000, 100_000_000

#: Updates that a search describes.
_MOST_DESCRIBED = 10


@dataclass(slots=True)
class IdSearch:
    """Outcome of a search."""

    updates: int | None = None  #: How many were checked; None if none needs it.
    complete: bool = False  #: Whether these are all.
    refused: int = 0  #: How many of them a model refuses.
    #: Of the first of these; and, last, of the bad row at which the stream ends early, if there is one.
    errors: list[InputError] = field(default_factory=list)
    stops_at: int | None = None  #: The update at which a replay stops for one of these.
    early_warmup: dict[str, Any] | None = None  #: As of :meth:`raydt.examples.updates.UpdateBatch.early_warmup`.


def without_remedy(error: InputError) -> InputError:
    """Return an error without its remedy, for a row that is skipped."""
    return error.but(remedy=None)


def search(config: Config, stream: Any, skip: bool) -> IdSearch | None:
    """Read a fresh stream, and find updates whose ids a model refuses, up to a delete by value or a limit.

    Each member of a run has live ids of its own, by which its updates are numbered. ``skip``: a replay goes on after a
    refusal. None where no id can be refused, as rows are numbered and no log names ids.
    """
    source = stream.source
    if source.id_kind == "row" and not isinstance(stream, DeletionLogStream):
        return None
    found = _Search(skip)
    most = max(1, min(MOST_UPDATES, MOST_CELLS // max(1, len(source.features.names))))
    try:
        found.read(streams_of(config, stream), most)
    except InputError as error:
        found.bad_row = error
    return found.outcome()


class _Search:
    """The ids that are live after the updates so far, and the updates that were refused."""

    def __init__(self, skip: bool) -> None:
        self.checked, self.complete = 0, False
        self.early_warmup: dict[str, Any] | None = None
        self.bad_row: InputError | None = None
        self._skip = skip
        self._live = defaultdict[Member, set[int]](set)
        self._refused = 0
        #: Errors, each with what makes it again once its later row is known.
        self._described: list[tuple[InputError, Callable[[str], InputError]]] = []
        self._first: int | None = None  #: The first of these updates.
        self._waiting: dict[Any, list[int]] = {}  # by key, and id as the user names it: places in the list above
        self._later: dict[int, str] = {}  # by place in the list above: the row that changes whether the id is live

    def read(self, streams: StreamsOfKeys, most: int) -> None:
        """Check the updates of all members, at most so many."""
        for key, own, _ in streams.read():
            while self.checked < most:
                if (batch := next(own.batches(min(4096, most - self.checked)), None)) is None:
                    break
                own.take_skipped()  # they would pile up
                if not self._add(key, own, batch):
                    return
            if self.checked >= most:
                return
        self.complete = True

    def _add(self, key: Member, own: Stream, batch: UpdateBatch) -> bool:
        """Check a batch; false where one of its updates ends the search."""
        live = self._live[key]
        if key is None:
            self.early_warmup = self.early_warmup or batch.early_warmup(own.planned_warmup)
        for place, (op, code) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
            if op == DELETE_VALUE:
                self.checked += place
                return False
            if op == QUERY:
                continue
            if (op == INSERT) == (code in live):
                if batch.tolerated is None or not batch.tolerated[place]:
                    self._refuse((key, batch.name(place)), own, batch, place, op)
            elif op != UPDATE:
                (live.remove if op == DELETE else live.add)(code)
                if self._waiting:
                    self._note((key, batch.name(place)), own, int(batch.row[place]))
        self.checked += len(batch)
        return True

    def _refuse(self, name: tuple[Member, Any], own: Stream, batch: UpdateBatch, place: int, op: int) -> None:
        self._refused += 1
        if len(self._described) < _MOST_DESCRIBED:
            if op != UPDATE:
                self._waiting.setdefault(name, []).append(len(self._described))
            describe = partial(update_error, own, batch, place, DUPLICATE_ID if op == INSERT else UNKNOWN_ID)
            self._described.append((describe(), describe))
            self._first = batch.start + place if self._first is None else self._first

    def _note(self, name: tuple[Member, Any], own: Stream, row: int) -> None:
        refused = self._waiting.pop(name, ())
        if refused and row != -1:
            file, line = own.where(row)
            self._later |= dict.fromkeys(refused, f"row {line} of {file}")

    def outcome(self) -> IdSearch:
        """The findings of the search."""
        errors = [error for error, _ in self._described]
        for place, later in self._later.items():
            error, describe = self._described[place]  # the stream may not know the row any more
            errors[place] = describe(later).but(file=error.parts["file"], row=error.parts["row"])
        stops_at = None if self.bad_row is None else self.checked
        if self._skip:
            errors = [without_remedy(error) for error in errors]
        elif self._described:
            stops_at = self._first
        if self.bad_row is not None:
            errors.append(self.bad_row)
        return IdSearch(self.checked, self.complete, self._refused, errors, stops_at, self.early_warmup)

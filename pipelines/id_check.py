"""A search, before a run, for updates that a model refuses because of their ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from raydt.errors import InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, DUPLICATE_ID, INSERT, QUERY, UNKNOWN_ID, UPDATE, UpdateBatch
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


def search(stream: Stream, skip: bool) -> IdSearch | None:
    """Read a fresh stream, and find updates whose ids a model refuses, up to a delete by value or a limit.

    ``skip``: a replay goes on after one. None where no id can be refused, as rows are numbered and no log names ids.
    """
    if stream.source.id_kind == "row" and not isinstance(stream, DeletionLogStream):
        return None
    found = _Search(stream, skip)
    most = max(1, min(MOST_UPDATES, MOST_CELLS // max(1, len(stream.source.features.names))))
    try:
        while found.checked < most:
            batch = next(stream.batches(min(4096, most - found.checked)), None)
            stream.take_skipped()  # they would pile up
            if batch is None:
                found.complete = True
                break
            if not found.add(batch):
                break
    except InputError as error:
        found.bad_row = error
    return found.outcome()


class _Search:
    """The ids that are live after the updates so far, and the updates that were refused."""

    def __init__(self, stream: Stream, skip: bool) -> None:
        self.checked, self.complete = 0, False
        self.early_warmup: dict[str, Any] | None = None
        self.bad_row: InputError | None = None
        self._stream, self._skip = stream, skip
        self._live: set[int] = set()
        self._refused = 0
        self._described: list[tuple[UpdateBatch, int, int]] = []
        self._waiting: dict[Any, list[int]] = {}  # by id as the user names it: places in the list above
        self._later: dict[int, str] = {}  # by place in the list above: the row that changes whether the id is live

    def add(self, batch: UpdateBatch) -> bool:
        """Check a batch; false where one of its updates ends the search."""
        live = self._live
        self.early_warmup = self.early_warmup or batch.early_warmup(self._stream.planned_warmup)
        for place, (op, code) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
            if op == DELETE_VALUE:
                self.checked = batch.start + place
                return False
            if op == QUERY:
                continue
            if (op == INSERT) == (code in live):
                if batch.tolerated is None or not batch.tolerated[place]:
                    self._refuse(batch, place, op)
            elif op != UPDATE:
                (live.remove if op == DELETE else live.add)(code)
                if self._waiting:
                    self._note(batch.name(place), int(batch.row[place]))
        self.checked = batch.stop
        return True

    def _refuse(self, batch: UpdateBatch, place: int, op: int) -> None:
        self._refused += 1
        if len(self._described) < _MOST_DESCRIBED:
            if op != UPDATE:
                self._waiting.setdefault(batch.name(place), []).append(len(self._described))
            self._described.append((batch, place, DUPLICATE_ID if op == INSERT else UNKNOWN_ID))

    def _note(self, name: Any, row: int) -> None:
        refused = self._waiting.pop(name, ())
        if refused and row != -1:
            file, line = self._stream.where(row)
            self._later |= dict.fromkeys(refused, f"row {line} of {file}")

    def outcome(self) -> IdSearch:
        """The findings of the search."""
        errors: list[InputError] = [
            update_error(self._stream, *described, self._later.get(place, ""))
            for place, described in enumerate(self._described)
        ]
        stops_at = None if self.bad_row is None else self.checked
        if self._skip:
            errors = [without_remedy(error) for error in errors]
        elif self._described:
            batch, place, _ = self._described[0]
            stops_at = batch.start + place
        if self.bad_row is not None:
            errors.append(self.bad_row)
        return IdSearch(self.checked, self.complete, self._refused, errors, stops_at, self.early_warmup)

"""What is recorded of each key while it learns: rows of the metrics, predictions, rows passed over, alarms.

Invariant: what is recorded at an update of a key depends on the key's own stream and model only, but for seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from raydt.examples.targets import NUMBERS, Targets, there
from raydt.examples.updates import BatchResult, UpdateBatch
from raydt.keyed.groups import Key
from raydt.keyed.members import Member
from raydt.streams.base import Skipped
from raydt.streams.tally import truths

#: Columns by name; lists of one length.
Columns = dict[str, list[Any]]

_COUNTS = ("inserts", "deletes", "predictions", "active")
_STRUCTURE = ("nodes", "leaves", "depth", "rebuilds")

#: What is summed up over all keys.
TOTALS = ("updates", "inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped")


class Records:
    """Rows of tables, by table, that were not taken yet; ``predicting`` says whether predictions are recorded."""

    def __init__(self, every: int, *, predicting: bool, own: Sequence[str] = ()) -> None:
        self.every, self._predicting, self._own = every, predicting, own
        self._columns: dict[str, Columns] = {}
        self._refused: list[tuple[int, int]] = []
        self._marked: list[Any] = []  # moments of the rows of the metrics, whose scores are made together
        self._evaluation: Any = None  # one of them, which knows how

    def record(self, member: Member, batch: UpdateBatch, result: BatchResult) -> None:
        """Take an answered batch of a key, which its tally has taken already."""
        n = result.applied
        for refusal in result.refused:
            row = member.source.place(int(batch.row[refusal.position]))
            if row >= 0:
                self._refused.append((row, refusal.reason))
        for refusal in batch.faults(result.refused):
            if refusal.position < n:
                error = member.tally.update_error(batch, refusal)
                row = member.source.place(int(batch.row[refusal.position]))
                seq = batch.start + refusal.position
                self._add("quarantine", member.key, seq=seq, source_row=row, file=error.file, reason=error.problem)
        if self._predicting:
            self._record_predictions(member, batch, result)
        for alarm in member.tally.prequential.take_alarms():
            named = zip(("seq", "predictions", "error_before", "error_after"), alarm, strict=True)
            self._add("alarms", member.key, **dict(named))
        if member.tally.updates % self.every == 0:
            self.mark(member)

    def _record_predictions(self, member: Member, batch: UpdateBatch, result: BatchResult) -> None:
        n = result.applied
        predictions, truth = result.predictions[:n], truths(batch, n)
        for place in np.flatnonzero(there(predictions)).tolist():
            self._add(
                "predictions",
                member.key,
                seq=batch.start + place,
                id=batch.name(place),
                prediction=_named(member, predictions, place),
                truth=_named(member, truth, place),
            )

    def record_skipped(self, member: Member, skipped: Sequence[Skipped]) -> None:
        """Note rows of a key that never became updates."""
        for entry in skipped:
            row = member.source.place(entry.row)
            self._add("quarantine", member.key, seq=-1, source_row=row, file=entry.file, reason=entry.reason)

    def mark(self, member: Member) -> None:
        """Add a row of the metrics of a key."""
        tally = member.tally
        member.marked = tally.updates
        tally.prequential.mark()
        self._marked += tally.prequential.take_marked()
        self._evaluation = tally.prequential
        counts = {name: getattr(tally, name) for name in _COUNTS}
        known = tally.statistics
        figures = {name: known.get(name, 0) for name in (*_STRUCTURE, *self._own)}
        more = {"seconds": tally.seconds, "alarms": getattr(tally.prequential, "alarms", 0)}
        times = {} if member.stream.times is None else {"time": tally.time}
        self._add("metrics", member.key, seq=tally.updates, **counts, **figures, **more, **times)

    def key_rows(self, members: Sequence[Member]) -> list[dict[str, Any]]:
        """Return the rows of keys in the table of keys, as they are now."""
        if not members:
            return []
        evaluations = [member.tally.prequential for member in members]
        scores = _scores(evaluations[0], [one.now() for one in evaluations])
        of_each = zip(members, *scores.values(), strict=True)
        return [self._key_row(member) | dict(zip(scores, values, strict=True)) for member, *values in of_each]

    def _key_row(self, member: Member) -> dict[str, Any]:
        tally = member.tally
        known = tally.statistics
        return {
            "key": member.key,
            **{name: getattr(tally, name) for name in (*TOTALS, "active")},
            **{name: known.get(name, 0) for name in (*_STRUCTURE, "rebuilt_rows", *self._own)},
            "alarms": getattr(tally.prequential, "alarms", 0),
            "seconds": tally.seconds,
            "digest": member.digest(),
        }

    def _add(self, table: str, key: Key, **values: Any) -> None:
        columns = self._columns.setdefault(table, defaultdict(list))
        columns["key"].append(key)
        for name, value in values.items():
            columns[name].append(value)

    def take(self) -> dict[str, Columns]:
        """Return the rows recorded since the last call."""
        taken, self._columns = self._columns, {}
        if self._marked:
            taken["metrics"].update(_scores(self._evaluation, self._marked))
            self._marked = []
        return taken

    def take_refused(self) -> list[tuple[int, int]]:
        """Return the rows of the source that keys have refused since the last call, and why."""
        taken, self._refused = self._refused, []
        return taken


def _scores(evaluation: Any, moments: Sequence[Any]) -> Columns:
    """Return scores at moments of evaluations of one kind, by name."""
    return {name: values.tolist() for name, values in evaluation.rows_of(moments).items()}


def _named(member: Member, codes: Targets, place: int) -> Any:
    """Return the label of a class code, or a number, as text; None of none."""
    if codes.dtype == NUMBERS:
        return None if np.isnan(codes[place]) else float(codes[place])
    code, classes = int(codes[place]), member.tally.classes
    return classes[code] if 0 <= code < len(classes) else None

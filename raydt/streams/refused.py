"""The error of an update that a model refuses because of its id."""

from __future__ import annotations

from raydt.errors import UpdateError
from raydt.examples.updates import DELETE_VALUE, DUPLICATE_ID, REFUSALS, UNKNOWN_ID, UPDATE, UpdateBatch
from raydt.messages import message
from raydt.redaction import quoted
from raydt.streams.base import Stream


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

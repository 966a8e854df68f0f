"""Interface of every stream model: one numbered sequence of updates made from a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from raydt.arrays.types import Ints
from raydt.encoding.times import TimeColumn
from raydt.examples.updates import UpdateBatch
from raydt.sources.base import Rows, Source


class Skipped(NamedTuple):
    """A bad row that was passed over."""

    row: int  #: Its number over all files.
    file: str
    reason: str  #: What is wrong, with the row in the file; values are marked (:mod:`raydt.redaction`).


class Stream(Protocol):
    """Turns the rows of a source into updates; the sequence does not depend on the batch size."""

    source: Source
    times: TimeColumn | None  #: The column of event times of the source, None if it has none.
    #: A query is the prediction of an example that is inserted later, and is scored then.
    delayed: bool
    planned_warmup: int  #: Leading insertions that build the model at once, if all come before any other operation.

    def batches(self, size: int) -> Iterator[UpdateBatch]:
        """Updates from the current position on, at most ``size`` to a batch.

        Batches are smaller at the end, before a bad row under ``on_error: error`` (the next step raises), and where a
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
            ``source``, its dictionaries after the updates, the state of :class:`~raydt.streams.text_ids.TextIds` if
            ids are text, and that of :class:`~raydt.examples.subjects.Subjects` if the source has subjects.
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

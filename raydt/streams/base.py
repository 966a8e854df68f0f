"""What every stream model offers: one numbered sequence of updates made from a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from raydt.sources.base import Source
from raydt.updates import UpdateBatch


class Skipped(NamedTuple):
    """A bad row that was passed over: its number over all files, its file, and what is wrong (with the row there)."""

    row: int
    file: str
    reason: str


class Stream(Protocol):
    """Turns the rows of a source into updates; the sequence does not depend on the batch size."""

    source: Source

    def batches(self, size: int) -> Iterator[UpdateBatch]:
        """Updates from the current position on, ``size`` to a batch (the last may be smaller).

        Under ``on_error: error`` the batch before a bad row may be smaller too; the next step raises.
        """

    def state(self) -> dict[str, Any]:
        """Position and everything needed to go on from it: plain JSON values and NumPy arrays.

        Valid between two batches. Includes the dictionaries of the source.
        """

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""

    def length(self) -> int | None:
        """Number of updates in the whole stream, where known in advance (for the progress bar)."""

    def take_skipped(self) -> list[Skipped]:
        """Bad rows passed over since the last call, up to the current position."""

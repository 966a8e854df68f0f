"""Where the receipts of requests end in a stream: at the end of each plan of a live source, else every so many updates.

Invariant: a place is a number of updates, and follows from the stream, its plans, and the receipts that there are
already. It does not depend on how the stream is cut into batches, nor on where a run was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import Ints
from raydt.examples.updates import DELETE, UpdateBatch, cut_at
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Stream


class Place(NamedTuple):
    """Where in the source some requests are, and the time of the newest change there, if that is known."""

    name: str
    time: float | None = None


def requests_in(batch: UpdateBatch) -> Ints:
    """Return the positions of the deletions that source or deletion log ask for: not those a stream model chooses."""
    return np.flatnonzero((batch.op == DELETE) & (batch.row != -1))


def pieces_of(batch: Any, places: Sequence[int]) -> Iterator[Any]:
    """Yield a batch, of one model or of models by key, in pieces that begin at ascending places within it."""
    return cut_at(batch, places) if isinstance(batch, UpdateBatch) else batch.pieces(places)


class Marks:
    """Cuts batches where a receipt ends, and has the model's digest taken there.

    It belongs to whoever reads the stream, which may be ahead of whoever writes the receipts: ``places`` has, in order,
    the places of the receipts that end at batches with ``digest``. The stream is where reading begins; ``rows`` have
    requests that have no receipt yet, and receipts that end at ``known`` numbers of updates are there.
    """

    def __init__(self, stream: Stream, every: int, rows: Sequence[int] = (), known: Sequence[int] = ()) -> None:
        self._stream, self._every = stream, every
        self._live = stream.source if isinstance(stream.source, FollowedSource) else None
        self._known = deque(known)
        # Of the requests since the last receipt, the first and the last row, and the last row of the source.
        self._rows = (rows[0], rows[-1]) if rows else None
        self._row = int(stream.state()["row"]) - 1
        self.places: deque[Place] = deque()

    def of(self, batch: UpdateBatch) -> Iterator[UpdateBatch]:
        """Yield a batch in pieces, of which those that begin where a receipt ends want the digest before them."""
        asked, rows = requests_in(batch), np.maximum.accumulate(np.maximum(batch.row, self._row))
        marked: list[int] = []
        begun = 0
        for position in self._ends(batch, rows):
            self._note(batch, asked[(asked >= begun) & (asked < position)])
            begun = position
            if self._is_known(batch.start + position) or (self._rows is not None and not self._known):
                self.places.append(self.take())
                marked.append(position)
        self._note(batch, asked[asked >= begun])
        self._row = int(rows[-1]) if len(rows) else self._row
        for piece in pieces_of(batch, [position for position in marked if position]):
            yield replace(piece, digest=True) if piece.start - batch.start in marked else piece

    def take(self) -> Place:
        """Take the place of the receipt that ends here."""
        place, self._rows = self._place(), None
        return place

    def _ends(self, batch: UpdateBatch, rows: Ints) -> list[int]:
        """Return the positions in a batch before which a receipt ends if there are requests for it, ascending."""
        if not len(batch):
            return []
        known = [stop - batch.start for stop in self._known if batch.start <= stop < batch.stop]
        if self._live is None:
            first = -batch.start % self._every
            return sorted({*known, *range(first, len(batch), self._every)})
        begins = self._live.begins(self._row, int(rows[-1]))
        return sorted({*known, *np.searchsorted(rows, begins, side="left").tolist()})

    def _is_known(self, updates: int) -> bool:
        if self._known and self._known[0] == updates:
            self._known.popleft()
            return True
        return False

    def _note(self, batch: UpdateBatch, asked: Ints) -> None:
        if len(asked):
            rows = batch.row[asked]
            first = int(rows[0]) if self._rows is None else self._rows[0]
            self._rows = first, int(rows[-1])

    def _place(self) -> Place:
        """Return where the requests since the last receipt are."""
        if self._rows is None:
            return Place("")
        first, last = self._rows
        if self._live is not None:
            step = self._live.step_of(last)
            plan: dict[str, Any] = {} if step is None else step.plan
            return Place(self._live.live.place(plan) if plan else "", plan.get("time"))
        (file, begin), (_, end) = self._stream.where(first), self._stream.where(last)
        return Place(f"{file.rpartition('/')[2]}, rows {begin}-{end}")

"""Updates that wait for the end of their batch D'.

An example that comes has its slot at once, one that goes keeps it until the batch is applied; in between an id means
the newest example of it. What comes and goes within the batch was never there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.learners.rows import Rows, joined_rows

#: What an example waits for.
NOTHING, COMING, GOING = 0, 1, 2

Slots = npt.NDArray[np.int32]
_NONE = np.empty(0, dtype=np.int32)


class Waiting:
    """Slots of examples that come, with their features where these are needed, and of examples that go."""

    def __init__(self) -> None:
        self.coming, self.going, self._dropped = _NONE, _NONE, _NONE
        self._rows: list[Rows] = []

    def __len__(self) -> int:
        return len(self.coming) + len(self.going)

    def add(self, new: Slots, rows: Rows | None, old: Slots) -> None:
        """Examples are inserted (with ``rows``, if the features of those that come are needed) and deleted."""
        self.coming = np.concatenate([self.coming, new])
        if rows is not None:
            self._rows.append(rows)
        never = np.isin(old, self.coming)
        self.going = np.concatenate([self.going, old[~never]])
        if never.any():
            stays = ~np.isin(self.coming, old)
            self._rows = [joined_rows(self._rows).take(stays)] if self._rows else []
            self.coming = self.coming[stays]
            self._dropped = np.concatenate([self._dropped, old[never]])

    @property
    def emptied(self) -> Slots:
        """Slots that hold nothing any more once the batch is applied."""
        return np.concatenate([self.going, self._dropped])

    @property
    def rows(self) -> Rows:
        """The examples that come, in the order of ``coming``."""
        return joined_rows(self._rows)

    @rows.setter
    def rows(self, rows: Rows) -> None:
        self._rows = [rows]

    def status(self, slots: Slots) -> npt.NDArray[np.int8]:
        """What each of some examples waits for."""
        return (COMING * np.isin(slots, self.coming) + GOING * np.isin(slots, self.going)).astype(np.int8)

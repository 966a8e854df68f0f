"""The record of the batches D' of one batch of the stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.learners.gbdt.row_shard import Counts

#: Columns that are not numbers of things.
_OTHER = {"seconds": np.float64}
COLUMNS = (
    "seq", "deletes", "inserts", "trees_checked", "trees_retrained", "subtrees", "rows", "nodes", "depth", "refreshed",
    "rounds", "trained", "seconds",
)  # fmt: skip


class UpdateLog:
    """One entry for each D' (and for the first training): its last update, and what it took (:class:`Counts`)."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, ...]] = []

    def add(self, seq: int, deletes: int, inserts: int, counts: Counts, seconds: float) -> None:
        """Record a D' that ended with update ``seq``."""
        taken = [getattr(counts, name) for name in COLUMNS[3:-1]]
        self._entries.append((seq, deletes, inserts, *taken, seconds))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of the entries, int64 but for ``seconds``."""
        columns = zip(*self._entries, strict=True) if self._entries else [()] * len(COLUMNS)
        return {
            name: np.array(column, dtype=_OTHER.get(name, np.int64))
            for name, column in zip(COLUMNS, columns, strict=True)
        }

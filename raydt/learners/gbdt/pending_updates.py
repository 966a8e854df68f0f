"""Updates that are pending until the end of their batch D'.

An inserted example has its slot at once, a deleted one keeps it until the batch is applied; in between an id means the
newest example of it. An example that is inserted and deleted within the batch never enters the model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: ``pending`` of an example in a state.
NOT_PENDING, TO_INSERT, TO_DELETE = 0, 1, 2

Slots = npt.NDArray[np.int32]
_NONE = np.empty(0, dtype=np.int32)


class PendingUpdates:
    """Examples to insert and examples to delete.

    Attributes
    ----------
    inserts, deletes : ndarray of int32
        Their slots.
    """

    def __init__(self) -> None:
        self.inserts, self.deletes, self._cancelled = _NONE, _NONE, _NONE

    def __len__(self) -> int:
        return len(self.inserts) + len(self.deletes)

    def add(self, new: Slots, old: Slots) -> None:
        """Add insertions into the slots ``new`` and deletions of ``old``."""
        self.inserts = np.concatenate([self.inserts, new])
        cancelled = np.isin(old, self.inserts)
        self.deletes = np.concatenate([self.deletes, old[~cancelled]])
        if cancelled.any():
            self.inserts = self.inserts[~np.isin(self.inserts, old)]
            self._cancelled = np.concatenate([self._cancelled, old[cancelled]])

    @property
    def freed(self) -> Slots:
        """Slots that are free once the batch is applied."""
        return np.concatenate([self.deletes, self._cancelled])

    def status(self, slots: Slots) -> npt.NDArray[np.int8]:
        """``pending`` of some examples, shape (slots,)."""
        return (TO_INSERT * np.isin(slots, self.inserts) + TO_DELETE * np.isin(slots, self.deletes)).astype(np.int8)

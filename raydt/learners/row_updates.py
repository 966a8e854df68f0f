"""Updates of one example each, without a batch: what learners share whose updates take effect one by one.

A batch of one update costs many small arrays, which take longer than the update. Here the buffers are used again, and
the work itself is done by the kernels of a batch: so that no bit depends on which way an update came.
"""

from __future__ import annotations

import numpy as np

from raydt.arrays.kernel import Repeated
from raydt.arrays.types import Floats
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.admission import nothing_admitted
from raydt.examples.row_digest import RowDigest
from raydt.examples.store import ExampleStore, admit_updates
from raydt.examples.updates import INSERT


class RowUpdates:
    """Buffers of one update, and its admission."""

    def __init__(self, columns: int) -> None:
        self.rows = RowBlock.of(np.empty((1, columns)))
        self._op, self._id = np.full(1, INSERT, dtype=np.int8), np.empty(1, dtype=np.int64)
        self._admitted, self._admit = nothing_admitted(self._op), Repeated(admit_updates)

    def take(self, row: Floats) -> RowBlock:
        """Return a row, shape (1, d), as kernels take it; valid until the next one."""
        self.rows.X[:] = row
        return self.rows

    def insert(self, store: ExampleStore, digested: RowDigest | None, number: int, code: int, seq: int) -> int:
        """Admit an example with an id that no live one has; returns its slot. The store has room."""
        self._id[0] = number
        store.admit(self._op, self._id, 0, False, self._admitted, self._admit)
        slot = int(self._admitted.new[0])
        store.y[slot], store.born[slot] = code, seq
        if digested is not None:
            digested.note(self._id)
        return slot

    def delete(self, store: ExampleStore, digested: RowDigest | None, slot: int) -> None:
        """Take a live example out of the store; :meth:`release` comes after the learner has let go of it."""
        if digested is not None:
            digested.note(store.id[slot : slot + 1])
        store.discard(slot)

    def release(self, store: ExampleStore, slot: int) -> None:
        """Let the slot of a deleted example be used again."""
        self._admitted.old[0] = slot
        store.release(self._admitted.old)

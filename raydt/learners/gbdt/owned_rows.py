"""The rows that a shard of the GBDT owns: which wait for the end of a batch D', and what their labels and weights add.

Invariant: of a row that waits to be deleted the store has all but the way from its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Arrays, Bools, Ints, Slots
from raydt.examples.owned_rows import Ids, OwnedRows
from raydt.examples.row_owners import RowOwners
from raydt.examples.weighting import Weighting
from raydt.examples.weights import sums_by_class
from raydt.learners.gbdt.targets import Targets, summaries_before, summary_of
from raydt.learners.gbdt.update_batch import NOT_PENDING, TO_DELETE, TO_INSERT, PendingUpdates


class PendingRows(OwnedRows):
    """An owner's examples, and which of them wait for the end of a batch D'."""

    LATER = ("leaf", "ledger", "drift")
    COLUMNS: ClassVar[tuple[str, ...]] = (*OwnedRows.COLUMNS, "pending")
    ANSWERS: ClassVar[frozenset[str]] = OwnedRows.ANSWERS | {"summaries", "summary_of_inserts", "sum_of_weights"}
    Pending = PendingUpdates

    def __init__(self, owners: RowOwners, index: int, target_dtype: np.dtype[Any]) -> None:
        super().__init__(owners, index, target_dtype)
        self._weighting = Weighting(False)  # whose factors the coordinator resolves

    @classmethod
    def counts_of(cls, state: Mapping[str, AnyArray]) -> list[int]:
        """Count the live rows of a state, and those that wait to be inserted and to be deleted."""
        inserts, deletes = (int(np.count_nonzero(state["pending"] == kind)) for kind in (TO_INSERT, TO_DELETE))
        return [len(state["pending"]) - deletes, inserts, deletes]

    # ---------------------------------------------------------------- labels and weights

    @property
    def targets(self) -> Targets:
        """Labels of the own rows, and what each counts, by local slot."""
        return Targets(self.store.y, self._weighting.by_slot(self.store))

    def balance(self, factors: Ints | None) -> None:
        """Take the factors of classes, None before they are resolved."""
        self._weighting.take(factors)
        self._weighting.enter(self.store, np.concatenate([self.store.slots(), self.pending.deletes]))

    def _enter(self, local: Slots) -> None:
        self._weighting.enter(self.store, local)

    def of_training(self, local: Slots, held: Slots, balanced: bool) -> dict[str, Any]:
        """Return a summary of the labels of rows of a training, and how many are ``held`` out.

        ``balanced``: and the sums of their weights by class.
        """
        y, weights = self.store.y[local], self.store.weights(local)
        found: dict[str, Any] = {"targets": summary_of(y, weights), "held": len(held)}
        return found | {"weights": sums_by_class(weights, y)} if balanced else found

    def sum_of_weights(self) -> int:
        """Add up what the live rows count, in units."""
        return self._weighting.sum_of(self.store)

    def summaries(self, seqs: Ids, deleted: Slots, since: Ids) -> list[AnyArray]:
        """Return summaries of the labels of the examples that were live before each of some updates (``seqs``).

        ``deleted`` are slots of any owner whose rows a later update, ``since``, has deleted.
        """
        mine = self.owners.shard_of(deleted) == self.index
        return summaries_before(self.store, seqs, self.owners.local(deleted[mine]), since[mine])

    def summary_of_inserts(self) -> AnyArray:
        """Return a summary of the labels of the rows that wait to be inserted."""
        return summary_of(self.store.y[self.pending.inserts])

    # ---------------------------------------------------------------- all rows

    def equal(self, y: Any, masks: Sequence[npt.NDArray[np.uint8]]) -> tuple[int, int]:
        """Return :meth:`oldest` of the live rows of a label that are in all masks (bits by local slot).

        A mask of no bits has all rows.
        """
        found = self.store.slots()
        found = found[self.store.y[found] == y]
        for mask in masks:
            if len(mask):
                found = found[np.unpackbits(mask)[found] == 1]
        return self.oldest(found)

    # ---------------------------------------------------------------- states

    def fill(self, rows: Mapping[str, AnyArray]) -> None:
        """As of all owners; rows that wait to be deleted are not found by their ids."""
        super().fill(rows)
        pending, local = rows["pending"], np.arange(len(rows["pending"]), dtype=np.int32)
        self.pending.add(local[pending == TO_INSERT], local[pending == TO_DELETE])

    def _listed(self, rows: Mapping[str, AnyArray]) -> Bools | None:
        listed: Bools = rows["pending"] != TO_DELETE
        return listed

    def changing(self, local: Slots) -> Arrays:
        """Return births, and which rows wait."""
        return {**super().changing(local), "pending": self.pending.status(local)}

    def status(self) -> npt.NDArray[np.int8]:
        """Return ``pending`` by local slot, shape (slots ever used,)."""
        status = np.full(self.store.used, NOT_PENDING, dtype=np.int8)
        status[self.pending.inserts], status[self.pending.deletes] = TO_INSERT, TO_DELETE
        return status

"""The coordinator of FuDyADT where shards own the rows: by slot it has leaf and label, and features within a budget.

Owners admit the updates, hash their rows and write them for a state (``raydt.examples.owned_rows``). A leaf is here,
because the tree is: it goes to the owner of the row for a state, and comes back from there when that is restored.

Invariant: the model is that of :class:`~raydt.learners.fudyadt.coordinator.FuDyADTCoordinator`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from raydt.arrays.blocks import as_slice
from raydt.arrays.digest import Part
from raydt.arrays.types import Arrays, Ints, Slots
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.admission import Admission
from raydt.examples.owned_columns import OwnedColumns
from raydt.examples.updates import UNKNOWN_VALUE, BatchResult, UpdateBatch
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.exchange.snapshot import OWNED
from raydt.learners.fudyadt.coordinator import FuDyADTCoordinator
from raydt.learners.fudyadt.owned_tree import OwnedTree
from raydt.trees.counted_tree import WARMUP_LEFT
from raydt.trees.records import preorder

#: Slots of all owners whose leaves are sent at once.
_SENT = 1 << 20


class OwnedFuDyADTCoordinator(FuDyADTCoordinator):
    """Tree, and by slot the leaf and the label of each row; ids and births are at the shard that owns it."""

    rows_are_owned = True

    live: OwnedTree
    Tree = OwnedTree

    @property
    def _owned(self) -> OwnedColumns:
        return self.live.store

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch, after what is not complete after a restore."""
        yield from self._resume()
        return (yield from super().process(batch, skip_refused=skip_refused))

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        yield from self._resume()
        yield from super().finish()

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        if batch.blocks:
            self.live.drop_features()
        elif self.live.keeps or self.live.tree.reg[WARMUP_LEFT] == 0:
            yield from self.live.fill_cache()
        self._owned.births = np.zeros(len(batch), dtype=np.int64)
        yield from super()._prepare(batch)

    def _end_warmup(self) -> Exchange[Any]:
        yield from self.live.fill_cache()
        return (yield from super()._end_warmup())

    def _admit_run(self, batch: UpdateBatch, part: slice, skip_refused: bool, admitted: Admission) -> Exchange[int]:
        if batch.weight is not None:
            self._owned.weigh()
        stop: int = yield from self._owned.admit(batch, part, skip_refused, admitted, self.live.make_room_for)
        return stop

    def _sum_of_weights(self) -> Exchange[int]:
        """Return what the root counts."""
        yield from ()
        return self.live.sum_of_weights()

    def _find_deleted(self, batch: UpdateBatch, position: int, row: int, admitted: Admission) -> Exchange[None]:
        """Have the owners delete the oldest live example that equals a row."""
        rows = RowBlock.of(batch.X, batch.sparse).take(np.array([row]))
        slots = self._alike(rows)
        slots = slots[self._owned.y[slots] == batch.y[row]]
        slots = slots[(yield from self._equal(slots, rows))]
        if not len(slots):
            admitted.fault[position] = UNKNOWN_VALUE
            return
        told = {"slots": slots, "release": self._owned.take_emptied()}
        yield from self._owned.delete("delete_oldest", told, None, admitted, position)

    def _weightless(self) -> Slots:
        """Slots without a row, too: their owners know."""
        return np.flatnonzero(self.live.cached.weight[: self._owned.used] == 0).astype(np.int32)

    def _put(self, batch: UpdateBatch, added: Ints, slots: Slots, rows: Ints) -> Exchange[None]:
        y = self._owned.y[slots]
        if batch.blocks:
            yield from self._read(slots, batch.row[added], batch.blocks, y=y)
            return
        X = batch.X[as_slice(rows)]
        self._owned.put(slots, X)
        if len(slots):
            yield Tell("rows", {"slots": slots, "y": y}, [{"X": X[:, owned]} for owned in self.live.columns])

    def _births(self, position: Ints) -> Ints:
        births: Ints = self._owned.births[position]
        return births

    # ---------------------------------------------------------------- what shards are asked for

    def gather_state(self) -> Exchange[None]:
        """Send the owners the leaves of their rows, which they write."""
        yield from self._resume()
        position = preorder(self.live.tree)[1]
        for begin, _, of_each in self._windows():
            each = [position[self.live.members["leaf"][slots]] for slots in of_each]
            yield Tell("take_leaves", {"begin": begin}, [{"leaf": leaf} for leaf in each])

    def gather_digest(self) -> Exchange[None]:
        """Have the rows hashed."""
        yield from self._resume()
        yield from self._owned.gather_hashes()

    def _row_part(self) -> Part:
        return self._owned.hashed()[1]

    def _windows(self) -> Iterator[tuple[int, int, list[Slots]]]:
        """Yield where windows of local slots begin and end, and for each owner the slots in it, up to the last used."""
        owners, used = self._owned.owners, self._owned.used
        most, width = owners.local_capacity(used), max(1, _SENT // owners.shards)
        for begin in range(0, max(1, most), width):
            local = np.arange(begin, min(begin + width, most))
            of_each = [owners.slots(local, shard) for shard in range(owners.shards)]
            yield begin, begin + width, [slots[slots < used] for slots in of_each]

    # ---------------------------------------------------------------- states

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the totals, and how many rows there are; these are with the shards."""
        state = super().state(slots)
        state.pop("leaf")
        return {**state, OWNED: self._owned.counted()}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; shards have the features of its rows in slots 0, 1, ... until they are told."""
        self._owned.restore(state)
        super().restore(state)

    def _resume(self) -> Exchange[None]:
        """Tell the shards which rows are theirs and, after a restore, take leaf, label and weight of all rows."""
        rows = yield from self._owned.begin()
        if rows is None:
            return
        last = [self._owned.owners.slots(np.array([n - 1]), shard) for shard, n in enumerate(rows)]
        self.live.make_room_for(1 + int(np.max(last)))
        for begin, stop, of_each in self._windows():
            replies = yield Ask("leaves", {"begin": begin, "stop": stop})
            for slots, reply in zip(of_each, replies, strict=True):
                count = len(reply["y"])
                self.live.restore_rows(slots[:count], reply["leaf"], reply["y"], reply.get("weight"))
        self.live.complete()

"""The coordinator of FuDyADT where shards own the rows: by slot it has leaf and label, and features within a budget.

Owners admit the updates, hash their rows and write them for a state (``raydt.examples.owned_rows``). A leaf is here,
because the tree is: it goes to the owner of the row for a state, and comes back from there when that is restored.

Invariant: the model is that of :class:`~raydt.learners.fudyadt.coordinator.FuDyADTCoordinator`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from raydt.arrays.blocks import as_slice
from raydt.arrays.types import AnyArray, Arrays, Ints, Slots
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.admission import Admission
from raydt.examples.bucket_digest import joined_root
from raydt.examples.features import Features
from raydt.examples.row_digest import part_of, record_of
from raydt.examples.slot_columns import OwnedColumns
from raydt.examples.updates import UNKNOWN_VALUE, BatchResult, UpdateBatch
from raydt.exchange.meeting import together
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.exchange.snapshot import OWNED
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.coordinator import FuDyADTCoordinator
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.owned_rows import TreeRows
from raydt.trees.counted_tree import WARMUP_LEFT
from raydt.trees.records import preorder

#: Local slots of each owner whose leaves are sent at once.
_SENT = 1 << 18


class OwnedFuDyADTCoordinator(FuDyADTCoordinator):
    """Tree, and by slot the leaf and the label of each row; ids and births are at the shard that owns it."""

    rows_are_owned = True

    def __init__(self, options: FuDyADTOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__(options, features, shards, plan)
        self._owned: OwnedColumns = cast(OwnedColumns, self.live.store)
        self._told = False  # the shards know which rows are theirs
        self._restored = False  # leaves and labels have to be fetched
        self._state: Arrays | None = None  # by row, until shards have it; none, if their owners read it themselves
        self._hashes: Sequence[dict[str, Any]] | None = None

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
        self._owned.changes += 1  # before, so that a change that is broken off is counted
        told = {"slots": slots, "release": self._owned.take_emptied()}
        ended = yield from together("delete_oldest", told)
        self._owned.take([of_shard.result["counts"] for of_shard in ended])
        found = [of_shard.result for of_shard in ended if len(of_shard.result["slots"])]
        if found:
            admitted.old[position], self._owned.births[position] = found[0]["slots"][0], found[0]["born"]
        else:
            self._owned.changes -= 1
            admitted.fault[position] = UNKNOWN_VALUE

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

    def gather(self) -> Exchange[None]:
        """Nothing: tree and counts are here."""
        yield from ()

    def gather_state(self) -> Exchange[None]:
        """Send the owners the leaves of their rows, which they write."""
        yield from self._resume()
        position = preorder(self.live.tree)[1]
        for begin, local in self._windows():
            each = [position[self.live.members["leaf"][slots]] for slots in local]
            yield Tell("take_leaves", {"begin": begin}, [{"leaf": leaf} for leaf in each])

    def gather_digest(self) -> Exchange[None]:
        """Have the rows hashed."""
        yield from self._resume()
        self._hashes = yield Ask("hash_rows", {"weighted": self._owned.uneven > 0})

    def _row_part(self) -> Any:
        assert self._hashes is not None, "gather_digest comes first"
        hashes, self._hashes = self._hashes, None
        none: AnyArray = np.empty(0, dtype=np.int32)
        columns = {"y": self._owned.y[:0]}
        if self._owned.uneven:
            columns["weight"] = self.live.cached.weight[:0]
        record = record_of(lambda slots: columns, none.astype(np.int64), none).dtype
        return part_of(record, joined_root(hashes, record.itemsize))

    def _windows(self) -> Any:
        """Yield where windows of local slots begin, and for each owner the slots in it, up to the last one used."""
        owners, used = self._owned.owners, self._owned.used
        for begin in range(0, max(1, owners.local_capacity(used)), _SENT):
            local = np.arange(begin, min(begin + _SENT, owners.local_capacity(used)))
            of_each = [owners.slots(local, shard) for shard in range(owners.shards)]
            yield begin, [slots[slots < used] for slots in of_each]

    # ---------------------------------------------------------------- states

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the totals, and how many rows there are; these are with the shards."""
        state = super().state(slots)
        state.pop("leaf")
        return {**state, OWNED: np.array([self._owned.live, 0, 0])}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; shards have the features of its rows in slots 0, 1, ... until they are told."""
        self._state = None
        live = int(state[OWNED][0]) if OWNED in state else len(state["id"])
        if OWNED not in state:
            self._state = {name: state[name] for name in (*TreeRows.COLUMNS, "weight") if name in state}
        self._owned.fill(live)
        super().restore(state)
        self._told, self._restored = False, True

    def _resume(self) -> Exchange[None]:
        """Tell the shards which rows are theirs and, after a restore, take leaves and labels."""
        if self._told:
            return
        owners, state = self._owned.owners, self._state
        given: dict[str, Any] = {"shards": owners.shards}
        each: list[dict[str, Any]] = [{"index": index} for index in range(owners.shards)]
        if self._restored and state is None:
            found = [of_shard.result for of_shard in (yield from together("read_own", given, each))]
            self._owned.take([of_shard["counts"] for of_shard in found])
            yield from self._fetch([int(of_shard["counts"][0]) for of_shard in found])
        else:
            slots = None
            if state is not None:
                owner, slots = owners.of(state["id"]), owners.first_slots(state["id"])
                for index, payload in enumerate(each):
                    rows = {name: array[owner == index] for name, array in state.items() if name != "leaf"}
                    payload["rows"] = rows
            yield Tell("own", {**given, "slots": slots}, each)
            if state is not None and slots is not None:
                self.live.make_room_for(int(slots.max(initial=-1)) + 1)
                self.live.restore_rows(slots, state["leaf"], state["y"], state.get("weight"))
        if self._restored:
            self.live.complete()
        self._told, self._restored, self._state = True, False, None

    def _fetch(self, rows: Sequence[int]) -> Exchange[None]:
        """Take leaf, label and weight of all rows from their owners, each of which has so many."""
        owners, tree = self._owned.owners, self.live
        last = [owners.slots(np.array([n - 1]), shard) for shard, n in enumerate(rows)]
        tree.make_room_for(1 + int(np.max(last)))
        for begin in range(0, max(rows), _SENT):
            replies = yield Ask("leaves", {"begin": begin, "stop": begin + _SENT})
            for shard, reply in enumerate(replies):
                slots = owners.slots(np.arange(begin, begin + len(reply["y"])), shard)
                tree.restore_rows(slots, reply["leaf"], reply["y"], reply.get("weight"))

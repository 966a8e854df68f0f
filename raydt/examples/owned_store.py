"""The coordinator's half of rows that shards own: how many there are, and of which updates each owner decides.

What an update does depends on the updates of the same id only, so every owner decides about its own
(:mod:`~raydt.examples.owned_rows`). The coordinator sends each its updates of a batch and gets their slots, in one
round; the first update that is refused is the first of any owner's, and the others then take back what they have done
after it.

Invariant: decisions are those of one :class:`~raydt.examples.store.ExampleStore`, whatever the number of shards; only
the slots are others (:class:`~raydt.examples.row_owners.RowOwners`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import Ints, Slots
from raydt.examples.admission import Admission
from raydt.examples.row_owners import RowOwners
from raydt.examples.updates import CARRIES_ROW, DELETE_VALUE, QUERY, UpdateBatch
from raydt.exchange.messages import Ask, Exchange, Tell


class OwnedStore:
    """Numbers of examples, and their owners.

    ``live``: live examples. ``inserts``, ``deletes``: those that wait for the end of a batch D'. ``weighted``: whether
    some may have another weight than 1. ``births``: of the examples that updates of the batch under way have deleted,
    by the update's position in the batch.
    """

    def __init__(self, shards: int) -> None:
        self.owners = RowOwners(shards)
        self.live = self.inserts = self.deletes = 0
        self.weighted = False
        self.births: Ints = np.empty(0, dtype=np.int64)
        #: How often updates may have changed some examples.
        self.changes = 0
        self._emptied = False  # earlier batches have emptied slots that owners have not released

    def admit(
        self,
        batch: UpdateBatch,
        run: slice,
        skip: bool,
        admission: Admission,
        make_room: Callable[[int], None] | None = None,
    ) -> Exchange[int]:
        """Admit updates of a run, as :meth:`ExampleStore.admit`; returns where it stopped.

        The owners have labels and births of the new examples then. One round; two if an update is refused and it is not
        skipped, or an owner, or the coordinator, has no memory: then nobody has taken any of them, and it is a
        MemoryError. ``make_room`` does so for a number of slots, of whoever keeps something by slot.
        """
        begin, stop = int(run.start), int(run.stop)
        by_value = np.flatnonzero(batch.op[begin:stop] == DELETE_VALUE)
        stop = begin + int(by_value[0]) if len(by_value) else stop
        named = begin + np.flatnonzero(batch.op[begin:stop] != QUERY)
        if not len(named):
            return stop
        owner = self.owners.of(batch.id[named])
        owned = [named[owner == shard] for shard in range(self.owners.shards)]
        self.changes += 1  # before, so that a change that is broken off is counted
        self.weighted |= batch.weight is not None
        replies = yield Ask(
            "admit", {"skip": skip, "release": self.take_emptied()}, [_sent(batch, own, admission) for own in owned]
        )
        ends = [int(reply["stop"]) for reply in replies]
        if any(reply["lacks"] for reply in replies) or not self._has_room_for(replies, make_room):
            yield Ask("retract", {}, [{"updates": end} for end in ends])
            self.changes -= 1
            raise MemoryError
        refused = [int(own[end]) for own, end in zip(owned, ends, strict=True) if end < len(own)]
        kept = [own[:end] for own, end in zip(owned, ends, strict=True)]
        counts: Sequence[Any] = [reply["counts"] for reply in replies]
        if refused:
            stop = min(refused)
            kept = [own[own < stop] for own in kept]
            gone = [end - len(own) for own, end in zip(kept, ends, strict=True)]
            if any(gone):
                counts = yield Ask("retract", {}, [{"updates": updates} for updates in gone])
            self.changes -= not any(map(len, kept))
        for shard, (own, whole, reply) in enumerate(zip(kept, owned, replies, strict=True)):
            for ours, name in ((admission.old, "old"), (admission.new, "new")):
                local = reply[name][: len(own)]
                ours[own] = np.where(local >= 0, self.owners.slots(local, shard), -1)
            if "born" in reply:
                deletes = own[admission.old[own] >= 0]
                self.births[deletes] = reply["born"][: len(deletes)]
            decided = whole[whole <= stop]  # with the one that is refused
            admission.fault[decided] = reply["fault"][: len(decided)]
        self.take(counts)
        return stop

    def _has_room_for(self, replies: Sequence[dict[str, Any]], make_room: Callable[[int], None] | None) -> bool:
        """Make room for the slots that owners have given; False if there is no memory."""
        if make_room is None:
            return True
        last = [self.owners.slots(reply["new"].max(initial=-1, keepdims=True), s) for s, reply in enumerate(replies)]
        try:
            make_room(1 + int(np.max(last)))
        except MemoryError:
            return False
        return True

    def release(self, slots: Slots) -> None:
        """Have the owners release the slots that a batch has emptied, with the first request of the next one."""
        self._emptied = self._emptied or len(slots) > 0

    def take_emptied(self) -> bool:
        """Whether the request that comes next, the first of a batch that deletes, has owners release slots before."""
        emptied, self._emptied = self._emptied, False
        return emptied

    def end_batch(self) -> Exchange[None]:
        """Have nothing wait any more: slots of deleted examples are free."""
        yield Tell("end_batch", {})
        self.inserts = self.deletes = 0

    def take(self, counts: Sequence[Any]) -> None:
        """Take note of how many examples the owners have (:meth:`OwnedRows.counts`)."""
        self.live, self.inserts, self.deletes = np.sum(counts, axis=0).tolist()


def _sent(batch: UpdateBatch, own: npt.NDArray[np.intp], admission: Admission) -> dict[str, Any]:
    """Return what an owner gets of its updates: ``y`` and ``weight`` are of those that carry a row."""
    op = batch.op[own]
    rows = admission.row[own[CARRIES_ROW[op]]]
    weight = None if batch.weight is None else batch.weight[rows]
    return {"op": op, "key": batch.id[own], "y": batch.y[rows], "weight": weight, "born": batch.start + own}

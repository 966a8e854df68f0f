"""The coordinator's half of rows that shards own: how many there are, who owns and hashes them, who admits what.

What an update does depends on the updates of the same id only, so every owner decides about its own
(:mod:`~raydt.examples.owned_rows`). The coordinator sends each its updates of a batch and gets their slots, in one
round; the first update that is refused is the first of any owner's, and the others then take back what they have done
after it.

Invariant: decisions are those of one :class:`~raydt.examples.store.ExampleStore`, whatever the number of shards; only
the slots are others (:class:`~raydt.examples.row_owners.RowOwners`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.digest import Part
from raydt.arrays.types import Arrays, Ints, Slots
from raydt.examples.admission import Admission
from raydt.examples.bucket_digest import joined_part
from raydt.examples.owned_rows import OwnedRows
from raydt.examples.row_owners import RowOwners
from raydt.examples.updates import CARRIES_ROW, DELETE_VALUE, QUERY, UNKNOWN_VALUE, UpdateBatch
from raydt.exchange.meeting import together
from raydt.exchange.messages import Ask, Exchange, Payload, Tell
from raydt.exchange.snapshot import OWNED


class OwnedStore:
    """Numbers of examples, and their owners.

    ``live``: live examples. ``inserts``, ``deletes``: those that wait for the end of a batch D'. ``uneven``: those that
    have another weight than 1, of all whose slots are not free. ``births``: of the examples that updates of the batch
    under way have deleted, by the update's position in the batch, if the owners tell them.
    """

    def __init__(self, rows: type[OwnedRows], shards: int) -> None:
        self.owners, self._rows = RowOwners(shards), rows
        self.live = self.inserts = self.deletes = self.uneven = 0
        self._leaving = 0  # of the uneven ones, those whose slots are free once the batch is over
        self.births: Ints = np.empty(0, dtype=np.int64)
        #: How often updates may have changed some examples.
        self.changes = 0
        self._emptied = False  # earlier batches have emptied slots that owners have not released
        self._known = self._restored = False  # the shards know which rows are theirs; of a state
        self._state: Arrays | None = None  # by row, until owners have it; none, if they read it themselves
        self._hashes: Sequence[Mapping[str, Any]] | None = None

    # ---------------------------------------------------------------- updates

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

    def delete(self, method: str, payload: Payload, each: Any, admission: Admission, position: int) -> Exchange[None]:
        """Have the shards find the oldest example that equals that of an update, by a pass, and its owner delete it.

        Each returns what ``OwningShard.delete_oldest`` does.
        """
        self.changes += 1  # before, so that a change that is broken off is counted
        ended = yield from together(method, payload, each)
        self.take([of_shard.result["counts"] for of_shard in ended])
        found = [of_shard.result for of_shard in ended if len(of_shard.result["slots"])]
        if not found:
            self.changes -= 1
            admission.fault[position] = UNKNOWN_VALUE
            return
        admission.old[position] = found[0]["slots"][0]
        if len(self.births):
            self.births[position] = found[0]["born"]

    def release(self, slots: Slots) -> None:
        """Have the owners release the slots that a batch has emptied, with the first request of the next one."""
        self._emptied = self._emptied or len(slots) > 0
        self._forget_leaving()

    def take_emptied(self) -> bool:
        """Return True if the next request, the first of a batch that deletes, has the owners release slots first."""
        emptied, self._emptied = self._emptied, False
        return emptied

    def end_batch(self) -> Exchange[None]:
        """Have nothing wait any more: slots of deleted examples are free."""
        yield Tell("end_batch", {})
        self.inserts = self.deletes = 0
        self._forget_leaving()

    def _forget_leaving(self) -> None:
        self.uneven, self._leaving = self.uneven - self._leaving, 0

    def take(self, counts: Sequence[Any]) -> None:
        """Take note of how many examples the owners have (:meth:`OwnedRows.counts`)."""
        self.live, self.inserts, self.deletes, self.uneven, self._leaving = np.sum(counts, axis=0).tolist()

    # ---------------------------------------------------------------- states and digests

    def counted(self) -> Ints:
        """Return the examples of a state as numbers, int64, shape (3,): live, to be inserted, to be deleted."""
        return np.array([self.live, self.inserts, self.deletes])

    def restore(self, state: Arrays) -> None:
        """Continue with the examples of a saved state, once :meth:`begin` has told the owners."""
        self.changes += 1
        self._known, self._restored, self._state = False, True, None
        if OWNED not in state:
            names = *self._rows.COLUMNS, *self._rows.LATER, "weight"
            self._state = {name: state[name] for name in names if name in state}
        self.take([[*(state[OWNED] if OWNED in state else self._rows.counts_of(state)), 0, 0]])

    def begin(self) -> Exchange[list[int] | None]:
        """Tell the shards which rows are theirs, once; after a restore, they take those of the state, or read them.

        Returns how many each then has, if there was a restore.
        """
        if self._known:
            return None
        shards, state = self.owners.shards, self._state
        given, each = dict[str, Any](shards=shards), [dict[str, Any](index=index) for index in range(shards)]
        if self._restored and state is None:
            counts = [of_shard.result for of_shard in (yield from together("read_own", given, each))]
        else:
            if state is not None:
                owner, given["slots"] = self.owners.of(state["id"]), self.owners.first_slots(state["id"])
                for index, payload in enumerate(each):
                    payload["rows"] = {name: array[owner == index] for name, array in state.items()}
            counts = yield Ask("own", given, each)
        self.take(counts)
        restored, self._known, self._restored, self._state = self._restored, True, False, None
        return [int(live + deletes) for live, _, deletes, *_ in counts] if restored else None

    def gather_hashes(self) -> Exchange[None]:
        """Have the owners hash their rows."""
        self._hashes = yield Ask("hash_rows", {"weighted": self.uneven > 0})

    def hashed(self) -> tuple[Arrays, Part]:
        """Return the columns of examples that wait to be deleted, and the part of all, after :meth:`gather_hashes`."""
        assert self._hashes is not None, "gather_hashes comes first"
        hashes, self._hashes = self._hashes, None
        return joined_part(hashes)


def _sent(batch: UpdateBatch, own: npt.NDArray[np.intp], admission: Admission) -> dict[str, Any]:
    """Return what an owner gets of its updates: ``y`` and ``weight`` are of those that carry a row."""
    op = batch.op[own]
    rows = admission.row[own[CARRIES_ROW[op]]]
    weight = None if batch.weight is None else batch.weight[rows]
    return {"op": op, "key": batch.id[own], "y": batch.y[rows], "weight": weight, "born": batch.start + own}

"""The work of a FuDyADT shard: its columns of every live row, and its half of a spread BUILD.

Beside the coordinator (:class:`FuDyADTShard`) it has no rows of its own, and BUILD is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.blocks import blocks, grown
from raydt.arrays.elementary import AnyArray, Arrays, Int32s, Ints, Slots
from raydt.batches.rows_on_shards import OwningShard
from raydt.examples.owned_rows import OwnedRows
from raydt.examples.row_owners import RowOwners
from raydt.examples.store import ExampleStore
from raydt.examples.updates import Features, dtype_of
from raydt.exchange.links import Steps
from raydt.exchange.meetings import AllGather
from raydt.exchange.messages import Buckets, FeatureReader, Payload
from raydt.learners.fudyadt.build import FETCHED, BuildOrder, begun, slots_of
from raydt.learners.fudyadt.options import FuDyADTOptions

# The rows that a shard of FuDyADT owns.
#
# The leaf of a row is with the coordinator, who walks the tree. It passes through here on its way to a state and back.

_NO_LEAVES: Int32s = np.empty(0, dtype=np.int32)


class TreeRows(OwnedRows):
    """An owner's examples, whose updates take effect at once."""

    TELLS_BIRTHS = True
    COLUMNS: ClassVar[tuple[str, ...]] = (*OwnedRows.COLUMNS, "leaf")
    ANSWERS: ClassVar[frozenset[str]] = OwnedRows.ANSWERS | {"leaves", "take_leaves"}

    def __init__(self, owners: RowOwners, index: int, target_dtype: np.dtype[Any]) -> None:
        super().__init__(owners, index, target_dtype)
        #: By local slot, as positions in preorder: of a state that was restored, or that is about to be set aside.
        self.leaf = _NO_LEAVES

    def live_ones(self, local: Slots) -> Slots:
        """Return those of some local slots that have a live row."""
        local = local[local < self.store.used]
        live: Slots = local[self.store.find(self.store.id[local]) == local]
        return live

    # ---------------------------------------------------------------- states

    def fill(self, rows: Mapping[str, AnyArray]) -> None:
        """As of all owners; the leaves wait for the coordinator."""
        super().fill(rows)
        self.leaf = rows.get("leaf", _NO_LEAVES)

    def leaves(self, begin: int, stop: int) -> Arrays:
        """Return leaf, label and weight of the rows in local slots from ``begin`` to before ``stop``, of a state."""
        part = slice(begin, min(stop, self.store.used))
        told: Arrays = {"leaf": self.leaf[part].copy(), "y": self.store.y[part].copy()}
        if self.store.uneven:
            told["weight"] = self.weights(np.arange(begin, part.stop, dtype=np.int32))
        if stop >= self.store.used:
            self.leaf = _NO_LEAVES
        return told

    def take_leaves(self, begin: int, leaf: Int32s) -> None:
        """Take leaves by local slot from ``begin`` on, for the state that is set aside next."""
        if begin == 0:
            self.leaf = np.full(self.store.used, -1, dtype=np.int32)
        part = leaf[: max(0, len(self.leaf) - begin)]  # an owner may have fewer slots than others
        self.leaf[begin : begin + len(part)] = part

    def changing(self, local: Slots) -> Arrays:
        """Return births and leaves."""
        return {**super().changing(local), "leaf": self.leaf[local]}

    def forget_leaves(self) -> None:
        """A state is set aside."""
        self.leaf = _NO_LEAVES


#: Labels of each shard that shards tell each other at once.
_TOLD = 1 << 18
#: Of fewer rows, as very many keys have, all columns are copied at once.
_FEW_ROWS = 256
_NO_NODES: AnyArray = np.empty(0, dtype=np.uint8)


class FuDyADTShard:
    """The only shard, in the coordinator's process, whose store has the rows: it reads and writes their features."""

    reader: FeatureReader | None = None

    def __init__(self, features: Features, groups: Ints, store: ExampleStore) -> None:
        self._features, self.groups, self._store = features, groups, store
        self.columns = features.columns_of(groups)

    def handle(self, method: str, payload: Payload) -> Any:
        """Nothing is asked."""
        raise NotImplementedError(method)

    def rows(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Columns ``X`` of some rows, by group."""
        owned = [self._features.group_columns(int(g)) for g in self.groups]
        if len(slots) < _FEW_ROWS:
            whole = self._store.X[slots]
            parts = [whole[:, columns[0] : columns[-1] + 1].copy() for columns in owned]
        else:
            parts = blocks(self._store.X, slots, owned)
        return {g: {"X": part} for g, part in zip(self.groups.tolist(), parts, strict=True)}

    def state(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Nothing: between two batches a shard knows rows only."""
        return {}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        for g in self.groups:  # which may be read one after the other
            X = state[int(g)]["X"]
            self._store.X[: len(X), self._features.group_columns(int(g))] = X


class OwningFuDyADTShard(OwningShard[TreeRows]):
    """A shard in a process of its own: it has its columns and the labels of every row, and owns the rows of buckets."""

    def __init__(self, options: FuDyADTOptions, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        self._categorical = features.kinds[self.columns].astype(np.bool_)
        self._dtype = dtype_of(options.numeric)
        self._labels: AnyArray = np.empty(0, dtype=self._dtype)  # by slot
        # The own rows of the last BUILD, which the coordinator fetches a part at a time: the first, and their nodes.
        self._first, self._node_of = 0, _NO_NODES

    def _no_rows(self) -> TreeRows:
        return TreeRows(self._owners, self._index, self._dtype)

    def restore(self, state: Mapping[Any, dict[str, Any]]) -> None:
        """Also forget the labels of other rows."""
        self._labels = self._labels[:0]
        super().restore(state)

    def state(self, slots: Slots) -> dict[int | Buckets, dict[str, Any]]:
        """Births and leaves of the own rows: leaves are the coordinator's, who has sent them just before."""
        state = super().state(slots)
        if self._rows is not None:
            self._rows.forget_leaves()
        return state

    def _on_rows(self, slots: Any, X: Any, indptr: Any = None, indices: Any = None, y: Any = None) -> None:
        """Keep new rows. A slot of a deleted row is not handed out again before this is acknowledged."""
        super()._on_rows(slots, X)
        self._keep_labels(slots, y)

    def _keep_labels(self, slots: Slots, y: AnyArray) -> None:
        """Keep the labels of rows in some slots, if there are columns that are sorted with them."""
        if not len(self.columns):
            return
        need = int(slots.max(initial=-1)) + 1
        if need > len(self._labels):
            self._labels = grown(self._labels, max(need, len(self._held.X)))
        self._labels[slots] = y

    def _on_labels(self) -> Steps[None]:
        """After a restore, take the labels of all rows from their owners."""
        rows, shards = self.rows_here, self._owners.shards
        most = max(int(used[0]) for used in (yield AllGather(np.array([rows.store.used]), shards)))
        for begin in range(0, most, _TOLD):
            own = rows.store.y[begin : min(begin + _TOLD, rows.store.used)]
            for shard, y in enumerate((yield AllGather(own, shards))):
                self._keep_labels(self._owners.slots(np.arange(begin, begin + len(y)), shard), y)

    def _on_delete_oldest(self, slots: Any, release: bool) -> Steps[dict[str, Any]]:
        """Find the oldest live row in some slots together with the other shards; its owner deletes it.

        ``release``: earlier batches are over.
        """
        rows = self.rows_here
        if release:
            rows.end_batch()
        return (yield from self.delete_oldest(*rows.oldest(rows.live_ones(rows.mine(slots)))))

    def _on_build(self, order: BuildOrder, place: tuple[int, int]) -> Steps[dict[str, AnyArray]]:
        """Make a BUILD with the other shards; returns the ``splits``, and :meth:`_on_nodes` of the first rows."""
        slots = slots_of(np.array(order.rows))
        self._held.make_room(slots)
        labels = self._labels[slots if len(self.columns) else slots[:0]]
        steps = begun(self._held.X, slots, labels, (self.columns, self._categorical), order, place)
        self._first, self._node_of, splits = yield from steps
        return {"splits": splits, "node_of": self._on_nodes(0)}

    def _on_nodes(self, begin: int) -> AnyArray:
        """Return the nodes of the own rows among :data:`FETCHED` ones from ``begin`` on."""
        place = max(0, begin - self._first), max(0, begin + FETCHED - self._first)
        nodes = self._node_of[slice(*place)]
        if place[1] >= len(self._node_of):
            self._node_of = _NO_NODES
        return nodes

"""The GBDT's half on a shard: it keeps columns of all rows, makes their bins, and trains on rows of its own.

Raw rows lie where their features do; as cells, a row lies with all its features at the shard that owns its slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.batches.binning import Bins, learn_bins
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards, ShardWithRows
from raydt.examples.features import Features
from raydt.exchange.meeting import GO_ON, Meeting, Steps
from raydt.exchange.messages import COMBINED, Payload
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.parallel.threads import limited

Slots = npt.NDArray[np.int32]

#: Cells whose bins one thread makes in less than it takes to hand them out.
FEW_CELLS = 1 << 16


class GBDTShard(ShardWithRows):
    """Owner of whole feature groups, and of the rows in some slots."""

    def __init__(self, options: GBDTOptions, features: Features, groups: npt.NDArray[np.int64]) -> None:
        super().__init__(features, groups)
        self._options, self._kinds = options, features.kinds[self.columns]
        self._meeting = Meeting()
        self._own: RowShard | None = None  # by local slot (``RowsOnShards.local``)
        self._sparse: list[tuple[Slots, RowBlock]] = []  # of rows whose cells are not complete

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request."""
        if method in (COMBINED, GO_ON):
            return self._meeting.receive(method, payload)
        return super().handle(method, payload)

    def state(self, slots: Slots) -> dict[int, dict[str, Any]]:
        """Nothing: histograms follow from rows, leaves and ledger."""
        return {}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._own = None
        self._held.restore(state)

    # ---------------------------------------------------------------- bins and cells

    def _on_learn(self, slots: Any) -> dict[str, Any]:
        """Make the bins from the rows of a training."""
        self._held.make_room(slots)
        indices, ones = np.unique(self._held.sparse(np.array(slots)).indices, return_counts=True)
        sparse = indices[ones < len(slots)]
        few = len(slots) * len(self._kinds) < FEW_CELLS
        with limited(1 if few else None):
            bins = learn_bins(self._held.X, self._kinds, self._options.max_bins, self._options.binning, sparse, slots)
        return bins.arrays()

    def _on_begin(self, bins: Any, shards: int, index: int, **given: Any) -> None:
        """Take the bins of all features and make room for trees; the first rows come next."""
        self._rows = RowsOnShards(self._features, shards)
        self._index, self._sparse, self._known = index, [], False
        ensemble = Ensemble(self._options, Bins.from_arrays(bins), **given, capacity=0)
        self._own = RowShard(ensemble, self._features)

    @property
    def own(self) -> RowShard:
        """The rows of this shard, once there is a model."""
        assert self._own is not None
        return self._own

    def _mine(self, slots: Any) -> Slots:
        """Local slots of the own ones of some slots."""
        slots = np.asarray(slots)
        return self._rows.local(slots[self._rows.shard_of(slots) == self._index])

    def _on_encode(self, slots: Any) -> Any:
        """Give every shard this one's columns of its rows, and encode the own rows."""
        return self._meeting.begin(self._encode(np.asarray(slots)))

    def _encode(self, slots: Slots) -> Steps[None]:
        parts = yield [self._held.gather(of_shard) for of_shard in self._rows.slots_of(slots)]
        mine = self._mine(slots)
        rows, cells = self._rows.merged(parts, len(mine)), self.own.cells
        self.own.ensemble.reserve(self._rows.local_capacity(int(slots.max(initial=-1)) + 1))
        if self._known:
            cells.add(mine, rows)
        else:
            cells.make_room(mine)
            cells.add_columns(mine, rows.X)
            self._sparse.append((mine, rows._replace(X=rows.X[:0].copy())))
        yield slots[:0]

    def _on_default_counts(self, slots: Any) -> npt.NDArray[np.int64]:
        """Of the own rows, how many have the default bin of each feature."""
        return self.own.cells.default_counts(self._mine(slots))

    def _on_choose(self, counts: Any, rows: int) -> None:
        """Choose the features of the matrix by the counts of all rows, and complete the cells."""
        self.own.cells.choose(counts, rows)
        for slots, ones in self._sparse:
            self.own.cells.arrange(slots, ones)
        self._sparse, self._known = [], True
        self.own.divide(self._index, len(self._rows.columns))

    # ---------------------------------------------------------------- passes

    def _on_take_targets(self, slots: Any, y: Any) -> None:
        """Keep the labels of rows."""
        mine = self._rows.shard_of(np.asarray(slots)) == self._index
        local, own = self._mine(slots), self.own
        if len(own.y) < own.ensemble.leaf.shape[1]:
            longer = np.zeros(own.ensemble.leaf.shape[1], dtype=np.asarray(y).dtype)
            longer[: len(own.y)] = own.y
            own.y = longer
        own.y[local] = np.asarray(y)[mine]

    def _on_train(self, slots: Any, first: int, stop: int) -> Any:
        """Train some iterations together with the other shards."""
        if first == 0:
            self._training = self._mine(slots), self.own.ensemble.origins(len(self._mine(slots)))
        return self._meeting.begin(self.own.train_steps(*self._training, first, stop))

    def _on_update(self, slots: Any, role: int, anew: Any) -> Any:
        """Take rows through all trees together with the other shards."""
        end = self.own.ensemble.leaf.shape[1]
        steps = self.own.update_steps(self._mine(slots), role, self._mine(anew), len(anew) > 0, 0, end)
        return self._meeting.begin(steps)

    def _on_updated(self) -> dict[str, Any]:
        """Return what the last update has counted, and which rows it took through the trees."""
        return {"counts": self._meeting.result, "taken": self._rows.slots(self.own.taken, self._index)}

    def _on_sum_up(self, slots: Any) -> Any:
        """Make all histograms together with the other shards."""
        return self._meeting.begin(self.own.sum_up_steps(self._mine(slots)))

    def _on_shorten(self, iterations: int) -> None:
        """Keep the first iterations only."""
        self.own.shorten(iterations)

    def _on_trees(self) -> list[npt.NDArray[Any]]:
        """Return the trees, if this is the first shard: all have the same."""
        return [array.copy() for array in self.own.ensemble.trees] if self._index == 0 else []

    def _on_restore_rows(self, trees: Any, slots: Any, y: Any, leaf: Any, ledger: Any, drift: Any) -> None:
        """Take trees, and leaves, ledger, drift and labels of the own rows in some slots."""
        e, local = self.own.ensemble, self._rows.local(np.asarray(slots))
        own: tuple[Any, ...] = e.trees
        for array, theirs in zip(own, trees, strict=True):
            array[:] = theirs
        e.leaf[:, local], e.ledger[:, local], e.drift[local] = leaf, ledger, drift
        self._on_take_targets(slots, y)

    def _on_rows_of_model(self) -> dict[str, Any]:
        """Return leaves, ledger and drift of all own rows in the model."""
        e = self.own.ensemble
        local = np.flatnonzero(e.leaf[0] != e.absent) if len(e.leaf) else np.empty(0, dtype=np.int64)
        slots = self._rows.slots(local, self._index)
        return {"slots": slots, "leaf": e.leaf[:, local], "ledger": e.ledger[:, local], "drift": e.drift[local]}

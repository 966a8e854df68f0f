"""Trainers: they train and update the trees of an ensemble, in the process of the shards or with separate shards.

Trees, leaves and ledger are at the coordinator. Training also needs every row as bins and the histogram of every inner
node. A :class:`LocalTrainer` keeps both itself and sends no message for a tree; with a :class:`DistributedTrainer` the
shards keep both. Nothing of that is saved.

Invariant: both leave the same ensemble, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.examples.features import Features
from raydt.exchange.messages import Exchange, Tell
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.local_driver import LocalTrees
from raydt.learners.gbdt.rebuild_histograms import sum_up
from raydt.learners.gbdt.training import HeldOut, train, train_here
from raydt.learners.gbdt.update import Counts, InPlaceUpdate
from raydt.learners.gbdt.window import INSERTED

Labels = npt.NDArray[Any]  # by slot
Slots = npt.NDArray[np.int32]


class LocalTrainer:
    """Does the work of all shards itself; it asks them only for the features of the first rows.

    Attributes
    ----------
    trees : LocalTrees
    """

    def __init__(self, ensemble: Ensemble, features: Features, rows: RowsOnShards) -> None:
        self.trees, self._features, self._rows = LocalTrees(ensemble, features), features, rows

    @property
    def ensemble(self) -> Ensemble:
        """The ensemble as it is now."""
        return self.trees.ensemble

    def encode(self, slots: Slots) -> Exchange[None]:
        """Encode the first rows of a new ensemble."""
        yield from self.trees.encode_first(slots, self._rows)

    def take(self, slots: Slots, rows: RowBlock) -> RowBlock | None:
        """Encode new rows. Returns the features that their insertion will need: none."""
        self.trees.cells.add(slots, rows)
        return None

    def train(self, y: Labels, slots: Slots, held_out: HeldOut | None) -> Exchange[None]:
        """Train all iterations on encoded rows; rows held out decide how many of them are kept."""
        yield from ()
        iterations = train_here(self.trees, slots, y, held_out)
        if iterations < self.ensemble.iterations:
            self.trees.shorten(self.ensemble.shortened(iterations))

    def update(
        self, y: Labels, slots: Slots, role: int, rows: RowBlock | None, anew: Slots
    ) -> Exchange[tuple[Counts, Slots]]:
        """Delete or insert rows (``role``), and compute all derivatives of the rows ``anew`` again.

        Returns its costs, and the slots of all rows that went through the trees, valid until the next update.
        """
        yield from ()
        counts = self.trees.update(y, slots, role, anew)
        return counts, self.trees.taken

    def extend(self, ensemble: Ensemble, y: Labels, held: Slots, new: Slots) -> Exchange[None]:
        """Continue with an ensemble of more classes, the same bins and the rows ``held``, before ``new`` come."""
        yield from ()
        self.trees = LocalTrees(ensemble, self._features, self.trees.cells)
        self.trees.sum_up(held, y)

    def resume(self, y: Labels, held: Slots, new: Slots) -> Exchange[RowBlock | None]:
        """After a restore: encode the rows ``held`` and sum up their histograms, and take those that wait, ``new``."""
        yield from self.encode(np.union1d(held, new).astype(np.int32))
        self.trees.sum_up(held, y)
        return None


class DistributedTrainer:
    """Has the shards encode rows, keep histograms and search for splits; parameters as of :class:`LocalTrainer`."""

    def __init__(self, ensemble: Ensemble, features: Features, rows: RowsOnShards) -> None:
        self.ensemble, self._features, self._rows = ensemble, features, rows

    def encode(self, slots: Slots) -> Exchange[None]:
        """Have the first rows of a new ensemble encoded."""
        yield Tell("begin", self.ensemble.begin())
        yield Tell("encode", {"slots": slots})

    def take(self, slots: Slots, rows: RowBlock) -> RowBlock | None:
        """Return the features that the insertion of new rows will need: all. The shards encode each row they get."""
        return rows

    def train(self, y: Labels, slots: Slots, held_out: HeldOut | None) -> Exchange[None]:
        """Train all iterations on encoded rows; rows held out decide how many of them are kept."""
        iterations = yield from train(self.ensemble, slots, y, held_out)
        if iterations < self.ensemble.iterations:
            self.ensemble = self.ensemble.shortened(iterations)
            yield Tell("shorten", {"trees": len(self.ensemble.leaf)})

    def update(
        self, y: Labels, slots: Slots, role: int, rows: RowBlock | None, anew: Slots
    ) -> Exchange[tuple[Counts, Slots]]:
        """As :meth:`LocalTrainer.update`; ``rows`` are the features of inserted rows, fetched if not given."""
        if role != INSERTED:
            rows = RowBlock.none(self._features)
        elif rows is None:
            rows = yield from self._rows.take(slots)
        update = InPlaceUpdate(self.ensemble, y, slots, role, rows, anew)
        counts = yield from update.run()
        return counts, update.taken

    def extend(self, ensemble: Ensemble, y: Labels, held: Slots, new: Slots) -> Exchange[None]:
        """Continue with an ensemble of more classes, the same bins and the rows ``held``, before ``new`` come."""
        self.ensemble = ensemble
        yield from sum_up(ensemble, held, y)
        yield Tell("encode", {"slots": new})

    def resume(self, y: Labels, held: Slots, new: Slots) -> Exchange[RowBlock | None]:
        """After a restore: encode the rows ``held`` and sum up their histograms, and take those that wait, ``new``."""
        yield from sum_up(self.ensemble, held, y)
        if not len(new):
            return None
        rows = yield from self._rows.take(new)
        yield Tell("encode", {"slots": new})
        return rows

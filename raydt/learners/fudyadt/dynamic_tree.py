"""The live tree with its examples, and how a subtree is rebuilt: here, here after gathering columns, or on the shards.

Where a rebuild is done depends on its size and on which features are at hand; what comes out does not.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.memory import empty, grown, trimmed
from raydt.arrays.types import Arrays, Floats, Int32s, Ints
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.examples.targets import dtype_of
from raydt.examples.updates import UpdateBatch
from raydt.examples.weighting import Weighting
from raydt.examples.weights import LARGEST_SUM, NO_WEIGHTS
from raydt.exchange.faults import fault
from raydt.exchange.meeting import together
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.build import NO_NUMBERS, BuildScratch, Listing, new_scratch
from raydt.learners.fudyadt.build_divided import DividedBuild, spare_nodes
from raydt.learners.fudyadt.build_sharded import FETCHED, BuildOrder, place_rows, slots_of, split_alike
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.presort import largest_build
from raydt.learners.fudyadt.update import Cached
from raydt.learners.rebuild_log import COORDINATOR, RESET, SHARDS, record
from raydt.learners.tree_coordinator import LiveTree, inserts_of
from raydt.messages import message
from raydt.trees.canonical_arrays import RANGE
from raydt.trees.counted_tree import WARMUP_LEFT, most_nodes, start_node, stays_leaf, with_room
from raydt.trees.records import NODES, Examples, link_members, mark_rows, take_rows
from raydt.trees.regression_sums import MOST_EXAMPLES, LabelRange, mass_ceilings
from raydt.trees.state_schema import UNIT_ARRAY
from raydt.trees.weighted_numbers import LARGEST_SUM as MOST_WEIGHT
from raydt.trees.weighted_numbers import sums_of

#: Cells of a rebuild up to which the compiled loop does it itself; larger ones are timed one by one.
LOOP_CELLS = 1 << 15
#: Cells up to which scratch is kept: fresh pages cost a third of a BUILD's time (16 MiB of elements).
KEPT_CELLS = 1 << 21
#: For so many shapes of trees.
KEPT_KINDS = 4
#: Rows fetched in one round when the cache is filled after a restore.
FETCHED_ROWS = 1 << 16
#: Rows that are put into the lists of their leaves at once.
PLACED_ROWS = 1 << 16


class _Kept(threading.local):
    """Scratch of a thread, by columns, classes and whether rows have weights."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[int, int, bool], BuildScratch] = {}


_KEPT = _Kept()


class FuDyADTTree(LiveTree):
    """The live tree, and the units of numeric labels, which grow together."""

    def __init__(self, features: Features, options: FuDyADTOptions, shards: int, plan: WorkPlan) -> None:
        label_range, d = options.declared_range(), len(features)
        self._fewest_classes = 2 if label_range is None else 1
        dtype = dtype_of(label_range is not None)
        store: Any = self._new_store(shards, d, plan.row_cache_bytes, dtype)
        weighting = Weighting(options.class_weight == "balanced", LARGEST_SUM if label_range is None else MOST_WEIGHT)
        super().__init__(features, options.rules(), store, weighting, self._fewest_classes)
        self.plan, self._options = plan, options
        self.label_range = label_range  #: Of numeric labels, also if it is not known yet; with classes None.
        self.units = NO_NUMBERS  #: Numeric labels by slot, in units of their range; with classes it is empty.
        self.columns = [features.columns_of(owned) for owned in features.assign(shards)]
        self._labels_sent = True  # the shards have the labels of all live rows
        self.loop_rows = max(16, LOOP_CELLS // max(1, d))  #: Largest rebuild the compiled loop does itself.
        if label_range is not None:
            self._take_range(label_range)
        self._rows_to_fetch = 0
        self.keeps, self._most_kept = True, store.max_cached  #: Whether features are kept here; of how many slots.

    def _new_store(self, shards: int, columns: int, cache_bytes: int | None, dtype: np.dtype[Any]) -> Any:
        return ExampleStore(columns, cache_bytes, dtype)

    @property
    def examples(self) -> Examples:
        """The live examples, for kernels; numeric labels are in units."""
        y = self.store.y if self.label_range is None else self.units
        return Examples(self.members, y, self.store.born)

    @property
    def cached(self) -> Cached:
        """The features at hand, for kernels."""
        return Cached(self.store.X, self.categorical, self.weights)

    @property
    def weighted(self) -> bool:
        """Whether nodes count weights."""
        return self.rules.unit > 1

    def make_room(self, batch: UpdateBatch) -> None:
        """Make room for rows and classes of a batch; InputError, before any change, if one BUILD cannot take them."""
        inserts, classes = inserts_of(batch), max(self._fewest_classes, batch.n_classes)
        numeric = self.label_range is not None
        limit = MOST_EXAMPLES if numeric else largest_build(classes)
        if self.store.live + inserts > limit:
            what = "with numeric labels" if numeric else f"of {batch.n_classes:,} classes"
            raise InputError(message("learners.examples", examples=self.store.live + inserts, what=what, most=limit))
        self.reserve(inserts)
        if classes > self.tree.counts.shape[1]:
            self.tree = with_room(self.tree, 0, classes)

    def _follow_store(self) -> None:
        super()._follow_store()
        if self.label_range is not None and len(self.units) < self.store.capacity:
            self.units = grown(self.units, self.store.capacity)

    def trim(self) -> None:
        """Give up room for more examples and nodes."""
        super().trim()
        self.units = trimmed(self.units, self.store.capacity)

    @property
    def takes_rows(self) -> bool:
        """Whether a tree of classes that counts rows can be updated with what is here, by an example at a time."""
        here = not self.weighted and self.keeps and self._most_kept is None and not self._rows_to_fetch
        if not here or self.label_range is not None or self.tree.reg[WARMUP_LEFT]:
            return False
        return self.store.live < largest_build(self.tree.counts.shape[1])

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..."""
        self.keeps, self.store.max_cached = True, self._most_kept
        self.rules = self._options.rules()
        if UNIT_ARRAY.name in state:
            self._count_masses()
        super().restore(state)
        if self.label_range is not None:
            self._take_range(LabelRange.of(*state[RANGE].tolist()))

    def count_in_units(self, slots: Int32s) -> None:
        """Bring numeric labels of new examples into units."""
        if self.label_range is not None:
            self.units[slots] = self.label_range.units(self.store.y[slots])

    def _count_masses(self) -> None:
        self.rules = self._options.weighed(self.rules)

    def end_warmup(self, seq: int) -> None:
        """Take the range of numeric labels and balanced weights from the one leaf, before update ``seq``."""
        self.balance(seq)
        if self.label_range is None or self.label_range.known:
            return
        slots = self.rows_of(0)
        self._take_range(LabelRange.seen(self.store.y[slots]))
        if self.weighted:
            self.tree.sums[0] = sums_of(self.units[slots], self.weights[slots])
            return
        units = self.units[slots].astype(np.int64)
        self.tree.sums[0] = units.sum(), (units * units).sum()
        self.tree.statistics["pairs"][:1] = mass_ceilings(self.tree.counts[:1, 0], self.tree.sums[:1])

    def _take_range(self, label_range: LabelRange) -> None:
        """Count the labels of all slots in units of a range."""
        self.label_range = label_range
        weighted, self.rules = self.weighted, self._options.rules_of(label_range)
        if weighted:
            self._count_masses()
        used = self.store.used
        self.units = empty(self.store.capacity, dtype=np.int32)
        self.units[:used] = label_range.units(self.store.y[:used])

    def drop_features(self) -> None:
        """Keep no features here, as the shards have read those of the warm-up, until :meth:`fill_cache`."""
        self.keeps, self.store.max_cached, self.store.X = False, 0, self.store.X[:0]

    def fill_cache(self) -> Exchange[None]:
        """Fetch the features of cached rows from the shards, after a restore or a warm-up that they have read."""
        store = self.store
        if not self.keeps:
            self.keeps, store.max_cached = True, self._most_kept
            store.X = grown(
                store.X, store.capacity if self._most_kept is None else min(store.capacity, self._most_kept)
            )
            self._rows_to_fetch = min(store.used, len(store.X))
        for begin in range(0, self._rows_to_fetch, FETCHED_ROWS):
            slots = np.arange(begin, min(begin + FETCHED_ROWS, self._rows_to_fetch), dtype=np.int32)
            for columns, reply in zip(self.columns, (yield Ask("gather", {"slots": slots})), strict=True):
                self.store.X[np.ix_(slots, columns)] = reply
        self._rows_to_fetch = 0

    def rebuild(self, node: int, stamp: int, log: npt.NDArray[np.void]) -> Exchange[None]:
        """Rebuild one subtree, wherever its features are."""
        began = time.perf_counter()
        n, depth = int(self.tree.statistics["pairs" if self.weighted else "n"][node]), self.tree.nodes["depth"][node]
        here = self.weighted or n * len(self.features) < self.plan.local_work_limit  # shards know no weights
        if here:
            room = most_nodes(n, depth, self.rules) + spare_nodes(n, len(self.features))
            self.tree = with_room(self.tree, room, self.tree.counts.shape[1])
        stays = bool(stays_leaf(self.tree, node, self.rules))
        rows: Any = self._taken(node, n) if here else self._marked(node)
        before = int(self.tree.reg[NODES])
        if stays:
            place = RESET
            start_node(self.tree, node, stamp, self.rules)
            for begin in range(0, len(rows), FETCHED_ROWS):
                some = rows[begin : begin + FETCHED_ROWS]
                slots = some if here else slots_of(some) + np.int32(8 * begin)
                self.members["leaf"][slots] = node
                link_members(self.tree, self.members, slots)
        elif here:
            place = COORDINATOR
            X, places = yield from self._features_of(rows)
            fault("coordinator.local_rebuild")
            self._build(node, X, places, rows, stamp)
        else:
            place = SHARDS
            yield from self._spread(node, rows, stamp)
        nodes = int(self.tree.reg[NODES]) - before + 1
        record(self.tree, log, node, stamp, n, nodes, place, time.perf_counter() - began)

    def _taken(self, node: int, n: int) -> Int32s:
        """Take the ``n`` rows below a node out of their lists, and return their slots."""
        slots = np.empty(n, dtype=np.int32)
        take_rows(self.tree, self.members, node, slots)
        slots.sort()  # reads memory in order; the result does not depend on it
        return slots

    def _marked(self, node: int) -> npt.NDArray[np.uint8]:
        """Take the rows below a node out of their lists, and return a bit for each slot."""
        bits = np.zeros((self.store.used + 7) // 8, dtype=np.uint8)
        mark_rows(self.tree, self.members, node, bits)
        return bits

    @property
    def scratch(self) -> BuildScratch:
        """Scratch of this thread for the rebuilds of the compiled loop; all trees use it in turn."""
        return self._scratch_for(self.loop_rows)

    def _scratch_for(self, rows: int) -> BuildScratch:
        """Scratch of this thread for a BUILD; that of a very large one is not kept."""
        d, kept = len(self.features), _KEPT.kinds
        kind = d, self.tree.counts.shape[1], self.weighted
        found = kept.get(kind)
        if found is not None and rows <= len(found.spare):
            return found
        if rows * d > KEPT_CELLS and rows > self.loop_rows:
            return new_scratch(rows, *kind)
        if found is None and len(kept) >= KEPT_KINDS:
            kept.clear()
        more = rows if rows <= self.loop_rows else min(2 * rows, KEPT_CELLS // d)
        found = kept[kind] = new_scratch(more, *kind)
        return found

    def _build(self, node: int, X: Floats, rows: Int32s, slots: Int32s, stamp: int) -> None:
        labels, numbers = self.examples.y[slots].astype(np.int32, copy=False), NO_NUMBERS
        if self.label_range is not None:
            labels, numbers = np.zeros(len(slots), dtype=np.int32), labels
        weights = self.cached.weight[slots] if self.weighted else NO_WEIGHTS
        listing = Listing(X, self.categorical, rows, slots, labels, numbers, weights)
        scratch = self._scratch_for(len(slots))
        DividedBuild(self.tree, self.members, listing, self.rules, stamp, scratch).run(node)

    def _features_of(self, slots: Int32s) -> Exchange[tuple[Floats, Int32s]]:
        """A matrix and the row in it of each slot; columns of uncached rows are gathered in one round."""
        cached = slots < len(self.store.X)
        if cached.all():
            return self.store.X, slots
        X = np.empty((len(slots), len(self.features)))
        X[cached] = self.store.X[slots[cached]]
        replies = yield Ask("gather", {"slots": slots[~cached]})
        for columns, reply in zip(self.columns, replies, strict=True):
            X[np.ix_(np.flatnonzero(~cached), columns)] = reply
        return X, np.arange(len(slots), dtype=np.int32)

    def _spread(self, root: int, rows: npt.NDArray[np.uint8], stamp: int) -> Exchange[None]:
        """BUILD on the shards, which meet twice a level; what is left of little work is finished here.

        Of the rows there is only a bit of each slot, and the nodes of :data:`FETCHED` ones: no array of all of them.
        """
        if not self._labels_sent:
            yield from together("labels", {})
            self._labels_sent = True
        start_node(self.tree, root, stamp, self.rules)
        order = BuildOrder(
            rows,
            self.tree.counts[root].copy(),
            self.tree.sums[root].copy(),
            int(self.tree.nodes["depth"][root]),
            self.rules,
            None if self.label_range is None else (self.label_range.low, self.label_range.high),
            -(-self.plan.local_work_limit // max(1, len(self.features))),
        )
        shards = len(self.columns)
        ended = yield from together("build", {"order": order}, [{"place": (s, shards)} for s in range(shards)])
        splits = ended[0].result["splits"]
        self.tree, made, nodes = split_alike(self.tree, root, splits, self.rules, stamp)
        waits = np.full(len(self.tree.nodes), -1, dtype=np.int32)  # number of a node among those that are open
        waits[nodes] = np.arange(len(nodes))
        most = int(self.tree.statistics["n"][nodes].sum())
        found = np.zeros(1, dtype=np.int64), np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int32)
        slot, parts = 0, [one.result["node_of"] for one in ended]
        for fetched in range(0, int(order.counts.sum()), FETCHED):
            parts = parts if fetched == 0 else (yield Ask("nodes", {"begin": fetched}))
            for node_of in parts:
                for begin in range(0, len(node_of), PLACED_ROWS):  # of one type, whatever the numbers
                    some = node_of[begin : begin + PLACED_ROWS].astype(np.int32)
                    slot = int(place_rows((self.tree, self.members), (rows, slot), some, made, waits, found))
        if len(nodes):
            yield from self._finish_open(nodes, found[1], found[2], stamp)

    def _finish_open(self, nodes: Ints, slots: Int32s, node_of: Int32s, stamp: int) -> Exchange[None]:
        """Build the subtrees of the nodes that are still open from the rows in them; ``node_of`` indexes ``nodes``."""
        order = np.argsort(node_of, kind="stable")
        slots, node_of = slots[order], node_of[order]
        X, rows = yield from self._features_of(slots)
        stops = np.cumsum(np.bincount(node_of, minlength=len(nodes)))
        for node, begin, stop in zip(nodes.tolist(), [0, *stops[:-1].tolist()], stops.tolist(), strict=True):
            room = most_nodes(stop - begin, self.tree.nodes["depth"][node], self.rules)
            room += spare_nodes(stop - begin, len(self.features))
            self.tree = with_room(self.tree, room, self.tree.counts.shape[1])
            self._build(node, X, rows[begin:stop], slots[begin:stop], stamp)

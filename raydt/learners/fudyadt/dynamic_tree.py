"""The live tree with its examples, and how a subtree is rebuilt: here, here after gathering columns, or on the shards.

Where a rebuild is done depends on its size and on which features are at hand; what comes out does not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, grown, trimmed
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import kernel
from raydt.batches.rows_on_shards import RowsOnShards
from raydt.errors import InputError
from raydt.examples.store import ExampleStore, Weighting
from raydt.examples.updates import LARGEST_SUM, NO_WEIGHTS, Features, UpdateBatch, dtype_of
from raydt.exchange.links import together
from raydt.exchange.messages import Ask, Exchange, fault
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import ADD, COORDINATOR, LOOK, REMOVE, RESET, SHARDS, record
from raydt.learners.fudyadt.build import (
    FETCHED,
    NO_NUMBERS,
    BuildOrder,
    BuildScratch,
    Listing,
    build,
    new_scratch,
    place_rows,
    slots_of,
    split_alike,
)
from raydt.learners.fudyadt.build_divided import DividedBuild, spare_nodes
from raydt.learners.fudyadt.histograms import largest_build
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.tree_coordinator import (
    LiveTree,
    inserts_of,
)
from raydt.messages import message
from raydt.parallel import work_seconds
from raydt.trees.canonical_arrays import RANGE, predict_mean, predict_smoothed, route
from raydt.trees.counted_tree import (
    ABOVE,
    BELOW,
    HIT,
    HITS,
    MOST_EXAMPLES,
    MOST_UNITS,
    UNBORN,
    WARMUP_LEFT,
    LabelRange,
    add_numbers,
    climb,
    count_example,
    mass_ceilings,
    mean_at,
    most_nodes,
    rows_at,
    start_node,
    stays_leaf,
    with_room,
)
from raydt.trees.counted_tree import LARGEST_SUM as MOST_WEIGHT
from raydt.trees.records import (
    NODES,
    Examples,
    level_at,
    link,
    link_members,
    majority,
    mark_rows,
    mass_of,
    take_rows,
    unlink,
)
from raydt.trees.state_schema import UNIT_ARRAY

# UPDATE (Algorithm 1) over a batch: one compiled loop that stops only for rebuilds it should not do itself.


class Cached(NamedTuple):
    """Features at hand: ``X``, shape (cached slots, d), by slot; which columns are categorical; and weights."""

    X: Floats
    categorical: Bools
    weight: npt.NDArray[np.uint32]  #: By slot, in units; not looked at where the rules know no weights.


class BatchSteps(NamedTuple):
    """Steps of a batch (``STEP``), the matrix that ``row`` of a step refers to, and room for predictions.

    ``means``, shape (steps,), gets those of numeric labels, as means in units: NaN where none is made, -1 in a tree
    without examples. With classes it is empty. ``births``, shape (steps,), are those of the examples that are deleted;
    it is empty where ``examples`` have them by slot.
    """

    steps: npt.NDArray[np.void]
    X: Floats
    means: Floats
    births: Ints


@kernel
def advance(
    tree: Any, examples: Any, cached: Any, batch: Any, begin: int, rules: Any, scratch: Any, log: Any, most_rows: int
) -> tuple[int, int]:
    """Take the steps of ``batch`` from ``begin`` on.

    Rebuilds of up to ``most_rows`` rows whose features are all cached are done here. At any other the loop stops after
    the step's counting: the caller rebuilds and continues with the next step. Returns the step, and the node of which a
    rebuild is due; ``(len(steps), -1)`` at the end.
    """
    reg = tree.reg
    numeric = tree.counts.shape[1] == 1
    steps, members, y = batch.steps, examples.members, examples.y
    for i in range(begin, len(steps)):
        kind = steps[i].kind
        slot = steps[i].slot
        weight = np.int64(1) if kind == LOOK else mass_of(cached.weight, slot)
        if kind == REMOVE:
            if weight == 0:
                continue
            leaf = unlink(tree, members, slot)
            born = batch.births[i] if len(batch.births) > 0 else examples.born[slot]
            by, birth = -weight, 2 * born + 1
        else:
            leaf = route(tree, cached.categorical, batch.X, steps[i].row, kind == ADD and weight > 0)
            if numeric:
                if reg[WARMUP_LEFT] == 0 and rules.smoothing > 0.0:
                    label, told = 0.0, 0.0
                    if kind == ADD and rules.epsilon > 0.0:
                        label, told = np.float64(y[slot]), np.float64(weight) / np.float64(rules.unit)
                    at = cached.categorical, batch.X, steps[i].row
                    batch.means[i] = predict_mean(tree, *at, rules.smoothing, scratch.shares, label, told)
                elif reg[WARMUP_LEFT] == 0:
                    batch.means[i] = mean_at(tree, leaf)
            elif kind == LOOK or reg[WARMUP_LEFT] == 0:
                if rules.smoothing > 0.0:
                    learned = np.int64(y[slot]) if kind == ADD and weight > 0 and rules.epsilon > 0.0 else np.int64(-1)
                    at = cached.categorical, batch.X, steps[i].row
                    gain = HIT * weight // rules.unit
                    found = predict_smoothed(tree, *at, rules.smoothing, scratch.shares, learned, gain)
                    steps[i].prediction, steps[i].level = found
                else:
                    steps[i].prediction = tree.nodes[leaf].label
                    steps[i].level = level_at(tree.counts, leaf)
            if kind == LOOK:
                continue
            if weight > 0:
                link(tree, members, leaf, slot)
            else:
                members[slot].leaf = -1  # a row that counts nothing is in no leaf
                if reg[WARMUP_LEFT] == 0:
                    continue
            by, birth = weight, UNBORN
        k = np.int64(y[slot])
        if weight > 0:
            steps[i].path = tree.nodes[leaf].depth + 1
        if reg[WARMUP_LEFT] > 0:
            if weight > 0:
                count_example(tree, leaf, k, by, rules)
                tree.nodes[leaf].label = majority(tree.counts, leaf)
            if kind == ADD:
                reg[WARMUP_LEFT] -= 1
            if reg[WARMUP_LEFT] > 0:
                continue
            return i, np.int64(0)
        if numeric and not 0 <= k <= MOST_UNITS:  # the caller takes another range, and builds the whole tree
            count_example(tree, np.int64(0), np.int64(0), by, rules)
            return i, np.int64(0)
        node = climb(tree, leaf, k, by, birth, rules)
        if numeric and node == 0:
            return i, node
        if numeric:
            pass  # no class is in the majority
        elif kind == REMOVE or tree.counts[leaf, k] >= tree.counts[leaf, tree.nodes[leaf].label]:
            tree.nodes[leaf].label = majority(tree.counts, leaf)
        if node < 0:
            continue
        n = rows_at(tree, node, rules)
        stamp = steps[i].stamp
        # A leaf that BUILD would leave a leaf is only started again: its list and its counts are right already.
        if tree.nodes[node].feature < 0 and stays_leaf(tree, node, rules):
            head = tree.nodes[node].head
            start_node(tree, node, stamp, rules)
            tree.nodes[node].head = head
            record(tree, log, node, stamp, n, np.int64(1), np.int64(RESET), 0.0)
            continue
        # The caller has the shards build what is large, and makes room for nodes, which may move the arrays.
        if n > most_rows or len(tree.nodes) - reg[NODES] < most_nodes(n, tree.nodes[node].depth, rules):
            return i, node
        slots, labels = scratch.slots[:n], scratch.labels[:n]
        take_rows(tree, members, node, slots)
        for r in range(n):
            if slots[r] >= len(cached.X):
                for q in range(n):  # features not at hand: hand the rows back as one leaf
                    link(tree, members, node, slots[q])
                return i, node
            labels[r] = y[slots[r]]
            if numeric:
                scratch.numbers[r], labels[r] = labels[r], 0
            if rules.unit > 1:
                scratch.weights[r] = cached.weight[slots[r]]
        listing = Listing(cached.X, cached.categorical, slots, slots, labels, scratch.numbers, scratch.weights)
        before = reg[NODES]
        build(tree, members, node, listing, rules, stamp, scratch)
        record(tree, log, node, stamp, n, reg[NODES] - before + 1, np.int64(COORDINATOR), 0.0)
    return len(steps), -1


#: Cells of a rebuild up to which the compiled loop does it itself; larger ones are timed one by one.
LOOP_CELLS = 1 << 15
#: Cells up to which scratch is kept: fresh pages cost a third of a BUILD's time (16 MiB of elements).
KEPT_CELLS = 1 << 21
#: For so many shapes of trees.
KEPT_KINDS = 4
#: Rows of a tree in which most batches build the root: room is made for its nodes ahead.
FEW_ROWS = 1 << 8
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
        self.on_shards, self._shards = RowsOnShards(features, shards), shards  #: The rows that are not here.
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
        """True if nodes count weights."""
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

    def has_room(self, inserts: int) -> bool:
        """Return True if a batch of so many insertions makes nothing grow; of few rows whatever is built of them."""
        store, tree = self.store, self.tree
        rows = store.live + inserts
        if store.used + inserts > store.capacity or 3 * rows > 2 * len(store.table):
            return False
        return rows > FEW_ROWS or len(tree.nodes) - tree.reg[NODES] >= self._nodes_of(rows)

    def make_nodes(self, inserts: int) -> None:
        """Make room for what a batch of so many insertions builds of few rows: a stop takes longer than they do."""
        rows = self.store.live + inserts
        if rows <= FEW_ROWS:
            more = self._nodes_of(max(rows, min(self.store.capacity, FEW_ROWS // 4)))
            self.tree = with_room(self.tree, more + more // 8, self.tree.counts.shape[1])

    def _nodes_of(self, rows: int) -> int:
        """Return how many nodes a tree of so many rows has at most."""
        return min(2 * rows, 2 << min(40, self.rules.max_depth))

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
        """True if a tree of classes that counts rows can be updated with what is here, by an example at a time."""
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

    def count_in_units(self, slots: Any) -> None:
        """Bring numeric labels of new examples into units; after the warm-up some may wait for another range."""
        if self.label_range is None:
            return
        y = self.store.y[slots]
        units = self.label_range.units(y)
        if self._options.label_range is None and self.tree.reg[WARMUP_LEFT] == 0:
            units[~(y >= self.label_range.low)] = BELOW
            units[y > self.label_range.high] = ABOVE
        self.units[slots] = units

    def _count_masses(self) -> None:
        self.rules = self._options.weighed(self.rules)

    def _find_range(self, rows: AnyArray) -> None:
        """Take the range of the labels in ``rows``, which are all, and count these again at the root."""
        ends = [end(self.store.y[slots]) for slots in _in_parts(rows) if len(slots) for end in (np.min, np.max)]
        before, found = self.label_range, LabelRange.seen(np.array(ends))
        assert before is not None
        self._take_range(found)
        self.tree.reg[HITS:] = found.converted(self.tree.reg[HITS:], before)
        self.tree.sums[0] = 0
        for slots in _in_parts(rows):
            add_numbers(self.tree.sums, np.int64(0), self.units, self.weights, slots)
        if not self.weighted:
            self.tree.statistics["pairs"][:1] = mass_ceilings(self.tree.counts[:1, 0], self.tree.sums[:1])
        self.count_in_units(slice(0, self.store.used))

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
            self.store.X[slots] = (yield from self.on_shards.take(slots)).X
        self._rows_to_fetch = 0

    def rebuild(self, node: int, stamp: int, log: npt.NDArray[np.void]) -> Exchange[None]:
        """Rebuild one subtree, wherever its features are."""
        began = work_seconds()
        n, depth = int(self.tree.statistics["pairs" if self.weighted else "n"][node]), self.tree.nodes["depth"][node]
        here = self.plan.shared_store or n * len(self.features) < self.plan.local_work_limit
        here = here or self.weighted  # shards know no weights
        if here:
            room = most_nodes(n, depth, self.rules) + spare_nodes(n, len(self.features))
            self.tree = with_room(self.tree, room, self.tree.counts.shape[1])
        rows: Any = self._taken(node, n) if here else self._marked(node)
        if node == 0 and self.label_range is not None and self._options.label_range is None:
            self._find_range(rows)
        before = int(self.tree.reg[NODES])
        if stays_leaf(self.tree, node, self.rules):
            place = RESET
            start_node(self.tree, node, stamp, self.rules)
            for slots in _in_parts(rows):
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
        record(self.tree, log, node, stamp, n, nodes, place, work_seconds() - began)

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

    def scratch(self, rows: int) -> BuildScratch:
        """Scratch of this thread for a BUILD, which all trees use in turn; that of a very large one is not kept."""
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
        scratch = self.scratch(len(slots))
        DividedBuild(self.tree, self.members, listing, self.rules, stamp, scratch).run(node)

    def _features_of(self, slots: Int32s) -> Exchange[tuple[Floats, Int32s]]:
        """A matrix and the row in it of each slot; columns of uncached rows are gathered in one round."""
        cached = slots < len(self.store.X)
        if cached.all():
            return self.store.X, slots
        X = np.empty((len(slots), len(self.features)))
        X[cached] = self.store.X[slots[cached]]
        X[~cached] = (yield from self.on_shards.take(slots[~cached])).X
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
        shards = self._shards
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


def _in_parts(rows: AnyArray) -> Iterator[Int32s]:
    """Yield some slots after others, of slots or of a bit for each."""
    for begin in range(0, len(rows), FETCHED_ROWS):
        some = rows[begin : begin + FETCHED_ROWS]
        yield slots_of(some) + np.int32(8 * begin) if rows.dtype == np.uint8 else some

"""The coordinator of the sparse tree: processes windows of updates with the shards, and rebuilds split nodes.

In one round shards change the structures along every path of a window, as if none of its steps changed the tree, and
answer with the first step after which a candidate beats a split. Later steps are rolled back, the root-most node found
there, or an ancestor of its size, is rebuilt (``coordinator_build``), and the next window begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import is_one
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Ints, Slots
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.errors import ConfigError, InputError
from raydt.examples.store import ExampleStore, Weighting
from raydt.examples.updates import Admission, BatchResult, Features, Log, UpdateBatch
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.finders.finder import best_candidates, table_of, xlogx_table
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, SHARDS, enter_steps, logged, new_log, record, steps_of
from raydt.learners.sparse_tree.build import MISSING, WatchRules, keep_leaves, must_be_leaf
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.learners.tree_coordinator import LiveTree, TreeCoordinator, inserts_of
from raydt.messages import message
from raydt.parallel import work_seconds
from raydt.trees.canonical_arrays import passes_left, side_of_missing
from raydt.trees.counted_tree import TO_RIGHT, UNDECIDED, WARMUP_LEFT, start_node, target_of, with_room
from raydt.trees.packed_trees import TreePredictor
from raydt.trees.records import (
    NODES,
    count_path,
    level_at,
    link,
    link_members,
    list_nodes,
    majority,
    mass_of,
    split_node,
    take_rows,
    unlink,
)
from raydt.trees.state_schema import unit_of

# The coordinator's half of an update: rows are routed, counted along their paths, and listed in their leaves.
#
# A window of steps is taken as if no node had to be rebuilt, and rolled back after the first that shows otherwise
# (``speculation``). It ends with a step that decides sides of missing numbers, which are provisional until it is final.
# Class counts are kept at all nodes, not only at leaves. Where they are masses (``raydt.trees.records``), ``pairs``
# counts the rows of a node, and a row that weighs 0 is in no leaf (-1).

#: What a provisional side of missing numbers adds to the side.
PROVISIONAL = 2


class WeighedRows(NamedTuple):
    """The units of rows."""

    weight: npt.NDArray[np.uint32]  #: By slot, in units; empty while counts are numbers of rows.
    #: Size below which nodes are leaves, if a node has to be rebuilt, too, that has passed it since BUILD; 0: not.
    size: int


class StepRules(NamedTuple):
    """The options by which steps are taken."""

    categorical: Bools  #: Shape (dense features,).
    watch: WatchRules
    scheduled: bool  #: Whether a node must be rebuilt that took more than epsilon * s updates, too.
    weighed: WeighedRows
    watched: bool  #: Otherwise (in a warm-up) nothing is predicted or tested, and c stays.


@kernel
def route(tree: Any, categorical: Any, rows: Any, row: int) -> int:
    """Leaf of one row of ``Rows``. A sparse feature that is 0 goes left. O(depth log ones)."""
    node, dense = 0, len(categorical)
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        if j < dense:
            left = passes_left(tree, node, rows.X[row, j], categorical[j])
        else:
            left = not is_one(rows.indices, rows.indptr[row], rows.indptr[row + 1], j - dense)
        node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
    return node


@inner_kernel
def _decide(tree: Any, dense: int, rows: Any, row: int, leaf: int) -> bool:
    """Decide the sides of missing numbers that a row is the first to lack; whether there are any."""
    decided = False
    node = np.int64(tree.nodes[leaf].parent)
    while node >= 0:
        j = tree.nodes[node].feature
        if j < dense and tree.nodes[node].missing == UNDECIDED and rows.X[row, j] != rows.X[row, j]:
            tree.nodes[node].missing = side_of_missing(tree, node) + PROVISIONAL
            decided = True
        node = np.int64(tree.nodes[node].parent)
    return decided


@inner_kernel
def _end_decision(tree: Any, leaf: int, stays: bool) -> None:
    """Make the provisional sides of a path final, or undecided."""
    node = np.int64(tree.nodes[leaf].parent)
    while node >= 0:
        side = np.int64(tree.nodes[node].missing)
        if side > TO_RIGHT:
            tree.nodes[node].missing = side - PROVISIONAL if stays else UNDECIDED
        node = np.int64(tree.nodes[node].parent)


@kernel
def walk(
    tree: Any, examples: Any, rows: Any, steps: Any, leaf_of: Any, begin: int, stop: int, rules: Any
) -> tuple[int, int]:
    """Take steps from ``begin`` to before ``stop``, or through the first after which a node must be rebuilt.

    That is an inner node that must be a leaf, or one that is due by the schedule. A step that decides a side of missing
    numbers is the last, too. ``leaf_of`` takes the leaf of each
    step. Returns the step after the last that was taken, and the root-most such node, -1 if there is none.
    """
    for i in range(begin, stop):
        kind, slot = steps[i].kind, steps[i].slot
        if kind == REMOVE:
            leaf = np.int64(examples.members[slot].leaf)
        else:
            leaf = route(tree, rules.categorical, rows, np.int64(steps[i].row))
            if rules.watched or kind == LOOK:
                steps[i].prediction, steps[i].level = majority(tree.counts, leaf), level_at(tree.counts, leaf)
            if kind == ADD:
                if mass_of(rules.weighed.weight, slot) == 0:
                    leaf = np.int64(-1)
                examples.members[slot].leaf = leaf
        leaf_of[i] = leaf
        if kind == LOOK or leaf < 0:
            continue
        mass = mass_of(rules.weighed.weight, slot)
        by, row = (mass, 1) if kind == ADD else (-mass, -1)
        decided = kind == ADD and _decide(tree, len(rules.categorical), rows, np.int64(steps[i].row), leaf)
        count_path(tree, leaf, examples.y[slot], by)
        broken = -1  # the last one found is the root-most, as the path is taken from the leaf up
        node = leaf
        while node >= 0:
            if len(rules.weighed.weight) > 0:
                tree.statistics[node].pairs += row
            if rules.watched:
                tree.statistics[node].c += mass
                n1 = tree.counts[node, 1]
                n = tree.counts[node, 0] + n1
                if tree.nodes[node].feature >= 0 and must_be_leaf(rules.watch, n, n1):
                    broken = node
                size = rules.weighed.size
                if rules.scheduled and size > 0 and (tree.statistics[node].s >= size) != (n >= size):
                    broken = node
                if rules.scheduled and tree.statistics[node].c > tree.statistics[node].allowed:
                    broken = node
            node = tree.nodes[node].parent
        if broken >= 0 or decided:
            return i + 1, broken
    return stop, -1


@kernel
def roll_back(tree: Any, y: Any, weight: Any, steps: Any, leaf_of: Any, keep: int, stop: int) -> None:
    """Roll back the counts of the steps from ``keep`` to before ``stop``; ``weight`` is as in ``WeighedRows``."""
    for i in range(keep, stop):
        kind = steps[i].kind
        if kind == LOOK or leaf_of[i] < 0:
            continue
        mass = mass_of(weight, steps[i].slot)
        count_path(tree, leaf_of[i], y[steps[i].slot], mass if kind == REMOVE else -mass)
        _end_decision(tree, leaf_of[i], False)
        node = leaf_of[i]
        while node >= 0:
            tree.statistics[node].c -= mass
            if len(weight) > 0:
                tree.statistics[node].pairs += 1 if kind == REMOVE else -1
            node = tree.nodes[node].parent


@kernel
def list_steps(tree: Any, members: Any, steps: Any, leaf_of: Any, begin: int, stop: int) -> None:
    """Put the examples of steps that are final into the lists of their leaves, or take them out; note their paths."""
    if begin < stop and steps[stop - 1].kind == ADD and leaf_of[stop - 1] >= 0:
        _end_decision(tree, leaf_of[stop - 1], True)
    for i in range(begin, stop):
        kind, slot = steps[i].kind, steps[i].slot
        if kind == LOOK or leaf_of[i] < 0:
            continue
        if kind == ADD:
            link(tree, members, leaf_of[i], slot)
        else:
            unlink(tree, members, slot)
        steps[i].path = tree.nodes[leaf_of[i]].depth + 1


# BUILD for the sparse tree: level by level with the shards, one round a level, best split of each node exactly.


class Builder(LiveTree):
    """The live tree, and how a subtree is rebuilt."""

    def __init__(self, options: SparseTreeOptions, features: Features, shards: int) -> None:
        weighting = Weighting(options.class_weight == "balanced")
        super().__init__(features, options.rules(len(features.names) > 0), ExampleStore(0), weighting)
        self.shards, self.watch_rules = shards, options.watch_rules()
        self._options = options
        #: Steps of the last window up to its first change; the shards roll back the others with the next message.
        self.keep = 0
        self._table = xlogx_table(0)

    def take_keep(self) -> int:
        """``keep`` for the next message, once."""
        keep, self.keep = self.keep, 0
        return keep

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..."""
        self.rules, self.watch_rules = self._options.rules(len(self.features.names) > 0), self._options.watch_rules()
        if unit_of(state) > 1:
            self._count_masses()
        super().restore(state)
        self.keep = 0

    # ---------------------------------------------------------------- weights

    @property
    def weighed(self) -> WeighedRows:
        """The units of rows, for kernels."""
        return WeighedRows(self.weights, self.rules.min_samples_split if self.rules.by_size else 0)

    def _count_masses(self) -> None:
        self.rules = self._options.weighed_rules(len(self.features.names) > 0)
        self.watch_rules = self._options.watch_rules().weighed()

    # ---------------------------------------------------------------- rebuilding

    def rebuild(self, root: int, stamp: int, log: npt.NDArray[np.void]) -> Exchange[None]:
        """Rebuild one subtree."""
        began = work_seconds()
        weighted, weights = self.rules.unit > 1, self.weights
        n = int(self.tree.statistics["pairs"][root] if weighted else self.tree.counts[root].sum())
        self._table = np.empty(0) if weighted else table_of(self.watch_rules.entropy, n, self._table)
        slots = np.empty(n, dtype=np.int32)
        gone = self._nodes_from(root)
        take_rows(self.tree, self.members, root, slots)
        slots.sort()
        before = int(self.tree.reg[NODES])
        nodes, ends = np.array([root]), np.array([n])
        splits = np.empty((0, 3), dtype=np.int64)
        while len(nodes):
            self._start(nodes, ends, slots, stamp)
            payload = {
                "keep": self.take_keep(),
                "gone": gone,
                "splits": splits,
                "nodes": nodes,
                "depth": self.tree.nodes["depth"][nodes],
                "ends": ends,
                "slots": slots,
                "labels": self.store.y[slots].astype(np.int8),
                "masses": weights[slots] if weighted else weights,
            }
            replies = yield Ask("build", payload)
            splits, nodes, ends, slots = self._grow(nodes, ends, slots, replies)
            gone = gone[:0]
        record(self.tree, log, root, stamp, n, int(self.tree.reg[NODES]) - before + 1, SHARDS, work_seconds() - began)

    def _nodes_from(self, root: int) -> Ints:
        """A node and all below it."""
        nodes = np.empty(int(self.tree.reg[NODES]) + 1, dtype=np.int64)
        nodes[0] = root
        return nodes[: 1 + list_nodes(self.tree.nodes, root, nodes[1:])]

    def _start(self, nodes: AnyArray, ends: AnyArray, slots: Slots, stamp: int) -> None:
        """Make fresh leaves of nodes, with their rows listed."""
        begin = 0
        for node, end in zip(nodes.tolist(), ends.tolist(), strict=True):
            if self.rules.unit > 1:
                self.tree.statistics["pairs"][node] = end - begin
            start_node(self.tree, node, stamp, self.rules)
            self.members["leaf"][slots[begin:end]] = node
            link_members(self.tree, self.members, slots[begin:end])
            begin = end

    def _grow(
        self, nodes: AnyArray, ends: AnyArray, slots: Slots, replies: list[Any]
    ) -> tuple[Ints, Ints, Ints, Slots]:
        """Split what is to be split of one level: the splits, the nodes below, where their rows end, their rows."""
        found = np.concatenate([reply["found"] for reply in replies], axis=1)
        shard_of = np.repeat(np.arange(len(replies)), [reply["found"].shape[1] for reply in replies])
        sides = [np.unpackbits(reply["sides"], count=len(slots)).view(np.bool_) for reply in replies]
        splits, below, sizes, rows = [], [], [], []
        counts = self.tree.counts[nodes]
        totals = np.stack([counts.sum(axis=1), counts[:, 1]], axis=1)
        winner = np.empty(len(nodes), dtype=np.int64)
        best_candidates(self.watch_rules.entropy, self._table, totals, found, winner)
        keep_leaves(self.watch_rules, self._table, totals, self.tree.nodes["depth"][nodes], found, winner)
        self.tree = with_room(self.tree, 2 * len(nodes), 2)
        t, begin = self.tree, 0
        for i, (node, end) in enumerate(zip(nodes.tolist(), ends.tolist(), strict=True)):
            mine = slice(begin, end)
            begin = end
            chosen = int(winner[i])
            if chosen < 0:
                continue
            feature, n1, c11 = found[i, chosen, :3].tolist()
            threshold = found[i, chosen, 3:].view(np.float64)[0]
            left, right = _split(t, node, feature, threshold, n1, c11, int(found[i, chosen, MISSING]))
            on_right = sides[shard_of[chosen]][mine]
            splits.append((node, left, right))
            for child, part in ((left, slots[mine][~on_right]), (right, slots[mine][on_right])):
                below.append(child)
                sizes.append(len(part))
                rows.append(part)
        joined = np.concatenate([np.empty(0, dtype=np.int32), *rows])
        return (
            np.array(splits, dtype=np.int64).reshape(-1, 3),
            np.array(below, dtype=np.int64),
            np.cumsum(np.array(sizes, dtype=np.int64)),
            joined,
        )


@kernel
def _split(tree: Any, node: int, feature: int, threshold: float, n1: int, c11: int, missing: int) -> tuple[int, int]:
    """Split a leaf whose counts are right; the counts of its children follow."""
    left, right = split_node(tree, node, feature, threshold)
    tree.nodes[node].missing = missing
    tree.counts[right, 1] = c11
    tree.counts[right, 0] = n1 - c11
    for k in range(2):
        tree.counts[left, k] = tree.counts[node, k] - tree.counts[right, k]
    tree.nodes[node].head = -1
    return left, right


#: Steps of the shortest window, which is the first, and of the longest.
SHORTEST, LONGEST = 16, 4096


class WindowLength:
    """Number of steps of the next window: halved by a change, doubled without one.

    A window should reach about as far as the next change: its steps after that are work for nothing, and each window
    costs a round.
    """

    def __init__(self, shortest: int, longest: int, first: int) -> None:
        self._shortest, self._longest = shortest, longest
        self.steps = first

    def adapt(self, *, changed: bool) -> None:
        """Choose the length of the next window by whether the last one changed the model."""
        self.steps = max(self._shortest, self.steps // 2) if changed else min(self._longest, 2 * self.steps)


class SparseTreeCoordinator(TreeCoordinator):
    """Tree, labels, ids and counters; features and structures are with the shards."""

    live: Builder

    Predictor = TreePredictor

    def __init__(self, options: SparseTreeOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        if not features.names and options.epsilon != "auto":
            raise ConfigError(message("learners.dense_epsilon"))
        self.features = features
        self.live = Builder(options, features, shards)
        self._weighting, self._rows = self.live.weighting, RowsOnShards(features, shards)
        # Dense features have no structure: for them a node is rebuilt by schedule, as an exact tree does.
        self._scheduled = len(features.names) > 0
        self._length = WindowLength(SHORTEST, LONGEST, SHORTEST)
        self._tree_unsent = False  # whether the shards of a restored state have yet to receive its tree

    # ---------------------------------------------------------------- one batch

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        if batch.n_classes > 2:
            raise InputError(message("learners.classes", found=batch.n_classes, what="a finder", most=2))
        self._require_warmup(batch, "sparse_tree")
        yield from self._catch_up()
        self.live.reserve(inserts_of(batch))
        if batch.start == 0:
            self.live.tree.reg[WARMUP_LEFT] = batch.warmup

    def _catch_up(self) -> Exchange[None]:
        """After a restore: send the tree to the shards, so that they can set up their structures."""
        if self._tree_unsent:
            n = int(self.live.tree.reg[NODES])
            nodes, counts = self.live.tree.nodes[:n], self.live.tree.counts[:n]
            shape = {name: nodes[name].copy() for name in ("parent", "left", "right", "depth")}
            counted = {"n": counts.sum(axis=1), "c1": counts[:, 1].copy(), "unit": self.live.rules.unit}
            yield Tell("resume", shape | counted)
            self._tree_unsent = False

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        rows = RowBlock.of(batch.X, batch.sparse)
        if batch.blocks:  # of the warm-up: until it ends the tree is a leaf, for which no row is looked at
            yield from self._read(admitted.new[added], batch.row[added], batch.blocks)
        else:
            yield from self._rows.put(admitted.new[added], rows.take(admitted.row[added]))
        steps, position = steps_of(batch, part, admitted)
        self.live.weigh()
        log = new_log(len(steps))
        leaf_of = np.empty(len(steps), dtype=np.int64)
        step = 0
        while step < len(steps):
            step = yield from self._take_window(steps, leaf_of, step, rows, log)
        enter_steps(result, steps, position, steps["kind"] != REMOVE)
        return logged(log)

    def _take_window(
        self, steps: npt.NDArray[np.void], leaf_of: Ints, begin: int, rows: RowBlock, log: npt.NDArray[np.void]
    ) -> Exchange[int]:
        """Take some steps from ``begin`` on, and rebuild what has to be after the last of them; the next step."""
        live, y = self.live, self.store.y
        warmup = int(live.tree.reg[WARMUP_LEFT])
        limit = self._end_of_warmup(steps, begin, warmup) if warmup else min(len(steps), begin + self._length.steps)
        weighed = live.weighed
        rules = StepRules(live.categorical, live.watch_rules, self._scheduled, weighed, warmup == 0)
        stop, broken = walk(live.tree, live.examples, rows, steps, leaf_of, begin, limit, rules)
        done, beaten = stop, -1
        if not warmup:
            done, beaten = yield from self._watch(steps, leaf_of, begin, stop)
        if done < stop:
            roll_back(live.tree, y, weighed.weight, steps, leaf_of, done, stop)
            broken = -1
        steps["prediction"][done:stop] = -1
        list_steps(live.tree, live.members, steps, leaf_of, begin, done)
        stamp = int(steps["stamp"][done - 1])
        self._length.adapt(changed=beaten >= 0 or broken >= 0)
        if warmup:
            left = warmup - int((steps["kind"][begin:done] == ADD).sum())
            live.tree.reg[WARMUP_LEFT] = left
            if left == 0:
                live.balance(stamp // 2 + 1, 2)
                yield from live.rebuild(0, stamp, log)
            return done
        worst = self._upper(beaten, broken)
        if worst >= 0:
            yield from live.rebuild(int(target_of(live.tree, worst)), stamp, log)
        return done

    def _end_of_warmup(self, steps: npt.NDArray[np.void], begin: int, warmup: int) -> int:
        """The step after the one that completes the warm-up, or the end."""
        adds = np.flatnonzero(steps["kind"][begin:] == ADD)
        return begin + int(adds[warmup - 1]) + 1 if len(adds) >= warmup else len(steps)

    def _watch(self, steps: npt.NDArray[np.void], leaf_of: Ints, begin: int, stop: int) -> Exchange[tuple[int, int]]:
        """Have the shards take steps; the step after the first change, and the root-most node it beats (-1: none)."""
        moved = np.flatnonzero((steps["kind"][begin:stop] != LOOK) & (leaf_of[begin:stop] >= 0)) + begin
        if not len(moved):
            return stop, -1
        slots, weights = steps["slot"][moved], self.live.weights
        sign = np.where(steps["kind"][moved] == ADD, 1, -1)
        payload = {
            "keep": self.live.take_keep(),
            "sign": sign * weights[slots] if len(weights) else sign.astype(np.int8),
            "label": self.store.y[slots].astype(np.int8),
            "slot": slots,
            "leaf": leaf_of[moved],
            "alone": self.live.shards == 1,
        }
        replies = np.array((yield Ask("watch", payload)))
        done = int(replies[:, 0].min())
        self.live.keep = done
        beaten = -1
        for node in replies[replies[:, 0] == done, 1].tolist():
            beaten = self._upper(beaten, node)
        if beaten < 0:
            return stop, -1
        return int(moved[done - 1]) + 1, beaten

    def _upper(self, a: int, b: int) -> int:
        """The node nearer to the root of two on one path; -1 is none."""
        if a < 0 or b < 0:
            return max(a, b)
        depth = self.live.tree.nodes["depth"]
        return a if depth[a] <= depth[b] else b

    def _alike(self, row: RowBlock) -> Slots:
        """Live examples in the leaf of a row."""
        rows = self.live.rows_of(route(self.live.tree, self.live.categorical, row, 0))
        if self.live.rules.unit == 1:
            return rows
        slots = self.store.slots()  # those that weigh 0 are in no leaf
        return np.concatenate([rows, slots[self.live.weights[slots] == 0]])

    def finish(self) -> Exchange[None]:
        """Build the model of a warm-up that the stream did not complete."""
        yield from self._catch_up()
        if self.live.tree.reg[WARMUP_LEFT] > 0:
            yield from self._end_warmup()

    def _end_warmup(self) -> Exchange[Log]:
        """Build the model of the warm-up; the log has the build."""
        yield from self._catch_up()
        self.live.tree.reg[WARMUP_LEFT] = 0
        self.live.balance(self._seq, 2)
        log = new_log(1)
        yield from self.live.rebuild(0, 2 * self._seq - 1, log)
        return logged(log)

    # ---------------------------------------------------------------- the model

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the leaf of each example, and the totals."""
        return super().state(slots) | self.live.weighting.state()

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., its nodes ids in preorder."""
        super().restore(state)
        self._length, self._tree_unsent = WindowLength(SHORTEST, LONGEST, SHORTEST), True

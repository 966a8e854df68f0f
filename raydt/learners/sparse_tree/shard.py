"""The work of a shard of the sparse tree: keep its features of every live row, and a structure for every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, grown
from raydt.arrays.elementary import AnyArray, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.rows_on_shards import HeldRows, ShardWithRows
from raydt.examples.updates import UNIT, Features
from raydt.finders.finder import (
    Structure,
    attach,
    best,
    best_candidates,
    change,
    roll_back_notes,
    score_of,
    settle,
    table_of,
    xlogx_table,
)
from raydt.finders.pool import (
    LIVE,
    NOTES,
    USED,
    Pool,
    among_masses,
    buckets_of,
    find_or_add,
    free_dead,
    new_pool,
    release_nodes,
    room_at_once,
    with_entries,
    with_units,
)
from raydt.learners.sparse_tree.build import (
    CANDIDATE,
    FEATURE,
    MISSING,
    NODE,
    THRESHOLD,
    Groups,
    LevelCandidates,
    LevelRows,
    beaten,
    impurity,
    may_split,
    open_nodes,
    unit_of,
)
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.trees.counted_tree import TO_LEFT, TO_RIGHT, UNDECIDED
from raydt.trees.records import mass_of, number_nodes, threshold_between

# The shard's half of an update: the structures of all nodes on the path change, and every split is tested.


class ShardSteps(NamedTuple):
    """Rows that come and go."""

    #: Shape (steps,): 1: a row is inserted, -1: it is deleted; times its mass (int64) where counts are masses.
    sign: AnyArray
    label: npt.NDArray[np.int8]  #: Shape (steps,).
    slot: Int32s  #: Shape (steps,).
    leaf: Ints  #: Shape (steps,).
    marks: Ints  #: Shape (steps,): takes how many notes the journal had before each step.

    @classmethod
    def none(cls) -> ShardSteps:
        """No steps."""
        flags, links = np.empty(0, dtype=np.int8), np.empty(0, dtype=np.int64)
        return cls(flags, flags, np.empty(0, dtype=np.int32), links, links)


class Limits(NamedTuple):
    """Limits of memory: new entries that there is room for, and notes beyond which a step may not fit.

    ``rows`` has the shard's sparse features by slot, which tell how many entries a step may need.
    """

    rows: Any
    entries: int
    notes: int


@inner_kernel
def _is_beaten(structure: Any, nodes: Any, groups: Any, node: int, rules: Any) -> bool:
    """Return True if a candidate of this shard beats the split of a node, or asks for one at a leaf."""
    n, c1, table = nodes[node].n, nodes[node].c1, structure.table
    right = nodes[node].right
    if n == 0:
        return False
    if right < 0:
        if not may_split(rules, table, n, c1, nodes[node].depth):
            return False
        score = impurity(rules, table, n, c1)
    else:
        score = score_of(rules.entropy, table, n, c1, nodes[right].n, nodes[right].c1)
    for group in range(groups.owned):
        _, candidate = best(structure, node * groups.owned + group, n, c1)
        if beaten(rules, score, candidate):
            return True
    return False


@kernel
def watch(structure: Any, nodes: Any, groups: Any, steps: Any, begin: int, rules: Any, limits: Any) -> tuple[int, int]:
    """Take steps from ``begin`` on, as long as their new entries and notes surely fit, and through the first beaten.

    Returns the step after the last that was taken, and the root-most node that was beaten by it, -1 if none was.
    """
    reg, rows, room = structure.pool.reg, limits.rows, limits.entries
    for i in range(begin, len(steps.sign)):
        sign, label = steps.sign[i], steps.label[i]
        first, last = rows.begin[steps.slot[i]], rows.end[steps.slot[i]]
        # An upper bound, a new entry for each one of the row at each node: what stops here is taken after more room.
        room -= (nodes[steps.leaf[i]].depth + 1) * (last - first)
        if room < 0 or reg[NOTES] > limits.notes:
            return i, -1
        steps.marks[i] = reg[NOTES]
        node = np.int64(steps.leaf[i])
        while node >= 0:
            nodes[node].n += sign
            nodes[node].c1 += sign * label
            n, c1 = nodes[node].n, nodes[node].c1
            if nodes[node].depth < rules.max_depth:
                for k in range(first, last):
                    j = rows.values[k]
                    change(structure, unit_of(groups, node, j), j, sign, label, n, c1)
                for group in range(groups.owned):
                    settle(structure, node * groups.owned + group, n, c1)
            node = np.int64(nodes[node].parent)
        # Tested once all counts of the path are right: the score of a split reads the counts of its child.
        found = -1
        node = np.int64(steps.leaf[i])
        while node >= 0:
            if nodes[node].depth < rules.max_depth and _is_beaten(structure, nodes, groups, node, rules):
                found = node
            node = np.int64(nodes[node].parent)
        if found >= 0:
            return i + 1, found
    return len(steps.sign), -1


@kernel
def roll_back(structure: Any, nodes: Any, steps: Any, keep: int, stop: int) -> None:
    """Roll back the steps from ``keep`` to before ``stop``."""
    if keep < stop:
        roll_back_notes(structure, steps.marks[keep])
    for i in range(keep, stop):
        node = steps.leaf[i]
        while node >= 0:
            nodes[node].n -= steps.sign[i]
            nodes[node].c1 -= steps.sign[i] * steps.label[i]
            node = np.int64(nodes[node].parent)


# The exact search over dense features of a node that is built: every threshold of a number, every value of a category.
#
# Missing numbers are tried on the right of each threshold, and of an infinite one, and then on its left. A split counts
# what is on its right, as a sparse feature counts its ones, so that one score compares all kinds.


@kernel
def _scan(
    entropy: bool,
    table: Any,
    totals: Any,
    values: Any,
    labels: Any,
    masses: Any,
    categorical: bool,
    first: int,
    least: float,
    out: Any,
) -> float:
    """Best cut from place ``first`` on of one sorted column, the smaller of equals: its score, if below ``least``.

    ``totals`` are the counts of all rows and of those of class 1, ``masses`` those of the rows, empty of 1 each.
    ``out`` takes rows and rows of class 1 on its right, and the last place of what is left of it.
    """
    n, c1, rows = totals[0], totals[1], len(values)
    size, size_before = np.int64(0), np.int64(0)
    ones, ones_before = np.int64(0), np.int64(0)
    for i in range(rows):
        mass = mass_of(masses, i)
        size += mass
        ones += mass * labels[i]
        if i < first or (i + 1 < rows and (values[i + 1] == values[i] or values[i] != values[i])):
            continue
        left, left_ones = (size - size_before, ones - ones_before) if categorical else (size, ones)
        if left < n:
            score = score_of(entropy, table, n, c1, n - left, c1 - left_ones)
            if score < least:
                least = score
                out[0], out[1], out[2] = n - left, c1 - left_ones, i
        size_before, ones_before = size, ones
    return least


def totals_of(labels: npt.NDArray[np.int8], masses: npt.NDArray[np.uint32]) -> tuple[int, int]:
    """Counts of rows and of those of class 1."""
    if not len(masses):
        return len(labels), int(labels.sum())
    return int(masses.sum(dtype=np.int64)), int(masses[labels == 1].sum(dtype=np.int64))


def best_cut(
    entropy: bool,
    table: Floats,
    X: Floats,
    kinds: npt.NDArray[np.int8],
    labels: npt.NDArray[np.int8],
    masses: npt.NDArray[np.uint32],
) -> tuple[int, int, int, float, int]:
    """Return the best split by the columns of ``X``, shape (rows, columns): smallest (score, column, side, threshold).

    The result has the column, -1 if none has two values; rows and rows of class 1 on the right; the threshold; and the
    side of missing numbers, of which the right one comes first. ``masses`` are those of the rows, empty of 1 each.
    """
    best, least = (-1, 0, 0, 0.0, UNDECIDED), np.inf
    totals = np.array(totals_of(labels, masses))
    out = np.zeros(3, dtype=np.int64)
    for column, kind in enumerate(kinds):
        order = np.argsort(X[:, column], kind="stable")  # missing numbers come last
        lacking = int(np.isnan(X[:, column]).sum())
        for side in (TO_RIGHT, TO_LEFT) if lacking else (UNDECIDED,):
            if side == TO_LEFT:
                order = np.roll(order, lacking)
            values, first = X[order, column], lacking if side == TO_LEFT else 0
            of_rows = values, labels[order], masses[order] if len(masses) else masses
            score = _scan(entropy, table, totals, *of_rows, bool(kind), first, least, out)
            if score < least:
                n1, c11, last = out.tolist()
                least = score
                cut = float(values[last]) if kind else float(between(values[last], values[last + 1]))
                best = column, n1, c11, cut, side
    return best


@kernel
def between(a: float, b: float) -> float:
    """:func:`raydt.trees.records.threshold_between`, for Python."""
    threshold: float = threshold_between(a, b)
    return threshold


#: Entries made room for at once, at most.
_ROOM = 1 << 14
#: Arrays of a group's state, by node and feature.
STATE = ("node", "feature", "n1", "c11", "bucket")


class SparseTreeShard(ShardWithRows):
    """Owner of whole feature groups."""

    def __init__(self, options: SparseTreeOptions, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        #: Groups with dense features: place among the groups, numbers of the columns, and their places in the rows.
        self._dense = [
            (i, columns, np.searchsorted(self.columns, columns))
            for i, columns in enumerate(map(features.group_columns, groups.tolist()))
            if len(columns)
        ]
        self._kinds, self._options = features.kinds, options
        self._clear()

    def _clear(self) -> None:
        self._rules, self._weighted = self._options.watch_rules(), False
        self._buckets = buckets_of(self._options.finder, self._options.finder_alpha)
        self._pool: Pool = new_pool(len(self._buckets.s))
        self._nodes = np.empty(0, dtype=NODE)
        self._table = xlogx_table(0)
        self._steps = ShardSteps.none()  # of the last window
        self._done = 0
        self._saved: dict[int, dict[str, Any]] = {}
        self._room_for(1)
        self._nodes[0] = (-1, -1, -1, 0, 0, 0)

    def _weigh(self) -> None:
        """Make all counts masses; no step may have to be rolled back."""
        if self._weighted:
            return
        former, pool = self._buckets, self._pool
        self._weighted, self._rules, self._table = True, self._rules.weighed(), np.empty(0)
        self._buckets = buckets_of(self._options.finder, self._options.finder_alpha, masses=True)
        for name in ("n", "c1"):
            self._nodes[name] *= UNIT
        used = np.flatnonzero((pool.unit[: pool.reg[USED]] >= 0) & (pool.bucket[: pool.reg[USED]] >= 0))
        self._pool = with_units(new_pool(len(self._buckets.s), np.int64), len(pool.first))
        self._pool = with_entries(self._pool, len(used))
        n1, c11 = (getattr(pool, name)[used].astype(np.int64) * UNIT for name in ("n1", "c11"))
        bucket = among_masses(former, self._buckets, pool.bucket[used])
        _fill(self._structure, pool.unit[used].astype(np.int64), pool.feature[used], n1, c11, bucket)

    @property
    def _owned(self) -> Groups:
        return Groups(len(self.groups), int(self.groups[0]) if len(self.groups) else 0, self._features.groups)

    @property
    def _structure(self) -> Structure:
        return Structure(self._pool, self._buckets, self._table)

    def state(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Of each group ``node``, ``feature``, ``n1``, ``c11``, ``bucket`` of all features seen at all nodes.

        Nodes by their position in preorder; ascending by node, then feature.
        """
        if self._saved:  # restored, and no batch since
            return self._saved
        p, per = self._pool, max(1, len(self.groups))
        used = np.flatnonzero((p.unit[: p.reg[USED]] >= 0) & (p.bucket[: p.reg[USED]] >= 0))
        node, group = np.divmod(p.unit[used], np.int32(per))
        preorder, position = np.full((2, len(self._nodes)), -1, dtype=np.int32)
        number_nodes(self._nodes, preorder, position)
        node = position[node]
        order = np.lexsort((p.feature[used], node, group))
        bounds = np.searchsorted(group[order], np.arange(len(self.groups) + 1))
        state: dict[int, dict[str, Any]] = {}
        for i, g in enumerate(self.groups.tolist()):
            mine = order[bounds[i] : bounds[i + 1]]
            state[g] = {"node": node[mine], **{name: getattr(p, name)[used[mine]] for name in STATE[1:]}}
        return state

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows take slots 0, 1, ... as at the coordinator; the structures wait for the tree (``resume``)."""
        self._clear()
        self._held = HeldRows(self._features, self.groups)
        self._held.restore(state)
        self._saved = {g: {name: state[g][name] for name in STATE} for g in self.groups.tolist()}

    def _on_resume(self, parent: Any, left: Any, right: Any, depth: Any, n: Any, c1: Any, unit: int) -> None:
        """Take the tree that was restored: its nodes in preorder."""
        if unit > 1:
            self._weigh()
        self._room_for(len(n))
        for name, array in zip(NODE.names or (), (parent, left, right, depth, n, c1), strict=True):
            self._nodes[name][: len(n)] = array
        self._table = self._table_of(int(n[0]))
        for i, g in enumerate(self.groups.tolist()):
            part = self._saved[g]
            units = part["node"].astype(np.int64) * len(self.groups) + i
            self._pool = with_entries(self._pool, len(units))
            arrays = (np.array(part[name]) for name in STATE[1:])
            _fill(self._structure, units, *arrays)
        self._saved = {}

    # ---------------------------------------------------------------- updates

    def _on_watch(self, keep: int, sign: Any, label: Any, slot: Any, leaf: Any, alone: bool) -> Any:
        """Take steps up to the first that beats a split; how many were taken, and the root-most node beaten (or -1).

        Of the window before, only the first ``keep`` steps were taken by all shards; the others are rolled back first.
        """
        self._roll_back(keep)
        if not len(self.groups):
            return np.array([len(sign), -1], dtype=np.int64)
        if sign.dtype == np.int64:
            self._weigh()
        marks = np.empty(len(sign), dtype=np.int64)
        self._steps = steps = ShardSteps(np.array(sign), np.array(label), np.array(slot), np.array(leaf), marks)
        reg = self._pool.reg
        reg[NOTES] = -1 if alone else 0
        self._table = self._table_of(int(self._nodes["n"][0]) + len(sign))
        step, node, asked = 0, -1, 0
        while step < len(sign) and node < 0:
            first, rows = int(slot[step]), self._held.ones
            if reg[NOTES] <= 0:  # no note names an entry
                free_dead(self._pool)
            in_step = (int(self._nodes["depth"][leaf[step]]) + 1) * int(rows.end[first] - rows.begin[first])
            asked = room_at_once(self._pool, asked, _ROOM)
            room = max(asked, in_step)
            self._pool = with_entries(self._pool, room)
            limits = Limits(rows, room, 0 if alone else self._room_for_notes(room))
            step, node = watch(self._structure, self._nodes, self._owned, steps, step, self._rules, limits)
        self._done = step
        return np.array([step, node], dtype=np.int64)

    def _table_of(self, rows: int) -> Floats:
        """k log k of so many rows; none of masses."""
        return self._table if self._weighted else table_of(self._buckets.entropy, rows, self._table)

    def _room_for_notes(self, room: int) -> int:
        """Room in the journal for two changes of every entry in a step, and more; notes up to which that is so."""
        in_a_step = 2 * (int(self._pool.reg[LIVE]) + room)
        used = int(self._pool.reg[NOTES])
        if used + 2 * in_a_step > len(self._pool.journal):
            journal = empty((used + 4 * in_a_step, 4), self._pool.journal.dtype)
            journal[:used] = self._pool.journal[:used]
            self._pool = self._pool._replace(journal=journal)
        return len(self._pool.journal) - in_a_step

    def _roll_back(self, keep: int) -> None:
        """Roll back the steps of the last window from ``keep`` on."""
        if keep < self._done:
            roll_back(self._structure, self._nodes, self._steps, keep, self._done)
        self._done, self._steps = 0, ShardSteps.none()
        self._pool.reg[NOTES] = -1

    # ---------------------------------------------------------------- building

    def _room_for(self, nodes: int) -> None:
        """Room for node ids below ``nodes``."""
        if nodes > len(self._nodes):
            capacity = max(nodes, len(self._nodes) * 3 // 2, 16)
            self._nodes = grown(self._nodes, capacity)
            self._pool = with_units(self._pool, capacity * max(1, len(self.groups)))

    def _on_build(self, keep: int, gone: Any, splits: Any, **level: Any) -> Any:
        """Open the new nodes of one level, and answer with the best split that each group has for each.

        ``keep`` is as in ``watch``. The structures of the nodes ``gone``, the root of what is built among them, are
        given back; ``splits``, shape (splits, 3), are nodes of the level above and their left and right children;
        ``level`` has the fields of ``LevelRows``, and the ``depth`` of each node. The reply has ``found``, shape
        (nodes, groups, ``CANDIDATE``), and ``sides``, a bit for each row: whether it is right of the best split this
        shard has for its node.
        """
        self._roll_back(keep)
        opened = LevelRows(*(np.array(level[name]) for name in LevelRows._fields))
        nodes, ends, slots, labels, masses = opened
        per = len(self.groups)
        found, right = np.full((len(nodes), per, CANDIDATE), -1, dtype=np.int64), np.zeros(len(slots), dtype=np.bool_)
        if not per:
            return {"found": found, "sides": np.packbits(right)}
        if len(masses):
            self._weigh()
        release_nodes(self._pool, per, np.array(gone))
        self._room_for(int(max(nodes.max(initial=-1), splits[:, 1:].max(initial=-1))) + 1)
        t = self._nodes
        t["left"][splits[:, 0]], t["right"][splits[:, 0]] = splits[:, 1], splits[:, 2]
        t["parent"][splits[:, 1]] = t["parent"][splits[:, 2]] = splits[:, 0]
        t["left"][nodes] = t["right"][nodes] = -1
        t["depth"][nodes] = level["depth"]
        rows = self._held.ones
        self._table = self._table_of(len(slots))
        self._pool = with_entries(self._pool, self._most_entries(rows.end[slots] - rows.begin[slots], ends))
        dense = len(self._features.names)
        rest = rows, opened, self._rules.max_depth, dense, LevelCandidates(found, right)
        open_nodes(self._structure, t, self._owned, *rest)
        if len(self.columns):
            begins = [0, *ends[:-1].tolist()]
            for i, (begin, end) in enumerate(zip(begins, ends.tolist(), strict=True)):
                if end > begin and t["depth"][nodes[i]] < self._rules.max_depth:
                    of_node = slots[begin:end], labels[begin:end], masses[begin:end]
                    self._compare(*of_node, found[i], right[begin:end])
        return {"found": found, "sides": np.packbits(right)}

    def _most_entries(self, ones: AnyArray, ends: AnyArray) -> int:
        """Entries that new nodes need at most: of each no more than its rows have ones, nor than there are features."""
        up_to = np.concatenate([[0], np.cumsum(ones)])[np.concatenate([[0], ends])]
        return int(np.minimum(np.diff(up_to), self._features.sparse).sum())

    def _compare(self, rows: Any, ones: Any, masses: Any, found: Any, right: Any) -> None:
        """Let dense features compete with the sparse ones that were found for a node."""
        entropy, totals = self._rules.entropy, np.array([totals_of(ones, masses)])
        winner = np.empty(1, dtype=np.int64)
        changed = False
        X = self._held.X[rows]
        for g, columns, own in self._dense:
            kinds = self._kinds[columns]
            column, *counts, threshold, side = best_cut(entropy, self._table, X[:, own], kinds, ones, masses)
            if column < 0:
                continue
            cut = np.array([columns[column], *counts, np.float64(threshold).view(np.int64), side])
            best_candidates(entropy, self._table, totals, np.stack([found[g], cut])[None], winner)
            if winner[0] == 1:
                found[g], changed = cut, True
        best_candidates(entropy, self._table, totals, found[None], winner)
        feature = int(found[winner[0], FEATURE])
        if changed and 0 <= feature < len(self._features.names):
            column = self._held.X[rows, np.searchsorted(self.columns, feature)]
            threshold = found[winner[0], THRESHOLD:].view(np.float64)[0]
            left = column == threshold if self._kinds[feature] else column <= threshold
            right[:] = ~(left | (np.isnan(column) & (found[winner[0], MISSING] == TO_LEFT)))


@kernel
def _fill(structure: Any, unit: Any, feature: Any, n1: Any, c11: Any, bucket: Any) -> None:
    """Entries as they were saved."""
    pool = structure.pool
    for i in range(len(unit)):
        e = find_or_add(pool, unit[i], feature[i])
        pool.n1[e], pool.c11[e] = n1[i], c11[i]
        attach(structure, e, np.int64(bucket[i]))

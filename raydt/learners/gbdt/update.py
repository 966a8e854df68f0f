"""How a tree of an update in place changes: which of its splits fail, how it grows again, which rows join the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Ints, Slots
from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.derivatives import gradient
from raydt.learners.gbdt.ensemble import FREE, LEAF, next_in_preorder
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.split_search import (
    DEPTH,
    FEATURE,
    FIELDS,
    NODES,
    RANKS,
    REACHES,
    REFRESHED,
    ROWS,
    SUBTREES,
    TREES_RETRAINED,
    best_of_owners,
    judged,
    look,
    search,
    surely_stays,
)
from raydt.learners.gbdt.staleness import move
from raydt.messages import message
from raydt.presentation.charts import counted

#: Leaves of a tree up to which its rows are compared with each.
_FEW = 4


@inner_kernel
def _has_rows(trees: Any, t: int, node: int) -> bool:
    """Return True if a split has rows on both sides."""
    left_H = trees.H[t, np.int64(trees.left[t, node])]
    return bool(0 < left_H < trees.H[t, node])


@inner_kernel
def look_at_splits(model: Any, local: Any, t: int, row: int, nodes: int, rules: Any, room: Any) -> int:
    """Count, among the features of a shard, the rivals of the touched splits that may fail, and find the best of these.

    Both go to ``room.ranks``. Lists the nodes in ``room.judged`` and returns how many there are: the same at all
    shards. The best split of a node whose split fails is a rival of it, so who has none need not search.
    """
    trees, n = model.trees, 0
    for q in range(nodes):
        node = np.int64(room.order[q])
        if not room.touched[node] or trees.feature[t, node] < 0:
            continue
        rank, stays = room.ranks[node], False
        rank[REACHES], rank[RANKS + FEATURE] = 1, -1
        if _has_rows(trees, t, node):
            stays = surely_stays(trees, t, node, local.units, room.slack)
            if not stays:
                look(trees, t, node, local, row, rules.tolerance, rank)
        if not stays:
            if rank[REACHES]:
                sums = local.sums[t, trees.histogram[t, node]]
                search(sums, trees.G[t, node], trees.H[t, node], local, row, rank[RANKS:])
            room.judged[n] = node
            n += 1
    return n


@inner_kernel
def add_ranks(trees: Any, t: int, answers: Any, units: Any, room: Any) -> None:
    """Put together what all owners have found at some nodes, int64, shape (owners, nodes, RANKS + FIELDS)."""
    for i in range(answers.shape[1]):
        node = np.int64(room.judged[i])
        rank = room.ranks[node]
        rank[:] = 0
        for owner in range(len(answers)):
            for r in range(RANKS):
                rank[r] += answers[owner, i, r]
        best_of_owners(answers[:, i, RANKS:], trees.G[t, node], trees.H[t, node], units, rank[RANKS:])


@inner_kernel
def has_to_grow(model: Any, local: Any, t: int, row: int, nodes: int, rules: Any, room: Any, looks: bool) -> bool:
    """Mark the topmost touched nodes whose split fails; return whether the tree has to grow.

    ``looks``: the candidates that are to be counted lie here; else the counts of all shards are in ``room.ranks``.
    """
    trees = model.trees
    feature = trees.feature[t]
    needs = False
    room.failed[:] = 0
    for q in range(nodes):
        node = np.int64(room.order[q])
        if not room.touched[node]:
            continue
        up = np.int64(trees.parent[t, node])
        if up >= 0 and room.failed[up]:  # nodes below need no verdict
            room.failed[node] = 1
        elif feature[node] >= 0:
            stays = _has_rows(trees, t, node)
            if stays and not surely_stays(trees, t, node, local.units, room.slack):
                if looks:
                    look(trees, t, node, local, row, rules.tolerance, room.ranks[node])
                stays = judged(trees, t, node, local.units, room.slack, rules.tolerance, room.ranks[node])
            if not stays:
                room.failed[node] = 1
                needs = True
    if needs or trees.leaves[t] >= trees.feature.shape[1] // 2 + 1:
        return needs
    for q in range(nodes):
        node = np.int64(room.order[q])
        if room.touched[node] and feature[node] == LEAF and _may_grow(trees, t, node, rules.sigma):
            return True
    return False


@inner_kernel
def _may_grow(trees: Any, t: int, node: int, sigma: float) -> bool:
    """Return True if the sums of a leaf have moved by more than sigma of what they were when it failed."""
    H = trees.tried_h[t, node]
    if H < 0:
        return True
    G = trees.tried_g[t, node]
    return bool(abs(trees.G[t, node] - G) > sigma * abs(G) or abs(trees.H[t, node] - H) > sigma * H)


@inner_kernel
def _collapse(trees: Any, t: int, touched: Any, failed: Any, sigma: float, most: int, mark: Any, roots: Any) -> int:
    """Make leaves of the topmost failed nodes of a tree and list the roots it grows from; returns how many.

    ``touched`` and ``failed`` are by node, and so is ``mark``, which takes the root above each node (-1: none).
    ``roots`` takes node and histogram of each.
    """
    mark[:] = -1
    node = np.int64(0)
    while node >= 0:  # in preorder
        up = np.int64(trees.parent[t, node])
        if up >= 0 and mark[up] >= 0:
            mark[node] = mark[up]
        elif trees.feature[t, node] >= 0 and failed[node]:
            mark[node] = node
        node = next_in_preorder(trees, t, node)
    for node in range(len(mark)):
        if mark[node] < 0:
            continue
        if trees.feature[t, node] == LEAF:
            trees.leaves[t] -= 1
        if mark[node] == node:
            trees.feature[t, node] = LEAF
            trees.tried_h[t, node] = -1
            trees.leaves[t] += 1
        else:
            trees.feature[t, node] = FREE
    n = 0
    node = np.int64(0)
    while node >= 0:
        if trees.feature[t, node] == LEAF:
            collapsed = mark[node] == node
            if collapsed or (trees.leaves[t] < most and touched[node] and _may_grow(trees, t, node, sigma)):
                mark[node] = node
                roots[n, 0], roots[n, 1] = node, trees.histogram[t, node]
                trees.histogram[t, node] = -1
                n += 1
        node = next_in_preorder(trees, t, node)
    return n


@inner_kernel
def _rows_below(leaf: Any, begin: int, end: int, roots: int, room: Any, grow_room: Any) -> int:
    """List the rows below the roots in slots ``begin`` to before ``end``, root after root; returns how many there are.

    ``room.number`` has the root above each leaf, -1 for none. ``grow_room.slots`` takes the rows, ``ends`` where those
    of each root end.
    """
    root, below, ends, slots = room.number, grow_room.spare_slots, grow_room.ends, grow_room.slots
    n = 0
    for slot in range(begin, end):  # no branch: whether a row is below a root cannot be predicted
        below[n] = slot
        n += root[leaf[slot]] >= 0
    ends[:] = 0
    for i in range(n):
        ends[root[leaf[below[i]]]] += 1
    total = np.int64(0)
    for r in range(roots):
        total, ends[r] = total + ends[r], total
    for i in range(n):
        r = root[leaf[below[i]]]
        slots[ends[r]] = below[i]
        ends[r] += 1
    return n


@inner_kernel
def collapse(model: Any, y: Any, t: int, k: int, rules: Any, room: Any, grow_room: Any) -> int:
    """Collapse the subtrees that failed; returns how many roots the tree is to grow from, whose rows are listed."""
    trees, loss = model.trees, model.loss
    most = trees.feature.shape[1] // 2 + 1
    roots = _collapse(trees, t, room.touched, room.failed, rules.sigma, most, room.mark, grow_room.root)
    if not roots:
        return 0
    for node in range(len(room.mark)):
        room.number[node] = -1
    for r in range(roots):
        node = grow_room.root[r, 0]
        room.number[node] = r
        for field in range(FIELDS):  # with other shards: found with the rank
            grow_room.found[r, field] = room.ranks[node, RANKS + field]
    for node in range(len(room.mark)):  # of the nodes that were below a root, too
        if room.mark[node] >= 0:
            room.number[node] = room.number[room.mark[node]]
    rows = _rows_below(model.leaf[t], rules.begin, rules.end, roots, room, grow_room)
    ledger = model.ledger[t]
    for i in range(rows):
        slot = grow_room.slots[i]
        grow_room.g[i] = gradient(np.int64(ledger[slot]), y[slot], k, loss)
        leaf = model.leaf[t, slot]
        room.before[slot] = room.value[leaf]
        room.above[slot], room.below[slot] = trees.above[t, leaf], trees.below[t, leaf]
    return int(roots)


@inner_kernel
def count_growth(model: Any, t: int, roots: int, room: Any, grow_room: Any, counts: Any) -> None:
    """Count the work of a tree that has grown, and forget what was noted of its nodes."""
    trees = model.trees
    for node in range(len(room.mark)):
        if room.number[node] >= 0:
            room.slack.level[t, node] = np.inf
    begin, again = np.int64(0), False
    for r in range(roots):
        collapsed, made = grow_room.root[r, 1] >= 0, grow_room.made[r]
        if collapsed or made:
            again = True
            counts[SUBTREES] += 1
            counts[ROWS] += grow_room.ends[r] - begin
            counts[NODES] += 2 * made + collapsed
            depth, node = np.int64(0), np.int64(trees.parent[t, grow_room.root[r, 0]])
            while node >= 0:
                depth, node = depth + 1, np.int64(trees.parent[t, node])
            counts[DEPTH] = depth if counts[DEPTH] < 0 else min(counts[DEPTH], depth)
        begin = grow_room.ends[r]
    counts[TREES_RETRAINED] += again


@inner_kernel
def join_below(batch: Any, joined: int, roots: int, grow_room: Any) -> int:
    """Let the rows of retrained subtrees join the batch; returns how many rows it has then."""
    begin = np.int64(0)
    for r in range(roots):
        end = grow_room.ends[r]
        if grow_room.root[r, 1] >= 0 or grow_room.made[r]:
            for i in range(begin, end):
                joined = _join(batch, joined, grow_room.slots[i])
        begin = end
    return joined


@inner_kernel
def _join(batch: Any, joined: int, slot: int) -> int:
    """Let a row join the batch, if it is no member; returns how many rows it has then."""
    batch.slots[joined] = slot
    joined += not batch.member[slot]
    batch.member[slot] = True
    return joined


@inner_kernel
def _charge(drift: Any, batch: Any, joined: int, slot: int, units: int, most: int) -> int:
    """Add how far the scores of a row may have moved to its drift or, if it grew too large, let the row join the batch.

    Nothing is added for members. Returns how many rows the batch has then.
    """
    if batch.member[slot]:
        return joined
    if np.int64(drift[slot]) + units > most:
        return _join(batch, joined, slot)
    drift[slot] += units
    return joined


@inner_kernel
def _charge_leaf(leaf: Any, node: Any, drift: Any, batch: Any, joined: int, units: int, rules: Any) -> int:
    """Charge all rows of a leaf, as :func:`_charge`."""
    most, begin, end = rules.most_drift, np.uint64(rules.begin), np.uint64(rules.end)
    member, fits = batch.member, np.uint16(max(0, most - units))
    some = units > most
    if not some:
        for i in range(begin, end):  # no branch: many rows are looked at together
            some |= (leaf[i] == node) & (not member[i]) & (drift[i] > fits)
    if some:
        for slot in range(begin, end):
            if leaf[slot] == node:
                joined = _charge(drift, batch, joined, slot, units, most)
    else:
        more = np.uint16(units)
        for i in range(begin, end):
            drift[i] += more if (leaf[i] == node) & (not member[i]) else np.uint16(0)
    return joined


@inner_kernel
def _charge_leaves(leaf: Any, charge: Any, drift: Any, batch: Any, joined: int, rules: Any) -> int:
    """Charge every row: ``charge`` has the units of each leaf."""
    most = rules.most_drift
    for slot in range(np.uint64(rules.begin), np.uint64(rules.end)):
        units = np.int64(charge[leaf[slot]])
        units = 0 if batch.member[slot] else units
        moved = np.int64(drift[slot]) + units
        if (units > 0) & (moved > most):
            joined = _join(batch, joined, slot)
        else:
            drift[slot] = moved
    return joined


@inner_kernel
def follow(model: Any, batch: Any, t: int, joined: int, roots: int, rules: Any, room: Any, grow_room: Any) -> int:
    """Note how far the scores of rows move by a tree; those that move too far join the batch.

    Returns how many rows it has then. Moves of a step or less are noted by leaf, others by row.
    """
    trees, stale, most, drift = model.trees, rules.stale, rules.most_drift, model.drift
    feature, value, H, leaf = trees.feature[t], trees.value[t], trees.H[t], model.leaf[t]
    above, below, far = trees.above[t], trees.below[t], 0
    outside = joined < rules.rows  # there are rows whose drift counts
    for i in range(grow_room.ends[roots - 1] if roots and outside else 0):
        slot = grow_room.slots[i]
        change = value[leaf[slot]] - room.before[slot]
        a, b = move(np.int64(room.above[slot]), np.int64(room.below[slot]), change, stale)
        joined = _charge(drift, batch, joined, slot, a + b, most)
    for node in range(len(feature)):
        room.charge[node] = 0
        if roots and room.number[node] >= 0:
            above[node], below[node] = 0, 0
        elif feature[node] == LEAF and room.touched[node]:
            had, a, b = np.int64(above[node]) + np.int64(below[node]), 0, 0
            if H[node] > 0:
                a, b = move(np.int64(above[node]), np.int64(below[node]), value[node] - room.value[node], stale)
            if a + b > had + stale.step:
                room.charge[node] = a + b
                far += 1
                a, b = 0, 0
            above[node], below[node] = a, b
    if far > _FEW and outside:
        return _charge_leaves(leaf, room.charge, drift, batch, joined, rules)
    for node in range(len(feature) if far and outside else 0):
        if room.charge[node]:
            joined = _charge_leaf(leaf, node, drift, batch, joined, np.int64(room.charge[node]), rules)
    return joined


# A batch D': which updates wait for its end, whether it trains all trees again, and what it has cost.
#
# An inserted example has its slot at once, a deleted one keeps it until the batch is applied; in between an id means
# the newest example of it. An example that is inserted and deleted within the batch never enters the model.
#
# Whether trees and bins are trained again instead of updated follows from whole numbers, never from a clock: it is the
# same on every machine, with every number of shards and after a restore. ``docs/explanation/guarantees.md`` states the
# rule.

#: ``pending`` of an example in a state.
NOT_PENDING, TO_INSERT, TO_DELETE = 0, 1, 2

_NONE = np.empty(0, dtype=np.int32)


class PendingUpdates:
    """Examples to insert and examples to delete.

    Attributes
    ----------
    inserts, deletes, cancelled : ndarray of int32
        Their slots, and those of examples that were to be inserted and are deleted again: no model has them.
    """

    def __init__(self) -> None:
        self.inserts, self.deletes, self.cancelled = _NONE, _NONE, _NONE

    def __len__(self) -> int:
        return len(self.inserts) + len(self.deletes)

    def add(self, new: Slots, old: Slots) -> None:
        """Add insertions into the slots ``new`` and deletions of ``old``."""
        self.inserts = np.concatenate([self.inserts, new])
        cancelled = np.isin(old, self.inserts) if len(old) else np.zeros(0, dtype=np.bool_)
        self.deletes = np.concatenate([self.deletes, old[~cancelled]])
        if cancelled.any():
            self.inserts = self.inserts[~np.isin(self.inserts, old)]
            self.cancelled = np.concatenate([self.cancelled, old[cancelled]])

    def in_model(self, live: Slots) -> Slots:
        """Return slots of the rows in the model: of those that live and do not wait, and of those to delete."""
        return np.union1d(np.setdiff1d(live, self.inserts), self.deletes).astype(np.int32)

    @property
    def freed(self) -> Slots:
        """Slots that are free once the batch is applied."""
        return np.concatenate([self.deletes, self.cancelled])

    def status(self, slots: Slots) -> npt.NDArray[np.int8]:
        """``pending`` of some examples, shape (slots,)."""
        if not len(self):
            return np.zeros(len(slots), dtype=np.int8)
        return (TO_INSERT * np.isin(slots, self.inserts) + TO_DELETE * np.isin(slots, self.deletes)).astype(np.int8)


@dataclass(slots=True)
class Counts:
    """Costs of an update, or the rows that all trees were ``trained`` on instead."""

    trees_checked: int = 0
    trees_retrained: int = 0
    subtrees: int = 0
    rows: int = 0
    nodes: int = 0
    depth: int = -1
    refreshed: int = 0
    rounds: int = 0
    trained: int = 0

    def work(self, ensemble: Any, changes: int) -> int:
        """Return the work of an update of so many rows, in rows that a tree is trained on.

        The weights are those of kernels on one core: a derivative is compared in a quarter of the time in which a tree
        is trained on a row, a candidate of a node judged in a twentieth.
        """
        trees, inner = len(ensemble.leaf), ensemble.options.max_leaf_nodes - 1
        judged = self.trees_checked * inner * ensemble.candidates
        work: int = self.rows + (self.refreshed * trees) // 4 + 2 * changes * trees + judged // 20
        return work

    def add(self, other: Counts) -> None:
        """Add the counts of another pass; the depth is the smaller one."""
        for field in fields(self):
            if field.name != "depth":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.depth = min([d for d in (self.depth, other.depth) if d >= 0], default=-1)

    def state(self, ensemble: Any, counted: Mapping[str, int]) -> dict[str, AnyArray]:
        """Return the arrays of a state that are not by row, if these are the totals: trees, bins, and other numbers."""
        e, scalars = ensemble, {**counted, "rebuilds": self.subtrees, "rebuilt_rows": self.rows}
        scalars |= {"classes": e.classes if e else -1, "exponent": e.exponent if e else 0}
        state = {name: np.array([value], dtype=np.int64) for name, value in scalars.items()}
        return state if e is None else state | e.bins.arrays() | e.nodes() | {"origin": np.array([e.loss.origin])}

    @classmethod
    def of(cls, trees: int, of_shards: Sequence[Ints]) -> Counts:
        """Return the costs of a pass through so many trees, from what each shard has counted: rows are its own."""
        c = of_shards[0].tolist()
        rows, refreshed = (sum(int(counts[field]) for counts in of_shards) for field in (ROWS, REFRESHED))
        return cls(trees, c[TREES_RETRAINED], c[SUBTREES], rows, c[NODES], c[DEPTH], refreshed)


class UpdateLog:
    """One entry for each D' (and for the first training): its last update, and what it took (:class:`Counts`)."""

    COLUMNS = ("seq", "deletes", "inserts", *(field.name for field in fields(Counts)), "seconds")

    def __init__(self) -> None:
        self._entries: list[tuple[float, ...]] = []

    def add(self, seq: int, deletes: int, inserts: int, counts: Counts, seconds: float) -> None:
        """Record a D' that ended with update ``seq``."""
        self._entries.append((seq, deletes, inserts, *astuple(counts), seconds))

    def arrays(self) -> dict[str, AnyArray]:
        """Columns of the entries, int64 but for ``seconds``."""
        columns = zip(*self._entries, strict=True) if self._entries else [()] * len(self.COLUMNS)
        found = {name: np.array(column) for name, column in zip(self.COLUMNS, columns, strict=True)}
        return {name: array.astype(np.float64 if name == "seconds" else np.int64) for name, array in found.items()}


@dataclass(slots=True)
class TrainingRecord:
    """The last training of all trees, and the updates since; part of a state."""

    trained: int = 0  #: Updates of the stream before the end of the last training.
    trained_rows: int = 0  #: Rows it was made on.
    changes: int = 0  #: Inserts and deletes since.
    #: ``work``, ``work_changes``: Work of the last update in place (:meth:`raydt.learners.gbdt.update.Counts.work`),
    #: less a thirty-second part for each training since; and its inserts and deletes.
    work: int = 0
    work_changes: int = 0
    trainings: int = 0  #: Trainings of all trees so far, with the first.

    @classmethod
    def of(cls, state: Mapping[str, AnyArray]) -> TrainingRecord:
        """Return the record in a state."""
        return cls(**{name: int(state[name][0]) for name in RECORD})

    def numbers(self) -> dict[str, int]:
        """Return what a state keeps of it."""
        return asdict(self)

    def is_due(self, options: GBDTOptions, changes: int, live: int, trees: int) -> bool:
        """Return True if all trees are to be trained again for ``changes``, which leave ``live`` rows."""
        if self.changes >= options.trains_after(self.trained_rows):
            return True
        return options.retrain == "auto" and self._costs_a_training(changes, live, trees)

    def _costs_a_training(self, changes: int, live: int, trees: int) -> bool:
        """Return True if the update would be as much work as a training: in proportion, at most as the last one."""
        training = live * trees
        return self.work_changes > 0 and self.work * min(changes, self.work_changes) >= self.work_changes * training

    def add_training(self, seq: int, rows: int) -> None:
        """Record a training on so many rows before update ``seq``.

        The known work of an update then counts less, so that one that was much work does not decide for ever.
        """
        self.work -= -(-self.work // _FORGOTTEN)
        self.trained, self.trained_rows, self.changes = seq, rows, 0
        self.trainings += 1

    def add_update(self, work: int, changes: int) -> None:
        """Record an update in place."""
        self.work, self.work_changes = work, changes


#: Part of the work of the last update that each training takes off. To try an update again that was twice the work of a
#: training then costs a twentieth of the trainings between.
_FORGOTTEN = 32

#: The arrays of a state that hold the record.
RECORD = tuple(field.name for field in fields(TrainingRecord))


def outlook(options: GBDTOptions, warmup: int) -> str:
    """Say what a batch D' costs and how often all trees are trained again, after a warm-up of so many rows."""
    every, after = options.every(warmup, warmup), options.trains_after(warmup)
    if after <= every:
        return message("learners.always_trained", updates=counted(every, "update"), rows=warmup)
    sizes = {"updates": counted(every, "update"), "iterations": counted(options.max_iter, "iteration")}
    if options.retrain == "never":
        return message("learners.never_trained", **sizes)
    return message("learners.sometimes_trained", batches=-(-after // every), after=after, **sizes)

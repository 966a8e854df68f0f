"""Batches of many FuDyADT trees by one compiled call, which stops where a tree needs room for a rebuild."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raydt.arrays.addresses import WORDS, Addresses, array_at, fit
from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray, Ints
from raydt.examples.store import LIVE, Index
from raydt.examples.updates import BatchResult, Log, UpdateBatch
from raydt.examples.weights import NO_WEIGHTS
from raydt.learners.fudyadt.presort import largest_build
from raydt.learners.fudyadt.update import BatchSteps, Cached, advance
from raydt.learners.many import NOTES, STEPS, ManyBatches, admit_batch, deepest, end_batch
from raydt.learners.rebuild_log import REBUILD, new_log
from raydt.trees.counted_tree import NODE, REBUILDS, REBUILT_ROWS, STATISTICS, WARMUP_LEFT, CountedTree, TreeRules
from raydt.trees.records import LEAVES, MEMBER, NODES, Examples

if TYPE_CHECKING:
    from raydt.learners.fudyadt.dynamic_tree import FuDyADTTree

_NO_MEANS = np.empty(0)
_INTS = np.empty(0, dtype=np.int64)
#: The arrays of a list, in its order: of what type they are.
_LIKE = (
    CountedTree(
        *(np.empty(0, NODE), np.empty(0, STATISTICS), np.empty((0, 0), np.int64), _INTS, np.empty((0, 0), np.int64))
    ),
    Examples(np.empty(0, MEMBER), np.empty(0, np.int32), _INTS),
    Index(np.empty(0, np.int32), 0, _INTS),
    np.empty((0, 0)),
)
_FLAT = (*_LIKE[0], *_LIKE[1], _LIKE[2].table, _LIKE[2].ids, _INTS, _LIKE[3])
#: Behind them: for how many rebuilds the depth of the tree is known, and the depth.
_KNOWN = WORDS * len(_FLAT)
#: What is noted of a tree.
_NOTED = ("active", "nodes", "leaves", "depth", "rebuilds", "rebuilt_rows")
#: Columns of the log, in its order.
_COLUMNS = ("seq", "rows", "depth", "nodes", "place", "seconds")


@kernel
def _take_many(
    directory: Any, like: Any, batches: Any, out: Any, shared: Any, log: Any, logged: Any, k: int, step: int
) -> tuple[int, int, int]:
    """Take the batches of the trees from ``k`` on, of that one from ``step`` on (-1: from its beginning).

    Returns the tree and the step at which a rebuild is due that is not done here, and its node; -1 at the end. ``log``
    has the rebuilds of the batch at work; when it ends they go into the columns of ``logged``, from where the one
    before has ended (its last array).
    """
    like_tree, like_examples, like_index, like_X = like
    categorical, rules, scratch, most_rows, means, births, weight = shared
    seq, rows, depth, nodes, place, seconds, ends = logged
    while k < len(batches.start):
        words = array_at(batches.start, directory, k)
        tree = CountedTree(
            array_at(like_tree.nodes, words, 0),
            array_at(like_tree.statistics, words, 1),
            array_at(like_tree.counts, words, 2),
            array_at(like_tree.reg, words, 3),
            array_at(like_tree.sums, words, 4),
        )
        examples = Examples(
            array_at(like_examples.members, words, 5),
            array_at(like_examples.y, words, 6),
            array_at(like_examples.born, words, 7),
        )
        table, ids = array_at(like_index.table, words, 8), array_at(like_index.ids, words, 9)
        bits = 0
        while (1 << bits) < len(table):
            bits += 1
        index, reg, X = Index(table, bits, ids), array_at(batches.start, words, 10), array_at(like_X, words, 11)
        begin, end = batches.begin[k], batches.begin[k + 1]
        given = batches.X[batches.rows[k] : batches.rows[k + 1]]
        if step < 0:
            if not admit_batch(batches, out, k, index, reg, examples.y, examples.born):
                ends[k + 1] = ends[k]
                k += 1
                continue
            for i in range(begin, end):
                if out.new[i] >= 0:
                    for j in range(X.shape[1]):
                        X[out.new[i], j] = given[out.row[i], j]
            log[0].rows = 0
            step = 0
        first = batches.room * begin
        steps = BatchSteps(out.steps[first : first + out.numbers[k, STEPS]], given, means, births)
        at = Cached(X, categorical, weight)
        step, node = advance(tree, examples, at, steps, step, rules, scratch, log, most_rows)
        if node >= 0:
            return k, step, node
        end_batch(batches, out, k, index, reg)
        if words[_KNOWN] != tree.reg[REBUILDS]:
            words[_KNOWN], words[_KNOWN + 1] = tree.reg[REBUILDS], deepest(tree.nodes)
        notes = out.numbers[k, NOTES:]
        notes[0], notes[1], notes[2] = reg[LIVE], tree.reg[NODES], tree.reg[LEAVES]
        notes[3], notes[4], notes[5] = words[_KNOWN + 1], tree.reg[REBUILDS], tree.reg[REBUILT_ROWS]
        to = ends[k]
        for r in range(1, log[0].rows + 1):
            seq[to], rows[to], depth[to], nodes[to] = log[r].stamp >> 1, log[r].rows, log[r].depth, log[r].nodes
            place[to], seconds[to] = log[r].place, log[r].seconds
            to += 1
        ends[k + 1] = to
        k, step = k + 1, -1
    return k, 0, -1


class ListedTree:
    """The arrays of a tree and its examples, for the call that takes many; as long as they are these."""

    def __init__(self, live: FuDyADTTree) -> None:
        store, tree = live.store, live.tree
        arrays = *tree, *live.examples, store.table, store.id, store.reg, store.X
        self._tree, self._members, self._table, self._id, self._X = tree, live.members, store.table, store.id, store.X
        whole = len(live.members) >= store.capacity == len(store.id) == len(store.X)
        fits = whole and fit(arrays, _FLAT)
        self.addresses = Addresses(arrays, (-1, 0)) if fits else Addresses()
        self._rules, d = live.rules, len(live.features)
        most_rows = min(live.loop_rows, (live.plan.local_work_limit - 1) // max(1, d))
        rest = live.rules, tree.counts.shape[1], most_rows, live.categorical.tobytes()
        self.group = _group(*rest) if fits else None

    def is_current(self, live: FuDyADTTree) -> bool:
        """Return whether the arrays are those of the tree."""
        store = live.store
        return (
            self._tree is live.tree
            and self._rules is live.rules
            and self._members is live.members
            and self._table is store.table
            and self._id is store.id
            and self._X is store.X
            and self.addresses.entry[1] > 0  # of a copy there is none
        )


def group_of(live: FuDyADTTree, batch: UpdateBatch, listed: ListedTree | None) -> tuple[ListedTree | None, Any]:
    """Return the list of a tree's arrays, if it has one, and the group of trees whose batches are taken with this one.

    None if the batch goes the usual way: in the warm-up, with weights or numeric labels, or where rows are elsewhere.
    """
    store = live.store
    if batch.weight is not None or batch.blocks or live.tree.reg[WARMUP_LEFT] or not (batch.start or batch.warmup == 0):
        return listed, None
    known = live.tree.counts.shape[1]
    if not live.takes_rows or store.reg[LIVE] + len(batch.op) > largest_build(max(known, batch.n_classes)):
        return listed, None
    if listed is None or batch.n_classes > known or not listed.is_current(live):
        live.make_room(batch)
        listed = ListedTree(live)
    return listed, listed.group


class _ManyTrees:
    """Trees of the same options, features and number of classes."""

    def __init__(self, rules: TreeRules, most_rows: int, categorical: bytes) -> None:
        self._rules, self._most_rows = rules, most_rows
        self._categorical = np.frombuffer(bytearray(categorical), dtype=np.bool_)

    def take(self, sessions: Sequence[Any], batches: ManyBatches) -> list[BatchResult | None]:
        """Take the batches of some sessions; None of those that go the usual way."""
        coordinators = [session.coordinator for session in sessions]
        directory = np.array([one.listed.addresses.entry for one in coordinators], dtype=np.int64)
        for one in coordinators:
            one.store.changes += 1  # before, so that a change that is broken off is counted
        log, m = new_log(batches.longest), batches.given.room * len(batches.given.op)
        kinds = [REBUILD[name] if name != "place" else np.dtype(np.int8) for name in ("rows", *_COLUMNS[1:])]
        columns = [np.empty(m, dtype=kind) for kind in kinds]
        ends = np.zeros(len(coordinators) + 1, dtype=np.int64)
        k, step = 0, -1
        while True:
            scratch = coordinators[0].live.scratch
            shared = self._categorical, self._rules, scratch, self._most_rows, _NO_MEANS, _INTS, NO_WEIGHTS
            rest = log, (*columns, ends), k, step
            k, step, node = _take_many(directory, _LIKE, batches.given, batches.taken, shared, *rest)
            if node < 0:
                break
            one = coordinators[k]
            first = batches.given.room * int(batches.given.begin[k])
            sessions[k].driver.run(one.live.rebuild(node, int(batches.taken.steps["stamp"][first + step]), log))
            one.listed = ListedTree(one.live)
            directory[k] = one.listed.addresses.entry
            step += 1
        results = batches.results(_NOTED, self._logs(columns, ends))
        for k, (one, batch, result) in enumerate(zip(coordinators, batches.batches, results, strict=True)):
            if result is not None:
                one.took(batch.start + result.applied, batches, k)
        return results

    @staticmethod
    def _logs(columns: list[AnyArray], ends: Ints) -> list[Log]:
        parts = [slice(*part) for part in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
        return [{name: column[part] for name, column in zip(_COLUMNS, columns, strict=True)} for part in parts]


@functools.lru_cache(64)
def _group(rules: TreeRules, classes: int, most_rows: int, categorical: bytes) -> _ManyTrees:
    return _ManyTrees(rules, most_rows, categorical)

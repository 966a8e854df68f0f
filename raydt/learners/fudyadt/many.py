"""Many FuDyADT trees by one compiled call: their batches, digests, models and states.

Invariant: what comes out is, bit for bit, what each tree gives alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.addresses import WORDS, Addresses, array_at, fit
from raydt.arrays.blocks import Column
from raydt.arrays.elementary import AnyArray, Floats, Int32s, Ints, sort_pairs
from raydt.arrays.kernel import kernel
from raydt.examples.digest import SIZE, digest_of_roots, hash_rows, rows_work
from raydt.examples.store import LIVE, Index
from raydt.examples.updates import NO_WEIGHTS, BatchResult, Log, UpdateBatch
from raydt.learners.batch_coordinator import REBUILD, new_log
from raydt.learners.fudyadt.dynamic_tree import BatchSteps, Cached, FuDyADTTree, advance
from raydt.learners.fudyadt.histograms import largest_build
from raydt.learners.tree_coordinator import (
    NOTES,
    STEPS,
    TOTALS,
    ManyBatches,
    admit_batch,
    deepest,
    end_batch,
    index_of,
    inserts_of,
)
from raydt.trees.canonical_arrays import (
    NodeColumns,
    canonical_columns,
    copy_nodes,
    hash_tree,
    tree_work,
)
from raydt.trees.counted_tree import (
    NODE,
    REBUILDS,
    REBUILT_ROWS,
    STATISTICS,
    WARMUP_LEFT,
    CountedTree,
    TreeRules,
)
from raydt.trees.records import LEAVES, MEMBER, NODES, Examples

# Batches, by a call that stops where a tree needs room for a rebuild.

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
#: Where the arrays of the examples, and the table of the store, begin.
_OF_TREE, _OF_STORE = len(_LIKE[0]), len(_LIKE[0]) + len(_LIKE[1])
#: Behind all arrays: for how many rebuilds the depth of the tree is known, and the depth.
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
        tree, examples = array_at(like_tree, words, 0), array_at(like_examples, words, _OF_TREE)
        index = index_of(array_at(like_index.table, words, _OF_STORE), array_at(like_index.ids, words, _OF_STORE + 1))
        reg, X = array_at(batches.start, words, _OF_STORE + 2), array_at(like_X, words, _OF_STORE + 3)
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


@kernel
def _hash_many(directory: Any, like: Any, certified: bool, tree_work: Any, rows_work: Any, roots: Any) -> None:
    """Hash some trees and their rows; ``roots``, shape (trees, 2, 4), has the words of both hashes."""
    like_tree, like_examples, like_index, _ = like
    for k in range(len(roots)):
        words = array_at(like_index.ids, directory, k)
        hash_tree(array_at(like_tree, words, 0), certified, tree_work)
        examples = array_at(like_examples, words, _OF_TREE)
        table, ids = array_at(like_index.table, words, _OF_STORE), array_at(like_index.ids, words, _OF_STORE + 1)
        hash_rows(table, ids, examples.y, rows_work)
        for i in range(roots.shape[2]):
            roots[k, 0, i], roots[k, 1, i] = tree_work.hashes[0, i], rows_work.hashes[0, i]


class _RowColumns(NamedTuple):
    """The rows of several trees, one tree after another, those of each in order of birth."""

    id: Ints
    y: Int32s
    born: Ints
    leaf: Int32s  #: Position in preorder.
    X: Floats

    @classmethod
    def of(cls, rows: int, features: int) -> _RowColumns:
        """Return room for so many rows."""
        wide, narrow = np.empty((2, rows), dtype=np.int64), np.empty((2, rows), dtype=np.int32)
        return cls(wide[0], narrow[0], wide[1], narrow[1], np.empty((rows, features)))


@kernel
def _copy_many(directory: Any, like: Any, edges: Any, nodes: Any, rows: Any, work: Any) -> None:
    """Copy the nodes of some trees, in preorder, and their rows, unless these have no room."""
    like_tree, like_examples, like_index, like_X = like
    order, position, births, slots = work
    for k in range(len(directory)):
        words = array_at(like_index.ids, directory, k)
        tree, examples = array_at(like_tree, words, 0), array_at(like_examples, words, _OF_TREE)
        copy_nodes(tree, order, position, edges[0][k], nodes)
        begin = edges[1][k]
        if edges[1][k + 1] == begin:
            continue
        table, ids = array_at(like_index.table, words, _OF_STORE), array_at(like_index.ids, words, _OF_STORE + 1)
        X = array_at(like_X, words, _OF_STORE + 3)
        n = np.int64(0)
        for slot in table:
            if slot >= 0:
                births[n], slots[n] = examples.born[slot], slot
                n += 1
        sort_pairs(births, slots, n)
        for i in range(n):
            slot, to = slots[i], begin + i
            rows.id[to], rows.y[to], rows.born[to] = ids[slot], examples.y[slot], births[i]
            rows.leaf[to] = position[examples.members[slot].leaf]
            for j in range(X.shape[1]):
                rows.X[to, j] = X[slot, j]


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


def _directory(coordinators: Sequence[Any]) -> Ints:
    return np.array([one.listed.addresses.entry for one in coordinators], dtype=np.int64)


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
    current = listed is not None and batch.n_classes <= known and listed.is_current(live)
    if listed is not None and current and (live.has_room(len(batch.op)) or live.has_room(inserts_of(batch))):
        return listed, listed.group
    live.make_room(batch)
    live.make_nodes(inserts_of(batch))
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
        directory = _directory(coordinators)
        for one in coordinators:
            one.store.changes += 1  # before, so that a change that is broken off is counted
        log, m = new_log(batches.longest), batches.given.room * len(batches.given.op)
        kinds = [REBUILD[name] if name != "place" else np.dtype(np.int8) for name in ("rows", *_COLUMNS[1:])]
        columns = [np.empty(m, dtype=kind) for kind in kinds]
        ends = np.zeros(len(coordinators) + 1, dtype=np.int64)
        k, step = 0, -1
        while True:
            scratch = coordinators[0].live.scratch(coordinators[0].live.loop_rows)
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

    def digests(self, coordinators: Sequence[Any]) -> list[str]:
        """Return the digests of some trees."""
        lives = [one.live for one in coordinators]
        nodes = max(int(live.tree.reg[NODES]) for live in lives)
        room, classes = max(len(live.tree.nodes) for live in lives), lives[0].tree.counts.shape[1]
        work = tree_work(nodes, room, classes), rows_work(max(live.store.live for live in lives))
        roots = np.empty((len(lives), 2, SIZE // 8), dtype="<u8")
        _hash_many(_directory(coordinators), _LIKE, self._rules.certified, *work, roots)
        found = roots.tobytes()
        return [
            digest_of_roots(found[at : at + SIZE], found[at + SIZE :][:SIZE]) for at in range(0, len(found), 2 * SIZE)
        ]

    def models(self, coordinators: Sequence[Any]) -> dict[str, Column]:
        """Return the canonical arrays of some trees."""
        edges, columns, registers, _, _ = self._columns(coordinators, 0)
        return canonical_columns(columns, edges, registers, self._rules)

    def states(self, coordinators: Sequence[Any]) -> dict[str, Column]:
        """Return the arrays of the states of some trees: ``coordinator/...``, and ``group-.../X`` of feature groups."""
        features, every = coordinators[0].features, np.arange(len(coordinators))
        edges, columns, registers, places, rows = self._columns(coordinators, 1)
        found, counts, one = canonical_columns(columns, edges, registers, self._rules), np.diff(places), every * 0 + 1
        found["leaf"] = Column(rows.leaf, counts[:, None], every)
        found["seq"] = Column(np.array([one.seq for one in coordinators], dtype=np.int64), one[:, None], every)
        found |= {name: Column(registers[:, at].copy(), one[:, None], every) for name, at in TOTALS}
        found |= {name: Column(getattr(rows, name), counts[:, None], every) for name in ("id", "y", "born")}
        state = {f"coordinator/{name}": column for name, column in found.items()}
        for group in range(features.groups):
            of = features.group_columns(group)
            X = rows.X[:, of[0] : of[-1] + 1]
            shapes = np.column_stack([counts, np.full(len(counts), X.shape[1])])
            state[f"group-{group:03d}/X"] = Column(X.reshape(-1), shapes, every)
        return state

    def _columns(self, coordinators: Sequence[Any], copies: int) -> tuple[Ints, NodeColumns, Ints, Ints, _RowColumns]:
        """Return where nodes begin, the nodes, the registers, where rows begin, and so many copies of the rows."""
        lives = [one.live for one in coordinators]
        registers = np.array([live.tree.reg for live in lives])
        edges = np.append(0, np.cumsum(registers[:, NODES]))
        counts = np.array([live.store.live for live in lives])
        places = np.append(0, np.cumsum(copies * counts))
        columns = NodeColumns.of(int(edges[-1]), lives[0].tree.counts.shape[1])
        rows = _RowColumns.of(int(places[-1]), len(lives[0].features))
        most = max(len(live.tree.nodes) for live in lives)
        order, position = np.empty((2, most), dtype=np.int32)
        work = order, position, np.empty(int(counts.max()), dtype=np.int64), np.empty(int(counts.max()), dtype=np.int32)
        _copy_many(_directory(coordinators), _LIKE, (edges, places), columns, rows, work)
        return edges, columns, registers, places, rows

    @staticmethod
    def _logs(columns: list[AnyArray], ends: Ints) -> list[Log]:
        parts = [slice(*part) for part in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
        return [{name: column[part] for name, column in zip(_COLUMNS, columns, strict=True)} for part in parts]


@functools.lru_cache(64)
def _group(rules: TreeRules, classes: int, most_rows: int, categorical: bytes) -> _ManyTrees:
    return _ManyTrees(rules, most_rows, categorical)

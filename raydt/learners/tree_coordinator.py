"""Common base of the coordinators of fully dynamic trees: state, digest and statistics of the tree they hold.

Invariant: two models with the same digest have the same tree, with the same counts at every node, and the same examples
with the same labels, whatever their slots and node ids. Which leaf an example is in follows from its features; the
audit checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import trimmed
from raydt.arrays.elementary import Arrays, Floats, Int32s, Ints, Slots
from raydt.arrays.kernel import inner_kernel
from raydt.evaluation.scoring import NO_LEVEL
from raydt.examples.digest import Part, digest
from raydt.examples.store import FREE, LIVE, USED, ExampleStore, Index, Weighting, admit_updates
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    INSERT,
    NO_WEIGHTS,
    UPDATE,
    Admission,
    BatchResult,
    Features,
    Log,
    Refusal,
    UpdateBatch,
    Weights,
    sums_by_class,
)
from raydt.learners.batch_coordinator import STEP, SequentialCoordinator, fill_steps
from raydt.trees.canonical_arrays import Outline, canonical_tree, count_rows, live_tree
from raydt.trees.counted_tree import REBUILDS, REBUILT_ROWS, WARMUP_LEFT, TreeRules, in_units, new_tree, weigh
from raydt.trees.records import (
    LEAVES,
    MEMBER,
    NODES,
    Examples,
    link_members,
    list_rows,
    listed,
    masses_by_slot,
    next_in_preorder,
    take_rows,
    without_room,
)

#: Totals of a state that are registers of the tree.
TOTALS = (("warmup_left", WARMUP_LEFT), ("rebuilds", REBUILDS), ("rebuilt_rows", REBUILT_ROWS))


class LiveTree:
    """A tree, the lists of its leaves and the live examples, which grow together."""

    def __init__(
        self, features: Features, rules: TreeRules, store: ExampleStore, weighting: Weighting, classes: int = 2
    ) -> None:
        self.features, self.rules, self.store, self.weighting = features, rules, store, weighting
        self.categorical = features.kinds.astype(np.bool_)
        self.members = np.empty(0, dtype=MEMBER)  #: By slot: the leaf of each example, and its neighbours in the list.
        self.tree = new_tree(64, classes)

    @property
    def examples(self) -> Examples:
        """The live examples, for kernels."""
        return Examples(self.members, self.store.y, self.store.born)

    def reserve(self, rows: int) -> None:
        """Make room for new examples."""
        self.store.reserve(rows)
        self._follow_store()

    def _follow_store(self) -> None:
        """Make room in all that has an entry for each slot of the store."""
        if len(self.members) < self.store.capacity:
            self.members = self.store.grown(self.members, self.store.capacity)

    def trim(self) -> None:
        """Give up room for more examples and nodes."""
        self.store.trim()
        self.members = trimmed(self.members, self.store.capacity)
        self.tree = without_room(self.tree)

    def rows_of(self, leaf: int) -> Slots:
        """Return the slots of the examples in a leaf."""
        rows = self.tree.counts[leaf].sum() if self.rules.unit == 1 else self.tree.statistics["pairs"][leaf]
        slots = np.empty(int(rows), dtype=np.int32)
        list_rows(self.tree, self.members, leaf, slots)
        return slots

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..."""
        self.tree = live_tree(state, self.rules)
        self._restore_rows(state)
        self.weighting.restore(state, self.store)

    def _restore_rows(self, state: Arrays) -> None:
        leaf = state["leaf"]
        self.store.fill(state["id"], state["y"], state["born"], weights=state.get("weight"))
        if self.rules.unit > 1:
            count_rows(self.tree, np.bincount(leaf[leaf >= 0], minlength=len(self.tree.nodes)))
        self.members = listed(self.tree, leaf, self.store.capacity)

    # ---------------------------------------------------------------- weights

    @property
    def weights(self) -> Weights:
        """The units of examples, by slot; empty while counts are numbers of rows."""
        return NO_WEIGHTS if self.rules.unit == 1 else masses_by_slot(self.weighting, self.store)

    def _count_masses(self) -> None:
        """Take the rules where counts are masses."""
        raise NotImplementedError

    def weigh(self) -> None:
        """Make all counts masses with the first example that has another weight than 1; those in the tree have 1."""
        if self.rules.unit == 1 and self.store.uneven:
            rows = self.tree.counts.sum(axis=1)
            self._count_masses()
            weigh(self.tree, self.rules)
            if self.tree.sums.shape[1]:
                self.tree = self.tree._replace(sums=in_units(self.tree.sums))
            self.tree.statistics["pairs"] = rows

    def balance(self, seq: int, classes: int = 0) -> None:
        """Find the weights of classes, if they are wanted, by the examples in the root, before update ``seq``.

        The tree is one leaf, whose examples count by these weights from now on; ``classes`` as of ``Weighting``.
        """
        if not self.weighting.is_open:
            return
        slots = self.rows_of(0)
        self.weighting.balance(self.store, slots, seq, classes, np.arange(self.store.used))
        if self.rules.unit == 1:
            self._count_masses()
        take_rows(self.tree, self.members, 0, slots)
        weight = self.weights[slots]
        self.members["leaf"][slots] = np.where(weight > 0, 0, -1)
        link_members(self.tree, self.members, slots[weight > 0])
        sums = sums_by_class(weight, self.store.y[slots], self.tree.counts.shape[1])
        self.tree.counts[0] = sums
        self.tree.statistics["n"][0], self.tree.statistics["pairs"][0] = sums.sum(), np.count_nonzero(weight)


def inserts_of(batch: UpdateBatch) -> int:
    """Return how many examples a batch may add."""
    return int(((batch.op == INSERT) | (batch.op == UPDATE)).sum())


class TreeCoordinator(SequentialCoordinator):
    """A coordinator that holds a dynamic tree."""

    live: LiveTree
    _outlined: Outline | None = None
    _outlined_unit = 1

    @property
    def _outline(self) -> Outline:
        """The outline of the tree as it is. O(nodes changed since it was last asked for)."""
        rules = self.live.rules
        if self._outlined is None or self._outlined_unit != rules.unit:  # with the first weight all counts are others
            self._outlined, self._outlined_unit = Outline(rules.certified), rules.unit
        self._outlined.follow(self.live.tree)
        return self._outlined

    @property
    def store(self) -> ExampleStore:
        """The live examples."""
        return self.live.store

    def _is_cut_short(self, updates: int) -> bool:
        """Return True if the warm-up is over; it counts insertions, and takes as many more as were refused."""
        left = updates - self.store.live
        if 0 < left < self.live.tree.reg[WARMUP_LEFT]:
            self.live.tree.reg[WARMUP_LEFT] = left
        return not left and bool(self.live.tree.reg[WARMUP_LEFT] > 0)

    def _positions(self, slots: Slots) -> Arrays:
        return {"leaf": self._outline.places(self.live.tree, self.live.members["leaf"][slots])}

    def digest(self, former: bool = False) -> str:
        """Return the digest of tree and examples, free of node ids. O(nodes + live examples), then O(depth)."""
        tree = self._outline.root(self.live.tree)
        return digest([("tree", tree), *self._digested_numbers(), *self._class_parts(), self._row_part()])

    def trim(self) -> None:
        """Rest, and give up the outline and room for more examples and nodes."""
        super().trim()
        self._outlined = None
        self.live.trim()

    def _digested_numbers(self) -> list[Part]:
        """Return what else the digest has."""
        return []

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        reg = self.live.tree.reg
        return {
            "active": self.store.live,
            "nodes": int(reg[NODES]),
            "leaves": int(reg[LEAVES]),
            "depth": self._outline.depth,
            "rebuilds": int(reg[REBUILDS]),
            "rebuilt_rows": int(reg[REBUILT_ROWS]),
        }

    def model(self) -> Arrays:
        """Canonical arrays of the tree."""
        return canonical_tree(self.live.tree, self.live.rules)[0]

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, the leaf of each example, and the totals."""
        arrays, position = canonical_tree(self.live.tree, self.live.rules)
        totals = {name: self.live.tree.reg[[register]] for name, register in TOTALS}
        leaf = position[self.live.members["leaf"][slots]]
        return {**arrays, "leaf": leaf, "seq": np.array([self._seq], dtype=np.int64), **totals}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        self.live.restore(state)
        self._outlined = None
        for name, register in TOTALS:
            self.live.tree.reg[register] = state[name][0]
        self._seq = int(state["seq"][0])


# Batches of many models of one kind, taken by one compiled call: what the learners that do so share.
#
# The batches lie one after another in flat arrays, and so does what comes out: the result of each is a slice. A batch
# is either taken as a whole, with the results that :meth:`BatchCoordinator.process` would give, or not touched at all,
# where something is due that needs more than counting; it goes the usual way then. What decides that is learnt before
# the first update is admitted, in O(batch).

#: Columns of ``Taken.numbers``: updates that were taken (-1 of a batch that was not), insertions, deletions, steps,
#: refused updates; and what the learner notes of the model, from ``NOTES`` on.
APPLIED, INSERTS, DELETES, STEPS, REFUSED, NOTES = range(6)
#: How many numbers a learner may note.
MOST_NOTES = 8


class ModelBatches(NamedTuple):
    """Batches of many models; each array has those of one model after those of another."""

    op: npt.NDArray[np.int8]
    id: Ints
    X: Floats
    y: Int32s
    start: Ints  #: Shape (models,): number of the first update of each.
    begin: Ints  #: Shape (models + 1,): where the updates of each begin.
    rows: Ints  #: Shape (models + 1,): where the rows of each begin.
    skip: bool  #: Whether bad updates are passed over.
    room: int  #: Steps that there is room for, times the number of updates.


class Taken(NamedTuple):
    """The outcome of each update; their steps begin at ``room`` times where they do."""

    old: Int32s
    new: Int32s
    fault: npt.NDArray[np.int8]
    row: Int32s
    prediction: Int32s
    level: npt.NDArray[np.uint16]
    path: Int32s
    steps: npt.NDArray[np.void]
    position: Ints
    numbers: Ints  #: Shape (models, numbers): see :data:`APPLIED`.


@inner_kernel
def index_of(table: Any, ids: Any) -> Any:
    """The index of a store, of whose table it is known that its length is a power of two."""
    bits = 0
    while (1 << bits) < len(table):
        bits += 1
    return Index(table, bits, ids)


@inner_kernel
def admit_batch(batches: Any, out: Any, k: int, index: Any, reg: Any, y: Any, born: Any) -> bool:
    """Admit the batch of one model, enter its new examples, and list its steps; False if it goes the usual way.

    That is where it deletes by value, or where the store has no room for its insertions.
    """
    begin, end = batches.begin[k], batches.begin[k + 1]
    inserts, row = 0, -1
    for i in range(begin, end):
        kind = batches.op[i]
        if kind == DELETE_VALUE:
            return False
        if kind in (INSERT, UPDATE):
            inserts += 1
        if kind != DELETE:
            row += 1
        out.row[i] = row
    if reg[USED] + inserts > len(index.ids) or 3 * (reg[LIVE] + inserts) > 2 * len(index.table):
        return False
    admitted = Admission(out.old[begin:end], out.new[begin:end], out.fault[begin:end], out.row[begin:end])
    stop = admit_updates(batches.op[begin:end], batches.id[begin:end], 0, batches.skip, index, reg, admitted)
    steps = inserts = deletes = refused = 0
    for i in range(end - begin):
        refused += admitted.fault[i] != 0
        slot = admitted.new[i]
        if slot >= 0:
            inserts += 1
            y[slot] = batches.y[batches.rows[k] + admitted.row[i]]
            born[slot] = batches.start[k] + i
        deletes += admitted.old[i] >= 0
        if i < stop and admitted.fault[i] == 0:
            steps += 2 if batches.op[begin + i] == UPDATE else 1
    numbers = out.numbers[k]
    numbers[APPLIED], numbers[INSERTS], numbers[DELETES] = stop, inserts, deletes
    numbers[STEPS], numbers[REFUSED] = steps, refused
    first = batches.room * begin
    rest = out.steps[first : first + steps], out.position[first : first + steps]
    fill_steps(batches.op[begin:end], admitted, batches.start[k], 0, stop, *rest)
    return True


@inner_kernel
def end_batch(batches: Any, out: Any, k: int, index: Any, reg: Any) -> None:
    """Release the slots that the batch of one model has emptied, and enter what its steps have found."""
    begin, end = batches.begin[k], batches.begin[k + 1]
    for i in range(end - 1, begin - 1, -1):
        slot = out.old[i]
        if slot >= 0:
            index.ids[slot] = reg[FREE]
            reg[FREE] = slot
    first = batches.room * begin
    for s in range(first, first + out.numbers[k, STEPS]):
        step, at = out.steps[s], begin + out.position[s]
        out.path[at] += step.path
        if step.prediction >= 0:
            out.prediction[at], out.level[at] = step.prediction, step.level


@inner_kernel
def deepest(nodes: Any) -> int:
    """Depth of the deepest node of a tree. O(nodes)."""
    depth: int = np.int64(0)
    node = np.int64(0)
    while node >= 0:
        depth = max(depth, np.int64(nodes[node].depth))
        node = next_in_preorder(nodes, node, np.int64(0))
    return depth


class ManyBatches:
    """Batches of many models, and their results once they are taken."""

    def __init__(self, batches: Sequence[UpdateBatch], skip_refused: bool) -> None:
        self.batches = batches
        lengths = [len(batch.op) for batch in batches]
        begin, rows = (np.zeros(len(batches) + 1, dtype=np.int64) for _ in range(2))
        np.cumsum(lengths, out=begin[1:])
        np.cumsum([len(batch.X) for batch in batches], out=rows[1:])
        op = np.concatenate([batch.op for batch in batches])
        room = 2 if (op == UPDATE).any() else 1
        self.given = ModelBatches(
            op,
            np.concatenate([batch.id for batch in batches]),
            np.concatenate([batch.X for batch in batches]),
            np.concatenate([batch.y for batch in batches]).astype(np.int32, copy=False),
            np.array([batch.start for batch in batches], dtype=np.int64),
            begin,
            rows,
            skip_refused,
            room,
        )
        m = len(op)
        old, new, row, prediction = (np.full(m, -1, dtype=np.int32) for _ in range(4))
        numbers = np.zeros((len(batches), NOTES + MOST_NOTES), dtype=np.int64)
        numbers[:, APPLIED] = -1
        self.taken = Taken(
            *(old, new, np.zeros(m, dtype=np.int8), row, prediction),
            np.full(m, NO_LEVEL, dtype=np.uint16),
            np.zeros(m, dtype=np.int32),
            np.empty(room * m, dtype=STEP),
            np.empty(room * m, dtype=np.int64),
            numbers,
        )
        self.longest = room * max(lengths)  #: Steps of the longest batch, at most.

    def changed(self, k: int) -> tuple[Ints, Ints]:
        """Ids that the batch of a model has inserted, and those that it has deleted."""
        part = slice(*self.given.begin[k : k + 2].tolist())
        ids = self.given.id[part]
        return ids[self.taken.new[part] >= 0], ids[self.taken.old[part] >= 0]

    def withdraw(self, k: int) -> tuple[Admission, int]:
        """Withdraw the batch of a model that was admitted, but is taken the usual way: it has no result here.

        Returns what was admitted, and how many updates are to be applied.
        """
        taken, part = self.taken, slice(*self.given.begin[k : k + 2].tolist())
        applied, taken.numbers[k, APPLIED] = int(taken.numbers[k, APPLIED]), -1
        return Admission(taken.old[part], taken.new[part], taken.fault[part], taken.row[part]), applied

    def results(self, notes: Sequence[str], logs: Sequence[Log]) -> list[BatchResult | None]:
        """Results of the batches, without the traffic and the time; None of those that were not taken.

        ``notes`` are names of the statistics that the learner has noted.
        """
        taken, begin = self.taken, self.given.begin.tolist()
        results: list[BatchResult | None] = []
        for k, (numbers, log) in enumerate(zip(taken.numbers.tolist(), logs, strict=True)):
            applied, inserts, deletes, _, refused = numbers[:NOTES]
            if applied < 0:
                results.append(None)
                continue
            part = slice(begin[k], begin[k + 1])
            bad: list[Refusal] = []
            if refused:
                fault = taken.fault[part]
                bad = [Refusal(i, int(fault[i])) for i in fault.nonzero()[0].tolist()]
            results.append(
                BatchResult(
                    *(applied, taken.prediction[part], bad, inserts, deletes, log, taken.path[part]),
                    dict(zip(notes, numbers[NOTES:], strict=False)),
                    levels=taken.level[part],
                )
            )
        return results

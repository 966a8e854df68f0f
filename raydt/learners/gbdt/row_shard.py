"""A shard's rows with all features, and what it does with them: training and updates, alone or with other shards.

It keeps its rows as cells, and the histogram of every inner node over the features that it owns. Nothing of that is
saved: it follows from rows, leaves and ledger, bit for bit.

Shards of one process are threads: they share cells, leaves, ledger, drift and the array of histograms, and each works
on a range of slots. Trees are replicated: every shard makes the same splits on the same answers.
"""

from __future__ import annotations

import copy
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Int32s, Ints, Slots
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.binning import CellStore
from raydt.examples.updates import NO_WEIGHTS, UNIT, Features
from raydt.exchange.links import Steps, side_by_side
from raydt.exchange.meetings import AllGather, ReduceScatter
from raydt.learners.gbdt.candidates import (
    Candidates,
    Targets,
    draw,
    find_places,
    most_candidates,
    no_places,
    room_for_places,
    row_of,
)
from raydt.learners.gbdt.derivatives import derive_together, gradient, residual, weighted
from raydt.learners.gbdt.ensemble import Ensemble, ModelArrays, Trees
from raydt.learners.gbdt.histograms import (
    add_packed,
    begin_growth,
    change_nodes,
    change_rows,
    change_sums,
    grow_tree,
    joined_packed,
    list_nodes,
    move_all_up,
    next_leaves,
    pack,
    search_opened,
    sum_up,
    sum_up_changes,
)
from raydt.learners.gbdt.split_search import (
    BOUNDED,
    COUNTS,
    DELETED,
    DEPTH,
    INSERTED,
    NEVER,
    OPENED,
    REFRESHED,
    RETRAINED,
    SEARCHED,
    GrowthRoom,
    LocalBatch,
    LocalSums,
    PassRoom,
    PassRules,
    growth_room,
    pass_room,
)
from raydt.learners.gbdt.staleness import LARGE, add_moves, compare, largest_moves
from raydt.learners.gbdt.update import (
    add_ranks,
    collapse,
    count_growth,
    follow,
    has_to_grow,
    join_below,
    look_at_splits,
)
from raydt.trees.records import mass_of

# Passes through all trees: training, and updates in place. One call each where one shard has all rows.
#
# An update is Algorithms 2 and 3 as they are printed, iteration after iteration: the sums of a tree change, subtrees
# whose split ranks too low are grown again, and rows below them join the batch.
#
# With other shards a pass is the same steps on the shard's own rows, cut where the shards have to meet (``row_shard``).


@inner_kernel
def _derive(batch: Any, first: int, stop: int, loss: Any, p: Any) -> None:
    """Make the entries of some rows of the batch in the current iteration, from their scores."""
    if not loss.squared:
        derive_together(batch.F, first, stop, p, batch.entry)
        return
    F, entry, slots, y = batch.F[0], batch.entry[0], batch.slots, batch.y
    for i in range(first, stop):
        entry[i] = residual(y[slots[i]], F[i], loss.unit)


@kernel
def add_scores(model: Any, batch: Any, t: int, first: int, stop: int) -> None:
    """Add the values of one tree to the scores of some rows of the batch."""
    k = t % model.loss.trees
    leaf, value, slots, F = model.leaf[t], model.trees.value[t], batch.slots, batch.F[k]
    for i in range(np.uint64(first), np.uint64(stop)):  # unsigned: no test for an index from the end
        F[i] += value[np.uint32(leaf[np.uint32(slots[i])])]


@kernel
def begin_tree(
    model: Any, local: Any, batch: Any, own: int, t: int, first: int, room: Any, p: Any
) -> tuple[int, int]:  # fmt: skip
    """Begin to train one tree, as :func:`_begin_tree`, together with other shards."""
    return _begin_tree(model, local, batch, own, t, first, room, p)


@inner_kernel
def _begin_tree(
    model: Any, local: Any, batch: Any, own: int, t: int, first: int, room: Any, p: Any
) -> tuple[int, int]:  # fmt: skip
    """Begin to train one tree, whose only leaf has ``own`` rows: note their derivatives, and return the sums of these.

    ``first`` is the first iteration of the pass; ``p`` as in ``PassRoom``.
    """
    loss, m, y = model.loss, t // model.loss.trees, batch.y
    ledger, slots, k, row = model.ledger[t], batch.slots, t - m * model.loss.trees, row_of(local.candidates, m)
    writes = len(ledger) > 0
    if k == 0:
        if len(room.places.ends) and (m == first or row > 0):
            nowhere = local.sums.shape[2] - 1
            find_places(slots[:own], local.cells, local.candidates.segment[row], nowhere, room.places)
        _derive(batch, 0, own, loss, p)
    G, H = np.int64(0), np.int64(0)
    for i in range(own):
        slot, entry = slots[i], batch.entry[k, i]
        if writes:
            ledger[slot] = entry
        g = gradient(np.int64(entry), y[slot], k, loss)
        room.slots[i], room.g[i] = slot, g
        of_row_G, of_row_H = weighted(g, mass_of(local.weight, slot, UNIT), loss.squared)
        G += of_row_G
        H += of_row_H
    room.root[0, 0], room.root[0, 1], room.ends[0] = 0, -1, own
    return G, H


@kernel
def train_pass(model: Any, local: Any, batch: Any, own: int, first: int, stop: int, room: Any, p: Any) -> None:
    """Train the iterations from ``first`` up to before ``stop`` on ``own`` rows; ``p`` as in ``PassRoom``."""
    trees, per = model.trees, model.loss.trees
    for t in range(first * per, stop * per):
        trees.G[t, 0], trees.H[t, 0] = _begin_tree(model, local, batch, own, t, first, room, p)
        grow_tree(model, local, t, row_of(local.candidates, t // per), 1, room)
        add_scores(model, batch, t, 0, own)


@kernel
def derive_batch(
    model: Any, batch: Any, m: int, own: int, n: int, kept: int, rules: Any, compares: bool, p: Any
) -> None:
    """Make the entries of a batch, as :func:`_derive_batch`, together with other shards."""
    _derive_batch(model, batch, m, own, n, kept, rules, compares, p)


@inner_kernel
def _derive_batch(
    model: Any, batch: Any, m: int, own: int, n: int, kept: int, rules: Any, compares: bool, p: Any
) -> None:
    """Make the entries of a batch in an iteration: from its scores; of others, keep those that may stay."""
    if compares:
        _derive(batch, kept, own, model.loss, p)
        compare(model, batch, m, own, n, rules.stale, p)
    else:
        batch.differs[:] = True
        _derive(batch, kept, n, model.loss, p)


@inner_kernel
def _join(model: Any, batch: Any, t: int, joined: int, roots: int, rules: Any, room: Any, grow_room: Any) -> int:
    """Let the rows join that one tree has moved too far; returns how many rows the batch has then."""
    if rules.follow == RETRAINED:
        return join_below(batch, joined, roots, grow_room)
    if rules.follow == BOUNDED and t < len(model.leaf) - model.loss.trees:
        return follow(model, batch, t, joined, roots, rules, room, grow_room)
    return joined


@inner_kernel
def _welcome(model: Any, batch: Any, m: int, n: int, joined: int, counts: Any) -> None:
    """Make the scores after iteration ``m`` of the rows that have joined."""
    per = model.loss.trees
    for i in range(n, joined):
        for k in range(per):
            batch.F[k, i] = model.loss.origin
    for t in range((m + 1) * per if joined > n else 0):
        add_scores(model, batch, t, n, joined)
    counts[REFRESHED] += joined - n


@kernel
def end_update(
    model: Any, batch: Any, t: int, kept: int, n: int, joined: int, roots: int, rules: Any, room: Any, grow_room: Any,
    counts: Any
) -> int:  # fmt: skip
    """End one tree, as :func:`_end_update`, together with other shards."""
    return _end_update(model, batch, t, kept, n, joined, roots, rules, room, grow_room, counts)


@inner_kernel
def _end_update(
    model: Any, batch: Any, t: int, kept: int, n: int, joined: int, roots: int, rules: Any, room: Any, grow_room: Any,
    counts: Any
) -> int:  # fmt: skip
    """End one tree: its scores, and the rows that join. Returns how many rows the batch has then.

    After the last tree of an iteration, rows that have joined get their scores.
    """
    if roots:
        count_growth(model, t, roots, room, grow_room, counts)
    joined = _join(model, batch, t, joined, roots, rules, room, grow_room)
    per = model.loss.trees
    add_scores(model, batch, t, kept, n)
    if t % per == per - 1 and t < len(model.leaf) - 1:
        _welcome(model, batch, t // per, n, joined, counts)
    return int(joined)


@kernel
def update_pass(
    model: Any,
    local: Any,
    batch: Any,
    role: int,
    own: int,
    n: int,
    rules: Any,
    compares: bool,
    room: Any,
    grow_room: Any,
    counts: Any,
) -> int:
    """Take a batch through all trees: ``own`` rows of ``role``, and others up to ``n`` in all.

    ``compares``: entries of others may stay. Returns how many rows are members of the batch at the end, those that
    joined in the last iteration too. ``counts`` takes what was done (COUNTS).
    """
    trees, per = model.trees, model.loss.trees
    kept, joined = own if role == DELETED else 0, n
    counts[:] = 0
    counts[DEPTH], counts[REFRESHED] = -1, n - own
    for t in range(len(trees.feature)):
        row, roots = row_of(local.candidates, t // per), 0
        if t % per == 0:
            n = joined
            _derive_batch(model, batch, t // per, own, n, kept, rules, compares, room.p)
        changed = change_rows(model, local, batch, t, t % per, role, own, n, room)
        for node in range(len(room.value)):
            room.value[node] = trees.value[t, node]
        nodes = list_nodes(trees, t, room)
        change_sums(model, local, t, row, changed, nodes, room)
        if has_to_grow(model, local, t, row, nodes, rules, room, True):
            roots = collapse(model, batch.y, t, t % per, rules, room, grow_room)
            if roots:
                grow_tree(model, local, t, row, roots, grow_room)
        joined = _end_update(model, batch, t, kept, n, joined, roots, rules, room, grow_room, counts)
    return joined


@kernel
def change_tree(model: Any, local: Any, t: int, rules: Any, room: Any, head: Any, packed: Any) -> int:
    """Change one tree by what all shards have changed; returns how many splits are to be judged (``room.judged``).

    ``head``, shape (5 nodes,), is scratch.
    """
    add_packed(packed, head, room.delta, local.begin, local.end)
    for node in range(len(room.value)):
        at = 5 * node
        room.value[node] = model.trees.value[t, node]
        room.G[node], room.H[node], room.rows[node] = head[at], head[at + 1], head[at + 4]
        room.absolute[node, 0], room.absolute[node, 1] = head[at + 2], head[at + 3]
    nodes = list_nodes(model.trees, t, room)
    change_nodes(model, t, nodes, room)
    move_all_up(model.trees, local, t, nodes, room, local.begin, local.end)
    return look_at_splits(model, local, t, row_of(local.candidates, t // model.loss.trees), nodes, rules, room)


@kernel
def judge_tree(model: Any, local: Any, batch: Any, t: int, rules: Any, room: Any, grow_room: Any, answers: Any) -> int:
    """Collapse what has failed in one tree, by the answers of all shards; returns how many roots are to grow."""
    add_ranks(model.trees, t, answers, local.units, room)
    per, nodes = model.loss.trees, list_nodes(model.trees, t, room)
    if not has_to_grow(model, local, t, row_of(local.candidates, t // per), nodes, rules, room, False):
        return 0
    return collapse(model, batch.y, t, t % per, rules, room, grow_room)


_FOLLOW = {"never": NEVER, "retrained": RETRAINED, "bounded": BOUNDED, "changed_leaves": BOUNDED}
_NONE = np.empty(0, dtype=np.int64)
#: Rows whose leaves and ledger are copied at a time.
_ROWS = 1 << 16
#: Shards of one process open this part of a tree's leaves ahead, at most: 1 / NEAR_AHEAD.
NEAR_AHEAD = 4


def _keep_scores(F: Floats, batch: LocalBatch) -> None:
    """Write the scores of a batch into ``F``, shape (rows, K'), unless the batch has these themselves."""
    if not np.may_share_memory(F, batch.F):
        F[:] = batch.F[:, : len(F)].T


class RowShard:
    """Cells, histograms and room to work, which change with trees, leaves and ledger of ``ensemble``."""

    def __init__(self, ensemble: Ensemble, features: Features, cells: CellStore | None = None) -> None:
        self.ensemble, self._features = ensemble, features
        self.cells = cells or CellStore(ensemble.bins, len(features.names))
        #: Slots of the rows that the last update took through the trees, until the next.
        self.taken: Slots = np.empty(0, dtype=np.int32)
        #: Stored segments of the features that each shard owns: those of shard i from ``ends[i]`` on.
        self._ends: list[int] = []
        self._index, self._near = 0, False
        self._candidates: Candidates | None = None
        self._histograms: Ints | None = None
        self._room: tuple[PassRoom, GrowthRoom, LocalBatch] | None = None
        self.targets = Targets(np.empty(0), NO_WEIGHTS)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: without the scratch, which has numbers of deleted rows."""
        return {**self.__dict__, "_room": None, "taken": np.empty(0, dtype=np.int32)}

    def rest(self) -> None:
        """Drop the scratch, and the histograms, which have to be summed up before the next update."""
        self._room, self._histograms, self.taken = None, None, np.empty(0, dtype=np.int32)

    def trim(self, capacity: int) -> None:
        """Rest, drop what is made again from the bins and the columns, and give up room beyond so many slots."""
        self.rest()
        self._candidates = None
        self.cells.trim()
        self.ensemble.trim(capacity)

    @property
    def rests(self) -> bool:
        """Return True if there are no histograms."""
        return self._histograms is None

    # ---------------------------------------------------------------- which part is its own

    def divide(self, index: int, shards: int, near: bool = False) -> None:
        """Own the features of shard ``index`` in the next passes. O(features).

        ``near``: the others are in this process, so that a meeting costs less than leaves opened ahead in vain.
        """
        self._near = near
        stored = self._drawn.stored
        bounds = np.searchsorted(stored, [int(stored[-1]) * i // shards for i in range(shards)] + [int(stored[-1])])
        bounds[0], bounds[-1] = 0, len(stored) - 1
        self._index, self._ends, self._bounds = index, stored[bounds].tolist(), bounds.tolist()

    @property
    def _drawn(self) -> Candidates:
        """Return the candidates, drawn when they are first needed."""
        e, o = self.ensemble, self.ensemble.options
        if self._candidates is None:
            features, most = np.arange(len(e.bins)), most_candidates(o.candidate_fraction, o.max_bins)
            whole = self.cells.whole
            self._candidates = draw(e.bins, features, e.bins.cuts(), most, o.random_state, e.iterations, whole)
        return self._candidates

    @property
    def _sums(self) -> LocalSums:
        """Cells, candidates and histograms, for kernels; made when they are first needed."""
        e, o, drawn, i = self.ensemble, self.ensemble.options, self._drawn, self._index
        if self._histograms is None:
            shape = len(e.leaf), o.max_leaf_nodes - 1, int(drawn.stored[-1]) + 1, 2
            self._histograms = np.zeros(shape, dtype=np.int64)
        if not self._ends:
            self.divide(0, 1)
        own = self._bounds[i], self._bounds[i + 1], self._ends[i], self._ends[i + 1]
        return LocalSums(self.cells.cells, drawn, e.units, self._histograms, *own, self.targets.weight)

    def beside(self, other: RowShard | None, index: int, shards: int) -> RowShard:
        """Return shard ``index`` of the next pass of this one with others in this process, with trees of its own.

        ``other`` is one of an earlier pass, whose memory is used again.
        """
        e = copy.copy(self.ensemble)
        e.trees = Trees(*(array.copy() for array in e.trees))
        shard = RowShard(e, self._features, self.cells)
        local = self._sums
        shard._candidates, shard._histograms = local.candidates, local.sums
        shard.targets, shard._room = self.targets, other._room if other is not None else None
        shard.divide(index, shards, True)
        room, *_ = shard._begin(alone=False)
        mine: PassRoom = self._begin()[0]
        trees = len(e.leaf)  # early stopping may have left more in one of both
        for into, array in zip(room.slack, mine.slack, strict=True):
            into[:trees] = array[:trees]
        return shard

    # ---------------------------------------------------------------- alone

    def train(self, slots: Slots, F: Floats, first: int, stop: int) -> None:
        """Train some iterations; ``F``, shape (rows, K'), is the score before and after."""
        model, local, batch, own, room, grow_room = self._begin_training(slots, F, True)
        train_pass(model, local, batch, own, first, stop, grow_room, room.p)
        _keep_scores(F, batch)

    def update(self, slots: Slots, role: int, anew: Slots) -> Ints:
        """Take rows through all trees, and others whose derivatives are all computed anew; return COUNTS."""
        (begun,) = side_by_side([self._begin_update(slots, role, anew, len(anew) > 0, 0, self.ensemble.leaf.shape[1])])
        model, local, batch, own, n, rules, compares, room, grow_room = begun
        counts = np.zeros(COUNTS, dtype=np.int64)
        n = update_pass(model, local, batch, role, own, n, rules, compares, room, grow_room, counts)
        self._end_update(batch, n)
        return counts

    def sum_up(self, slots: Slots, first: int, stop: int) -> None:
        """Make the histograms of some trees from the rows of the model, all of which are here."""
        room, _, _ = self._begin()
        local = self._sums
        sum_up(self.ensemble.arrays(), local, self.targets.y, slots, first, stop, room, local.sums[first:stop])

    def shorten(self, iterations: int) -> None:
        """Keep the first iterations only."""
        self.ensemble = self.ensemble.shortened(iterations)
        self._histograms = self._sums.sums[: len(self.ensemble.leaf)].copy()

    # ---------------------------------------------------------------- with other shards

    def train_steps(self, slots: Slots, F: Floats, first: int, stop: int) -> Steps[None]:
        """Train some iterations with other shards; arguments as in :meth:`train`, of the own rows."""
        model, local, batch, own, room, grow_room = self._begin_training(slots, F, False)
        per = self.ensemble.per
        for t in range(first * per, stop * per):
            head = np.array(begin_tree(model, local, batch, own, t, first, grow_room, room.p))
            yield from self._grow(model, local, t, 1, grow_room, head)
            add_scores(model, batch, t, 0, own)
        _keep_scores(F, batch)

    def update_steps(self, slots: Slots, role: int, anew: Slots, again: bool, begin: int, end: int) -> Steps[Ints]:
        """Take rows through all trees with other shards; return what was done (COUNTS), of the own rows.

        ``slots`` and ``anew`` are the own ones, in slots ``begin`` to before ``end``; ``again`` says whether any shard
        has some of ``anew``.
        """
        self._begin(alone=False)
        begun = yield from self._begin_update(slots, role, anew, again, begin, end)
        model, local, batch, own, n, rules, compares, room, grow_room = begun
        counts, head = np.zeros(COUNTS, dtype=np.int64), np.empty(5 * len(room.value), dtype=np.int64)
        counts[DEPTH], counts[REFRESHED] = -1, n - own
        kept, per, joined = own if role == DELETED else 0, self.ensemble.per, n
        for t in range(len(self.ensemble.trees.feature)):
            if t % per == 0:
                n = joined
                derive_batch(model, batch, t // per, own, n, kept, rules, compares, room.p)
            changed = sum_up_changes(model, local, batch, t, t % per, role, own, n, room, head)
            which = room.changed[:changed]
            packed = yield from self._exchanged(head, which, which, room.delta)
            room.delta[which] = 0
            judged = room.judged[: change_tree(model, local, t, rules, room, head, packed)]
            answers = np.stack((yield self._to_all(room.ranks[judged])))
            roots = judge_tree(model, local, batch, t, rules, room, grow_room, answers)
            if roots:
                yield from self._grow(model, local, t, roots, grow_room, _NONE)
            joined = end_update(model, batch, t, kept, n, joined, roots, rules, room, grow_room, counts)
        self._end_update(batch, joined)
        return counts

    def sum_up_steps(self, slots: Slots) -> Steps[None]:
        """Make all histograms from the rows of the model with other shards; ``slots`` are the own ones."""
        room, _, _ = self._begin()
        model, local, trees = self.ensemble.arrays(), self._sums, self.ensemble.trees
        own = np.empty((1, *local.sums.shape[1:]), dtype=np.int64)
        for t in range(len(trees.feature)):
            sum_up(model, local, self.targets.y, slots, t, t + 1, room, own)
            which = trees.histogram[t][trees.feature[t] >= 0].astype(np.int64)
            packed = yield from self._exchanged(_NONE, which, which, own[0])
            local.sums[t, which, local.begin : local.end] = 0
            add_packed(packed, _NONE, local.sums[t], local.begin, local.end)

    def _grow(
        self, model: ModelArrays, local: LocalSums, t: int, roots: int, room: GrowthRoom, head: Ints
    ) -> Steps[None]:
        """Grow one tree. ``head`` has the sums of the own rows at its root, or nothing where those of all are known."""
        drawn = local.candidates
        row, every = t // self.ensemble.per if len(drawn.cuts) > 1 else 0, np.arange(len(room.small))
        n = begin_growth(model, local, t, row, roots, room)
        while n >= 0:
            packed = _NONE
            if n:
                packed = yield from self._exchanged(head, room.small[:n], every[:n], room.parts)
            search_opened(model, local, t, row, room, n, head, packed)
            found = room.found[room.register[SEARCHED] : room.register[OPENED]].copy()
            answers = np.stack((yield self._to_all(found)))
            n, head = next_leaves(model, local, t, row, room, answers), _NONE

    def _to_all(self, mine: Ints) -> AllGather:
        """Return the same part for every shard."""
        return AllGather(mine, len(self._ends) - 1)

    def _exchanged(self, head: Ints, which: Ints, at: Ints, sums: Ints) -> Steps[Ints]:
        """Send every shard the own part of its features; return what all have sent, or sums of it (``add_packed``).

        That is a head, where the histograms belong, and these themselves: ``sums[at]``.
        """
        ends, each = np.array(self._ends), len(head) + 1 + len(which)
        until = each * np.arange(len(ends)) + 2 * len(which) * (ends - ends[0])
        out = np.empty(until[-1], dtype=np.int64)
        pack(head, which, at, sums, ends, out)
        parts = [out[a:b] for a, b in pairwise(until.tolist())]
        return np.concatenate((yield ReduceScatter(parts, partial(joined_packed, head=len(head)))))

    # ---------------------------------------------------------------- begin and end

    def _begin_training(self, slots: Slots, F: Floats, alone: bool) -> Any:
        room, grow_room, batch = self._begin(alone, trains=True)
        own, local = len(slots), self._sums
        if self.ensemble.per == 1:  # room in the batch for as many rows stays untouched
            entry = grow_room.g[np.newaxis]  # in whose place the derivatives come
            batch = batch._replace(slots=np.require(slots, np.int32, ["C", "W"]), F=F.T, entry=entry)
        else:
            batch.slots[:own], batch.F[:, :own] = slots, F.T
        if self.ensemble.per > 1 or len(local.candidates.cuts) == 1:  # else what is looked up serves one tree only
            places = room_for_places(local.cells, slots, local.sums.shape[2] - 1)
            grow_room = grow_room._replace(places=places)
        return self.ensemble.arrays(trains=True), local, batch, own, room, grow_room

    def _begin_update(self, slots: Slots, role: int, anew: Slots, again: bool, begin: int, end: int) -> Steps[Any]:
        e, o = self.ensemble, self.ensemble.options
        room, grow_room, batch = self._begin()
        others, compares = yield from self._others(slots, anew, again, begin, end)
        own, n = len(slots), len(slots) + len(others)
        batch.slots[:own], batch.slots[own:n] = slots, others
        batch.F[:, :n] = e.loss.origin
        batch.member[batch.slots[:n]] = True
        rows = int(np.count_nonzero(e.leaf[0, begin:end] != e.absent)) + own * (role == INSERTED)
        of_rows = rows, begin, end, e.stale, e.most_drift
        rules = PassRules(_FOLLOW[o.derivatives], o.robustness_tolerance, e.tolerance, *of_rows)
        return e.arrays(), self._sums, batch, own, n, rules, compares, room, grow_room

    def _end_update(self, batch: LocalBatch, n: int) -> None:
        self.taken = batch.slots[:n]
        batch.member[self.taken] = False

    def _others(self, slots: Slots, anew: Slots, again: bool, begin: int, end: int) -> Steps[tuple[Slots, bool]]:
        """Find the rows that go through all trees beside those of a batch; and whether their ledger entries may stay.

        They are ``anew`` if any shard has some (``again``), whose entries may not; else those whose drift is due, which
        begins again at 0. O(slots), or O(slots x trees) where moves of leaves become drift of rows.
        """
        e, stale = self.ensemble, self.ensemble.stale
        drift = e.drift[begin:end]
        e.drift[slots] = 0
        compares, due = e.options.bounded and stale.compares, anew[:0]
        e.most_drift = 0
        if again or not compares:
            return anew, not again and compares
        rows = int(np.count_nonzero(e.leaf[0, begin:end] != e.absent))
        most, live, changes = yield from self._told(int(drift.max(initial=0)), rows, len(slots))
        moved = largest_moves(e.trees, e.per)
        if most + moved > stale.most:
            add_moves(e.leaf, e.trees, e.per, e.drift, begin, end)
            e.drift[slots] = 0  # of rows to delete, which are still in their leaves
            moved = 0
            most, _, _ = yield from self._told(int(drift.max(initial=0)))
            if most > stale.most:
                due = (begin + np.flatnonzero(drift > stale.most // 2)).astype(np.int32)
                e.drift[due] = 0
        e.most_drift = stale.most - moved if LARGE * changes < live else 0
        return due, compares

    def of_rows(self, local: Int32s) -> dict[str, AnyArray]:
        """Return drift, leaves and ledger of rows, shape (n,); nothing of those that wait to be inserted."""
        e = self.ensemble
        within = local < e.leaf.shape[1]
        within[within] = e.leaf[0, local[within]] != e.absent
        leaf = np.full((len(local), len(e.leaf)), e.absent, dtype=e.leaf.dtype)
        ledger, drift = np.zeros(leaf.shape, dtype=e.ledger.dtype), np.zeros(len(local), dtype=np.uint16)
        held = np.flatnonzero(within)
        for begin in range(0, len(held), _ROWS):
            rows = held[begin : begin + _ROWS]
            leaf[rows], ledger[rows] = e.leaves_of(local[rows]), e.ledger[:, local[rows]].T
            drift[rows] = e.drift[local[rows]]
        return {"drift": drift, "leaf": leaf, "ledger": ledger}

    def _told(self, largest: int, first: int = 0, second: int = 0) -> Steps[tuple[int, int, int]]:
        """Return the largest of the shards' first numbers, and the sums of the others."""
        mine = np.array([largest, first, second])
        theirs = np.stack((yield self._to_all(mine)))
        return int(theirs[:, 0].max()), int(theirs[:, 1].sum()), int(theirs[:, 2].sum())

    def _begin(self, alone: bool = True, trains: bool = False) -> tuple[PassRoom, GrowthRoom, LocalBatch]:
        """Make room for as many rows as the ensemble has slots, and a batch; ``alone`` as for ``growth_room``.

        ``trains``: of one tree an iteration, the batch has arrays of its own, and no row needs room of an update.
        """
        e, per = self.ensemble, self.ensemble.per
        capacity = e.leaf.shape[1] + 1  # a row is written before it is known whether it is wanted
        rows = 0 if trains and per == 1 else capacity
        former = self._room
        if former is None or len(former[1].slots) < capacity or len(former[2].slots) < rows or len(former[2].F) != per:
            local = self._sums
            trees, inner, stored = local.sums.shape[:3]
            room = pass_room(rows, trees, inner, stored, len(e.bins), e.absent, per)
            slots, F = np.empty(rows, dtype=np.int32), np.empty((per, rows))
            entry, differs = np.empty((per, rows), dtype=np.int32), np.empty(per, dtype=np.bool_)
            batch = LocalBatch(slots, F, entry, differs, np.zeros(rows, dtype=np.bool_), self.targets.y)
            self._room = room, growth_room(capacity, inner + 1, stored - 1, no_places(stored - 1), alone), batch
        assert self._room is not None
        room, grow_room, batch = self._room
        if not alone and not len(grow_room.parts):
            _, inner, stored = self._sums.sums.shape[:3]
            grow_room = growth_room(len(batch.slots), inner + 1, stored - 1, grow_room.places, False)
        leaves = len(grow_room.made)
        grow_room = grow_room._replace(most_ahead=leaves // NEAR_AHEAD if self._near else leaves)
        self._room = room, grow_room, batch._replace(y=self.targets.y)
        return self._room

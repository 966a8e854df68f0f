"""The coordinator of the sparse best split: ids, labels and totals; features and their counters are with the shards.

One batch is one round after its rows: shards take the steps, and answer for every search with the candidate of each of
their feature groups, of which the best is the split from there on. The rows of a warm-up are taken at its end, in their
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, get_args

import numpy as np

from raydt.arrays.blocks import SparseRows, is_one
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Int32s, Ints, Slots
from raydt.arrays.kernel import kernel
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards, ShardWithRows, without_rows
from raydt.errors import InputError
from raydt.evaluation.scoring import LEVELS, Levels, levels_of
from raydt.examples.digest import digest
from raydt.examples.store import ExampleStore, Weighting
from raydt.examples.updates import UNIT, Admission, BatchResult, Features, Log, UpdateBatch
from raydt.exchange.messages import Ask, Exchange
from raydt.finders.finder import (
    NO_FEATURE,
    Finder,
    FinderName,
    FinderSteps,
    best_candidates,
    scores_of,
    table_of,
    xlogx_table,
)
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, SequentialCoordinator, steps_of
from raydt.learners.best_split.options import MEASURED, BestSplitOptions
from raydt.messages import message
from raydt.parallel import ranges, run
from raydt.trees.records import masses_by_slot, masses_of, unit_array
from raydt.trees.shapley import StoredTrees, TreeSum, constant, one_category_left
from raydt.trees.state_schema import unit_of

# The split of the last search as a model: which side a row is on, and what that side says.

#: Rows that are worth the start of another thread.
_FEW_ROWS = 1 << 14


#: Fields of splits that are counts.
COUNTS = ("n", "c1", "n1", "c11")


class Splits(NamedTuple):
    """Results of searches, one after the other."""

    feature: Ints  #: Shape (searches,): -1 where no feature was seen.
    n: Ints  #: ``n``, ``c1``: Shape (searches,): rows then (or their mass), and those of class 1.
    c1: Ints
    n1: Ints  #: ``n1``, ``c11``: Shape (searches,): of them, those in which the feature is 1; 0 without one.
    c11: Ints

    @classmethod
    def none(cls) -> Splits:
        """Return the split before any search: no feature, no rows."""
        zero = np.zeros(1, dtype=np.int64)
        return cls(zero - 1, zero, zero, zero, zero)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, AnyArray]) -> Splits:
        """The one split of a model or state."""
        return cls(*arrays["split"].reshape(-1, 1))

    def arrays(self) -> Arrays:
        """The first split, as an entry of a model or state."""
        return {"split": np.concatenate(self)}

    def at(self, searches: Any) -> Splits:
        """Some of the searches, by a slice or an array of places."""
        return Splits(*(column[searches] for column in self))

    def levels(self, side: Bools) -> Levels:
        """The share of class 1 on a side of each split, as a level; of an empty side, or of none, that of both."""
        other = ~side | (self.feature == NO_FEATURE)
        size, ones = np.where(other, self.n - self.n1, self.n1), np.where(other, self.c1 - self.c11, self.c11)
        whole = (size == 0) | (self.feature == NO_FEATURE)
        return levels_of(np.where(whole, self.c1, ones), np.where(whole, self.n, size), of_nothing=LEVELS // 2)

    def labels(self) -> Int32s:
        """The class that is predicted where the feature is 0, and where it is 1, shape (searches, 2).

        It is the majority of the side; of a tie, or of an empty side, the majority of both; of a tie there class 0.
        """
        both = (2 * self.c1 > self.n).astype(np.int32)
        out = np.empty((len(self.n), 2), dtype=np.int32)
        for side, (size, ones) in enumerate(((self.n - self.n1, self.c1 - self.c11), (self.n1, self.c11))):
            out[:, side] = np.where(2 * ones == size, both, 2 * ones > size)
        out[self.feature == NO_FEATURE, 1] = both[self.feature == NO_FEATURE]
        return out


@kernel
def _holds(indptr: Any, indices: Any, rows: Any, features: Any, out: Any) -> None:
    """Find the pairs of a feature and a row in which the feature is 1; the ones of a row ascend."""
    for i in range(len(rows)):
        out[i] = is_one(indices, indptr[rows[i]], indptr[rows[i] + 1], features[i])


def merged_splits(entropy: bool, table: Floats, n: Ints, c1: Ints, candidates: Int32s) -> Splits:
    """The best of all groups' candidates, shape (groups, searches, 3), at each search.

    ``table`` has k log k up to the largest of ``n``, for entropy; it is empty of masses.
    """
    found, of_search = np.empty(len(n), dtype=np.int64), np.ascontiguousarray(candidates.swapaxes(0, 1))
    best_candidates(entropy, table, np.stack([n, c1], axis=1), of_search, found)
    best = of_search[np.arange(len(n)), found].astype(np.int64)
    best[found < 0] = NO_FEATURE, 0, 0
    return Splits(best[:, 0], n, c1, best[:, 1], best[:, 2])


def score_of_split(entropy: bool, split: Splits, unit: int) -> float:
    """Score of the first split; without a feature the impurity of all rows, 0 without rows."""
    return float(scores_of_splits(entropy, split.at(slice(0, 1)), unit)[0])


def scores_of_splits(entropy: bool, splits: Splits, unit: int) -> Floats:
    """Scores of all splits, of whose counts a row is ``unit`` units. O(splits)."""
    scores = np.empty(len(splits.n))
    scores_of(entropy, unit, splits.n, splits.c1, splits.n1, splits.c11, scores)
    return scores


def sides(sparse: SparseRows, rows: Ints, features: Ints) -> Bools:
    """Return True if ``features[i]`` is 1 in row ``rows[i]``; never for -1."""
    out = np.empty(len(rows), dtype=np.bool_)
    indptr, indices = np.ascontiguousarray(sparse.indptr), np.ascontiguousarray(sparse.indices)
    _holds(indptr, indices, np.ascontiguousarray(rows, dtype=np.int64), np.ascontiguousarray(features), out)
    return out


class BestSplitPredictor:
    """Predictions of one split, by the arrays of a model or a state."""

    def __init__(self, features: Features, model: Mapping[str, AnyArray]) -> None:
        self.split, self._width, self._unit = Splits.of_arrays(model), features.sparse, unit_of(model)

    def _sides(self, sparse: SparseRows | None) -> Ints:
        assert sparse is not None
        ones, out = sparse, np.empty(len(sparse), dtype=np.int64)

        def find(part: slice) -> None:
            rows = np.arange(part.start, part.stop)
            out[part] = sides(ones, rows, np.full(len(rows), self.split.feature[0]))

        run([partial(find, part) for part in ranges(len(out), _FEW_ROWS)])
        return out

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Int32s:
        """Class codes, shape (n,): the majority of each row's side."""
        codes: Int32s = self.split.labels()[0, self._sides(sparse)]
        return codes

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Shares of the classes on each row's side, shape (n, n_classes).

        Those of both sides where a side is empty, and uniform before there are rows.
        """
        proba: Floats = self._shares(n_classes)[self._sides(sparse)]
        return proba

    def tree_sum(self, n_classes: int) -> TreeSum:
        """The split as a tree, whose leaves predict shares.

        Where the two shares of a side are equal, :meth:`predict` takes the majority of both sides.
        """
        feature, n, _, n1, _ = (int(column[0]) for column in self.split)
        shares = self._shares(n_classes)
        if feature == NO_FEATURE:
            return constant(0, self._width, shares[0], n, np.arange(n_classes))
        stored = StoredTrees(
            np.array([0, 3]), np.array([feature, -1, -1]), np.zeros(3), np.array([1, -1, -1]), np.array([2, -1, -1])
        )
        trees = one_category_left(stored, np.empty(0, dtype=np.bool_), self._width, shares[[0, 0, 1]])
        cover = np.array([n, n - n1, n1])
        return replace(trees, cover=cover, codes=np.arange(n_classes), unit=self._unit)

    def _shares(self, n_classes: int) -> Floats:
        """Of the side without the feature, and of that with it, shape (2, n_classes)."""
        _, n, c1, n1, c11 = (int(column[0]) for column in self.split)
        counts = np.array([[n - n1 - c1 + c11, c1 - c11], [n1 - c11, c11]], dtype=np.float64)
        counts[counts.sum(axis=1) == 0] = n - c1, c1
        if self.split.feature[0] == NO_FEATURE:
            counts[:] = n - c1, c1
        shares = np.zeros((2, max(2, n_classes)))
        shares[:, :2] = counts
        shares = shares[:, :n_classes]
        shares[shares.sum(axis=1) == 0] = 1.0
        shares /= shares.sum(axis=1, keepdims=True)
        return shares


# The work of a shard of the sparse best split: keep its features of every live row, and the finder of its groups.

#: Finders by their number in messages and states.
FINDERS: tuple[FinderName, ...] = get_args(FinderName)
#: The number of no finder yet.
UNDECIDED = -1

#: Steps whose rows are put together at once.
_TOGETHER = 1 << 14


class BestSplitShard(ShardWithRows):
    """Owner of whole feature groups."""

    def __init__(self, options: BestSplitOptions, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        self._options = options
        self._unit_of = np.full(features.groups, -1, dtype=np.int32)
        self._unit_of[groups] = np.arange(len(groups))
        self._number, self._finder = UNDECIDED, self._new_finder("scan")

    def _new_finder(self, name: FinderName) -> Finder:
        return Finder(name, self._options.entropy, self._options.alpha, len(self.groups))

    def _on_measure(self, slots: Any) -> Ints:
        """Return the number of features that are 1 in some of the rows, and the number of these ones."""
        self._held.make_room(slots)
        ones = self._held.sparse(np.array(slots)).indices
        return np.array([len(np.unique(ones)), len(ones)], dtype=np.int64)

    def _on_steps(self, finder: int, sign: Any, label: Any, slots: Any, query: Any) -> dict[str, AnyArray]:
        """Take steps; return candidates of each search, shape (groups, searches, 3), and the structures' ``work``."""
        if finder != self._number:
            self._number, self._finder = finder, self._new_finder(FINDERS[finder])
        self._weigh(np.array(sign))
        self._held.make_room(slots)
        moved, parts = self._finder.moves, []
        for begin in range(0, len(sign), _TOGETHER):
            part = slice(begin, begin + _TOGETHER)
            with_row = sign[part] != 0
            rows = self._held.sparse(np.array(slots[part])[with_row])
            indptr = np.zeros(len(with_row) + 1, dtype=np.int64)
            indptr[1:][with_row] = rows.lengths
            unit = self._unit_of[self._features.groups_of(rows.indices)]
            where = np.cumsum(indptr), rows.indices, unit
            steps = FinderSteps(np.array(sign[part]), np.array(label[part]), *where, np.array(query[part]))
            parts.append(self._finder.apply(steps))
        candidates = np.ascontiguousarray(np.concatenate(parts).swapaxes(0, 1))
        work = np.array([self._finder.moves - moved, self._finder.buckets_filled], dtype=np.int64)
        return {"candidates": candidates, "work": work}

    def _weigh(self, counts: AnyArray) -> None:
        """Make all counts masses with the first ones that are: these are of int64."""
        if counts.dtype == np.int64 and not self._finder.weighted:
            self._finder.weigh()

    def state(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Counters and bucket of every feature that is 1 somewhere, by group; ``node`` is the finder, n and c1."""
        node = np.array([self._number, self._finder.n, self._finder.c1], dtype=np.int64)
        return {g: {**self._finder.state(unit), "node": node} for unit, g in enumerate(self.groups.tolist())}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._held.restore(state)
        parts = [without_rows(state[g]) for g in self.groups.tolist()]
        if not parts:
            return
        self._number, n, c1 = parts[0]["node"].tolist()
        if self._number != UNDECIDED:
            self._finder = self._new_finder(FINDERS[self._number])
            self._weigh(parts[0]["n1"])
            self._finder.restore(n, c1, parts)


#: Scalars of a state: whole numbers under these names.
SCALARS = ("seq", "warmup", "finder", "changes", "searched", "moves", "buckets")


class SearchSteps(NamedTuple):
    """Steps for the shards, and the searches among them."""

    #: Shape (steps,): 1: a row comes, -1: it goes, 0: only a search; times its mass where examples have weights.
    sign: AnyArray
    slots: Int32s  #: Shape (steps,).
    query: Bools  #: Shape (steps,): whether the split is searched after a step.
    seq: Ints  #: Shape (searches,): the update after which each search was due first.

    def __len__(self) -> int:
        return len(self.sign)


def due(begin: int, stop: int, warmup: int, every: int) -> Ints:
    """Numbers of the updates in ``begin``, ..., ``stop`` - 1 after which the split is searched.

    It is at the end of the warm-up, and later after every update whose number, counted from 1, is a multiple of
    ``every``: the places depend on the stream alone, never on how it is cut into batches.
    """
    first = max(begin, warmup)
    multiples = np.arange(-(-(first + 1) // every) * every, stop + 1, every, dtype=np.int64) - 1
    return np.append(np.int64(warmup - 1), multiples) if begin < warmup <= stop else multiples


def work_of(kind: Int32s, slots: Int32s, seq: Ints, searches: Ints, fresh: bool) -> SearchSteps:
    """Return the shards' work: steps, and searches after some updates; ``fresh``: unchanged since the last one."""
    changes = kind != LOOK
    kind, slots, seq = kind[changes], slots[changes], seq[changes]
    last = np.searchsorted(seq, searches, side="right")  # steps before each search
    places, first = np.unique(last, return_index=True)
    if fresh and len(places) and places[0] == 0:
        places, first = places[1:], first[1:]
    sign = np.concatenate([[0], np.where(kind == ADD, 1, -1)]).astype(np.int8)  # step 0 is for a search before all
    query = np.zeros(len(sign), dtype=np.bool_)
    query[places] = True
    begin = int(not query[0])
    return SearchSteps(
        sign[begin:], np.append(np.int32(0), slots)[begin:].astype(np.int32), query[begin:], searches[first]
    )


class BestSplitCoordinator(SequentialCoordinator):
    """Ids, labels, totals and the split of the last search."""

    Predictor = BestSplitPredictor

    def __init__(self, options: BestSplitOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        self.options, self.features = options, features
        self._rows = RowsOnShards(features, shards)
        self._store = ExampleStore(0, 0)
        self._weighting: Weighting = Weighting(options.class_weight == "balanced")
        self._unit = 1  # how much of all counts a row is: UNIT once an example has another weight than 1
        #: The finder at work; None of ``auto`` before the end of the warm-up.
        self.finder: FinderName | None = None if options.finder == "auto" else options.finder
        self._warmup = self._changes = self._searched = 0
        self._moves = self._buckets = 0  # of all groups: moves so far, and buckets that are filled
        self._measured = np.zeros(3, dtype=np.int64)  # of the warm-up of ``auto``: features seen, their ones, rows
        self._waiting: Slots = np.empty(0, dtype=np.int32)  # of a warm-up that has not ended, in order of birth
        self._totals = np.zeros(2, dtype=np.int64)  # count of the live rows that were taken, and of those of class 1
        self.split = Splits.none()  #: Of the last search, one entry.
        self._fresh = True  # whether the split is that of the rows as they are
        self._table = xlogx_table(0)

    # ---------------------------------------------------------------- one batch

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        if batch.y.max(initial=-1) > 1:
            found = int(batch.y.max()) + 1
            raise InputError(message("learners.classes", found=found, what="a finder", most=2))
        self._require_warmup(batch, "best_split", self.options.warmup)
        if batch.start == 0:
            self._warmup = batch.warmup
        self.store.reserve(len(batch))
        yield from ()

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        rows = admitted.row[added]
        sparse = batch.sparse or SparseRows.empty(self.features.sparse, len(batch.X))
        if batch.blocks:
            yield from self._read(admitted.new[added], batch.row[added], batch.blocks)
        else:
            yield from self._rows.put(admitted.new[added], RowBlock.of(batch.X[rows], sparse[rows]))
        steps, position = steps_of(batch, part, admitted)
        self._weigh()
        seq, kind = batch.start + position, steps["kind"]
        splits, place, log = yield from self._advance(
            kind, steps["slot"], seq, batch.start + part.start, batch.start + part.stop
        )
        at = np.flatnonzero((kind == LOOK) | ((kind == ADD) & (seq >= self._warmup)))
        used = splits.at(place[at])
        side = sides(sparse, steps["row"][at].astype(np.int64), used.feature)
        result.predictions[position[at]] = used.labels()[np.arange(len(at)), side.astype(np.int64)]
        result.give_levels(position[at], used.levels(side))
        changed = kind != LOOK
        result.path += np.bincount(
            position[changed], 1 + (splits.feature[place[changed]] != NO_FEATURE), minlength=len(batch)
        ).astype(np.int32)
        return log

    def _advance(
        self, kind: Int32s, slots: Slots, seq: Ints, begin: int, stop: int
    ) -> Exchange[tuple[Splits, Ints, Log]]:
        """Take the updates ``begin`` to ``stop``; return the splits, the one before each step, and the log."""
        warm = seq < self._warmup
        self._waiting = np.concatenate([self._waiting, slots[warm & (kind == ADD)]])
        self._waiting = self._waiting[~np.isin(self._waiting, slots[warm & (kind == REMOVE)])]
        searches = due(begin, stop, self._warmup, self.options.query_every)
        late_kind, late_slots, late_seq = kind[~warm], slots[~warm], seq[~warm]
        if begin < self._warmup <= stop:
            waiting, self._waiting = self._waiting, self._waiting[:0]
            self._balance(waiting, late_slots[late_kind == ADD])
            yield from self._decide(waiting)
            late_kind = np.concatenate([np.full(len(waiting), ADD, dtype=np.int32), late_kind])
            late_slots = np.concatenate([waiting, late_slots])
            late_seq = np.concatenate([np.full(len(waiting), self._warmup - 1), late_seq])
        work = work_of(late_kind, late_slots, late_seq, searches, self._fresh)
        before, found = self.split, self.split.at(slice(0, 0))
        if len(work):
            found = yield from self._search(work)
            self._fresh = bool(work.query[-1])
        log = self._note(found, work.seq)
        if len(searches):
            self._searched = int(searches[-1]) + 1
        splits = Splits(*(np.concatenate(pair) for pair in zip(before, found, strict=True)))
        return splits, np.searchsorted(work.seq, seq, side="left"), log

    def _weigh(self) -> None:
        """Make all counts masses with the first example that has another weight than 1."""
        if self._unit == 1 and (self.store.uneven or self._weighting.factors is not None):
            self._unit, self._totals = UNIT, self._totals * UNIT
            self.split = self.split._replace(**{name: getattr(self.split, name) * UNIT for name in COUNTS})

    def _balance(self, slots: Slots, later: Slots) -> None:
        """Find the weights of balanced classes by the rows of the warm-up; ``later`` ones are known, too."""
        if self._weighting.balance(self.store, slots, self._warmup, 2, later):
            self._weigh()

    def _decide(self, slots: Slots) -> Exchange[None]:
        """Choose the finder by the rows of the warm-up, if it is not known."""
        if self.finder is None:
            self._measured[:2] = np.sum((yield Ask("measure", {"slots": slots})), axis=0)
            self._measured[2] = len(slots)
            self.finder = self.options.chosen(*self._measured.tolist())

    def _search(self, work: SearchSteps) -> Exchange[Splits]:
        """Have the shards take the steps; the splits of the searches."""
        assert self.finder is not None
        label = np.zeros(len(work), dtype=np.int8)
        with_row = work.sign != 0
        label[with_row] = self.store.y[work.slots[with_row]]
        if self._unit > 1:
            masses = masses_by_slot(self._weighting, self.store)[work.slots].astype(np.int64)
            work = SearchSteps(work.sign * masses, *work[1:])
        payload = {"finder": FINDERS.index(self.finder), "sign": work.sign, "label": label}
        replies = yield Ask("steps", payload | {"slots": work.slots, "query": work.query})
        moves, self._buckets = np.sum([reply["work"] for reply in replies], axis=0).tolist()
        self._moves += moves
        n = self._totals[0] + np.cumsum(work.sign, dtype=np.int64)
        c1 = self._totals[1] + np.cumsum(work.sign * label, dtype=np.int64)
        self._totals = np.array([n[-1], c1[-1]])
        n, c1 = n[work.query], c1[work.query]
        if self._unit == 1:
            self._table = table_of(self.options.entropy, int(n.max(initial=0)), self._table)
        table = self._table if self._unit == 1 else self._table[:0]  # there is none of masses
        candidates = np.concatenate([reply["candidates"] for reply in replies])
        return merged_splits(self.options.entropy, table, n, c1, candidates)

    def _note(self, found: Splits, seq: Ints) -> Log:
        """Keep the last split; the log has an entry for each search that found another feature than the one before."""
        feature = np.concatenate([self.split.feature, found.feature])
        new = np.flatnonzero(feature[1:] != feature[:-1])
        self._changes += len(new)
        if len(seq):
            self.split = found.at(slice(-1, None))
        splits = found.at(new)
        scores = scores_of_splits(self.options.entropy, splits, self._unit)
        rows = {name: (getattr(splits, name) + self._unit // 2) // self._unit for name in ("n", "n1")}
        return {"seq": seq[new], "feature": splits.feature, "score": scores, **rows}

    def finish(self) -> Exchange[Log]:
        """End a warm-up that the stream did not complete."""
        if self._seq >= self._warmup:
            return {}
        begin, self._warmup = self._seq - 1, self._seq
        nothing = np.empty(0, dtype=np.int32)
        log: Log
        _, _, log = yield from self._advance(nothing, nothing, nothing.astype(np.int64), begin, self._seq)
        return log

    # ---------------------------------------------------------------- the model

    def digest(self, former: bool = False) -> str:
        """Digest of the split with its counts, and of ids with labels."""
        return digest([*self.split.arrays().items(), *self._class_parts(), self._row_part()])

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now, and what ``BestSplitDescription.outcome`` says in words; nothing is ever rebuilt."""
        has = int(self.split.feature[0] != NO_FEATURE)
        split = zip(self.split._fields, self.split, strict=True)
        return {
            "active": self.store.live,
            "nodes": 1 + 2 * has,
            "leaves": 1 + has,
            "depth": has,
            "rebuilds": 0,
            "rebuilt_rows": 0,
            "changes": self._changes,
            "moves": self._moves,
            "buckets": self._buckets,
            "finder": self._number,
            "unit": self._unit,
            **{f"split_{name}": int(column[0]) for name, column in split},
            **{f"warmup_{name}": n for name, n in zip(MEASURED, self._measured.tolist(), strict=True)},
        }

    @property
    def _number(self) -> int:
        """The finder by its number in messages and states."""
        return UNDECIDED if self.finder is None else FINDERS.index(self.finder)

    def model(self) -> Arrays:
        """The split of the last search."""
        return self.split.arrays() | unit_array(self._unit)

    def state(self, slots: Slots) -> Arrays:
        """The split, which finder is at work, and the totals."""
        counts = self._changes, self._searched, self._moves, self._buckets
        scalars = zip(SCALARS, (self._seq, self._warmup, self._number, *counts), strict=True)
        arrays = self.model() | {"measured": self._measured.copy()} | self._weighting.state()
        return arrays | {name: np.array([value], dtype=np.int64) for name, value in scalars}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        n = len(state["id"])
        self.store.fill(state["id"], state["y"], state["born"], weights=state.get("weight"))
        self._weighting.restore(state, self.store)
        self._unit = unit_of(state)
        self._seq, self._warmup, finder, *counts = (int(state[name][0]) for name in SCALARS)
        self._changes, self._searched, self._moves, self._buckets = counts
        self._measured = state["measured"].copy()
        self.finder = None if finder == UNDECIDED else FINDERS[finder]
        self.split, self._fresh = Splits.of_arrays(state), False
        waits = self._seq < self._warmup
        self._waiting = np.arange(n if waits else 0, dtype=np.int32)
        mass = masses_of(state)
        self._totals = np.array([0, 0] if waits else [mass.sum(), mass[state["y"] == 1].sum()], dtype=np.int64)

"""The coordinator of the exact forest: ids, labels, and the votes of all shards.

One batch: (1) ids become slots, bad updates are refused before anything of them is applied; (2) all shards get, in one
message, the same rows and steps; (3) each answers with the votes of its trees for each row, as whole numbers, and what
they took; (4) the sums of the votes are the predictions. A run of updates that ends before a deletion by value, or
before a refused update, is a message of its own. After a restore, one more message brings ids and labels back to the
shards, which then tell each other the columns of the rows that each has read.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from raydt.arrays.blocks import SparseRows, as_slice
from raydt.arrays.elementary import AnyArray, Arrays, Floats, Int32s, Ints, Slots
from raydt.batches.rows_on_shards import RowBlock
from raydt.errors import InputError
from raydt.examples.digest import DIGEST_2, DIGEST_3
from raydt.examples.updates import (
    LARGEST_SUM,
    Admission,
    BatchResult,
    Features,
    Log,
    Targets,
    UpdateBatch,
    dtype_of,
    of_codes,
)
from raydt.exchange.links import together
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, SequentialCoordinator, steps_of
from raydt.learners.forest.labels import MOST_NUMBERS, MOST_WEIGHT, NO_LABELS, LabelScale, RowWeights
from raydt.learners.forest.leave_out import ForestKnown
from raydt.learners.forest.model import (
    ARRAYS,
    Counted,
    Folded,
    ForestPredictor,
    codes_of,
    depths_of,
    each_tree,
    former_roots_of,
    joined_trees,
    levels_of_votes,
    merged_votes,
    model_arrays,
    numbers_of,
    roots_of,
    shares_of,
    trees_of_model,
    unfolded,
    without_rows,
)
from raydt.learners.forest.nodes import DEPTH, MOST_ENTRIES, PATH, ROWS, SUBTREES, TreeArrays
from raydt.learners.forest.options import ForestOptions
from raydt.learners.forest.shard import ForestStore, dealt
from raydt.learners.forest.trees import log_of
from raydt.messages import message

#: So many rows are built into trees in less time than one is inserted or deleted.
STEPS_OF_A_BUILD = 80
#: Entries of rows in trees up to which trees sleep: to build these again takes up to some 70 ms.
MOST_ASLEEP = 1 << 16
_TOTALS = ("seq", "warmup", "rebuilds", "rebuilt_rows")  # numbers of a state

_NO_CHANGES: Ints = np.empty((0, 3), dtype=np.int64)


class ForestCoordinator(SequentialCoordinator):
    """Ids, labels and births; the trees are with the shards.

    Only a digest, a model or a checkpoint needs the trees here: then those that have changed are fetched.
    """

    _store: ForestStore

    def __init__(self, options: ForestOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        self.options, self.features = options, features
        trees = dealt(options.n_estimators, shards)
        self._numbers = [{"numbers": numbers} for numbers in trees]  # of each shard's trees
        self._store = ForestStore(dtype_of(options.numeric), trees)
        self._shared = plan.shared_store
        #: With ``rebuild: lazy``, whether subtrees stay open after a batch until somebody looks at them; only where the
        #: coordinator sees the trees of its shards.
        self.keeps_open = False
        most = MOST_WEIGHT if options.numeric else LARGEST_SUM
        self._weights = RowWeights(self._store, options.class_weight == "balanced", most)
        self._weighting = self._weights.weighting
        self._warmup = self._rebuilds = self._rebuilt_rows = 0
        self._ranks: Int32s = np.empty(0, dtype=np.int32)  # of classes, as digested last
        self._order: Ints = np.arange(2)  # class codes in ascending order of their labels
        self._scale = LabelScale() if options.numeric else None
        self._shapes: Ints = np.array([[options.n_estimators, options.n_estimators, 0]])
        # All trees by number as they were fetched last, and whether some have changed; not used where they can be seen.
        self._fetched, self._stale = [without_rows(options.numeric)] * options.n_estimators, False
        # What a digest needs of such shards: totals of roots, and the hashes of all trees until the next update.
        self._root_totals: list[Ints] = []
        self._roots: AnyArray | None = None
        # The model that was restored, or fell asleep, until the next batch; shards need ids, labels and rows in full.
        self._saved: Folded | Arrays | None = None
        self._shards_need_rows = False
        self._woken = 0  # by which update

    @property
    def store(self) -> ForestStore:
        """Ids and labels of the live examples."""
        return self._store

    # ---------------------------------------------------------------- one batch

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        self._require_warmup(batch, "forest")
        if batch.start == 0:
            self._warmup = batch.warmup
        examples = self.store.live + len(batch)
        if self.options.numeric and examples > MOST_NUMBERS:
            what = "with numeric labels"
            raise InputError(message("learners.examples", examples=examples, what=what, most=MOST_NUMBERS))
        most = MOST_ENTRIES // self.options.copies
        if examples > most:
            what = f"each in {self.options.copies:,} trees"
            raise InputError(message("learners.examples", examples=examples, what=what, most=most))
        self.store.reserve(len(batch))
        yield from self._send_rows()

    def _parts_of(self, batch: UpdateBatch) -> list[slice]:
        """Weights of classes are found where the warm-up ends: the updates after it are a part of their own."""
        end = self._warmup - batch.start
        if self._weights.weighting.is_open and 0 < end < len(batch):
            return [slice(0, end), slice(end, len(batch))]
        return super()._parts_of(batch)

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Take the admitted updates of one part of the batch; returns the log of its rebuilds."""
        order = np.arange(batch.n_classes) if batch.class_order is None else batch.class_order
        if len(order) >= len(self._order):
            self._order = order
        steps, position = steps_of(batch, part, admitted)
        kind, seq = steps["kind"], batch.start + position
        warm = int(np.searchsorted(seq, self._warmup))
        warming = batch.start + part.stop < self._warmup
        wanted = (kind != REMOVE).nonzero()[0]
        wanted = wanted[wanted >= warm] if batch.answers else wanted[:0]
        place, row = (np.full(len(kind), -1, dtype=np.int32) for _ in range(2))
        place[wanted] = np.arange(len(wanted))
        comes, looks = (kind == ADD).nonzero()[0], (kind == LOOK).nonzero()[0]
        brings = np.concatenate([comes, looks])
        row[brings] = np.arange(len(brings))
        X, new = batch.X[as_slice(steps["row"][brings])], steps["slot"][comes]
        rows = {"rows": batch.row[position[brings]], "blocks": batch.blocks} if batch.blocks else {"X": X}
        scales, exponents = _NO_CHANGES, np.empty(0, dtype=np.int64)
        if self._scale is not None:
            slots = steps["slot"]
            scales, exponents = self._scale.follow(kind, self.store.y[slots], self.store.weights(slots))
        payload = {
            "kind": np.ascontiguousarray(kind),
            "slot": np.ascontiguousarray(steps["slot"]),
            "row": row,
            "place": place,
            "new": new,
            "ids": self.store.id[new],
            "y": self.store.y[new] if self.options.numeric else self.store.y[new].astype(np.int64),
            "weight": self._weights.of(new),
            "reweigh": None if warming else self._weights.balance(self._warmup),
            "order": self._order,
            "warm": warm,
            "warming": warming,
            "scales": scales,
            "anew": self._builds_anew(batch, part, len(kind)),
            "settle": bool(warm) or not (self.keeps_open and self._shared),
            **rows,  # in full, to all alike: each tree votes on every row, and most shards hold it
        }
        self._roots = None
        replies = yield self._each("steps", payload)
        self._saved = None
        done = self._merge(replies)
        if len(wanted):
            votes = merged_votes([reply["votes"] for reply in replies])
            known = numbers_of(votes, exponents[wanted]) if self.options.numeric else codes_of(votes, self._order)
            result.predictions[position[wanted]] = known
            if not self.options.numeric:
                result.give_levels(position[wanted], levels_of_votes(votes))
        result.path += np.bincount(position[warm:], done[:, PATH], minlength=len(batch)).astype(np.int32)
        return self._note(seq[warm:], done)

    def _builds_anew(self, batch: UpdateBatch, part: slice, steps: int) -> bool:
        """Return True if building the trees from the rows that the steps leave is less work; the trees are the same."""
        if batch.answers or batch.start + part.start < self._warmup:
            return False
        return steps * STEPS_OF_A_BUILD > self.store.live

    def _merge(self, replies: list[Any]) -> Ints:
        """Take how large the trees of the shards are; what each step after the warm-up did in all of them."""
        if not self._shared:
            self._shapes, self._stale = np.array([reply["shape"] for reply in replies]), True
        if "done" not in replies[0]:
            return np.empty((0, 5), dtype=np.int64)
        if len(replies) == 1:
            only: Ints = replies[0]["done"]
            return only
        done: Ints = np.sum([reply["done"] for reply in replies], axis=0)
        done[:, DEPTH] = np.min([reply["done"][:, DEPTH] for reply in replies], axis=0)
        return done

    def _note(self, seq: Ints, done: Ints) -> Log:
        """Count what the steps rebuilt; the log of that."""
        if self.options.rebuild == "eager":  # how often a subtree is opened depends on who looks at it when
            self._rebuilds += int(done[:, SUBTREES].sum())
            self._rebuilt_rows += int(done[:, ROWS].sum())
        return log_of(seq, done)

    def finish(self) -> Exchange[Log]:
        """End a warm-up that the stream did not complete, and leave nothing open."""
        yield from self._send_rows()
        if self._seq < self._warmup or self.keeps_open:
            self._warmup = min(self._warmup, self._seq)
            self._saved = None
            self._merge((yield self._each("close", {"reweigh": self._weights.balance(self._warmup)})))
        return {}

    def _each(self, method: str, payload: dict[str, Any] | None = None) -> Ask:
        """A request to all shards, which says what their trees are."""
        return Ask(method, payload or {}, self._numbers)

    def gather_state(self) -> Exchange[None]:
        """Fetch the trees that have changed since they were fetched last."""
        if not self._stale:
            return
        for reply in (yield self._each("fetch")):
            for number, tree in zip(reply["changed"].tolist(), each_tree(TreeArrays(*reply["trees"])), strict=True):
                self._fetched[number] = tree
        self._stale = False

    gather = gather_state

    def trim(self) -> None:
        """Rest, and sleep: keep the model, and have the shard forget the trees, which the next batch builds again.

        Nothing sleeps that has too many rows, or had updates since it woke that cost less than waking.
        """
        super().trim()
        few = self.store.live * self.options.copies <= MOST_ASLEEP
        if not (self._shared and few and len(self._numbers) == 1 and self._seq >= self._warmup):
            return
        if self._saved is None:
            if (self._seq - self._woken) * STEPS_OF_A_BUILD < self.store.live:
                return
            self.store.resolve()
            self.statistics()  # whose sizes are kept
            self._saved = self.model()
        if not isinstance(self._saved, Folded):
            self._saved = Folded(self._saved)
        self._weights.sent, self._shards_need_rows = False, True  # before: an interrupt leaves some asleep
        for part in self.store.parts:
            part.sleep(self.store.capacity)

    def _send_rows(self) -> Exchange[None]:
        """Send shards that were restored, or sleep, ids and labels; they tell each other the columns of the rows."""
        if not self._shards_need_rows:
            return
        slots = self.store.slots()
        payload = {
            "slots": None if slots.max(initial=-1) == len(slots) - 1 else slots,
            "ids": self.store.id[slots],
            "y": self.store.y[slots] if self.options.numeric else self.store.y[slots].astype(np.int64),
            "weight": self._weights.of(slots),
            "order": self._order,
            "scale": tuple(NO_LABELS if self._scale is None else self._scale.scale),
            "warming": self._seq < self._warmup,
            "shards": len(self._numbers),
        }
        ended = yield from together("recall", payload, self._numbers)
        self._shards_need_rows, self._woken = False, self._seq
        self._merge([one.result for one in ended])

    def _equal(self, slots: Slots, row: RowBlock) -> Exchange[Any]:
        return np.logical_and.reduce((yield Ask("equal", {"slots": slots, "X": row.X[0]})))

    # ---------------------------------------------------------------- the model

    def model(self) -> Arrays:
        """All trees in canonical form."""
        if self._saved is not None:
            return unfolded(self._saved)
        if self._stale:
            raise RuntimeError(message("learners.trees_elsewhere"))
        trees = self._fetched
        if self._shared:
            if self.keeps_open and self._seq >= self._warmup:
                self.store.resolve()
            trees = [part.arrays() for part in self.store.parts]
        scale = None if self._scale is None else self._scale.scale
        weights, classes = self._weights, 2
        if scale is None and self.store.uneven:
            classes = max(2, int(self.store.y[self.store.slots()].max(initial=0)) + 1)
        return model_arrays(trees, self._order, scale, weights.per_row, classes) | weights.unit

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Shares of the classes, shape (n, n_classes)."""
        return shares_of(self._votes(X), n_classes)

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Targets:
        """Class codes or numbers."""
        votes = self._votes(X)
        return codes_of(votes, self._order) if self._scale is None else numbers_of(votes, self._scale.scale.exponent)

    def _votes(self, X: Floats) -> Ints:
        """Votes of all trees: of those of the shards where they can be seen and are built, else of the model."""
        if self._shared and self._saved is None and self._seq >= max(1, self._warmup):  # a look builds open leaves
            return merged_votes([part.votes(X) for part in self.store.parts])
        return ForestPredictor(self.features, self.model()).votes(X)

    @property
    def knows_rows(self) -> bool:
        """True if the coordinator sees the trees of its shards, and they are not in a warm-up."""
        return self._shared and self._seq >= self._warmup

    def gather_rows(self) -> Exchange[None]:
        """Have shards that were restored, or sleep, build their trees."""
        yield from self._send_rows()

    def known_predictions(self, X: Floats, n_classes: int) -> ForestKnown:
        """Return what tells the predictions of rows, shape (m, d), with and without examples, and changes nothing."""
        self.store.resolve()
        return ForestKnown(self.store, X, n_classes, self._order, self._scale)

    def gather_digest(self, former: bool = False) -> Exchange[None]:
        """Have the trees hashed where they are; in the former format, fetch them."""
        if self._shared or self._saved is not None or (self._roots is not None and not former):
            return
        if former:
            yield from self.gather_state()
        if self._scale is None:
            self._root_totals = [*(yield self._each("root_totals"))]
        if not former:
            counted = self._counted()
            payload = {**counted._asdict(), "scale": None if counted.scale is None else tuple(counted.scale)}
            self._roots = np.concatenate((yield self._each("hash", payload)))

    def digest(self, former: bool = False) -> str:
        """Digest of all trees, and of ids with labels; free of slots, node ids, class codes and history.

        O(log n) of each row that has changed since the last digest, and its paths; O(nodes) of what was rebuilt, after
        a change of the classes that live examples have, and in the former format.
        """
        saved = None if self._saved is None else joined_trees(trees_of_model(unfolded(self._saved)))
        if self._shared and saved is None and self.keeps_open and self._seq >= self._warmup:
            self.store.resolve()
        counted = self._counted(saved)
        ranks = np.full(int(counted.codes.max(initial=-1)) + 1, -1, dtype=np.int32)
        ranks[counted.codes] = np.arange(len(counted.codes))
        if not np.array_equal(ranks, self._ranks) and self._digested is not None:
            self._digested.forget()  # labels have other places among those of live examples
        self._ranks = ranks
        factors = self._weights.weighting.digested()
        of_classes = [(name, of_codes(of_all, counted.codes)) for name, of_all in factors.items()]
        roots = self._tree_roots(counted, saved, former)
        return counted.digest(roots, [*of_classes, self._row_part()], DIGEST_2 if former else DIGEST_3)

    def _tree_roots(self, counted: Counted, saved: TreeArrays | None, former: bool) -> AnyArray:
        """Return the hash of each tree, shape (trees, 32)."""
        if saved is None and not self._shared:
            if self._stale if former else self._roots is None:
                raise RuntimeError(message("learners.trees_elsewhere"))
            if not former:
                return cast(AnyArray, self._roots)
            saved = joined_trees(self._fetched)
        if saved is not None:
            return former_roots_of(saved, counted) if former else roots_of(saved, counted)
        parts = self.store.parts
        return np.concatenate(
            [former_roots_of(part.arrays(), counted) if former else part.roots(counted) for part in parts]
        )

    def _counted(self, saved: TreeArrays | None = None) -> Counted:
        """Return which numbers the digest has of each node; of the trees of a ``saved`` model, if there is one."""
        per_row = 1 if saved is not None else self._weights.per_row
        if self._scale is not None:
            return Counted(np.empty(0, dtype=np.int64), self._scale.scale, per_row)
        if saved is not None:
            roots = [saved.totals[np.cumsum(saved.nodes) - saved.nodes]]
        else:
            roots = [part.root_totals() for part in self.store.parts] if self._shared else self._root_totals
        counts = merged_votes([one.sum(axis=0, keepdims=True) for one in roots])[0]
        if self.store.uneven:  # a class may have rows of weight 0 only
            counts = np.bincount(self.store.y[self.store.slots()], minlength=len(counts))
        live = self._order[self._order < len(counts)]
        return Counted(live[counts[live] > 0], None, per_row)

    def _row_columns(self, slots: Slots) -> dict[str, AnyArray]:
        """Labels; of a class its place among those of live examples."""
        y = self.store.y[slots]
        return {"y": y if self.options.numeric else self._ranks[y]}

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        if self._shared and self._saved is None:
            self._shapes = np.array([part.shape() for part in self.store.parts])
        return {
            "active": self.store.live,
            "nodes": int(self._shapes[:, 0].sum()),
            "leaves": int(self._shapes[:, 1].sum()),
            "depth": int(self._shapes[:, 2].max(initial=0)),
            "rebuilds": self._rebuilds,
            "rebuilt_rows": self._rebuilt_rows,
        }

    def state(self, slots: Slots) -> Arrays:
        """The trees, and totals; rows are with the shards."""
        totals = np.array([[self._seq], [self._warmup], [self._rebuilds], [self._rebuilt_rows]], dtype=np.int64)
        return self.model() | self._weights.weighting.state() | dict(zip(_TOTALS, totals, strict=True))

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..."""
        self.store.fill(state["id"], state["y"], state["born"], weights=state.get("weight"))
        self._weights.restore(state)
        self._seq, self._warmup, self._rebuilds, self._rebuilt_rows = (int(state[name][0]) for name in _TOTALS)
        self._saved = {name: state[name].copy() for name in ARRAYS if name in state}
        self._stale = False
        if not self._shared:
            self._fetched = trees_of_model(self._saved)
        leaves = int((self._saved["feature"] < 0).sum())
        self._shapes = np.array([[len(self._saved["feature"]), leaves, int(depths_of(self._saved).max(initial=0))]])
        if self._scale is not None:
            self._scale.restore(state["y"], state.get("weight"))
        else:
            self._order = self._saved["order"]
        self._shards_need_rows = True

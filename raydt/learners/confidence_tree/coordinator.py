"""The coordinator of the confidence tree: routes and counts rows, and splits leaves by what the shards answer.

A window of updates: (1) its steps are walked through the tree as it is, which shows what every node counts and after
which step it is checked (``tree.walk``); (2) in one round the shards count the same, and answer every check with the
candidates of their feature groups; (3) the rule decides, in the order of the steps (``deciding``); (4) steps that came
behind a split, at its leaf, are taken back; one more round asks for the side of every row of the leaves that are
split, and (5) the steps taken back are walked again. So m, t and the statistics of a check are exactly those just
after its step, however the stream is cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.admission import Admission
from raydt.binning import Bins, joined
from raydt.digest import digest
from raydt.errors import ConfigError, InputError
from raydt.example_store import ExampleStore
from raydt.exchange import Ask, Exchange
from raydt.features import CATEGORICAL, Features
from raydt.learners.base import WorkPlan
from raydt.learners.confidence_tree.bounds import REVISIT, TIE
from raydt.learners.confidence_tree.deciding import Change, Decider, Window, packed
from raydt.learners.confidence_tree.model import Arrays, Split, canonical_tree, live_tree, predictive
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.confidence_tree.tree import (
    CHECK,
    ENTRY,
    LEAVES,
    NODES,
    Tree,
    collapse,
    new_tree,
    route,
    split,
    take_back,
    walk,
    with_room,
)
from raydt.learners.fudyadt.live_tree import MEMBER, list_rows
from raydt.learners.fudyadt.model import link_members, preorder
from raydt.learners.fudyadt.sparse.predictor import SparseTreePredictor
from raydt.learners.rows import Rows, RowsOnShards
from raydt.learners.sequential import ADD, STEP, SequentialCoordinator, Slots, steps_of
from raydt.memory import empty, grown
from raydt.sparse import SparseRows
from raydt.updates import BatchResult, Log, UpdateBatch
from raydt.updates import joined as joined_logs

Int64 = npt.NDArray[np.int64]

#: Steps of a window; with ``revisit`` fewer, since a change voids all that comes after.
_WINDOW, _REVISITED = 1 << 12, 1 << 10
#: In the log: a node became a leaf. The other reasons are those of ``bounds``.
PRUNED = 3
#: Totals of a state: whole numbers under these names.
SCALARS = ("seq", "warmup", "t", "classes", "checks", "splits", "ties", "replaced", "pruned")


class _Counts(NamedTuple):
    """Totals of the run so far."""

    checks: int = 0
    splits: int = 0
    ties: int = 0
    replaced: int = 0
    pruned: int = 0


class ConfidenceTreeCoordinator(SequentialCoordinator):
    """Tree, class counts, ids and labels; features and what is counted of them are with the shards.

    Parameters
    ----------
    options : ConfidenceTreeOptions
    features : Features
    shards : int
    plan : WorkPlan

    Attributes
    ----------
    tree : Tree
    bins : Bins or None
        Of the dense features; None before the end of the warm-up.
    splits : dict of int to Split
        By inner node.
    """

    def __init__(self, options: ConfidenceTreeOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        self.options, self.features = options, features
        self._rows = RowsOnShards(features, shards)
        self._store = ExampleStore(0, 0)
        self._members = np.empty(0, dtype=MEMBER)
        self._categorical = features.kinds.astype(np.bool_)
        self.tree, self.bins = new_tree(), None
        self.splits: dict[int, Split] = {}
        self._decider = Decider(
            options.split_rule(len(features)),
            by_feature=options.rival == "feature",
            confirms=options.finder != "exact",
            revisit=options.revisit,
        )
        self._warmup = self._t = 0
        self._classes = 2  # of the examples that were taken
        self._counts = _Counts()
        self._free_places, self._places = [], 1
        self._undo = np.empty((4, 0), dtype=np.int32)  # entries that the shards have yet to count out again

    tree: Tree
    bins: Bins | None
    _free_places: list[int]

    @property
    def store(self) -> ExampleStore:
        """Ids and labels of the live examples."""
        return self._store

    # ---------------------------------------------------------------- one batch

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        most = 2 if self.features.sparse else self.options.most_classes
        if most is not None and batch.n_classes > most:
            what = "sparse features are" if self.features.sparse else f"{self.options.resolved_criterion} is"
            raise InputError(
                f"{batch.n_classes} classes: {what} for two", remedy="Say which labels are positive (source.positive)"
            )
        if batch.start == 0:
            self._warmup = batch.warmup
            if not batch.warmup:
                raise ConfigError(f"stream.warmup = 0: confidence_tree {self.options.needs_warmup}")
        self.store.reserve(len(batch))
        if len(self._members) < self.store.capacity:
            self._members = grown(self._members, self.store.capacity)
        self.tree = with_room(self.tree, 0, batch.n_classes)
        yield from ()

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Take the admitted updates of one part of the batch; returns the log of what changed the tree."""
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        rows = self._rows_of(batch.X, batch.sparse)
        yield from self._rows.put(admitted.new[added], rows.take(admitted.row[added]))
        steps, position = steps_of(batch, part, admitted)
        path, logs = np.zeros(len(steps), dtype=np.int64), []
        warm = int(np.searchsorted(steps["stamp"], 2 * self._warmup)) if self.bins is None else 0
        if warm:
            self._walk(steps, np.arange(warm), rows, path, counted=False, scored=False)
        if self.bins is None and batch.start + part.stop >= self._warmup:
            logs.append((yield from self._begin()))
        logs.append((yield from self._advance(steps, np.arange(warm, len(steps)), rows, path)))
        said = steps["prediction"] >= 0
        result.predictions[position[said]] = steps["prediction"][said]
        np.add.at(result.path, position, path.astype(np.int32))
        return joined_logs(logs)

    def _rows_of(self, X: npt.NDArray[np.float64], sparse: SparseRows | None) -> Rows:
        return Rows.of(X, sparse or SparseRows.empty(self.features.sparse, len(X)))

    def _begin(self) -> Exchange[Log]:
        """End the warm-up: fix the bins by its rows, and take these in order of birth."""
        slots = self._list(0)
        slots = slots[np.argsort(self.store.born[slots])]
        parts = yield Ask("learn", {"slots": slots})
        self.bins = joined([Bins.from_arrays(part) for part in parts])
        rows = yield from self._rows.take(slots)
        self.tree.counts[0], self.tree.nodes["head"][0] = 0, -1
        steps = np.zeros(len(slots), dtype=STEP)
        steps["kind"], steps["slot"], steps["row"] = ADD, slots, np.arange(len(slots))
        steps["stamp"] = 2 * self.store.born[slots] + 1
        path = np.zeros(len(steps), dtype=np.int64)
        return (yield from self._advance(steps, np.arange(len(steps)), rows, path, scored=False))

    def _advance(
        self, steps: npt.NDArray[np.void], which: Int64, rows: Rows, path: Int64, *, scored: bool = True
    ) -> Exchange[Log]:
        """Take some steps, window by window."""
        adds = steps["kind"] == ADD
        adds[: which[0] if len(which) else len(steps)] = False
        t = self._t + np.cumsum(adds)
        label = np.where(adds, self.store.y[steps["slot"]], 0) if len(steps) else np.empty(0, dtype=np.int64)
        classes = np.maximum.accumulate(np.append(self._classes, label + 1))[1:]
        log: list[tuple[Change, int]] = []
        length = _REVISITED if self.options.revisit else _WINDOW
        for begin in range(0, len(which), length):
            pending = which[begin : begin + length]
            while len(pending):
                window, leaves = self._walk(steps, pending, rows, path, scored=scored)
                window.t, window.classes = t, classes
                replies = yield from self._count(window)
                changes = yield from self._decider.decide(self.tree, window, replies)
                pending = self._back(window, leaves, changes)
                self._note(window, changes, pending)
                log += [(change, int(self.tree.nodes["depth"][change.node])) for change in changes]
                if changes:
                    yield from self._apply(changes)
        if len(which):
            self._t, self._classes = int(t[-1]), int(classes[-1])
        return logged(sorted(log, key=lambda entry: steps["stamp"][entry[0].step]), steps)

    def _walk(
        self,
        steps: npt.NDArray[np.void],
        pending: Int64,
        rows: Rows,
        path: Int64,
        *,
        counted: bool = True,
        scored: bool = True,
    ) -> tuple[Window, Int64]:
        """Walk some steps through the tree as it is; what they count, and the leaf of each step."""
        tree, o = self.tree, self.options
        per = 1 + (int(tree.nodes["depth"][: int(tree.reg[0])].max()) if o.revisit else 0)
        room = len(pending) * per if counted else 0
        entries, checks = empty(room, ENTRY), empty(room // o.grace_period + len(tree.nodes), CHECK)
        owns = np.empty((len(checks), tree.own.shape[1]), dtype=np.int64)
        leaves = np.empty(len(steps), dtype=np.int64)
        where = tree, self._members, self.store.y, self.store.born, steps, pending, leaves, self._categorical
        options = o.grace_period if counted else 0, o.revisit, scored
        made, due = walk(*where, *rows, *options, entries, checks, owns, path)
        entries, none = entries[:made], np.empty(0, dtype=np.int64)
        label = self.store.y[entries["slot"]]
        return Window(steps, pending, none, none, entries, checks[:due], owns[:due], label), leaves

    def _count(self, window: Window) -> Exchange[list[npt.NDArray[np.int64]]]:
        """Have the shards count what was counted, and answer the checks."""
        if not len(window.entries) and not self._undo.size:
            return []
        nodes = self.tree.nodes[window.checks["node"]]
        undone = self._undo.shape[1]
        checks = [window.checks["entry"] + undone, nodes["place"], nodes["feature"], nodes["cut"]]
        payload = {
            "places": self._places,
            "classes": self.tree.counts.shape[1],
            "entries": np.concatenate([self._undo, packed(self.tree, window, np.arange(len(window.entries)))], axis=1),
            "checks": np.stack(checks, axis=1).astype(np.int64),
        }
        self._undo = self._undo[:, :0]
        return (yield Ask("count", payload))

    def _back(self, window: Window, leaves: Int64, changes: list[Change]) -> Int64:
        """Take back the steps that changes void; these steps."""
        void = np.zeros(len(window.steps), dtype=np.bool_)
        for change in changes:
            behind = window.pending[window.pending > change.step]
            void[behind if self.options.revisit else behind[leaves[behind] == change.node]] = True
        if void.any():
            where = self.tree, self._members, self.store.y, window.steps, window.pending
            take_back(*where, void, leaves, window.entries)
        if self.options.revisit:  # else all of them are at places that are given back
            undo = packed(self.tree, window, np.flatnonzero(void[window.entries["step"]]))
            undo[2] *= -1
            self._undo = undo
        return window.pending[void[window.pending]]

    def _note(self, window: Window, changes: list[Change], void: Int64) -> None:
        """Count checks and changes."""
        checks = len(window.checks) - int(np.isin(window.checks["step"], void).sum())
        reasons = [None if change.split is None else change.split.reason for change in changes]
        more = _Counts(
            checks,
            sum(reason is not None for reason in reasons),
            reasons.count(TIE),
            reasons.count(REVISIT),
            reasons.count(None),
        )
        self._counts = _Counts(*(a + b for a, b in zip(self._counts, more, strict=True)))

    def _apply(self, changes: list[Change]) -> Exchange[None]:
        """Change the tree, and ask for the side of every row of what is split."""
        gone: list[int] = []
        for change in changes:
            gone += self._clear(change.node)
        new = [change for change in changes if change.split is not None]
        slots = [self._list(change.node) for change in new]
        feature, cut = (
            np.array([getattr(change, name) for change in new], dtype=np.int64) for name in ("feature", "cut")
        )
        ends = np.cumsum([len(part) for part in slots], dtype=np.int64)
        payload = {"gone": np.array(gone, dtype=np.int32), "feature": feature, "cut": cut, "ends": ends}
        replies = yield Ask("divide", payload | {"slots": np.concatenate([np.empty(0, dtype=np.int32), *slots])})
        self._undo = self._undo[:, ~np.isin(self._undo[1], gone)]
        self._free_places += sorted(gone, reverse=True)
        self.tree = with_room(self.tree, 2 * len(new), 2)
        owner, used = self._rows.owners(feature), [0] * len(replies)
        for change, rows, shard in zip(new, slots, owner.tolist(), strict=True):
            assert change.split is not None
            begin = used[shard]
            used[shard] = stop = begin + len(rows)
            right = np.unpackbits(replies[shard], count=stop)[begin:].view(np.bool_)
            where = self.tree, self._members, self.store.y, change.node, change.feature, change.cut
            split(*where, self._threshold(change.feature, change.cut), change.split.stamp, rows, right)
            self.splits[change.node] = change.split
            node = self.tree.nodes[change.node]
            for child in (node["left"], node["right"]):
                self.tree.nodes["place"][child] = self._place()

    def _clear(self, node: int) -> list[int]:
        """Make a node a leaf without statistics to give back (``revisit``: that it keeps); places given back."""
        nodes = self.tree.nodes
        if nodes["feature"][node] >= 0:
            below = np.empty(int(self.tree.reg[NODES]), dtype=np.int64)
            below = below[: collapse(self.tree, self._members, node, below)]
            for gone in (node, *below.tolist()):
                self.splits.pop(gone, None)
            places: list[int] = nodes["place"][below].tolist()
            return places
        if self.options.revisit:
            return []
        place = int(nodes["place"][node])
        nodes["place"][node], self.tree.own[node] = -1, 0
        return [place]

    def _place(self) -> int:
        if self._free_places:
            return self._free_places.pop()
        self._places += 1
        return self._places - 1

    def _list(self, leaf: int) -> Slots:
        """Slots of the live examples of a leaf."""
        slots = np.empty(int(self.tree.counts[leaf].sum()), dtype=np.int32)
        list_rows(self.tree, self._members, leaf, slots)
        return slots

    def _threshold(self, feature: int, cut: int) -> float:
        """What a split compares with: a boundary, infinity where only NaN goes right, or a category."""
        if feature >= len(self.features.names):
            return 0.0
        assert self.bins is not None
        begin, end = self.bins.starts[feature : feature + 2]
        if self.bins.kinds[feature] == CATEGORICAL:
            return float(self.bins.values[begin:end][self.bins.ranks[begin:end] == cut][0])
        return float(self.bins.values[begin + cut]) if begin + cut < end else float(np.inf)

    def finish(self) -> Exchange[Log]:
        """End a warm-up that the stream did not complete."""
        if self.bins is not None or self._seq == 0:
            return {}
        self._warmup = self._seq
        return (yield from self._begin())

    def find_equal(
        self, X: npt.NDArray[np.float64], row: int, y: int, sparse: SparseRows | None = None
    ) -> Exchange[Slots]:
        """Slots of the live examples equal to (X[row], sparse[row], y), the oldest first: all lie in one leaf."""
        rows = self._rows_of(X, sparse).take(np.array([row]))
        slots = self._list(route(self.tree, self._categorical, *rows, 0))
        slots = slots[self.store.y[slots] == y]
        equal = slots[(yield from self._rows.equal(slots, rows))]
        oldest_first: Slots = equal[np.argsort(self.store.born[equal])]
        return oldest_first

    # ---------------------------------------------------------------- the model

    def predict_proba(
        self, X: npt.NDArray[np.float64], n_classes: int, sparse: SparseRows | None = None
    ) -> npt.NDArray[np.float64]:
        """Shares of the classes in each row's leaf, shape (n, n_classes). O(nodes + rows x depth)."""
        return SparseTreePredictor(self.features, self.model()).predict_proba(X, n_classes, sparse)

    def predict(self, X: npt.NDArray[np.float64], sparse: SparseRows | None = None) -> npt.NDArray[np.int32]:
        """Class codes."""
        return SparseTreePredictor(self.features, self.model()).predict(X, sparse)

    def locate(self, ids: npt.NDArray[np.int64]) -> Arrays:
        """Class code ``y`` and ``leaf`` (its place in preorder) of live examples. O(ids + nodes)."""
        slots = self.store.find(ids)
        return {
            "y": self.store.y[slots],
            "leaf": canonical_tree(self.tree, self.splits)[1][self._members["leaf"][slots]],
        }

    def digest(self) -> str:
        """Digest of tree, counts, records, bins and sorted id -> leaf; free of slots, node ids, places, list orders."""
        slots = self.store.slots()
        state = self.state(slots[np.argsort(self.store.id[slots])])
        ids = np.sort(self.store.id[slots])
        return digest([("id", ids), *((name, state[name]) for name in sorted(state) if name not in ("place", "seq"))])

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        deepest = preorder(self.tree)[2]  # type: ignore[arg-type]
        reg = self.tree.reg
        size = {"active": self.store.live, "nodes": int(reg[NODES]), "leaves": int(reg[LEAVES]), "depth": deepest}
        return {**size, "rebuilds": 0, "rebuilt_rows": 0, **self._counts._asdict()}

    def model(self) -> Arrays:
        """Canonical arrays of the tree that predict."""
        return predictive(canonical_tree(self.tree, self.splits)[0])

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, its records, the bins, the leaf of each example, and the totals."""
        arrays, at = canonical_tree(self.tree, self.splits)
        scalars = zip(SCALARS, (self._seq, self._warmup, self._t, self._classes, *self._counts), strict=True)
        bins = {} if self.bins is None else self.bins.arrays()
        totals = {name: np.array([value], dtype=np.int64) for name, value in scalars}
        return {**arrays, **bins, "leaf": at[self._members["leaf"][slots]], **totals}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., its nodes ids in preorder."""
        n = len(state["id"])
        self.store.fill(state["id"], state["y"], state["born"])
        self.tree, self.splits = live_tree(state)
        self._members = empty(self.store.capacity, MEMBER)
        self._members["leaf"][:n] = state["leaf"]
        link_members(self.tree, self._members, np.arange(n, dtype=np.int32))
        self._seq, self._warmup, self._t, self._classes, *counts = (int(state[name][0]) for name in SCALARS)
        self._counts = _Counts(*counts)
        self.bins = Bins.from_arrays(state) if "bins_kinds" in state else None
        places = state["place"][state["place"] >= 0]
        self._places = int(places.max(initial=-1)) + 1
        self._free_places = np.setdiff1d(np.arange(self._places), places)[::-1].tolist()
        self._undo = np.empty((4, 0), dtype=np.int32)


def logged(changes: list[tuple[Change, int]], steps: npt.NDArray[np.void]) -> Log:
    """The log of a batch: one entry for each change of the tree, in order."""
    if not changes:
        return {}
    none = Split(0, 0, 0, 0, -1, -1, PRUNED, *(float("nan"),) * 4, (), ())
    records = [change.split or none for change, _ in changes]
    floats = {
        name: [getattr(record, name) for record in records] for name in ("phi", "rival_phi", "impurity", "epsilon")
    }
    whole = {name: [getattr(record, name) for record in records] for name in ("m", "t", "rival_feature", "reason")}
    seq = steps["stamp"][[change.step for change, _ in changes]] >> 1
    log: Log = {"seq": seq.astype(np.int64), "depth": np.array([depth for _, depth in changes], dtype=np.int64)}
    log["feature"] = np.array([change.feature for change, _ in changes], dtype=np.int64)
    log |= {name: np.array(values, dtype=np.int64) for name, values in whole.items()}
    return log | {name: np.array(values, dtype=np.float64) for name, values in floats.items()}

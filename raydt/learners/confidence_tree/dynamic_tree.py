"""The tree, the lists of its leaves, the live examples and the places of statistics: what the coordinator changes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import Compressed, empty, grown, trimmed
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Int32s, Ints, Slots
from raydt.batches.binning import Bins
from raydt.batches.rows_on_shards import RowBlock
from raydt.examples.store import ExampleStore, Weighting
from raydt.examples.updates import CATEGORICAL, NO_WEIGHTS, UNIT, Features, UpdateBatch, Weights
from raydt.finders.finder import table_of, xlogx_table
from raydt.learners.confidence_tree.bounds import BEST, COUNTS, CRITERIA, CUT, FEATURE, RIVAL, SplitRule, merge
from raydt.learners.confidence_tree.describe import Logged
from raydt.learners.confidence_tree.naive_bayes import ADAPTIVE, INHERITED, NORMAL
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.confidence_tree.statistics import tally_rows
from raydt.learners.confidence_tree.tree import (
    CHECK,
    ENTRY,
    TEST,
    ConfidenceTreeArrays,
    CountedRows,
    Path,
    SplitRecord,
    TreeOutline,
    WalkRules,
    WeighedExamples,
    canonical_tree,
    count_rows,
    live_tree,
    new_tree,
    roll_back,
    split,
    walk,
    with_room,
)
from raydt.trees.records import (
    MEMBER,
    list_leaves,
    listed,
    masses_by_slot,
    preorder,
    unit_array,
    without_room,
)
from raydt.trees.state_schema import unit_of

# Decisions of the rule on the candidates at the checks of one window.


class RunTotals(NamedTuple):
    """Totals of the run so far."""

    checks: int = 0
    splits: int = 0
    ties: int = 0


class StepWindow(NamedTuple):
    """Steps that were taken together, and what nodes counted because of them."""

    path: Path
    counted: CountedRows


class Times(NamedTuple):
    """Examples taken, and classes known, just after each step: two arrays of int64, shape (steps,)."""

    t: Ints
    classes: Ints


class LeafSplit(NamedTuple):
    """Decision to split a leaf after a step."""

    node: int
    step: int
    feature: int  #: ``feature``, ``cut``: Of its new split.
    cut: int
    split: SplitRecord  #: Its record.


class Decider:
    """Scores and widths of candidates, for the coordinator only; ``by_feature``: the rival is on another feature."""

    def __init__(self, rule: SplitRule, *, by_feature: bool) -> None:
        self.rule, self.by_feature = rule, by_feature
        self._criterion = CRITERIA.index(rule.criterion)
        self._table = xlogx_table(0)

    def decide(
        self, checks: npt.NDArray[np.void], owns: Ints, stamps: Ints, times: Times, replies: list[Any], unit: int
    ) -> list[LeafSplit]:
        """List the changes that the checks of a window come to: the first of each leaf.

        ``stamps`` are those of its steps, ``replies`` the candidates of all shards; of all counts a row is ``unit``
        units. A node with less than one row knows nothing.
        """
        if not len(checks):
            return []
        found, scores, impurity = self._merged(owns, replies, unit)
        m, t, classes = owns.sum(axis=1), times.t[checks["step"]], times.classes[checks["step"]]
        rows, taken = (m, t) if unit == 1 else (m / unit, t / unit)
        of_checks = zip(rows.tolist(), taken.tolist(), checks["depth"].tolist(), classes.tolist(), strict=True)
        width = np.array([self.rule.width(*of_check) if of_check[0] >= 1 else math.inf for of_check in of_checks])
        rival = np.where(found[:, RIVAL, FEATURE] >= 0, scores[:, RIVAL], impurity)
        # Most checks of leaves come to nothing, which takes long to find out one by one.
        some = self.rule.beats(scores[:, BEST], rival, width) | (width <= self.rule.tie_threshold)
        changes: dict[int, LeafSplit] = {}
        for c in np.flatnonzero(some & (found[:, BEST, FEATURE] >= 0)).tolist():
            node, step, known = int(checks["node"][c]), int(checks["step"][c]), int(classes[c])
            phis = float(scores[c, BEST]), float(rival[c]), float(impurity[c]), float(width[c])
            reason = self.rule.reason(*phis)
            if node in changes or reason is None:
                continue
            best = found[c, BEST].tolist()
            against = found[c, RIVAL, FEATURE], found[c, RIVAL, CUT]
            rival_feature, rival_cut = map(int, against) if against[0] >= 0 else (-1, -1)
            # Not of classes that are announced only: these must not change the record.
            sides = tuple(owns[c, :known].tolist()), tuple(best[COUNTS : COUNTS + known])
            record = SplitRecord(
                int(stamps[step]), int(m[c]), int(t[c]), known, rival_feature, rival_cut, reason, *phis, *sides
            )
            changes[node] = LeafSplit(node, step, best[FEATURE], best[CUT], record)
        return list(changes.values())

    def _merged(self, owns: Ints, replies: list[Any], unit: int) -> tuple[Ints, Floats, Floats]:
        """Return the best candidate and its rival of each check, their scores, and the impurity of the node."""
        checks, classes = owns.shape
        found = np.empty((checks, 2, COUNTS + classes), dtype=np.int64)
        scores, impurity = np.empty((checks, 2)), np.empty(checks)
        if unit == 1:
            self._table = table_of(self.rule.criterion == "entropy", int(owns.sum(axis=1).max()), self._table)
        table = self._table if unit == 1 else self._table[:0]  # there is none of masses
        candidates = np.ascontiguousarray(np.concatenate(replies, axis=1))
        merge(self._criterion, self.by_feature, table, owns, candidates, found, scores, impurity)
        return found, scores, impurity


#: Who was right, by node.
TALLIED = ("majority_right", "naive_right", "normal_right", "inherited_right")
#: No rows to score, no logarithms; no entry and site to check.
NOTHING = np.empty(0, dtype=np.int64)
NO_CHECKS = np.empty((0, 2), dtype=np.int64)


class LiveConfidenceTree:
    """The tree with what hangs on it."""

    def __init__(self, options: ConfidenceTreeOptions, features: Features) -> None:
        self.categorical = features.kinds.astype(np.bool_)
        self.grace = options.grace_period
        #: Whether leaves may predict by naive Bayes; whether each chooses.
        self.naive, self.adaptive = options.leaf_prediction != "majority", options.leaf_prediction in ADAPTIVE
        self.normal = options.leaf_prediction in NORMAL  #: Whether with normal features, too.
        #: Whether also with all live examples of the leaf: the next site has those that it has not counted itself.
        self.inherits = options.leaf_prediction == INHERITED
        self._step = 2 if self.inherits else 1  # from site to site
        self.right = np.empty(0, dtype=np.uint8)  #: By slot: who was right about its example (``prediction``).
        self.store = ExampleStore(0, 0)  #: Ids and labels of the live examples.
        self.weighting = Weighting(options.class_weight == "balanced")
        self.unit = 1  #: How much of all counts one row is: ``UNIT`` once an example has another weight than 1.
        self._members: AnyArray | Compressed = np.empty(0, dtype=MEMBER)
        self.tree: ConfidenceTreeArrays = new_tree()
        self.bins: Bins | None = None  #: Of the dense features; None before the end of the warm-up.
        self.splits: dict[int, SplitRecord] = {}  #: By inner node.
        self.outline = TreeOutline()
        self.sites = self._step  #: The most sites of statistics that there were at once.
        self._free: list[int] = []

    def make_room(self, batch: UpdateBatch) -> None:
        """Room for the rows and classes of one batch."""
        self.reserve(len(batch))
        self.tree = with_room(self.tree, 0, batch.n_classes)

    def reserve(self, rows: int) -> None:
        """Room for so many new examples."""
        self.store.reserve(rows)
        if len(self.members) < self.store.capacity:
            self.right = grown(self.right, self.store.capacity)
            self.members = grown(self.members, self.store.capacity)

    @property
    def members(self) -> AnyArray:
        """By slot: its leaf, and its neighbours in the leaf's list."""
        if type(self._members) is Compressed:  # a tenth of the time of isinstance, which asks a mapping's base class
            self._members = self._members["members"]
        return cast(AnyArray, self._members)

    @members.setter
    def members(self, members: AnyArray) -> None:
        self._members = members

    def trim(self) -> None:
        """Give up room for more examples and nodes, and what :attr:`outline` has; the lists wait compressed."""
        self.store.trim()
        right, members = (trimmed(array, self.store.capacity) for array in (self.right, self.members))
        # At once: both have as many slots, wherever a signal arrives or memory ends (:meth:`reserve`).
        self.__dict__.update(right=right, _members=Compressed({"members": members}))
        self.tree = without_room(self.tree)
        self.outline.forget()

    @property
    def examples(self) -> WeighedExamples:
        """The live examples, for kernels."""
        return WeighedExamples(self.members, self.store.y, self.store.born, self._weights)

    @property
    def _weights(self) -> Weights:
        return NO_WEIGHTS if self.unit == 1 else masses_by_slot(self.weighting, self.store)

    def masses(self, slots: Slots) -> Ints:
        """Return the weights of some examples in units, int64; 1 each while counts are numbers of rows."""
        return np.ones(len(slots), dtype=np.int64) if self.unit == 1 else self._weights[slots].astype(np.int64)

    @property
    def delta(self) -> type[np.int32] | type[np.int64]:
        """Type of deltas, by which shards know whether counts are masses."""
        return np.int32 if self.unit == 1 else np.int64

    def weigh(self) -> None:
        """Make all counts masses."""
        tree, self.unit = self.tree, UNIT
        for counts in (tree.counts, tree.own):
            counts *= UNIT
        for name in ("since", *TALLIED):
            tree.nodes[name] *= UNIT
        self.splits = {node: split.times(UNIT) for node, split in self.splits.items()}
        self.outline.forget()

    def walk(self, path: Path, rows: RowBlock, *, counted: bool = True, scored: bool = True) -> StepWindow:
        """Take the pending steps as if the tree did not change; ``counted`` unless in a warm-up."""
        tree = self.tree
        room = len(path.pending) if counted else 0
        entries, deltas = empty(room, ENTRY), empty((4, room), self.delta)
        # A row that counts for several may make a check due alone.
        checks = empty(room // self.grace + len(tree.nodes) if self.unit == 1 else room, CHECK)
        owns = np.empty((len(checks), tree.own.shape[1]), dtype=np.int64)
        rules = WalkRules(self.categorical, self.grace * self.unit if counted else 0, scored, self.naive)
        rows_scored = len(path.pending) if counted and self.naive else 0
        asked = np.empty(rows_scored, np.int64)
        priors = np.empty((rows_scored, tree.own.shape[1] * self._step), np.int64)
        out = CountedRows(entries, deltas, checks, owns, asked, priors)
        scratch = np.empty_like(tree.counts[:1])
        made, due, rows_scored = walk(tree, self.examples, rows, path, rules, out, scratch, self.inherits)
        of_rows = asked[:rows_scored], priors[:rows_scored]
        counted_in = np.ascontiguousarray(deltas[:, :made])  # one layout, for which kernels are compiled once
        return StepWindow(path, CountedRows(entries[:made], counted_in, checks[:due], owns[:due], *of_rows))

    def roll_back(self, window: StepWindow, changes: list[LeafSplit], altered: Bools) -> Ints:
        """Roll back the steps after a split at its leaf; these steps, to process again.

        The shards forget what they have counted at that leaf. ``altered`` is False for every step, before and after.
        """
        leaves, pending, counted = window.path.leaves, window.path.pending, window.counted
        for change in changes:
            later = pending[pending > change.step]
            altered[later[leaves[later] == change.node]] = True
        again = pending[altered[pending]]
        if len(again):
            roll_back(self.tree, self.examples, window.path, altered, counted.entries, counted.deltas)
            altered[again] = False
        return again

    def inherited(self, nodes: Ints) -> AnyArray:
        """Deltas of the examples that some leaves have not counted themselves. O(examples of the leaves)."""
        slots = self.rows_of(nodes)[0]
        leaf = self.members["leaf"][slots]
        slots = slots[2 * self.store.born[slots] + 1 <= self.tree.nodes["created"][leaf]]
        return self.deltas(slots, self.tree.nodes["site"][self.members["leaf"][slots]] + 1)

    def deltas(self, slots: Slots, sites: AnyArray) -> AnyArray:
        """Deltas of examples that come to some sites, shape (4, examples)."""
        return np.stack([slots, sites, self.masses(slots), self.store.y[slots]]).astype(self.delta)

    def to_count(
        self, deltas: AnyArray, scored: Ints = NOTHING, logs: Ints = NOTHING, checks: Ints = NO_CHECKS
    ) -> dict[str, Any]:
        """Message to the shards: what to count in and out (``CountedRows``), and on the way to score and to check."""
        size = {"sites": self.sites, "classes": self.tree.counts.shape[1]}
        return size | {"deltas": deltas, "checks": checks, "scored": scored, "logs": logs}

    def rows_of(self, leaves: Ints) -> tuple[Slots, Ints]:
        """Slots of the live examples of some leaves, one leaf after the other, and where each ends. O(examples)."""
        rows = self.tree.counts[leaves].sum(axis=1)
        if self.unit > 1:
            count_rows(self.tree, self.members, leaves, rows)
        ends = np.cumsum(rows)
        slots = np.empty(int(ends[-1]), dtype=np.int32)
        list_leaves(self.tree, self.members, leaves, slots)
        return slots, ends

    def counted(self) -> tuple[Slots, AnyArray]:
        """Slots of the live examples; and the deltas of each that a leaf has counted. O(examples)."""
        order, nodes = preorder(self.tree)[0], self.tree.nodes
        slots = self.rows_of(order[nodes["feature"][order] < 0].astype(np.int64))[0]
        leaf = self.members["leaf"][slots]
        own = 2 * self.store.born[slots] + 1 > nodes["created"][leaf]
        if self.inherits:
            return slots, self.deltas(slots, nodes["site"][leaf] + ~own)
        return slots, self.deltas(slots[own], nodes["site"][leaf[own]])

    def clear(self, leaves: Ints) -> Int32s:
        """Ready leaves to be split; returns the sites whose statistics the shards may forget. Their tallies end."""
        nodes = self.tree.nodes
        sites = nodes["site"][leaves]
        nodes["site"][leaves], self.tree.own[leaves] = -1, 0
        for name in TALLIED:
            nodes[name][leaves] = 0
        return np.concatenate([sites, sites + 1]).astype(np.int32) if self.inherits else sites

    def entry_of(self, change: LeafSplit) -> Logged:
        """A split as the log takes it, before it is made."""
        new = change.split.times(1 / self.unit)
        compared = [(change.feature, change.cut), (new.rival_feature, new.rival_cut)]
        at = [self.threshold(*split) for split in compared]
        return Logged(new.stamp, int(self.tree.nodes["depth"][change.node]), change.feature, new, *at)

    def divide(
        self, changes: list[LeafSplit], thresholds: list[float], slots: Slots, ends: Ints, right: npt.NDArray[np.uint8]
    ) -> None:
        """Split leaves, whose examples are as :meth:`rows_of` has them; ``right`` says which of them go right."""
        self.tree = with_room(self.tree, 2 * len(changes), 2)
        tests = np.zeros(len(changes), dtype=TEST)
        for name in ("node", "feature", "cut"):
            tests[name] = [getattr(change, name) for change in changes]
        tests["threshold"], tests["stamp"] = thresholds, [change.split.stamp for change in changes]
        for test in tests:
            test["left_site"], test["right_site"] = self._new_site(), self._new_site()
        split(self.tree, self.examples, tests, slots, ends, right)
        self.outline.forget()
        self.splits |= {change.node: change.split for change in changes}

    def free(self, sites: Iterable[int]) -> None:
        """Let sites be used again that the shards have emptied."""
        self._free += sorted((site for site in map(int, sites) if site % self._step == 0), reverse=True)

    def _new_site(self) -> int:
        if self._free:
            return self._free.pop()
        self.sites += self._step
        return self.sites - self._step

    def threshold(self, feature: int, cut: int) -> float:
        """Value a split compares with: a boundary, infinity where only NaN goes right, or a category; NaN of none."""
        if feature < 0:
            return float("nan")
        if feature >= len(self.categorical):
            return 0.0
        assert self.bins is not None
        begin, end = self.bins.starts[feature : feature + 2]
        if self.bins.kinds[feature] == CATEGORICAL:
            return float(self.bins.values[begin:end][self.bins.ranks[begin:end] == cut][0])
        return float(self.bins.values[begin + cut]) if begin + cut < end else float(np.inf)

    @property
    def tallies(self) -> bool:
        """True if correct predictions are tallied, by which leaves choose once the bins are there."""
        return self.adaptive and self.bins is not None

    def was_right(self, slots: Slots) -> Arrays:
        """Return which predictors were right about some examples, if that is tallied."""
        return {"was_right": self.right[slots]} if self.tallies else {}

    def changing(self) -> Arrays:
        """Return the canonical arrays that updates change where outline and bins stay, but for places."""
        order = self.outline.order(self.tree)
        classes = self.outline.classes(self.tree, self.splits, 2)
        arrays = {"counts": self.tree.counts[order, :classes], "own": self.tree.own[order, :classes]}
        return arrays | {"since": self.tree.nodes["since"][order]}

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, its records, the bins, and the leaf of each example."""
        classes = int(self.store.y[slots].max(initial=1)) + 1  # an example that weighs 0 is in no count
        arrays = canonical_tree(self.tree, self.splits, self.outline, classes=classes)
        position = preorder(self.tree)[1]
        bins = {} if self.bins is None else self.bins.arrays()
        arrays |= unit_array(self.unit) | self.weighting.state()
        return {**arrays, **bins, **self.was_right(slots), "leaf": position[self.members["leaf"][slots]]}

    def restore(self, state: Arrays) -> None:
        """Replace everything by a saved state; its rows take slots 0, 1, ..., its nodes ids in preorder."""
        self.store.fill(state["id"], state["y"], state["born"], weights=state.get("weight"))
        self.weighting.restore(state, self.store)
        self.unit = unit_of(state)
        self.tree, self.splits = live_tree(state)
        self.outline.forget()
        self.members = listed(self.tree, state["leaf"], self.store.capacity)
        self.bins = Bins.from_arrays(state) if "bins_kinds" in state else None
        self.right = np.zeros(self.store.capacity, dtype=np.uint8)
        if self.tallies:
            self.right[: len(state["was_right"])] = state["was_right"]
            tally_rows(self.tree, self.examples, self.right, np.arange(len(state["was_right"])))
        sites = state["place"][state["place"] >= 0]
        self.sites = int(sites.max(initial=-self._step)) + self._step
        self._free = np.setdiff1d(np.arange(0, self.sites, self._step), sites)[::-1].tolist()

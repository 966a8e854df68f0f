"""Values the audit of a confidence tree compares, recomputed from raw examples by routing, counting and brute force.

Nothing of the fast path is imported. Time runs in half updates: what update ``seq`` inserts or deletes happens at
2 seq + 1, the deletion half of an UPDATE at 2 seq. Rows of the warm-up that are live at its end are taken as if each
had come at its own time; others of it never are.

Not here: verdicts (``audit``), and that a leaf was not to be split earlier, which tests compare with a slow twin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.audits.bins import FeatureBins, counted_weights, derived_bins, given_weights, recorded_bins
from raydt.audits.recorded_tree import FOREVER, RecordedTree, RoutedHistory, each
from raydt.examples.updates import UNIT, Features, History

if TYPE_CHECKING:
    from raydt.learners.confidence_tree.options import ConfidenceTreeOptions

T = TypeVar("T")
Arrays = Mapping[str, AnyArray]


@dataclass(frozen=True)
class SplitCandidates:
    """Splits of some rows, by (phi, feature, cut); ``left`` are class counts, shape (candidates, K)."""

    feature: Ints
    cut: Ints
    phi: Floats
    left: Ints

    def at(self, feature: int, cut: int) -> int:
        """Place of a split, -1 if it is none of them."""
        found = np.flatnonzero((self.feature == feature) & (self.cut == cut))
        return int(found[0]) if len(found) else -1

    def rivals(self, place: int, by_feature: bool) -> Ints:
        """Places of the other ones, on other features if so asked."""
        others = self.feature != self.feature[place] if by_feature else np.arange(len(self.phi)) != place
        return np.flatnonzero(others)

    def parts_alike(self, place: int, other: int, totals: Ints) -> bool:
        """Return True if two of them leave the same class counts on their sides, whichever is the left one."""
        left = self.left[place]
        return bool((self.left[other] == left).all() or (self.left[other] == totals - left).all())


def phi_of(criterion: str, left: Ints, totals: Ints, unit: int = 1) -> Floats:
    """Phi of splits with class counts ``left``, shape (n, K), of rows with class counts ``totals``, (K,) or (n, K).

    A row is ``unit`` units of a count.
    """
    both = []
    for side in (left, totals - left):
        n, counts = side.sum(axis=1), side.astype(np.float64)
        if criterion == "gini":
            squares = np.zeros(len(n))
            for k in range(counts.shape[1]):  # in this order, in which nothing but squares is rounded
                squares += counts[:, k] * counts[:, k]
            both.append(np.where(n > 0, (n.astype(float) * n - squares) / np.maximum(n, 1), 0.0))
        elif criterion == "entropy":
            both.append(0.5 * (_nats(n, unit) - _nats(side, unit).sum(axis=1)))
        elif criterion == "kearns_mansour":
            both.append(np.sqrt(side[:, 0].astype(float) * side[:, 1]))
        else:
            both.append((n - side.max(axis=1)).astype(float))
    phi: Floats = (both[0] + both[1]) / totals.sum(axis=-1)
    return phi


def _nats(counts: Ints, unit: int) -> Floats:
    """k log k of counts of k rows, in units."""
    found: Floats = counts.astype(np.float64) * np.log(np.maximum(counts, 1) / unit)
    return found


def theorem_width(criterion: str, delta: float, m: float, t: float, depth: int, d: int, classes: int) -> float:
    """Eqs. (4), (5), (6) with delta of eq. (7); infinite for a criterion that none of them is about."""
    log = math.log((depth + 1) * (depth + 2) * t * d * m / delta)
    if criterion == "gini":
        return math.sqrt(8 * (math.log(2) + log) / m) + 4 / math.sqrt(m)
    if criterion == "kearns_mansour":
        return 4 * math.sqrt((math.log(8) + log) / m)
    if criterion == "entropy":
        return math.log(m) * math.sqrt(2 * (math.log(4) + log) / m) + classes / m
    return math.inf


def delta_at(options: ConfidenceTreeOptions, t: float) -> float:
    """Delta, which may fall with the examples."""
    return 1 / t if isinstance(options.delta, str) else options.delta


def width_of(options: ConfidenceTreeOptions, d: int, m: float, t: float, depth: int, classes: int) -> float:
    """Half width of the rule's interval, in the rule's unit."""
    entropy, delta = options.resolved_criterion == "entropy", delta_at(options, t)
    hoeffding = math.sqrt(-math.log(delta) / (2 * m))
    if options.rule == "mcdiarmid":
        return (6 * (classes / math.log(2) + math.log2(2 * m)) + 2 * math.log2(classes)) * hoeffding
    if options.rule != "ctree":
        return hoeffding * (math.log2(classes) if entropy else 1.0)
    if options.confidence == "theorem":
        return theorem_width(options.resolved_criterion, delta, m, t, depth, d, classes)
    log = 2 * math.log(m) + 2 * math.log(depth + 1) + math.log(t) + math.log(d)
    return options.c * math.sqrt(log / m) * (math.log(m) if entropy else 1.0)


def lead_of(options: ConfidenceTreeOptions, phi: float, rival: float) -> float:
    """By how much a split is ahead, in the rule's unit."""
    bits = options.resolved_criterion == "entropy" and options.rule in ("hoeffding", "mcdiarmid")
    return (rival - phi) * 2 / math.log(2) if bits else rival - phi


def widths_needed(options: ConfidenceTreeOptions) -> int:
    """The number of widths by which a split must lead."""
    return 2 if options.rule in ("ctree", "corrected") else 1


def _joined(levels: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Rows and nodes of all levels."""
    nothing = np.empty(0, np.int64)
    rows, node = ([nothing, *(level[column] for level in levels)] for column in (0, 1))
    return np.concatenate(rows), np.concatenate(node)


class RecountedTree(RoutedHistory):
    """All that a history says about a recorded tree, whose ``built`` is the time at which a node was made."""

    def __init__(self, options: ConfidenceTreeOptions, features: Features, state: Arrays, history: History) -> None:
        renamed = {"s": state["since"], "c": state["since"], "built": state["created"]}
        tree = RecordedTree.read({**state, **renamed}, len(features))
        super().__init__(tree, features, history)
        self.options, self.y = options, history.y.astype(np.int64)
        warmup = int(state["warmup"][0])
        self.fixed = 0 < warmup <= int(state["seq"][0])  #: Whether the warm-up is over.
        mass, self.wrong_weights = counted_weights(options, state, history, resolved=self.fixed)
        #: Of all counts a row is so much: 1 unless they are masses.
        self.unit = 1 if mass is None else UNIT
        self.given = given_weights(history.weight, len(self.y))  #: Own weights.
        #: Shape (examples,): how much each counts.
        self.mass = np.ones(len(self.y), np.int64) if mass is None else mass
        self.first = self.born < 2 * warmup
        self.taken = (~self.first | (self.died >= 2 * warmup)) & self.fixed  #: Whether the tree ever took an example.
        #: Of the dense features, as recorded.
        self.bins = recorded_bins(state, features)[0] if self.fixed else []
        #: Of a complete history: all bins there ever were, derived, and the time from after which each were used.
        self.versions: list[tuple[int, Sequence[FeatureBins]]] = []
        self.renewed = self.lived = 0  #: Counts of the examples taken when bins were made last, and of those live then.
        if self.fixed and self.complete:
            self._derive_bins()
        #: Shape (examples, dense features): bin of each value.
        self.codes = np.empty((len(self.y), len(self.bins)), np.int64, order="F")
        self.each(self._encode, range(len(self.bins)))
        self.classes = max(2, int(self.y.max(initial=0)) + 1, state["counts"].shape[1])
        self.stamp = np.full(len(tree), FOREVER)
        self.stamp[tree.feature >= 0] = state["split_stamp"]
        self._members: dict[int, Ints] = {}  # of a complete history
        self.live_counts = np.zeros((len(tree), self.classes), np.int64)
        self._walk()

    def _encode(self, j: int) -> None:
        self.codes[:, j] = self.bins[j].codes(self.X[:, j])

    def each(self, task: Callable[[int], T], columns: Iterable[int]) -> list[T]:
        """Do a task for each of some dense features, in threads if there are many examples."""
        return each([partial(task, j) for j in columns], len(self.y))

    def _walk(self) -> None:
        """Route all examples: who is at each node, and what leaves have counted of the live ones."""
        counted, inherited = [], []
        for rows, node, _ in self.levels():
            if self.complete:
                order = np.argsort(node, kind="stable")
                at, begin = np.unique(node[order], return_index=True)
                self._members |= dict(zip(at.tolist(), np.split(rows[order], begin[1:]), strict=True))
            live = self.alive[rows]
            self.live_counts += self._sums(rows[live], node[live])
            live &= self.taken[rows]
            mine = live & (self.born[rows] > self.tree.built[node]) & (self.tree.feature[node] < 0)
            counted.append((rows[mine], node[mine]))
            past = live & ~mine & (self.tree.feature[node] < 0)
            inherited.append((rows[past], node[past]))
        #: Rows and nodes of what leaves count now.
        self.counted = _joined(counted)
        #: Rows and nodes of what leaves have not counted themselves.
        self.inherited = _joined(inherited)
        #: Shape (nodes, K): classes of the live examples that each node has counted.
        self.own = self._sums(*self.counted)

    def _sums(self, rows: Ints, node: Ints) -> Ints:
        """Class counts by node."""
        return self.counts(node * self.classes + self.y[rows], rows, self.live_counts.size).reshape(
            self.live_counts.shape
        )

    def counts(self, key: Ints, rows: Ints, size: int) -> Ints:
        """Sum up how much rows count by a key below ``size``."""
        mass = None if self.unit == 1 else self.mass[rows]
        return np.bincount(key, mass, minlength=size).astype(np.int64)  # exact: sums are far below 2**53

    def members(self, node: int) -> Ints:
        """Examples that were ever taken and route through a node."""
        rows = self._members.get(node, np.empty(0, np.int64))
        return rows[self.taken[rows]]

    def arrivals(self, node: int) -> Ints:
        """Members that arrived after the node was created and before it split."""
        rows = self.members(node)
        born = self.born[rows]
        come: Ints = rows[(born > self.tree.built[node]) & (born <= self.stamp[node])]
        return come

    def _in_order(self) -> tuple[Ints, Ints]:
        """Examples that were taken, in the order of their insertion, and their count up to each."""
        rows = np.flatnonzero(self.taken)
        rows = rows[np.argsort(self.born[rows])]
        return rows, np.cumsum(self.mass[rows])

    def known_then(self, stamp: int) -> tuple[int, int]:
        """Examples that the tree had taken up to some time, and K then."""
        before = self.taken & (self.born <= stamp)
        return int(self.mass[before].sum()), max(2, int(self.y[before].max(initial=0)) + 1)

    def counts_of(self, rows: Ints) -> Ints:
        """Class counts of some rows, shape (K,)."""
        return self.counts(self.y[rows], rows, self.classes)

    def since(self, rows: Ints) -> int:
        """Count since the last check of a leaf to which some examples came: one is due after each grace period."""
        since, grace = 0, self.options.grace_period * self.unit
        if self.unit == 1:
            return len(rows) % grace
        for mass in self.mass[rows[np.argsort(self.born[rows])]].tolist():
            since = since + mass if since + mass < grace else 0
        return since

    def bins_at(self, stamp: int) -> Sequence[FeatureBins]:
        """Bins of the dense features by which a split of some time was found: those made before."""
        return [bins for since, bins in self.versions if since < stamp][-1] if self.versions else self.bins

    def candidates(self, rows: Ints, stamp: int) -> SplitCandidates:
        """All splits of some rows, at some time, that leave some on both sides, each partition of a feature once.

        O(rows x ones).
        """
        parts: list[tuple[Ints, ...]] = []
        for j, bins in enumerate(self.bins_at(stamp)):
            table = self._table(bins.codes(self.X[rows, j]), rows, bins.bins)
            filled = np.flatnonzero(table.any(axis=1))
            if bins.categorical:
                cuts = filled[filled < len(bins.values)][: 1 if len(filled) == 2 else None]
                left = table[cuts]
            else:
                cuts = filled[filled < len(bins.values) + bins.seen]
                left = table.cumsum(axis=0)[cuts]
            parts.append((np.full(len(cuts), j), cuts, left))
        ones = self.sparse[rows]
        index, place = np.unique(ones.indices, return_inverse=True)
        holds = self._table(place, np.repeat(rows, ones.lengths), len(index))
        dense, totals = len(self.features.names), self.counts_of(rows)
        parts.append((index.astype(np.int64) + dense, np.zeros(len(index), np.int64), totals - holds))
        feature, cut, left = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        parted = (left.sum(axis=1) > 0) & (left.sum(axis=1) < totals.sum())
        feature, cut, left = feature[parted].astype(np.int64), cut[parted], left[parted]
        phi = phi_of(self.options.resolved_criterion, left, totals, self.unit)
        order = np.lexsort((cut, feature, phi))
        return SplitCandidates(feature[order], cut[order], phi[order], left[order])

    def threshold(self, feature: int, cut: int, stamp: int) -> float:
        """Value that a cut of some time compares with; NaN for a missing cut."""
        if feature >= len(self.features.names):
            return 0.0 if cut == 0 else math.nan
        bins = self.bins_at(stamp)[feature]
        if 0 <= cut < len(bins.values):
            return float(bins.values[cut])
        return math.inf if cut == len(bins.values) and bins.seen and not bins.categorical else math.nan

    def _table(self, bin_of: Ints, rows: Ints, bins: int) -> Ints:
        """Class counts by bin, shape (bins, K)."""
        return self.counts(bin_of * self.classes + self.y[rows], rows, bins * self.classes).reshape(bins, self.classes)

    def _derive_bins(self) -> None:
        """All bins: from the rows of the warm-up that were live at its end, then from those live at each renewal.

        Rows of weight 0 make none.
        """
        rows, least = self.first & self.taken, self.options.renewal * self.unit if self.features.names else 0
        come, after = self._in_order()
        self.versions.append((-1, self._bins_of(rows)))
        self.renewed = self.lived = int(self.mass[rows].sum())
        while least and len(after) and self.renewed + max(self.lived, least) <= after[-1]:
            last = int(np.searchsorted(after, self.renewed + max(self.lived, least)))
            self.renewed, now = int(after[last]), int(self.born[come[last]])
            rows = self.taken & (self.born <= now) & (self.died > now)
            self.lived = int(self.mass[rows].sum())
            self.versions.append((now, self._bins_of(rows)))

    def _bins_of(self, rows: Bools) -> Sequence[FeatureBins]:
        kinds, most, counting = self.features.categorical, self.options.max_bins, rows & (self.given > 0)
        return self.each(lambda j: derived_bins(self.X[counting, j], kinds[j], most, "quantile"), range(len(kinds)))

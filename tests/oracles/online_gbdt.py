"""Online GBDT as its paper has it, in plain loops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from raydt.arrays import elementary as rng
from raydt.arrays.elementary import softmax
from raydt.learners.gbdt.derivatives import Loss, quantised
from raydt.learners.gbdt.staleness import log_odds
from tests.oracles.digests import CategoryBins, NumericBins

# -- online gbdt tree ------------------------------------------------------------------------------------------------
# Rows and nodes of the slow online GBDT.

#: Iteration and, within it, class of a tree.
Place = tuple[int, int]


@dataclass(eq=False)
class Row:
    """An example. ``ledger`` and ``leaf``: of each tree, what the row added to it, and the leaf that holds the row.

    ``drift``: by how much its scores have moved, at most, since all of them were compared, without how far its leaves
    have been from their values.
    """

    id: int
    x: tuple[float, ...]
    y: float
    codes: list[int] = field(default_factory=list)
    ledger: dict[Place, int] = field(default_factory=dict)
    leaf: dict[Place, Node] = field(default_factory=dict)
    drift: int = 0
    weight: int = 65536  # in units of 2**-16
    counts: int = 65536  # the weight times that of the class


@dataclass(eq=False)
class Node:
    """A node. ``above``, ``below``: how far a leaf has been above and below its value, which no row's drift has yet."""

    feature: int = -1
    cut: int = 0
    left: Node | None = None
    right: Node | None = None
    G: int = 0
    H: int = 0
    value: float = 0.0
    tried: tuple[int, int] | None = None
    rows: list[Row] = field(default_factory=list)  # of a leaf
    above: int = 0
    below: int = 0

    @property
    def is_leaf(self) -> bool:
        return self.feature < 0

    def preorder(self) -> Iterator[Node]:
        yield self
        if self.left is not None and self.right is not None:
            yield from self.left.preorder()
            yield from self.right.preorder()

    def leaves(self) -> list[Node]:
        return [v for v in self.preorder() if v.is_leaf]


@dataclass
class Work:
    """What one D' touched."""

    deletes: int = 0
    inserts: int = 0
    retrained: set[tuple[int, int, int]] = field(default_factory=set)  # pass, iteration, class
    rows: int = 0
    refreshed: int = 0
    trained: int = 0
    checked: int = 0


# -- online gbdt -----------------------------------------------------------------------------------------------------
# The in-place online GBDT as its paper prints it: the slow, obvious twin that the fast one has to equal bit for bit.
#
# Source: Lin, Chung, Lao, Zhao, "Online Gradient Boosting Decision Tree: In-Place Updates for Efficient
# Adding/Deleting Data" (ICML 2025), Algorithms 1 to 3, sections 3.2 to 3.4, appendices A, E and M. Where this leaves
# it: derivatives are whole numbers; what was added for a row is kept in a ledger and taken out as it is; a subtree
# that is trained again may use all leaves its tree has left, and leaves may grow; sigma is a rank among the node's
# candidates.
#
# Only plain Python here: lists, dicts, sets, whole numbers. Softmax, quantisation and log-odds, whose last bit
# depends on who computes them, are the fast path's.

ONE = 65536
UNIT = 65536  # a weight of 1
LARGEST_WEIGHT = 2**32 - 1
MOST = 65534  # drift of a row
LARGE = 200  # the part of the rows that a large batch changes
LEAST_GAIN = 1e-10
LARGEST_LEAF = 128.0


def times(number: int, weight: int) -> int:
    """A product, rounded to the nearest whole number, halves away from 0."""
    size = math.floor(Fraction(abs(number) * weight, UNIT) + Fraction(1, 2))
    return size if number >= 0 else -size


def probability(log_odds: float) -> float:
    """Of some log-odds."""
    return float(softmax(np.array([[max(-1e3, min(log_odds, 1e3))]]))[0, 1])


class OnlineGBDT:
    """Model and examples.

    ``categorical`` has an entry for each feature; ``options`` are those of ``GBDTOptions`` (anything that has them as
    attributes).
    """

    def __init__(self, categorical: Sequence[bool], options: Any) -> None:
        self.categorical, self.options = list(categorical), options
        self.squared = options.objective == "squared_error"
        self.rows: dict[int, Row] = {}  # those the model holds
        self.trees: dict[Place, Node] = {}
        self.K = self.exponent = 0
        self.origin = 0.0
        self.fitted = [0.0, 0.0, 0.0]  # of rows, products and squares: the slope of labels on predictions
        self.factors: list[int] | None = None  # of the classes, once they are balanced

    # ------------------------------------------------------------------ training (Algorithm 1)

    def train(self, rows: Iterable[Row]) -> None:
        """The model of some rows, whatever there was before."""
        self.trees, former, self.exponent = {}, self.exponent, 0
        self.rows = {row.id: row for row in rows}
        examples = list(self.rows.values())
        columns = list(zip(*(row.x for row in examples if row.weight), strict=True)) or [()] * len(self.categorical)
        B = self.options.max_bins
        self.bins = [
            CategoryBins(column, B) if categorical else NumericBins(column, B, self.options.binning)
            for column, categorical in zip(columns, self.categorical, strict=True)
        ]
        self.candidates = [self.draw_candidates(m) for m in range(self.options.max_iter)]
        if self.squared:
            self.K = 1
            y = [row.y for row in examples]
            self.weigh(examples)
            self.origin = 0.0
            if sum(row.counts for row in examples):
                total = sum((Fraction(row.y) * row.counts for row in examples), Fraction(0))
                self.origin = float(total / UNIT) / (sum(row.counts for row in examples) / UNIT)
            largest = max((abs(v - self.origin) for v in y), default=0.0)
            if len(set(y)) == 1:
                self.origin, largest = y[0], abs(y[0])
            if largest > 0:
                self.exponent = math.frexp(largest)[1]  # largest < 2 ** exponent
                self.exponent -= 2.0 ** (self.exponent - 1) >= largest
            self.fitted[1:] = [number * 4.0 ** (former - self.exponent) for number in self.fitted[1:]]
        else:
            self.K = max([2, self.K] + [int(row.y) + 1 for row in examples])
            if self.options.class_weight == "balanced" and self.factors is None:
                self.balance(examples)
            self.weigh(examples)
        self.binary = self.K == 2 and self.options.objective in ("auto", "binary")
        for row in examples:
            row.codes, row.ledger, row.leaf, row.drift = self.codes(row.x), {}, {}, 0
        for m in range(self.options.max_iter):
            entries = [self.fresh(row, m) for row in examples]
            for k in range(self.width):
                root = self.trees[m, k] = Node(rows=list(examples))
                for row, entry in zip(examples, entries, strict=True):
                    row.ledger[m, k], row.leaf[m, k] = entry[k], root
                root.G, root.H = self.sums(examples, (m, k))
                self.grow((m, k), [root])
                self.set_values((m, k))

    def balance(self, rows: Sequence[Row]) -> None:
        """Find the weights of the classes: n / (K n_c), of sums of weights; 1 of a class without any."""
        sums = [sum(row.weight for row in rows if row.y == code) for code in range(self.K)]
        share = Fraction(sum(sums) * UNIT, max(1, sum(s > 0 for s in sums)))
        rounded = [math.floor(share / s + Fraction(1, 2)) if s else UNIT for s in sums]
        self.factors = [min(one, LARGEST_WEIGHT) for one in rounded]

    def weigh(self, rows: Iterable[Row]) -> None:
        """Multiply weights by those of classes; classes that came after these were found have 1."""
        for row in rows:
            row.counts = row.weight
            if self.factors is not None:
                factor = self.factors[int(row.y)] if row.y < len(self.factors) else UNIT
                row.counts = min(times(row.weight, factor), LARGEST_WEIGHT)

    def is_far(self, y: float) -> bool:
        """Whether a target is beyond what the scale leaves room for."""
        return abs(y - self.origin) > 2.0 ** (self.exponent + 5)

    @property
    def width(self) -> int:
        """Trees of an iteration."""
        return 1 if self.squared or self.binary else self.K

    def codes(self, x: Sequence[float]) -> list[int]:
        return [bins.code(v) for bins, v in zip(self.bins, x, strict=True)]

    def draw_candidates(self, m: int) -> list[tuple[int, int]]:
        """Features and cuts that may split in iteration m, in order."""
        key = rng.stream_key(self.options.random_state, "gbdt candidates")
        chosen, offset = [], 0
        for j, bins in enumerate(self.bins):
            n, runs = len(bins.cuts), min(len(bins.cuts), self.per_feature)
            for run in range(runs):
                neighbours = range(run * n // runs, (run + 1) * n // runs)
                i = min(neighbours, key=lambda i: int(rng.bits(key, np.array([(m << 40) + offset + i]))[0]))
                chosen.append((j, bins.cuts[i]))
            offset += len(bins.cuts)
        return chosen

    @property
    def per_feature(self) -> int:
        return math.ceil(self.options.candidate_fraction * self.options.max_bins)

    # ------------------------------------------------------------------ derivatives

    def scores(self, row: Row, iterations: int) -> list[float]:
        """F of a row after so many iterations, of each tree of an iteration."""
        F = [self.origin] * self.width
        for m in range(iterations):
            for k in range(self.width):
                F[k] = F[k] + self.leaf_of(row.codes, (m, k)).value
        return F

    def fresh(self, row: Row, m: int) -> list[int]:
        """What a row adds to each tree of iteration m, from its F just then."""
        loss = Loss(self.width, self.squared, self.origin, 2.0 ** (self.exponent - 24))
        y = np.array([row.y], np.float64 if self.squared else np.int32)
        return [int(entry[0]) for entry in quantised(np.array([self.scores(row, m)]), y, loss)]

    def derivative(self, row: Row, entry: int, k: int) -> tuple[int, int]:
        """g and h of a ledger entry."""
        if self.squared:
            return times(entry, row.counts), row.counts
        positive = 1 if self.binary else k
        g = (ONE if row.y == positive else 0) - entry
        return times(g, row.counts), times(abs(g) * (ONE - abs(g)), row.counts)

    def sums(self, rows: Iterable[Row], place: Place) -> tuple[int, int]:
        both = [self.derivative(row, row.ledger[place], place[1]) for row in rows]
        return sum(g for g, _ in both), sum(h for _, h in both)

    @property
    def scale(self) -> float:
        """Unit of ``derivative_tolerance``."""
        return 2.0 ** (self.exponent - 4) if self.squared else 1.0

    @property
    def limit(self) -> float:
        """Half the tolerance, less a margin for rounding: how far a score may drift."""
        return self.options.tolerance * self.scale / 2 * (1 - 2**-10)

    def moved(self, above: int, below: int, change: float) -> tuple[int, int]:
        """How far a leaf has been above and below its value after a change of it, in 65,534th parts of the limit."""
        units = min(abs(change) * (MOST / self.limit), MOST) if self.limit else float(MOST * (change != 0))
        if change > 0:
            return max(0, above - math.floor(units)), below + math.ceil(units)
        return above + math.ceil(units), max(0, below - math.floor(units))

    @property
    def step(self) -> int:
        """How much farther all leaves of a tree may move in a pass, in units, before it is noted by row."""
        return MOST // 4 // self.options.max_iter if self.limit else 0

    @property
    def most(self) -> int:
        """What leaves and drift of a row may have moved before a pass."""
        return MOST - self.step * self.options.max_iter if self.limit else 0

    def compared(self, row: Row, m: int) -> list[int]:
        """What a row has added to each tree of iteration m where a score within half the tolerance gives it, else new.

        A score that moves by d moves the log-odds of its class by d; with several classes by 2 d at most.
        """
        fresh = self.fresh(row, m)
        if self.squared:
            width = math.floor(self.options.tolerance / 2 * 2**20)
            return [old if abs(old - new) <= width else new for old, new in self.entries(row, m, fresh)]
        F = self.scores(row, m)
        result = []
        for k, (old, new) in enumerate(self.entries(row, m, fresh)):
            # The log-odds between which a probability is rounded to the old entry.
            low = -math.inf if old == 1 else float(log_odds(np.array(old - 0.5)))
            high = math.inf if old == ONE - 1 else float(log_odds(np.array(old + 0.5)))
            reach = self.options.tolerance / 2 * (1 if self.binary else 2)
            if self.binary:
                stays = low - reach <= F[0] <= high + reach
            else:
                p = softmax(np.array([F]))[0, k]
                least, greatest = (probability(odds) for odds in (low - reach, high + reach))
                stays = least <= p <= greatest
            result.append(old if stays else new)
        return result

    def entries(self, row: Row, m: int, fresh: list[int]) -> list[tuple[int, int]]:
        """What a row has added to each tree of an iteration (1 where it has not yet), and what it would add now."""
        return [(row.ledger.get((m, k), 1), new) for k, new in enumerate(fresh)]

    # ------------------------------------------------------------------ one tree

    def leaf_of(self, codes: Sequence[int], place: Place) -> Node:
        return self.path(codes, place)[-1]

    def path(self, codes: Sequence[int], place: Place) -> list[Node]:
        path = [self.trees[place]]
        while not path[-1].is_leaf:
            v = path[-1]
            path.append(v.left if self.bins[v.feature].is_left(codes[v.feature], v.cut) else v.right)
        return path

    def term(self, G: int, H: int) -> float:
        g, h = (G * 2.0**-24, H * 2.0**-16) if self.squared else (G * 2.0**-16, H * 2.0**-32)
        return g * g / (h + self.options.l2_regularization) if h else 0.0  # of a leaf without rows

    def gains(self, m: int, k: int, rows: Sequence[Row]) -> dict[tuple[int, int], float]:
        """Eq. (5) for every candidate that leaves something on both sides, by feature, then cut."""
        by_code: list[dict[int, tuple[int, int]]] = [{} for _ in self.bins]
        for row in rows:
            g, h = self.derivative(row, row.ledger[m, k], k)
            for sums, code in zip(by_code, row.codes, strict=True):
                G, H = sums.get(code, (0, 0))
                sums[code] = G + g, H + h
        gains = {}
        for j, cut in self.candidates[m]:
            left = [s for code, s in by_code[j].items() if self.bins[j].is_left(code, cut)]
            right = [s for code, s in by_code[j].items() if not self.bins[j].is_left(code, cut)]
            GL, HL, GR, HR = (sum(s[i] for s in side) for side in (left, right) for i in (0, 1))
            if HL > 0 and HR > 0:
                gains[j, cut] = self.term(GL, HL) + self.term(GR, HR) - self.term(GL + GR, HL + HR)
        return gains

    def grow(self, place: Place, leaves: Sequence[Node]) -> list[Node]:
        """Best-first growth of open leaves within the tree's budget; returns those of ``leaves`` that grew."""
        best: dict[Node, tuple[float, int, int]] = {}
        order = list(leaves)  # in which the leaves were opened
        for _ in range(len(self.trees[place].leaves()), self.options.max_leaf_nodes):
            opened = [v for v in order if v.is_leaf]
            for v in opened:
                if v not in best:
                    cut, gain = max(
                        self.gains(*place, v.rows).items(), key=lambda item: item[1], default=((-1, 0), 0.0)
                    )
                    least = self.term(v.G, v.H) * 2.0**-44 if self.squared else LEAST_GAIN
                    best[v] = gain if gain > least else 0.0, *cut
            v = max(opened, key=lambda v: best[v][0])  # of equals the first
            if best[v][0] <= 0.0:
                for v in opened:
                    v.tried = v.G, v.H
                break
            self.split(place, v, *best[v][1:])
            order += [v.left, v.right]
        else:
            for v in order:
                v.tried = None
        return [v for v in leaves if not v.is_leaf]

    def split(self, place: Place, v: Node, feature: int, cut: int) -> None:
        sides: tuple[list[Row], list[Row]] = [], []
        for row in v.rows:
            sides[not self.bins[feature].is_left(row.codes[feature], cut)].append(row)
        v.feature, v.cut, v.value, v.tried, v.rows, v.above, v.below = feature, cut, 0.0, None, [], 0, 0
        v.left, v.right = (Node(rows=rows) for rows in sides)
        for child in (v.left, v.right):
            child.G, child.H = self.sums(child.rows, place)
            for row in child.rows:
                row.leaf[place] = child

    def set_values(self, place: Place) -> None:
        for v in self.trees[place].leaves():
            v.value = self.leaf_value(v.G, v.H)

    def leaf_value(self, G: int, H: int) -> float:
        nu, l2 = self.options.learning_rate, self.options.l2_regularization
        if H == 0:
            return 0.0
        if self.squared:
            return nu * (G * 2.0**-24 / (H * 2.0**-16 + l2)) * 2.0**self.exponent
        beta = G * 2.0**-16 / (H * 2.0**-32 + l2)
        if not self.binary:
            beta *= (self.K - 1) / self.K
        return nu * min(max(beta, -LARGEST_LEAF), LARGEST_LEAF)

    # ------------------------------------------------------------------ updates (Algorithms 2 and 3)

    def update(self, delete: Sequence[int], insert: Sequence[Row]) -> Work:
        """One D': deletions by id, then insertions."""
        self.work = Work(len(delete), len(insert))
        if delete:
            gone = [self.rows.pop(key) for key in delete]
            self.sweep(0, gone, [], [])
        if insert:
            others: list[Row] = []
            K = max(self.K, *(int(row.y) + 1 for row in insert)) if not self.squared else self.K
            if K > self.K:
                self.add_classes(K)
                others = list(self.rows.values())
            self.weigh(insert)
            for row in insert:
                row.codes = self.codes(row.x)
            self.sweep(1, [], insert, others)
            self.rows |= {row.id: row for row in insert}
        return self.work

    def sweep(self, number: int, gone: Sequence[Row], new: Sequence[Row], others: Sequence[Row]) -> None:
        """Algorithm 2: one pass over all trees. ``others``: old rows whose derivatives are computed anew."""
        refreshed = list(others) or self.due_rows()
        for row in [*refreshed, *new]:
            row.drift = 0
        large = LARGE * (len(gone) + len(new)) >= len(self.rows) + len(gone)
        self.room = 0 if large else self.most - self.largest_moves()
        self.work.checked += len(self.trees)
        compares = self.options.bounded and not others and self.options.tolerance > 0
        if others:
            self.forget_moves()
        for m in range(self.options.max_iter):
            entries = {row: self.compared(row, m) if compares else self.fresh(row, m) for row in refreshed}
            entries |= {row: self.fresh(row, m) for row in new}
            joins: set[Row] = set()
            for k in range(self.width):
                entry_of = {row: entry[k] for row, entry in entries.items()}
                members = entries.keys() | joins
                joins |= self.change_tree(number, (m, k), gone, entry_of, members)
            if m + 1 < self.options.max_iter:
                refreshed += [row for row in self.rows.values() if row in joins and row not in entries]
        self.work.refreshed += len(refreshed)

    def due_rows(self) -> list[Row]:
        """Rows that are to be compared in all iterations: where leaves may have moved too much, moves become drift."""
        if not self.options.bounded or not self.options.tolerance:
            return []
        if self.largest_moves() + max((row.drift for row in self.rows.values()), default=0) <= self.most:
            return []
        for row in self.rows.values():
            leaves = [[row.leaf[m, k] for k in range(self.width)] for m in range(self.options.max_iter)]
            row.drift += sum(max(leaf.above + leaf.below for leaf in some) for some in leaves)
        self.forget_moves()
        if all(row.drift <= self.most for row in self.rows.values()):
            return []
        return [row for row in self.rows.values() if row.drift > self.most // 2]

    def largest_moves(self) -> int:
        """How far leaves have moved in all iterations, those of each that have moved farthest."""
        trees = [[self.trees[m, k] for k in range(self.width)] for m in range(self.options.max_iter)]
        return sum(max(leaf.above + leaf.below for tree in some for leaf in tree.leaves()) for some in trees)

    def forget_moves(self) -> None:
        """All leaves begin again at 0."""
        for tree in self.trees.values():
            for leaf in tree.leaves():
                leaf.above = leaf.below = 0

    def change_tree(
        self, number: int, place: Place, gone: Sequence[Row], entries: dict[Row, int], members: AbstractSet[Row]
    ) -> set[Row]:
        """Algorithm 3; returns the rows that join the batch of these ``members``."""
        root = self.trees[place]
        values = {leaf: leaf.value for leaf in root.leaves()}
        touched: set[Node] = set()
        for row in gone:
            touched |= self.change(row, place, None)
        for row, entry in entries.items():
            if row.ledger.get(place) != entry:
                touched |= self.change(row, place, entry)

        before = {row: values[row.leaf[place]] for leaf in root.leaves() for row in leaf.rows}
        moved = {row: (row.leaf[place].above, row.leaf[place].below) for row in before}
        collapsed = self.collapse_failing(root, place, touched)
        opened = list(collapsed)
        if len(root.leaves()) < self.options.max_leaf_nodes:
            opened += [v for v in root.leaves() if v in touched and v not in collapsed and self.tries_again(v)]
        opened = [v for v in root.preorder() if v in opened]
        below = {v: list(v.rows) for v in opened}
        replaced = [*collapsed, *(self.grow(place, opened) if opened else [])]
        self.set_values(place)

        affected = {row for v in opened if v in replaced for row in below[v]}
        if replaced:
            self.work.retrained.add((number, *place))
        self.work.rows += len(affected)
        if self.options.derivatives == "never":
            return set()
        if self.options.derivatives == "retrained":
            return affected
        if place[0] + 1 == self.options.max_iter:
            return set()
        below_roots = {row for rows in below.values() for row in rows}
        moves = {row: self.moved(*moved[row], row.leaf[place].value - before[row]) for row in moved}
        charged = set(below_roots)
        for leaf in root.leaves():
            kept = [row for row in leaf.rows if row not in below_roots]
            if not kept:
                leaf.above = leaf.below = 0
            elif sum(moves[kept[0]]) > sum(moved[kept[0]]) + self.step:
                charged |= set(kept)
                leaf.above = leaf.below = 0
            else:
                leaf.above, leaf.below = moves[kept[0]]
        joins = set()
        for row in charged - members:
            if row.drift + sum(moves[row]) > self.room:
                joins.add(row)
            else:
                row.drift += sum(moves[row])
        return joins

    def change(self, row: Row, place: Place, entry: int | None) -> set[Node]:
        """Replace what a row has added to a tree (None: it goes); returns the nodes this changes."""
        path = self.path(row.codes, place)
        old = row.ledger.pop(place, None)
        for sign, part in ((-1, old), (1, entry)):
            if part is not None:
                g, h = self.derivative(row, part, place[1])
                for v in path:
                    v.G, v.H = v.G + sign * g, v.H + sign * h
        if old is None:
            path[-1].rows.append(row)
            row.leaf[place] = path[-1]
        if entry is None:
            path[-1].rows.remove(row)
        else:
            row.ledger[place] = entry
        return set(path)

    def collapse_failing(self, v: Node, place: Place, touched: set[Node]) -> list[Node]:
        """Make leaves of the topmost nodes whose split no longer ranks within the tolerance."""
        if v.is_leaf or v not in touched:
            return []
        if self.keeps(v, place):
            return self.collapse_failing(v.left, place, touched) + self.collapse_failing(v.right, place, touched)
        v.rows = self.rows_below(v)
        v.feature, v.cut, v.left, v.right, v.tried = -1, 0, None, None, None
        for row in v.rows:
            row.leaf[place] = v
        return [v]

    def rows_below(self, v: Node) -> list[Row]:
        return [row for leaf in v.leaves() for row in leaf.rows]

    def keeps(self, v: Node, place: Place) -> bool:
        gains = self.gains(*place, self.rows_below(v))
        own = gains.get((v.feature, v.cut))
        return own is not None and sum(gain > own for gain in gains.values()) + 1 <= self.tolerance(place[0])

    def tolerance(self, m: int) -> int:
        most = min(self.per_feature, len(self.candidates[m]))
        return max(1, math.ceil(self.options.robustness_tolerance * most))

    def tries_again(self, v: Node) -> bool:
        if v.tried is None:
            return True
        G, H = v.tried
        sigma = self.options.robustness_tolerance
        return abs(v.G - G) > sigma * abs(G) or abs(v.H - H) > sigma * H

    def add_classes(self, K: int) -> None:
        """Appendix M: trees for classes that were not seen before; of two classes the mirrored tree comes first."""
        for m in range(self.options.max_iter):
            if self.binary:
                self.trees[m, 1] = self.trees[m, 0]
                for row in self.rows.values():
                    row.ledger[m, 1], row.leaf[m, 1] = row.ledger[m, 0], row.leaf[m, 0]
                self.trees[m, 0] = self.mirrored(self.trees[m, 1], m)
        former, self.K, self.binary = self.K, K, False
        for m in range(self.options.max_iter):
            for k in range(former):
                self.set_values((m, k))  # of another factor: moves of leaves are counted from these
            for k in range(former, K):
                # The leaf holds nobody before its first derivatives are added; its value is that of the least
                # probability.
                sums = [sum(times(one, row.counts) for row in self.rows.values()) for one in (-1, ONE - 1)]
                self.trees[m, k] = Node(value=self.leaf_value(*sums))

    def mirrored(self, v: Node, m: int) -> Node:
        """The tree of class 0 to that of class 1."""
        tried = None if v.tried is None else (-v.tried[0], v.tried[1])
        twin = Node(v.feature, v.cut, None, None, -v.G, v.H, 0.0, tried, list(v.rows))
        for row in v.rows:
            row.ledger[m, 0], row.leaf[m, 0] = ONE - row.ledger[m, 1], twin
        if v.left is not None and v.right is not None:
            twin.left, twin.right = self.mirrored(v.left, m), self.mirrored(v.right, m)
        return twin

    # ------------------------------------------------------------------ predictions

    def predict_scores(self, x: Sequence[float]) -> list[float]:
        """F of the whole model."""
        return self.scores(Row(-1, tuple(x), 0.0, self.codes(x)), self.options.max_iter)

    def predict(self, x: Sequence[float]) -> float:
        """Class code, of equals the smaller; or the target."""
        F = self.predict_scores(x)
        if self.squared:
            slope, start = self.slope(), self.start()
            return self.number(x) if slope == 1 else start + slope * (self.number(x) - start)
        return float(F[0] > 0) if self.binary else F.index(max(F))

    def start(self) -> float:
        """The mean at the last training; 0 once no row counts."""
        return self.origin if any(row.counts for row in self.rows.values()) else 0.0

    def number(self, x: Sequence[float]) -> float:
        """The mean, and all that the trees add."""
        return self.predict_scores(x)[0] - (self.origin - self.start())

    def slope(self) -> float:
        """Share taken of what the trees add: the slope of least squares on former predictions, and 30 times 1."""
        rows, products, squares = self.fitted
        return (rows * max(0.0, min(1.0, products / squares)) + 30) / (rows + 30) if squares > 0 else 1.0

    def learn_slope(self, x: Sequence[float], y: float, weight: float) -> None:
        """A row that was predicted counts, all before it a little less."""
        if not weight:
            return
        start, unit = self.start(), 2.0**self.exponent
        d_y, d_F = (y - start) / unit, (self.number(x) - start) / unit
        self.fitted = [
            old + (weight * new - old / 1024) for old, new in zip(self.fitted, (1, d_y * d_F, d_F * d_F), strict=True)
        ]

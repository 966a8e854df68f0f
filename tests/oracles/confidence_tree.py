"""The confidence tree, slow and obvious: what the fast one has to equal, node by node and record by record.

Source: De Rosa, Cesa-Bianchi, "Splitting with Confidence in Decision Trees with Application to Stream Mining",
Algorithm 1. Where this leaves the paper: the best split has the smallest Phi-hat (line 5 prints argmax); leaves are
checked every ``grace_period`` arrivals; values fall into bins that the warm-up has fixed; examples may be deleted.

Where rows have weights everything counted is in units of 2**-16 of a row (``unit``), and an example counts its weight,
times that of its class where classes are balanced. With a ``unit`` of 1 weights are whole, and an example is so many
copies of a row, which come and go as one.

Nothing is counted here in advance. Leaves hold their examples as plain rows; at every check all of those that the node
has counted are gone through once for each cut. All features are columns of ``x``: first the dense ones, then the sparse
ones, which are 0.0 or 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from tests.oracles import confidence_bounds as bounds
from tests.oracles.digests import CategoryBins, NumericBins
from tests.oracles.fudyadt import Example, FudyadtTwin
from tests.oracles.sparse_splits import x_log_x

Counts = list[int]


class Cut(NamedTuple):
    """A split and what it would bring, in the order in which splits are preferred."""

    phi: float
    feature: int
    cut: int
    left: Counts


@dataclass
class Record:
    """Why a node was split: what was known then."""

    stamp: int
    m: int
    t: int
    classes: int
    own: tuple[int, ...]
    feature: int
    cut: int
    threshold: float
    left: tuple[int, ...]
    phi: float
    rival_feature: int
    rival_cut: int
    rival_phi: float
    impurity: float
    epsilon: float
    reason: int


@dataclass(eq=False)
class Node:
    created: int = -1
    depth: int = 0
    arrivals: int = 0
    record: Record | None = None
    left: Node | None = None
    right: Node | None = None
    examples: list[Example] = field(default_factory=list)

    @property
    def is_leaf(self) -> bool:
        return self.record is None


class Bits:
    """A sparse feature: 0 goes left."""

    def code(self, x: float) -> int:
        return int(x)


# ------------------------------------------------------------------ Phi-hat, each operation as the fast path has it


def gini_side(l: Counts, unit: int) -> float:  # noqa: E741
    n, squares = float(sum(l)), 0.0
    for k in l:
        squares += float(k) * float(k)
    return (n * n - squares) / n if n else 0.0


def entropy_side(l: Counts, unit: int) -> float:  # noqa: E741
    parts = 0.0
    for k in l:
        parts += unit * x_log_x(k / unit)
    return 0.5 * (unit * x_log_x(sum(l) / unit) - parts)


def kearns_mansour_side(l: Counts, unit: int) -> float:  # noqa: E741
    return math.sqrt(float(l[0]) * float(l[1]))


def error_side(l: Counts, unit: int) -> float:  # noqa: E741
    return float(sum(l) - max(l))


SIDES: dict[str, Callable[[Counts, int], float]] = {
    "gini": gini_side,
    "entropy": entropy_side,
    "kearns_mansour": kearns_mansour_side,
    "error": error_side,
}


def stamp(example: Example) -> int:
    """When it was added, in half updates: a removal of the same update comes before."""
    return 2 * example.born + 1


class ConfidenceTwin(FudyadtTwin):
    """The tree and its examples.

    ``categorical`` has one entry per column, of which the last ``sparse`` are sparse features; ``options`` are those
    of the learner. Ids, refusals and the order of events are those of :class:`FudyadtTwin`.
    """

    root: Any
    unit = 1  # type: ignore[assignment]

    def __init__(self, categorical: Sequence[bool], options: Any, sparse: int = 0) -> None:
        super().__init__(categorical, epsilon=0.0)
        self.options, self.sparse, self.d = options, sparse, len(categorical)
        self.side = SIDES[bounds.criterion_of(options)]
        self.root = Node()
        self.bins: list[Any] = []
        #: Were right when an example came: majority, naive Bayes, that with normal features, and that with all live
        #: examples of the leaf.
        self.right: dict[tuple[int, int], tuple[bool, bool, bool, bool]] = {}
        self.encoded: dict[tuple[float, ...], tuple[int, ...]] = {}
        self.started = False
        self.t = self.renewed = self.lived = self.compared = 0
        self.done = dict.fromkeys(("checks", "splits", "ties"), 0)
        self.changes: list[tuple[int, int, int, int]] = []  # update, depth, feature, reason
        self.routes: list[int] = []  # nodes whose counts each update changed
        self.n_classes = self.K = 2
        self.weights: dict[int, int] = {}  #: By the update that inserted an example: its weight in units.
        self.factors: list[int] = []  #: Of balanced classes, in units.

    def mass(self, *examples: Example) -> int:
        """How much examples count."""
        units = sum(self.times(self.weights.get(e.born, 2**16), e.y) for e in examples)
        return units * self.unit // 2**16

    def times(self, weight: int, y: int) -> int:
        """A weight times that of a class, rounded."""
        return min(2**32 - 1, (weight * self.factors[y] + 2**15) // 2**16) if y < len(self.factors) else weight

    def counts(self, examples: Iterable[Example]) -> Counts:
        counts = [0] * self.n_classes
        for e in examples:
            counts[e.y] += self.mass(e)
        return counts

    # ------------------------------------------------------------------ steps

    def event(self, seq: int, op: int, id: int, x: tuple[float, ...], y: int) -> tuple[int, int]:
        self.routes.append(0)
        # One NaN for all, which tuples take to be equal to itself.
        return super().event(seq, op, id, tuple(math.nan if math.isnan(v) else v for v in x), y)

    def insert(self, seq: int, id: int, x: tuple[float, ...], y: int) -> int:
        example = self.live[id] = Example(id, x, y, seq)
        self.ever.append(example)
        if self.warmup_left == 0:
            prediction = self.predict(x)
            self.routes[-1] += self.add(example)
            self.renew()
            return prediction
        self.root.examples.append(example)
        self.routes[-1] = 1
        self.warmup_left -= 1
        if self.warmup_left == 0:
            self.start()
        return -1

    def delete(self, example: Example, seq: int, time: int) -> None:
        del self.live[example.id]
        example.died = seq
        if self.started:
            self.routes[-1] += self.remove(example, time)
        else:
            self.root.examples.remove(example)
            self.routes[-1] += 1

    def finish(self) -> None:
        if not self.started:
            self.warmup_left = 0
            self.start()

    def start(self) -> None:
        """The end of the warm-up: bins from its rows, which then come one after the other."""
        rows, self.root.examples = self.root.examples, []
        self.started = True
        if self.options.class_weight == "balanced":
            sums = self.counts(rows)
            occurring = sum(n > 0 for n in sums)
            self.factors = [round_half_up(2**16 * Fraction(sum(sums), occurring * n)) if n else 2**16 for n in sums]
        self.make_bins(rows)
        for e in sorted(rows, key=lambda e: e.born):
            self.add(e)
        self.renewed, self.lived = self.t, self.mass(*rows)
        self.compared = max(map(stamp, rows), default=0)

    def make_bins(self, rows: list[Example]) -> None:
        self.bins, self.encoded = [], {}
        for j, categorical in enumerate(self.categorical):
            values = [e.x[j] for e in rows if self.weights.get(e.born) != 0]
            if j >= self.d - self.sparse:
                self.bins.append(Bits())
            elif categorical:
                self.bins.append(CategoryBins(values, self.options.max_bins))
            else:
                self.bins.append(NumericBins(values, self.options.max_bins, "quantile"))

    def renew(self) -> None:
        """New bins once as many examples have come as were live at the last renewal, and the option's number."""
        least = self.options.renewal * self.unit if self.d > self.sparse else 0
        if least and self.t - self.renewed >= max(self.lived, least):
            rows = list(self.below(self.root))
            self.make_bins(rows)
            self.renewed, self.lived = self.t, self.mass(*rows)

    def add(self, e: Example) -> int:
        """An ADD; the nodes on its route."""
        self.t += self.mass(e)
        self.K = max(self.K, e.y + 1)
        path = self.path(e.x)
        if self.options.leaf_prediction.startswith("adaptive"):
            majority, own = self.majority(e.x), self.own(path[-1])
            naive, normal = (self.naive_of(e.x, own, majority, normal=normal) for normal in (False, True))
            all_of_leaf = self.naive_of(e.x, list(self.below(path[-1])), majority, normal=True)
            kind = self.options.leaf_prediction
            inherited = kind == "adaptive_inherited" and all_of_leaf == e.y
            by_normal = kind != "adaptive" and normal == e.y
            self.right[e.id, e.born] = majority == e.y, naive == e.y, by_normal, inherited
        path[-1].examples.append(e)
        path[-1].arrivals += self.mass(e)
        if path[-1].arrivals >= self.options.grace_period * self.unit:
            path[-1].arrivals = 0
            self.split_leaf(path[-1], stamp(e))
        return len(path)

    def remove(self, e: Example, now: int) -> int:
        """A REMOVE; the nodes on its route."""
        path = self.path(e.x)
        path[-1].examples.remove(e)
        return len(path)

    # ------------------------------------------------------------------ decisions

    def split_leaf(self, v: Node, now: int) -> bool:
        own = [e for e in self.own(v) if self.mass(e)]  # others are counted nowhere
        total = self.counts(own)
        cuts = sorted(self.cuts(own))
        if sum(n > 0 for n in total) < 2:
            return False
        self.done["checks"] += 1
        if not cuts:
            return False
        best, impurity = cuts[0], self.phi(total, [0] * len(total))
        others = [c for c in cuts[1:] if self.options.rival == "split" or c.feature != best.feature]
        rival = others[0] if others else Cut(impurity, -1, -1, [])
        eps = self.width(v, sum(total))
        reason = bounds.reason(self.options, best.phi, rival.phi, impurity, eps)
        if reason is None:
            return False
        self.done["splits"] += 1
        self.done["ties"] += reason == 1
        self.split(v, now, best, rival, eps, reason)
        return True

    def width(self, v: Node, m: int) -> float:
        if m < self.unit:
            return math.inf
        rows = Decimal(m) / self.unit, Decimal(self.t) / self.unit
        return float(bounds.width(self.options, *rows, v.depth, self.d, self.K))

    def split(self, v: Node, now: int, best: Cut, rival: Cut, eps: float, reason: int) -> None:
        total = self.counts(self.own(v))
        v.record = Record(
            stamp=now,
            m=sum(total),
            t=self.t,
            classes=self.K,
            own=padded(total),
            feature=best.feature,
            cut=best.cut,
            threshold=self.threshold(best.feature, best.cut),
            left=padded(best.left),
            phi=best.phi,
            rival_feature=rival.feature,
            rival_cut=rival.cut,
            rival_phi=rival.phi,
            impurity=self.phi(total, [0] * len(total)),
            epsilon=eps,
            reason=reason,
        )
        self.changes.append((now // 2, v.depth, best.feature, reason))
        examples, v.examples = list(self.below(v)), []
        v.left, v.right = Node(now, v.depth + 1), Node(now, v.depth + 1)
        for e in examples:
            side = v.left if self.is_left_of(best.feature, best.cut, self.codes(e.x)) else v.right
            side.examples.append(e)

    # ------------------------------------------------------------------ candidates

    def cuts(self, own: list[Example]) -> Iterable[Cut]:
        """Every split that parts the examples, each partition once."""
        total = self.counts(own)
        for j in range(self.d):
            codes = [self.codes(e.x)[j] for e in own]
            for cut in self.places(j, set(codes)):
                left = self.counts([e for e in own if self.is_left_of(j, cut, self.codes(e.x))])
                if 0 < sum(left) < sum(total):
                    yield Cut(self.phi(left, minus(total, left)), j, cut, left)

    def places(self, j: int, present: set[int]) -> list[int]:
        """Cuts of a feature, given which of its bins are not empty."""
        bins = self.bins[j]
        if isinstance(bins, Bits):
            return [0]
        if isinstance(bins, NumericBins):
            return [cut for cut in bins.cuts if cut in present]
        kept = [c for c in range(len(bins.kept)) if c in present]
        return kept[:1] if len(present) == 2 else kept

    def phi(self, left: Counts, right: Counts) -> float:
        return (self.side(left, self.unit) + self.side(right, self.unit)) / float(sum(left) + sum(right))

    # ------------------------------------------------------------------ routes

    def codes(self, x: tuple[float, ...]) -> tuple[int, ...]:
        if x not in self.encoded:
            self.encoded[x] = tuple(bins.code(v) for bins, v in zip(self.bins, x, strict=True))
        return self.encoded[x]

    def is_left_of(self, feature: int, cut: int, codes: tuple[int, ...]) -> bool:
        code = codes[feature]
        return code == cut if isinstance(self.bins[feature], CategoryBins) else code <= cut

    def goes_left(self, v: Any, x: Any) -> bool:
        value, threshold = x[v.record.feature], v.record.threshold  # its cut may be of bins that are gone
        categorical = self.categorical[v.record.feature]
        return bool(value == threshold if categorical else value <= threshold)

    def threshold(self, feature: int, cut: int) -> float:
        bins = self.bins[feature]
        if isinstance(bins, Bits):
            return 0.0
        if isinstance(bins, CategoryBins):
            return float(bins.kept[cut])
        return bins.boundaries[cut] if cut < len(bins.boundaries) else math.inf

    def own(self, v: Node) -> list[Example]:
        """The live examples that a node has counted itself."""
        if not self.started or not v.is_leaf:
            return []
        return [e for e in self.below(v) if stamp(e) > v.created]

    def predict(self, x: tuple[float, ...]) -> int:
        majority, leaf = self.majority(x), self.path(x)[-1]
        if self.options.leaf_prediction == "majority" or not self.started:
            return majority
        own, normal = self.own(leaf), False
        if self.options.leaf_prediction.startswith("adaptive"):
            tallies = [(self.right[e.id, e.born], self.mass(e)) for e in own]
            of_majority, of_counts, of_normal, of_all = (sum(m for who, m in tallies if who[i]) for i in range(4))
            if of_all > max(of_majority, of_counts, of_normal):
                return self.naive_of(x, list(self.below(leaf)), majority, normal=True)
            normal = self.options.leaf_prediction != "adaptive" and of_normal >= max(of_majority, of_counts)
            if of_majority > of_counts and not normal:
                return majority
        return self.naive_of(x, own, majority, normal=normal)

    def naive_of(self, x: tuple[float, ...], own: list[Example], otherwise: int, *, normal: bool = False) -> int:
        """Naive Bayes on what a leaf has counted, of features that are sparse and 0 without them."""
        total, here = self.counts(own), self.codes(x)
        scores: dict[int, int] = {k: log_of(n / self.unit) for k, n in enumerate(total) if n}
        for j in range(self.d):
            if j >= self.d - self.sparse and not x[j]:
                continue
            if normal and self.score(j, here[j]) is not None:
                for k in scores:
                    scores[k] += self.normal_of(j, here[j], [e for e in own if e.y == k], total[k])
                continue
            same = self.counts([e for e in own if self.pool(j, self.codes(e.x)[j]) == self.pool(j, here[j])])
            for k in scores:
                scores[k] += log_of(same[k] / self.unit) - log_of(total[k] / self.unit)
        return max(scores, key=lambda k: (scores[k], -k)) if scores else otherwise

    def pool(self, j: int, code: int) -> int:
        """The group of a bin: sixteen of about as many bins of numbers each."""
        bins = self.bins[j]
        numbers = len(bins.boundaries) + 1 if isinstance(bins, NumericBins) else 0
        return code * 16 // numbers if code < numbers and numbers > 16 else 1000 + code

    def score(self, j: int, code: int) -> int | None:
        """The normal score of a bin of a feature of many numbers, in 1024ths."""
        bins = self.bins[j]
        numbers = len(bins.boundaries) + 1 if isinstance(bins, NumericBins) else 0
        if numbers <= 16 or code >= numbers:
            return None
        p = (2 * code + 1) / (2 * numbers)
        eighth = [math.sqrt(math.sqrt(math.sqrt(share))) for share in (p, 1.0 - p)]
        return round((eighth[0] - eighth[1]) / 0.1875 * 1024)

    def normal_of(self, j: int, code: int, examples: list[Example], total: int) -> int:
        """What a feature adds to the score of a class with these examples, by its normal distribution."""
        of_examples = [(self.score(j, self.codes(e.x)[j]), self.mass(e)) for e in examples]
        scores = [(score, mass) for score, mass in of_examples if score is not None]
        n, here, unit = sum(mass for _, mass in scores), self.score(j, code), self.unit
        assert here is not None
        mean = float(sum(score * mass for score, mass in scores)) / float(n + unit)
        squares = float(sum(score * score * mass for score, mass in scores) + 1024 * 1024 * unit)
        spread = squares / float(n + unit) - mean * mean
        variance, middle = min(max(int(spread / 1024), 10), 65535), math.floor(mean + 0.5)
        bits = variance.bit_length() - 1
        nine = variance << (8 - bits) if bits <= 8 else variance >> (bits - 8)
        half = (bits * 726817 + round(2**20 * math.log(nine / 256))) // 2
        return log_of(n / unit) - log_of(total / unit) - half - (here - middle) ** 2 * 512 // variance

    def majority(self, x: tuple[float, ...]) -> int:
        for v in reversed(self.path(x)):
            counts = self.counts(list(self.below(v)))
            if any(counts):
                return counts.index(max(counts))
        return 0

    def right_of(self, rows: list[Example]) -> list[int]:
        """Who was right about examples: 1 the majority, 2, 8 and 16 naive Bayes."""
        if not self.options.leaf_prediction.startswith("adaptive") or not self.started:
            return []
        return [a + 2 * b + 8 * c + 16 * d for a, b, c, d in (self.right[e.id, e.born] for e in rows)]

    # ------------------------------------------------------------------ comparison

    def canonical(self) -> dict[str, Any]:
        """What can be asked of the tree: nodes in preorder, examples by id; counts of K classes."""
        nodes = list(self.preorder(self.root))
        place = {id(v): i for i, v in enumerate(nodes)}
        rows = sorted(self.live.values(), key=lambda e: e.id)
        return {
            "feature": [v.record.feature if v.record else -1 for v in nodes],
            "cut": [v.record.cut if v.record else -1 for v in nodes],
            "left": [place.get(id(v.left), -1) for v in nodes],
            "right": [place.get(id(v.right), -1) for v in nodes],
            "depth": [v.depth for v in nodes],
            "created": [v.created for v in nodes],
            "arrivals": [v.arrivals for v in nodes],
            "counts": [padded(self.counts(list(self.below(v)))) for v in nodes],
            "own": [padded(self.counts(self.own(v))) for v in nodes],
            "records": [asdict(v.record) for v in nodes if v.record],
            "id": [e.id for e in rows],
            "y": [e.y for e in rows],
            "born": [e.born for e in rows],
            "leaf": [place[id(self.path(e.x)[-1])] for e in rows],
            "was_right": self.right_of(rows),
            "t": self.t,
            "classes": self.K,
            "renewed": self.renewed,
            "lived": self.lived,
            "compared": self.compared,
        }


def log_of(n: float) -> int:
    """log(64 n + 1) in units of 2^-20."""
    return round(math.log(64 * n + 1) * 2**20)


def round_half_up(value: Fraction) -> int:
    return min(2**32 - 1, math.floor(value + Fraction(1, 2)))


def minus(total: Counts, left: Counts) -> Counts:
    return [a - b for a, b in zip(total, left, strict=True)]


def padded(counts: Counts) -> tuple[int, ...]:
    """Without the classes at the end that have no examples, but for two."""
    kept = list(counts)
    while len(kept) > 2 and not kept[-1]:
        kept.pop()
    return tuple(kept)

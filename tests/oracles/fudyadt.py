"""FuDyADT as the paper prints it: the slow, obvious twin that every fast version has to equal bit for bit.

Source: Bressan, Damay, Sozio, "Fully-Dynamic Decision Trees" (2022), Algorithms 1 and 2. Where this leaves the
paper: BUILD runs at the depth of the rebuilt node (line 10 passes ``i``); the topmost node with s(u) <= s_hat is
looked for from the root, as s is not monotone along a path; s = 0 gives s_hat = 0; a split has examples on both
sides and may have zero gain; K classes; a categorical split is one value against the rest; a number may be missing, and
each threshold then parts the others with the missing ones on its right, and on its left.

An example may have a weight: it counts as that many examples in every size, and is taken in one step. What has weight 0
is in no node. ``CopiesTwin`` has no weights, but as many copies of an example, which come and go in one step.

With ``certificate`` UPDATE follows the certificates of ``docs/explanation/guarantees.md`` in place of line 6.

Only plain Python here: lists, dicts, recursion, whole numbers and fractions. The float64 computations that decide
anything are :func:`score` and :func:`mass`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    DUPLICATE_ID,
    INSERT,
    QUERY,
    UNIT,
    UNKNOWN_ID,
    UNKNOWN_VALUE,
    UPDATE,
    History,
    UpdateBatch,
)
from raydt.learners.base import auto_epsilon

ALIVE = np.iinfo(np.int64).max
#: Multiples of ``smoothing`` among which a stream chooses.
MULTIPLES = (0.0, 0.1, 1.0, 10.0, 100.0)
#: Sides of missing numbers.
UNDECIDED, TO_LEFT, TO_RIGHT = 0, 1, 2
#: A size: a fraction where examples have weights.
Number = int | Fraction
#: Feature, threshold and side of missing numbers.
Split = tuple[int, float, int]


@dataclass
class Example:
    id: int
    x: tuple[float, ...]
    y: int
    born: int
    died: int = ALIVE
    w: Number = 1


@dataclass
class Node:
    s: Number = 0
    c: Number = 0
    built: int = -1
    feature: int = -1
    threshold: float = 0.0
    left: Node | None = None
    right: Node | None = None
    examples: list[Example] = field(default_factory=list)
    at_build: list[Example] = field(default_factory=list)
    m0: float = 0.0
    missing: int = UNDECIDED

    @property
    def is_leaf(self) -> bool:
        return self.feature < 0


@dataclass
class TwinResult:
    applied: int
    predictions: list[float]
    refused: list[tuple[int, int]]
    log: list[tuple[int, int, int, int]]  # of each rebuild: seq, rows, depth, nodes built


def score(left: Sequence[Number], total: Sequence[Number]) -> float:
    """n^2 times the Gini gain of a split with ``left`` of ``total`` examples of each class on its left side.

    left_k n - n_left c_k, taken between the sides; of numbers of examples exactly.
    """
    n_left, n_right = float(sum(left)), float(sum(total) - sum(left))
    acc = 0.0
    for left_k, c_k in zip(left, total, strict=True):
        difference = float(left_k) * n_right - n_left * float(c_k - left_k)
        acc += difference * difference
    return acc / (n_left * n_right)


def midpoint(a: float, b: float) -> float:
    """Threshold between the neighbouring values a < b."""
    t = 0.5 * a + 0.5 * b
    return t if a <= t < b else a


def mass(counts: Sequence[Number]) -> float:
    """Size times Gini index."""
    n, pairs = sum(counts), 0.0
    for c in counts:
        pairs += float(c) * float(n - c)
    return pairs / float(n) if n else 0.0


def gini(counts: Sequence[Number]) -> Fraction:
    """Gini index, of numbers of examples exactly, of weights from products that are rounded; 0 for no examples."""
    n, pairs = float(sum(counts)), 0.0
    for c in counts:
        pairs += float(c) * (n - float(c))
    return Fraction(pairs) / Fraction(n * n) if n else Fraction(0)


class FudyadtTwin:
    """The tree and its examples. What it makes of labels, ``fudyadt_numbers`` replaces where these are numbers.

    ``categorical`` has one entry per feature; ``epsilon`` is a number (not "auto"); ``max_depth`` is the paper's h
    or None; ``min_samples_split`` its k + 1; ``certificate`` is beta, where nodes are rebuilt by certificates.
    """

    score, mass, impurity = staticmethod(score), staticmethod(mass), staticmethod(gini)
    #: What one deletion may take from the mass that a split leaves; the unit of masses; what stands for no prediction.
    step: float = 2.0
    square: float = 1.0
    no_prediction: float = -1
    label_type: type[np.generic] = np.int32

    def __init__(
        self,
        categorical: Sequence[bool],
        *,
        epsilon: float,
        alpha: float = 0.0,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        certificate: float | None = None,
        smoothing: float = 0.0,
    ) -> None:
        self.categorical = list(categorical)
        self.smoothing = smoothing
        self.hits = [0] * len(MULTIPLES)  # right predictions by each multiple of ``smoothing``, faded
        self.certificate = certificate
        self.epsilon, self.half_alpha = Fraction(epsilon), Fraction(alpha) / 2
        self.max_depth, self.min_samples_split = max_depth, min_samples_split
        self.root = Node()
        self.live: dict[int, Example] = {}
        self.ever: list[Example] = []
        self.n_classes = 0
        self.warmup = self.warmup_left = self.seq = self.rebuilt_rows = 0
        self.log: list[tuple[int, int, int, int]] = []
        self.rebuilds = 0
        self.next_weight: Number = 1
        self.weighted = False  # whether an example has had another weight than 1

    # ------------------------------------------------------------------ weights

    @property
    def per_example(self) -> int:
        """What the learner counts for an example of weight 1."""
        return UNIT if self.weighted else 1

    def weight(self, example: Example) -> Number:
        """What one copy of an example counts."""
        return example.w

    def copies(self, example: Example) -> int:
        """How often an example is in its leaf."""
        return int(example.w > 0)

    def size(self, examples: Iterable[Example]) -> Number:
        """What some examples count."""
        return sum(self.weight(e) for e in examples)

    def passes_size(self, v: Node) -> bool:
        """Whether a node is too small, or no longer, since BUILD: fractions may do that before c > epsilon s."""
        below = self.epsilon * self.min_samples_split < 1
        n = self.size(self.below(v))
        return self.weighted and below and (v.s < self.min_samples_split) != (n < self.min_samples_split)

    # ------------------------------------------------------------------ the paper's two routines

    def update(self, example: Example, insert: bool, time: int) -> None:
        """Algorithm 1: ``example`` enters or leaves; ``time`` is recorded as ``built`` of what is rebuilt."""
        path, copies = self.path(example.x), self.copies(example)
        if not copies:
            return
        if insert:
            self.decide(path, example.x)
        self.move(path[-1], example, insert)
        for v in path:
            v.c += copies * self.weight(example)
        for depth, v in enumerate(path):
            if self.certificate is None:
                if v.c > self.epsilon * v.s or self.passes_size(v):
                    self.rebuild(path, self.cascade(path, depth), time)
                    return
            elif v.is_leaf:
                if self.leaf_is_due(v, depth):
                    self.rebuild(path, depth, time)
                    return
            elif self.must_be_leaf(v):
                self.rebuild(path, depth, time)
                return
            elif self.runs_out(v):
                self.rebuild(path, self.cascade(path, depth), time)
                return

    def move(self, leaf: Node, example: Example, insert: bool) -> None:
        """Put all copies of an example into a leaf, or take them out."""
        for _ in range(self.copies(example)):
            (leaf.examples.append if insert else leaf.examples.remove)(example)

    def cascade(self, path: list[Node], depth: int) -> int:
        """Lines 7-9 of Algorithm 1: depth of the topmost node not larger than the next power of two."""
        s_hat = 0
        if path[depth].s > 0:
            s_hat = 1
            while s_hat < path[depth].s:
                s_hat *= 2
        return next(i for i, u in enumerate(path) if u.s <= s_hat)

    def leaf_is_due(self, v: Node, depth: int) -> bool:
        """Whether BUILD has to look at a leaf again, and would look for a split."""
        return (v.c > self.epsilon * v.s or self.passes_size(v)) and self.may_split(v.examples, depth)

    def must_be_leaf(self, v: Node) -> bool:
        """Whether a node is too small or pure."""
        examples = list(self.below(v))
        return self.size(examples) < self.min_samples_split or self.impurity(self.counts(examples)) == 0

    def mass_left(self, v: Node) -> float:
        """Mass of both sides of a split together."""
        assert v.left is not None
        assert v.right is not None
        left, right = (self.counts(list(self.below(child))) for child in (v.left, v.right))
        return self.mass(left) + self.mass(right)

    def gone(self, v: Node) -> Number:
        """Of the examples at BUILD, those deleted since."""
        return self.size(e for e in v.at_build if e.died < ALIVE)

    def runs_out(self, v: Node) -> bool:
        """Whether a split may leave more mass than beta n above the best one."""
        assert self.certificate is not None
        lacks = self.mass_left(v) - max(0.0, v.m0 - self.step * float(self.gone(v)))
        return lacks > (self.certificate - 1e-12) * self.square * float(self.size(self.below(v)))

    def rebuild(self, path: list[Node], depth: int, time: int) -> None:
        old = path[depth]
        examples = list(self.below(old))
        new = self.build(examples, depth, time)
        if depth == 0:
            self.root = new
        elif path[depth - 1].left is old:
            path[depth - 1].left = new
        else:
            path[depth - 1].right = new
        self.rebuilds += 1
        self.rebuilt_rows += len(examples)
        self.log.append((time // 2, len(examples), depth, len(list(self.preorder(new)))))

    def build(self, examples: list[Example], depth: int, time: int) -> Node:
        """Algorithm 2."""
        node = Node(
            s=self.size(examples), c=0, built=time, at_build=list(examples), m0=self.mass(self.counts(examples))
        )
        split = None
        if self.may_split(examples, depth):
            split = self.best_split(examples)
        if split is None:
            node.examples = examples
            return node
        node.feature, node.threshold, node.missing = split
        goes_left = [self.is_left(split, e.x) for e in examples]
        node.left = self.build([e for e, left in zip(examples, goes_left, strict=True) if left], depth + 1, time)
        node.right = self.build([e for e, left in zip(examples, goes_left, strict=True) if not left], depth + 1, time)
        node.m0 = self.mass_left(node)
        return node

    def may_split(self, examples: list[Example], depth: int) -> bool:
        """Line 3 of Algorithm 2: whether BUILD looks for a split."""
        return (
            self.size(examples) >= self.min_samples_split
            and self.impurity(self.counts(examples)) > self.half_alpha
            and depth != self.max_depth
        )

    # ------------------------------------------------------------------ splits

    def candidates(self, examples: list[Example]) -> Iterator[Split]:
        """Every split with examples on both sides, by feature, side of missing numbers (right first), threshold."""
        for j in range(len(self.categorical)):
            yield from self.candidates_of(j, examples)

    def candidates_of(self, j: int, examples: list[Example]) -> Iterator[Split]:
        """Those of one feature. The infinite threshold asks whether there is a number."""
        values = sorted({e.x[j] for e in examples if not math.isnan(e.x[j])})
        lacking = any(math.isnan(e.x[j]) for e in examples)
        if self.categorical[j]:
            if len(values) > 1:
                yield from ((j, v, UNDECIDED) for v in values)
            return
        thresholds = [midpoint(a, b) for a, b in pairwise(values)]
        if not lacking:
            yield from ((j, t, UNDECIDED) for t in thresholds)
        elif values:
            yield from ((j, t, TO_RIGHT) for t in [*thresholds, math.inf])
            yield from ((j, t, TO_LEFT) for t in thresholds)

    def best_split(self, examples: list[Example]) -> Split | None:
        """The split of the highest score, the first of several; None if nothing separates the examples."""
        total = self.counts(examples)
        best, best_score = None, -1.0
        for split in self.candidates(examples):
            left = self.counts([e for e in examples if self.is_left(split, e.x)])
            s = self.score(left, total)
            if s > best_score:
                best, best_score = split, s
        return best

    def is_left(self, split: Split, x: Sequence[float]) -> bool:
        feature, threshold, missing = split
        if self.categorical[feature]:
            return x[feature] == threshold
        return missing == TO_LEFT if math.isnan(x[feature]) else x[feature] <= threshold

    def goes_left(self, node: Node, x: Sequence[float]) -> bool:
        missing = self.side_of_missing(node) if math.isnan(x[node.feature]) else UNDECIDED
        return self.is_left((node.feature, node.threshold, missing), x)

    def side_of_missing(self, v: Node) -> int:
        """The side that was decided, or that of more examples; the right one if they are as many."""
        if v.missing != UNDECIDED:
            return v.missing
        assert v.left is not None
        assert v.right is not None
        left, right = (self.size(self.below(child)) for child in (v.left, v.right))
        return TO_LEFT if left > right else TO_RIGHT

    def decide(self, path: list[Node], x: Sequence[float]) -> None:
        """From the first example on that is learned without a number, its side is that of all."""
        for v in path[:-1]:
            if math.isnan(x[v.feature]):
                v.missing = self.side_of_missing(v)

    def counts(self, examples: list[Example]) -> list[Number]:
        counts: list[Number] = [0] * self.n_classes
        for e in examples:
            counts[e.y] += self.weight(e)
        return counts

    # ------------------------------------------------------------------ reading the tree

    def path(self, x: Sequence[float]) -> list[Node]:
        """Nodes from the root to the leaf of x."""
        path = [self.root]
        while not path[-1].is_leaf:
            v = path[-1]
            child = v.left if self.goes_left(v, x) else v.right
            assert child is not None
            path.append(child)
        return path

    def preorder(self, node: Node) -> Iterator[Node]:
        yield node
        if node.left is not None and node.right is not None:
            yield from self.preorder(node.left)
            yield from self.preorder(node.right)

    def below(self, node: Node) -> Iterator[Example]:
        for v in self.preorder(node):
            yield from v.examples

    def look(self, x: Sequence[float]) -> float:
        """Answer a query."""
        return self.predict(x)

    def predict(self, x: Sequence[float]) -> float:
        """Class of the largest share at the leaf of x, by the multiple that has been right most often."""
        return self.guess(x, self.chosen())

    def chosen(self) -> float:
        """The multiple of ``smoothing`` of most hits: 1 if it is among them, else the smallest."""
        best = [m for m, hits in zip(MULTIPLES, self.hits, strict=True) if hits == max(self.hits)]
        return 1.0 if 1.0 in best else best[0]

    def guess(self, x: Sequence[float], multiple: float) -> int:
        """Class of the largest share, the smaller of two, 0 without examples: in the leaf, or smoothed."""
        path = self.path(x)
        if self.smoothing and multiple > 0.0:
            shares = self.shares(x, max(1, self.n_classes), self.smoothing * multiple)
            return shares.index(max(shares))
        counts = self.counts(list(self.below(path[-1])))
        return counts.index(max(counts)) if counts else 0

    def tell(self, example: Example) -> None:
        """Count who is right about an example learned next: 2^20 times its weight; each later takes a 1024th."""
        if not self.smoothing or not self.copies(example) or not self.epsilon:
            return
        for i, multiple in enumerate(MULTIPLES):
            right = self.guess(example.x, multiple) == example.y
            self.hits[i] += int(2**20 * example.w) * right - self.hits[i] // 1024

    def shares(self, x: Sequence[float], n_classes: int, smoothing: Any) -> list[Any]:
        """Shares of the classes at the leaf of x, each node's an m-estimate towards its parent's, m = s (d/10)^3.

        Of 0 the leaf's own. In the arithmetic of ``smoothing``: a float, or a fraction.
        """
        number = type(smoothing)
        p: list[Any] = []
        path = self.path(x)
        path = path if smoothing else path[-1:]
        for depth, v in enumerate(path):
            counts = self.counts(list(self.below(v)))
            counts += [0] * (n_classes - len(counts))
            n = sum(counts)
            if not p:
                p = [number(c) / n if n else number(1) / n_classes for c in counts]
                continue
            m = smoothing * depth**3 / 1000
            p = [(c + m * share) / (n + m) for c, share in zip(counts, p, strict=True)]
        return p

    # ------------------------------------------------------------------ events

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> TwinResult:
        """Apply a batch event by event; stops before the first refused one unless ``skip_refused``."""
        self.n_classes = max(self.n_classes, batch.n_classes)
        if batch.start == 0:
            self.warmup = self.warmup_left = batch.warmup
        result = TwinResult(0, [self.no_prediction] * len(batch), [], [])
        self.log = result.log
        row = 0
        for position in range(len(batch)):
            op = int(batch.op[position])
            x, y = (), -1
            if CARRIES_ROW[op]:
                x, y = tuple(float(v) for v in batch.X[row]), batch.y[row].item()
                self.next_weight = 1 if batch.weight is None else Fraction(int(batch.weight[row]), UNIT)
                row += 1
            reason, result.predictions[position] = self.event(batch.start + position, op, int(batch.id[position]), x, y)
            if reason:
                result.refused.append((position, reason))
                if not skip_refused:
                    break
            result.applied += 1
            self.seq = batch.start + position + 1
        return result

    def finish(self) -> None:
        """End an unfinished warm-up."""
        if self.warmup_left > 0:
            self.warmup_left = 0
            self.rebuild([self.root], 0, 2 * (self.seq - 1) + 1)

    def event(self, seq: int, op: int, id: int, x: tuple[float, ...], y: float) -> tuple[int, float]:
        """One event: why it was refused (0 = it was not), and its prediction (-1 = none)."""
        if op == QUERY:
            return 0, self.look(x)
        if op == INSERT:
            if id in self.live:
                return DUPLICATE_ID, self.no_prediction
            return 0, self.insert(seq, id, x, y)
        if op == DELETE_VALUE:
            equal = [e for e in self.live.values() if np.array_equal(e.x, x, equal_nan=True) and e.y == y]
            if not equal:
                return UNKNOWN_VALUE, self.no_prediction
            self.delete(min(equal, key=lambda e: e.born), seq, 2 * seq + 1)
            return 0, self.no_prediction
        if id not in self.live:
            return UNKNOWN_ID, self.no_prediction
        if op == DELETE:
            self.delete(self.live[id], seq, 2 * seq + 1)
            return 0, self.no_prediction
        assert op == UPDATE
        self.delete(self.live[id], seq, 2 * seq)
        return 0, self.insert(seq, id, x, y)

    def insert(self, seq: int, id: int, x: tuple[float, ...], y: float) -> float:
        example = Example(id, x, y, seq, w=self.next_weight)
        self.weighted = self.weighted or example.w != 1
        self.live[id] = example
        self.ever.append(example)
        if self.warmup_left > 0:
            self.move(self.root, example, True)
            self.warmup_left -= 1
            if self.warmup_left == 0:
                self.rebuild([self.root], 0, 2 * seq + 1)
            return self.no_prediction
        prediction = self.predict(x)
        self.tell(example)
        self.update(example, True, 2 * seq + 1)
        return prediction

    def delete(self, example: Example, seq: int, time: int) -> None:
        del self.live[example.id]
        example.died = seq
        if self.warmup_left > 0:
            self.move(self.root, example, False)
        else:
            self.update(example, False, time)

    # ------------------------------------------------------------------ comparison

    def counts_of(self, nodes: list[Node]) -> np.ndarray:
        return self.in_units([self.counts(list(self.below(v))) for v in nodes]).reshape(len(nodes), -1)

    def in_units(self, sizes: Any) -> np.ndarray:
        """Sizes as the learner counts them."""
        return np.array([int(self.per_example * size) for size in np.array(sizes, object).ravel()], np.int64)

    def state(self) -> dict[str, Any]:
        """A coordinator's state: the tree in preorder, the rows by id."""
        nodes = list(self.preorder(self.root))
        place = {id(v): i for i, v in enumerate(nodes)}
        leaf = {e.id: i for i, v in enumerate(nodes) for e in v.examples}
        rows = sorted(self.live.values(), key=lambda e: e.id)
        certificates = {
            "m0": np.array([v.m0 for v in nodes], np.float64),
            "gone": self.in_units([self.gone(v) for v in nodes]),
        }
        decided = {"missing": np.array([v.missing for v in nodes], np.int8)}
        return (
            (certificates if self.certificate is not None else {})
            | ({"hits": np.array(self.hits, np.int64)} if any(self.hits) else {})
            | (decided if decided["missing"].any() else {})
            | {
                "feature": np.array([v.feature for v in nodes], np.int32),
                "threshold": np.array([v.threshold for v in nodes], np.float64),
                "left": np.array([place.get(id(v.left), -1) for v in nodes], np.int32),
                "right": np.array([place.get(id(v.right), -1) for v in nodes], np.int32),
                "s": self.in_units([v.s for v in nodes]),
                "c": self.in_units([v.c for v in nodes]),
                "built": np.array([v.built for v in nodes], np.int64),
                "counts": self.counts_of(nodes),
                "id": np.array([e.id for e in rows], np.int64),
                "y": np.array([e.y for e in rows], self.label_type),
                "born": np.array([e.born for e in rows], np.int64),
                "leaf": np.array([leaf.get(e.id, -1) for e in rows], np.int32),
                "seq": np.array([self.seq], np.int64),
                "warmup_left": np.array([self.warmup_left], np.int64),
                "rebuilds": np.array([self.rebuilds], np.int64),
                "rebuilt_rows": np.array([self.rebuilt_rows], np.int64),
            }
        )

    def canonical(self) -> dict[str, Any]:
        return canonical(self.state())

    def history(self) -> History:
        """Every example ever inserted."""
        return History(
            id=np.array([e.id for e in self.ever], np.int64),
            X=np.array([e.x for e in self.ever], np.float64).reshape(len(self.ever), len(self.categorical)),
            y=np.array([e.y for e in self.ever], self.label_type),
            inserted=np.array([e.born for e in self.ever], np.int64),
            deleted=np.array([e.died for e in self.ever], np.int64),
            warmup=self.warmup,
            weight=np.array([int(UNIT * e.w) for e in self.ever], np.uint32) if self.weighted else None,
        )


class CopiesTwin(FudyadtTwin):
    """The twin without weights, whose examples come and go as several copies, in one step."""

    per_example = 1

    def weight(self, example: Example) -> int:
        return 1

    def copies(self, example: Example) -> int:
        return int(example.w)

    def passes_size(self, v: Node) -> bool:
        return False


def arguments(options: dict[str, Any], defaults: dict[str, Any], criterion: str = "gini") -> dict[str, Any]:
    """A twin's arguments from options of the learner."""
    given = {"epsilon": "auto", "min_samples_split": 2} | defaults | options
    for name in ("criterion", "class_weight"):  # of the twin's class
        given.pop(name, None)
    beta, schedule = given.pop("beta"), given.pop("schedule", "auto")
    if given["epsilon"] == "auto":
        given["epsilon"] = auto_epsilon(given["alpha"], beta, given["min_samples_split"], criterion)
        if schedule != "published":
            given["certificate"] = beta
    return given


#: Options of the learner with classes.
DEFAULTS = {"alpha": 0.02, "beta": 0.2, "max_depth": 20, "smoothing": 30.0}


def twin_with(categorical: Sequence[bool], options: dict[str, Any]) -> FudyadtTwin:
    """The twin with these options of the learner."""
    return FudyadtTwin(categorical, **arguments(options, DEFAULTS))


def canonical(state: dict[str, Any]) -> dict[str, Any]:
    """What two states have to agree in, whoever made them: plain lists, rows by id, nothing at leaves that splits."""
    inner = np.asarray(state["feature"]) >= 0
    counts = np.asarray(state["counts"])
    # A class without live rows shows only if a later one has some, or if it is one of the first two.
    classes = max(2, int(np.flatnonzero(counts[0]).max(initial=0)) + 1)
    order = np.argsort(state["id"])
    some = [name for name in ("m0", "gone", "missing") if name in state]
    names = ("feature", "left", "right", "s", "c", "built", *some)
    tree = {name: np.asarray(state[name]).tolist() for name in names} | {"counts": counts[:, :classes].tolist()}
    rows = {name: np.asarray(state[name])[order].tolist() for name in ("id", "y", "born", "leaf")}
    choice = {"hits": np.asarray(state["hits"]).tolist()} if "hits" in state else {}
    return {**tree, **rows, **choice, "threshold": np.where(inner, state["threshold"], 0.0).tolist()}

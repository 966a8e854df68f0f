"""The exact forest, slowly: built from nothing on the live rows, in plain integers and lists.

Written from the definitions in ``docs/explanation/guarantees.md``; nothing of the learner is imported. ``Forest``
remembers the live examples only, in a dictionary, so that no order and no past can matter. Two pure functions keep
their last answers, by all that they depend on: the trees of an example, and the best split of a node.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from raydt.examples.digest import begin_digest, digest
from raydt.examples.updates import UNIT
from tests.oracles.digests import forest_root, row_parts

MASK = 2**64 - 1
#: Numbers of a node's sequence.
LEFT, RIGHT, ORDER, CUTS = range(4)


def splitmix(key: int, counter: int) -> int:
    """Number ``counter`` of the sequence of SplitMix64 that starts at a key."""
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def below(key: int, counter: int, n: int) -> int:
    """A number from 0 up to before n."""
    return int((splitmix(key, counter) >> 11) * 2.0**-53 * n)


def siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4, as its authors write it."""
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turned(word: int, by: int) -> int:
        return ((word << by) | (word >> (64 - by))) & MASK

    def a_round() -> None:
        v[0] = (v[0] + v[1]) & MASK
        v[2] = (v[2] + v[3]) & MASK
        v[1], v[3] = turned(v[1], 13) ^ v[0], turned(v[3], 16) ^ v[2]
        v[0] = turned(v[0], 32)
        v[2] = (v[2] + v[1]) & MASK
        v[0] = (v[0] + v[3]) & MASK
        v[1], v[3] = turned(v[1], 17) ^ v[2], turned(v[3], 21) ^ v[0]
        v[2] = turned(v[2], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        a_round()
        a_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        a_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@lru_cache(maxsize=10_000)
def _members(seed: int, trees: int, copies: int, example: int) -> tuple[int, ...]:
    """The trees that hold an example."""
    key = hashlib.blake2b(str(seed).encode(), digest_size=16, person=b"raydt-forest").digest()
    number = siphash(key, (example & MASK).to_bytes(8, "little"))
    return tuple(sorted(range(trees), key=lambda t: (splitmix(number, t), t))[:copies])


@dataclass(frozen=True)
class Rules:
    """The options, by their letters: T, q, P, S, and the leaf rule."""

    categorical: tuple[bool, ...]
    T: int = 4
    q: float = 0.5
    P: int = 2
    S: int = 2
    max_depth: int = 20
    min_samples_split: int = 2
    seed: int = 0
    numeric: bool = False

    @property
    def copies(self) -> int:
        """k."""
        return max(1, math.ceil(Fraction(str(self.q)) * self.T))

    def members(self, example: int) -> list[int]:
        """The trees that hold an example."""
        return list(_members(self.seed, self.T, self.copies, example))

    def root(self, tree: int) -> int:
        """Key of the root of a tree."""
        text = f"{self.seed}:trees of a forest".encode()
        return splitmix(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"), tree)


@dataclass
class Node:
    """A node in preorder."""

    feature: int = -1
    threshold: float = 0.0
    left: int = -1
    right: int = -1
    totals: list[int] = field(default_factory=list)


#: Features, label, and what the row counts: 1 where rows have no weights.
Row = tuple[tuple[float, ...], int, Fraction]


def absent(value: float, categorical: bool) -> bool:
    """Whether a value is missing."""
    return value == -1.0 if categorical else value != value


def goes_left(value: float, threshold: float, categorical: bool) -> bool:
    """The side of a row; without a value it is the right one."""
    return value == threshold if categorical else value <= threshold


def candidates(rules: Rules, key: int, feature: int, rows: Sequence[Row]) -> list[float]:
    """The thresholds or categories of a feature, in their order; none of a constant one."""
    category = rules.categorical[feature]
    values = [x[feature] for x, _, _ in rows]
    there = [value for value in values if not absent(value, category)]
    missing, own = len(values) - len(there), splitmix(splitmix(key, CUTS), feature)
    if len(set(there)) + (missing > 0) < 2:
        return []
    if category:
        numbers = {value: int(value) if abs(value) < 2**63 else -(2**63) for value in there}
        return sorted(numbers, key=lambda value: (splitmix(own, numbers[value]), value))[: rules.S]
    low, high = min(there), max(there)
    wanted = {1: 0, 2: 1}.get(len(set(there)), rules.S)
    wanted = min(wanted, rules.S - 1) if missing else wanted
    cuts = []
    for j in range(wanted):
        unit = ((splitmix(own, j) >> 12) + 0.5) * 2.0**-52
        cut = low + unit * (high - low) if math.isfinite(high - low) else (1.0 - unit) * low + unit * high
        cuts.append(cut if cut < high else low)
    return sorted(cuts) + ([high] if missing else [])


def score(rules: Rules, rows: Sequence[Row], left: Sequence[Row]) -> float:
    """What a split of rows is compared by.

    Of classes n l_k - n_left c_k is taken between the sides, from products that are rounded: of whole weights exactly.
    """
    n, n_left = sum(w for _, _, w in rows), sum(w for _, _, w in left)
    if rules.numeric:
        lacks = [float(n * sum(w * y for _, y, w in left) - n_left * sum(w * y for _, y, w in rows))]
    else:
        lacks = []
        for k in sorted({y for _, y, _ in rows}):
            all_k, left_k = (sum(w for _, y, w in some if y == k) for some in (rows, left))
            lacks.append(float(left_k) * float(n - n_left) - float(n_left) * float(all_k - left_k))
    squares = 0.0
    for lack in lacks:
        squares += lack * lack
    return squares / (float(n_left) * float(n - n_left))


@lru_cache(maxsize=10_000)
def best(rules: Rules, key: int, rows: tuple[Row, ...]) -> tuple[int, float] | None:
    """Feature and threshold of the best split of a node."""
    order = list(range(len(rules.categorical)))
    own, tried, found = splitmix(key, ORDER), 0, []
    for place in range(len(order)):
        other = place + below(own, place, len(order) - place)
        order[place], order[other] = order[other], order[place]
        feature = order[place]
        cuts = candidates(rules, key, feature, rows)
        if not cuts:
            continue
        for j, cut in enumerate(cuts):
            left = [row for row in rows if goes_left(row[0][feature], cut, rules.categorical[feature])]
            found.append((-score(rules, rows, left), feature, j, cut))
        tried += 1
        if tried == rules.P:
            break
    return min(found)[1::2] if found else None  # type: ignore[return-value]


def totals(rules: Rules, rows: list[Row], classes: list[int], unit: int) -> list[Any]:
    """What a node counts, classes in ascending order."""
    if rules.numeric and unit > 1:  # sums of weights, and of labels times weights, in one word or two
        n, weighed = sum(w for _, _, w in rows), sum(w * y for _, y, w in rows)
        if len(classes) == 1:
            return [n, weighed]
        return [n, *(Fraction(word, unit) for word in divmod(int(unit * weighed), 2**20))]
    if rules.numeric:
        squares, total = [y * y for _, y, _ in rows], sum(y for _, y, _ in rows)
        if len(classes) == 1:  # bits of numbers
            return [len(rows), total, sum(squares)]
        return [len(rows), total, sum(s >> 40 for s in squares), sum(s % 2**40 for s in squares)]
    return [sum(w for _, y, w in rows if y == k) for k in classes]


def tree(rules: Rules, number: int, rows: list[Row], classes: list[int], unit: int) -> list[Node]:
    """A tree of its rows, in preorder."""
    nodes: list[Node] = []

    def grow(rows: list[Row], key: int, depth: int) -> int:
        node, at = Node(totals=totals(rules, rows, classes, unit)), len(nodes)
        nodes.append(node)
        size = sum(w for _, _, w in rows)
        if size < rules.min_samples_split or len({y for _, y, _ in rows}) < 2 or depth == rules.max_depth:
            return at
        split = best(rules, key, tuple(rows))
        if split is None:
            return at
        node.feature, node.threshold = split
        sides: tuple[list[Row], list[Row]] = [], []
        for row in rows:
            sides[not goes_left(row[0][node.feature], node.threshold, rules.categorical[node.feature])].append(row)
        node.left = grow(sides[0], splitmix(key, LEFT), depth + 1)
        node.right = grow(sides[1], splitmix(key, RIGHT), depth + 1)
        return at

    grow(rows, rules.root(number), 0)
    return nodes


@dataclass
class Forest:
    """Live examples: features, label and weight by id; a class is its label, a whole number."""

    rules: Rules
    examples: dict[int, tuple[tuple[float, ...], float, Fraction]] = field(default_factory=dict)

    def exponent(self) -> int:
        """Exponent of the largest numeric label."""
        largest = max((abs(y) for _, y, w in self.examples.values() if w), default=0.0)
        return max(math.frexp(largest)[1], -900) if largest else -900

    def bits(self) -> int:
        """Bits below the exponent that numeric labels are rounded to.

        40 if more than half of those that 20 bits round lie in two neighbouring cells of 2^-10 of the range.
        """
        shares = [(Fraction(y) / Fraction(2) ** self.exponent(), w) for _, y, w in self.examples.values() if w]
        cells = [(math.trunc(share * 2**10), w) for share, w in shares if (share * 2**20).denominator > 1]
        crowds = [sum(w for cell, w in cells if cell in (own, own + by)) for own, _ in cells for by in (-1, 1)]
        return 40 if 2 * max(crowds, default=0) > sum(w for _, w in cells) else 20

    def label(self, y: float) -> int:
        """A label as trees count it."""
        if not self.rules.numeric:
            return int(y)
        return math.floor(Fraction(y) / Fraction(2) ** (self.exponent() - self.bits()) + Fraction(1, 2))

    def classes(self) -> list[int]:
        """Labels of the live examples, ascending; of numbers, one or two places for words of squares."""
        if self.rules.numeric:
            return [0] * (self.bits() // 20)
        return sorted({int(y) for _, y, _ in self.examples.values()})

    def trees(self) -> list[list[Node]]:
        """All trees."""
        held: list[list[Row]] = [[] for _ in range(self.rules.T)]
        for example, (x, y, weight) in self.examples.items():
            for number in self.rules.members(example) if weight else ():
                held[number].append((x, self.label(y), weight))
        return [tree(self.rules, number, rows, self.classes(), self.unit) for number, rows in enumerate(held)]

    @property
    def unit(self) -> int:
        """What a row of weight 1 counts."""
        return UNIT if any(weight != 1 for _, _, weight in self.examples.values()) else 1

    def digest(self, former: bool = False) -> str:
        """Digest of the model, in the present format or the ``former`` one."""
        dtypes = {"feature": np.int32, "threshold": np.float64, "right": np.int32, "totals": np.int64}
        hashes = []
        for one in self.trees():
            columns = {name: [getattr(node, name) for node in one] for name in dtypes}
            columns["totals"] = [[int(self.unit * total) for total in node.totals] for node in one]
            arrays = {name: np.array(columns[name], dtype=t) for name, t in dtypes.items()}
            hashes.append(list(bytes.fromhex(digest(arrays.items())[7:]) if former else forest_root(arrays)))
        parts: list[tuple[str, Any]] = [("trees", np.array(hashes, dtype=np.uint8))]
        ids, dtype = sorted(self.examples), np.int32
        classes = self.classes()
        if self.rules.numeric:
            parts.append(("exponent", np.array([self.exponent()], dtype=np.int64)))
            dtype = np.float64  # type: ignore[assignment]
        labels = [self.examples[i][1] for i in ids]
        y = np.array(labels if self.rules.numeric else [classes.index(int(label)) for label in labels], dtype=dtype)
        weights = {"weight": np.array([int(UNIT * self.examples[i][2]) for i in ids], np.uint32)}
        parts += row_parts(np.array(ids, dtype=np.int64), y=y, **(weights if self.unit > 1 else {}))
        return digest(parts, begin_digest((), f"raydt-digest-{2 if former else 3}"))

    def vote(self, x: tuple[float, ...]) -> float | None:
        """The prediction of a row: class or number; None of a class without live examples."""
        votes: Counter[int] = Counter()
        numbers = []
        for one in self.trees():
            node = one[0]
            while node.feature >= 0:
                left = goes_left(x[node.feature], node.threshold, self.rules.categorical[node.feature])
                node = one[node.left if left else node.right]
            n = node.totals[0] if self.rules.numeric else sum(node.totals)
            if n and self.rules.numeric:
                weighed = node.totals[1]
                if len(node.totals) == 3 and self.bits() == 40:  # in two words
                    weighed = weighed * 2**20 + node.totals[2]
                numbers.append(math.floor(Fraction(weighed * 2 ** (40 - self.bits())) / n))
            elif n:
                votes.update({k: c * 2**40 // n for k, c in zip(self.classes(), node.totals, strict=True)})
        if self.rules.numeric:
            mean = sum(numbers) / len(numbers) if numbers else 0.0
            return math.ldexp(mean, self.exponent() - 40)
        return min(votes, key=lambda k: (-votes[k], k), default=None)

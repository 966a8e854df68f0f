"""FuDyADT with numeric labels and gains in variance: the slow twin that the fast versions have to equal bit for bit.

Labels are counted in units of their range, the range is that of the options or of the examples that the root was built
from, and an empty leaf predicts what the nearest node above it does. Each label comes with the weight of its example.
Only plain Python here; float64 decides in :func:`score`, :func:`mass` and the methods ``units`` and ``mean``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tests.oracles.fudyadt import MULTIPLES, CopiesTwin, Example, FudyadtTwin, Node, Number, arguments
from tests.oracles.fudyadt import canonical as canonical_of_classes

#: Labels in units, each with its weight.
Labels = Sequence[tuple[int, Number]]


def size(labels: Labels) -> Number:
    """Sum of the weights."""
    return sum(w for _, w in labels)


def total(labels: Labels) -> Number:
    """Sum of the labels."""
    return sum(w * q for q, w in labels)


def score(left: Labels, labels: Labels) -> float:
    """n^2 times the gain in variance, in units squared, of a split that has ``left`` of all labels on its left."""
    n, n_left = size(labels), size(left)
    difference = float(total(left) * n - n_left * total(labels))
    return difference * difference / float(n_left * (n - n_left))


def mass(labels: Labels) -> float:
    """Sum of squared distances from the mean."""
    if not labels:
        return 0.0
    whole, rest = divmod(total(labels), size(labels))
    return float(sum(w * (q - whole) ** 2 for q, w in labels)) - float(rest * rest) / float(size(labels))


def variance(labels: Labels) -> Fraction:
    """Mean of squared distances from the mean, exactly; 0 of no labels."""
    if not labels:
        return Fraction(0)
    mean = Fraction(total(labels)) / size(labels)
    return sum(w * (q - mean) ** 2 for q, w in labels) / Fraction(size(labels))


class NumberTwin(FudyadtTwin):
    """The tree and its examples; ``alpha`` and ``beta`` are in units of the range squared."""

    score, mass, impurity = staticmethod(score), staticmethod(mass), staticmethod(variance)
    no_prediction = math.nan
    label_type = np.float64

    def __init__(
        self, categorical: Sequence[bool], *, label_range: tuple[float, float] | None = None, **options: Any
    ) -> None:
        super().__init__(categorical, **options)
        self.half_alpha_of_range = self.half_alpha
        self.declared = label_range is not None
        self.take_range_of([])
        if label_range is not None:
            self.take_range(*label_range)

    # ------------------------------------------------------------------ labels

    def take_range(self, low: float, high: float) -> None:
        self.low, self.high, self.unit = low, high, 1.0
        while self.unit * 65536 < high - low:
            self.unit *= 2
        while self.unit * 32768 >= high - low:
            self.unit /= 2
        self.top = math.floor((high - low) / self.unit + 0.5)
        self.step = self.square = float(self.top**2)
        self.half_alpha = Fraction(math.floor(self.half_alpha_of_range * self.top**2))

    def take_range_of(self, examples: Sequence[Example]) -> None:
        """The range of the examples of a root; without examples there is none."""
        labels = [e.y for e in examples]
        if not labels:
            self.low = self.high = self.unit = math.nan
            self.top, self.step, self.square, self.half_alpha = 0, 0.0, 0.0, Fraction(0)
            return
        low, high = min(labels), max(labels)
        if low == high:
            low, high = (low - abs(low), low + abs(low)) if low else (-1.0, 1.0)
        step = 1.0
        while 16 * step <= high - low:
            step *= 2
        while 8 * step > high - low:
            step /= 2
        self.take_range(step * (low // step), 0.0 - step * (-high // step))

    def units(self, y: float) -> int:
        if not self.top:
            return 0
        return math.floor((min(max(y, self.low), self.high) - self.low) / self.unit + 0.5)

    def counts(self, examples: list[Example]) -> list[tuple[int, Number]]:
        """What there is to know of labels: all of them."""
        return [(self.units(e.y), self.weight(e)) for e in examples]

    # ------------------------------------------------------------------ what differs

    def build(self, examples: list[Example], depth: int, time: int) -> Node:
        if depth == 0 and not self.declared:
            unit = self.unit
            self.take_range_of(examples)
            self.hits = [self.converted(saved, unit) for saved in self.hits]
        return super().build(examples, depth, time)

    def update(self, example: Example, insert: bool, time: int) -> None:
        """As of classes, but an example outside of a range that was not declared has the whole tree built."""
        if insert and not self.declared and self.copies(example) and not self.low <= example.y <= self.high:
            path = self.path(example.x)
            self.move(path[-1], example, True)
            self.rebuild(path, 0, time)
        else:
            super().update(example, insert, time)

    def look(self, x: Sequence[float]) -> float:
        return self.no_prediction if self.warmup_left else self.predict(x)

    def predict(self, x: Sequence[float]) -> float:
        mean = self.mean(x, self.chosen())
        return 0.0 if mean < 0 else self.low + self.unit * mean

    def chosen(self) -> float:
        """As of classes; infinity, which is the mean of all examples, if no multiple has saved anything against it."""
        return super().chosen() if max(self.hits) >= 0 else math.inf

    def mean(self, x: Sequence[float], multiple: float) -> float:
        """Mean label at the leaf of x in units, each node's an m-estimate towards its parent's; -1 of no examples."""
        mean = -1.0
        for depth, v in enumerate(self.path(x)):
            labels = self.counts(list(self.below(v)))
            m = self.smoothing * multiple * depth**3 / 1000 if self.smoothing else 0.0
            if depth == 0 or m == 0:
                mean = float(Fraction(total(labels)) / size(labels)) if labels else mean
            elif m < math.inf:
                mean = (float(total(labels)) + m * mean) / (float(size(labels)) + m)
        return mean

    def tell(self, example: Example) -> None:
        """Count what each multiple saves of the squared error of the mean of all examples, as of one copy."""
        if not (self.smoothing and self.copies(example) and self.epsilon and any(self.below(self.root))):
            return
        q, w = float(self.units(example.y)), float(example.w)
        if not self.declared and not self.low <= example.y <= self.high:
            q = -1.0 if example.y < self.low else 65537.0
        root = q - self.mean(example.x, math.inf)
        for i, multiple in enumerate(MULTIPLES):
            error = q - self.mean(example.x, multiple)
            self.hits[i] += int(root * root * w - error * error * w) - self.hits[i] // 1024

    def converted(self, saved: int, unit: float) -> int:
        """Squares that were counted in another unit, rounded down; at most 2^60, and 0 if there is none."""
        if math.isnan(unit) or not self.top:
            return 0
        return min(max(math.floor(saved * (Fraction(unit) / Fraction(self.unit)) ** 2), -(2**60)), 2**60)

    def counts_of(self, nodes: list[Node]) -> np.ndarray:
        return self.in_units([self.size(self.below(v)) for v in nodes]).reshape(-1, 1)

    def sums_of(self, labels: Labels) -> list[int]:
        """Sums of labels and of their squares; with weights in units, and of squares the whole rows and the rest."""
        unit, squares = self.per_example, sum(w * q * q for q, w in labels)
        return [int(unit * total(labels)), *divmod(int(unit * squares), unit)][: 2 + (unit > 1)]

    def state(self) -> dict[str, Any]:
        state = super().state()
        labels = [self.counts(list(self.below(v))) for v in self.preorder(self.root)]
        state["sums"] = np.array([self.sums_of(of_node) for of_node in labels], np.int64)
        state["label_range"] = np.array([self.low, self.high])
        return state

    def canonical(self) -> dict[str, Any]:
        return canonical(self.state())


class CopiesOfNumbersTwin(CopiesTwin, NumberTwin):
    """The twin without weights, whose examples come and go as several copies, in one step."""


def canonical(state: dict[str, Any]) -> dict[str, Any]:
    """What two states have to agree in, whoever made them."""
    return canonical_of_classes(state) | {
        "sums": np.asarray(state["sums"]).tolist(),
        "label_range": np.asarray(state["label_range"]).tobytes(),
    }


#: Options of the learner with numbers.
DEFAULTS = {"alpha": 0.005, "beta": 0.01, "smoothing": 30.0}


def number_twin(
    categorical: Sequence[bool], options: dict[str, Any], kind: type[NumberTwin] = NumberTwin
) -> NumberTwin:
    """The twin with these options of the learner."""
    return kind(categorical, **arguments(options, DEFAULTS, "squared_error"))

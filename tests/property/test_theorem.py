"""The theorems on categories and on numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import nextafter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.kernel import kernel
from raydt.audits.best_splits import Variance, rounded_difference
from raydt.examples.updates import INSERT, NUMBERS_FROM, NUMBERS_TO, UNIT, UpdateBatch
from raydt.examples.updates import out_of_range_targets as out_of_range
from raydt.learners.base import auto_epsilon, epsilon_bound
from raydt.trees.counted_tree import (
    COLUMNS,
    MOST_EXAMPLES,
    MOST_UNITS,
    LabelRange,
    add_number,
    add_numbers,
    are_close,
    are_equal,
    mass_ceilings,
    subtract_sums,
    weighted_number_mass,
)
from raydt.trees.records import difference
from tests.oracles.digests import gain, places, violations
from tests.oracles.fudyadt import Example, FudyadtTwin, Node, twin_with
from tests.oracles.fudyadt_numbers import NumberTwin, variance
from tests.oracles.lower_bounds import Script
from tests.strategies import Stream, fudyadt_options, streams
from tests.volume import examples

# -- theorem ---------------------------------------------------------------------------------------------------------
# The theorem of ``docs/explanation/guarantees.md`` with the slow twin, in exact fractions.

Rule = Callable[[float, float, int], float]


# ---------------------------------------------------------------------- the theorem


def provable_epsilon(alpha: float, beta: float, min_samples_split: int) -> float:
    """The largest epsilon the proof admits: below 1 / (k + 1), at most alpha / 4 and beta / (2 + beta)."""
    a, b = Fraction(alpha), Fraction(beta)
    limit = min(a / 4, b / (2 + b))
    epsilon = float(min(limit, Fraction(1, min_samples_split)))
    while Fraction(epsilon) > limit or Fraction(epsilon) >= Fraction(1, min_samples_split):
        epsilon = nextafter(epsilon, 0.0)
    return epsilon


@given(st.floats(0.001, 1.0), st.floats(0.001, 1.0), st.integers(2, 50))
def test_the_promised_bound_lies_below_the_provable_one(alpha: float, beta: float, min_samples_split: int) -> None:
    promised = auto_epsilon(alpha, beta, min_samples_split)
    assert promised <= provable_epsilon(alpha, beta, min_samples_split)
    assert Fraction(promised) < epsilon_bound(alpha, beta, min_samples_split)


def require_feasible(stream: Stream, promise: tuple[float, float], rule: Rule, **options: Any) -> None:
    """No promise is violated after any update."""
    alpha, beta = promise
    epsilon = rule(alpha, beta, options["min_samples_split"])
    twin = FudyadtTwin(stream.categorical, epsilon=epsilon, alpha=alpha, **options)
    for batch in stream.batches([1]):
        twin.process(batch)
        if twin.warmup_left == 0:
            assert violations(twin, alpha, beta) == [], f"after update {batch.start}"


@examples(40)
@given(
    streams(max_events=90),
    st.sampled_from(((0.1, 0.2), (0.5, 0.5), (0.4, 1.0), (0.8, 0.3))),
    st.sampled_from((2, 2, 3, 6)),
    st.sampled_from((None, 1, 3)),
    st.sampled_from((auto_epsilon, provable_epsilon)),
)
def test_random_streams_stay_feasible(
    stream: Stream, promise: tuple[float, float], min_samples_split: int, max_depth: int | None, rule: Rule
) -> None:
    require_feasible(stream, promise, rule, min_samples_split=min_samples_split, max_depth=max_depth)


@examples(60)
@given(streams(), fudyadt_options())
def test_whatever_epsilon_is_the_gap_follows_from_the_counter(stream: Stream, options: dict[str, Any]) -> None:
    """Lemma 3.3 at every node: n * gap <= 2c, and nothing at all while c = 0."""
    twin = twin_with(stream.categorical, options)
    for batch in stream.batches([5]):
        twin.process(batch)
        for place in places(twin):
            if not place.node.is_leaf:
                assert (place.best - place.own) * len(place.examples) <= 2 * place.node.c + Fraction(1, 10**12)


class Watched(FudyadtTwin):
    """Asserts of every certificate that runs out that c > epsilon_c s."""

    def cascade(self, path: list[Node], depth: int) -> int:
        v, beta = path[depth], Fraction(self.certificate or 0) - Fraction(1, 10**9)
        assert (2 + beta) * v.c > beta * v.s
        return super().cascade(path, depth)


def watched(stream: Stream, options: dict[str, Any]) -> Watched:
    twin = Watched(stream.categorical, epsilon=0.0)
    twin.__dict__.update(twin_with(stream.categorical, options).__dict__)
    return twin


def assert_feasible(stream: Stream, options: dict[str, Any]) -> None:
    """The definition holds after every update, and m0 bounds every split there is."""
    twin = watched(stream, options)
    for batch in stream.batches([1]):
        twin.process(batch)
        if twin.warmup_left > 0:
            continue
        assert violations(twin, options["alpha"], options["beta"]) == [], f"after update {batch.start}"
        for place in places(twin):
            if not place.node.is_leaf:
                n, left = len(place.examples), Fraction(twin.mass_left(place.node))
                least = left - n * (place.best - place.own)  # of all splits, by n (G* - G) = M - M*
                assert place.node.m0 - 2 * twin.gone(place.node) <= least + n * Fraction(1, 10**13)


@examples(40)
@given(
    streams(max_events=90, missing=True),
    st.sampled_from(((0.1, 0.2), (0.5, 0.5), (0.8, 0.3))),
    st.sampled_from((2, 3)),
    st.sampled_from((auto_epsilon, provable_epsilon)),
)
def test_random_streams_with_missing_values_stay_feasible(
    stream: Stream, promise: tuple[float, float], min_samples_split: int, rule: Rule
) -> None:
    """Against every threshold with the missing numbers on either side, after every update."""
    require_feasible(stream, promise, rule, min_samples_split=min_samples_split)


@examples(60)
@given(streams(max_events=90, missing=True), fudyadt_options(certificate=True))
def test_certificates_keep_streams_with_missing_values_feasible(stream: Stream, options: dict[str, Any]) -> None:
    assert_feasible(stream, options)


@examples(60)
@given(streams(max_events=90), fudyadt_options(certificate=True))
def test_certificates_keep_random_streams_feasible(stream: Stream, options: dict[str, Any]) -> None:
    assert_feasible(stream, options)


@examples(20)
@given(st.integers(0, 10**6), st.sampled_from((8, 25, 40)), fudyadt_options(certificate=True))
def test_certificates_keep_drifting_streams_feasible(seed: int, window: int, options: dict[str, Any]) -> None:
    """A sliding window over three features, of which another decides every 30 examples."""
    rng, script, live = np.random.default_rng(seed), Script(), []
    for i in range(90):
        x = tuple(int(v) for v in rng.integers(0, 5, 3))
        label = int(x[i // 30] > 2) if rng.random() < 0.85 else int(rng.integers(2))
        live.append(script.insert(x, label))
        if len(live) > window:
            script.delete([live.pop(0 if rng.random() < 0.7 else int(rng.integers(len(live))))])
    assert_feasible(script.stream((False, True, False)), options)


class Adversary:
    """Makes a tree on two binary features, then sends whatever hurts its root most.

    The two features are equally good at first, each spoilt by its own few examples; from then on every update
    inserts or deletes the example that raises the most what the root's split lacks.
    """

    def __init__(self, epsilon: float, alpha: float, size: int = 120, certificate: float | None = None) -> None:
        self.twin = FudyadtTwin((False, True), epsilon=epsilon, alpha=alpha, certificate=certificate)
        half = size // 2
        X = [(float(i >= half), float(i >= half)) for i in range(size)]
        y = [int(i >= half) for i in range(size)]
        self.seq = 0
        self.send(X, y, warmup=size)

    def send(self, X: list[tuple[float, ...]], y: list[int], warmup: int = 0) -> None:
        n = len(X)
        seqs = np.arange(self.seq, self.seq + n)
        ops = np.full(n, INSERT, np.int8)
        batch = UpdateBatch(self.seq, ops, seqs, np.array(X), np.array(y, np.int32), 2, seqs, warmup)
        assert self.twin.process(batch).applied == n
        self.seq += n

    def lacks(self, examples: list[Example]) -> Fraction:
        """What the root's split lacks to the better one of both."""
        root = self.twin.root
        gains = [gain(self.twin, examples, split) for split in ((0, 0.5, 0), (1, 0.0, 0))]
        return max(gains) - gain(self.twin, examples, (root.feature, root.threshold, root.missing))

    def strike(self) -> None:
        live = list(self.twin.live.values())
        options = [((a, b), y) for a, b, y in product((0.0, 1.0), (0.0, 1.0), (0, 1))]
        x, y = max(options, key=lambda option: self.lacks([*live, Example(-1, *option, 0)]))
        self.send([x], [y])


def worst_lack(adversary: Adversary, alpha: float, beta: float) -> Fraction:
    """By how much the split of the root lacks the best one at most, while nothing is violated."""
    worst = Fraction(0)
    for _ in range(45):
        adversary.strike()
        assert violations(adversary.twin, alpha, beta) == []
        if not adversary.twin.root.is_leaf:
            worst = max(worst, next(places(adversary.twin)).best - next(places(adversary.twin)).own)
    return worst


@pytest.mark.parametrize("rule", [auto_epsilon, provable_epsilon])
@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.2), (0.9, 0.2), (0.5, 0.5)])
def test_an_adversary_does_not_get_past_beta(alpha: float, beta: float, rule: Rule) -> None:
    assert 0 < worst_lack(Adversary(rule(alpha, beta, 2), alpha), alpha, beta) < Fraction(beta)


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.2), (0.9, 0.2), (0.5, 0.5), (0.1, 0.05)])
def test_an_adversary_uses_what_certificates_leave(alpha: float, beta: float) -> None:
    adversary = Adversary(auto_epsilon(alpha, beta, 2), alpha, certificate=beta)
    assert Fraction(beta) / 2 < worst_lack(adversary, alpha, beta) <= Fraction(beta)


def test_an_adversary_gets_past_beta_beyond_the_bound() -> None:
    """The same attack breaks what is not promised, so the test above can fail."""
    adversary = Adversary(0.5, 0.1)
    broken = 0
    for _ in range(45):
        adversary.strike()
        broken += bool(violations(adversary.twin, 0.1, 0.05))
    assert broken > 0


# -- number theorem --------------------------------------------------------------------------------------------------
# Units of numeric labels, and the integers at the ends; the theorem is in ``test_fudyadt_twin.py``.


# ---------------------------------------------------------------------- units and integers

ends = st.floats(-1e6, 1e6) | st.sampled_from((NUMBERS_TO, -NUMBERS_TO, 0.0, NUMBERS_FROM))
labels = (ends | st.floats(-NUMBERS_TO, NUMBERS_TO)).filter(lambda y: not out_of_range(np.array([y]))[0])


@given(st.lists(labels, min_size=1, max_size=8))
def test_the_range_of_labels(y: list[float]) -> None:
    labels = LabelRange.seen(np.array(y))
    assert labels.known
    assert MOST_UNITS // 2 <= labels.top <= MOST_UNITS
    assert math.frexp(labels.unit)[0] == 0.5
    step = 2.0 ** (math.frexp(labels.high - labels.low)[1] - 5)  # no label can be read from the ends
    assert math.fmod(labels.low, step) == math.fmod(labels.high, step) == 0.0
    units = labels.units(np.array(y))
    assert 0 <= units.min() <= units.max() <= labels.top
    twin = NumberTwin([False], epsilon=0.1, label_range=(labels.low, labels.high))
    assert (twin.unit, twin.top) == (labels.unit, labels.top)
    assert (
        units.tolist() == [twin.units(v) for v in y] == Variance(labels.low, labels.high).labels(np.array(y)).tolist()
    )


def test_whole_labels_of_a_whole_range_are_counted_exactly() -> None:
    labels = LabelRange.of(1.0, 29.0)
    y = np.arange(1.0, 30.0)
    assert labels.numbers(labels.units(y).astype(float)).tolist() == y.tolist()


@given(st.lists(st.integers(0, MOST_UNITS), max_size=20))
def test_the_mass_is_rounded_up_exactly(q: list[int]) -> None:
    sums = np.array([[sum(q), sum(x * x for x in q)]])
    ceiling, of_weight_1 = int(mass_ceilings(np.array([len(q)]), sums)[0]), [(x, 1) for x in q]
    assert ceiling == math.ceil(len(q) * variance(of_weight_1))
    statistics = np.array([[len(q), *sums[0]]])
    assert Variance(0.0, 1.0).mass(statistics)[0] == pytest.approx(
        float(len(q) * variance(of_weight_1)), rel=1e-12, abs=1e-6
    )


weights = st.integers(1, 2**32 - 1) | st.sampled_from((1, UNIT, 3 * UNIT, 2**32 - 1))


@kernel
def _add(sums: Any, q: int, weight: int) -> None:
    add_number(sums, np.int64(0), q, weight)


@kernel
def _measure(n: int, sums: Any, limits: Any, close: Any) -> tuple[float, bool]:
    """Mass of the first node, whether its labels are equal, and whether they are ``close``; clears the second one."""
    for i in range(len(limits)):
        close[i] = are_close(n, sums, np.int64(0), limits[i])
    subtract_sums(sums, np.int64(0), np.int64(0), np.int64(1))
    return weighted_number_mass(n, sums, np.int64(0)), are_equal(n, sums, np.int64(0))


@kernel
def _difference(a: int, b: int, c: int, d: int) -> float:
    return difference(a, b, c, d)


@given(
    st.lists(st.tuples(st.integers(0, MOST_UNITS), weights), min_size=1, max_size=20), st.integers(0, 2**31), st.data()
)
def test_sums_of_weights_are_exact(labels: list[tuple[int, int]], limit: int, data: st.DataObject) -> None:
    """Masses of a node, of which some labels are taken away again, and whether they are zero or at most a limit."""
    gone = data.draw(st.sets(st.sampled_from(range(len(labels)))))
    sums, kept = np.zeros((2, COLUMNS), np.int64), [pair for i, pair in enumerate(labels) if i not in gone]
    for q, w in labels:
        _add(sums, q, w)
    for i in gone:
        _add(sums, labels[i][0], -labels[i][1])
    n, total, squares = (sum(w * q**k for q, w in kept) for k in range(3))
    assert sums[0].tolist() == [total, *divmod(squares, UNIT)]
    units, weight = np.array(kept, np.int64).reshape(-1, 2).T
    again = np.zeros((1, COLUMNS), np.int64)
    add_numbers(again, 0, units.astype(np.int32), weight.astype(np.uint32), np.arange(len(kept), dtype=np.int32))
    assert again[0].tolist() == sums[0].tolist()
    if not kept:
        return
    exact = squares - Fraction(total * total, n)
    limits, close = np.array([limit, math.floor(exact / n), math.ceil(exact / n)]), np.zeros(3, np.bool_)
    mass, equal = _measure(n, sums, limits, close)
    assert mass == pytest.approx(float(exact / UNIT), rel=1e-12, abs=1e-6)
    assert equal == (exact == 0)
    assert close.tolist() == [exact <= bound * n for bound in limits.tolist()]
    assert not sums[1].any()


@given(st.integers(0, 2**56), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**56))
def test_a_difference_of_products_is_rounded_once(a: int, b: int, c: int, d: int) -> None:
    assert _difference(a, b, c, d) == float(a * b - c * d)
    assert rounded_difference(*np.array([[a], [b], [c], [d]]))[0] == float(a * b - c * d)


@pytest.mark.parametrize("share", [0.5, 0.25, 1 / 3])
def test_sums_of_the_most_examples_fit(share: float) -> None:
    """Two labels at the ends of the range, of as many examples as there may be."""
    n = MOST_EXAMPLES
    high = int(n * share)
    q, squares = high * MOST_UNITS, high * MOST_UNITS**2
    exact = squares - Fraction(q * q, n)
    assert int(mass_ceilings(np.array([n]), np.array([[q, squares]]))[0]) == math.ceil(exact)

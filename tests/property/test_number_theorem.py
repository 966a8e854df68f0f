"""The lemmas on numeric labels (``docs/explanation/guarantees.md``) in exact fractions, and the integers at the ends.

The theorem itself is tested with the slow twin (``test_fudyadt_twin.py``).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.kernel import kernel
from raydt.audits.recorded_tree import _rounded_difference
from raydt.examples.updates import NUMBERS_FROM, NUMBERS_TO, UNIT
from raydt.examples.updates import out_of_range_targets as out_of_range
from raydt.learners.fudyadt.recompute import Variance
from raydt.trees.counted_tree import (
    COLUMNS,
    MOST_EXAMPLES,
    MOST_UNITS,
    LabelRange,
    add_number,
    are_close,
    are_equal,
    mass_ceilings,
    subtract_sums,
    sums_of,
    weighted_number_mass,
)
from raydt.trees.records import difference
from tests.oracles.fudyadt_numbers import NumberTwin, variance

Labels = tuple[Fraction, ...]

labels = st.fractions(0, 1, max_denominator=64)
#: Examples by their sides under two splits.
quarters = st.lists(st.lists(labels, max_size=6).map(tuple), min_size=4, max_size=4)
edits = st.lists(st.tuples(st.integers(0, 3), labels, st.booleans()), max_size=20)


def mass(z: Labels) -> Fraction:
    mean = Fraction(sum(z), len(z)) if z else Fraction(0)
    return sum(((x - mean) ** 2 for x in z), Fraction(0))


def impurity(z: Labels) -> Fraction:
    return mass(z) / len(z) if z else Fraction(0)


def left_by(cells: list[Labels], split: int) -> Fraction:
    """M(S, split)."""
    a, b, c, d = cells
    sides = (a + b, c + d) if split == 0 else (a + c, b + d)
    return mass(sides[0]) + mass(sides[1])


def whole(cells: list[Labels]) -> Labels:
    return sum(cells, ())


def gain(cells: list[Labels], split: int) -> Fraction:
    z = whole(cells)
    return (mass(z) - left_by(cells, split)) / len(z) if z else Fraction(0)


def edited(cells: list[Labels], script: list[tuple[int, Fraction, bool]]) -> tuple[list[Labels], int, int]:
    """Examples after edits, how many there were, and how many of the first examples were deleted."""
    cells, news, done, gone = list(cells), [0, 0, 0, 0], 0, 0
    for cell, z, insert in script:
        if insert:
            cells[cell], news[cell], done = (*cells[cell], z), news[cell] + 1, done + 1
        elif cells[cell]:
            first = len(cells[cell]) > news[cell]
            cells[cell] = cells[cell][1:]  # the oldest
            gone, news[cell], done = gone + first, news[cell] - (not first), done + 1
    return cells, done, gone


@given(st.lists(labels, max_size=12).map(tuple), labels)
def test_lemma_1_an_insertion_adds_less_than_1_to_the_mass(z: Labels, new: Fraction) -> None:
    change = mass((*z, new)) - mass(z)
    n = len(z)
    assert change == (Fraction(n, n + 1) * (new - Fraction(sum(z), n)) ** 2 if n else 0)
    assert 0 <= change < 1


@given(quarters, st.integers(0, 3), labels)
def test_lemma_2_an_edit_changes_weighted_gain_and_advantage_by_less_than_1(
    cells: list[Labels], cell: int, new: Fraction
) -> None:
    after = [(*z, new) if i == cell else z for i, z in enumerate(cells)]
    n, m = len(whole(cells)), len(whole(after))
    for split in (0, 1):
        assert abs(m * gain(after, split) - n * gain(cells, split)) < 1
        assert 0 <= gain(after, split) <= impurity(whole(after)) <= Fraction(1, 4)
    advantage = m * (gain(after, 1) - gain(after, 0)) - n * (gain(cells, 1) - gain(cells, 0))
    assert abs(advantage) < 1


@given(quarters, edits)
def test_lemma_3_many_edits_and_certificates(cells: list[Labels], script: list[tuple[int, Fraction, bool]]) -> None:
    now, done, gone = edited(cells, script)
    n = len(whole(now))
    larger = max(len(whole(cells)), n)
    change = abs(impurity(whole(now)) - impurity(whole(cells))) * larger
    assert change < done or change == done == 0
    for split in (0, 1):
        assert abs(gain(now, split) - gain(cells, split)) * larger <= Fraction(5 * done, 4)
        assert left_by(now, split) >= max(0, left_by(cells, split) - gone)
    if gain(cells, 1) <= gain(cells, 0):
        assert n * (gain(now, 1) - gain(now, 0)) <= done
        lacks = left_by(now, 0) - max(Fraction(0), left_by(cells, 0) - gone)
        assert n * (gain(now, 1) - gain(now, 0)) <= lacks <= done


def test_the_constant_of_one_edit_cannot_be_lowered() -> None:
    zeros = (Fraction(0),) * 999
    assert mass((*zeros, Fraction(1))) - mass(zeros) == Fraction(999, 1000)


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
    assert sums_of(*np.array(kept, np.int64).reshape(-1, 2).T).tolist() == sums[0].tolist()
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
    assert _rounded_difference(*np.array([[a], [b], [c], [d]]))[0] == float(a * b - c * d)


@pytest.mark.parametrize("share", [0.5, 0.25, 1 / 3])
def test_sums_of_the_most_examples_fit(share: float) -> None:
    """Two labels at the ends of the range, of as many examples as there may be."""
    n = MOST_EXAMPLES
    high = int(n * share)
    q, squares = high * MOST_UNITS, high * MOST_UNITS**2
    exact = squares - Fraction(q * q, n)
    assert int(mass_ceilings(np.array([n]), np.array([[q, squares]]))[0]) == math.ceil(exact)

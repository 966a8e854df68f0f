"""The three theorems hold: |Phi-hat - Phi| <= eps at least as often as they say, in parts and as a whole.

The widths are loose, so that a simulation of the whole says little by itself. Their parts are not: each is computed
exactly here for small samples, and fails as soon as it is made a little narrower. What is estimated is the score that
the tree splits by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from raydt.finders.scores import xlogx_table
from raydt.learners.confidence_tree.bounds import entropy_width, gini_width, kearns_mansour_width
from raydt.learners.confidence_tree.impurity import BEST, COUNTS, CRITERIA, merge
from tests.oracles import confidence_bounds as printed

Floats = npt.NDArray[np.float64]
SIZES = (10, 45, 300, 2000)
DELTAS = (0.9, 0.5, 0.05)
DRAWS = 4000

#: P(Y = y, F = k), by side and class. ``RARE`` has an expected count of about one on either side at each m.
TWO = {
    "told apart": [[0.5, 0.0], [0.0, 0.5]],
    "of no use": [[0.25, 0.25], [0.25, 0.25]],
    "of some use": [[0.35, 0.15], [0.1, 0.4]],
    "small side": [[0.02, 0.01], [0.4, 0.57]],
    "rare class": [[0.49, 0.01], [0.47, 0.03]],
    "steep": [[0.427, 0.073], [0.427, 0.073]],
}
THREE = {
    "alike": [[1 / 6] * 3, [1 / 6] * 3],
    "of some use": [[0.3, 0.1, 0.1], [0.05, 0.2, 0.25]],
    "rare": [[0.45, 0.01, 0.02], [0.49, 0.02, 0.01]],
}


def rare(m: int) -> list[list[float]]:
    """As many of class 1 on either side as make an empty cell likely."""
    p = 0.35 / m
    return [[0.5 - p, p], [0.5 - p, p]]


def estimates(criterion: str, counts: npt.NDArray[np.int64]) -> Floats:
    """Phi-hat of many samples of one size, as the tree computes it; ``counts``: shape (draws, sides, classes)."""
    draws, _, K = counts.shape
    candidates = np.full((draws, 1, 3, COUNTS + K), -1, dtype=np.int64)
    candidates[:, 0, BEST, :COUNTS], candidates[:, 0, BEST, COUNTS:] = 0, counts[:, 0]
    found, scores, impurity = np.empty_like(candidates[:, 0]), np.empty((draws, 3)), np.empty(draws)
    table = xlogx_table(int(counts[0].sum()))
    merge(CRITERIA.index(criterion), True, table, counts.sum(axis=1), candidates, found, scores, impurity)
    return scores[:, BEST]


def misses(criterion: str, joint: Sequence[Sequence[float]], m: int, eps: float) -> int:
    """Samples of m whose estimate is further than eps from the truth."""
    shape = np.shape(joint)
    draws = np.random.default_rng(m).multinomial(m, np.ravel(joint), DRAWS).reshape(DRAWS, *shape)
    error = estimates(criterion, draws) - printed.GIVEN[criterion](joint)
    return int((np.abs(error) > eps).sum())


def allowed(delta: float) -> float:
    """More misses than this show that the probability of one is larger than delta."""
    return DRAWS * delta + 4 * math.sqrt(DRAWS * delta * (1 - delta))


THEOREMS: list[tuple[str, dict[str, Any], Callable[[int, float], float]]] = [
    ("entropy", TWO, entropy_width),
    ("entropy", THREE, lambda m, delta: entropy_width(m, delta, 3)),
    ("gini", TWO, gini_width),
    ("gini", THREE, gini_width),
    ("kearns_mansour", TWO, kearns_mansour_width),
]
NAMES = [f"{criterion} of {len(next(iter(joints.values()))[0])}" for criterion, joints, _ in THEOREMS]


@pytest.mark.parametrize(("criterion", "joints", "width"), THEOREMS, ids=NAMES)
def test_coverage(criterion: str, joints: dict[str, Any], width: Callable[[int, float], float]) -> None:
    for m in SIZES:
        more = {"likely empty": rare(m)} if joints is TWO else {}
        for name, joint in (joints | more).items():
            for delta in DELTAS:
                assert misses(criterion, joint, m, width(m, delta)) <= allowed(delta), (name, m, delta)


@pytest.mark.parametrize(("criterion", "joints", "width"), THEOREMS, ids=NAMES)
def test_coverage_is_put_to_the_test(criterion: str, joints: dict[str, Any], width: Any) -> None:
    """The same samples show that a width of a fortieth does not cover."""
    delta = 0.05
    for m in SIZES:
        assert max(misses(criterion, joint, m, width(m, delta) / 40) for joint in joints.values()) > allowed(delta), m


def test_estimates_are_those_of_the_theorems() -> None:
    draws = np.random.default_rng(1)
    for criterion, K in (("gini", 2), ("gini", 3), ("entropy", 2), ("entropy", 3), ("kearns_mansour", 2)):
        for _ in range(20):
            counts = draws.multinomial(12, np.full(2 * K, 1 / (2 * K))).reshape(2, K)
            (estimate,) = estimates(criterion, counts[None])
            assert math.isclose(estimate, printed.GIVEN[criterion](counts / 12), abs_tol=1e-14)
    # Of two classes the Gini index is the sum of the harmonic means of p_k and q_k, that is P(Y = 0, F = k).
    joint = [[0.3, 0.2], [0.1, 0.4]]
    assert math.isclose(printed.gini_given(joint), 2 * 0.3 * 0.2 / 0.5 + 2 * 0.1 * 0.4 / 0.5)


@pytest.mark.parametrize(("criterion", "width"), [("gini", gini_width), ("kearns_mansour", kearns_mansour_width)])
def test_q_as_the_complement_of_p_is_caught(criterion: str, width: Callable[[int, float], float]) -> None:
    """Section IV's q_k = 1 - p_k estimates something else: no sample of 2,000 is within eps."""
    joint, m = TWO["told apart"], 2000
    error = printed.as_printed(criterion, joint) - printed.GIVEN[criterion](joint)
    assert abs(error) > 2 * width(m, 0.5)
    assert misses(criterion, joint, m, width(m, 0.5)) == 0


# ------------------------------------------------------------------ the parts, exactly


def splits_of(m: int, cells: int) -> Iterator[tuple[int, ...]]:
    """Every way to put m examples into some cells."""
    if cells == 1:
        yield (m,)
        return
    for first in range(m + 1):
        for rest in splits_of(m - first, cells - 1):
            yield (first, *rest)


def largest_change(phi: Callable[[tuple[int, ...]], float], m: int, cells: int) -> float:
    """By how much phi can change when one of m examples moves from its cell to another."""
    value = {counts: phi(counts) for counts in splits_of(m, cells)}
    changes = []
    for counts, a, b in product(value, range(cells), range(cells)):
        if counts[a] and a != b:
            moved = list(counts)
            moved[a] -= 1
            moved[b] += 1
            changes.append(abs(value[tuple(moved)] - value[counts]))
    return max(changes)


def mcdiarmid(c: float, m: int, delta: float) -> float:
    """Lemma 2: the deviation of a function that one of m examples changes by at most c."""
    return c * math.sqrt(m / 2 * math.log(2 / delta))


@pytest.mark.parametrize("K", [2, 3])
def test_deviation_of_gini(K: int) -> None:
    """c = 4 / m, of which 2 / m is needed, for any number of classes."""

    def gini(counts: tuple[int, ...]) -> float:
        m = sum(counts)
        return printed.gini_given([[n / m for n in counts[:K]], [n / m for n in counts[K:]]])

    for m in (1, 2, 5, 8 if K == 2 else 7):
        change = largest_change(gini, m, 2 * K)
        assert change <= 2 / m
        assert m < 5 or change > 4 / m / 2.6
        assert math.isclose(float(printed.eq5_deviation(m, 0.3)), mcdiarmid(4 / m, m, 0.3))


@pytest.mark.parametrize("cells", [2, 4, 6])
def test_deviation_of_entropy(cells: int) -> None:
    """ln(m) / m for half of an entropy, whatever the number of cells; two of them, of delta / 2 each."""

    def half(counts: tuple[int, ...]) -> float:
        m = sum(counts)
        return -sum(n / m * math.log(n / m) for n in counts if n) / 2

    for m in (1, 2, 5, 8 if cells < 6 else 6):
        change = largest_change(half, m, cells)
        assert change <= math.log(m) / m * (1 + 1e-12)
        assert m == 1 or change > math.log(m) / m / 1.5
        assert math.isclose(float(printed.eq4_deviation(m, 0.3)), 2 * mcdiarmid(math.log(m) / m, m, 0.15))


def expected(phi: Callable[[list[list[float]]], float], joint: Sequence[Sequence[float]], m: int) -> float:
    """The expectation of phi of the shares of m examples."""
    flat, K = [p for side in joint for p in side], len(joint[0])
    total = []
    for counts in splits_of(m, len(flat)):
        chance = float(math.factorial(m))
        for n, p in zip(counts, flat, strict=True):
            chance *= p**n / math.factorial(n)
        total.append(chance * phi([[n / m for n in counts[:K]], [n / m for n in counts[K:]]]))
    return math.fsum(total)


@pytest.mark.parametrize("joints", [TWO, THREE], ids=["two", "three"])
def test_bias_of_entropy(joints: dict[str, Any]) -> None:
    """The bias of both entropies, their sum, and that a fifth of the sum is too little."""
    worst = 0.0
    for joint in joints.values():
        K = len(joint[0])
        for m in (1, 2, 4, 8) if K == 2 else (1, 3, 6):
            phi = printed.entropy_given
            bias = phi(joint) - expected(phi, joint, m)
            assert abs(bias) <= float(printed.eq4_bias(m, K))
            worst = max(worst, abs(bias) / float(printed.eq4_bias(m, K)))
            joint_bias = half_of(joint) - expected(half_of, joint, m)
            assert 0 <= joint_bias + 1e-12 <= (2 * K - 1) / (2 * m) + 1e-12
    assert worst > 1 / 5


def half_of(joint: Sequence[Sequence[float]]) -> float:
    """Half of the entropy of label and side together."""
    return -math.fsum(p * math.log(p) for side in joint for p in side if p > 0) / 2


@pytest.mark.parametrize("joints", [TWO, THREE], ids=["two", "three"])
def test_bias_of_gini(joints: dict[str, Any]) -> None:
    """Never negative, and at most 4 / sqrt(m); a tenth of that is too little for one example."""
    worst = 0.0
    for joint in joints.values():
        for m in (1, 2, 4, 8) if len(joint[0]) == 2 else (1, 3, 6):
            bias = printed.gini_given(joint) - expected(printed.gini_given, joint, m)
            assert -1e-12 <= bias <= float(printed.eq5_bias(m))
            worst = max(worst, bias / float(printed.eq5_bias(m)))
    assert worst > 1 / 10


def miss_of_root(m: int, p: float, eps: float) -> float:
    """The probability that sqrt(B / m) of a binomial B is further than eps from sqrt(p)."""
    chances = [math.comb(m, b) * p**b * (1 - p) ** (m - b) for b in range(m + 1)]
    return math.fsum(c for b, c in enumerate(chances) if abs(math.sqrt(b / m) - math.sqrt(p)) > eps)


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.01])
def test_deviation_of_kearns_and_mansour(delta: float) -> None:
    """Lemma 3 covers for every p; a little narrower it does not. The width is four of it, of delta / 4 each."""
    for m in (50, 400):
        eps = float(printed.lemma3(m, delta))
        ps = [k / (8 * m) for k in range(1, 64)] + [k / 40 for k in range(1, 40)]
        assert max(miss_of_root(m, p, eps) for p in ps if p < 1) <= delta
        # No success is likely enough just below p = ln(1 / delta) / m, and leaves the root of it.
        p = 0.999 * -math.expm1(math.log(delta) / m)
        assert miss_of_root(m, p, eps * (0.9 if delta < 0.1 else 0.65)) > delta
        assert math.isclose(float(printed.eq6(m, delta)), 4 * float(printed.lemma3(m, delta / 4)))

"""The three theorems hold: |Phi-hat - Phi| <= eps at least as often as they say, in parts and as a whole.

What is estimated is the score that the tree splits by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from raydt.finders.finder import xlogx_table
from raydt.learners.confidence_tree.bounds import (
    BEST,
    COUNTS,
    CRITERIA,
    entropy_width,
    gini_width,
    kearns_mansour_width,
    merge,
)
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


def test_bias_of_entropy() -> None:
    """The bias of the estimate for small samples, exactly: at most K / m, of which a fifth is needed."""
    worst = 0.0
    for joint in (*TWO.values(), *THREE.values()):
        K = len(joint[0])
        for m in (1, 2, 4, 8) if K == 2 else (1, 3, 6):
            bias = printed.entropy_given(joint) - expected(printed.entropy_given, joint, m)
            assert abs(bias) <= float(printed.eq4_bias(m, K))
            worst = max(worst, abs(bias) / float(printed.eq4_bias(m, K)))
    assert worst > 1 / 5

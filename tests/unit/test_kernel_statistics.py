"""Presort, scans and exact comparisons against plain Python, for values that float codes find hard."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raydt.learners.fudyadt.histograms import DIGITS, SHORT, presort
from raydt.learners.fudyadt.split_search import BLOCK, scan, split_score
from raydt.trees.records import floor_product
from tests.volume import examples


def sorted_column(values: npt.NDArray[np.float64], labels: npt.NDArray[np.int32], bits: int) -> npt.NDArray[np.int64]:
    n = len(values)
    E = np.empty((1, n), dtype=np.int64)
    X = values.reshape(-1, 1) + 0.0
    rows = np.arange(n, dtype=np.int32)
    digits = np.empty(DIGITS, dtype=np.int64)
    presort(X, rows, labels, n, bits, E, np.empty(n, dtype=np.int64), digits)
    return E


def columns(rng: np.random.Generator, n: int) -> dict[str, npt.NDArray[np.float64]]:
    return {
        "uniform": rng.random(n),
        "float32": rng.random(n).astype(np.float32).astype(np.float64),
        "constant": np.full(n, 3.25),
        "two values": rng.integers(0, 2, n).astype(np.float64),
        "signs and sizes": rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n),
        "neighbouring floats": 1.0 + rng.integers(0, 5, n) * np.finfo(float).eps,
        "outlier": np.concatenate([1.0 + rng.integers(0, 3, n - 1) * np.finfo(float).eps, [1e300]]),
        "descending": -np.arange(n, dtype=np.float64),
        "crowded": np.concatenate([1.0 + rng.integers(0, 2**16, n - 1) * 2.0**-40, [2.0]]),
        "denormal": rng.integers(-3, 4, n) * 5e-324,
    }


@pytest.mark.parametrize("n", [1, 2, SHORT, SHORT + 1, 500, 5000])
def test_presort_ranks_by_all_bits(n: int) -> None:
    rng = np.random.default_rng(n)
    labels = rng.integers(0, 3, n).astype(np.int32)
    for name, values in columns(rng, n).items():
        E = sorted_column(values, labels, 2)[0]
        rows, rank = (E & 0xFFFFFFFF) >> 2, E >> 32
        assert sorted(rows.tolist()) == list(range(n)), name
        assert (labels[rows] == (E & 3)).all(), name
        expected = np.unique(values + 0.0, return_inverse=True)[1]
        assert (np.diff(expected[rows]) >= 0).all(), name
        assert ((np.diff(expected[rows]) > 0) == (np.diff(rank) > 0)).all(), name
        assert (np.diff(rank) >= 0).all(), name


def best_by_hand(
    values: npt.NDArray[np.float64], labels: npt.NDArray[np.int32], classes: int, categorical: bool
) -> float:
    counts = np.bincount(labels, minlength=classes)[None, :]
    best = -1.0
    distinct = np.unique(values)
    for value in distinct if categorical else distinct[:-1]:
        left = values == value if categorical else values <= value
        if left.all():
            continue
        score = split_score(np.bincount(labels[left], minlength=classes), counts, 0, int(left.sum()), len(values))
        best = max(best, score)
    return best


@examples(60)
@given(st.integers(2, 5 * BLOCK), st.integers(2, 4), st.booleans(), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_scan_finds_the_best_split(n: int, classes: int, categorical: bool, distinct: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, distinct, n).astype(np.float64)
    labels = ((values * classes / distinct + rng.normal(size=n)) % classes).astype(np.int32) % classes
    bits = max(1, (classes - 1).bit_length())
    E = sorted_column(values, labels, bits)
    counts = np.bincount(labels, minlength=classes)[None, :]
    assume(counts.max() < n)  # a pure node is never scanned
    left, spare = np.empty(classes, dtype=np.int64), np.empty(n, dtype=np.int64)
    score, at = scan(E[0], categorical, counts, 0, left, bits, -1.0, spare)
    assert score == best_by_hand(values, labels, classes, categorical)
    assert (at >= 0) == (len(np.unique(values)) > 1)


@given(st.floats(0, 4, allow_subnormal=False), st.integers(0, 2**52))
def test_floor_product_is_exact(rate: float, size: int) -> None:
    exact = Fraction(rate) * size
    assume(rate >= 1e-200)
    assume(exact < 2**52)
    assert floor_product(rate, size) == exact.numerator // exact.denominator


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_floor_product_just_below_and_at_an_integer(whole: int, size: int) -> None:
    rate = whole / size
    for near in (rate, np.nextafter(rate, 0), np.nextafter(rate, 10)):
        exact = Fraction(float(near)) * size
        assert floor_product(float(near), size) == exact.numerator // exact.denominator

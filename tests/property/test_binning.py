"""Bins against their slow twin: every code of seen and unseen values, every cut."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.kernel import kernel
from raydt.batches.binning import SPARSE, Bins, CellStore, code_of, joined, learn_bins
from raydt.examples.updates import CATEGORICAL, NUMERIC
from tests.oracles.binning import CategoryBins, NumericBins
from tests.strategies import AWKWARD, CLOSE, HUGE
from tests.volume import examples

near = st.sampled_from((1e-11, 9e-11, 1e-10, 1.0000000001e-10, 2e-10, 1e-9))
values = st.one_of(
    st.integers(-3, 3).map(float),
    st.sampled_from(AWKWARD + HUGE + CLOSE),
    st.builds(lambda base, step: base + step, st.integers(-2, 2).map(float), near),
    st.floats(allow_nan=False, allow_infinity=False),
)
numbers = st.lists(st.one_of(values, values, values, st.just(math.nan)), max_size=40)
categories = st.lists(st.integers(-1, 6).map(float), max_size=40)
bins_at_most = st.sampled_from((2, 3, 4, 5, 8, 16, 1024))
methods = st.sampled_from(("doubling", "quantile"))
NO_SPARSE = np.empty(0, dtype=np.int32)


def learned(column: list[float], kind: int, max_bins: int, method: str = "doubling") -> Bins:
    X = np.array(column, np.float64).reshape(-1, 1) + 0.0
    return learn_bins(X, np.array([kind], np.int8), max_bins, method, NO_SPARSE)


@kernel
def _one_by_one(x: Any, bins: Any, out: Any) -> None:
    for i in range(len(x)):
        out[i] = code_of(x[i], bins, 0)


def codes(bins: Bins, xs: list[float]) -> list[int]:
    """Codes of values of the only feature, by the search for many values and by the search for one."""
    cells, slots = CellStore(bins, 1), np.arange(len(xs), dtype=np.int32)
    x, alone = np.array(xs, np.float64), np.empty(len(xs), dtype=np.int64)
    cells.make_room(slots)
    cells.add_columns(slots, x.reshape(-1, 1))
    _one_by_one(x, bins, alone)
    together: list[int] = cells.cells.columns[0, slots].tolist()
    assert together == alone.tolist()
    return together


@examples(400)
@given(numbers, st.lists(values, max_size=20), bins_at_most, methods)
def test_numeric_bins_equal_the_twin(column: list[float], later: list[float], max_bins: int, method: str) -> None:
    twin, bins = NumericBins(column, max_bins, method), learned(column, NUMERIC, max_bins, method)
    assert bins.values.tolist() == twin.boundaries
    asked = [*column, *later, *twin.boundaries, math.nan]
    assert codes(bins, asked) == [twin.code(x) for x in asked]
    assert int(bins.cuts()[0]) == len(twin.cuts)
    assert twin.cuts == list(range(len(twin.cuts)))
    every = [twin.code(x) for x in column]
    assert int(bins.default[0]) == max(sorted(set(every)), key=every.count, default=0)


@examples(200)
@given(numbers, bins_at_most, methods)
def test_bins_are_at_most_as_many_as_asked_for_and_in_the_order_of_values(
    column: list[float], max_bins: int, method: str
) -> None:
    bins = learned(column, NUMERIC, max_bins, method)
    known = sorted(x for x in column if not math.isnan(x))
    used = set(codes(bins, column))
    assert len(used) <= max(max_bins, 2)
    assert codes(bins, known) == sorted(codes(bins, known))
    # No bin of numbers is empty, so that every cut separates something of the first rows.
    assert set(codes(bins, known)) == set(range(len(bins.values) + 1)) or not known


@examples(200)
@given(categories, bins_at_most)
def test_category_bins_equal_the_twin(column: list[float], max_bins: int) -> None:
    twin, bins = CategoryBins(column, max_bins), learned(column, CATEGORICAL, max_bins)
    asked = [-1.0, *map(float, range(9))]
    assert codes(bins, asked) == [twin.code(x) for x in asked]
    assert list(range(int(bins.cuts()[0]))) == twin.cuts
    every = [twin.code(x) for x in column]
    assert int(bins.default[0]) == max(sorted(set(every)), key=every.count, default=0)


@examples(100)
@given(st.lists(st.tuples(values, st.integers(-1, 4).map(float), values), max_size=30), bins_at_most, methods)
def test_columns_do_not_see_each_other(rows: list[tuple[float, ...]], max_bins: int, method: str) -> None:
    X = np.array(rows, np.float64).reshape(-1, 3) + 0.0
    kinds = np.array([NUMERIC, CATEGORICAL, NUMERIC], np.int8)
    sparse = np.array([3, 70, 10**9], dtype=np.int32)
    whole = learn_bins(X, kinds, max_bins, method, sparse)
    alone = [learn_bins(X[:, [j]], kinds[[j]], max_bins, method, NO_SPARSE) for j in range(3)]
    alone.append(learn_bins(X[:, :0], kinds[:0], max_bins, method, sparse))
    for name, array in joined(alone)._asdict().items():
        np.testing.assert_array_equal(array, getattr(whole, name))
        assert array.dtype == getattr(whole, name).dtype
    assert whole.kinds.tolist() == [NUMERIC, CATEGORICAL, NUMERIC, SPARSE, SPARSE, SPARSE]
    assert whole.cuts()[3:].tolist() == [1, 1, 1]
    order = np.array([4, 2, 0, 5, 1])
    for chosen, j in zip(whole.select(order).cuts(), order, strict=True):
        assert chosen == whole.cuts()[j]
    assert whole.select(order).sparse.tolist() == [70, 10**9]
    places = np.array([-1, 0, 2, 3, 4, 5])
    assert whole.numbers(places).tolist() == [-1, 0, 2, 6, 73, 10**9 + 3]
    assert whole.places(whole.numbers(places)).tolist() == places.tolist()
    assert whole.places(np.array([3, 5, 7, 74, 2**31 - 2])).tolist() == [6] * 5
    again = Bins.from_arrays(whole.arrays())
    assert all(np.array_equal(a, b) for a, b in zip(again, whole, strict=True))


@pytest.mark.parametrize(
    ("column", "max_bins", "boundaries"),
    [
        ([1.0, 2.0, 3.0], 3, [1.5, 2.5]),  # the printed loop would allow a fourth bin
        # Bins of width 1e-10 * 2**34 (about 1.72) are the first to be at most two: [1, 2] and [3, 4].
        ([1.0, 2.0, 3.0, 4.0], 2, [2.5]),
        ([0.0, 9e-11, 1.0], 2, [4.5e-11 + 0.5]),
        ([0.0, 9e-11, 1.0], 1024, [4.5e-11, 4.5e-11 + 0.5]),  # no two values share a bin while there are bins for all
        # Three bins of 1e-10 * 2**-2 hold [0, 1e-11, 2e-11], [6e-11] and [9e-11]; those of 2**-3 are four.
        ([0.0, 1e-11, 2e-11, 6e-11, 9e-11], 3, [4e-11, 7.5e-11]),
        ([5.0, math.nan], 2, []),
        ([math.nan], 8, []),
    ],
)
def test_bins_by_hand(column: list[float], max_bins: int, boundaries: list[float]) -> None:
    assert learned(column, NUMERIC, max_bins).values.tolist() == pytest.approx(boundaries)
    assert NumericBins(column, max_bins, "doubling").boundaries == pytest.approx(boundaries)


def test_bins_of_equal_frequency_by_hand() -> None:
    column = [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert learned(column, NUMERIC, 2, "quantile").values.tolist() == [1.5]
    assert learned(column, NUMERIC, 4, "quantile").values.tolist() == [1.5, 3.5]

"""Sums of numeric targets of parts of all rows (``raydt.audits.bins``) are those of all, exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydt.audits.bins import TargetSums, of_all, target_sums
from raydt.examples.updates import MOST, UNIT
from tests.volume import examples

numbers = st.floats(-1e300, 1e300) | st.sampled_from((0.0, 5e-324, -5e-324, 0.1, 2.0**53 + 1))
rows = st.lists(st.tuples(numbers, st.just(UNIT) | st.integers(0, MOST), st.integers(0, 3)), max_size=12)


@examples(300)
@given(rows, st.booleans())
def test_sums_of_parts_are_exact(rows: list[tuple[float, int, int]], alike: bool) -> None:
    y = np.array([target for target, *_ in rows], np.float64)
    weight = np.array([UNIT if alike else units for _, units, _ in rows], np.int64)
    part = np.array([owner for *_, owner in rows], np.int64)
    of_parts = [target_sums(y[part == one], weight[part == one]) for one in range(4)]
    assert all(type(number) in (Fraction, int, float) for one in of_parts for number in one)  # nothing by row
    found, total = of_all(of_parts), int(weight.sum())
    exact = sum((Fraction(one) * units for one, units in zip(y.tolist(), weight.tolist(), strict=True)), Fraction(0))
    assert found == TargetSums(exact, total, min(y, default=math.inf), max(y, default=-math.inf))
    if alike and rows:
        assert found.mean == math.fsum(y.tolist()) / len(y)
    else:
        assert found.mean == (float(exact / UNIT) / (total / UNIT) if total else 0.0)

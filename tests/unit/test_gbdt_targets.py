"""Summaries of labels: those of parts of the rows say what all labels do, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.learners.gbdt.candidates import classes_in, constant_of, joined_summary, scale_of, summary_of
from tests.volume import examples

NUMBERS = st.floats(-1e200, 1e200) | st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 5e-324, 2.0**-1030])


def scale(y: np.ndarray) -> tuple[float, int]:
    """The slow twin of ``scale_of``."""
    equal = len(set(y.tolist())) == 1
    origin = float(y[0]) if equal else math.fsum(y) / len(y)
    farthest = abs(origin) if equal else max(abs(value - origin) for value in y.tolist())
    mantissa, exponent = math.frexp(farthest)
    return origin, exponent - (mantissa == 0.5)


@given(st.lists(NUMBERS, min_size=1, max_size=30), st.integers(1, 4), st.randoms(use_true_random=False))
@examples(200)
def test_numbers(values: list[float], parts: int, random: object) -> None:
    y = np.array(values)
    owner = np.array([random.randrange(parts) for _ in values])  # type: ignore[attr-defined]
    summary = joined_summary([summary_of(y[owner == part]) for part in range(parts)])
    assert constant_of(summary) == constant_of(summary_of(y)) == math.fsum(y) / len(y)
    assert scale_of(summary) == scale_of(summary_of(y)) == scale(y)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4))
def test_classes(values: list[int], parts: int) -> None:
    y = np.array(values, dtype=np.int32)
    summary = joined_summary([summary_of(y[part::parts]) for part in range(parts)])
    assert constant_of(summary) == min(range(6), key=lambda k: (-values.count(k), k))
    assert classes_in(summary) == max(values, default=-1) + 1


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_no_rows(dtype: type) -> None:
    none = summary_of(np.empty(0, dtype=dtype))
    assert constant_of(joined_summary([none, none])) == 0
    if dtype is np.float64:
        assert scale_of(none) == (0.0, 0)

"""Forests of numeric labels with weights: exact words of sums, and whole weights that equal repeated rows, bit for bit.

The twin of ``test_forest_twin`` draws weights, too; here copies of a row come and go beside the row with its weight.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import ExactForestRegressor
from raydt.arrays.kernel import kernel
from raydt.examples.updates import UNIT
from raydt.learners.forest.labels import (
    MOST_WEIGHT,
    SUMS,
    add_weighted,
    canonical_sums,
    floor_mean,
    floor_means,
    weighted_lack,
)
from raydt.trees.records import rounded_words
from tests.volume import examples

pytestmark = pytest.mark.timeout(900)

#: Features, label and weight of rows.
Row = tuple[float, float, float, int]
labels = st.integers(-(2**40), 2**40) | st.integers(-(2**20), 2**20).map(lambda y: y << 20)
weights = st.integers(1, 2**32 - 1) | st.sampled_from((1, UNIT, 3 * UNIT, 2**32 - 1))


@kernel
def _add(sums: Any, y: int, by: int) -> None:
    add_weighted(sums, y, by)


@kernel
def _results(left: Any, totals: Any) -> tuple[float, int]:
    return weighted_lack(left, totals), floor_mean(totals)


@kernel
def _rounded(high: int, low: int) -> float:
    return rounded_words(high, low)


@given(st.lists(st.tuples(labels, weights), min_size=1, max_size=20), st.data())
def test_sums_means_and_differences_are_exact(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    """Of rows of which some are taken away again, and others are on the left."""
    gone = data.draw(st.sets(st.sampled_from(range(len(rows)))))
    kept = [row for i, row in enumerate(rows) if i not in gone]
    on_left = data.draw(st.lists(st.sampled_from(kept), unique=True)) if kept else []
    totals, left = np.zeros(SUMS, np.int64), np.zeros(SUMS, np.int64)
    for y, w in rows:
        _add(totals, y, w)
    for i in gone:
        _add(totals, rows[i][0], -rows[i][1])
    for y, w in on_left:
        _add(left, y, w)
    n, total = sum(w for _, w in kept), sum(w * y for y, w in kept)
    assert canonical_sums(totals[None])[0].tolist() == [n, *divmod(total, 2**20)]
    if not kept:
        return
    n_left, sum_left = sum(w for _, w in on_left), sum(w * y for y, w in on_left)
    lack, mean = _results(left, totals)
    assert lack == float(sum_left * n - n_left * total)
    assert mean == floor_means(totals[None])[0] == total // n
    assert _results(totals - left, totals)[0] == -lack


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(1, MOST_WEIGHT - 1))
def test_the_largest_differences_are_rounded_once(first: int, second: int, on_left: int) -> None:
    """Two labels, with as much weight as there may be."""
    left, totals = np.zeros(SUMS, np.int64), np.zeros(SUMS, np.int64)
    _add(left, first, on_left)
    _add(totals, first, on_left)
    _add(totals, second, MOST_WEIGHT - on_left)
    total = first * on_left + second * (MOST_WEIGHT - on_left)
    assert _results(left, totals)[0] == float(first * on_left * MOST_WEIGHT - on_left * total)


@given(
    st.integers(-(2**53), 2**53) | st.integers(0, 52).map(lambda bit: 1 << bit),
    st.integers(0, 2**60 - 1)
    | st.tuples(st.integers(0, 59), st.integers(-1, 1)).map(lambda b: max(0, (1 << b[0]) + b[1])),
)
def test_two_words_are_rounded_once(high: int, low: int) -> None:
    assert _rounded(high, low) == float(high * 2**60 + low)


@st.composite
def rounds(draw: st.DrawFn) -> list[tuple[set[int], list[Row]]]:
    """A training, then updates: rows to delete, by number, and to insert."""
    cell, number = st.integers(0, 4).map(float), st.sampled_from([0.0, 0.1, 0.3, -1.5, 1e-3, 7.0, 1e5])
    row = st.tuples(cell, st.just(math.nan) | cell, number, st.integers(1, 4))
    found: list[tuple[set[int], list[Row]]] = []
    live, count = set[int](), 0
    for turn in range(draw(st.integers(1, 4))):
        gone = draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        new = draw(st.lists(row, min_size=0 if turn else 8, max_size=20))
        live = live - gone | set(range(count, count + len(new)))
        count += len(new)
        found.append((gone, new))
    return found


def rows_of(forest: ExactForestRegressor) -> list[Any]:
    """Trees, with sums of weights and of labels times weights in rows of weight 1."""
    model = forest.session_.model()
    unit = int(model["unit"][0]) if "unit" in model else 1
    words = model["totals"].astype(object)
    if unit == 1:
        words = words[:, :2]
    elif words.shape[1] == SUMS:
        words = np.column_stack([words[:, 0], words[:, 1] * 2**20 + words[:, 2]])
    sums = [[Fraction(word, unit) for word in node] for node in words.tolist()]
    names = ("tree_nodes", "feature", "threshold", "left", "right", "exponent")
    return [sums, *(model[name].tolist() for name in names)]


@examples(200)
@given(
    rounds(),
    st.sampled_from([0.0, 1.7e9]),
    st.fixed_dictionaries(
        {
            "n_estimators": st.integers(1, 3),
            "min_samples_split": st.integers(2, 8),
            "max_depth": st.sampled_from([1, 3, 20]),
            "thresholds": st.integers(1, 4),
            "rebuild": st.sampled_from(["eager", "lazy"]),
            "random_state": st.integers(0, 5),
        }
    ),
)
def test_whole_weights_equal_repeated_rows(
    turns: list[tuple[set[int], list[Row]]], offset: float, options: dict[str, Any]
) -> None:
    own, repeated = (ExactForestRegressor(sample_share=1.0, n_jobs=1, **options) for _ in range(2))
    weight: list[int] = []
    copies: dict[int, list[int]] = {}
    for gone, new in turns:
        if gone:
            own.forget(sorted(gone), digests=False)
            repeated.forget([copy for i in sorted(gone) for copy in copies[i]], digests=False)
        if new:
            ids = np.arange(len(weight), len(weight) + len(new))
            cells, w = np.array([row[:3] for row in new]), [row[3] for row in new]
            X, y = cells[:, :2], cells[:, 2] + offset
            for i, times in zip(ids.tolist(), w, strict=True):
                copies[i] = [8 * i + copy for copy in range(times)]
            weight += w
            own.partial_fit(X, y, sample_weight=w, ids=ids)
            repeated.partial_fit(np.repeat(X, w, axis=0), np.repeat(y, w), ids=[c for i in ids for c in copies[int(i)]])
        assert rows_of(own) == rows_of(repeated)
        asked = np.array([[a, b] for a in range(5) for b in (math.nan, 1.0, 3.0)])
        assert own.predict(asked).tolist() == repeated.predict(asked).tolist()
    assert own.audit().failures == []

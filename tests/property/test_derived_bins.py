"""Bins that an audit derives from parts of the rows, against their slow twin on all rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydt.audits.bins import FeatureBins, Question, SortedValues, derived_together
from tests.oracles.binning import CategoryBins, NumericBins
from tests.property.test_binning import bins_at_most, categories, methods, numbers
from tests.volume import examples


def derived(
    columns: list[list[float]], kinds: list[bool], owner: list[int], parts: int, most: int, method: str
) -> list[FeatureBins]:
    """The bins of columns whose rows are with their owners, asked for together."""
    whose = np.array([owner[i % len(owner)] % parts for i in range(len(columns[0]))])
    X = np.array(columns, np.float64).T.reshape(-1, len(columns)) + 0.0
    of_parts = [[SortedValues(X[whose == part, j], kind) for j, kind in enumerate(kinds)] for part in range(parts)]

    def ask(questions: dict[int, Question]) -> list[dict[int, Any]]:
        return [{j: part[j].answer(question) for j, question in questions.items()} for part in of_parts]

    found = derived_together(dict(enumerate(kinds)), most, method, ask)
    return [found[j] for j in range(len(kinds))]


owners = st.lists(st.integers(0, 6), min_size=1, max_size=12)


@examples(400)
@given(numbers, categories, owners, st.integers(1, 4), bins_at_most, methods)
def test_bins_of_parts_equal_the_twins(
    column: list[float], codes: list[float], owner: list[int], parts: int, most: int, method: str
) -> None:
    codes = (codes + [-1.0] * len(column))[: len(column)]
    of_numbers, of_categories = derived([column, codes], [False, True], owner, parts, most, method)
    twin, other = NumericBins(column, most, method), CategoryBins(codes, most)
    assert of_numbers.values.tolist() == twin.boundaries
    assert of_numbers.seen == any(map(math.isnan, column))
    assert (of_categories.values.tolist(), of_categories.seen) == (other.kept, other.has_other)


@examples(20)
@given(st.integers(0, 2**32), st.integers(1, 4), methods, st.sampled_from((2, 30, 255)))
def test_long_columns(seed: int, parts: int, method: str, most: int) -> None:
    """More distinct values than bins, of many sizes, many of them repeated."""
    draw = np.random.default_rng(seed)
    column = np.round(draw.standard_normal(700) * 10.0 ** draw.integers(-12, 12, 700), 12)
    column = draw.choice(column, 900) + 0.0
    (found,) = derived([column.tolist()], [False], draw.integers(0, 7, 11).tolist(), parts, most, method)
    assert found.values.tolist() == NumericBins(column.tolist(), most, method).boundaries

"""Packed trees walk as :meth:`TreeSum.apply` does, row by row: any tests and values, any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.blocks import SparseRows
from raydt.parallel import limited
from raydt.trees import packed_trees
from raydt.trees.packed_trees import add_values, add_votes, leaves, packed
from raydt.trees.shapley import TreeSum

NUMBERS = (-np.inf, -1.5, -0.0, 0.0, 1.0, 2.0, 3.0, np.finfo(np.float64).max, np.inf, np.nan)
DENSE, SPARSE = 4, 5


@st.composite
def sums(draw: st.DrawFn) -> TreeSum:
    """Trees of random shapes, whose tests are of numbers, of one or several categories, and of sparse features.

    Missing numbers go either way.
    """
    left: list[int] = []
    right: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    members: list[list[float]] = []
    missing_left: list[bool] = []
    starts = [0]

    def grow(budget: int) -> int:
        node = len(feature)
        for array, nothing in ((left, -1), (right, -1), (feature, -1), (threshold, 0.0)):
            array.append(nothing)  # type: ignore[arg-type]
        members.append([])
        missing_left.append(False)
        if budget and draw(st.integers(0, 3)):
            kind = draw(st.sampled_from(("number", "number", "category", "categories", "sparse")))
            feature[node] = draw(
                st.integers(DENSE, DENSE + SPARSE - 1) if kind == "sparse" else st.integers(0, DENSE - 1)
            )
            threshold[node] = 0.5 if kind == "sparse" else draw(st.sampled_from(NUMBERS[1:-2]))
            if kind.startswith("categor"):
                most = 1 if kind == "category" else 3
                members[node] = sorted(draw(st.sets(st.sampled_from(NUMBERS[3:7]), min_size=most, max_size=most)))
            # Thresholds are below a number, but for the largest one, which parts all numbers from missing ones.
            missing_left[node] = kind == "number" and threshold[node] != NUMBERS[-3] and draw(st.booleans())
            left[node] = grow(budget - 1)
            right[node] = grow(budget - 1)
        return node

    for _ in range(draw(st.integers(1, 4))):
        grow(draw(st.integers(0, 6)))
        starts.append(len(feature))
    first = np.concatenate([[0], np.cumsum([len(some) for some in members])])
    value = np.where(np.array(feature)[:, None] < 0, np.arange(2.0 * len(feature)).reshape(-1, 2) + 0.1, 0.0)
    return TreeSum(
        *(DENSE, SPARSE, np.array(starts), np.array(feature), np.array(threshold), first),
        np.array([x for some in members for x in some], dtype=np.float64),
        *(np.array(left), np.array(right), value, None, np.zeros(2), False, "identity", np.arange(2)),
        np.array(missing_left),
    )


@given(sums(), st.integers(0, 700), st.integers(0, 2**32 - 1), st.sampled_from((1, 2, 3, 5)))
def test_rows_reach_the_same_leaves(trees: TreeSum, n: int, seed: int, many: int) -> None:
    draw = np.random.default_rng(seed)
    X = draw.choice(NUMBERS, size=(n, DENSE))
    matrix = draw.random((n, SPARSE)) < 0.4
    ones = SparseRows(
        np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int64),
        np.nonzero(matrix)[1].astype(np.int32),
        SPARSE,
    )
    expected = trees.apply(X, ones)
    value, votes = trees.value[:, 0].copy(), trees.value.astype(np.int64)
    scores, sums = np.full((n, 2), 0.3), np.zeros((n, 2), dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch, limited(many):
        patch.setattr(packed_trees, "_TASK_NS", 0)  # every work is large enough for threads
        walked = packed(trees)
        assert (leaves(walked, X, ones) == expected).all()
        add_values(walked, value, X, ones, scores)
        add_votes(walked, votes, X, ones, sums)
    twin = np.full((n, 2), 0.3)
    for t in range(trees.trees):
        twin[:, t % 2] += value[expected[:, t]]
    assert (scores == twin).all()
    assert (sums == votes[expected].sum(axis=1)).all()

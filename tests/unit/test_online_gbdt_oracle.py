"""The slow twin of the online GBDT by itself: figures worked out by hand, invariants, and that it learns."""

from __future__ import annotations

import math
from typing import Any

from raydt.learners.gbdt.options import GBDTOptions
from tests.oracles.online_gbdt import OnlineGBDT
from tests.oracles.online_gbdt_tree import Row


def model(rows: list[tuple[tuple[float, ...], float]], categorical: tuple[bool, ...] = (False,), **options: Any) -> Any:
    settings = {"max_iter": 1, "candidate_fraction": 1.0, "max_bins": 16, "learning_rate": 1.0, **options}
    twin = OnlineGBDT(categorical, GBDTOptions(**settings))
    twin.train(Row(i, x, y) for i, (x, y) in enumerate(rows))
    return twin


LINE = [((float(i),), float(i >= 2)) for i in range(4)]


def test_one_split_by_hand() -> None:
    twin = model(LINE, max_leaf_nodes=2)
    root = twin.trees[0, 0]
    assert twin.candidates[0] == [(0, 0), (0, 1), (0, 2)]
    assert (root.feature, root.cut, root.G, root.H) == (0, 1, 0, 4 * 32768**2)
    # p = 1/2: g = -1/2 each, h = 1/4 each, and lambda is 1.
    assert (root.left.G, root.left.H) == (-65536, 2 * 32768**2)
    assert root.left.value == -1 / (0.5 + 1)
    assert root.right.value == 1 / (0.5 + 1)
    assert twin.gains(0, 0, list(twin.rows.values()))[0, 1] == 2 * (1 / 1.5)
    assert twin.predict((0.4,)) == 0
    assert twin.predict((9.0,)) == 1
    assert root.left.tried is None  # the budget ended growth, so nothing is known of its leaves


def test_several_classes_have_a_tree_each_and_the_factor() -> None:
    twin = model([((float(i),), float(i)) for i in range(3)], max_leaf_nodes=2, l2_regularization=0.0)
    assert sorted(twin.trees) == [(0, 0), (0, 1), (0, 2)]
    q = round(65536 / 3)
    leaf = twin.trees[0, 0].left
    g, h = leaf.G, leaf.H
    assert g == 65536 - q
    assert h == q * (65536 - q)
    assert leaf.value == (65536 - q) / 65536 / (q * (65536 - q) / 65536**2) * (2 / 3)
    assert [twin.predict((float(i),)) for i in range(3)] == [0, 1, 2]


def test_squared_error_by_hand() -> None:
    twin = model([((0.0,), 1.0), ((1.0,), 6.0)], objective="squared_error", l2_regularization=0.0)
    assert (twin.origin, twin.exponent) == (3.5, 2)  # 2.5 needs a scale of 4
    assert twin.trees[0, 0].left.G / 2**22 == -2.5
    assert twin.predict((0.0,)) == 1.0
    assert twin.predict((7.0,)) == 6.0
    assert model([((0.0,), 2.0), ((1.0,), 6.0)], objective="squared_error").exponent == 1  # 2 is a power of two itself
    assert model([((0.0,), 2.0)], objective="squared_error").exponent == 1  # of one target, its own size


def test_a_split_that_is_not_the_best_any_more_is_replaced() -> None:
    rows = [((0.0, 0.0), 0.0)] * 4 + [((0.0, 1.0), 1.0)] + [((1.0, 1.0), 1.0)] * 5
    twin = model(rows, (False, False), max_leaf_nodes=2, robustness_tolerance=0.0)
    assert twin.trees[0, 0].feature == 1
    new = [Row(20 + i, (1.0, 0.0), 1.0) for i in range(3)]
    twin.update([], new)
    assert twin.trees[0, 0].feature == 0
    check_sums(twin)
    kept = model(rows, (False, False), max_leaf_nodes=2, robustness_tolerance=1.0)
    kept.update([], [Row(20 + i, (1.0, 0.0), 1.0) for i in range(3)])
    assert kept.trees[0, 0].feature == 1  # second of two is within the tolerance


def check_sums(twin: OnlineGBDT) -> None:
    """Stored sums are recomputed ones, every row lies where it routes to, and no tree is too large."""
    for place, root in twin.trees.items():
        assert len(root.leaves()) <= twin.options.max_leaf_nodes
        for v in root.preorder():
            assert twin.sums(twin.rows_below(v), place) == (v.G, v.H)
        for row in twin.rows.values():
            assert row.leaf[place] is twin.leaf_of(row.codes, place)
            assert row in row.leaf[place].rows
        assert all(math.isfinite(v.value) for v in root.leaves())

"""Receipts the slow way: one deletion at a time, each looked up in the model as it is just before."""

from __future__ import annotations

from typing import Any

import numpy as np


def leaf_of(model: dict[str, Any], x: np.ndarray, categorical: tuple[bool, ...]) -> tuple[int, int]:
    """Preorder place of the leaf of one row, and the nodes on the way to it, both ends included."""
    node, passed = 0, 1
    while model["feature"][node] >= 0:
        j, threshold = model["feature"][node], model["threshold"][node]
        left = x[j] == threshold if categorical[j] else x[j] <= threshold
        node = int((model["left"] if left else model["right"])[node])
        passed += 1
    return node, passed


def receipt_rows(tree: Any, ids: list[int], X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Forget ``ids`` one by one from ``tree``; example i is ``X[i]``, ``y[i]``."""
    categorical = tree._features().categorical
    before = tree.session_.model()
    rows = []
    for i in ids:
        model, then = tree.session_.model(), tree.session_.statistics()
        _, path = leaf_of(model, X[i], categorical)
        tree.forget([i], digests=False)
        now = tree.session_.statistics()
        row = {"id": i, "label": y[i], "leaf": leaf_of(before, X[i], categorical)[0], "path": path}
        row["rebuilt_rows"] = now["rebuilt_rows"] - then["rebuilt_rows"]
        row["rebuilds"] = now["rebuilds"] - then["rebuilds"]
        row["changed"] = not _same_shape(model, tree.session_.model())
        rows.append(row)
    return rows


def _same_shape(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return all(np.array_equal(before[name], after[name]) for name in ("feature", "threshold", "left", "right"))

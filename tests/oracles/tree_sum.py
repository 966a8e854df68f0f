"""Outputs of a sum of trees, in plain loops: what an exported model has to say."""

from __future__ import annotations

import math
from typing import Any


def leaf_of(trees: Any, tree: int, row: Any) -> int:
    """The leaf of a row of plain numbers: the dense features, then 0 or 1 for each sparse one."""
    node = int(trees.starts[tree])
    while trees.feature[node] >= 0:
        x = float(row[int(trees.feature[node])])
        members = trees.members[trees.first_member[node] : trees.first_member[node + 1]].tolist()
        left = x in members if members else x <= float(trees.threshold[node])
        left |= math.isnan(x) and bool(trees.missing_left[node])
        node = int(trees.left[node] if left else trees.right[node])
    return node


def scores(trees: Any, row: Any) -> list[float]:
    """Origin and leaves added up in order, divided once if they are a mean."""
    count = len(trees.starts) - 1
    out = [float(number) for number in trees.origin]
    for tree in range(count):
        leaf = leaf_of(trees, tree, row)
        out = [total + float(number) for total, number in zip(out, trees.value[leaf], strict=True)]
    return [total / count for total in out] if trees.mean else out

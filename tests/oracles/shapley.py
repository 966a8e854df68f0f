"""Shapley values of a tree by their definition: a sum over all sets of features, in plain recursion."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np


def value(tree: Any, outputs: Any, left: Callable[[int], bool], known: set[int], node: int = 0) -> Any:
    """The output if only the features in ``known`` are; ``left`` says where the row goes at a node."""
    feature = int(tree["feature"][node])
    if feature < 0:
        return outputs[node]
    sides = int(tree["left"][node]), int(tree["right"][node])
    if feature in known:
        return value(tree, outputs, left, known, sides[0] if left(node) else sides[1])
    sizes = [float(tree["counts"][side].sum()) for side in sides]
    shares = [size / sum(sizes) for size in sizes] if sum(sizes) else [0.5, 0.5]
    parts = [value(tree, outputs, left, known, side) for side in sides]
    return shares[0] * parts[0] + shares[1] * parts[1]


def shapley(tree: Any, outputs: Any, left: Callable[[int], bool], d: int) -> Any:
    """Values by feature, shape (d, outputs), and the output if nothing is known."""
    values = np.zeros((d, outputs.shape[1]))
    for j in range(d):
        others = [k for k in range(d) if k != j]
        for size in range(d):
            weight = factorial(size) * factorial(d - 1 - size) / factorial(d)
            for known in combinations(others, size):
                added = value(tree, outputs, left, {*known, j}) - value(tree, outputs, left, {*known})
                values[j] += weight * added
    return values, value(tree, outputs, left, set())

"""Feasibility of a tree, Shapley values, and sums of trees in plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np

from tests.oracles.fudyadt import Example, FudyadtTwin, Node, Split

# -- feasibility -----------------------------------------------------------------------------------------------------
#
# Definition 3.1 of the FuDyADT paper, as ``docs/explanation/guarantees.md`` amends it.
#
# By brute force, in exact fractions.


@dataclass
class Place:
    """One node on the live examples: S_v, and the gains of its own and of the best split there."""

    node: Node
    depth: int
    examples: list[Example]
    impurity: Fraction
    best: Fraction
    own: Fraction


def gain(twin: FudyadtTwin, examples: Sequence[Example], split: Split) -> Fraction:
    """Gini gain of a split, equation (1)."""
    left = [e for e in examples if twin.is_left(split, e.x)]
    right = [e for e in examples if not twin.is_left(split, e.x)]
    n = twin.size(examples)
    if n == 0:
        return Fraction(0)
    g, g_left, g_right = (twin.impurity(twin.counts(list(side))) for side in (examples, left, right))
    return g - (Fraction(twin.size(left)) / n * g_left + Fraction(twin.size(right)) / n * g_right)


def places(twin: FudyadtTwin) -> Iterator[Place]:
    """Every node, from the root in preorder."""

    def visit(node: Node, depth: int) -> Iterator[Place]:
        examples = list(twin.below(node))
        gains = (gain(twin, examples, split) for split in twin.candidates(examples))
        own = Fraction(0)
        if not node.is_leaf:
            own = gain(twin, examples, (node.feature, node.threshold, node.missing))
        yield Place(node, depth, examples, twin.impurity(twin.counts(examples)), max(gains, default=Fraction(0)), own)
        for child in (node.left, node.right):
            if child is not None:
                yield from visit(child, depth + 1)

    yield from visit(twin.root, 0)


def violations(twin: FudyadtTwin, alpha: float, beta: float) -> list[str]:
    """Where the definition does not hold; condition 3 (labels) holds by how the twin predicts."""
    found = []
    for place in places(twin):
        too_small = twin.size(place.examples) < twin.min_samples_split
        must_be_leaf = too_small or place.impurity == 0 or place.depth == twin.max_depth
        if place.node.is_leaf:
            if not must_be_leaf and place.impurity >= Fraction(alpha) and place.best > Fraction(beta):
                found.append(f"leaf at depth {place.depth} with g = {place.impurity}, best gain {place.best}")
        elif must_be_leaf:
            found.append(f"split at depth {place.depth} of {len(place.examples)} examples with g = {place.impurity}")
        elif place.best - place.own > Fraction(beta):
            found.append(f"split at depth {place.depth} lacks {place.best - place.own}")
    return found


# -- shapley ---------------------------------------------------------------------------------------------------------
#
# Shapley values of a tree by their definition: a sum over all sets of features, in plain recursion.


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


# -- tree sum --------------------------------------------------------------------------------------------------------
#
# Outputs of a sum of trees, in plain loops: what an exported model has to say.


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

"""Definition 3.1 of the FuDyADT paper, as ``docs/explanation/guarantees.md`` amends it.

By brute force, in exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.oracles.fudyadt import Example, FudyadtTwin, Node, Split


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

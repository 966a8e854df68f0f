"""What a tree counts where rows have weights: sums of weights in units of 2**-16, and masses made of them.

Up to 2**43 units, 1.3e8 rows of weight 1, counts are exact, and so is every product with a rate that decides something.
Products of two counts are rounded to float64: where weights are whole they are exact up to 9.4e7 rows, as the products
of numbers of rows are, and everything decided by them is what it is for repeated rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.weights import UNIT
from raydt.trees.exact_products import floor_product, rest_of_product
from raydt.trees.records import USED, total


@inner_kernel
def weighted_pairs(counts: Any, node: int) -> float:
    """Sum of c_k (n - c_k) of sums of weights, in units squared: ``pairs`` of repeated rows where weights are whole."""
    n = np.float64(total(counts, node))
    pairs = 0.0
    for k in range(counts.shape[1]):
        pairs += np.float64(counts[node, k]) * (n - np.float64(counts[node, k]))
    return pairs


@inner_kernel
def weighted_mass(counts: Any, node: int) -> float:
    """As :func:`gini_mass` of sums of weights, in rows of weight 1."""
    n = np.float64(total(counts, node))
    mass: float = weighted_pairs(counts, node) / n / np.float64(UNIT) if n > 0 else 0.0
    return mass


@inner_kernel
def is_pure_enough(counts: Any, node: int, rate: float) -> bool:
    """Whether ``weighted_pairs`` are at most ``rate`` n^2, n^2 being rounded to float64 and the product not at all."""
    pairs, n = weighted_pairs(counts, node), np.float64(total(counts, node))
    product = rate * (n * n)
    pure: bool = pairs < product or (pairs == product and rest_of_product(rate, n * n, product) >= 0.0)
    return pure


@inlined_kernel
def in_rows(size: int, rules: Any) -> float:
    """A size in rows of weight 1."""
    rows = np.float64(size)
    if rules.unit > 1:
        rows /= np.float64(UNIT)
    return rows


@inlined_kernel
def rows_at(tree: Any, node: int, rules: Any) -> int:
    """Number of rows below a node, whatever their weights."""
    rows: int = tree.statistics[node].n if rules.unit == 1 else tree.statistics[node].pairs
    return rows


@kernel
def weigh(tree: Any, rules: Any) -> None:
    """Count the rows of a tree, all of weight 1, in units of weights from now on; ``rules`` are those with weights."""
    for node in range(tree.reg[USED]):
        for k in range(tree.counts.shape[1]):
            tree.counts[node, k] *= UNIT
        tree.statistics[node].pairs = tree.statistics[node].n
        tree.statistics[node].n *= UNIT
        tree.statistics[node].s *= UNIT
        tree.statistics[node].c *= UNIT
        tree.statistics[node].gone *= UNIT
        tree.statistics[node].allowed *= UNIT
        if tree.nodes[node].feature < 0 or not rules.certified:
            tree.statistics[node].allowed = floor_product(rules.epsilon, tree.statistics[node].s)

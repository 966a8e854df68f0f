"""What a tree counts where rows have weights: sums of weights in units of 2**-16, and masses made of them.

``counts``, ``n``, ``s``, ``c``, ``allowed`` and ``gone`` of ``counted_tree`` are then sums of weights: an update of
weight w is one step that changes them by w. ``pairs``, which would not fit into 64 bits, is the number of rows instead,
and masses, in rows of weight 1, are made of the counts when they are needed.

Invariant: counts are exact, and so are their products with rates that decide something. Products of two counts are
rounded to float64. Where weights are whole, all products are exact up to 9.4e7 rows, as those of numbers of rows are:
everything is decided as for repeated rows that are taken in one step.
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
def is_pure(counts: Any, node: int, n: int) -> bool:
    """Whether one class has all n units of a node that is not empty."""
    k = 0
    while counts[node, k] == 0:
        k += 1
    pure: bool = counts[node, k] == n
    return pure


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
    rows: float = np.float64(size)
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

"""Scores of a split by one binary feature from integer counters, lower is better.

Of a node: n rows, c1 of class 1. Of a feature there: n1 rows in which it is 1, c11 of these of class 1; what is 0
follows by subtraction. The score is the conditional Gini index G(D | j), 2p(1 - p) summed over both sides by their
share of the rows, or the conditional entropy H(D | j) in nats (paper, section 3). Where examples have weights all four
are masses, in units (``raydt.trees.masses``): k rows and the mass of k rows have a score of the same bits.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.arrays.types import Floats
from raydt.examples.weights import UNIT


@inlined_kernel
def _xlogx(k: int, unit: int) -> float:
    """``unit`` x log x, of x = k / ``unit`` rows."""
    return k * math.log(k / unit) if k > 0 else 0.0


@inlined_kernel
def xlogx_of(table: Any, k: int) -> float:
    """k log k of k rows, from the table; without a table k is a mass, and the result is in units, too."""
    value: float = table[k] if len(table) > 0 else _xlogx(k, UNIT)
    return value


@kernel
def _fill(table: Any, begin: int) -> None:
    for k in range(begin, len(table)):
        table[k] = _xlogx(k, 1)


#: Entries of the shortest table.
_SHORTEST = 1024


def xlogx_table(rows: int, table: Floats | None = None) -> Floats:
    """k log k for k = 0, ..., ``rows`` or more, 0 for 0; ``table`` itself if that is long enough.

    Nobody writes to a table: the shortest is the same for all.
    """
    if table is None and rows < _SHORTEST:
        return _shortest()
    have = 0 if table is None else len(table)
    if table is not None and rows < have:
        return table
    longer = np.zeros(max(rows + 1, have + have // 2, _SHORTEST))
    if table is not None:
        longer[:have] = table
    _fill(longer, have)
    return longer


@functools.cache
def _shortest() -> Floats:
    return xlogx_table(0, np.empty(0))


def table_of(entropy: bool, rows: int, table: Floats) -> Floats:
    """Lookup table of scores at up to ``rows`` rows: :func:`xlogx_table`, of which Gini needs nothing."""
    return xlogx_table(rows, table) if entropy else table


@inlined_kernel
def of_side(entropy: bool, table: Any, size: int, ones: int) -> float:
    """Impurity of one side times its rows: half of it for Gini, nats for entropy."""
    if entropy:
        nats: float = xlogx_of(table, size) - xlogx_of(table, size - ones) - xlogx_of(table, ones)
        return nats
    rows = np.float64(size)
    return np.float64(size - ones) * np.float64(ones) / rows if rows > 0.0 else 0.0


@inlined_kernel
def score_of(entropy: bool, table: Any, n: int, c1: int, n1: int, c11: int) -> float:
    """Score of a feature at a node of n > 0 rows; with n1 = 0 it is the impurity of the node itself."""
    total = of_side(entropy, table, n1, c11) + of_side(entropy, table, n - n1, c1 - c11)
    score: float = total / n if entropy else 2.0 * total / n
    return score


@inlined_kernel
def _nats(size: int, ones: int, unit: int) -> float:
    return _xlogx(size, unit) - _xlogx(size - ones, unit) - _xlogx(ones, unit)


@kernel
def scores_of(entropy: bool, unit: int, n: Any, c1: Any, n1: Any, c11: Any, out: Any) -> None:
    """Many scores as :func:`score_of` has them, bit for bit, without a table; 0 where there are no rows.

    A row is ``unit`` units.
    """
    for i in range(len(n)):
        out[i] = 0.0
        if n[i] > 0 and entropy:
            out[i] = (_nats(n1[i], c11[i], unit) + _nats(n[i] - n1[i], c1[i] - c11[i], unit)) / n[i]
        elif n[i] > 0:
            out[i] = score_of(False, out, n[i], c1[i], n1[i], c11[i])


@kernel
def best_candidates(entropy: bool, table: Any, totals: Any, found: Any, chosen: Any) -> None:
    """Choose of each node the candidate of smallest (score, feature), or -1.

    ``totals`` has rows and rows of class 1 of each node, ``found``, shape (nodes, groups, 3 or more), of each group a
    feature (-1: none), n1 and c11.
    """
    for i in range(len(found)):
        n, c1 = totals[i, 0], totals[i, 1]
        best, least = -1, np.inf
        for g in range(found.shape[1]):
            j = found[i, g, 0]
            if j < 0:
                continue
            score = score_of(entropy, table, n, c1, found[i, g, 1], found[i, g, 2])
            if score < least or (score == least and j < found[i, best, 0]):
                best, least = g, score
        chosen[i] = best

"""Rows as bins, and the sums of derivatives by candidate segment: built for a node, or changed along a path.

A row is the list of its bins other than the default ones, so that what is done with it follows its length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.binning import code_of
from raydt.learners.gbdt.derivatives import ONE


@kernel
def encode(
    slots: Any, X: Any, lengths: Any, indices: Any, bins: Any, offsets: Any, columns: Any, counts: Any, entries: Any
) -> int:
    """Entries of rows, ascending in each, into ``entries``, their number into ``counts``; returns how many in all.

    ``X``, shape (n, dense features); the sparse features of row i are the next ``lengths[i]`` of ``indices``.
    ``columns``, shape (dense features, capacity), takes the codes of the dense features by slot.
    """
    dense = X.shape[1]
    used = at = 0
    for i in range(len(X)):
        before = used
        for j in range(dense):
            code = code_of(X[i, j], bins.kinds[j], bins.values, bins.ranks, bins.starts[j], bins.starts[j + 1])
            columns[j, slots[i]] = code
            if code != bins.default[j]:
                entries[used] = offsets[j] + code
                used += 1
        for _ in range(lengths[i]):
            entries[used] = offsets[dense + indices[at]] + 1
            used += 1
            at += 1
        counts[i] = used - before
    return used


@inner_kernel
def add_rows(order: Any, slots: Any, g: Any, squared: bool, codes: Any, segment: Any, sums: Any) -> None:
    """Add the rows at the places ``order`` of ``slots`` and ``g`` to ``sums``, shape (C + 1, 2)."""
    for i in range(len(order)):
        place = np.uint32(order[i])  # unsigned: no test for an index from the end
        G = np.int64(g[place])
        a = abs(G)
        H = np.int64(1) if squared else a * (ONE - a)
        slot = np.uint32(slots[place])
        for at in range(np.uint64(codes.begin[slot]), np.uint64(codes.end[slot])):
            s = segment[codes.values[at]]
            sums[s, 0] += G
            sums[s, 1] += H


@kernel
def change(
    trees: Any, slots: Any, leaf: Any, dG: Any, dH: Any, codes: Any, c: Any, per: int, forest: Any, sign: int,
    scratch: Any,
) -> None:  # fmt: skip
    """Change the sums of the nodes above some leaves: trees ``trees[0]`` up to before ``trees[1]``.

    ``leaf``, ``dG``, ``dH``, shape (trees, rows), say of each row in which leaf it is and by how much its derivatives
    change; ``per`` trees make an iteration. ``scratch`` has room for the longest row.
    """
    for t in range(trees[0], trees[1]):
        w = t - trees[0]
        m = t // per
        segment = c.segment[m if len(c.segment) > 1 else 0]
        for i in range(len(slots)):
            G, H = np.int64(dG[w, i]) * sign, np.int64(dH[w, i]) * sign
            node = forest.parent[t, leaf[w, i]]
            if node < 0 or (G == 0 and H == 0):
                continue
            begin = np.uint64(codes.begin[slots[i]])
            length = np.uint64(codes.end[slots[i]]) - begin
            for e in range(length):
                scratch[e] = segment[codes.values[begin + e]]
            while node >= 0:
                sums = forest.sums[t, forest.place[t, node]]
                for e in range(length):
                    sums[scratch[e], 0] += G
                    sums[scratch[e], 1] += H
                node = forest.parent[t, node]

"""Histograms as sums of rows, by their cells: bin by bin, or by places looked up once for several trees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.arrays.simd import add_pair, fetch_row
from raydt.arrays.types import AnyArray, Int32s, Ints
from raydt.batches.cells import Cells
from raydt.examples.weights import UNIT
from raydt.learners.gbdt.derivatives import ONE, weighted

#: How many rows before it is added a row is fetched, and its list when it is known where that lies (``add_cells``).
_FETCHED_AHEAD, _LIST_AHEAD = 16, 8


@inlined_kernel
def add_row(slot: Any, G: int, H: int, cells: Any, segment: Any, sums: Any) -> None:
    """Add the row in a slot to a histogram, shape (S + 1, 2)."""
    matrix, first_bin = cells.matrix, cells.first_bin
    for w in range(np.uint32(len(first_bin))):
        add_pair(sums, segment[np.uint64(first_bin[w]) + np.uint64(matrix[slot, w])], G, H)
    if len(cells.values):
        for e in range(np.uint64(cells.begin[slot]), np.uint64(cells.end[slot])):
            add_pair(sums, segment[cells.values[e]], G, H)


@inner_kernel
def add_cells(slots: Any, g: Any, weight: Any, squared: bool, cells: Any, segment: Any, sums: Any) -> None:
    """Add rows (their slots and first derivatives, and weights by slot) to a histogram, shape (S + 1, 2)."""
    last, lists, has_weights = len(slots) - 1, len(cells.values) > 0, len(weight) > 0
    for i in range(len(slots)):
        slot, G = np.uint32(slots[i]), np.int64(g[i])  # unsigned: no test for an index from the end
        ahead = np.uint32(slots[min(i + _FETCHED_AHEAD, last)])  # rows of a small leaf are far apart
        fetch_row(cells.matrix, ahead)
        if lists:
            fetch_row(cells.begin, ahead)
            fetch_row(cells.end, ahead)
            fetch_row(cells.values, cells.begin[np.uint32(slots[min(i + _LIST_AHEAD, last)])])
        a = abs(G)
        H = np.int64(UNIT) if squared else a * (ONE - a)
        if has_weights:
            G, H = weighted(G, np.int64(weight[slot]), squared)
        add_row(slot, G, H, cells, segment, sums)


class Places(NamedTuple):
    """Places at which rows add in one iteration, whichever tree and node: looked up once.

    ``segments[ends[slot, 0]:ends[slot, 1]]`` are the stored segments of the row in a slot; uint16 where that suffices.
    """

    ends: Ints
    segments: AnyArray


def no_places(segments: int) -> Places:
    """Return those of no rows, over so many stored segments."""
    return Places(np.empty((0, 2), dtype=np.int64), np.empty(0, np.uint16 if segments < 1 << 16 else np.uint32))


def room_for_places(cells: Cells, slots: Int32s, segments: int) -> Places:
    """Make room for the places of some rows, over so many stored segments."""
    listed = int((cells.end[slots] - cells.begin[slots]).sum()) if len(cells.values) else 0
    entries = len(slots) * len(cells.first_bin) + listed
    none = no_places(segments)
    ends = np.zeros((int(slots.max(initial=-1)) + 1, 2), dtype=np.int64)
    return Places(ends, np.empty(entries + 1, dtype=none.segments.dtype))  # one is written before it is known to count


@inner_kernel
def find_places(slots: Any, cells: Any, segment: Any, nowhere: int, into: Any) -> None:
    """Look up where some rows add. What is not stored (``nowhere``) is left out."""
    matrix, first_bin, ends, segments = cells.matrix, cells.first_bin, into.ends, into.segments
    n, none, lists = np.uint64(0), np.uint64(nowhere), len(cells.values) > 0
    for i in range(len(slots)):
        slot = np.uint32(slots[i])
        ends[slot, 0] = n
        for w in range(np.uint32(len(first_bin))):
            segments[n] = segment[np.uint64(first_bin[w]) + np.uint64(matrix[slot, w])]
            n += np.uint64(1)
        if lists:
            for e in range(np.uint64(cells.begin[slot]), np.uint64(cells.end[slot])):
                s = np.uint64(segment[cells.values[e]])
                segments[n] = s
                n += np.uint64(s != none)
        ends[slot, 1] = n


@inner_kernel
def add_places(slots: Any, g: Any, weight: Any, squared: bool, places: Any, sums: Any) -> None:
    """Add rows whose places are known, as :func:`add_cells` does."""
    ends, segments, last, has_weights = places.ends, places.segments, len(slots) - 1, len(weight) > 0
    for i in range(len(slots)):
        slot, G = np.uint32(slots[i]), np.int64(g[i])
        fetch_row(ends, np.uint32(slots[min(i + _FETCHED_AHEAD, last)]))
        fetch_row(segments, ends[np.uint32(slots[min(i + _LIST_AHEAD, last)]), 0])
        a = abs(G)
        H = np.int64(UNIT) if squared else a * (ONE - a)
        if has_weights:
            G, H = weighted(G, np.int64(weight[slot]), squared)
        for e in range(np.uint64(ends[slot, 0]), np.uint64(ends[slot, 1])):
            add_pair(sums, segments[e], G, H)


@inner_kernel
def segments_of(slot: Any, cells: Any, segment: Any, out: Any) -> int:
    """List the segments to which the row in a slot adds; return how many."""
    matrix, first_bin = cells.matrix, cells.first_bin
    n = np.uint32(len(first_bin))
    for w in range(n):
        out[w] = segment[np.uint64(first_bin[w]) + np.uint64(matrix[slot, w])]
    count = np.int64(n)
    if len(cells.values):
        for e in range(np.uint64(cells.begin[slot]), np.uint64(cells.end[slot])):
            out[count] = segment[cells.values[e]]
            count += 1
    return int(count)

"""Split candidates (paper, section 3.3), and which sums have to be stored for them.

Each iteration draws ceil(alpha B) cuts of each feature, the same for all its trees. It divides the cuts of a feature
into as many runs of neighbours, of nearly equal length, and draws one cut of each run. So no wide range of values is
without a candidate.

The sum left of a cut is a prefix of the sums between neighbouring cuts, its *segments*: a row adds to one segment of
each feature. Of a feature with c cuts only c segments are stored: that of the default bin is the node's total less the
others, exactly, since sums are integers. So a row touches only the features in which it is not in the default bin. Of a
*whole* feature, where rows are seldom in one bin, all c + 1 segments are stored: every row adds to one of them, and no
total is needed.

Of a categorical feature the segments are the drawn categories. If the default one is drawn, its segment holds
what falls into no drawn category.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Bools, Int32s, Ints, add_pair, bits_at, fetch_row, stream_key
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.batches.binning import Bins, Cells
from raydt.examples.updates import BITS, CATEGORICAL, UNIT, Weights, sum_of
from raydt.learners.gbdt.derivatives import ONE, weighted


class Candidates(NamedTuple):
    """Candidates of d features in all iterations, as kernels take them."""

    #: Shape (d + 1,): where the candidates of each feature begin, among C of an iteration.
    first: Ints
    categorical: npt.NDArray[np.uint8]  #: Shape (d,).
    #: Shape (iterations or 1, C): cuts of each feature, ascending. One row stands for all iterations where every cut is
    #: drawn in each.
    cuts: Int32s
    #: Shape (iterations or 1, d): segment of the default bin; -1 for a categorical feature whose default is not drawn.
    default: Int32s
    #: Shape (iterations or 1, bins): where a row in this bin adds, among S stored segments; S for nowhere.
    segment: npt.NDArray[np.uint32]
    offsets: Ints  #: Shape (d + 1,): where the bins of each feature begin.
    whole: npt.NDArray[np.uint8]  #: Shape (d,): whether all segments of a feature are stored.
    stored: Ints  #: Shape (d + 1,): where the stored segments of each feature begin, among S.


@inner_kernel
def row_of(candidates: Any, iteration: int) -> int:
    """Return the row of ``cuts``, ``default`` and ``segment`` that holds an iteration."""
    return iteration if len(candidates.cuts) > 1 else 0


def most_candidates(alpha: float, max_bins: int) -> int:
    """Return ceil(alpha B): candidates of a feature, at most."""
    return math.ceil(alpha * max_bins)


def tolerance(sigma: float, alpha: float, max_bins: int, candidates: int) -> int:
    """Return the rank down to which a split stays (paper, section 3.4), of ``candidates`` of a node in all."""
    return max(1, math.ceil(sigma * min(most_candidates(alpha, max_bins), candidates)))


def draw(
    bins: Bins, columns: Ints, all_cuts: Ints, most: int, seed: int, iterations: int, whole: Bools | None = None
) -> Candidates:
    """Draw the candidates of some features, ``columns`` among all, at most ``most`` of each. O(iterations x cuts).

    ``bins`` are those of these features, ``all_cuts`` the cuts of all: a cut is drawn by its number among all, whoever
    owns its feature. Of the numeric features ``whole`` all segments are stored; of none by default.
    """
    cuts = bins.cuts()
    count = np.minimum(cuts, most)
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(bins.counts())]).astype(np.int64)
    number = np.cumsum(all_cuts)[columns] - all_cuts[columns]
    sampled = count < cuts
    rows = iterations if sampled.any() else 1
    every = np.arange(first[-1]) - np.repeat(first[:-1], count)
    chosen = np.tile(every.astype(np.int32), (rows, 1))
    _choose(stream_key(seed, "gbdt candidates"), cuts, number, first, np.flatnonzero(sampled), chosen)
    categorical = bins.kinds == CATEGORICAL
    whole = np.zeros(len(bins), dtype=np.bool_) if whole is None else whole
    stored = np.concatenate([[0], np.cumsum(count + whole)]).astype(np.int64)
    default = np.empty((rows, len(bins)), dtype=np.int32)
    segment = np.empty((rows, offsets[-1]), dtype=np.uint32)
    found = Candidates(
        *(first, categorical.astype(np.uint8), chosen, default, segment),
        *(offsets, whole.astype(np.uint8), stored),
    )
    _fill_segments(found, bins.default)
    return found


@kernel
def _choose(key: Any, cuts: Any, number: Any, first: Any, sampled: Any, chosen: Any) -> None:
    """Draw the candidates of some features in all iterations. O(iterations x cuts)."""
    for m in range(len(chosen)):
        for j in sampled:
            begin, count = first[j], first[j + 1] - first[j]
            for i in range(count):
                cut, end = i * cuts[j] // count, (i + 1) * cuts[j] // count
                drawn, least = cut, bits_at(key, (m << 40) + number[j] + cut)
                for other in range(cut + 1, end):
                    mixed = bits_at(key, (m << 40) + number[j] + other)
                    if mixed < least:  # the random bits of two cuts are never equal
                        drawn, least = other, mixed
                chosen[m, begin + i] = drawn


@kernel
def _fill_segments(candidates: Any, default_bin: Any) -> None:
    """Find the segment of the default bin of each feature, and where each bin adds. O(iterations x (bins + C))."""
    first, stored, offsets = candidates.first, candidates.stored, candidates.offsets
    nowhere = stored[-1]
    for m in range(len(candidates.cuts)):
        cuts, segment = candidates.cuts[m], candidates.segment[m]
        for j in range(len(candidates.categorical)):
            categorical, end, base = candidates.categorical[j], first[j + 1], stored[j]
            i = first[j]
            while i < end and cuts[i] < default_bin[j]:
                i += 1
            drawn = i < end and cuts[i] == default_bin[j]
            d = -1 if categorical and not drawn else i - first[j]
            candidates.default[m, j] = d
            i = first[j]
            for code in range(offsets[j + 1] - offsets[j]):
                while i < end and cuts[i] < code:
                    i += 1
                # Cuts below a code are the number of its segment; of a drawn category, its own.
                below = i - first[j]
                if candidates.whole[j]:
                    s = base + below
                elif code == default_bin[j]:
                    s = nowhere
                elif categorical:
                    drawn = i < end and cuts[i] == code
                    s = base + below if drawn else nowhere if d < 0 else base + d
                else:
                    s = nowhere if below == d else base + below - (below > d)
                segment[offsets[j] + code] = s


# Histograms as sums of rows, by their cells: bin by bin, or by places looked up once for several trees.

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


# Labels of many rows as a small summary: summaries of parts of the rows give what the labels of all would, exactly.
#
# Of classes it is the number of rows of each. Of numbers it is their count, the least, the largest, and numbers that
# add up to their sum exactly; of numbers with weights the sum of these, in rows, and the sum of the products.

Labels = AnyArray


class Targets(NamedTuple):
    """Labels of rows, and what each counts, by slot; no weights where all count 1."""

    y: Labels
    weight: Weights


#: int64 by class, or float64: count, least, largest, parts of the sum.
Summary = AnyArray


def summary_of(y: Labels, weights: Weights | None = None) -> Summary:
    """Return the summary of some labels; classes have no weights."""
    if y.dtype.kind != "f":
        return np.bincount(y, minlength=1)
    terms = y if weights is None else _products(y, weights)
    count = sum_of(weights, len(y)) / UNIT
    # 0 for -0, so that it does not matter which comes first.
    return np.array([count, y.min(initial=np.inf) + 0.0, y.max(initial=-np.inf) + 0.0, *exact_parts(terms.tolist())])


def summaries_before(store: Any, seqs: Any, deleted: Any, since: Any) -> list[Summary]:
    """Return summaries of the labels live before updates ``seqs``; slots ``deleted`` were emptied at ``since``."""
    after, y, born, found = store.slots(), store.y, store.born, []
    for seq in seqs.tolist():
        slots = np.concatenate([after, deleted[since > seq]])
        found.append(summary_of(y[slots[born[slots] < seq]]))
    return found


def joined_summary(parts: Sequence[Summary]) -> Summary:
    """Return the summary of all labels, from those of parts of them."""
    if parts[0].dtype.kind != "f":
        counts = np.zeros(max(map(len, parts)), dtype=np.int64)
        for part in parts:
            counts[: len(part)] += part
        return counts
    count, least, largest = (np.array([part[i] for part in parts]) for i in range(3))
    return np.array([count.sum(), least.min(), largest.max(), *np.concatenate([part[3:] for part in parts])])


def constant_of(summary: Summary) -> float:
    """Return the most frequent class (of equals the smallest, 0 of none), or the mean of numbers."""
    if summary.dtype.kind == "f":
        return math.fsum(summary[3:]) / (float(summary[0]) or 1.0)
    return int(summary.argmax())


def classes_in(summary: Summary) -> int:
    """Return the number of classes, those between that no row has included."""
    return 1 + int(np.flatnonzero(summary).max(initial=-1))


def scale_of(summary: Summary) -> tuple[float, int]:
    """Return origin (mean) and exponent e: 2**e is at least the largest distance from it (of equals, from 0)."""
    least, largest = summary[1:3].tolist()
    if least >= largest:  # the least of no numbers is inf
        origin = least if least == largest else 0.0
        farthest = abs(origin)
    else:
        origin = constant_of(summary)
        farthest = max(largest - origin, origin - least)
    mantissa, exponent = math.frexp(farthest)
    return origin, exponent - (mantissa == 0.5)


def _products(y: Labels, weights: Weights) -> Labels:
    """Return numbers that add up to the sum of all products exactly: each is one of parts of a number and a weight."""
    mantissa, exponent = np.frexp(y)
    whole, units = np.ldexp(mantissa, 53).astype(np.int64), weights.astype(np.int64)
    products = [
        np.ldexp((part * (units >> shift & UNIT - 1)).astype(np.float64), exponent - 53 + up + shift - BITS)
        for part, up in ((whole >> 27, 27), (whole & (1 << 27) - 1, 0))
        for shift in (0, BITS)
    ]
    return np.concatenate(products)


def exact_parts(values: Sequence[float]) -> list[float]:
    """Return few numbers that have the same exact sum as many; the first is the sum, rounded. O(values) for each."""
    parts: list[float] = []
    while rest := math.fsum(itertools.chain(values, (-part for part in parts))):
        parts.append(rest)
        if not math.isfinite(rest):
            break
    return parts

"""The unit of numeric labels: a power of two that follows the live labels, wherever these change.

With 2^e above the largest absolute label, labels are rounded to 20 bits below 2^e, which leaves room for sums of
squares in one word. That is too coarse for labels with an offset, or beside an outlier: if, of the labels that 20 bits
round, more than half lie within two neighbouring cells of 2^-10 of the range, all labels are rounded to 40 bits. A row
counts its weight, and one of weight 0 is not there.

Invariant: the scale is a function of the live labels and their weights, so that it does not depend on the updates that
led to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Int32s, Ints, Slots
from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.examples.store import ExampleStore, Weighting
from raydt.examples.updates import BITS, UNIT, Weights, filled
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE
from raydt.trees.records import difference_words, rounded_words
from raydt.trees.state_schema import UNIT_ARRAY

#: With so many examples in a tree, sums and differences fit into 64 bits.
MOST_NUMBERS = 2**21
#: Trees count labels in units of 2**(exponent - 40), whatever they are rounded to.
LABEL_BITS = 40
#: Bits that labels are rounded to, unless they are crowded; and of the cells that tell.
COARSE_BITS, CELL_BITS = 20, 10
#: Exponents of the largest label, as ``frexp`` has them, are not taken to be smaller.
LEAST_EXPONENT = -900
#: Exponents of float64 labels: from ``LEAST_EXPONENT`` to 1024, with room to spare.
_EXPONENTS = 2200


class Scale(NamedTuple):
    """The units that labels are counted in.

    ``exponent``: all live labels are below 2 to this power in absolute value. ``bits`` below it they are rounded to.
    """

    exponent: int
    bits: int


#: Of no labels.
NO_LABELS = Scale(LEAST_EXPONENT, COARSE_BITS)


def in_units(y: Floats, scale: Scale) -> Ints:
    """Labels in units, rounded to the nearest; one beyond the exponent, which will change it, is cut off."""
    most = 2.0 ** (scale.bits + 1)
    with np.errstate(over="ignore"):
        near = np.clip(np.ldexp(y, scale.bits - scale.exponent), -most, most)
    return np.floor(near + 0.5).astype(np.int64) << (LABEL_BITS - scale.bits)


def _keys(y: Floats) -> list[tuple[int, int, int]]:
    """Of each label its exponent, that of its last bit, and its first bits with its sign: all that the scale needs."""
    fraction, exponent = np.frexp(y)
    whole = np.ldexp(np.abs(fraction), 53).astype(np.int64)
    last = exponent - 53 + np.frexp((whole & -whole).astype(np.float64))[1] - 1
    first = np.ldexp(fraction, CELL_BITS + 1).astype(np.int64)
    exponent = np.where(y == 0.0, LEAST_EXPONENT, np.maximum(exponent, LEAST_EXPONENT))
    return list(zip(exponent.tolist(), last.tolist(), first.tolist(), strict=True))


class LabelScale:
    """Counts the live labels by exponent, and by cell those that 20 bits round."""

    def __init__(self) -> None:
        self.restore(np.empty(0))

    def restore(self, y: Floats, weights: Weights | None = None) -> None:
        """Begin with these live labels, whose weights are in units; None: all are 1."""
        self._exponents: Ints = np.zeros(_EXPONENTS, dtype=np.int64)
        self._labels: dict[tuple[int, int, int], int] = {}
        for key, weight in zip(_keys(y), filled(weights, len(y)).tolist(), strict=True):
            if weight:
                self._count(key, weight)
        self._count_cells(self._largest())
        self.scale = Scale(self._largest(), self._bits())  #: Of the live labels.

    def follow(self, kind: Int32s, y: Floats, weights: Weights | None) -> tuple[Ints, Ints]:
        """Take the steps of a batch, of these kinds, labels and weights; all have shape (n,).

        Returns the steps after which the scale is another one, with its exponent and bits, shape (c, 3), and the
        exponent before each step, shape (n,). O(steps), and O(different labels) where the exponent changes.
        """
        before = np.full(len(kind), self.scale.exponent)
        changes, weighed = [], filled(weights, len(kind)).tolist()
        keys = _keys(np.where(kind == LOOK, 0.0, y))
        for i, (what, key, weight) in enumerate(zip(kind.tolist(), keys, weighed, strict=True)):
            before[i] = self.scale.exponent
            if what == LOOK or not weight:
                continue
            by = weight if what == ADD else -weight
            self._count(key, by)
            exponent = self.scale.exponent
            if key[0] > exponent or (what == REMOVE and not self._exponents[exponent - LEAST_EXPONENT]):
                exponent = self._largest()
                self._count_cells(exponent)
            else:
                self._count_in_cell(key, exponent, by)
            now = Scale(exponent, self._bits())
            if now != self.scale:
                self.scale = now
                changes.append((i, *now))
        return np.array(changes, dtype=np.int64).reshape(-1, 3), before

    def _count(self, key: tuple[int, int, int], by: int) -> None:
        self._exponents[key[0] - LEAST_EXPONENT] += by
        left = self._labels.get(key, 0) + by
        if left:
            self._labels[key] = left
        else:
            del self._labels[key]

    def _count_cells(self, exponent: int) -> None:
        """Count all live labels by cell below an exponent."""
        self._cells: dict[int, int] = {}
        self._rounded = self._most = self._crowd = 0
        for key, count in self._labels.items():
            self._count_in_cell(key, exponent, count)

    def _count_in_cell(self, key: tuple[int, int, int], exponent: int, by: int) -> None:
        """Count a label that 20 bits round in or out of its cell, which is a whole number towards 0."""
        own, last, first = key
        if first and last < exponent - COARSE_BITS:
            cell = abs(first) >> min(exponent - own + 1, 63)
            cell = cell if first > 0 else -cell
            self._rounded += by
            self._cells[cell] = self._cells.get(cell, 0) + by
            for pair in (cell - 1, cell):
                if by > 0 and self._pair(pair) > self._most:
                    self._most, self._crowd = self._pair(pair), pair

    def _pair(self, cell: int) -> int:
        """Labels in a cell and the next one."""
        return self._cells.get(cell, 0) + self._cells.get(cell + 1, 0)

    def _bits(self) -> int:
        """40 if two neighbouring cells have more than half of the labels that 20 bits round. O(cells), mostly O(1)."""
        half = self._rounded / 2
        if self._most > half >= self._pair(self._crowd):  # labels of the most crowded cells were deleted
            self._cells = {cell: n for cell, n in self._cells.items() if n}
            pairs = ((self._pair(cell + by), cell + by) for cell in self._cells for by in (-1, 0))
            self._most, self._crowd = max(pairs, default=(0, 0))
        return LABEL_BITS if self._most > half else COARSE_BITS

    def _largest(self) -> int:
        live = np.flatnonzero(self._exponents)
        return int(live[-1]) + LEAST_EXPONENT if len(live) else LEAST_EXPONENT


# Sums of numeric labels of rows that have weights: what nodes and buckets have in place of n and the sum of labels.
#
# A sum of w y, of up to 2**77, does not fit into 64 bits. So a label y in units is ``upper 2**20 + lower`` with lower
# below 2**20, and a node has W, A and B, the sums of w, of w upper and of w lower. They commute and undo as any sums
# do. Labels that are rounded to 20 bits have lower = 0, and A is the sum of w y in units of 2**20.
#
# ``totals`` of a node have W, A, B; then, of rows that count 1 each, the squares of labels in two words and their sum:
# whether all labels are equal does not depend on weights, and these are what is left once all weights are 1 again.
# A bucket has W, A, B only.
#
# Invariant: up to ``MOST_WEIGHT`` units all sums are exact, and a difference that decides is rounded once. If weights
# are whole numbers it is 2**32 times the one of repeated rows, to the last bit.

#: Largest sum of weights in units: that of as many rows of weight 1 as a forest may have.
MOST_WEIGHT = MOST_NUMBERS << BITS
#: Columns of ``totals`` without weights (n, sum, squares in two words) and with them; the latter's first are those of a
#: bucket and of a model.
PLAIN, WEIGHTED, SUMS = 4, 6, 3
_LOWER = (1 << COARSE_BITS) - 1


@inlined_kernel
def add_weighted(sums: Any, y: int, by: int) -> None:
    """Add a label to W, A and B; a negative weight takes it away."""
    sums[0] += by
    sums[1] += by * (y >> COARSE_BITS)
    sums[2] += by * (y & _LOWER)


@inlined_kernel
def floor_mean(sums: Any) -> int:
    """``floor(sum of w y / W)`` in units, of a node that is not empty."""
    n, upper = sums[0], sums[1]
    whole = upper // n
    mean: int = (whole << COARSE_BITS) + (((upper - whole * n) << COARSE_BITS) + sums[2]) // n
    return mean


def label_sums(totals: AnyArray) -> Floats:
    """Sums of labels in units, shape (nodes,), of totals with weights or without."""
    sums: Floats = totals[:, 1].astype(np.float64)
    return sums if totals.shape[1] == PLAIN else sums * 2.0**COARSE_BITS + totals[:, 2]


@inner_kernel
def weighted_lack(left: Any, totals: Any) -> float:
    """``W times the sum on the left - W on the left times the sum``: an integer below 2**113, rounded once."""
    n, n_left = totals[0], left[0]
    upper, upper_rest = difference_words(left[1], n, n_left, totals[1])
    lower, lower_rest = difference_words(left[2], n, n_left, totals[2])
    # upper 2**68 + upper_rest 2**20 + lower 2**48 + lower_rest, in units of 2**60 and the rest
    rest = ((upper_rest & 0xFFFFFFFFFF) << 20) + ((lower & 0xFFF) << 48) + lower_rest
    high = (upper << 8) + (upper_rest >> 40) + (lower >> 12) + (rest >> 60)
    lack: float = rounded_words(high, rest & 0xFFFFFFFFFFFFFFF)
    return lack


def canonical_sums(totals: Ints) -> Ints:
    """W, A and B with B from 0 to below 2**20, shape (nodes, 3): the same for equal sums."""
    n, upper, lower = totals[:, :SUMS].T
    return np.stack([n, upper + (lower >> COARSE_BITS), lower & _LOWER], axis=1)


# What the live examples of a forest count, as its coordinator tells the shards.
#
# Shards count rows until one has another weight than 1, and units of weights from then on. The model has units only as
# long as a live example has another weight, or balanced classes have some: it is a function of the live examples.


class RowWeights:
    """Weights of the examples in a store, times those of their classes."""

    def __init__(self, store: ExampleStore, is_balanced: bool, largest: int) -> None:
        self.weighting, self._store = Weighting(is_balanced, largest), store
        self.sent = False  #: The shards count weights.

    @property
    def counted(self) -> bool:
        """True if a live example counts something else than 1, or may do so."""
        return self._store.uneven > 0 or self.weighting.factors is not None

    @property
    def per_row(self) -> int:
        """Units of the shards for one of the model."""
        return UNIT if self.sent and not self.counted else 1

    def of(self, slots: Slots) -> Weights | None:
        """Return what to send of the examples in some slots, in units; None where shards count rows."""
        self.sent = self.sent or self.counted
        if not self.sent:
            return None
        return filled(self.weighting.of_slots(self._store, slots), len(slots))

    def balance(self, seq: int) -> tuple[Slots, Weights] | None:
        """Find weights of classes by the live examples, before update ``seq``; what all count then, with their slots.

        None if they are known, or none are wanted.
        """
        if not self.weighting.is_open:
            return None
        slots = self._store.slots()
        self.weighting.balance(self._store, slots, seq)
        weights = self.of(slots)
        assert weights is not None
        return slots, weights

    @property
    def unit(self) -> dict[str, AnyArray]:
        """The array of a model that says so if it counts weights."""
        return {UNIT_ARRAY.name: np.array([UNIT])} if self.counted else {}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Continue from a state, whose rows the store has; the shards are told anew."""
        self.weighting.restore(state, self._store)
        self.sent = False

"""Bins of features for audits, derived from the raw values of all rows, wherever these are.

The rows may be divided among parts, each of which sorts its own values. Bins follow from the answers to a few kinds of
questions, which parts answer for their values and which are merged: so a column of all rows is in no place. An
algorithm is a generator that yields questions; those of several features are asked together.

Nothing of the fast path is imported. Source: Lin et al. (ICML 2025), appendix A, whose loop makes one bin too many as
printed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from raydt.arrays.types import Floats, Ints
from raydt.audits.recorded_bins import FeatureBins

#: Name of a method of :class:`SortedValues`, and its arguments.
Question = tuple[Any, ...]
Steps = Generator[Question, Any, Any]

#: Width the bins of Algorithm 4 begin with here; doublings that make it infinite, and halvings that make it 0.
FIRST_WIDTH = 1e-10
FOREVER, NOTHING = 1058, -1042
#: Widths that are tried in the same rounds of questions.
_TRIED = 15
#: Bits of a float64 but the sign.
_SIZE = np.int64(2**63 - 1)


class SortedValues:
    """The values of a feature in some rows, sorted; ``-1`` of a category and NaN are not known.

    Construction takes O(rows log rows), an answer for k values O(k log rows); ``counts`` and ``distinct`` O(rows).
    """

    def __init__(self, x: Floats, categorical: bool) -> None:
        self._n, known = len(x), np.sort(x[x >= 0] if categorical else x[~np.isnan(x)])
        self._following = np.append(known, math.inf)  # of each place the value there, and of the end inf
        self._known = self._following[:-1]

    def answer(self, question: Question) -> Any:
        """Answer a question."""
        return getattr(self, question[0])(*question[1:])

    def sizes(self) -> Ints:
        """Return the number of values and that of known values, shape (2,)."""
        return np.array([self._n, len(self._known)])

    def counts(self) -> tuple[Floats, Ints]:
        """Return all known values, once, and how often each is there."""
        return np.unique(self._known, return_counts=True)

    def distinct(self, most: int) -> Floats | None:
        """Return all known values, once; None of more than ``most``."""
        values = np.unique(self._known)
        return values if len(values) <= most else None

    def up_to(self, values: Floats) -> Ints:
        """Return the number of known values that are at most each of ``values``, of the same shape."""
        return np.searchsorted(self._known, values, side="right").astype(np.int64)

    def above(self, values: Floats) -> Floats:
        """Return the least known value above each of some; inf where there is none."""
        return self._following[np.searchsorted(self._known, values, side="right")]

    def below(self, values: Floats) -> Floats:
        """Return the greatest known value below each of some; -inf where there is none."""
        place = np.searchsorted(self._known, values)
        return np.where(place > 0, self._following[place - 1], -math.inf)

    def beyond(self, firsts: Floats, widths: Floats, unit: float) -> Floats:
        """Return the least known value that is more than a width, in ``unit``, above a first one; inf: none."""
        found = np.empty(len(firsts))
        for i, (first, width) in enumerate(zip((firsts / unit).tolist(), widths.tolist(), strict=True)):
            begin = int(np.searchsorted(self._known, firsts[i]))
            found[i] = self._following[bisect_right(self._known, width, lo=begin, key=lambda v: v / unit - first)]
        return found


def _counts(answers: Sequence[tuple[Floats, Ints]]) -> tuple[Floats, Ints]:
    values, place = np.unique(np.concatenate([values for values, _ in answers]), return_inverse=True)
    return values, np.bincount(place, np.concatenate([counts for _, counts in answers]), len(values)).astype(np.int64)


def _distinct(answers: Sequence[Floats | None]) -> Floats | None:
    there = [values for values in answers if values is not None]
    return np.unique(np.concatenate(there)) if len(there) == len(answers) else None


#: How the answers of parts become that of all.
_MERGED: dict[str, Callable[[Sequence[Any]], Any]] = {
    "sizes": sum,
    "counts": _counts,
    "distinct": _distinct,
    "up_to": sum,
    "above": lambda answers: np.min(answers, axis=0),
    "below": lambda answers: np.max(answers, axis=0),
    "beyond": lambda answers: np.min(answers, axis=0),
}


def derived_together(
    kinds: Mapping[int, bool],
    max_bins: int,
    binning: str,
    ask: Callable[[dict[int, Question]], Sequence[Mapping[int, Any]]],
) -> dict[int, FeatureBins]:
    """Derive the bins of some features, given by number with whether each is categorical.

    ``ask`` hands questions, by feature, to all parts, and returns what each has answered.
    """
    steps = {j: _derived(categorical, max_bins, binning) for j, categorical in kinds.items()}
    questions, found = {j: next(of) for j, of in steps.items()}, dict[int, FeatureBins]()
    while questions:
        answers, following = ask(questions), dict[int, Question]()
        for j, question in questions.items():
            try:
                following[j] = steps[j].send(_MERGED[question[0]]([part[j] for part in answers]))
            except StopIteration as end:
                found[j] = end.value
        questions = following
    return found


def derived_bins(x: Floats, categorical: bool, max_bins: int, binning: str) -> FeatureBins:
    """Bins of one feature from its values in the warm-up. O(n log n)."""
    values = SortedValues(x, categorical)
    return derived_together({0: categorical}, max_bins, binning, lambda asked: [{0: values.answer(asked[0])}])[0]


def _derived(categorical: bool, max_bins: int, binning: str) -> Steps:
    """Derive the bins of one feature."""
    n, known = (yield ("sizes",)).tolist()
    if categorical:
        categories, counts = yield ("counts",)
        kept = np.lexsort((categories, -counts))[: max_bins - 1]
        return FeatureBins(True, categories[kept], bool(counts[kept].sum() < n))
    seen = known < n
    most = max(1, max_bins - seen)
    values = yield ("distinct", most)
    if values is not None and len(values) <= most:
        low, high = values[:-1], values[1:]
    elif binning == "quantile":
        last = yield from _of_ranks(np.array([-(-i * known // most) for i in range(1, most + 1)]))
        low = np.unique(last)[:-1]
        high = yield ("above", low)
    else:
        high = yield from _starts_of_doubled(most)
        low = yield ("below", high)
    middle = low / 2 + high / 2
    return FeatureBins(False, np.where(middle < high, np.maximum(middle, low), low), seen)


def _of_ranks(ranks: Ints) -> Steps:
    """Find the known values of some ranks, from 1, among all in order; intervals of bits are halved."""
    low, high = (np.full(len(ranks), _bits(np.array([edge]))[0]) for edge in (-math.inf, math.inf))
    while (low + 1 < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        enough = (yield ("up_to", _number(middle))) >= ranks
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return _number(high)


def _bits(numbers: Floats) -> Ints:
    """Return the numbers as integers of the same order."""
    bits = numbers.view(np.int64)
    return np.where(bits < 0, bits ^ _SIZE, bits)


def _number(bits: Ints) -> Floats:
    return np.where(bits < 0, bits ^ _SIZE, bits).view(np.float64)


def _starts_of_doubled(most: int) -> Steps:
    """First value of each bin but the first, of the least width, 1e-10 doubled or halved, with at most so many bins.

    A greater width never makes more bins (what begins a bin moves right only), so the doublings can be divided.
    """
    (least,) = yield ("above", np.array([-math.inf]))
    (greatest,) = yield ("below", np.array([math.inf]))
    # Numbers from 2**960 on, or below 2**-960, in units of 2**64 or 2**-64: differences are normal numbers.
    size = math.frexp(max(abs(least), abs(greatest)))[1]
    unit = math.ldexp(1.0, 64 * ((size > 960) - (size < -960)))
    few, many, starts = FOREVER, NOTHING, list[float]()
    while few - many > 1:
        tried = np.unique(np.linspace(many, few, _TRIED + 2).astype(np.int64))
        tried = tried[(tried > many) & (tried < few)].tolist()
        for doublings, found in zip(tried, (yield from _starts(least, tried, most, unit)), strict=True):
            if len(found) < most:
                few, starts = doublings, found
                break
            many = doublings
    return np.array(starts)


def _starts(least: float, tried: Sequence[int], most: int, unit: float) -> Steps:
    """First value of each bin but the first, for some numbers of doublings; ``most`` at most, one too many."""
    widths = np.array([math.ldexp(FIRST_WIDTH, doublings) for doublings in tried])
    starts, firsts, open_ones = [list[float]() for _ in tried], np.full(len(tried), least), np.arange(len(tried))
    while len(open_ones):
        following = yield ("beyond", firsts[open_ones], widths[open_ones], unit)
        for i, value in zip(open_ones.tolist(), following.tolist(), strict=True):
            if value < math.inf:
                starts[i].append(value)
        firsts[open_ones] = following
        open_ones = np.array([i for i in open_ones.tolist() if firsts[i] < math.inf and len(starts[i]) < most], int)
    return starts

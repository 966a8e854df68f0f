"""Bins of features for audits, derived from the raw values of all rows, wherever these are.

The rows may be divided among parts, each of which sorts its own values. Bins follow from the answers to a few kinds of
questions, which parts answer for their values and which are merged: so a column of all rows is in no place. An
algorithm is a generator that yields questions; those of several features are asked together.

Nothing of the fast path is imported. Source: Lin et al. (ICML 2025), appendix A, whose loop makes one bin too many as
printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints, below, bits
from raydt.arrays.kernel import kernel
from raydt.examples.updates import MOST, UNIT, CountedOnes, Features, History
from raydt.messages import Message, message

# Bins of features for audits, as a state records them. Nothing of the fast path is imported.


class MalformedModelError(Exception):
    """Node arrays that are no trees in preorder."""


@dataclass(frozen=True, eq=False)
class FeatureBins:
    """Bins of one feature: boundaries of numbers, or kept categories; ``seen``: the warm-up had others, or NaN."""

    categorical: bool
    values: Floats
    seen: bool

    @property
    def bins(self) -> int:
        """Number of codes."""
        return len(self.values) + (1 if self.categorical else 2)

    @property
    def cuts(self) -> int:
        """Number of cuts, numbered from 0: one of two categories, and no cut of fewer."""
        available = len(self.values) + self.seen
        return available - (available <= 2 and available > 0) if self.categorical else available

    def codes(self, x: Floats) -> Ints:
        """Bin of each value."""
        if self.categorical:
            codes = np.full(len(x), len(self.values))
            order = np.argsort(self.values)
            place = np.searchsorted(self.values, x, sorter=order)
            known = np.flatnonzero(place < len(order))
            known = known[self.values[order[place[known]]] == x[known]]
            codes[known] = order[place[known]]
            return codes
        codes = np.searchsorted(self.values, x)
        codes[np.isnan(x)] += 1  # which are behind all values
        return codes

    def equals(self, other: FeatureBins) -> bool:
        """Return True if kind, values and what was seen are the same."""
        return (self.categorical, self.seen) == (other.categorical, other.seen) and np.array_equal(
            self.values, other.values
        )


def recorded_bins(state: Mapping[str, AnyArray], features: Features) -> tuple[list[FeatureBins], Ints]:
    """Return the bins of the dense features, and indices of the sparse ones that had both values then.

    The one cut of such a sparse feature has 0 on the left.
    """
    starts, found = state["bins_starts"], []
    for j, categorical in enumerate(features.categorical):
        values, ranks = (state[name][starts[j] : starts[j + 1]] for name in ("bins_values", "bins_ranks"))
        values = values[np.argsort(ranks)] if categorical else values
        found.append(FeatureBins(categorical, np.asarray(values, np.float64), bool(state["bins_seen"][j])))
    return found, np.asarray(state.get("bins_sparse", ()), dtype=np.int64)


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
        known = x >= 0 if categorical else ~np.isnan(x)
        self._n, self._following = len(x), np.empty(int(known.sum()) + 1)
        self._known = self._following[:-1]
        np.compress(known, x, out=self._known)
        self._known.sort()
        self._following[-1] = math.inf  # of each place the value there, and of the end inf

    def answer(self, question: Question) -> Any:
        """Answer a question."""
        return getattr(self, question[0])(*question[1:])

    def sizes(self) -> Ints:
        """Return the number of values and that of known values, shape (2,)."""
        return np.array([self._n, len(self._known)])

    def counts(self) -> tuple[Floats, Ints]:
        """Return all known values, once, and how often each is there."""
        first = np.flatnonzero(self._differs())
        return self._known[first], np.diff(first, append=len(self._known))

    def distinct(self, most: int) -> Floats | None:
        """Return all known values, once; None of more than ``most``."""
        differs = self._differs()
        return self._known[differs] if np.count_nonzero(differs) <= most else None

    def _differs(self) -> Bools:
        """Return which known values differ from the one before; NumPy's ``unique`` does not know that they ascend."""
        differs = np.ones(len(self._known), np.bool_)
        np.not_equal(self._known[1:], self._known[:-1], out=differs[1:])
        return differs

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
        found = np.full((len(firsts), 1), math.inf)
        for i, first in enumerate(firsts.tolist()):
            _follow(self._known, first, widths[i : i + 1], unit, found[i : i + 1], np.empty(1, np.int64))
        return found[:, 0]

    def starts(self, least: float, widths: Floats, most: int, unit: float) -> list[list[float]]:
        """Return at most ``most`` values of each width: each is beyond the one before, the first beyond ``least``."""
        found, many = np.empty((len(widths), most)), np.empty(len(widths), np.int64)
        _follow(self._known, float(least), widths, unit, found, many)
        return [of_width[:n].tolist() for of_width, n in zip(found, many.tolist(), strict=True)]


@kernel
def _follow(known: Any, least: float, widths: Any, unit: float, found: Any, many: Any) -> None:
    """Enter, of each width, values that are each the least more than a width above the one before, and how many."""
    for i in range(len(widths)):
        value, place, n = least, np.int64(0), np.int64(0)
        while n < found.shape[1]:
            first, low, high = value / unit, place, np.int64(len(known))
            while low < high:
                middle = (low + high) >> 1
                # The difference decides, as it is rounded: it does not fall where values rise.
                if known[middle] >= value and known[middle] / unit - first > widths[i]:
                    high = middle
                else:
                    low = middle + 1
            if low == len(known):
                break
            place, value = low, known[low]
            found[i, n] = value
            n += 1
        many[i] = n


def _counts(answers: Sequence[tuple[Floats, Ints]]) -> tuple[Floats, Ints]:
    values, place = np.unique(np.concatenate([values for values, _ in answers]), return_inverse=True)
    return values, np.bincount(place, np.concatenate([counts for _, counts in answers]), len(values)).astype(np.int64)


def _distinct(answers: Sequence[Floats | None]) -> Floats | None:
    there = [values for values in answers if values is not None]
    return np.unique(np.concatenate(there)) if len(there) == len(answers) else None


#: How the answers of parts become that of all.
_MERGED: dict[str, Callable[[Sequence[Any]], Any]] = {
    "sizes": sum,
    "starts": lambda answers: answers[0] if len(answers) == 1 else None,  # which some of the values do not tell
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
    whole = yield ("starts", least, widths, most, unit)
    if whole is not None:
        return whole
    starts, firsts, open_ones = [list[float]() for _ in tried], np.full(len(tried), least), np.arange(len(tried))
    while len(open_ones):
        following = yield ("beyond", firsts[open_ones], widths[open_ones], unit)
        for i, value in zip(open_ones.tolist(), following.tolist(), strict=True):
            if value < math.inf:
                starts[i].append(value)
        firsts[open_ones] = following
        open_ones = np.array([i for i in open_ones.tolist() if firsts[i] < math.inf and len(starts[i]) < most], int)
    return starts


# What the nodes of a recorded tree draw from their paths, for audits: NumPy, and nothing of the fast path.
#
# The definitions are in ``docs/explanation/guarantees.md``, the numbers those of ``raydt.arrays.elementary``.

Words = npt.NDArray[np.uint64]

#: Numbers of a node's sequence: keys of the left and the right child, of the order of features, of candidates.
LEFT, RIGHT, ORDER, CUTS = range(4)


def numbers_at(keys: Words, counters: Ints | int) -> Words:
    """Return a number of the sequence of each key: broadcast, as NumPy does."""
    keys, places = np.broadcast_arrays(keys, counters)
    return bits(cast(np.uint64, keys), places)  # which adds keys one by one as it adds one key


def features_in_order(keys: Words, d: int) -> Iterator[Ints]:
    """The features in the order of each node with one of these keys, place after place: Fisher and Yates."""
    rest, node, own = np.tile(np.arange(d), (len(keys), 1)), np.arange(len(keys)), numbers_at(keys, ORDER)
    for place in range(d):
        other = place + below(cast(np.uint64, own), np.full(len(keys), place), d - place)
        rest[node, place], rest[node, other] = rest[node, other], rest[node, place]
        yield rest[:, place]


# Counters and limits that audits of finders compute again from their definitions (``docs/explanation/guarantees.md``).
#
# Nothing of the fast path is imported.


def _parts(counts: Ints, unit: int) -> Floats:
    """k log k of counts of k rows, in units."""
    values, at = np.unique(counts, return_inverse=True)
    of_values = np.array([k * math.log(max(k, 1) / unit) for k in values.tolist()])
    parts: Floats = of_values[at].reshape(counts.shape)
    return parts


def nats(size: Ints, ones: Ints, unit: int = 1) -> Floats:
    """Entropy of a side times its rows; a row is ``unit`` units of a count."""
    nats: Floats = _parts(size, unit) - _parts(size - ones, unit) - _parts(ones, unit)
    return nats


def score_of_counts(entropy: bool, n: Ints | int, c1: Ints | int, n1: Ints, c11: Ints, unit: int = 1) -> Floats:
    """Impurity of both sides of splits by their share of the rows; n1 is 0 for the impurity of the rows themselves."""
    sides = [(n1, c11), (n - n1, c1 - c11)]
    if entropy:
        of_sides = [nats(size, ones, unit) for size, ones in sides]
        scores: Floats = (of_sides[0] + of_sides[1]) / np.maximum(n, 1)
        return scores
    halves = [
        np.where(size > 0, (size - ones).astype(np.float64) * ones / np.maximum(size, 1), 0.0) for size, ones in sides
    ]
    scores = 2.0 * (halves[0] + halves[1]) / np.maximum(n, 1)
    return scores


class BucketLimits(NamedTuple):
    """Limits and keys by number of the bucket; ``exact`` ones hold rho = 0, or rho = 1 if mirrored."""

    entropy: bool
    unit: int  #: A row is so many units of a count.
    s: Floats
    t: Floats
    mu: Floats
    mirrored: Bools
    exact: Bools

    @classmethod
    def of(cls, finder: str, alpha: float, unit: int = 1) -> BucketLimits:
        """The buckets of ``updgini`` or ``updent``; of rows there are fewer than 2**31, of units up to 2**48."""
        if finder == "updgini":
            beta = alpha / (alpha + 2)
            half = np.arange(math.floor(2 / beta) + 1) / 2
            never = np.zeros(len(half), dtype=np.bool_)
            return cls(False, unit, (half - 0.25) * beta, (half + 0.75) * beta, (half + 0.25) * beta, never, never)
        last = math.floor(2 * math.log(31 if unit == 1 else 48) / math.log1p(alpha))
        low = [2.0 ** -((1 + alpha) ** (k / 2 + 0.75)) for k in range(last + 1)]
        high = [2.0 ** -((1 + alpha) ** (k / 2 - 0.25)) for k in range(last + 1)]
        s, t, mu = np.array([0.0, *low]), np.array([0.0, *high]), np.array([0.0, *low])
        mirrored, exact = np.repeat([False, True], len(s)), np.tile(np.arange(len(s)) == 0, 2)
        return cls(True, unit, np.tile(s * (1 + 1e-9), 2), np.tile(t * (1 - 1e-9), 2), np.tile(mu, 2), mirrored, exact)

    def outside(self, n: Ints | int, c1: Ints | int, n1: Ints, c11: Ints, bucket: Ints) -> Bools:
        """Return, for each feature, True if rho is outside the limits of its bucket."""
        own = np.where(self.mirrored[bucket], n1 - c11, c11)
        total = np.where(self.mirrored[bucket], n - c1, c1)
        s, t = self.s[bucket], self.t[bucket]
        below = (s * n1 - own < s * n - total) & (s > 0)
        above = (own - t * n1 < total - t * n) & (t < 1)
        outside: Bools = below | above
        return outside

    def keys(self, n1: Ints, c11: Ints, bucket: Ints) -> Floats:
        """Score minimised by the feature that represents its bucket."""
        c10, mu = n1 - c11, self.mu[bucket]
        if not self.entropy:
            a, b = np.where(mu < 0.5, 0.0, -2.0 * mu), np.where(mu < 0.5, -2.0 * (1.0 - mu), 0.0)
            keys: Floats = 2.0 * (c10.astype(np.float64) * c11 / n1) + a * c10 + b * c11
            return keys
        logs = np.array([[math.log1p(-m), math.log(m)] if m else [0.0, 0.0] for m in self.mu.tolist()])[bucket]
        mirrored = self.mirrored[bucket]
        a, b = np.where(mirrored, logs[:, 1], logs[:, 0]), np.where(mirrored, logs[:, 0], logs[:, 1])
        keys = nats(n1, c11, self.unit) + a * c10 + b * c11
        return keys


def compare_groups(
    features: Features,
    groups: Mapping[int, Mapping[str, Ints]],
    counted: CountedOnes,
    names: Sequence[str],
    counts: Ints,
    buckets: BucketLimits | None,
) -> list[Message]:
    """Compare what groups count, under these last ``names``, with what is ``counted`` again, and buckets with limits.

    ``counts`` are the classes of the rows at each node, shape (nodes, 2); without ``buckets`` features are in none.
    """
    of_group, broken = features.groups_of(counted.feature), list[Message]()
    for number, group in sorted(groups.items()):
        mine = counted[of_group == number]
        if not all(np.array_equal(group[name], column) for name, column in mine.named(names)):
            broken.append(message("audits.group_counts", what="counters", group=number))
        elif "bucket" in group:
            broken += _compare_buckets(
                number, group["bucket"].astype(np.int64), mine, names, counts[mine.node], buckets
            )
    return broken


def _compare_buckets(
    number: int, bucket: Ints, mine: CountedOnes, names: Sequence[str], counts: Ints, buckets: BucketLimits | None
) -> list[Message]:
    """Compare the features of a group with the limits of their buckets."""
    feature = mine.feature
    there = bucket == -1 if buckets is None else (bucket >= 0) & (bucket < len(buckets.s))
    if not there.all():
        return [message("audits.bucket", feature=feature[~there][0], bucket=bucket[~there][0])]
    if buckets is None:
        return []
    outside = np.flatnonzero(buckets.outside(counts.sum(axis=1), counts[:, 1], mine.n1, mine.c11, bucket))
    if not len(outside):
        return []
    at = outside[0]
    first = f"{feature[at]}" + (f" at node {mine.node[at]}" if "node" in names else "")
    return [message("audits.outside", features=len(outside), group=number, first=first, bucket=bucket[at])]


# Weights of examples and classes, recomputed from raw examples; in units of 2**-16 (``raydt.examples.updates``).

Arrays = Mapping[str, AnyArray]

#: Bits of the mantissa of a float64.
_MANTISSA = 53


def given_weights(weight: AnyArray | None, n: int) -> Ints:
    """Weights of n examples, 1 where there are none, which take no memory."""
    return np.broadcast_to(np.int64(UNIT), n) if weight is None else np.asarray(weight, np.int64)


def times(numbers: Ints, weight: Ints) -> Ints:
    """Products, rounded to the nearest number, halves away from 0."""
    size: Ints = (np.abs(numbers) * weight + UNIT // 2) // UNIT
    return np.where(numbers < 0, -size, size)


def effective(weight: Ints, y: AnyArray, factors: Ints | None) -> Ints:
    """Return effective weights of examples: their own times those of their classes."""
    if factors is None:
        return weight
    of_row = np.array([factors[code] if code < len(factors) else UNIT for code in y.tolist()], np.int64)
    return np.minimum(times(weight, of_row), MOST)


def class_sums(state: Arrays, history: History) -> Ints | None:
    """Return the weights that the examples of each class had, and those of all, when a state weighed its classes.

    Shape (classes + 1,), int64, in units; those of some rows add up to those of all. None if there is nothing to know.
    """
    recorded = state.get("class_weight")
    if recorded is None or not history.complete:
        return None
    end = int(state["weighed"][0])
    live = (history.inserted < end) & (history.deleted >= end)
    y, weight = history.y[live], given_weights(history.weight, len(live))[live]
    sums = [weight[y == code].sum() for code in range(len(recorded))]
    return np.array([*sums, weight.sum()], np.int64)


def compare_factors(options: Any, state: Arrays, sums: Ints | None) -> tuple[Ints | None, list[Message]]:
    """Return the weights of classes in a state, and failures: ``sums`` of all examples say what they are."""
    wanted, recorded = options.class_weight == "balanced", state.get("class_weight")
    if (recorded is not None) != wanted:
        there = {"found": "none", "expected": "some"} if wanted else {"found": "some", "expected": "none"}
        return None, [message("audits.value", name="weights of classes", **there)]
    if recorded is None or sums is None:
        return recorded, []
    *of_class, total = sums.tolist()
    some = [one for one in of_class if one]
    exact = [Fraction(sum(of_class) * UNIT, len(some) * one) if one else Fraction(UNIT) for one in of_class]
    expected = [min(MOST, (exact_one + Fraction(1, 2)).__floor__()) for exact_one in exact]
    if expected == recorded.tolist() and sum(of_class) == total:
        return recorded, []
    shown = {"name": "weights of classes", "found": recorded.tolist(), "expected": expected}
    return recorded, [message("audits.value", **shown)]


def class_factors(options: Any, state: Arrays, history: History) -> tuple[Ints | None, list[Message]]:
    """Return the weights of classes in a state, and failures: a complete history knows them by its live examples."""
    return compare_factors(options, state, class_sums(state, history))


def counted_weights(
    options: Any, state: Arrays, history: History, *, resolved: bool
) -> tuple[Ints | None, list[Message]]:
    """Return what all examples count (None: 1), and failures; ``resolved``: balanced weights have to be there."""
    factors, failures = class_factors(options, state, history) if resolved else (None, [])
    if "unit" not in state:
        return None, failures
    return effective(given_weights(history.weight, len(history.id)), history.y, factors), failures


class TargetSums(NamedTuple):
    """Sums and range of the numeric targets of some rows; parts add up to those of all rows (:func:`of_all`)."""

    weighted: Fraction  #: Exact sum of the targets, each times its weight in units.
    weight: int  #: In units.
    least: float  #: inf of no rows.
    greatest: float  #: -inf of no rows.

    @property
    def mean(self) -> float:
        """The weighted mean: the exact sum, rounded once, over that of the weights; 0 if there is no weight."""
        return float(self.weighted / UNIT) / (self.weight / UNIT) if self.weight else 0.0


def target_sums(y: Floats, weight: Ints) -> TargetSums:
    """Sum up numeric targets of some rows with weights in units, both of shape (rows,). O(rows)."""
    weighted, (fraction, exponents) = Fraction(0), np.frexp(y)
    whole = np.ldexp(fraction, _MANTISSA).astype(np.int64)
    for exponent in np.unique(exponents).tolist():  # Python's integers have no bounds
        rows = np.flatnonzero(exponents == exponent)
        total = int((whole[rows].astype(object) * weight[rows]).sum())
        weighted += total * Fraction(2) ** (exponent - _MANTISSA)
    least, greatest = float(y.min(initial=math.inf)), float(y.max(initial=-math.inf))
    return TargetSums(weighted, int(weight.sum()), least, greatest)


def of_all(parts: Sequence[TargetSums]) -> TargetSums:
    """Return the sums of all rows, from those of parts of them."""
    weighted, weight, least, greatest = zip(*parts, strict=True)
    return TargetSums(sum(weighted, Fraction(0)), sum(weight), min(least), max(greatest))


# The parts of an audit: each has some of the rows, and what all have found adds up to what one would find.


class AuditParts(Protocol):
    """Objects with the same methods, in this process or in others."""

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of each part; return the answers in the order of the parts."""


class PartsHere:
    """Parts in this process."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Ask one part after the other."""
        return [getattr(part, method)(*arguments) for part in self._parts]

"""One tree of a forest from nothing, for audits and for whoever wants to repeat a digest: NumPy, and no kernel.

It follows the definitions in ``docs/explanation/guarantees.md`` and shares nothing with the fast path but the numbers
of ``raydt.arrays.rng``, which are part of the definitions.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.rng import bits, stream_key
from raydt.audits.recorded_draws import CUTS, LEFT, RIGHT, number_at, order_of_features

if TYPE_CHECKING:
    from raydt.learners.forest.options import ForestOptions

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

_LEAST_EXPONENT = -900


class BestCandidate(NamedTuple):
    """A candidate: what it is compared by, and which rows go left."""

    score: float
    feature: int
    place: int
    threshold: float
    left: Bools


def copies_of(options: ForestOptions) -> int:
    """Return the trees that each example lives in: ceil(q T), with q as it is written."""
    return max(1, math.ceil(Fraction(repr(options.sample_share)) * options.n_estimators))


def _rotated(words: Words, by: int) -> Words:
    turned: Words = (words << np.uint64(by)) | (words >> np.uint64(64 - by))
    return turned


def siphash(seed: int, ids: Ints) -> Words:
    """SipHash-2-4 of ids under the key of a seed."""
    key = hashlib.blake2b(str(seed).encode(), digest_size=16, person=b"raydt-forest").digest()
    k0, k1 = (np.uint64(int.from_bytes(key[i : i + 8], "little")) for i in (0, 8))
    number = ids.astype(np.uint64)
    starts = b"somepseudorandomlygeneratedbytes"
    v = [np.full(len(ids), int.from_bytes(starts[8 * i : 8 * i + 8], "big"), dtype=np.uint64) for i in range(4)]
    for i, word in enumerate((k0, k1, k0, k1)):
        v[i] ^= word

    def rounds(times: int) -> None:
        for _ in range(times):
            v[0] += v[1]
            v[1] = _rotated(v[1], 13) ^ v[0]
            v[0] = _rotated(v[0], 32)
            v[2] += v[3]
            v[3] = _rotated(v[3], 16) ^ v[2]
            v[0] += v[3]
            v[3] = _rotated(v[3], 21) ^ v[0]
            v[2] += v[1]
            v[1] = _rotated(v[1], 17) ^ v[2]
            v[2] = _rotated(v[2], 32)

    for word in (number, np.full(len(ids), 8 << 56, dtype=np.uint64)):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= np.uint64(255)
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def members(options: ForestOptions, ids: Ints) -> Bools:
    """Which trees hold which examples, shape (n, T)."""
    trees = np.arange(options.n_estimators)
    held = np.zeros((len(ids), options.n_estimators), dtype=np.bool_)
    for i, key in enumerate(siphash(options.random_state, ids)):
        held[i, np.argsort(bits(key, trees), kind="stable")[: copies_of(options)]] = True
    return held


def scale_of(y: npt.NDArray[np.float64]) -> tuple[int, int]:
    """Exponent of the largest numeric label, and the bits below it that labels are rounded to: 20, or 40 if crowded.

    They are crowded if more than half of those that 20 bits round are less than two cells of 2^-10 of 2^exponent apart.
    """
    largest = float(np.abs(y).max(initial=0.0))
    exponent = max(math.frexp(largest)[1], _LEAST_EXPONENT) if largest else _LEAST_EXPONENT
    shares = np.ldexp(y, -exponent)
    rounded = shares[np.ldexp(shares, 20) % 1.0 != 0.0]
    counts = np.bincount((np.trunc(np.ldexp(rounded, 10)) + 1024).astype(np.int64), minlength=2050)
    return exponent, 40 if 2 * int((counts[1:] + counts[:-1]).max()) > len(rounded) else 20


def units_of(y: npt.NDArray[np.float64], exponent: int, bits: int) -> Ints:
    """Numeric labels in units of so many bits."""
    units: Ints = np.floor(y / math.ldexp(1.0, exponent - bits) + 0.5).astype(np.int64)
    return units


def root_key(options: ForestOptions, tree: int) -> np.uint64:
    """Key of the root of a tree."""
    return number_at(stream_key(options.random_state, "trees of a forest"), tree)


def _number_candidates(options: ForestOptions, key: np.uint64, x: npt.NDArray[np.float64]) -> list[float]:
    """Return the thresholds of a number, the smallest first; nothing of a constant one.

    With missing values, the last is whether there is a value.
    """
    present = x[~np.isnan(x)]
    missing = len(x) - len(present)
    if not len(present):
        return []
    low, high = float(present.min()), float(present.max())
    wanted = options.thresholds
    if low == high:
        wanted = 0
    elif ((present == low) | (present == high)).all():
        wanted = 1
    if missing:
        wanted = min(wanted, options.thresholds - 1)
    drawn = ((bits(key, np.arange(wanted)) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    cuts = []
    with np.errstate(over="ignore", invalid="ignore"):
        width = np.float64(high) - np.float64(low)
        for unit in drawn:
            cut = low + unit * width if np.isfinite(width) else (1.0 - unit) * low + unit * high
            cuts.append(float(cut) if cut < high else low)
    return sorted(cuts) + ([high] if missing else [])


def _category_candidates(options: ForestOptions, key: np.uint64, x: npt.NDArray[np.float64]) -> list[float]:
    """The categories of the smallest numbers, in this order; nothing of a constant feature."""
    values = np.unique(x)
    if len(values) == 1:
        return []
    values = values[values != -1.0]
    numbers = bits(key, values.astype(np.int64))
    return [float(v) for v in values[np.lexsort((values, numbers))][: options.thresholds]]


def _score(options: ForestOptions, y: Ints, left: Bools, classes: int) -> float:
    """What splits are compared by: exact integers, then the float64 operations of the definition."""
    n, n_left = len(y), int(left.sum())
    if options.numeric:
        lacks = [int(y[left].sum()) * n - n_left * int(y.sum())]
    else:
        on_left, both = (np.bincount(part, minlength=classes).tolist() for part in (y[left], y))
        lacks = [a * n - n_left * b for a, b in zip(on_left, both, strict=True)]
    squares = 0.0
    for lack in lacks:
        squares += float(lack) * float(lack)
    return squares / float(n_left * (n - n_left))


def best_candidate(
    options: ForestOptions, kinds: Bools, key: np.uint64, X: npt.NDArray[np.float64], y: Ints, classes: int
) -> BestCandidate | None:
    """Return the best candidate of a node with these rows; None if there is none."""
    tried, found = 0, []
    for j in order_of_features(key, X.shape[1]):
        own, x = number_at(number_at(key, CUTS), j), X[:, j]
        cuts = (_category_candidates if kinds[j] else _number_candidates)(options, own, x)
        if not cuts:
            continue
        for place, cut in enumerate(cuts):
            left = x == cut if kinds[j] else x <= cut
            found.append(BestCandidate(_score(options, y, left, classes), j, place, cut, left))
        tried += 1
        if tried == options.features_tried(X.shape[1]):
            break
    return min(found, key=lambda split: (-split.score, split.feature, split.place), default=None)


def totals_of(options: ForestOptions, y: Ints, classes: int) -> list[int]:
    """What a node counts of its labels; ``classes``, or 3 of numbers with squares in one word, 4 of those in two."""
    if options.numeric:
        squares = [label * label for label in y.tolist()]
        words = [sum(squares)] if classes == 3 else [sum(s >> 40 for s in squares), sum(s % 2**40 for s in squares)]
        return [len(y), int(y.sum()), *words]
    counts: list[int] = np.bincount(y, minlength=classes).tolist()
    return counts


def tree_of(
    options: ForestOptions, kinds: Bools, tree: int, X: npt.NDArray[np.float64], y: Ints, classes: int
) -> dict[str, npt.NDArray[Any]]:
    """Build a tree from its members: labels are classes or units. O(depth n P S), in NumPy."""
    nodes: list[list[Any]] = []  # feature, threshold, right child and totals of each

    def grow(rows: Ints, key: np.uint64, depth: int) -> None:
        node = [-1, 0.0, -1, totals_of(options, y[rows], classes)]
        nodes.append(node)
        pure = len(rows) == 0 or bool((y[rows] == y[rows[0]]).all())
        if len(rows) < options.min_samples_split or pure or depth == options.max_depth:
            return
        split = best_candidate(options, kinds, key, X[rows], y[rows], classes)
        if split is None:
            return
        node[:2] = split.feature, split.threshold
        grow(rows[split.left], number_at(key, LEFT), depth + 1)
        node[2] = len(nodes)
        grow(rows[~split.left], number_at(key, RIGHT), depth + 1)

    grow(np.arange(len(y)), root_key(options, tree), 0)
    columns = {"feature": np.int32, "threshold": np.float64, "right": np.int32, "totals": np.int64}
    found = {name: np.array([node[i] for node in nodes], dtype) for i, (name, dtype) in enumerate(columns.items())}
    left = np.where(found["feature"] >= 0, np.arange(1, len(nodes) + 1), -1)
    return {**found, "left": left.astype(np.int32)}

"""One tree of a forest from nothing, for audits and for whoever wants to repeat a digest: NumPy, and no kernel.

It follows the definitions in ``docs/explanation/guarantees.md`` and shares nothing with the fast path but the numbers
of ``raydt.arrays.elementary``, which are part of the definitions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints, stream_key
from raydt.audits.bins import CUTS, LEFT, RIGHT, Words, features_in_order, numbers_at
from raydt.examples.updates import UNIT
from raydt.parallel import ranges, run

if TYPE_CHECKING:
    from raydt.learners.forest.options import ForestOptions


_LEAST_EXPONENT = -900


class NodeRows(NamedTuple):
    """The rows of some nodes, node after node."""

    X: Floats  #: Shape (n, d): all rows there are.
    y: Ints  #: Shape (n,): classes or units.
    rows: Ints  #: Shape (r,): those of node 0 first.
    node: Ints  #: Shape (r,): the node of each, from 0, ascending; none is empty.
    n: Ints  #: Shape (nodes,): rows of each.
    weight: Ints | None  #: Shape (n,): what all rows there are count, in units; None: 1 each.

    def only(self, nodes: Bools) -> NodeRows:
        """Return the rows of some of the nodes, which are numbered from 0 again."""
        if nodes.all():
            return self
        there = nodes[self.node]
        number = np.cumsum(nodes) - 1
        return NodeRows(self.X, self.y, self.rows[there], number[self.node[there]], self.n[nodes], self.weight)

    @property
    def mass(self) -> Ints:
        """The total weight of the rows of each node, in units."""
        return self.n if self.weight is None else added(self.node, self.weight[self.rows], len(self.n))

    @property
    def begin(self) -> Ints:
        """The first row of each node."""
        begin: Ints = np.cumsum(self.n) - self.n
        return begin


class BestCandidates(NamedTuple):
    """The best candidate of each node, shape (nodes,): what it is compared by (-1 without one), feature, threshold."""

    score: Floats
    feature: Ints
    threshold: Floats


def added(place: Ints, numbers: Ints | None, places: int) -> Ints:
    """Return how many rows have each place or, with ``numbers``, their sum: exact up to 2**53, as float64 adds it."""
    return np.bincount(place, numbers, minlength=places).astype(np.int64)


def scale_of(y: Floats, weight: Ints | None) -> tuple[int, int]:
    """Exponent of the largest numeric label, and the bits below it that labels are rounded to: 20, or 40 if crowded.

    They are crowded if more than half of those that 20 bits round are less than two cells of 2^-10 of 2^exponent apart.
    A row counts its weight; those of weight 0 are not among these.
    """
    largest = float(np.abs(y).max(initial=0.0))
    exponent = max(math.frexp(largest)[1], _LEAST_EXPONENT) if largest else _LEAST_EXPONENT
    shares = np.ldexp(y, -exponent)
    rounded = np.ldexp(shares, 20) % 1.0 != 0.0
    cells = (np.trunc(np.ldexp(shares[rounded], 10)) + 1024).astype(np.int64)
    counts = added(cells, None if weight is None else weight[rounded], 2050)
    return exponent, 40 if 2 * int((counts[1:] + counts[:-1]).max()) > counts.sum() else 20


def units_of(y: Floats, exponent: int, bits: int) -> Ints:
    """Numeric labels in units of so many bits."""
    units: Ints = np.floor(y / math.ldexp(1.0, exponent - bits) + 0.5).astype(np.int64)
    return units


def root_keys(options: ForestOptions, trees: Ints) -> Words:
    """Keys of the roots of some trees."""
    return numbers_at(np.array(stream_key(options.random_state, "trees of a forest")), trees)


def _number_candidates(options: ForestOptions, keys: Words, part: NodeRows, x: Floats) -> tuple[Floats, Ints]:
    """Return the thresholds of a number at each node, the smallest first, shape (nodes, S), and how many there are.

    There are none of a constant one. With missing values, the last is whether there is a value.
    """
    most, begin, missing = options.thresholds, part.begin, np.isnan(x)
    low, high = np.fmin.reduceat(x, begin), np.fmax.reduceat(x, begin)
    gaps = np.add.reduceat(missing, begin, dtype=np.int64) > 0
    inside = ~missing & (x != low[part.node]) & (x != high[part.node])
    wanted = np.where(np.add.reduceat(inside, begin, dtype=np.int64) > 0, most, 1)
    wanted[low == high] = 0
    wanted = np.where(gaps, np.minimum(wanted, most - 1), wanted)
    wanted[np.isnan(low)] = 0
    drawn = ((numbers_at(keys[:, None], np.arange(most)) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    low, high = low[:, None], high[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        width = high - low
        cuts = np.where(np.isfinite(width), low + drawn * width, (1.0 - drawn) * low + drawn * high)
    cuts = np.where(np.arange(most) < wanted[:, None], np.where(cuts < high, cuts, low), math.inf)
    cuts.sort(axis=1)
    last = np.flatnonzero(gaps & ~np.isnan(low[:, 0]))
    cuts[last, wanted[last]] = high[last, 0]
    wanted[last] += 1
    return cuts, wanted


def _category_candidates(options: ForestOptions, keys: Words, part: NodeRows, x: Floats) -> tuple[Floats, Ints]:
    """Return the categories of the smallest numbers at each node, in this order, and how many there are.

    There are none of a constant feature.
    """
    order = np.lexsort((x, part.node))
    node, value = part.node[order], x[order]
    first = np.append(True, (node[1:] != node[:-1]) | (value[1:] != value[:-1]))
    node, value = node[first], value[first]
    several = np.bincount(node, minlength=len(keys)) > 1
    kept = several[node] & (value != -1.0)
    node, value = node[kept], value[kept]
    numbers = np.where(np.abs(value) < 2.0**63, value, -(2.0**63)).astype(np.int64)  # the least beyond 64 bits
    order = np.lexsort((value, numbers_at(keys[node], numbers), node))
    node, value = node[order], value[order]
    there = np.bincount(node, minlength=len(keys))
    place = np.arange(len(node)) - (np.cumsum(there) - there)[node]
    kept = place < options.thresholds
    cuts = np.full((len(keys), options.thresholds), math.inf)
    cuts[node[kept], place[kept]] = value[kept]
    return cuts, np.minimum(there, options.thresholds)


def _sides(options: ForestOptions, part: NodeRows, side: Ints, classes: int) -> Ints:
    """Return the labels of each side of each node: by class or, of numbers, how many and their sum (:func:`_sums_of`).

    A row is on side 0, ..., S; shape (nodes, S + 1, classes, 2 or 3).
    """
    y, sides = part.y[part.rows], options.thresholds + 1
    at = part.node * sides + side
    weights = None if part.weight is None else part.weight[part.rows]
    if not options.numeric:
        return added(at * classes + y, weights, len(part.n) * sides * classes).reshape(len(part.n), sides, classes)
    return _sums_of(y, weights, at, len(part.n) * sides).reshape(len(part.n), sides, -1)


def _sums_of(y: Ints, weight: Ints | None, place: Ints, places: int) -> Ints:
    """Return n and the sum of labels at each place; with weights the sums of w, of w (y over 2^20), and of w rest."""
    words = (np.ones_like(y), y) if weight is None else (weight, weight * (y >> 20), weight * (y & (2**20 - 1)))
    sums = np.zeros((places, len(words)), dtype=np.int64)
    for column, values in enumerate(words):
        np.add.at(sums[:, column], place, values)
    return sums


def _scores(options: ForestOptions, left: Ints, both: Ints, count: Ints, weighted: bool) -> Floats:
    """Return what splits are compared by, shape (nodes, S), -1 from the ``count`` of a node on.

    ``left`` and ``both`` are labels as :func:`_sides` counts them: exact integers, then the float64 operations of the
    definition. Class counts that are sums of weights are multiplied as float64.
    """
    there = np.arange(left.shape[1]) < count[:, None]
    if weighted and not options.numeric:
        n_left = left.sum(axis=2).astype(np.float64)
        n_right = both.sum(axis=2) - n_left
        sides = n_left * n_right
        squares = np.zeros(n_left.shape)
        for k in range(left.shape[2]):
            of_left = left[:, :, k].astype(np.float64)
            lack = of_left * n_right - n_left * (both[:, :, k] - of_left)
            squares += lack * lack
        return np.where(there, squares / np.where(there, sides, 1.0), -1.0)
    if options.numeric:  # products of large sums do not fit in 64 bits
        n, n_left = both[:, :1, 0], left[:, :, 0]
        sums, total = (_whole(of[:, :, 1:]) for of in (left, both))
        lacks = [(sums * n.astype(object) - n_left.astype(object) * total).astype(np.float64)]
    else:
        n, n_left = both.sum(axis=2), left.sum(axis=2)
        lacks = [(left[:, :, k] * n - n_left * both[:, :, k]).astype(np.float64) for k in range(left.shape[2])]
    squares = np.zeros(n_left.shape)
    for lack in lacks:
        squares += lack * lack
    sides = n_left.astype(np.float64) * (n - n_left) if weighted else (n_left * (n - n_left)).astype(np.float64)
    return np.where(there, squares / np.where(there, sides, 1.0), -1.0)


def _whole(words: Ints) -> AnyArray:
    """Return sums in one or two words, the last axis, as Python's integers."""
    sums: AnyArray = words[..., 0].astype(object)
    return sums if words.shape[-1] == 1 else sums * 2**20 + words[..., 1].astype(object)


def best_candidates(options: ForestOptions, kinds: Bools, keys: Words, part: NodeRows, classes: int) -> BestCandidates:
    """Return the best candidate of each node with these keys and rows: of equal ones the first by feature and place.

    O(r P S), and O(d) for each node.
    """
    nodes, d = len(keys), part.X.shape[1]
    tried, own = np.zeros(nodes, dtype=np.int64), numbers_at(keys, CUTS)
    best = BestCandidates(np.full(nodes, -1.0), np.full(nodes, -1), np.zeros(nodes))
    for feature in features_in_order(keys, d):
        looking = tried < options.features_tried(d)
        if not looking.any():
            break
        for kind, candidates in ((False, _number_candidates), (True, _category_candidates)):
            mine = looking & (kinds[feature] == kind)
            if not mine.any():
                continue
            some, at, j = part.only(mine), np.flatnonzero(mine), feature[mine]
            x = part.X[some.rows, j[some.node]]
            cuts, count = candidates(options, numbers_at(own[mine], j), some, x)
            tried[at] += count > 0
            side = np.full(len(x), options.thresholds if kind else 0)  # of all candidates, the first with the row left
            for place in range(options.thresholds):
                cut = np.repeat(cuts[:, place], some.n)
                if kind:
                    side[x == cut] = place
                else:
                    side += ~(x <= cut)
            tables = _sides(options, some, side, classes)
            left = tables if kind else tables.cumsum(axis=1)
            scores = _scores(options, left[:, :-1], tables.sum(axis=1, keepdims=True), count, part.weight is not None)
            place = scores.argmax(axis=1)
            score = scores[np.arange(len(at)), place]
            better = (score > best.score[at]) | ((score == best.score[at]) & (score >= 0) & (j < best.feature[at]))
            of = at[better]
            best.score[of], best.feature[of] = score[better], j[better]
            best.threshold[of] = cuts[better, place[better]]
    return best


def totals_of(options: ForestOptions, y: Ints, weight: Ints | None, node: Ints, nodes: int, classes: int) -> Ints:
    """Return what some nodes count of their labels, with these weights or 1 each, shape (nodes, classes).

    Of numbers ``classes`` is 3 with squares in one word, 4 with those in two: squares over 2**40, and the rest; with
    weights it is 2 with the sum of labels in one word, 3 with that in two, over 2**20 and the rest.
    """
    if not options.numeric:
        return added(node * classes + y, weight, nodes * classes).reshape(nodes, classes)
    if weight is not None:
        n, upper, lower = _sums_of(y, weight, node, nodes).T
        words = (upper * 2**20 + lower,) if classes == 2 else (upper + (lower >> 20), lower & (2**20 - 1))
        return np.stack([n, *words], axis=1)
    high, low = y >> 20, y & (2**20 - 1)
    rest = (high * low << 21) + low * low
    squares = [y * y] if classes == 3 else [high * high + (rest >> 40), rest & (2**40 - 1)]
    totals = np.zeros((nodes, classes), dtype=np.int64)
    for column, values in enumerate((np.ones_like(y), y, *squares)):
        np.add.at(totals[:, column], node, values)
    return totals


class _Level(NamedTuple):
    """The nodes of one depth, from the left to the right."""

    feature: Ints
    threshold: Floats
    totals: Ints


def trees_of(
    options: ForestOptions,
    kinds: Bools,
    trees: Sequence[int],
    rows: tuple[Floats, Ints, Ints | None],
    held: Bools,
    classes: int,
) -> list[dict[str, AnyArray]]:
    """Build some trees from the rows that each has ``held``, shape (n, T), level after level of all of them.

    Rows are features, labels (classes or units) and weights, None if they count 1 each. O(depth n P S) for each tree,
    in NumPy.
    """
    mine = [np.flatnonzero(held[:, tree]) for tree in trees]
    n = np.array([len(rows) for rows in mine])
    X, y, weight = rows
    least = options.min_samples_split * (1 if weight is None else UNIT)
    part = NodeRows(X, y, np.concatenate(mine), np.repeat(np.arange(len(n)), n), n, weight)
    keys, levels = root_keys(options, np.array(trees)), list[_Level]()
    while len(keys):
        nodes, label = len(keys), y[part.rows]
        weights = None if weight is None else weight[part.rows]
        totals = totals_of(options, label, weights, part.node, nodes, classes)
        level = _Level(np.full(nodes, -1), np.zeros(nodes), totals)
        levels.append(level)
        first = part.begin[part.node]  # a tree may be empty
        mixed = np.bincount(part.node, label != label[first], nodes) > 0
        grown = mixed & (part.mass >= least) & (len(levels) - 1 != options.max_depth)
        keys, part, number = keys[grown], part.only(grown), np.flatnonzero(grown)
        best = best_candidates(options, kinds, keys, part, classes)
        split = best.score >= 0
        level.feature[number[split]], level.threshold[number[split]] = best.feature[split], best.threshold[split]
        keys, part = keys[split], part.only(split)
        feature, threshold = best.feature[split][part.node], best.threshold[split][part.node]
        x = X[part.rows, feature]
        child = 2 * part.node + ~np.where(kinds[feature], x == threshold, x <= threshold)
        order = np.argsort(child, kind="stable")
        keys = np.stack([numbers_at(keys, LEFT), numbers_at(keys, RIGHT)], axis=1).ravel()
        part = NodeRows(X, y, part.rows[order], child[order], np.bincount(child, minlength=len(keys)), weight)
    return _in_preorder(levels)


def _in_preorder(levels: list[_Level]) -> list[dict[str, AnyArray]]:
    """Return the arrays of each tree, given the nodes of all levels."""
    sizes = [np.ones(len(levels[-1].feature), dtype=np.int64)]
    for level in reversed(levels[:-1]):  # of the nodes and all below them
        size = np.ones(len(level.feature), dtype=np.int64)
        size[level.feature >= 0] += sizes[0][0::2] + sizes[0][1::2]
        sizes.insert(0, size)
    ends = np.cumsum(sizes[0])
    n, place = int(ends[-1]), ends - sizes[0]
    starts = np.repeat(place, sizes[0])
    found: dict[str, AnyArray] = {
        "feature": np.full(n, -1, np.int32),
        "threshold": np.zeros(n),
        "left": np.full(n, -1, np.int32),
        "right": np.full(n, -1, np.int32),
        "totals": np.zeros((n, levels[0].totals.shape[1]), np.int64),
    }
    below = [*sizes[1:], np.empty(0, dtype=np.int64)]
    for level, size in zip(levels, below, strict=True):
        for name in level._fields:
            found[name][place] = getattr(level, name)
        above = place[level.feature >= 0]
        left, right = above + 1, above + 1 + size[0::2]
        found["left"][above], found["right"][above] = left - starts[above], right - starts[above]
        place = np.stack([left, right], axis=1).ravel()
    parts = [slice(begin, end) for begin, end in pairwise([0, *ends.tolist()])]
    return [{name: array[part] for name, array in found.items()} for part in parts]


# Which trees of a forest hold which examples, by the definitions, for audits: NumPy, and nothing of the fast path.

if TYPE_CHECKING:
    from raydt.learners.forest.options import ForestOptions

#: Rows whose trees are drawn together.
_TOGETHER = 1 << 10


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
    """Return which trees hold which examples, shape (n, T), tree after tree in memory. O(n T)."""
    trees, copies = np.arange(options.n_estimators), copies_of(options)
    held = np.zeros((len(ids), options.n_estimators), dtype=np.bool_, order="F")

    def choose(part: slice) -> None:
        for begin in range(part.start, part.stop, _TOGETHER):
            some = slice(begin, min(begin + _TOGETHER, part.stop))
            drawn = numbers_at(siphash(options.random_state, ids[some])[:, None], trees)
            chosen = drawn <= np.partition(drawn, copies - 1, axis=1)[:, [copies - 1]]
            for row in np.flatnonzero(chosen.sum(axis=1) > copies):  # of equal numbers, the first trees
                chosen[row] = False
                chosen[row, np.argsort(drawn[row], kind="stable")[:copies]] = True
            held[some] = chosen

    run([partial(choose, part) for part in ranges(len(ids), _TOGETHER, 4)])
    return held

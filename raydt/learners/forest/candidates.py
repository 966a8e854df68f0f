"""The candidates of a node: which features it tries, where it may split them, and which split is the best.

All of it is a function of the rows of the node and of its key (``docs/explanation/guarantees.md`` has the
definitions). The features come in the node's own order; the first P that are not constant are tried. Candidates:

* of a number, ``low + u_j (high - low)`` with the extremes of the rows and S drawn u_j; one of them only where no row
  lies between the extremes; and where values are missing, the last is instead whether there is a value at all;
* of a category, whether the value is v, for the S values of the smallest drawn numbers among those of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.arrays.rng import bits_at
from raydt.learners.forest.hashing import CUTS, ORDER, drawn_feature, put_back, unit_at

#: The category of rows that lack one.
NO_CATEGORY = -1.0


@inner_kernel
def cut_between(low: float, high: float, unit: float) -> float:
    """A threshold from ``low`` up to below ``high``."""
    width = high - low
    cut = low + unit * width
    if not np.isfinite(width):
        cut = (1.0 - unit) * low + unit * high
    inside: float = cut if cut < high else low
    return inside


@inner_kernel
def draw_cuts(tried: Any, cuts: Any, key: np.uint64, present: int, limit: int) -> None:
    """Thresholds of a number whose extremes are known. ``tried`` and ``cuts`` are those of one feature."""
    tried.two = np.int16(tried.lows + tried.highs == present and tried.low < tried.high)
    regular = limit
    if not tried.low < tried.high:
        regular = 0
    elif tried.two:
        regular = 1
    if tried.missing > 0:
        regular = min(regular, limit - 1)
    for j in range(regular):
        cut = cut_between(tried.low, tried.high, unit_at(key, j))
        at = j
        while at > 0 and cut < cuts[at - 1]:
            cuts[at] = cuts[at - 1]
            at -= 1
        cuts[at] = cut
    if tried.missing > 0:
        cuts[regular] = tried.high
        regular += 1
    tried.used = np.int16(regular)


@inner_kernel
def add_to_bucket(bucket: Any, y: int, by: int, numeric: bool) -> None:
    """Count a row in or out."""
    if numeric:
        bucket[0] += by
        bucket[1] += by * y
    else:
        bucket[y] += by


@inner_kernel
def rows_in(bucket: Any, numeric: bool) -> int:
    """Rows of a bucket."""
    n = np.int64(0)
    if numeric:
        n += bucket[0]
        return n
    for k in range(len(bucket)):
        n += bucket[k]
    return n


@inner_kernel
def bucket_of(cuts: Any, used: int, value: float) -> int:
    """How many thresholds lie below a value."""
    b = 0
    for j in range(used):
        b += value > cuts[j]
    return b


@inner_kernel
def category_at(cuts: Any, used: int, value: float) -> int:
    """Place of a category among the candidates, -1 if it is none."""
    for j in range(used):
        if cuts[j] == value:
            return j
    return -1


@inner_kernel
def hash_of(key: np.uint64, category: float) -> np.uint64:
    """The drawn number of a category, by its value."""
    number: np.uint64 = bits_at(key, np.int64(category))
    return number


@inner_kernel
def measure_number(tried: Any, cuts: Any, buckets: Any, key: np.uint64, n: int, scratch: Any, rules: Any) -> bool:
    """Extremes, thresholds and buckets of n values (``scratch.values``); False if they are constant."""
    values, labels = scratch.values, scratch.labels
    low, high, missing = np.inf, -np.inf, 0
    for i in range(n):
        x = values[i]
        low = x if x < low else low  # never of NaN
        high = x if x > high else high
        missing += x != x
    if missing == n or (low == high and missing == 0):
        return False
    lows = highs = 0
    for i in range(n):
        lows += values[i] == low
        highs += values[i] == high
    tried.low, tried.high = low, high
    tried.lows, tried.highs, tried.missing = lows, highs, missing
    draw_cuts(tried, cuts, key, n - missing, rules.thresholds)
    used = np.int64(tried.used)
    buckets[:] = 0
    if used == 1 and missing == 0 and not rules.numeric:
        cut = cuts[0]
        for i in range(n):
            buckets[np.int64(values[i] > cut), labels[i]] += 1
        return True
    for i in range(n):
        x = values[i]
        if x == x:
            add_to_bucket(buckets[bucket_of(cuts, used, x)], labels[i], 1, rules.numeric)
    return True


@inner_kernel
def measure_category(tried: Any, cuts: Any, buckets: Any, key: np.uint64, n: int, scratch: Any, rules: Any) -> bool:
    """Candidates and buckets of n categories (``scratch.values``); False if they are constant."""
    values, labels, hashes, limit = scratch.values, scratch.labels, scratch.hashes, rules.thresholds
    first, constant = values[0], True
    for i in range(1, n):
        constant = constant and values[i] == first
    if constant:
        return False
    used = 0
    for i in range(n):
        value = values[i]
        if value == NO_CATEGORY or category_at(cuts, used, value) >= 0:
            continue
        number = hash_of(key, value)
        at = used
        while at > 0 and (number < hashes[at - 1] or (number == hashes[at - 1] and value < cuts[at - 1])):
            at -= 1
        if at == limit:
            continue
        used = min(used + 1, limit)
        for back in range(used - 1 - at):
            place = used - 1 - back
            cuts[place], hashes[place] = cuts[place - 1], hashes[place - 1]
        cuts[at], hashes[at] = value, number
    buckets[:] = 0
    for i in range(n):
        j = category_at(cuts, used, values[i])
        add_to_bucket(buckets[j if j >= 0 else limit], labels[i], 1, rules.numeric)
    tried.low = tried.high = 0.0
    tried.lows = tried.highs = tried.missing = 0
    tried.two = np.int16(0)
    tried.used = np.int16(used)
    return True


@inner_kernel
def measure(
    forest: Any,
    node: int,
    block: int,
    place: int,
    feature: int,
    begin: int,
    n: int,
    examples: Any,
    scratch: Any,
    rules: Any,
) -> bool:
    """Candidates of one feature at a place of a block; False if it is constant. O(n S).

    They are counted from the n labelled rows in ``scratch`` from ``begin`` on.
    """
    blocks, values = forest.blocks, scratch.values
    for i in range(n):
        values[i] = examples.X[feature, scratch.slots[begin + i]]
    tried, cuts, buckets = blocks.tried[block, place], blocks.cuts[block, place], blocks.buckets[block, place]
    key = bits_at(bits_at(forest.nodes[node].key, CUTS), feature)
    tried.feature = feature
    tried.stale = 0
    if examples.categorical[feature]:
        return measure_category(tried, cuts, buckets, key, n, scratch, rules)
    return measure_number(tried, cuts, buckets, key, n, scratch, rules)


@inner_kernel
def label_rows(begin: int, n: int, examples: Any, scratch: Any) -> None:
    """Labels of the n rows in ``scratch`` from ``begin`` on."""
    for i in range(n):
        scratch.labels[i] = examples.y[scratch.slots[begin + i]]


@inner_kernel
def fill_block(forest: Any, node: int, block: int, begin: int, n: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Choose the features of a node and count their candidates, from n rows from ``begin`` on; how many. O(n P S)."""
    label_rows(begin, n, examples, scratch)
    skipped, d = forest.blocks.skipped, len(examples.X)
    key = bits_at(forest.nodes[node].key, ORDER)
    for word in range(skipped.shape[1]):
        skipped[block, word] = 0
    kept = drawn = 0
    while drawn < d and kept < rules.features:
        feature = drawn_feature(key, drawn, scratch.order, scratch.swaps)
        drawn += 1
        if measure(forest, node, block, kept, feature, begin, n, examples, scratch, rules):
            kept += 1
        else:
            skipped[block, feature >> 6] |= np.uint64(1) << np.uint64(feature & 63)
    put_back(scratch.order, scratch.swaps, drawn)
    forest.blocks.kept[block] = kept
    return kept


@inner_kernel
def score_of(left: Any, totals: Any, numeric: bool) -> float:
    """The score of a split, the larger the better; -1 if it does not part the rows.

    Of classes the sum over both sides of (sum of c_k^2) / n; of numbers the square of n q_left - n_left q, over
    n_left n_right. Integers, exact, and then the same float64 operations everywhere.
    """
    if numeric:
        n, n_left = totals[0], left[0]
        n_right = n - n_left
        if n_left <= 0 or n_right <= 0:
            return -1.0
        lack = np.float64(left[1] * n - n_left * totals[1])
        of_numbers: float = lack * lack / (np.float64(n_left) * np.float64(n_right))
        return of_numbers
    n_left = n_right = squares_left = squares_right = np.int64(0)
    for k in range(len(left)):
        on_left = left[k]
        on_right = totals[k] - on_left
        n_left += on_left
        n_right += on_right
        squares_left += on_left * on_left
        squares_right += on_right * on_right
    if n_left <= 0 or n_right <= 0:
        return -1.0
    of_classes: float = np.float64(squares_left) / np.float64(n_left) + np.float64(squares_right) / np.float64(n_right)
    return of_classes


@inner_kernel
def best_of(forest: Any, node: int, block: int, examples: Any, scratch: Any, rules: Any) -> Any:
    """The best candidate of a node: feature (-1: none) and threshold. O(P S K).

    The greatest score; of equals the smaller feature, of one feature the candidate that comes first.
    """
    blocks, left = forest.blocks, scratch.left
    totals, width = forest.totals[node], blocks.buckets.shape[3]
    best, feature, threshold = -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        for m in range(width):
            left[m] = 0
        for j in range(tried.used):
            for m in range(width):
                counted = np.int64(blocks.buckets[block, place, j, m])
                left[m] = counted if category else left[m] + counted
            score = score_of(left, totals, rules.numeric)
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold


@inner_kernel
def change_number(tried: Any, cuts: Any, buckets: Any, x: float, y: int, by: int, present: int, rules: Any) -> bool:
    """Count a value in or out of a feature's candidates; True if they have to be counted anew.

    ``present`` are the rows with a value, before the change. O(S).
    """
    if x != x:
        tried.missing += by
        return bool(tried.missing == (1 if by > 0 else 0))
    if by > 0 and (x < tried.low or x > tried.high):
        return True
    tried.lows += by * (x == tried.low)
    tried.highs += by * (x == tried.high)
    if tried.lows == 0 or tried.highs == 0:
        return True
    if tried.two != (tried.low < tried.high and tried.lows + tried.highs == present + by):
        return True
    b = bucket_of(cuts, np.int64(tried.used), x)
    add_to_bucket(buckets[b], y, by, rules.numeric)
    return False


@inner_kernel
def change_category(
    tried: Any, cuts: Any, buckets: Any, key: np.uint64, x: float, y: int, by: int, n: int, rules: Any
) -> bool:
    """The same of a category; n rows are in the node after the change. O(S)."""
    used, limit = np.int64(tried.used), rules.thresholds
    j = category_at(cuts, used, x)
    if by > 0 and j < 0 and x != NO_CATEGORY:
        if used < limit:
            return True
        number, last = hash_of(key, x), hash_of(key, cuts[used - 1])
        if number < last or (number == last and x < cuts[used - 1]):
            return True
    add_to_bucket(buckets[j if j >= 0 else limit], y, by, rules.numeric)
    if by > 0:
        return False
    if j >= 0 and rows_in(buckets[j], rules.numeric) == 0:
        return True
    for other in range(used):
        if rows_in(buckets[other], rules.numeric) == n:
            return True  # all others have gone: the feature is constant
    return False

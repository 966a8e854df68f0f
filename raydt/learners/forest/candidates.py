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

from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.arrays.rng import below_at, bits_at
from raydt.learners.forest.membership import unit_at
from raydt.learners.forest.node_pool import list_classes
from raydt.learners.forest.nodes import PACKED, STEP
from raydt.trees.masses import mass_of

#: Numbers of a node's sequence: keys of the order of its features, and of its candidates; 0 and 1 are its children's.
ORDER, CUTS = 2, 3
#: The category of rows that lack one.
NO_CATEGORY = -1.0
#: Rows that a byte counts, in whole steps.
FITS = 255 // STEP * STEP


@inlined_kernel
def drawn_feature(key: np.uint64, place: int, order: Any, swaps: Any) -> int:
    """The feature at the next place of a node's order; ``order`` is a permutation that the call changes in two places.

    Fisher and Yates; :func:`put_back` undoes it.
    """
    other = place + below_at(key, place, len(order) - place)
    swaps[place] = other
    feature = order[other]
    order[other] = order[place]
    order[place] = feature
    drawn: int = np.int64(feature)
    return drawn


@inlined_kernel
def put_back(order: Any, swaps: Any, drawn: int) -> None:
    """Make the identity of ``order`` again after so many draws."""
    for back in range(drawn):
        place = drawn - 1 - back
        other = swaps[place]
        feature = order[other]
        order[other] = order[place]
        order[place] = feature


@inlined_kernel
def cut_between(low: float, high: float, unit: float) -> float:
    """A threshold from ``low`` up to below ``high``."""
    width = high - low
    cut = low + unit * width
    if not np.isfinite(width):
        cut = (1.0 - unit) * low + unit * high
    inside: float = cut if cut < high else low
    return inside


@inlined_kernel
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


@inlined_kernel
def add_to_bucket(bucket: Any, y: int, by: int, numeric: bool) -> None:
    """Count a row in or out; ``by`` is its weight, signed."""
    if numeric:
        bucket[0] += by
        bucket[1] += by * y
    else:
        bucket[y] += by


@inlined_kernel
def rows_in(bucket: Any, numeric: bool) -> int:
    """Rows of a bucket."""
    n: int = np.int64(0)
    if numeric:
        n += bucket[0]
    else:
        for k in range(len(bucket)):
            n += bucket[k]
    return n


@inlined_kernel
def bucket_of(cuts: Any, used: int, value: float) -> int:
    """How many thresholds lie below a value."""
    b = 0
    for j in range(used):
        b += value > cuts[j]
    return b


@inlined_kernel
def category_at(cuts: Any, used: int, value: float) -> int:
    """Place of a category among the candidates, -1 if it is none."""
    for j in range(used):
        if cuts[j] == value:
            return j
    return -1


@inlined_kernel
def hash_of(key: np.uint64, category: float) -> np.uint64:
    """The drawn number of a category, by its value."""
    number: np.uint64 = bits_at(key, np.int64(category))
    return number


@inlined_kernel
def is_packed(scratch: Any, classes: int) -> bool:
    """Whether rows of so many classes are counted word by word."""
    packed: bool = 0 < classes <= PACKED * scratch.words.shape[0]
    return packed


@inlined_kernel
def count_packed(buckets: Any, cuts: Any, used: int, n: int, classes: int, scratch: Any, category: bool) -> None:
    """Buckets of n labelled values, which are empty: up to 8 classes in one pass for each candidate.

    The compiler makes the passes wide. Byte m of a word counts the rows of class m, of which so few are added up at
    once that none overflows.
    """
    values, of = scratch.values, scratch.classes
    for first in range(0, classes, PACKED):
        words, many = scratch.words[first // PACKED], min(classes - first, PACKED)
        for begin in range(0, n, FITS):
            end = min(begin + FITS, (n + STEP - 1) // STEP * STEP)
            part, counted = values[begin:end], words[begin:end]
            before = np.uint64(0)
            for j in range(used):
                cut, inside = cuts[j], np.uint64(0)
                if category:
                    for i in range(end - begin):
                        inside += counted[i] if part[i] == cut else np.uint64(0)
                else:
                    for i in range(end - begin):
                        inside += counted[i] if part[i] <= cut else np.uint64(0)
                # No byte borrows from the next one: each has grown since the last threshold, or stayed as it was.
                own = inside - before
                for m in range(many):
                    buckets[j, of[first + m]] += np.int64((own >> np.uint64(8 * m)) & np.uint64(255))
                if not category:
                    before = inside


@inlined_kernel
def measure_number(
    tried: Any, cuts: Any, buckets: Any, key: np.uint64, n: int, low: float, high: float, classes: int, scratch: Any, rules: Any
) -> bool:
    """Extremes, thresholds and buckets of n values (``scratch.values``); False if they are constant."""
    values, labels = scratch.values, scratch.labels
    lows = highs = 0
    end = (n + STEP - 1) // STEP * STEP
    missing = n - end
    for i in range(n, end):
        values[i] = np.nan
    for i in range(end):
        x = values[i]
        lows += x == low
        highs += x == high
        missing += x != x
    if missing == n or (low == high and missing == 0):
        return False
    tried.low, tried.high = low, high
    tried.lows, tried.highs, tried.missing = lows, highs, missing
    draw_cuts(tried, cuts, key, n - missing, rules.thresholds)
    used = np.int64(tried.used)
    clear(buckets)
    if is_packed(scratch, classes):
        count_packed(buckets, cuts, used, n, classes, scratch, False)
        return True
    for i in range(n):
        x = values[i]
        if x == x:
            add_to_bucket(buckets[bucket_of(cuts, used, x)], labels[i], mass_of(scratch.weights, i), rules.numeric)
    return True


@inlined_kernel
def clear(buckets: Any) -> None:
    """Set all counts to 0."""
    for b in range(buckets.shape[0]):
        for m in range(buckets.shape[1]):
            buckets[b, m] = 0


@inlined_kernel
def smallest_categories(cuts: Any, key: np.uint64, n: int, scratch: Any, limit: int) -> int:
    """The values of the smallest drawn numbers among n categories, in this order; how many. Values that were met lately
    are in a small table, so that most rows cost one comparison."""
    values, hashes, met = scratch.values, scratch.hashes, scratch.met
    for place in range(len(met)):
        met[place] = NO_CATEGORY
    used = 0
    for i in range(n):
        value = values[i]
        place = np.int64(value) & (len(met) - 1)
        if met[place] == value or value == NO_CATEGORY:
            continue
        met[place] = value
        if category_at(cuts, used, value) >= 0:
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
    return used


@inlined_kernel
def measure_category(
    tried: Any, cuts: Any, buckets: Any, key: np.uint64, n: int, classes: int, scratch: Any, rules: Any
) -> bool:
    """Candidates and buckets of n categories (``scratch.values``); False if they are constant."""
    values, labels, limit = scratch.values, scratch.labels, rules.thresholds
    first, other = values[0], 1
    while other < n and values[other] == first:
        other += 1
    if other == n:
        return False
    used = smallest_categories(cuts, key, n, scratch, limit)
    clear(buckets)
    tried.low = tried.high = 0.0
    tried.lows = tried.highs = tried.missing = 0
    tried.two = np.int16(0)
    tried.used = np.int16(used)
    if is_packed(scratch, classes):
        count_packed(buckets, cuts, used, n, classes, scratch, True)
        return True
    for i in range(n):
        j = category_at(cuts, used, values[i])
        if j >= 0:
            add_to_bucket(buckets[j], labels[i], mass_of(scratch.weights, i), rules.numeric)
    return True


@inlined_kernel
def measure(
    forest: Any,
    node: int,
    block: int,
    place: int,
    feature: int,
    begin: int,
    n: int,
    classes: int,
    examples: Any,
    scratch: Any,
    rules: Any,
) -> bool:
    """Candidates of one feature at a place of a block; False if it is constant. O(n S).

    They are counted from the n labelled rows in ``scratch`` from ``begin`` on.
    """
    blocks, values, slots, column = forest.blocks, scratch.values, scratch.slots[begin : begin + n], examples.X[:, feature]
    low, high = np.inf, -np.inf
    for i in range(n):
        x = column[np.uint64(slots[i])]
        values[i] = x
        low = x if x < low else low  # never of NaN
        high = x if x > high else high
    tried, cuts, buckets = blocks.tried[block, place], blocks.cuts[block, place], blocks.buckets[block, place]
    key = bits_at(bits_at(forest.nodes[node].key, CUTS), feature)
    tried.feature = feature
    tried.stale = 0
    if examples.categorical[feature]:
        return measure_category(tried, cuts, buckets, key, n, classes, scratch, rules)
    return measure_number(tried, cuts, buckets, key, n, low, high, classes, scratch, rules)


@inlined_kernel
def label_rows(forest: Any, node: int, begin: int, n: int, examples: Any, scratch: Any, rules: Any) -> int:
    """Labels, and weights, of the n rows of a node in ``scratch`` from ``begin`` on; how many classes they have."""
    classes, slots = np.int64(0), scratch.slots[begin : begin + n]
    if not rules.numeric:
        classes = list_classes(forest, node, scratch)
    if is_packed(scratch, classes):
        for m in range(classes):
            scratch.field[scratch.classes[m]] = m
        end = (n + STEP - 1) // STEP * STEP
        for w in range((classes + PACKED - 1) // PACKED):
            words = scratch.words[w]
            for i in range(n):
                place = scratch.field[np.uint64(examples.y[np.uint64(slots[i])])] - w * PACKED
                words[i] = np.uint64(1) << np.uint64(8 * place) if 0 <= place < PACKED else np.uint64(0)
            for i in range(n, end):
                words[i] = np.uint64(0)
        return classes
    for i in range(n):
        scratch.labels[i] = examples.y[slots[i]]
    if len(examples.weight) > 0:
        for i in range(n):
            scratch.weights[i] = examples.weight[slots[i]]
    return classes


@inlined_kernel
def fill_block(
    forest: Any, node: int, block: int, old: int, begin: int, n: int, known: int, examples: Any, scratch: Any, rules: Any
) -> int:
    """Choose the features of a node and count their candidates, from n rows from ``begin`` on; how many. O(n P S).

    Features that are known to be constant, those in entry ``known`` of ``scratch.constant``, are not looked at; those
    found constant are added to it. What is right in block ``old`` of the same node (-1: none) is not counted again.
    """
    classes = label_rows(forest, node, begin, n, examples, scratch, rules)
    blocks, constant, d = forest.blocks, scratch.constant, examples.X.shape[1]
    skipped, held = blocks.skipped, np.int64(blocks.kept[old]) if old >= 0 else np.int64(0)
    key = bits_at(forest.nodes[node].key, ORDER)
    for word in range(skipped.shape[1]):
        skipped[block, word] = 0
    kept = drawn = at = 0
    while drawn < d and kept < rules.features:
        feature = drawn_feature(key, drawn, scratch.order, scratch.swaps)
        drawn += 1
        if at < held and blocks.tried[old, at].feature == feature:  # both are in the order of the node
            at += 1
            if not blocks.tried[old, at - 1].stale:
                copy_candidates(blocks, old, at - 1, block, kept)
                kept += 1
                continue
        word, bit = feature >> 6, np.uint64(1) << np.uint64(feature & 63)
        if not constant[known, word] & bit:
            if measure(forest, node, block, kept, feature, begin, n, classes, examples, scratch, rules):
                kept += 1
                continue
            constant[known, word] |= bit
        skipped[block, word] |= bit
    put_back(scratch.order, scratch.swaps, drawn)
    blocks.kept[block] = kept
    return kept


@inlined_kernel
def copy_candidates(blocks: Any, block: int, place: int, to: int, there: int) -> None:
    """Copy one feature of a block to a place of another. O(S K)."""
    blocks.tried[to, there] = blocks.tried[block, place]
    for j in range(blocks.cuts.shape[2]):
        blocks.cuts[to, there, j] = blocks.cuts[block, place, j]
    for j in range(blocks.buckets.shape[2]):
        for m in range(blocks.buckets.shape[3]):
            blocks.buckets[to, there, j, m] = blocks.buckets[block, place, j, m]


@inlined_kernel
def change_number(
    tried: Any, cuts: Any, buckets: Any, x: float, y: int, row: int, by: int, present: int, rules: Any
) -> bool:
    """Count a value in (``row`` 1) or out (-1) of a feature's candidates; True if they must be recounted.

    ``by`` is the weight of the row, signed; ``present`` are the rows with a value, before the change. O(S).
    """
    if x != x:
        tried.missing += row
        return bool(tried.missing == (1 if row > 0 else 0))
    if row > 0 and (x < tried.low or x > tried.high):
        return True
    tried.lows += row * (x == tried.low)
    tried.highs += row * (x == tried.high)
    if tried.lows == 0 or tried.highs == 0:
        return True
    if tried.two != (tried.low < tried.high and tried.lows + tried.highs == present + row):
        return True
    b = bucket_of(cuts, np.int64(tried.used), x)
    add_to_bucket(buckets[b], y, by, rules.numeric)
    return False


@inner_kernel
def change_category(
    tried: Any, cuts: Any, buckets: Any, node_key: np.uint64, x: float, y: int, by: int, n: int, rules: Any
) -> bool:
    """The same of a category; what the rows of the node count after the change is n. O(S)."""
    used, limit = np.int64(tried.used), rules.thresholds
    j = category_at(cuts, used, x)
    if by > 0 and j < 0 and x != NO_CATEGORY:
        if used < limit:
            return True
        own = bits_at(bits_at(node_key, CUTS), np.int64(tried.feature))
        number, last = hash_of(own, x), hash_of(own, cuts[used - 1])
        if number < last or (number == last and x < cuts[used - 1]):
            return True
    if j >= 0:
        add_to_bucket(buckets[j], y, by, rules.numeric)
    if by > 0:
        return False
    if j >= 0 and rows_in(buckets[j], rules.numeric) == 0:
        return True
    constant = False  # if all others have gone
    for other in range(used):
        constant = constant or rows_in(buckets[other], rules.numeric) == n
    return constant

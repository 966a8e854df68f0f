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

from raydt.arrays.elementary import below_at, bits_at
from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.learners.forest.labels import SUMS, add_weighted, weighted_lack
from raydt.learners.forest.nodes import CLASSES, NEAR, PACKED, STEP, list_classes, mass_at
from raydt.trees.records import mass_of

#: Numbers of a node's sequence: keys of the order of its features, and of its candidates; 0 and 1 are its children's.
ORDER, CUTS = 2, 3
_12, _UNIT = np.uint64(12), 2.0**-52
#: The category of rows that lack one.
NO_CATEGORY = -1.0


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
def unit_at(key: np.uint64, counter: int) -> float:
    """A number in (0, 1): an odd multiple of 2**-53."""
    unit: float = (np.float64(bits_at(key, counter) >> _12) + 0.5) * _UNIT
    return unit


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
    if numeric and len(bucket) == SUMS:
        add_weighted(bucket, y, by)
    elif numeric:
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
    """Return the number of thresholds below a value."""
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
def whole(category: float) -> int:
    """Return a category as an integer; one beyond 64 bits, which processors convert each their way, as the least."""
    number: int = np.int64(category) if abs(category) < 2.0**63 else np.int64(-(2**63))
    return number


@inlined_kernel
def hash_of(key: np.uint64, category: float) -> np.uint64:
    """The drawn number of a category, by its value."""
    number: np.uint64 = bits_at(key, whole(category))
    return number


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


# Count the candidates of a node from its rows: of all its features, or of one.
#
# Rows of up to ``MOST_WORDS`` times 8 classes are counted by *words*: a row has a 1 in the byte of its class, so that
# one sum counts all classes. Weights and numeric labels are added up row by row.

#: Rows that a byte counts, in whole steps.
FITS = 255 // STEP * STEP


@inlined_kernel
def up_to_step(n: int) -> int:
    """The least number of whole steps that have room for n."""
    whole: int = (n + STEP - 1) // STEP * STEP
    return whole


@inlined_kernel
def take_column(values: Any, slots: Any, column: Any) -> Any:
    """Copy the values of some slots; their extremes, which are infinite if all are missing."""
    low, high = np.inf, -np.inf
    for i in range(len(slots)):
        x = column[np.uint64(slots[i])]
        values[i] = x
        low = x if x < low else low  # never of NaN
        high = x if x > high else high
    return low, high


@inlined_kernel
def is_packed(column: Any, classes: int) -> bool:
    """Return True if rows of so many classes are counted word by word."""
    packed: bool = 0 < classes <= PACKED * column.words.shape[0]
    return packed


@inlined_kernel
def count_packed(buckets: Any, cuts: Any, used: int, n: int, classes: int, column: Any, category: bool) -> None:
    """Buckets of n labelled values, which are empty: up to 8 classes in one pass for each candidate.

    The compiler makes the passes wide. Byte m of a word counts the rows of class m, of which so few are added up at
    once that none overflows.
    """
    values, of = column.values, column.classes
    for first in range(0, classes, PACKED):
        words, many = column.words[first // PACKED], min(classes - first, PACKED)
        for begin in range(0, n, FITS):
            end = min(begin + FITS, up_to_step(n))
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


@inner_kernel
def measure_number(tried: Any, cuts: Any, buckets: Any, key: np.uint64, n: int, column: Any, rules: Any) -> bool:
    """Thresholds and buckets of n values, whose extremes are in ``tried``; False if they are constant."""
    values, labels, classes, low, high = column.values, column.labels, column.reg[CLASSES], tried.low, tried.high
    lows = highs = 0
    end = up_to_step(n)
    missing = n - end  # what fills the last step is no value
    for i in range(n, end):
        values[i] = np.nan
    for i in range(end):
        x = values[i]
        lows += x == low
        highs += x == high
        missing += x != x
    if missing == n or (low == high and missing == 0):
        return False
    tried.lows, tried.highs, tried.missing = lows, highs, missing
    draw_cuts(tried, cuts, key, n - missing, rules.thresholds)
    used = np.int64(tried.used)
    clear(buckets)
    if is_packed(column, classes):
        count_packed(buckets, cuts, used, n, classes, column, False)
        return True
    for i in range(n):
        x = values[i]
        if x == x:
            add_to_bucket(buckets[bucket_of(cuts, used, x)], labels[i], mass_of(column.weights, i), rules.numeric)
    return True


@inlined_kernel
def clear(buckets: Any) -> None:
    """Set all counts to 0."""
    for b in range(buckets.shape[0]):
        for m in range(buckets.shape[1]):
            buckets[b, m] = 0


@inlined_kernel
def smallest_categories(cuts: Any, key: np.uint64, n: int, column: Any, limit: int) -> int:
    """Put the categories with the smallest drawn numbers among n values into ``cuts``, in this order; return how many.

    Values that were met lately are in a small table, so that most rows cost one comparison.
    """
    values, hashes, met = column.values, column.hashes, column.met
    for place in range(len(met)):
        met[place] = NO_CATEGORY
    used = 0
    for i in range(n):
        value = values[i]
        place = whole(value) & (len(met) - 1)
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


@inner_kernel
def measure_category(tried: Any, cuts: Any, buckets: Any, key: np.uint64, n: int, column: Any, rules: Any) -> bool:
    """Candidates and buckets of n categories; False if they are constant."""
    values, labels, classes, limit = column.values, column.labels, column.reg[CLASSES], rules.thresholds
    first, other = values[0], 1
    while other < n and values[other] == first:
        other += 1
    if other == n:
        return False
    used = smallest_categories(cuts, key, n, column, limit)
    clear(buckets)
    tried.low = tried.high = 0.0
    tried.lows = tried.highs = tried.missing = 0
    tried.two = np.int16(0)
    tried.used = np.int16(used)
    if is_packed(column, classes):
        count_packed(buckets, cuts, used, n, classes, column, True)
        return True
    for i in range(n):
        j = category_at(cuts, used, values[i])
        if j >= 0:
            add_to_bucket(buckets[j], labels[i], mass_of(column.weights, i), rules.numeric)
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
    examples: Any,
    scratch: Any,
    rules: Any,
) -> bool:
    """Candidates of one feature at a place of a block; False if it is constant. O(n S).

    They are counted from the n labelled rows in ``scratch`` from ``begin`` on.
    """
    blocks, column, slots = forest.blocks, scratch.column, scratch.slots[begin : begin + n]
    if column.reg[NEAR]:
        low, high = take_column(column.values, slots, scratch.near.X[:, feature])
    else:
        low, high = take_column(column.values, slots, examples.X[:, feature])
    tried, cuts, buckets = blocks.tried[block, place], blocks.cuts[block, place], blocks.buckets[block, place]
    key = bits_at(bits_at(forest.nodes[node].key, CUTS), feature)
    tried.feature = feature
    tried.stale = 0
    tried.low, tried.high = low, high
    if examples.categorical[feature]:
        return measure_category(tried, cuts, buckets, key, n, column, rules)
    return measure_number(tried, cuts, buckets, key, n, column, rules)


@inlined_kernel
def label_rows(forest: Any, node: int, begin: int, n: int, examples: Any, scratch: Any, rules: Any) -> None:
    """Labels, and weights, of the n rows of a node in ``scratch`` from ``begin`` on, or words of their classes."""
    column, slots, classes = scratch.column, scratch.slots[begin : begin + n], np.int64(0)
    if not rules.numeric:
        classes = list_classes(forest, node, column.classes)
    column.reg[CLASSES] = classes
    y, weight = examples.y, examples.weight
    if column.reg[NEAR]:
        y, weight = scratch.near.y, scratch.near.weight
    if not is_packed(column, classes):
        for i in range(n):
            column.labels[i] = y[slots[i]]
        if len(weight) > 0:
            for i in range(n):
                column.weights[i] = weight[slots[i]]
        return
    field = scratch.field
    for m in range(classes):
        field[column.classes[m]] = m
    for first in range(0, classes, PACKED):
        words = column.words[first // PACKED]
        for i in range(n):
            place = field[np.uint64(y[np.uint64(slots[i])])] - first
            words[i] = np.uint64(1) << np.uint64(8 * place) if 0 <= place < PACKED else np.uint64(0)
        for i in range(n, up_to_step(n)):
            words[i] = np.uint64(0)


@inlined_kernel
def fill_block(
    forest: Any,
    node: int,
    block: int,
    old: int,
    begin: int,
    n: int,
    known: int,
    examples: Any,
    scratch: Any,
    rules: Any,
) -> int:
    """Choose the features of a node and count their candidates, from n rows from ``begin`` on; how many. O(n P S).

    Features that are known to be constant, those in entry ``known`` of ``scratch.constant``, are not looked at; those
    found constant are added to it. What is right in block ``old`` of the same node (-1: none) is not counted again.
    """
    label_rows(forest, node, begin, n, examples, scratch, rules)
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
                copy_candidates(blocks, old, at - 1, blocks, block, kept)
                kept += 1
                continue
        word, bit = feature >> 6, np.uint64(1) << np.uint64(feature & 63)
        if not constant[known, word] & bit:
            if measure(forest, node, block, kept, feature, begin, n, examples, scratch, rules):
                kept += 1
                continue
            constant[known, word] |= bit
        skipped[block, word] |= bit
    put_back(scratch.order, scratch.swaps, drawn)
    blocks.kept[block] = kept
    return kept


@inlined_kernel
def copy_candidates(blocks: Any, block: int, place: int, own: Any, to: int, there: int) -> None:
    """Copy one feature of a block to a place of another, among other blocks or the same. O(S K)."""
    own.tried[to, there] = blocks.tried[block, place]
    for j in range(blocks.cuts.shape[2]):
        own.cuts[to, there, j] = blocks.cuts[block, place, j]
    for j in range(blocks.buckets.shape[2]):
        for m in range(blocks.buckets.shape[3]):
            own.buckets[to, there, j, m] = blocks.buckets[block, place, j, m]


# The best candidate of a node: scores of integer counts, and the total order on candidates.


@inlined_kernel
def lack_of(left: int, n_left: int, total: int, n: int) -> float:
    """``left n - n_left total`` of sums of numeric labels, up to 2**62, rounded once from the exact difference."""
    above = (left >> 32) * n - n_left * (total >> 32)
    below = (left & 0xFFFFFFFF) * n - n_left * (total & 0xFFFFFFFF)
    above += below >> 32
    lack: float = np.float64(above) * 4294967296.0 + np.float64(below & 0xFFFFFFFF)
    return lack


@inlined_kernel
def weighted_squares(left: Any, n_left: int, totals: Any, n: int, classes: Any) -> float:
    """The sum over some classes of the squares of :func:`class_squares`, where counts are weights in units.

    These are up to 2**43 a node, so that only a float64 has room. Each difference is taken between the sides,
    l_k n_right - n_left r_k, whose products are rounded once: exact, and so 2**32 times that of repeated rows, where
    all weights are whole, and of the same size for both sides always.
    """
    squares = 0.0
    for m in range(len(classes)):
        own, all_own = left[m], totals[classes[m]]
        lack = np.float64(own) * np.float64(n - n_left) - np.float64(n_left) * np.float64(all_own - own)
        squares += lack * lack
    return squares


@inlined_kernel
def class_squares(left: Any, n_left: int, totals: Any, n: int, classes: Any) -> float:
    """The sum over some classes of (n l_k - n_left c_k)^2: each difference is an exact integer."""
    squares = 0.0
    for m in range(len(classes)):
        lack = np.float64(left[m] * n - n_left * totals[classes[m]])
        squares += lack * lack
    return squares


@inlined_kernel
def best_of_two(forest: Any, node: int, block: int, examples: Any, zero: int, one: int) -> Any:
    """As :func:`best_of`, of rows of two classes: nothing is kept in memory on the way."""
    blocks, n, ones = forest.blocks, np.int64(forest.nodes[node].n), forest.totals[node, one]
    best, feature, threshold = -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        n_left = on_left = np.int64(0)
        for j in range(tried.used):
            counted = np.int64(blocks.buckets[block, place, j, one])
            rows = counted + np.int64(blocks.buckets[block, place, j, zero])
            on_left = counted if category else on_left + counted
            n_left = rows if category else n_left + rows
            score = -1.0
            if 0 < n_left < n:
                lack = np.float64(on_left * n - n_left * ones)  # both differences are of one size
                score = (lack * lack + lack * lack) / np.float64(n_left * (n - n_left))
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold


@inlined_kernel
def best_of(forest: Any, node: int, block: int, examples: Any, scratch: Any, rules: Any) -> Any:
    """The best candidate of a node: feature (-1: none) and threshold. O(P S K).

    The greatest score; of equals the smaller feature, of one feature the candidate that comes first.

    The score of a split of n rows is the sum over the classes of (n l_k - n_left c_k)^2, over n_left n_right: the
    decrease of the Gini index times n^2. Of numbers the same of their sums, instead of the counts of a class. What
    follows an exact integer are the same float64 operations everywhere: classes are added up in the order of their
    labels, not of their codes, and one without rows, which would add 0, is passed over.
    """
    classes, many = scratch.column.classes, np.int64(forest.blocks.buckets.shape[3])  # columns of numbers
    if not rules.numeric:
        many = list_classes(forest, node, classes)
        if many == 2 and rules.unit == 1:
            of_two: Any = best_of_two(forest, node, block, examples, classes[0], classes[1])
            return of_two
    blocks, left, n, totals = forest.blocks, scratch.left, mass_at(forest, node, rules), forest.totals[node]
    some, best, feature, threshold = classes[:many], -1.0, np.int64(-1), 0.0
    for place in range(blocks.kept[block]):
        tried = blocks.tried[block, place]
        j_feature = np.int64(tried.feature)
        category = examples.categorical[j_feature]
        n_left = np.int64(0)
        for m in range(many):
            left[m] = 0
        for j in range(tried.used):
            if category:
                n_left = np.int64(0)
            for m in range(many):
                counted = np.int64(blocks.buckets[block, place, j, m if rules.numeric else classes[m]])
                left[m] = counted if category else left[m] + counted
                n_left += counted
            if rules.numeric:
                n_left = left[0]
            score = -1.0
            if 0 < n_left < n:
                if rules.numeric:
                    lack = weighted_lack(left, totals) if rules.unit > 1 else lack_of(left[1], n_left, totals[1], n)
                    squares = lack * lack
                elif rules.unit > 1:
                    squares = weighted_squares(left, n_left, totals, n, some)
                else:
                    squares = class_squares(left, n_left, totals, n, some)
                parted = (
                    np.float64(n_left) * np.float64(n - n_left) if rules.unit > 1 else np.float64(n_left * (n - n_left))
                )
                score = squares / parted
            if score > best or (score == best and score >= 0.0 and j_feature < feature):
                best, feature, threshold = score, j_feature, blocks.cuts[block, place, j]
    return feature, threshold

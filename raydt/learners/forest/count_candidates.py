"""Count the candidates of a node from its rows: of all its features, or of one.

Rows of up to ``MOST_WORDS`` times 8 classes are counted by *words*: a row has a 1 in the byte of its class, so that one
sum counts all classes. Weights and numeric labels are added up row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.arrays.rng import bits_at
from raydt.learners.forest.candidates import (
    CUTS,
    NO_CATEGORY,
    ORDER,
    add_to_bucket,
    bucket_of,
    category_at,
    draw_cuts,
    drawn_feature,
    hash_of,
    put_back,
    whole,
)
from raydt.learners.forest.node_pool import list_classes
from raydt.learners.forest.nodes import CLASSES, NEAR, PACKED, STEP
from raydt.trees.masses import mass_of

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
                copy_candidates(blocks, old, at - 1, block, kept)
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
def copy_candidates(blocks: Any, block: int, place: int, to: int, there: int) -> None:
    """Copy one feature of a block to a place of another. O(S K)."""
    blocks.tried[to, there] = blocks.tried[block, place]
    for j in range(blocks.cuts.shape[2]):
        blocks.cuts[to, there, j] = blocks.cuts[block, place, j]
    for j in range(blocks.buckets.shape[2]):
        for m in range(blocks.buckets.shape[3]):
            blocks.buckets[to, there, j, m] = blocks.buckets[block, place, j, m]

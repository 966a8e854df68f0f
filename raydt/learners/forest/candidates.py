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
from raydt.learners.forest.weighted_labels import SUMS, add_weighted

#: Numbers of a node's sequence: keys of the order of its features, and of its candidates; 0 and 1 are its children's.
ORDER, CUTS = 2, 3
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

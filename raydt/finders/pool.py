"""Counters of features at nodes: one pool of entries for all (unit, feature) pairs that are seen.

A *unit* is one feature group at one node. Its entries are found by feature, through one open-addressing table for the
whole pool, and listed by unit, so that a unit can be given back. An entry whose feature is 1 in no row any more stays
until ``free_dead`` is called and has enough to do. Memory follows the most entries that were alive at once, never the
dimension nor how many there ever were.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, grown
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.updates import UNIT

# Pairing heaps (Fredman, Sedgewick, Sleator, Tarjan 1986) threaded through the entries of a pool.
#
# A heap is the number of its root, -1 if it is empty. Insertion and a smaller key are O(1), removal of any member
# O(log n) amortised; no heap has memory of its own, so that there may be thousands of small ones. What a heap answers,
# its smallest (key, feature), depends on its members alone, never on their order of arrival.

#: One member: ``prev`` is the sibling before it, the parent of a first child, -1 of a root.
LINK = np.dtype(
    [("key", np.float64), ("child", np.int32), ("next", np.int32), ("prev", np.int32), ("feature", np.int32)]
)


@inner_kernel
def _meld(links: Any, p: int, q: int) -> int:
    """Make the root with the larger (key, feature) the first child of the other; the root of both."""
    if links[q].key < links[p].key or (links[q].key == links[p].key and links[q].feature < links[p].feature):
        p, q = q, p
    first = links[p].child
    links[q].next = first
    links[q].prev = p
    if first >= 0:
        links[first].prev = q
    links[p].child = q
    return p


@inner_kernel
def _pair(links: Any, first: int) -> int:
    """Meld siblings to one heap: in pairs from the first, then the pairs from the last; its root."""
    done = -1  # pairs, the last first, chained by ``prev``
    at = first
    while at >= 0:
        second = links[at].next
        if second < 0:
            after = -1
            pair = at
        else:
            after = links[second].next
            pair = _meld(links, at, second)
        links[pair].prev = done
        done = pair
        at = after
    root = -1
    while done >= 0:
        before = links[done].prev
        root = done if root < 0 else _meld(links, root, done)
        done = before
    return root


@inner_kernel
def insert(links: Any, root: int, e: int, key: float) -> int:
    """Put entry ``e`` into a heap; its new root."""
    links[e].key = key
    links[e].child = links[e].next = links[e].prev = -1
    return e if root < 0 else _meld(links, root, e)


@inner_kernel
def _unlink(links: Any, e: int) -> None:
    """Take entry ``e``, which is not a root, from its siblings and its parent."""
    before, after = links[e].prev, links[e].next
    if links[before].child == e:
        links[before].child = after
    else:
        links[before].next = after
    if after >= 0:
        links[after].prev = before


@inner_kernel
def remove(links: Any, root: int, e: int) -> int:
    """Take entry ``e`` out of its heap; its new root, -1 if it is empty now."""
    below = _pair(links, links[e].child)
    if below >= 0:
        links[below].next = links[below].prev = -1
    if e == root:
        return below
    _unlink(links, e)
    return root if below < 0 else _meld(links, root, below)


@inner_kernel
def lower(links: Any, root: int, e: int, key: float) -> int:
    """Give entry ``e`` a smaller key; the new root. O(1)."""
    links[e].key = key
    if e == root:
        return root
    _unlink(links, e)
    links[e].next = links[e].prev = -1
    return _meld(links, root, e)


@inner_kernel
def lift(links: Any, root: int, key: float) -> int:
    """Give the root a larger key; the new root."""
    return insert(links, remove(links, root, root), root, key)


#: Heaps of a bucket: smallest key; first to fall below s; first to rise above t.
T, L, U = 0, 1, 2
#: Registers: entries that were ever used, head of the list of free ones (-1: none), entries in use, moves of the tests,
#: notes in the journal (-1: none are taken), entries in use when dead ones were freed last or fewer since.
USED, FREE, LIVE, MOVES, NOTES, KEPT = 0, 1, 2, 3, 4, 5
#: So many entries may be dead before it is worth looking for them.
_FEW = 1 << 12
#: Entries made room for at once where none live.
_LEAST = 1 << 8
_HASH = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


class Pool(NamedTuple):
    """Entries by number, and what leads to them."""

    feature: Int32s  #: ``feature``, ``unit``, ``n1``, ``c11``: Shape (capacity,).
    unit: Int32s
    n1: AnyArray  #: ``n1``, ``c11``, ``journal``: int32, or int64 of masses (``raydt.trees.records``).
    c11: AnyArray
    #: Shape (capacity,): -1 of an entry that is in none: n1 is 0, or the finder is a scan.
    bucket: npt.NDArray[np.int16]
    next: Int32s  #: Shape (capacity,): the next entry of the unit, or the next free one.
    links: npt.NDArray[np.void]  #: Shape (3, capacity): places in the heaps T, L and U.
    table: Int32s  #: Shape (power of two,): entries by unit and feature; -1 where empty.
    first: Int32s  #: Shape (units,): the first entry of each unit.
    roots: Int32s  #: Shape (units, buckets, 3).
    filled: npt.NDArray[np.uint64]  #: Shape (units, words): which buckets have members.
    journal: AnyArray  #: Shape (notes, 4): what was changed: entry, and its n1, c11 and bucket before.
    reg: Ints  #: Shape (6,).


def new_pool(buckets: int, counter: type[np.int32] | type[np.int64] = np.int32) -> Pool:
    """A pool without units; ``buckets`` is 0 for a scan, which needs no heaps. ``counter`` is the type of counters."""
    feature, unit, following = (np.empty(0, dtype=np.int32) for _ in range(3))
    n1, c11 = (np.empty(0, dtype=counter) for _ in range(2))
    return Pool(
        feature,
        unit,
        n1,
        c11,
        np.empty(0, dtype=np.int16),
        following,
        np.empty((3, 0), dtype=LINK),
        np.full(16, -1, dtype=np.int32),
        np.empty(0, dtype=np.int32),
        np.empty((0, buckets, 3), dtype=np.int32),
        np.empty((0, (buckets + 63) // 64), dtype=np.uint64),
        np.empty((0, 4), dtype=counter),
        np.array([0, -1, 0, 0, -1, 0], dtype=np.int64),
    )


def with_entries(pool: Pool, entries: int) -> Pool:
    """The same pool with room for so many more entries."""
    need, have = int(pool.reg[LIVE]) + entries, len(pool.feature)
    if need > have:
        capacity = max(need, have + have // 2, 64)
        heaps = pool.roots.shape[1] > 0
        links = empty((3, capacity if heaps else 0), LINK)
        if heaps:
            links[:, :have] = pool.links
        names = ("feature", "unit", "n1", "c11", "bucket", "next")
        pool = pool._replace(links=links, **{name: grown(getattr(pool, name), capacity) for name in names})
    if 2 * need > len(pool.table):
        table = np.full(1 << (2 * need).bit_length(), -1, dtype=np.int32)
        _refill(pool, table)
        pool = pool._replace(table=table)
    return pool


def weighed(pool: Pool) -> Pool:
    """The same pool whose counters are masses; nothing may be in the journal."""
    n1, c11 = (counter.astype(np.int64) * UNIT for counter in (pool.n1, pool.c11))
    return pool._replace(n1=n1, c11=c11, journal=pool.journal.astype(np.int64))


def room_at_once(pool: Pool, last: int, most: int) -> int:
    """Entries to make room for at once: for steps enough to be worth a call, but no more than a small model needs.

    ``last`` were made room for the last time in this batch, 0 if none: of a long batch each call takes twice the steps
    of the one before, up to ``most`` entries.
    """
    return min(most, max(_LEAST + 2 * int(pool.reg[LIVE]), 2 * last))


def with_units(pool: Pool, units: int) -> Pool:
    """The same pool with units 0, ..., ``units`` - 1 or more."""
    have = len(pool.first)
    if units <= have:
        return pool
    capacity = max(units, have + have // 2)
    first, roots, filled = (grown(array, capacity) for array in (pool.first, pool.roots, pool.filled))
    first[have:] = roots[have:] = -1
    filled[have:] = 0
    return pool._replace(first=first, roots=roots, filled=filled)


@inlined_kernel
def _home(unit: int, feature: int, mask: int) -> int:
    mixed = np.uint64(feature) * _HASH + np.uint64(unit) * _MIX
    home: int = np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(mask))
    return home


@inlined_kernel
def find(pool: Any, unit: int, feature: int) -> int:
    """The entry of a feature at a unit, or -1 - (the empty place of the table where it belongs)."""
    table = pool.table
    mask = len(table) - 1
    at = _home(unit, feature, mask)
    while table[at] >= 0:
        e: int = table[at]
        if pool.feature[e] == feature and pool.unit[e] == unit:
            return e
        at = (at + 1) & mask
    return -1 - at


@inlined_kernel
def find_or_add(pool: Any, unit: int, feature: int) -> int:
    """The entry of a feature at a unit, a new one if there is none; the caller has made room."""
    found = find(pool, unit, feature)
    if found >= 0:
        return found
    reg = pool.reg
    e: int = reg[FREE]
    if e >= 0:
        reg[FREE] = pool.next[e]
    else:
        e = reg[USED]
        reg[USED] += 1
    reg[LIVE] += 1
    pool.table[-1 - found] = e
    pool.feature[e], pool.unit[e] = feature, unit
    pool.n1[e] = pool.c11[e] = 0
    pool.bucket[e] = -1
    pool.next[e] = pool.first[unit]
    pool.first[unit] = e
    return e


@inlined_kernel
def _forget(pool: Any, e: int) -> None:
    """Take an entry out of the table, moving later entries of the run back so that no tombstone is needed."""
    table = pool.table
    mask = len(table) - 1
    at = _home(pool.unit[e], pool.feature[e], mask)
    while table[at] != e:
        at = (at + 1) & mask
    hole = at
    while True:
        at = (at + 1) & mask
        other = table[at]
        if other < 0:
            break
        home = _home(pool.unit[other], pool.feature[other], mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = other
            hole = at
    table[hole] = -1


@inlined_kernel
def _free(pool: Any, e: int) -> None:
    """Make an entry free, which is out of the list of its unit."""
    _forget(pool, e)
    pool.next[e] = pool.reg[FREE]
    pool.reg[FREE] = e
    pool.reg[LIVE] -= 1
    pool.unit[e] = -1
    pool.n1[e] = 0


@inlined_kernel
def release(pool: Any, unit: int) -> None:
    """Empty a unit. O(its entries + buckets)."""
    e = pool.first[unit]
    while e >= 0:
        after = pool.next[e]
        _free(pool, e)
        e = after
    pool.first[unit] = -1
    pool.roots[unit] = -1
    pool.filled[unit] = 0


@kernel
def release_nodes(pool: Any, per: int, nodes: Any) -> None:
    """Empty the units of nodes that are gone, of which each has had ``per``."""
    for node in nodes:
        for unit in range(node * per, (node + 1) * per):
            if unit < len(pool.first):
                release(pool, unit)


def free_dead(pool: Pool) -> None:
    """Free the entries of features without ones, if the dead may outnumber the others; O(1) for each that was added.

    Not while the journal has notes, which name entries by their numbers. The others keep theirs.
    """
    reg = pool.reg
    reg[KEPT] = min(reg[KEPT], reg[LIVE])
    if reg[LIVE] > 2 * reg[KEPT] + _FEW:
        _sweep(pool)
        reg[KEPT] = reg[LIVE]


@kernel
def _sweep(pool: Any) -> None:
    for unit in range(len(pool.first)):
        before, e = -1, pool.first[unit]
        while e >= 0:
            after = pool.next[e]
            if pool.n1[e] != 0:
                before = e
            else:
                if before >= 0:
                    pool.next[before] = after
                else:
                    pool.first[unit] = after
                _free(pool, e)
            e = after


@kernel
def _refill(pool: Any, table: Any) -> None:
    mask = len(table) - 1
    for unit in range(len(pool.first)):
        e = pool.first[unit]
        while e >= 0:
            at = _home(unit, pool.feature[e], mask)
            while table[at] >= 0:
                at = (at + 1) & mask
            table[at] = e
            e = pool.next[e]


# Buckets of features by rho = c01 / n0, the share of class 1 where the feature is 0.
#
# Within a bucket features are compared by a key that depends on their own counters only, so that a row changes the
# keys of its ones and no others; the interval [s, t] of rho is such that the smallest key is within (1 + alpha) of the
# best score of the bucket (paper, Propositions 4.2 and 5.2). Intervals overlap, so that a feature at a border does not
# move at every update. For entropy this departs from the paper, which keeps a feature in a range of trees; see
# ``docs/explanation/guarantees.md``.
#
# A mirrored bucket takes class 0 for class 1: of entropy those with rho > 1/2.

#: Rows of a node stay below two to this power, and the units of its mass do not exceed the other: the least rho that is
#: not 0 is one row, or unit, of them all.
_LOG_ROWS, _LOG_MASS = 31, 48
#: How far inside the true interval the tests of entropy are, relative: far above their rounding.
_RIM = 1e-9


class BucketConstants(NamedTuple):
    """Constants of all buckets."""

    entropy: bool  #: The criterion; else Gini.
    #: ``s``, ``t``: Shape (buckets,): a member whose rho (1 - rho if mirrored) is outside [s, t] is in the wrong
    #: bucket.
    s: Floats
    t: Floats
    low: Bools  #: ``low``, ``high``: Shape (buckets,): whether rho can be below s, above t at all.
    high: Bools
    #: ``a``, ``b``: Shape (buckets,): key of a member: its own impurity (``of_side``; twice that for Gini) plus ``a``
    #: c10 plus ``b`` c11.
    a: Floats
    b: Floats
    mirrored: Bools  #: Shape (buckets,).
    edges: Floats  #: Where one bucket follows on another (:func:`bucket_of`).


@functools.lru_cache(maxsize=8)  # of every shard of a process
def buckets_of(finder: Literal["updgini", "updent"], alpha: float, *, masses: bool = False) -> BucketConstants:
    """The buckets of a finder: about 4 / alpha of UPDGINI, 14 / alpha of UPDENT. Nobody changes them.

    UPDENT has a tenth more of them where counts are ``masses``, whose rho may be less.
    """
    if finder == "updgini":
        return _of_gini(alpha)
    return _of_entropy(alpha, _LOG_MASS if masses else _LOG_ROWS)


def among_masses(
    buckets: BucketConstants, wide: BucketConstants, bucket: npt.NDArray[np.int16]
) -> npt.NDArray[np.int16]:
    """Numbers that buckets of rows have among those ``wide`` of masses: the mirrored ones follow on all others."""
    more = (len(wide.s) - len(buckets.s)) // 2
    return np.where(bucket >= len(buckets.s) // 2, bucket + more, bucket).astype(np.int16) if more else bucket


def _of_gini(alpha: float) -> BucketConstants:
    """Intervals of equal width (section 5)."""
    beta = alpha / (alpha + 2)
    k = np.arange(math.floor(2 / beta) + 1)
    s, t, mu = (k / 2 - 1 / 4) * beta, (k / 2 + 3 / 4) * beta, (k / 2 + 1 / 4) * beta
    a, b = np.where(mu < 0.5, 0.0, -2.0 * mu), np.where(mu < 0.5, -2.0 * (1.0 - mu), 0.0)
    return BucketConstants(False, s, t, s > 0, t < 1, a, b, np.zeros(len(k), dtype=np.bool_), np.array([2 / beta]))


def _of_entropy(alpha: float, log_rows: int) -> BucketConstants:
    """An exact bucket for rho = 0, intervals of equal width in log log 1/rho up to 1/2, and all of these mirrored."""
    most = math.floor(2 * math.log(log_rows) / math.log1p(alpha))
    edges = [2.0 ** -((1 + alpha) ** (k / 2)) for k in range(most + 1)]
    lowest = [2.0 ** -((1 + alpha) ** (k / 2 + 3 / 4)) for k in range(most + 1)]
    highest = [2.0 ** -((1 + alpha) ** (k / 2 - 1 / 4)) for k in range(most + 1)]
    s = np.array([0.0, *(value * (1 + _RIM) for value in lowest)])
    t = np.array([0.0, *(value * (1 - _RIM) for value in highest)])
    a = np.array([0.0, *(math.log1p(-mu) for mu in lowest)])
    b = np.array([0.0, *(math.log(mu) for mu in lowest)])
    mirrored = np.repeat([False, True], len(s))
    always = np.ones(2 * len(s), dtype=np.bool_)
    swapped = np.concatenate([a, b]), np.concatenate([b, a])
    low = np.tile(s > 0, 2)
    return BucketConstants(True, np.tile(s, 2), np.tile(t, 2), low, always, *swapped, mirrored, np.array(edges))


@inlined_kernel
def _at_edges(edges: Any, rho: float) -> int:
    """The last edge, of falling ones, that is not below rho."""
    low, high = 0, len(edges) - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if edges[middle] >= rho:
            low = middle
        else:
            high = middle - 1
    return low


@inlined_kernel
def bucket_of(buckets: Any, n0: int, c01: int) -> int:
    """The bucket in whose middle rho = c01 / n0 lies, away from its ends; a feature that is always 1 has rho 0."""
    if not buckets.entropy:
        rho = c01 / n0 if n0 > 0 else 0.0
        middle: int = min(len(buckets.s) - 1, np.int64(rho * buckets.edges[0]))
        return middle
    if c01 == 0:
        return 0
    half = len(buckets.s) // 2
    if c01 == n0:
        return half
    if 2 * c01 <= n0:
        return 1 + _at_edges(buckets.edges, c01 / n0)
    return half + 1 + _at_edges(buckets.edges, (n0 - c01) / n0)

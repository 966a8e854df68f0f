"""The structure of UPDENT and UPDGINI (Algorithms 1 and 2), for many units at once, under insertions and deletions.

Every feature that is 1 in some row of the node is in exactly one bucket of its unit, in up to three heaps: T by its
key, L and U by how near it is to the ends of the bucket's interval (Proposition 4.3: rho of all features changes with
every row, but the order within L and U does not). After every change of a node, ``change`` for each one of the row and
``settle`` for each unit restore: rho of every feature lies in the interval of its bucket.

A key that is kept in a heap may be smaller than what it would be now, never larger: a key that falls is lowered at
once, one that rises waits until the entry is at the root and its key is asked for. Most keys rise and fall in turns far
from the root, so that a row seldom costs more than O(1) for each of its ones.

Deletions, which the paper leaves out: the tests of L and U depend on the counters only and run after every change; a
feature may come back to rho = 0 or 1; one whose last one is deleted leaves its bucket.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inlined_kernel
from raydt.arrays.types import Floats
from raydt.finders import heaps
from raydt.finders.buckets import Buckets, bucket_of
from raydt.finders.pool import MOVES, NOTES, L, Pool, T, U, find_or_add
from raydt.finders.scores import of_side, score_of

#: A de Bruijn sequence: multiplied by 2**b, its six highest bits are different for every b.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_NUMBER_OF = np.zeros(64, dtype=np.int64)
for _b in range(64):
    _NUMBER_OF[((0x03F79D71B4CB0A89 << _b) & (2**64 - 1)) >> 58] = _b


class Structure(NamedTuple):
    """Entries with their heaps, the constants of the buckets, and k log k for entropy."""

    pool: Pool
    buckets: Buckets
    table: Floats


@inlined_kernel
def _key(structure: Any, e: int, k: int) -> float:
    """Score that features of bucket ``k`` are compared by."""
    pool, buckets, table = structure
    n1, c11 = pool.n1[e], pool.c11[e]
    of_ones = of_side(buckets.entropy, table, n1, c11)
    own = of_ones if buckets.entropy else 2.0 * of_ones
    key: float = own + buckets.a[k] * (n1 - c11) + buckets.b[k] * c11
    return key


@inlined_kernel
def _above_low(structure: Any, e: int, k: int) -> float:
    """Value that must be at least ``s n - c1`` (Proposition 4.3), or rho is below s."""
    pool, buckets = structure.pool, structure.buckets
    own = pool.n1[e] - pool.c11[e] if buckets.mirrored[k] else pool.c11[e]
    key: float = buckets.s[k] * pool.n1[e] - own
    return key


@inlined_kernel
def _below_high(structure: Any, e: int, k: int) -> float:
    """Value that must be at least ``c1 - t n``, or rho is above t."""
    pool, buckets = structure.pool, structure.buckets
    own = pool.n1[e] - pool.c11[e] if buckets.mirrored[k] else pool.c11[e]
    key: float = own - buckets.t[k] * pool.n1[e]
    return key


@inlined_kernel
def attach(structure: Any, e: int, k: int) -> None:
    """Put an entry, whose counters are set, into bucket ``k`` of its unit."""
    pool, buckets = structure.pool, structure.buckets
    roots = pool.roots[pool.unit[e], k]
    for h in range(3):
        pool.links[h, e].feature = pool.feature[e]
    roots[T] = heaps.insert(pool.links[T], roots[T], e, _key(structure, e, k))
    if buckets.low[k]:
        roots[L] = heaps.insert(pool.links[L], roots[L], e, _above_low(structure, e, k))
    if buckets.high[k]:
        roots[U] = heaps.insert(pool.links[U], roots[U], e, _below_high(structure, e, k))
    pool.bucket[e] = k
    pool.filled[pool.unit[e], k >> 6] |= _bit(k)


@inlined_kernel
def _stay(structure: Any, e: int, k: int) -> None:
    """Bring the keys of an entry, whose counters have changed, down to what they are; larger ones wait."""
    pool, buckets = structure.pool, structure.buckets
    roots = pool.roots[pool.unit[e], k]
    key = _key(structure, e, k)
    if key < pool.links[T, e].key:
        roots[T] = heaps.lower(pool.links[T], roots[T], e, key)
    if buckets.low[k]:
        key = _above_low(structure, e, k)
        if key < pool.links[L, e].key:
            roots[L] = heaps.lower(pool.links[L], roots[L], e, key)
    if buckets.high[k]:
        key = _below_high(structure, e, k)
        if key < pool.links[U, e].key:
            roots[U] = heaps.lower(pool.links[U], roots[U], e, key)


@inlined_kernel
def _bit(k: int) -> Any:
    """Bucket ``k`` in its word of ``filled``."""
    return np.uint64(1) << np.uint64(k & 63)


@inlined_kernel
def detach(structure: Any, e: int) -> None:
    """Take an entry out of its bucket, if it is in one."""
    pool, buckets = structure.pool, structure.buckets
    k = pool.bucket[e]
    if k < 0:
        return
    roots = pool.roots[pool.unit[e], k]
    roots[T] = heaps.remove(pool.links[T], roots[T], e)
    if buckets.low[k]:
        roots[L] = heaps.remove(pool.links[L], roots[L], e)
    if buckets.high[k]:
        roots[U] = heaps.remove(pool.links[U], roots[U], e)
    pool.bucket[e] = -1
    if roots[T] < 0:
        pool.filled[pool.unit[e], k >> 6] &= ~_bit(k)


@inlined_kernel
def note(pool: Any, e: int) -> None:
    """Write into the journal, if one is kept, what an entry is before it is changed."""
    at = pool.reg[NOTES]
    if at >= 0:
        noted = pool.journal[at]
        noted[0], noted[1], noted[2], noted[3] = e, pool.n1[e], pool.c11[e], pool.bucket[e]
        pool.reg[NOTES] = at + 1


@inlined_kernel
def roll_back_notes(structure: Any, notes: int) -> None:
    """Roll back all changes since the journal had so many notes."""
    pool = structure.pool
    for at in range(pool.reg[NOTES] - 1, notes - 1, -1):
        e = pool.journal[at, 0]
        detach(structure, e)
        pool.n1[e], pool.c11[e] = pool.journal[at, 1], pool.journal[at, 2]
        if pool.journal[at, 3] >= 0:
            attach(structure, e, pool.journal[at, 3])
    pool.reg[NOTES] = notes


@inlined_kernel
def assign(structure: Any, e: int, n: int, c1: int) -> None:
    """Put an entry into the bucket in whose middle it lies; without ones, into none."""
    pool, buckets = structure.pool, structure.buckets
    n1 = pool.n1[e]
    detach(structure, e)
    if n1 > 0:
        attach(structure, e, bucket_of(buckets, n - n1, c1 - pool.c11[e]))


@inlined_kernel
def change(structure: Any, unit: int, feature: int, sign: int, label: int, n: int, c1: int) -> int:
    """A row in which a feature is 1 came (``sign`` 1) or went (-1); ``n`` and ``c1`` are those after it. The entry."""
    pool, buckets = structure.pool, structure.buckets
    e = find_or_add(pool, unit, feature)
    note(pool, e)
    pool.n1[e] += sign
    pool.c11[e] += sign * label
    k, n1 = pool.bucket[e], pool.n1[e]
    if k >= 0 and n1 > 0 and k == bucket_of(buckets, n - n1, c1 - pool.c11[e]):
        _stay(structure, e, k)
    else:
        assign(structure, e, n, c1)
    return e


@inlined_kernel
def settle(structure: Any, unit: int, n: int, c1: int) -> None:
    """Move every feature of a unit whose rho left the interval of its bucket (lines 6 to 17 of Algorithm 1)."""
    pool = structure.pool
    for word in range(pool.filled.shape[1]):
        left = pool.filled[unit, word]
        while left != 0:
            k = (word << 6) + _lowest(left)
            left &= left - np.uint64(1)
            while True:
                e = _violator(structure, unit, k, n, c1)
                if e < 0:
                    break
                note(pool, e)
                assign(structure, e, n, c1)
                pool.reg[MOVES] += 1


@inlined_kernel
def _lowest(word: Any) -> int:
    """Number of the lowest bit that is set."""
    alone = word & (~word + np.uint64(1))
    lowest: int = _NUMBER_OF[(alone * _DE_BRUIJN) >> np.uint64(58)]
    return lowest


@inlined_kernel
def _violator(structure: Any, unit: int, k: int, n: int, c1: int) -> int:
    """A member of a bucket whose rho is outside the bucket's interval, -1 if there is none."""
    pool, buckets = structure.pool, structure.buckets
    total = n - c1 if buckets.mirrored[k] else c1
    roots = pool.roots[unit, k]
    limit = buckets.s[k] * n - total
    while roots[L] >= 0 and pool.links[L, roots[L]].key < limit:
        e: int = roots[L]
        key = _above_low(structure, e, k)
        if key < limit:
            return e
        roots[L] = heaps.lift(pool.links[L], e, key)
    limit = total - buckets.t[k] * n
    while roots[U] >= 0 and pool.links[U, roots[U]].key < limit:
        e = roots[U]
        key = _below_high(structure, e, k)
        if key < limit:
            return e
        roots[U] = heaps.lift(pool.links[U], e, key)
    return -1


@inlined_kernel
def best(structure: Any, unit: int, n: int, c1: int) -> tuple[int, float]:
    """The entry with the smallest (score, feature) among the smallest keys of a unit's buckets; -1 if it has none."""
    pool, buckets, table = structure
    found, least = -1, np.inf
    for word in range(pool.filled.shape[1]):
        left = pool.filled[unit, word]
        while left != 0:
            k = (word << 6) + _lowest(left)
            left &= left - np.uint64(1)
            e = _least(structure, unit, k)
            score = score_of(buckets.entropy, table, n, c1, pool.n1[e], pool.c11[e])
            if score < least or (score == least and pool.feature[e] < pool.feature[found]):
                found, least = e, score
    return found, least


@inlined_kernel
def _least(structure: Any, unit: int, k: int) -> int:
    """The member of a bucket with the smallest (key, feature)."""
    pool = structure.pool
    roots = pool.roots[unit, k]
    while True:
        e: int = roots[T]
        key = _key(structure, e, k)
        if key <= pool.links[T, e].key:
            return e
        roots[T] = heaps.lift(pool.links[T], e, key)

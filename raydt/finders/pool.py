"""Counters of features at nodes: one pool of entries for all (unit, feature) pairs that are seen.

A *unit* is one feature group at one node. Its entries are found by feature, through one open-addressing table for the
whole pool, and listed by unit, so that a unit can be given back. An entry whose feature is 1 in no row any more stays
until ``free_dead`` is called and has enough to do. Memory follows the most entries that were alive at once, never the
dimension nor how many there ever were.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.arrays.memory import empty, grown
from raydt.arrays.types import AnyArray, Int32s, Ints
from raydt.examples.weights import UNIT
from raydt.finders.heaps import LINK

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
    n1: AnyArray  #: ``n1``, ``c11``, ``journal``: int32, or int64 of masses (``raydt.trees.masses``).
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

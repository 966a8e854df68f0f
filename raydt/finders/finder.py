"""The finder of one node, over the feature groups a shard owns: what a learner without nodes of its own needs.

Rows come and go; at each query every group answers with its candidate, of which the least (score, feature) of all
groups is within (1 + alpha) of the optimum, whoever owns them. Candidates are (feature, n1, c11), three int32, or int64
where examples have weights (``raydt.trees.records``): the score follows from them, the same bits everywhere.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.updates import UNIT
from raydt.finders import pool as heaps
from raydt.finders.pool import (
    LIVE,
    MOVES,
    NOTES,
    USED,
    BucketConstants,
    L,
    Pool,
    T,
    U,
    among_masses,
    bucket_of,
    buckets_of,
    find_or_add,
    free_dead,
    new_pool,
    room_at_once,
    with_entries,
    with_units,
)

# Scores of a split by one binary feature from integer counters, lower is better.
#
# Of a node: n rows, c1 of class 1. Of a feature there: n1 rows in which it is 1, c11 of these of class 1; what is 0
# follows by subtraction. The score is the conditional Gini index G(D | j), 2p(1 - p) summed over both sides by their
# share of the rows, or the conditional entropy H(D | j) in nats (paper, section 3). Where examples have weights all
# four are masses, in units (``raydt.trees.records``): k rows and the mass of k rows have a score of the same bits.


@inlined_kernel
def _xlogx(k: int, unit: int) -> float:
    """``unit`` x log x, of x = k / ``unit`` rows."""
    return k * math.log(k / unit) if k > 0 else 0.0


@inlined_kernel
def xlogx_of(table: Any, k: int) -> float:
    """k log k of k rows, from the table; without a table k is a mass, and the result is in units, too."""
    value: float = table[k] if len(table) > 0 else _xlogx(k, UNIT)
    return value


@kernel
def _fill(table: Any, begin: int) -> None:
    for k in range(begin, len(table)):
        table[k] = _xlogx(k, 1)


#: Entries of the shortest table.
_SHORTEST = 1024


def xlogx_table(rows: int, table: Floats | None = None) -> Floats:
    """k log k for k = 0, ..., ``rows`` or more, 0 for 0; ``table`` itself if that is long enough.

    Nobody writes to a table: the shortest is the same for all.
    """
    if table is None and rows < _SHORTEST:
        return _shortest()
    have = 0 if table is None else len(table)
    if table is not None and rows < have:
        return table
    longer = np.zeros(max(rows + 1, have + have // 2, _SHORTEST))
    if table is not None:
        longer[:have] = table
    _fill(longer, have)
    return longer


@functools.cache
def _shortest() -> Floats:
    return xlogx_table(0, np.empty(0))


def table_of(entropy: bool, rows: int, table: Floats) -> Floats:
    """Lookup table of scores at up to ``rows`` rows: :func:`xlogx_table`, of which Gini needs nothing."""
    return xlogx_table(rows, table) if entropy else table


@inlined_kernel
def of_side(entropy: bool, table: Any, size: int, ones: int) -> float:
    """Impurity of one side times its rows: half of it for Gini, nats for entropy."""
    if entropy:
        nats: float = xlogx_of(table, size) - xlogx_of(table, size - ones) - xlogx_of(table, ones)
        return nats
    rows = np.float64(size)
    return np.float64(size - ones) * np.float64(ones) / rows if rows > 0.0 else 0.0


@inlined_kernel
def score_of(entropy: bool, table: Any, n: int, c1: int, n1: int, c11: int) -> float:
    """Score of a feature at a node of n > 0 rows; with n1 = 0 it is the impurity of the node itself."""
    total = of_side(entropy, table, n1, c11) + of_side(entropy, table, n - n1, c1 - c11)
    score: float = total / n if entropy else 2.0 * total / n
    return score


@inlined_kernel
def _nats(size: int, ones: int, unit: int) -> float:
    return _xlogx(size, unit) - _xlogx(size - ones, unit) - _xlogx(ones, unit)


@kernel
def scores_of(entropy: bool, unit: int, n: Any, c1: Any, n1: Any, c11: Any, out: Any) -> None:
    """Many scores as :func:`score_of` has them, bit for bit, without a table; 0 where there are no rows.

    A row is ``unit`` units.
    """
    for i in range(len(n)):
        out[i] = 0.0
        if n[i] > 0 and entropy:
            out[i] = (_nats(n1[i], c11[i], unit) + _nats(n[i] - n1[i], c1[i] - c11[i], unit)) / n[i]
        elif n[i] > 0:
            out[i] = score_of(False, out, n[i], c1[i], n1[i], c11[i])


@kernel
def best_candidates(entropy: bool, table: Any, totals: Any, found: Any, chosen: Any) -> None:
    """Choose of each node the candidate of smallest (score, feature), or -1.

    ``totals`` has rows and rows of class 1 of each node, ``found``, shape (nodes, groups, 3 or more), of each group a
    feature (-1: none), n1 and c11.
    """
    for i in range(len(found)):
        n, c1 = totals[i, 0], totals[i, 1]
        best, least = -1, np.inf
        for g in range(found.shape[1]):
            j = found[i, g, 0]
            if j < 0:
                continue
            score = score_of(entropy, table, n, c1, found[i, g, 1], found[i, g, 2])
            if score < least or (score == least and j < found[i, best, 0]):
                best, least = g, score
        chosen[i] = best


# The structure of UPDENT and UPDGINI (Algorithms 1 and 2), for many units at once, under insertions and deletions.
#
# Every feature that is 1 in some row of the node is in exactly one bucket of its unit, in up to three heaps: T by its
# key, L and U by how near it is to the ends of the bucket's interval (Proposition 4.3: rho of all features changes with
# every row, but the order within L and U does not). After every change of a node, ``change`` for each one of the row
# and ``settle`` for each unit restore: rho of every feature lies in the interval of its bucket.
#
# A key that is kept in a heap may be smaller than what it would be now, never larger: a key that falls is lowered at
# once, one that rises waits until the entry is at the root and its key is asked for. Most keys rise and fall in turns
# far from the root, so that a row seldom costs more than O(1) for each of its ones.
#
# Deletions, which the paper leaves out: the tests of L and U depend on the counters only and run after every change; a
# feature may come back to rho = 0 or 1; one whose last one is deleted leaves its bucket.

#: A de Bruijn sequence: multiplied by 2**b, its six highest bits are different for every b.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_NUMBER_OF = np.zeros(64, dtype=np.int64)
for _b in range(64):
    _NUMBER_OF[((0x03F79D71B4CB0A89 << _b) & (2**64 - 1)) >> 58] = _b


class Structure(NamedTuple):
    """Entries with their heaps, the constants of the buckets, and k log k for entropy."""

    pool: Pool
    buckets: BucketConstants
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


# The exact search: the score of every seen feature, from tables, in two passes over plain arrays.
#
# It is what ``structure`` is measured against, and faster where rows are not sparse or queries are rare.


@inner_kernel
def count(pool: Any, unit: int, feature: int, sign: int, label: int) -> int:
    """A row in which a feature is 1 came (``sign`` 1) or went (-1); the entry."""
    e = find_or_add(pool, unit, feature)
    pool.n1[e] += sign
    pool.c11[e] += sign * label
    return e


@inner_kernel
def best_of_all(pool: Any, entropy: bool, table: Any, n: int, c1: int, scores: Any, least: Any, found: Any) -> None:
    """The entry with the smallest (score, feature) of each unit, all at one node, into ``found``; -1 where none is.

    ``scores`` has room for all entries, ``least`` for all units. O(the most entries that were in use at
    once): the dead and the free are passed over, their n1 is 0.
    """
    used = pool.reg[USED]
    n1, c11, unit, feature = pool.n1, pool.c11, pool.unit, pool.feature
    if entropy:
        for e in range(used):
            scores[e] = score_of(True, table, n, c1, n1[e], c11[e])
    else:
        for e in range(used):
            scores[e] = score_of(False, table, n, c1, n1[e], c11[e])
    found[:] = -1
    least[:] = np.inf
    for e in range(used):
        if scores[e] <= least[unit[e]] and n1[e] > 0:
            u = unit[e]
            if scores[e] < least[u] or feature[e] < feature[found[u]]:
                found[u], least[u] = e, scores[e]


FinderName = Literal["updgini", "updent", "scan"]
#: Entries made room for at once, at most.
_ROOM = 1 << 12
#: The feature of a candidate where no feature is 1 in any row, and the columns of a candidate.
NO_FEATURE = -1
CANDIDATE = 3


class FinderSteps(NamedTuple):
    """Changes of one node, in order."""

    #: Shape (steps,): 1: a row is inserted, -1: it is deleted, 0: nothing but perhaps a query. Of masses (int64) the
    #: sign is times the row's mass.
    sign: AnyArray
    label: npt.NDArray[np.int8]  #: Shape (steps,): class of the row, 0 or 1.
    #: Shape (steps + 1,): step i has the ones ``indptr[i]:indptr[i + 1]`` of ``feature`` and ``unit``.
    indptr: Ints
    feature: Int32s
    unit: Int32s
    query: Bools  #: Shape (steps,): whether the candidates after a step are wanted.


class Finder:
    """Counters of all seen features at one node, in so many groups (units 0, 1, ...), and its structure.

    ``entropy`` is the criterion of a scan; that of the others follows from their name.
    """

    def __init__(self, finder: FinderName, entropy: bool, alpha: float, groups: int) -> None:
        self._name, self._scan, self._alpha = finder, finder == "scan", alpha
        self._buckets = _none(entropy) if finder == "scan" else buckets_of(finder, alpha)
        self._groups, self.weighted = groups, False  #: Whether counts are masses.
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.n = self.c1 = 0  #: Rows, and those of class 1.
        counter = np.int64 if self.weighted else np.int32
        self._pool: Pool = with_units(new_pool(0 if self._scan else len(self._buckets.s), counter), self._groups)
        self._table = np.empty(0) if self.weighted else xlogx_table(0)

    def weigh(self) -> None:
        """Make all counts masses."""
        states = [self.state(unit) for unit in range(self._groups)]
        former, moves = self._buckets, self.moves
        self.weighted = True
        if self._name != "scan":
            self._buckets = buckets_of(self._name, self._alpha, masses=True)
        for state in states:
            state |= {name: state[name].astype(np.int64) * UNIT for name in ("n1", "c11")}
            state["bucket"] = among_masses(former, self._buckets, state["bucket"])
        self.restore(self.n * UNIT, self.c1 * UNIT, states)
        self._pool.reg[MOVES] = moves

    @property
    def features(self) -> int:
        """Features with an entry: 1 in some row, or in one that went since dead entries were freed last."""
        return int(self._pool.reg[LIVE])

    @property
    def moves(self) -> int:
        """Features that were moved because of rows in which they are 0."""
        return int(self._pool.reg[MOVES])

    @property
    def buckets_filled(self) -> int:
        """Buckets with members, of all groups."""
        return int((self._pool.roots[: self._groups, :, 0] >= 0).sum())

    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._pool) + self._table.nbytes

    def apply(self, steps: FinderSteps) -> Int32s:
        """Take steps in order and answer the queries, int32, shape (queries, groups, ``CANDIDATE``)."""
        if not self.weighted:
            self._table = table_of(self._buckets.entropy, self.n + len(steps.sign), self._table)
        answers = np.empty((int(steps.query.sum()), self._groups, CANDIDATE), dtype=self._pool.n1.dtype)
        totals = np.array([self.n, self.c1], dtype=np.int64)
        found, least = np.empty(self._groups, dtype=np.int64), np.empty(self._groups)
        step = answered = asked = 0
        while step < len(steps.sign):
            free_dead(self._pool)
            asked = room_at_once(self._pool, asked, _ROOM)
            self._pool = with_entries(self._pool, max(asked, int(steps.indptr[step + 1] - steps.indptr[step])))
            stop = self._fitting(steps.indptr, step)
            if self._scan:
                scores = empty(len(self._pool.feature), np.float64)
                scratch = scores, least, found
                answered = _scan(self._structure, totals, steps, step, stop, answered, scratch, answers)
            else:
                answered = _watch(self._structure, totals, steps, step, stop, answered, answers)
            step = stop
        self.n, self.c1 = totals.tolist()
        return answers

    def _fitting(self, indptr: Ints, step: int) -> int:
        """The step up to which all ones from ``step`` on surely fit into the pool."""
        room = len(self._pool.feature) - int(self._pool.reg[LIVE])
        return int(np.searchsorted(indptr, indptr[step] + room, side="right")) - 1

    @property
    def _structure(self) -> Structure:
        return Structure(self._pool, self._buckets, self._table)

    def state(self, unit: int) -> dict[str, AnyArray]:
        """Of one group: ``feature`` (ascending), ``n1``, ``c11``, ``bucket``, of the features with ones."""
        p = self._pool
        used = int(p.reg[USED])
        mine = np.flatnonzero((p.unit[:used] == unit) & (p.n1[:used] > 0))
        mine = mine[np.argsort(p.feature[mine])]
        return {name: getattr(p, name)[mine] for name in ("feature", "n1", "c11", "bucket")}

    def restore(self, n: int, c1: int, states: list[dict[str, AnyArray]]) -> None:
        """Replace everything by what :meth:`state` gave of each group."""
        self.clear()
        self.n, self.c1 = n, c1
        if not self.weighted:
            self._table = table_of(self._buckets.entropy, n, self._table)
        for unit, state in enumerate(states):
            self._pool = with_entries(self._pool, len(state["feature"]))
            columns = (np.array(state[name]) for name in ("feature", "n1", "c11", "bucket"))
            _restore(self._structure, self._scan, unit, *columns)


def _none(entropy: bool) -> BucketConstants:
    """No buckets, for a scan."""
    return buckets_of("updent" if entropy else "updgini", 1.0)


@kernel
def _watch(structure: Any, totals: Any, steps: Any, begin: int, stop: int, answered: int, answers: Any) -> int:
    """Take the steps from ``begin`` to before ``stop``, whose ones fit; returns the queries answered so far."""
    groups = answers.shape[1]
    for i in range(begin, stop):
        sign, label = steps.sign[i], steps.label[i]
        totals[0] += sign
        totals[1] += sign * label
        n, c1 = totals[0], totals[1]
        for k in range(steps.indptr[i], steps.indptr[i + 1]):
            change(structure, steps.unit[k], steps.feature[k], sign, label, n, c1)
        if sign != 0:
            for u in range(groups):
                settle(structure, u, n, c1)
        if steps.query[i]:
            for u in range(groups):
                e, _ = best(structure, u, n, c1)
                _answer(structure.pool, e, answers[answered, u])
            answered += 1
    return answered


@kernel
def _scan(
    structure: Any, totals: Any, steps: Any, begin: int, stop: int, answered: int, scratch: Any, answers: Any
) -> int:
    """As :func:`_watch`, without heaps: a query looks at all entries."""
    pool, buckets, table = structure
    scores, least, found = scratch
    for i in range(begin, stop):
        sign, label = steps.sign[i], steps.label[i]
        totals[0] += sign
        totals[1] += sign * label
        for k in range(steps.indptr[i], steps.indptr[i + 1]):
            count(pool, steps.unit[k], steps.feature[k], sign, label)
        if steps.query[i]:
            best_of_all(pool, buckets.entropy, table, totals[0], totals[1], scores, least, found)
            for u in range(answers.shape[1]):
                _answer(pool, found[u], answers[answered, u])
            answered += 1
    return answered


@inlined_kernel
def _answer(pool: Any, e: int, answer: Any) -> None:
    """The candidate of one entry, or none for -1."""
    answer[0] = pool.feature[e] if e >= 0 else NO_FEATURE
    answer[1] = pool.n1[e] if e >= 0 else 0
    answer[2] = pool.c11[e] if e >= 0 else 0


@kernel
def _restore(structure: Any, scan: bool, unit: int, feature: Any, n1: Any, c11: Any, bucket: Any) -> None:
    pool = structure.pool
    for i in range(len(feature)):
        e = find_or_add(pool, unit, feature[i])
        pool.n1[e], pool.c11[e] = n1[i], c11[i]
        if not scan:
            attach(structure, e, bucket[i])

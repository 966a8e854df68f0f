"""The finder of one node, over the feature groups a shard owns: what a learner without nodes of its own needs.

Rows come and go; at each query every group answers with its candidate, of which the least (score, feature) of all
groups is within (1 + alpha) of the optimum, whoever owns them. Candidates are (feature, n1, c11), three int32, or int64
where examples have weights (``raydt.trees.masses``): the score follows from them, the same bits everywhere.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, kernel
from raydt.arrays.memory import empty
from raydt.arrays.types import AnyArray, Bools, Int32s, Ints
from raydt.examples.weights import UNIT
from raydt.finders.buckets import Buckets, among_masses, buckets_of
from raydt.finders.pool import (
    LIVE,
    MOVES,
    USED,
    Pool,
    find_or_add,
    free_dead,
    new_pool,
    room_at_once,
    with_entries,
    with_units,
)
from raydt.finders.scan import best_of_all, count
from raydt.finders.scores import table_of, xlogx_table
from raydt.finders.structure import Structure, attach, best, change, settle

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


def _none(entropy: bool) -> Buckets:
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

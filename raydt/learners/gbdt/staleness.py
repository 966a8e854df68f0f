"""Bounded staleness: how far a score may move before the derivatives that were computed from it are computed again.

A ledger entry of iteration m was computed from the score F before m, or compared with it. Every leaf whose value
changes moves the scores of its rows in all later iterations. Changes are measured in whole *units*, rounded up, of
which half the tolerance has ``DRIFT_LIMIT``. A leaf notes how far it has been ``above`` and ``below`` its present
value: no two of its values are farther apart than both together, however often it changes. If they grow by more than
``step`` units in a pass, or the tree is trained again, both are added to the *drift* of each row instead, and begin
again at 0. A row whose drift would become too large joins the batch instead: its entries in later iterations are
compared with its present scores. Smaller moves add at most a quarter of ``DRIFT_LIMIT`` over all iterations of a batch;
so before it, drift and moves of a row may be three quarters of it. If they might be more, the moves of all leaves are
added to the drift of their rows: O(rows x trees), but seldom. If the drift of a row is then more than that, all rows
with more than half of that are compared in all iterations of the batch, and their drift begins again at 0. In a large
batch every row joins that would get drift.

An entry that is compared stays if a score within half the tolerance gives it, else it is computed again. So every entry
is one that a score within the tolerance of the present one gives: ``docs/explanation/guarantees.md`` has the proof.

Every operation on floats here has one order, whatever the number of shards, and none is of a mathematical library.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import TOGETHER, AnyArray, Floats, logistic, natural_log, probabilities_together, softmax
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.gbdt.derivatives import ONE, RESIDUAL_BITS, Loss, quantise, residual

Units = npt.NDArray[np.uint16]

#: Units of half the tolerance: the largest drift.
DRIFT_LIMIT = (1 << 16) - 2
#: Of half the tolerance: left to the rounding of scores and of the comparison, about 1e-15 each.
_MARGIN = 2.0**-10
#: Units of a change of 1 without a tolerance: those of any change are more than 0.
_EXACT = 1e300
#: A batch of so large a part of the rows follows whatever moves by more than a step: most rows join it anyway.
LARGE = 200
#: Leaves of a tree up to which its rows are compared with each.
_FEW = 8
#: Rows whose drift is added up together, so that it stays in the cache.
_TOGETHER = 1 << 13
#: A tolerance of 1 is a sixteenth of the target's scale, so that one default suits classes and numbers.
SHARE_BITS = 4


class Staleness(NamedTuple):
    """The bounds that follow from a tolerance."""

    compares: bool  #: Whether entries may stay when their scores are not the ones that gave them.
    step: int  #: Units; how much farther a leaf may move in a pass before that is added to the drift of its rows.
    most: int  #: What drift and leaves of a row may have moved before a pass.
    units: float  #: Units of a change of 1.
    #: Shape (65537, 2): by ledger entry, the least and the greatest score (two classes) or probability (more) with
    #: which it stays.
    stays: Floats
    #: Shape (1025, 2): by ledger entry // 64, those with which all 64 entries stay: a table that stays in the cache.
    surely: Floats
    residual: int  #: Half the tolerance, in units of a residual (regression).


def staleness(tolerance: float, iterations: int, exponent: int, loss: Loss) -> Staleness:
    """Bounds for ``derivative_tolerance``, in log-odds or (regression) in units of 2**(exponent - 4)."""
    stays, surely = (np.empty((0, 2)),) * 2 if loss.squared else _stays(tolerance, loss.trees > 1)
    scale = 2.0 ** (exponent - SHARE_BITS) if loss.squared else 1.0
    limit = tolerance * scale / 2 * (1.0 - _MARGIN)
    step = DRIFT_LIMIT // 4 // max(1, iterations) if tolerance > 0 else 0
    most = DRIFT_LIMIT - step * iterations if tolerance > 0 else 0
    return Staleness(
        compares=tolerance > 0,
        step=step,
        most=most,
        units=DRIFT_LIMIT / limit if limit > 0 else _EXACT,
        stays=stays,
        surely=surely,
        residual=int(tolerance / 2 * 2 ** (RESIDUAL_BITS - SHARE_BITS)),
    )


@functools.lru_cache(maxsize=4)
def _stays(tolerance: float, several: bool) -> tuple[Floats, Floats]:
    """``stays`` and ``surely`` of :class:`Staleness`."""
    edge = np.concatenate([[-np.inf], log_odds(np.arange(1.5, ONE - 1)), [np.inf]])
    # The log-odds of one of two classes are its score; of several classes the other scores may move the other way.
    reach = tolerance if several else tolerance / 2
    stays = np.empty((ONE + 1, 2))
    stays[[0, ONE]] = np.inf, -np.inf  # no entries
    stays[1:ONE, 0], stays[1:ONE, 1] = edge[:-1] - reach, edge[1:] + reach
    if several:
        finite = np.clip(stays[1:ONE].reshape(-1, 1), -1e3, 1e3)
        stays[1:ONE] = softmax(finite)[:, 1].reshape(-1, 2)
    stays.flags.writeable = True
    begins = np.arange(0, ONE + 1, 64)
    surely = np.maximum.reduceat(stays[:, 0], begins), np.minimum.reduceat(stays[:, 1], begins)
    return stays, np.stack(surely, axis=1)


def log_odds(q: Floats) -> Floats:
    """log(q / (65536 - q)) to about 1e-15, for q between 0.5 and 65535.5."""
    return natural_log(q) - natural_log(ONE - q)


@inner_kernel
def move(above: int, below: int, change: float, stale: Any) -> tuple[int, int]:
    """Return how far a leaf has been above and below its value, in units rounded up, after the value has changed."""
    units = min(abs(change) * stale.units, float(DRIFT_LIMIT))
    most, least = np.int64(np.ceil(units)), np.int64(np.floor(units))
    if change > 0:
        return max(above - least, 0), below + most
    return above + most, max(below - least, 0)


def largest_moves(trees: Any, per: int) -> int:
    """Return what any row's leaves have moved, at most: over all iterations, the largest of each. O(nodes)."""
    moved = trees.above.astype(np.int64) + trees.below
    return int(moved.reshape(-1, per * moved.shape[1]).max(axis=1).sum())


@inner_kernel
def _raise(leaf: Any, units: Any, largest: Any) -> None:
    """Raise ``largest`` of each row to the units of its leaf."""
    for i in range(len(leaf)):
        node = np.uint64(leaf[i])
        mine = units[node] if node < np.uint64(len(units)) else np.uint16(0)
        largest[i] = max(largest[i], mine)


@inner_kernel
def _raise_where(leaf: Any, node: Any, units: Any, largest: Any) -> None:
    """Raise those in one leaf: many rows are compared at once, for a few leaves in less time than to look up each."""
    for i in range(len(leaf)):
        largest[i] = max(largest[i], units if leaf[i] == node else np.uint16(0))


@inner_kernel
def _move_in(largest: Any, drift: Any) -> None:
    """Add ``largest`` to the drift, and make it 0."""
    for i in range(len(drift)):
        drift[i] += largest[i]
        largest[i] = 0


@kernel
def _add_moves(leaf: Any, moved: Any, per: int, room: Any, drift: Any, first_slot: int, end_slot: int) -> None:
    for begin in range(first_slot, end_slot, len(room)):
        end = min(begin + len(room), end_slot)
        largest = room[: end - begin]
        for first in range(0, len(moved), per):
            moves = 0
            for t in range(first, first + per):
                of_tree, units = leaf[t, begin:end], moved[t]
                count = 0
                for node in range(len(units)):
                    count += units[node] > 0
                if count > _FEW:
                    _raise(of_tree, units, largest)
                else:
                    for node in range(len(units)):
                        if units[node]:
                            _raise_where(of_tree, np.uint16(node), units[node], largest)
                moves += count
            if moves:
                _move_in(largest, drift[begin:end])


def add_moves(leaf: AnyArray, trees: Any, per: int, drift: Units, begin: int, end: int) -> None:
    """Add what leaves have moved to the drift of their rows, in a range of slots; they begin again at 0.

    O(slots x trees). ``leaf`` has shape (trees, slots), and absent rows are in no node. Of several trees in an
    iteration the largest counts.
    """
    _add_moves(leaf, trees.above + trees.below, per, np.zeros(_TOGETHER, dtype=np.uint16), drift, begin, end)
    trees.above[:] = trees.below[:] = 0


@inner_kernel
def kept_residual(entry: int, now: int, width: int) -> int:
    """Return ``entry`` of a residual if it is within ``width`` of the present one, else that."""
    return entry if abs(entry - now) <= width else now


@inner_kernel
def compare(model: Any, batch: Any, m: int, first: int, stop: int, stale: Any, p: Any) -> None:
    """Make entries of some rows of a batch in iteration ``m``: those of the ledger that may stay, and new ones.

    ``batch.F`` has shape (K', rows); ``p`` is scratch, as in ``derivatives.probabilities_together``. Notes in
    ``batch.differs`` in which trees some may not be those of the ledger.
    """
    loss, ledger, per = model.loss, model.ledger, len(batch.F)
    batch.differs[:] = True
    F, slots, stays, surely = batch.F, batch.slots, stale.stays, stale.surely
    if loss.squared:
        of_tree, entry = ledger[m], batch.entry[0]
        for i in range(np.uint64(first), np.uint64(stop)):
            slot = np.uint32(slots[i])
            now = residual(batch.y[slot], F[0, i], loss.unit)
            entry[i] = kept_residual(np.int64(of_tree[slot]), now, stale.residual)
    elif per == 1:
        of_tree, entry = ledger[m], batch.entry[0]
        for i in range(np.uint64(first), np.uint64(stop)):
            q = np.uint64(of_tree[np.uint32(slots[i])])  # unsigned: no test for an index from the end
            score, some = F[0, i], q >> np.uint64(6)
            entry[i] = q
            if (score >= surely[some, 0]) & (score <= surely[some, 1]):
                continue
            if (score < stays[q, 0]) | (score > stays[q, 1]):
                entry[i] = quantise(logistic(score))
    else:
        batch.differs[:] = False
        for begin in range(np.uint64(first), np.uint64(stop), np.uint64(TOGETHER)):
            n = min(np.uint64(TOGETHER), np.uint64(stop) - begin)
            probabilities_together(F, begin, n, p)
            for k in range(per):
                of_tree, entry, of_class, differs = ledger[m * per + k], batch.entry[k], p[k], np.uint64(0)
                for i in range(n):
                    q = np.uint64(of_tree[np.uint32(slots[begin + i])])
                    now = of_class[i]
                    entry[begin + i] = q
                    if (now < stays[q, 0]) | (now > stays[q, 1]):  # most are near 0, where 64 share no range
                        entry[begin + i] = quantise(now)
                        differs += np.uint64(1)
                batch.differs[k] |= differs > 0

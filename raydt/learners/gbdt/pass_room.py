"""What a pass through all trees in one process needs: its rules, its batch, and room to work."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.learners.gbdt.derivatives import TOGETHER
from raydt.learners.gbdt.slack import REACHES, Slack, no_slack
from raydt.learners.gbdt.staleness import Staleness

#: What an update follows: nothing, rows of retrained subtrees, or rows of leaves whose value changes (``staleness``).
NEVER, RETRAINED, BOUNDED = 0, 1, 2
#: Fields of the counts of a pass; ``DEPTH`` is the smallest depth of a root that was grown again (-1: none).
TREES_RETRAINED, SUBTREES, ROWS, NODES, DEPTH, REFRESHED, COUNTS = 0, 1, 2, 3, 4, 5, 6


class Rules(NamedTuple):
    """How an update decides.

    Attributes
    ----------
    follow : int
        NEVER, RETRAINED or BOUNDED.
    sigma : float
        ``robustness_tolerance``.
    tolerance : int
        Rank down to which a split stays.
    rows : int
        Of the model, with those of the batch.
    stale : Staleness
    most_drift : int
        Of a row that does not join the batch.
    """

    follow: int
    sigma: float
    tolerance: int
    rows: int
    stale: Staleness
    most_drift: int


class LocalBatch(NamedTuple):
    """A batch: ``own`` rows of role ``role``, then rows whose derivatives are computed again.

    Attributes
    ----------
    slots : ndarray of int32, shape (capacity,)
    F : ndarray of float64, shape (K', capacity)
    entry : ndarray of int32, shape (K', capacity)
        Ledger entries in the current iteration.
    differs : ndarray of bool, shape (K',)
        Whether entries of others in the current iteration may differ from those of the ledger.
    member : ndarray of bool, shape (capacity,)
        Slots of the batch.
    y : ndarray, by slot
    """

    slots: npt.NDArray[np.int32]
    F: npt.NDArray[np.float64]
    entry: npt.NDArray[np.int32]
    differs: npt.NDArray[np.bool_]
    member: npt.NDArray[np.bool_]
    y: npt.NDArray[Any]


class PassRoom(NamedTuple):
    """Scratch of a pass.

    Attributes
    ----------
    slots, leaf, g, h : ndarray of int32, shape (capacity,)
        Rows that change a tree: where they are, and by how much.
    G, H, rows : ndarray of int64, shape (nodes,)
        Sums of these, and how many there are, by node.
    absolute : ndarray of int64, shape (nodes, 2)
        Sums of their absolute values.
    slack : Slack
    touched, failed : ndarray of uint8, shape (nodes,)
    value : ndarray of float64, shape (nodes,)
        Before the batch.
    before : ndarray of float64, shape (capacity,)
        Value of the leaf of each row below a root, before the batch.
    above, below : ndarray of uint16, shape (capacity,)
        ``Trees.above`` and ``Trees.below`` of that leaf.
    order, depth, mark : ndarray of int16, shape (nodes,)
    number : ndarray of int16, shape (absent + 1,)
        Root above each leaf, -1 for none; also of ``absent``.
    charge : ndarray of int32, shape (absent + 1,)
        How far each leaf has moved, if by more than a step.
    delta : ndarray of int64, shape (inner nodes, S + 1, 2)
        0 between trees.
    segments : ndarray of uint32, shape (longest row,)
    p : ndarray of float64, shape (K' + 2, TOGETHER)
        As in ``derivatives.probabilities_together``.
    beyond : ndarray of int64, shape (REACHES,)
    """

    slots: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int32]
    g: npt.NDArray[np.int32]
    h: npt.NDArray[np.int32]
    G: npt.NDArray[np.int64]
    H: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    absolute: npt.NDArray[np.int64]
    slack: Slack
    touched: npt.NDArray[np.uint8]
    failed: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float64]
    before: npt.NDArray[np.float64]
    above: npt.NDArray[np.uint16]
    below: npt.NDArray[np.uint16]
    order: npt.NDArray[np.int16]
    depth: npt.NDArray[np.int16]
    mark: npt.NDArray[np.int16]
    number: npt.NDArray[np.int16]
    charge: npt.NDArray[np.int32]
    delta: npt.NDArray[np.int64]
    segments: npt.NDArray[np.uint32]
    p: npt.NDArray[np.float64]
    beyond: npt.NDArray[np.int64]


def pass_room(capacity: int, trees: int, inner: int, stored: int, longest: int, absent: int, per: int) -> PassRoom:
    """Scratch for ``capacity`` rows of at most ``longest`` entries, and so many trees of so many inner nodes."""
    nodes = 2 * inner + 1
    slots, leaf, g, h = (np.empty(capacity, dtype=np.int32) for _ in range(4))
    G, H, rows = (np.zeros(nodes, dtype=np.int64) for _ in range(3))
    touched, failed = (np.zeros(nodes, dtype=np.uint8) for _ in range(2))
    order, depth, mark = (np.zeros(nodes, dtype=np.int16) for _ in range(3))
    number = np.full(absent + 1, -1, dtype=np.int16)
    delta = np.zeros((inner, stored, 2), dtype=np.int64)
    segments = np.empty(longest, dtype=np.uint32)
    return PassRoom(
        *(slots, leaf, g, h),
        *(G, H, rows),
        *(np.zeros((nodes, 2), dtype=np.int64), no_slack(trees, nodes)),
        *(touched, failed),
        *(np.empty(nodes), np.empty(capacity)),
        *(np.empty(capacity, dtype=np.uint16), np.empty(capacity, dtype=np.uint16)),
        *(order, depth, mark, number),
        np.zeros(absent + 1, dtype=np.int32),
        delta,
        segments,
        np.empty((per + 2, TOGETHER)),
        np.empty(REACHES, dtype=np.int64),
    )

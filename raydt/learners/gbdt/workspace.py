"""What a pass through all trees in one process needs: its rules, its batch, and room to work."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.learners.gbdt.derivatives import TOGETHER
from raydt.learners.gbdt.split_ranks import REACHES, Slack, no_slack
from raydt.learners.gbdt.staleness import Staleness

#: Role of a row in a batch.
DELETED, INSERTED = 0, 1
#: What an update follows: nothing, rows of retrained subtrees, or rows of leaves whose value changes (``staleness``).
NEVER, RETRAINED, BOUNDED = 0, 1, 2
#: Fields of the counts of a pass; ``DEPTH`` is the smallest depth of a root that was grown again (-1: none).
TREES_RETRAINED, SUBTREES, ROWS, NODES, DEPTH, REFRESHED, COUNTS = 0, 1, 2, 3, 4, 5, 6


class PassRules(NamedTuple):
    """How an update decides."""

    follow: int  #: NEVER, RETRAINED or BOUNDED.
    sigma: float  #: ``robustness_tolerance``.
    tolerance: int  #: Rank down to which a split stays.
    rows: int  #: Of the model at this shard, with those of the batch.
    begin: int  #: ``begin``, ``end``: The slots of the shard's rows.
    end: int
    stale: Staleness
    most_drift: int  #: Of a row that does not join the batch.


class LocalBatch(NamedTuple):
    """A batch: ``own`` rows of role ``role``, then rows whose derivatives are computed again."""

    slots: npt.NDArray[np.int32]  #: Shape (capacity,).
    F: npt.NDArray[np.float64]  #: Shape (K', capacity).
    entry: npt.NDArray[np.int32]  #: Shape (K', capacity): ledger entries in the current iteration.
    #: Shape (K',): whether entries of others in the current iteration may differ from those of the ledger.
    differs: npt.NDArray[np.bool_]
    member: npt.NDArray[np.bool_]  #: Shape (capacity,): slots of the batch.
    y: npt.NDArray[Any]


class PassRoom(NamedTuple):
    """Scratch of a pass."""

    #: ``slots``, ``leaf``, ``g``, ``h``: Shape (capacity,): rows that change a tree: where they are, and by how much.
    slots: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int32]
    g: npt.NDArray[np.int32]
    h: npt.NDArray[np.int32]
    G: npt.NDArray[np.int64]  #: ``G``, ``H``, ``rows``: Shape (nodes,): sums of these, and how many there are, by node.
    H: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    absolute: npt.NDArray[np.int64]  #: Shape (nodes, 2): sums of their absolute values.
    slack: Slack
    touched: npt.NDArray[np.uint8]  #: ``touched``, ``failed``: Shape (nodes,).
    failed: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float64]  #: Shape (nodes,): before the batch.
    before: npt.NDArray[np.float64]  #: Shape (capacity,): value of the leaf of each row below a root, before the batch.
    #: ``above``, ``below``: Shape (capacity,): ``Trees.above`` and ``Trees.below`` of that leaf.
    above: npt.NDArray[np.uint16]
    below: npt.NDArray[np.uint16]
    order: npt.NDArray[np.int16]  #: ``order``, ``depth``, ``mark``: Shape (nodes,).
    depth: npt.NDArray[np.int16]
    mark: npt.NDArray[np.int16]
    number: npt.NDArray[np.int16]  #: Shape (absent + 1,): root above each leaf, -1 for none; also of ``absent``.
    charge: npt.NDArray[np.int32]  #: Shape (absent + 1,): how far each leaf has moved, if by more than a step.
    delta: npt.NDArray[np.int64]  #: Shape (inner nodes, S + 1, 2): 0 between trees.
    segments: npt.NDArray[np.uint32]  #: Shape (longest row,).
    p: npt.NDArray[np.float64]  #: Shape (K' + 2, TOGETHER): as in ``derivatives.probabilities_together``.
    ranks: npt.NDArray[np.int64]  #: Shape (nodes, REACHES + 1): what a look at each split has found.
    judged: npt.NDArray[np.int64]  #: Shape (nodes,): nodes that were looked at.
    changed: npt.NDArray[np.int64]  #: Shape (inner nodes,): histograms that the own rows change.


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
        np.zeros((nodes, REACHES + 1), dtype=np.int64),
        *(np.empty(nodes, dtype=np.int64), np.empty(inner, dtype=np.int64)),
    )

"""What a pass through all trees needs: its rules, its batch, histograms, and room to work and to grow trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import TOGETHER
from raydt.arrays.types import AnyArray, Bools, Floats, Int32s, Ints
from raydt.learners.gbdt.split_search import FIELDS, RANKS, Slack, Units, no_slack

if TYPE_CHECKING:
    from raydt.batches.cells import Cells
    from raydt.learners.gbdt.candidates import Candidates
    from raydt.learners.gbdt.cells import Places
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

    slots: Int32s  #: Shape (capacity,).
    F: Floats  #: Shape (K', capacity).
    entry: Int32s  #: Shape (K', capacity): ledger entries in the current iteration.
    #: Shape (K',): whether entries of others in the current iteration may differ from those of the ledger.
    differs: Bools
    member: Bools  #: Shape (capacity,): slots of the batch.
    y: AnyArray


class PassRoom(NamedTuple):
    """Scratch of a pass."""

    #: ``slots``, ``leaf``, ``g``, ``h``: Shape (capacity,): rows that change a tree: where they are, and by how much.
    slots: Int32s
    leaf: Int32s
    g: Ints
    h: Ints
    G: Ints  #: ``G``, ``H``, ``rows``: Shape (nodes,): sums of these, and how many there are, by node.
    H: Ints
    rows: Ints
    absolute: Ints  #: Shape (nodes, 2): sums of their absolute values.
    slack: Slack
    touched: npt.NDArray[np.uint8]  #: ``touched``, ``failed``: Shape (nodes,).
    failed: npt.NDArray[np.uint8]
    value: Floats  #: Shape (nodes,): before the batch.
    before: Floats  #: Shape (capacity,): value of the leaf of each row below a root, before the batch.
    #: ``above``, ``below``: Shape (capacity,): ``Trees.above`` and ``Trees.below`` of that leaf.
    above: npt.NDArray[np.uint16]
    below: npt.NDArray[np.uint16]
    order: npt.NDArray[np.int16]  #: ``order``, ``depth``, ``mark``: Shape (nodes,).
    depth: npt.NDArray[np.int16]
    mark: npt.NDArray[np.int16]
    number: npt.NDArray[np.int16]  #: Shape (absent + 1,): root above each leaf, -1 for none; also of ``absent``.
    charge: Int32s  #: Shape (absent + 1,): how far each leaf has moved, if by more than a step.
    delta: Ints  #: Shape (inner nodes, S + 1, 2): 0 between trees.
    segments: npt.NDArray[np.uint32]  #: Shape (longest row,).
    p: Floats  #: Shape (K' + 2, TOGETHER): as in ``derivatives.probabilities_together``.
    #: Shape (nodes, RANKS + FIELDS): what a look at each split has counted; with other shards also the best split.
    ranks: Ints
    judged: Ints  #: Shape (nodes,): nodes that were looked at.
    changed: Ints  #: Shape (inner nodes,): histograms that the own rows change.


def pass_room(capacity: int, trees: int, inner: int, stored: int, longest: int, absent: int, per: int) -> PassRoom:
    """Scratch for ``capacity`` rows of at most ``longest`` entries, and so many trees of so many inner nodes."""
    nodes = 2 * inner + 1
    slots, leaf = (np.empty(capacity, dtype=np.int32) for _ in range(2))
    g, h = (np.empty(capacity, dtype=np.int64) for _ in range(2))
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
        np.zeros((nodes, RANKS + FIELDS), dtype=np.int64),
        *(np.empty(nodes, dtype=np.int64), np.empty(inner, dtype=np.int64)),
    )


#: A leaf that was opened. ``node``: of the tree; ``left``: its left child among the open leaves, the right one being
#: the next (-1: no children); ``order``: how many leaves of the tree were opened before it (-1: it is no leaf of the
#: tree, or not any more); its rows ``slots[begin:end]`` and the sums of all rows; ``gain``: of its best split, 0 if
#: there is none or the leaf is split; ``histogram``: in the pool, its own or that of its larger child.
OPEN_LEAF = np.dtype(
    [
        ("node", np.int64),
        ("left", np.int64),
        ("order", np.int64),
        ("begin", np.int64),
        ("end", np.int64),
        ("G", np.int64),
        ("H", np.int64),
        ("gain", np.float64),
        ("histogram", np.int64),
    ]
)
#: Registers of a growth: leaves opened, and how many of these have been searched; splits made, and how many may be;
#: leaves that may still be opened ahead; the next free node and histogram; leaves of the tree opened so far; roots.
OPENED, SEARCHED, MADE, BUDGET, AHEAD, NODE, HISTOGRAM, ORDER, ROOTS, REGISTERS = range(10)
#: Leaves that may be opened ahead at a time, in parts of the leaves that a tree may gain.
MOST_AHEAD = 1


class LocalSums(NamedTuple):
    """Rows, candidates, and the ``sums`` (G, H) of every inner node, int64, shape (trees, inner nodes, S + 1, 2)."""

    cells: Cells
    candidates: Candidates
    units: Units
    sums: Ints
    first: int  #: ``first``, ``stop``: Features that the shard owns.
    stop: int
    begin: int  #: ``begin``, ``end``: Their stored segments.
    end: int
    weight: npt.NDArray[np.uint32]  #: By slot, what each row counts; empty where all count 1.


class GrowthRoom(NamedTuple):
    """Room to grow one tree after the other."""

    #: ``slots``, ``g``, ``spare_slots``, ``spare_g``: Shape (capacity,): rows leaf after leaf, their first derivatives,
    #: and scratch.
    slots: Int32s
    g: Int32s
    spare_slots: Int32s
    spare_g: Int32s
    root: Ints  #: Shape (leaves, 2): node and former histogram (-1: none) of the roots to grow from.
    ends: Ints  #: Shape (leaves,): where the rows of each root end.
    made: Ints  #: Shape (leaves,): splits below each root.
    leaf: npt.NDArray[np.void]  #: Shape (opened,).
    root_of: Ints  #: Shape (opened,): root above each opened leaf.
    found: Ints  #: Shape (opened, FIELDS): its best split.
    pool: Ints  #: Shape (leaves, S + 1, 2); with other shards (opened, S + 1, 2).
    used: Bools  #: Shape (inner nodes,): histograms of the tree that are in use.
    places: Places  #: Where all rows add, or of no rows: then it is looked up whenever a row is added.
    register: Ints  #: Shape (REGISTERS,).
    #: ``small``, ``step``: Shape (leaves,): leaves that were summed up over the own rows in a round, and their parents
    #: whose children it has opened (-1 of a root).
    small: Ints
    step: Ints
    parts: Ints  #: Shape (leaves, S + 1, 2): their histograms over the own rows; alone none.
    ahead: Floats  #: ``ahead``, ``turn``: Shape (opened,): gain and order of leaves, to look ahead.
    turn: Ints


def growth_room(capacity: int, leaves: int, segments: int, places: Places, alone: bool) -> GrowthRoom:
    """Room for trees of so many leaves over histograms of ``segments``; ``alone``: no other shard grows them too."""
    slots, g, spare_slots, spare_g = (np.empty(capacity, dtype=np.int32) for _ in range(4))
    ends, made, step, small = (np.empty(leaves, dtype=np.int64) for _ in range(4))
    opened = 2 * leaves * (1 if alone else 2 + MOST_AHEAD)
    return GrowthRoom(
        *(slots, g, spare_slots, spare_g),
        np.empty((leaves, 2), dtype=np.int64),
        *(ends, made),
        np.empty(opened, dtype=OPEN_LEAF),
        np.empty(opened, dtype=np.int64),
        np.empty((opened, FIELDS), dtype=np.int64),
        np.empty((leaves if alone else opened, segments + 1, 2), dtype=np.int64),
        np.empty(max(1, leaves - 1), dtype=np.bool_),
        places,
        np.empty(REGISTERS, dtype=np.int64),
        *(small, step, np.empty((0 if alone else leaves, segments + 1, 2), dtype=np.int64)),
        *(np.empty(opened), np.empty(opened, dtype=np.int64)),
    )

"""The split search: candidates of a node searched for the best one, or counted for the rank of the node's split.

The rank decides whether a split stays (paper, section 3.4): as long as fewer than ``tolerance`` candidates gain more.
So a look at all candidates notes a *level* below the split and a *reach*: as long as rows have changed the sums by no
more than the reach, fewer than ``tolerance`` others can have risen above the level. While that holds and the split is
not below the level, it stays without another look.

Invariants: a gain depends on integer sums only, through one function; gains are compared, never added. A split that
surely stays would be kept by a look, so what is noted changes no result. A gain is the sum of the parts G**2 / (H + l2)
of both sides, less that of the whole, which all candidates share and which is left out here. If rows change G and H of
a node by at most x in all, either side of a candidate is at most (abs(G) + x)**2 / max(H + l2 - x, l2). That is convex
in how much of the change falls on which side, so the sum of both parts is largest if all of the change of G is on one
side. It holds for a side without rows, too, which may get some.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import TOGETHER, AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel
from raydt.examples.updates import UNIT

#: A split must gain more than this to be made, since what remains of gains that are 0 is rounding: with classes as it
#: is; of a regression, whose targets have no scale of their own, times the part of the node.
LEAST_GAIN, LEAST_SHARE = 1e-10, 2.0**-44
#: Value of 1 of a sum of the second derivatives of a regression.
SQUARED_H = 1.0 / UNIT
#: Rounding of the comparison without division is far below this.
_SURELY_LESS = 1.0 - 1e-12
#: Fields of a split that was found: local feature, cut, and the sums of its left side.
FEATURE, CUT, LEFT_G, LEFT_H, FIELDS = 0, 1, 2, 3, 4


class Units(NamedTuple):
    """Value of 1 of a sum of first and of second derivatives, and the L2 term (eq. (5) with it in all denominators)."""

    g: float
    h: float
    l2: float


@inner_kernel
def part(G: int, H: int, units: Any) -> float:
    """Return G**2 / (H + l2) of sums with H > 0."""
    g = G * units.g
    whole: float = g * g / (H * units.h + units.l2)
    return whole


@inner_kernel
def gain_of(left_G: int, left_H: int, G: int, H: int, units: Any) -> float:
    """Return the gain of a split (eq. (5)); both sides must have H > 0."""
    return part(left_G, left_H, units) + part(G - left_G, H - left_H, units) - part(G, H, units)


@inner_kernel
def least_gain(G: int, H: int, units: Any) -> float:
    """Return the limit that a split of a node must gain more than."""
    least: float = part(G, H, units) * LEAST_SHARE if units.h == SQUARED_H else LEAST_GAIN
    return least


@inner_kernel
def rest_of(sums: Any, G: int, H: int, c: Any, row: int, j: int) -> tuple[int, int, int]:
    """Return the segment of a feature whose sums are not stored, -1 if all are, and its G and H. O(segments)."""
    if c.whole[j]:
        return np.int64(-1), G, H
    default = np.int64(c.default[row, j])
    if default >= 0:
        s = np.uint64(c.stored[j])
        for i in range(s, s + (np.uint64(c.first[j + 1]) - np.uint64(c.first[j]))):
            G -= sums[i, 0]
            H -= sums[i, 1]
    return default, G, H


@inner_kernel
def search(sums: Any, G: int, H: int, local: Any, row: int, found: Any) -> float:
    """Search the candidates of a node, on the features of a shard, for the one that gains most; returns its gain.

    ``found`` takes the split (FIELDS), feature -1 if there is none (0 is returned): of equal gains the smaller feature,
    then the smaller cut. O(C).
    """
    c, units = local.candidates, local.units
    limit = least_gain(G, H, units) if H > 0 else 0.0  # all rows may have a weight of 0
    whole = part(G, H, units) if H > 0 else 0.0
    found[FEATURE] = -1
    for j in range(local.first, local.stop):
        begin, end = np.uint64(c.first[j]), np.uint64(c.first[j + 1])
        if begin == end:
            continue
        s, categorical = np.uint64(c.stored[j]), c.categorical[j] != 0
        default, rest_G, rest_H = rest_of(sums, G, H, c, row, j)
        left_G, left_H = np.int64(0), np.int64(0)
        for i in range(np.int64(end - begin)):
            is_rest = i == default
            g, h = rest_G, rest_H
            if not is_rest or categorical:  # the segment of a drawn default category holds what is not drawn
                if not is_rest:
                    g, h = sums[s, 0], sums[s, 1]
                s += np.uint64(1)
            left_G, left_H = (g, h) if categorical else (left_G + g, left_H + h)
            if left_H <= 0 or left_H >= H:
                continue
            # Most cannot win, which needs no division: a gain is a sum of parts less the whole.
            a, x = left_G * units.g, left_H * units.h + units.l2
            b, y = (G - left_G) * units.g, (H - left_H) * units.h + units.l2
            if a * a * y + b * b * x < (limit + whole) * (x * y) * _SURELY_LESS:
                continue
            gain = part(left_G, left_H, units) + part(G - left_G, H - left_H, units) - whole
            if gain > limit:
                limit = gain
                cut = c.cuts[row, begin + np.uint64(i)]
                found[FEATURE], found[CUT], found[LEFT_G], found[LEFT_H] = j, cut, left_G, left_H
    return limit if found[FEATURE] >= 0 else 0.0


@inner_kernel
def best_of_owners(splits: Any, G: int, H: int, units: Any, found: Any) -> float:
    """Take the best split of a node of all owners, shape (owners, FIELDS), as :func:`search` returns it."""
    best = 0.0
    found[FEATURE] = -1
    for owner in range(len(splits)):  # in the order of their features
        split = splits[owner]
        if split[FEATURE] < 0:
            continue
        gain = gain_of(split[LEFT_G], split[LEFT_H], G, H, units)
        if gain > best:
            best = gain
            for field in range(FIELDS):
                found[field] = split[field]
    return best


# -------------------------------------------------------------------- ranks

#: Reaches that a look tries: the largest and its halves; and what it counts, for each of these and for the split.
REACHES, RANKS = 20, 21
_LARGEST = 32.0
#: Of a level: for rounding, which is far below.
_A_LITTLE = 2.0**-40


class Slack(NamedTuple):
    """By tree and node, since the last look at all its candidates."""

    #: The sum of the parts that fewer than ``tolerance`` other candidates can exceed; infinite before the first look.
    level: Floats
    reach: Floats  #: By how much rows may change G and H meanwhile.
    G: Ints  #: ``G``, ``H``: By how much rows have changed the sums: the sums of absolute values.
    H: Ints


@inner_kernel
def surely_stays(trees: Any, t: int, node: int, units: Any, slack: Any) -> bool:
    """Return True if fewer candidates than the tolerance gain more than a split, by what the last look has noted."""
    left, G, H = np.int64(trees.left[t, node]), trees.G[t, node], trees.H[t, node]
    left_G, left_H = trees.G[t, left], trees.H[t, left]
    parts = part(left_G, left_H, units) + part(G - left_G, H - left_H, units)
    changed = max(slack.G[t, node] * units.g, slack.H[t, node] * units.h)
    return bool(changed <= slack.reach[t, node] and slack.level[t, node] <= parts)


@inner_kernel
def _around(trees: Any, t: int, node: int, units: Any) -> tuple[float, float, float]:
    """Return gain and parts of a split with rows on both sides, and how steeply the parts fall."""
    left, G, H = np.int64(trees.left[t, node]), trees.G[t, node], trees.H[t, node]
    left_G, left_H = trees.G[t, left], trees.H[t, left]
    parts = part(left_G, left_H, units) + part(G - left_G, H - left_H, units)
    steep = abs(left_G * units.g) / (left_H * units.h + units.l2)
    steep = max(steep, abs((G - left_G) * units.g) / ((H - left_H) * units.h + units.l2))
    return gain_of(left_G, left_H, G, H, units), parts, steep


@inner_kernel
def judged(trees: Any, t: int, node: int, units: Any, slack: Any, tolerance: int, rank: Any) -> bool:
    """Return True if fewer than ``tolerance`` candidates gain more than a split, by a look at those of all shards.

    ``rank``, the sum of what :func:`look` found, also tells what is noted in ``slack``.
    """
    _, parts, steep = _around(trees, t, node, units)
    n, reach = 0 if units.l2 > 0 else REACHES, _LARGEST  # without L2 nothing is sure
    while n < REACHES and rank[n] > tolerance:
        n, reach = n + 1, reach / 2.0
    slack.level[t, node] = parts * (1.0 - _A_LITTLE) - steep * reach if n < REACHES else np.inf
    slack.reach[t, node] = reach if n < REACHES else 0.0
    slack.G[t, node] = slack.H[t, node] = 0
    return bool(rank[REACHES] < tolerance)


@inner_kernel
def look(trees: Any, t: int, node: int, local: Any, row: int, tolerance: int, rank: Any) -> None:
    """Count the candidates of a node, among the features of a shard, that gain more than its split or may come to.

    ``rank``, int64, shape (RANKS,), takes how many may rise above the level of each reach (of a reach that more
    than ``tolerance`` pass, maybe fewer), and last how many gain more. The split is one of the candidates, and beyond
    every level. O(C).
    """
    c, units, l2 = local.candidates, local.units, local.units.l2
    G, H, sums = trees.G[t, node], trees.H[t, node], local.sums[t, trees.histogram[t, node]]
    gain, parts, steep = _around(trees, t, node, units)
    whole = part(G, H, units)
    rank[:RANKS] = 0
    tried, reach = 0 if l2 > 0 else REACHES, _LARGEST
    level = parts * (1.0 - _A_LITTLE) - steep * reach
    for j in range(local.first, local.stop):
        begin, end = np.uint64(c.first[j]), np.uint64(c.first[j + 1])
        if begin == end:
            continue
        s, categorical = np.uint64(c.stored[j]), c.categorical[j] != 0
        default, rest_G, rest_H = rest_of(sums, G, H, c, row, j)
        left_G, left_H = np.int64(0), np.int64(0)
        for i in range(np.int64(end - begin)):
            is_rest = i == default
            g, h = rest_G, rest_H
            if not is_rest or categorical:  # as in :func:`search`
                if not is_rest:
                    g, h = sums[s, 0], sums[s, 1]
                s += np.uint64(1)
            left_G, left_H = (g, h) if categorical else (left_G + g, left_H + h)
            a, x = abs(left_G * units.g), left_H * units.h + l2
            b, y = abs((G - left_G) * units.g), (H - left_H) * units.h + l2
            if tried < REACHES and not _rises(a, x, b, y, reach, l2, level):
                continue
            if 0 < left_H < H and part(left_G, left_H, units) + part(G - left_G, H - left_H, units) - whole > gain:
                rank[REACHES] += 1
            n, r, of_r = tried, reach, level
            while n < REACHES and _rises(a, x, b, y, r, l2, of_r):
                rank[n] += 1
                n, r = n + 1, r / 2.0
                of_r = parts * (1.0 - _A_LITTLE) - steep * r
            while tried < REACHES and rank[tried] > tolerance:
                tried, reach = tried + 1, reach / 2.0
                level = parts * (1.0 - _A_LITTLE) - steep * reach


@inner_kernel
def _rises(a: float, x: float, b: float, y: float, change: float, l2: float, level: float) -> bool:
    """Return True if the parts a**2 / x + b**2 / y may exceed a level, if G and H change so much; without division."""
    x1, y1 = max(x - change, l2), max(y - change, l2)
    more = max((2.0 * a + change) * y1, (2.0 * b + change) * x1) * change
    return not a * a * y1 + b * b * x1 + more <= level * (x1 * y1)


# What a pass through all trees needs: its rules, its batch, histograms, and room to work and to grow trees.

if TYPE_CHECKING:
    from raydt.batches.binning import Cells
    from raydt.learners.gbdt.candidates import Candidates, Places
    from raydt.learners.gbdt.staleness import Staleness

#: Role of a row in a batch.
DELETED, INSERTED = 0, 1
#: What an update follows: nothing, rows of retrained subtrees, or rows of leaves whose value changes (``staleness``).
NEVER, RETRAINED, BOUNDED = 0, 1, 2
#: Fields of the counts of a pass; ``DEPTH`` is the smallest depth of a root that was grown again (-1: none).
TREES_RETRAINED, SUBTREES, ROWS, NODES, DEPTH, REFRESHED, COUNTS = 0, 1, 2, 3, 4, 5, 6


class PassRules(NamedTuple):
    """The rule by which an update decides."""

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
    by_row: Any = partial(np.empty, capacity)
    by_node: Any = partial(np.zeros, nodes)
    in_trees: Any = partial(np.zeros, (trees, nodes))
    return PassRoom(
        slots=by_row(np.int32),
        leaf=by_row(np.int32),
        g=by_row(np.int64),
        h=by_row(np.int64),
        G=by_node(np.int64),
        H=by_node(np.int64),
        rows=by_node(np.int64),
        absolute=np.zeros((nodes, 2), dtype=np.int64),
        slack=Slack(in_trees() + np.inf, in_trees(), in_trees(np.int64), in_trees(np.int64)),
        touched=by_node(np.uint8),
        failed=by_node(np.uint8),
        value=by_node(),
        before=by_row(),
        above=by_row(np.uint16),
        below=by_row(np.uint16),
        order=by_node(np.int16),
        depth=by_node(np.int16),
        mark=by_node(np.int16),
        number=np.full(absent + 1, -1, dtype=np.int16),
        charge=np.zeros(absent + 1, dtype=np.int32),
        delta=np.zeros((inner, stored, 2), dtype=np.int64),
        segments=np.empty(longest, dtype=np.uint32),
        p=np.empty((per + 2, TOGETHER)),
        ranks=np.zeros((nodes, RANKS + FIELDS), dtype=np.int64),
        judged=by_node(np.int64),
        changed=np.empty(inner, dtype=np.int64),
    )


#: A leaf that was opened. ``node``: of the tree; ``left``: its left child among the open leaves, the right one being
#: the next (-1: no children); ``order``: how many leaves of the tree were opened before it (-1: it is no leaf of the
#: tree, or not any more); its rows ``slots[begin:end]`` and the sums of all rows; ``gain``: of its best split, 0 if
#: there is none or the leaf is split.
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
    ]
)
#: Registers of a growth: leaves opened, and how many of these have been searched; splits made, and how many may be;
#: leaves that may still be opened ahead; the next free node and histogram; leaves of the tree opened so far; roots;
#: and whether one shard has all rows.
OPENED, SEARCHED, MADE, BUDGET, AHEAD, NODE, HISTOGRAM, ORDER, ROOTS, ALONE, REGISTERS = range(11)


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
    pool: Ints  #: Shape (opened, S + 1, 2): its histogram.
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
    most_ahead: int  #: Leaves that may be opened ahead at a time; a tree opens no more than it may gain.


def growth_room(capacity: int, leaves: int, segments: int, places: Places, alone: bool) -> GrowthRoom:
    """Room for trees of so many leaves over histograms of ``segments``; ``alone``: no other shard grows them too."""
    opened = 2 * leaves * (1 if alone else 3)
    by_row: Any = partial(np.empty, capacity, np.int32)
    by_leaf: Any = partial(np.empty, leaves, np.int64)
    by_opened: Any = partial(np.empty, opened)
    return GrowthRoom(
        slots=by_row(),
        g=by_row(),
        spare_slots=by_row(),
        spare_g=by_row(),
        root=np.empty((leaves, 2), dtype=np.int64),
        ends=by_leaf(),
        made=by_leaf(),
        leaf=by_opened(OPEN_LEAF),
        root_of=by_opened(np.int64),
        found=np.empty((opened, FIELDS), dtype=np.int64),
        pool=np.empty((opened, segments + 1, 2), dtype=np.int64),
        used=np.empty(max(1, leaves - 1), dtype=np.bool_),
        places=places,
        register=np.empty(REGISTERS, dtype=np.int64),
        small=by_leaf(),
        step=by_leaf(),
        parts=np.empty((0 if alone else leaves, segments + 1, 2), dtype=np.int64),
        ahead=by_opened(),
        turn=by_opened(np.int64),
        most_ahead=leaves,
    )

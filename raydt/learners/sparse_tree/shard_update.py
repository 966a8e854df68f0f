"""The shard's half of an update: the structures of all nodes on the path change, and every split is tested."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.types import AnyArray, Int32s, Ints
from raydt.finders.pool import NOTES
from raydt.finders.scores import score_of
from raydt.finders.structure import best, change, roll_back_notes, settle
from raydt.learners.sparse_tree.rules import beaten, impurity, may_split
from raydt.learners.sparse_tree.shard_nodes import unit_of


class ShardSteps(NamedTuple):
    """Rows that come and go."""

    #: Shape (steps,): 1: a row is inserted, -1: it is deleted; times its mass (int64) where counts are masses.
    sign: AnyArray
    label: npt.NDArray[np.int8]  #: Shape (steps,).
    slot: Int32s  #: Shape (steps,).
    leaf: Ints  #: Shape (steps,).
    marks: Ints  #: Shape (steps,): takes how many notes the journal had before each step.

    @classmethod
    def none(cls) -> ShardSteps:
        """No steps."""
        flags, links = np.empty(0, dtype=np.int8), np.empty(0, dtype=np.int64)
        return cls(flags, flags, np.empty(0, dtype=np.int32), links, links)


class Limits(NamedTuple):
    """When to stop for want of memory: new entries that there is room for, and notes beyond which a step may not fit.

    ``rows`` has the shard's sparse features by slot, which tell how many entries a step may need.
    """

    rows: Any
    entries: int
    notes: int


@inner_kernel
def _is_beaten(structure: Any, nodes: Any, groups: Any, node: int, rules: Any) -> bool:
    """Whether a candidate of this shard beats the split of a node, or asks for one at a leaf."""
    n, c1, table = nodes[node].n, nodes[node].c1, structure.table
    right = nodes[node].right
    if n == 0:
        return False
    if right < 0:
        if not may_split(rules, table, n, c1, nodes[node].depth):
            return False
        score = impurity(rules, table, n, c1)
    else:
        score = score_of(rules.entropy, table, n, c1, nodes[right].n, nodes[right].c1)
    for group in range(groups.owned):
        _, candidate = best(structure, node * groups.owned + group, n, c1)
        if beaten(rules, score, candidate):
            return True
    return False


@kernel
def watch(structure: Any, nodes: Any, groups: Any, steps: Any, begin: int, rules: Any, limits: Any) -> tuple[int, int]:
    """Take steps from ``begin`` on, as long as their new entries and notes surely fit, and through the first beaten.

    Returns the step after the last that was taken, and the root-most node that was beaten by it, -1 if none was.
    """
    reg, rows, room = structure.pool.reg, limits.rows, limits.entries
    for i in range(begin, len(steps.sign)):
        sign, label = steps.sign[i], steps.label[i]
        first, last = rows.begin[steps.slot[i]], rows.end[steps.slot[i]]
        # An upper bound, a new entry for each one of the row at each node: what stops here is taken after more room.
        room -= (nodes[steps.leaf[i]].depth + 1) * (last - first)
        if room < 0 or reg[NOTES] > limits.notes:
            return i, -1
        steps.marks[i] = reg[NOTES]
        node = np.int64(steps.leaf[i])
        while node >= 0:
            nodes[node].n += sign
            nodes[node].c1 += sign * label
            n, c1 = nodes[node].n, nodes[node].c1
            if nodes[node].depth < rules.max_depth:
                for k in range(first, last):
                    j = rows.values[k]
                    change(structure, unit_of(groups, node, j), j, sign, label, n, c1)
                for group in range(groups.owned):
                    settle(structure, node * groups.owned + group, n, c1)
            node = np.int64(nodes[node].parent)
        # Tested once all counts of the path are right: the score of a split reads the counts of its child.
        found = -1
        node = np.int64(steps.leaf[i])
        while node >= 0:
            if nodes[node].depth < rules.max_depth and _is_beaten(structure, nodes, groups, node, rules):
                found = node
            node = np.int64(nodes[node].parent)
        if found >= 0:
            return i + 1, found
    return len(steps.sign), -1


@kernel
def roll_back(structure: Any, nodes: Any, steps: Any, keep: int, stop: int) -> None:
    """Roll back the steps from ``keep`` to before ``stop``."""
    if keep < stop:
        roll_back_notes(structure, steps.marks[keep])
    for i in range(keep, stop):
        node = steps.leaf[i]
        while node >= 0:
            nodes[node].n -= steps.sign[i]
            nodes[node].c1 -= steps.sign[i] * steps.label[i]
            node = np.int64(nodes[node].parent)

"""The live tree at the coordinator: nodes, class counts, and who is counted where.

Two counts are kept of every node. ``counts`` are the classes of all live examples whose route passes the node: what a
leaf predicts. ``own`` are those of them that the node itself has counted, which its split is decided by: they came
after it was made, and when it was a leaf (with ``revisit``: whether or not).

A window of steps is walked as if nothing changed the tree; what comes behind a change is taken back and walked again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import grown
from raydt.arrays.sparse import is_one
from raydt.learners.nodes import FREE, LEAF, LEAVES, NODES, goes_left, link, majority, split_node, total, unlink
from raydt.learners.sequential import ADD, LOOK, REMOVE

#: One node; ``place`` is where the shards keep its statistics (-1: nowhere), ``created`` the stamp of the step that
#: made it, ``since`` what it has counted since its last check, ``cut`` the number of its threshold among the bins.
NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("created", np.int64),
        ("since", np.int64),
        ("feature", np.int32),
        ("cut", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("parent", np.int32),
        ("depth", np.int32),
        ("head", np.int32),
        ("place", np.int32),
    ],
    align=True,
)
#: One example counted in or out at a node, by a step; ``before`` is ``since`` as it was.
ENTRY = np.dtype([("before", np.int64), ("step", np.int32), ("node", np.int32)])
#: A check that is due at a node after one of the entries.
CHECK = np.dtype([("entry", np.int64), ("step", np.int32), ("node", np.int32), ("depth", np.int32)])


class Tree(NamedTuple):
    """Nodes, their two kinds of class counts, registers; ``left`` of a free node is the next free one."""

    nodes: npt.NDArray[np.void]
    counts: npt.NDArray[np.int64]
    own: npt.NDArray[np.int64]
    reg: npt.NDArray[np.int64]


def new_tree(classes: int = 2, capacity: int = 64) -> Tree:
    """One leaf without examples, with place 0."""
    nodes = np.zeros(capacity, dtype=NODE)
    for name in ("feature", "cut", "left", "right", "parent", "head", "created"):
        nodes[name] = -1
    counts, own = (np.zeros((capacity, classes), dtype=np.int64) for _ in range(2))
    return Tree(nodes, counts, own, np.array([1, -1, 1, 1], dtype=np.int64))


def with_room(tree: Tree, nodes: int, classes: int) -> Tree:
    """The same tree with room for so many more nodes and for counts of ``classes`` classes."""
    have, known = tree.counts.shape
    need, classes = int(tree.reg[NODES]) + nodes, max(classes, known)
    if need <= have and classes <= known:
        return tree
    capacity = max(need, have + have // 2) if need > have else have
    counts, own = (np.zeros((capacity, classes), dtype=np.int64) for _ in range(2))
    counts[:have, :known], own[:have, :known] = tree.counts, tree.own
    return Tree(grown(tree.nodes, capacity), counts, own, tree.reg)


@kernel
def route(tree: Any, categorical: Any, X: Any, indptr: Any, indices: Any, row: int) -> int:
    """Leaf of one row. NaN goes right, and a sparse feature that is 0 goes left."""
    node, dense = 0, len(categorical)
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        if j < dense:
            left = goes_left(X[row, j], tree.nodes[node].threshold, categorical[j])
        else:
            left = not is_one(indices, indptr[row], indptr[row + 1], j - dense)
        node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
    return node


@inner_kernel
def _predicted(tree: Any, leaf: int, steps: Any, leaves: Any, y: Any, begin: int, end: int, now: Any) -> int:
    """Majority of a leaf or, where it has no examples, of the nearest node above that has some just then.

    Steps from ``begin`` to before ``end`` come later; those that have a leaf were taken before, elsewhere in the tree,
    and are not to be counted yet. ``now`` is one row of counts to work in. O(depth), of an empty leaf O(depth x (steps
    from begin to end)).
    """
    if total(tree.counts, leaf) > 0:
        return majority(tree.counts, leaf)
    node = leaf
    while True:
        for k in range(now.shape[1]):
            now[0, k] = tree.counts[node, k]
        if node != leaf:
            for i in range(begin, end):
                if leaves[i] >= 0 and steps[i].kind != LOOK and _is_above(tree, node, leaves[i]):
                    now[0, y[steps[i].slot]] -= 1 if steps[i].kind == ADD else -1
        if total(now, 0) > 0 or tree.nodes[node].parent < 0:
            return majority(now, 0)
        node = np.int64(tree.nodes[node].parent)


@inner_kernel
def _is_above(tree: Any, node: int, other: int) -> bool:
    """Whether a node is on the route to another."""
    while tree.nodes[other].depth > tree.nodes[node].depth:
        other = np.int64(tree.nodes[other].parent)
    return bool(other == node)


@inner_kernel
def _count(tree: Any, leaf: int, label: int, by: int) -> int:
    """Count an example in or out along its route; returns the nodes of that."""
    node, nodes = leaf, 0
    while node >= 0:
        tree.counts[node, label] += by
        node = np.int64(tree.nodes[node].parent)
        nodes += 1
    return nodes


@inner_kernel
def _is_mixed(own: Any, node: int) -> bool:
    """Whether a node has counted live examples of two classes."""
    classes = 0
    for k in range(own.shape[1]):
        classes += own[node, k] > 0
    return classes > 1


@kernel
def walk(
    tree: Any, members: Any, y: Any, born: Any, steps: Any, pending: Any, leaves: Any, categorical: Any, X: Any,
    indptr: Any, indices: Any, grace: int, revisit: bool, scored: bool, entries: Any, told: Any, checks: Any, owns: Any,
    path: Any, taken: int, now: Any,
) -> tuple[int, int]:  # fmt: skip
    """Take the steps that ``pending`` names, in order.

    Parameters
    ----------
    y, born : ndarray
        By slot.
    leaves : ndarray of int64, shape (steps,)
        The leaf of each step that was taken, -1 of the others; takes those of the pending ones.
    grace : int
        Grace period; 0 for steps that are not counted anywhere (a warm-up).
    revisit : bool
        Whether inner nodes count too.
    scored : bool
        Whether the class of a row that comes is predicted.
    entries : ndarray of ENTRY
    told : ndarray of int32, shape (4, entries)
        What shards are told of each: slot, place, sign (1: in, -1: out), label.
    checks : ndarray of CHECK
        Of one step the one nearest to the root comes first.
    owns : ndarray of int64, shape (checks, K)
        ``own`` of the node at each check.
    path : ndarray of int64, shape (steps,)
        Takes the nodes on the route of each step that changes counts.
    taken : int
        No step from this one on has been taken.
    now : ndarray of int64, shape (1, K)
        Room for counts.

    Returns
    -------
    entries, checks : int
        How many there are.
    """
    made = due = 0
    for i in pending:
        kind, slot = steps[i].kind, steps[i].slot
        if kind == REMOVE:
            leaf = np.int64(members[slot].leaf)
        else:
            leaf = route(tree, categorical, X, indptr, indices, steps[i].row)
            if scored or kind == LOOK:
                steps[i].prediction = _predicted(tree, leaf, steps, leaves, y, i + 1, taken, now)
        leaves[i] = leaf
        if kind == LOOK:
            continue
        label, by = y[slot], 1 if kind == ADD else -1
        path[i] = _count(tree, leaf, label, by)
        if kind == ADD:
            link(tree, members, leaf, slot)
        else:
            unlink(tree, members, slot)
        if grace == 0:
            continue
        stamp = 2 * born[slot] + 1
        node, first = leaf, due
        while node >= 0:
            inner = tree.nodes[node].feature >= 0
            if stamp > tree.nodes[node].created and (revisit or not inner):
                entry = entries[made]
                entry.before, entry.step, entry.node = tree.nodes[node].since, i, node
                told[0, made], told[1, made], told[2, made], told[3, made] = slot, tree.nodes[node].place, by, label
                made += 1
                tree.own[node, label] += by
                if kind == ADD or inner:
                    tree.nodes[node].since += 1
                    if tree.nodes[node].since >= grace:
                        tree.nodes[node].since = 0
                        if inner or _is_mixed(tree.own, node):
                            for other in range(due, first, -1):
                                _copy(checks, owns, other - 1, other)
                            check = checks[first]
                            check.entry, check.step, check.node, check.depth = made - 1, i, node, tree.nodes[node].depth
                            for k in range(owns.shape[1]):
                                owns[first, k] = tree.own[node, k]
                            due += 1
            if not revisit:
                break
            node = np.int64(tree.nodes[node].parent)
    return made, due


@inner_kernel
def _copy(checks: Any, owns: Any, source: int, target: int) -> None:
    checks[target].entry, checks[target].step = checks[source].entry, checks[source].step
    checks[target].node, checks[target].depth = checks[source].node, checks[source].depth
    for k in range(owns.shape[1]):
        owns[target, k] = owns[source, k]


@kernel
def take_back(
    tree: Any, members: Any, y: Any, steps: Any, pending: Any, void: Any, leaves: Any, entries: Any, told: Any
) -> None:
    """Undo the steps that ``void`` marks, of those in ``pending``, the last first; they have no leaf then."""
    for e in range(len(entries) - 1, -1, -1):
        if void[entries[e].step]:
            node = entries[e].node
            tree.own[node, told[3, e]] -= told[2, e]
            tree.nodes[node].since = entries[e].before
    for p in range(len(pending) - 1, -1, -1):
        i = pending[p]
        if not void[i]:
            continue
        leaf, leaves[i] = leaves[i], -1
        slot = steps[i].slot
        if steps[i].kind == ADD:
            _count(tree, leaf, y[slot], -1)
            unlink(tree, members, slot)
        elif steps[i].kind == REMOVE:
            _count(tree, leaf, y[slot], 1)
            link(tree, members, leaf, slot)


@kernel
def split(
    tree: Any, members: Any, y: Any, node: int, feature: int, cut: int, threshold: float, stamp: int, slots: Any,
    right: Any,
) -> None:  # fmt: skip
    """Make a leaf an inner node; ``slots`` are its examples and ``right`` says which of them go right. O(examples)."""
    a, b = split_node(tree, node, feature, threshold)
    tree.nodes[node].cut = cut
    tree.nodes[node].head = -1
    tree.nodes[node].since = 0
    for child in (a, b):
        _start(tree, child, stamp)
    for i in range(len(slots)):
        child = b if right[i] else a
        tree.counts[child, y[slots[i]]] += 1
        link(tree, members, child, slots[i])


@inner_kernel
def _start(tree: Any, node: int, stamp: int) -> None:
    """Make a node that was just taken an empty leaf."""
    tree.nodes[node].feature = tree.nodes[node].cut = LEAF
    tree.nodes[node].left = tree.nodes[node].right = tree.nodes[node].head = tree.nodes[node].place = -1
    tree.nodes[node].threshold = 0.0
    tree.nodes[node].created = stamp
    tree.nodes[node].since = 0
    for k in range(tree.counts.shape[1]):
        tree.counts[node, k] = tree.own[node, k] = 0


@kernel
def collapse(tree: Any, members: Any, root: int, gone: Any) -> int:
    """Make an inner node a leaf that has the examples of all leaves below; ``gone`` takes the nodes below, freed.

    Returns how many there were. O(nodes and examples below).
    """
    made = 0
    node = np.int64(tree.nodes[root].left)
    while True:  # in preorder
        gone[made] = node
        made += 1
        if tree.nodes[node].feature >= 0:
            node = np.int64(tree.nodes[node].left)
            continue
        while node != root and tree.nodes[tree.nodes[node].parent].right == node:
            node = np.int64(tree.nodes[node].parent)
        if node == root:
            break
        node = np.int64(tree.nodes[tree.nodes[node].parent].right)
    tree.nodes[root].feature = tree.nodes[root].cut = LEAF
    tree.nodes[root].left = tree.nodes[root].right = tree.nodes[root].head = -1
    tree.nodes[root].threshold = 0.0
    tree.nodes[root].since = 0
    for g in range(made):
        node = gone[g]
        if tree.nodes[node].feature < 0:
            slot = np.int64(tree.nodes[node].head)
            while slot >= 0:
                after = np.int64(members[slot].next)
                link(tree, members, root, slot)
                slot = after
    for g in range(made):
        tree.nodes[gone[g]].left = tree.reg[FREE]
        tree.reg[FREE] = gone[g]
    tree.reg[NODES] -= made
    tree.reg[LEAVES] -= made // 2
    return made

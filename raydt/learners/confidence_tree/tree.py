"""The live tree at the coordinator: nodes, class counts, and who is counted where.

Two counts are kept of every node. ``counts`` are the classes of all live examples whose route passes the node: what a
leaf predicts. ``own`` are those of them that the node itself has counted, which its split is decided by: they came
after it was made, or since what it was restarted with (``drift``), and when it was a leaf. ``majority_right`` and
``naive_right`` (and ``normal_right``, ``inherited_right``) say how many of the latter the majority and naive Bayes
predicted when they came: they leave with their example.

What a leaf has not counted are the examples it *inherited*: where predictions use these, too, the shards count them at
the site after its own.

Where examples have weights all counts are masses (``raydt.trees.masses``).

A window of steps is processed as if no check changed the tree, and rolled back after a change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.memory import grown
from raydt.arrays.types import Bools, Int32s, Ints
from raydt.learners.confidence_tree.drift_kernels import TRIAL
from raydt.learners.confidence_tree.statistics import LABEL, SIGN, SITE, SLOT
from raydt.learners.sequential import ADD, LOOK, REMOVE
from raydt.trees.masses import mass_of
from raydt.trees.records import LEAF, NODES, count_path, level_at, link, majority, route, split_node, total, unlink

#: One node; ``site`` is where the shards keep its statistics (-1: nowhere), ``created`` the stamp of the step that made
#: it, ``since`` what it has counted since its last check, ``cut`` the number of its threshold among the bins.
NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("created", np.int64),
        ("since", np.int64),
        ("majority_right", np.int64),
        ("naive_right", np.int64),
        ("normal_right", np.int64),
        ("inherited_right", np.int64),
        ("feature", np.int32),
        ("cut", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("parent", np.int32),
        ("depth", np.int32),
        ("head", np.int32),
        ("site", np.int32),
    ],
    align=True,
)
#: One example counted in or out at a node, by a step; ``before`` is ``since`` as it was.
ENTRY = np.dtype([("before", np.int64), ("step", np.int32), ("node", np.int32)])
#: A check that is due at a node after one of the entries.
CHECK = np.dtype([("entry", np.int64), ("step", np.int32), ("node", np.int32), ("depth", np.int32)])
#: A leaf that is split: the question it then asks (``cut`` as in ``NODE``), when, and the sites of its children.
TEST = np.dtype(
    [
        ("threshold", np.float64),
        ("stamp", np.int64),
        ("node", np.int32),
        ("feature", np.int32),
        ("cut", np.int32),
        ("left_site", np.int32),
        ("right_site", np.int32),
    ],
    align=True,
)


class ConfidenceTreeArrays(NamedTuple):
    """Nodes, their two kinds of class counts, registers; trials (``TRIAL``) and the class counts of these.

    ``left`` of a free node is the next free one.
    """

    nodes: npt.NDArray[np.void]
    counts: Ints
    own: Ints
    reg: Ints
    trials: npt.NDArray[np.void]
    fresh: Ints


def new_tree(classes: int = 2, capacity: int = 16) -> ConfidenceTreeArrays:
    """One leaf without examples, with site 0."""
    nodes, trials = np.zeros(capacity, dtype=NODE), np.zeros(capacity, dtype=TRIAL)
    for name in ("feature", "cut", "left", "right", "parent", "head", "created"):
        nodes[name] = -1
    for name in ("began", "restarted", "site"):
        trials[name] = -1
    counts, own, fresh = (np.zeros((capacity, classes), dtype=np.int64) for _ in range(3))
    return ConfidenceTreeArrays(nodes, counts, own, np.array([1, -1, 1, 1], dtype=np.int64), trials, fresh)


def with_room(tree: ConfidenceTreeArrays, nodes: int, classes: int) -> ConfidenceTreeArrays:
    """The same tree with room for so many more nodes and for counts of ``classes`` classes."""
    have, known = tree.counts.shape
    need, classes = int(tree.reg[NODES]) + nodes, max(classes, known)
    if need <= have and classes <= known:
        return tree
    capacity = max(need, have + have // 2) if need > have else have
    wider = []
    for counts in (tree.counts, tree.own, tree.fresh):
        wider.append(np.zeros((capacity, classes), dtype=np.int64))
        wider[-1][:have, :known] = counts
    counts, own, fresh = wider
    return ConfidenceTreeArrays(grown(tree.nodes, capacity), counts, own, tree.reg, grown(tree.trials, capacity), fresh)


class WeighedExamples(NamedTuple):
    """The live examples by slot: leaf and neighbours, class, number of the update that inserted each, weight."""

    members: npt.NDArray[np.void]
    y: Int32s
    born: Ints
    weight: npt.NDArray[np.uint32]  #: In units; empty while counts are numbers of rows.


class Path(NamedTuple):
    """Steps on their way through the tree."""

    steps: npt.NDArray[np.void]
    pending: Ints  #: The steps to take, ascending.
    leaves: Ints  #: Shape (steps,): the leaf of each step that was taken, -1 of the others.
    end: int  #: No step from this one on has been taken.


class WalkRules(NamedTuple):
    """How steps are taken."""

    categorical: Bools  #: Shape (dense features,).
    grace: int  #: Grace period, a count; 0 for steps that no node counts (a warm-up).
    scored: bool  #: Whether the majority is predicted for a row that comes.
    naive: bool  #: Whether the shards are to score it, too.


class CountedRows(NamedTuple):
    """Rows counted at nodes, in order, and the checks they made due."""

    entries: npt.NDArray[np.void]
    #: Shape (4, entries): what shards have to count, by SLOT, SITE, SIGN and LABEL; int64 of masses.
    deltas: Int32s | Ints
    checks: npt.NDArray[np.void]
    owns: Ints  #: Shape (checks, K): ``own`` of the node at each check.
    scored: Ints  #: Shape (rows,): the entries before which naive Bayes has to score their row.
    priors: Ints  #: Shape (rows, K): ``own`` of the leaf just before.


@inner_kernel
def _predicted(tree: Any, examples: Any, path: Any, step: int, leaf: int, counts: Any) -> tuple[int, int]:
    """Majority of a leaf or, where it has no examples, of the nearest node above that has some just before ``step``.

    And the share of class 1 there, as a level.

    Later steps that have a leaf were taken before, elsewhere in the tree, and are not to be counted yet. ``counts`` is
    one row of counts to work in. O(depth), of an empty leaf O(depth x later steps).
    """
    if total(tree.counts, leaf) > 0:
        return majority(tree.counts, leaf), level_at(tree.counts, leaf)
    node = leaf
    while True:
        for k in range(counts.shape[1]):
            counts[0, k] = tree.counts[node, k]
        if node != leaf:
            for i in range(step + 1, path.end):
                kind, slot = path.steps[i].kind, path.steps[i].slot
                if path.leaves[i] >= 0 and kind != LOOK and _is_above(tree, node, path.leaves[i]):
                    mass = mass_of(examples.weight, slot)
                    counts[0, examples.y[slot]] -= mass if kind == ADD else -mass
        if total(counts, 0) > 0 or tree.nodes[node].parent < 0:
            return majority(counts, 0), level_at(counts, 0)
        node = np.int64(tree.nodes[node].parent)


@inner_kernel
def _is_above(tree: Any, node: int, other: int) -> bool:
    """Whether a node is on the route to another."""
    while tree.nodes[other].depth > tree.nodes[node].depth:
        other = np.int64(tree.nodes[other].parent)
    return bool(other == node)


@inner_kernel
def is_mixed(own: Any, node: int) -> bool:
    """Whether a node has counted live examples of two classes."""
    classes = 0
    for k in range(own.shape[1]):
        classes += own[node, k] > 0
    return classes > 1


@kernel
def walk(
    tree: Any, examples: Any, rows: Any, path: Any, rules: Any, out: Any, counts: Any, inherits: bool
) -> tuple[int, int, int]:
    """Take the pending steps of ``path`` in order, as if no check changed the tree.

    ``out`` has room for what is counted, ``counts``, shape (1, K), is scratch. If leaves predict by what they
    ``inherit``, that is counted out, too, and ``priors`` have, behind K columns, K more with ``counts`` of the leaf.
    Returns how many entries, checks and rows to score there are.
    """
    made = due = asked = 0
    naive = rules.naive and rules.grace > 0
    for i in path.pending:
        step = path.steps[i]
        if step.kind == REMOVE:
            leaf = np.int64(examples.members[step.slot].leaf)
        else:
            leaf = route(tree, rules.categorical, rows, np.int64(step.row))
            if rules.scored or step.kind == LOOK:
                step.prediction, step.level = _predicted(tree, examples, path, i, leaf, counts)
        path.leaves[i] = leaf
        # The shards score a row by what its leaf had counted before it; these counts change with the next lines.
        if naive and step.kind != REMOVE:
            out.scored[asked] = made
            known = tree.own.shape[1]
            for k in range(known):
                out.priors[asked, k] = tree.own[leaf, k]
                if inherits:
                    out.priors[asked, known + k] = tree.counts[leaf, k]
            asked += 1
        if step.kind == LOOK:
            if naive:
                _enter(tree, out, made, leaf, i, step.slot, 0, 0, 0)
                made += 1
            continue
        label, mass = examples.y[step.slot], mass_of(examples.weight, step.slot)
        by = mass if step.kind == ADD else -mass
        step.path = count_path(tree, leaf, label, by)
        if step.kind == ADD:
            link(tree, examples.members, leaf, step.slot)
        else:
            unlink(tree, examples.members, step.slot)
        if rules.grace == 0:
            continue
        # A leaf has never counted what was there before it: such an example leaves without a trace, too.
        stamp = 2 * examples.born[step.slot] + 1
        if stamp > tree.nodes[leaf].created:
            _enter(tree, out, made, leaf, i, step.slot, by, label, 0)
            made += 1
            if step.kind == ADD:
                tree.nodes[leaf].since += mass
                if tree.nodes[leaf].since >= rules.grace:
                    tree.nodes[leaf].since = 0
                    if is_mixed(tree.own, leaf):
                        _note_check(tree, out, due, made - 1)
                        due += 1
        elif inherits:
            _enter(tree, out, made, leaf, i, step.slot, by, label, 1)
            made += 1
    return made, due, asked


@inner_kernel
def _enter(tree: Any, out: Any, number: int, node: int, step: int, slot: int, by: int, label: int, past: int) -> None:
    """Count an example in or out at one node, as entry ``number``; ``past`` is 1 of one that the node inherited."""
    entry = out.entries[number]
    entry.before, entry.step, entry.node = tree.nodes[node].since, step, node
    out.deltas[SLOT, number], out.deltas[SITE, number] = slot, tree.nodes[node].site + past
    out.deltas[SIGN, number], out.deltas[LABEL, number] = by, label
    if past == 0:
        tree.own[node, label] += by


@inner_kernel
def _note_check(tree: Any, out: Any, number: int, entry: int) -> None:
    """Make the node of an entry be checked."""
    check, cause = out.checks[number], out.entries[entry]
    check.entry, check.step, check.node = entry, cause.step, cause.node
    check.depth = tree.nodes[cause.node].depth
    for k in range(out.owns.shape[1]):
        out.owns[number, k] = tree.own[cause.node, k]


@kernel
def roll_back(tree: Any, examples: Any, path: Any, altered: Any, entries: Any, deltas: Any) -> None:
    """Roll back the steps that ``altered`` marks, of those of ``path``, the last first; they have no leaf then."""
    for e in range(len(entries) - 1, -1, -1):
        if altered[entries[e].step]:
            node = entries[e].node
            if deltas[SITE, e] == tree.nodes[node].site:
                tree.own[node, deltas[LABEL, e]] -= deltas[SIGN, e]
            tree.nodes[node].since = entries[e].before
    for p in range(len(path.pending) - 1, -1, -1):
        i = path.pending[p]
        if not altered[i]:
            continue
        leaf, path.leaves[i] = path.leaves[i], -1
        kind, slot = path.steps[i].kind, path.steps[i].slot
        if kind == ADD:
            count_path(tree, leaf, examples.y[slot], -mass_of(examples.weight, slot))
            unlink(tree, examples.members, slot)
        elif kind == REMOVE:
            count_path(tree, leaf, examples.y[slot], mass_of(examples.weight, slot))
            link(tree, examples.members, leaf, slot)


@kernel
def split(tree: Any, examples: Any, tests: Any, slots: Any, ends: Any, right: Any) -> None:
    """Make leaves inner nodes. O(examples).

    The examples of the leaf of each test are ``slots`` up to its entry of ``ends``, and ``right`` says which of them go
    right.
    """
    i = 0
    for t in range(len(tests)):
        test = tests[t]
        a, b = split_node(tree, test.node, test.feature, test.threshold)
        node = tree.nodes[test.node]
        node.cut, node.head, node.since = test.cut, -1, 0
        _start(tree, a, test.stamp, test.left_site)
        _start(tree, b, test.stamp, test.right_site)
        while i < ends[t]:
            child = b if right[i] else a
            tree.counts[child, examples.y[slots[i]]] += mass_of(examples.weight, slots[i])
            link(tree, examples.members, child, slots[i])
            i += 1


@kernel
def count_rows(tree: Any, members: Any, leaves: Any, rows: Any) -> None:
    """Count the examples in the lists of some leaves. O(examples)."""
    for i in range(len(leaves)):
        slot, n = tree.nodes[leaves[i]].head, 0
        while slot >= 0:
            slot, n = members[slot].next, n + 1
        rows[i] = n


@inner_kernel
def _start(tree: Any, node: int, stamp: int, site: int) -> None:
    """Make a node that was just taken an empty leaf."""
    tree.nodes[node].feature = tree.nodes[node].cut = LEAF
    tree.nodes[node].left = tree.nodes[node].right = tree.nodes[node].head = -1
    tree.nodes[node].site = site
    tree.nodes[node].threshold = 0.0
    tree.nodes[node].created = stamp
    tree.nodes[node].since = tree.nodes[node].majority_right = 0
    tree.nodes[node].naive_right = tree.nodes[node].normal_right = tree.nodes[node].inherited_right = 0
    trial = tree.trials[node]
    trial.began = trial.restarted = trial.site = -1
    trial.seen_before = trial.wrong_before = trial.seen = trial.wrong = trial.better = trial.worse = 0
    for k in range(tree.counts.shape[1]):
        tree.counts[node, k] = tree.own[node, k] = tree.fresh[node, k] = 0

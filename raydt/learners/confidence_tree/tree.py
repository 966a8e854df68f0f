"""The live tree at the coordinator: nodes, class counts, and who is counted where.

Two counts are kept of every node. ``counts`` are the classes of all live examples whose route passes the node: what a
leaf predicts. ``own`` are those of them that the node itself has counted, which its split is decided by: they came
after it was made, and when it was a leaf. ``majority_right`` and
``naive_right`` (and ``normal_right``, ``inherited_right``) say how many of the latter the majority and naive Bayes
predicted when they came: they leave with their example.

What a leaf has not counted are the examples it *inherited*: where predictions use these, too, the shards count them at
the site after its own.

Where examples have weights all counts are masses (``raydt.trees.records``).

A window of steps is processed as if no check changed the tree, and rolled back after a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import SparseRows, grown
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.batches.binning import Bins, code_of
from raydt.errors import InputError
from raydt.examples.updates import Features
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE
from raydt.learners.confidence_tree.naive_bayes import UNIT, SharedLogs, distance, normal_scores, pools_of
from raydt.learners.confidence_tree.schema import NAIVE, SPLITS
from raydt.learners.confidence_tree.statistics import LABEL, SIGN, SITE, SLOT
from raydt.messages import message
from raydt.parallel import ranges, run
from raydt.presentation.charts import counted
from raydt.trees.packed_trees import TreePredictor
from raydt.trees.records import (
    FREE,
    LEAF,
    LEAVES,
    NODES,
    USED,
    count_path,
    level_at,
    link,
    majority,
    mass_of,
    preorder,
    route,
    split_node,
    total,
    unit_array,
    unlink,
)
from raydt.trees.shapley import TreeSum
from raydt.trees.state_schema import NODE_ARRAYS

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
    """Nodes, their two kinds of class counts, registers; ``left`` of a free node is the next free one."""

    nodes: npt.NDArray[np.void]
    counts: Ints
    own: Ints
    reg: Ints


def new_tree(classes: int = 2, capacity: int = 16) -> ConfidenceTreeArrays:
    """One leaf without examples, with site 0."""
    nodes = np.zeros(capacity, dtype=NODE)
    for name in ("feature", "cut", "left", "right", "parent", "head", "created"):
        nodes[name] = -1
    counts, own = (np.zeros((capacity, classes), dtype=np.int64) for _ in range(2))
    return ConfidenceTreeArrays(nodes, counts, own, np.array([1, -1, 1, 1], dtype=np.int64))


def with_room(tree: ConfidenceTreeArrays, nodes: int, classes: int) -> ConfidenceTreeArrays:
    """The same tree with room for so many more nodes and for counts of ``classes`` classes."""
    have, known = tree.counts.shape
    need, classes = int(tree.reg[NODES]) + nodes, max(classes, known)
    if need <= have and classes <= known:
        return tree
    capacity = max(need, have + have // 2) if need > have else have
    wider = []
    for counts in (tree.counts, tree.own):
        wider.append(np.zeros((capacity, classes), dtype=np.int64))
        wider[-1][:have, :known] = counts
    counts, own = wider
    return ConfidenceTreeArrays(grown(tree.nodes, capacity), counts, own, tree.reg)


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
    """The options by which steps are taken."""

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
    """Return True if a node is on the route to another."""
    while tree.nodes[other].depth > tree.nodes[node].depth:
        other = np.int64(tree.nodes[other].parent)
    return bool(other == node)


@inner_kernel
def is_mixed(own: Any, node: int) -> bool:
    """Return True if a node has counted live examples of two classes."""
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
    for k in range(tree.counts.shape[1]):
        tree.counts[node, k] = tree.own[node, k] = 0


# The tree as canonical arrays (preorder, node 0 = root), and the record of each split: saved, hashed and audited.


class SplitRecord(NamedTuple):
    """Facts known when an inner node was split."""

    stamp: int  #: 2 seq + 1 of the insertion.
    m: int  #: ``m``, ``t``, ``classes``: Live examples the node had counted, examples the tree had taken, K.
    t: int
    classes: int
    #: ``rival_feature``, ``rival_cut``: What the split was compared with; -1 where there was nothing else.
    rival_feature: int
    rival_cut: int
    reason: int  #: ``RULE`` or ``TIE`` (``bounds``).
    #: ``phi``, ``rival_phi``, ``impurity``, ``epsilon``: Scores of the split, of its rival and of the node unsplit, and
    #: the width, in the rule's unit.
    phi: float
    rival_phi: float
    impurity: float
    epsilon: float
    own: tuple[int, ...]  #: ``own``, ``left``: Class counts of the m, and of those on the left.
    left: tuple[int, ...]

    def times(self, factor: float) -> SplitRecord:
        """The same record in other units of its counts."""
        own, left = (tuple(round(count * factor) for count in counts) for counts in (self.own, self.left))
        return self._replace(m=round(self.m * factor), t=round(self.t * factor), own=own, left=left)


def splits_as_arrays(splits: list[SplitRecord], classes: int) -> Arrays:
    """Records one after the other, under ``split_`` and their names."""
    arrays: Arrays = {}
    columns = zip(*splits, strict=True) if splits else [()] * len(SPLITS)
    for of, column in zip(SPLITS, columns, strict=True):
        if len(of.shape) == 2:
            table = np.zeros((len(splits), classes), dtype=of.dtype)
            for i, counts in enumerate(column):
                table[i, : len(counts)] = counts
            arrays[of.name] = table
        else:
            arrays[of.name] = np.array(column, dtype=of.dtype)
    return arrays


def splits_of_arrays(arrays: Arrays) -> list[SplitRecord]:
    """Inverse of :func:`splits_as_arrays`."""
    columns = [arrays[f"split_{name}"].tolist() for name in SplitRecord._fields]
    rows = (dict(zip(SplitRecord._fields, row, strict=True)) for row in zip(*columns, strict=True))
    return [SplitRecord(**row | {name: tuple(row[name][: row["classes"]]) for name in ("own", "left")}) for row in rows]


def node_arrays(tree: ConfidenceTreeArrays, classes: int = 2) -> Arrays:
    """All arrays by node, with counts of at least so many classes."""
    order, position, _ = preorder(tree)
    nodes = tree.nodes[order]
    inner = nodes["feature"] >= 0
    classes = max(classes, int(np.flatnonzero(tree.counts[0] + tree.own[order].max(axis=0)).max(initial=0)) + 1)
    return {
        "feature": nodes["feature"].copy(),
        "threshold": nodes["threshold"].copy(),
        "left": np.where(inner, position[nodes["left"]], np.int32(-1)),
        "right": np.where(inner, position[nodes["right"]], np.int32(-1)),
        "counts": tree.counts[order, :classes],
        **{name: nodes[name].copy() for name in ("cut", "created", "since")},
        "place": nodes["site"].copy(),
        "own": tree.own[order, :classes],
    }


class TreeOutline:
    """The structure of a tree beside its counts, made again only after a node or a record of a split has changed."""

    def __init__(self) -> None:
        self.version = 0  #: How often it has changed.
        self.forget()

    def forget(self) -> None:
        """The nodes, or the records of the splits, have changed."""
        self.version += 1
        self._made: tuple[int, Arrays] | None = None  # records for so many classes
        self._order: Int32s | None = None
        self._known = 0

    def order(self, tree: ConfidenceTreeArrays) -> Int32s:
        """Return the nodes in preorder."""
        if self._order is None:
            self._order = preorder(tree)[0]
        return self._order

    def classes(self, tree: ConfidenceTreeArrays, splits: dict[int, SplitRecord], least: int) -> int:
        """Return how many classes counts are of: the ``least``, those of records, and those of live examples."""
        if not self._known:
            self._known = max([2, *(len(record.own) for record in splits.values())])
        live = np.flatnonzero(tree.counts[0, least:])  # no node has counted another one
        return max(least, self._known, least + int(live[-1]) + 1 if len(live) else 0)

    def records(self, splits: dict[int, SplitRecord], inner: list[int], classes: int) -> Arrays:
        """Return the records as arrays, given the inner nodes in preorder."""
        if self._made is None or self._made[0] != classes:
            self._made = classes, splits_as_arrays([splits[node] for node in inner], classes)
        return dict(self._made[1])


def canonical_tree(
    tree: ConfidenceTreeArrays,
    splits: dict[int, SplitRecord],
    outline: TreeOutline,
    *,
    classes: int = 2,
) -> Arrays:
    """All arrays by node and those of the splits. Counts are of at least so many ``classes``."""
    order = outline.order(tree)
    arrays = node_arrays(tree, outline.classes(tree, splits, classes))
    classes = arrays["counts"].shape[1]
    return arrays | outline.records(splits, order[arrays["feature"] >= 0].tolist(), classes)


#: Of the records of the splits what a model has, for those who read it; nothing is predicted by them.
SHOWN = ("stamp", "m", "rival_feature", "reason", "phi", "rival_phi", "impurity", "epsilon")


def filled(arrays: Arrays) -> Arrays:
    """Arrays predictions need; a leaf without examples gets the counts of the nearest node above that has some."""
    model = {of.name: arrays[of.name].copy() for of in NODE_ARRAYS}
    counts, inner = model["counts"], np.flatnonzero(model["feature"] >= 0)
    parent = np.zeros(len(counts), dtype=np.int64)
    parent[model["left"][inner]] = parent[model["right"][inner]] = inner
    for node in np.flatnonzero(~counts.any(axis=1)).tolist():  # parents come first
        counts[node] = counts[parent[node]]
    return model


def predictive(arrays: Arrays, unit: int) -> Arrays:
    """Arrays that predictions need (:func:`filled`), and arrays that are only read.

    That is ``live``, the examples that each node really has, and the ``SHOWN`` columns of the splits, under ``split_``
    and their names; and ``unit``, the units of one row, where counts are masses.
    """
    shown = {f"split_{name}": arrays[f"split_{name}"] for name in SHOWN}
    return filled(arrays) | shown | unit_array(unit) | {"live": arrays["counts"].sum(axis=1)}


def live_tree(arrays: Arrays) -> tuple[ConfidenceTreeArrays, dict[int, SplitRecord]]:
    """The live tree of canonical arrays, without the examples of its leaves; and the splits by node."""
    n, classes = arrays["counts"].shape
    tree = with_room(new_tree(classes), n, classes)
    nodes = tree.nodes
    for name in ("majority_right", "naive_right", "normal_right", "inherited_right"):
        nodes[name][:n] = 0  # rows that a tree has grown by hold anything
    for name in ("feature", "threshold", "left", "right", "cut", "created", "since"):
        nodes[name][:n] = arrays[name]
    nodes["site"][:n] = arrays["place"]
    tree.counts[:n], tree.own[:n] = arrays["counts"], arrays["own"]
    nodes["head"][:n] = -1
    nodes["parent"][0], nodes["depth"][0] = -1, 0
    inner = np.flatnonzero(arrays["feature"] != LEAF)
    for node in inner.tolist():
        for child in (nodes["left"][node], nodes["right"][node]):
            nodes["parent"][child], nodes["depth"][child] = node, nodes["depth"][node] + 1
    tree.reg[[USED, FREE, NODES, LEAVES]] = n, -1, n, n - len(inner)
    return tree, dict(zip(inner.tolist(), splits_of_arrays(arrays), strict=True))


# Predictions of a saved tree some of whose leaves predict by naive Bayes.
#
# What such a leaf needs is stored as logarithms, whole numbers of ``naive_bayes``, of the counts that are not 0: a
# model predicts the same on any machine. Its shares are those of naive Bayes, too.

#: Arrays of a model by cell of a leaf that predicts by naive Bayes: position among these leaves, feature, group of its
#: bins (0 of a sparse feature), class, and T of what was counted; ascending.
CELLS = ("leaf", "feature", "group", "class", "log")
#: Rows that are worth the start of another thread.
_FEW_ROWS = 1 << 11


def naive_arrays(leaves: AnyArray, priors: Ints, replies: Sequence[Ints], bins: Bins, logs: SharedLogs) -> Arrays:
    """Return the arrays ``NAIVE`` of a model for its leaves that predict by naive Bayes, and the bins.

    ``leaves`` are their positions in preorder, shape (n,), ``priors`` has shape (n, K). Each reply of a shard, shape
    (5, cells), has the first four of ``CELLS``, and the number counted. ``logs`` gives T.
    """
    cells = np.concatenate([np.empty((5, 0), dtype=np.int64), *replies], axis=1)
    cells = cells[:, np.lexsort(cells[3::-1])]
    cells[4] = logs.of(cells[4])
    columns = {of.name: cells[i].astype(of.dtype) for i, of in enumerate(NAIVE[2:])}
    classes = max(2, int(np.flatnonzero(priors.any(axis=0)).max(initial=-1)) + 1)
    prior = logs.of(priors[:, :classes])
    return {"naive_leaf": leaves.astype(np.int32), "naive_prior": prior, **columns, **bins.arrays()}


@inlined_kernel
def _add(cells: Any, key: int, prior: Any, scores: Any) -> None:
    """Add T(n_jk) - T(n_k) of one group of bins, or of one sparse feature."""
    keys, logs = cells
    for k in range(len(scores)):
        at = np.searchsorted(keys, key * len(scores) + k)
        there = at < len(keys) and keys[at] == key * len(scores) + k
        scores[k] += (logs[at] if there else 0) - prior[k]


@kernel
def _score(
    rows: Any, leaf: Any, bins: Any, pools: Any, width: int, prior: Any, table: Any, ones: Any, normals: Any, out: Any
) -> None:
    """Scores of rows into ``out``, shape (n, K). ``leaf`` is the place of each among the leaves of naive Bayes.

    ``table``, shape (leaves, groups of all dense features, K), has the T of dense features, and ``ones`` the keys and T
    of sparse ones, of which there are ``width``. ``normals`` has the number of each leaf among those with normal
    features (-1: none), that of each feature among these, the score of each bin, and of these leaves, features and
    classes log, mean and variance. O((features + ones log cells) x K) a row.
    """
    (X, indptr, indices), (normal_leaf, normal, score, log, mean, variance) = rows, normals
    for i in range(len(X)):
        v = leaf[i]
        for k in range(out.shape[1]):
            out[i, k] = prior[v, k] - X.shape[1] * prior[v, k]
        for j in range(X.shape[1]):
            code = code_of(X[i, j], bins, j)
            group = pools[0][pools[1][j] + code]
            at, c = normal_leaf[v], normal[j]
            if at >= 0 and c >= 0 and code <= bins.starts[j + 1] - bins.starts[j]:
                z = np.int64(score[pools[1][j] + code])
                for k in range(out.shape[1]):
                    apart = distance(z, np.int64(mean[at, c, k]), np.int64(variance[at, c, k]))
                    out[i, k] += log[at, c, k] - apart
                continue
            for k in range(out.shape[1]):
                out[i, k] += table[v, group, k]
        for at in range(indptr[i], indptr[i + 1]):
            _add(ones, v * width + indices[at], prior[v], out[i])


def odds_of(scores: Ints, known: Bools) -> Floats:
    """Return the shares of naive Bayes, not yet scaled, by scores of rows and the classes with examples there."""
    best = np.where(known, scores, np.iinfo(np.int64).min).max(axis=1, keepdims=True)
    odds: Floats = np.where(known, np.exp(np.where(known, scores - best, 0) / UNIT), 0.0)
    return odds


class NaivePredictor(TreePredictor):
    """Predictions of canonical arrays, with those of :func:`naive_arrays` or without."""

    def __init__(self, features: Features, model: Arrays) -> None:
        super().__init__(features, model)
        self._leaves = model.get("naive_leaf", np.empty(0, dtype=np.int32))
        if not len(self._leaves):
            return
        leaf, feature, group, label, log = (model[f"naive_cell_{name}"].astype(np.int64) for name in CELLS)
        self._bins, self._prior = Bins.from_arrays(model), np.ascontiguousarray(model["naive_prior"])
        pools, dense = pools_of(self._bins), len(features.names)
        through = (pools.of + np.repeat(pools.first[:-1], self._bins.counts())).astype(np.int64)
        self._pools = through, np.cumsum(self._bins.counts()) - self._bins.counts()
        own, classes = feature < dense, self._prior.shape[1]
        self._table = np.zeros((len(self._leaves), int(pools.first[-1]), classes), dtype=np.int64)
        self._table[leaf[own], pools.first[feature[own]] + group[own], label[own]] = log[own]
        keys = (leaf[~own] * self._sparse + feature[~own] - dense) * classes + label[~own]
        self._ones = keys, log[~own]
        self._normals = self._normal_part(model)

    def _normal_part(self, model: Arrays) -> tuple[Any, ...]:
        """The arrays of leaves with normal features that kernels need."""
        score, normal = normal_scores(self._bins)
        number = np.where(normal > 0, np.cumsum(normal, dtype=np.int64) - 1, -1)
        place = np.full(len(self._leaves), -1, dtype=np.int64)
        if "normal_leaf" not in model:
            none = np.empty((0, 0, self._prior.shape[1]), dtype=np.int64)
            return place, number, score, none, none.astype(np.int32), none.astype(np.int32)
        place[model["normal_leaf"]] = np.arange(len(model["normal_leaf"]))
        parts = (np.ascontiguousarray(model[f"normal_{name}"]) for name in ("log", "mean", "variance"))
        return place, number, score, *parts

    def _naive(self, leaves: Int32s, X: Any, sparse: SparseRows | None, take: Callable[[Ints, Ints], None]) -> None:
        """Have ``take`` receive the rows that naive Bayes predicts and their scores, (rows, K): ranges, in threads."""
        if not len(self._leaves):
            return
        place = np.full(len(self._model["feature"]), -1, dtype=np.int64)
        place[self._leaves] = np.arange(len(self._leaves))
        which = np.flatnonzero(place[leaves] >= 0)
        every = sparse or SparseRows.empty(self._sparse, len(X))

        def score(part: slice) -> None:
            some, ones = which[part], every[which[part]]
            scores = np.empty((len(some), self._prior.shape[1]), dtype=np.int64)
            rows = np.ascontiguousarray(X[some], dtype=np.float64), ones.indptr, ones.indices
            leaf = place[leaves[some]]
            of_leaves = self._prior, self._table, self._ones, self._normals
            _score(rows, leaf, self._bins, self._pools, self._sparse, *of_leaves, scores)
            scores[self._prior[leaf] == 0] = np.iinfo(np.int64).min
            take(some, scores)

        run([partial(score, part) for part in ranges(len(which), _FEW_ROWS)])

    def _missing_left(self) -> Bools:
        """None: missing numbers have the last bin, and go right."""
        return np.zeros(len(self._model["feature"]), dtype=np.bool_)

    def tree_sum(self, n_classes: int) -> TreeSum:
        """Refuse if leaves predict by naive Bayes, whose shares no split accounts for; else as of any tree."""
        if len(self._leaves):
            raise InputError(message("learners.naive_leaves", leaves=counted(len(self._leaves), "leaf")))
        return super().tree_sum(n_classes)

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> Int32s:
        """Class codes, shape (n,): the leaf's majority, or that of the highest score; the smaller on a tie."""
        leaves = self.apply(X, sparse)
        labels: Int32s = self._model["counts"].argmax(axis=1).astype(np.int32)[leaves]

        def take(rows: Ints, scores: Ints) -> None:
            labels[rows] = scores.argmax(axis=1)

        self._naive(leaves, X, sparse, take)
        return labels

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Shares of the classes, shape (n, n_classes): in the row's leaf, or those of naive Bayes."""
        leaves = self.apply(X, sparse)
        shares = self._shares(n_classes)[leaves]

        def take(rows: Ints, scores: Ints) -> None:
            odds = odds_of(scores, scores > np.iinfo(np.int64).min)
            known_classes = min(n_classes, odds.shape[1])
            shares[rows] = 0.0
            shares[rows, :known_classes] = (odds / odds.sum(axis=1, keepdims=True))[:, :known_classes]

        self._naive(leaves, X, sparse, take)
        return shares

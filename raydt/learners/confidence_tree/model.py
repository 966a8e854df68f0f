"""The tree as canonical arrays (preorder, node 0 = root), and the record of each split: saved, hashed and audited."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raydt.arrays.types import Arrays, Int32s
from raydt.learners.confidence_tree.drift_kernels import TRIAL
from raydt.learners.confidence_tree.schema import SPLITS, TRIALS
from raydt.learners.confidence_tree.tree import ConfidenceTreeArrays, new_tree, with_room
from raydt.trees.masses import unit_array
from raydt.trees.records import FREE, LEAF, LEAVES, NODES, USED, preorder
from raydt.trees.state_schema import NODE_ARRAYS


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
    """What a tree has beside its counts, made again only after a node or a record of a split has changed."""

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
    trials: bool = False,
    classes: int = 2,
) -> Arrays:
    """All arrays by node and those of the splits; with ``trials`` those of the trials, too.

    Counts are of at least so many ``classes``.
    """
    order = outline.order(tree)
    arrays = node_arrays(tree, outline.classes(tree, splits, classes))
    classes = arrays["counts"].shape[1]
    of_trials = trial_arrays(tree, order, classes) | {"trial_place": tree.trials["site"][order]} if trials else {}
    return arrays | of_trials | outline.records(splits, order[arrays["feature"] >= 0].tolist(), classes)


def trial_arrays(tree: ConfidenceTreeArrays, order: Int32s, classes: int) -> Arrays:
    """Return what trials of some nodes have counted, under ``trial_`` and their names."""
    tallies = {of.name: tree.trials[of.name.removeprefix("trial_")][order] for of in TRIALS[2:]}
    return tallies | {"trial_own": tree.fresh[order, :classes]}


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
    tree.trials[:n] = np.zeros((), dtype=TRIAL)
    for name in ("began", "restarted", "site"):
        tree.trials[name][:n] = -1
    for name in ("feature", "threshold", "left", "right", "cut", "created", "since"):
        nodes[name][:n] = arrays[name]
    nodes["site"][:n] = arrays["place"]
    tree.counts[:n], tree.own[:n] = arrays["counts"], arrays["own"]
    if "trial_place" in arrays:
        tree.trials["site"][:n], tree.fresh[:n] = arrays["trial_place"], arrays["trial_own"]
        for of in TRIALS[2:]:
            tree.trials[of.name.removeprefix("trial_")][:n] = arrays[of.name]
    nodes["head"][:n] = -1
    nodes["parent"][0], nodes["depth"][0] = -1, 0
    inner = np.flatnonzero(arrays["feature"] != LEAF)
    for node in inner.tolist():
        for child in (nodes["left"][node], nodes["right"][node]):
            nodes["parent"][child], nodes["depth"][child] = node, nodes["depth"][node] + 1
    tree.reg[[USED, FREE, NODES, LEAVES]] = n, -1, n, n - len(inner)
    return tree, dict(zip(inner.tolist(), splits_of_arrays(arrays), strict=True))

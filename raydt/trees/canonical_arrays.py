"""A fully dynamic tree as canonical arrays (preorder, node 0 = root): saved, hashed, audited, used to predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.store import ExampleStore
from raydt.trees.counted_tree import CountedTree, TreeRules, floor_product, new_tree, with_room
from raydt.trees.records import FREE, LEAVES, NODES, USED, listed, majority, preorder
from raydt.trees.regression_sums import LARGEST_MASS, MOST_UNITS, LabelRange, mass_ceilings
from raydt.trees.state_checks import check_examples, check_nodes, check_sums

Arrays = dict[str, "npt.NDArray[Any]"]

#: Types of the arrays of a tree, by node; ``counts`` has a column for each class.
ARRAY_TYPES: dict[str, np.dtype[Any]] = {
    "feature": np.dtype(np.int32),
    "threshold": np.dtype(np.float64),
    "left": np.dtype(np.int32),
    "right": np.dtype(np.int32),
    "s": np.dtype(np.int64),
    "c": np.dtype(np.int64),
    "built": np.dtype(np.int64),
    "counts": np.dtype(np.int64),
}
#: Those of a tree whose rebuilds follow certificates, besides.
CERTIFICATE_TYPES: dict[str, np.dtype[Any]] = {"m0": np.dtype(np.float64), "gone": np.dtype(np.int64)}
#: With numeric labels there is one class, and these arrays have the sums of the labels and of their squares at each
#: node, and the ends of their range.
SUMS, RANGE = NUMBER_ARRAYS = "sums", "label_range"
#: Counters begin at 0 and stay below: examples have int32 slots, and ``floor_product`` is exact up to 2**53.
LIMITS = {"s": 2**31, "c": 2**53, "gone": 2**31}


def check_tree(arrays: Arrays, d: int, classes: int, certified: bool = False) -> None:
    """Require what the kernels rely on: one tree in preorder over ``d`` features. O(n log n).

    Raises
    ------
    ValueError
        Naming the array that cannot be.
    """
    inner = check_nodes(arrays, ARRAY_TYPES | (CERTIFICATE_TYPES if certified else {}), d, classes)
    if not np.isfinite(arrays["threshold"][inner]).all():
        raise ValueError("array 'threshold' has a split at a number that is not finite")
    if certified and not ((arrays["m0"] >= 0) & (arrays["m0"] < LARGEST_MASS)).all():
        raise ValueError("array 'm0' has a mass that is not that of examples")
    for name, limit in LIMITS.items():
        if name in arrays and ((arrays[name] < 0) | (arrays[name] >= limit)).any():
            raise ValueError(f"array {name!r} has a number that is not from 0 to {limit - 1}")
    check_sums(arrays, inner)


def check_numbers(arrays: Arrays, *, warming: bool) -> None:
    """Require of a tree of numeric labels what the kernels rely on, in addition to :func:`check_tree`.

    While a model is ``warming`` up, the range may be missing.
    """
    ends = arrays[RANGE]
    if ends.dtype != np.float64 or ends.shape != (2,):
        raise ValueError(f"array {RANGE!r} is not two float64")
    if not (LabelRange.of(*ends.tolist()).known or (warming and np.isnan(ends).all())):
        raise ValueError(f"array {RANGE!r} is not a smaller and a larger number")
    sums, counts = arrays[SUMS], arrays["counts"]
    if sums.dtype != np.int64 or sums.shape != (len(counts), 2) or counts.shape[1] != 1:
        raise ValueError(f"array {SUMS!r} does not have two sums for each node of one count")
    most = MOST_UNITS * np.stack([counts[:, 0], sums[:, 0]], axis=1)
    if ((sums < 0) | (sums > most)).any():
        raise ValueError(f"array {SUMS!r} has a sum that no labels have")
    check_sums({**arrays, "counts": sums}, np.flatnonzero(arrays["feature"] >= 0))


def check_rows(arrays: Arrays, groups: Mapping[int, Arrays], features: Features, numbers: bool = False) -> None:
    """Require what :func:`check_examples` does, and that each live example has its features.

    Raises
    ------
    ValueError
        Naming the array that cannot be.
    """
    check_examples(arrays, ("seq", "warmup_left", "rebuilds", "rebuilt_rows"), numbers)
    rows = arrays["id"].size
    if set(groups) != set(range(features.groups)):
        raise ValueError(f"the feature groups are {sorted(groups)}, not 0 to {features.groups - 1}")
    for number, group in groups.items():
        X, width = group["X"], len(features.group_columns(number))
        if X.dtype != np.float64 or X.shape != (rows, width) or not np.isfinite(X).all():
            problem = f"does not have {width} finite float64 for each live example"
            raise ValueError(f"array 'X' of feature group {number} {problem}")


def canonical_tree(tree: CountedTree, certified: bool) -> tuple[Arrays, npt.NDArray[np.int32]]:
    """The arrays of the model, with its certificates if it has any, and the preorder position of each node id."""
    order, position, _ = preorder(tree)
    nodes, statistics, counts = tree.nodes[order], tree.statistics[order], tree.counts[order]
    feature = nodes["feature"].copy()
    classes = max(2, int(np.flatnonzero(counts[0]).max(initial=0)) + 1)  # a class announced is not yet a class seen
    arrays: Arrays = {
        "feature": feature,
        "threshold": nodes["threshold"].copy(),
        "left": np.where(feature >= 0, position[nodes["left"]], np.int32(-1)),
        "right": np.where(feature >= 0, position[nodes["right"]], np.int32(-1)),
        "s": statistics["s"].copy(),
        "c": statistics["c"].copy(),
        "built": statistics["built"].copy(),
        "counts": counts[:, :classes].copy(),
    }
    if certified:
        arrays |= {name: statistics[name].copy() for name in CERTIFICATE_TYPES}
    if tree.sums.shape[1]:
        arrays[SUMS] = tree.sums[order]
    return arrays, position


def live_tree(arrays: Arrays, rules: TreeRules) -> CountedTree:
    """The live tree of canonical arrays, without the rows of its leaves."""
    n, classes = arrays["counts"].shape
    tree = with_room(new_tree(64, classes), n, classes)
    nodes, statistics = tree.nodes, tree.statistics
    for name in ("feature", "threshold", "left", "right"):
        nodes[name][:n] = arrays[name]
    for name in ("s", "c", "built", *(CERTIFICATE_TYPES if rules.certified else ())):
        statistics[name][:n] = arrays[name]
    tree.counts[:n] = arrays["counts"]
    statistics["n"][:n] = tree.counts[:n].sum(axis=1)
    if SUMS in arrays:
        tree.sums[:n] = arrays[SUMS]
        statistics["pairs"][:n] = mass_ceilings(statistics["n"][:n], tree.sums[:n])
    else:
        statistics["pairs"][:n] = statistics["n"][:n] ** 2 - (tree.counts[:n] ** 2).sum(axis=1)
    nodes["head"][:n] = -1
    nodes["parent"][0], nodes["depth"][0] = -1, 0
    for i in range(n):
        inner = nodes["feature"][i] >= 0
        statistics["allowed"][i] = 0  # of a certificate: it is tested with the next update
        if not (inner and rules.certified):
            statistics["allowed"][i] = floor_product(rules.epsilon, int(statistics["s"][i]))
        nodes["label"][i] = majority(tree.counts, i)
        if inner:
            for child in (nodes["left"][i], nodes["right"][i]):
                nodes["parent"][child], nodes["depth"][child] = i, nodes["depth"][i] + 1
    tree.reg[[USED, FREE, NODES, LEAVES]] = n, -1, n, int((nodes["feature"][:n] < 0).sum())
    return tree


def restored(store: ExampleStore, arrays: Arrays, rules: TreeRules) -> tuple[CountedTree, npt.NDArray[np.void]]:
    """The live tree and the lists of its leaves from a saved state, whose rows take slots 0, 1, ... of ``store``."""
    store.fill(arrays["id"], arrays["y"], arrays["born"])
    tree = live_tree(arrays, rules)
    return tree, listed(tree, arrays["leaf"], store.capacity)

"""Checks of arrays from a file before kernels follow the indices in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.learners.forest.label_scale import COARSE_BITS, LABEL_BITS, LEAST_EXPONENT, Scale, in_units, sums_of
from raydt.learners.forest.model import depths_of, stored
from raydt.learners.forest.options import ForestOptions
from raydt.trees.state_checks import check_held, require, typed

Arrays = Mapping[str, npt.NDArray[Any]]

_SCALARS = ("seq", "warmup", "rebuilds", "rebuilt_rows")


def check_model(arrays: Arrays, options: ForestOptions, features: Features, classes: int) -> None:
    """Trees in preorder over the features, each node counting what its children do. O(nodes).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    nodes = typed(arrays, "tree_nodes", np.int64, (options.n_estimators,))
    n = arrays["feature"].size
    fits = (nodes > 0).all() and (nodes <= n).all() and nodes.sum() == n
    require(fits, "tree_nodes", "does not count the nodes of each tree")
    for name, dtype in (("feature", np.int32), ("threshold", np.float64), ("left", np.int32), ("right", np.int32)):
        typed(arrays, name, dtype, (n,))
    feature, threshold, right, totals = (arrays[name] for name in ("feature", "threshold", "right", "totals"))
    width = totals.shape[1] if totals.ndim == 2 else 0
    typed(arrays, "totals", np.int64, (n, width))
    right_width = width in (3, 4) if options.numeric else 2 <= width <= max(2, classes)
    require(right_width, "totals", "does not count the labels")
    require(((feature >= -1) & (feature < len(features))).all(), "feature", "names a column that does not exist")
    if not options.numeric:
        order = typed(arrays, "order", np.int64, (width,))
        require(np.array_equal(np.sort(order), np.arange(width)), "order", "does not name each class once")
    inner = np.flatnonzero(feature >= 0)
    leaves = feature < 0
    require(np.isfinite(threshold).all(), "threshold", "has a number that is not finite")
    require((threshold[leaves] == 0).all(), "threshold", "gives one to a leaf")
    require((right[leaves] == -1).all(), "right", "gives a child to a leaf")
    _check_shape(nodes, inner, right)
    depth = depths_of(arrays)
    require(int(depth.max(initial=0)) <= options.max_depth, "right", "has a node that is too deep")
    starts = np.cumsum(nodes) - nodes
    tree = np.searchsorted(starts, inner, side="right") - 1
    require(np.array_equal(arrays["left"][inner], inner - starts[tree] + 1), "left", "is not the next node of a split")
    require((arrays["left"][leaves] == -1).all(), "left", "gives a child to a leaf")
    children = inner + 1, starts[tree] + right[inner]
    both = totals[children[0]] + totals[children[1]]
    require(np.array_equal(totals[inner], both), "totals", "has a node whose children do not add up to it")
    counts = totals[:, :1] if options.numeric else totals
    require((counts >= 0).all() and (counts < 2**31).all(), "totals", "has a count that cannot be")
    enough = counts.sum(axis=1)[inner] >= options.min_samples_split
    require(enough.all(), "totals", "has a split of too few examples")
    require((counts[np.concatenate(children)].sum(axis=1) > 0).all(), "totals", "has an empty child")
    if options.numeric:
        exponent = int(typed(arrays, "exponent", np.int64, (1,))[0])
        require(LEAST_EXPONENT <= exponent <= 1024, "exponent", "is not that of a number")
        most = counts[:, 0].astype(np.float64) * 2.0 ** _bits(totals)
        require((np.abs(totals[:, 1]) <= most).all(), "totals", "has a sum that no labels have")
        # One word of squares of 20 bits, or two words of 40 bits each.
        squares, most = totals[:, 2:], counts.astype(np.float64) * 2.0**LABEL_BITS
        require(((squares >= 0) & (squares <= most)).all(), "totals", "has squares of no labels")


def _bits(totals: npt.NDArray[np.int64]) -> int:
    """What numeric labels are rounded to."""
    return LABEL_BITS if totals.shape[1] == 4 else COARSE_BITS


def _check_shape(nodes: npt.NDArray[np.int64], inner: npt.NDArray[np.int64], right: npt.NDArray[np.int32]) -> None:
    """Every tree is one, in preorder: each node but the root is the next node of a split, or the right child of one."""
    starts = np.cumsum(nodes) - nodes
    tree = np.searchsorted(starts, inner, side="right") - 1
    place = inner - starts[tree]
    inside = (right[inner] > place + 1) & (right[inner] < nodes[tree]) & (place + 1 < nodes[tree])
    require(inside.all(), "right", "leads out of its tree")
    children = np.concatenate([inner + 1, starts[tree] + right[inner]])
    expected = np.setdiff1d(np.arange(int(nodes.sum())), starts, assume_unique=True)
    require(np.array_equal(np.sort(children), expected), "right", "is not of trees in preorder")


def check_state(
    arrays: Arrays, groups: Mapping[int, Arrays], options: ForestOptions, features: Features, classes: int
) -> None:
    """A state: its trees, and rows each with features. That the trees are those of the rows is left to the audit.

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    check_model(arrays, options, features, classes)
    rows = arrays["id"].size
    for name in _SCALARS:
        require(0 <= int(typed(arrays, name, np.int64, (1,))[0]) < 2**53, name, "is not a number from 0 to 2**53 - 1")
    typed(arrays, "id", np.int64, (rows,))
    born = typed(arrays, "born", np.int64, (rows,))
    for name, values in (("id", arrays["id"]), ("born", born)):
        require(len(np.unique(values)) == len(values), name, "has the same number for two live examples")
    require(
        ((born >= 0) & (born < arrays["seq"][0])).all(), "born", "names an update that is not among the first 'seq'"
    )
    y = typed(arrays, "y", np.float64 if options.numeric else np.int32, (rows,))
    if options.numeric:
        require(np.isfinite(y).all(), "y", "has a label that is not finite")
    else:
        require(((y >= 0) & (y < max(1, classes))).all(), "y", "names a class that is not there")
    _check_labels(arrays, y, options)
    check_held(groups, features, rows)


def _check_labels(arrays: Arrays, y: npt.NDArray[Any], options: ForestOptions) -> None:
    """All roots together count every live example once for each tree that it lives in."""
    roots = np.cumsum(arrays["tree_nodes"]) - arrays["tree_nodes"]
    counted, width = arrays["totals"][roots].sum(axis=0), arrays["totals"].shape[1]
    if options.numeric:
        scale = Scale(int(arrays["exponent"][0]), _bits(arrays["totals"]))
        expected = stored(sums_of(in_units(y, scale))[None], scale)[0]
    else:
        require((y < width).all(), "y", "names a class that the trees do not count")
        expected = np.bincount(y, minlength=width)
    require(np.array_equal(counted, options.copies * expected), "y", "is not what the trees count")

"""Checks of arrays from a file before kernels follow the indices and counters in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.finders.buckets import buckets_of
from raydt.learners.best_split.coordinator import SCALARS
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.best_split.shard import FINDERS, UNDECIDED
from raydt.trees.state_checks import require, typed

Arrays = Mapping[str, npt.NDArray[Any]]

_COUNTERS = {"feature": np.int32, "n1": np.int32, "c11": np.int32, "bucket": np.int16}


def check_split(arrays: Arrays, options: BestSplitOptions, features: Features, classes: int) -> None:
    """Require a split of some rows by a sparse feature, or by none."""
    if features.names:
        raise ValueError("its features are not all sparse")
    feature, n, c1, n1, c11 = typed(arrays, "split", np.int64, (5,)).tolist()
    require(-1 <= feature < features.sparse, "split", "names a feature that is not there")
    fits = 0 <= c11 <= n1 <= n < 2**31 and 0 <= c1 - c11 <= n - n1
    require(fits and (n1 > 0) == (feature >= 0), "split", "has counts that cannot be")


def check_state(
    arrays: Arrays, groups: Mapping[int, Arrays], options: BestSplitOptions, features: Features, classes: int
) -> None:
    """A state: its split, rows each with features, and counters that are those of the rows. O(ones log).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    check_split(arrays, options, features, classes)
    rows = arrays["id"].size
    scalars = {name: int(typed(arrays, name, np.int64, (1,))[0]) for name in SCALARS}
    seq, warmup, finder = (scalars[name] for name in ("seq", "warmup", "finder"))
    for name in ("seq", "warmup", "searched", "changes", "moves"):
        require(0 <= scalars[name] < 2**53, name, "is not a number from 0 to 2**53 - 1")
    require(scalars["searched"] <= seq, "searched", "names an update that is not among the first 'seq'")
    require((typed(arrays, "measured", np.int64, (3,)) >= 0).all(), "measured", "is negative")
    typed(arrays, "id", np.int64, (rows,))
    y, born = typed(arrays, "y", np.int32, (rows,)), typed(arrays, "born", np.int64, (rows,))
    for name, values in (("id", arrays["id"]), ("born", born)):
        require(len(np.unique(values)) == len(values), name, "has the same number for two live examples")
    require(((born >= 0) & (born < seq)).all(), "born", "names an update that is not among the first 'seq'")
    require(((y >= 0) & (y < min(classes, 2))).all(), "y", "names a class that is not there")
    known = finder == UNDECIDED if options.finder == "auto" and seq < warmup else False
    allowed = (options.structure, "scan") if options.finder == "auto" else (options.finder,)
    require(known or finder in [FINDERS.index(name) for name in allowed], "finder", "is not one of the options")
    require(set(groups) == set(range(features.groups)), "feature", "is not that of all feature groups")
    taken = y if seq >= warmup else y[:0]
    for number, group in groups.items():
        typed(group, "X", np.float64, (rows, 0))
        sparse = SparseRows.of_arrays(group, features.sparse)
        own = (features.groups_of(sparse.indices) == number).all()
        require(len(sparse) == rows and own, "sparse_values", f"has features that are not of group {number}")
        _check_counters(group, sparse[: len(taken)], taken, finder, options)
    filled = sum(len(np.unique(group["bucket"][group["bucket"] >= 0])) for group in groups.values())
    require(scalars["buckets"] == filled, "buckets", "does not count the buckets with features")


def _check_counters(
    group: Arrays, sparse: SparseRows, y: npt.NDArray[np.int32], finder: int, options: BestSplitOptions
) -> None:
    """Counters of a group are those of its rows, and buckets are there."""
    feature, place = np.unique(sparse.indices, return_inverse=True)
    for name, dtype in _COUNTERS.items():
        typed(group, name, dtype, feature.shape)
    require(np.array_equal(group["feature"], feature), "feature", "is not what is 1 in some row")
    of_one = np.repeat(y, sparse.lengths) == 1
    for name, expected in (("n1", np.ones(len(place))), ("c11", of_one)):
        count = np.bincount(place, expected, minlength=len(feature))
        require(np.array_equal(group[name], count), name, "does not count the rows")
    number, n, c1 = typed(group, "node", np.int64, (3,)).tolist()
    at_work = (number, n, c1) == (finder, len(y), int(y.sum()))
    require(at_work or ((number, n, c1) == (UNDECIDED, 0, 0) and not len(y)), "node", "is not of the rows")
    name = FINDERS[finder] if finder != UNDECIDED else "scan"
    buckets = 0 if name == "scan" else len(buckets_of(name, options.alpha).s)
    low = -1 if name == "scan" else 0
    require(((group["bucket"] >= low) & (group["bucket"] < max(buckets, 0))).all(), "bucket", "is not there")

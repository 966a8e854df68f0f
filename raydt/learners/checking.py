"""What learners have in common of the checks on arrays from a file, before kernels follow the indices in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.binning import SPARSE, Bins
from raydt.features import CATEGORICAL, NUMERIC, Features
from raydt.sparse import SparseRows

Arrays = Mapping[str, npt.NDArray[Any]]

_BINS = {
    "kinds": np.int8,
    "values": np.float64,
    "ranks": np.int32,
    "starts": np.int64,
    "seen": np.uint8,
    "default": np.int32,
}


def require(holds: bool | np.bool_, name: str, problem: str) -> None:
    """ValueError that names an array, unless something holds."""
    if not holds:
        raise ValueError(f"array {name!r} {problem}")


def typed(arrays: Arrays, name: str, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The array of this name, which must have this type and shape."""
    array = arrays[name]
    fits = array.dtype == dtype and array.shape == shape
    require(fits, name, f"is not {np.dtype(dtype)} of shape {shape}")
    return array


def check_bins(arrays: Arrays, kinds: npt.NDArray[np.int8]) -> Bins:
    """Bins of features of these kinds, NUMERIC, CATEGORICAL or SPARSE. O(d + bins).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    d, total = len(kinds), arrays["bins_values"].size
    for name, dtype in _BINS.items():
        shape = (total,) if name in ("values", "ranks") else (d + (name == "starts"),)
        typed(arrays, f"bins_{name}", dtype, shape)
    bins = Bins.from_arrays(dict(arrays))
    require(np.array_equal(bins.kinds, kinds), "bins_kinds", "does not have the kinds of the features")
    steps = np.diff(bins.starts)
    require(bins.starts[0] == 0 and bins.starts[-1] == total and (steps >= 0).all(), "bins_starts", "does not ascend")
    require(not steps[bins.kinds == SPARSE].any(), "bins_starts", "gives values to a sparse feature")
    feature = np.repeat(np.arange(d), steps)
    ascends = np.diff(bins.values) > 0
    require(
        (ascends | (np.diff(feature) > 0)).all() and np.isfinite(bins.values).all(), "bins_values", "does not ascend"
    )
    categorical = bins.kinds[feature] == CATEGORICAL
    in_order = np.lexsort((bins.ranks, feature))
    place = np.arange(total) - bins.starts[feature]
    require((bins.ranks[in_order] == place)[categorical].all(), "bins_ranks", "does not number the categories")
    require((bins.seen <= 1).all(), "bins_seen", "is not of 0 and 1")
    require(
        ((bins.default >= 0) & (bins.default < bins.counts())).all(), "bins_default", "names a bin that is not there"
    )
    return bins


def check_held(groups: Mapping[int, Arrays], features: Features, rows: int) -> None:
    """The rows that the shards hold, by feature group: numbers that may be NaN, categories, and sparse features.

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    require(set(groups) == set(range(features.groups)), "X", "is not that of all feature groups")
    for number, group in groups.items():
        columns = features.group_columns(number)
        X = typed(group, "X", np.float64, (rows, len(columns)))
        numeric = features.kinds[columns] == NUMERIC
        fits = ~np.isinf(X).any() and np.isfinite(X[:, ~numeric]).all()
        require(fits, "X", f"of feature group {number} has a value that is not finite")
        if features.sparse:
            sparse = SparseRows.of_arrays(group, features.sparse)
            own = (features.groups_of(sparse.indices) == number).all()
            require(len(sparse) == rows and own, "sparse_values", f"has features that are not of group {number}")

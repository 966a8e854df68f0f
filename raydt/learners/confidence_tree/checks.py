"""Checks of arrays from a file before kernels follow the indices and counters in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.batches.binning import Bins, encode
from raydt.examples.features import CATEGORICAL, Features
from raydt.learners.confidence_tree.bounds import TIE
from raydt.learners.confidence_tree.coordinator import SCALARS
from raydt.learners.confidence_tree.drift_kernels import LONGEST
from raydt.learners.confidence_tree.model import MODEL_TYPES, NODE_TYPES, SPLIT_TYPES, TRIAL_TYPES
from raydt.learners.confidence_tree.naive_bayes import LARGEST_LOG, pools_of
from raydt.learners.confidence_tree.naive_predictor import CELL_TYPES, CELLS
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.confidence_tree.prediction import BLAMELESS, MAJORITY_RIGHT, NAIVE_RIGHT
from raydt.learners.confidence_tree.shard import SEEN
from raydt.trees.state_checks import (
    Arrays,
    check_bins,
    check_examples,
    check_held,
    check_nodes,
    check_sums,
    require,
    typed,
)

Ints = npt.NDArray[np.int64]

_SEEN_TYPES = dict.fromkeys(SEEN, np.int32)
_SCORES = ("phi", "rival_phi", "impurity", "epsilon")


class _Counted(NamedTuple):
    """Which examples are counted where: pairs of a row and a place; and the places there are, and what each counts."""

    row: Ints
    at: Ints
    own: Ints
    place: Ints


def check_model(arrays: Arrays, options: ConfidenceTreeOptions, features: Features, classes: int) -> None:
    """A tree over these features, to predict with. O(n log n).

    Counts of an empty leaf are those of a node above it, so that they need not add up.

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    inner = check_nodes(arrays, MODEL_TYPES, len(features), classes)
    at = arrays["threshold"][inner]
    require(not (np.isnan(at) | np.isneginf(at)).any(), "threshold", "has a split at no number")
    if "naive_leaf" in arrays:
        _check_naive(arrays, features, classes)


def _check_naive(arrays: Arrays, features: Features, classes: int) -> None:
    """Leaves that predict by naive Bayes are there, and what they have counted is of bins that are there."""
    bins, leaves = check_bins(arrays, features.kinds), arrays["naive_leaf"]
    n, dense = leaves.size, len(features.names)
    typed(arrays, "naive_leaf", np.int32, (n,))
    there = ((leaves >= 0) & (leaves < len(arrays["feature"]))).all() and (np.diff(leaves) > 0).all()
    require(there and (arrays["feature"][leaves] < 0).all(), "naive_leaf", "names an inner node, or a leaf twice")
    prior = arrays["naive_prior"]
    known = prior.shape[1] if prior.ndim == 2 else 0
    typed(arrays, "naive_prior", np.int64, (n, known))
    require(2 <= known <= max(2, classes), "naive_prior", "does not have the classes")
    cells = {name: arrays[f"naive_cell_{name}"] for name in CELLS}
    size = cells["leaf"].size
    for name, dtype in zip(CELLS, CELL_TYPES, strict=True):
        typed(arrays, f"naive_cell_{name}", dtype, (size,))
    pools, feature = np.diff(pools_of(bins).first), cells["feature"]
    for name, most in (("leaf", n), ("feature", len(features)), ("class", known)):
        require(((cells[name] >= 0) & (cells[name] < most)).all(), f"naive_cell_{name}", "is out of range")
    most = np.ones(size, dtype=np.int64)
    most[feature < dense] = pools[feature[feature < dense]]
    require(((cells["group"] >= 0) & (cells["group"] < most)).all(), "naive_cell_group", "is out of range")
    for name in ("naive_prior", "naive_cell_log"):
        fits = ((arrays[name] >= 0) & (arrays[name] <= LARGEST_LOG)).all()
        require(fits, name, "is no logarithm of a number of examples")
    require((prior > 0).any(axis=1).all(), "naive_prior", "has a leaf without examples")
    keys = np.stack([cells[name] for name in CELLS[3::-1]])
    order = np.lexsort(keys)
    twice = (np.diff(keys, axis=1) == 0).all(axis=0).any()
    require(np.array_equal(order, np.arange(size)) and not twice, "naive_cell_leaf", "does not ascend with the others")


def check_state(
    arrays: Arrays, groups: Mapping[int, Arrays], options: ConfidenceTreeOptions, features: Features, classes: int
) -> None:
    """A state: its tree, records, bins and rows, and statistics that are those of the rows.

    That an example lies in the leaf its features lead to, and the records of the past, are left to the audit.
    O(statistics + rows x depth + ones x depth x log).

    Raises
    ------
    KeyError, ValueError
        Naming the array that cannot be.
    """
    check_model(arrays, options, features, classes)
    inner = check_nodes(arrays, MODEL_TYPES | NODE_TYPES, len(features), classes)
    check_sums(arrays, inner)
    check_examples(arrays, SCALARS)
    totals = {name: int(arrays[name][0]) for name in SCALARS}
    require(2 <= totals["classes"] <= max(2, classes), "classes", "is not the number of classes")
    require(totals["t"] <= totals["seq"], "t", "counts more examples than there were updates")
    most = options.most_classes(sparse=features.sparse > 0)
    require(totals["classes"] <= most, "classes", f"is more than {most}")
    check_held(groups, features, arrays["id"].size)
    fixed = 0 < totals["warmup"] <= totals["seq"]
    require(("bins_kinds" in arrays) == fixed, "bins_kinds", "is there before the end of the warm-up, or not after it")
    bins = check_bins(arrays, features.kinds) if fixed else None
    if options.leaf_prediction == "adaptive" and fixed:
        right = typed(arrays, "was_right", np.uint8, (arrays["id"].size,))
        most = MAJORITY_RIGHT | NAIVE_RIGHT | (BLAMELESS if options.drift_period else 0)
        require((right <= most).all(), "was_right", f"is not from 0 to {most}")
    _check_splits(arrays, inner, bins, features, totals, fixed=not options.renewal)
    for name in ("renewed", "lived"):
        require(totals[name] <= totals["t"], name, "is more than 't'")
    require(totals["compared"] <= 2 * totals["seq"], "compared", "is not among the first 'seq' updates")
    counted = _check_nodes(arrays, inner, options, totals, fixed)
    for number, group in groups.items():
        if bins is not None:
            own_bins = bins.select(features.group_columns(number))
            _check_statistics(group, own_bins, counted, classes)
            _check_bins(group, own_bins, arrays["y"], counted)
        else:
            require("totals" not in group, "totals", "is there before the end of the warm-up")
        if features.sparse:
            sparse = SparseRows.of_arrays(group, features.sparse)
            _check_seen(group, sparse, arrays["y"], counted)
    lengths = {len(group["totals"]) for group in groups.values() if bins is not None}
    shapes = {group["totals"].shape for group in groups.values() if bins is not None}
    require(len(shapes) <= 1, "totals", "is not of the same places in all feature groups")
    require(counted.place.max(initial=-1) < max(lengths, default=0) + len(counted.place), "place", "is out of range")


def _check_splits(
    arrays: Arrays,
    inner: npt.NDArray[Any],
    bins: Bins | None,
    features: Features,
    totals: Mapping[str, int],
    *,
    fixed: bool,
) -> None:
    """Cuts are those of the bins, if they are ``fixed``, and there is a record of every split."""
    n, classes = len(inner), arrays["counts"].shape[1]
    require(not n or bins is not None, "feature", "has splits before the end of the warm-up")
    feature, cut = arrays["feature"][inner], typed(arrays, "cut", np.int32, arrays["feature"].shape)[inner]
    require((np.delete(arrays["cut"], inner) == -1).all(), "cut", "has a leaf with a cut")
    if not fixed:
        require(_may_be_cuts(feature, cut, features), "cut", "names a cut that is not there")
    elif bins is not None:
        require(_are_cuts(feature, cut, bins, features), "cut", "names a cut that is not there")
        thresholds = [_threshold(j, t, bins) for j, t in zip(feature.tolist(), cut.tolist(), strict=True)]
        require(np.array_equal(arrays["threshold"][inner], thresholds), "threshold", "is not that of the cut")
    split = {}
    for name, dtype in SPLIT_TYPES.items():
        shape = (n, classes) if name in ("own", "left") else (n,)
        split[name] = typed(arrays, f"split_{name}", dtype, shape)
    own, left = split["own"], split["left"]
    require(((left >= 0) & (left <= own)).all(), "split_left", "has a side with more examples than the node")
    require((own.sum(axis=1) == split["m"]).all() and (split["m"] > 0).all(), "split_m", "does not sum up 'split_own'")
    stamp, rival = split["stamp"], split["rival_feature"]
    past = (stamp > 0) & (stamp < 2 * totals["seq"]) & (stamp % 2 == 1)
    require(past.all(), "split_stamp", "names an insertion that is not among the first 'seq' updates")
    t = split["t"]
    require(((t > 0) & (t <= totals["t"])).all(), "split_t", "is not from 1 to 't'")
    known = (split["classes"] >= 2) & (split["classes"] <= totals["classes"])
    require(known.all(), "split_classes", "is not from 2 to 'classes'")
    there = rival >= 0
    require(((rival >= -1) & (rival < len(features))).all(), "split_rival_feature", "names a feature that is not there")
    rival_cut = split["rival_cut"]
    fits = (rival_cut[~there] == -1).all()
    if fixed:
        fits = fits and (bins is None or _are_cuts(rival[there], rival_cut[there], bins, features))
    else:
        fits = fits and _may_be_cuts(rival[there], rival_cut[there], features)
    require(fits, "split_rival_cut", "names a cut that is not there")
    require(((split["reason"] >= 0) & (split["reason"] <= TIE)).all(), "split_reason", "is none")
    for name in _SCORES:
        require(np.isfinite(split[name]).all(), f"split_{name}", "has a score that is not finite")


def _may_be_cuts(feature: npt.NDArray[Any], cut: npt.NDArray[Any], features: Features) -> bool:
    """Whether each feature may have had its cut, by bins that are gone."""
    most = np.where(feature < len(features.names), 2**16, 1)
    return bool(((cut >= 0) & (cut < most)).all())


def _are_cuts(feature: npt.NDArray[Any], cut: npt.NDArray[Any], bins: Bins, features: Features) -> bool:
    """Whether each feature has its cut."""
    sizes = np.diff(bins.starts)
    dense = np.where(bins.kinds == CATEGORICAL, sizes, sizes + bins.seen)
    most = np.ones(len(feature), dtype=np.int64)
    is_dense = feature < len(features.names)
    most[is_dense] = dense[feature[is_dense]]
    return bool(((cut >= 0) & (cut < most)).all())


def _threshold(feature: int, cut: int, bins: Bins) -> float:
    """Value that a split at an existing cut compares with."""
    if feature >= len(bins):
        return 0.0
    begin, end = bins.starts[feature : feature + 2]
    values = bins.values[begin:end]
    if bins.kinds[feature] == CATEGORICAL:
        values = values[np.argsort(bins.ranks[begin:end])]
    return float(values[cut]) if cut < len(values) else float(np.inf)


def _check_nodes(
    arrays: Arrays,
    inner: npt.NDArray[Any],
    options: ConfidenceTreeOptions,
    totals: Mapping[str, int],
    fixed: bool,
) -> _Counted:
    """When nodes were made, and what each has counted of the live examples, and where."""
    n = len(arrays["feature"])
    created, since, own = arrays["created"], arrays["since"], arrays["own"]
    expected, parent = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    for side in ("left", "right"):
        expected[arrays[side][inner]] = arrays["split_stamp"]
        parent[arrays[side][inner]] = inner
    counts = np.ones(n, dtype=np.bool_)
    counts[inner] = False
    began = np.full(n, -1, dtype=np.int64)
    place, counted = arrays["place"].astype(np.int64), own
    if options.drift_period:
        _check_trials(arrays, expected, options, totals)
        restarted, began = arrays["trial_restarted"] >= 0, arrays["trial_began"]
        require((created[restarted] >= expected[restarted]).all(), "created", "is before the split above was made")
        expected[restarted] = created[restarted]
    require(np.array_equal(created, expected), "created", "is not when the split above was made")
    require(((since >= 0) & (since < options.grace_period)).all(), "since", "is not below 'grace_period'")
    require(not since[~counts].any() and (fixed or not since.any()), "since", "is of a node that counts nothing")
    rows, nodes, trials = _counted_rows(arrays, parent, began, totals["compared"], fixed)
    require(own.shape == arrays["counts"].shape, "own", "does not count the classes")
    leaves = counts[nodes] & (2 * arrays["born"][rows] + 1 > created[nodes])
    _require_counted(arrays, rows[leaves], nodes[leaves], "own")
    require(np.array_equal(place >= 0, counts), "place", "is not of the nodes that count examples")
    row, at = rows[leaves], place[nodes[leaves]]
    if options.drift_period:
        _require_counted(arrays, rows[trials], nodes[trials], "trial_own")
        of_trials = arrays["trial_place"].astype(np.int64)
        require(np.array_equal(of_trials >= 0, began >= 0), "trial_place", "is not of the nodes with a trial")
        row, at = np.concatenate([row, rows[trials]]), np.concatenate([at, of_trials[nodes[trials]]])
        place, counted = np.concatenate([place, of_trials]), np.concatenate([own, arrays["trial_own"]])
    used = place[place >= 0]
    require(len(np.unique(used)) == len(used), "place", "has the same number for two nodes")
    return _Counted(row, at, counted, place)


def _require_counted(arrays: Arrays, row: Ints, node: Ints, name: str) -> None:
    """An array counts the classes of these rows at these nodes."""
    found = np.zeros_like(arrays[name])
    np.add.at(found, (node, arrays["y"][row]), 1)
    require(np.array_equal(found, arrays[name]), name, "does not count the live examples that came since its time")


def _check_trials(arrays: Arrays, made: Ints, options: ConfidenceTreeOptions, totals: Mapping[str, int]) -> None:
    """Trials began, and nodes were restarted, at insertions since the node was made; tallies can be.

    A trial may begin at the very insertion that made the node: the comparison comes just after the split.
    """
    n = len(made)
    for name, dtype in TRIAL_TYPES.items():
        typed(arrays, name, dtype, arrays["counts"].shape if name == "trial_own" else (n,))
    began, restarted = arrays["trial_began"], arrays["trial_restarted"]
    for name, stamp in (("trial_began", began), ("trial_restarted", restarted)):
        past = (stamp <= totals["compared"]) & (stamp >= made) & (stamp % 2 == 1)
        require((past | (stamp == -1)).all(), name, "is no comparison since the node was made")
    again = restarted >= 0
    require((arrays["created"][again] < restarted[again]).all(), "trial_restarted", "is not after 'created'")
    seen, wrong = arrays["trial_seen"], arrays["trial_wrong"]
    for part in ("trial_seen", "trial_seen_before", "trial_wrong", "trial_wrong_before", "trial_better", "trial_worse"):
        require((arrays[part] >= 0).all(), part, "is below 0")
    require((wrong <= seen).all(), "trial_wrong", "is more than 'trial_seen'")
    before = arrays["trial_wrong_before"] <= arrays["trial_seen_before"]
    require(before.all(), "trial_wrong_before", "is more than 'trial_seen_before'")
    require((arrays["trial_better"] <= wrong).all(), "trial_better", "is more than 'trial_wrong'")
    require((arrays["trial_worse"] <= seen - wrong).all(), "trial_worse", "is more than the tree was right")
    running = began >= 0
    require((seen[running] < LONGEST * options.drift_period).all(), "trial_seen", "is of a trial that has ended")
    idle = arrays["trial_better"][~running].any() or arrays["trial_worse"][~running].any()
    require(not idle, "trial_better", "is of a node without a trial")
    require((seen[~running] < options.drift_period).all(), "trial_seen", "is of a node that has a trial")


def _counted_rows(
    arrays: Arrays, parent: Ints, began: Ints, compared: int, fixed: bool
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Pairs of a row and a node on its route, and whether the trial of that has counted it. O(rows x depth)."""
    row, node = np.arange(arrays["id"].size), arrays["leaf"].astype(np.int64)
    stamp = 2 * arrays["born"] + 1
    rows, nodes = [row[:0]], [node[:0]]
    while fixed and len(row):
        rows.append(row)
        nodes.append(node)
        row, node = row[parent[node] >= 0], parent[node][parent[node] >= 0]
    all_rows, all_nodes = np.concatenate(rows), np.concatenate(nodes)
    came, since = stamp[all_rows], began[all_nodes]
    return all_rows, all_nodes, (since >= 0) & (came > since) & (came <= compared)


def _check_statistics(group: Arrays, bins: Bins, counted: _Counted, classes: int) -> None:
    """Bins of a feature group are those of the whole, and what is counted is by the places of the nodes."""
    for name, array in bins.arrays().items():
        same = group[name].dtype == array.dtype and np.array_equal(group[name], array)
        require(same, name, "of a feature group is not that of all features")
    totals, by_bin = group["totals"], group["bins"]
    require(totals.dtype == np.int64 and totals.ndim == 2, "totals", "is not int64 by place and class")
    places, known = totals.shape
    require(2 <= known <= max(2, classes), "totals", "does not count the classes")
    width = int(bins.counts().sum()) if places else by_bin.shape[1]
    typed(group, "bins", np.int32, (places, width, known))
    expected = np.zeros((places, max(known, counted.own.shape[1])), dtype=np.int64)
    here = (counted.place >= 0) & (counted.place < places)
    require(not counted.own[(counted.place >= 0) & ~here].any(), "totals", "lacks a place that counts examples")
    expected[counted.place[here], : counted.own.shape[1]] = counted.own[here]
    same = np.array_equal(expected[:, :known], totals) and not expected[:, known:].any()
    require(same, "totals", "is not what the nodes have counted")


def _check_bins(group: Arrays, bins: Bins, y: npt.NDArray[Any], counted: _Counted) -> None:
    """Every bin of every place counts the rows that are in it. O(counted rows x columns)."""
    by_bin, X = group["bins"], np.ascontiguousarray(group["X"])
    places, _, classes = by_bin.shape
    if not places:
        return
    codes = np.empty(X.shape[::-1], dtype=np.uint16)
    encode(X, bins, np.arange(len(X), dtype=np.int32), codes)
    place = counted.at
    for begin, size, column in zip(np.cumsum(bins.counts()) - bins.counts(), bins.counts(), codes, strict=True):
        at = (place * size + column[counted.row]) * classes + y[counted.row]
        expected = np.bincount(at, minlength=places * size * classes).reshape(places, size, classes)
        same = np.array_equal(expected, by_bin[:, begin : begin + size])
        require(same, "bins", "does not count the rows that the nodes have counted")


def _check_seen(group: Arrays, sparse: SparseRows, y: npt.NDArray[Any], counted: _Counted) -> None:
    """Counters of the sparse features are those of the rows."""
    row, place = counted.row, counted.at
    ones = sparse[row]
    width = max(1, sparse.n_features)
    key, at = np.unique(np.repeat(place, ones.lengths) * width + ones.indices, return_inverse=True)
    of_one = np.repeat(y[row], ones.lengths)
    n1, c11 = np.bincount(at, minlength=len(key)), np.bincount(at, of_one, minlength=len(key))
    for name, expected in zip(SEEN, (*np.divmod(key, width), n1, c11), strict=True):
        array = typed(group, name, _SEEN_TYPES[name], key.shape)
        require(np.array_equal(array, expected), name, "is not that of the rows the nodes have counted")

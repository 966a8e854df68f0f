"""The arrays of a confidence tree's models and states, and what kernels require of them beyond types and bounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.batches.binning import Bins
from raydt.examples.updates import Features
from raydt.learners.confidence_tree.bounds import TIE
from raydt.learners.confidence_tree.naive_bayes import (
    ADAPTIVE,
    INHERITED,
    LARGEST_LOG,
    LEAST,
    MOST_BITS,
    normal_scores,
    pools_of,
)
from raydt.learners.confidence_tree.naive_bayes import NORMAL as WITH_NORMAL
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.confidence_tree.statistics import (
    INHERITED_RIGHT,
    MAJORITY_RIGHT,
    NAIVE_RIGHT,
    NORMAL_RIGHT,
)
from raydt.trees.records import masses_of
from raydt.trees.state_schema import (
    BINS,
    EXAMPLES,
    HELD_OR_MISSING,
    LEAF,
    NODE_ARRAYS,
    UNIT_ARRAY,
    UPDATES,
    AnyInts,
    Array,
    Arrays,
    Schema,
    add_classes,
    check_bins,
    check_counters,
    check_weights,
    counter,
    finite,
    of_weights,
    require,
    routes,
    row_arrays,
    unit_of,
    weighed,
    weight_arrays,
)

#: A time is a stamp: 2 seq, or 2 seq + 1.
_LAST = 2 * UPDATES
#: By node of a state: the cut and time of its making, arrivals since its last check, and where it counts what.
_COUNTING = (
    Array("cut", np.int32, ("nodes",), -1, 2**16 + 1),
    Array("created", np.int64, ("nodes",), -1, _LAST),
    Array("since", np.int64, ("nodes",), 0),
    Array("place", np.int32, ("nodes",), -1),
    Array("own", np.int64, ("nodes", "counted"), 0, EXAMPLES),
)
#: The record of each split, by inner node in preorder: the fields of ``model.Split``.
SPLITS = (
    Array("split_stamp", np.int64, ("inner",), 1, _LAST),
    Array("split_m", np.int64, ("inner",), 1, EXAMPLES),
    Array("split_t", np.int64, ("inner",), 1, UPDATES),
    Array("split_classes", np.int64, ("inner",), 2, EXAMPLES),
    Array("split_rival_feature", np.int64, ("inner",), -1, "features"),
    Array("split_rival_cut", np.int64, ("inner",), -1, 2**16 + 1),
    Array("split_reason", np.int64, ("inner",), 0, TIE + 1),
    *(finite(f"split_{name}", "inner") for name in ("phi", "rival_phi", "impurity", "epsilon")),
    *(Array(f"split_{name}", np.int64, ("inner", "counted"), 0, EXAMPLES) for name in ("own", "left")),
)
#: By node of a model: the live examples. Predictions need ``counts``, which an empty leaf has from above.
LIVE = Array("live", np.int64, ("nodes",), 0, EXAMPLES)
#: Single numbers of a state; ``compared`` is the stamp of the last row of the warm-up, ``restarted`` 0.
SCALARS = ("seq", "warmup", "t", "classes", "renewed", "lived", "compared", "checks", "splits", "ties", "restarted")
#: By leaf that predicts by naive Bayes, and by cell of such a leaf, ascending (``naive_predictor``).
NAIVE = (
    Array("naive_leaf", np.int32, ("naive",), 0, "nodes", unique=True),
    Array("naive_prior", np.int64, ("naive", "known"), 0, LARGEST_LOG + 1),
    Array("naive_cell_leaf", np.int32, ("cells",), 0, "naive"),
    Array("naive_cell_feature", np.int32, ("cells",), 0, "features"),
    Array("naive_cell_group", np.int32, ("cells",), 0),
    Array("naive_cell_class", np.int32, ("cells",), 0, "known"),
    Array("naive_cell_log", np.int64, ("cells",), 0, LARGEST_LOG + 1),
)
#: By leaf of those that has normal features, by such a feature and class (``normal_bayes``).
NORMAL = (
    Array("normal_leaf", np.int32, ("normals",), 0, "naive", unique=True),
    Array("normal_log", np.int64, ("normals", "normal_features", "known"), -LARGEST_LOG, LARGEST_LOG + 1),
    Array("normal_mean", np.int32, ("normals", "normal_features", "known"), -(1 << 13), 1 << 13),
    Array("normal_variance", np.int32, ("normals", "normal_features", "known"), LEAST, 1 << MOST_BITS),
)
#: Counters of the sparse features that are 1 somewhere, by place and feature, in the state of a group.
SEEN = ("place", "feature", "n1", "c11")


def schema_of(options: ConfidenceTreeOptions, model: Arrays, *, sparse: bool, state: bool) -> Schema:
    """Return the declared arrays; bins are there once the warm-up is over."""
    bins = BINS if "bins_kinds" in model else ()
    declared, masses = (weighed, of_weights) if UNIT_ARRAY.name in model else (tuple, tuple)
    if not state:
        shown = tuple(of for of in (LIVE, *SPLITS) if of.name in model)  # models of the first builds have none
        naive = NAIVE + BINS if "naive_leaf" in model else ()
        return Schema(declared(NODE_ARRAYS + naive + (NORMAL if naive and "normal_leaf" in model else ()) + shown))
    right = MAJORITY_RIGHT | NAIVE_RIGHT
    if options.leaf_prediction in WITH_NORMAL:
        right |= NORMAL_RIGHT
    if options.leaf_prediction == INHERITED:
        right |= INHERITED_RIGHT
    tallied = options.leaf_prediction in ADAPTIVE and len(bins) > 0
    group = (
        *BINS,
        Array("totals", np.int64, ("places", "known"), 0),
        Array("bins", np.int32, ("places", "bins", "known"), 0),
    )
    weights = weight_arrays(model, balanced=options.class_weight == "balanced" and len(bins) > 0)
    arrays = (
        *(counter(name, below=1) if name == "restarted" else counter(name) for name in SCALARS),
        *NODE_ARRAYS,
        *_COUNTING,
        *SPLITS,
        *bins,
        *row_arrays(False),
        LEAF,
        *((Array("was_right", np.uint8, ("rows",), 0, right + 1),) if tallied else ()),
    )
    of_group = (
        HELD_OR_MISSING,
        *(of._replace(shape=tuple("columns" if n == "dense" else n for n in of.shape)) for of in group if bins),
        *(Array(name, np.int32, ("counters",), 0) for name in SEEN if sparse),
    )
    return Schema((*declared(arrays), *weights), masses(of_group))


def check_naive(features: Features, model: Arrays, n: Mapping[str, int]) -> None:
    """Require that naive Bayes leaves are leaves, and that their cells ascend and are of bins that are there."""
    pools = np.diff(pools_of(check_bins(model, features.kinds)).first)
    leaves, prior = model["naive_leaf"], model["naive_prior"]
    require((np.diff(leaves) > 0).all(), "naive_leaf", "states.order")
    require((model["feature"][leaves] < 0).all(), "naive_leaf", "states.inner_leaf")
    require(2 <= n["known"] <= max(2, n["labels"]), "naive_prior", "states.columns", columns=n["known"])
    require((prior > 0).any(axis=1).all(), "naive_prior", "states.empty")
    keys = np.stack([model[f"naive_cell_{name}"] for name in ("class", "group", "feature", "leaf")])
    most = np.append(pools, 1)[np.minimum(keys[2], len(pools))]  # of a sparse feature one
    require((keys[1] < most).all(), "naive_cell_group", "states.unknown", what="group of bins")
    twice = (np.diff(keys, axis=1) == 0).all(axis=0).any()
    in_order = np.array_equal(np.lexsort(keys), np.arange(keys.shape[1])) and not twice
    require(in_order, "naive_cell_leaf", "states.order")
    if "normal_leaf" in model:
        normal = int(normal_scores(check_bins(model, features.kinds))[1].sum())
        require(model["normal_log"].shape[1] == normal, "normal_log", "states.columns", columns=n["normal_features"])
        require((np.diff(model["normal_leaf"]) > 0).all(), "normal_leaf", "states.order")


def check_state(
    options: ConfidenceTreeOptions,
    features: Features,
    state: Arrays,
    groups: Mapping[int, Arrays],
    n: Mapping[str, int],
) -> None:
    """Require that nodes count the examples they say, at places that are there. O(examples x depth + statistics)."""
    y, leaves, place = state["y"], state["feature"] < 0, state["place"].astype(np.int64)
    mass, unit = masses_of(state), unit_of(state)
    check_weights(state, None)
    require((state["since"] < options.grace_period * unit).all(), "since", "states.too_large", below="grace_period")
    fixed = 0 < n["warmup"] <= n["seq"]
    require(("bins_kinds" in state) == fixed, "bins_kinds", "states.warmup")
    require(n["inner"] == (~leaves).sum(), "split_stamp", "states.nodes")
    require(np.array_equal(state["cut"] < 0, leaves), "cut", "states.nodes")
    require(fixed or leaves.all(), "feature", "states.warmup")
    most = min(max(2, n["labels"]), options.most_classes(sparse=features.sparse > 0))
    require(2 <= n["classes"] <= most, "classes", "states.number", what="classes")
    balanced = len(state.get("class_weight", ()))
    require(balanced <= n["classes"], "class_weight", "states.columns", columns=balanced)
    due = n["renewed"] + max(n["lived"], options.renewal * unit)
    renews = options.renewal > 0 and len(features.names) > 0
    require(not renews or n["t"] < due, "renewed", "states.renewal")
    rows, nodes = routes(state)
    came = np.where(fixed, 2 * state["born"][rows] + 1, -1)
    mine = leaves[nodes] & (came > state["created"][nodes])
    _require_counted(state, "own", mass, rows[mine], nodes[mine])
    require(np.array_equal(place >= 0, leaves), "place", "states.nodes")
    row, at, own = rows[mine], place[nodes[mine]], state["own"]
    if options.leaf_prediction == INHERITED and fixed:
        past = leaves[nodes] & ~mine
        row, at = np.concatenate([row, rows[past]]), np.concatenate([at, state["place"][nodes[past]] + 1])
        require((place[place >= 0] % 2 == 0).all(), "place", "states.unknown", what="place")
        place = np.concatenate([place, np.where(leaves, state["place"].astype(np.int64) + 1, -1)])
        own = np.concatenate([own, np.where(leaves[:, None], state["counts"] - state["own"], 0)])
    used = place >= 0
    require(len(np.unique(place[used])) == used.sum(), "place", "states.repeated")
    places = {len(group["totals"]) for group in groups.values()} if fixed else {0}
    require(len(places) == 1, "totals", "states.group_places")
    require(place.max() < max(places) + len(place), "place", "states.unknown", what="place")
    by_place = np.zeros((max(places) + len(place), n["counted"]), dtype=np.int64)
    by_place[place[used]] = own[used]
    bins = check_bins(state, features.kinds) if fixed else None
    for number, group in groups.items():
        if bins is None:
            require("totals" not in group, "totals", "states.warmup")
        else:
            require(unit == 1 or not group["bins"].size or group["bins"].dtype == np.int64, "bins", "states.counts")
            _check_statistics(group, bins.select(features.group_columns(number)), by_place)
        if features.sparse:
            ones = SparseRows.of_arrays(group, features.sparse)[row]
            check_counters(group, SEEN, at, y[row], ones, mass[row])


def _require_counted(state: Arrays, name: str, mass: AnyInts, rows: AnyInts, nodes: AnyInts) -> None:
    """Require that an array counts the classes of these rows at these nodes."""
    found = np.zeros_like(state[name])
    add_classes(found, nodes, state["y"][rows], mass[rows])
    require(np.array_equal(found, state[name]), name, "states.counts")


def _check_statistics(group: Arrays, bins: Bins, by_place: AnyInts) -> None:
    """Require the bins of the tree, and of each column at each place as many examples as the node counts.

    Which bin an example is in is left to the audit: a count stays below the sums, for which tables have entries.
    """
    for name, array in bins.arrays().items():
        require(np.array_equal(group[name], array), name, "states.group_bins")
    totals, by_bin = group["totals"], group["bins"]
    places, known = totals.shape
    expected = np.zeros((len(by_place), max(known, by_place.shape[1])), dtype=np.int64)
    expected[:, : by_place.shape[1]] = by_place
    same = np.array_equal(expected[:places, :known], totals) and expected.sum() == totals.sum()
    require(same and known > 1, "totals", "states.counts")
    counts = bins.counts()
    require(not places or by_bin.shape[1] == counts.sum(), "bins", "states.bin_columns")
    if places and len(counts):
        sums = np.add.reduceat(by_bin, np.cumsum(counts) - counts, axis=1, dtype=np.int64)
        require((sums == totals[:, None]).all(), "bins", "states.addition", other="totals")

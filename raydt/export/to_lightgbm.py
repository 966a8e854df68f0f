"""LightGBM: its text format. A tree with several outputs becomes a tree for each of them.

Numbers up to 1e-35 in size are 0 to LightGBM, so that a threshold of such a size is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from raydt.errors import InputError
from raydt.export import Interface
from raydt.messages import message
from raydt.trees.shapley import TreeSum

LIBRARIES, SUFFIX = ("lightgbm",), ".txt"
#: Of ``decision_type``: a set of categories, a missing value goes left, missing values are NaN.
_CATEGORICAL, _MISSING_LEFT, _NAN = 1, 2, 8
#: Numbers up to it in size are 0.
_ZERO = 1e-35
#: Categories are bits of a set, so that there are at most this many.
_LARGEST_CATEGORY = 2**20


def build(trees: TreeSum, interface: Interface) -> Any:
    """Build a ``lightgbm.Booster``; ``predict(X)`` gives the outputs, of boosting ``predict(X, raw_score=True)``."""
    from lightgbm import Booster

    return Booster(model_str=_text(_with_missing_right(trees, interface)))


def _text(trees: TreeSum) -> str:
    _require_possible(trees)
    k, width = trees.outputs, trees.dense + trees.sparse
    objective = {
        "identity": "",
        "logistic": "objective=binary sigmoid:1\n",
        "softmax": f"objective=multiclass num_class:{k}\n",
    }
    names = " ".join(f"Column_{j}" for j in range(width))
    header = (
        f"tree\nversion=v4\nnum_class={k}\nnum_tree_per_iteration={k}\nlabel_index=0\nmax_feature_idx={width - 1}\n"
        f"{objective[trees.link]}{'average_output' * trees.mean}\nfeature_names={names}\n"
        f"feature_infos={' '.join(['none'] * width)}\n"
    )
    blocks = [
        f"Tree={number}\n{lines}\n"
        for number, lines in enumerate(_tree(trees, t, output) for t in range(trees.trees) for output in range(k))
    ]
    return "\n".join([header, *blocks, "end of trees", "", "pandas_categorical:null", ""])


def _with_missing_right(trees: TreeSum, interface: Interface) -> TreeSum:
    """Return trees that ask for known categories, not for missing ones: LightGBM sends those to the right."""
    if not (trees.members == -1).any():
        return trees
    sets, left, right = (
        [trees.members_of(node) for node in range(len(trees.feature))],
        trees.left.copy(),
        trees.right.copy(),
    )
    for node in np.flatnonzero(trees.is_set).tolist():
        known = sorted(interface.categories[interface.features.names[int(trees.feature[node])]].values())
        if sets[node][0] == -1 and len(sets[node]) == 1 and -1 not in known:
            sets[node] = np.array(known, dtype=np.float64)
            left[node], right[node] = right[node], left[node]
    first = np.concatenate([[0], np.cumsum([len(members) for members in sets])]).astype(np.int64)
    return replace(trees, members=np.concatenate(sets), first_member=first, left=left, right=right)


def _require_possible(trees: TreeSum) -> None:
    """Refuse what a text cannot say."""
    plain = (trees.feature >= 0) & ~trees.is_set
    small = plain & (trees.threshold != 0) & (np.abs(trees.threshold) <= _ZERO)
    if small.any():
        raise InputError(message("export.tiny_threshold", value=float(trees.threshold[small][0]), zero=_ZERO))
    if len(trees.members) and not ((trees.members >= 0) & (trees.members < _LARGEST_CATEGORY)).all():
        raise InputError(message("export.large_category", largest=float(trees.members.max())))


def _tree(trees: TreeSum, tree: int, output: int) -> str:
    """Return the lines of one tree and one of its outputs."""
    nodes = np.arange(trees.starts[tree], trees.starts[tree + 1])
    leaf = trees.feature[nodes] < 0
    number = np.where(leaf, ~(np.cumsum(leaf) - 1), np.cumsum(~leaf) - 1)
    inner, leaves = nodes[~leaf], nodes[leaf]
    values = [repr(value) for value in trees.value[leaves, output].tolist()]
    if not len(inner):
        return f"num_leaves=1\nnum_cat=0\nleaf_value={values[0]}\nis_linear=0\nshrinkage=1\n"
    first = int(nodes[0])
    cover = np.zeros(len(trees.feature), dtype=np.int64) if trees.examples is None else trees.examples
    missing_left = (trees.feature[inner] >= trees.dense) | trees.missing_left[inner]
    kinds = np.where(missing_left, _NAN | _MISSING_LEFT, _NAN)
    thresholds = [repr(value) for value in trees.threshold[inner].tolist()]
    boundaries: list[int] = [0]
    words: list[int] = []
    for place in np.flatnonzero(trees.is_set[inner]).tolist():
        kinds[place] = _NAN | _CATEGORICAL
        thresholds[place] = str(len(boundaries) - 1)
        words += _bits(trees.members_of(int(inner[place])).astype(int).tolist())
        boundaries.append(len(words))
    columns: list[tuple[str, Any]] = [
        ("split_feature", trees.feature[inner].tolist()),
        ("split_gain", [0] * len(inner)),
        ("threshold", thresholds),
        ("decision_type", kinds.tolist()),
        ("left_child", number[trees.left[inner] - first].tolist()),
        ("right_child", number[trees.right[inner] - first].tolist()),
        ("leaf_value", values),
        ("leaf_weight", cover[leaves].tolist()),
        ("leaf_count", cover[leaves].tolist()),
        ("internal_value", [0] * len(inner)),
        ("internal_weight", cover[inner].tolist()),
        ("internal_count", cover[inner].tolist()),
    ]
    if words:
        columns += [("cat_boundaries", boundaries), ("cat_threshold", words)]
    lines = [f"num_leaves={len(leaves)}", f"num_cat={len(boundaries) - 1}"]
    lines += [f"{name}={' '.join(map(str, column))}" for name, column in columns]
    return "\n".join([*lines, "is_linear=0", "shrinkage=1", ""])


def _bits(members: list[int]) -> Iterator[int]:
    """Return a set of categories as words of 32 bits."""
    for word in range(max(members) // 32 + 1):
        yield sum(1 << (member - 32 * word) for member in members if member // 32 == word)


def write(model: Any, path: Path) -> dict[str, Any]:
    """Write the file that ``lightgbm.Booster(model_file=...)`` reads."""
    path.write_text(model.model_to_string(), encoding="utf-8")
    return {}

"""The way of a row through a tree, in words: a sentence for each node, such as ``age <= 30.5 (value 27)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Floats
from raydt.errors import InputError
from raydt.export.interface import Interface
from raydt.messages import message
from raydt.trees.tree_sum import LARGEST, TreeSum

#: Members of a set that a sentence names.
_NAMED = 3


def sentences(trees: TreeSum, X: Floats, sparse: SparseRows | None, tree: int, interface: Interface) -> list[list[str]]:
    """Return the sentences of each row, on its way through one tree, given by its number."""
    if not 0 <= tree < trees.trees:
        raise InputError(message("export.no_tree", tree=tree, trees=trees.trees))
    features, labels = interface.features, [str(label) for label in interface.classes]
    categories = {
        features.names.index(name): {float(number): str(value) for value, number in numbers.items()}
        for name, numbers in interface.categories.items()
    }
    ones = sparse or SparseRows.empty(trees.sparse, len(X))
    found = []
    for row in range(len(X)):
        node, words = int(trees.starts[tree]), []
        while trees.feature[node] >= 0:
            j = int(trees.feature[node])
            if j >= trees.dense:
                is_one = (j - trees.dense) in ones.indices[ones.indptr[row] : ones.indptr[row + 1]]
                left, said = not is_one, f"{interface.name(j)} is {int(is_one)}"
            else:
                left, said = _tested(trees, node, float(X[row, j]), categories.get(j))
                said = f"{features.names[j]} {said}"
            words.append(said)
            node = int(trees.left[node] if left else trees.right[node])
        found.append([*words, _leaf(trees, node, labels)])
    return found


def _tested(trees: TreeSum, node: int, x: float, names: Mapping[float, str] | None) -> tuple[bool, str]:
    """Return whether a value passes the test of a node, and the test in words."""
    members = trees.members_of(node).tolist()
    if members:
        known = [_category(value, names) for value in members[:_NAMED]]
        known += [f"{len(members) - _NAMED} others"] * (len(members) > _NAMED)
        wanted = known[0] if len(members) == 1 else f"one of {', '.join(known)}"
        verb = "is" if x in members else "is not"
        return x in members, f"{verb} {wanted} (value {_category(x, names)})"
    threshold = float(trees.threshold[node])
    if threshold == LARGEST:
        return not np.isnan(x), "is missing" if np.isnan(x) else f"is not missing (value {_number(x)})"
    sign = "<=" if x <= threshold else ">"
    if np.isnan(x):
        left = bool(trees.missing_left[node])
        return left, f"is missing, and goes with {'<=' if left else '>'} {_number(threshold)}"
    return x <= threshold, f"{sign} {_number(threshold)} (value {_number(x)})"


def _category(value: float, names: Mapping[float, str] | None) -> str:
    return (names or {}).get(value, "unknown" if value < 0 or names else _number(value))


def _number(x: float) -> str:
    """Return the shortest text of this number, which can be compared with a threshold in every digit."""
    return str(int(x)) if x.is_integer() and abs(x) < 2**53 else repr(x)


def _leaf(trees: TreeSum, node: int, labels: Sequence[str]) -> str:
    count = "" if trees.cover is None else f" of {round(trees.cover[node] / trees.unit):,} examples"
    values = trees.value[node].tolist()
    if not len(trees.codes) or trees.link != "identity":
        words = ", ".join(f"{value:+.6g}" for value in values)
        return f"leaf{count}: {words}" + (" to the score" if trees.trees > 1 else "")
    shares = sorted(zip(trees.codes.tolist(), values, strict=True))
    words = ", ".join(f"{labels[code] if code < len(labels) else code} {share:.3g}" for code, share in shares)
    return f"leaf{count}: {words}"

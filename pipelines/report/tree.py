"""The top levels of a tree as nested nodes for the page, and which features its splits use.

Works on the arrays of a predict-only model in preorder: node 0 is the root, children come after their parent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.report.folder import Columns
from pipelines.report.formatting import count

LEVELS = 6


@dataclass(frozen=True, slots=True)
class ClassShare:
    """One class at one node: ``tone`` numbers its colour."""

    label: str
    rows: int
    share: float
    tone: int


@dataclass(slots=True)
class Node:
    """One node of the page's tree.

    Attributes
    ----------
    text : str
        The question asked here, or what the leaf predicts.
    leaf : bool
    answer : str
        The answer to the parent's question that leads here, empty at the root.
    rows : int
        Live examples below.
    classes : list of ClassShare
        In class order, without classes that have no row.
    counts : str
        Their counts in words: all of up to three classes, else the three largest.
    history : str
        When the node was built and how many updates it has seen since; empty if the model does not say.
    children : list of Node
        The ``yes`` side first; empty at a leaf and where the page stops.
    hidden : int
        Nodes below that the page does not show.
    """

    text: str
    leaf: bool
    answer: str
    rows: int
    classes: list[ClassShare]
    counts: str
    history: str
    children: list[Node] = field(default_factory=list)
    hidden: int = 0


def top_levels(
    model: Columns,
    features: list[dict[str, Any]],
    classes: list[str],
    categories: dict[str, list[Any]] | None = None,
    levels: int = LEVELS,
) -> Node:
    """The root with its descendants down to ``levels`` questions.

    Parameters
    ----------
    model : dict of ndarray, shape (n,) or (n, K)
    features : list of dict
        ``name`` and ``kind`` of each feature.
    classes : list of str
        Label of each class; a class beyond the list is named by its code.
    categories : dict of list, optional
        The values that the codes of each categorical feature stand for; without them codes are shown.

    Returns
    -------
    Node
        Complexity O(n).
    """
    sizes = _subtree_sizes(model)

    def node(index: int, answer: str, remaining: int) -> Node:
        feature = int(model["feature"][index])
        rows = [int(value) for value in model["counts"][index]]
        total = sum(rows)
        shares = [
            ClassShare(class_name(classes, k), value, value / total, k % 8) for k, value in enumerate(rows) if value
        ]
        if feature < 0:
            text = f"predict {class_name(classes, int(np.argmax(rows)))}" if total else "no example"
        else:
            text = _question(model, features, categories or {}, index)
        result = Node(text, feature < 0, answer, total, shares, _counts(shares), _history(model, index))
        if feature >= 0 and remaining > 0:
            result.children = [
                node(int(model["left"][index]), "yes", remaining - 1),
                node(int(model["right"][index]), "no", remaining - 1),
            ]
        elif feature >= 0:
            result.hidden = int(sizes[index]) - 1
        return result

    return node(0, "", levels)


def feature_use(model: Columns, features: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Splits per feature and the live examples that pass them, most examples first, then in column order."""
    split = model["feature"] >= 0
    used = model["feature"][split]
    passing = model["counts"][split].sum(axis=1)
    splits, rows = np.bincount(used), np.bincount(used, weights=passing)
    order = sorted(np.flatnonzero(splits), key=lambda j: (-rows[j], j))
    return [{"name": feature_name(features, int(j)), "splits": int(splits[j]), "rows": int(rows[j])} for j in order]


def feature_name(features: list[dict[str, Any]], column: int) -> str:
    """Name of a column, or its number where the summary does not name it."""
    return str(features[column].get("name", column)) if 0 <= column < len(features) else f"column {column}"


def _question(model: Columns, features: list[dict[str, Any]], categories: dict[str, list[Any]], index: int) -> str:
    feature, threshold = int(model["feature"][index]), float(model["threshold"][index])
    name = feature_name(features, feature)
    if feature >= len(features) or features[feature].get("kind") != "categorical":
        return f"{name} ≤ {threshold:.6g}"
    values = categories.get(name, [])
    known = threshold.is_integer() and 0 <= threshold < len(values)
    return f"{name} = {values[int(threshold)]}" if known else f"{name} = code {threshold:g}"


def _history(model: Columns, index: int) -> str:
    if not all(name in model for name in ("built", "s", "c")):
        return ""
    built, since = int(model["built"][index]) >> 1, int(model["c"][index])  # FuDyADT counts in half updates
    when = "at the start" if built < 0 else f"at {count(built)}"
    return f"built {when} from {count(model['s'][index])}, {count(since)} since"


def _counts(shares: list[ClassShare], shown: int = 3) -> str:
    largest = shares if len(shares) <= shown else sorted(shares, key=lambda part: -part.rows)[:shown]
    words = " · ".join(f"{part.label}: {count(part.rows)}" for part in largest)
    more = len(shares) - len(largest)
    return f"{words} · {more} more" if more else words


def class_name(classes: list[str], code: int) -> str:
    """Label of a class, or its code where the summary does not name it."""
    return str(classes[code]) if code < len(classes) else f"class {code}"


def _subtree_sizes(model: Columns) -> list[int]:
    left, right = model["left"].tolist(), model["right"].tolist()
    sizes = [1] * len(left)
    for index in range(len(left) - 1, -1, -1):
        if left[index] > index:
            sizes[index] += sizes[left[index]] + sizes[right[index]]
    return sizes

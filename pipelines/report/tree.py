"""The live tree as the page draws it: cards for its top and largest nodes, and all of it as an icicle.

Works on the arrays of a predict-only model in preorder: node 0 is the root, children come after their parent.
Invariant: at most ``CARDS`` nodes of the first ``CARD_LEVELS`` levels become cards, whatever the size of the tree, and
each card says what it hides.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.report.folder import Columns
from pipelines.report.margins import Margins, proven_gaps
from pipelines.report.plot import boxes
from pipelines.words import count, counted, figure, share, threshold
from raydt.examples.features import sparse_name

CARDS = 400
CARD_LEVELS = 20
OPEN_LEVELS = 3
CLASS_TONES = 8
PURE, MIXED = 0.9, 0.7
Gaps = npt.NDArray[np.float64]
THINNEST = 1 / 1200
ICICLE_LEVELS = 40


@dataclass(slots=True)
class Node:
    """One card of the page's tree.

    Attributes
    ----------
    name, test : str
        The question asked here: the feature, and what it is compared with; or the label that the leaf predicts.
    leaf : bool
    tone : str
        Of the class the node predicts; empty without examples.
    answer : str
        The answer to the parent's question that leads here, empty at the root.
    rows : int or None
        Live examples below, if the model says.
    mix : list of (str, float)
        Tone and share of the classes that have a row, in class order; classes of one tone are one part.
    counts : str
        The largest class and its share; without rows all there is to say.
    detail : str
        Everything in one sentence: counts of classes, when it was built, its margin.
    built : str
        When it was built; empty if the model does not say.
    record : tuple of str
        What its split was decided by, line by line; empty if the model does not say.
    margin, margin_tone : str
        Updates left and, at a split, its proven gap; and the tone of the former. Empty without margins.
    margin_share : float
    children : list of Node
        The ``yes`` side first; empty at a leaf and where the page stops.
    hidden : int
        Nodes below that have no card.
    """

    name: str
    test: str
    leaf: bool
    tone: str
    answer: str
    rows: int | None
    mix: list[tuple[str, float]]
    counts: str
    detail: str
    built: str
    record: tuple[str, ...] = ()
    margin: str = ""
    margin_tone: str = ""
    margin_share: float = 0.0
    children: list[Node] = field(default_factory=list)
    hidden: int = 0

    def cards(self) -> int:
        """How many nodes are drawn from here on."""
        return 1 + sum(child.cards() for child in self.children)


@dataclass(frozen=True, slots=True)
class Names:
    """What codes of a model stand for; a code beyond a list is named by its number."""

    features: list[dict[str, Any]] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    categories: dict[str, list[Any]] = field(default_factory=dict)

    def feature(self, number: int) -> str:
        """Name of a feature by its number."""
        return feature_name(self.features, number, self.categories)

    def is_sparse(self, number: int) -> bool:
        """Whether a feature, by its number, is a sparse one."""
        sparse = bool(self.features) and self.features[-1].get("kind") == "sparse"
        return sparse and number >= len(self.features) - 1

    def question(self, model: Columns, node: int) -> tuple[str, str]:
        """What the split of a node asks: a feature, and what it is compared with."""
        return self.asked(int(model["feature"][node]), float(model["threshold"][node]))

    def asked(self, feature: int, value: float) -> tuple[str, str]:
        """A feature, and what a split on it compares it with."""
        name = self.feature(feature)
        if self.is_sparse(feature):
            return name, "is 1"
        if feature >= len(self.features) or self.features[feature].get("kind") != "categorical":
            return name, "is there" if value == np.inf else f"\N{LESS-THAN OR EQUAL TO} {threshold(value)}"
        values = self.categories.get(name, [])
        known = value.is_integer() and 0 <= value < len(values)
        return name, f"= {values[int(value)]}" if known else f"= code {value:g}"

    def words(self, model: Columns, node: int) -> str:
        """The question of a split with its exact threshold, or what a leaf predicts."""
        if model["feature"][node] < 0:
            rows = model["counts"][node]
            return class_name(self.classes, int(rows.argmax())) if rows.any() else "no live example"
        name, test = self.question(model, node)
        numeric = test.startswith("\N{LESS-THAN OR EQUAL TO}")
        return f"{name} \N{LESS-THAN OR EQUAL TO} {float(model['threshold'][node])!r}" if numeric else f"{name} {test}"


def drawn_tree(
    model: Columns,
    names: Names,
    margin: Margins | None = None,
    cards: int = CARDS,
    told: Mapping[int, tuple[str, ...]] = MappingProxyType({}),
) -> Node:
    """The root with the descendants that most live examples pass, at most ``cards`` nodes.

    Parameters
    ----------
    model : dict of ndarray, shape (n,) or (n, K)
    names : Names
    margin : Margins, optional
    cards : int
        A node's children are both drawn or neither.
    told : mapping of int to tuple of str
        By node when it was split, and what that was decided by.

    Returns
    -------
    Node
        Complexity O(n + cards log cards).
    """
    sizes, tones = subtree_sizes(model["left"], model["right"]), class_tones(model)
    rows = model["counts"].sum(axis=1)
    gaps = np.zeros(0) if margin is None else proven_gaps(model)
    root = _card(model, names, margin, gaps, tones, 0, "", told)
    root.hidden = sizes[0] - 1
    waiting = [(-int(rows[0]), 0, 0, root)] if not root.leaf else []
    drawn = 1
    while waiting and drawn + 2 <= cards:
        _, index, level, node = heapq.heappop(waiting)
        sides = ("right", "left") if names.is_sparse(int(model["feature"][index])) else ("left", "right")
        for side, answer in zip(sides, ("yes", "no"), strict=True):
            below = int(model[side][index])
            child = _card(model, names, margin, gaps, tones, below, answer, told)
            child.hidden = sizes[below] - 1
            node.children.append(child)
            if not child.leaf and level + 2 < CARD_LEVELS:
                heapq.heappush(waiting, (-int(rows[below]), below, level + 1, child))
        node.hidden = 0
        drawn += 2
    return root


def _card(
    model: Columns,
    names: Names,
    margin: Margins | None,
    gaps: Gaps,
    tones: list[str],
    index: int,
    answer: str,
    told: Mapping[int, tuple[str, ...]],
) -> Node:
    rows = model["counts"][index]
    total, leaf = int(rows.sum()), int(model["feature"][index]) < 0
    mix: dict[str, int] = defaultdict(int)
    for k in np.flatnonzero(rows).tolist():
        mix[tones[k]] += int(rows[k])
    winner = int(np.argmax(rows))
    label = class_name(names.classes, winner) if total else "no live example"
    name, test = (label, "") if leaf else names.question(model, index)
    counts = f"{share(int(rows[winner]) / total, 0)} {label}" if total else label
    built, *more = told.get(index) or _built(model, index)
    sentences = names.words(model, index), _counts(names.classes, rows), ", ".join((built, *more)) if built else ""
    detail = ". ".join(filter(None, sentences))
    node = Node(
        name,
        test,
        leaf,
        tones[winner] if total else "",
        answer,
        total,
        [(tone, part / total) for tone, part in mix.items()],
        counts,
        detail,
        built,
        tuple(more) if index in told else (),
    )
    if margin is not None:
        left = margin.words(index)
        node.detail += f". Updates until it is rebuilt: {left}"
        node.margin = left if leaf else f"{left} \N{MIDDLE DOT} gap \N{LESS-THAN OR EQUAL TO} {figure(gaps[index])}"
        node.margin_tone, node.margin_share = margin.tone(index), margin.share_left(index)
    return node


def class_tones(model: Columns) -> list[str]:
    """A tone for each class; beyond eight, the smaller classes share one."""
    rows = model["counts"][0]
    if len(rows) <= CLASS_TONES:
        return [f"class-{k}" for k in range(len(rows))]
    largest = np.sort(np.lexsort((np.arange(len(rows)), -rows))[: CLASS_TONES - 1]).tolist()
    return [f"class-{largest.index(k)}" if k in largest else "class-other" for k in range(len(rows))]


def legend(model: Columns, classes: list[str]) -> list[tuple[str, str]]:
    """Label and tone of each class of the tree."""
    tones = class_tones(model)
    named = [(class_name(classes, k), tone) for k, tone in enumerate(tones) if tone != "class-other"]
    other = len(tones) - len(named)
    return [*named, *([(f"{count(other)} others", "class-other")] if other else [])]


def icicle(model: Columns) -> tuple[list[tuple[str, str]], int, int]:
    """The whole tree: a row per depth, each node as wide as its share of the live examples.

    Returns
    -------
    list of (tone and strength, path)
        Strength 0 to 2: how much of a node its majority class is.
    int
        Rows.
    int
        Nodes that are too thin to be seen, or deeper than ``ICICLE_LEVELS``, and are left out.
    """
    rows = model["counts"].sum(axis=1).astype(np.float64)
    depth, start = depths(model), np.zeros(len(rows))
    for node in np.flatnonzero(model["feature"] >= 0).tolist():
        left, right = int(model["left"][node]), int(model["right"][node])
        start[left], start[right] = start[node], start[node] + rows[left]
    whole = max(float(rows[0]), 1.0)
    winner, levels = np.argmax(model["counts"], axis=1), min(int(depth.max()) + 1, ICICLE_LEVELS)
    purity = model["counts"].max(axis=1) / np.maximum(rows, 1.0)
    strength = (purity >= MIXED).astype(int) + (purity >= PURE)
    seen = (rows / whole >= THINNEST) & (depth < ICICLE_LEVELS)
    tones = class_tones(model)
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for node in np.flatnonzero(seen).tolist():
        groups[tones[int(winner[node])], int(strength[node])].append(node)
    paths = []
    for (tone, level), nodes in sorted(groups.items()):
        at = np.array(nodes)
        path = boxes(start[at] / whole, 1 - (depth[at] + 1) / levels, rows[at] / whole, np.full(len(at), 1 / levels))
        paths.append((f"{tone} strength-{level}", path))
    return paths, levels, int((~seen).sum())


def depths(model: Columns) -> npt.NDArray[np.int64]:
    """Depth of each node, the root at 0."""
    depth = np.zeros(len(model["feature"]), dtype=np.int64)
    for node in np.flatnonzero(model["feature"] >= 0).tolist():
        depth[model["left"][node]] = depth[model["right"][node]] = depth[node] + 1
    return depth


def feature_use(model: Columns, names: Names) -> list[dict[str, Any]]:
    """Splits per feature and the live examples that pass them, most examples first, then in column order."""
    split = model["feature"] >= 0
    used = model["feature"][split]
    passing = model["counts"][split].sum(axis=1)
    splits, rows = np.bincount(used), np.bincount(used, weights=passing)
    order = sorted(np.flatnonzero(splits), key=lambda j: (-rows[j], j))
    return [{"name": names.feature(int(j)), "splits": int(splits[j]), "rows": int(rows[j])} for j in order]


def feature_name(
    features: list[dict[str, Any]], column: int, categories: Mapping[str, Sequence[Any]] = MappingProxyType({})
) -> str:
    """Name of a feature by its number, or this number where the summary does not name it.

    ``categories`` may have the tokens that the indices of the sparse features stand for, under their column.
    """
    last = features[-1] if features else {}
    index = column - len(features) + 1
    if last.get("kind") == "sparse" and 0 <= index < int(last.get("features", 0)):
        return sparse_name(str(last.get("name")), index, categories.get(str(last.get("name")), ()))
    return str(features[column].get("name", column)) if 0 <= column < len(features) else f"column {column}"


def class_name(classes: list[str], code: int) -> str:
    """Label of a class, or its code where the summary does not name it."""
    return str(classes[code]) if code < len(classes) else f"class {code}"


def _built(model: Columns, index: int) -> tuple[str, str]:
    """When a node was built and from what, and the updates since; empty if the model does not say."""
    if not all(name in model for name in ("built", "s", "c")):
        return "", ""
    stamp, since = int(model["built"][index]), int(model["c"][index])
    when = "at the start" if stamp < 0 else f"at {count(stamp >> 1)}"  # FuDyADT counts in half updates
    return f"built {when} from {count(model['s'][index])}", f"{counted(since, 'update')} since"


def _counts(classes: list[str], rows: npt.NDArray[np.int64], shown: int = 3) -> str:
    """Class counts in words: all of up to three classes in their order, else the three largest."""
    there = np.flatnonzero(rows).tolist()
    largest = there if len(there) <= shown else sorted(there, key=lambda k: (-rows[k], k))[:shown]
    words = ", ".join(f"{class_name(classes, k)}: {count(rows[k])}" for k in largest)
    more = len(there) - len(largest)
    return f"{words}, {more} more" if more else words


def subtree_sizes(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> list[int]:
    """Nodes of a tree in preorder from each of them on, by their children."""
    sizes, yes, no = [1] * len(left), left.tolist(), right.tolist()
    for index in range(len(left) - 1, -1, -1):
        if yes[index] > index:
            sizes[index] += sizes[yes[index]] + sizes[no[index]]
    return sizes

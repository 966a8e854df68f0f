"""A tree as plain data: cards for its top and largest nodes, and all of it as an icicle.

Works on the arrays of a predict-only model in preorder: node 0 is the root, children come after their parent.
Invariant: at most ``CARDS`` nodes of the first ``CARD_LEVELS`` levels become cards, whatever the size of the tree, and
each card says what it hides.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from raydt.arrays.elementary import AnyArray, Ints
from raydt.examples.updates import sparse_name
from raydt.messages import message
from raydt.presentation.blocks import Node, Note, Row, Table, Tree
from raydt.presentation.charts import Columns, count, counted, figure, share, threshold

CARDS = 400
CARD_LEVELS = 20
CLASS_TONES = 8
FEATURES_SHOWN = 12


#: Arrays of a tree that can be drawn.
DRAWN = ("feature", "threshold", "left", "right", "counts")
#: Of a tree of numeric labels, by node: the number it predicts.
NUMBER = "number"
#: Side of missing numbers by node, in a tree that has decided one, and that of the left.
SIDES, TO_LEFT = "missing", 1
NOTHING = Note()


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the codes of a model; a code beyond a list is named by its number."""

    features: list[dict[str, Any]] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    categories: dict[str, list[Any]] = field(default_factory=dict)
    #: Categories by the numbers that follow from their values, of a model that has those in the place of codes.
    numbers: dict[str, dict[float, Any]] = field(default_factory=dict)

    def feature(self, number: int) -> str:
        """Return the name of a feature by its number."""
        return feature_name(self.features, number, self.categories)

    def is_sparse(self, number: int) -> bool:
        """Return True if a feature, by its number, is sparse."""
        sparse = bool(self.features) and self.features[-1].get("kind") == "sparse"
        return sparse and number >= len(self.features) - 1

    def question(self, model: Columns, node: int) -> tuple[str, str]:
        """Return the question of a node's split: a feature and the value it is compared with."""
        name, test = self.asked(int(model["feature"][node]), float(model["threshold"][node]))
        return name, test + self._or_missing(model, node)

    def _or_missing(self, model: Columns, node: int) -> str:
        """Return what a split adds to its test if missing numbers are known to pass it."""
        return " or missing" if SIDES in model and model[SIDES][node] == TO_LEFT else ""

    def asked(self, feature: int, value: float) -> tuple[str, str]:
        """Return a feature, and what a split on it compares it with."""
        name = self.feature(feature)
        if self.is_sparse(feature):
            return name, "is 1"
        if feature >= len(self.features) or self.features[feature].get("kind") != "categorical":
            return name, "is there" if value == np.inf else f"\N{LESS-THAN OR EQUAL TO} {threshold(value)}"
        values = self.categories.get(name, [])
        known = value.is_integer() and 0 <= value < len(values)
        if value == -1:
            return name, "is missing"
        if value in (by_value := self.numbers.get(name, {})):
            return name, f"= {by_value[value]}"
        return name, f"= {values[int(value)]}" if known else f"= code {value:g}"

    def words(self, model: Columns, node: int) -> str:
        """Return the question of a split with its exact threshold, or what a leaf predicts."""
        if model["feature"][node] < 0:
            return self.label(model, node) or "no live example"
        name, test = self.question(model, node)
        numeric = test.startswith("\N{LESS-THAN OR EQUAL TO}")
        exact = f"\N{LESS-THAN OR EQUAL TO} {float(model['threshold'][node])!r}{self._or_missing(model, node)}"
        return f"{name} {exact if numeric else test}"

    def label(self, model: Columns, node: int) -> str:
        """Return the label that a node's live examples predict; empty without one."""
        rows = model["counts"][node]
        if not rows.any():
            return ""
        return figure(model[NUMBER][node]) if NUMBER in model else class_name(self.classes, int(rows.argmax()))


def drawn_tree(
    model: Columns, names: Names, note: Callable[[int], Note] = lambda node: NOTHING, cards: int = CARDS
) -> Node:
    """Return the root with the descendants that most live examples pass, at most ``cards`` nodes."""
    card = partial(_card, model, names, note, class_tones(model))
    left, right, weight = model["left"], model["right"], model["counts"].sum(axis=1)
    sizes = subtree_sizes(left, right)
    root, drawn = card(0, ""), 1
    root.hidden = sizes[0] - 1
    waiting = [] if root.leaf else [(-weight[0], 0, 0, root)]
    while waiting and drawn + 2 <= cards:
        _, index, level, node = heapq.heappop(waiting)
        sides = (right, left) if names.is_sparse(int(model["feature"][index])) else (left, right)
        for side, answer in zip(sides, ("yes", "no"), strict=True):
            below = int(side[index])
            child = card(below, answer)
            child.hidden = sizes[below] - 1
            node.children.append(child)
            if not child.leaf and level + 2 < CARD_LEVELS:
                heapq.heappush(waiting, (-weight[below], below, level + 1, child))
        node.hidden = 0
        drawn += 2
    return root


def _card(model: Columns, names: Names, note: Callable[[int], Note], tones: list[str], index: int, answer: str) -> Node:
    rows = model["counts"][index]
    total, leaf = rows.sum().item(), int(model["feature"][index]) < 0
    mix: dict[str, float] = defaultdict(int)
    for k in np.flatnonzero(rows).tolist():
        mix[tones[k]] += rows[k].item()
    winner = int(np.argmax(rows))
    label = names.label(model, index) or "no live example"
    name, test = (label, "") if leaf else names.question(model, index)
    counts, held = label, _counts(names.classes, rows)
    if NUMBER in model:
        counts, held = f"mean {label}" if total else label, counted(total, "example")
    elif total:
        counts = f"{share(rows[winner].item() / total, 0)} {label}"
    notes = note(index)
    sentences = names.words(model, index), held, *notes.sentences
    return Node(
        name,
        test,
        leaf,
        tones[winner] if total else "",
        answer,
        round(total),
        [(tone, part / total) for tone, part in mix.items()],
        counts,
        ". ".join(filter(None, sentences)),
        notes,
    )


def class_tones(model: Columns) -> list[str]:
    """Return a tone for each class; beyond eight, the smaller classes share one."""
    rows = model["counts"][0]
    if len(rows) <= CLASS_TONES:
        return [f"class-{k}" for k in range(len(rows))]
    largest = np.sort(np.lexsort((np.arange(len(rows)), -rows))[: CLASS_TONES - 1]).tolist()
    return [f"class-{largest.index(k)}" if k in largest else "class-other" for k in range(len(rows))]


def legend(model: Columns, classes: list[str]) -> list[tuple[str, str]]:
    """Return label and tone of each class of the tree; of numbers there are none."""
    if NUMBER in model:
        return []
    tones = class_tones(model)
    named = [(class_name(classes, k), tone) for k, tone in enumerate(tones) if tone != "class-other"]
    other = len(tones) - len(named)
    return [*named, *([(f"{count(other)} others", "class-other")] if other else [])]


def depths(model: Columns) -> Ints:
    """Return the depth of each node, the root at 0."""
    depth = np.zeros(len(model["feature"]), dtype=np.int64)
    for node in np.flatnonzero(model["feature"] >= 0).tolist():
        depth[model["left"][node]] = depth[model["right"][node]] = depth[node] + 1
    return depth


def feature_name(
    features: list[dict[str, Any]], column: int, categories: Mapping[str, Sequence[Any]] = MappingProxyType({})
) -> str:
    """Return the name of a feature, or its number where the summary lacks it; ``categories`` may name tokens."""
    last = features[-1] if features else {}
    index = column - len(features) + 1
    if last.get("kind") == "sparse" and 0 <= index < int(last.get("features", 0)):
        return sparse_name(str(last.get("name")), index, categories.get(str(last.get("name")), ()))
    return str(features[column].get("name", column)) if 0 <= column < len(features) else f"column {column}"


def class_name(classes: list[str], code: int) -> str:
    """Return the label of a class, or its code where the summary does not name it."""
    return str(classes[code]) if code < len(classes) else f"class {code}"


def _counts(classes: list[str], rows: Ints, shown: int = 3) -> str:
    """Return class counts in words: all of up to three classes in their order, else the three largest."""
    there = np.flatnonzero(rows).tolist()
    largest = there if len(there) <= shown else sorted(there, key=lambda k: (-rows[k], k))[:shown]
    words = ", ".join(f"{class_name(classes, k)}: {count(rows[k])}" for k in largest)
    more = len(there) - len(largest)
    return f"{words}, {more} more" if more else words


def subtree_sizes(left: AnyArray, right: AnyArray) -> list[int]:
    """Count the nodes below each node of a tree in preorder, itself included."""
    sizes, yes, no = [1] * len(left), left.tolist(), right.tolist()
    for index in range(len(left) - 1, -1, -1):
        if yes[index] > index:
            sizes[index] += sizes[yes[index]] + sizes[no[index]]
    return sizes


def in_rows(arrays: Columns) -> Columns:
    """Return arrays of a model whose sums of weights are in rows of weight 1: float64 where rows have weights."""
    unit = int(arrays["unit"][0]) if "unit" in arrays else 1
    sums = ("counts", "totals", "s", "c", "gone") if unit > 1 else ()
    return {**arrays, **{name: arrays[name] / unit for name in sums if name in arrays}}


def drawable(arrays: Columns) -> Columns:
    """Return the arrays of a tree, weights as rows, empty if there are none; ValueError if not in preorder."""
    if not all(name in arrays for name in DRAWN):
        return {}
    feature, left, right, counts = (arrays[name] for name in ("feature", "left", "right", "counts"))
    n = len(feature)
    sound = n > 0 and counts.ndim == 2 and all(len(arrays[name]) == n for name in DRAWN)
    if sound:
        inner = np.flatnonzero(feature >= 0)
        children = np.concatenate([left[inner], right[inner]])
        later = (children > np.tile(inner, 2)).all() and (children < n).all()
        sound = bool(later and len(children) == n - 1 and len(np.unique(children)) == n - 1)
    if not sound:
        raise ValueError(message("models.no_preorder"))
    return in_rows(arrays)


def live_tree(model: Columns, names: Names, note: Callable[[int], Note], about: str, *, lines: int = 1) -> Tree:
    """Return the tree as cards; ``about`` is what a card says besides, ``lines`` the room for notes."""
    root = drawn_tree(model, names, note)
    nodes, drawn = len(model["feature"]), root.cards()
    if drawn < nodes:
        left_out = (
            f"{count(drawn)} of {counted(nodes, 'node')} have a card: those that most live examples pass, down to "
            f"level {CARD_LEVELS}."
        )
    else:
        left_out = f"All {counted(nodes, 'node')} can be opened." if nodes > 1 else ""
    return Tree(
        root,
        "The live tree as the run left it. A card is a node: what it asks, the live examples that pass it and their "
        f"labels{about}. Yes and no are the answers that lead to the next card.",
        legend(model, names.classes),
        left_out,
        lines,
    )


def feature_count(features: Sequence[Mapping[str, Any]]) -> int:
    """Count the features; all sparse ones are one entry of the list."""
    return sum(int(feature.get("features", 1)) for feature in features)


def feature_table(title: str, columns: tuple[str, ...], rows: list[Row], names: Names) -> Table:
    """Return the first rows, one per used feature, with the numbers of the others."""
    total = feature_count(names.features)
    more, unused = len(rows) - FEATURES_SHOWN, total - len(rows)
    remarks = [f"{count(more)} more {'is' if more == 1 else 'are'} used."] if more > 0 else []
    if unused > 0:
        remarks.append(f"{count(unused)} of {counted(total, 'feature')} {'is' if unused == 1 else 'are'} not used.")
    return Table(rows[:FEATURES_SHOWN], " ".join(remarks), title, columns, style="bars")


def features_used(model: Columns, names: Names) -> Table:
    """Return the features by the live examples that pass their splits, most examples first, then in column order."""
    split = model["feature"] >= 0
    used, passing = model["feature"][split], model["counts"][split].sum(axis=1)
    splits, examples = np.bincount(used), np.bincount(used, weights=passing)
    most = examples.max(initial=0)
    rows = [
        Row((names.feature(j), count(splits[j]), count(examples[j])), examples[j] / most if most else None)
        for j in sorted(np.flatnonzero(splits).tolist(), key=lambda j: (-examples[j], j))
    ]
    title = "Features the splits use, by the live examples that pass them"
    return feature_table(title, ("Feature", "Splits", "Examples"), rows, names)

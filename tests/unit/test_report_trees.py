"""The trees as the page draws them: questions, limits, colours."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pipelines.report.charts import path
from raydt.learners.confidence_tree.bounds import TIE
from raydt.learners.confidence_tree.describe import split_notes
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.gbdt.describe import first_trees, importances, question
from raydt.presentation.trees import (
    CARD_LEVELS,
    CARDS,
    ICICLE_LEVELS,
    Names,
    class_tones,
    depths,
    drawn_tree,
    feature_count,
    feature_name,
    features_used,
    icicle,
    legend,
)
from tests.unit.fabricated_run import FEATURES, fabricated_tree

COLOURED = [{"name": "x", "kind": "numeric"}, {"name": "colour", "kind": "categorical"}]


def tree_of(feature: list[int], threshold: list[float], children: dict[int, tuple[int, int]], counts: Any) -> Any:
    """Return the arrays of a tree."""
    sides = [[children.get(node, (-1, -1))[side] for node in range(len(feature))] for side in (0, 1)]
    return {
        "feature": np.array(feature, np.int32),
        "threshold": np.array(threshold),
        "left": np.array(sides[0], np.int32),
        "right": np.array(sides[1], np.int32),
        "counts": np.array(counts),
    }


#: x <= 0.0704... at the root; on its yes side colour = 2; five nodes.
SMALL = tree_of(
    [0, 1, -1, -1, -1],
    [0.07047949999999999, 2, 0, 0, 0],
    {0: (1, 4), 1: (2, 3)},
    [[6, 4], [6, 1], [5, 0], [1, 1], [0, 3]],
)


def below(node: Any) -> list[Any]:
    """A node and all that is drawn below it."""
    return [node, *(deeper for child in node.children for deeper in below(child))]


def chain(length: int) -> dict[str, np.ndarray]:
    """A tree that splits one example off at each of ``length`` levels."""
    at = np.arange(2 * length + 1)
    inner = (at % 2 == 0) & (at < 2 * length)
    live = np.where(at % 2 == 0, length + 1 - at // 2, 1)
    return {
        "feature": np.where(inner, 0, -1).astype(np.int32),
        "threshold": at.astype(np.float64),
        "left": np.where(inner, at + 1, -1).astype(np.int32),
        "right": np.where(inner, at + 2, -1).astype(np.int32),
        "counts": np.stack([live, np.zeros(len(at), np.int64)], axis=1),
    }


def test_a_card_has_its_question_rounded_and_its_detail_exact() -> None:
    root = drawn_tree(SMALL, Names(COLOURED, ["UP", "DOWN"], {"colour": ["red", "green", "blue"]}))
    assert (root.name, root.test, root.rows, root.counts) == ("x", "\u2264 0.07048", 10, "60% UP")
    assert root.detail.startswith("x \u2264 0.07047949999999999.")
    yes, no = root.children
    assert (yes.answer, yes.name, yes.test, yes.hidden) == ("yes", "colour", "= blue", 0)
    assert (no.answer, no.name, no.leaf) == ("no", "DOWN", True)
    assert [leaf.name for leaf in yes.children] == ["UP", "UP"]  # a tie goes to the smaller class
    assert yes.mix == [("class-0", 6 / 7), ("class-1", 1 / 7)]
    assert drawn_tree(SMALL, Names(COLOURED)).children[0].test == "= code 2"
    used = features_used(SMALL, Names(COLOURED))
    assert [(row.cells, row.share) for row in used.rows] == [(("x", "1", "10"), 1.0), (("colour", "1", "7"), 0.7)]
    empty = drawn_tree(tree_of([-1], [0], {}, [[0, 0]]), Names())
    assert (empty.tone, empty.mix, empty.cards()) == ("", [], 1)


@pytest.mark.parametrize("cards", [1, 2, 3, 50, 10_000])
def test_cards_are_bounded_and_what_has_none_is_counted(cards: int) -> None:
    tree = fabricated_tree(classes=5, depth=12, rows=60_000)
    root = drawn_tree(tree, Names([{"name": name, "kind": "numeric"} for name in FEATURES]), cards=cards)
    nodes = below(root)
    assert len(nodes) == root.cards() <= cards
    assert len(nodes) + sum(node.hidden for node in nodes) == len(tree["feature"])
    assert all(len(node.children) in (0, 2) for node in nodes)
    drawn = min((node.rows for node in nodes if node.children), default=0)
    assert all(node.rows <= drawn for node in nodes if node.hidden) or cards < 3


def test_a_tree_of_tens_of_thousands_of_nodes_stays_small() -> None:
    tree = chain(40_000)
    assert drawn_tree(tree, Names()).cards() == 2 * (CARD_LEVELS - 1) + 1 <= CARDS
    drawn = icicle(tree)
    assert sum(len(path(box)) for *_, box in drawn.cells) < 10_000
    assert (drawn.rows, drawn.thin) == (ICICLE_LEVELS, 80_001 - ICICLE_LEVELS)


def test_the_icicle_has_every_node_that_can_be_seen() -> None:
    tree = fabricated_tree(classes=2, depth=6, rows=1000)
    whole = icicle(tree)
    cells = [cell for *_, box in whole.cells for cell in path(box).split("z") if cell]
    drawn = [[float(number) for number in re.findall(r"-?[0-9.]+", cell)] for cell in cells]
    assert len(drawn) + whole.thin == len(tree["feature"])
    assert whole.rows == depths(tree).max() + 1
    live = tree["counts"].sum(axis=1)
    wide = [1000 * n / live[0] for n, d in zip(live, depths(tree), strict=True) if d == 2]
    band = [width for _, top, width, *_ in drawn if abs(top - 2000 / whole.rows) < 1]
    np.testing.assert_allclose(sorted(band), sorted(width for width in wide if width > 1), atol=0.06)


def test_an_icicle_is_the_same_however_small_the_weights_are() -> None:
    tree = fabricated_tree(classes=2, depth=4, rows=1000)
    small = icicle({**tree, "counts": tree["counts"] / 2**20})
    assert [(tone, strength, path(box)) for tone, strength, box in small.cells] == [
        (tone, strength, path(box)) for tone, strength, box in icicle(tree).cells
    ]


def test_of_many_classes_the_largest_have_colours_of_their_own() -> None:
    counts = np.array([[5, 90, 1, 1, 1, 30, 1, 70, 1, 1, 60, 50, 40, 20]])
    tones = class_tones({"counts": counts})
    assert [k for k, tone in enumerate(tones) if tone != "class-other"] == [1, 5, 7, 10, 11, 12, 13]
    assert len(set(tones)) == 8
    assert legend({"counts": counts}, [])[-1][0].split()[0] == "7"
    assert class_tones({"counts": counts[:, :8]}) == [f"class-{k}" for k in range(8)]


def test_a_sparse_feature_is_asked_whether_it_is_1() -> None:
    """Rows without it go to the left, so that yes leads to the right; yes comes first all the same."""
    features = [{"name": "size", "kind": "numeric"}, {"name": "words", "kind": "sparse", "features": 5}]
    assert [feature_name(features, j) for j in range(7)] == ["size", *(f"words[{i}]" for i in range(5)), "column 6"]
    assert feature_count(features) == 6
    names = Names(features, ["no", "yes"], {"words": ["the", "offer"]})
    counts = [[6, 4], [5, 0], [1, 4], [1, 0], [0, 4]]
    tree = tree_of([2, -1, 0, -1, -1], [0.5, 0, 1.5, 0, 0], {0: (1, 2), 2: (3, 4)}, counts)
    root = drawn_tree(tree, names)
    assert (root.name, root.test) == ("offer", "is 1")
    assert [(child.answer, child.rows) for child in root.children] == [("yes", 5), ("no", 5)]
    assert [(child.answer, child.name) for child in root.children[0].children] == [("yes", "no"), ("no", "yes")]


# ---------------------------------------------------------------- boosted trees


BOOSTED = [*COLOURED, {"name": "words", "kind": "sparse", "features": 5}]
NAMES = Names(BOOSTED, ["no", "yes", "perhaps", "never"], {"colour": ["red", "green", "blue"]})
#: Boundaries 0.5 and 2.5 of x; of colour, blue has the first bin and red the second.
BINS = {
    "bins_kinds": np.array([0, 1], np.int8),
    "bins_values": np.array([0.5, 2.5, 0.0, 2.0]),
    "bins_ranks": np.array([0, 0, 1, 0], np.int32),
    "bins_starts": np.array([0, 2, 4]),
    "bins_sparse": np.array([0, 2, 4], np.int32),
}


def boosted(leaves: int = 3, trees: int = 1, per: int = 1, classes: int = 2) -> dict[str, np.ndarray]:
    """Trees whose splits lie on the path of the answer no."""
    one = chain(leaves - 1)
    inner, at = one["feature"] >= 0, np.arange(2 * leaves - 1)
    nodes = {
        **{f"node_{name}": one[name] for name in ("feature", "left", "right")},
        "node_cut": np.zeros(len(at), np.int32),
        "node_value": np.where(inner, 0.0, np.where(at % 4 == 1, -0.25, 0.5)),
        "node_gain": np.where(inner, 10.0, 0.0),
    }
    sizes = {"tree_nodes": np.full(trees, len(at)), "per": np.array([per]), "classes": np.array([classes])}
    return {**BINS, **sizes, **{name: np.tile(column, trees) for name, column in nodes.items()}}


@pytest.mark.parametrize(
    ("feature", "cut", "asked"),
    [
        (0, 0, ("x", "\u2264 0.5")),
        (0, 1, ("x", "\u2264 2.5")),
        (0, 2, ("x", "is there")),  # numbers on the left, NaN on the right
        (1, 0, ("colour", "= blue")),
        (1, 1, ("colour", "= red")),
        (1, 2, ("colour", "= any other")),
        (2, 0, ("words[0]", "= 0")),
        (6, 0, ("words[4]", "= 0")),
    ],
)
def test_what_a_split_of_a_boosted_tree_asks(feature: int, cut: int, asked: tuple[str, str]) -> None:
    assert question(boosted(), feature, cut, NAMES) == asked


def test_of_many_classes_the_first_boosted_trees_are_drawn() -> None:
    [(title, root)] = first_trees(boosted(), NAMES)
    yes, no = root.children
    assert (title, yes.answer, yes.name, yes.mix[0][1]) == ("", "yes", "-0.25", 0.5)
    assert [leaf.counts.split()[-1] for leaf in (yes, *no.children)] == ["no", "yes", "yes"]
    many = boosted(trees=8, per=4, classes=4)
    assert [title.split()[-1] for title, _ in first_trees(many, NAMES)] == ["no", "yes", "perhaps"]
    assert [row.cells for row in importances(many, NAMES).rows] == [("x", "16", "100.0%")]
    [(_, root)] = first_trees(boosted(leaves=3000), NAMES)
    assert root.cards() <= min(CARDS, 2 * CARD_LEVELS)
    assert root.cards() + sum(node.hidden for node in below(root)) == 5999


def test_a_card_has_the_record_of_its_split() -> None:
    model = tree_of([0, -1, -1], [0, 0, 0], {0: (1, 2)}, [[3, 2], [3, 0], [0, 2]])
    rule, names = ConfidenceTreeOptions().split_rule(5), Names(COLOURED)
    assert split_notes(model, rule, names) == {}
    record = {"stamp": 2001, "m": 500, "rival_feature": 0, "reason": TIE}
    record |= {"phi": 0.2, "rival_phi": 0.4, "impurity": 0.5, "epsilon": 0.05}
    notes = split_notes(model | {f"split_{name}": np.array([value]) for name, value in record.items()}, rule, names)
    assert notes.keys() == {0}
    assert re.findall(r"[\d,.]*\d", " ".join(notes[0].lines)) == ["1,001", "500", "0.3", "0.05", "0.1"]

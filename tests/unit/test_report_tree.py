"""The tree as the page draws it: words, limits, colours."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from fabricated_run import FEATURES, fabricated_run, fabricated_tree, write_model

from pipelines.report.page import write_report
from pipelines.report.svg import path
from raydt.learners.fudyadt.margin_report import margins, proven_gaps, with_margin
from raydt.learners.rebuild_description import built_note
from raydt.presentation.blocks import Note
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

COLOURED = [{"name": "x", "kind": "numeric"}, {"name": "colour", "kind": "categorical"}]


def small_tree() -> dict[str, np.ndarray]:
    """x <= 0.5 at the root; on its yes side colour = 2; five nodes."""
    return {
        "feature": np.array([0, 1, -1, -1, -1], dtype=np.int32),
        "threshold": np.array([0.5, 2.0, 0, 0, 0]),
        "left": np.array([1, 2, -1, -1, -1], dtype=np.int32),
        "right": np.array([4, 3, -1, -1, -1], dtype=np.int32),
        "counts": np.array([[6, 4], [6, 1], [5, 0], [1, 1], [0, 3]]),
        "s": np.array([9, 7, 5, 2, 3]),
        "c": np.array([1, 0, 0, 0, 0]),
        "built": np.array([-1, 240, 240, 240, 6001]),
    }


def below(node: Any) -> list[Any]:
    """A node and all that is drawn below it."""
    return [node, *(deeper for child in node.children for deeper in below(child))]


def chain(length: int) -> dict[str, np.ndarray]:
    """A tree that splits one example off at each of ``length`` levels."""
    nodes = 2 * length + 1
    inner = np.arange(nodes) % 2 == 0
    inner[-1] = False
    at = np.arange(nodes)
    live = np.where(at % 2 == 0, length + 1 - at // 2, 1)
    return {
        "feature": np.where(inner, 0, -1).astype(np.int32),
        "threshold": at.astype(np.float64),
        "left": np.where(inner, at + 1, -1).astype(np.int32),
        "right": np.where(inner, at + 2, -1).astype(np.int32),
        "counts": np.stack([live, np.zeros(nodes, np.int64)], axis=1),
    }


def test_the_tree_in_words() -> None:
    names = Names(COLOURED, ["UP", "DOWN"], {"colour": ["red", "green", "blue"]})
    tree = small_tree()
    margin, gaps = margins(tree["s"], tree["c"], 0.2), proven_gaps(tree)

    def note(node: int) -> Note:
        return with_margin(built_note(tree, node), margin, gaps[node], node, tree["feature"][node] < 0)

    root = drawn_tree(tree, names, note)
    assert (root.name, root.test, root.rows, root.counts) == ("x", "\u2264 0.5", 10, "60% UP")
    assert root.note.lines == ("built at the start from 9",)
    assert (root.note.margin, root.note.margin_tone, root.note.margin_share) == (
        "0 of 1 left · gap ≤ 0.2",
        "spent",
        0.0,
    )
    assert root.detail == (
        "x \u2264 0.5. UP: 6, DOWN: 4. built at the start from 9, 1 update since. "
        "Updates until it is rebuilt: 0 of 1 left"
    )
    yes, no = root.children
    assert (yes.answer, yes.name, yes.test, yes.hidden) == ("yes", "colour", "= blue", 0)
    assert (no.answer, no.name, no.note.lines, no.leaf) == ("no", "DOWN", ("built at 3,000 from 3",), True)
    assert (no.note.margin, no.note.margin_tone) == ("no budget", "none")
    assert [leaf.name for leaf in yes.children] == ["UP", "UP"]  # a tie goes to the smaller class
    assert yes.mix == [("class-0", 6 / 7), ("class-1", 1 / 7)]
    assert drawn_tree(tree, Names(COLOURED)).children[0].test == "= code 2"
    used = features_used(tree, Names(COLOURED))
    assert [(row.cells, row.share) for row in used.rows] == [(("x", "1", "10"), 1.0), (("colour", "1", "7"), 0.7)]


def test_a_threshold_is_rounded_on_the_card_and_exact_in_its_detail() -> None:
    tree = small_tree()
    tree["threshold"][0] = 0.07047949999999999
    root = drawn_tree(tree, Names(COLOURED))
    assert root.test == "\u2264 0.07048"
    assert root.detail.startswith("x \u2264 0.07047949999999999.")


def test_an_empty_tree_says_so() -> None:
    arrays = {"feature": np.array([-1]), "threshold": np.zeros(1), "left": np.array([-1]), "right": np.array([-1])}
    root = drawn_tree({**arrays, "counts": np.zeros((1, 2), np.int64)}, Names())
    assert (root.name, root.tone, root.mix, root.cards()) == ("no live example", "", [], 1)


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
    root = drawn_tree(tree, Names())
    assert len(tree["feature"]) == 80_001
    assert root.cards() == 2 * (CARD_LEVELS - 1) + 1 <= CARDS
    drawn = icicle(tree)
    assert sum(len(path(box)) for *_, box in drawn.cells) < 10_000
    assert (drawn.rows, drawn.thin) == (ICICLE_LEVELS, 80_001 - ICICLE_LEVELS)


def test_the_icicle_has_every_node_that_can_be_seen() -> None:
    tree = fabricated_tree(classes=2, depth=6, rows=1000)
    whole_tree = icicle(tree)
    rows, thin = whole_tree.rows, whole_tree.thin
    drawn = [
        [float(number) for number in re.findall(r"-?[0-9.]+", cell)]
        for *_, box in whole_tree.cells
        for cell in path(box).split("z")
        if cell
    ]
    assert len(drawn) + thin == len(tree["feature"])
    assert rows == depths(tree).max() + 1
    live = tree["counts"].sum(axis=1)
    whole = [1000 * n / live[0] for n, d in zip(live, depths(tree), strict=True) if d == 2]
    band = [width for _, top, width, *_ in drawn if abs(top - 2000 / rows) < 1]
    np.testing.assert_allclose(sorted(band), sorted(width for width in whole if width > 1), atol=0.06)


def test_of_many_classes_the_largest_have_colours_of_their_own() -> None:
    counts = np.array([[5, 90, 1, 1, 1, 30, 1, 70, 1, 1, 60, 50, 40, 20]])
    tones = class_tones({"counts": counts})
    assert [k for k, tone in enumerate(tones) if tone != "class-other"] == [1, 5, 7, 10, 11, 12, 13]
    assert len(set(tones)) == 8
    assert legend({"counts": counts}, [])[-1] == ("7 others", "class-other")
    assert class_tones({"counts": counts[:, :8]}) == [f"class-{k}" for k in range(8)]


def test_sparse_features_are_called_after_their_column():
    features = [{"name": "size", "kind": "numeric"}, {"name": "words", "kind": "sparse", "features": 5}]
    assert [feature_name(features, j) for j in range(7)] == ["size", *(f"words[{i}]" for i in range(5)), "column 6"]
    assert feature_count(features) == 6


def test_a_sparse_feature_is_asked_whether_it_is_1():
    """Rows without it go to the left, so that yes leads to the right; yes comes first all the same."""
    features = [{"name": "size", "kind": "numeric"}, {"name": "words", "kind": "sparse", "features": 50}]
    names = Names(features, ["no", "yes"], {"words": ["the", "offer"]})
    tree = {
        "feature": np.array([2, -1, 0, -1, -1], np.int32),
        "threshold": np.array([0.5, 0, 1.5, 0, 0]),
        "left": np.array([1, -1, 3, -1, -1], np.int32),
        "right": np.array([2, -1, 4, -1, -1], np.int32),
        "counts": np.array([[6, 4], [5, 0], [1, 4], [1, 0], [0, 4]]),
    }
    root = drawn_tree(tree, names)
    assert (root.name, root.test) == ("offer", "is 1")
    assert [(child.answer, child.rows) for child in root.children] == [("yes", 5), ("no", 5)]
    below = root.children[0]
    assert (below.name, below.test) == ("size", "≤ 1.5")
    assert [(child.answer, child.name) for child in below.children] == [("yes", "no"), ("no", "yes")]
    assert names.words(tree, 0) == "offer is 1"
    assert Names(features).question({**tree, "feature": np.array([18])}, 0) == ("words[17]", "is 1")


@pytest.mark.parametrize("kind", ["sparse_tree", "fudyadt"], ids=["now", "as an earlier version wrote it"])
def test_a_watched_tree_has_no_margins(kind, tmp_path):
    run = fabricated_run(tmp_path / "run", rows=20, rebuilds=50)
    options = {"kind": kind, "finder": "updgini", "beta": 0.1, "epsilon": "auto", "alpha": 0.1}
    write_model(run, fabricated_tree(classes=2, depth=3, rows=100), **options)
    page = write_report([run], tmp_path / "page.html").read_text()
    assert "whose score is more than beta above that of the best sparse feature" in page
    assert "updates to a rebuild from the root" not in page

"""What the report says of boosted trees, on made-up arrays: questions of all kinds, large trees, many batches."""

from __future__ import annotations

import numpy as np
import pytest

from raydt.learners.gbdt.describe import (
    DEAREST,
    POINTS,
    batches_of,
    dearest,
    drawn_trees,
    first_trees,
    importances,
    over_batches,
    question,
)
from raydt.presentation.trees import CARD_LEVELS, CARDS, Names

FEATURES = [
    {"name": "a", "kind": "numeric"},
    {"name": "colour", "kind": "categorical"},
    {"name": "words", "kind": "sparse", "features": 5},
]
NAMES = Names(FEATURES, ["no", "yes", "perhaps", "never"], {"colour": ["red", "green", "blue"]})
#: Boundaries 0.5 and 2.5 of a; of colour, blue has the first bin and red the second.
BINS = {
    "bins_kinds": np.array([0, 1], np.int8),
    "bins_values": np.array([0.5, 2.5, 0.0, 2.0]),
    "bins_ranks": np.array([0, 0, 1, 0], np.int32),
    "bins_starts": np.array([0, 2, 4]),
    "bins_sparse": np.array([0, 2, 4], np.int32),
}


def chain(leaves):
    """A tree whose splits lie on the path of the answer no."""
    n = 2 * leaves - 1
    inner = np.arange(n) % 2 == 0
    inner[-1] = False
    at = np.arange(n)
    return {
        "node_feature": np.where(inner, 0, -1).astype(np.int32),
        "node_cut": np.zeros(n, np.int32),
        "node_left": np.where(inner, at + 1, -1).astype(np.int32),
        "node_right": np.where(inner, at + 2, -1).astype(np.int32),
        "node_value": np.where(inner, 0.0, np.where(at % 4 == 1, -0.25, 0.5)),
        "node_gain": np.where(inner, 10.0, 0.0),
    }


def model(leaves=3, trees=1, per=1, classes=2):
    parts = [chain(leaves)] * trees
    nodes = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    counts = np.full(trees, 2 * leaves - 1)
    return {**BINS, **nodes, "tree_nodes": counts, "per": np.array([per]), "classes": np.array([classes])}


def events(n, seconds=None):
    """The first training, and n batches."""
    columns = dict.fromkeys(("deletes", "inserts", "subtrees", "rows", "nodes", "depth", "refreshed", "rounds"))
    table = {name: np.arange(n + 1) for name in columns}
    seconds = np.arange(n + 1) / 1000 if seconds is None else seconds
    checked = np.append(0, np.full(n, 20))
    return {"seq": 99 + 50 * np.arange(n + 1), "trees_checked": checked, "trees_retrained": checked // 4} | {
        **table,
        "inserts": np.append(100, np.full(n, 25)),
        "seconds": seconds,
    }


@pytest.mark.parametrize(
    ("feature", "cut", "asked"),
    [
        (0, 0, ("a", "≤ 0.5")),
        (0, 1, ("a", "≤ 2.5")),
        (0, 2, ("a", "is there")),  # numbers on the left, NaN on the right
        (1, 0, ("colour", "= blue")),
        (1, 1, ("colour", "= red")),
        (1, 2, ("colour", "= any other")),
        (2, 0, ("words[0]", "= 0")),
        (6, 0, ("words[4]", "= 0")),
    ],
)
def test_what_a_split_asks(feature, cut, asked):
    assert question(model(), feature, cut, NAMES) == asked


def test_leaves_say_where_they_lead():
    [(title, root)] = first_trees(model(), NAMES)
    yes, no = root.children
    assert (title, yes.answer, yes.name, yes.counts, yes.mix[0][1]) == ("", "yes", "-0.25", "towards no", 0.5)
    assert [leaf.counts for leaf in no.children] == ["towards yes"] * 2
    [(_, root)] = first_trees(model(classes=0), NAMES)
    assert root.children[0].counts == "added to the number"


def test_of_many_classes_the_first_trees_are_drawn():
    found = first_trees(model(trees=8, per=4, classes=4), NAMES)
    assert [title for title, _ in found] == ["Tree of no", "Tree of yes", "Tree of perhaps"]
    assert found[0][1].children[0].counts == "away from no"
    large = model(trees=8, per=4, classes=4)
    assert drawn_trees(large, NAMES).about.startswith("8 trees in 2 iterations; drawn: 3 of the first. The scores")
    table = importances(large, NAMES)
    assert [row.cells for row in table.rows] == [("a", "16", "100.0%")]
    assert table.remark == "6 of 7 features are not used."


def test_a_large_tree_is_cut_and_says_so():
    [(_, root)] = first_trees(model(leaves=3000), NAMES)
    assert root.cards() <= min(CARDS, 2 * CARD_LEVELS)
    node, hidden = root, 0
    while node.children:
        node = node.children[1]
        hidden = node.hidden
    assert root.cards() + hidden == 5999


def test_batches_without_the_first_training():
    table = dearest(events(30))
    assert len(batches_of(events(30))["seq"]) == 30
    assert [row.cells[0] for row in table.rows] == [f"{100 + 50 * k:,}" for k in range(30, 30 - DEAREST, -1)]
    assert (table.rows[0].cells[-1], table.rows[0].share) == ("30 ms", 1.0)
    assert table.remark.startswith(
        "The first training, on 100 rows, took 0 s. All 30 batches took 465 ms, half of them"
    )
    assert "25.0% of the trees that were checked have changed" in table.remark
    assert dearest(events(0)).remark == "The first training, on 100 rows, took 0 s. No batch of updates was applied."
    assert dearest(events(5, np.zeros(6))).rows[0].share is None


def test_many_batches_share_points():
    chart = over_batches(batches_of(events(1000)))
    assert f"1,000 batches in {POINTS} points, each a mean" in chart.caption
    assert len(chart.at) == POINTS
    rows = chart.panels[1].marks[0].values
    assert (rows[0], rows[-1]) == ("2", "998")  # the means of three and of four rows counts
    few = over_batches(batches_of(events(3)))
    assert "3 batches of updates, each applied at once; one point per batch." in few.caption
    assert list(few.names) == ["update 150", "update 200", "update 250"]
